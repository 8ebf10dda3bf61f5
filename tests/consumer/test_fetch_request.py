"""How far fetched batches reach, and leaders that a Fetch response names (KIP-951)."""

from __future__ import annotations

import pytest

from kwire import Consumer
from kwire.broker import Cluster
from kwire.cluster.metadata import NO_ID
from kwire.consumer.fetch_request import BatchBounds, batch_bounds, fetch_size
from kwire.errors import ErrorCode
from kwire.protocol import ApiKey
from kwire.protocol.messages.fetch import FetchRequest
from kwire.records import Compression, decode_batches, encode_batch
from tests.cluster.snapshots import snapshot
from tests.consumer.embedded import fill, numbers
from tests.consumer.world import World, batch

ROW = (1_000, b"k", b"value", ())

SETS = [
    pytest.param(encode_batch([ROW] * 3, base_offset=7), 10, id="v2"),
    pytest.param(encode_batch([ROW] * 3, base_offset=7) + encode_batch([ROW], base_offset=50), 51, id="v2 with a gap"),
    pytest.param(encode_batch([ROW] * 3, base_offset=7, magic=1), 10, id="v1"),
    pytest.param(encode_batch([ROW] * 3, base_offset=7, magic=0), 10, id="v0"),
    pytest.param(encode_batch([ROW] * 3, base_offset=7, magic=1, compression=Compression.GZIP), 10, id="v1 gzip"),
    pytest.param(encode_batch([ROW] * 3, base_offset=7, magic=0, compression=Compression.GZIP), 10, id="v0 gzip"),
    pytest.param(
        encode_batch([ROW], base_offset=1, magic=0) + encode_batch([ROW] * 2, base_offset=2), 4, id="v0, then v2"
    ),
]


@pytest.mark.parametrize(("data", "next_offset"), SETS)
def test_bounds_of_data_cut_anywhere(data: bytes, next_offset: int) -> None:
    assert batch_bounds(memoryview(data)) == BatchBounds(len(data), next_offset)
    for length in range(len(data)):
        part = memoryview(data)[:length]
        bounds = batch_bounds(part)
        batches = list(decode_batches(part))
        assert not bounds.is_broken
        assert bounds.whole_bytes == sum(batch.size_bytes for batch in batches)
        assert bounds.next_offset == (batches[-1].next_offset if batches else -1)
        cut_off = list(decode_batches(data))[len(batches)]
        has_its_size = length - bounds.whole_bytes >= 12
        assert bounds.needed_bytes == (cut_off.size_bytes if has_its_size else 0)


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 13])
def test_an_invalid_size_is_broken(size: int) -> None:
    wrong = bytes(8) + size.to_bytes(4, "big", signed=True) + bytes(30)
    assert batch_bounds(memoryview(wrong)) == BatchBounds(0, -1, 0, is_broken=True)
    whole = encode_batch([ROW], base_offset=7)
    assert batch_bounds(memoryview(whole + wrong)) == BatchBounds(len(whole), 8, 0, is_broken=True)


def test_bounds_of_no_data() -> None:
    assert batch_bounds(memoryview(b"")) == BatchBounds(0, -1)


@pytest.mark.parametrize(
    ("batch_bytes", "expected"),
    [(100, 1_000), (499, 1_000), (334, 688), (501, 532), (800, 850), (1_000, 1_000), (1_001, 1_000)],
)
def test_the_fetch_size_fits_whole_batches(batch_bytes: int, expected: int) -> None:
    assert fetch_size(batch_bytes, 1_000) == expected


MOVED = ErrorCode.NOT_LEADER_OR_FOLLOWER
NEVER_MS = 120_000
T0, T1 = ("t", 0), ("t", 1)


