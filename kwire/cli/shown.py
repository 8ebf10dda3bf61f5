"""A frame that was read, as JSON or as lines for a person: what `kwire decode` prints of pasted bytes and of captures.

Owns the words and the order. Refuses to read: a `Reading` comes with all that is known.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click

from kwire.cli.annotated import Layout, row_to_json
from kwire.cli.failures import explain
from kwire.cli.output import Output, has_colour, json_line
from kwire.cli.reading import Reading
from kwire.cli.values import batch_to_json, records_to_json
from kwire.errors import KwireError
from kwire.records import decode_batches

_STRING_SHOWN_MAX = 120


def reading_to_json(reading: Reading, *, annotate: bool) -> dict[str, Any]:
    """Header, message, batches, problems and, with `annotate`, the bytes of every field."""
    shown: dict[str, Any] = {"header": reading.header, "message": reading.message}
    if reading.batches:
        shown["batches"] = [batch for path, data in reading.batches for batch in _batches_to_json(path, data)]
    if reading.problems:
        shown["problems"] = [
            {"message": problem.message, **problem.where, "remedy": problem.remedy} for problem in reading.problems
        ]
    if annotate:
        shown["fields"] = [row_to_json(row) for row in reading.rows]
    return shown


def _batches_to_json(path: str, data: memoryview) -> Iterator[dict[str, Any]]:
    """The batches that are sound; what is wrong with the others stands among the problems."""
    try:
        for batch in decode_batches(data, check_crc=False):
            yield {"path": path, **batch_to_json(batch), "records": records_to_json(batch)}
    except KwireError:
        return


def heading(number: str, size: int, place: str, reading: Reading) -> str:
    """The line above a frame: frame 1, 35 bytes at 4, Metadata request v9, correlation id 7, client "test"."""
    said = [number, f"{size} bytes {place}".rstrip()]
    said.append(f"{reading.api.name} {reading.kind} v{reading.version}" if reading.api else f"unknown {reading.kind}")
    if "correlationId" in reading.header:
        said.append(f"correlation id {reading.header['correlationId']}")
    if reading.header.get("clientId") is not None:
        said.append(f"client {json_line(reading.header['clientId'])}")
    return ", ".join(said)


def print_reading(line: str, reading: Reading, output: Output, bytes_max: int | None) -> None:
    """One frame for a person, below its heading. `bytes_max` None leaves the bytes out."""
    is_coloured = has_colour()
    output.text(click.style(line, bold=True) if is_coloured else line)
    if reading.message is not None:
        output.text(json.dumps(_shortened(reading.message), indent=2, ensure_ascii=False))
    if bytes_max is not None:
        output.text()
        layout = Layout(reading.rows, output.console().width, bytes_max, has_colour=is_coloured)
        for line in layout.lines(reading.rows):
            output.text(line)
    for problem in reading.problems:
        output.text()
        print_problem(problem, output)


def print_problem(problem: KwireError, output: Output) -> None:
    """What is wrong among the data, in the place where it is wrong."""
    first, *others = explain(problem)
    output.text(click.style(first, fg="red", bold=True) if has_colour() else first)
    for line in others:
        output.text(line)


def _shortened(value: Any) -> Any:
    """The message with its long strings cut: they are in the bytes below, and whole in -f json."""
    if isinstance(value, dict):
        return {name: _shortened(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_shortened(inner) for inner in value]
    if isinstance(value, str) and len(value) > _STRING_SHOWN_MAX:
        return f"{value[:40]}... ({len(value)} characters)"
    return value
