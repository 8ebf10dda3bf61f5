"""One partition as the user's thread sees it: what was fetched and not yet read, and the position.

The position is the offset of the next record to be handed out; a record counts as consumed when it is, and not before.
Batches are decompressed, checked and decoded here, one when the one before it was read to the end: on the user's
thread, so that the event loop never does it, and only what is read costs anything.

A lane also keeps order between records and what happened after them: the loop posts an error of a partition behind the
records fetched before it, so it is met behind them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import TYPE_CHECKING

from kwire.consumer.aborted import BatchFilter
from kwire.consumer.inbox import Chunk, Failure, Moved
from kwire.consumer.record import ConsumerRecord
from kwire.errors import CorruptRecordsError, KwireError
from kwire.records import decode_batches

if TYPE_CHECKING:
    from kwire.records import Batch

_new = ConsumerRecord.__new__


class Lane:
    """Not thread-safe: the consumer's lock is around every call. `release` is told of every chunk that is done with."""

    __slots__ = (
        "_batches", "_chunk", "_filter", "_items", "_next_offset", "_records", "_release", "_taken",
        "check_crc", "error", "generation", "is_paused", "is_queued", "is_told", "partition", "position", "topic",
    )  # fmt: skip

    def __init__(
        self, topic: str, partition: int, generation: int, position: int | None,
        *, check_crc: bool, release: Callable[[Chunk], None],
    ) -> None:  # fmt: skip
        self.topic = topic
        self.partition = partition
        self.generation = generation
        self.position = position  # None until the loop has found it
        self.is_paused = False
        self.is_queued = False  # the consumer will look at it
        self.is_told = False  # the user was given `error`
        self.check_crc = check_crc
        self.error: KwireError | None = None  # raised to the user, or about to be; the lane ends here until a seek
        self._release = release
        self._items: deque[Chunk | Moved | Failure] = deque()
        self._chunk: Chunk | None = None  # being read
        self._batches: Iterator[Batch] = iter(())
        self._filter = BatchFilter(())
        self._records: list[ConsumerRecord] = []  # of one batch; the first `_taken` were handed out
        self._taken = 0
        self._next_offset = 0  # where the position will be when `_records` are used up

    def put(self, item: Chunk | Moved | Failure) -> None:
        """What the loop posted for this generation, in its order."""
        if self.error is not None:
            if isinstance(item, Chunk):
                self._release(item)  # fetched before the loop heard that the reader got stuck
        elif self.position is not None:
            self._items.append(item)
        elif isinstance(item, Moved):
            self.position = item.offset  # nothing can stand before it, and who asks for the position waits for this
        elif isinstance(item, Failure):
            self._fail(item.error)

    def restart(self, generation: int, position: int | None) -> None:
        """Stand elsewhere: nothing of the older generation will be handed out."""
        self.clear()
        self.generation, self.position = generation, position
        self.error, self.is_told = None, False

    def clear(self) -> None:
        """Throw away everything not handed out; the position stays."""
        if self._chunk is not None:
            self._release(self._chunk)
            self._chunk = None
        for item in self._items:
            if isinstance(item, Chunk):
                self._release(item)
        self._items.clear()
        self._batches, self._records, self._taken = iter(()), [], 0

    def has_next(self) -> bool:
        """Whether `take` would answer records, having read as far as needed to know. If not, `error` may be set."""
        while self._taken >= len(self._records):
            if self.error is not None or not self._read_on():
                return False
        return True

    def take(self, count: int) -> list[ConsumerRecord]:
        """The next records, at most `count` and of one batch at most; moves the position. Only after `has_next()`."""
        taken = self._records[self._taken : self._taken + count]
        self._taken += len(taken)
        if self._taken < len(self._records):
            self.position = taken[-1].offset + 1
        else:
            self.position, self._records, self._taken = self._next_offset, [], 0
        return taken

    def next_decoded(self) -> ConsumerRecord | None:
        """The next record of the batch at hand, for those who iterate; None at its end, and when the lane is paused."""
        if self._taken >= len(self._records) or self.is_paused:
            return None
        record = self._records[self._taken]
        self._taken += 1
        self.position = record.offset + 1 if self._taken < len(self._records) else self._next_offset
        return record

    # -- reading on

    def _read_on(self) -> bool:
        """Get to the next batch, item or failure; False when there is nothing more."""
        if self._chunk is not None:
            try:
                self._read_batch(self._chunk)
            except KwireError as error:
                self._fail(self._unreadable(error))
            return True
        if not self._items:
            return False
        match self._items.popleft():
            case Chunk() as chunk:
                assert chunk.offset == self.position, "a fetch that does not follow on from what was read"
                self._chunk = chunk
                self._batches = decode_batches(chunk.data, check_crc=self.check_crc)
                self._filter = BatchFilter(chunk.aborted)
            case Moved(offset=offset):
                self.position = offset
            case Failure() as failure:
                self._fail(failure.error)
        return True

    def _read_batch(self, chunk: Chunk) -> None:
        batch = next(self._batches, None)
        if batch is None:
            self._chunk, self._records, self._taken = None, [], 0
            self._release(chunk)
            return
        assert self.position is not None
        if self._filter.hides(batch):
            records = []
        else:
            records = records_of(batch, self.topic, self.partition)
            # A batch is sent whole though the fetch asked for an offset in its middle.
            if records and records[0].offset < self.position:
                records = [record for record in records if record.offset >= self.position]
        self._records, self._taken = records, 0
        self._next_offset = max(batch.next_offset, self.position)
        if not records:
            self.position = self._next_offset  # compacted away, hidden or read before

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


def records_of(batch: Batch, topic: str, partition: int) -> list[ConsumerRecord]:
    """Decode a batch. Assigning slot by slot takes half the time of a call of `__init__` with eight arguments."""
    rows = batch.rows()
    timestamp_type = batch.timestamp_type
    records: list[ConsumerRecord] = list(map(_new, repeat(ConsumerRecord, len(rows))))
    for record, row in zip(records, rows, strict=True):
        record.topic = topic
        record.partition = partition
        record.timestamp_type = timestamp_type
        record.offset, record.timestamp_ms, record.key, record.value, record.headers = row
    return records
