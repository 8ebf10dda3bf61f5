"""`kwire quotas`: show and set the limits of users, client ids and addresses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from kwire.cli.admin import open_admin, pairs, show
from kwire.cli.connection import ConnectionOptions, connection_options
from kwire.cli.error_report import ExitCode
from kwire.cli.output import Output, output_options

_DEFAULT = "default"


@click.group(no_args_is_help=True)
def command() -> None:
    """Quotas of users, client ids and addresses: get, set.

    \b
        kwire quotas set --user alice producer_byte_rate=1000000 -b localhost:9092
        kwire quotas get --user alice
    """


def _entity_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for name, what in (("ip", "An address"), ("client-id", "A client id"), ("user", "A user")):
        help_text = f'{what}, or "{_DEFAULT}" for all that have no quota of their own.'
        function = click.option(f"--{name}", metavar="NAME", help=help_text)(function)
    return function


def _entity(**given: str | None) -> dict[str, Any]:
    return {name: None if value == _DEFAULT else value for name, value in given.items() if value is not None}


@command.command()
@_entity_options
@click.option("--strict", is_flag=True, help="Only entities that have no other part than the options name.")
@connection_options
@output_options
def get(
    user: str | None, client_id: str | None, ip: str | None, strict: bool, connection: ConnectionOptions,
    output: Output,
) -> ExitCode:  # fmt: skip
    """Show the quotas of the entities that match, by default all."""
    with open_admin(connection) as admin:
        wanted = _entity(user=user, client_id=client_id, ip=ip)
        found = admin.quotas.get(**wanted, strict=strict, timeout=connection.timeout)
    rows = [
        {"entity": {name: value or _DEFAULT for name, value in one.entity.items()}, "limits": dict(one.values)}
        for one in found
    ]
    show(rows, output)
    return ExitCode.OK


@command.command("set")
@click.argument("limits", metavar="LIMIT=NUMBER...", nargs=-1, required=True)
@_entity_options
@click.option("--dry-run", is_flag=True, help="Have the cluster check it, and change nothing.")
@connection_options
@output_options
def set_quotas(
    limits: tuple[str, ...], user: str | None, client_id: str | None, ip: str | None, dry_run: bool,
    connection: ConnectionOptions, output: Output,
) -> ExitCode:  # fmt: skip
    """Set limits of one entity; LIMIT=none removes one.

    Limits are producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate and
    connection_creation_rate.
    """
    values: dict[str, Any] = {}
    for name, text in pairs(limits).items():
        try:
            values[name] = None if text == "none" else float(text)
        except ValueError:
            raise click.UsageError(f"{name}={text}: give a number, or none to remove the limit") from None
    with open_admin(connection) as admin:
        wanted = _entity(user=user, client_id=client_id, ip=ip)
        admin.quotas.set(**wanted, **values, dry_run=dry_run, timeout=connection.timeout)
    entity = {name: value or _DEFAULT for name, value in wanted.items()}
    show([{"entity": entity, "limits": values, "dry_run": dry_run}], output)
    return ExitCode.OK
