"""Where a command writes: data to stdout as a table or as JSON lines, remarks to stderr.

rich is imported only when a table is drawn; it honours NO_COLOR and COLUMNS.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from kwire.cli.error_report import is_utf8, takes_colour
from kwire.cli.stderr_log import log_to_stderr
from kwire.errors import counted as counted

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text


Command = TypeVar("Command", bound=Callable[..., Any])
# Outside a terminal there is no width to fit.
_WIDTH_WHEN_PIPED = 200


@dataclass(frozen=True, slots=True, eq=False)
class Output:
    """Where the options send output. `is_table` is false if JSON lines are wanted."""

    is_table: bool
    quiet: bool
    verbose: int
    fields: tuple[str, ...] = ()  # of --json-fields

    def json(self, value: Any) -> None:
        """Write one line of JSON."""
        sys.stdout.write(json_line(self.chosen(value)) + "\n")

    def chosen(self, value: Any) -> Any:
        """Return the fields that --json-fields names, by the names given there; everything without it."""
        return {path: _at(value, path.split(".")) for path in self.fields} if self.fields else value

    def text(self, line: str = "") -> None:
        sys.stdout.write(line + "\n")

    def note(self, text: str) -> None:
        """Write a remark to stderr; -q silences it."""
        if not self.quiet:
            sys.stdout.flush()
            click.echo(text, err=True)

    def draw(self, *things: RenderableType) -> None:
        """Print what rich can render."""
        sys.stdout.flush()
        console = self.console()
        for thing in things:
            console.print(thing)

    def table(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[object]],
        *,
        right: Collection[str] = (),
        whole: Collection[str] = (),
    ) -> None:
        """Print a table without lines around cells, so that a selection can be pasted.

        A cell is a string, rich text, or an object with a str(). A column that is empty throughout is left out. `right`
        names the right-aligned columns, `whole` those that are never wrapped.
        """
        from rich.table import Table

        cells = [[_cell(cell) for cell in row] for row in rows]
        used = [index for index in range(len(columns)) if not cells or any(str(row[index]) for row in cells)]
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for index in used:
            name = columns[index]
            justify: Literal["left", "right"] = "right" if name in right else "left"
            table.add_column(name, justify=justify, overflow="fold", no_wrap=name in whole)
        for row in cells:
            table.add_row(*(row[index] for index in used))
        self.draw(table)

    def console(self) -> Console:
        from rich.console import Console

        width = None if sys.stdout.isatty() else _WIDTH_WHEN_PIPED
        return Console(highlight=False, markup=False, emoji=False, width=width)


def _at(value: Any, path: Sequence[str]) -> Any:
    """Return what is at a path: null where there is nothing, a list of each one's in a list."""
    if not path:
        return value
    if isinstance(value, list):
        return [_at(one, path) for one in value]
    return _at(value.get(path[0]), path[1:]) if isinstance(value, dict) else None


def has_colour() -> bool:
    """Return whether to colour what rich does not draw."""
    return takes_colour(sys.stdout)


def json_line(value: Any) -> str:
    # A stream without UTF-8 gets \u escapes: the same JSON.
    return json.dumps(value, ensure_ascii=not is_utf8(sys.stdout), separators=(", ", ": "))


def _cell(cell: object) -> str | Text:
    from rich.text import Text

    return cell if isinstance(cell, Text) else "" if cell is None else printable(str(cell))


def styled(text: str, style: str) -> Text:
    from rich.text import Text

    return Text(text, style)


def printable(text: str) -> str:
    """Escape control characters, so that text from the wire cannot control the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def output_options(command: Command) -> Command:
    """Add -f, --json-fields, --no-color, -q and -v; the command gets `output=Output`."""

    @click.option(
        "-f",
        "--format",
        "format_",
        type=click.Choice(["auto", "table", "json"]),
        default="auto",
        show_default=True,
        help="auto: a table on a terminal, JSON lines in a pipe.",
    )
    @click.option(
        "--json-fields",
        metavar="A,B.C,...",
        help="JSON lines with only these fields; B.C is the field C within B.",
    )
    @click.option("--no-color", is_flag=True, help="No colours, as the variable NO_COLOR says for all programs.")
    @click.option("-q", "--quiet", is_flag=True, help="Print only errors on stderr, no remarks.")
    @click.option("-v", "--verbose", count=True, help="Log connections to stderr; -vv: also each request and response.")
    @functools.wraps(command)
    def wrapped(
        *args: Any, format_: str, quiet: bool, verbose: int, no_color: bool, json_fields: str | None, **kwargs: Any
    ) -> Any:
        if no_color:
            os.environ["NO_COLOR"] = "1"  # rich and the programs of --exec read it, too
        click.get_current_context().with_resource(log_to_stderr(verbose))
        fields = tuple(filter(None, (one.strip() for one in (json_fields or "").split(","))))
        if json_fields is not None and (format_ == "table" or not fields):
            raise click.UsageError("--json-fields needs names of fields, and no table")
        is_table = not fields and (format_ == "table" or (format_ == "auto" and sys.stdout.isatty()))
        return command(*args, output=Output(is_table, quiet, verbose, fields), **kwargs)

    return wrapped  # type: ignore[return-value]
