"""A member of a classic group, request by request, on virtual time: rounds, errors, heartbeats, leaving."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

from kwire.consumer.assignors import (
    Assignor,
    CooperativeStickyAssignor,
    MemberAssignment,
    MemberSubscription,
    TopicRacks,
    assignment_bytes,
    parse_assignment,
    parse_subscription,
    subscription_bytes,
)
from kwire.consumer.membership import MemberState
from kwire.consumer.offsets import Offset
from kwire.consumer.subscription import Regex, Subscription
from kwire.errors import (
    AuthorizationError,
    BrokerError,
    ConfigurationError,
    ErrorCode,
    FencedInstanceError,
    GroupError,
    RebalanceInProgressError,
    RequestTimeoutError,
    UnsupportedVersionError,
    broker_error,
)
from kwire.protocol.messages.describe_groups import DescribeGroupsResponse
from kwire.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kwire.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kwire.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kwire.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.cluster.snapshots import snapshot
from tests.consumer.group_world import IDS, MemberWorld, Sent
from tests.consumer.test_commits import respond as respond_commit
from tests.consumer.world import Key

E = ErrorCode
S = MemberState
T = [("t", partition) for partition in range(4)]
STICKY = "cooperative-sticky"


class World(MemberWorld):
    """A member, and the coordinator's responses to it."""

    generation = 0

    def join(self, generation: int | None = None, *, leader: str = "other", **more: Any) -> None:
        """Take the member through JoinGroup."""
        self.respond_join(self.until("JoinGroup"), generation, leader=leader, **more)

    def respond_join(
        self, sent: Sent, generation: int | None = None, *, leader: str = "other", member: str = "m",
        members: Mapping[str, Sequence[str]] | None = None, assignor: str | None = None, skip: bool = False,
    ) -> None:  # fmt: skip
        self.generation = self.generation + 1 if generation is None else generation
        sent.respond(
            JoinGroupResponse(
                error_code=0,
                generation_id=self.generation,
                protocol_type="consumer" if sent.version >= 7 else None,
                protocol_name=assignor or sent.request.protocols[0].name,
                leader=leader,
                member_id=member,
                skip_assignment=skip,
                members=[
                    JoinGroupResponse.Member(
                        member_id=name, metadata=subscription_bytes(MemberSubscription(topics))
                    )
                    for name, topics in (members or {}).items()
                ],
            )
        )  # fmt: skip

    def sync(self, *assigned: Key) -> Sent:
        """Take the member through SyncGroup; return its request."""
        sent = self.turn_one("SyncGroup")
        respond_sync(sent, *assigned)
        return sent

    def joined(self, *assigned: Key, **more: Any) -> None:
        """Take the member through a round, the caller through its steps, and the early heartbeats."""
        self.join(**more)
        self.sync(*assigned)
        assert self.turn() == []
        self.settle()

    def settle(self) -> None:
        """Respond to the heartbeats that follow a change early, until one is a whole interval away."""
        interval = self.options.heartbeat_interval_ms / 1000
        while self.is_in(S.STABLE) and self.deadline() - self.now < interval - 1e-6:
            self.heartbeat()

    def heartbeat(self, code: int = 0) -> Sent:
        sent = self.until("Heartbeat")
        sent.respond(HeartbeatResponse(error_code=code))
        return sent


def respond_sync(sent: Sent, *assigned: Key) -> None:
    sent.respond(
        SyncGroupResponse(
            error_code=0,
            protocol_type="consumer" if sent.version >= 5 else None,
            protocol_name=STICKY if sent.version >= 5 and sent.request.protocol_name == STICKY else None,
            assignment=assignment_bytes(MemberAssignment(assigned)),
        )
    )


def refuse(sent: Sent, code: int, member: str = "") -> None:
    if sent.name == "JoinGroup":
        sent.respond(JoinGroupResponse(error_code=code, leader="", member_id=member, members=[], protocol_name=""))
    elif sent.name == "SyncGroup":
        sent.respond(SyncGroupResponse(error_code=code, assignment=b""))
    else:
        sent.respond(HeartbeatResponse(error_code=code))


def subscription(sent: Sent) -> MemberSubscription:
    return parse_subscription(sent.request.protocols[0].metadata)


# -- a round


def test_the_first_round() -> None:
    world = World(rack="r1")
    sent = world.turn_one("JoinGroup")
    assert (sent.call.connection, sent.call.timeout_ms) == ("join", 305_000)
    request = sent.request
    assert (request.group_id, request.member_id, request.protocol_type) == ("g", "", "consumer")
    assert (request.session_timeout_ms, request.rebalance_timeout_ms) == (45_000, 300_000)
    assert [one.name for one in request.protocols] == [STICKY]
    joined = subscription(sent)
    assert (list(joined.topics), list(joined.owned), joined.generation, joined.rack) == (["t"], [], -1, "r1")
    refuse(sent, E.MEMBER_ID_REQUIRED, "m")
    sent = world.turn_one("JoinGroup")
    assert sent.request.member_id == "m"
    world.respond_join(sent, 3)
    assert world.is_in(S.COMPLETING_REBALANCE)
    sent = world.turn_one("SyncGroup")
    assert sent.call.connection == "join"
    assert (sent.request.generation_id, sent.request.member_id, sent.request.assignments) == (3, "m", [])
    respond_sync(sent, *T)
    world.turn()
    assert world.caller.events == [("assigned", T)]
    assert world.is_in(S.STABLE)
    assert world.membership.group_metadata()[1:3] == (3, "m")
    assert world.fetcher.fetching == set(T)


@pytest.mark.parametrize(("join", "sync"), [(0, 0), (1, 1), (4, 2), (5, 3), (6, 4), (7, 5), (9, 5)])
def test_every_version_joins(join: int, sync: int) -> None:
    world = World()
    world.versions |= {JoinGroupRequest: join, SyncGroupRequest: sync}
    world.joined(*T, leader="m", members={"m": ["t"]})
    assert world.caller.owned == set(T)


def test_a_sync_that_is_never_answered_ends_after_the_request_timeout() -> None:
    """Not after the rebalance timeout: for five minutes the group would wait for a leader whose request got lost."""
    world = World()
    world.join()
    sync = world.until("SyncGroup")
    assert sync.call.timeout_ms is None  # request_timeout_ms
    sync.fail(RequestTimeoutError("late"))
    assert world.until("JoinGroup", limit=2.0)


