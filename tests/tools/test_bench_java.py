"""Kafka's own client in the benchmarks: what its cost is reckoned from."""

from __future__ import annotations

import pytest
from bench.contestants.java import cost_of_more


def test_the_cost_is_what_the_long_run_needed_more() -> None:
    assert cost_of_more(2.0, 3.5, 1_000_000) == 1.5


@pytest.mark.parametrize("long_s", [1.8, 2.0, 2.1])
def test_what_a_start_varies_by_is_no_cost(long_s: float) -> None:
    """20,000 records once "cost" -9.79 us each."""
    with pytest.raises(RuntimeError, match=r"too few records: 20,000 more took .*raise --records"):
        cost_of_more(2.0, long_s, 20_000)
