"""The fetcher on virtual time: what it asks of whom, and what becomes of the answers."""

from __future__ import annotations

from typing import Any

import pytest

from kwire.cluster.metadata import NO_ID
from kwire.consumer.buffer import CompletedFetch, PartitionFailed
from kwire.consumer.offsets import AtTimestamp
from kwire.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    ClosedError,
    ConnectError,
    CorruptRecordsError,
    DisconnectedError,
    ErrorCode,
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


# -- asking


def test_one_fetch_to_each_leader_names_all_of_its_partitions() -> None:
    world = World(min_bytes=3, max_wait_ms=250, max_bytes=2_000_000, partition_max_bytes=1_000, rack="r1")
    world.assign(("t", 0, 5), ("t", 1, 6), ("t", 2, 7))
    first, second = world.turn()
    assert (first.node, first.offsets) == (1, {T0: 5, T1: 6})
    assert (second.node, second.offsets) == (2, {T2: 7})
    request = first.request
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (250, 3, 2_000_000)
    assert (request.session_id, request.session_epoch, request.rack_id) == (0, -1, "r1")
    assert [one.partition_max_bytes for one in first.asked.values()] == [1_000, 1_000]
    assert [one.current_leader_epoch for one in first.asked.values()] == [7, 7]
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
    sent.answer({T0: data})
    assert world.turn_one().offsets == {T1: 0, T0: 7}
    assert world.read() == {T0: [b"a", b"b"]}


def test_a_topic_without_id_is_asked_for_by_name() -> None:
    world = World()
    world.view.snapshot = snapshot({"t": [(1, 7)]}, ids={"t": NO_ID})
    world.assign(("t", 0, 5))
    sent = world.turn_one()
    assert (sent.version, sent.request.topics[0].topic) == (12, "t")


def test_a_broker_that_speaks_no_fetch_of_ours_is_told_to_the_user_and_left_alone() -> None:
    world = World()
    del world.view.versions[FetchRequest]
    world.assign(("t", 0, 5))
    assert world.turn() == []
    world.read()
    assert isinstance(world.troubles[0], UnsupportedVersionError)
    assert world.turn(1.0) == []
    world.read()
    assert len(world.troubles) == 1


def test_before_v3_the_sum_of_the_limits_is_bounded_and_all_get_their_turn() -> None:
    world = World({"t": [(1, 0)] * 5}, max_bytes=2_000, partition_max_bytes=1_000)
    world.view.versions[FetchRequest] = 2
    world.assign(*(("t", index, 0) for index in range(5)))
    turns = []
    for _ in range(5):
        sent = world.turn_one()
        turns.append([index for _, index in sent.offsets])
        sent.answer()
    assert turns == [[0, 1], [2, 3], [4, 0], [1, 2], [3, 4]]


# -- going on


def test_the_next_fetch_leaves_before_anything_was_read() -> None:
    world = World()
    world.assign(("t", 0, 5))
    world.turn_one().answer({T0: batch(5, b"a", b"b") + batch(7, b"c")})
    assert world.turn_one().offsets == {T0: 8}
    assert world.read() == {T0: [b"a", b"b", b"c"]}


def test_partitions_that_brought_records_go_to_the_back() -> None:
    world = World({"t": [(1, 0)] * 3, "uu": [(1, 0)]})
    world.assign(("t", 0, 0), ("t", 1, 0), ("t", 2, 0), ("uu", 0, 0))
    first = world.turn_one()
    assert [(len(topic.partitions)) for topic in first.request.topics] == [3, 1]
    first.answer({T0: batch(0, b"a"), T1: batch(0, b"b")})
    second = world.turn_one()
    assert list(second.offsets) == [T2, ("uu", 0), T0, T1]
    assert [len(topic.partitions) for topic in second.request.topics] == [1, 1, 2], "only neighbours share an entry"


def test_nothing_is_fetched_beyond_an_end() -> None:
    world = World()
    starts = [world.start("t", index, 5)._replace(end=end) for index, end in [(0, 8), (1, None)]]
    world.fetcher.assign(starts)
    world.turn_one().answer({T0: batch(5, b"a", b"b"), T1: batch(5, b"x")})
    sent = world.turn_one()
    assert sent.offsets == {T0: 7, T1: 6}
    sent.answer({T0: batch(7, b"c", b"d")})
    assert world.turn_one().offsets == {T1: 6}
    assert world.read() == {T0: [b"a", b"b", b"c", b"d"], T1: [b"x"]}, "the last answer is handed out whole"
    assert world.fetcher.topics() == {"t"}, "whose metadata may be wanted again"


