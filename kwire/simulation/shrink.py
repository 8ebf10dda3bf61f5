"""Reduce a failing plan to the fewest disturbances that still cause the anomaly: Zeller's delta debugging.

The result is a subset of the plan's own disturbances, so that `tools/simulate --only` can replay it by their numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kwire.simulation.run import Report, run
from kwire.simulation.scenario import Plan


def shrink(
    plan: Plan, kinds: frozenset[str], *, again: Callable[[Plan], Report] = run, runs_max: int = 200
) -> tuple[int, ...]:
    """Return the indexes in `plan.disturbances` of a small set that still causes an anomaly of these kinds."""
    runs = 0

    def fails(numbers: Sequence[int]) -> bool:
        nonlocal runs
        runs += 1
        kept = plan.with_disturbances([plan.disturbances[number] for number in numbers])
        return bool(again(kept).kinds & kinds)

    numbers = list(range(len(plan.disturbances)))
    parts = 2
    while numbers and runs < runs_max:
        size = max(1, len(numbers) // parts)
        for start in range(0, len(numbers), size):
            rest = numbers[:start] + numbers[start + size :]
            if fails(rest):
                numbers, parts = rest, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts = min(parts * 2, len(numbers))
    return tuple(numbers)
