"""Virtual time: a clock, a queue of actions, and the loops that run on them, in one thread.

A loop sleeps only in its selector's `poll`, which comes first in its turn. There a simulated selector raises
`WouldSleepError`, and the turn starts again when the selector has a result. So a loop gets no turn that it would not
get on real sockets: a loop that forgets to schedule its next turn stands still here too, and a test notices it.

`Trace` hashes all events of a run. Two runs of the same seed must have the same hash.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

from kwire.net.clock import Select, T
from kwire.net.timers import Timer, Timers
from kwire.wire.frame import BytesLike

# More turns of a loop at one moment mean that it does not sleep although nothing happens.
_TURNS_PER_MOMENT_MAX = 2_000
# More rounds of actions at one moment mean that loops or timers keep each other awake.
_ROUNDS_PER_MOMENT_MAX = 10_000


class WouldSleepError(Exception):
    """A selector has no result. Only `Loop` catches it."""


class SpinningError(Exception):
    """Actions keep each other due, so that time does not move."""


class Loop:
    """Call `turn` until it would sleep, and again after each `wake`."""

    def __init__(self, world: World, name: str, turn: Callable[[], None]) -> None:
        self.name = name
        self.turns = 0
        self._world = world
        self._turn = turn
        self._is_due = False
        self._is_stopped = False
        self._is_frozen = False

    def freeze(self, is_frozen: bool) -> None:
        """Make no turn while frozen, as a process that the system has stopped."""
        self._is_frozen = is_frozen
        if not is_frozen:
            self.wake()

    def wake(self) -> None:
        """Run the loop at this moment, after the current action."""
        if not (self._is_due or self._is_stopped or self._is_frozen):
            self._is_due = True
            self._world.at(self._world.now(), self._run)

    def stop(self) -> None:
        self._is_stopped = True

    def _run(self, now: float) -> None:
        self._is_due = False
        before = self.turns
        while not (self._is_stopped or self._is_frozen):
            try:
                self._turn()
            except WouldSleepError:
                return
            self.turns += 1
            if self.turns - before > _TURNS_PER_MOMENT_MAX:
                raise SpinningError(f"{self.name} made {self.turns - before} turns at {now:.3f} s")


class World:
    """A queue of timed actions, and the `Clock` of everything in it.

    Actions of the same moment run in the order in which they were added.
    """

    def __init__(self, *, time_ms: int) -> None:
        self._now = 0.0
        self._time_ms = time_ms
        self._timers = Timers()

    def now(self) -> float:
        return self._now

    def time_ms(self) -> int:
        return self._time_ms + int(self._now * 1000)

    def jump(self, ms: int) -> None:
        """Set the wall clock to another time."""
        self._time_ms += ms

    def wait(self, select: Select[T], timeout: float | None) -> list[T]:
        raise RuntimeError("nothing waits for sockets in a simulated world")

    def at(self, when: float, action: Callable[[float], None]) -> Timer:
        """Run an action at a time; a time in the past means now."""
        return self._timers.at(max(when, self._now), action)

    def run(self, until: float, *, is_over: Callable[[], bool] = lambda: False) -> None:
        """Let time pass until `until`, or until `is_over` returns true."""
        rounds = 0
        while not is_over():
            due = self._timers.next_at
            if due > until:
                self._now = max(self._now, until)
                return
            rounds = rounds + 1 if due == self._now else 0
            if rounds > _ROUNDS_PER_MOMENT_MAX:
                raise SpinningError(f"{rounds} rounds at {due:.3f} s")
            self._now = due
            self._timers.run(due)


class Trace:
    """The events of a run: their hash, and their lines if a reader wants them."""

    def __init__(self, *, keeps_lines: bool = False) -> None:
        self.lines: list[str] | None = [] if keeps_lines else None
        self.events = 0
        self._hash = blake2b(digest_size=16)

    def note(self, now: float, what: str, data: BytesLike = b"") -> None:
        """Add an event. The hash covers `data`; the line only has its length."""
        line = f"{now:.9f} {what}"
        self.events += 1
        self._hash.update(line.encode())
        self._hash.update(data)
        if self.lines is not None:
            self.lines.append(f"{now:12.6f} {what}" + (f" ({len(data)} bytes)" if data else ""))

    def digest(self) -> str:
        return self._hash.hexdigest()
