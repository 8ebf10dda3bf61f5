"""A member of a group of the new protocol (KIP-848), heartbeat by heartbeat, on virtual time."""

from __future__ import annotations

import re
from itertools import pairwise
from random import Random
from typing import Any
from uuid import UUID

import pytest

from kwire.cluster import Snapshot
from kwire.consumer.consumer_membership import _BEFORE, ConsumerMembership, make_member_id
from kwire.consumer.membership import MemberState
from kwire.consumer.offsets import Offset
from kwire.consumer.subscription import Regex, Subscription
from kwire.errors import AuthorizationError, BrokerError, ErrorCode, FencedInstanceError, UnsupportedVersionError
from kwire.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tests.cluster.snapshots import snapshot
from tests.consumer.group_world import IDS, MemberWorld, Sent
from tests.consumer.test_commits import respond as respond_commit
from tests.consumer.world import Key

E = ErrorCode
S = MemberState
HEARTBEAT = "ConsumerGroupHeartbeat"
T = [("t", partition) for partition in range(4)]
V = UUID(int=3)  # the id of topic "v", which the metadata lacks at first
Assignment = ConsumerGroupHeartbeatResponse.Assignment
TOPICS = {"t": [(1, 7)] * 4, "u": [(2, 7)] * 2}


class World(MemberWorld):
    """A member, and the coordinator's responses to its heartbeats."""

    def __init__(self, protocol: str = "consumer", **options: Any) -> None:
        super().__init__(protocol, **options)

    def beat(self, seconds: float = 0.0) -> Sent:
        return self.turn_one(HEARTBEAT, seconds)

    def next_beat(self) -> Sent:
        return self.until(HEARTBEAT)

    def joined(self, *keys: Key, epoch: int = 1) -> None:
        """Take the member into the group with these partitions, acknowledged."""
        respond(self.beat(), epoch, *keys)
        respond(self.beat(), epoch)
        assert self.turn() == []
        assert self.is_in(S.STABLE)
        self.settle(epoch)

    def settle(self, epoch: int) -> None:
        """Respond to the heartbeats that follow a change early, until one is a whole interval away."""
        while self.deadline() - self.now < 5.0 - 1e-6:
            respond(self.next_beat(), epoch)

    def target(self, epoch: int, *keys: Key, ids: dict[str, UUID] | None = None) -> None:
        """Give the next heartbeat a new target."""
        respond(self.next_beat(), epoch, *keys, ids=ids)


def respond(
    sent: Sent, epoch: int, *keys: Key, ids: dict[str, UUID] | None = None, has_target: bool | None = None,
    interval_ms: int = 5_000, duplicates: bool = False,
) -> None:  # fmt: skip
    """Respond with an epoch, and a target if any partitions are given."""
    by_topic: dict[UUID, list[int]] = {}
    for topic, partition in keys:
        by_topic.setdefault({**IDS, "v": V, **(ids or {})}[topic], []).append(partition)
    topics = [
        Assignment.TopicPartitions(topic_id=topic_id, partitions=partitions)
        for topic_id, partitions in by_topic.items()
    ]
    sent.respond(
        ConsumerGroupHeartbeatResponse(
            error_code=0, member_id=sent.request.member_id, member_epoch=epoch, heartbeat_interval_ms=interval_ms,
            assignment=Assignment(topic_partitions=topics) if has_target or keys else None,
        )
    )  # fmt: skip


def refuse(sent: Sent, code: int, message: str | None = None) -> None:
    sent.respond(
        ConsumerGroupHeartbeatResponse(
            error_code=code, error_message=message, member_epoch=0, heartbeat_interval_ms=5_000
        )
    )


def owned(sent: Sent) -> set[Key] | None:
    """Return the partitions that a heartbeat reports; None where it leaves them out."""
    if sent.request.topic_partitions is None:
        return None
    names = {topic_id: name for name, topic_id in {**IDS, "v": V}.items()}
    return {(names[one.topic_id], index) for one in sent.request.topic_partitions for index in one.partitions}


# -- joining


