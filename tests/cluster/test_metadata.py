"""The metadata: what a snapshot takes from a response, and when a new one is requested."""

from __future__ import annotations

from itertools import pairwise
from math import inf
from random import Random
from uuid import UUID

import pytest

from kwire.cluster import Broker, CurrentLeader
from kwire.cluster.metadata import ALL_TOPICS, MISSING_MAX, STEP, MetadataStatus, MetadataUpdater
from kwire.errors import DisconnectedError, ErrorCode
from kwire.net.backoff import Backoff
from kwire.protocol.messages.metadata import MetadataResponse
from tests.cluster.snapshots import metadata, snapshot

MAX_AGE = 300.0


def updater() -> MetadataUpdater:
    return MetadataUpdater(max_age_ms=300_000, backoff=Backoff(100, 1_000), random=Random(1))


def settled(topics: dict[str, list[tuple[int, int]]]) -> MetadataUpdater:
    one = updater()
    one.set_topics(topics.keys())
    one.start()
    is_taken = one.handle_response(metadata(topics), 10.0)
    while not is_taken:
        is_taken = one.continue_update()
    return one


def test_the_first_request_is_due_at_once_and_only_one_is_in_flight() -> None:
    one = updater()
    assert one.due_at == 0.0
    one.start()
    assert one.due_at == inf


def test_after_a_response_only_age_makes_a_request_due() -> None:
    one = settled({"t": [(1, 0)]})
    assert one.due_at == 10.0 + MAX_AGE


def test_a_new_topic_is_requested_at_once() -> None:
    one = settled({"t": [(1, 0)]})
    one.set_topics({"t", "new"})
    assert one.due_at <= 10.0
    one.start()
    assert [topic.name for topic in one.request(12).topics or ()] == ["new", "t"]


@pytest.mark.parametrize(("version", "topics"), [(0, []), (1, None), (12, None)])
def test_a_pattern_needs_all_topics(version: int, topics: list[str] | None) -> None:
    one = settled({"t": [(1, 0)]})
    one.set_topics({"t", ALL_TOPICS})
    assert one.due_at <= 10.0
    one.start()
    request = one.request(version)
    assert request.topics == topics
    assert not request.allow_auto_topic_creation or version < 4
    one.handle_response(metadata({"t": [(1, 0)], "u": [(1, 0)]}), 20.0)
    assert set(one.snapshot.topics) == {"t", "u"}
    assert one.due_at == 20.0 + MAX_AGE


def test_a_topic_to_create_does_not_drop_what_a_pattern_needs() -> None:
    one = settled({"t": [(1, 0)]})
    one.set_topics({ALL_TOPICS})
    one.start()
    one.handle_response(metadata({"t": [(1, 0)], "u": [(1, 0)]}), 20.0)
    one.set_topics({ALL_TOPICS, "new"})
    one.allow_creation("new")
    one.start()
    assert [topic.name for topic in one.request(12).topics or ()] == ["new"]
    one.handle_response(metadata({"new": [(1, 0)]}), 21.0)
    assert set(one.snapshot.topics) == {"t", "u", "new"}


def test_a_topic_needed_while_a_request_is_in_flight_is_requested_next() -> None:
    one = updater()
    one.set_topics({"a"})
    one.start()
    one.set_topics({"a", "b"})
    one.handle_response(metadata({"a": [(1, 0)]}), 5.0)
    assert one.due_at <= 5.0


