"""Which ids a partition of the queue topic had lately, so that a message that was sent twice is delivered once (Q89).

A producer puts messages with the same id into the same partition, whose records one consumer of the queue reads. The
queue topic itself is the state: a consumer that gets a partition first reads again what the last window has, up to the
committed position, and only notes the ids. So nothing is lost by a restart or a rebalance. Redeliveries have the id,
too, and are no duplicates: their headers say when the message was first sent.
"""

from __future__ import annotations

from collections import deque

# More ids of one partition are forgotten before their time.
_IDS_MAX = 1_000_000


class DedupWindow:
    """The ids of one partition within `window_ms`, by the append times of its records."""

    def __init__(self, window_ms: int, known_until: int = 0) -> None:
        self.known_until = known_until  # records before this offset were handed out, or are in progress: by someone
        self._window_ms = window_ms
        self._first: dict[str, int] = {}  # id -> the offset that has it first
        self._order: deque[tuple[int, str]] = deque()  # (append time, id)

    def __len__(self) -> int:
        return len(self._first)

    def is_duplicate(self, id: str, offset: int, timestamp_ms: int) -> bool:
        """Note the id of a message that is sent for the first time; return whether it was sent before."""
        order = self._order
        while order and (order[0][0] <= timestamp_ms - self._window_ms or len(order) >= _IDS_MAX):
            del self._first[order.popleft()[1]]
        if id in self._first:
            return self._first[id] != offset  # the same record is read again after a failure
        self._first[id] = offset
        order.append((timestamp_ms, id))
        return False


__all__ = ["DedupWindow"]
