"""A hook of mkdocs that writes the tables of the reference from the code: options, errors, error codes, commands.

A page asks for one with a line such as `{{ options kwire.cluster.ClientConfig }}`; `WRITERS` has the names.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from kwire.cli.app import kwire as command_line
from kwire.errors import ErrorCode, KwireError
from kwire.option_checks import options_of

ROOT = Path(__file__).resolve().parents[2]
_LINE = re.compile(r"^\{\{ (\w+)(?: ([\w.]+))? \}\}$", re.MULTILINE)
_WIDTH = 100


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the lines that ask for a table. Called by mkdocs for each page."""
    return _LINE.sub(lambda found: WRITERS[found[1]](*filter(None, [found[2]])), markdown)


def _cell(text: object) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")


def _table(head: list[str], rows: Iterator[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, cells))} |" for cells in lines)


def _class(path: str) -> type[Any]:
    module, _, name = path.rpartition(".")
    found: type[Any] = getattr(importlib.import_module(module), name)
    return found


def options(path: str) -> str:
    """Return the options that a class declares, with default, unit, what is allowed, and what they are for."""
    rows = (
        [f"`{name}`", f"`{one.shown_default}`", one.unit or "", one.kind.wanted(one.unit), one.doc]
        for name, one in options_of(_class(path)).items()
    )
    return _table(["option", "default", "unit", "allowed", "what it does"], rows)


def fields(path: str) -> str:
    """Return the fields of a dataclass with their defaults and the comments beside them."""
    declaring = _class(path)
    comments = dict(re.findall(r"^    (\w+):[^#\n]*  # (.*)$", inspect.getsource(declaring), re.MULTILINE))
    rows = (
        [f"`{one.name}`", f"`{_default(one)}`", comments.get(one.name, "")] for one in dataclasses.fields(declaring)
    )
    return _table(["option", "default", "remark"], rows)


def _default(one: dataclasses.Field[Any]) -> str:
    if one.default_factory is not dataclasses.MISSING:
        return repr(one.default_factory())
    return str(one.default) if not isinstance(one.default, str) else repr(one.default)


def errors() -> str:
    """Return the tree of error classes, each with the first paragraph of its docstring."""

    def rows(kind: type[KwireError], depth: int) -> Iterator[list[str]]:
        text = (inspect.getdoc(kind) or "").partition("\n\n")[0]
        yield [f"{'&emsp;' * depth}`{kind.__name__}`", text]
        for heir in sorted(kind.__subclasses__(), key=_position):
            if heir.__module__ == kind.__module__:
                yield from rows(heir, depth + 1)

    return _table(["class", "what happened"], rows(KwireError, 0))


def _position(kind: type[KwireError]) -> int:
    return inspect.getsourcelines(kind)[1]


def error_codes() -> str:
    """Return Kafka's error codes with what is usually behind them and what to do."""
    rows = (
        [str(int(code)), f"`{code.name}`", "yes" if code.is_retriable else "", code.usual_cause]
        for code in sorted(ErrorCode, key=int)
        if code is not ErrorCode.NONE
    )
    return _table(["code", "name", "retriable", "usual cause, and what to do"], rows)


def commands() -> str:
    """Return the help of the command line, command by command."""
    context = click.Context(command_line, info_name="kwire", terminal_width=_WIDTH, max_content_width=_WIDTH)
    sections = [("kwire", context.get_help())]
    for name in command_line.list_commands(context):
        command = command_line.get_command(context, name)
        assert command is not None
        help_ = click.Context(command, context, name, terminal_width=_WIDTH, max_content_width=_WIDTH).get_help()
        sections.append((f"kwire {name}", help_))
    return "\n\n".join(f"## {title}\n\n```text\n{text}\n```" for title, text in sections)


def examples() -> str:
    """Return every program of examples/ under the first line of its docstring."""
    sections = []
    for path in sorted((ROOT / "examples").glob("*.py")):
        source = path.read_text()
        title = (ast.get_docstring(ast.parse(source)) or path.name).partition("\n")[0]
        sections.append(f"## {path.name}\n\n{title}\n\n```py\n{source}```")
    return "\n\n".join(sections)


WRITERS: dict[str, Callable[..., str]] = {
    "commands": commands,
    "error_codes": error_codes,
    "errors": errors,
    "examples": examples,
    "fields": fields,
    "options": options,
}
