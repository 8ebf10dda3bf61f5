"""Fetched data between the threads: what is hidden, counted, waited for, and in which order it is read."""

from __future__ import annotations

import itertools
import random
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kwire.cluster.waiting import run_blocking
from kwire.consumer import buffer as buffer_module
from kwire.consumer.buffer import (
    AbortedTransaction,
    BatchFilter,
    CompletedFetch,
    FetchBuffer,
    PartitionBuffer,
    PartitionFailed,
    PositionResolved,
)
from kwire.consumer.record import ConsumerRecord
from kwire.errors import AuthorizationError, ClosedError, CorruptRecordsError, ErrorCode
from kwire.records import Compression, decode_batches, encode_batch, encode_control_batch
from kwire.records.reader import RecordReader
from kwire.wire.accel import IMPLEMENTATION
from tests.consumer.world import batch, take


class Post:
    def __init__(self, max_bytes: int = 100) -> None:
        self.wakes = 0
        self.fetch_buffer = FetchBuffer(max_bytes=max_bytes, wake_loop=self.wake)

    def wake(self) -> None:
        self.wakes += 1

    def fetch(self, assignment_epoch: int, size_bytes: int) -> CompletedFetch:
        completed = CompletedFetch(assignment_epoch, 0, memoryview(bytes(size_bytes)), ())
        self.fetch_buffer.post(completed)
        return completed


def test_posted_items_are_taken_once_in_order() -> None:
    post = Post()
    items = [post.fetch(1, 10), post.fetch(2, 10)]
    assert post.fetch_buffer.take() == items
    assert post.fetch_buffer.take() == []


def test_the_capacity_is_neither_buffered_nor_reserved() -> None:
    post = Post(100)
    assert post.fetch_buffer.capacity(0, 10) == 100
    completed = post.fetch(1, 40)
    assert post.fetch_buffer.capacity(30, 10) == 30
    post.fetch_buffer.release(completed)
    assert post.wakes == 0, "the loop did not wait"
    completed = post.fetch(1, 95)
    assert post.fetch_buffer.capacity(0, 10) == 0
    post.fetch_buffer.release(completed)
    assert post.wakes == 1
    assert post.fetch_buffer.capacity(0, 10) == 100


def test_each_assignment_epoch_is_full_by_itself() -> None:
    post = Post()
    fetches = [post.fetch(1, 20), post.fetch(1, 20), post.fetch(2, 10)]
    assert (post.fetch_buffer.is_full(1, 40), post.fetch_buffer.is_full(2, 40), post.fetch_buffer.is_full(3, 1)) == (
        True,
        False,
        False,
    )
    post.fetch_buffer.release(fetches[0])
    post.fetch_buffer.release(fetches[1])
    assert (post.wakes, post.fetch_buffer.is_full(1, 40)) == (1, False)


def test_paused_assignment_epochs_do_not_count() -> None:
    post = Post(100)
    first, second = post.fetch(1, 90), post.fetch(2, 5)
    post.fetch_buffer.pause(1, True)
    post.fetch_buffer.pause(1, True)
    assert post.fetch_buffer.capacity(0, 1) == 95
    more = post.fetch(1, 50)
    assert post.fetch_buffer.capacity(0, 1) == 95
    post.fetch_buffer.release(first)
    assert post.fetch_buffer.capacity(0, 1) == 95
    post.fetch_buffer.pause(1, False)
    assert post.fetch_buffer.capacity(0, 1) == 45
    post.fetch_buffer.release(more)
    post.fetch_buffer.release(second)
    assert post.fetch_buffer.capacity(0, 1) == 100


def test_paused_assignment_epochs_have_a_limit_of_their_own() -> None:
    post = Post(100)
    first = post.fetch(1, 60)
    post.fetch(2, 60)
    exceeds = []
    post.fetch_buffer.pause(1, True)
    exceeds.append(post.fetch_buffer.exceeds_paused_bytes())
    post.fetch_buffer.pause(2, True)
    exceeds.append(post.fetch_buffer.exceeds_paused_bytes())
    post.fetch_buffer.release(first)
    exceeds.append(post.fetch_buffer.exceeds_paused_bytes())
    post.fetch(2, 50)  # was in flight
    exceeds.append(post.fetch_buffer.exceeds_paused_bytes())
    post.fetch_buffer.pause(2, False)
    exceeds.append(post.fetch_buffer.exceeds_paused_bytes())
    assert exceeds == [False, True, False, True, False]


