"""Fetched data between the loop thread and the caller's thread.

The loop thread posts into the `FetchBuffer`. `Consumer.poll` takes everything from there, sorts it into a
`PartitionBuffer` per partition and decodes the batches there, one after the other as they are read.

An assignment epoch numbers one life of an assigned partition: `assign` and `seek` begin a new one. Data of an older
epoch is dropped wherever it is met.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kwire.cluster.waiting import BLOCKING, Signal, Waiter
from kwire.consumer.rebalance import RebalanceStep
from kwire.consumer.record import ConsumerRecord
from kwire.errors import CorruptRecordsError, KwireError
from kwire.records import MAX_DECOMPRESSED_BYTES, decode_batches
from kwire.records.reader import open_batches

if TYPE_CHECKING:
    from kwire.records import Batch
    from kwire.records.reader import RecordReader


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int


class Watermarks(NamedTuple):
    """How far a log reaches, from a Fetch response. -1 where the broker's version has no such field.

    `last_stable_offset` is where reading with read_committed ends.
    """

    high_watermark: int
    last_stable_offset: int = -1
    log_start_offset: int = -1


class BatchFilter:
    """Decides which batches of one fetched range are hidden: control batches, and with read_committed aborted ones.

    A Fetch response lists the aborted transactions that overlap its range, each with its first offset. A transaction is
    open from there to its abort marker, so one pass over the batches in offset order decides for each, as in Kafka's
    CompletedFetch. The list is valid for one response: the next response repeats what overlaps its range.
    """

    __slots__ = ("_open", "_waiting")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._waiting = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
        self._open: set[int] = set()

    def hides(self, batch: Batch) -> bool:
        """Return whether a batch is hidden. Call it once per batch, in offset order."""
        while self._waiting and self._waiting[-1].first_offset <= batch.last_offset:
            self._open.add(self._waiting.pop().producer_id)
        if batch.is_control:
            # A commit marker closes nothing: the list has no committed transactions.
            if batch.producer_id in self._open and batch.control().kind == "abort":
                self._open.discard(batch.producer_id)
            return True
        return batch.is_transactional and batch.producer_id in self._open


@dataclass(slots=True, eq=False)  # not frozen: that would make the constructor five times slower
class CompletedFetch:
    """The records of one partition in a Fetch response, still encoded: whole batches. `offset` is the fetched one."""

    assignment_epoch: int
    offset: int
    data: memoryview
    aborted: tuple[AbortedTransaction, ...]
    watermarks: Watermarks | None = None  # of the response
    leader_epoch: int = -1  # of the last batch


@dataclass(frozen=True, slots=True, eq=False)
class PositionResolved:
    """The position was found (earliest, latest, by time), or reset because it was out of range."""

    assignment_epoch: int
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class PartitionFailed:
    """The partition cannot be read on until a seek. Earlier fetches are returned first."""

    assignment_epoch: int
    error: KwireError


@dataclass(frozen=True, slots=True, eq=False)
class ClientError:
    """Nothing can be fetched, or one broker cannot be used. The error concerns no partition in particular."""

    error: KwireError


Item = CompletedFetch | PositionResolved | PartitionFailed | ClientError | RebalanceStep


class FetchBuffer:
    """The queue between the threads, and a count of the bytes in it that the caller has not read.

    The loop thread calls `post`, `close`, `capacity` and `is_full`, the callers' threads the rest. No thread holds the
    lock for longer than it takes to move a reference. `wake_loop` is called, on a caller's thread, when memory was
    released that the loop waits for.
    """

    def __init__(self, *, max_bytes: int, wake_loop: Callable[[], None]) -> None:
        self.end: KwireError | None = None
        # By assignment epoch, from the newest response, which may have had no records: for the lag. The loop thread
        # writes, any thread reads.
        self.watermarks: dict[int, Watermarks] = {}
        self._max_bytes = max_bytes
        self._wake_loop = wake_loop
        self._lock = threading.Lock()
        self._waiters: set[Signal] = set()
        self._items: list[Item] = []
        self._wakeups = 0
        self._bytes: dict[int, int] = {}  # by assignment epoch
        self._total_bytes = 0  # without paused partitions, which must not starve the others
        self._paused: set[int] = set()
        self._paused_bytes = 0
        self._is_loop_waiting = False  # for `release`

    # -- for the loop thread

    def post(self, item: Item) -> None:
        with self._lock:
            if isinstance(item, CompletedFetch):
                assignment_epoch, size = item.assignment_epoch, len(item.data)
                self._bytes[assignment_epoch] = self._bytes.get(assignment_epoch, 0) + size
                if assignment_epoch not in self._paused:
                    self._total_bytes += size
                else:
                    self._paused_bytes += size
            self._items.append(item)
            if self._waiters:
                self._wake_waiters()

    def close(self, error: KwireError) -> None:
        """End the buffer: nothing more is posted, and callers get `error` from now on."""
        with self._lock:
            if self.end is None:
                self.end = error
            self._wake_waiters()

    def capacity(self, reserved_bytes: int, minimum: int) -> int:
        """Return how many bytes the next fetch may request, beside `reserved_bytes` of the fetches in flight.

        0 if that is less than `minimum`; then the next `release` wakes the loop.
        """
        with self._lock:
            free_bytes = self._max_bytes - self._total_bytes - reserved_bytes
            if free_bytes >= minimum:
                return free_bytes
            self._is_loop_waiting = True
            return 0

    def is_full(self, assignment_epoch: int, limit: int) -> bool:
        """Return whether this epoch has `limit` or more unread bytes; if so, the next `release` wakes the loop."""
        if self._bytes.get(assignment_epoch, 0) < limit:  # without the lock: only this thread adds bytes
            return False
        with self._lock:
            is_over_limit = self._bytes.get(assignment_epoch, 0) >= limit
            self._is_loop_waiting |= is_over_limit
            return is_over_limit

    # -- for the callers' threads

    def take(self) -> list[Item]:
        if not self._items:  # the usual case of a poll that has buffered records: it takes no lock
            return []
        with self._lock:
            items, self._items = self._items, []
            return items

    def release(self, fetch: CompletedFetch) -> None:
        """Release the memory of a fetch that was read to the end or dropped."""
        assignment_epoch, size = fetch.assignment_epoch, len(fetch.data)
        with self._lock:
            buffered = self._bytes.get(assignment_epoch, 0) - size
            assert buffered >= 0, "released twice"
            if buffered:
                self._bytes[assignment_epoch] = buffered
            else:
                self._bytes.pop(assignment_epoch, None)
            if assignment_epoch not in self._paused:
                self._total_bytes -= size
            else:
                self._paused_bytes -= size
            is_loop_waiting, self._is_loop_waiting = self._is_loop_waiting, False
        if is_loop_waiting:
            self._wake_loop()

    def pause(self, assignment_epoch: int, is_paused: bool) -> None:
        """Set whether the bytes of this epoch are left out of the limit for all partitions."""
        with self._lock:
            if is_paused == (assignment_epoch in self._paused):
                return
            buffered = self._bytes.get(assignment_epoch, 0)
            self._total_bytes += -buffered if is_paused else buffered
            self._paused_bytes += buffered if is_paused else -buffered
            if is_paused:
                self._paused.add(assignment_epoch)
            else:
                self._paused.discard(assignment_epoch)

    @property
    def buffered_bytes(self) -> int:
        """Bytes that are fetched and not yet read, without paused partitions."""
        return self._total_bytes

    def exceeds_paused_bytes(self) -> bool:
        """Return whether paused partitions hold more than the limit, which they have for themselves."""
        return self._paused_bytes > self._max_bytes

    def wake_all(self) -> None:
        """Wake every thread in `wait`, because something other than a post has changed."""
        with self._lock:
            self._wakeups += 1
            self._wake_waiters()

    @property
    def wakeups(self) -> int:
        return self._wakeups

    async def wait(self, wakeups_seen: int, timeout: float, waiter: Waiter = BLOCKING) -> None:
        """Wait until there are items, `wake_all` was called (after `wakeups_seen`), the end, or `timeout` seconds."""
        signal = waiter.signal()
        with self._lock:
            if self._items or self._wakeups != wakeups_seen or self.end is not None:
                return
            self._waiters.add(signal)
        try:
            await signal.wait(timeout)
        finally:
            with self._lock:
                self._waiters.discard(signal)

    def _wake_waiters(self) -> None:
        """Wake every waiting thread and task. The caller holds the lock."""
        while self._waiters:
            self._waiters.pop().set()


# Batches are opened together up to this size, which is usually a whole fetched partition: so small batches cost little
# more than large ones.
_OPENED_BYTES = 1024 * 1024
# Where a batch of format 2 has its leader epoch and its format.
_EPOCH, _FORMAT, _BASE_TIMESTAMP = slice(12, 16), 16, slice(27, 35)
# For a fetch without aborted transactions; such a filter has no state.
_CONTROL_ONLY = BatchFilter(())


def _common_epoch(fetch: CompletedFetch) -> int | None:
    """Return the leader epoch of all batches of a fetch; None where they differ or have none. Epochs never decrease."""
    if len(fetch.data) <= _FORMAT or fetch.data[_FORMAT] < 2 or fetch.leader_epoch < 0:
        return None
    return fetch.leader_epoch if int.from_bytes(fetch.data[_EPOCH]) == fetch.leader_epoch else None


class PartitionBuffer:
    """What was fetched of one partition and not yet read, and the position: the offset of the next record to return.

    Batches are decompressed, checked and decoded here, each when the one before it was read to the end. An error that
    the loop posts after some records is raised after them.

    Not thread-safe: the consumer's lock guards every call, except reading from `reader`. `release` gets every fetch
    that was read or dropped, and `retire` every finished reader, whose records may still be in use.
    """

    __slots__ = (
        "_batch_start", "_fetch", "_filter", "_items", "_position", "_release", "_retire", "assignment_epoch",
        "check_crc", "committed", "decompressed_max", "error", "first", "is_error_raised", "is_paused", "is_ready",
        "is_revoking", "iterated", "leader_epoch", "partition", "processed", "processed_epoch", "reader", "topic",
        "written_ms",
    )  # fmt: skip

    def __init__(
        self, topic: str, partition: int, assignment_epoch: int, position: int | None,
        *, check_crc: bool, decompressed_max: int = MAX_DECOMPRESSED_BYTES,
        release: Callable[[CompletedFetch], None], retire: Callable[[RecordReader], None],
    ) -> None:  # fmt: skip
        self.topic = topic
        self.partition = partition
        self.assignment_epoch = assignment_epoch
        self._position = position  # while there is no `reader`; None until the offset was found
        self.is_paused = False
        self.is_ready = False  # it is in the consumer's queue of buffers to read
        self.is_error_raised = False  # the caller has got `error`
        self.is_revoking = False  # a rebalance takes it away: nothing more is returned
        # All before `processed` was processed; None before anything was returned. The epoch is that of the record
        # before it, and `committed` what the group's coordinator has, as far as this consumer knows.
        self.processed: int | None = None
        self.processed_epoch: int | None = None
        self.committed: int | None = None
        self.first: int | None = None  # that was handed out, since the last seek or the beginning of this log
        # How far an iteration has processed it, as the loop thread saw it last, with the assignment epoch.
        self.iterated: tuple[int, int] = -1, -1
        self.written_ms = -1  # when the batches that are being read were written, of format 2
        self.leader_epoch: int | None = None  # of the fetch that is being read, if all its batches have the same
        self.check_crc = check_crc
        self.decompressed_max = decompressed_max  # bytes of one batch
        self.error: KwireError | None = None  # nothing is read after it until a seek
        self._release = release
        self._retire = retire
        self._items: deque[CompletedFetch | PositionResolved | PartitionFailed] = deque()
        self._fetch: CompletedFetch | None = None  # being read
        self._batch_start = 0  # the next batch in it
        self._filter = _CONTROL_ONLY
        self.reader: RecordReader | None = None  # of the batches that are being read

    @property
    def position(self) -> int | None:
        return self._position if self.reader is None else self.reader.position

    def put(self, item: CompletedFetch | PositionResolved | PartitionFailed) -> None:
        """Add what the loop posted for this epoch, in its order."""
        if self.error is not None:
            if isinstance(item, CompletedFetch):
                self._release(item)  # fetched before the loop knew of the error
        elif self._position is not None:
            self._items.append(item)
        elif isinstance(item, PositionResolved):
            self._position = item.offset  # at once: `Consumer.position` waits for it
        elif isinstance(item, PartitionFailed):
            self._fail(item.error)

    def restart(self, assignment_epoch: int, position: int | None) -> None:
        """Begin a new epoch at another position, and drop everything of the old one."""
        self.clear()
        self.assignment_epoch, self._position = assignment_epoch, position
        self.error, self.is_error_raised = None, False
        self.leader_epoch = None

    def forget_progress(self) -> None:
        """Forget what was handed out, processed and committed: it is of other offsets than those that come."""
        self.first = self.processed = self.processed_epoch = self.committed = None
        self.iterated = -1, -1

    def clear(self) -> None:
        """Drop everything that was not read; the position stays."""
        if self.reader is not None:
            self._finish_reader(self.reader)
        if self._fetch is not None:
            self._release(self._fetch)
            self._fetch = None
        for item in self._items:
            if isinstance(item, CompletedFetch):
                self._release(item)
        self._items.clear()

    def has_next(self) -> bool:
        """Return whether `reader` has records, after reading as far as necessary. If not, `error` may be set."""
        while self.reader is None or not len(self.reader):
            if self.reader is not None:
                self._finish_reader(self.reader)
            if self.error is not None or not self._advance():
                return False
        return True

    def _finish_reader(self, reader: RecordReader) -> None:
        self._position, self.reader = reader.stop(), None  # an iteration may still hold it
        self._retire(reader)

    # -- reading

    def _advance(self) -> bool:
        """Go to the next batch, item or failure; return False if there is none."""
        fetch = self._fetch
        if fetch is not None and self._batch_start == len(fetch.data):
            self._fetch = None
            self._release(fetch)
        if self._fetch is None and not self._next_item():
            return False
        if self._fetch is not None:
            try:
                self._read_batch(self._fetch)
            except KwireError as error:
                self._fail(self._located(error))
        return True

    def _next_item(self) -> bool:
        if not self._items:
            return False
        item = self._items.popleft()
        if isinstance(item, CompletedFetch):
            assert item.offset == self._position, "the fetch does not continue at the position"
            self._fetch = item
            self._batch_start = 0
            self.leader_epoch = _common_epoch(item)
            self._filter = BatchFilter(item.aborted) if item.aborted else _CONTROL_ONLY
        elif isinstance(item, PositionResolved):  # the log was cut or began anew
            self.forget_progress()
            self.leader_epoch = None
            self._position = item.offset
        else:
            self._fail(item.error)
        return True

    def _read_batch(self, fetch: CompletedFetch) -> None:
        assert self._position is not None
        start = self._batch_start
        if len(fetch.data) > start + _BASE_TIMESTAMP.stop and fetch.data[start + _FORMAT] == 2:
            self.written_ms = int.from_bytes(fetch.data[start + _BASE_TIMESTAMP.start : start + _BASE_TIMESTAMP.stop])
        if not fetch.aborted:
            found = open_batches(
                ConsumerRecord, self.topic, self.partition, self._position,
                fetch.data, self._batch_start, self.check_crc, _OPENED_BYTES,
            )  # fmt: skip
            if found is not None:
                self.reader, self._batch_start = found
                return
        batches = decode_batches(
            fetch.data,
            start=self._batch_start,
            check_crc=self.check_crc,
            max_decompressed_bytes=self.decompressed_max,
        )
        batch = next(batches, None)
        if batch is None:
            self._batch_start = len(fetch.data)
            return
        self._batch_start += batch.size_bytes
        if self._filter.hides(batch):
            self._position = max(batch.next_offset, self._position)
        else:
            self.reader = batch.cursor(ConsumerRecord, self.topic, self.partition, self._position)

    def _fail(self, error: KwireError) -> None:
        self.clear()
        self.error = error

    def _located(self, cause: KwireError) -> KwireError:
        """Return the error with the place in the log; `cause` knows at best the place in the response."""
        if not isinstance(cause, CorruptRecordsError):  # a codec that is not installed
            return cause.at(topic=self.topic, partition=self.partition, offset=self.position)
        error = CorruptRecordsError(
            f"the batch at this offset cannot be read: {cause.message}",
            remedy="seek past it; if it is damaged at the broker too, another replica may have an intact copy",
            topic=self.topic,
            partition=self.partition,
            offset=self.position,
        )
        error.__cause__ = cause
        return error
