"""When the selector must wake by itself: a heap of (time, whom to tell), with cancellation.

Owns the order of timers and refuses to read a clock.
"""
from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True, order=True)
class Timer:
    """One entry. A cancelled timer keeps its place in the heap, but lets go of what it would have called."""

    at: float
    number: int  # timers of the same time fire in the order in which they were set
    action: Callable[[float], None] | None = field(compare=False)

    def cancel(self) -> None:
        self.action = None


class Timers:
    __slots__ = ("_heap", "_number")

    def __init__(self) -> None:
        self._heap: list[Timer] = []
        self._number = 0

    def at(self, time: float, action: Callable[[float], None]) -> Timer:
        """Call `action(now)` in the first `fire` at or after `time`."""
        self._number += 1
        timer = Timer(time, self._number, action)
        heapq.heappush(self._heap, timer)
        return timer

    def next(self) -> float | None:
        """The time of the earliest timer."""
        while self._heap and self._heap[0].action is None:
            heapq.heappop(self._heap)
        return self._heap[0].at if self._heap else None

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
