"""All checks on one set of facts, and their results together."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from kwire.doctor import addresses, brokers, security, usage
from kwire.doctor.check import CHECKS as _REGISTERED
from kwire.doctor.check import Result, Status
from kwire.doctor.examination import examine
from kwire.doctor.facts import Facts, Target
from kwire.net import Clock, Resolver

# Imported for the checks that they register.
_FILES = (addresses, security, brokers, usage)
CHECKS = dict(sorted(_REGISTERED.items()))


@dataclass(frozen=True, slots=True)
class Report:
    """The results of all checks, by their ids. `seconds` is how long the examination took."""

    facts: Facts
    results: list[Result]

    @property
    def seconds(self) -> float:
        return self.facts.seconds

    @property
    def counts(self) -> Counter[Status]:
        return Counter(result.status for result in self.results)

    @property
    def has_failed(self) -> bool:
        return any(result.status is Status.FAIL for result in self.results)

    def __getitem__(self, id: str) -> Result:
        return next(result for result in self.results if result.check.id == id)


def judge(facts: Facts) -> Report:
    """Run all checks on facts."""
    return Report(facts, [check.run(facts) for check in CHECKS.values()])


def diagnose(target: Target, *, clock: Clock | None = None, resolver: Resolver | None = None) -> Report:
    """Examine a target and run all checks. Never raises for what the network or a broker does."""
    return judge(examine(target, clock=clock, resolver=resolver))
