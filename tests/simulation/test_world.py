"""Virtual time: what is due happens in order, and a loop that never sleeps is found out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kwire.simulation.world import Loop, SpinningError, World, WouldSleepError


def test_things_happen_when_they_are_due_and_in_the_order_in_which_they_came() -> None:
    world = World(time_ms=1_000)
    done: list[tuple[str, float, int]] = []
    for name, when in (("c", 2.0), ("a", 1.0), ("b", 1.0), ("late", 5.0)):
        world.at(when, lambda now, name=name: done.append((name, now, world.time_ms())))  # type: ignore[misc]
    world.run(3.0)
    assert done == [("a", 1.0, 2_000), ("b", 1.0, 2_000), ("c", 2.0, 3_000)]
    assert world.now() == 3.0


def test_time_stops_when_it_is_over() -> None:
    world = World(time_ms=0)
    done: list[float] = []
    for when in (1.0, 2.0, 3.0):
        world.at(when, done.append)
    world.run(10.0, is_over=lambda: len(done) == 2)
    assert (done, world.now()) == ([1.0, 2.0], 2.0)


def test_a_loop_turns_until_it_would_sleep() -> None:
    world = World(time_ms=0)
    left = 3

    def turn() -> None:
        nonlocal left
        if not left:
            raise WouldSleepError
        left -= 1

    loop = Loop(world, "one", turn)
    loop.wake()
    loop.wake()  # rung already
    world.run(1.0)
    assert loop.turns == 3


def test_a_loop_that_is_stopped_turns_no_more() -> None:
    world = World(time_ms=0)
    loop = Loop(world, "one", lambda: loop.stop())
    loop.wake()
    world.run(1.0)
    loop.wake()
    world.run(2.0)
    assert loop.turns == 1


def never_sleeps(world: World) -> None:
    Loop(world, "sleepless", lambda: None).wake()


def two_that_wake_each_other(world: World) -> None:
    loops: list[Loop] = []

    def wakes(other: int) -> Callable[[], None]:
        def turn() -> None:
            loops[other].wake()
            raise WouldSleepError

        return turn

    loops += [Loop(world, "a", wakes(1)), Loop(world, "b", wakes(0))]
    loops[0].wake()


def a_timer_that_sets_itself(world: World) -> None:
    def again(now: float) -> None:
        world.at(now, again)

    world.at(1.0, again)


@pytest.mark.parametrize("begin", [never_sleeps, two_that_wake_each_other, a_timer_that_sets_itself])
def test_spinning_is_found(begin: Callable[[World], None]) -> None:
    world = World(time_ms=0)
    begin(world)
    with pytest.raises(SpinningError):
        world.run(2.0)