def test_the_leader_divides_the_partitions() -> None:
    world = World(assignors=("range",))
    world.join(leader="m", members={"m": ["t"], "n": ["t", "u"]})
    sent = world.turn_one("SyncGroup")
    given = {one.member_id: set(parse_assignment(one.assignment).partitions) for one in sent.request.assignments}
    assert given == {"m": {("t", 0), ("t", 1)}, "n": {("t", 2), ("t", 3), ("u", 0), ("u", 1)}}
    assert {"t", "u"} <= set(world.membership.topics())


def test_the_leader_waits_for_metadata_of_topics_that_only_others_read() -> None:
    world = World(assignors=("range",))
    world.view.snapshot = snapshot({"t": [(1, 7)] * 4}, ids=IDS)
    world.join(leader="m", members={"m": ["t"], "n": ["u"]})
    assert world.turn() == []
    assert "u" in world.membership.topics()
    world.view.snapshot = snapshot({"t": [(1, 7)] * 4, "u": [(2, 7)] * 2}, ids=IDS)
    sent = world.turn_one("SyncGroup")
    assert sum(len(parse_assignment(one.assignment).partitions) for one in sent.request.assignments) == 6


def returned_leader(**given: Sequence[Key]) -> tuple[World, Sent]:
    """Return a static leader that came back to a group, and its DescribeGroups, of members with these partitions."""
    world = World(assignors=("range",), instance_id="i")
    world.join(leader="m", members={name: ["t"] for name in given}, skip=True)
    assert world.sync(*given["m"]).request.assignments == []
    return world, world.turn_one("DescribeGroups")


def describe(sent: Sent, given: Mapping[str, Sequence[Key]], code: int = 0, state: str = "Stable") -> None:
    members = [
        DescribeGroupsResponse.Group.Member(
            member_id=name, client_id="", client_host="", member_metadata=b"",
            member_assignment=assignment_bytes(MemberAssignment(keys)),
        )
        for name, keys in given.items()
    ]  # fmt: skip
    (group,) = sent.request.groups
    described = DescribeGroupsResponse.Group(
        error_code=code, group_id=group, group_state=state, protocol_type="consumer", protocol_data="range",
        members=members,
    )  # fmt: skip
    sent.respond(DescribeGroupsResponse(groups=[described]))


def test_a_leader_that_comes_back_has_partitions_assigned_that_were_added_while_it_was_away() -> None:
    """The group's assignment covers three partitions, and the topic has four by now."""
    given = {"m": T[:1], "n": T[1:3]}
    world, sent = returned_leader(**given)
    describe(sent, given)
    sent = world.turn_one("JoinGroup")
    world.respond_join(sent, leader="m", members={"m": ["t"], "n": ["t"]})
    assert sum(len(parse_assignment(one.assignment).partitions) for one in world.sync(*T[:2]).request.assignments) == 4


@pytest.mark.parametrize(("code", "state", "joins"), [
    (0, "Stable", False),
    (0, "PreparingRebalance", False),  # a heartbeat says so, too
    (E.NOT_COORDINATOR, "", True),
])  # fmt: skip
def test_a_leader_that_comes_back_to_a_whole_assignment_joins_once_more_only_if_it_cannot_know(
    code: int, state: str, joins: bool
) -> None:
    given = {"m": T[:2], "n": T[2:]}
    world, sent = returned_leader(**given)
    describe(sent, given if state == "Stable" else {}, code, state)
    assert [one.name for one in world.turn()] == (["JoinGroup"] if joins else [])


def test_what_a_leader_that_came_back_learns_of_an_older_generation_is_ignored() -> None:
    world, sent = returned_leader(m=T)
    world.heartbeat(E.REBALANCE_IN_PROGRESS)
    world.join()
    world.sync(*T)
    describe(sent, {"m": T[:1]})
    assert world.turn() == []


def test_a_leader_that_may_skip_assigns_nothing_and_still_watches() -> None:
    world, sent = returned_leader(m=T)
    describe(sent, {"m": T})
    assert world.turn() == []
    world.view.snapshot = snapshot({"t": [(1, 7)] * 5}, ids=IDS)
    assert [one.name for one in world.turn()] == ["JoinGroup"]


def test_followers_leave_more_partitions_to_the_leader() -> None:
    world = World()
    world.joined(*T)
    world.view.snapshot = snapshot({"t": [(1, 7)] * 5}, ids=IDS)
    assert world.turn() == []


def test_a_member_of_a_group_without_a_leader_notices_more_partitions() -> None:
    """The coordinator divided them; it may have made the group a classic one since, without another round."""
    world = World()
    world.joined(*T, leader="")
    assert world.turn() == []
    world.view.snapshot = snapshot({"t": [(1, 7)] * 5}, ids=IDS)
    assert [one.name for one in world.turn()] == ["JoinGroup"]


def test_eager_members_revoke_everything_before_they_join() -> None:
    world = World(assignors=("range", "cooperative-sticky"))
    world.joined(*T)
    world.caller.processed[T[0]] = Offset(7)
    world.heartbeat(E.REBALANCE_IN_PROGRESS)
    respond_commit(world.turn_one("OffsetCommit"))
    sent = world.turn_one("JoinGroup")
    assert world.caller.kinds() == ["assigned", "revoked"]
    assert list(subscription(sent).owned) == []
    assert [one.name for one in sent.request.protocols] == ["range", "cooperative-sticky"]


def test_cooperative_members_keep_theirs_and_join_again_after_a_revocation() -> None:
    world = World()
    world.joined(*T)
    world.heartbeat(E.REBALANCE_IN_PROGRESS)
    sent = world.turn_one("JoinGroup")
    assert set(subscription(sent).owned) == set(T)
    assert subscription(sent).generation == 1
    world.respond_join(sent)
    world.sync(T[0], T[1])
    world.caller.processed[T[3]] = Offset(7)
    sent = world.turn_one("OffsetCommit")
    assert world.fetcher.stopped == {T[2], T[3]}
    respond_commit(sent)
    sent = world.turn_one("JoinGroup")
    assert world.caller.events[1:] == [("revoked", T[2:]), ("assigned", [])]
    assert set(subscription(sent).owned) == {T[0], T[1]}
    world.respond_join(sent)
    world.sync(T[0], T[1])
    assert world.turn() == []
    assert world.fetcher.fetching == {T[0], T[1]}


