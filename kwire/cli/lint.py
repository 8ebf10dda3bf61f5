"""`kwire lint`: what clients and brokers do wrong in a capture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from kwire.capture.times import utc_text_of_ns
from kwire.cli.arguments import key_log_option
from kwire.cli.capture_input import print_remarks, status_of
from kwire.cli.error_report import ExitCode
from kwire.cli.junit import Case, junit_xml
from kwire.cli.output import Output, counted, output_options, printable
from kwire.errors import ConfigurationError
from kwire.version import VERSION

if TYPE_CHECKING:
    from kwire.capture import KeyLog
    from kwire.lint import Finding, LintReport

_SARIF_LEVELS = {"error": "error", "warn": "warning", "info": "note"}


@click.command()
@click.argument("files", metavar="FILE...", type=click.Path(exists=True, dir_okay=False, readable=True), nargs=-1)
@click.option("--select", multiple=True, metavar="IDS", help="Only these rules: ids (P03), names, families (P,G).")
@click.option("--ignore", multiple=True, metavar="IDS", help="Not these rules.")
@click.option(
    "--fail-on", type=click.Choice(["info", "warn", "error", "never"]), default="warn", show_default=True,
    help="The exit code is 1 if there is a finding of this level, or a worse one.",
)  # fmt: skip
@click.option(
    "--rules", "rule_file", metavar="FILE", type=click.Path(exists=True, dir_okay=False, readable=True),
    help="TOML: thresholds ([limits.P03] requests = 50), assumptions, and rules of your own by filters.",
)  # fmt: skip
@click.option(
    "--assume", multiple=True, metavar="NAME=VALUE",
    help="What a capture does not tell of clients: max.poll.interval.ms, session.timeout.ms, transaction.timeout.ms.",
)  # fmt: skip
@key_log_option
@click.option("--explain", metavar="ID", help="Explain a rule, or all, and exit.")
@click.option("--json", "as_json", is_flag=True, help="JSON lines, one for each finding.")
@click.option("--sarif", is_flag=True, help="SARIF 2.1.0, which code hosts show.")
@click.option("--junit", is_flag=True, help="JUnit's XML: a test case for each rule.")
@output_options
def command(
    files: Sequence[str], select: Sequence[str], ignore: Sequence[str], fail_on: str, rule_file: str | None,
    assume: Sequence[str], key_log: KeyLog | None, explain: str | None, as_json: bool, sarif: bool, junit: bool,
    output: Output,
) -> ExitCode:  # fmt: skip
    """Say what clients and brokers do wrong in captures.

    58 rules about producers (P), consumers (C), groups (G), the network (N), versions (V), quotas (Q), security (S) and
    transactions (T). Each finding has the numbers of its packets. Information is hidden without -v.

    \b
        kwire lint traffic.pcapng --ignore P04 --fail-on error
        kwire lint traffic.pcapng --sarif > lint.sarif
        kwire lint --explain T01
    """
    from kwire.lint import Level, Settings, lint_file

    if explain is not None:
        return _explain(explain, output)
    if as_json + sarif + junit > 1:
        raise click.UsageError("give one of --json, --sarif and --junit")
    if not files:
        raise click.UsageError("no capture given: name a pcap or pcapng file, or --explain ID")
    settings = Settings.of(select, ignore, rule_file=rule_file, assume=_assumed(assume))
    reports = {path: lint_file(path, settings, key_log=key_log) for path in files}
    for path, report in reports.items():
        name = path if len(files) > 1 else ""
        print_remarks(report.exchanges, report.remarks, output, name)
        if not (sarif or junit):
            _show(path, report, output, as_json=as_json, names_file=bool(name))
    if sarif:
        output.json(_sarif(reports))
    elif junit:
        output.text(junit_xml("kwire lint", _cases(reports, settings.rules), 0.0))
    fails = fail_on != "never" and any(report.at_least(Level[fail_on.upper()]) for report in reports.values())
    statuses = (status_of(report.exchanges, report.remarks) for report in reports.values())
    return max(ExitCode.KAFKA if fails else ExitCode.OK, *statuses)


def _assumed(texts: Sequence[str]) -> dict[str, float]:
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        try:
            found[name] = float(value)
        except ValueError:
            equals = ""
        if not equals:
            raise click.UsageError(f"--assume {text}: write NAME=NUMBER, such as max.poll.interval.ms=600000")
    return found


def _explain(text: str, output: Output) -> ExitCode:
    from kwire.lint import RULES

    wanted = [one for one in RULES.values() if text.lower() in ("all", one.id.lower(), one.name)]
    if not wanted:
        raise ConfigurationError(f"there is no rule {text}", remedy=f"rules are {', '.join(RULES)}")
    for one in wanted:
        if output.is_table:
            output.text(f"{one.id} {one.name} ({one.level.label}): {one.title}")
            output.text(f"  {one.explanation}")
            if one.limits:
                output.text("  limits: " + ", ".join(f"{name} {number:g}" for name, number in one.limits.items()))
            output.text(f"  fix: {one.fix}")
        else:
            output.json({
                "rule": one.id, "name": one.name, "level": one.level.label, "title": one.title,
                "explanation": one.explanation, "limits": one.limits, "fix": one.fix,
            })  # fmt: skip
    return ExitCode.OK


def _show(path: str, report: LintReport, output: Output, *, as_json: bool, names_file: bool) -> None:
    from kwire.lint import Level

    if as_json or not output.is_table:
        for finding in report.findings:
            output.json({"file": path, **finding_to_json(finding)})
        return
    if names_file:
        output.text(path)
    shown = report.findings if output.verbose else report.at_least(Level.WARN)
    for finding in shown:
        for line in finding_lines(finding):
            output.text(line)
    output.text(report_summary(report, hidden=len(report.findings) - len(shown)))


def finding_lines(finding: Finding) -> Iterator[str]:
    rule = finding.rule
    times = f"   {finding.count} times" if finding.count > 1 else ""
    packets = f"   packet{'' if len(finding.packets) == 1 else 's'} {', '.join(map(str, finding.packets))}"
    yield printable(
        f"{rule.level.label:<5} {rule.id} {rule.name:<20} {finding.subject}   {finding.text}{times}{packets}"
    )
    if finding.because_of is not None:
        yield printable(f"      because of {finding.because_of.rule.id} {finding.because_of.rule.name} above or below")
    elif rule.fix:
        yield printable(f"      fix: {rule.fix}")


def report_summary(report: LintReport, hidden: int) -> str:
    counts = Counter(finding.rule.level.label for finding in report.findings)
    parts = [counted(counts["error"], "error"), counted(counts["warn"], "warning")]
    parts.append(f"{counts['info']} info" + (" hidden (-v)" if hidden else ""))
    read = f"{report.exchanges:,} exchanges of {counted(report.connections, 'connection')}"
    return f"{', '.join(parts)}; {read}"


def finding_to_json(finding: Finding) -> dict[str, Any]:
    because = finding.because_of
    return {
        "rule": finding.rule.id, "name": finding.rule.name, "level": finding.rule.level.label,
        "subject": finding.subject, "text": finding.text, "count": finding.count, "packets": finding.packets,
        "time": utc_text_of_ns(finding.at_ns),
        "because_of": None if because is None else {"rule": because.rule.id, "subject": because.subject},
        "fix": finding.rule.fix,
    }  # fmt: skip


def _sarif(reports: dict[str, LintReport]) -> dict[str, Any]:
    from kwire.lint import RULES

    known = dict(RULES)
    known.update({one.rule.id: one.rule for report in reports.values() for one in report.findings})
    rules = [
        {
            "id": one.id, "name": one.name, "shortDescription": {"text": one.title},
            "fullDescription": {"text": one.explanation}, "help": {"text": one.fix},
            "defaultConfiguration": {"level": _SARIF_LEVELS[one.level.label]},
        }
        for one in known.values()
    ]  # fmt: skip
    results = [
        {
            "ruleId": one.rule.id, "level": _SARIF_LEVELS[one.rule.level.label],
            "message": {"text": f"{one.subject}: {one.text}"},
            "locations": [{"physicalLocation": {"artifactLocation": {"uri": path}}}],
            "properties": {"packets": one.packets, "count": one.count},
        }
        for path, report in reports.items()
        for one in report.findings
    ]  # fmt: skip
    unread = [
        {"level": "error", "message": {"text": f"{path}: {'; '.join(map(str, report.remarks))}"}}
        for path, report in reports.items()
        if report.is_unreadable
    ]
    invocation = {"executionSuccessful": not unread, "toolExecutionNotifications": unread}
    driver = {"name": "kwire lint", "version": VERSION, "rules": rules}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "invocations": [invocation], "results": results}],
    }  # fmt: skip


def _cases(reports: dict[str, LintReport], ids: Sequence[str]) -> Iterator[Case]:
    from kwire.lint import RULES, Level

    for path, report in reports.items():
        if report.is_unreadable:
            yield Case(path, "the capture can be read", failure="; ".join(map(str, report.remarks)))
            continue
        for id in ids:
            found = [one for one in report.at_least(Level.WARN) if one.rule.id == id]
            text = "; ".join(f"{one.subject}: {one.text} (packets {', '.join(map(str, one.packets))})" for one in found)
            yield Case(path, f"{id} {RULES[id].name}", failure=text or None)
