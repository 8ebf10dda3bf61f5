"""A decoded frame as JSON or as lines of text: offset, bytes, field, type, value.

The layout is written by hand, without rich, because a frame may have a hundred thousand fields.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any
from uuid import UUID

import click

from kwire.capture.decoded_frame import DecodedFrame
from kwire.capture.field_reader import FieldRow
from kwire.capture.json import value_to_json
from kwire.cli.error_report import error_lines
from kwire.cli.output import Output, has_colour, json_line, printable
from kwire.errors import KwireError

_WIDE = 120
_FIELD_WIDTHS_MAX = (30, 44)  # narrow, wide


class FieldTable:
    """Column widths for some rows. `bytes_max` is how many bytes of a field appear; 0 means all."""

    def __init__(self, rows: Sequence[FieldRow], width: int, bytes_max: int, *, has_colour: bool) -> None:
        self.bytes_max = bytes_max
        self.has_colour = has_colour
        self.offset = max([len("offset"), *(len(_offset(row)) for row in rows)])
        is_wide = width >= _WIDE
        # A narrow terminal needs compact rows: four bytes per word, one space per level.
        self.per_line, self.group = (16, 1) if is_wide else (8, 4)
        self.indent = "  " if is_wide else " "
        longest = min(self.per_line, max((len(row.data) for row in rows), default=1))
        self.hex = max(len("bytes"), len(bytes(longest).hex(" ", -self.group)))
        self.field = min(
            _FIELD_WIDTHS_MAX[is_wide], max([len("field"), *(len(self._indented(row.path)) for row in rows)])
        )
        self.type = max([len("type"), *(len(row.type) for row in rows)])
        self.width = width

    def lines(self, rows: Sequence[FieldRow]) -> Iterator[str]:
        yield self._style(self._line("offset", "bytes", "field", "type", "value"), bold=True)
        above: list[str] = []
        for row in rows:
            *parents, _ = row.path.split(".")
            for depth, parent in enumerate(parents):
                if parents[: depth + 1] != above[: depth + 1]:
                    yield self._style(self._line("", "", self.indent * depth + parent, "", ""), bold=True)
            above = row.path.split(".")
            yield from self._row(row)

    def _row(self, row: FieldRow) -> Iterator[str]:
        value = f"{value_text(row)}  {row.note}".strip() if row.note else value_text(row)
        field = self._indented(row.path)
        # A long path widens its line: its end is the field's name.
        taken = self.offset + 2 + self.hex + 2 + max(self.field, len(field)) + 2 + self.type + 2
        text, rest = _break(value, self.width - taken)
        # What does not fit continues below, where there is more space.
        left = self.offset + 2 + self.hex + 4
        below: list[str] = []
        if rest:
            from textwrap import wrap  # only long lines pay for its import

            below = ["  " + line for line in wrap(rest, max(16, self.width - left), break_on_hyphens=False)]
        hex_first, *hex_below = self._hex(row.data)
        yield self._line(_offset(row), hex_first, field, row.type, text, is_error=row.type == "?")
        for hex_line, text in zip_longest(hex_below, below, fillvalue=""):
            yield self._line("", hex_line, text, "", "")

    def _indented(self, path: str) -> str:
        return self.indent * path.count(".") + path.rpartition(".")[2]

    def _hex(self, data: bytes) -> list[str]:
        visible = data if not self.bytes_max else data[: self.bytes_max]
        lines = [visible[i : i + self.per_line].hex(" ", -self.group) for i in range(0, len(visible), self.per_line)]
        if len(data) > len(visible):
            lines.append(f"and {len(data) - len(visible)} more")
        return lines or [""]

    def _line(self, offset: str, hex: str, field: str, type: str, value: str, *, is_error: bool = False) -> str:
        cells = [f"{offset:>{self.offset}}", f"{hex:<{self.hex}}", f"{field:<{self.field}}", f"{type:<{self.type}}"]
        if is_error:
            cells = [self._style(cell, fg="red") for cell in cells]
        elif offset != "offset":
            cells[0] = self._style(cells[0], dim=True)
            cells[1] = self._style(cells[1], fg="cyan")
            cells[3] = self._style(cells[3], dim=True)
        return "  ".join([*cells, value]).rstrip()

    def _style(self, text: str, **style: Any) -> str:
        return click.style(text, **style) if self.has_colour and text.strip() else text


def _offset(row: FieldRow) -> str:
    # Offsets in decompressed data begin at 0.
    return f"{row.within}+{row.start}" if row.within else str(row.start)


def _break(text: str, width: int) -> tuple[str, str]:
    """Return the words that fit, and the rest."""
    if len(text) <= width:
        return text, ""
    end = text.rfind(" ", 0, max(width, 0) + 1)
    return (text[:end], text[end + 1 :].lstrip()) if end > 0 else ("", text)


def value_text(row: FieldRow) -> str:
    """Return a field's value on one line, shortened: its bytes are beside it."""
    value = value_to_json(row.value)
    if row.type == "?" or (row.value is None and row.note):
        return ""
    if isinstance(value, dict):
        return f"{len(row.value or b'')} bytes"
    text = value if isinstance(row.value, UUID) or row.type == "uint32" else json.dumps(value, ensure_ascii=False)
    text = printable(str(text))
    return text if len(text) <= 200 else f"{text[:200]}... ({len(text)} characters)"


_STRING_SHOWN_MAX = 120


def heading(number: str, size: int, position: str, decoded: DecodedFrame) -> str:
    """Return the line above a frame: frame 1, 35 bytes at 4, Metadata request v9, correlation id 7, client "test"."""
    parts = [number, f"{size} bytes {position}".rstrip()]
    parts.append(f"{decoded.api.name} {decoded.kind} v{decoded.version}" if decoded.api else f"unknown {decoded.kind}")
    if "correlationId" in decoded.header:
        parts.append(f"correlation id {decoded.header['correlationId']}")
    if decoded.header.get("clientId") is not None:
        parts.append(f"client {json_line(decoded.header['clientId'])}")
    return ", ".join(parts)


def print_frame(line: str, decoded: DecodedFrame, output: Output, bytes_max: int | None) -> None:
    """Print one frame below its heading. `bytes_max` None leaves the bytes out."""
    is_coloured = has_colour()
    output.text(click.style(line, bold=True) if is_coloured else line)
    if decoded.message is not None:
        output.text(json.dumps(_shortened(decoded.message), indent=2, ensure_ascii=False))
    for path, name, inner in decoded.nested():
        output.text(f"{path}: {name} {json.dumps(_shortened(inner), ensure_ascii=False)}")
    if bytes_max is not None:
        output.text()
        layout = FieldTable(decoded.rows, output.console().width, bytes_max, has_colour=is_coloured)
        for line in layout.lines(decoded.rows):
            output.text(line)
    for problem in decoded.problems:
        output.text()
        print_problem(problem, output)


def print_problem(problem: KwireError, output: Output) -> None:
    """Print a problem at its place among the data."""
    first, *others = error_lines(problem)
    output.text(click.style(first, fg="red", bold=True) if has_colour() else first)
    for line in others:
        output.text(line)


def _shortened(value: Any) -> Any:
    """Return the message with long strings cut: -f json has them whole."""
    if isinstance(value, dict):
        return {name: _shortened(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_shortened(inner) for inner in value]
    if isinstance(value, str) and len(value) > _STRING_SHOWN_MAX:
        return f"{value[:40]}... ({len(value)} characters)"
    return value
