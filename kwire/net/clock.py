"""Time as an argument: the clock that a selector and everything above it is given.

Owns the two readings (monotonic seconds for deadlines, milliseconds since 1970 for timestamps) and the wait for
sockets, because waiting is the third thing that real and virtual time do differently. Nothing else in kwire reads time.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

# What `selectors.BaseSelector.select` is to a clock: seconds to sleep at most (None: for ever) -> what became ready.
Select = Callable[[float | None], list[T]]

# How long a virtual clock really waits for a peer in another thread before it decides that nothing is coming.
_GRACE_SECONDS = 0.002


class Clock(Protocol):
    """What kwire needs of time."""

    def now(self) -> float:
        """Monotonic seconds, from any start."""
        ...

    def time_ms(self) -> int:
        """Wall time: milliseconds since 1970-01-01 UTC."""
        ...

    def wait(self, select: Select[T], timeout: float | None) -> list[T]:
        """Run `select` so that it ends when something is ready or when `timeout` seconds of this clock are over.

        May answer early with nothing; a clock that does and has not reached the time makes `poll` return.
        """
        ...


class SystemClock:
    """The machine's clock."""

    __slots__ = ()

    now = staticmethod(time.monotonic)  # itself: it is asked several times in each turn of a loop

    wait: Callable[..., Any] = operator.call  # select(timeout), also without a call of Python

    def time_ms(self) -> int:
        return time.time_ns() // 1_000_000


class VirtualClock:
    """A clock for tests: it stands still until `advance`, and a `poll` on it hardly sleeps.

    With `autojump` a wait in which nothing became ready moves the clock on by the time waited for, so that a test of a
    ten-second timeout is over at once. That is only right where both ends live in the test's own thread: a peer in
    another thread is not given those ten seconds.

    >>> clock = VirtualClock(100.0)
    >>> clock.advance(2.5)
    >>> clock.now()
    102.5
    """

    __slots__ = ("_autojump", "_now", "_start", "_time_ms")

    def __init__(self, start: float = 0.0, *, time_ms: int = 1_700_000_000_000, autojump: bool = False) -> None:
        self._start = self._now = start
        self._time_ms = time_ms
        self._autojump = autojump

    def now(self) -> float:
        return self._now

    def time_ms(self) -> int:
        return self._time_ms + round((self._now - self._start) * 1000)

    def advance(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError(f"time does not run backwards: {seconds}")
        self._now += seconds

    def wait(self, select: Select[T], timeout: float | None) -> list[T]:
        if timeout is None:
            return select(None)  # only a peer or a wakeup can end this wait, and they live in real time
        ready = select(min(timeout, _GRACE_SECONDS))
        if not ready and self._autojump:
            self._now += timeout
        return ready
