"""Fetched data on its way to the user's thread.

Which batches of a fetched range the user must not see: control batches, and under read_committed aborted ones.

A Fetch answer lists the aborted transactions that overlap its range, each by producer id and the offset of its first
record. A transaction of that producer is open from there to its abort marker, so one pass over the batches in offset
order, with the list sorted by first offset, decides for each batch (Kafka's CompletedFetch does the same). The pass
holds for one answer only: the next answer lists again what overlaps its own range, also what began before it.

What crosses from the event loop to the user's threads, and how much of it there is.

The loop posts; whoever polls takes all, and sleeps until a bell of its own is rung because there is more. Neither side
ever holds the lock for longer than it takes to move a reference. The bytes posted and not yet read to the end are
counted here, in all and by generation, so that the loop stops fetching what nobody reads. A generation is one life of
one assigned partition: assigning or seeking begins a new one, and everything of an older one is thrown away where it
is met.

One partition as the user's thread sees it: what was fetched and not yet read, and the position.

The position is the offset of the next record to be handed out; a record counts as consumed when it is, and not before.
Batches are decompressed, checked and decoded here, one when the one before it was read to the end: on the user's
thread, so that the event loop never does it, and only what is read costs anything.

A lane also keeps order between records and what happened after them: the loop posts an error of a partition behind the
records fetched before it, so it is met behind them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kwire.consumer.record import ConsumerRecord
from kwire.errors import CorruptRecordsError, KwireError
from kwire.records import decode_batches
from kwire.records.reader import open_batches

if TYPE_CHECKING:
    from kwire.records import Batch
    from kwire.records.reader import RecordReader


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int


class BatchFilter:
    """`hides(batch)` for the batches of one answer, which must be asked in offset order, each once.

    With an empty list (read_uncommitted, or nothing aborted) only control batches are hidden.
    """

    __slots__ = ("_open", "_waiting")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._waiting = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
        self._open: set[int] = set()

    def hides(self, batch: Batch) -> bool:
        while self._waiting and self._waiting[-1].first_offset <= batch.last_offset:
            self._open.add(self._waiting.pop().producer_id)
        if batch.is_control:
            # A commit marker closes nothing here: a committed transaction is not in the list.
            if batch.producer_id in self._open and batch.control().kind == "abort":
                self._open.discard(batch.producer_id)
            return True
        return batch.is_transactional and batch.producer_id in self._open


@dataclass(slots=True, eq=False)  # not frozen: to make one would take five times as long
class CompletedFetch:
    """The records of one partition in one Fetch answer, still encoded: whole batches. `offset` is what was asked."""

    generation: int
    offset: int
    data: memoryview
    aborted: tuple[AbortedTransaction, ...]


@dataclass(frozen=True, slots=True, eq=False)
class PositionResolved:
    """The position was found (earliest, latest, by time), or was set anew because the log no longer had the old one."""

    generation: int
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class PartitionFailed:
    """The partition stands still until somebody seeks. What was fetched before is handed out first."""

    generation: int
    error: KwireError


@dataclass(frozen=True, slots=True, eq=False)
class ClientError:
    """Nothing can be fetched from anywhere, or a broker cannot be used; of no partition in particular."""

    error: KwireError


Item = CompletedFetch | PositionResolved | PartitionFailed | ClientError


class FetchBuffer:
    """`post`, `close`, `capacity` and `holds` are for the loop's thread, the rest for the user's threads.

    `wake_loop` is called, from a user's thread, when room was made that the loop was waiting for.
    """

    def __init__(self, *, max_bytes: int, wake_loop: Callable[[], None]) -> None:
        self.end: KwireError | None = None
        self._max_bytes = max_bytes
        self._wake_loop = wake_loop
        self._lock = threading.Lock()
        # A lock that is released once rings. A condition does not stand an interrupt, which finds it without its lock.
        self._bells: set[threading.Lock] = set()
        self._items: list[Item] = []
        self._nudges = 0
        self._bytes: dict[int, int] = {}
        self._total_bytes = 0  # less what paused generations hold: they must not starve those that are read
        self._paused: set[int] = set()
        self._is_awaited = False  # the loop found no room and goes on only when told

    # -- the loop's side

    def post(self, item: Item) -> None:
        with self._lock:
            if isinstance(item, CompletedFetch):
                generation, size = item.generation, len(item.data)
                self._bytes[generation] = self._bytes.get(generation, 0) + size
                if generation not in self._paused:
                    self._total_bytes += size
            self._items.append(item)
            if self._bells:
                self._ring()

    def close(self, error: KwireError) -> None:
        """Nothing will be posted any more; `error` is what everybody is told who asks from now on."""
        with self._lock:
            if self.end is None:
                self.end = error
            self._ring()

    def capacity(self, reserved_bytes: int, least: int) -> int:
        """How many more bytes may be asked for, `reserved_bytes` being under way.

        0 when that is less than `least`; then the loop is woken as soon as something is released.
        """
        with self._lock:
            room = self._max_bytes - self._total_bytes - reserved_bytes
            if room >= least:
                return room
            self._is_awaited = True
            return 0

    def holds(self, generation: int, limit: int) -> bool:
        """Whether this generation has `limit` bytes or more that nobody has read; then the loop will be woken."""
        if self._bytes.get(generation, 0) < limit:  # what is little now, only the loop itself could make more
            return False
        with self._lock:
            is_full = self._bytes.get(generation, 0) >= limit
            self._is_awaited |= is_full
            return is_full

    # -- the users' side

    def take(self) -> list[Item]:
        if not self._items:  # nothing is the usual answer of a poll that has records in hand; it costs no lock
            return []
        with self._lock:
            items, self._items = self._items, []
            return items

    def release(self, chunk: CompletedFetch) -> None:
        """A chunk was read to the end, or thrown away."""
        generation, size = chunk.generation, len(chunk.data)
        with self._lock:
            held = self._bytes.get(generation, 0) - size
            assert held >= 0, "released twice"
            if held:
                self._bytes[generation] = held
            else:
                self._bytes.pop(generation, None)
            if generation not in self._paused:
                self._total_bytes -= size
            is_awaited, self._is_awaited = self._is_awaited, False
        if is_awaited:
            self._wake_loop()

    def pause(self, generation: int, is_paused: bool) -> None:
        """Say whether what this generation holds counts against what the others may fetch."""
        with self._lock:
            if is_paused == (generation in self._paused):
                return
            held = self._bytes.get(generation, 0)
            self._total_bytes += -held if is_paused else held
            if is_paused:
                self._paused.add(generation)
            else:
                self._paused.discard(generation)

    def forget(self, generation: int) -> None:
        """A generation is over; its chunks were released or will be when they are met."""
        self.pause(generation, False)

    def nudge(self) -> None:
        """Make everybody who waits look again: something other than a post has changed."""
        with self._lock:
            self._nudges += 1
            self._ring()

    @property
    def nudges(self) -> int:
        return self._nudges

    def wait(self, nudges_seen: int, timeout: float) -> None:
        """Sleep until there are items, somebody nudges (after `nudges_seen`), it ends, or `timeout` seconds pass."""
        bell = threading.Lock()
        bell.acquire()
        with self._lock:
            if self._items or self._nudges != nudges_seen or self.end is not None:
                return
            self._bells.add(bell)
        try:
            bell.acquire(timeout=timeout)
        finally:
            with self._lock:
                self._bells.discard(bell)

    def _ring(self) -> None:
        """With the lock held: wake everybody who sleeps."""
        while self._bells:
            self._bells.pop().release()


# Batches are opened together until they are as large, which is mostly all of a partition's answer: so a log of small
# batches costs little more than one of large ones, and a poll few calls.
_TOGETHER_BYTES = 1024 * 1024
# Of an answer without aborted transactions; such a filter remembers nothing.
_CONTROL_ONLY = BatchFilter(())


class PartitionBuffer:
    """Not thread-safe, but for what may be done with its `cursor`: the consumer's lock is around every call.

    `release` is told of every chunk that is done with, and `retire` of every cursor: its records may still be about.
    """

    __slots__ = (
        "_at", "_chunk", "_filter", "_items", "_position", "_release", "_retire", "check_crc", "cursor", "error",
        "generation", "is_paused", "is_queued", "is_told", "partition", "topic",
    )  # fmt: skip

    def __init__(
        self, topic: str, partition: int, generation: int, position: int | None,
        *, check_crc: bool, release: Callable[[CompletedFetch], None], retire: Callable[[RecordReader], None],
    ) -> None:  # fmt: skip
        self.topic = topic
        self.partition = partition
        self.generation = generation
        self._position = position  # where `cursor` is not; None until the loop has found it
        self.is_paused = False
        self.is_queued = False  # the consumer will look at it
        self.is_told = False  # the user was given `error`
        self.check_crc = check_crc
        self.error: KwireError | None = None  # raised to the user, or about to be; the lane ends here until a seek
        self._release = release
        self._retire = retire
        self._items: deque[CompletedFetch | PositionResolved | PartitionFailed] = deque()
        self._chunk: CompletedFetch | None = None  # being read
        self._at = 0  # the next batch in it
        self._filter = _CONTROL_ONLY
        self.cursor: RecordReader | None = None  # in the batch being handed out

    @property
    def position(self) -> int | None:
        return self._position if self.cursor is None else self.cursor.position

    def put(self, item: CompletedFetch | PositionResolved | PartitionFailed) -> None:
        """What the loop posted for this generation, in its order."""
        if self.error is not None:
            if isinstance(item, CompletedFetch):
                self._release(item)  # fetched before the loop heard that the reader got stuck
        elif self._position is not None:
            self._items.append(item)
        elif isinstance(item, PositionResolved):
            self._position = item.offset  # nothing can stand before it, and who asks for the position waits for this
        elif isinstance(item, PartitionFailed):
            self._fail(item.error)

    def restart(self, generation: int, position: int | None) -> None:
        """Stand elsewhere: nothing of the older generation will be handed out."""
        self.clear()
        self.generation, self._position = generation, position
        self.error, self.is_told = None, False

    def clear(self) -> None:
        """Throw away everything not handed out; the position stays."""
        if self.cursor is not None:
            self._leave(self.cursor)
        if self._chunk is not None:
            self._release(self._chunk)
            self._chunk = None
        for item in self._items:
            if isinstance(item, CompletedFetch):
                self._release(item)
        self._items.clear()

    def has_next(self) -> bool:
        """Whether `cursor` has records, having read as far as needed to know. If not, `error` may be set."""
        while self.cursor is None or not len(self.cursor):
            if self.cursor is not None:
                self._leave(self.cursor)
            if self.error is not None or not self._read_on():
                return False
        return True

    def _leave(self, cursor: RecordReader) -> None:
        self._position, self.cursor = cursor.stop(), None  # an iteration may have it in hand
        self._retire(cursor)

    # -- reading on

    def _read_on(self) -> bool:
        """Get to the next batch, item or failure; False when there is nothing more."""
        chunk = self._chunk
        if chunk is not None and self._at == len(chunk.data):
            self._chunk = None
            self._release(chunk)
        if self._chunk is None and not self._next_item():
            return False
        if self._chunk is not None:
            try:
                self._read_batch(self._chunk)
            except KwireError as error:
                self._fail(self._unreadable(error))
        return True

    def _next_item(self) -> bool:
        if not self._items:
            return False
        item = self._items.popleft()
        if isinstance(item, CompletedFetch):
            assert item.offset == self._position, "a fetch that does not follow on from what was read"
            self._chunk = item
            self._at = 0
            self._filter = BatchFilter(item.aborted) if item.aborted else _CONTROL_ONLY
        elif isinstance(item, PositionResolved):
            self._position = item.offset
        else:
            self._fail(item.error)
        return True

    def _read_batch(self, chunk: CompletedFetch) -> None:
        assert self._position is not None
        if not chunk.aborted:
            found = open_batches(
                ConsumerRecord, self.topic, self.partition, self._position,
                chunk.data, self._at, self.check_crc, _TOGETHER_BYTES,
            )  # fmt: skip
            if found is not None:
                self.cursor, self._at = found
                return
        batch = next(decode_batches(chunk.data, start=self._at, check_crc=self.check_crc), None)
        if batch is None:
            self._at = len(chunk.data)
            return
        self._at += batch.size_bytes
        if self._filter.hides(batch):
            self._position = max(batch.next_offset, self._position)
        else:
            self.cursor = batch.cursor(ConsumerRecord, self.topic, self.partition, self._position)

    def _fail(self, error: KwireError) -> None:
        self.clear()
        self.error = error

    def _unreadable(self, cause: KwireError) -> KwireError:
        """Where in the log it is; `cause` at best knows where in the answer."""
        if not isinstance(cause, CorruptRecordsError):  # a codec that is not installed
            return cause.at(topic=self.topic, partition=self.partition, offset=self.position)
        error = CorruptRecordsError(
            f"the batch at this offset cannot be read: {cause.message}",
            remedy="seek past it; if it is damaged at the broker too, another replica may have it whole",
            topic=self.topic,
            partition=self.partition,
            offset=self.position,
        )
        error.__cause__ = cause
        return error
