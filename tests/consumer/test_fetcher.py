"""The fetcher on virtual time: its requests, and how it handles the responses."""

from __future__ import annotations

from typing import Any

import pytest

from kwire.cluster.metadata import NO_ID
from kwire.consumer.buffer import CompletedFetch, PartitionFailed, PositionResolved
from kwire.consumer.offsets import COMMITTED, Ago, AtTimestamp, Offset
from kwire.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    ClosedError,
    ConnectError,
    CorruptRecordsError,
    DisconnectedError,
    ErrorCode,
    NoOffsetError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    RequestTimeoutError,
    TopicError,
    UnsupportedVersionError,
)
from kwire.protocol.messages.fetch import FetchRequest
from kwire.protocol.messages.list_offsets import EARLIEST, LATEST, ListOffsetsRequest
from kwire.records import Compression
from tests.cluster.snapshots import snapshot
from tests.consumer.world import World, batch

T0, T1, T2 = ("t", 0), ("t", 1), ("t", 2)


# -- requests


def test_one_fetch_to_each_leader_names_all_of_its_partitions() -> None:
    world = World(min_bytes=3, max_wait_ms=250, max_bytes=2_000_000, partition_max_bytes=1_000, rack="r1")
    world.assign(("t", 0, 5), ("t", 1, 6), ("t", 2, 7))
    first, second = world.turn()
    assert (first.node, first.offsets) == (1, {T0: 5, T1: 6})
    assert (second.node, second.offsets) == (2, {T2: 7})
    request = first.request
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (250, 3, 2_000_000)
    assert (request.session_id, request.session_epoch, request.rack_id) == (0, 0, "r1")
    assert [one.partition_max_bytes for one in first.partitions.values()] == [1_000, 1_000]
    assert [one.current_leader_epoch for one in first.partitions.values()] == [7, 7]
    assert first.call.timeout_ms == 30_250
    assert world.turn() == [], "one in flight per broker"


@pytest.mark.parametrize("version", range(19))
def test_every_version(version: int) -> None:
    world = World(isolation="read_committed")
    world.view.versions[FetchRequest] = version
    world.assign(("t", 0, 5), ("t", 1, 0))
    sent = world.turn_one()
    assert sent.version == version
    assert sent.offsets == {T0: 5, T1: 0}
    assert sent.request.isolation_level == (1 if version >= 4 else 0)
    topic = sent.request.topics[0]
    assert (topic.topic == "t", topic.topic_id == NO_ID) == (version < 13, version < 13)
    data = batch(5, b"a", b"b", magic=0) if version < 2 else batch(5, b"a", b"b", magic=1 if version < 4 else 2)
    sent.respond_fetch({T0: data})
    assert world.turn_one().offsets == {T1: 0, T0: 7}
    assert world.read() == {T0: [b"a", b"b"]}


def test_a_topic_without_id_is_fetched_by_name() -> None:
    world = World()
    world.view.snapshot = snapshot({"t": [(1, 7)]}, ids={"t": NO_ID})
    world.assign(("t", 0, 5))
    sent = world.turn_one()
    assert (sent.version, sent.request.topics[0].topic) == (12, "t")


def test_a_broker_without_a_common_fetch_version_is_reported_and_not_fetched_from() -> None:
    world = World()
    del world.view.versions[FetchRequest]
    world.assign(("t", 0, 5))
    assert world.turn() == []
    world.read()
    assert isinstance(world.client_errors[0], UnsupportedVersionError)
    assert world.turn(1.0) == []
    world.read()
    assert len(world.client_errors) == 1


def test_before_v3_the_sum_of_the_limits_is_bounded_and_partitions_take_turns() -> None:
    world = World({"t": [(1, 0)] * 5}, max_bytes=2_000, partition_max_bytes=1_000)
    world.view.versions[FetchRequest] = 2
    world.assign(*(("t", index, 0) for index in range(5)))
    turns = []
    for _ in range(5):
        sent = world.turn_one()
        turns.append([index for _, index in sent.offsets])
        sent.respond_fetch()
    assert turns == [[0, 1], [2, 3], [4, 0], [1, 2], [3, 4]]


# -- responses


def test_the_next_fetch_is_sent_before_anything_was_read() -> None:
    world = World()
    world.assign(("t", 0, 5))
    world.turn_one().respond_fetch({T0: batch(5, b"a", b"b") + batch(7, b"c")})
    assert world.turn_one().offsets == {T0: 8}
    assert world.read() == {T0: [b"a", b"b", b"c"]}


def test_partitions_that_returned_records_go_to_the_back() -> None:
    world = World({"t": [(1, 0)] * 3, "uu": [(1, 0)]})
    world.assign(("t", 0, 0), ("t", 1, 0), ("t", 2, 0), ("uu", 0, 0))
    first = world.turn_one()
    assert [(len(topic.partitions)) for topic in first.request.topics] == [3, 1]
    first.respond_fetch({T0: batch(0, b"a"), T1: batch(0, b"b")})
    second = world.turn_one()
    assert list(second.offsets) == [T2, ("uu", 0), T0, T1]
    assert [len(topic.partitions) for topic in second.request.topics] == [1, 1, 2], "only neighbours share an entry"


def test_nothing_is_fetched_beyond_an_end() -> None:
    world = World()
    starts = [world.start("t", index, 5)._replace(end=end) for index, end in [(0, 8), (1, None)]]
    world.fetcher.assign(starts)
    world.turn_one().respond_fetch({T0: batch(5, b"a", b"b"), T1: batch(5, b"x")})
    sent = world.turn_one()
    assert sent.offsets == {T0: 7, T1: 6}
    sent.respond_fetch({T0: batch(7, b"c", b"d")})
    assert world.turn_one().offsets == {T1: 6}
    assert world.read() == {T0: [b"a", b"b", b"c", b"d"], T1: [b"x"]}, "the last response is returned whole"
    assert world.fetcher.topics() == {"t"}, "whose metadata may be wanted again"


