"""Test timers: their order, cancelling, and the end of each run."""

from __future__ import annotations

import random
from functools import partial
from math import inf

import pytest

from kwire.net.timers import Timer, Timers


def test_they_run_by_deadline_and_then_in_the_order_in_which_they_were_set() -> None:
    timers = Timers()
    ran: list[tuple[str, float]] = []
    for name, when in [("b", 2.0), ("a", 1.0), ("c", 2.0), ("d", 3.0)]:
        timers.at(when, partial(lambda name, now: ran.append((name, now)), name))
    assert timers.next_at == 1.0
    assert timers.run(0.9) == 0
    assert timers.run(2.5) == 3
    assert ran == [("a", 2.5), ("b", 2.5), ("c", 2.5)]
    assert timers.next_at == 3.0
    assert len(timers) == 1


def test_a_cancelled_timer_does_not_run_and_has_no_deadline() -> None:
    timers = Timers()
    ran: list[float] = []
    first = timers.at(1.0, ran.append)
    timers.at(2.0, ran.append)
    first.cancel()
    first.cancel()
    assert not first.is_pending
    assert timers.next_at == 2.0
    timers.run(5.0)
    assert ran == [5.0]
    assert timers.next_at == inf


def test_a_timer_set_by_a_timer_waits_for_the_next_run() -> None:
    timers = Timers()
    ran: list[float] = []

    def again(now: float) -> None:
        ran.append(now)
        timers.at(now, again)

    timers.at(0.0, again)
    for turn in range(5):
        assert timers.run(float(turn)) == 1
    assert ran == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_a_timer_may_cancel_another_of_the_same_run() -> None:
    timers = Timers()
    ran: list[float] = []
    victims: list[Timer] = []
    timers.at(1.0, lambda now: victims[0].cancel())
    victims.append(timers.at(1.0, ran.append))
    timers.run(1.0)
    assert ran == []
    assert len(timers) == 0


def test_an_action_that_raises_loses_no_other() -> None:
    timers = Timers()
    ran: list[float] = []

    def fail(now: float) -> None:
        timers.at(0.0, ran.append)
        raise RuntimeError

    timers.at(1.0, fail)
    timers.at(1.5, ran.append)
    timers.at(2.0, ran.append)
    with pytest.raises(RuntimeError):
        timers.run(1.5)
    assert ran == []
    timers.run(1.6)
    assert ran == [1.6, 1.6]
    timers.run(2.0)
    assert ran == [1.6, 1.6, 2.0]


def test_random_use_agrees_with_a_list() -> None:
    rng = random.Random(7)
    timers = Timers()
    model: dict[int, tuple[float, Timer]] = {}
    ran: list[int] = []
    for step in range(3000):
        now = step / 10
        chance = rng.random()
        if chance < 0.6:
            when = now + rng.random() * 30
            model[step] = (when, timers.at(when, partial(lambda step, now: ran.append(step), step)))
        elif chance < 0.8 and model:
            key = rng.choice(list(model))
            model.pop(key)[1].cancel()
        else:
            ran.clear()
            timers.run(now)
            due = sorted((when, key) for key, (when, _) in model.items() if when <= now)
            assert ran == [key for _, key in due]
            for key in ran:
                del model[key]
        assert len(timers) == len(model)


def test_cancelled_timers_are_removed_long_before_their_deadline() -> None:
    timers = Timers()
    ran: list[float] = []
    timers.at(5.0, ran.append)
    for _ in range(10_000):
        timers.at(1000.0, ran.append).cancel()
    assert len(timers) == 1
    assert len(timers._heap) < 200
    timers.run(5.0)
    assert ran == [5.0]
    assert timers.next_at == inf


def test_timers_that_a_timer_sets_and_cancels_leave_no_trace() -> None:
    """There are many timers, so that cancelled ones are removed while the new ones are not yet in the heap."""
    timers = Timers()
    ran: list[float] = []

    def churn(now: float) -> None:
        for timer in [timers.at(now, ran.append) for _ in range(500)] + old:
            timer.cancel()
        timers.at(now, ran.append)

    old = [timers.at(9.0, ran.append) for _ in range(500)]
    timers.at(1.0, churn)
    timers.run(1.0)
    assert (len(timers), timers.next_at) == (1, 1.0)
    timers.run(2.0)
    assert ran == [2.0]
    assert (len(timers), timers.next_at) == (0, inf)