def test_an_end_outlives_a_seek_and_counts_where_a_start_must_be_found() -> None:
    world = World()
    world.fetcher.assign([world.start("t", 0, 8)._replace(end=8)])
    assert world.turn() == []
    world.fetcher.seek(world.start("t", 0, 7))
    world.turn_one().answer({T0: batch(7, b"c")})
    assert world.turn() == []
    world.fetcher.seek(world.start("t", 0, "earliest"))
    world.turn_one().answer_offsets({T0: 8})
    assert world.turn() == []


def test_an_empty_answer_is_asked_again_at_once() -> None:
    world = World()
    world.assign(("t", 0, 5))
    world.turn_one().answer()
    assert world.turn_one().offsets == {T0: 5}
    assert world.posted() == []


@pytest.mark.parametrize(
    ("data", "next_offset", "values"),
    [
        (batch(5, b"a", b"b", b"c"), 8, [b"a", b"b", b"c"]),
        (batch(3, b"x", b"y", b"a"), 6, [b"a"]),  # the batch starts before the offset asked for
        (batch(9, b"a"), 10, [b"a"]),  # compacted: the offsets before are gone
        (batch(5, b"a") + batch(20, b"b"), 21, [b"a", b"b"]),
        (batch(5, b"a") + batch(6, b"b" * 50)[:40], 6, [b"a"]),  # cut off at the limit
        (batch(5, b"a", magic=1) + batch(6, b"b", magic=0), 7, [b"a", b"b"]),
        (batch(4, b"x", b"a", magic=1, compression=Compression.GZIP), 6, [b"a"]),
    ],
)
def test_records(data: bytes, next_offset: int, values: list[bytes]) -> None:
    world = World()
    world.assign(("t", 0, 5))
    world.turn_one().answer({T0: data})
    assert world.turn_one().offsets == {T0: next_offset}
    assert world.read() == {T0: values}
    assert world.lanes[1].position == next_offset


def test_a_batch_over_the_limit_of_an_old_broker_is_asked_for_in_its_size() -> None:
    world = World(partition_max_bytes=100)
    world.view.versions[FetchRequest] = 2
    data = batch(5, b"v" * 1_000, magic=1)
    world.assign(("t", 0, 5))
    world.turn_one().answer({T0: data[:100]})
    second = world.turn_one()
    assert second.asked[T0].partition_max_bytes == len(data)
    second.answer({T0: data})
    assert world.read() == {T0: [b"v" * 1_000]}
    assert world.turn_one().asked[T0].partition_max_bytes == 100, "and the next by the option again"


def test_a_limit_that_hides_even_the_size_is_doubled() -> None:
    world = World(partition_max_bytes=8)
    world.view.versions[FetchRequest] = 0
    world.assign(("t", 0, 5))
    data = batch(5, b"v" * 1_000, magic=0)
    asked = []
    while not world.posted():
        sent = world.turn_one()
        asked.append(sent.asked[T0].partition_max_bytes)
        sent.answer({T0: data[: asked[-1]]})
    assert asked == [8, 16, len(data)]


def test_of_a_log_of_large_batches_whole_ones_are_asked_for() -> None:
    """What is cut off comes again: here it would be a third of all that is sent."""
    one = len(batch(0, b"v" * 700))
    limit = one * 3 // 2
    world = World(partition_max_bytes=limit)
    world.assign(("t", 0, 0))
    log = b"".join(batch(offset, b"v" * 700) for offset in range(6)) + batch(6, b"v")
    asked = []
    for offset in range(6):
        sent = world.turn_one()
        assert sent.offsets == {T0: offset}
        asked.append(sent.asked[T0].partition_max_bytes)
        sent.answer({T0: log[one * offset :][: asked[-1]]})
        assert world.read() == {T0: [b"v" * 700]}
    assert asked[0] == limit
    assert all(one <= size < one * 1.1 for size in asked[1:])
    world.turn_one().answer({T0: log[one * 6 :]})
    assert world.turn_one().asked[T0].partition_max_bytes == limit, "at the end of the log nobody knows what comes"


