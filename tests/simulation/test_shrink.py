"""A failing list of faults is cut down to those that matter, in few runs."""

from __future__ import annotations

import pytest

from kwire.simulation import SCENARIOS, Anomaly, Plan, Report, plan, shrink

WHOLE = next(one for one in (plan(SCENARIOS["rush"], seed) for seed in range(100)) if len(one.disturbances) == 10)


@pytest.mark.parametrize("needed", [(), (0,), (9,), (2, 5), (0, 9), (1, 4, 8), tuple(range(10))], ids=str)
def test_only_what_is_needed_is_left(needed: tuple[int, ...]) -> None:
    runs = 0

    def again(one: Plan) -> Report:
        nonlocal runs
        runs += 1
        fails = all(WHOLE.disturbances[number] in one.disturbances for number in needed)
        return Report(one, [Anomaly("lost", "")] if fails else [])

    assert shrink(WHOLE, frozenset({"lost"}), again=again) == needed
    assert runs < 60


def test_another_anomaly_is_not_the_same_failure() -> None:
    def again(one: Plan) -> Report:
        return Report(one, [Anomaly("lost" if len(one.disturbances) > 3 else "stuck", "")])

    assert len(shrink(WHOLE, frozenset({"lost"}), again=again)) == 4


def test_it_stops_in_time() -> None:
    runs = 0

    def again(one: Plan) -> Report:
        nonlocal runs
        runs += 1
        return Report(one)

    assert len(shrink(WHOLE, frozenset({"lost"}), again=again, runs_max=5)) == 10
    assert runs <= 12
