"""`kwire acls`: list, add and remove access rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from kwire.cli.admin import open_admin, show
from kwire.cli.connection import ConnectionOptions, connection_options
from kwire.cli.error_report import ExitCode
from kwire.cli.output import Output, output_options

if TYPE_CHECKING:
    from kwire.admin import Acl

_RESOURCES = ("topic", "group", "cluster", "transactional_id", "delegation_token", "user")


@click.group(no_args_is_help=True)
def command() -> None:
    """Access rules (ACLs): list, add, remove.

    \b
        kwire acls add --allow User:alice --operation read --resource topic --name orders- --prefixed
        kwire acls list --resource topic --name orders-1 --matching
    """


def _filter_options(function: Callable[..., Any]) -> Callable[..., Any]:
    options = [
        click.option("--resource", type=click.Choice(_RESOURCES), help="Rules for this type of resource."),
        click.option("--name", help="Rules with this name of a resource."),
        click.option("--matching", is_flag=True, help="Rules that apply to --name, prefixes and * included."),
        click.option("--principal", help='Rules for this principal, such as "User:alice".'),
        click.option("--host", help="Rules for this address."),
        click.option("--operation", help="Rules for this operation, such as read."),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def _filter(
    resource: str | None, name: str | None, matching: bool, principal: str | None, host: str | None,
    operation: str | None,
) -> Any:  # fmt: skip
    from kwire.admin import AclFilter

    return AclFilter(
        resource=resource or "any", name=name, pattern="match" if matching else "any", principal=principal, host=host,
        operation=operation or "any",
    )  # fmt: skip


@command.command("list")
@_filter_options
@connection_options
@output_options
def list_acls(
    resource: str | None, name: str | None, matching: bool, principal: str | None, host: str | None,
    operation: str | None, connection: ConnectionOptions, output: Output,
) -> ExitCode:  # fmt: skip
    """List the rules that match all options, by default all rules."""
    with open_admin(connection) as admin:
        wanted = _filter(resource, name, matching, principal, host, operation)
        found = admin.acls.find(wanted, timeout=connection.timeout)
    show([_row(one) for one in found], output)
    return ExitCode.OK


@command.command()
@click.option("--allow", metavar="PRINCIPAL", help='Allow it to this principal, such as "User:alice" or "User:*".')
@click.option("--deny", metavar="PRINCIPAL", help="Forbid it to this principal, whatever else is allowed.")
@click.option("--operation", required=True, help="read, write, create, delete, alter, describe, all ...")
@click.option("--resource", type=click.Choice(_RESOURCES), required=True, help="The type of the resource.")
@click.option("--name", help="The name of the resource. Not for the cluster.")
@click.option("--prefixed", is_flag=True, help="All resources whose name begins with --name.")
@click.option("--host", default="*", show_default=True, help="The client's address.")
@click.option("--dry-run", is_flag=True, help="Show the rule, and add nothing.")
@connection_options
@output_options
def add(
    allow: str | None, deny: str | None, operation: str, resource: str, name: str | None, prefixed: bool, host: str,
    dry_run: bool, connection: ConnectionOptions, output: Output,
) -> ExitCode:  # fmt: skip
    """Add a rule."""
    from kwire.admin import Acl

    if (allow is None) == (deny is None):
        raise click.UsageError("give --allow PRINCIPAL or --deny PRINCIPAL")
    if (name is None) != (resource == "cluster"):
        raise click.UsageError("give --name with every resource but the cluster")
    make = Acl.deny if allow is None else Acl.allow
    where: dict[str, Any] = {resource: True if name is None else name}
    rule = make(allow or deny or "", operation, host=host).on(**where, prefix=prefixed).checked()
    if not dry_run:
        with open_admin(connection) as admin:
            admin.acls.add(rule, timeout=connection.timeout)
    show([{**_row(rule), "dry_run": dry_run}], output)
    return ExitCode.OK


@command.command()
@_filter_options
@click.option("--dry-run", is_flag=True, help="Show which rules would be removed, and remove none.")
@connection_options
@output_options
def remove(
    resource: str | None, name: str | None, matching: bool, principal: str | None, host: str | None,
    operation: str | None, dry_run: bool, connection: ConnectionOptions, output: Output,
) -> ExitCode:  # fmt: skip
    """Remove the rules that match all options; at least one option is needed."""
    wanted = _filter(resource, name, matching, principal, host, operation)
    with open_admin(connection) as admin:
        verb = admin.acls.find if dry_run else admin.acls.remove
        found = verb(wanted, timeout=connection.timeout)
    show([{**_row(one), "dry_run": dry_run} for one in found], output)
    return ExitCode.OK


def _row(one: Acl) -> dict[str, Any]:
    return {
        "permission": one.permission, "principal": one.principal, "operation": one.operation,
        "resource": one.resource, "name": one.name, "pattern": one.pattern, "host": one.host,
    }  # fmt: skip
