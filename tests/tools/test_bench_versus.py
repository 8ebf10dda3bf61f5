"""Test the comparison of two commits of tools/bench/versus."""

from __future__ import annotations

import json
from dataclasses import asdict

from bench.contest import Result
from bench.task import Sample
from bench.versus import merge, read_results, rows


def _round(cpu_s: float, *, failure: str | None = None) -> list[Result]:
    samples = {"kwire C": [Sample(1_000_000, cpu_s, 2 * cpu_s, failure=failure)], "peer": [Sample(1_000_000, 1.0, 1.0)]}
    return [Result("100 B", samples)]


def test_rounds_are_paired_and_a_ratio_above_one_is_more() -> None:
    """The second round was slow for both trees, so it says the same as the first."""
    before = merge([_round(0.5), _round(5.0)], "before")["100 B"]
    after = merge([_round(0.25), _round(2.5)], "after")["100 B"]
    kwire, peer = rows(before, after)
    assert kwire[:4] == ("kwire C", "2.75 (0.50-5.00)", "1.38 (0.25-2.50)", "0.50x (0.50-0.50)")
    assert kwire[4:] == ("550,000 (100,000-1,000,000)", "1,100,000 (200,000-2,000,000)", "2.00x (2.00-2.00)")
    assert (peer[0], peer[3], peer[6]) == ("peer", "1.00x (1.00-1.00)", "1.00x (1.00-1.00)")


def test_a_failure_has_no_ratio_and_a_contestant_of_one_tree_no_row() -> None:
    before = merge([_round(0.5)], "before")["100 B"]
    after = merge([_round(0.5, failure="no broker")], "after")["100 B"]
    del before.samples["peer before"]
    assert list(rows(before, after)) == [("kwire C", "failed", "failed", "", "failed", "failed", "")]


def test_results_are_read_as_they_are_written() -> None:
    (result,) = _round(0.5)
    cases = [
        {"title": result.title, "samples": {name: [asdict(x) for x in all] for name, all in result.samples.items()}}
    ]
    assert read_results(json.dumps({"cases": cases})) == [result]