def test_an_end_stays_after_a_seek_and_holds_for_a_resolved_start() -> None:
    world = World()
    world.fetcher.assign([world.start("t", 0, 8)._replace(end=8)])
    assert world.turn() == []
    world.fetcher.seek(world.start("t", 0, 7))
    world.turn_one().respond_fetch({T0: batch(7, b"c")})
    assert world.turn() == []
    world.fetcher.seek(world.start("t", 0, "earliest"))
    world.turn_one().respond_offsets({T0: 8})
    assert world.turn() == []


def test_an_empty_response_is_followed_by_a_fetch_at_once() -> None:
    world = World()
    world.assign(("t", 0, 5))
    world.turn_one().respond_fetch()
    assert world.turn_one().offsets == {T0: 5}
    assert world.posted() == []


@pytest.mark.parametrize(
    ("data", "next_offset", "values"),
    [
        (batch(5, b"a", b"b", b"c"), 8, [b"a", b"b", b"c"]),
        (batch(3, b"x", b"y", b"a"), 6, [b"a"]),  # the batch starts before the fetch offset
        (batch(9, b"a"), 10, [b"a"]),  # compacted: the offsets before are gone
        (batch(5, b"a") + batch(20, b"b"), 21, [b"a", b"b"]),
        (batch(5, b"a") + batch(6, b"b" * 50)[:40], 6, [b"a"]),  # cut off at the limit
        (batch(5, b"a", magic=1) + batch(6, b"b", magic=0), 7, [b"a", b"b"]),
        (batch(4, b"x", b"a", magic=1, compression=Compression.GZIP), 6, [b"a"]),
    ],
)
def test_records_of_every_format_are_read(data: bytes, next_offset: int, values: list[bytes]) -> None:
    world = World()
    world.assign(("t", 0, 5))
    world.turn_one().respond_fetch({T0: data})
    assert world.turn_one().offsets == {T0: next_offset}
    assert world.read() == {T0: values}
    assert world.buffers[1].position == next_offset


def test_a_batch_over_the_limit_of_an_old_broker_raises_the_limit_to_its_size() -> None:
    world = World(partition_max_bytes=100)
    world.view.versions[FetchRequest] = 2
    data = batch(5, b"v" * 1_000, magic=1)
    world.assign(("t", 0, 5))
    world.turn_one().respond_fetch({T0: data[:100]})
    second = world.turn_one()
    assert second.partitions[T0].partition_max_bytes == len(data)
    second.respond_fetch({T0: data})
    assert world.read() == {T0: [b"v" * 1_000]}
    assert world.turn_one().partitions[T0].partition_max_bytes == 100, "and the next by the option again"


def test_a_limit_that_hides_even_the_size_is_doubled() -> None:
    world = World(partition_max_bytes=8)
    world.view.versions[FetchRequest] = 0
    world.assign(("t", 0, 5))
    data = batch(5, b"v" * 1_000, magic=0)
    limits = []
    while not world.posted():
        sent = world.turn_one()
        limits.append(sent.partitions[T0].partition_max_bytes)
        sent.respond_fetch({T0: data[: limits[-1]]})
    assert limits == [8, 16, len(data)]


def test_large_batches_are_fetched_whole() -> None:
    """What is cut off comes again: here it would be a third of all that is sent."""
    one = len(batch(0, b"v" * 700))
    limit = one * 3 // 2
    world = World(partition_max_bytes=limit)
    world.assign(("t", 0, 0))
    log = b"".join(batch(offset, b"v" * 700) for offset in range(6)) + batch(6, b"v")
    limits = []
    for offset in range(6):
        sent = world.turn_one()
        assert sent.offsets == {T0: offset}
        limits.append(sent.partitions[T0].partition_max_bytes)
        sent.respond_fetch({T0: log[one * offset :][: limits[-1]]})
        assert world.read() == {T0: [b"v" * 700]}
    assert limits[0] == limit
    assert all(one <= size < one * 1.1 for size in limits[1:])
    world.turn_one().respond_fetch({T0: log[one * 6 :]})
    assert world.turn_one().partitions[T0].partition_max_bytes == limit, "at the end of the log nobody knows what comes"


def test_a_limit_below_the_batch_size_is_raised() -> None:
    one = batch(0, b"v" * 700)
    limit = len(one) * 3 // 2
    world = World(partition_max_bytes=limit)
    world.assign(("t", 0, 0))
    world.turn_one().respond_fetch({T0: one + batch(1, b"v" * 700)[:100]})
    second = world.turn_one()
    assert second.partitions[T0].partition_max_bytes < limit
    second.respond_fetch({T0: b""})  # the next batch is larger than that, and was not the first of the response
    world.read()
    assert world.turn_one().partitions[T0].partition_max_bytes == limit


def test_a_batch_that_no_frame_can_hold_fails_with_its_size() -> None:
    world = World(partition_max_bytes=20)
    world.assign(("t", 0, 5))
    world.turn_one().respond_fetch({T0: (5).to_bytes(8, "big") + (2**30).to_bytes(4, "big") + bytes(8)})
    assert world.turn() == []
    world.read()
    error = world.failures[1]
    assert isinstance(error, RecordTooLargeError)
    assert str(2**30 + 12) in str(error)


# -- limits


