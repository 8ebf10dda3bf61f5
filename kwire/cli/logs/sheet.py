"""What was read of a log directory, on stdout: lines of fixed widths for a person, JSON lines for a program.

Fixed, because a segment may have a million batches, and the first is shown before the last is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from kwire.cli.output import Output, counted, has_colour, moment, printable
from kwire.cli.shown import print_problem
from kwire.errors import KwireError

Line = tuple[str, dict[str, Any]]
# Columns by the kind of line: heading, width.
_COLUMNS: dict[str, list[tuple[str, int]]] = {
    "batch": [("position", 10), ("offsets", 21), ("records", 7), ("bytes", 8), ("newest", 24), ("facts", 0)],
    "entry in index": [("offset", 12), ("position", 12)],
    "entry in timeindex": [("time", 24), ("timestamp ms", 14), ("offset", 12)],
    "aborted": [("producer", 12), ("first", 12), ("last", 12), ("last stable", 12)],
    "producer": [("producer", 12), ("epoch", 6), ("sequence", 12), ("offset", 12), ("delta", 7), ("time", 24),
                 ("open since", 0)],
}  # fmt: skip


class Sheet:
    """One file after the other. `is_check`: only what is wrong, and the end of each."""

    def __init__(self, output: Output, *, is_check: bool) -> None:
        self._output = output
        self._is_check = is_check
        self._is_coloured = has_colour()

    def show(self, path: Path, kind: str, lines: Iterator[Line | KwireError]) -> int:
        """Show a file; how much is wrong with it."""
        tally = _Tally()
        heading: str | None = None
        if self._output.is_table and not self._is_check:
            self._text(str(path), bold=True)
        for one in lines:
            if isinstance(one, KwireError):
                tally.problems += 1
                self._problem(path, one)
                continue
            name, fields = one
            tally.add(name, fields)
            if self._is_check:
                continue
            if not self._output.is_table:
                self._output.json({"file": str(path), "kind": name, **fields})
                continue
            columns = f"entry in {kind}" if name == "entry" else name
            if columns in _COLUMNS and columns != heading:
                if heading is None:
                    self._text(_aligned(columns, [text for text, _ in _COLUMNS[columns]]), bold=True)
                heading = columns
            self._text(_shown(name, columns, fields))
        self._end(path, kind, tally)
        return tally.problems

    def _problem(self, path: Path, problem: KwireError) -> None:
        if not self._output.is_table:
            shown = {"message": problem.message, **problem.where, "remedy": problem.remedy}
            self._output.json({"file": str(path), "kind": "problem", **shown})
            return
        if self._is_check:
            self._text(str(path), bold=True)
        print_problem(problem, self._output)

    def _end(self, path: Path, kind: str, tally: _Tally) -> None:
        size = path.stat().st_size
        if not self._output.is_table:
            self._output.json({"file": str(path), "kind": "end", "type": kind, "size_bytes": size, **tally.to_json()})
            return
        line = f"{tally.text()}, {counted(size, 'byte')}, {counted(tally.problems, 'problem')}"
        if self._is_check:
            line = f"{path}: {line}"
        self._text(line, fg="red" if tally.problems else None, dim=not tally.problems)
        if not self._is_check:
            self._output.text()

    def _text(self, text: str, **style: Any) -> None:
        self._output.text(click.style(text, **style) if self._is_coloured and any(style.values()) else text)


class _Tally:
    """What a file had."""

    def __init__(self) -> None:
        self.problems = 0
        self._entries = 0
        self._records: int | None = None
        self._first: int | None = None
        self._last: int | None = None

    def add(self, name: str, fields: dict[str, Any]) -> None:
        if name in ("record", "unused"):
            return
        self._entries += 1
        if name == "batch":
            self._records = (self._records or 0) + fields["count"]
            self._first = fields["base_offset"] if self._first is None else self._first
            self._last = fields["last_offset"]

    def to_json(self) -> dict[str, Any]:
        if self._records is None:
            return {"entries": self._entries, "problems": self.problems}
        return {
            "batches": self._entries, "records": self._records, "first_offset": self._first,
            "last_offset": self._last, "problems": self.problems,
        }  # fmt: skip

    def text(self) -> str:
        if self._records is None:
            return f"{self._entries} {'entry' if self._entries == 1 else 'entries'}"
        batches = f"{self._entries} {'batch' if self._entries == 1 else 'batches'}"
        return f"{batches} of {counted(self._records, 'record')}, offsets {self._first} to {self._last}"


def _aligned(columns: str, cells: list[str]) -> str:
    padded = [cell.rjust(width) for cell, (_, width) in zip(cells, _COLUMNS[columns], strict=True)]
    return "  ".join(padded).rstrip()


def _shown(name: str, columns: str, fields: dict[str, Any]) -> str:
    if name == "batch":
        return _aligned(columns, _batch_cells(fields))
    if name == "record":
        return _record_text(fields)
    if name == "unused":
        return f"{fields['position']:>10}  {fields['size_bytes']} zeros to the end: made ahead, not used yet"
    if columns == "entry in timeindex":
        timestamp = fields["timestamp_ms"]
        return _aligned(columns, [moment(timestamp), str(timestamp), str(fields["offset"])])
    if name == "producer":
        shown = {**fields, "timestamp_ms": moment(fields["timestamp_ms"])}
        del shown["coordinator_epoch"]
        if fields["current_txn_first_offset"] < 0:
            shown["current_txn_first_offset"] = ""
        return _aligned(columns, [str(value) for value in shown.values()])
    if columns in _COLUMNS:
        return _aligned(columns, [str(value) for value in fields.values()])
    return "  ".join(f"{name}: {_value(value)}" for name, value in fields.items())


def _batch_cells(fields: dict[str, Any]) -> list[str]:
    facts = [f"v{fields['magic']}"]
    if not fields["is_valid"]:
        facts.insert(0, "DAMAGED")
    if fields["compression"] != "none":
        facts.append(fields["compression"])
    if fields["partition_leader_epoch"] >= 0:
        facts.append(f"epoch {fields['partition_leader_epoch']}")
    if fields["producer_id"] >= 0:
        facts.append(f"producer {fields['producer_id']}/{fields['producer_epoch']}")
        if fields["base_sequence"] >= 0:
            facts.append(f"sequence {fields['base_sequence']}")
    facts += [text for name, text in (("is_transactional", "transactional"), ("is_control", "control")) if fields[name]]
    first, last = fields["base_offset"], fields["last_offset"]
    offsets = str(first) if first == last else f"{first}-{last}"
    newest = moment(fields["max_timestamp_ms"])
    return [str(fields["position"]), offsets, str(fields["count"]), str(fields["size_bytes"]), newest, ", ".join(facts)]


def _record_text(fields: dict[str, Any]) -> str:
    said = [f"{'':>10}  @{fields['offset']}", moment(fields["timestamp_ms"]) or "-"]
    if "control" in fields:
        control = fields["control"]
        said.append(f"control {control.get('name', control['type'])} {_value(control.get('data', {}))}")
    else:
        said += [_value(fields["key"]), _value(fields["value"])]
    if "headers" in fields:
        said.append(_value(fields["headers"]))
    return "  ".join(said)


def _value(value: Any) -> str:
    if isinstance(value, dict) and "data" in value and "type" in value:
        return f"{value['type']} {_value(value['data'])}"
    return printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
