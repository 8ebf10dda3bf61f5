"""Groups of many members on the embedded cluster and virtual time: bugs of other clients, and random storms.

The names of the tests begin with the number of the scenario. `Caller` checks that each partition is given and taken in
turn; here no partition may be owned by two members that can both commit it.
"""

from __future__ import annotations

import re
from random import Random
from typing import Any

import pytest

from kwire.cluster import Snapshot
from kwire.consumer.assignors import parse_assignment, parse_subscription
from kwire.consumer.membership import MemberState
from kwire.consumer.offsets import Offset
from kwire.consumer.subscription import Subscription
from kwire.errors import FencedInstanceError
from kwire.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kwire.protocol.messages.heartbeat import HeartbeatRequest
from kwire.protocol.messages.join_group import JoinGroupRequest
from kwire.protocol.messages.offset_commit import OffsetCommitRequest
from kwire.protocol.messages.offset_fetch import OffsetFetchRequest
from kwire.protocol.messages.sync_group import SyncGroupRequest
from tests.consumer.group_world import GROUP, Commit, GroupCluster, Lookup, MemberWorld

BOTH = pytest.mark.parametrize("protocol", ["classic", "consumer"])
T4 = {"t": 4}


def settled(cluster: GroupCluster, topics: dict[str, int] | None = None, limit: float = 120.0) -> None:
    """Run until each partition has one owner, and nothing moves for 20 s more."""
    topics = topics or T4
    end = cluster.now + limit
    while True:
        cluster.run(max(0.0, end - cluster.now), lambda: cluster.owns_all(topics))
        if cluster.run_while(20.0, lambda: cluster.owns_all(topics)):
            return


def grown(cluster: GroupCluster, count: int, protocol: str, **options: Any) -> list[MemberWorld]:
    members = [cluster.join(protocol, **options) for _ in range(count)]
    settled(cluster)
    return members


@BOTH
def test_members_join_and_leave(protocol: str) -> None:
    cluster = GroupCluster()
    first, second = grown(cluster, 2, protocol)
    assert len(first.caller.owned) == len(second.caller.owned) == 2
    first.leave()
    cluster.run(10, first.has_left)
    assert first.caller.owned == set()
    cluster.stop(first)
    settled(cluster)
    assert len(second.caller.owned) == 4


@BOTH
def test_a_killed_member_is_replaced_after_its_session(protocol: str) -> None:
    cluster = GroupCluster()
    first, second = grown(cluster, 2, protocol)
    cluster.stop(first)
    settled(cluster)
    assert len(second.caller.owned) == 4
    assert "lost" not in second.caller.kinds()


@BOTH
def test_what_was_processed_is_committed_before_the_new_owner_reads(protocol: str) -> None:
    cluster = GroupCluster()
    (first,) = grown(cluster, 1, protocol)
    first.caller.processed = {("t", partition): Offset(10 + partition) for partition in range(4)}
    second = cluster.join(protocol)
    settled(cluster)
    lookups = [Lookup(second, *key) for key in sorted(second.caller.owned)]
    cluster.run(1.0)
    assert [one.result for one in lookups] == [Offset(10 + p) for _, p in sorted(second.caller.owned)]


# -- S08


@BOTH
def test_s08_a_member_that_fell_out_owns_nothing_when_it_joins_again(protocol: str) -> None:
    """S08 (KAFKA-12984): the link is cut for longer than the session, and the group goes on."""
    cluster = GroupCluster()
    first, second = grown(cluster, 2, protocol)
    cluster.cut.add(first)
    cluster.run(60.0)
    assert len(second.caller.owned) == 4
    cluster.cut.discard(first)
    since = cluster.now
    settled(cluster)
    assert first.caller.kinds().count("lost") == 1
    joins = [request for at, member, request in cluster.log if member is first and at >= since]
    if protocol == "classic":
        subscriptions = [
            parse_subscription(one.protocols[0].metadata) for one in joins if isinstance(one, JoinGroupRequest)
        ]
        assert (list(subscriptions[0].owned), subscriptions[0].generation) == ([], -1)
    else:
        first_heartbeat = next(
            one for one in joins if isinstance(one, ConsumerGroupHeartbeatRequest) and one.member_epoch == 0
        )
        assert first_heartbeat.topic_partitions == []


# -- S09


