"""`kwire transactions`: list and describe transactions, find and end those that hang."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from kwire.cli.admin import open_admin, partition_keys, report, show
from kwire.cli.connection import ConnectionOptions, connection_options
from kwire.cli.error_report import ExitCode
from kwire.cli.finite_range import FiniteRange
from kwire.cli.output import Output, output_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kwire.admin import ActiveProducer, Transaction
    from kwire.errors import KwireError


_DESCRIBED_RIGHT = ["producer_id", "epoch", "timeout_ms"]


@click.group(no_args_is_help=True)
def command() -> None:
    """Transactions: list, describe, abort, fence, terminate.

    \b
        kwire transactions list --state Ongoing -b localhost:9092
        kwire transactions hanging
        kwire transactions abort orders 0 --producer-id 1000
    """


@command.command("list")
@click.option("--state", "states", multiple=True, metavar="STATE", help="Only in this state, such as Ongoing.")
@click.option(
    "--older-than", type=FiniteRange(min=0), metavar="SECONDS", help="Only open for longer than this (Kafka 3.8)."
)
@connection_options
@output_options
def list_transactions(
    states: tuple[str, ...], older_than: float | None, connection: ConnectionOptions, output: Output
) -> ExitCode:
    """List the transactional ids of the cluster."""
    duration = None if older_than is None else timedelta(seconds=older_than)
    with open_admin(connection) as admin:
        found = admin.transactions.list(states=states, older_than=duration, timeout=connection.timeout)
    rows = [
        {"id": one.id, "state": one.state, "producer_id": one.producer_id, "coordinator": one.coordinator}
        for one in found
    ]
    show(rows, output, right=["producer_id", "coordinator"])
    return ExitCode.OK


@command.command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@connection_options
@output_options
def describe(ids: tuple[str, ...], connection: ConnectionOptions, output: Output) -> ExitCode:
    """Show transactional ids and their transactions. The exit code is 1 if one does not exist."""
    with open_admin(connection) as admin:
        results = admin.transactions.describe_many(ids, timeout=connection.timeout)
    show([_described(one) for one in results.ok.values()], output, right=_DESCRIBED_RIGHT)
    return report(results.errors, results.ok)


@command.command()
@click.option("--topic", "topics", multiple=True, help="Only this topic; repeatable. Default: all.")
@click.option(
    "--older-than",
    type=FiniteRange(min=0),
    default=900,
    show_default=True,
    metavar="SECONDS",
    help="Without a record for so long.",
)
@connection_options
@output_options
def hanging(topics: tuple[str, ...], older_than: float, connection: ConnectionOptions, output: Output) -> ExitCode:
    """Show open transactions that no coordinator knows, for which read_committed consumers wait for ever.

    The exit code is 1 if there is one.
    """
    with open_admin(connection) as admin:
        found = admin.transactions.hanging(
            older_than=timedelta(seconds=older_than), topics=topics or None, timeout=connection.timeout
        )
    show([_row(one) for one in found], output, right=["partition", "producer_id", "epoch", "start"])
    return ExitCode.KAFKA if found else ExitCode.OK


@command.command()
@click.argument("topic")
@click.argument("partition", type=int)
@click.option("--producer-id", type=int, required=True, help="Whose transaction, as `hanging` shows it.")
@click.option("--dry-run", is_flag=True, help="Show what would be aborted, and abort nothing.")
@connection_options
@output_options
def abort(
    topic: str, partition: int, producer_id: int, dry_run: bool, connection: ConnectionOptions, output: Output
) -> ExitCode:
    """Write an abort marker for an open transaction in a partition. Use it only for transactions that hang."""
    with open_admin(connection) as admin:
        known = admin.transactions.producers(topic, partition, timeout=connection.timeout)
        found = [one for one in known if one.producer_id == producer_id and one.transaction_start is not None]
        if not found:
            raise click.UsageError(f"producer {producer_id} has no open transaction in {topic}:{partition}")
        if not dry_run:
            admin.transactions.abort(found[0], timeout=connection.timeout)
    show([{**_row(found[0]), "dry_run": dry_run}], output, right=["partition", "producer_id", "epoch", "start"])
    return ExitCode.OK


@command.command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Show whose producers would be fenced, and fence none.")
@connection_options
@output_options
def fence(ids: tuple[str, ...], dry_run: bool, connection: ConnectionOptions, output: Output) -> ExitCode:
    """Fence the producers of transactional ids, and abort their open transactions."""
    with open_admin(connection) as admin:
        errors: Mapping[str, KwireError]
        if dry_run:
            described = admin.transactions.describe_many(list(ids), timeout=connection.timeout)
            found = {name: (one.producer_id, one.producer_epoch) for name, one in described.ok.items()}
            errors = described.errors
        else:
            results = admin.transactions.fence(list(ids), timeout=connection.timeout)
            found, errors = dict(results.ok), results.errors
    rows = [{"id": name, "producer_id": one[0], "epoch": one[1], "dry_run": dry_run} for name, one in found.items()]
    show(rows, output, right=["producer_id", "epoch"])
    return report(errors, found)


@command.command()
@click.argument("transactional_id", metavar="ID")
@click.option("--dry-run", is_flag=True, help="Show the transaction that would be ended, and end none.")
@connection_options
@output_options
def terminate(transactional_id: str, dry_run: bool, connection: ConnectionOptions, output: Output) -> ExitCode:
    """End the open transaction of an id by force: abort it, fence its producer, and show what it was."""
    with open_admin(connection) as admin:
        one = admin.transactions.terminate(transactional_id, dry_run=dry_run, timeout=connection.timeout)
    show([{**_described(one), "dry_run": dry_run}], output, right=_DESCRIBED_RIGHT)
    return ExitCode.OK


@command.command()
@click.argument("partitions", metavar="TOPIC:PARTITION...", nargs=-1, required=True)
@connection_options
@output_options
def producers(partitions: tuple[str, ...], connection: ConnectionOptions, output: Output) -> ExitCode:
    """Show the producers that a partition knows; `start` is the first offset of an open transaction."""
    with open_admin(connection) as admin:
        rows = [
            _row(one)
            for topic, index in partition_keys(partitions)
            for one in admin.transactions.producers(topic, index, timeout=connection.timeout)
        ]
    show(rows, output, right=["partition", "producer_id", "epoch", "start", "last_timestamp_ms"])
    return ExitCode.OK


def _described(one: Transaction) -> dict[str, Any]:
    return {
        "id": one.id, "state": one.state, "producer_id": one.producer_id, "epoch": one.producer_epoch,
        "timeout_ms": one.timeout_ms,
        "started_at": None if one.started_at is None else one.started_at.isoformat(timespec="seconds"),
        "partitions": [f"{topic}:{partition}" for topic, partition in one.partitions],
    }  # fmt: skip


def _row(one: ActiveProducer) -> dict[str, Any]:
    return {
        "topic": one.topic, "partition": one.partition, "producer_id": one.producer_id, "epoch": one.producer_epoch,
        "start": one.transaction_start, "last_timestamp_ms": one.last_timestamp_ms,
    }  # fmt: skip
