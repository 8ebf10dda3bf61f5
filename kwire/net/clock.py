"""Time as an argument: the clock of a selector and of everything above it.

A clock gives monotonic seconds for deadlines, milliseconds since 1970 for timestamps, and the wait for sockets, because
real and virtual time wait differently. Nothing else in kwire reads time.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

# `selectors.BaseSelector.select`: seconds to wait at most (None: no limit) -> what became ready.
Select = Callable[[float | None], list[T]]

# How long, in real seconds, a virtual clock waits for a peer in another thread.
_GRACE_SECONDS = 0.002


class Clock(Protocol):
    """Time, as kwire uses it."""

    def now(self) -> float:
        """Return monotonic seconds, from any start."""
        ...

    def time_ms(self) -> int:
        """Return wall time: milliseconds since 1970-01-01 UTC."""
        ...

    def wait(self, select: Select[T], timeout: float | None) -> list[T]:
        """Run `select` until something is ready, or for `timeout` seconds of this clock; return what is ready.

        It may return early with an empty list; `poll` then returns, too.
        """
        ...


class SystemClock:
    """The clock of the system."""

    __slots__ = ()

    now = staticmethod(time.monotonic)  # no wrapper: each turn of a loop calls it several times

    wait: Callable[..., Any] = operator.call  # select(timeout), without a Python frame

    def time_ms(self) -> int:
        return time.time_ns() // 1_000_000


class VirtualClock:
    """A clock for tests: it stands still until `advance`, and a `poll` on it hardly sleeps.

    With `autojump` a wait in which nothing becomes ready moves the clock by its timeout, so that a test of a ten-second
    timeout ends at once. Use it only where both ends run in the test's thread: a peer in another thread does not get
    those ten seconds.

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
            return select(None)  # only a peer or a wakeup, in real time, ends it
        ready = select(min(timeout, _GRACE_SECONDS))
        if not ready and self._autojump:
            self._now += timeout
        return ready
