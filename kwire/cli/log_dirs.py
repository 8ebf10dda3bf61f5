"""`kwire log-dirs`: the directories of the brokers' logs, and moves between those of one broker."""

from __future__ import annotations

import click

from kwire.cli.admin import open_admin, pairs, partition_keys, report, show
from kwire.cli.connection import ConnectionOptions, connection_options
from kwire.cli.error_report import ExitCode
from kwire.cli.output import Output, output_options


@click.group(no_args_is_help=True)
def command() -> None:
    """Log directories of brokers: describe, move.

    \b
        kwire log-dirs describe --topic orders -b localhost:9092
        kwire log-dirs move 1 orders:0=/data/2 --dry-run
    """


@command.command()
@click.option("--broker", "brokers", type=int, multiple=True, help="Only this broker; repeatable.")
@click.option("--topic", "topics", multiple=True, help="Only this topic; repeatable.")
@connection_options
@output_options
def describe(
    brokers: tuple[int, ...], topics: tuple[str, ...], connection: ConnectionOptions, output: Output
) -> ExitCode:
    """Show the directories of the brokers' logs, and the size of each replica."""
    with open_admin(connection) as admin:
        found = admin.log_dirs.describe(brokers or None, topics=topics or None, timeout=connection.timeout)
    rows = [
        {
            "broker": one.broker, "path": one.path, "topic": log.topic, "partition": log.partition, "bytes": log.size,
            "lag": log.offset_lag, "moving": log.is_future,
        }
        for one in found
        for log in one.replicas
    ]  # fmt: skip
    show(rows, output, right=["broker", "partition", "bytes", "lag"])
    return report({(one.broker, one.path): one.error for one in found if one.error is not None}, found)


@command.command()
@click.argument("broker", type=int)
@click.argument("moves", metavar="TOPIC:PARTITION=PATH...", nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Show where the replicas are, and whether PATH is known; move none.")
@connection_options
@output_options
def move(broker: int, moves: tuple[str, ...], dry_run: bool, connection: ConnectionOptions, output: Output) -> ExitCode:
    """Begin to move replicas of one broker to another of its directories."""
    wanted = {partition_keys([name])[0]: path for name, path in pairs(moves).items()}
    with open_admin(connection) as admin:
        if not dry_run:
            results = admin.log_dirs.move(broker, wanted, timeout=connection.timeout)
            rows = [
                {"broker": broker, "topic": key[0], "partition": key[1], "path": wanted[key], "dry_run": False}
                for key in results.ok
            ]
            show(rows, output, right=["broker", "partition"])
            return report(results.errors, results.ok)
        found = admin.log_dirs.describe([broker], timeout=connection.timeout)
    known = [one.path for one in found]
    for key, path in wanted.items():
        if path not in known:
            raise click.UsageError(f"broker {broker} has no directory {path}, but {', '.join(known)}")
        if not any((log.topic, log.partition) == key for one in found for log in one.replicas):
            raise click.UsageError(f"broker {broker} has no replica of {key[0]}:{key[1]}")
    rows = [
        {
            "broker": broker, "topic": log.topic, "partition": log.partition, "from": one.path,
            "path": wanted[log.topic, log.partition], "bytes": log.size, "dry_run": True,
        }
        for one in found
        for log in one.replicas
        if (log.topic, log.partition) in wanted and not log.is_future
    ]  # fmt: skip
    show(rows, output, right=["broker", "partition", "bytes"])
    return ExitCode.OK
