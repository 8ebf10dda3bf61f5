"""Results as JUnit's XML, which CI servers show."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from xml.sax.saxutils import quoteattr

from kwire.cli.output import printable


class Case(NamedTuple):
    """One test case. `failure` is why it failed, `skipped` why it did not run."""

    group: str
    name: str
    failure: str | None = None
    skipped: str | None = None
    text: str = ""


def junit_xml(suite: str, cases: Iterable[Case], seconds: float) -> str:
    """Return a test suite as XML."""
    found = list(cases)
    failures = sum(case.failure is not None for case in found)
    skips = sum(case.skipped is not None for case in found)
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuite name={_quoted(suite)} tests="{len(found)}" failures="{failures}" skipped="{skips}" '
        f'time="{seconds:.3f}">',
    ]
    for case in found:
        lines.append(f"  <testcase classname={_quoted(case.group)} name={_quoted(case.name)}>")
        if case.failure is not None:
            lines.append(f"    <failure message={_quoted(case.failure)}/>")
        if case.skipped is not None:
            lines.append(f"    <skipped message={_quoted(case.skipped)}/>")
        if case.text:
            lines.append(f'    <properties><property name="found" value={_quoted(case.text)}/></properties>')
        lines.append("  </testcase>")
    lines.append("</testsuite>")
    return "\n".join(lines)


def _quoted(text: str) -> str:
    # The declaration says UTF-8, and stdout may have another encoding: ASCII suits both.
    return quoteattr(printable(text)).encode("ascii", "xmlcharrefreplace").decode()
