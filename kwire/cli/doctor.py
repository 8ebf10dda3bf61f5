"""`kwire doctor`: examine a cluster from where a client runs, and say what is wrong, why, and what to do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kwire.cli.arguments import complete_topic
from kwire.cli.connection import ConnectionOptions, connection_options
from kwire.cli.error_report import ExitCode
from kwire.cli.junit import Case, junit_xml
from kwire.cli.output import Output, counted, output_options, printable

if TYPE_CHECKING:
    from kwire.doctor import Finding, Report, Result, Target

_SHOWN = 2  # findings of a check that is ok
_PROPERTIES = "kwire.doctor.properties"


def _read_config(context: click.Context, option: click.Parameter, path: str | None) -> None:
    """Take what the file has as defaults of the other options."""
    if path is None or context.resilient_parsing:
        return
    from kwire.properties.file import read_properties

    properties = read_properties(Path(path))
    context.meta[_PROPERTIES] = properties
    defaults = {
        "bootstrap": properties.get("bootstrap.servers") or properties.get("metadata.broker.list"),
        "group": properties.get("group.id"),
        "transactional_id": properties.get("transactional.id"),
    }
    context.default_map = {name: value for name, value in defaults.items() if value}


@click.command()
@click.option("--topic", shell_complete=complete_topic, help="The topic that the client uses (D24, D25, D28).")
@click.option("--group", help="The client's group (D26, D28).")
@click.option("--txn", "transactional_id", metavar="ID", help="The client's transactional id (D27).")
@click.option(
    "--from-config", metavar="FILE", type=click.Path(exists=True, dir_okay=False, readable=True), is_eager=True,
    expose_value=False, callback=_read_config,
    help="A client.properties of Java, or librdkafka's names: addresses, TLS, SASL, group.id, transactional.id.",
)  # fmt: skip
@click.option("--probe", is_flag=True, help="Write one record to partition 0 of --topic and read it back (D29).")
@click.option("--json", "as_json", is_flag=True, help="JSON lines, one for each check, then one for all.")
@click.option("--junit", is_flag=True, help="JUnit's XML, for CI servers.")
@connection_options
@output_options
def command(
    topic: str | None, group: str | None, transactional_id: str | None, probe: bool, as_json: bool, junit: bool,
    connection: ConnectionOptions, output: Output,
) -> ExitCode:  # fmt: skip
    """Examine a cluster as a client sees it, and say what is wrong.

    30 checks, from the name to the lag of a group. Nothing is written without --probe. Each step has --timeout; broken
    brokers do not hold up the others.

    Exit codes: 0 all is well or only warnings, 1 a check failed, 3 no broker can be reached.

    \b
        kwire doctor -b kafka:9092 --topic orders --group billing
        kwire doctor --from-config client.properties --junit > doctor.xml
    """
    from kwire.doctor import diagnose

    if as_json and junit:
        raise click.UsageError("give one of --json and --junit")
    if probe and topic is None:
        raise click.UsageError("--probe writes a record: it needs --topic")
    target = _target(connection, click.get_current_context().meta.get(_PROPERTIES))
    report = diagnose(replace(target, topic=topic, group=group, transactional_id=transactional_id, probe=probe))
    if junit:
        output.text(junit_xml("kwire doctor", _cases(report), report.seconds))
    elif as_json or not output.is_table:
        for line in _json(report):
            output.json(line)
    else:
        for result in report.results:
            for text in _lines(result, output):
                output.text(text)
        output.text(_summary(report))
    if not report.facts.is_connected:
        return ExitCode.CONNECTION
    return ExitCode.KAFKA if report.has_failed else ExitCode.OK


def _target(connection: ConnectionOptions, properties: dict[str, str] | None) -> Target:
    from kwire.doctor import Target
    from kwire.doctor.client_properties import target_of

    of_file = target_of(properties) if properties is not None else Target("")
    tls = connection.tls
    if tls is True:
        from kwire.net import Tls

        tls = Tls()
    return replace(
        of_file,
        bootstrap=connection.bootstrap,
        tls=tls or of_file.tls,
        sasl=connection.sasl or of_file.sasl,
        timeout=connection.timeout,
        client_id=str(connection.extra.get("client_id", of_file.client_id)),
        environment=dict(os.environ),
    )


def _lines(result: Result, output: Output) -> Iterator[str]:
    from kwire.doctor import Status

    status = result.status
    if status is Status.SKIPPED and not output.verbose:
        return
    findings = result.worst
    if status <= Status.OK and not output.verbose:
        more = len(findings) - _SHOWN
        text = "; ".join(one.text for one in findings[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")
        yield _line(result, text)
        return
    for finding in findings:
        yield _line(result, finding.text)
        if finding.remedy:
            yield f"{'':27}do: {printable(finding.remedy)}"


def _line(result: Result, text: str) -> str:
    from kwire.doctor import Status

    label = result.status.name if result.status is Status.FAIL else result.status.label
    return f"{label:<7} {result.check.id} {result.check.name:<15} {printable(text)}"


def _summary(report: Report) -> str:
    from kwire.doctor import Status

    counts = report.counts
    parts = [f"{counts[Status.OK]} ok", counted(counts[Status.WARN], "warning"), f"{counts[Status.FAIL]} failed"]
    if counts[Status.SKIPPED]:
        parts.append(f"{counts[Status.SKIPPED]} skipped")
    return f"{', '.join(parts)} in {report.seconds:.1f} s"


def _json(report: Report) -> Iterator[dict[str, Any]]:
    for result in report.results:
        yield {
            "check": result.check.id, "name": result.check.name, "status": result.status.label,
            "findings": [_finding(one) for one in result.findings],
        }  # fmt: skip
    yield {
        "counts": {status.label: count for status, count in sorted(report.counts.items())},
        "seconds": round(report.seconds, 3),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {"status": finding.status.label, "text": finding.text, "remedy": finding.remedy}


def _cases(report: Report) -> Iterator[Case]:
    from kwire.doctor import Status

    for result in report.results:
        text = "; ".join(f"{one.text} (do: {one.remedy})" if one.remedy else one.text for one in result.worst)
        yield Case(
            "kwire.doctor", f"{result.check.id} {result.check.name}",
            failure=text if result.status is Status.FAIL else None,
            skipped=text if result.status is Status.SKIPPED else None,
            text=text if result.status in (Status.OK, Status.WARN) else "",
        )  # fmt: skip