def test_releasing_twice_is_an_assertion_error() -> None:
    post = Post()
    completed = post.fetch(1, 10)
    post.fetch_buffer.release(completed)
    with pytest.raises(AssertionError):
        post.fetch_buffer.release(completed)


@pytest.mark.parametrize("how", ["post", "wake_all", "close"])
def test_a_wait_ends_with_a_post_a_wake_up_and_the_end(how: str) -> None:
    post = Post()
    seen = post.fetch_buffer.wakeups
    has_begun, has_ended = threading.Event(), threading.Event()

    def wait() -> None:
        has_begun.set()
        run_blocking(post.fetch_buffer.wait(seen, 60.0))
        has_ended.set()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    assert has_begun.wait(10.0)
    # Whether the thread sleeps already or only comes to it, the event must end its wait.
    if how == "post":
        post.fetch_buffer.post(PositionResolved(1, 0))
    elif how == "wake_all":
        post.fetch_buffer.wake_all()
    else:
        post.fetch_buffer.close(ClosedError("over"))
    assert has_ended.wait(10.0)
    thread.join(10.0)


def test_the_first_closing_error_stays() -> None:
    post = Post()
    first = ClosedError("first")
    post.fetch_buffer.close(first)
    post.fetch_buffer.close(ClosedError("second"))
    assert post.fetch_buffer.end is first


def is_interrupted(action: Callable[[], object], moment: int) -> bool:
    """`action`, with an interrupt at one of the moments in which Python lets one in; False when it was over before.

    These are where a function begins, and where a call of one in C has ended.
    """
    moments = iter(range(moment))

    def interrupt(frame: object, event: str, argument: object) -> None:
        if event in ("call", "c_return") and next(moments, None) is None:
            sys.setprofile(None)
            raise KeyboardInterrupt

    sys.setprofile(interrupt)
    try:
        action()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return False


@pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning")  # an interrupt before its first step
def test_an_interrupt_of_a_wait_leaves_the_buffer_usable() -> None:
    for moment in itertools.count():
        post = Post()
        if not is_interrupted(lambda post=post: run_blocking(post.fetch_buffer.wait(0, 0.0)), moment):  # type: ignore[misc]
            break
        completed = post.fetch(1, 10)
        post.fetch_buffer.wake_all()
        run_blocking(post.fetch_buffer.wait(0, 60.0))
        assert post.fetch_buffer.take() == [completed]
        run_blocking(post.fetch_buffer.wait(post.fetch_buffer.wakeups, 0.0))
    assert moment > 4


class Reading:
    """A buffer, and what it released."""

    def __init__(self, position: int | None = 5, *, check_crc: bool = True) -> None:
        self.released: list[CompletedFetch] = []
        self.retired: list[RecordReader] = []
        self.buffer = PartitionBuffer(
            "t", 3, 1, position, check_crc=check_crc, release=self.released.append, retire=self.retired.append
        )

    def put(self, offset: int, *parts: bytes, aborted: tuple[tuple[int, int], ...] = ()) -> CompletedFetch:
        completed = CompletedFetch(
            1, offset, memoryview(b"".join(parts)), tuple(AbortedTransaction(*one) for one in aborted)
        )
        self.buffer.put(completed)
        return completed

    def take(self, count: int = 100) -> list[bytes | None]:
        return [record.value for record in take(self.buffer, count)] if self.buffer.has_next() else []


def test_the_position_moves_when_a_record_is_returned() -> None:
    reading = Reading()
    completed = reading.put(5, batch(5, b"a", b"b", b"c"), batch(8, b"d"))
    assert reading.buffer.position == 5
    assert reading.buffer.has_next()
    assert reading.buffer.position == 5
    steps = []
    while values := reading.take(1):
        steps.append((values, reading.buffer.position))
    assert steps == [([b"a"], 6), ([b"b"], 7), ([b"c"], 8), ([b"d"], 9)]
    assert reading.released == [completed]


