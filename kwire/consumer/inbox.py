"""What crosses from the event loop to the user's threads, and how much of it there is.

The loop posts; whoever polls takes all, and sleeps until a bell of its own is rung because there is more. Neither side
ever holds the lock for longer than it takes to move a reference. The bytes posted and not yet read to the end are
counted here, in all and by generation, so that the loop stops fetching what nobody reads. A generation is one life of
one assigned partition: assigning or seeking begins a new one, and everything of an older one is thrown away where it
is met.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from kwire.consumer.aborted import AbortedTransaction
from kwire.errors import KwireError


@dataclass(slots=True, eq=False)  # not frozen: to make one would take five times as long
class Chunk:
    """The records of one partition in one Fetch answer, still encoded: whole batches. `offset` is what was asked."""

    generation: int
    offset: int
    data: memoryview
    aborted: tuple[AbortedTransaction, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Moved:
    """The position was found (earliest, latest, by time), or was set anew because the log no longer had the old one."""

    generation: int
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class Failure:
    """The partition stands still until somebody seeks. What was fetched before is handed out first."""

    generation: int
    error: KwireError


@dataclass(frozen=True, slots=True, eq=False)
class Trouble:
    """Nothing can be fetched from anywhere, or a broker cannot be used; of no partition in particular."""

    error: KwireError


Item = Chunk | Moved | Failure | Trouble


class Inbox:
    """`post`, `close`, `room` and `holds` are for the loop's thread, the rest for the user's threads.

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
            if isinstance(item, Chunk):
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

    def room(self, reserved_bytes: int, least: int) -> int:
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

    def release(self, chunk: Chunk) -> None:
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