def test_s09_no_partition_is_taken_and_given_in_one_cooperative_round() -> None:
    """S09 (KAFKA-14639): a partition moves only in the round after the one that revoked it."""
    cluster = GroupCluster()
    members = grown(cluster, 1, "classic")
    for _ in range(3):
        members.append(cluster.join("classic"))
        settled(cluster)
    by_generation: dict[int, list[tuple[str, int]]] = {}
    for _at, _member, request in cluster.log:
        if isinstance(request, SyncGroupRequest) and request.assignments:
            given = [key for one in request.assignments for key in parse_assignment(one.assignment).partitions]
            assert len(given) == len(set(given))
            by_generation[request.generation_id] = given
    assert any(len(given) < 4 for given in by_generation.values()), "a round that only revokes"
    assert [len(member.caller.owned) for member in members] == [1, 1, 1, 1]


# -- S10


def test_s10_two_claims_of_one_generation() -> None:
    """S10 (KAFKA-15170), S09: a partition that two members claim goes to one of them only, and the group settles."""
    cluster = GroupCluster()
    members = grown(cluster, 2, "classic")
    first, second = members
    twice = min(first.caller.owned)
    for owned in (second.caller.owned, second.membership._steps.owned):
        owned.add(twice)
    since = cluster.now
    members.append(cluster.join("classic"))
    cluster.run(60.0, lambda: cluster.owns_all({"t": 4}))
    for request in cluster.requests(SyncGroupRequest, since):
        given = [key for one in request.assignments for key in parse_assignment(one.assignment).partitions]
        assert len(given) == len(set(given))
    claims = [
        set(parse_subscription(one.protocols[0].metadata).owned) for one in cluster.requests(JoinGroupRequest, since)
    ]
    assert sum(twice in claim for claim in claims) >= 2, "both claimed it"


# -- S15


def test_s15_members_with_a_pattern_and_different_metadata_join_few_times() -> None:
    """S15 (KAFKA-7126): a topic is created, and 50 members see it at different times."""
    cluster = GroupCluster()
    cluster.metadata_max_age = 10_000.0
    members = [cluster.join("classic", topics=re.compile("t.*")) for _ in range(50)]
    settled(cluster)
    since = cluster.now
    cluster.cluster.state.create_topic("tt", 20)
    for member in members[:8]:
        cluster.run(4.0)  # time for a round of all members
        cluster.refresh(member)
    cluster.run(120.0, lambda: cluster.owns_all({"t": 4, "tt": 20}))
    generations = {one.generation_id for one in cluster.requests(SyncGroupRequest, since)}
    assert len(generations) <= 3


# -- S38


@BOTH
def test_s38_a_topic_that_every_second_response_lacks_causes_no_rebalance(protocol: str) -> None:
    """S38 (CKP #559): one broker's metadata lacks the topic."""
    cluster = GroupCluster()
    cluster.cluster.state.create_topic("u", 2)
    members = [cluster.join(protocol, topics=re.compile("[tu]")) for _ in range(2)]
    cluster.run(60.0, lambda: cluster.owns_all({"t": 4, "u": 2}))
    cluster.run(10.0)
    before = [(member.membership.member().epoch, list(member.caller.events)) for member in members]
    for count in range(10):
        cluster.hidden = {"t"} if count % 2 == 0 else set()
        for member in members:
            cluster.refresh(member)
        cluster.run(0.05)
    cluster.hidden = set()
    cluster.run(30.0)
    assert [(member.membership.member().epoch, list(member.caller.events)) for member in members] == before


# -- S26


def test_s26_commits_through_many_cooperative_rebalances_lose_nothing() -> None:
    """S26 (RDK #4059, #4908): commits all the time while members come and go."""
    cluster = GroupCluster()
    (first,) = grown(cluster, 1, "classic", heartbeat_interval_ms=200)
    commits: list[Commit] = []
    for _ in range(50):
        other = cluster.join("classic", heartbeat_interval_ms=200)
        for _ in range(20):
            commits.append(Commit(first, {min(first.caller.owned): Offset(len(commits))}, False, 5.0))
            cluster.run(0.05)
        other.leave()
        cluster.run(5.0, other.has_left)
        cluster.stop(other)
    assert "lost" not in first.caller.kinds()
    assert sum(commit.results is not None and commit.error is None for commit in commits) > 500


# -- S29


