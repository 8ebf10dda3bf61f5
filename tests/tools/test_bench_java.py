"""Test how the benchmarks compute the cost of Kafka's Java client."""

from __future__ import annotations

import pytest
from bench.contestants.java import cost_of_more


def test_the_cost_is_the_difference_of_the_two_runs() -> None:
    assert cost_of_more(2.0, 3.5, 1_000_000) == 1.5


@pytest.mark.parametrize("long_s", [1.8, 2.0, 2.1])
def test_a_difference_within_the_variation_of_a_start_is_rejected(long_s: float) -> None:
    """20,000 records once cost -9.79 us each by this computation."""
    with pytest.raises(RuntimeError, match=r"too few records: 20,000 more took .*raise --records"):
        cost_of_more(2.0, long_s, 20_000)
