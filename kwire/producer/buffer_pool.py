"""The memory of a producer's records, and the callers that wait for some of it.

The `RecordAccumulator` accepts a record while there is room, without a lock of this module. A caller that finds no room
blocks or gets an error (`append_or_wait`), or leaves its record in a queue and is notified (`append_nowait`, for
asyncio).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from kwire.errors import BufferFullError, KwireError
from kwire.producer.accumulator import SHARE, RecordAccumulator
from kwire.producer.failures import own_copy
from kwire.producer.futures import MakeResponse, ProduceResponse

if TYPE_CHECKING:
    from kwire.producer.options import WhenFull
    from kwire.producer.producer_request import DeliveryOptions

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Append(Protocol[R_co]):
    """Records that a caller wants to append: one, or many of one call."""

    @property
    def topic(self) -> str:
        """Where it goes."""
        ...

    @property
    def left(self) -> int:
        """How many records are still to go in."""
        ...

    def append_to(self, accumulator: RecordAccumulator) -> R_co | None:
        """Append as many records as there is room for; return the response when all are appended, else None."""


class PendingRecord(NamedTuple):
    """A record to append. `partition` None: the producer chooses."""

    topic: str
    partition: int | None
    record: tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
    size_bytes: int
    terms: DeliveryOptions | None = None
    make: MakeResponse = ProduceResponse

    @property
    def left(self) -> int:
        return 1

    def append_to(self, accumulator: RecordAccumulator) -> ProduceResponse | None:
        place = accumulator.append(self.topic, self.partition, *self.record, self.size_bytes, self.terms)
        return None if place is None else self.make(*place)


class BlockedAppend(Generic[R]):
    """An append that waits for memory. `notify(error)` is called once, by the thread that ends the wait; None: done."""

    __slots__ = ("append", "error", "notify", "response")

    def __init__(self, append: Append[R], notify: Callable[[Exception | None], object]) -> None:
        self.append = append
        self.notify = notify
        self.response: R | None = None  # once it went in
        self.error: Exception | None = None  # that it met as it was to go in


class BufferPool:
    """The memory of one producer. The accumulator bounds it, and each topic's share of it.

    Senders that find no room wait in one queue, threads and tasks alike. Those of a topic are served in the order in
    which they came, and before every `send` for it that comes later. A topic that has its share holds up no other.
    Where a topic that holds little finds no room, all others get little until it is served
    (`RecordAccumulator.is_short`): small
    records do not pass a large one for ever.
    """

    def __init__(
        self, accumulator: RecordAccumulator, when_full: WhenFull, block_s_max: float, wakeup: Callable[[], object]
    ) -> None:
        self.accumulator = accumulator
        self._when_full = when_full
        self._block_s_max = block_s_max
        self._wakeup = wakeup
        self._lock = threading.Lock()
        # Who waits, in order. A sender is put here before it looks for room once more, and `release` gives room before
        # it looks whether anybody waits: so one of the two sees the other.
        self._queue: dict[BlockedAppend[Any], None] = {}
        self._awaited: dict[str, int] = {}  # the topics for which somebody waits, and how many do
        self._closed: KwireError | None = None

    @property
    def used_bytes(self) -> int:
        return self.accumulator.used_bytes

    @property
    def bytes_max(self) -> int:
        return self.accumulator.bytes_max

    @property
    def is_full(self) -> bool:
        """Whether some sender waits for memory: then nothing may be held back for the sake of a larger batch."""
        return bool(self._queue)

    @property
    def waiting(self) -> int:
        """How many senders wait for memory."""
        return len(self._queue)

    def waiting_for(self, topic: str) -> int:
        """How many of them wait for memory for a topic."""
        return self._awaited.get(topic, 0)

    def append_or_wait(self, append: Append[R], block_s_max: float | None = None) -> R:
        """Hand it over; blocks or raises BufferFullError when there is no room. Of many some may be in then."""
        if append.topic not in self._awaited:
            response = self._append(append)
            if response is not None:
                return response
        admitted = threading.Lock()
        admitted.acquire()
        refused: list[Exception] = []

        def notify(error: Exception | None) -> None:
            if error is not None:
                refused.append(error)
            admitted.release()

        blocked = self.append_nowait(append, notify)
        if not isinstance(blocked, BlockedAppend):
            return blocked
        limit = self._block_s_max if block_s_max is None else min(block_s_max, self._block_s_max)
        left = append.left
        try:
            while not admitted.acquire(timeout=limit):
                if left != append.left:
                    left = append.left  # of many: as long as some went in
                elif self.cancel(blocked):
                    raise self.full_error(append.topic)
                else:
                    admitted.acquire()  # it went in just now
                    break
        except BaseException:
            self.cancel(blocked)
            raise
        if refused:
            raise refused[0]
        assert blocked.response is not None
        return blocked.response

    def append_nowait(self, append: Append[R], notify: Callable[[Exception | None], object]) -> R | BlockedAppend[R]:
        """As `append_or_wait`, but never blocks: returns the record's place in the queue where there is no room.

        It is behind those of its topic that came before, whatever their sizes. `notify` is called on the thread that
        makes room, or that closes, and must not raise. Raises BufferFullError where senders are not to wait.
        """
        if append.topic not in self._awaited:
            response = self._append(append)
            if response is not None:
                return response
        with self._lock:
            if self._closed is not None:
                raise own_copy(self._closed)
            if self._when_full == "raise":
                raise self.full_error(append.topic)
            blocked = BlockedAppend(append, notify)
            self._queue[blocked] = None
            self._awaited[append.topic] = self._awaited.get(append.topic, 0) + 1
            self.accumulator.set_awaited(append.topic, True)
            entered = self._append_waiting()  # room that was made since it was looked for
        if blocked.response is None:
            self._wakeup()  # it must not linger now
        _notify(one for one in entered if one is not blocked)
        if blocked.error is not None:
            raise blocked.error
        return blocked if blocked.response is None else blocked.response

    def cancel(self, blocked: BlockedAppend[Any]) -> bool:
        """Take a record back. False: it is too late, `notify` was called or is just about to be."""
        with self._lock:
            was_waiting = blocked in self._queue
            if was_waiting:
                self._remove(blocked)
            entered = self._append_waiting()  # it may have been the large one that held up the rest
        _notify(entered)
        return was_waiting

    def release(self, sizes: Mapping[str, int]) -> None:
        """Give back memory, in bytes by topic."""
        for topic, size_bytes in sizes.items():
            self.accumulator.release(topic, size_bytes)
        if self._queue:
            with self._lock:
                entered = self._append_waiting()
            _notify(entered)

    def close(self, error: KwireError) -> None:
        """Every put from now on, waiting ones included, raises `error`."""
        self.accumulator.is_open = False
        with self._lock:
            self._closed = error
            refused, self._queue = list(self._queue), {}
            self._awaited.clear()
        for blocked in refused:
            blocked.notify(own_copy(error))

    def full_error(self, topic: str) -> BufferFullError:
        """What to raise where there is no room for a topic's record: it names the topic that holds most."""
        largest, held = self.accumulator.largest()
        whose = f", {held} of them for topic {largest}" if held else ""
        what = f"{self.used_bytes} of {self.bytes_max} buffered bytes are waiting to be delivered{whose}"
        if self.used_bytes < self.bytes_max and topic == largest:
            what += f", which has its share: it may hold at most {SHARE} times what is free"
        return BufferFullError(
            what,
            remedy="send more slowly, raise max_buffered_bytes, or ask "
            f"producer.explain({largest or topic!r}) why it is not delivered",
            topic=topic,
        )

    def _append(self, append: Append[R]) -> R | None:
        """Take it in, if there is room."""
        if self._closed is not None:
            raise own_copy(self._closed)
        return append.append_to(self.accumulator)

    def _remove(self, blocked: BlockedAppend[Any]) -> None:
        """It waits no more. Under the lock."""
        topic = blocked.append.topic
        del self._queue[blocked]
        self._awaited[topic] -= 1
        if not self._awaited[topic]:
            del self._awaited[topic]
            self.accumulator.set_awaited(topic, False)

    def _append_waiting(self) -> list[BlockedAppend[Any]]:
        """Take in what there is room for now: in order, and of a topic none before an earlier one. Under the lock."""
        accumulator = self.accumulator
        accumulator.is_short = False
        entered: list[BlockedAppend[Any]] = []
        stopped: set[str] = set()
        for blocked in self._queue:
            topic = blocked.append.topic
            if topic in stopped:
                continue
            try:
                blocked.response = self._append(blocked.append)
            except Exception as error:  # the sender's to hear, not this thread's
                blocked.error = error
            if blocked.response is not None or blocked.error is not None:
                entered.append(blocked)
                continue
            stopped.add(topic)
            if accumulator.held(topic) <= accumulator.bytes_max - accumulator.used_bytes:
                accumulator.is_short = True  # not its own share is in its way
            if len(stopped) == len(self._awaited):
                break
        for blocked in entered:
            self._remove(blocked)
        return entered


def _notify(entered: Iterable[BlockedAppend[Any]]) -> None:
    for blocked in entered:
        blocked.notify(blocked.error)