@BOTH
@pytest.mark.parametrize("at", ["join", "heartbeat", "commit", "lookup", "leave", "revoke"])
def test_s29_a_coordinator_that_moves_at_any_request(protocol: str, at: str) -> None:
    """S29 (RDK #2944, #3396, #2791, #2630, #2214): its broker stops, and later comes back."""
    cluster = GroupCluster()
    (first,) = grown(cluster, 1, protocol)
    state = cluster.cluster.state
    node = state.coordinator_of(GROUP)
    second = cluster.join(protocol)
    watched = {
        "join": (JoinGroupRequest, SyncGroupRequest, ConsumerGroupHeartbeatRequest),
        "heartbeat": (HeartbeatRequest, ConsumerGroupHeartbeatRequest),
        "commit": (OffsetCommitRequest,),
        "lookup": (OffsetFetchRequest,),
        "revoke": (),
        "leave": (),
    }[at]
    first.caller.processed[min(first.caller.owned)] = Offset(5)
    commit = Commit(first, {min(first.caller.owned): Offset(7)}, True, 60.0) if at == "commit" else None
    lookup = Lookup(first, "t", 0) if at == "lookup" else None
    if at == "leave":
        settled(cluster)
        second.leave()
    count = len(cluster.log)

    def was_sent() -> bool:
        return any(isinstance(request, watched) for _, _, request in cluster.log[count:]) if watched else True

    cluster.run(30.0, was_sent)
    state.stop_node(node, cluster.now)
    cluster.run(7.0)
    if at == "leave":
        cluster.run(30.0, second.has_left)
        cluster.stop(second)
    settled(cluster)
    state.start_node(node, cluster.now)  # the group moves back, away from a broker that runs
    settled(cluster)
    if commit is not None:
        assert commit.results is not None
    if lookup is not None:
        assert len(lookup.results) == 1


# -- S30


@BOTH
def test_s30_more_members_than_partitions(protocol: str) -> None:
    """S30 (RDK #4800): at most two rounds a change, and then none."""
    cluster = GroupCluster()
    grown(cluster, 7, protocol)
    before = len(cluster.requests(JoinGroupRequest))
    cluster.run(120.0)
    assert len(cluster.requests(JoinGroupRequest)) == before
    since, generations = cluster.now, {one.generation_id for one in cluster.requests(HeartbeatRequest)}
    cluster.join(protocol)
    settled(cluster)
    new = {one.generation_id for one in cluster.requests(SyncGroupRequest, since)} - generations
    assert len(new) <= 2


# -- S46


@BOTH
def test_s46_a_laptop_that_slept(protocol: str) -> None:
    """S46: the clock jumps two hours; the member joins again once."""
    cluster = GroupCluster()
    (first,) = grown(cluster, 1, protocol)
    first.poll_timer.poll_began()
    cluster.members.remove(first)
    cluster.cluster.advance(7_200.0)
    cluster.members.append(first)
    since = cluster.now
    settled(cluster)
    assert first.caller.kinds() == ["assigned", "lost", "assigned"]
    if protocol == "classic":
        joins = cluster.requests(JoinGroupRequest, since)
        assert [one.member_id == "" for one in joins] == [True, False]
    else:
        epochs = [one.member_epoch for one in cluster.requests(ConsumerGroupHeartbeatRequest, since)]
        assert epochs.count(0) == 1


# -- S47 and S48: static members


@BOTH
def test_s47_two_consumers_with_one_instance_id(protocol: str) -> None:
    """S47 (KIP-345): classic: the first is fenced. KIP-848: the second is not let in. Neither flaps."""
    cluster = GroupCluster()
    first = cluster.join(protocol, instance_id="box")
    settled(cluster)
    second = cluster.join(protocol, instance_id="box")
    cluster.run(100.0)
    since = cluster.now
    cluster.run(60.0)
    if protocol == "classic":
        (error,) = first.caller.errors
        assert isinstance(error, FencedInstanceError)
        assert "box" in str(error)
        assert second.caller.owned == {("t", partition) for partition in range(4)}
        assert cluster.requests(JoinGroupRequest, since) == []
    else:
        (error,) = second.caller.errors
        assert "instance" in str(error).lower()
        assert first.caller.owned == {("t", partition) for partition in range(4)}


@BOTH
def test_s48_static_members_restarted_one_by_one_cause_no_rebalance(protocol: str) -> None:
    """S48: within the session timeout."""
    cluster = GroupCluster()
    cluster.cluster.state.create_topic("u", 8)
    members = [cluster.join(protocol, topics=("t", "u"), instance_id=f"box-{number}") for number in range(6)]
    settled(cluster, {"t": 4, "u": 8})
    owned = [set(member.caller.owned) for member in members]
    for number in range(6):
        members[number].leave()
        cluster.run(10.0, members[number].has_left)
        cluster.stop(members[number])
        members[number] = cluster.join(protocol, topics=("t", "u"), instance_id=f"box-{number}")
        cluster.run(10.0, lambda number=number: members[number].is_in(MemberState.STABLE))  # type: ignore[misc]
        cluster.run(10.0)
    assert [set(member.caller.owned) for member in members] == owned
    for member in members:
        assert "revoked" not in member.caller.kinds()
        assert "lost" not in member.caller.kinds()


