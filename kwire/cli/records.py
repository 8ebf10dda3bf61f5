"""`kwire records`: delete records at the beginning of logs."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from kwire.cli.admin import open_admin, pairs, partition_keys, report, show, time_of
from kwire.cli.connection import ConnectionOptions, connection_options
from kwire.cli.error_report import ExitCode
from kwire.cli.output import Output, output_options

_ALL = -1


@click.group(no_args_is_help=True)
def command() -> None:
    """Records: delete below an offset, or before a time.

    \b
        kwire records delete orders:0=1500 orders:1=end -b localhost:9092
        kwire records delete-before orders -7d --dry-run
    """


@command.command()
@click.argument("offsets", metavar="TOPIC:PARTITION=OFFSET...", nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Show how many offsets would go, and delete nothing.")
@connection_options
@output_options
def delete(offsets: tuple[str, ...], dry_run: bool, connection: ConnectionOptions, output: Output) -> ExitCode:
    """Delete the records below an offset in each partition; OFFSET end deletes all."""
    wanted: dict[tuple[str, int], int] = {}
    for name, text in pairs(offsets).items():
        (key,) = partition_keys([name])
        if text != "end" and not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) < 2**63):
            raise click.UsageError(f"{name}={text}: give an offset, or end")
        wanted[key] = _ALL if text == "end" else int(text)
    return _delete(wanted, dry_run, connection, output)


@command.command(context_settings={"ignore_unknown_options": True})
@click.argument("topic")
@click.argument("time")
@click.option("--dry-run", is_flag=True, help="Show how many offsets would go, and delete nothing.")
@connection_options
@output_options
def delete_before(topic: str, time: str, dry_run: bool, connection: ConnectionOptions, output: Output) -> ExitCode:
    """Delete the records of a topic that are older than TIME (2026-11-01T12:00, or -7d), as far as they come first."""
    at = time_of("TIME", time)
    before = at if isinstance(at, datetime) else datetime.now(UTC) - at
    if not dry_run:
        with open_admin(connection) as admin:
            results = admin.records.delete_before(topic, before, timeout=connection.timeout)
        rows = [
            {"topic": key[0], "partition": key[1], "log_start": start, "dry_run": False}
            for key, start in results.ok.items()
        ]
        show(rows, output, right=["partition", "log_start"])
        return report(results.errors, results.ok)
    with open_admin(connection) as admin:
        found = admin.offsets.list([topic], before, timeout=connection.timeout)
    return _delete({key: one.offset for key, one in found.items()}, True, connection, output)


def _delete(
    wanted: dict[tuple[str, int], int], dry_run: bool, connection: ConnectionOptions, output: Output
) -> ExitCode:
    with open_admin(connection) as admin:
        if dry_run:
            starts = admin.offsets.list(wanted, "earliest", timeout=connection.timeout)
            ends = admin.offsets.list(wanted, "latest", timeout=connection.timeout)
            rows = []
            for (topic, index), offset in wanted.items():
                start, end = starts[topic, index].offset, ends[topic, index].offset
                to = end if offset == _ALL else offset
                if to > end:
                    raise click.UsageError(f"{topic}:{index}={offset}: the log ends at {end}")
                row = {"topic": topic, "partition": index, "log_start": max(start, to), "gone": max(0, to - start)}
                rows.append({**row, "dry_run": True})
            show(rows, output, right=["partition", "log_start", "gone"])
            return ExitCode.OK
        results = admin.records.delete(wanted, timeout=connection.timeout)
    rows = [
        {"topic": topic, "partition": index, "log_start": start, "dry_run": False}
        for (topic, index), start in results.ok.items()
    ]
    show(rows, output, right=["partition", "log_start"])
    return report(results.errors, results.ok)
