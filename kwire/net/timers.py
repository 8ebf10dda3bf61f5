"""Timers: a heap of (time, action) with cancellation, for the selector, the embedded broker and the simulation.

The caller reads the clock and passes the time to `run`, so timers work on virtual time too.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from math import inf
from typing import TypeAlias

Action: TypeAlias = Callable[[float], None]

# Cancelled timers stay in the heap; they are swept out when they are more than this and more than half of it.
_SWEEP_MIN = 64


class Timer:
    """One action, due at `when` (seconds). It runs once or is cancelled."""

    __slots__ = ("_action", "_timers", "when")

    def __init__(self, timers: Timers, when: float, action: Action) -> None:
        self.when = when
        self._action: Action | None = action
        self._timers = timers

    @property
    def is_pending(self) -> bool:
        return self._action is not None

    def cancel(self) -> None:
        """Prevent the action. Does nothing if it has run or was cancelled before."""
        if self._action is not None:
            self._action = None
            self._timers._cancelled_one()


class Timers:
    """Timers by deadline. Those of the same deadline run in the order in which they were set."""

    __slots__ = ("_cancelled", "_heap", "_is_running", "_number", "next_at")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._number = 0  # of the timer set last
        self._cancelled = 0  # timers in the heap that will not run
        self._is_running = False
        self.next_at = inf  # when the earliest timer is due

    def __len__(self) -> int:
        """Return how many timers are pending."""
        return len(self._heap) - self._cancelled

    def at(self, when: float, action: Action) -> Timer:
        """Call `action(now)` in the first `run` at or after `when`."""
        timer = Timer(self, when, action)
        self._number += 1
        heapq.heappush(self._heap, (when, self._number, timer))
        if when < self.next_at:
            self.next_at = when
        return timer

    def run(self, now: float) -> int:
        """Run the actions that are due, each with `now`, and return how many.

        A timer that an action sets waits for the next `run`, even if it is due, so that every run ends. An action that
        raises ends the run; the timers behind it stay due.
        """
        last = self._number
        set_meanwhile: list[tuple[float, int, Timer]] = []
        count = 0
        self._is_running = True
        try:
            while self._heap and self._heap[0][0] <= now:
                entry = heapq.heappop(self._heap)
                timer = entry[2]
                if timer._action is None:
                    self._cancelled -= 1
                elif entry[1] > last:
                    set_meanwhile.append(entry)
                else:
                    action, timer._action = timer._action, None
                    count += 1
                    action(now)
        finally:
            for entry in set_meanwhile:
                heapq.heappush(self._heap, entry)
            self._is_running = False
            self._tidy()
        return count

    def _cancelled_one(self) -> None:
        self._cancelled += 1
        if not self._is_running:  # else at its end, when all timers are in the heap again
            self._tidy()

    def _tidy(self) -> None:
        """Drop cancelled timers where it pays, and find the earliest of the others."""
        if self._cancelled > _SWEEP_MIN and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].is_pending]
            heapq.heapify(self._heap)
            self._cancelled = 0
        while self._heap and not self._heap[0][2].is_pending:
            heapq.heappop(self._heap)
            self._cancelled -= 1
        self.next_at = self._heap[0][0] if self._heap else inf
