"""Virtual time: what happens when, one thing after another, in one thread.

Virtual time: what happens when, one thing after another, in one thread.

Owns the clock, the queue of things to do, and the loops (a client's, the brokers'), each of which turns until it would
sleep. A loop sleeps only in its selector's `poll`, which is the first thing in its turn; there a simulated selector
raises `WouldSleepError` instead, and the turn is begun again when there is something to tell. Nothing is lost by that,
and unlike a poll that answers early with nothing, it gives a loop no turn that it would not have had on real sockets: a
loop that forgets to ask for its next turn stands still here too, and is found.

It refuses to know what is simulated.

The trace of a run: every event in order, as a hash that two runs of a seed must share, and as lines to be read.

Owns the proof that a run is a function of its seed. Lines are kept only when somebody wants to read them.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

from kwire.net.clock import Select, T
from kwire.net.timers import Timer, Timers
from kwire.wire.frame import BytesLike

# So many turns of one loop in one moment are a loop that does not sleep although nothing happens.
_TURNS_PER_MOMENT_MAX = 2_000
# And so many rounds of things to do in one moment are loops, or timers, that keep each other awake.
_ROUNDS_PER_MOMENT_MAX = 10_000


class WouldSleepError(Exception):
    """A selector has nothing to tell. Only `Loop.run` catches it."""


class SpinningError(Exception):
    """There is always something to do at once, and time does not move."""


class Loop:
    """Something that turns: `turn` is called again and again until it would sleep, and again after `ring`."""

    def __init__(self, world: World, name: str, turn: Callable[[], None]) -> None:
        self.name = name
        self.turns = 0
        self._world = world
        self._turn = turn
        self._is_rung = False
        self._is_stopped = False

    def ring(self) -> None:
        """Let it turn, at this moment, after what is under way."""
        if not self._is_rung and not self._is_stopped:
            self._is_rung = True
            self._world.at(self._world.now(), self._run)

    def stop(self) -> None:
        self._is_stopped = True

    def _run(self, now: float) -> None:
        self._is_rung = False
        before = self.turns
        while not self._is_stopped:
            try:
                self._turn()
            except WouldSleepError:
                return
            self.turns += 1
            if self.turns - before > _TURNS_PER_MOMENT_MAX:
                raise SpinningError(f"{self.name} made {self.turns - before} turns at {now:.3f} s")


class World:
    """`at` says what to do when; `run` does it. Things of the same moment are done in the order in which they came.

    It is also the `Clock` of everything in it.
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
        """A moment that is over means now."""
        return self._timers.at(max(when, self._now), action)

    def run(self, until: float, *, is_over: Callable[[], bool] = lambda: False) -> None:
        """Let time pass until then, or until `is_over` says so."""
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
    def __init__(self, *, keeps_lines: bool = False) -> None:
        self.lines: list[str] | None = [] if keeps_lines else None
        self.events = 0
        self._hash = blake2b(digest_size=16)

    def note(self, now: float, what: str, data: BytesLike = b"") -> None:
        """`data` counts for the hash; of it the line has only the length."""
        line = f"{now:.9f} {what}"
        self.events += 1
        self._hash.update(line.encode())
        self._hash.update(data)
        if self.lines is not None:
            self.lines.append(f"{now:12.6f} {what}" + (f" ({len(data)} bytes)" if data else ""))

    def digest(self) -> str:
        return self._hash.hexdigest()