@pytest.mark.parametrize("version", [12, 13, 15, 16, 18])
@pytest.mark.parametrize("code", [MOVED, ErrorCode.FENCED_LEADER_EPOCH])
def test_the_next_fetch_goes_to_the_named_leader_at_once(version: int, code: ErrorCode) -> None:
    world = World()
    world.view.versions[FetchRequest] = version
    world.assign(("t", 0, 5), ("t", 1, 6))
    world.turn_one().respond_fetch({T1: batch(6, b"a")}, codes={T0: code}, leaders={T0: (3, 8)})
    moved, stayed = sorted(world.turn(), key=lambda sent: -sent.node)
    assert (moved.node, moved.offsets, moved.partitions[T0].current_leader_epoch) == (3, {T0: 5}, 8)
    assert (stayed.node, stayed.offsets) == (1, {T1: 7})
    assert world.view.refreshes, "metadata has the other leaders that moved"
    moved.respond_fetch({T0: batch(5, b"b")})
    assert world.read() == {T0: [b"b"], T1: [b"a"]}


def test_the_same_broker_in_a_newer_epoch_is_fetched_from_at_once() -> None:
    world = World()
    world.assign(("t", 0, 5))
    world.turn_one().respond_fetch(codes={T0: ErrorCode.FENCED_LEADER_EPOCH}, leaders={T0: (1, 8)})
    again = world.turn_one()
    assert (again.node, again.partitions[T0].current_leader_epoch) == (1, 8)


@pytest.mark.parametrize("version", [15, 16], ids=["without address", "with address"])
def test_a_leader_that_metadata_lacks_needs_an_address(version: int) -> None:
    world = World()
    world.view.versions[FetchRequest] = version
    world.assign(("t", 0, 5))
    world.turn_one().respond_fetch(codes={T0: MOVED}, leaders={T0: (4, 8)})
    assert [sent.node for sent in world.turn()] == ([4] if version == 16 else [])


@pytest.mark.parametrize("leader", [(3, 7), (3, 6), (-1, -1)], ids=["same epoch", "older", "none"])
def test_without_a_newer_leader_there_is_a_back_off(leader: tuple[int, int]) -> None:
    world = World()
    world.assign(("t", 0, 5))
    world.turn_one().respond_fetch(codes={T0: MOVED}, leaders={T0: leader})
    assert world.turn(0.05) == []
    assert [sent.node for sent in world.turn(0.1)] == [1]


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR])
def test_leaders_named_with_other_errors_are_ignored(code: ErrorCode) -> None:
    world = World()
    world.assign(("t", 0, 5))
    world.turn_one().respond_fetch(codes={T0: code}, leaders={T0: (3, 8)})
    assert world.turn() == []
    assert world.view.snapshot.leader("t", 0) == 1


def test_a_named_leader_of_one_partition_leaves_the_back_off_of_another() -> None:
    world = World()
    world.assign(("t", 0, 5), ("t", 1, 6))
    world.turn_one().respond_fetch(codes={T0: MOVED, T1: MOVED}, leaders={T0: (3, 8)})
    assert [(sent.node, sent.offsets) for sent in world.turn()] == [(3, {T0: 5})]


def test_a_newer_leader_from_metadata_ends_the_back_off() -> None:
    world = World()
    world.assign(("t", 0, 5))
    sent = world.turn_one()
    world.view.snapshot = snapshot({"t": [(3, 8), (1, 7), (2, 7)]})
    sent.respond_fetch(codes={T0: MOVED})
    assert world.turn_one().node == 3


def test_a_named_leader_of_a_deleted_topic_is_ignored() -> None:
    world = World()
    world.view.snapshot = snapshot({"t": [(1, 7)]}, ids={"t": NO_ID})
    world.assign(("t", 0, 5))
    sent = world.turn_one()
    world.view.snapshot = snapshot({"t": [(1, 7)]})
    sent.respond_fetch(codes={T0: MOVED}, leaders={T0: (3, 8)})
    assert world.turn() == []


def test_a_leader_named_to_a_fetch_before_the_seek_is_used() -> None:
    world = World()
    world.assign(("t", 0, 5))
    sent = world.turn_one()
    world.fetcher.seek(world.start("t", 0, 9))
    sent.respond_fetch(codes={T0: MOVED}, leaders={T0: (3, 8)})
    again = world.turn_one()
    assert (again.node, again.offsets) == (3, {T0: 9})


@pytest.mark.parametrize("version", [12, 13, 16, 18])
def test_moved_leaders_are_found_without_metadata(version: int) -> None:
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
