"""`kwire client-metrics`: which metrics clients push to the brokers (KIP-714)."""

from __future__ import annotations

import click

from kwire.cli.admin import open_admin, pairs, show
from kwire.cli.connection import ConnectionOptions, connection_options
from kwire.cli.error_report import ExitCode
from kwire.cli.output import Output, output_options


@click.group(no_args_is_help=True)
def command() -> None:
    """Metrics that clients push: list, set, delete.

    \b
        kwire client-metrics set lags org.apache.kafka.consumer. --interval-ms 60000
        kwire client-metrics set etl '*' --match client_id='etl-.*'
    """


@command.command("list")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@connection_options
@output_options
def list_subscriptions(names: tuple[str, ...], connection: ConnectionOptions, output: Output) -> ExitCode:
    """Show the subscriptions: which metrics, how often, of which clients."""
    with open_admin(connection) as admin:
        wanted = names or admin.client_metrics.list(timeout=connection.timeout)
        found = [admin.client_metrics.get(name, timeout=connection.timeout) for name in wanted]
    rows = [
        {"name": one.name, "metrics": list(one.metrics), "interval_ms": one.interval_ms, "match": dict(one.match)}
        for one in found
    ]
    show(rows, output, right=["interval_ms"])
    return ExitCode.OK


@command.command("set")
@click.argument("name")
@click.argument("metrics", metavar="METRIC...", nargs=-1, required=True)
@click.option("--interval-ms", type=int, help="How often clients push. Default: the brokers', five minutes.")
@click.option(
    "--match",
    "patterns",
    multiple=True,
    metavar="PROPERTY=REGEX",
    help="Only clients that match, by client_id, client_instance_id, client_software_name, "
    "client_software_version, client_source_address or client_source_port; repeatable.",
)
@click.option("--dry-run", is_flag=True, help="Have the cluster check it, and change nothing.")
@connection_options
@output_options
def set_subscription(
    name: str, metrics: tuple[str, ...], interval_ms: int | None, patterns: tuple[str, ...], dry_run: bool,
    connection: ConnectionOptions, output: Output,
) -> ExitCode:  # fmt: skip
    """Have clients push the metrics whose names begin with one of METRIC; * means all."""
    match = pairs(patterns) or None
    with open_admin(connection) as admin:
        admin.client_metrics.set(
            name, metrics, interval_ms=interval_ms, match=match, dry_run=dry_run, timeout=connection.timeout
        )
    row = {"name": name, "metrics": list(metrics), "interval_ms": interval_ms, "match": match, "dry_run": dry_run}
    show([row], output, right=["interval_ms"])
    return ExitCode.OK


@command.command()
@click.argument("name")
@click.option("--dry-run", is_flag=True, help="Have the cluster check it, and change nothing.")
@connection_options
@output_options
def delete(name: str, dry_run: bool, connection: ConnectionOptions, output: Output) -> ExitCode:
    """Remove a subscription, so that clients push no more for it."""
    with open_admin(connection) as admin:
        admin.client_metrics.delete(name, dry_run=dry_run, timeout=connection.timeout)
    show([{"name": name, "deleted": not dry_run, "dry_run": dry_run}], output)
    return ExitCode.OK
