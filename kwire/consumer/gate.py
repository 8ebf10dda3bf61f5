"""The poll gate: whether the program may be using records that were handed out.

The gate is closed from when `poll` or an iteration returns records until the program polls again. What takes partitions
away waits for an open gate, so that nobody works on records of partitions that another member has by now. The
`PollTimer` bounds how long the gate may be closed (max_poll_interval_ms).

| event                                   | gate                            | timer     |
|-----------------------------------------|---------------------------------|-----------|
| `poll` or an iteration needs records    | open: the earlier are processed | stopped   |
| records are returned                    | closed                          | restarted |
| nothing is returned                     | open                            | restarted |
| `allow_rebalance()`                     | open until the next records     | restarted |
| `keep_alive()`                          | as before                       | restarted |
| `close()`                               | open                            | stopped   |
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import inf
from typing import TYPE_CHECKING

from kwire.cluster.requests import ClusterView, PendingRequest
from kwire.errors import KwireError

if TYPE_CHECKING:
    from kwire.consumer.group_member import PollTimer

# How often the loop looks whether an iteration goes on, and whether a step can be done without the program.
_WATCH_SECONDS = 0.1


class PollGate:
    """The gate. The consumer's lock guards it."""

    __slots__ = ("_closed_at", "_closed_seconds", "is_open", "timer")

    def __init__(self, timer: PollTimer) -> None:
        self.is_open = True
        self.timer = timer
        self._closed_at = 0.0
        self._closed_seconds = 0.0  # up to when it was opened last

    def closed_seconds(self, now: float) -> float:
        """Return for how long in all the gate was closed."""
        return self._closed_seconds + (0.0 if self.is_open else max(0.0, now - self._closed_at))

    def enter(self, clock: Callable[[], float]) -> None:
        """Note that the program polls: the records that it got are processed."""
        if not self.is_open:
            self._open(clock())
        self.timer.poll_began()

    def leave(self, now: float, *, has_records: bool) -> None:
        """Note that the program gets records, or none."""
        self.is_open = not has_records
        self._closed_at = now
        self.timer.poll_ended(now)

    def allow(self, now: float) -> None:
        """Note that the program does not need its records any more, but does not poll yet."""
        self._open(now)
        self.timer.poll_ended(now)

    def _open(self, now: float) -> None:
        self._closed_seconds = self.closed_seconds(now)
        self.is_open = True


class GateWatch:
    """A `StateMachine` for what the loop has to do about the gate between two calls of the program.

    `progress` returns something that changes as an iteration goes through the records that it has: that restarts the
    poll timer. `on_step` is called again and again while a step waits for the program.
    """

    def __init__(
        self,
        timer: PollTimer,
        interval: float | None,
        progress: Callable[[], object],
        has_step: Callable[[], bool],
        on_step: Callable[[], object],
    ) -> None:
        self._timer = timer
        self._interval = interval
        self._progress = progress
        self._seen: object = None
        self._has_step = has_step
        self._on_step = on_step
        self._now = 0.0

    def turn(self, now: float, view: ClusterView) -> list[PendingRequest]:
        self._now = now
        since = self._timer.since
        if self._interval is not None and since != inf and now >= since + self._interval / 2:
            seen = self._progress()
            if seen != self._seen:
                self._seen = seen
                self._timer.poll_ended(now)
        if self._has_step():
            self._on_step()
        return []

    def deadline(self) -> float | None:
        if self._has_step():
            return self._now + _WATCH_SECONDS
        since = self._timer.since
        if self._interval is None or since == inf:
            return None
        half, step = since + self._interval / 2, self._interval / 8
        return half if half > self._now else self._now + step

    def topics(self) -> Collection[str]:
        return ()

    def closed(self, error: KwireError) -> None:
        """Do nothing: no caller waits."""
