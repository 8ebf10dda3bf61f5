"""When the selector must wake by itself: a heap of (time, whom to tell), with cancellation.

Owns the order of timers and refuses to read a clock.
"""
from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf


@dataclass(slots=True, order=True)
class Timer:
    """One entry. A cancelled timer keeps its place in the heap for a while, but not what it would have called."""

    at: float
    number: int  # timers of the same time fire in the order in which they were set
    action: Callable[[float], None] | None = field(compare=False)


# Fewer cancelled timers than this are not worth clearing away.
_CANCELLED_MIN = 64


class Timers:
    __slots__ = ("_cancelled", "_heap", "_number", "next_at")

    def __init__(self) -> None:
        self._heap: list[Timer] = []
        self._cancelled = 0
        self._number = 0
        self.next_at = inf  # the time of the earliest timer

    def at(self, time: float, action: Callable[[float], None]) -> Timer:
        """Call `action(now)` in the first `fire` at or after `time`."""
        self._number += 1
        timer = Timer(time, self._number, action)
        heapq.heappush(self._heap, timer)
        self.next_at = min(self.next_at, time)
        return timer

    def cancel(self, timer: Timer) -> None:
        """The timer will not fire. One that has fired already stays as it is."""
        if timer.action is None:
            return
        timer.action = None
        self._cancelled += 1
        # A broker whose clients come and go sets and cancels many, each for minutes ahead: do not keep them till then.
        if self._cancelled > max(_CANCELLED_MIN, len(self._heap) // 2):
            self._heap = [kept for kept in self._heap if kept.action is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0
        self._look()

    def _look(self) -> None:
        while self._heap and self._heap[0].action is None:
            heapq.heappop(self._heap)
            self._cancelled -= 1
        self.next_at = self._heap[0].at if self._heap else inf

    def fire(self, now: float) -> None:
        """Call all that are due. What they set for `now` itself waits for the next `fire`, so that this one ends."""
        last = self._number
        due: list[Timer] = []
        while self._heap and self._heap[0].at <= now and self._heap[0].number <= last:
            due.append(heapq.heappop(self._heap))
        for timer in due:
            action, timer.action = timer.action, None
            if action is not None:
                action(now)
            else:
                self._cancelled = max(0, self._cancelled - 1)
        self._look()
