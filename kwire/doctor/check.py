"""A check: what it looks at, what it needs, and the result it gives, with cause and remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import IntEnum

from kwire.doctor.facts import Facts


class Status(IntEnum):
    """From best to worst; the worst finding of a check is its result."""

    SKIPPED = 0
    OK = 1
    WARN = 2
    FAIL = 3

    @property
    def label(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a check found. `text` has the cause where something is wrong, `remedy` what to do about it."""

    status: Status
    text: str
    remedy: str | None = None


def ok(text: str) -> Finding:
    return Finding(Status.OK, text)


def warn(text: str, remedy: str | None = None) -> Finding:
    return Finding(Status.WARN, text, remedy)


def fail(text: str, remedy: str | None = None) -> Finding:
    return Finding(Status.FAIL, text, remedy)


def skipped(text: str) -> Finding:
    return Finding(Status.SKIPPED, text)


Judge = Callable[[Facts], Iterable[Finding]]


@dataclass(frozen=True, slots=True)
class Check:
    """A check by its id. `needs` is what it cannot do without, for the table of checks."""

    id: str
    name: str
    title: str
    needs: str
    judge: Judge = field(repr=False)

    def run(self, facts: Facts) -> Result:
        """Judge the facts."""
        findings = list(self.judge(facts)) or [skipped("nothing to judge")]
        return Result(self, findings)


@dataclass(frozen=True, slots=True)
class Result:
    """The findings of a check. Its status is the worst of theirs."""

    check: Check
    findings: list[Finding]

    @property
    def status(self) -> Status:
        return max(finding.status for finding in self.findings)

    @property
    def worst(self) -> list[Finding]:
        """Return the findings that give the status, in their order."""
        return [finding for finding in self.findings if finding.status is self.status]


CHECKS: dict[str, Check] = {}


def check(id: str, name: str, title: str, needs: str = "") -> Callable[[Judge], Judge]:
    """Register the decorated function as the check with this id."""

    def register(judge: Judge) -> Judge:
        assert id not in CHECKS
        CHECKS[id] = Check(id, name, title, needs, judge)
        return judge

    return register


def counted(number: int, noun: str) -> str:
    """Return "1 broker", "2 brokers", with commas between thousands."""
    return f"{number:,} {noun}{'' if number == 1 else 'es' if noun.endswith('s') else 's'}"
