"""What the commands over the nouns of `kwire.Admin` share."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from kwire.cli.connection import ConnectionOptions
from kwire.cli.error_report import ExitCode, error_lines, exit_code, print_error, report_error
from kwire.cli.output import Output

if TYPE_CHECKING:
    from kwire.admin import Admin
    from kwire.errors import KwireError

_DURATION = re.compile(r"(\d+)(ms|s|m|h|d|w)", re.ASCII)
_NAMES = ("topic", "partition", "group", "resource")  # the places of an error that say what it is about
_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def open_admin(connection: ConnectionOptions) -> Admin:
    """Return an admin client for the options of the command line."""
    from kwire.admin import Admin

    options = connection.client_options()
    return Admin(options.pop("bootstrap"), **options)


def report(errors: Mapping[Any, KwireError], done: Collection[Any]) -> ExitCode:
    """Print the errors of single things, and return the exit code. `done` is what succeeded.

    CONNECTION is for no broker reached: nothing succeeded, and each error is one. Equal errors are then printed once.
    """
    if not errors:
        return ExitCode.OK
    if not done and all(exit_code(error) == ExitCode.CONNECTION for error in errors.values()):
        alike: dict[tuple[str, ...], list[KwireError]] = {}
        for error in errors.values():
            alike.setdefault(tuple(error_lines(error, without=_NAMES)), []).append(error)
        for lines, found in alike.items():
            print_error(*(lines if len(found) > 1 else error_lines(found[0])))
        return ExitCode.CONNECTION
    for error in errors.values():
        if error.__cause__ is not None:
            report_error(error)
        else:
            print_error(str(error))
    return ExitCode.KAFKA


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


def duration(option: str, text: str) -> timedelta:
    """Return the time that "90s" or "12h" means. Raises UsageError."""
    found = _DURATION.fullmatch(text)
    if found is None or not int(found[1]):
        raise click.UsageError(f"{option} {text}: give a time such as 90s, 30m, 12h or 7d")
    try:
        return timedelta(**{_UNITS[found[2]]: int(found[1])})
    except OverflowError:
        raise click.UsageError(f"{option} {text}: that is longer than the calendar") from None


def time_of(option: str, text: str, also: Iterable[str] = ()) -> datetime | timedelta:
    """Return the moment that "2026-11-01T12:00" means, or how long ago "-2h" is. Raises UsageError."""
    if text.startswith("-"):
        return duration(option, text[1:])
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        others = "".join(f"{name}, " for name in also)
        raise click.UsageError(f"{option} {text}: give {others}a time (2026-11-01T12:00), or -2h") from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


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
