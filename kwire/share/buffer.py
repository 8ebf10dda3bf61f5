"""What passes from the loop thread to the callers' threads."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from kwire.cluster.waiting import Signal
from kwire.errors import KwireError
from kwire.share.acknowledgements import Acknowledgements
from kwire.share.acquired import AcquiredRecords


@dataclass(frozen=True, slots=True, eq=False)
class AcknowledgeResult:
    """What became of acknowledgements of one partition: None, or the error."""

    topic: str
    partition: int
    acknowledgements: Acknowledgements
    error: KwireError | None


Item = AcquiredRecords | AcknowledgeResult | KwireError


class ShareBuffer:
    """The queue between the threads. The loop thread calls `post` and `close`, the callers' threads the rest."""

    def __init__(self) -> None:
        self.end: KwireError | None = None
        self.taken = 0  # acquired records that callers have taken: the loop thread compares it with what it posted
        self._lock = threading.Lock()
        self._items: list[Item] = []
        self._signals: set[Signal] = set()
        self.wakeups = 0

    def post(self, item: Item) -> None:
        with self._lock:
            self._items.append(item)
            self._wake()

    def close(self, error: KwireError) -> None:
        """End the buffer: callers get `error` from now on."""
        with self._lock:
            if self.end is None:
                self.end = error
            self._wake()

    @property
    def has_items(self) -> bool:
        return bool(self._items)

    def take(self) -> list[Item]:
        if not self._items:
            return []
        with self._lock:
            items, self._items = self._items, []
        self.taken += sum(isinstance(item, AcquiredRecords) for item in items)
        return items

    def wake_all(self) -> None:
        """Wake every waiting caller, because something other than a post has changed."""
        with self._lock:
            self.wakeups += 1
            self._wake()

    async def wait(self, signal: Signal, wakeups_seen: int, timeout: float) -> None:
        """Wait until there are items, `wake_all` was called (after `wakeups_seen`), the end, or `timeout` seconds."""
        with self._lock:
            if self._items or self.wakeups != wakeups_seen or self.end is not None:
                return
            self._signals.add(signal)
        try:
            await signal.wait(timeout)
        finally:
            with self._lock:
                self._signals.discard(signal)

    def _wake(self) -> None:
        while self._signals:
            self._signals.pop().set()
