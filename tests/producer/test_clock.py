"""The time of day in C between two reads of the clock, with a counter and clocks that the test sets."""

from __future__ import annotations

import ctypes
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.wire.speedups import needs_c, shared_library

pytestmark = needs_c

START_NS = 1_700_000_000_000_000_000
MS = 1_000_000
SPEEDS = [0.1, 1.0, 2.9, 5.0]  # counter ticks per nanosecond


class Clock:
    def __init__(self, speed: float = 2.9, *, is_even: bool = True) -> None:
        self._library: Any = ctypes.CDLL(str(shared_library([Path(__file__).with_name("clock.c")])))
        self._library.start.argtypes = [ctypes.c_int64, ctypes.c_double, ctypes.c_int]
        self._library.advance.argtypes = [ctypes.c_int64, ctypes.c_int64]
        self._library.doze.argtypes = [ctypes.c_int64]
        self._library.now_ms.restype = self._library.system_reads.restype = ctypes.c_int64
        self._library.start(START_NS, speed, is_even)
        self.now_ns = START_NS
        self.uses_counter = bool(self._library.uses_counter())

    def advance(self, ns: int, *, set_by_ns: int = 0) -> None:
        self.now_ns += ns + set_by_ns
        self._library.advance(ns, set_by_ns)

    def doze(self, ns: int) -> None:
        self._library.doze(ns)

    def is_right(self) -> bool:
        return bool(self._library.now_ms() == self.now_ns // MS)

    @property
    def system_reads(self) -> int:
        return int(self._library.system_reads())


@pytest.mark.parametrize("speed", SPEEDS)
@pytest.mark.parametrize("step_max", [50, 10_000, MS // 2, 5 * MS, 3_000 * MS])
def test_the_time_always_equals_the_system_time(speed: float, step_max: int) -> None:
    clock, random = Clock(speed), Random(step_max)
    for _ in range(3_000):
        assert clock.is_right()
        clock.advance(random.randrange(step_max))


@pytest.mark.parametrize("speed", SPEEDS)
def test_the_system_clock_is_read_a_few_times_per_millisecond(speed: float) -> None:
    clock = Clock(speed)
    if not clock.uses_counter:
        pytest.skip("only where the counter is one that the header knows")
    for _ in range(2_000):
        assert clock.is_right()
        clock.advance(1_000)
    before = clock.system_reads
    for _ in range(20_000):  # two milliseconds
        assert clock.is_right()
        clock.advance(100)
    assert clock.system_reads - before < 2 * 20


def test_an_unsteady_counter_is_not_used() -> None:
    clock = Clock(is_even=False)
    for _ in range(1_000):
        assert clock.is_right()
        clock.advance(10_000)
    assert clock.system_reads == 1_000


@pytest.mark.parametrize("by_ns", [-3_600_000 * MS, -30 * MS, -MS, MS, 3_600_000 * MS])
def test_a_change_of_the_clock_shows_within_a_millisecond(by_ns: int) -> None:
    clock = Clock()
    for start in range(20):
        for _ in range(start + 200):
            clock.advance(10_000)
            assert clock.is_right()
        clock.advance(0, set_by_ns=by_ns)
        clock.is_right()
        clock.advance(MS)
        assert clock.is_right()


@pytest.mark.parametrize("after", [0, 1, 1_000])
def test_a_suspended_computer_does_not_look_like_a_fast_processor(after: int) -> None:
    clock = Clock()
    for _ in range(after):
        clock.advance(10_000)
        assert clock.is_right()
    clock.advance(2 * MS)
    clock.doze(10_000 * MS)
    for _ in range(3_000):
        assert clock.is_right()
        clock.advance(700)
