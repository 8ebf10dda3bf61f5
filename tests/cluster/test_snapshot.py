"""What a snapshot takes from an answer, and what it refuses to forget."""

from __future__ import annotations

from uuid import UUID

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


def test_brokers_without_epochs_are_believed() -> None:
    old = snapshot({"t": [(2, 9)]}, ids={"t": A})
    assert old.updated(metadata({"t": [(1, -1)]}, ids={"t": A}), 2.0).leader("t", 0) == 1


def test_partitions_stand_at_their_index_whatever_the_answer_leaves_out() -> None:
    answer = metadata({"t": [(1, 0), (2, 0), (3, 0)]})
    del answer.topics[0].partitions[1]
    answer.topics[0].partitions.reverse()
    seen = snapshot().updated(answer, 2.0)
    assert [seen.leader("t", index) for index in range(4)] == [1, -1, 3, -1]


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