def test_a_partition_with_a_full_buffer_is_not_fetched() -> None:
    world = World(partition_max_bytes=500, max_bytes=2_000, max_buffered_bytes=100_000)
    world.assign(("t", 0, 0), ("t", 1, 0))
    for offset in range(2):
        world.turn_one().respond_fetch({T0: batch(offset, b"v" * 500)})
    assert world.turn() == [], "two limits' worth is waiting, so the whole broker waits for the reader"
    (held,) = world.until_deadline()
    assert list(held.offsets) == [T1], "the reader stands still"
    held.respond_fetch()
    assert list(world.turn_one(1.0).offsets) == [T1]
    assert world.wakes == 0
    assert len(world.read()[T0]) == 2
    assert world.wakes == 1, "once for all that was released"


def test_a_fetch_beside_a_full_partition_waits_no_longer_than_that_has() -> None:
    world = World(partition_max_bytes=500, max_bytes=2_000, max_wait_ms=400)
    world.assign(("t", 0, 0), ("t", 1, 0))
    waits = []
    for offset in range(2):
        world.turn_one().respond_fetch({T0: batch(offset, b"v" * 500)})
    assert world.turn() == []
    for sent in world.until_deadline():
        waits.append(sent.request.max_wait_ms)
        world.now += sent.request.max_wait_ms / 1000
        sent.respond_fetch()
    for _ in range(3):
        sent = world.turn_one()
        waits.append(sent.request.max_wait_ms)
        world.now += sent.request.max_wait_ms / 1000
        sent.respond_fetch()
    assert waits == [100, 200, 400, 400]


@pytest.mark.parametrize(
    ("options", "waits"),
    [
        ({"max_wait_ms": 500}, [50, 50, 100, 200, 400, 500]),
        ({"max_wait_ms": 30}, [30, 30, 30]),
        ({"max_wait_ms": 500, "min_bytes": 2}, [500, 500, 500]),
        ({"max_wait_ms": 0}, [0, 0, 0]),
    ],
    ids=str,
)
def test_after_records_a_fetch_waits_no_longer_than_the_partition_was_idle(
    options: dict[str, Any], waits: list[int]
) -> None:
    world = World(**options)
    world.assign(("t", 0, 0))
    for offset in range(2):
        seen = []
        for _ in waits:
            sent = world.turn_one()
            seen.append(sent.request.max_wait_ms)
            world.now += sent.request.max_wait_ms / 1000
            sent.respond_fetch()
        assert seen == waits
        world.now += 1.0
        world.turn_one().respond_fetch({T0: batch(offset, b"a")})


@pytest.mark.parametrize("how", ["seek", "assign"])
def test_after_a_seek_fetches_wait_briefly(how: str) -> None:
    world = World(max_wait_ms=500)
    world.assign(("t", 0, 0))
    world.turn_one().respond_fetch()
    late = world.turn_one(10.0)
    assert late.request.max_wait_ms == 500
    if how == "seek":
        world.fetcher.seek(world.start("t", 0, 5))
    else:
        world.assign(("t", 0, 5))
    late.respond_fetch()
    assert world.turn_one().request.max_wait_ms == 50


def test_all_partitions_buffer_at_most_max_buffered_bytes() -> None:
    size = len(batch(0, b"v" * 500))
    world = World({"t": [(1, 0), (2, 0), (3, 0)]}, max_buffered_bytes=2 * size)
    world.assign(*(("t", index, 0) for index in range(3)))
    first, second, third = world.turn()
    first.respond_fetch({T0: batch(0, b"v" * 500)})
    second.respond_fetch({T1: batch(0, b"v" * 500)})
    assert world.turn(1.0) == []
    third.respond_fetch()
    assert world.turn(1.0) == []
    assert world.wakes == 0
    world.read()
    assert world.wakes == 1
    assert {sent.node for sent in world.turn()} == {1, 2, 3}


def test_brokers_share_max_buffered_bytes() -> None:
    world = World({"t": [(node, 0) for node in (1, 2, 3)]}, max_buffered_bytes=3_000)
    world.assign(*(("t", index, 0) for index in range(3)))
    assert [sent.request.max_bytes for sent in world.turn()] == [1_000] * 3


def test_with_memory_for_one_fetch_the_brokers_take_turns() -> None:
    world = World({"t": [(node, 0) for node in (1, 2, 3)]}, max_buffered_bytes=3_000, partition_max_bytes=1_000)
    world.assign(*(("t", index, 0) for index in range(3)))
    first, second, third = world.turn()
    first.respond_fetch({T0: batch(0, b"v" * 1_800)})
    second.respond_fetch()
    third.respond_fetch()
    served = []
    for _ in range(6):
        sent = world.turn_one()
        served.append(sent.node)
        sent.respond_fetch()
    assert served == [1, 2, 3, 1, 2, 3]


def test_the_buffers_of_paused_partitions_do_not_starve_the_others() -> None:
    size = len(batch(0, b"v" * 500))
    world = World({"t": [(1, 0), (2, 0)]}, partition_max_bytes=size, max_bytes=size, max_buffered_bytes=size)
    world.assign(("t", 0, 0), ("t", 1, 0))
    world.fetcher.set_paused([T1], True)
    world.turn_one().respond_fetch({T0: batch(0, b"v" * 500)})
    world.fetcher.set_paused([T1], False)
    assert world.turn() == []
    world.fetcher.set_paused([T0], True)
    world.fetch_buffer.pause(1, True)
    assert list(world.turn_one().offsets) == [T1]


def test_paused_partitions_are_not_fetched() -> None:
    world = World()
    world.assign(("t", 0, 0), ("t", 1, 0))
    world.fetcher.set_paused([T0, ("gone", 9)], True)
    sent = world.turn_one()
    assert list(sent.offsets) == [T1]
    world.fetcher.set_paused([T0], False)
    sent.respond_fetch()
    assert sorted(world.turn_one().offsets) == [T0, T1]


