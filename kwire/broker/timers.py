"""Things to do later, by deadline. The caller owns the clock, so that a simulation can run on virtual time.

Owns the heap of deadlines. It refuses to know what time it is: `run(now)` is told.
"""
from __future__ import annotations

import heapq
from collections.abc import Callable

Action = Callable[[float], None]

# Cancelled timers stay in the heap until they come up; when they are more than half of it, it is swept.
_SWEEP_FROM = 64


class Timer:
    """One thing to do at `when` (seconds). It runs once or is cancelled."""

    __slots__ = ("_timers", "action", "when")

    def __init__(self, timers: Timers, when: float, action: Action) -> None:
        self.when = when
        self.action: Action | None = action
        self._timers = timers

    @property
    def is_pending(self) -> bool:
        return self.action is not None

    def cancel(self) -> None:
        """Harmless when it has run or was cancelled."""
        if self.action is not None:
            self.action = None
            self._timers._cancelled()


class Timers:
    """Timers with the same deadline run in the order in which they were set."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._set = 0
        self._dead = 0

    def __len__(self) -> int:
        return len(self._heap) - self._dead

    def at(self, when: float, action: Action) -> Timer:
        timer = Timer(self, when, action)
        self._set += 1
        heapq.heappush(self._heap, (when, self._set, timer))
        return timer

    def deadline(self) -> float | None:
        """When the next one is due."""
        self._drop_dead()
        return self._heap[0][0] if self._heap else None

    def run(self, now: float) -> int:
        """Run what is due, each with `now`; answers how many. A timer set meanwhile for `now` or earlier waits for the
        next call, so that one call always ends."""
        last = self._set
        later: list[tuple[float, int, Timer]] = []
        ran = 0
        try:
            while self._heap and self._heap[0][0] <= now:
                entry = heapq.heappop(self._heap)
                if entry[1] > last:
                    later.append(entry)
                    continue
                timer = entry[2]
                if timer.action is None:
                    self._dead -= 1
                    continue
                action, timer.action = timer.action, None
                action(now)
                ran += 1
        finally:  # also when an action raises
            for entry in later:
                heapq.heappush(self._heap, entry)
            if later:  # one of them may have been cancelled, and the heap swept, while it was out of the heap
                self._dead = sum(entry[2].action is None for entry in self._heap)
        return ran

    def _drop_dead(self) -> None:
        while self._heap and self._heap[0][2].action is None:
            heapq.heappop(self._heap)
            self._dead -= 1

    def _cancelled(self) -> None:
        self._dead += 1
        if self._dead >= _SWEEP_FROM and self._dead * 2 > len(self._heap):
            # In place: `run` may be half way through the same list.
            self._heap[:] = [entry for entry in self._heap if entry[2].action is not None]
            heapq.heapify(self._heap)
            self._dead = 0