def test_a_reader_returns_records_one_by_one() -> None:
    reading = Reading()
    reading.put(5, batch(5, b"a", b"b"))
    assert reading.buffer.has_next()
    reader = reading.buffer.reader
    assert reader is not None
    assert [(record.value, reading.buffer.position) for record in reader] == [(b"a", 6), (b"b", 7)]
    reading.put(7, batch(7, b"c", b"d"))
    assert reading.buffer.has_next()
    assert reading.retired == [reader]
    reader = reading.buffer.reader
    assert reader is not None
    assert next(reader).value == b"c"
    reading.buffer.restart(2, 50)
    assert list(reader) == [], "an iteration over the old reader gets nothing more"
    assert reading.retired[1:] == [reader]


def test_every_field_of_a_record_is_read() -> None:
    rows = [(17, b"k", None, (("h", b"1"), ("h", None))), (18, None, b"", ())]
    reading = Reading()
    reading.put(5, encode_batch(rows, base_offset=5, timestamp_type=1))
    assert reading.buffer.has_next()
    first, second = take(reading.buffer, 2)
    assert first == ConsumerRecord("t", 3, 5, first.timestamp_ms, 1, b"k", None, (("h", b"1"), ("h", None)))
    assert (second.key, second.value, second.headers, second.offset) == (None, b"", (), 6)


def test_a_gap_at_the_end_of_a_batch_is_skipped_with_its_last_record() -> None:
    compacted = bytearray(batch(5, b"a", b"b"))
    compacted[23:27] = (9).to_bytes(4, "big")  # the last offset delta stays when the last records are compacted away
    reading = Reading(check_crc=False)
    reading.put(5, bytes(compacted))
    assert reading.take(1) == [b"a"]
    assert reading.buffer.position == 6
    assert reading.take(1) == [b"b"]
    assert reading.buffer.position == 15


def test_hidden_batches_move_the_position() -> None:
    empty = bytearray(batch(5, b"a"))
    control = encode_control_batch(
        "commit", base_offset=6, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0
    )
    aborted = batch(7, b"x", producer_id=9, is_transactional=True)
    reading = Reading()
    reading.put(5, bytes(empty), control, aborted, aborted=((9, 7),))
    assert reading.take() == [b"a"]
    assert reading.buffer.position == 6
    assert not reading.buffer.has_next()
    assert (reading.buffer.position, len(reading.released)) == (8, 1)


@pytest.mark.parametrize("has_aborted", [True, False])
def test_each_response_has_its_own_list_of_aborted_transactions(has_aborted: bool) -> None:
    """A transaction whose abort marker was not fetched hides nothing of the next response, which does not list it.

    Both ways of reading: a response without aborted transactions is read without the producer ids.
    """
    reading = Reading()
    reading.put(5, batch(5, b"aborted", producer_id=9, is_transactional=True), aborted=((9, 5),))
    marker = encode_control_batch(
        "commit", base_offset=7, producer_id=8, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0
    )
    committed = batch(8, b"committed", producer_id=9, is_transactional=True)
    reading.put(6, batch(6, b"plain"), marker, committed, aborted=((7, 6),) if has_aborted else ())
    seen = []
    while reading.buffer.has_next():
        seen += reading.take()
    assert seen == [b"plain", b"committed"]


def test_records_before_the_position_are_skipped() -> None:
    reading = Reading(7)
    reading.put(7, batch(3, b"a", b"b"), batch(5, b"c", b"d", b"e"))
    assert reading.take() == [b"e"]
    assert reading.buffer.position == 8


def test_reading_stops_before_a_corrupt_batch_until_a_restart() -> None:
    broken = bytearray(batch(6, b"b"))
    broken[-1] ^= 1
    reading = Reading()
    completed = reading.put(5, batch(5, b"a"), bytes(broken), batch(7, b"c"))
    later = reading.put(8, batch(8, b"d"))
    assert reading.take() == [b"a"]
    assert not reading.buffer.has_next()
    error = reading.buffer.error
    assert isinstance(error, CorruptRecordsError)
    assert (error.where["topic"], error.where["partition"], error.where["offset"]) == ("t", 3, 6)
    assert "seek" in str(error)
    assert reading.buffer.position == 6
    assert reading.released == [completed, later]
    late = reading.put(9, batch(9, b"e"))
    assert not reading.buffer.has_next()
    assert reading.released == [completed, later, late], "it will not be read"
    reading.buffer.restart(2, 7)
    reading.put(7, batch(7, b"c"))
    assert reading.take() == [b"c"]


