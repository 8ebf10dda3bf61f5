"""The poll gate and the timer of the poll interval: whether the user may be using records that were handed out.

The gate is closed from the moment in which `poll` returns records, or an iteration its next ones, until the user asks
for more. What takes partitions away waits for an open gate, so that nobody works on records of partitions that another
member has by now. The timer bounds how long the gate may be closed (max_poll_interval_ms).

| event                                  | gate                              | timer             |
|----------------------------------------|-----------------------------------|-------------------|
| `poll` or an iteration asks for records | open: the earlier are processed   | stopped           |
| records are returned                   | closed                            | restarted         |
| nothing is returned                    | open                              | restarted         |
| `allow_rebalance()`                    | open until the next records       | restarted         |
| `keep_alive()`                         | as before                         | restarted         |
| `close()`                              | open                              | stopped           |
"""

from __future__ import annotations

from collections.abc import Callable


class PollTimer:
    """Measures the time since the user last asked for records. Lock-free: one thread writes, the loop thread reads.

    `interval` is in seconds; None switches the timer off. `progress` returns something that changes while an iteration
    reads the records that it has: that restarts the timer too, though nobody tells it.
    """

    __slots__ = ("_interval", "_on_poll", "_progress", "_seen", "_since")

    def __init__(self, interval: float | None, progress: Callable[[], object] | None = None) -> None:
        self._interval = interval
        self._since: float | None = None
        self._progress = progress
        self._seen: object = None
        self._on_poll: Callable[[], object] | None = None

    # -- for the thread that polls

    def restart(self, now: float) -> None:
        """Begin to measure: `poll` returns."""
        self._since = now

    def stop(self) -> None:
        """Measure nothing: the user waits in `poll`, or closes. Makes the call that `on_next_poll` asked for."""
        self._since = None
        if self._on_poll is not None:
            on_poll, self._on_poll = self._on_poll, None
            on_poll()

    # -- for the loop thread

    @property
    def is_polling(self) -> bool:
        """Whether the timer is stopped: the user waits in `poll`, or has never polled."""
        return self._since is None

    def expires_at(self) -> float | None:
        """Return when the interval ends; None while it is stopped or off. Then ask `has_expired`."""
        since = self._since
        return None if since is None or self._interval is None else since + self._interval

    def has_expired(self, now: float) -> bool:
        """Return whether the user has not asked for records for the whole interval; False if an iteration went on."""
        since = self._since
        if since is None or self._interval is None or now < since + self._interval:
            return False
        if self._progress is not None:
            seen = self._progress()
            if seen != self._seen:
                self._seen = seen
                if self._since == since:
                    self._since = now
                return False
        return True

    def on_next_poll(self, callback: Callable[[], object]) -> None:
        """Call `callback` on the polling thread when it next asks for records: `LoopThread.call_soon` of a rejoin."""
        self._on_poll = callback


class PollGate:
    """The gate. The consumer's lock guards it."""

    __slots__ = ("is_open", "timer")

    def __init__(self, timer: PollTimer) -> None:
        self.is_open = True
        self.timer = timer

    def enter(self) -> None:
        """The user asks for records: those handed out before are processed."""
        self.is_open = True
        self.timer.stop()

    def leave(self, now: float, *, has_records: bool) -> None:
        """The user gets records, or none."""
        self.is_open = not has_records
        self.timer.restart(now)

    def allow(self, now: float) -> None:
        """The user has no use for the records any more, but does not ask for others yet."""
        self.is_open = True
        self.timer.restart(now)