def test_the_gate_holds_the_revocation_back_and_heartbeats_go_on() -> None:
    world = World(assignors=("range",))
    world.joined(*T)
    world.caller.is_polling = False
    for _ in range(20):
        world.heartbeat(E.REBALANCE_IN_PROGRESS)
    assert world.caller.kinds() == ["assigned"]
    world.caller.is_polling = True
    assert [one.name for one in world.turn()] == ["JoinGroup"]
    assert world.caller.kinds() == ["assigned", "revoked"]


def test_a_large_assignment_and_own_assignors_run_on_another_thread() -> None:
    class Own(Assignor):
        name = "own"

        def assign(self, topics: TopicRacks, members: Mapping[str, MemberSubscription]) -> Mapping[str, Sequence[Key]]:
            return {"m": [("t", p) for p in range(len(topics["t"]))]}

    for assignors, partitions in ((Own,), 4), (("range",), 10_000):
        world = World(assignors=assignors)
        world.view.snapshot = snapshot({"t": [(1, 7)] * partitions}, ids=IDS)
        join = world.turn_one("JoinGroup")
        world.is_background_slow = True
        world.respond_join(join, leader="m", members={"m": ["t"], "n": ["t"], "o": ["t"]})
        assert world.turn() == []
        world.run_background()
        sent = world.turn_one("SyncGroup")
        given = [parse_assignment(one.assignment).partitions for one in sent.request.assignments]
        assert sum(map(len, given)) == partitions


def test_an_assignor_that_raises_ends_the_membership() -> None:
    class Broken(CooperativeStickyAssignor):
        name = "broken"

        def assign(self, topics: TopicRacks, members: Mapping[str, MemberSubscription]) -> Any:
            raise ZeroDivisionError("oops")

    world = World(assignors=(Broken,))
    world.join(leader="m", members={"m": ["t"]})
    world.turn()
    assert isinstance(world.membership.fatal_error, GroupError)
    assert "oops" in str(world.caller.errors[0])


def test_the_response_of_a_round_that_is_over_is_ignored() -> None:
    world = World()
    world.joined(*T)
    world.heartbeat(E.REBALANCE_IN_PROGRESS)
    old = world.turn_one("JoinGroup")
    world.poll_timer.poll_ended(world.now)
    world.turn(301)
    assert world.is_in(S.STALE)
    world.respond_join(old)
    assert world.is_in(S.STALE)
    assert world.membership.group_metadata()[1:3] == (0, "m")


def test_a_member_outside_its_subscription_joins_again() -> None:
    world = World()
    world.join()
    world.sync(("u", 0))
    assert [one.name for one in world.turn(1)] == ["JoinGroup"]
    assert world.caller.events == []


# -- the subscription


def test_a_changed_subscription_joins_again_and_revokes_the_old_topics() -> None:
    world = World(topics=("t", "u"))
    world.joined(*T, ("u", 0))
    world.membership.subscribe(Subscription.of(["t"]))
    sent = world.turn_one("JoinGroup")
    assert world.caller.events[1:] == [("revoked", [("u", 0)])]
    assert list(subscription(sent).topics) == ["t"]
    assert set(subscription(sent).owned) == set(T)


def test_a_subscription_that_changes_during_a_round_has_a_round_of_its_own() -> None:
    world = World()
    sent = world.turn_one("JoinGroup")
    world.membership.subscribe(Subscription.of(["t", "u"]))
    world.respond_join(sent)
    world.sync(*T)
    assert list(subscription(world.turn_one("JoinGroup")).topics) == ["t", "u"]


def test_partitions_that_are_added_during_a_round_are_noticed_by_the_leader() -> None:
    world = World(assignors=("range",))
    world.join(leader="m", members={"m": ["t"]})
    sync = world.turn_one("SyncGroup")
    world.view.snapshot = snapshot({"t": [(1, 7)] * 5}, ids=IDS)
    world.turn()
    respond_sync(sync, *T)
    assert [one.name for one in world.turn()] == ["JoinGroup"]


def test_s14_a_static_member_joins_again_for_a_changed_subscription() -> None:
    """S14 (KAFKA-12759)."""
    world = World(instance_id="i")
    world.joined(*T)
    world.membership.subscribe(Subscription.of(["t", "u"]))
    sent = world.turn_one("JoinGroup")
    assert list(subscription(sent).topics) == ["t", "u"]
    assert (sent.request.group_instance_id, sent.request.member_id) == ("i", "m")
    world.respond_join(sent)
    world.sync(*T, ("u", 0))
    world.turn()
    assert ("u", 0) in world.caller.owned


def test_a_pattern_matches_here_with_metadata_newer_than_the_demand() -> None:
    world = World(topics=re.compile("[tu]$"))
    assert world.turn() == []
    assert "*" in world.membership.topics()
    assert world.view.refreshes
    topics = {"t": [(1, 7)] * 4, "u": [(1, 7)], "__consumer_offsets": [(1, 7)], "tt": [(1, 7)]}
    world.view.snapshot = type(world.view.snapshot)().updated(_metadata(topics), world.now + 1)
    sent = world.turn_one("JoinGroup", 1)
    assert list(subscription(sent).topics) == ["t", "u"]
    world.respond_join(sent)
    world.sync(*T)
    world.turn()
    world.view.snapshot = world.view.snapshot.updated(_metadata({**topics, "t2u": [(1, 7)]}), world.now + 1)
    assert world.turn() == []


def _metadata(topics: Any) -> Any:
    from tests.cluster.snapshots import metadata

    return metadata(topics, ids={name: UUID(int=index + 1) for index, name in enumerate(topics)})


def test_the_brokers_pattern_needs_the_new_protocol() -> None:
    world = World(topics=Regex("^t"))
    world.turn()
    assert isinstance(world.membership.fatal_error, ConfigurationError)
    assert "re.compile" in str(world.caller.errors[0])