def test_the_first_heartbeats() -> None:
    world = World(rack="r1", instance_id="i", remote_assignor="range")
    sent = world.beat()
    request = sent.request
    assert (request.group_id, request.member_epoch, request.instance_id, request.rack_id) == ("g", 0, "i", "r1")
    assert (request.rebalance_timeout_ms, request.server_assignor) == (300_000, "range")
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (["t"], None)
    assert request.topic_partitions == []
    assert re.fullmatch(r"[\w][\w-]{21}", request.member_id)
    respond(sent, 4, *T)
    sent = world.beat()  # at once: the acknowledgement
    assert world.caller.events == [("assigned", T)]
    request = sent.request
    assert (request.member_id, request.member_epoch, request.rack_id) == (request.member_id, 4, None)
    assert owned(sent) == set(T)
    assert (request.subscribed_topic_names, request.server_assignor, request.rebalance_timeout_ms) == (None, None, -1)
    respond(sent, 4)
    assert world.membership.group_metadata()[1:] == (4, request.member_id, "i")
    world.settle(4)
    began = world.now
    sent = world.next_beat()
    assert world.now - began == pytest.approx(5.0)
    assert (owned(sent), sent.request.member_epoch) == (None, 4)


def test_a_member_id_is_made_once() -> None:
    ids = {make_member_id(Random(seed)) for seed in range(2_000)}
    assert len(ids) == 2_000
    assert all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}", one) for one in ids)


def test_only_the_transitions_of_the_specification_are_legal() -> None:
    world = World()
    world.beat()
    member = world.membership._member
    assert isinstance(member, ConsumerMembership)
    for state, before in _BEFORE.items():
        for other in set(S) - before:
            member.state = other
            with pytest.raises(AssertionError):
                member._move(state)


def test_an_empty_first_assignment_is_one() -> None:
    world = World()
    respond(world.beat(), 1, has_target=True)
    assert owned(world.beat()) == set()
    assert world.caller.events == [("assigned", [])]


def test_a_member_that_owns_nothing_sends_all() -> None:
    """A lost response with its first assignment comes again."""
    world = World()
    respond(world.beat(), 1)
    request = world.next_beat().request
    assert (request.subscribed_topic_names, request.topic_partitions) == (["t"], [])
    assert request.rebalance_timeout_ms == 300_000


@pytest.mark.parametrize("change", ["epoch", "target"])
def test_after_a_change_heartbeats_begin_close_together_and_double_up_to_the_interval(change: str) -> None:
    world = World()
    world.joined(*T)
    if change == "epoch":
        respond(world.next_beat(), 2)
    else:
        respond(world.next_beat(), 1, *T[:3])
        respond(world.beat(), 1)  # at once: the acknowledgement
    times = [world.now]
    for _ in range(8):
        respond(world.next_beat(), 2 if change == "epoch" else 1)
        times.append(world.now)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    expected = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]
    assert gaps == pytest.approx(expected[:8] if change == "epoch" else expected[1:])


def test_a_member_that_owns_nothing_comes_to_the_interval_too() -> None:
    """Each response to it has its empty assignment, because it sends all."""
    world = World()
    for _ in range(20):
        respond(world.next_beat(), 1, has_target=True)
    began = world.now
    world.next_beat()
    assert world.now - began == pytest.approx(5.0)


def test_one_heartbeat_in_flight_and_an_interval_of_zero() -> None:
    world = World()
    world.joined(*T)
    sent = world.next_beat()
    assert world.turn(20) == []
    respond(sent, 1, interval_ms=0)
    began = world.now
    world.next_beat()
    assert world.now - began == pytest.approx(1.0)


def test_a_response_of_an_older_epoch_is_ignored() -> None:
    world = World()
    world.joined(*T, epoch=5)
    respond(world.next_beat(), 4, T[0])
    assert world.turn() == []
    assert world.membership.member().epoch == 5
    assert world.caller.owned == set(T)


# -- reconciliation


