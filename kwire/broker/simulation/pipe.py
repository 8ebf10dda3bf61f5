"""One direction of a connection: bytes on their way, in order, each stretch with its time of arrival.

Owns everything that can happen to bytes between two ends: delay, pieces, a trickle, a standstill, an end after any
byte, and silence, in which bytes vanish and neither end hears of it. It never reorders: only connections overtake each
other. It refuses to know what the bytes mean.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from random import Random

from kwire.broker.simulation.world import World
from kwire.net.timers import Timer


class Mark(Enum):
    """What travels in a pipe besides bytes."""

    OPEN = auto()  # to the end that dialled: the other has accepted
    END = auto()


Piece = bytes | Mark


@dataclass(frozen=True, slots=True)
class Weather:
    """How fast bytes are, in seconds: a base, exponential jitter, now and then a spike; and how often they arrive in
    two pieces."""

    base: float = 0.001
    jitter: float = 0.002
    spike_chance: float = 0.01
    spike_max: float = 0.3
    split_chance: float = 0.03

    def delay(self, random: Random) -> float:
        delay = self.base + random.expovariate(1 / self.jitter)
        if random.random() < self.spike_chance:
            delay += random.uniform(0, self.spike_max)
        return delay


class Pipe:
    """`arrive` is told what comes out; `cut` is called when `cut_after` more bytes have been let in."""

    def __init__(
        self,
        world: World,
        random: Random,
        weather: Weather,
        arrive: Callable[[Piece], None],
        cut: Callable[[], None],
    ) -> None:
        self.cut_after: int | None = None
        self.trickle: tuple[int, float, float] | None = None  # bytes, seconds between them, until when
        self._world = world
        self._random = random
        self._weather = weather
        self._arrive = arrive
        self._cut = cut
        self._way: deque[tuple[float, Piece]] = deque()
        self._last_at = 0.0
        self._held_until = 0.0
        self._is_paused = False
        self._is_ended = False
        self._is_silent = False
        self._timer: Timer | None = None

    @property
    def is_silent(self) -> bool:
        return self._is_silent

    def write(self, data: bytes) -> None:
        if self._is_ended:
            return
        is_cut = self.cut_after is not None and self.cut_after <= len(data)
        if self.cut_after is not None:
            passing, self.cut_after = data[: self.cut_after], self.cut_after - len(data)
            data = passing
        for piece in self._pieces(data):
            self._put(piece)
        if is_cut:
            self.cut_after = None
            self._cut()

    def open(self) -> None:
        self._put(Mark.OPEN)

    def end(self, *, keeps: bool) -> None:
        """No more bytes. `keeps`: those that are on their way arrive; else they are lost, as in a reset."""
        if not self._is_ended:
            if not keeps:
                self._way = deque(entry for entry in self._way if entry[1] is Mark.OPEN)
            self._is_ended = True
            self._put(Mark.END)

    def discard(self) -> None:
        """Nobody listens any more."""
        self._is_ended = True
        self._way.clear()

    def silence(self) -> None:
        """Whatever is or will be in it never arrives."""
        self._is_silent = True
        self._way.clear()

    def hold(self, until: float) -> None:
        """Nothing comes out before `until`; then all does."""
        self._held_until = max(self._held_until, until)
        self._schedule()

    def release(self) -> None:
        self._held_until = 0.0
        self.trickle = None
        self._schedule()

    def pause(self, is_paused: bool) -> None:
        """The end that it leads to does not read, or does again."""
        self._is_paused = is_paused
        self._schedule()

    def _pieces(self, data: bytes) -> list[bytes]:
        if not data:
            return []
        if self.trickle is not None and self._world.now() < self.trickle[2]:
            size = self.trickle[0]
            return [data[start : start + size] for start in range(0, len(data), size)]
        if len(data) > 1 and self._random.random() < self._weather.split_chance:
            middle = self._random.randrange(1, len(data))
            return [data[:middle], data[middle:]]
        return [data]

    def _put(self, piece: Piece) -> None:
        if self._is_silent:
            return
        now = self._world.now()
        arrives = max(now + self._weather.delay(self._random), self._last_at)
        if self.trickle is not None and now < self.trickle[2] and self._way:
            arrives = max(arrives, self._last_at + self.trickle[1])
        self._last_at = arrives
        self._way.append((arrives, piece))
        self._schedule()

    def _schedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._way and not self._is_paused:
            self._timer = self._world.at(max(self._way[0][0], self._held_until), self._deliver)

    def _deliver(self, now: float) -> None:
        self._timer = None
        if self._way:
            self._arrive(self._way.popleft()[1])
        if self._timer is None:
            self._schedule()
