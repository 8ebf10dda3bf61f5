"""Running seeds in tests: what failed, and how to see it again."""

from __future__ import annotations

from functools import cache

from kwire.simulation import Report, simulate


@cache
def check(scenario: str, seed: int) -> Report:
    """Run a seed, once, that must show no anomaly."""
    report = simulate(scenario, seed)
    assert not report.anomalies, explain(report)
    return report


def explain(report: Report) -> str:
    found = "\n".join(map(str, report.anomalies[:10]))
    plan = report.plan
    return f"{found}\nreplay: tools/simulate --replay {plan.scenario} {plan.seed} --trace"