def test_revoke_first_then_assign_then_acknowledge() -> None:
    world = World(topics=("t", "u"))
    world.joined(T[0], T[1])
    world.caller.processed[T[1]] = Offset(7)
    world.target(2, T[0], ("u", 1))
    commit = world.turn_one("OffsetCommit")
    assert world.is_in(S.RECONCILING)
    assert world.fetcher.stopped == {T[1]}
    assert commit.request.generation_id_or_member_epoch == 2
    respond_commit(commit)
    sent = world.beat()
    assert world.caller.events[1:] == [("revoked", [T[1]]), ("assigned", [("u", 1)])]
    assert owned(sent) == {T[0], ("u", 1)}
    assert world.is_in(S.STABLE)


def test_a_revocation_under_way_is_not_reported() -> None:
    world = World()
    world.joined(*T)
    world.caller.is_polling = False
    world.target(2, T[0])
    for _ in range(3):
        sent = world.next_beat()
        assert owned(sent) is None
        respond(sent, 2)
    world.caller.is_polling = True
    assert owned(world.beat()) == {T[0]}


def test_a_target_that_changes_during_a_revocation() -> None:
    world = World()
    world.joined(*T)
    world.caller.is_polling = False
    world.target(2, T[0], T[1])
    world.target(3, T[0], T[2], T[3])
    world.caller.is_polling = True
    sent = world.beat()
    assert world.caller.events[1:] == [("revoked", T[2:]), ("revoked", [T[1]]), ("assigned", T[2:])]
    assert owned(sent) == {T[0], T[2], T[3]}


def test_a_target_that_changes_during_an_assignment() -> None:
    world = World()
    world.joined(T[0])
    world.caller.is_polling = False
    world.target(2, T[0], T[1])
    world.target(2, T[1])
    world.caller.is_polling = True
    sent = world.beat()
    assert owned(sent) == {T[0], T[1]}
    respond(sent, 2)
    assert owned(world.beat()) == {T[1]}
    assert world.is_in(S.STABLE)


def test_a_target_that_changes_back_is_acknowledged() -> None:
    """The coordinator waits to hear that the partition is free, though the member never reported it."""
    world = World()
    world.joined(T[0])
    world.target(2, T[0], ("v", 0))  # a topic that is not known yet
    world.target(2, T[0])
    reports = []
    for _ in range(4):
        sent = world.next_beat()
        reports.append(owned(sent))
        respond(sent, 2)
    assert {T[0]} in reports
    assert world.is_in(S.STABLE)


