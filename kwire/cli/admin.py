"""What the commands over the nouns of `kwire.Admin` share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from kwire.cli.connection import ConnectionOptions
from kwire.cli.error_report import ExitCode, print_error
from kwire.cli.output import Output

if TYPE_CHECKING:
    from kwire.admin import Admin
    from kwire.errors import KwireError


def open_admin(connection: ConnectionOptions) -> Admin:
    """Return an admin client for the options of the command line."""
    from kwire.admin import Admin

    options = connection.client_options()
    return Admin(options.pop("bootstrap"), **options)


def report(errors: Mapping[Any, KwireError]) -> ExitCode:
    """Print the errors of single things, and return the exit code."""
    for error in errors.values():
        print_error(str(error))
    return ExitCode.KAFKA if errors else ExitCode.OK


def show(rows: Iterable[Mapping[str, Any]], output: Output, *, right: Iterable[str] = ()) -> None:
    """Write dicts with the same keys: as a table whose header they are, or as JSON, one a line."""
    found = list(rows)
    if not output.is_table:
        for row in found:
            output.json(dict(row))
    elif found:
        output.table(list(found[0]), [[_cell(value) for value in row.values()] for row in found], right=list(right))


def partition_keys(texts: Iterable[str]) -> list[tuple[str, int]]:
    """Return the partitions that "topic:partition" means. Raises UsageError."""
    keys = []
    for text in texts:
        topic, colon, number = text.rpartition(":")
        if not (topic and colon and number.isascii() and number.isdigit()):
            raise click.UsageError(f"{text!r} is no partition: write TOPIC:NUMBER, such as orders:0")
        keys.append((topic, int(number)))
    return keys


def pairs(texts: Iterable[str]) -> dict[str, str]:
    """Return the names and values that "name=value" means. Raises UsageError."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise click.UsageError(f"{text!r} sets nothing: write NAME=VALUE")
        found[name] = value
    return found


def _cell(value: Any) -> str | int:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, int):
        return value
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={one}" for name, one in value.items())
    return str(value)
