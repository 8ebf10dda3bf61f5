"""The partition log: offsets, reading, time, epochs, transactions, retention, truncation."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kwire.broker.log import PartitionLog, Storage, TimestampAndOffset
from kwire.broker.options import LONG_MAX, Options, TopicSettings
from kwire.errors import BrokerError, ErrorCode
from kwire.records import Batch, Compression, decode_batches, encode_batch

NOW_MS = 1_000_000


def make_log(**configs: str) -> PartitionLog:
    options = Options()
    settings = TopicSettings.parse(options, {name.replace("_", "."): value for name, value in configs.items()})
    return PartitionLog(options, settings, Storage(1 << 20))


def batch_of(times: Sequence[int], *, value: bytes = b"v", **fields: object) -> Batch:
    data = encode_batch([(time, None, value, ()) for time in times], **fields)  # type: ignore[arg-type]
    return next(decode_batches(data))


def write(log: PartitionLog, *batches: Batch, epoch: int = 0, now_ms: int = NOW_MS) -> None:
    for batch in batches:
        log.append([batch], leader_epoch=epoch, now_ms=now_ms)
    log.advance_high_watermark(log.end_offset)


def offsets(
    log: PartitionLog, offset: int, *, max_bytes: int = 1 << 20, upper_bound: int = LONG_MAX, at_least_one: bool = True
) -> list[int]:
    found = log.read(offset, max_bytes=max_bytes, upper_bound=upper_bound, at_least_one=at_least_one)
    return [stored.base_offset for stored in found]


def test_offsets_are_assigned_in_order_and_written_into_the_bytes() -> None:
    log = make_log()
    write(log, batch_of([1, 2, 3]), batch_of([4]), batch_of([5, 6]), epoch=3)
    assert (log.start_offset, log.end_offset, log.high_watermark, log.last_stable_offset) == (0, 6, 6, 6)
    data = b"".join(stored.data for stored in log.read(0, max_bytes=1 << 20, upper_bound=6))
    batches = list(decode_batches(data))
    assert [(b.base_offset, b.last_offset) for b in batches] == [(0, 2), (3, 3), (4, 5)]
    assert {b.partition_leader_epoch for b in batches} == {3}
    assert [record.offset for batch in batches for record in batch.records()] == list(range(6))


@pytest.mark.parametrize(
    ("offset", "max_batches", "upper_bound", "at_least_one", "expected"),
    [
        (0, 9, 6, True, [0, 3, 4]),
        (2, 9, 6, True, [0, 3, 4]),  # the batch that contains the offset, complete
        (3, 9, 6, True, [3, 4]),
        (6, 9, 6, True, []),
        (0, 9, 5, True, [0, 3]),  # no batch that passes `upper_bound`
        (0, 0, 6, True, [0]),  # KIP-74: the first batch whatever the limit
        (0, 0, 6, False, []),
        (0, 1, 6, True, [0]),
        (0, 2, 6, True, [0, 3]),
    ],
)
def test_read_respects_offset_size_and_upper_bound(
    offset: int, max_batches: int, upper_bound: int, at_least_one: bool, expected: list[int]
) -> None:
    log = make_log()
    write(log, batch_of([1, 2, 3]), batch_of([4]), batch_of([5, 6]))
    sizes = [len(stored.data) for stored in log]
    limit = sum(sizes[:max_batches])
    assert offsets(log, offset, max_bytes=limit, upper_bound=upper_bound, at_least_one=at_least_one) == expected


@pytest.mark.parametrize("offset", [-1, 1, 7, 100])
def test_reading_outside_the_log_is_out_of_range(offset: int) -> None:
    log = make_log()
    write(log, batch_of([1, 2, 3]), batch_of([4, 5, 6]))
    log.delete_before(3)
    with pytest.raises(BrokerError) as raised:
        log.read(offset, max_bytes=1, upper_bound=6)
    assert raised.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_bytes_between_counts_what_read_returns() -> None:
    log = make_log()
    write(log, batch_of([1, 2, 3]), batch_of([4]), batch_of([5, 6]))
    for offset in range(7):
        given = sum(len(stored.data) for stored in log.read(offset, max_bytes=1 << 20, upper_bound=6))
        assert log.bytes_between(offset, 6) == given


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        (0, (10, 0, 0)),
        (10, (10, 0, 0)),
        (11, (30, 1, 0)),
        (25, (30, 1, 0)),
        (31, (40, 4, 1)),
        (41, (-1, -1, -1)),
    ],
)
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
def test_find_time_works_with_timestamps_out_of_order(
    time: int, expected: tuple[int, int, int], compression: Compression
) -> None:
    log = make_log()
    write(log, batch_of([10, 30, 20], compression=compression), batch_of([5], compression=compression))
    write(log, batch_of([40, 35], compression=compression), epoch=1)
    assert log.find_time(time, upper_bound=6) == TimestampAndOffset(*expected)


def test_find_time_searches_between_start_and_upper_bound() -> None:
    log = make_log()
    write(log, batch_of([10, 20, 30]), batch_of([40]))
    assert log.find_time(30, upper_bound=2) == TimestampAndOffset(-1, -1, -1)
    log.delete_before(2)
    assert log.find_time(0, upper_bound=4) == TimestampAndOffset(30, 2, 0)


def test_find_max_time_returns_the_first_of_the_highest() -> None:
    log = make_log()
    assert log.find_max_time() == TimestampAndOffset(-1, -1, -1)
    write(log, batch_of([10, 50, 50]), batch_of([20, 50]))
    assert log.find_max_time() == TimestampAndOffset(50, 1, 0)


def test_log_append_time_is_in_the_records_and_in_the_result() -> None:
    log = make_log(message_timestamp_type="LogAppendTime")
    appended = log.append([batch_of([10, 20])], leader_epoch=0, now_ms=777)
    assert appended.log_append_time_ms == 777
    (stored,) = log
    (batch,) = decode_batches(stored.data)  # the CRC is valid
    assert [record.timestamp_ms for record in batch.records()] == [777, 777]
    assert batch.timestamp_type == 1
    assert make_log().append([batch_of([10])], leader_epoch=0, now_ms=777).log_append_time_ms == -1


def test_a_duplicate_returns_the_offsets_of_its_first_copy() -> None:
    log = make_log()
    batch = batch_of([1, 2, 3], producer_id=9, producer_epoch=0, base_sequence=0)
    first = log.append([batch], leader_epoch=0, now_ms=NOW_MS)
    again = log.append([batch], leader_epoch=0, now_ms=NOW_MS)
    assert (first.base_offset, first.is_duplicate, again.base_offset, again.is_duplicate) == (0, False, 0, True)
    assert log.end_offset == 3


def test_a_full_storage_rejects_records_until_others_are_deleted() -> None:
    storage = Storage(500)
    options = Options()
    log = PartitionLog(options, TopicSettings.parse(options, {}), storage)
    write(log, batch_of([1], value=b"x" * 200))
    with pytest.raises(BrokerError) as raised:
        write(log, batch_of([1], value=b"x" * 200))
    assert raised.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    log.delete_before(1)
    assert storage.used_bytes == 0
    write(log, batch_of([1], value=b"x" * 200))
    log.clear()
    assert (storage.used_bytes, log.size_bytes) == (0, 0)


class TestTransactions:
    def written(self) -> PartitionLog:
        """Producer 1: offsets 0-1 and 3, aborted at 5. Producer 2: offsets 2 and 4, committed at 6; then 7 open."""
        log = make_log()
        for producer, times, sequence in [(1, [1, 1], 0), (2, [1], 0), (1, [1], 2), (2, [1], 1)]:
            self.write(log, producer, times, sequence)
        self.end(log, "abort", 1)
        self.end(log, "commit", 2)
        self.write(log, 2, [1], 2)
        log.advance_high_watermark(log.end_offset)
        return log

    def write(self, log: PartitionLog, producer: int, times: list[int], sequence: int) -> None:
        batch = batch_of(times, producer_id=producer, producer_epoch=0, base_sequence=sequence, is_transactional=True)
        log.append([batch], leader_epoch=0, now_ms=NOW_MS)

    def end(self, log: PartitionLog, kind: str, producer: int, epoch: int = 0) -> None:
        log.append_marker(
            kind, producer_id=producer, producer_epoch=epoch, coordinator_epoch=0, leader_epoch=0, now_ms=NOW_MS
        )

    def test_the_last_stable_offset_is_before_every_open_transaction(self) -> None:
        log = self.written()
        assert (log.end_offset, log.last_stable_offset) == (8, 7)
        self.end(log, "commit", 2)
        log.advance_high_watermark(log.end_offset)
        assert log.last_stable_offset == 9

    @pytest.mark.parametrize(
        ("first", "last", "listed"), [(0, 7, [(1, 0)]), (4, 5, [(1, 0)]), (6, 7, []), (0, 0, [(1, 0)])]
    )
    def test_aborted_transactions_overlap_the_range(self, first: int, last: int, listed: list[tuple[int, int]]) -> None:
        found = self.written().aborted_between(first, last)
        assert [(aborted.producer_id, aborted.first_offset) for aborted in found] == listed

    def test_a_marker_of_an_old_epoch_is_rejected(self) -> None:
        log = self.written()
        batch = batch_of([1], producer_id=2, producer_epoch=5, base_sequence=0, is_transactional=True)
        log.append([batch], leader_epoch=0, now_ms=NOW_MS)
        with pytest.raises(BrokerError) as raised:
            self.end(log, "abort", 2, epoch=4)
        assert raised.value.code == ErrorCode.INVALID_PRODUCER_EPOCH

    def test_markers_are_control_batches(self) -> None:
        kinds = [s.batch().control().kind for s in self.written() if s.is_control]
        assert kinds == ["abort", "commit"]

    def test_truncation_rebuilds_producers_and_transactions(self) -> None:
        log = self.written()
        log.truncate(5)
        assert (log.end_offset, log.high_watermark, log.last_stable_offset) == (5, 5, 0)
        assert log.aborted == []
        known = log.producers.get(2)
        assert known is not None
        assert known.last_sequence == 1


class TestEpochs:
    def written(self) -> PartitionLog:
        log = make_log()
        for epoch, count in [(0, 3), (2, 2), (5, 1)]:
            log.begin_epoch(epoch)
            write(log, *[batch_of([1]) for _ in range(count)], epoch=epoch)
        return log

    @pytest.mark.parametrize(
        ("epoch", "expected"),
        [(0, (0, 3)), (1, (0, 3)), (2, (2, 5)), (3, (2, 5)), (5, (5, 6)), (9, (-1, -1)), (-1, (-1, -1))],
    )
    def test_end_of_epoch_follows_kip_101(self, epoch: int, expected: tuple[int, int]) -> None:
        assert self.written().end_of_epoch(epoch) == expected

    def test_epoch_at_returns_the_writing_epoch(self) -> None:
        assert [self.written().epoch_at(offset) for offset in range(7)] == [0, 0, 0, 2, 2, 5, 5]
        assert make_log().epoch_at(0) == -1

    def test_an_epoch_without_records_is_dropped(self) -> None:
        log = self.written()
        log.begin_epoch(6)
        log.begin_epoch(7)
        assert log.epochs == [(0, 0), (2, 3), (5, 5), (7, 6)]

    def test_truncation_drops_later_epochs(self) -> None:
        log = self.written()
        log.truncate(4)
        assert log.epochs == [(0, 0), (2, 3)]
        assert log.end_of_epoch(2) == (2, 4)

    def test_deletion_moves_the_start_of_the_first_remaining_epoch(self) -> None:
        log = self.written()
        log.delete_before(4)
        assert log.epochs == [(2, 4), (5, 5)]
        assert log.end_of_epoch(2) == (2, 5)


class TestRetention:
    @pytest.mark.parametrize(
        ("configs", "now_ms", "start"),
        [
            ({}, 50, 0),
            ({"retention_ms": "100"}, 250, 1),  # batch times are 100, 200, 300
            ({"retention_ms": "100"}, 351, 2),
            ({"retention_ms": "100"}, 1000, 3),
            ({"retention_ms": "-1"}, 10**15, 0),
            ({"retention_bytes": "0"}, 0, 3),
            ({"retention_bytes": "1"}, 0, 2),  # as with Kafka's segments, what remains reaches the size
            ({"retention_bytes": "0", "cleanup_policy": "compact"}, 0, 0),
        ],
    )
    def test_retention_applies_by_time_and_by_size(self, configs: dict[str, str], now_ms: int, start: int) -> None:
        log = make_log(**configs)
        write(log, batch_of([100]), batch_of([200]), batch_of([300]))
        log.retain(now_ms)
        assert log.start_offset == start
        assert log.end_offset == 3
        assert log.size_bytes == sum(len(stored.data) for stored in log)

    def test_retention_stops_at_the_high_watermark(self) -> None:
        log = make_log(retention_bytes="0")
        write(log, batch_of([1]))
        log.append([batch_of([2])], leader_epoch=0, now_ms=0)
        log.retain(0)
        assert log.start_offset == 1

    def test_delete_before_moves_the_start(self) -> None:
        log = make_log()
        write(log, batch_of([1, 2, 3]), batch_of([4]))
        assert log.delete_before(2) == 2
        assert offsets(log, 2) == [0, 3]  # a batch stays as long as one of its records
        assert log.delete_before(1) == 2
        assert log.delete_before(3) == 3
        assert offsets(log, 3) == [3]
        with pytest.raises(BrokerError):
            log.delete_before(5)