def test_s38_a_topic_that_one_response_lacks_causes_no_rebalance() -> None:
    """S38 (CKP #559): every second metadata response lacks the topic."""
    world = World(topics=re.compile("[tu]"))
    whole, partial = {"t": [(1, 7)] * 4, "u": [(1, 7)]}, {"u": [(1, 7)]}
    world.view.snapshot = world.view.snapshot.updated(_metadata(whole), world.now + 1)
    world.joined(*T, leader="m", members={"m": ["t", "u"]})
    for count in range(6):
        named = whole if count % 2 else partial
        response = _metadata(named)
        for topic in response.topics:
            topic.topic_id = IDS[topic.name]
        world.view.snapshot = world.view.snapshot.updated(response, world.now + 1 + count)
        assert [one.name for one in world.turn(0.1)] in ([], ["Heartbeat"])
    for count in range(2):
        response = _metadata(partial)
        world.view.snapshot = world.view.snapshot.updated(response, world.now + 10 + count)
        sent = world.turn(0.1)
    assert [one.name for one in sent] == ["JoinGroup"]
    assert list(subscription(sent[0]).topics) == ["u"]


# -- errors of JoinGroup


@pytest.mark.parametrize(
    "code", [E.COORDINATOR_LOAD_IN_PROGRESS, E.REBALANCE_IN_PROGRESS, E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE]
)
def test_a_join_that_may_pass_is_repeated_after_a_back_off(code: int) -> None:
    world = World()
    refuse(world.turn_one("JoinGroup"), code)
    assert world.turn() == []
    world.until("JoinGroup", 1.3)
    assert world.view.forgotten == (code in (E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE))


def test_a_lost_connection_repeats_the_join() -> None:
    world = World()
    world.turn_one("JoinGroup").fail()
    world.until("JoinGroup", 1.3)
    assert world.view.forgotten == 1


def test_a_join_of_an_unknown_member_drops_the_id() -> None:
    world = World()
    world.joined(*T)
    world.heartbeat(E.REBALANCE_IN_PROGRESS)
    refuse(world.turn_one("JoinGroup"), E.UNKNOWN_MEMBER_ID)
    sent = world.turn_one("JoinGroup")
    assert sent.request.member_id == ""
    assert world.caller.kinds() == ["assigned", "lost"]
    assert (list(subscription(sent).owned), subscription(sent).generation) == ([], -1)


def test_a_join_of_an_old_generation_keeps_the_id() -> None:
    world = World()
    world.joined(*T)
    world.heartbeat(E.REBALANCE_IN_PROGRESS)
    refuse(world.turn_one("JoinGroup"), E.ILLEGAL_GENERATION)
    sent = world.turn_one("JoinGroup")
    assert sent.request.member_id == "m"
    assert (list(subscription(sent).owned), subscription(sent).generation) == ([], -1)
    assert world.caller.kinds() == ["assigned", "lost"]


FATAL = [
    (E.FENCED_INSTANCE_ID, FencedInstanceError, "box"),
    (E.INCONSISTENT_GROUP_PROTOCOL, GroupError, STICKY),
    (E.INVALID_SESSION_TIMEOUT, BrokerError, "group.min.session.timeout.ms"),
    (E.INVALID_GROUP_ID, BrokerError, ""),
    (E.GROUP_MAX_SIZE_REACHED, BrokerError, "group.max.size"),
    (E.GROUP_AUTHORIZATION_FAILED, AuthorizationError, ""),
    (E.UNSUPPORTED_VERSION, BrokerError, ""),
    (9999, BrokerError, ""),
]


@pytest.mark.parametrize(("code", "cls", "text"), FATAL)
def test_what_no_join_mends_is_fatal(code: int, cls: type[Exception], text: str) -> None:
    world = World(instance_id="box")
    refuse(world.turn_one("JoinGroup"), code)
    assert world.turn(600) == []
    assert world.is_in(S.FATAL)
    (error,) = world.caller.errors
    assert isinstance(error, cls)
    assert text in str(error)
    assert world.membership.fatal_error is error
    world.leave()
    assert world.turn() == []
    assert world.has_left()


def test_static_members_need_a_coordinator_that_has_them() -> None:
    world = World(instance_id="box")
    world.versions[JoinGroupRequest] = 4
    world.turn()
    assert isinstance(world.membership.fatal_error, UnsupportedVersionError)


def test_a_refused_lookup_of_the_coordinator_is_fatal() -> None:
    world = World()
    world.turn_one("JoinGroup").fail(broker_error(E.GROUP_AUTHORIZATION_FAILED, api="FindCoordinator"))
    world.turn()
    assert isinstance(world.membership.fatal_error, AuthorizationError)


def test_s12_the_demand_to_join_survives_metadata_that_goes_back() -> None:
    """S12 (KAFKA-9815): the join fails, and the metadata is again what it was."""
    world = World(assignors=("range",))
    world.joined(*T, leader="m", members={"m": ["t"]})
    world.view.snapshot = snapshot({"t": [(1, 7)] * 5}, ids=IDS)
    world.turn_one("JoinGroup").fail()
    world.view.snapshot = snapshot({"t": [(1, 7)] * 4}, ids=IDS)
    world.respond_join(world.until("JoinGroup"), leader="m", members={"m": ["t"]})
    world.sync(*T)
    world.turn()
    assert world.caller.owned == set(T)


# -- errors of SyncGroup


def test_a_sync_during_the_next_rebalance_joins_again_with_the_same_generation() -> None:
    world = World()
    world.join(4)
    refuse(world.turn_one("SyncGroup"), E.REBALANCE_IN_PROGRESS)
    assert world.turn_one("JoinGroup").request.member_id == "m"
    assert world.membership.member().epoch == 4


@pytest.mark.parametrize(("code", "member"), [(E.ILLEGAL_GENERATION, "m"), (E.UNKNOWN_MEMBER_ID, "")])
def test_a_sync_of_a_member_that_is_gone_joins_anew(code: int, member: str) -> None:
    world = World()
    world.joined(*T)
    world.heartbeat(E.REBALANCE_IN_PROGRESS)
    world.join()
    refuse(world.turn_one("SyncGroup"), code)
    sent = world.turn_one("JoinGroup")
    assert (sent.request.member_id, subscription(sent).generation) == (member, -1)
    assert world.caller.kinds() == ["assigned", "lost"]


