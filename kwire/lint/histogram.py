"""Quantiles of many numbers in little memory: a count for each range, whose ends are 4 % apart."""

from __future__ import annotations

from collections import Counter
from math import floor, log

_STEP = 1.04
_LOG_STEP = log(_STEP)
_LEAST = 0.001


class Histogram:
    """Counts of numbers from 0 on, milliseconds mostly. A quantile is off by 2 % at most; `max` is exact.

    >>> histogram = Histogram()
    >>> for number in range(1, 1001):
    ...     histogram.add(number)
    >>> histogram.n, histogram.max, round(histogram.quantile(0.5), -1)
    (1000, 1000, 500.0)
    """

    __slots__ = ("_counts", "max", "n")

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self.n = 0
        self.max = 0.0

    def add(self, number: float) -> None:
        self.n += 1
        self.max = max(self.max, number)
        self._counts[floor(log(max(number, _LEAST)) / _LOG_STEP)] += 1

    def merge(self, other: Histogram) -> None:
        """Add all numbers of another one."""
        self.n += other.n
        self.max = max(self.max, other.max)
        self._counts.update(other._counts)

    def quantile(self, share: float) -> float:
        """Return the number that this share of all is not above; 0 without any."""
        left = share * self.n
        for index in sorted(self._counts):
            left -= self._counts[index]
            if left <= 0:
                return float(min(self.max, _STEP ** (index + 0.5)))
        return float(self.max)
