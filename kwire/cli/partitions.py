"""`kwire partitions`: move partitions to other replicas, elect leaders."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kwire.cli.admin import open_admin, pairs, partition_keys, report, show
from kwire.cli.connection import ConnectionOptions, connection_options
from kwire.cli.error_report import ExitCode
from kwire.cli.output import Output, output_options

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kwire.admin import Admin
    from kwire.cluster import Snapshot
    from kwire.errors import KwireError

_dry_run = click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")


@click.group(no_args_is_help=True)
def command() -> None:
    """Partitions: reassign, cancel, reassignments, elect.

    \b
        kwire partitions reassign orders:0=1,2,3 -b localhost:9092
        kwire partitions reassignments
        kwire partitions elect preferred
    """


@command.command()
@click.argument("moves", metavar="TOPIC:PARTITION=BROKER,...", nargs=-1, required=True)
@_dry_run
@connection_options
@output_options
def reassign(moves: tuple[str, ...], dry_run: bool, connection: ConnectionOptions, output: Output) -> ExitCode:
    """Begin to move partitions to these brokers, the preferred leader first."""
    wanted = {}
    for name, brokers in pairs(moves).items():
        (key,) = partition_keys([name])
        ids = brokers.split(",")
        if not all(one.isascii() and one.isdigit() for one in ids):
            raise click.UsageError(f"{name}={brokers}: give the ids of brokers, such as 1,2,3")
        wanted[key] = [int(one) for one in ids]
    with open_admin(connection) as admin:
        known = _current(admin, wanted, connection)
        unknown = {one for ids in wanted.values() for one in ids} - known.brokers.keys()
        if dry_run and unknown:
            raise click.UsageError(f"the cluster has no broker {', '.join(map(str, sorted(unknown)))}")
        results = None if dry_run else admin.partitions.reassign(wanted, timeout=connection.timeout)
    rows = []
    for topic, index in wanted if results is None else results.ok:
        partition = known.partition(topic, index)
        before = list(partition.replicas) if partition is not None else None
        row = {"topic": topic, "partition": index, "from": before, "replicas": wanted[topic, index]}
        rows.append({**row, "dry_run": dry_run})
    show(rows, output, right=["partition"])
    return ExitCode.OK if results is None else report(results.errors, results.ok)


@command.command()
@click.argument("partitions", metavar="TOPIC:PARTITION...", nargs=-1, required=True)
@_dry_run
@connection_options
@output_options
def cancel(partitions: tuple[str, ...], dry_run: bool, connection: ConnectionOptions, output: Output) -> ExitCode:
    """End the moves of partitions, which stay where they were."""
    keys = partition_keys(partitions)
    with open_admin(connection) as admin:
        if dry_run:
            moving = admin.partitions.reassignments(keys, timeout=connection.timeout)
            done, errors = [(one.topic, one.partition) for one in moving], {}
        else:
            results = admin.partitions.cancel(keys, timeout=connection.timeout)
            done, errors = list(results.ok), results.errors
    rows = [{"topic": topic, "partition": index, "cancelled": not dry_run, "dry_run": dry_run} for topic, index in done]
    show(rows, output, right=["partition"])
    return report(errors, done)


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
@_dry_run
@connection_options
@output_options
def elect(
    election: str, partitions: tuple[str, ...], dry_run: bool, connection: ConnectionOptions, output: Output
) -> ExitCode:
    """Elect the preferred leaders of all partitions or of those named; or any replica, which may lose records."""
    keys = partition_keys(partitions) or None
    with open_admin(connection) as admin:
        if dry_run:
            known = _current(admin, keys, connection)
            named = keys or [(one.name, index) for one in known.topics.values() for index in range(len(one.partitions))]
            changes = {key: _would_change(known, key, election) for key in named}
            errors: dict[tuple[str, int], KwireError] = {}
        else:
            results = admin.partitions.elect(election, keys, timeout=connection.timeout)
            changes, errors = dict(results.ok), dict(results.errors)
    rows = [
        {"topic": topic, "partition": index, "changed": changed, "dry_run": dry_run}
        for (topic, index), changed in changes.items()
    ]
    show(rows, output, right=["partition"])
    return report(errors, changes)


def _current(admin: Admin, keys: Iterable[tuple[str, int]] | None, connection: ConnectionOptions) -> Snapshot:
    """Return the metadata of the partitions' topics (None: of all). Raises UsageError for one that does not exist."""
    wanted = None if keys is None else list(keys)
    topics = None if wanted is None else sorted({topic for topic, _ in wanted})
    known = admin.cluster.metadata(topics, timeout=connection.timeout)
    for topic, index in wanted or ():
        if known.partition(topic, index) is None:
            raise click.UsageError(f"there is no partition {topic}:{index}")
    return known


def _would_change(known: Snapshot, key: tuple[str, int], election: str) -> bool:
    partition = known.partition(*key)
    assert partition is not None
    if election == "unclean":
        return partition.leader < 0
    return (
        bool(partition.replicas)
        and partition.leader != partition.replicas[0]
        and partition.replicas[0] in (partition.isr)
    )