@pytest.mark.parametrize("code", [E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE])
def test_a_sync_at_a_coordinator_that_moved_joins_again(code: int) -> None:
    world = World()
    world.join()
    refuse(world.turn_one("SyncGroup"), code)
    world.until("JoinGroup", 1.3)
    assert world.view.forgotten == 1


@pytest.mark.parametrize(
    ("code", "cls"),
    [
        (E.FENCED_INSTANCE_ID, FencedInstanceError),
        (E.GROUP_AUTHORIZATION_FAILED, AuthorizationError),
        (E.INCONSISTENT_GROUP_PROTOCOL, GroupError),
        (E.UNKNOWN_SERVER_ERROR, BrokerError),
    ],
)
def test_what_no_sync_mends_is_fatal(code: int, cls: type[Exception]) -> None:
    world = World()
    world.join()
    refuse(world.turn_one("SyncGroup"), code)
    world.turn()
    assert isinstance(world.membership.fatal_error, cls)


def test_an_assignment_of_another_assignor_is_fatal() -> None:
    world = World()
    world.join()
    sent = world.turn_one("SyncGroup")
    sent.respond(SyncGroupResponse(error_code=0, protocol_type="consumer", protocol_name="range", assignment=b""))
    world.turn()
    assert isinstance(world.membership.fatal_error, GroupError)


# -- heartbeats


def test_heartbeats_come_by_the_interval_one_at_a_time() -> None:
    world = World()
    world.joined(*T)
    began = world.now
    sent = world.until("Heartbeat")
    assert world.now - began == pytest.approx(3.0)
    assert (sent.request.generation_id, sent.request.member_id) == (1, "m")
    assert world.turn(10) == []
    sent.respond(HeartbeatResponse(error_code=0))
    world.until("Heartbeat", 3.1)


def test_after_a_rebalance_heartbeats_begin_close_together_and_double_up_to_the_interval() -> None:
    world = World()
    world.join()
    world.sync(*T)
    times = [world.now]
    for _ in range(7):
        world.heartbeat()
        times.append(world.now)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.0, 3.0])


def test_the_response_to_an_older_heartbeat_does_not_put_the_next_one_off() -> None:
    """I8: it was on its way during a whole round."""
    world = World(heartbeat_interval_ms=1_000)
    world.joined(*T)
    for _ in range(6):
        world.heartbeat()
    old = world.until("Heartbeat")
    world.commit({T[0]: 7})
    respond_commit(world.turn_one("OffsetCommit"), E.REBALANCE_IN_PROGRESS)
    world.join()
    joined_at = world.now
    world.sync(*T)
    assert world.turn(0.05) == []
    refuse(old, E.ILLEGAL_GENERATION)
    world.until("Heartbeat")
    assert world.now <= joined_at + 0.2


def test_s20_a_coordinator_that_loads_is_not_looked_up() -> None:
    """S20 (KPY #3082)."""
    world = World()
    world.joined(*T)
    for _ in range(5):
        world.heartbeat(E.COORDINATOR_LOAD_IN_PROGRESS)
    assert world.view.forgotten == 0
    assert world.is_in(S.STABLE)


@pytest.mark.parametrize("code", [E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE, None])
def test_a_coordinator_that_moved_keeps_the_membership(code: int | None) -> None:
    world = World()
    world.joined(*T)
    for _ in range(5):
        sent = world.until("Heartbeat")
        if code is None:
            sent.fail()
        else:
            refuse(sent, code)
    world.heartbeat()
    assert world.view.forgotten == 5
    assert world.caller.owned == set(T)
    assert world.caller.kinds() == ["assigned"]


@pytest.mark.parametrize(("code", "member"), [(E.ILLEGAL_GENERATION, "m"), (E.UNKNOWN_MEMBER_ID, "")])
def test_a_heartbeat_of_a_member_that_is_gone(code: int, member: str) -> None:
    world = World()
    world.joined(*T)
    commit = None
    world.heartbeat(code)
    sent = world.turn_one("JoinGroup")
    assert sent.request.member_id == member
    assert world.caller.kinds() == ["assigned", "lost"]
    assert world.fetcher.fetching == set()
    commit = world.commit({T[0]: 3})
    assert commit.error is not None


@pytest.mark.parametrize("code", [E.ILLEGAL_GENERATION, E.UNKNOWN_MEMBER_ID, E.FENCED_INSTANCE_ID])
def test_the_response_to_a_heartbeat_of_an_older_generation_is_ignored(code: int) -> None:
    world = World()
    world.joined(*T)
    sent = world.until("Heartbeat")
    world.membership.subscribe(Subscription.of(["t"]))
    world.joined(*T)
    refuse(sent, code)
    assert world.turn() == []
    assert world.caller.owned == set(T)


@pytest.mark.parametrize(
    ("code", "cls"),
    [
        (E.FENCED_INSTANCE_ID, FencedInstanceError),
        (E.GROUP_AUTHORIZATION_FAILED, AuthorizationError),
        (E.UNKNOWN_SERVER_ERROR, BrokerError),
    ],
)
def test_what_no_heartbeat_mends_is_fatal_and_loses_the_partitions(code: int, cls: type[Exception]) -> None:
    world = World(instance_id="box")
    world.joined(*T)
    world.heartbeat(code)
    world.turn()
    assert isinstance(world.membership.fatal_error, cls)
    assert world.caller.kinds() == ["assigned", "lost"]


def test_s28_a_rebalance_in_progress_counts_as_a_heartbeat() -> None:
    """S28 (RDK #3450): the gate is closed for three session timeouts."""
    world = World(assignors=("range",))
    world.joined(*T)
    world.caller.is_polling = False
    while world.now < 100.0 + 3 * 45.0:
        world.heartbeat(E.REBALANCE_IN_PROGRESS)
    assert world.view.forgotten == 0
    assert world.caller.owned == set(T)
    world.caller.is_polling = True
    assert [one.name for one in world.turn()] == ["JoinGroup"]


@pytest.mark.parametrize("fence", [False, True])
def test_a_session_without_a_response(fence: bool) -> None:
    world = World(fence_on_session_loss=fence)
    world.joined(*T)
    began = world.now
    sent = world.until("Heartbeat")
    sent.fail(RequestTimeoutError("late"))
    while world.now < began + 45.0:
        for one in world.turn(1.0):
            if one.name == "Heartbeat":
                one.fail()
    assert (world.caller.kinds() == ["assigned", "lost"]) == fence
    assert world.view.forgotten > 0