def test_a_throttled_client_waits() -> None:
    world = World()
    world.assign(("t", 0, 0))
    world.turn_one().respond_fetch({T0: batch(0, b"a")}, throttle_time_ms=2_000)
    assert world.turn() == []
    assert world.fetcher.deadline() == world.now + 2.0
    assert list(world.until_deadline()[0].offsets) == [T0]


# -- leaders


MOVED = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
]


@pytest.mark.parametrize("code", MOVED)
def test_a_leader_that_moved_is_followed_after_a_back_off(code: ErrorCode) -> None:
    world = World()
    world.assign(("t", 0, 5), ("t", 1, 6))
    world.turn_one().respond_fetch({T1: batch(6, b"a")}, codes={T0: code})
    assert list(world.turn_one().offsets) == [T1], "the other goes on"
    assert len(world.view.refreshes) == 1
    world.view.snapshot = snapshot({"t": [(3, 8), (1, 7), (2, 7)]})
    moved = world.until_deadline()[0]
    assert (moved.node, moved.offsets) == (3, {T0: 5})
    assert moved.partitions[T0].current_leader_epoch == 8
    assert world.read() == {T1: [b"a"]}
    assert not world.failures


def test_back_offs_grow_and_a_success_resets_them() -> None:
    world = World()
    world.assign(("t", 0, 5))
    pauses = []
    for _ in range(6):
        world.turn_one().respond_fetch(codes={T0: ErrorCode.NOT_LEADER_OR_FOLLOWER})
        world.turn()
        deadline = world.fetcher.deadline()
        assert deadline is not None
        pauses.append(deadline - world.now)
        world.now = deadline
    expected = [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert all(0.8 * want <= got <= 1.2 * want for got, want in zip(pauses, expected, strict=True)), pauses
    world.turn_one().respond_fetch({T0: batch(5, b"a")})
    world.turn_one().respond_fetch(codes={T0: ErrorCode.NOT_LEADER_OR_FOLLOWER})
    world.turn()
    deadline = world.fetcher.deadline()
    assert deadline is not None
    assert deadline - world.now <= 0.12


def test_a_partition_without_leader_waits_for_one() -> None:
    world = World({"t": [(-1, 7), (1, 7)]})
    world.assign(("t", 0, 5), ("t", 1, 5))
    assert list(world.turn_one().offsets) == [T1]
    assert "no known leader" in world.view.refreshes[0]
    world.view.snapshot = snapshot({"t": [(2, 8), (1, 7)]})
    assert world.turn_one(60.0).node == 2
    assert not world.posted()


def test_a_broker_that_is_down_delays_only_its_own_partitions() -> None:
    world = World()
    world.view.down = {2}
    world.view.failures = {2: ConnectError("refused")}
    world.assign(("t", 0, 5), ("t", 2, 5))
    assert world.turn_one().node == 1
    assert world.posted() == [], "it may come back"
    world.view.down = set()
    assert world.turn_one().node == 2


def test_a_broker_that_rejects_the_client_is_reported_once() -> None:
    world = World()
    world.view.down = {2}
    world.view.failures = {2: AuthenticationError("no")}
    world.assign(("t", 0, 5), ("t", 2, 5))
    for _ in range(3):
        world.turn(1.0)
    world.read()
    assert [type(error) for error in world.client_errors] == [AuthenticationError]


@pytest.mark.parametrize("error", [DisconnectedError("gone"), RequestTimeoutError("silent")])
def test_a_fetch_without_a_response_is_repeated(error: Exception) -> None:
    world = World()
    world.assign(("t", 0, 5), ("t", 1, 5))
    sent = world.turn_one()
    assert isinstance(error, DisconnectedError | RequestTimeoutError)
    sent.fail(error)
    assert world.turn() == []
    assert world.view.refreshes
    fetched = {**world.until_deadline()[0].offsets}
    world.now += 1.0
    for one in world.turn():
        fetched |= one.offsets
    assert fetched.keys() <= {T0, T1}
    assert world.posted() == []


def test_a_partition_missing_in_the_response_is_fetched_again_later() -> None:
    world = World()
    world.assign(("t", 0, 5), ("t", 1, 5))
    world.turn_one().respond_fetch(leave_out=[T0])
    assert list(world.turn_one().offsets) == [T1]
    assert list(world.turn(0.0)) == []
    assert not world.posted()


def test_an_error_of_the_whole_response_is_retried() -> None:
    world = World()
    world.assign(("t", 0, 5))
    world.turn_one().respond_fetch(error_code=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
    assert world.turn() == []
    assert list(world.until_deadline()[0].offsets) == [T0]
    assert not world.posted()


# -- errors of a partition


FINAL = [
    (ErrorCode.TOPIC_AUTHORIZATION_FAILED, AuthorizationError),
    (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, BrokerError),
    (ErrorCode.INVALID_TOPIC_EXCEPTION, TopicError),
    (30_000, BrokerError),
]


@pytest.mark.parametrize(("code", "cls"), FINAL)
def test_an_error_is_posted_once_and_stops_the_partition(code: int, cls: type[Exception]) -> None:
    world = World()
    world.assign(("t", 0, 5), ("t", 1, 5))
    world.turn_one().respond_fetch({T1: batch(5, b"a")}, codes={T0: code})
    assert list(world.turn_one().offsets) == [T1]
    world.read()
    error = world.failures[1]
    assert type(error) is cls
    assert (error.where["topic"], error.where["partition"], error.where["offset"]) == ("t", 0, 5)
    assert world.turn(60.0) == [], "the other is in flight; this one waits for a seek"
    world.fetcher.seek(world.start("t", 0, 8))
    world.now += 1
    assert world.fetcher.topics() == {"t"}


def test_a_log_that_the_broker_finds_corrupt_twice_is_an_error() -> None:
    world = World()
    world.assign(("t", 0, 5))
    world.turn_one().respond_fetch(codes={T0: ErrorCode.CORRUPT_MESSAGE})
    assert world.turn() == []
    (sent,) = world.until_deadline()
    sent.respond_fetch(codes={T0: ErrorCode.CORRUPT_MESSAGE})
    assert world.turn() == []
    world.read()
    assert isinstance(world.failures[1], CorruptRecordsError)


def test_records_before_an_error_are_read_first() -> None:
    world = World()
    world.assign(("t", 0, 5))
    world.turn_one().respond_fetch({T0: batch(5, b"a", b"b")})
    world.turn_one().respond_fetch(codes={T0: ErrorCode.TOPIC_AUTHORIZATION_FAILED})
    assert world.read() == {T0: [b"a", b"b"]}
    assert isinstance(world.failures[1], AuthorizationError)
    assert world.buffers[1].position == 7


def test_an_unknown_server_error_is_retried_some_times() -> None:
    world = World()
    world.assign(("t", 0, 5))
    world.turn_one().respond_fetch(codes={T0: ErrorCode.UNKNOWN_SERVER_ERROR})
    attempts = 1
    while not (posted := world.posted()):
        for sent in world.turn(2.0):
            sent.respond_fetch(codes={T0: ErrorCode.UNKNOWN_SERVER_ERROR})
            attempts += 1
    assert attempts == 11
    assert isinstance(posted[0], PartitionFailed)


def test_an_invalid_batch_size_is_reported_at_its_offset() -> None:
    world = World()
    world.assign(("t", 0, 5))
    world.turn_one().respond_fetch({T0: batch(5, b"a") + bytes(8) + (3).to_bytes(4, "big") + bytes(20)})
    assert world.turn(60.0) == []
    assert world.read() == {T0: [b"a"]}
    error = world.failures[1]
    assert isinstance(error, CorruptRecordsError)
    assert error.where["offset"] == 6


def test_a_broker_that_returns_only_older_records_causes_no_endless_loop() -> None:
    world = World()
    world.assign(("t", 0, 5))
    world.turn_one().respond_fetch({T0: batch(1, b"a")})
    assert world.turn(60.0) == []
    assert world.read() == {}
    assert isinstance(world.failures[1], CorruptRecordsError)


def test_a_batch_that_the_reader_found_corrupt_fails_the_partition() -> None:
    world = World()
    world.assign(("t", 0, 5))
    sent = world.turn_one()
    world.fetcher.mark_failed("t", 0, 1)
    world.fetcher.mark_failed("t", 0, 1)
    sent.respond_fetch({T0: batch(5, b"a")})
    assert (world.turn(1.0), world.posted(), world.fetcher.topics()) == ([], [], frozenset())
    world.fetcher.seek(world.start("t", 0, 9))
    world.fetcher.mark_failed("t", 0, 1)  # too late: it is assignment_epoch 2 by now
    assert world.turn_one().offsets == {T0: 9}


# -- unknown topics


def test_an_unknown_topic_fails_after_its_time() -> None:
    world = World()
    world.view.snapshot = snapshot({}, errors={"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
    world.assign(("t", 0, 5))
    start = world.now
    assert world.turn() == []
    assert world.posted() == []
    world.until_deadline()
    assert world.now == start + 5.0
    world.read()
    error = world.failures[1]
    assert isinstance(error, TopicError)
    assert "no topic 't'" in str(error)
    assert world.fetcher.topics() == frozenset(), "its metadata is no longer requested"


def test_a_topic_that_appears_in_time_is_read() -> None:
    world = World()
    world.view.snapshot = snapshot({}, errors={"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
    world.assign(("t", 0, 5))
    world.turn()
    world.view.snapshot = snapshot({"t": [(1, 0)]})
    assert world.turn_one(4.9).offsets == {T0: 5}


def test_a_topic_that_metadata_lacks_is_waited_for() -> None:
    world = World({})
    world.assign(("t", 0, 5), ("t", 1, "latest"))
    assert world.turn(3600.0) == []
    assert world.posted() == []


@pytest.mark.parametrize(
    ("code", "cls"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, AuthorizationError),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, TopicError),
    ],
)
def test_a_topic_without_authorization_fails_at_once(code: ErrorCode, cls: type[Exception]) -> None:
    world = World()
    world.view.snapshot = snapshot({}, errors={"t": code})
    world.assign(("t", 0, 5), ("t", 1, "earliest"))
    world.turn()
    world.turn()
    world.read()
    assert [type(error) for error in world.failures.values()] == [cls, cls]


def test_a_partition_beyond_the_last_names_the_number_of_partitions() -> None:
    world = World()
    world.assign(("t", 3, 5))
    world.turn()
    world.until_deadline()
    world.read()
    assert "the topic has 3 partitions" in str(world.failures[1])


def test_a_partition_that_stays_unknown_to_its_leader_fails() -> None:
    world = World()
    world.assign(("t", 0, 5))
    sent = world.turn()
    start = world.now
    while not world.fetch_buffer._items:
        for one in sent:
            one.respond_fetch(codes={T0: ErrorCode.UNKNOWN_TOPIC_ID})
        sent = world.turn(0.5)
    assert 5.0 <= world.now - start <= 7.0
    world.read()
    assert isinstance(world.failures[1], TopicError)


# -- seek and assign during a fetch


def test_a_seek_during_a_fetch_drops_its_response() -> None:
    world = World()
    world.assign(("t", 0, 5), ("t", 1, 5))
    sent = world.turn_one()
    world.fetcher.seek(world.start("t", 0, 100))
    sent.respond_fetch({T0: batch(5, b"old"), T1: batch(5, b"a")})
    assert world.turn_one().offsets == {T0: 100, T1: 6}
    assert world.read() == {T1: [b"a"]}


def test_an_error_of_a_fetch_before_the_seek_is_dropped() -> None:
    world = World()
    world.assign(("t", 0, 5))
    sent = world.turn_one()
    world.fetcher.seek(world.start("t", 0, 100))
    sent.respond_fetch(codes={T0: ErrorCode.OFFSET_OUT_OF_RANGE})
    assert world.turn_one().offsets == {T0: 100}
    assert world.posted() == []


def test_a_response_before_the_loop_knows_of_the_seek_is_dropped_by_the_reader() -> None:
    world = World()
    world.assign(("t", 0, 5))
    sent = world.turn_one()
    start = world.start("t", 0, 100)  # the user's side of the seek is done
    sent.respond_fetch({T0: batch(5, b"old")})
    late = world.turn_one()
    world.fetcher.seek(start)
    late.respond_fetch({T0: batch(6, b"old too")})
    assert world.turn_one().offsets == {T0: 100}
    posted = world.posted()
    assert [item.assignment_epoch for item in posted if isinstance(item, CompletedFetch)] == [1], (
        "the reader of assignment_epoch 2 drops it"
    )


def test_a_seek_to_a_partition_that_is_no_longer_assigned_changes_nothing() -> None:
    world = World()
    world.assign(("t", 0, 5))
    world.fetcher.seek(world.start("t", 1, 7))
    assert world.turn_one().offsets == {T0: 5}


def test_an_assignment_replaces_the_one_before() -> None:
    world = World()
    world.assign(("t", 0, 5), ("t", 2, "earliest"))
    fetch, _ = world.turn()
    world.assign(("t", 1, 9))
    assert world.fetcher.topics() == {"t"}
    fetch.respond_fetch({T0: batch(5, b"old")})
    assert world.turn_one().offsets == {T1: 9}
    assert world.posted() == []
    world.assign()
    assert (world.turn(60.0), world.fetcher.topics()) == ([], frozenset())


# -- start offsets


@pytest.mark.parametrize(("start", "timestamp"), [("earliest", EARLIEST), ("latest", LATEST), (AtTimestamp(77), 77)])
def test_an_offset_is_looked_up_before_the_first_fetch(start: object, timestamp: int) -> None:
    world = World()
    world.assign(("t", 0, start), ("t", 1, 3))  # type: ignore[arg-type]
    fetch, list_offsets = world.turn()
    assert fetch.offsets == {T1: 3}
    assert list_offsets.timestamps == {T0: timestamp}
    list_offsets.respond_offsets({T0: 42})
    fetch.respond_fetch()
    assert world.turn_one().offsets == {T0: 42, T1: 3}
    world.read()
    assert world.buffers[1].position == 42


def test_a_timestamp_after_the_last_record_is_the_end() -> None:
    world = World()
    world.assign(("t", 0, AtTimestamp(77)))
    world.turn_one().respond_offsets({T0: -1})
    second = world.turn_one()
    assert second.timestamps == {T0: LATEST}
    second.respond_offsets({T0: 1_000})
    assert world.turn_one().offsets == {T0: 1_000}


def test_a_seek_during_an_offset_request_drops_its_response() -> None:
    world = World()
    world.assign(("t", 0, "earliest"))
    list_offsets = world.turn_one()
    world.fetcher.seek(world.start("t", 0, "latest"))
    second = world.turn_one()
    list_offsets.respond_offsets({T0: 1})
    second.respond_offsets({T0: 50})
    assert world.turn_one().offsets == {T0: 50}
    world.read()
    assert world.buffers[2].position == 50


# -- out of range


def test_an_offset_out_of_range_is_reported_with_the_range() -> None:
    world = World()
    world.assign(("t", 0, 5))
    world.turn_one().respond_fetch(codes={T0: ErrorCode.OFFSET_OUT_OF_RANGE})
    first = world.turn_one()
    assert first.timestamps == {T0: EARLIEST}
    first.respond_offsets({T0: 20})
    last = world.turn_one()
    assert last.timestamps == {T0: LATEST}
    last.respond_offsets({T0: 100})
    assert world.turn(60.0) == []
    world.read()
    error = world.failures[1]
    assert isinstance(error, BrokerError)
    assert error.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert "the log holds 20 to 99" in str(error)
    assert error.where["offset"] == 5
    world.fetcher.seek(world.start("t", 0, 20))
    assert world.turn_one().offsets == {T0: 20}


def test_a_range_that_cannot_be_found_is_left_out() -> None:
    world = World()
    world.assign(("t", 0, 5))
    world.turn_one().respond_fetch(codes={T0: ErrorCode.OFFSET_OUT_OF_RANGE})
    world.turn_one().respond_offsets({}, codes={T0: ErrorCode.TOPIC_AUTHORIZATION_FAILED})
    world.read()
    assert "does not have this offset" in str(world.failures[1])


def test_a_log_that_has_the_offset_after_all_is_read_on() -> None:
    world = World()
    world.assign(("t", 0, 50))
    world.turn_one().respond_fetch(codes={T0: ErrorCode.OFFSET_OUT_OF_RANGE})
    world.turn_one().respond_offsets({T0: 20})
    world.turn_one().respond_offsets({T0: 100})
    assert world.turn() == []
    assert world.until_deadline()[0].offsets == {T0: 50}
    assert world.posted() == []


@pytest.mark.parametrize(("policy", "timestamp"), [("earliest", EARLIEST), ("latest", LATEST)])
def test_the_policy_resets_the_position_after_what_was_fetched(policy: str, timestamp: int) -> None:
    world = World(on_out_of_range=policy)
    world.assign(("t", 0, 5))
    world.turn_one().respond_fetch({T0: batch(5, b"a")})
    world.turn_one().respond_fetch(codes={T0: ErrorCode.OFFSET_OUT_OF_RANGE})
    list_offsets = world.turn_one()
    assert list_offsets.timestamps == {T0: timestamp}
    list_offsets.respond_offsets({T0: 30})
    world.turn_one().respond_fetch({T0: batch(30, b"b")})
    assert world.read() == {T0: [b"a", b"b"]}
    assert world.buffers[1].position == 31


# -- preferred read replicas


def test_a_preferred_replica_is_read_from_until_it_fails() -> None:
    world = World(rack="r1")
    world.assign(("t", 0, 5))
    world.turn_one().respond_fetch(preferred=3)
    follower = world.turn_one()
    assert (follower.node, follower.offsets) == (3, {T0: 5})
    follower.respond_fetch(codes={T0: ErrorCode.NOT_LEADER_OR_FOLLOWER})
    assert world.turn() == []
    assert world.until_deadline()[0].node == 1


@pytest.mark.parametrize("policy", ["error", "earliest", "latest"])
def test_out_of_range_of_a_follower_is_checked_with_the_leader(policy: str) -> None:
    world = World(rack="r1", on_out_of_range=policy)
    world.assign(("t", 0, 5))
    world.turn_one().respond_fetch(preferred=3)
    world.turn_one().respond_fetch(codes={T0: ErrorCode.OFFSET_OUT_OF_RANGE})
    again = world.turn_one()
    assert isinstance(again.request, FetchRequest), "the leader gets a Fetch, and no ListOffsets"
    assert (again.node, again.offsets) == (1, {T0: 5})
    again.respond_fetch({T0: batch(5, b"here")})
    assert world.read() == {T0: [b"here"]}


@pytest.mark.parametrize("reason", ["age", "gone"])
def test_a_preferred_replica_is_left(reason: str) -> None:
    world = World(rack="r1")
    world.assign(("t", 0, 5))
    world.turn_one().respond_fetch(preferred=3)
    world.turn_one().respond_fetch({T0: batch(5, b"a")}, preferred=-1)
    if reason == "age":
        world.now += 301.0
    else:
        world.view.snapshot = snapshot({"t": [(1, 7)]}, brokers=(1, 2))
    assert world.turn_one().node == 1


# -- transactions


def test_aborted_transactions_are_hidden_with_read_committed_only() -> None:
    data = batch(5, b"aborted", producer_id=9, is_transactional=True) + batch(6, b"kept")
    for isolation, values in (("read_committed", [b"kept"]), ("read_uncommitted", [b"aborted", b"kept"])):
        world = World(isolation=isolation)
        world.assign(("t", 0, 5))
        world.turn_one().respond_fetch({T0: data}, aborted=[(9, 5)])
        assert world.read() == {T0: values}


# -- unreachable clusters


def test_a_client_that_never_reached_a_broker_says_why() -> None:
    world = World({})
    world.view.snapshot = snapshot({}, brokers=())
    world.view.connection_error = ConnectError("refused")
    world.assign(("t", 0, 5))
    world.turn()
    assert world.posted() == []
    world.until_deadline()
    world.read()
    assert world.client_errors == [world.view.connection_error]
    world.turn(60.0)
    world.read()
    assert len(world.client_errors) == 1, "once"
    world.view.connection_error = None
    world.turn()
    world.view.connection_error = ConnectError("refused again")
    world.turn()
    world.turn(2.0)
    world.read()
    assert len(world.client_errors) == 2, "a new outage is reported again"


def test_a_fatal_connection_error_is_reported_at_once_and_fails_no_partition() -> None:
    world = World({})
    world.view.snapshot = snapshot({}, brokers=())
    world.view.connection_error, world.view.has_fatal_error = AuthenticationError("no"), True
    world.assign(("t", 0, "earliest"))
    world.turn()
    world.turn()
    world.read()
    assert ([type(error) for error in world.client_errors], world.failures) == ([AuthenticationError], {})


def test_an_outage_of_a_known_cluster_is_reported_after_the_request_timeout() -> None:
    world = World()
    world.assign(("t", 0, 5))
    world.view.down = {1, 2, 3}
    world.view.connection_error = ConnectError("refused")
    world.turn()
    world.turn(29.0)
    assert world.posted() == []
    world.until_deadline()
    world.read()
    assert len(world.client_errors) == 1


def test_the_end_of_the_loop_reaches_every_caller() -> None:
    world = World()
    world.assign(("t", 0, 5), ("t", 1, "earliest"))
    fetch, list_offsets = world.turn()
    error = ClosedError("over")
    world.fetcher.closed(error)
    fetch.fail(error)
    list_offsets.fail(error)
    assert world.fetch_buffer.end is error
    assert world.posted() == []


def test_every_list_offsets_version_resolves_a_start() -> None:
    world = World()
    world.view.versions[ListOffsetsRequest] = 0
    world.assign(("t", 0, "earliest"))
    world.turn_one().respond_offsets({T0: [42]})
    assert world.turn_one().offsets == {T0: 42}


# -- partitions that come and go


def test_added_partitions_are_fetched_beside_the_others() -> None:
    world = World()
    world.assign(("t", 0, 5))
    sent = world.turn_one()
    world.fetcher.add([world.start("t", 1, 6), world.start("u", 0, 0)])
    assert world.fetcher.topics() == {"t", "u"}
    sent.respond_fetch({T0: batch(5, b"a")})
    assert world.turn_one().offsets == {T1: 6, T0: 6}
    assert world.read() == {T0: [b"a"]}, "the fetch in flight was not disturbed"


def test_adding_a_fetched_partition_begins_its_new_assignment_epoch() -> None:
    world = World()
    world.assign(("t", 0, 5))
    sent = world.turn_one()
    world.fetcher.add([world.start("t", 0, 50)])
    sent.respond_fetch({T0: batch(5, b"old")})
    assert world.turn_one().offsets == {T0: 50}
    assert world.read() == {}


def test_a_removed_partition_is_not_fetched_and_its_response_is_dropped() -> None:
    world = World()
    world.assign(("t", 0, 5), ("t", 1, 6))
    sent = world.turn_one()
    world.fetcher.remove([T0, ("unknown", 3)])
    sent.respond_fetch({T0: batch(5, b"a"), T1: batch(6, b"b")})
    assert world.turn_one().offsets == {T1: 7}
    assert world.read() == {T1: [b"b"]}
    world.fetcher.remove([T1])
    assert world.fetcher.topics() == frozenset()


def test_a_stopped_partition_gets_no_new_fetch_but_its_response_is_posted() -> None:
    world = World()
    world.assign(("t", 0, 5), ("t", 1, 6))
    sent = world.turn_one()
    world.fetcher.stop_fetching([T0, ("unknown", 3)])
    sent.respond_fetch({T0: batch(5, b"a")})
    assert world.turn_one().offsets == {T1: 6}
    assert world.read() == {T0: [b"a"]}


def test_a_seek_does_not_restart_a_stopped_partition_but_adding_it_does() -> None:
    world = World()
    world.assign(("t", 0, 5))
    world.fetcher.stop_fetching([T0])
    world.fetcher.seek(world.start("t", 0, 1))
    world.fetcher.seek(world.start("t", 0, "earliest"))
    assert world.turn() == []
    world.fetcher.add([world.start("t", 0, 7)])
    assert world.turn_one().offsets == {T0: 7}


def test_stopping_and_removing_cancel_the_lookups_of_a_partition() -> None:
    world = World()
    world.assign(("t", 0, "earliest"), ("t", 1, COMMITTED), ("t", 2, COMMITTED))
    sent = world.turn_one()
    world.fetcher.stop_fetching([T0, T1])
    world.fetcher.remove([T2])
    assert world.committed.requests == {}
    sent.respond_offsets({T0: 3})
    assert world.turn() == []
    assert world.posted() == []


# -- committed offsets


def test_a_partition_starts_where_its_group_has_committed() -> None:
    world = World()
    world.assign(("t", 0, COMMITTED), ("t", 1, 6))
    assert world.turn_one().offsets == {T1: 6}, "the others do not wait"
    world.committed.complete(T0, Offset(42))
    (item,) = world.posted()
    assert isinstance(item, PositionResolved)
    assert (item.assignment_epoch, item.offset) == (1, 42)


@pytest.mark.parametrize(
    ("policy", "timestamp"),
    [("earliest", EARLIEST), ("latest", LATEST), (AtTimestamp(77), 77), (Ago(seconds=40), 60_000)],
    ids=str,
)
def test_without_a_committed_offset_the_policy_says_where_to_start(policy: Any, timestamp: int) -> None:
    world = World(on_no_offset=policy)
    world.assign(("t", 0, COMMITTED))
    assert world.turn() == []
    world.committed.complete(T0, None)
    sent = world.turn_one()
    assert sent.timestamps == {T0: timestamp}
    sent.respond_offsets({T0: 13})
    assert world.turn_one().offsets == {T0: 13}


def test_without_a_committed_offset_the_policy_error_ends_the_partition() -> None:
    world = World(on_no_offset="error")
    world.assign(("t", 0, COMMITTED))
    world.turn()
    world.committed.complete(T0, None)
    world.read()
    assert isinstance(world.failures[1], NoOffsetError)
    assert world.turn() == []


def test_an_error_while_reading_committed_offsets_never_leads_to_the_policy() -> None:
    world = World(on_no_offset="earliest")
    world.assign(("t", 0, COMMITTED))
    world.turn()
    error = AuthorizationError("no", code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    world.committed.complete(T0, error)
    assert world.turn() == []
    world.read()
    assert world.failures == {1: error}


def test_a_duration_that_no_record_is_younger_than_starts_at_the_end() -> None:
    world = World()
    world.assign(("t", 0, Ago(seconds=40)))
    world.turn_one().respond_offsets({T0: -1})
    sent = world.turn_one()
    assert sent.timestamps == {T0: LATEST}
    sent.respond_offsets({T0: 100})
    assert world.turn_one().offsets == {T0: 100}


@pytest.mark.parametrize(("start", "nearest"), [(5, 10), (50, 20)])
def test_nearest_goes_to_the_end_of_the_log_that_is_nearer(start: int, nearest: int) -> None:
    world = World(on_out_of_range="nearest")
    world.assign(("t", 0, start))
    world.turn_one().respond_fetch(codes={T0: ErrorCode.OFFSET_OUT_OF_RANGE})
    world.turn_one().respond_offsets({T0: 10})
    world.turn_one().respond_offsets({T0: 20})
    (item,) = world.posted()
    assert isinstance(item, PositionResolved)
    assert world.turn_one().offsets == {T0: nearest}


def test_out_of_range_says_what_the_log_has() -> None:
    world = World()
    world.assign(("t", 0, 50))
    world.turn_one().respond_fetch(codes={T0: ErrorCode.OFFSET_OUT_OF_RANGE})
    world.turn_one().respond_offsets({T0: 10})
    world.turn_one().respond_offsets({T0: 20})
    world.read()
    error = world.failures[1]
    assert isinstance(error, OffsetOutOfRangeError)
    assert (error.where["offset"], error.log_start, error.log_end) == (50, 10, 20)