def test_whoever_asked_for_too_little_asks_for_more() -> None:
    one = batch(0, b"v" * 700)
    limit = len(one) * 3 // 2
    world = World(partition_max_bytes=limit)
    world.assign(("t", 0, 0))
    world.turn_one().answer({T0: one + batch(1, b"v" * 700)[:100]})
    second = world.turn_one()
    assert second.asked[T0].partition_max_bytes < limit
    second.answer({T0: b""})  # the next batch is larger than that, and was not the first of the answer
    world.read()
    assert world.turn_one().asked[T0].partition_max_bytes == limit


def test_a_batch_that_no_frame_can_hold_fails_with_its_size() -> None:
    world = World(partition_max_bytes=20)
    world.assign(("t", 0, 5))
    world.turn_one().answer({T0: (5).to_bytes(8, "big") + (2**30).to_bytes(4, "big") + bytes(8)})
    assert world.turn() == []
    world.read()
    error = world.failures[1]
    assert isinstance(error, RecordTooLargeError)
    assert str(2**30 + 12) in str(error)


# -- not too much


def test_a_partition_that_nobody_reads_is_fetched_no_further() -> None:
    world = World(partition_max_bytes=500, max_bytes=2_000, max_buffered_bytes=100_000)
    world.assign(("t", 0, 0), ("t", 1, 0))
    for offset in range(2):
        world.turn_one().answer({T0: batch(offset, b"v" * 500)})
    held = world.turn_one()
    assert list(held.offsets) == [T1], "two limits' worth is waiting"
    held.answer()
    assert list(world.turn_one(1.0).offsets) == [T1]
    assert world.wakes == 0
    assert len(world.read()[T0]) == 2
    assert world.wakes == 1, "once for all that was released"