def test_s11_the_demand_to_join_survives_a_lost_connection() -> None:
    """S11 (KAFKA-10134): the heartbeat demands it, and the join is lost."""
    world = World()
    world.joined(*T)
    world.heartbeat(E.REBALANCE_IN_PROGRESS)
    world.turn_one("JoinGroup").fail()
    began, count = world.now, 0
    while world.now < began + 5.0:
        for sent in world.turn(0.05):
            count += 1
            sent.fail()
    assert 5 <= count <= 25
    world.joined(*T)
    assert world.turn(1.0) == []


# -- commits


def test_the_commit_before_a_revocation_and_its_failure() -> None:
    for code in (E.OFFSET_METADATA_TOO_LARGE, E.UNKNOWN_TOPIC_OR_PARTITION):
        world = World(assignors=("range",))
        world.joined(*T)
        world.caller.processed[T[0]] = Offset(7)
        world.heartbeat(E.REBALANCE_IN_PROGRESS)
        sent = world.turn_one("OffsetCommit")
        assert world.caller.kinds() == ["assigned"]
        respond_commit(sent, code)
        assert [one.name for one in world.turn()] == ["JoinGroup"]
        assert world.caller.kinds() == ["assigned", "revoked"]


def test_s25_a_revocation_goes_on_when_its_commit_gets_no_response() -> None:
    """S25 (RDK #2933)."""
    world = World(assignors=("range",), max_poll_interval_ms=20_000)
    world.joined(*T)
    world.caller.processed[T[0]] = Offset(7)
    world.heartbeat(E.REBALANCE_IN_PROGRESS)
    world.turn_one("OffsetCommit")
    names = []
    began = world.now
    while "JoinGroup" not in names:
        for sent in world.turn(0.5):
            names.append(sent.name)
            if sent.name == "Heartbeat":
                refuse(sent, E.REBALANCE_IN_PROGRESS)
    assert world.now - began == pytest.approx(10.0)
    assert world.caller.kinds() == ["assigned", "revoked"]


@pytest.mark.parametrize("code", [0, E.COORDINATOR_LOAD_IN_PROGRESS])
def test_a_revocation_waits_for_commits_that_are_on_their_way(code: int) -> None:
    """Such as those that the user's callback made without waiting."""
    world = World(assignors=("range",), max_poll_interval_ms=20_000)
    world.joined(*T)
    first = world.commit({T[0]: 1}, retries=False)
    sent = world.turn_one("OffsetCommit")
    second = world.commit({T[0]: 2}, retries=bool(code), timeout=60.0)
    world.heartbeat(E.REBALANCE_IN_PROGRESS)
    assert world.turn() == []
    assert world.caller.kinds() == ["assigned", "revoked"]
    respond_commit(sent)
    assert first.error is None
    names: list[str] = []
    began = world.now
    while "JoinGroup" not in names:
        for sent in world.turn(0.0 if not names else 0.5):
            names.append(sent.name)
            if sent.name == "OffsetCommit":
                respond_commit(sent, code)
            elif sent.name == "Heartbeat":
                refuse(sent, E.REBALANCE_IN_PROGRESS)
    assert second.results is not None
    assert (second.error is None) == (code == 0)
    assert world.now - began == pytest.approx(10.0 if code else 0.0, abs=0.6)


def test_what_on_revoked_got_is_not_lost_once_more() -> None:
    """The membership ends while a commit of what was revoked is on its way."""
    world = World()
    world.joined(*T)
    commit = world.commit({T[3]: 1})
    world.turn_one("OffsetCommit")
    world.heartbeat(E.REBALANCE_IN_PROGRESS)
    world.join()
    world.sync(*T[:3])
    assert world.turn() == []
    assert world.caller.events[1:] == [("revoked", [T[3]])]
    world.heartbeat(E.UNKNOWN_MEMBER_ID)
    world.turn_one("JoinGroup")
    assert world.caller.events[2:] == [("lost", T[:3])]
    assert commit.results is None


def test_a_commit_that_meets_a_rebalance_joins_again() -> None:
    world = World()
    world.joined(*T)
    commit = world.commit({T[0]: 7})
    respond_commit(world.turn_one("OffsetCommit"), E.REBALANCE_IN_PROGRESS)
    assert isinstance(commit.error, RebalanceInProgressError)
    assert [one.name for one in world.turn()] == ["JoinGroup"]
    assert world.membership.member().epoch == 1


@pytest.mark.parametrize(("code", "member"), [(E.ILLEGAL_GENERATION, "m"), (E.UNKNOWN_MEMBER_ID, "")])
def test_a_commit_of_a_member_that_is_gone_loses_the_partitions(code: int, member: str) -> None:
    world = World()
    world.joined(*T)
    world.commit({T[0]: 7})
    respond_commit(world.turn_one("OffsetCommit"), code)
    sent = world.turn_one("JoinGroup")
    assert sent.request.member_id == member
    assert world.caller.kinds() == ["assigned", "lost"]


def test_s26_a_commit_of_the_old_generation_during_a_join_loses_nothing() -> None:
    """S26 (RDK #4059): the coordinator has the new generation, this member does not yet."""
    world = World()
    world.joined(*T)
    world.heartbeat(E.REBALANCE_IN_PROGRESS)
    join = world.turn_one("JoinGroup")
    world.commit({T[0]: 7})
    respond_commit(world.turn_one("OffsetCommit"), E.ILLEGAL_GENERATION)
    world.respond_join(join)
    world.sync(*T)
    world.turn()
    assert world.caller.kinds() == ["assigned", "assigned"]


