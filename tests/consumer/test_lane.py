"""The reader's side of one partition: positions, order of records and errors, what is released when."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kwire.consumer import buffer as lane_module
from kwire.consumer.buffer import AbortedTransaction, CompletedFetch, PartitionBuffer, PartitionFailed, PositionResolved
from kwire.consumer.record import ConsumerRecord
from kwire.errors import AuthorizationError, CorruptRecordsError, ErrorCode
from kwire.records import Compression, encode_batch, encode_control_batch
from kwire.records.reader import RecordReader
from kwire.wire.accel import IMPLEMENTATION
from tests.consumer.world import batch, take


class Reading:
    """A lane, and what it released."""

    def __init__(self, position: int | None = 5, *, check_crc: bool = True) -> None:
        self.released: list[CompletedFetch] = []
        self.retired: list[RecordReader] = []
        self.lane = PartitionBuffer(
            "t", 3, 1, position, check_crc=check_crc, release=self.released.append, retire=self.retired.append
        )

    def put(self, offset: int, *parts: bytes, aborted: tuple[tuple[int, int], ...] = ()) -> CompletedFetch:
        chunk = CompletedFetch(
            1, offset, memoryview(b"".join(parts)), tuple(AbortedTransaction(*one) for one in aborted)
        )
        self.lane.put(chunk)
        return chunk

    def take(self, count: int = 100) -> list[bytes | None]:
        return [record.value for record in take(self.lane, count)] if self.lane.has_next() else []


def test_a_record_counts_as_read_when_it_is_handed_out() -> None:
    reading = Reading()
    chunk = reading.put(5, batch(5, b"a", b"b", b"c"), batch(8, b"d"))
    assert reading.lane.position == 5
    assert reading.lane.has_next()
    assert reading.lane.position == 5
    steps = []
    while values := reading.take(1):
        steps.append((values, reading.lane.position))
    assert steps == [([b"a"], 6), ([b"b"], 7), ([b"c"], 8), ([b"d"], 9)]
    assert reading.released == [chunk]


def test_one_by_one() -> None:
    reading = Reading()
    reading.put(5, batch(5, b"a", b"b"))
    assert reading.lane.has_next()
    cursor = reading.lane.cursor
    assert cursor is not None
    assert [(record.value, reading.lane.position) for record in cursor] == [(b"a", 6), (b"b", 7)]
    reading.put(7, batch(7, b"c", b"d"))
    assert reading.lane.has_next()
    assert reading.retired == [cursor]
    cursor = reading.lane.cursor
    assert cursor is not None
    assert next(cursor).value == b"c"
    reading.lane.restart(2, 50)
    assert list(cursor) == [], "who has the cursor in hand gets nothing more of it"
    assert reading.retired[1:] == [cursor]


def test_all_of_a_record_is_there() -> None:
    rows = [(17, b"k", None, (("h", b"1"), ("h", None))), (18, None, b"", ())]
    reading = Reading()
    reading.put(5, encode_batch(rows, base_offset=5, timestamp_type=1))
    assert reading.lane.has_next()
    first, second = take(reading.lane, 2)
    assert first == ConsumerRecord("t", 3, 5, first.timestamp_ms, 1, b"k", None, (("h", b"1"), ("h", None)))
    assert (second.key, second.value, second.headers, second.offset) == (None, b"", (), 6)


def test_a_gap_at_the_end_of_a_batch_is_passed_with_its_last_record() -> None:
    compacted = bytearray(batch(5, b"a", b"b"))
    compacted[23:27] = (9).to_bytes(4, "big")  # the last offset delta stays when the last records are compacted away
    reading = Reading(check_crc=False)
    reading.put(5, bytes(compacted))
    assert reading.take(1) == [b"a"]
    assert reading.lane.position == 6
    assert reading.take(1) == [b"b"]
    assert reading.lane.position == 15


def test_batches_without_records_for_us_move_the_position() -> None:
    empty = bytearray(batch(5, b"a"))
    control = encode_control_batch(
        "commit", base_offset=6, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0
    )
    aborted = batch(7, b"x", producer_id=9, is_transactional=True)
    reading = Reading()
    reading.put(5, bytes(empty), control, aborted, aborted=((9, 7),))
    assert reading.take() == [b"a"]
    assert reading.lane.position == 6
    assert not reading.lane.has_next()
    assert (reading.lane.position, len(reading.released)) == (8, 1)


@pytest.mark.parametrize("has_aborted", [True, False])
def test_each_answer_has_an_aborted_list_of_its_own(has_aborted: bool) -> None:
    """A transaction whose abort marker was not fetched hides nothing of the next answer, which does not list it.

    Both ways of reading: an answer that lists no aborted transaction is read without looking at producers.
    """
    reading = Reading()
    reading.put(5, batch(5, b"aborted", producer_id=9, is_transactional=True), aborted=((9, 5),))
    marker = encode_control_batch(
        "commit", base_offset=7, producer_id=8, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0
    )
    committed = batch(8, b"committed", producer_id=9, is_transactional=True)
    reading.put(6, batch(6, b"plain"), marker, committed, aborted=((7, 6),) if has_aborted else ())
    seen = []
    while reading.lane.has_next():
        seen += reading.take()
    assert seen == [b"plain", b"committed"]


def test_records_before_the_position_are_cut() -> None:
    reading = Reading(7)
    reading.put(7, batch(3, b"a", b"b"), batch(5, b"c", b"d", b"e"))
    assert reading.take() == [b"e"]
    assert reading.lane.position == 8


def test_a_corrupt_batch_stops_before_it_and_a_restart_gets_past() -> None:
    broken = bytearray(batch(6, b"b"))
    broken[-1] ^= 1
    reading = Reading()
    chunk = reading.put(5, batch(5, b"a"), bytes(broken), batch(7, b"c"))
    later = reading.put(8, batch(8, b"d"))
    assert reading.take() == [b"a"]
    assert not reading.lane.has_next()
    error = reading.lane.error
    assert isinstance(error, CorruptRecordsError)
    assert (error.where["topic"], error.where["partition"], error.where["offset"]) == ("t", 3, 6)
    assert "seek" in str(error)
    assert reading.lane.position == 6
    assert reading.released == [chunk, later]
    late = reading.put(9, batch(9, b"e"))
    assert not reading.lane.has_next()
    assert reading.released == [chunk, later, late], "nobody will read it"
    reading.lane.restart(2, 7)
    reading.put(7, batch(7, b"c"))
    assert reading.take() == [b"c"]


def test_without_checks_a_broken_checksum_goes_unnoticed() -> None:
    broken = bytearray(batch(5, b"b"))
    broken[17] ^= 1
    reading = Reading(check_crc=False)
    reading.put(5, bytes(broken))
    assert reading.take() == [b"b"]


def test_an_error_waits_behind_the_records_before_it() -> None:
    reading = Reading()
    reading.put(5, batch(5, b"a"))
    failure = AuthorizationError("no", code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    reading.lane.put(PartitionFailed(1, failure))
    assert (reading.lane.error, reading.take()) == (None, [b"a"])
    assert not reading.lane.has_next()
    assert reading.lane.error is failure


@pytest.mark.parametrize("position", [None, 5])
def test_a_move_takes_its_place_in_the_order(position: int | None) -> None:
    reading = Reading(position)
    if position is not None:
        reading.put(5, batch(5, b"a"))
    reading.lane.put(PositionResolved(1, 30))
    reading.put(30, batch(30, b"b"))
    assert reading.lane.position == (30 if position is None else 5)
    values = reading.take() + reading.take()
    assert values == ([b"b"] if position is None else [b"a", b"b"])
    assert reading.lane.position == 31


def test_an_error_before_the_position_was_found_is_there_at_once() -> None:
    reading = Reading(None)
    failure = AuthorizationError("no", code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    reading.lane.put(PartitionFailed(1, failure))
    assert (reading.lane.error, reading.lane.position) == (failure, None)


def test_a_restart_throws_away_all_that_was_fetched() -> None:
    reading = Reading()
    chunks = [reading.put(5, batch(5, b"a", b"b")), reading.put(7, batch(7, b"c"))]
    assert reading.take(1) == [b"a"]
    reading.lane.restart(2, 50)
    assert (reading.released, reading.take(), reading.lane.position) == (chunks, [], 50)


def test_a_fetch_that_does_not_follow_on_is_a_defect() -> None:
    reading = Reading()
    reading.put(6, batch(6, b"a"))
    with pytest.raises(AssertionError):
        reading.take()


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_formats_have_cursors_too(magic: int) -> None:
    rows = [(17, b"k", b"a", ()), (18, None, b"b", ())]
    reading = Reading()
    reading.put(5, encode_batch(rows, base_offset=5, magic=magic))
    assert reading.take() + reading.take() == [b"a", b"b"]
    assert reading.lane.position == 7


def chunk_of(chance: random.Random) -> bytes:
    """Batches of all kinds, of which most can be taken together; sometimes one is damaged, or the last is cut off."""
    offset, parts = chance.randrange(5), []
    for _ in range(chance.randrange(1, 9)):
        size = chance.choice([1, 3, 40])
        rows = [(17 + n, chance.choice([None, b"k"]), b"%d" % n, (("h", b""),) * (n % 2)) for n in range(size)]
        match chance.randrange(12):
            case 0:
                part = encode_batch(rows, base_offset=offset, compression=Compression.LZ4)
            case 1:
                size, marker = 1, {"producer_id": 1, "producer_epoch": 0, "coordinator_epoch": 0, "timestamp_ms": 0}
                part = encode_control_batch(chance.choice(["commit", "abort"]), base_offset=offset, **marker)
            case 2 | 3:
                part = encode_batch(rows, base_offset=offset, timestamp_type=1)
            case 4:
                rows = [(when, key, value, ()) for when, key, value, _ in rows]
                part = encode_batch(rows, base_offset=offset, magic=1)
            case 5:
                part = encode_batch(rows, base_offset=offset, producer_id=1, is_transactional=True)
            case 6:  # what compaction leaves of one that had a transaction's last records
                part = encode_batch([], base_offset=offset, producer_id=1)
            case _:
                part = encode_batch(rows, base_offset=offset)
        parts.append(part)
        offset += size + chance.choice([0, 0, 0, 7])
    data = bytearray(b"".join(parts))
    if chance.random() < 0.3:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(data[: len(data) - chance.choice([0, 0, 0, 5])])


@pytest.mark.parametrize("seed", range(200))
def test_batches_taken_together_are_read_as_each_by_itself(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    data, check_crc = chunk_of(chance), chance.random() < 0.8
    aborted = chance.choice([(), (), ((1, 3),)])
    steps = [chance.choice([1, 2, 30, 1_000]) for _ in range(500)]

    def walked() -> list[Any]:
        reading = Reading(chance_position, check_crc=check_crc)
        reading.put(chance_position, data, aborted=aborted)
        found: list[Any] = []
        for step in steps:
            if not reading.lane.has_next():
                break
            cursor = reading.lane.cursor
            assert cursor is not None
            if step == 2:
                found.append(next(cursor))
            else:
                found += cursor.take(step) if step == 30 else cursor.cut(step).records()
        error = reading.lane.error
        return [*found, reading.lane.position, len(reading.released), str(error) if error else None]

    chance_position = chance.choice([0, 2, 60])
    together = walked()
    monkeypatch.setattr(lane_module, "open_batches", lambda *batches: None)
    assert walked() == together


def test_small_batches_are_taken_together() -> None:
    reading = Reading()
    reading.put(5, *[batch(5 + n, b"v") for n in range(20)], batch(25, b"z", producer_id=1))
    assert reading.lane.has_next()
    assert len(reading.lane.cursor or ()) == (21 if IMPLEMENTATION == "c" else 1)
