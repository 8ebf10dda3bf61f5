"""Test the statistics of the benchmarks."""

from __future__ import annotations

import pytest
from bench.ratios import Spread, percentile, ratios, shown


@pytest.mark.parametrize(
    ("samples", "spread"),
    [
        ([2.0], (2.0, 2.0, 2.0)),
        ([3.0, 1.0], (1.0, 2.0, 3.0)),
        ([3.0, 1.0, 2.5], (1.0, 2.5, 3.0)),  # too few for quartiles: minimum and maximum
        ([4.0, 1.0, 3.0, 2.0, 5.0], (2.0, 3.0, 4.0)),
        ([1.0, 1.0, 1.0, 1.0, 100.0], (1.0, 1.0, 1.0)),  # one bad round changes nothing
    ],
)
def test_spread(samples: list[float], spread: tuple[float, float, float]) -> None:
    assert Spread.of(samples) == spread


def test_no_samples_have_no_spread_and_no_percentile() -> None:
    with pytest.raises(ValueError, match="nothing"):
        Spread.of([])
    with pytest.raises(ValueError, match="nothing"):
        percentile([], 50)


def test_ratios_are_paired_by_round() -> None:
    """A round that was slow for both does not change the ratio; the ratio of the medians would be 1.5."""
    assert ratios([2.0, 20.0, 6.0], [1.0, 10.0, 3.0]) == [2.0, 2.0, 2.0]
    with pytest.raises(ValueError, match="shorter"):
        ratios([1.0, 2.0], [1.0])


@pytest.mark.parametrize(
    ("percent", "value"), [(50, 50.0), (90, 90.0), (99, 99.0), (99.5, 100.0), (100, 100.0), (0, 1.0)]
)
def test_percentile(percent: float, value: float) -> None:
    assert percentile([float(number) for number in range(100, 0, -1)], percent) == value


def test_percentile_of_one() -> None:
    assert percentile([7.0], 99) == 7.0


@pytest.mark.parametrize(
    ("spread", "text"),
    [
        (Spread(4.4, 4.612, 4.9), "4.61x (4.40-4.90)"),
        (Spread(9.96, 12.34, 99.96), "12.3x (9.96-100.0)"),
        (Spread(999.6, 12345.6, 99999.0), "12,346x (1,000-99,999)"),
    ],
)
def test_shown(spread: Spread, text: str) -> None:
    assert shown(spread) == text
