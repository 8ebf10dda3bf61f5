"""The door between the threads that send and the loop: bounded memory, and an inbox.

The only lock of the producer's hot path lives here. A sender reserves memory, puts its record into the inbox and, when
the loop would otherwise sleep past it, wakes the loop. The loop empties the inbox in one go and gives memory back when
batches resolve. A sender that finds no room blocks or gets an error (`put`); or it leaves its record in a queue before
the door, is told when it went in, and may take it back until then (`offer`, for asyncio). It refuses to know about
partitions and batches.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple

from kwire.errors import BufferFullError, KwireError
from kwire.producer.batch import RecordTuple
from kwire.producer.response import ProduceResponse

if TYPE_CHECKING:
    from kwire.producer.producer_request import Terms

WhenFull = Literal["block", "raise"]

_NEVER = 1 << 62


class Incoming(NamedTuple):
    """A record on its way to the loop. `partition` is None where the producer is to choose."""

    topic: str
    partition: int | None
    record: RecordTuple
    response: ProduceResponse
    size_bytes: int
    terms: Terms | None = None


class Queued:
    """A record before the door. `tell(error)` is called once, by whoever ends its wait; None: it went in."""

    __slots__ = ("incoming", "tell")

    def __init__(self, incoming: Incoming, tell: Callable[[KwireError | None], object]) -> None:
        self.incoming = incoming
        self.tell = tell


class Intake:
    """`bytes_max` is the bound on the memory of records that are not yet resolved, as counted by their encoded size."""

    def __init__(self, bytes_max: int, when_full: WhenFull, block_s_max: float, wakeup: Callable[[], None]) -> None:
        self.bytes_max = bytes_max
        self._when_full = when_full
        self._block_s_max = block_s_max
        self._wakeup = wakeup
        self._lock = threading.Lock()
        self._freed = threading.Condition(self._lock)
        self._inbox: list[Incoming] = []
        self._inbox_bytes = 0
        self._used_bytes = 0
        # The loop must be woken once the inbox holds this many bytes: 0 while it sleeps without a deadline for what may
        # come, a batch's worth while a linger will wake it anyway, _NEVER once it has been woken.
        self._wake_at_bytes = 0
        self._waiters = 0
        self._queue: dict[Queued, None] = {}  # before the door, in order
        self._closed: KwireError | None = None

    @property
    def used_bytes(self) -> int:
        return self._used_bytes

    @property
    def inbox_records(self) -> int:
        """How many records the loop has not taken in yet."""
        return len(self._inbox)

    @property
    def is_full(self) -> bool:
        """Whether some sender waits for memory: then nothing may be held back for the sake of a larger batch."""
        return self._waiters > 0 or bool(self._queue)

    @property
    def waiting(self) -> int:
        """How many senders wait for memory."""
        return self._waiters + len(self._queue)

    def put(self, incoming: Incoming, block_s_max: float | None = None) -> None:
        """Reserve memory and hand the record over; blocks or raises BufferFullError when there is no room."""
        size = incoming.size_bytes
        with self._lock:
            if self._closed is not None:
                raise self._closed
            if self._used_bytes and self._used_bytes + size > self.bytes_max:
                self._wait_for_room(size, block_s_max)
            must_wake = self._admit(incoming)
        if must_wake:
            self._wakeup()

    def offer(self, incoming: Incoming, tell: Callable[[KwireError | None], object]) -> Queued | None:
        """As `put`, but never blocks: None when the record was handed over, else its place before the door.

        There it is behind those that came before, whatever their sizes. `tell` is called on the thread that makes room,
        or that closes, and must not raise. Raises BufferFullError where senders are not to wait.
        """
        with self._lock:
            if self._closed is not None:
                raise self._closed
            if not self._queue and self._has_room(incoming.size_bytes):
                must_wake = self._admit(incoming)
                queued = None
            elif self._when_full == "raise":
                raise self.full()
            else:
                queued = Queued(incoming, tell)
                self._queue[queued] = None
                must_wake = True  # it must not linger now
        if must_wake:
            self._wakeup()
        return queued

    def withdraw(self, queued: Queued) -> bool:
        """Take a record back. False: it is too late, `tell` was called or is just about to be."""
        with self._lock:
            was_waiting = queued in self._queue
            self._queue.pop(queued, None)
            entered, must_wake = self._let_in()  # it may have been the large one that held up the rest
        self._tell(entered, must_wake)
        return was_waiting

    def take(self, wake_at_bytes: int) -> list[Incoming]:
        """Empty the inbox. From now on the loop wants to be woken when it holds more than `wake_at_bytes`."""
        with self._lock:
            taken, self._inbox = self._inbox, []
            self._inbox_bytes = 0
            self._wake_at_bytes = wake_at_bytes
        return taken

    def gather(self, wake_at_bytes: int) -> None:
        """Until the next `take`, do not wake the loop for less than this; a wake-up that is on its way stays."""
        with self._lock:
            if self._wake_at_bytes != _NEVER:
                self._wake_at_bytes = wake_at_bytes

    def release(self, size_bytes: int) -> None:
        with self._lock:
            self._used_bytes -= size_bytes
            assert self._used_bytes >= 0
            self._freed.notify_all()
            if not self._queue:
                return
            entered, must_wake = self._let_in()
        self._tell(entered, must_wake)

    def close(self, error: KwireError) -> None:
        """Every put from now on, waiting ones included, raises `error`."""
        with self._lock:
            self._closed = error
            self._freed.notify_all()
            refused, self._queue = list(self._queue), {}
        for queued in refused:
            queued.tell(error)

    def full(self) -> BufferFullError:
        return BufferFullError(
            f"{self._used_bytes} of {self.bytes_max} buffered bytes are waiting to be delivered",
            remedy="send more slowly, raise max_buffered_bytes, or ask producer.explain(topic) why it is not delivered",
        )

    def _has_room(self, size: int) -> bool:
        """A record larger than the whole bound is let in alone: otherwise it would wait for ever."""
        return not self._used_bytes or self._used_bytes + size <= self.bytes_max

    def _admit(self, incoming: Incoming) -> bool:
        """Take a record in; True when the loop must be woken for it. Under the lock."""
        self._used_bytes += incoming.size_bytes
        self._inbox.append(incoming)
        self._inbox_bytes += incoming.size_bytes
        must_wake = self._inbox_bytes > self._wake_at_bytes
        if must_wake:
            self._wake_at_bytes = _NEVER
        return must_wake

    def _let_in(self) -> tuple[list[Queued], bool]:
        """Take in, from the front, what there is room for now. Under the lock."""
        entered: list[Queued] = []
        must_wake = False
        for queued in self._queue:
            if not self._has_room(queued.incoming.size_bytes):
                break
            must_wake = self._admit(queued.incoming) or must_wake
            entered.append(queued)
        for queued in entered:
            del self._queue[queued]
        return entered, must_wake

    def _tell(self, entered: list[Queued], must_wake: bool) -> None:
        if must_wake:
            self._wakeup()
        for queued in entered:
            queued.tell(None)

    def _wait_for_room(self, size: int, block_s_max: float | None) -> None:
        is_free = False
        if self._when_full == "block":
            limit = self._block_s_max if block_s_max is None else min(block_s_max, self._block_s_max)
            self._waiters += 1
            self._wakeup()
            try:
                is_free = self._freed.wait_for(lambda: self._closed is not None or self._has_room(size), limit)
            finally:
                self._waiters -= 1
        if self._closed is not None:
            raise self._closed
        if not is_free:
            raise self.full()
