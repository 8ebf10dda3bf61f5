"""A broker that leads no more says who does (KIP-951): the next fetch goes there, without metadata or a back-off."""

from __future__ import annotations

import pytest

from kwire import Consumer
from kwire.broker import Cluster
from kwire.cluster.metadata import NO_ID
from kwire.errors import ErrorCode
from kwire.protocol import ApiKey
from kwire.protocol.messages.fetch import FetchRequest
from tests.cluster.snapshots import snapshot
from tests.consumer.embedded import fill, numbers
from tests.consumer.world import World, batch

MOVED = ErrorCode.NOT_LEADER_OR_FOLLOWER
NEVER_MS = 120_000
T0, T1 = ("t", 0), ("t", 1)


@pytest.mark.parametrize("version", [12, 13, 15, 16, 18])
@pytest.mark.parametrize("code", [MOVED, ErrorCode.FENCED_LEADER_EPOCH])
def test_the_next_fetch_goes_to_the_leader_that_was_named_at_once(version: int, code: ErrorCode) -> None:
    world = World()
    world.view.versions[FetchRequest] = version
    world.assign(("t", 0, 5), ("t", 1, 6))
    world.turn_one().answer({T1: batch(6, b"a")}, codes={T0: code}, leaders={T0: (3, 8)})
    moved, stayed = sorted(world.turn(), key=lambda sent: -sent.node)
    assert (moved.node, moved.offsets, moved.asked[T0].current_leader_epoch) == (3, {T0: 5}, 8)
    assert (stayed.node, stayed.offsets) == (1, {T1: 7})
    assert world.view.refreshes, "what else moved is for metadata to tell"
    moved.answer({T0: batch(5, b"b")})
    assert world.read() == {T0: [b"b"], T1: [b"a"]}


def test_the_same_broker_in_a_newer_epoch_is_asked_again_at_once() -> None:
    world = World()
    world.assign(("t", 0, 5))
    world.turn_one().answer(codes={T0: ErrorCode.FENCED_LEADER_EPOCH}, leaders={T0: (1, 8)})
    again = world.turn_one()
    assert (again.node, again.asked[T0].current_leader_epoch) == (1, 8)


@pytest.mark.parametrize("version", [15, 16], ids=["without address", "with address"])
def test_a_leader_that_metadata_never_told_of_needs_an_address(version: int) -> None:
    world = World()
    world.view.versions[FetchRequest] = version
    world.assign(("t", 0, 5))
    world.turn_one().answer(codes={T0: MOVED}, leaders={T0: (4, 8)})
    assert [sent.node for sent in world.turn()] == ([4] if version == 16 else [])


@pytest.mark.parametrize("hint", [(3, 7), (3, 6), (-1, -1)], ids=["same epoch", "older", "none"])
def test_without_news_there_is_a_back_off(hint: tuple[int, int]) -> None:
    world = World()
    world.assign(("t", 0, 5))
    world.turn_one().answer(codes={T0: MOVED}, leaders={T0: hint})
    assert world.turn(0.05) == []
    assert [sent.node for sent in world.turn(0.1)] == [1]


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR])
def test_hints_beside_other_errors_are_not_believed(code: ErrorCode) -> None:
    world = World()
    world.assign(("t", 0, 5))
    world.turn_one().answer(codes={T0: code}, leaders={T0: (3, 8)})
    assert world.turn() == []
    assert world.view.snapshot.leader("t", 0) == 1


def test_a_hint_for_one_partition_does_not_hurry_another() -> None:
    world = World()
    world.assign(("t", 0, 5), ("t", 1, 6))
    world.turn_one().answer(codes={T0: MOVED, T1: MOVED}, leaders={T0: (3, 8)})
    assert [(sent.node, sent.offsets) for sent in world.turn()] == [(3, {T0: 5})]


def test_news_that_metadata_brought_meanwhile_are_as_good() -> None:
    world = World()
    world.assign(("t", 0, 5))
    sent = world.turn_one()
    world.view.snapshot = snapshot({"t": [(3, 8), (1, 7), (2, 7)]})
    sent.answer(codes={T0: MOVED})
    assert world.turn_one().node == 3


def test_a_topic_that_was_created_again_meanwhile_learns_nothing() -> None:
    world = World()
    world.view.snapshot = snapshot({"t": [(1, 7)]}, ids={"t": NO_ID})
    world.assign(("t", 0, 5))
    sent = world.turn_one()
    world.view.snapshot = snapshot({"t": [(1, 7)]})
    sent.answer(codes={T0: MOVED}, leaders={T0: (3, 8)})
    assert world.turn() == []


def test_a_hint_of_a_fetch_before_the_seek_is_believed() -> None:
    world = World()
    world.assign(("t", 0, 5))
    sent = world.turn_one()
    world.fetcher.seek(world.start("t", 0, 9))
    sent.answer(codes={T0: MOVED}, leaders={T0: (3, 8)})
    again = world.turn_one()
    assert (again.node, again.offsets) == (3, {T0: 9})


@pytest.mark.parametrize("version", [12, 13, 16, 18])
def test_leaders_move_and_no_metadata_is_waited_for(version: int) -> None:
    """With these pauses nothing arrives in time that needs a back-off or a second look at the metadata."""
    with Cluster(brokers=3, api_versions={ApiKey.FETCH: range(4, version + 1)}) as cluster:
        cluster.create_topic("t", partitions=1)
        with Consumer(
            cluster.bootstrap, retry_backoff_ms=NEVER_MS, retry_backoff_ms_max=NEVER_MS, max_wait_ms=10
        ) as consumer:
            consumer.assign([("t", 0, 0)])
            for number, node in enumerate((1, 2, 3, 1, 2, 3)):
                if cluster.leader("t") != node:
                    cluster.move_leader("t", 0, node)
                fill(cluster, "t", 0, [number])
                assert numbers(consumer.poll(timeout=30.0)) == {0: [number]}
        assert cluster.requests()[ApiKey.METADATA] <= 3
        assert cluster.failures == ()