def test_a_commit_names_a_generation_only_with_its_assignment() -> None:
    """Until SyncGroup has a response what it owns is of the generation before (Java: `generationIfStable`).

    A coordinator that has converted the group accepts commits of the new one, also of partitions that others have.
    """
    world = World()
    world.joined(*T)
    world.heartbeat(E.REBALANCE_IN_PROGRESS)
    world.respond_join(world.turn_one("JoinGroup"))
    sync = world.turn_one("SyncGroup")
    early = world.commit({T[0]: 7})
    sent = world.turn_one("OffsetCommit")
    assert (sent.request.generation_id_or_member_epoch, world.membership.member().epoch) == (1, 2)
    respond_commit(sent, E.ILLEGAL_GENERATION)
    assert isinstance(early.error, RebalanceInProgressError)
    respond_sync(sync, *T)
    world.turn()
    world.commit({T[0]: 8})
    assert world.until("OffsetCommit", 1.0).request.generation_id_or_member_epoch == 2
    assert "lost" not in world.caller.kinds()


def test_a_commit_after_a_lost_sync_meets_a_rebalance() -> None:
    world = World()
    world.joined(*T)
    world.heartbeat(E.REBALANCE_IN_PROGRESS)
    world.respond_join(world.turn_one("JoinGroup"))
    world.turn_one("SyncGroup").fail()
    early = world.commit({T[0]: 7})
    respond_commit(world.until("OffsetCommit", 1.0), E.ILLEGAL_GENERATION)
    assert isinstance(early.error, RebalanceInProgressError)
    world.respond_join(world.until("JoinGroup", 2.0))
    world.sync(*T)
    assert "lost" not in world.caller.kinds()


def test_s24_commits_that_fail_cause_no_join() -> None:
    """S24 (PLT PR 370): for 60 s."""
    world = World()
    world.joined(*T)
    while world.now < 160.0:
        world.commit({T[0]: 7}, retries=False)
        for sent in world.turn(0.5):
            if sent.name == "Heartbeat":
                refuse(sent, 0)
            else:
                assert sent.name == "OffsetCommit"
                respond_commit(sent, E.COORDINATOR_NOT_AVAILABLE)
    assert world.caller.kinds() == ["assigned"]


# -- leaving


def test_a_dynamic_member_commits_revokes_and_leaves() -> None:
    world = World()
    world.joined(*T)
    world.caller.processed[T[0]] = Offset(7)
    world.leave()
    respond_commit(world.turn_one("OffsetCommit"))
    sent = world.turn_one("LeaveGroup")
    assert world.caller.kinds() == ["assigned", "revoked"]
    assert [(one.member_id, one.group_instance_id) for one in sent.request.members] == [("m", None)]
    assert not world.has_left()
    sent.respond(LeaveGroupResponse(error_code=0, members=[]))
    assert world.has_left()
    assert world.turn(600) == []


@pytest.mark.parametrize("version", range(6))
def test_every_version_leaves(version: int) -> None:
    world = World()
    world.versions[LeaveGroupRequest] = version
    world.joined(*T)
    world.leave()
    request = world.turn_one("LeaveGroup").request
    assert (request.member_id or request.members[0].member_id) == "m"


@pytest.mark.parametrize(
    ("instance", "mode", "sends"),
    [(None, "default", True), (None, "remain", False), ("i", "default", False), ("i", "leave", True)],
)
def test_who_sends_a_leave(instance: str | None, mode: str, sends: bool) -> None:
    world = World(instance_id=instance)
    world.joined(*T)
    world.leave(mode)
    assert [one.name for one in world.turn()] == (["LeaveGroup"] if sends else [])
    assert world.has_left() != sends
    assert world.caller.kinds() == ["assigned", "revoked"]


def test_a_member_that_leaves_before_its_sync_is_written_names_the_generation_that_it_joined() -> None:
    """The response to its JoinGroup and the order to leave reach the loop in one turn."""
    world = World()
    world.join(3)
    world.leave("remain")
    sync = world.turn_one("SyncGroup")
    assert world.has_left()
    assert (sync.request.generation_id, sync.request.member_id) == (3, "m")
    respond_sync(sync, *T)
    assert world.turn(60.0) == []


@pytest.mark.parametrize("at", ["subscribed", "joining", "syncing", "assigning", "stable", "revoking", "fatal"])
def test_s31_leaving_ends_at_every_state_with_a_silent_coordinator(at: str) -> None:
    """S31 (RDK #4528, CKP #1667)."""
    world = World(assignors=("range",))
    if at != "subscribed":
        sent = world.turn_one("JoinGroup")
    if at in ("syncing", "assigning"):
        world.respond_join(sent)
        sync = world.turn_one("SyncGroup")
        if at == "assigning":
            world.caller.is_polling = False
            respond_sync(sync, *T)
            world.turn()
    elif at in ("stable", "revoking"):
        world.respond_join(sent)
        world.sync(*T)
        world.turn()
        if at == "revoking":
            world.caller.is_polling = False
            world.heartbeat(E.REBALANCE_IN_PROGRESS)
            world.turn()
    elif at == "fatal":
        refuse(sent, E.INVALID_GROUP_ID)
    world.leave()
    world.turn()
    world.caller.is_polling = True
    began = world.now
    while not world.has_left():
        world.turn(0.1)
        assert world.now < began + 2.0
    assert world.caller.owned == set()


def test_a_member_that_left_can_subscribe_again() -> None:
    world = World()
    world.joined(*T)
    world.leave()
    world.turn_one("LeaveGroup").respond(LeaveGroupResponse(error_code=0, members=[]))
    world.membership.subscribe(Subscription.of(["t"]))
    sent = world.turn_one("JoinGroup")
    assert (sent.request.member_id, list(subscription(sent).owned)) == ("", [])


def test_a_leave_without_a_response_is_tried_once_more_on_a_connection_of_its_own() -> None:
    world = World()
    world.joined(*T)
    world.leave()
    first = world.turn_one("LeaveGroup")
    second = world.turn_one("LeaveGroup", 0.5)
    assert (first.call.connection, second.call.connection) == (None, "leave")
    assert world.turn(0.1) == []
    assert not world.has_left()
    second.respond(LeaveGroupResponse(error_code=0, members=[]))
    assert world.has_left()
    first.fail()
    world.membership.subscribe(Subscription.of(["t"]))
    assert world.turn_one("JoinGroup").request.member_id == ""


@pytest.mark.parametrize("fails", [None, E.NOT_COORDINATOR])
def test_a_leave_that_fails_is_tried_once_more_at_once(fails: int | None) -> None:
    world = World()
    world.joined(*T)
    world.leave()
    sent = world.turn_one("LeaveGroup")
    if fails is None:
        sent.fail()
    else:
        sent.respond(LeaveGroupResponse(error_code=fails, members=[]))
    again = world.turn_one("LeaveGroup")
    assert (world.view.forgotten > 0) == (fails is not None)
    again.fail()
    assert world.has_left()