@pytest.mark.parametrize(
    ("received", "is_settled"),
    [
        (metadata({"t": [(1, 0), (2, 0)]}), True),
        (metadata({"t": [(1, 0), (-1, 0)]}), False),
        (metadata(errors={"t": ErrorCode.LEADER_NOT_AVAILABLE}), False),
        (metadata(errors={"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}), False),
        (metadata(errors={"t": ErrorCode.TOPIC_AUTHORIZATION_FAILED}), True),
        (metadata({"other": [(1, 0)]}), False),
    ],
)
def test_topics_without_a_leader_are_requested_again_with_back_off(received: object, is_settled: bool) -> None:
    one = updater()
    one.set_topics({"t"})
    one.start()
    one.handle_response(received, 5.0)  # type: ignore[arg-type]
    assert one.due_at > 5.0
    assert (one.due_at <= 5.2) is not is_settled


def test_back_off_grows_with_failures_and_ends_with_success() -> None:
    one = updater()
    one.set_topics({"t"})
    now, pauses = 0.0, []
    for _ in range(8):
        one.start()
        one.failed(now)
        pauses.append(one.due_at - now)
        now = one.due_at
    assert all(later > earlier for earlier, later in pairwise(pauses[:4]))
    assert max(pauses) <= 1.2
    one.start()
    one.handle_response(metadata({"t": [(1, 0)]}), now)
    one.request_refresh("a test")
    assert one.due_at <= now + 0.1


def test_the_request_in_each_version() -> None:
    one = settled({"t": [(1, 0)]})
    one.start()
    assert one.request(12).allow_auto_topic_creation is False
    assert one.request(0).topics == one.request(12).topics


def test_the_status_names_the_broker_and_the_next_request() -> None:
    one = updater()
    assert one.status == MetadataStatus(None, 0.0, 0.0, "first", None)
    one.start(2, 5.0)
    assert one.status[:2] == (2, 5.0)
    lost = DisconnectedError("lost")
    one.failed(6.0, lost)
    status = one.status
    assert (status.request_node, status.reason, status.last_error) == (None, "the last request failed", lost)
    assert 6.0 < status.next_at < 6.2


def test_a_response_in_several_steps_is_visible_at_its_end_and_keeps_leader_hints_given_during_it() -> None:
    count = 3 * STEP
    one = settled({"t": [(1, 5)] * count})
    before = one.snapshot
    one.start()
    assert not one.handle_response(metadata({"t": [(2, 6)] * count}), 20.0)
    assert (one.snapshot, one.update_steps is not None, one.due_at) == (before, True, inf)
    topic = before.topics["t"]
    hints = [CurrentLeader("t", topic.id, 0, 3, 6), CurrentLeader("t", topic.id, 1, 4, 7)]
    assert one.update_leaders(hints, [Broker(4, "host-4", 9094)]) == {("t", 0), ("t", 1)}
    assert [one.snapshot.leader("t", index) for index in (0, 1, 2)] == [3, 4, 1]
    while not one.continue_update():
        assert one.snapshot.leader("t", count - 1) == 1
    # After the response a hint with the same epoch is old, one with a newer epoch is not.
    assert [one.snapshot.leader("t", index) for index in (0, 1, 2)] == [2, 4, 2]
    assert (one.snapshot.brokers[4].host, one.snapshot.at, one.update_steps) == ("host-4", 20.0, None)
    one.start()
    assert not one.handle_response(metadata({"t": [(1, 8)] * count}), 30.0)
    while not one.continue_update():
        pass
    assert one.snapshot.leader("t", 1) == 1, "hints apply to the response that they met"


def names(one: MetadataUpdater, version: int = 12) -> tuple[list[str | None], bool]:
    """Return the topics of the next request, and whether brokers may create them."""
    one.start()
    request = one.request(version)
    return [topic.name for topic in request.topics or ()], request.allow_auto_topic_creation


def test_a_topic_to_create_is_requested_alone_until_it_was_seen() -> None:
    one = settled({"t": [(1, 0)]})
    one.allow_creation("new")
    one.set_topics({"new", "t"})
    assert one.due_at == 0.0
    assert names(one) == (["new"], True)
    assert one.handle_response(metadata({"new": [(2, 0)]}), 20.0)
    assert (one.snapshot.leader("t", 0), one.snapshot.leader("new", 0)) == (1, 2)
    assert one.due_at == 10.0 + MAX_AGE, "the others are as old as before"
    one.allow_creation("new")
    one.request_refresh("a test")
    assert names(one) == (["new", "t"], False)
    one.handle_response(metadata({"t": [(1, 0)]}, errors={"new": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}), 30.0)
    assert names(one) == (["new", "t"], False), "it was deleted: no refresh creates it again"


def test_a_missing_topic_is_requested_with_the_others_and_alone_by_turns() -> None:
    one = settled({"t": [(1, 0)]})
    one.allow_creation("new")
    one.set_topics({"new", "t"})
    missing = {"new": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    for _ in range(2):
        assert names(one) == (["new"], True)
        one.handle_response(metadata(errors=missing), 20.0)
        assert 20.0 < one.due_at < 21.5
        assert names(one) == (["new", "t"], False)
        one.handle_response(metadata({"t": [(1, 0)]}, errors=missing), 21.0)


def test_a_refresh_that_was_due_follows_at_once() -> None:
    one = settled({"t": [(1, 0)]})
    one.request_refresh("a leader was lost")
    one.allow_creation("new")
    one.set_topics({"new", "t"})
    assert names(one) == (["new"], True)
    one.handle_response(metadata({"new": [(2, 0)]}), 20.0)
    assert one.due_at == 20.0
    assert names(one) == (["new", "t"], False)


def test_a_failed_request_for_a_new_topic_is_repeated() -> None:
    one = updater()
    one.allow_creation("new")
    one.set_topics({"new", "t"})
    assert names(one) == (["new"], True)
    one.failed(5.0)
    assert 5.0 < one.due_at < 5.2
    assert names(one) == (["new"], True)


# -- the snapshot

A, B = UUID(int=1), UUID(int=2)


def test_an_older_leader_epoch_does_not_replace_a_newer_one() -> None:
    newer = snapshot({"t": [(2, 9)]}, ids={"t": A})
    assert newer.updated(metadata({"t": [(1, 8)]}, ids={"t": A}), 2.0).partition("t", 0) == newer.partition("t", 0)
    moved = newer.updated(metadata({"t": [(3, 10)]}, ids={"t": A}), 2.0)
    assert moved.leader("t", 0) == 3


def test_a_topic_created_again_starts_its_epochs_again() -> None:
    old = snapshot({"t": [(2, 9)]}, ids={"t": A})
    assert old.updated(metadata({"t": [(1, 0)]}, ids={"t": B}), 2.0).leader("t", 0) == 1


@pytest.mark.parametrize(
    ("received_as", "kept_as"),
    [
        ("leader_id", "leader"), ("leader_epoch", "leader_epoch"), ("replica_nodes", "replicas"), ("isr_nodes", "isr"),
        ("offline_replicas", "offline"), ("error_code", "error_code"),
    ],
)  # fmt: skip
def test_an_equal_partition_stays_the_same_object_and_any_difference_is_applied(received_as: str, kept_as: str) -> None:
    old = snapshot({"t": [(1, 5)]}, ids={"t": A})
    assert old.updated(metadata({"t": [(1, 5)]}, ids={"t": A}), 2.0).topics["t"] is old.topics["t"]
    response = metadata({"t": [(1, 5)]}, ids={"t": A})
    value = [7, 8] if received_as.endswith(("nodes", "replicas")) else 9
    setattr(response.topics[0].partitions[0], received_as, value)
    taken = getattr(old.updated(response, 2.0).partition("t", 0), kept_as)
    assert taken == (tuple(value) if isinstance(value, list) else value)


def test_a_response_without_epochs_is_applied() -> None:
    old = snapshot({"t": [(2, 9)]}, ids={"t": A})
    assert old.updated(metadata({"t": [(1, -1)]}, ids={"t": A}), 2.0).leader("t", 0) == 1


def test_partition_n_is_at_index_n_though_the_response_lacks_some() -> None:
    response = metadata({"t": [(1, 0), (2, 0), (3, 0)]})
    del response.topics[0].partitions[1]
    response.topics[0].partitions.reverse()
    seen = snapshot().updated(response, 2.0)
    assert [seen.leader("t", index) for index in range(4)] == [1, -1, 3, -1]


@pytest.mark.parametrize(
    ("index", "count"), [(MISSING_MAX + 1, MISSING_MAX + 2), (MISSING_MAX + 2, 1), (2**31 - 1, 1), (-1, 1)]
)
def test_an_index_far_beyond_the_number_of_partitions_is_ignored(index: int, count: int) -> None:
    response = metadata({"t": [(1, 0), (2, 0)]})
    response.topics[0].partitions[1].partition_index = index
    assert len(snapshot().updated(response, 2.0).topics["t"].partitions) == count


@pytest.mark.parametrize(
    "sizes", [[STEP * 5 // 2], [STEP // 2] * 5, [1] * STEP, [0] * STEP * 2, [STEP - 1, STEP, 3], []]
)
def test_a_response_applied_in_steps_gives_the_same_snapshot(sizes: list[int]) -> None:
    """`sizes` are the numbers of partitions of the topics. A topic counts as one more."""

    def received(leader: int) -> MetadataResponse:
        return metadata({f"t{number}": [(leader, leader)] * size for number, size in enumerate(sizes)})

    old = snapshot().updated(received(1), 1.0)
    *steps, new = old.updating(received(2), 2.0)
    assert steps == [None] * len(steps)
    assert len(steps) <= (sum(sizes) + len(sizes)) / STEP < 2 * (len(steps) + 1)
    assert new == old.updated(received(2), 2.0)
    assert {p.leader for topic in old.topics.values() for p in topic.partitions} <= {1}


def test_a_topic_without_a_name_is_ignored() -> None:
    response = metadata()
    response.topics.append(MetadataResponse.Topic(error_code=100, name=None, topic_id=A, partitions=[]))
    assert not snapshot().updated(response, 2.0).topics


def test_topic_names_by_id() -> None:
    seen = snapshot({"t": [(1, 0)]}, ids={"t": A})
    assert (seen.topic_name(A), seen.topic_name(B), seen.topic_name(UUID(int=0))) == ("t", None, None)


def test_a_partition_remembers_since_when_it_has_no_leader() -> None:
    since: list[tuple[float | None, ...]] = []
    known = snapshot()
    for now, leaders in enumerate([[(1, 0), (-1, 0)], [(-1, 0), (-1, 0)], [(-1, 0), (2, 1)], [(1, 1), (-1, 1)]]):
        known = known.updated(metadata({"t": leaders}), float(now))
        since.append(tuple(partition.leaderless_since for partition in known.topics["t"].partitions))
    assert since == [(None, 0.0), (1.0, 0.0), (1.0, None), (None, 3.0)]


FOUR = Broker(4, "host-4", 9094)


@pytest.mark.parametrize(
    ("hint", "leader"),
    [
        (CurrentLeader("t", A, 1, 3, 6), 3),
        (CurrentLeader("t", A, 1, 4, 6), 4),
        (CurrentLeader("t", A, 1, 3, 5), 2),
        (CurrentLeader("t", A, 1, 3, 4), 2),
        (CurrentLeader("t", B, 1, 3, 6), 2),
        (CurrentLeader("t", A, 1, 5, 6), 2),
        (CurrentLeader("t", A, 9, 3, 6), 2),
        (CurrentLeader("other", A, 1, 3, 6), 2),
    ],
    ids=["newer", "and its address", "no news", "older", "another topic", "no address", "no partition", "no topic"],
)
def test_a_leader_hint_is_applied_if_its_epoch_is_newer_and_its_broker_known(hint: CurrentLeader, leader: int) -> None:
    known = snapshot({"t": [(1, 5), (2, 5)]}, ids={"t": A})
    learnt, news = known.with_leaders([hint], [FOUR])
    assert learnt.leader("t", 1) == leader
    assert learnt.leader("t", 0) == 1
    assert news == ({("t", 1)} if leader != 2 else set())
    assert (4 in learnt.brokers) is (leader == 4)
    assert (learnt is known) is (leader == 2)


def test_a_leader_hint_ends_the_time_without_a_leader() -> None:
    known = snapshot({"t": [(-1, 5)]}, ids={"t": A})
    learnt, _ = known.with_leaders([CurrentLeader("t", A, 0, 2, 6)], [])
    partition = learnt.partition("t", 0)
    assert partition is not None
    assert (partition.leader, partition.error_code, partition.leaderless_since) == (2, 0, None)


def test_a_response_older_than_a_hint_removes_neither_the_leader_nor_its_broker() -> None:
    learnt, _ = snapshot({"t": [(1, 5)]}, ids={"t": A}).with_leaders([CurrentLeader("t", A, 0, 4, 6)], [FOUR])
    after = learnt.updated(metadata({"t": [(1, 5)]}, ids={"t": A}), 2.0)
    assert (after.leader("t", 0), after.brokers[4]) == (4, FOUR)
    later = after.updated(metadata({"t": [(2, 7)]}, ids={"t": A}), 3.0)
    assert (later.leader("t", 0), set(later.brokers)) == (2, {1, 2, 3})


def test_a_known_broker_keeps_its_address_until_metadata_moves_it() -> None:
    known = snapshot({"t": [(1, 5)]}, ids={"t": A})
    learnt, _ = known.with_leaders([CurrentLeader("t", A, 0, 2, 6)], [Broker(2, "elsewhere", 1)])
    assert learnt.brokers[2] == known.brokers[2]
