"""`kwire tokens`: create delegation tokens, list, renew and expire them."""

from __future__ import annotations

import json
import os
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from kwire.cli.admin import duration, open_admin, show
from kwire.cli.connection import ConnectionOptions, connection_options
from kwire.cli.error_report import ExitCode
from kwire.cli.output import Output, output_options

if TYPE_CHECKING:
    from kwire.admin import Admin, DelegationToken

_dry_run = click.option("--dry-run", is_flag=True, help="Show the token, and change nothing.")


@click.group(no_args_is_help=True)
def command() -> None:
    """Delegation tokens: create, list, renew, expire.

    \b
        kwire tokens create --save job.json -b localhost:9092
        kwire tokens renew d0ABCjBzRYyzkyBcIVhMrg --by 12h
    """


@command.command()
@click.option(
    "--save",
    type=click.Path(dir_okay=False),
    required=True,
    metavar="FILE",
    help="Where to write id and password, as JSON that only you can read. They are not shown.",
)
@click.option("--owner", metavar="PRINCIPAL", help='Whom the token stands for, such as "User:job". Default: you.')
@click.option("--renewer", "renewers", multiple=True, metavar="PRINCIPAL", help="Who may renew it; repeatable.")
@click.option("--lifetime", metavar="TIME", help="Until nobody can renew it, such as 12h. Default: the brokers'.")
@click.option("--dry-run", is_flag=True, help="Check the options and the file, and create nothing.")
@connection_options
@output_options
def create(
    save: str, owner: str | None, renewers: tuple[str, ...], lifetime: str | None, dry_run: bool,
    connection: ConnectionOptions, output: Output,
) -> ExitCode:  # fmt: skip
    """Create a delegation token. The file must not exist."""
    living = None if lifetime is None else duration("--lifetime", lifetime)
    with open_admin(connection) as admin:
        if dry_run:
            admin.tokens.list(timeout=connection.timeout)  # shows whether the brokers have tokens at all
            if os.path.lexists(save):
                raise _exists(save)
            show([{"owner": owner, "renewers": list(renewers), "file": save, "dry_run": True}], output)
            return ExitCode.OK
        try:
            # Before the token: one whose password is lost could be used by nobody.
            handle = os.open(save, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise _exists(save) from None
        except OSError as error:
            raise click.UsageError(f"--save {save}: {error.strerror}") from None
        with open(handle, "w", encoding="utf-8") as file:
            try:
                token = admin.tokens.create(owner=owner, renewers=renewers, lifetime=living, timeout=connection.timeout)
            except BaseException:
                os.unlink(save)
                raise
            json.dump({"token_id": token.id, "password": token.password}, file)
            file.write("\n")
    show([{**_row(token), "file": save, "dry_run": False}], output)
    return ExitCode.OK


@command.command("list")
@click.option("--owner", "owners", multiple=True, metavar="PRINCIPAL", help="Only tokens of this owner; repeatable.")
@connection_options
@output_options
def list_tokens(owners: tuple[str, ...], connection: ConnectionOptions, output: Output) -> ExitCode:
    """Show the tokens that you may see. Their passwords are never shown."""
    with open_admin(connection) as admin:
        found = admin.tokens.list(owners or None, timeout=connection.timeout)
    show([_row(one) for one in found], output)
    return ExitCode.OK


@command.command()
@click.argument("token", metavar="ID")
@click.option("--by", metavar="TIME", help="How long it lives from now on, such as 12h. Default: the brokers'.")
@_dry_run
@connection_options
@output_options
def renew(token: str, by: str | None, dry_run: bool, connection: ConnectionOptions, output: Output) -> ExitCode:
    """Let a token live longer. It never outlives its lifetime."""
    period = None if by is None else duration("--by", by)
    with open_admin(connection) as admin:
        found = _find(admin, token, connection)
        until = found.expires_at if dry_run else admin.tokens.renew(found, by=period, timeout=connection.timeout)
    show([{**_row(found), "expires_at": _text(until), "dry_run": dry_run}], output)
    return ExitCode.OK


@command.command()
@click.argument("token", metavar="ID")
@click.option("--after", metavar="TIME", help="Let it live for this long yet, such as 10m. Default: end it at once.")
@_dry_run
@connection_options
@output_options
def expire(token: str, after: str | None, dry_run: bool, connection: ConnectionOptions, output: Output) -> ExitCode:
    """End a token. Connections that it authenticated stay until they authenticate again."""
    period = None if after is None else duration("--after", after)
    with open_admin(connection) as admin:
        found = _find(admin, token, connection)
        until = found.expires_at if dry_run else admin.tokens.expire(found, after=period, timeout=connection.timeout)
    show([{**_row(found), "expires_at": _text(until), "dry_run": dry_run}], output)
    return ExitCode.OK


def _find(admin: Admin, id: str, connection: ConnectionOptions) -> DelegationToken:
    for one in admin.tokens.list(timeout=connection.timeout):
        if one.id == id:
            return one
    raise click.UsageError(f"you see no token {id}: `kwire tokens list` shows those that you may see")


def _row(token: DelegationToken) -> dict[str, Any]:
    return {
        "id": token.id, "owner": token.owner, "requester": token.requester, "renewers": list(token.renewers),
        "issued_at": _text(token.issued_at), "expires_at": _text(token.expires_at),
        "lives_until": _text(token.lives_until),
    }  # fmt: skip


def _text(time: datetime) -> str:
    return time.isoformat(timespec="seconds")


def _exists(path: str) -> click.UsageError:
    return click.UsageError(f"--save {path}: the file exists; name another one")