def test_without_check_crc_a_wrong_checksum_is_ignored() -> None:
    broken = bytearray(batch(5, b"b"))
    broken[17] ^= 1
    reading = Reading(check_crc=False)
    reading.put(5, bytes(broken))
    assert reading.take() == [b"b"]


def test_an_error_comes_after_the_records_before_it() -> None:
    reading = Reading()
    reading.put(5, batch(5, b"a"))
    failure = AuthorizationError("no", code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    reading.buffer.put(PartitionFailed(1, failure))
    assert (reading.buffer.error, reading.take()) == (None, [b"a"])
    assert not reading.buffer.has_next()
    assert reading.buffer.error is failure


@pytest.mark.parametrize("position", [None, 5])
def test_a_reset_position_comes_after_the_records_before_it(position: int | None) -> None:
    reading = Reading(position)
    if position is not None:
        reading.put(5, batch(5, b"a"))
    reading.buffer.put(PositionResolved(1, 30))
    reading.put(30, batch(30, b"b"))
    assert reading.buffer.position == (30 if position is None else 5)
    values = reading.take() + reading.take()
    assert values == ([b"b"] if position is None else [b"a", b"b"])
    assert reading.buffer.position == 31


def test_an_error_before_the_position_is_found_is_set_at_once() -> None:
    reading = Reading(None)
    failure = AuthorizationError("no", code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    reading.buffer.put(PartitionFailed(1, failure))
    assert (reading.buffer.error, reading.buffer.position) == (failure, None)


def test_a_restart_drops_all_fetches() -> None:
    reading = Reading()
    fetches = [reading.put(5, batch(5, b"a", b"b")), reading.put(7, batch(7, b"c"))]
    assert reading.take(1) == [b"a"]
    reading.buffer.restart(2, 50)
    assert (reading.released, reading.take(), reading.buffer.position) == (fetches, [], 50)


def test_a_fetch_with_a_gap_is_an_assertion_error() -> None:
    reading = Reading()
    reading.put(6, batch(6, b"a"))
    with pytest.raises(AssertionError):
        reading.take()


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_formats_are_read(magic: int) -> None:
    rows = [(17, b"k", b"a", ()), (18, None, b"b", ())]
    reading = Reading()
    reading.put(5, encode_batch(rows, base_offset=5, magic=magic))
    assert reading.take() + reading.take() == [b"a", b"b"]
    assert reading.buffer.position == 7


def random_fetch(chance: random.Random) -> bytes:
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
def test_batches_opened_together_are_read_as_each_by_itself(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    data, check_crc = random_fetch(chance), chance.random() < 0.8
    aborted = chance.choice([(), (), ((1, 3),)])
    steps = [chance.choice([1, 2, 30, 1_000]) for _ in range(500)]

    def walked() -> list[Any]:
        reading = Reading(chance_position, check_crc=check_crc)
        reading.put(chance_position, data, aborted=aborted)
        found: list[Any] = []
        for step in steps:
            if not reading.buffer.has_next():
                break
            reader = reading.buffer.reader
            assert reader is not None
            if step == 2:
                found.append(next(reader))
            else:
                found += reader.take(step) if step == 30 else reader.cut(step).records()
        error = reading.buffer.error
        return [*found, reading.buffer.position, len(reading.released), str(error) if error else None]

    chance_position = chance.choice([0, 2, 60])
    together = walked()
    monkeypatch.setattr(buffer_module, "open_batches", lambda *batches: None)
    assert walked() == together


def test_small_batches_are_opened_together() -> None:
    reading = Reading()
    reading.put(5, *[batch(5 + n, b"v") for n in range(20)], batch(25, b"z", producer_id=1))
    assert reading.buffer.has_next()
    assert len(reading.buffer.reader or ()) == (21 if IMPLEMENTATION == "c" else 1)


A, B = 1, 2
ABORT, COMMIT = "abort", "commit"

# A log is a list of entries: a value alone, (producer, value) of a transaction, or its end: ("abort", producer).
Entry = bytes | tuple[int, bytes] | tuple[str, int]


def log_of(*entries: Entry) -> bytes:
    return b"".join(_encode(offset, entry) for offset, entry in enumerate(entries))


def _encode(offset: int, entry: Entry) -> bytes:
    if isinstance(entry, bytes):
        return encode_batch([(0, None, entry, ())], base_offset=offset)
    first, second = entry
    if isinstance(first, str):
        assert isinstance(second, int)
        return encode_control_batch(
            first, base_offset=offset, producer_id=second, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0
        )
    assert isinstance(second, bytes)
    return encode_batch(
        [(0, None, second, ())],
        base_offset=offset,
        producer_id=first,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )


@pytest.mark.parametrize(
    ("log", "aborted", "seen"),
    [
        pytest.param([b"a", b"b"], [], b"ab", id="no transactions"),
        pytest.param([(A, b"a"), (COMMIT, A), b"b"], [], b"ab", id="committed"),
        pytest.param([(A, b"a"), (ABORT, A), b"b"], [(A, 0)], b"b", id="aborted"),
        pytest.param([b"x", (A, b"a"), (A, b"b"), (ABORT, A), b"y"], [(A, 1)], b"xy", id="of two batches"),
        pytest.param([(A, b"a"), (ABORT, A), (A, b"b"), (COMMIT, A)], [(A, 0)], b"b", id="aborted, then committed"),
        pytest.param([(A, b"a"), (COMMIT, A), (A, b"b"), (ABORT, A)], [(A, 2)], b"a", id="committed, then aborted"),
        pytest.param([(A, b"a"), (ABORT, A), (A, b"b"), (ABORT, A)], [(A, 0), (A, 2)], b"", id="twice"),
        pytest.param([(A, b"a"), (ABORT, A), (A, b"b"), (ABORT, A)], [(A, 2), (A, 0)], b"", id="listed out of order"),
        pytest.param([(A, b"a"), (B, b"b"), (ABORT, A), (COMMIT, B)], [(A, 0)], b"b", id="two at once, one aborted"),
        pytest.param([(A, b"a"), (B, b"b"), (ABORT, B), (ABORT, A)], [(A, 0), (B, 1)], b"", id="two at once, both"),
        pytest.param([(A, b"a"), (B, b"b"), (COMMIT, B), (A, b"c"), (ABORT, A)], [(A, 0)], b"b", id="other's commit"),
        pytest.param([(A, b"a"), (COMMIT, A), (A, b"b"), (ABORT, A)], [(A, 0)], b"", id="a commit marker closes none"),
        pytest.param([(A, b"b"), (ABORT, A), b"c"], [(A, -5)], b"c", id="began before what was fetched"),
        pytest.param([(A, b"a"), b"b", (A, b"c")], [(A, 0)], b"b", id="its marker was not fetched"),
        pytest.param([b"a", (A, b"b"), (ABORT, A)], [(A, 1), (B, 99)], b"a", id="one of which nothing was fetched"),
        pytest.param([(ABORT, A), (A, b"a"), (COMMIT, A)], [], b"a", id="a marker of nothing that is here"),
        pytest.param([(ABORT, A), (A, b"a"), (COMMIT, A)], [(A, -3)], b"a", id="only its marker is here"),
    ],
)
def test_batches_of_aborted_transactions_are_hidden(
    log: list[Entry], aborted: list[tuple[int, int]], seen: bytes
) -> None:
    batch_filter = BatchFilter([AbortedTransaction(*one) for one in aborted])
    shown = [batch for batch in decode_batches(log_of(*log)) if not batch_filter.hides(batch)]
    assert b"".join(record.value or b"" for batch in shown for record in batch.records()) == seen
    assert not any(batch.is_control for batch in shown)


def test_read_uncommitted_hides_only_control_batches() -> None:
    batch_filter = BatchFilter(())
    hidden = [batch_filter.hides(batch) for batch in decode_batches(log_of((A, b"a"), (ABORT, A), b"b"))]
    assert hidden == [False, True, False]
