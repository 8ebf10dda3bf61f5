"""`kwire users`: list SCRAM users, set and delete their passwords."""

from __future__ import annotations

import sys
from typing import Any

import click

from kwire.cli.admin import open_admin, report, show
from kwire.cli.connection import ConnectionOptions, connection_options
from kwire.cli.error_report import ExitCode
from kwire.cli.output import Output, output_options

_mechanism = click.option(
    "--mechanism", type=click.Choice(["SCRAM-SHA-256", "SCRAM-SHA-512"]), default="SCRAM-SHA-512", show_default=True,
    help="The mechanism that the password is for.",
)  # fmt: skip

_dry_run = click.option("--dry-run", is_flag=True, help="Check what can be checked, and change nothing.")


class _AskedFor(click.Option):
    """An option that is asked for; without a terminal click would show a warning of Python and what is typed."""

    def prompt_for_value(self, ctx: click.Context) -> Any:
        if not sys.stdin.isatty():
            raise click.UsageError(f"there is no terminal to ask for the password: set {self.envvar} (not empty)")
        return super().prompt_for_value(ctx)


@click.group(no_args_is_help=True)
def command() -> None:
    """SCRAM users: list, set, delete.

    \b
        kwire users set alice -b localhost:9092
        kwire users list
    """


@command.command("list")
@click.argument("users", metavar="[USER]...", nargs=-1)
@connection_options
@output_options
def list_users(users: tuple[str, ...], connection: ConnectionOptions, output: Output) -> ExitCode:
    """Show which users have passwords, for which mechanisms. Passwords are never shown."""
    with open_admin(connection) as admin:
        results = admin.users.list(users or None, timeout=connection.timeout)
    show([{"user": one.name, "iterations": dict(one.iterations)} for one in results.ok.values()], output)
    return report(results.errors, results.ok)


@command.command("set")
@click.argument("user")
@click.password_option(
    "--new-password", envvar="KWIRE_NEW_PASSWORD", cls=_AskedFor, help="Default: it is asked for on the terminal."
)
@_mechanism
@click.option("--iterations", type=int, default=8_192, show_default=True, help="Of the hash, 4096 to 16384.")
@_dry_run
@connection_options
@output_options
def set_password(
    user: str, new_password: str, mechanism: str, iterations: int, dry_run: bool, connection: ConnectionOptions,
    output: Output,
) -> ExitCode:  # fmt: skip
    """Set the password of a user. It is salted here and does not leave this process."""
    with open_admin(connection) as admin:
        if dry_run:
            admin.users.list(timeout=connection.timeout)  # shows whether you may see users, and the brokers have them
        else:
            admin.users.set_scram(
                user, new_password, mechanism=mechanism, iterations=iterations, timeout=connection.timeout
            )
    show([{"user": user, "mechanism": mechanism, "iterations": iterations, "dry_run": dry_run}], output)
    return ExitCode.OK


@command.command()
@click.argument("user")
@_mechanism
@_dry_run
@connection_options
@output_options
def delete(user: str, mechanism: str, dry_run: bool, connection: ConnectionOptions, output: Output) -> ExitCode:
    """Delete the password of a user for one mechanism."""
    with open_admin(connection) as admin:
        if not dry_run:
            admin.users.delete_scram(user, mechanism=mechanism, timeout=connection.timeout)
        elif mechanism not in admin.users.list([user], timeout=connection.timeout)[user].iterations:
            raise click.UsageError(f"{user} has no password for {mechanism}")
    show([{"user": user, "mechanism": mechanism, "deleted": not dry_run, "dry_run": dry_run}], output)
    return ExitCode.OK
