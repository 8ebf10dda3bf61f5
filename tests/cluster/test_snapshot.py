"""What a snapshot takes from an answer, and what it refuses to forget."""

from __future__ import annotations

from uuid import UUID

import pytest

from kwire.cluster import Broker, CurrentLeader
from kwire.cluster.metadata import MISSING_MAX, STEP
from kwire.protocol.messages.metadata import MetadataResponse
from tests.cluster.snapshots import metadata, snapshot

A, B = UUID(int=1), UUID(int=2)


def test_an_older_leader_epoch_does_not_replace_a_newer_one() -> None:
    newer = snapshot({"t": [(2, 9)]}, ids={"t": A})
    assert newer.updated(metadata({"t": [(1, 8)]}, ids={"t": A}), 2.0).partition("t", 0) == newer.partition("t", 0)
    moved = newer.updated(metadata({"t": [(3, 10)]}, ids={"t": A}), 2.0)
    assert moved.leader("t", 0) == 3


def test_a_topic_created_again_starts_its_epochs_afresh() -> None:
    old = snapshot({"t": [(2, 9)]}, ids={"t": A})
    assert old.updated(metadata({"t": [(1, 0)]}, ids={"t": B}), 2.0).leader("t", 0) == 1


@pytest.mark.parametrize(
    ("told", "kept_as"),
    [
        ("leader_id", "leader"), ("leader_epoch", "leader_epoch"), ("replica_nodes", "replicas"), ("isr_nodes", "isr"),
        ("offline_replicas", "offline"), ("error_code", "error_code"),
    ],
)  # fmt: skip
def test_a_partition_told_as_it_is_known_is_kept_and_any_difference_is_taken(told: str, kept_as: str) -> None:
    old = snapshot({"t": [(1, 5)]}, ids={"t": A})
    assert old.updated(metadata({"t": [(1, 5)]}, ids={"t": A}), 2.0).topics["t"] is old.topics["t"]
    answer = metadata({"t": [(1, 5)]}, ids={"t": A})
    value = [7, 8] if told.endswith(("nodes", "replicas")) else 9
    setattr(answer.topics[0].partitions[0], told, value)
    taken = getattr(old.updated(answer, 2.0).partition("t", 0), kept_as)
    assert taken == (tuple(value) if isinstance(value, list) else value)


def test_brokers_without_epochs_are_believed() -> None:
    old = snapshot({"t": [(2, 9)]}, ids={"t": A})
    assert old.updated(metadata({"t": [(1, -1)]}, ids={"t": A}), 2.0).leader("t", 0) == 1


def test_partitions_stand_at_their_index_whatever_the_answer_leaves_out() -> None:
    answer = metadata({"t": [(1, 0), (2, 0), (3, 0)]})
    del answer.topics[0].partitions[1]
    answer.topics[0].partitions.reverse()
    seen = snapshot().updated(answer, 2.0)
    assert [seen.leader("t", index) for index in range(4)] == [1, -1, 3, -1]


@pytest.mark.parametrize(
    ("index", "count"), [(MISSING_MAX + 1, MISSING_MAX + 2), (MISSING_MAX + 2, 1), (2**31 - 1, 1), (-1, 1)]
)
def test_an_index_far_beyond_what_was_told_makes_no_stand_ins(index: int, count: int) -> None:
    answer = metadata({"t": [(1, 0), (2, 0)]})
    answer.topics[0].partitions[1].partition_index = index
    assert len(snapshot().updated(answer, 2.0).topics["t"].partitions) == count


@pytest.mark.parametrize(
    "sizes", [[STEP * 5 // 2], [STEP // 2] * 5, [1] * STEP, [0] * STEP * 2, [STEP - 1, STEP, 3], []]
)
def test_an_answer_is_taken_in_by_steps_with_the_same_result(sizes: list[int]) -> None:
    """`sizes`: how many partitions the topics have. A topic counts as one more."""

    def answer(leader: int) -> MetadataResponse:
        return metadata({f"t{number}": [(leader, leader)] * size for number, size in enumerate(sizes)})

    old = snapshot().updated(answer(1), 1.0)
    *steps, new = old.updating(answer(2), 2.0)
    assert steps == [None] * len(steps)
    assert len(steps) <= (sum(sizes) + len(sizes)) / STEP < 2 * (len(steps) + 1)
    assert new == old.updated(answer(2), 2.0)
    assert {p.leader for topic in old.topics.values() for p in topic.partitions} <= {1}


def test_a_topic_without_a_name_is_passed_over() -> None:
    answer = metadata()
    answer.topics.append(MetadataResponse.Topic(error_code=100, name=None, topic_id=A, partitions=[]))
    assert not snapshot().updated(answer, 2.0).topics


def test_names_by_id() -> None:
    seen = snapshot({"t": [(1, 0)]}, ids={"t": A})
    assert (seen.topic_name(A), seen.topic_name(B), seen.topic_name(UUID(int=0))) == ("t", None, None)


def test_since_when_a_partition_has_no_leader() -> None:
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
def test_a_hint_is_believed_when_it_is_newer_and_leads_somewhere(hint: CurrentLeader, leader: int) -> None:
    known = snapshot({"t": [(1, 5), (2, 5)]}, ids={"t": A})
    learnt, news = known.with_leaders([hint], [FOUR])
    assert learnt.leader("t", 1) == leader
    assert learnt.leader("t", 0) == 1
    assert news == ({("t", 1)} if leader != 2 else set())
    assert (4 in learnt.brokers) is (leader == 4)
    assert (learnt is known) is (leader == 2)


def test_a_hint_ends_the_time_without_a_leader() -> None:
    known = snapshot({"t": [(-1, 5)]}, ids={"t": A})
    learnt, _ = known.with_leaders([CurrentLeader("t", A, 0, 2, 6)], [])
    partition = learnt.partition("t", 0)
    assert partition is not None
    assert (partition.leader, partition.error_code, partition.leaderless_since) == (2, 0, None)


def test_an_answer_that_is_older_than_a_hint_takes_neither_the_leader_nor_its_broker_away() -> None:
    learnt, _ = snapshot({"t": [(1, 5)]}, ids={"t": A}).with_leaders([CurrentLeader("t", A, 0, 4, 6)], [FOUR])
    after = learnt.updated(metadata({"t": [(1, 5)]}, ids={"t": A}), 2.0)
    assert (after.leader("t", 0), after.brokers[4]) == (4, FOUR)
    later = after.updated(metadata({"t": [(2, 7)]}, ids={"t": A}), 3.0)
    assert (later.leader("t", 0), set(later.brokers)) == (2, {1, 2, 3})


def test_a_known_broker_keeps_its_address_until_metadata_moves_it() -> None:
    known = snapshot({"t": [(1, 5)]}, ids={"t": A})
    learnt, _ = known.with_leaders([CurrentLeader("t", A, 0, 2, 6)], [Broker(2, "elsewhere", 1)])
    assert learnt.brokers[2] == known.brokers[2]
