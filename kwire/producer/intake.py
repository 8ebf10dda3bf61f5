"""The door between the threads that send and the loop: bounded memory, and an inbox.

The only lock of the producer's hot path lives here. A sender reserves memory, puts its record into the inbox and, when
the loop would otherwise sleep past it, wakes the loop. The loop empties the inbox in one go and gives memory back when
batches resolve. It refuses to know about partitions and batches.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Literal, NamedTuple

from kwire.errors import BufferFullError, KwireError
from kwire.producer.batch import RecordTuple
from kwire.producer.response import ProduceResponse

WhenFull = Literal["block", "raise"]

_NEVER = 1 << 62


class Incoming(NamedTuple):
    """A record on its way to the loop. `partition` is None where the producer is to choose."""

    topic: str
    partition: int | None
    record: RecordTuple
    response: ProduceResponse
    size_bytes: int


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
        self._closed: KwireError | None = None

    @property
    def used_bytes(self) -> int:
        return self._used_bytes

    @property
    def is_full(self) -> bool:
        """Whether some sender waits for memory: then nothing may be held back for the sake of a larger batch."""
        return self._waiters > 0

    def put(self, incoming: Incoming) -> None:
        """Reserve memory and hand the record over; blocks or raises BufferFullError when there is no room."""
        size = incoming.size_bytes
        with self._lock:
            if self._closed is not None:
                raise self._closed
            # A record larger than the whole bound is let in alone: otherwise it would wait for ever.
            if self._used_bytes and self._used_bytes + size > self.bytes_max:
                self._wait_for_room(size)
            self._used_bytes += size
            self._inbox.append(incoming)
            self._inbox_bytes += size
            must_wake = self._inbox_bytes > self._wake_at_bytes
            if must_wake:
                self._wake_at_bytes = _NEVER
        if must_wake:
            self._wakeup()

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

    def close(self, error: KwireError) -> None:
        """Every put from now on, waiting ones included, raises `error`."""
        with self._lock:
            self._closed = error
            self._freed.notify_all()

    def _wait_for_room(self, size: int) -> None:
        is_free = False
        if self._when_full == "block":
            self._waiters += 1
            self._wakeup()
            try:
                is_free = self._freed.wait_for(
                    lambda: (
                        self._closed is not None or not self._used_bytes or self._used_bytes + size <= self.bytes_max
                    ),
                    self._block_s_max,
                )
            finally:
                self._waiters -= 1
        if self._closed is not None:
            raise self._closed
        if not is_free:
            raise BufferFullError(
                f"{self._used_bytes} of {self.bytes_max} buffered bytes are waiting to be delivered",
                remedy="send more slowly, raise max_buffered_bytes, or find out why the brokers do not keep up",
            )