def test_a_member_that_left_without_a_response_joins_with_its_old_id() -> None:
    """The coordinator may have it still, and would have the new member wait for the end of its session."""
    world = World()
    world.joined(*T)
    world.leave()
    while not world.has_left():
        world.turn(0.1)
    world.membership.subscribe(Subscription.of(["t"]))
    sent = world.turn_one("JoinGroup")
    assert (sent.request.member_id, list(subscription(sent).owned)) == ("m", [])
    refuse(sent, E.UNKNOWN_MEMBER_ID)
    assert world.turn_one("JoinGroup").request.member_id == ""


def test_the_commit_before_leaving_gets_half_of_the_time() -> None:
    world = World()
    world.joined(*T)
    world.caller.processed[T[0]] = Offset(7)
    world.leave(until=world.now + 4.0)
    world.turn_one("OffsetCommit")
    assert world.turn(1.9) == []
    assert world.turn_one("LeaveGroup", 0.2)
    assert world.caller.kinds() == ["assigned", "revoked"]


# -- the poll interval


def test_polls_too_far_apart_leave_and_the_next_one_joins() -> None:
    world = World(max_poll_interval_ms=10_000)
    world.joined(*T)
    world.poll_timer.poll_ended(world.now)
    world.caller.is_polling = False
    world.heartbeat()
    world.turn(6.0)
    (sent,) = world.turn(1.1)
    assert (sent.name, sent.request.members[0].member_id) == ("LeaveGroup", "m")
    assert world.fetcher.fetching == set()
    assert world.commit({T[0]: 7}).error is not None
    assert world.turn(30) == []
    world.caller.is_polling = True
    assert world.turn() == []  # the callback ran, and no poll has started
    assert world.caller.kinds() == ["assigned", "lost"]
    world.is_woken = False
    world.poll()
    assert world.is_woken
    sent = world.turn_one("JoinGroup")
    assert (sent.request.member_id, list(subscription(sent).owned)) == ("", [])


@pytest.mark.parametrize("at", ["joining", "syncing"])
def test_s27_the_poll_interval_ends_during_a_rebalance(at: str) -> None:
    """S27 (RDK PR 5604)."""
    world = World(max_poll_interval_ms=10_000)
    world.joined(*T)
    world.poll_timer.poll_ended(world.now)
    world.heartbeat(E.REBALANCE_IN_PROGRESS)
    sent = world.turn_one("JoinGroup")
    if at == "syncing":
        world.respond_join(sent)
        sent = world.turn_one("SyncGroup")
    names = [one.name for one in world.turn(7.5)]
    assert "LeaveGroup" in names
    assert world.caller.kinds() == ["assigned", "lost"]
    assert world.commit({T[0]: 7}).error is not None
    if at == "syncing":
        respond_sync(sent, *T)
    assert world.turn() == []
    assert world.caller.owned == set()


def test_a_static_member_with_polls_too_far_apart_does_not_leave() -> None:
    world = World(max_poll_interval_ms=10_000, instance_id="i")
    world.joined(*T)
    world.poll_timer.poll_ended(world.now)
    world.heartbeat()
    assert [one.name for one in world.turn(8)] == []
    assert world.caller.kinds() == ["assigned", "lost"]
    world.poll()
    assert world.turn_one("JoinGroup").request.member_id == "m"


def test_a_rebalance_that_waits_for_a_poll_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    world = World(assignors=("range",), max_poll_interval_ms=20_000)
    world.joined(*T)
    world.poll_timer.poll_ended(world.now)
    world.caller.is_polling = False
    for _ in range(5):
        world.heartbeat(E.REBALANCE_IN_PROGRESS)
    assert [one.getMessage() for one in caplog.records if "waiting for the next poll" in one.getMessage()] != []
    assert len([one for one in caplog.records if "waiting for the next poll" in one.getMessage()]) == 1


def test_no_poll_interval() -> None:
    world = World(max_poll_interval_ms=None)
    assert world.turn_one("JoinGroup").request.rebalance_timeout_ms == 300_000
    world.poll_timer.poll_ended(world.now)
    world.turn(1000)
    assert not world.is_in(S.STALE)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_topic_that_does_not_exist_is_logged_once_and_late(protocol: str, caplog: pytest.LogCaptureFixture) -> None:
    world = MemberWorld(protocol, topics=("t", "tt"))
    world.turn(0)
    world.turn(4.9)
    assert "cannot be read" not in caplog.text
    for _ in range(5):
        world.turn(4.9)
    assert caplog.text.count("cannot be read") == 1
    assert "group g: topic 'tt' cannot be read yet: UNKNOWN_TOPIC_OR_PARTITION" in caplog.text


def test_an_assignment_is_one_line_at_info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    world = World()
    world.joined(*T)
    lines = [one.getMessage() for one in caplog.records if "t-0" in one.getMessage()]
    assert lines == ["group g, assign: t-0 t-1 t-2 t-3"]
    caplog.clear()
    world.heartbeat(E.UNKNOWN_MEMBER_ID)
    assert [one.getMessage() for one in caplog.records if "t-0" in one.getMessage()] == [
        "group g, lost: t-0 t-1 t-2 t-3"
    ]


def test_rounds_that_move_nothing_slow_down(caplog: pytest.LogCaptureFixture) -> None:
    """S30 (RDK #4800): a leader assigns a topic that this member does not read, again and again."""
    world = World()
    began, rounds = world.now, 0
    while world.now < began + 20.0:
        for sent in world.turn(0.01):
            if sent.name == "JoinGroup":
                rounds += 1
                world.respond_join(sent)
            elif sent.name == "SyncGroup":
                respond_sync(sent, ("u", 0))
    assert rounds < 60
    assert "moved no partition" in caplog.text


def test_heartbeats_of_every_version_name_the_instance_where_they_can() -> None:
    for version in range(5):
        world = World(instance_id="i")
        world.versions[HeartbeatRequest] = version
        world.joined(*T)
        assert world.until("Heartbeat").request.group_instance_id == ("i" if version >= 3 else None)
