"""Compute medians with their spread, and ratios paired by round, since a slow round is slow for both."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple


class Spread(NamedTuple):
    """Hold the median and the quartiles of samples; with fewer than four, the minimum and maximum as quartiles."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread:
        if not samples:
            raise ValueError("there is no spread of nothing")
        if len(samples) < 4:
            return cls(min(samples), statistics.median(samples), max(samples))
        low, median, high = statistics.quantiles(samples, n=4, method="inclusive")
        return cls(low, median, high)


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Return ours divided by theirs for each round."""
    return [one / other for one, other in zip(ours, theirs, strict=True)]


def percentile(samples: Sequence[float], percent: float) -> float:
    """Return the smallest sample that `percent` percent of the samples do not exceed."""
    if not samples:
        raise ValueError("there is no percentile of nothing")
    ordered = sorted(samples)
    rank = -(-len(ordered) * percent // 100)  # rounded up: the nearest-rank method
    return ordered[max(0, int(rank) - 1)]


def shown(spread: Spread, unit: str = "x") -> str:
    """Format a spread for a table with three digits each: `4.61x (4.40-4.90)`."""
    return f"{_three(spread.median)}{unit} ({_three(spread.low)}-{_three(spread.high)})"


def _three(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
