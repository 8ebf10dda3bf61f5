"""`kwire configs`: show and change the configs of topics, brokers, groups and client metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from kwire.cli.admin import open_admin, pairs, show
from kwire.cli.connection import ConnectionOptions, connection_options
from kwire.cli.error_report import ExitCode
from kwire.cli.output import Output, output_options

_TYPES = ("topic", "broker", "broker-logger", "client-metrics", "group")


@click.group(no_args_is_help=True)
def command() -> None:
    """Configs of topics, brokers, groups: get, set, append, reset.

    \b
        kwire configs get --topic orders -b localhost:9092
        kwire configs set --topic orders retention.ms=3600000 --dry-run
        kwire configs reset --broker default log.cleaner.threads
    """


def _resource_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for name, help_text in (
        ("client-metrics", "A subscription to the metrics of clients."),
        ("group", "A group."),
        ("broker-logger", "The log levels of a broker, by its id."),
        ("broker", 'A broker by its id, or "default" for all brokers.'),
        ("topic", "A topic."),
    ):
        function = click.option(f"--{name}", metavar="NAME", help=help_text)(function)
    return function


def _resource(given: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the keyword that names the resource to `Admin.configs`. Raises UsageError."""
    named: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if len(named) != 1:
        raise click.UsageError("name one resource: --topic, --broker, --broker-logger, --group or --client-metrics")
    ((kind, name),) = named.items()
    if kind in ("broker", "broker_logger"):
        if kind == "broker" and name == "default":
            return {"broker": ""}
        if not name.isdigit():
            raise click.UsageError(f"--{kind.replace('_', '-')} {name}: give the id of a broker")
        return {kind: int(name)}
    return {kind: name}


@command.command()
@click.argument("names", metavar="[CONFIG]...", nargs=-1)
@click.option("--all", "with_defaults", is_flag=True, help="Also those that have their default.")
@_resource_options
@connection_options
@output_options
def get(
    names: tuple[str, ...], with_defaults: bool, connection: ConnectionOptions, output: Output, **given: str | None
) -> ExitCode:
    """Show the configs of a resource that differ from their default, or those that are named."""
    resource = _resource(given)
    with open_admin(connection) as admin:
        found = admin.configs.get(names or None, timeout=connection.timeout, **resource)
    rows = [
        {
            "config": one.name, "value": "(sensitive)" if one.is_sensitive else one.value, "source": one.source,
            "type": one.type, "read_only": one.is_read_only,
        }
        for one in found.values()
        if names or with_defaults or not one.is_default
    ]  # fmt: skip
    show(rows, output)
    return ExitCode.OK


@command.command()
@click.option("--type", "types", type=click.Choice(_TYPES), multiple=True, help="Only of this type; repeatable.")
@connection_options
@output_options
def resources(types: tuple[str, ...], connection: ConnectionOptions, output: Output) -> ExitCode:
    """List what has configs of its own (Kafka 4.1; client-metrics since 3.7)."""
    with open_admin(connection) as admin:
        found = admin.configs.resources([one.replace("-", "_") for one in types], timeout=connection.timeout)
    show([{"type": one.type, "name": one.name} for one in found], output)
    return ExitCode.OK


def _change(verb: str, what: str, help_text: str) -> None:
    """Add the command that calls `Admin.configs.<verb>`."""

    @command.command(verb, help=help_text)
    @click.argument("changes", metavar=f"{what}...", nargs=-1, required=True)
    @click.option("--dry-run", is_flag=True, help="Have the cluster check it, and change nothing.")
    @_resource_options
    @connection_options
    @output_options
    def change(
        changes: tuple[str, ...], dry_run: bool, connection: ConnectionOptions, output: Output, **given: str | None
    ) -> ExitCode:
        resource = _resource(given)
        wanted: Any = changes if verb == "reset" else pairs(changes)
        with open_admin(connection) as admin:
            getattr(admin.configs, verb)(wanted, dry_run=dry_run, timeout=connection.timeout, **resource)
        show([{"config": one.partition("=")[0], "changed": not dry_run, "dry_run": dry_run} for one in changes], output)
        return ExitCode.OK


_change("set", "CONFIG=VALUE", "Set configs; the others stay.")
_change("append", "CONFIG=ITEM,...", "Add items to configs whose value is a list.")
_change("subtract", "CONFIG=ITEM,...", "Take items from configs whose value is a list.")
_change("reset", "CONFIG", "Remove the values of configs, so that their defaults hold.")