def test_a_full_heartbeat_during_a_revocation_has_what_is_being_revoked() -> None:
    world = World()
    world.joined(T[0], T[1])
    world.caller.is_polling = False
    world.target(2, T[0])
    refuse(world.next_beat(), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    sent = world.next_beat()
    assert owned(sent) == {T[0], T[1]}
    respond(sent, 2)
    world.caller.is_polling = True
    assert owned(world.beat()) == {T[0]}


def test_s35_a_duplicate_partition_is_one() -> None:
    """S35: the broker sends [0, 0, 1]."""
    world = World()
    respond(world.beat(), 1, T[0], T[0], T[1], ("t", -1))
    world.turn()
    assert world.caller.events == [("assigned", [T[0], T[1]])]
    assert world.is_in(S.STABLE)
    world.turn(5.1)
    assert world.caller.events == [("assigned", [T[0], T[1]])]


def test_s05_a_topic_that_is_not_known_yet_takes_nothing_away() -> None:
    """S05 (KAFKA-16198)."""
    world = World(topics=("t", "v"))
    world.joined(*T)
    world.target(2, *T, ("v", 0))
    assert world.turn() == []
    assert world.view.refreshes
    assert world.is_in(S.RECONCILING)
    sent = world.next_beat()
    assert owned(sent) is None
    respond(sent, 2)
    assert world.caller.kinds() == ["assigned"]
    world.view.snapshot = snapshot({**TOPICS, "v": [(1, 1)]}, ids={**IDS, "v": V})
    sent = world.beat()
    assert world.caller.events == [("assigned", T), ("assigned", [("v", 0)])]
    assert owned(sent) == {*T, ("v", 0)}


def test_what_is_known_of_a_target_is_taken_over_at_once() -> None:
    world = World(topics=("t", "v"))
    respond(world.beat(), 1, *T, ("v", 0))
    sent = world.beat()
    assert owned(sent) == set(T)
    assert world.is_in(S.RECONCILING)
    respond(sent, 1)
    world.view.snapshot = snapshot({**TOPICS, "v": [(1, 1)]}, ids={**IDS, "v": V})
    world.beat()
    assert world.caller.events == [("assigned", T), ("assigned", [("v", 0)])]
    assert world.is_in(S.STABLE)


def test_metadata_that_lacks_an_owned_topic_takes_nothing_away() -> None:
    world = World()
    world.joined(*T)
    world.view.snapshot = Snapshot()
    world.target(2, T[0], T[1])
    assert owned(world.beat()) == {T[0], T[1]}
    assert world.caller.events[1:] == [("revoked", T[2:]), ("assigned", [])]


def test_s49_a_topic_created_again_is_revoked_and_assigned() -> None:
    """S49: the same name, another id."""
    new = UUID(int=99)
    world = World()
    world.joined(*T)
    world.target(2, T[0], T[1], ids={"t": new})
    world.view.snapshot = snapshot(TOPICS, ids={**IDS, "t": new})
    sent = world.beat()
    assert world.caller.events[1:] == [("revoked", T), ("assigned", T[:2])]
    assert [one.topic_id for one in sent.request.topic_partitions] == [new]


def test_the_commit_before_a_revocation_gets_the_new_epoch() -> None:
    world = World()
    world.joined(*T)
    world.caller.processed[T[0]] = Offset(7)
    world.target(2, T[1])
    commit = world.turn_one("OffsetCommit")
    sent = world.next_beat()
    respond(sent, 3)
    respond_commit(commit, E.STALE_MEMBER_EPOCH)
    commit = world.turn_one("OffsetCommit")
    assert commit.request.generation_id_or_member_epoch == 3
    respond_commit(commit)
    assert owned(world.beat()) == {T[1]}


def test_an_epoch_without_a_new_target_calls_nobody() -> None:
    world = World()
    world.joined(*T)
    respond(world.next_beat(), 2, *T)
    assert world.turn() == []
    assert world.caller.kinds() == ["assigned"]
    assert world.membership.member().epoch == 2


# -- errors


@pytest.mark.parametrize("code", [E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE])
def test_a_coordinator_that_moved(code: int) -> None:
    world = World()
    world.joined(*T)
    refuse(world.next_beat(), code)
    sent = world.until(HEARTBEAT, 0.2)
    assert world.view.forgotten == 1
    assert sent.request.subscribed_topic_names == ["t"]  # all is sent after an error
    assert owned(sent) == set(T)
    respond(sent, 1)
    assert world.caller.kinds() == ["assigned"]


def test_s20_a_coordinator_that_loads_is_not_looked_up() -> None:
    """S20 (KPY #3082)."""
    world = World()
    world.joined(*T)
    for _ in range(5):
        refuse(world.next_beat(), E.COORDINATOR_LOAD_IN_PROGRESS)
    respond(world.next_beat(), 1)
    assert world.view.forgotten == 0
    assert world.caller.kinds() == ["assigned"]


def test_a_lost_connection_keeps_the_membership() -> None:
    world = World()
    world.joined(*T)
    for _ in range(10):
        world.next_beat().fail()
    sent = world.next_beat()
    assert owned(sent) == set(T)
    respond(sent, 1)
    assert world.view.forgotten == 10
    assert world.caller.owned == set(T)


@pytest.mark.parametrize("code", [E.UNKNOWN_MEMBER_ID, E.FENCED_MEMBER_EPOCH, E.STALE_MEMBER_EPOCH])
def test_a_fenced_member_joins_again_with_the_same_id(code: int) -> None:
    world = World()
    world.joined(*T, epoch=5)
    before = world.membership.member().id
    refuse(world.next_beat(), code)
    sent = world.beat()
    assert world.caller.events == [("assigned", T), ("lost", T)]
    assert (sent.request.member_id, sent.request.member_epoch) == (before, 0)
    assert (sent.request.subscribed_topic_names, sent.request.topic_partitions) == (["t"], [])
    assert world.membership.group_metadata()[1:3] == (0, before)
    respond(sent, 6, *T)
    world.turn()
    assert world.caller.owned == set(T)


def test_a_fenced_member_waits_for_its_callback() -> None:
    world = World()
    world.joined(*T)
    world.caller.is_polling = False
    refuse(world.next_beat(), E.FENCED_MEMBER_EPOCH)
    assert world.turn(60) == []
    assert world.is_in(S.FENCED)
    assert world.fetcher.fetching == set()
    assert world.commit({T[0]: 7}).error is not None
    world.caller.is_polling = True
    assert world.beat().request.member_epoch == 0


@pytest.mark.parametrize("during", ["prepare", "commit", "revoke", "assign"])
def test_a_member_fenced_during_a_reconciliation(during: str) -> None:
    """Each partition has one on_revoked or on_lost for its on_assigned, and nothing is left over."""
    world = World()
    world.joined(T[0], T[1])
    commit = None
    if during == "commit":
        world.caller.processed[T[0]] = Offset(7)
        world.target(2, T[1], T[2])
        commit = world.turn_one("OffsetCommit")
    else:
        world.caller.is_polling = False
        world.target(2, T[1], T[2])
        world.turn()
        steps = {"prepare": 0, "revoke": 1, "assign": 2}[during]
        for _ in range(steps):
            world.caller.is_polling = True
            assert world.caller.take()
            world.caller.is_polling = False
            world.turn()
    refuse(world.next_beat(), E.FENCED_MEMBER_EPOCH)
    world.caller.is_polling = True
    sent = world.beat()
    assert world.caller.owned == set()
    assert sent.request.member_epoch == 0
    if commit is not None:
        respond_commit(commit)
    respond(sent, 3, *T)
    world.turn()
    assert world.caller.owned == set(T)
    assert world.fetcher.fetching == set(T)


FATAL = [
    (E.FENCED_INSTANCE_ID, FencedInstanceError, "box"),
    (E.GROUP_AUTHORIZATION_FAILED, AuthorizationError, ""),
    (E.INVALID_REQUEST, BrokerError, "why"),
    (E.GROUP_MAX_SIZE_REACHED, BrokerError, "group.consumer.max.size"),
    (E.UNSUPPORTED_ASSIGNOR, BrokerError, "why"),
    (E.INVALID_REGULAR_EXPRESSION, BrokerError, "why"),
    (E.UNSUPPORTED_VERSION, UnsupportedVersionError, "auto"),
    (9999, BrokerError, "why"),
]


@pytest.mark.parametrize(("code", "cls", "text"), FATAL)
def test_what_no_heartbeat_mends_is_fatal(code: int, cls: type[Exception], text: str) -> None:
    world = World(instance_id="box")
    world.joined(*T)
    refuse(world.next_beat(), code, "why")
    assert world.turn(600) == []
    assert world.is_in(S.FATAL)
    (error,) = world.caller.errors
    assert isinstance(error, cls)
    assert text in str(error)
    assert world.caller.kinds() == ["assigned", "lost"]
    world.leave()
    assert world.turn() == []
    assert world.has_left()


def test_a_classic_group_that_is_not_converted() -> None:
    world = World()
    refuse(world.beat(), E.GROUP_ID_NOT_FOUND)
    world.turn()
    assert "migration" in str(world.membership.fatal_error)


def test_a_group_that_became_classic_is_joined_again() -> None:
    """The coordinator converted it back when the sessions of its members had ended."""
    world = World()
    world.joined(*T)
    refuse(world.next_beat(), E.GROUP_ID_NOT_FOUND)
    assert world.beat().request.member_epoch == 0
    assert world.caller.kinds() == ["assigned", "lost"]


def test_a_topic_that_may_not_be_read_is_reported_once_a_poll() -> None:
    world = World()
    world.joined(*T)
    for _ in range(5):
        refuse(world.next_beat(), E.TOPIC_AUTHORIZATION_FAILED)
    assert len(world.caller.errors) == 1
    world.poll()
    refuse(world.next_beat(), E.TOPIC_AUTHORIZATION_FAILED)
    assert len(world.caller.errors) == 2
    respond(world.next_beat(), 1)
    assert world.caller.owned == set(T)


def test_an_instance_id_that_is_not_released_yet() -> None:
    world = World(instance_id="box")
    began = world.now
    while world.now < began + 40.0:
        refuse(world.next_beat(), E.UNRELEASED_INSTANCE_ID)
    assert not world.caller.errors
    respond(world.next_beat(), 1, *T)
    world.turn()
    assert world.caller.owned == set(T)
    world = World(instance_id="box")
    while not world.caller.errors:
        refuse(world.next_beat(), E.UNRELEASED_INSTANCE_ID)
    assert world.now == pytest.approx(began + 45.0, abs=1.5)


# -- falling back to the classic protocol


@pytest.mark.parametrize("reason", ["no api", "v0", E.UNSUPPORTED_VERSION, E.GROUP_ID_NOT_FOUND])
def test_auto_falls_back_to_the_classic_protocol(reason: str | int) -> None:
    world = World("auto")
    if isinstance(reason, str):
        world.versions[ConsumerGroupHeartbeatRequest] = 0 if reason == "v0" else -1
        sent = world.turn_one("JoinGroup")
    else:
        refuse(world.beat(), reason)
        sent = world.turn_one("JoinGroup")
    assert sent.request.member_id == ""
    assert world.membership.member().protocol == "classic"
    assert not world.commits.is_epoch


def test_auto_takes_the_classic_protocol_for_its_options() -> None:
    assert World("auto", is_classic_wanted=True).turn_one("JoinGroup")
    assert World("auto").turn_one(HEARTBEAT)


def test_s50_a_member_whose_broker_was_downgraded_falls_back() -> None:
    """S50."""
    world = World("auto")
    world.joined(*T)
    world.versions[ConsumerGroupHeartbeatRequest] = -1
    assert [one.name for one in world.turn(5.1)] == ["JoinGroup"]
    assert world.caller.kinds() == ["assigned", "lost"]


def test_the_new_protocol_alone_is_an_error_on_old_brokers() -> None:
    world = World("consumer")
    world.versions[ConsumerGroupHeartbeatRequest] = 0
    world.turn()
    assert isinstance(world.membership.fatal_error, UnsupportedVersionError)
    assert "4.0" in str(world.caller.errors[0])


# -- subscriptions


def test_a_changed_subscription_is_sent_at_once() -> None:
    world = World()
    world.joined(*T)
    world.membership.subscribe(Subscription.of(["t", "u"]))
    sent = world.beat()
    assert (sent.request.subscribed_topic_names, sent.request.member_epoch) == (["t", "u"], 1)
    assert sent.request.server_assignor is None


def test_a_pattern_of_the_broker() -> None:
    world = World(topics=Regex("^t"))
    sent = world.beat()
    assert (sent.request.subscribed_topic_names, sent.request.subscribed_topic_regex) == ([], "^t")
    respond(sent, 1, *T, ("v", 0))
    sent = world.beat()
    assert sent.request.subscribed_topic_regex is None
    assert "*" in world.membership.topics()  # for the name of the topic that the broker matched
    world.view.snapshot = snapshot({**TOPICS, "v": [(1, 1)]}, ids={**IDS, "v": V})
    respond(sent, 1)
    respond(world.beat(), 1)
    assert "*" not in world.membership.topics()
    world.membership.subscribe(Subscription.of(["t"]))
    sent = world.beat()
    assert (sent.request.subscribed_topic_names, sent.request.subscribed_topic_regex) == (["t"], "")


def test_names_and_a_pattern_of_the_broker_together() -> None:
    world = World(topics=["u", Regex("^t")])
    request = world.beat().request
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (["u"], "^t")


def test_a_pattern_matched_here_is_sent_by_names() -> None:
    world = World(topics=re.compile("[tuv]"))
    world.joined(*T)
    assert "*" in world.membership.topics()
    world.view.snapshot = snapshot({**TOPICS, "v": [(1, 1)]}, ids={**IDS, "v": V})
    assert world.beat().request.subscribed_topic_names == ["t", "u", "v"]


# -- leaving


@pytest.mark.parametrize(
    ("instance", "mode", "epoch"),
    [
        (None, "default", -1), (None, "leave", -1), (None, "remain", None),
        ("i", "default", -2), ("i", "leave", -1), ("i", "remain", -2),
    ],
)  # fmt: skip
def test_who_leaves_how(instance: str | None, mode: str, epoch: int | None) -> None:
    world = World(instance_id=instance)
    world.joined(*T)
    world.caller.processed[T[0]] = Offset(7)
    world.leave(mode)
    respond_commit(world.turn_one("OffsetCommit"))
    sent = world.turn()
    assert world.caller.kinds() == ["assigned", "revoked"]
    assert [one.request.member_epoch for one in sent] == ([] if epoch is None else [epoch])
    if sent:
        respond(sent[0], epoch or 0)
    assert world.has_left()
    assert world.turn(600) == []


@pytest.mark.parametrize("code", [E.UNKNOWN_MEMBER_ID, E.FENCED_MEMBER_EPOCH])
def test_a_member_fenced_while_it_leaves_has_left(code: int) -> None:
    world = World()
    world.joined(*T)
    world.caller.is_polling = False
    world.leave()
    refuse(world.next_beat(), code)
    world.caller.is_polling = True
    world.turn()
    assert world.has_left()
    assert world.caller.kinds() == ["assigned", "lost"]


@pytest.mark.parametrize("at", ["joining", "assigning", "stable", "revoking", "fenced", "stale", "fatal"])
def test_s31_leaving_ends_at_every_state_with_a_silent_coordinator(at: str) -> None:
    """S31 (RDK #4528, CKP #1667)."""
    world = World(max_poll_interval_ms=30_000)
    if at == "joining":
        world.beat()
    elif at == "assigning":
        world.caller.is_polling = False
        respond(world.beat(), 1, *T)
    else:
        world.joined(*T)
        world.caller.is_polling = False
        if at == "revoking":
            world.target(2, T[0])
        elif at == "fenced":
            refuse(world.next_beat(), E.FENCED_MEMBER_EPOCH)
        elif at == "stale":
            world.poll_timer.poll_ended(world.now)
            world.turn(31)
        elif at == "fatal":
            refuse(world.next_beat(), E.INVALID_REQUEST)
    world.turn()
    world.leave()
    world.turn()
    world.caller.is_polling = True
    began = world.now
    while not world.has_left():
        world.turn(0.1)
        assert world.now < began + 2.0
    assert world.caller.owned == set()


def test_a_member_that_left_joins_again_with_the_same_id() -> None:
    world = World()
    world.joined(*T)
    before = world.membership.member().id
    world.leave()
    respond(world.beat(), -1)
    world.membership.subscribe(Subscription.of(["u"]))
    request = world.beat().request
    assert (request.member_id, request.member_epoch, request.subscribed_topic_names) == (before, 0, ["u"])


# -- the poll interval


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("i", -2)])
def test_polls_too_far_apart_leave_and_the_next_one_joins(instance: str | None, epoch: int) -> None:
    world = World(max_poll_interval_ms=10_000, instance_id=instance)
    world.joined(*T)
    world.poll_timer.poll_ended(world.now)
    world.caller.is_polling = False
    respond(world.next_beat(), 1)
    sent = [one for one in world.turn(5.1) if one.request.member_epoch < 0]
    assert [one.request.member_epoch for one in sent] == [epoch]
    assert world.is_in(S.STALE)
    assert world.fetcher.fetching == set()
    assert world.caller.kinds() == ["assigned"]
    assert world.turn(30) == []
    world.caller.is_polling = True
    assert world.turn() == []
    assert world.caller.kinds() == ["assigned", "lost"]
    world.poll()
    sent_again = world.beat()
    assert sent_again.request.member_epoch == 0
    respond(sent_again, 3, *T)
    world.turn()
    assert world.caller.owned == set(T)
