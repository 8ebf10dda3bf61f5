"""`kwire partitions`: move partitions to other replicas, elect leaders, delete records."""

from __future__ import annotations

import click

from kwire.cli.admin import open_admin, pairs, partition_keys, report, show
from kwire.cli.connection import ConnectionOptions, connection_options
from kwire.cli.error_report import ExitCode
from kwire.cli.output import Output, output_options


@click.group(no_args_is_help=True)
def command() -> None:
    """Partitions: reassign, elect, delete records, log dirs.

    \b
        kwire partitions reassign orders:0=1,2,3 -b localhost:9092
        kwire partitions reassignments
        kwire partitions elect preferred
    """


@command.command()
@click.argument("moves", metavar="TOPIC:PARTITION=BROKER,...", nargs=-1, required=True)
@connection_options
@output_options
def reassign(moves: tuple[str, ...], connection: ConnectionOptions, output: Output) -> ExitCode:
    """Begin to move partitions to these brokers, the preferred leader first."""
    wanted = {}
    for name, brokers in pairs(moves).items():
        (key,) = partition_keys([name])
        ids = brokers.split(",")
        if not all(one.isascii() and one.isdigit() for one in ids):
            raise click.UsageError(f"{name}={brokers}: give the ids of brokers, such as 1,2,3")
        wanted[key] = [int(one) for one in ids]
    with open_admin(connection) as admin:
        results = admin.partitions.reassign(wanted, timeout=connection.timeout)
    show(
        [{"topic": topic, "partition": index, "replicas": wanted[topic, index]} for topic, index in results.ok], output
    )
    return report(results.errors)


@command.command()
@click.argument("partitions", metavar="TOPIC:PARTITION...", nargs=-1, required=True)
@connection_options
@output_options
def cancel(partitions: tuple[str, ...], connection: ConnectionOptions, output: Output) -> ExitCode:
    """End the moves of partitions, which stay where they were."""
    with open_admin(connection) as admin:
        results = admin.partitions.cancel(partition_keys(partitions), timeout=connection.timeout)
    show([{"topic": topic, "partition": index, "cancelled": True} for topic, index in results.ok], output)
    return report(results.errors)


@command.command()
@connection_options
@output_options
def reassignments(connection: ConnectionOptions, output: Output) -> ExitCode:
    """Show the moves that are under way."""
    with open_admin(connection) as admin:
        found = admin.partitions.reassignments(timeout=connection.timeout)
    rows = [
        {
            "topic": one.topic, "partition": one.partition, "replicas": list(one.replicas), "adding": list(one.adding),
            "removing": list(one.removing),
        }
        for one in found
    ]  # fmt: skip
    show(rows, output, right=["partition"])
    return ExitCode.OK


@command.command()
@click.argument("election", type=click.Choice(["preferred", "unclean"]))
@click.argument("partitions", metavar="[TOPIC:PARTITION]...", nargs=-1)
@connection_options
@output_options
def elect(election: str, partitions: tuple[str, ...], connection: ConnectionOptions, output: Output) -> ExitCode:
    """Elect the preferred leaders of all partitions or of those named; or any replica, which may lose records."""
    with open_admin(connection) as admin:
        keys = partition_keys(partitions) or None
        results = admin.partitions.elect(election, keys, timeout=connection.timeout)
    rows = [{"topic": topic, "partition": index, "changed": changed} for (topic, index), changed in results.ok.items()]
    show(rows, output, right=["partition"])
    return report(results.errors)


@command.command()
@click.argument("offsets", metavar="TOPIC:PARTITION=OFFSET...", nargs=-1, required=True)
@connection_options
@output_options
def delete_records(offsets: tuple[str, ...], connection: ConnectionOptions, output: Output) -> ExitCode:
    """Delete the records below an offset in each partition; OFFSET end deletes all."""
    wanted = {}
    for name, text in pairs(offsets).items():
        (key,) = partition_keys([name])
        if text != "end" and not (text.isascii() and text.isdigit()):
            raise click.UsageError(f"{name}={text}: give an offset, or end")
        wanted[key] = -1 if text == "end" else int(text)
    with open_admin(connection) as admin:
        results = admin.records.delete(wanted, timeout=connection.timeout)
    rows = [{"topic": topic, "partition": index, "log_start": one} for (topic, index), one in results.ok.items()]
    show(rows, output, right=["partition", "log_start"])
    return report(results.errors)


@command.command()
@click.option("--broker", "brokers", type=int, multiple=True, help="Only this broker; repeatable.")
@click.option("--topic", "topics", multiple=True, help="Only this topic; repeatable.")
@connection_options
@output_options
def log_dirs(
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
    return report({one.path: one.error for one in found if one.error is not None})