@BOTH
def test_partitions_that_are_added_while_a_static_leader_is_away_have_an_owner(protocol: str) -> None:
    """KIP-814: the leader that comes back skips the assignment, and did not see the topic grow."""
    cluster = GroupCluster()
    leader = cluster.join(protocol, instance_id="box-0")
    settled(cluster)
    cluster.join(protocol, instance_id="box-1")
    settled(cluster)
    leader.leave()
    cluster.run(10.0, leader.has_left)
    cluster.stop(leader)
    cluster.cluster.state.add_partitions(cluster.cluster.state.topics["t"], 6)
    cluster.join(protocol, instance_id="box-0")
    settled(cluster, {"t": 6})


# -- the poll interval, subscriptions, protocols side by side


@BOTH
def test_a_member_that_stops_polling_gives_way_and_comes_back(protocol: str) -> None:
    cluster = GroupCluster()
    first = cluster.join(protocol, max_poll_interval_ms=20_000)
    second = cluster.join(protocol)
    settled(cluster)
    first.poll_timer.poll_ended(cluster.now)
    first.caller.is_polling = False
    cluster.run(60.0)
    assert first.is_in(MemberState.STALE)
    assert len(second.caller.owned) == 4
    first.caller.is_polling = True
    first.poll_timer.poll_began()
    settled(cluster)
    assert len(first.caller.owned) == 2
    assert first.caller.kinds().count("lost") == 1


@BOTH
def test_a_topic_that_is_created_later_is_consumed(protocol: str) -> None:
    cluster = GroupCluster()
    cluster.metadata_max_age = 20.0
    members = [cluster.join(protocol, topics=("t", "u")) for _ in range(2)]
    settled(cluster)
    cluster.cluster.state.create_topic("u", 2)
    settled(cluster, {"t": 4, "u": 2})
    members[0].membership.subscribe(Subscription.of(["t"]))
    settled(cluster, {"t": 4, "u": 2})
    assert {("u", 0), ("u", 1)} <= members[1].caller.owned


def test_both_protocols_in_one_group() -> None:
    """The coordinator converts the group both ways while members run."""
    cluster = GroupCluster()
    old = [cluster.join("classic") for _ in range(2)]
    settled(cluster)
    new = cluster.join("auto")
    settled(cluster)
    assert new.membership.member().protocol == "consumer"
    new.leave()
    cluster.run(10.0, new.has_left)
    cluster.stop(new)
    settled(cluster)
    assert [len(member.caller.owned) for member in old] == [2, 2]


def test_auto_on_brokers_without_the_new_protocol() -> None:
    cluster = GroupCluster(version="3.9")
    member = cluster.join("auto")
    member.versions[ConsumerGroupHeartbeatRequest] = -1
    settled(cluster)
    assert member.membership.member().protocol == "classic"


# -- every event at every point of a rebalance that takes partitions away

POINTS = ["joining", "prepare", "revoke", "assign", "stable"]
EVENTS = ["new target", "session over", "coordinator moved", "cut", "subscribed again", "poll interval", "no metadata"]


def brought_to(cluster: GroupCluster, protocol: str, point: str) -> MemberWorld:
    """Return a member at this point, where its caller takes no further step."""
    member = cluster.join(protocol, heartbeat_interval_ms=1_000)
    if point == "joining":
        return member
    settled(cluster)
    if point == "stable":
        return member
    member.caller.is_polling = False
    cluster.join(protocol, heartbeat_interval_ms=1_000)
    cluster.run(30.0, lambda: bool(member.caller.items))
    while member.caller.items[0].kind != point:
        member.caller.is_polling = True
        assert member.caller.take()
        member.caller.is_polling = False
        cluster.run(30.0, lambda: bool(member.caller.items))
    return member