def test_while_a_reader_is_waited_for_the_others_wait_no_longer_than_it_has() -> None:
    world = World(partition_max_bytes=500, max_bytes=2_000, max_wait_ms=400)
    world.assign(("t", 0, 0), ("t", 1, 0))
    waits = []
    for offset in range(2):
        world.turn_one().answer({T0: batch(offset, b"v" * 500)})
    for _ in range(8):
        sent = world.turn_one()
        waits.append(sent.request.max_wait_ms)
        world.now += sent.request.max_wait_ms / 1000
        sent.answer()
    assert waits == [10, 10, 20, 40, 80, 160, 320, 400]


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
def test_after_records_came_a_fetch_waits_no_longer_than_the_silence_has_lasted(
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
            sent.answer()
        assert seen == waits
        world.now += 1.0
        world.turn_one().answer({T0: batch(offset, b"a")})


@pytest.mark.parametrize("how", ["seek", "assign"])
def test_who_seeks_may_soon_seek_again(how: str) -> None:
    world = World(max_wait_ms=500)
    world.assign(("t", 0, 0))
    world.turn_one().answer()
    late = world.turn_one(10.0)
    assert late.request.max_wait_ms == 500
    if how == "seek":
        world.fetcher.seek(world.start("t", 0, 5))
    else:
        world.assign(("t", 0, 5))
    late.answer()
    assert world.turn_one().request.max_wait_ms == 50


def test_all_together_hold_no_more_than_max_buffered_bytes() -> None:
    size = len(batch(0, b"v" * 500))
    world = World({"t": [(1, 0), (2, 0), (3, 0)]}, max_buffered_bytes=2 * size)
    world.assign(*(("t", index, 0) for index in range(3)))
    first, second, third = world.turn()
    first.answer({T0: batch(0, b"v" * 500)})
    second.answer({T1: batch(0, b"v" * 500)})
    assert world.turn(1.0) == []
    third.answer()
    assert world.turn(1.0) == []
    assert world.wakes == 0
    world.read()
    assert world.wakes == 1
    assert {sent.node for sent in world.turn()} == {1, 2, 3}


def test_brokers_share_what_may_be_buffered() -> None:
    world = World({"t": [(node, 0) for node in (1, 2, 3)]}, max_buffered_bytes=3_000)
    world.assign(*(("t", index, 0) for index in range(3)))
    assert [sent.request.max_bytes for sent in world.turn()] == [1_000] * 3


def test_where_only_one_fetch_has_room_the_brokers_take_turns() -> None:
    world = World({"t": [(node, 0) for node in (1, 2, 3)]}, max_buffered_bytes=3_000, partition_max_bytes=1_000)
    world.assign(*(("t", index, 0) for index in range(3)))
    first, second, third = world.turn()
    first.answer({T0: batch(0, b"v" * 1_800)})
    second.answer()
    third.answer()
    served = []
    for _ in range(6):
        sent = world.turn_one()
        served.append(sent.node)
        sent.answer()
    assert served == [1, 2, 3, 1, 2, 3]


def test_what_paused_partitions_hold_does_not_starve_the_others() -> None:
    size = len(batch(0, b"v" * 500))
    world = World({"t": [(1, 0), (2, 0)]}, partition_max_bytes=size, max_bytes=size, max_buffered_bytes=size)
    world.assign(("t", 0, 0), ("t", 1, 0))
    world.fetcher.set_paused([T1], True)
    world.turn_one().answer({T0: batch(0, b"v" * 500)})
    world.fetcher.set_paused([T1], False)
    assert world.turn() == []
    world.fetcher.set_paused([T0], True)
    world.inbox.pause(1, True)
    assert list(world.turn_one().offsets) == [T1]


def test_paused_partitions_are_not_fetched() -> None:
    world = World()
    world.assign(("t", 0, 0), ("t", 1, 0))
    world.fetcher.set_paused([T0, ("gone", 9)], True)
    sent = world.turn_one()
    assert list(sent.offsets) == [T1]
    world.fetcher.set_paused([T0], False)
    sent.answer()
    assert list(world.turn_one().offsets) == [T0, T1]


def test_a_throttled_client_waits() -> None:
    world = World()
    world.assign(("t", 0, 0))
    world.turn_one().answer({T0: batch(0, b"a")}, throttle_time_ms=2_000)
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
def test_a_leader_that_moved_is_followed_after_a_pause(code: ErrorCode) -> None:
    world = World()
    world.assign(("t", 0, 5), ("t", 1, 6))
    world.turn_one().answer({T1: batch(6, b"a")}, codes={T0: code})
    assert list(world.turn_one().offsets) == [T1], "the other goes on"
    assert len(world.view.refreshes) == 1
    world.view.snapshot = snapshot({"t": [(3, 8), (1, 7), (2, 7)]})
    moved = world.until_deadline()[0]
    assert (moved.node, moved.offsets) == (3, {T0: 5})
    assert moved.asked[T0].current_leader_epoch == 8
    assert world.read() == {T1: [b"a"]}
    assert not world.failures


def test_pauses_grow_and_a_success_forgets_them() -> None:
    world = World()
    world.assign(("t", 0, 5))
    pauses = []
    for _ in range(6):
        world.turn_one().answer(codes={T0: ErrorCode.NOT_LEADER_OR_FOLLOWER})
        world.turn()
        deadline = world.fetcher.deadline()
        assert deadline is not None
        pauses.append(deadline - world.now)
        world.now = deadline
    expected = [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert all(0.8 * want <= got <= 1.2 * want for got, want in zip(pauses, expected, strict=True)), pauses
    world.turn_one().answer({T0: batch(5, b"a")})
    world.turn_one().answer(codes={T0: ErrorCode.NOT_LEADER_OR_FOLLOWER})
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


def test_a_broker_that_is_down_keeps_only_its_own_partitions_waiting() -> None:
    world = World()
    world.view.down = {2}
    world.view.failures = {2: ConnectError("refused")}
    world.assign(("t", 0, 5), ("t", 2, 5))
    assert world.turn_one().node == 1
    assert world.posted() == [], "it may come back"
    world.view.down = set()
    assert world.turn_one().node == 2


def test_a_broker_that_rejects_us_is_told_to_the_user_once() -> None:
    world = World()
    world.view.down = {2}
    world.view.failures = {2: AuthenticationError("no")}
    world.assign(("t", 0, 5), ("t", 2, 5))
    for _ in range(3):
        world.turn(1.0)
    world.read()
    assert [type(error) for error in world.troubles] == [AuthenticationError]


@pytest.mark.parametrize("error", [DisconnectedError("gone"), RequestTimeoutError("silent")])
def test_a_fetch_that_got_no_answer_is_repeated(error: Exception) -> None:
    world = World()
    world.assign(("t", 0, 5), ("t", 1, 5))
    sent = world.turn_one()
    assert isinstance(error, DisconnectedError | RequestTimeoutError)
    sent.fail(error)
    assert world.turn() == []
    assert world.view.refreshes
    asked = {**world.until_deadline()[0].offsets}
    world.now += 1.0
    for one in world.turn():
        asked |= one.offsets
    assert asked.keys() <= {T0, T1}
    assert world.posted() == []


def test_a_partition_that_the_broker_left_out_is_asked_for_again_later() -> None:
    world = World()
    world.assign(("t", 0, 5), ("t", 1, 5))
    world.turn_one().answer(leave_out=[T0])
    assert list(world.turn_one().offsets) == [T1]
    assert list(world.turn(0.0)) == []
    assert not world.posted()


def test_an_answer_for_the_whole_request_with_an_error_is_retried() -> None:
    world = World()
    world.assign(("t", 0, 5))
    world.turn_one().answer(error_code=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
    assert world.turn() == []
    assert list(world.until_deadline()[0].offsets) == [T0]
    assert not world.posted()


# -- errors of a partition


FINAL = [
    (ErrorCode.TOPIC_AUTHORIZATION_FAILED, AuthorizationError),
    (ErrorCode.CORRUPT_MESSAGE, CorruptRecordsError),
    (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, BrokerError),
    (ErrorCode.INVALID_TOPIC_EXCEPTION, TopicError),
    (30_000, BrokerError),
]


@pytest.mark.parametrize(("code", "cls"), FINAL)
def test_an_error_is_posted_once_and_the_partition_stands_still(code: int, cls: type[Exception]) -> None:
    world = World()
    world.assign(("t", 0, 5), ("t", 1, 5))
    world.turn_one().answer({T1: batch(5, b"a")}, codes={T0: code})
    assert list(world.turn_one().offsets) == [T1]
    world.read()
    error = world.failures[1]
    assert type(error) is cls
    assert (error.where["topic"], error.where["partition"], error.where["offset"]) == ("t", 0, 5)
    assert world.turn(60.0) == [], "the other is in flight; this one waits for a seek"
    world.fetcher.seek(world.start("t", 0, 8))
    world.now += 1
    assert world.fetcher.topics() == {"t"}


def test_records_before_an_error_are_read_before_it() -> None:
    world = World()
    world.assign(("t", 0, 5))
    world.turn_one().answer({T0: batch(5, b"a", b"b")})
    world.turn_one().answer(codes={T0: ErrorCode.TOPIC_AUTHORIZATION_FAILED})
    assert world.read() == {T0: [b"a", b"b"]}
    assert isinstance(world.failures[1], AuthorizationError)
    assert world.lanes[1].position == 7


def test_an_unexplained_error_of_the_broker_is_retried_for_a_while() -> None:
    world = World()
    world.assign(("t", 0, 5))
    world.turn_one().answer(codes={T0: ErrorCode.UNKNOWN_SERVER_ERROR})
    attempts = 1
    while not (posted := world.posted()):
        for sent in world.turn(2.0):
            sent.answer(codes={T0: ErrorCode.UNKNOWN_SERVER_ERROR})
            attempts += 1
    assert attempts == 11
    assert isinstance(posted[0], PartitionFailed)


def test_an_impossible_size_is_reported_where_it_is() -> None:
    world = World()
    world.assign(("t", 0, 5))
    world.turn_one().answer({T0: batch(5, b"a") + bytes(8) + (3).to_bytes(4, "big") + bytes(20)})
    assert world.turn(60.0) == []
    assert world.read() == {T0: [b"a"]}
    error = world.failures[1]
    assert isinstance(error, CorruptRecordsError)
    assert error.where["offset"] == 6


def test_a_broker_that_answers_with_older_records_only_does_not_make_a_loop() -> None:
    world = World()
    world.assign(("t", 0, 5))
    world.turn_one().answer({T0: batch(1, b"a")})
    assert world.turn(60.0) == []
    assert world.read() == {}
    assert isinstance(world.failures[1], CorruptRecordsError)


def test_a_batch_that_the_reader_found_corrupt_parks_the_partition() -> None:
    world = World()
    world.assign(("t", 0, 5))
    sent = world.turn_one()
    world.fetcher.park("t", 0, 1)
    world.fetcher.park("t", 0, 1)
    sent.answer({T0: batch(5, b"a")})
    assert (world.turn(1.0), world.posted(), world.fetcher.topics()) == ([], [], frozenset())
    world.fetcher.seek(world.start("t", 0, 9))
    world.fetcher.park("t", 0, 1)  # too late: it is generation 2 by now
    assert world.turn_one().offsets == {T0: 9}


# -- topics that are not there


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
    assert world.fetcher.topics() == frozenset(), "metadata is no longer asked for it"


def test_a_topic_that_appears_in_time_is_read() -> None:
    world = World()
    world.view.snapshot = snapshot({}, errors={"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
    world.assign(("t", 0, 5))
    world.turn()
    world.view.snapshot = snapshot({"t": [(1, 0)]})
    assert world.turn_one(4.9).offsets == {T0: 5}


def test_a_topic_of_which_nothing_is_known_yet_is_waited_for() -> None:
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
def test_a_topic_that_we_may_not_see_fails_at_once(code: ErrorCode, cls: type[Exception]) -> None:
    world = World()
    world.view.snapshot = snapshot({}, errors={"t": code})
    world.assign(("t", 0, 5), ("t", 1, "earliest"))
    world.turn()
    world.turn()
    world.read()
    assert [type(error) for error in world.failures.values()] == [cls, cls]


def test_a_partition_beyond_the_last_says_how_many_there_are() -> None:
    world = World()
    world.assign(("t", 3, 5))
    world.turn()
    world.until_deadline()
    world.read()
    assert "the topic has 3 partitions" in str(world.failures[1])


def test_a_broker_that_keeps_disowning_a_partition_fails_it() -> None:
    world = World()
    world.assign(("t", 0, 5))
    sent = world.turn()
    start = world.now
    while not world.inbox._items:
        for one in sent:
            one.answer(codes={T0: ErrorCode.UNKNOWN_TOPIC_ID})
        sent = world.turn(0.5)
    assert 5.0 <= world.now - start <= 7.0
    world.read()
    assert isinstance(world.failures[1], TopicError)


# -- seeking and assigning while a fetch is in flight


def test_a_seek_during_a_fetch_throws_its_answer_away() -> None:
    world = World()
    world.assign(("t", 0, 5), ("t", 1, 5))
    sent = world.turn_one()
    world.fetcher.seek(world.start("t", 0, 100))
    sent.answer({T0: batch(5, b"old"), T1: batch(5, b"a")})
    assert world.turn_one().offsets == {T0: 100, T1: 6}
    assert world.read() == {T1: [b"a"]}


def test_an_error_of_a_fetch_before_the_seek_is_nobodys() -> None:
    world = World()
    world.assign(("t", 0, 5))
    sent = world.turn_one()
    world.fetcher.seek(world.start("t", 0, 100))
    sent.answer(codes={T0: ErrorCode.OFFSET_OUT_OF_RANGE})
    assert world.turn_one().offsets == {T0: 100}
    assert world.posted() == []


def test_an_answer_that_comes_before_the_loop_hears_of_the_seek_is_thrown_away_by_the_reader() -> None:
    world = World()
    world.assign(("t", 0, 5))
    sent = world.turn_one()
    start = world.start("t", 0, 100)  # the user's side of the seek is done
    sent.answer({T0: batch(5, b"old")})
    late = world.turn_one()
    world.fetcher.seek(start)
    late.answer({T0: batch(6, b"old too")})
    assert world.turn_one().offsets == {T0: 100}
    posted = world.posted()
    assert [item.generation for item in posted if isinstance(item, CompletedFetch)] == [1], (
        "the reader of generation 2 drops it"
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
    fetch.answer({T0: batch(5, b"old")})
    assert world.turn_one().offsets == {T1: 9}
    assert world.posted() == []
    world.assign()
    assert (world.turn(60.0), world.fetcher.topics()) == ([], frozenset())


# -- where to start


@pytest.mark.parametrize(("start", "timestamp"), [("earliest", EARLIEST), ("latest", LATEST), (AtTimestamp(77), 77)])
def test_an_offset_is_looked_up_before_the_first_fetch(start: object, timestamp: int) -> None:
    world = World()
    world.assign(("t", 0, start), ("t", 1, 3))  # type: ignore[arg-type]
    fetch, lookup = world.turn()
    assert fetch.offsets == {T1: 3}
    assert lookup.timestamps == {T0: timestamp}
    lookup.answer_offsets({T0: 42})
    fetch.answer()
    assert world.turn_one().offsets == {T0: 42, T1: 3}
    world.read()
    assert world.lanes[1].position == 42


def test_a_time_after_the_last_record_is_the_end() -> None:
    world = World()
    world.assign(("t", 0, AtTimestamp(77)))
    world.turn_one().answer_offsets({T0: -1})
    second = world.turn_one()
    assert second.timestamps == {T0: LATEST}
    second.answer_offsets({T0: 1_000})
    assert world.turn_one().offsets == {T0: 1_000}


def test_a_seek_during_a_lookup_throws_its_answer_away() -> None:
    world = World()
    world.assign(("t", 0, "earliest"))
    lookup = world.turn_one()
    world.fetcher.seek(world.start("t", 0, "latest"))
    second = world.turn_one()
    lookup.answer_offsets({T0: 1})
    second.answer_offsets({T0: 50})
    assert world.turn_one().offsets == {T0: 50}
    world.read()
    assert world.lanes[2].position == 50


# -- out of range


def test_an_offset_outside_the_log_is_told_with_the_range() -> None:
    world = World()
    world.assign(("t", 0, 5))
    world.turn_one().answer(codes={T0: ErrorCode.OFFSET_OUT_OF_RANGE})
    first = world.turn_one()
    assert first.timestamps == {T0: EARLIEST}
    first.answer_offsets({T0: 20})
    last = world.turn_one()
    assert last.timestamps == {T0: LATEST}
    last.answer_offsets({T0: 100})
    assert world.turn(60.0) == []
    world.read()
    error = world.failures[1]
    assert isinstance(error, BrokerError)
    assert error.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert "the log holds 20 to 99" in str(error)
    assert error.where["offset"] == 5
    world.fetcher.seek(world.start("t", 0, 20))
    assert world.turn_one().offsets == {T0: 20}


def test_a_range_that_cannot_be_found_out_is_left_out() -> None:
    world = World()
    world.assign(("t", 0, 5))
    world.turn_one().answer(codes={T0: ErrorCode.OFFSET_OUT_OF_RANGE})
    world.turn_one().answer_offsets({}, codes={T0: ErrorCode.TOPIC_AUTHORIZATION_FAILED})
    world.read()
    assert "does not have this offset" in str(world.failures[1])


def test_a_log_that_has_the_offset_after_all_is_read_on() -> None:
    world = World()
    world.assign(("t", 0, 50))
    world.turn_one().answer(codes={T0: ErrorCode.OFFSET_OUT_OF_RANGE})
    world.turn_one().answer_offsets({T0: 20})
    world.turn_one().answer_offsets({T0: 100})
    assert world.turn() == []
    assert world.until_deadline()[0].offsets == {T0: 50}
    assert world.posted() == []


@pytest.mark.parametrize(("policy", "timestamp"), [("earliest", EARLIEST), ("latest", LATEST)])
def test_the_policy_moves_the_position_behind_what_was_fetched(policy: str, timestamp: int) -> None:
    world = World(on_out_of_range=policy)
    world.assign(("t", 0, 5))
    world.turn_one().answer({T0: batch(5, b"a")})
    world.turn_one().answer(codes={T0: ErrorCode.OFFSET_OUT_OF_RANGE})
    lookup = world.turn_one()
    assert lookup.timestamps == {T0: timestamp}
    lookup.answer_offsets({T0: 30})
    world.turn_one().answer({T0: batch(30, b"b")})
    assert world.read() == {T0: [b"a", b"b"]}
    assert world.lanes[1].position == 31


# -- reading from a follower


def test_a_preferred_replica_is_read_from_until_it_fails() -> None:
    world = World(rack="r1")
    world.assign(("t", 0, 5))
    world.turn_one().answer(preferred=3)
    follower = world.turn_one()
    assert (follower.node, follower.offsets) == (3, {T0: 5})
    follower.answer(codes={T0: ErrorCode.NOT_LEADER_OR_FOLLOWER})
    assert world.turn() == []
    assert world.until_deadline()[0].node == 1


@pytest.mark.parametrize("policy", ["error", "earliest", "latest"])
def test_a_follower_that_lags_behind_is_not_believed_about_the_range(policy: str) -> None:
    world = World(rack="r1", on_out_of_range=policy)
    world.assign(("t", 0, 5))
    world.turn_one().answer(preferred=3)
    world.turn_one().answer(codes={T0: ErrorCode.OFFSET_OUT_OF_RANGE})
    again = world.turn_one()
    assert isinstance(again.request, FetchRequest), "the leader is asked for the records, not for its range"
    assert (again.node, again.offsets) == (1, {T0: 5})
    again.answer({T0: batch(5, b"here")})
    assert world.read() == {T0: [b"here"]}


@pytest.mark.parametrize("reason", ["age", "gone"])
def test_a_preferred_replica_is_given_up(reason: str) -> None:
    world = World(rack="r1")
    world.assign(("t", 0, 5))
    world.turn_one().answer(preferred=3)
    world.turn_one().answer({T0: batch(5, b"a")}, preferred=-1)
    if reason == "age":
        world.now += 301.0
    else:
        world.view.snapshot = snapshot({"t": [(1, 7)]}, brokers=(1, 2))
    assert world.turn_one().node == 1


# -- transactions


def test_aborted_transactions_are_hidden_only_from_those_who_asked() -> None:
    data = batch(5, b"aborted", producer_id=9, is_transactional=True) + batch(6, b"kept")
    for isolation, values in (("read_committed", [b"kept"]), ("read_uncommitted", [b"aborted", b"kept"])):
        world = World(isolation=isolation)
        world.assign(("t", 0, 5))
        world.turn_one().answer({T0: data}, aborted=[(9, 5)])
        assert world.read() == {T0: values}


# -- when nothing can be reached


def test_a_client_that_never_reached_a_broker_says_why() -> None:
    world = World({})
    world.view.snapshot = snapshot({}, brokers=())
    world.view.connection_error = ConnectError("refused")
    world.assign(("t", 0, 5))
    world.turn()
    assert world.posted() == []
    world.until_deadline()
    world.read()
    assert world.troubles == [world.view.connection_error]
    world.turn(60.0)
    world.read()
    assert len(world.troubles) == 1, "once"
    world.view.connection_error = None
    world.turn()
    world.view.connection_error = ConnectError("refused again")
    world.turn()
    world.turn(2.0)
    world.read()
    assert len(world.troubles) == 2, "a new outage is told anew"


def test_hopeless_trouble_is_told_at_once_and_fails_no_partition() -> None:
    world = World({})
    world.view.snapshot = snapshot({}, brokers=())
    world.view.connection_error, world.view.has_fatal_error = AuthenticationError("no"), True
    world.assign(("t", 0, "earliest"))
    world.turn()
    world.turn()
    world.read()
    assert ([type(error) for error in world.troubles], world.failures) == ([AuthenticationError], {})


def test_an_outage_of_a_cluster_that_was_there_gets_the_request_timeout() -> None:
    world = World()
    world.assign(("t", 0, 5))
    world.view.down = {1, 2, 3}
    world.view.connection_error = ConnectError("refused")
    world.turn()
    world.turn(29.0)
    assert world.posted() == []
    world.until_deadline()
    world.read()
    assert len(world.troubles) == 1


def test_the_end_of_the_loop_is_told_to_everybody() -> None:
    world = World()
    world.assign(("t", 0, 5), ("t", 1, "earliest"))
    fetch, lookup = world.turn()
    error = ClosedError("over")
    world.fetcher.closed(error)
    fetch.fail(error)
    lookup.fail(error)
    assert world.inbox.end is error
    assert world.posted() == []


def test_list_offsets_is_answered_in_any_version() -> None:
    world = World()
    world.view.versions[ListOffsetsRequest] = 0
    world.assign(("t", 0, "earliest"))
    world.turn_one().answer_offsets({T0: [42]})
    assert world.turn_one().offsets == {T0: 42}
