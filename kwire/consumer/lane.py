"""One partition as the user's thread sees it: what was fetched and not yet read, and the position.

The position is the offset of the next record to be handed out; a record counts as consumed when it is, and not before.
Batches are decompressed, checked and decoded here, one when the one before it was read to the end: on the user's
thread, so that the event loop never does it, and only what is read costs anything.

A lane also keeps order between records and what happened after them: the loop posts an error of a partition behind the
records fetched before it, so it is met behind them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from kwire.consumer.aborted import BatchFilter
from kwire.consumer.inbox import Chunk, Failure, Moved
from kwire.consumer.record import ConsumerRecord
from kwire.errors import CorruptRecordsError, KwireError
from kwire.records import decode_batches
from kwire.wire.accel import open_batches

if TYPE_CHECKING:
    from kwire.wire.accel import Cursor

# Batches are opened together until they are as large, which is mostly all of a partition's answer: so a log of small
# batches costs little more than one of large ones, and a poll few calls.
_TOGETHER_BYTES = 1024 * 1024
# Of an answer without aborted transactions; such a filter remembers nothing.
_CONTROL_ONLY = BatchFilter(())


class Lane:
    """Not thread-safe, but for what may be done with its `cursor`: the consumer's lock is around every call.

    `release` is told of every chunk that is done with, and `retire` of every cursor: its records may still be about.
    """

    __slots__ = (
        "_at", "_chunk", "_filter", "_items", "_position", "_release", "_retire", "check_crc", "cursor", "error",
        "generation", "is_paused", "is_queued", "is_told", "partition", "topic",
    )  # fmt: skip

    def __init__(
        self, topic: str, partition: int, generation: int, position: int | None,
        *, check_crc: bool, release: Callable[[Chunk], None], retire: Callable[[Cursor], None],
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
        self._items: deque[Chunk | Moved | Failure] = deque()
        self._chunk: Chunk | None = None  # being read
        self._at = 0  # the next batch in it
        self._filter = _CONTROL_ONLY
        self.cursor: Cursor | None = None  # in the batch being handed out

    @property
    def position(self) -> int | None:
        return self._position if self.cursor is None else self.cursor.position

    def put(self, item: Chunk | Moved | Failure) -> None:
        """What the loop posted for this generation, in its order."""
        if self.error is not None:
            if isinstance(item, Chunk):
                self._release(item)  # fetched before the loop heard that the reader got stuck
        elif self._position is not None:
            self._items.append(item)
        elif isinstance(item, Moved):
            self._position = item.offset  # nothing can stand before it, and who asks for the position waits for this
        elif isinstance(item, Failure):
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
            if isinstance(item, Chunk):
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

    def _leave(self, cursor: Cursor) -> None:
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
        if isinstance(item, Chunk):
            assert item.offset == self._position, "a fetch that does not follow on from what was read"
            self._chunk = item
            self._at = 0
            self._filter = BatchFilter(item.aborted) if item.aborted else _CONTROL_ONLY
        elif isinstance(item, Moved):
            self._position = item.offset
        else:
            self._fail(item.error)
        return True

    def _read_batch(self, chunk: Chunk) -> None:
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