def happen(cluster: GroupCluster, member: MemberWorld, event: str, protocol: str) -> None:
    """Let an event happen to a member."""
    state = cluster.cluster.state
    match event:
        case "new target":
            cluster.join(protocol)
        case "session over" | "cut":
            cluster.cut.add(member)
            cluster.run(60.0 if event == "session over" else 3.0)
            cluster.cut.discard(member)
        case "coordinator moved":
            node = state.coordinator_of(GROUP)
            state.stop_node(node, cluster.now)
            cluster.run(6.0)
            state.start_node(node, cluster.now)
        case "subscribed again":
            member.membership.unsubscribe(lambda: None)
            member.membership.subscribe(Subscription.of(["t"]))
        case "poll interval":
            member.poll_timer.poll_ended(cluster.now - 10_000.0)
        case "no metadata":
            member.view.snapshot = Snapshot()


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("event", EVENTS)
def test_every_event_at_every_point_of_a_rebalance(protocol: str, point: str, event: str) -> None:
    cluster = GroupCluster()
    cluster.metadata_max_age = 30.0
    member = brought_to(cluster, protocol, point)
    happen(cluster, member, event, protocol)
    cluster.run(2.0)
    member.caller.is_polling = True
    member.poll_timer.poll_began()
    settled(cluster, limit=400.0)
    assert not member.caller.errors
    assert member.fetcher.fetching == member.caller.owned


# -- storms


class Storm:
    """Members come, go, freeze and lose their connection; the coordinator moves. Everything by one seed."""

    def __init__(self, seed: int, protocols: list[str]) -> None:
        self.random = random = Random(seed)
        self.cluster = GroupCluster(brokers=3)
        self.protocols = protocols
        self.cluster.metadata_max_age = random.choice([2.0, 300.0])
        self.assignors = random.choice([("cooperative-sticky",), ("range",), ("roundrobin",), ("sticky",)])

    def join(self) -> None:
        self.cluster.join(
            self.random.choice(self.protocols), assignors=self.assignors,
            max_poll_interval_ms=self.random.choice([10_000, 300_000]),
            session_timeout_ms=self.random.choice([6_000, 20_000]), heartbeat_interval_ms=1_000,
        )  # fmt: skip

    def event(self) -> None:
        cluster, random = self.cluster, self.random
        member = random.choice(cluster.members) if cluster.members else None
        match random.randrange(9):
            case 0 | 1:
                if len(cluster.members) < 6:
                    self.join()
            case 2 if member is not None:
                cluster.stop(member)
            case 3 if member is not None:
                member.leave()
                cluster.run(40.0, lambda: member.has_left() or not member.caller.is_polling or member in cluster.cut)
                cluster.stop(member)
            case 4 if member is not None:
                cluster.cut ^= {member}
            case 5 if member is not None:
                member.caller.is_polling = not member.caller.is_polling
                if member.caller.is_polling:
                    member.poll_timer.poll_began()
                else:
                    member.poll_timer.poll_ended(cluster.now)
            case 6 if member is not None:
                topics = random.choice([["t"], ["u"], ["t", "u"]])
                member.membership.subscribe(Subscription.of(topics))
            case 7:
                node = random.choice([1, 2, 3])
                state = cluster.cluster.state
                if node in {one.id for one in state.live_nodes} and len(state.live_nodes) > 1:
                    state.stop_node(node, cluster.now)
                else:
                    state.start_node(node, cluster.now)
            case _ if member is not None and member.caller.owned:
                key = random.choice(sorted(member.caller.owned))
                member.caller.processed[key] = Offset(random.randrange(1_000))
                Commit(member, {key: Offset(random.randrange(1_000))}, random.random() < 0.5, 5.0)
        cluster.run(random.choice([0.05, 1.0, 5.0, 15.0]))

    def calm(self) -> None:
        """End all faults; then each partition has one owner within two minutes (I6)."""
        cluster = self.cluster
        cluster.cut.clear()
        for node in (1, 2, 3):
            cluster.cluster.state.start_node(node, cluster.now)
        if not cluster.members:
            self.join()
        for member in cluster.members:
            member.caller.is_polling = True
            member.poll_timer.poll_began()
            member.membership.subscribe(Subscription.of(["t", "u"]))
            assert not member.caller.errors
        settled(cluster, {"t": 4, "u": 3}, 300.0)
        for member in cluster.members:
            assert member.fetcher.fetching == member.caller.owned


@pytest.mark.slow
@pytest.mark.parametrize("protocols", [["classic"], ["consumer"], ["classic", "consumer", "auto"]], ids="-".join)
@pytest.mark.parametrize("seed", range(6))
def test_a_storm_ends_with_one_owner_for_each_partition(seed: int, protocols: list[str]) -> None:
    storm = Storm(seed, protocols)
    storm.cluster.cluster.state.create_topic("u", 3)
    for _ in range(40):
        storm.event()
    storm.calm()
