"""What `kwire tap --lint` and `--stats` tell while clients and brokers talk, and at the end."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from kwire.capture import Exchange
from kwire.cli.lint import finding_lines, finding_to_json, report_summary
from kwire.cli.output import Output
from kwire.cli.stats import show_statistics
from kwire.lint import Level, Linter
from kwire.lint.statistics import Statistics

Show = Callable[[Exchange], object]


class LiveLint:
    """Tells each finding when its rule speaks first, on stderr; the report at the end is on stdout.

    Rules that need TCP's own packets, such as those about refused connections, are for captures.
    """

    def __init__(self, output: Output) -> None:
        self._output = output
        self._linter = Linter()
        self._least = Level.INFO if output.verbose else Level.WARN

    def add(self, exchange: Exchange) -> None:
        self._linter.add(exchange)
        for finding in self._linter.news():
            if finding.rule.level >= self._least:
                subject = self._linter.world.named(finding.subject)
                text = f"lint {finding.rule.id} {finding.rule.name}: {subject}: {finding.text}"
                click.echo(text, err=True)

    def end(self) -> None:
        report = self._linter.report()
        if not self._output.is_table:
            for finding in report.findings:
                self._output.json({"kind": "finding", **finding_to_json(finding)})
            return
        shown = report.at_least(self._least)
        for finding in shown:
            for line in finding_lines(finding):
                self._output.text(line)
        self._output.text(report_summary(report, hidden=len(report.findings) - len(shown)))


class LiveStats:
    """Prints a table for each span of time in which there were exchanges, and one for the rest at the end."""

    def __init__(self, every_seconds: float, output: Output) -> None:
        self.every_seconds = every_seconds
        self._output = output
        self._current = Statistics("api")
        self._begin_ns = 0

    def add(self, exchange: Exchange) -> None:
        self._current.add(exchange)

    def tick(self, at_ns: int) -> None:
        """End a span and begin one: the tap calls it at its start and at each time, also when nothing comes."""
        self.end()
        self._current = Statistics("api")
        self._begin_ns = at_ns

    def end(self) -> None:
        if self._current.rows:
            self._current.begin_ns = self._begin_ns
            show_statistics(self._current, self.every_seconds, self._output)
            sys.stdout.flush()


def watch(show: Show | None, where: Any, watchers: list[LiveLint | LiveStats]) -> Show | None:
    """Return what a tap calls for each exchange: all watchers, and `show` for those that the filter accepts."""
    if not watchers:
        return show

    def on_exchange(exchange: Exchange) -> None:
        for watcher in watchers:
            watcher.add(exchange)
        if show is not None and (where is None or where.accepts(exchange)):
            show(exchange)

    return on_exchange
