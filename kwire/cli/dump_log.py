"""`kwire dump-log`: read and verify the files of a broker's log directory.

Columns have fixed widths: a segment may have a million batches, and the first line appears before the last is read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import click

from kwire.capture.json import batch_to_json, bytes_to_json, headers_to_json
from kwire.capture.times import utc_text
from kwire.cli.decode.render import print_problem
from kwire.cli.error_report import ExitCode
from kwire.cli.output import Output, counted, has_colour, output_options, printable
from kwire.errors import ConfigurationError, DecodeError, KwireError
from kwire.logs import checkpoints, indexes, segments
from kwire.logs.files import KINDS, TEXTS, base_offset_of, kind_of, topic_partition_of
from kwire.logs.internal_topics import INTERNAL_TOPICS, control_to_json, record_to_json
from kwire.records import Batch, Record

Line = tuple[str, dict[str, Any]]
_BUFFER_BYTES = 1 << 20


@click.command()
@click.argument(
    "paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(exists=True, readable=True, path_type=Path)
)
@click.option("--print-data", "has_data", is_flag=True, help="Show the records; decode those of Kafka's own topics.")
@click.option(
    "--deep", "is_deep", is_flag=True, help="Decompress and verify the records, too. --print-data implies it."
)
@click.option("--check", "is_check", is_flag=True, help="Show only problems, and one line per file.")
@click.option(
    "--topic", "topic_text", metavar="NAME", help="The topic of the records. Default: from the name of the folder."
)
@output_options
def command(
    paths: tuple[Path, ...], has_data: bool, is_deep: bool, is_check: bool, topic_text: str | None, output: Output
) -> ExitCode:
    """Read and verify the files of a broker's log directory.

    Segments (.log) of every format, .index, .timeindex, .txnindex, producer snapshots (.snapshot), KRaft's log and its
    .checkpoint snapshots, and the text files beside them. A folder stands for all of these below it.

    Checks checksums, the order of offsets and epochs, that files end with their last entry, and that indexes fit their
    log. Each problem appears at its position, and the exit code is then 4. Nothing is written. The newest entries of a
    running broker may be incomplete.

    \b
        kwire dump-log data/orders-0
        kwire dump-log --check --deep /var/lib/kafka
        kwire dump-log data/__cluster_metadata-0/*.log --print-data
        kwire dump-log --print-data data/__consumer_offsets-7 | jq -c 'select(.kind == "record").key'
    """
    if topic_text is not None and topic_text.startswith("__") and topic_text not in INTERNAL_TOPICS:
        raise click.UsageError(f"--topic {topic_text}: Kafka's own topics are {', '.join(sorted(INTERNAL_TOPICS))}")
    report = LogReport(output, is_check=is_check)
    problems = files = 0
    for path, kind in _files(paths):
        files += 1
        dump = _LogFile(path, topic_text or topic_partition_of(path.absolute())[0], is_deep or has_data, has_data)
        problems += report.show(path, kind, dump.lines(kind))
    output.note(f"{counted(files, 'file')}, {counted(problems, 'problem')}")
    return ExitCode.UNDECODABLE if problems else ExitCode.OK


def _files(paths: tuple[Path, ...]) -> Iterator[tuple[Path, str]]:
    for path in paths:
        if path.is_dir():
            inside = [(one, kind) for one in sorted(path.rglob("*")) if (kind := _kind_inside(one))]
            if not inside:
                raise ConfigurationError(f"{path} has no log files", remedy="give a folder such as data/orders-0")
            yield from inside
        elif kind := kind_of(path):
            yield path, kind
        else:
            raise ConfigurationError(
                f"{path.name} is not the name of a broker's file",
                remedy=f"such a name ends in one of {', '.join(KINDS)}, -checkpoint, or is {', '.join(TEXTS)}",
            )


def _kind_inside(path: Path) -> str | None:
    """Return the kind of a file in a folder, where a server.log may be that holds no records."""
    kind = kind_of(path) if path.is_file() else None
    has_base_offset = kind not in (None, "text") and not path.name.endswith(".checkpoint")
    return None if has_base_offset and not path.name.partition(".")[0].isdigit() else kind


class _LogFile:
    """One file as lines of fields; problems are errors among them."""

    def __init__(self, path: Path, topic: str | None, is_deep: bool, has_data: bool) -> None:
        self._path = path
        self._topic = topic
        self._is_deep = is_deep
        self._has_data = has_data
        self._base_offset = base_offset_of(path)

    def lines(self, kind: str) -> Iterator[Line | KwireError]:
        readers: dict[str, Callable[[BinaryIO], Iterator[Line | KwireError]]] = {
            "log": self._log, "index": self._index, "timeindex": self._timeindex, "txnindex": self._aborted,
            "producers": self._producers, "text": self._text,
        }  # fmt: skip
        with self._path.open("rb", _BUFFER_BYTES) as file:
            yield from readers[kind](file)

    def _log(self, file: BinaryIO) -> Iterator[Line | KwireError]:
        for one in segments.check_order(segments.read_segment(file), self._base_offset):
            if isinstance(one, KwireError):
                yield one
            elif isinstance(one, segments.Unused):
                yield "unused", {"position": one.position, "size_bytes": one.size}
            else:
                yield "batch", {"position": one.position, "is_valid": one.is_valid, **batch_to_json(one.batch)}
                if self._is_deep and (problem := segments.records_problem(one)):
                    yield problem
                elif self._has_data:
                    yield from self._records(one.batch, one.position)

    def _records(self, batch: Batch, position: int) -> Iterator[Line | KwireError]:
        for record in batch.records():
            json_fields: dict[str, Any] = {"offset": record.offset, "timestamp_ms": record.timestamp_ms}
            try:
                if batch.is_control:
                    json_fields["control"] = control_to_json(record.key, record.value)
                elif self._topic in INTERNAL_TOPICS:
                    assert self._topic is not None
                    json_fields |= record_to_json(self._topic, record.key, record.value)
                else:
                    json_fields |= _as_bytes(record)
            except DecodeError as error:
                where = f"{error.where.get('path', 'record')} of offset {record.offset}"
                yield DecodeError(error.message, offset=position, path=where)
                json_fields |= _as_bytes(record)
            if record.headers:
                json_fields["headers"] = headers_to_json(record.headers)
            yield "record", json_fields

    def _index(self, file: BinaryIO) -> Iterator[Line | KwireError]:
        with _MatchingLog(self._path) as log:
            check = indexes.OffsetCheck(log) if log is not None else None
            for one in indexes.read_offset_index(file, self._base_offset):
                if isinstance(one, KwireError):
                    yield one
                    continue
                yield "entry", {"offset": one.offset, "position": one.position}
                if check is not None and (problem := check.problem(one)):
                    yield problem

    def _timeindex(self, file: BinaryIO) -> Iterator[Line | KwireError]:
        with _MatchingLog(self._path) as log:
            check = indexes.TimeCheck(log) if log is not None else None
            for one in indexes.read_time_index(file, self._base_offset):
                if isinstance(one, KwireError):
                    yield one
                    continue
                yield "entry", {"timestamp_ms": one.timestamp_ms, "offset": one.offset}
                if check is not None and (problem := check.problem(one)):
                    yield problem

    def _aborted(self, file: BinaryIO) -> Iterator[Line | KwireError]:
        for one in indexes.read_aborted(file):
            if isinstance(one, KwireError):
                yield one
                continue
            _, entry = one
            yield "aborted", {
                "producer_id": entry.producer_id, "first_offset": entry.first_offset,
                "last_offset": entry.last_offset, "last_stable_offset": entry.last_stable_offset,
            }  # fmt: skip

    def _producers(self, file: BinaryIO) -> Iterator[Line | KwireError]:
        for one in checkpoints.read_producers(file.read(checkpoints.FILE_BYTES_MAX)):
            if isinstance(one, KwireError):
                yield one
                continue
            yield "producer", {
                "producer_id": one.producer_id, "producer_epoch": one.epoch, "last_sequence": one.last_sequence,
                "last_offset": one.last_offset, "offset_delta": one.offset_delta, "timestamp_ms": one.timestamp,
                "coordinator_epoch": one.coordinator_epoch,
                "current_txn_first_offset": one.current_txn_first_offset,
            }  # fmt: skip

    def _text(self, file: BinaryIO) -> Iterator[Line | KwireError]:
        for one in checkpoints.read_text(self._path.name, file.read(checkpoints.FILE_BYTES_MAX)):
            yield one if isinstance(one, KwireError) else ("line", one)


def _as_bytes(record: Record) -> dict[str, Any]:
    return {"key": bytes_to_json(record.key), "value": bytes_to_json(record.value)}


class _MatchingLog:
    """The .log of an index, open while the index is read; None if it does not exist."""

    def __init__(self, index: Path) -> None:
        bare, _, passing = index.name.partition(".")
        suffix = ".log" + "".join(f".{part}" for part in passing.split(".")[1:])
        self._path = index.with_name(bare + suffix)
        self._file: BinaryIO | None = None

    def __enter__(self) -> BinaryIO | None:
        if self._path.is_file():
            # Only headers are read, far apart: buffer one page.
            self._file = self._path.open("rb", 4096)
        return self._file

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()


# Columns by the kind of line: heading, width.
_COLUMNS: dict[str, list[tuple[str, int]]] = {
    "batch": [("position", 10), ("offsets", 21), ("records", 7), ("bytes", 8), ("newest", 24), ("details", 0)],
    "entry in index": [("offset", 12), ("position", 12)],
    "entry in timeindex": [("time", 24), ("timestamp ms", 14), ("offset", 12)],
    "aborted": [("producer", 12), ("first", 12), ("last", 12), ("last stable", 12)],
    "producer": [("producer", 12), ("epoch", 6), ("sequence", 12), ("offset", 12), ("delta", 7), ("time", 24),
                 ("open since", 0)],
}  # fmt: skip


class LogReport:
    """Prints one file after the other. `is_check`: only problems, and a line per file."""

    def __init__(self, output: Output, *, is_check: bool) -> None:
        self._output = output
        self._is_check = is_check
        self._is_coloured = has_colour()

    def show(self, path: Path, kind: str, lines: Iterator[Line | KwireError]) -> int:
        """Print a file; return the number of its problems."""
        tally = _FileSummary()
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
            json_fields = {"message": problem.message, **problem.where, "remedy": problem.remedy}
            self._output.json({"file": str(path), "kind": "problem", **json_fields})
            return
        if self._is_check:
            self._text(str(path), bold=True)
        print_problem(problem, self._output)

    def _end(self, path: Path, kind: str, tally: _FileSummary) -> None:
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


class _FileSummary:
    """Counts for the last line of a file."""

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
        return f"{fields['position']:>10}  {fields['size_bytes']} zeros to the end: preallocated"
    if columns == "entry in timeindex":
        timestamp = fields["timestamp_ms"]
        return _aligned(columns, [utc_text(timestamp), str(timestamp), str(fields["offset"])])
    if name == "producer":
        json_fields = {**fields, "timestamp_ms": utc_text(fields["timestamp_ms"])}
        del json_fields["coordinator_epoch"]
        if fields["current_txn_first_offset"] < 0:
            json_fields["current_txn_first_offset"] = ""
        return _aligned(columns, [str(value) for value in json_fields.values()])
    if columns in _COLUMNS:
        return _aligned(columns, [str(value) for value in fields.values()])
    return "  ".join(f"{name}: {_value(value)}" for name, value in fields.items())


def _batch_cells(fields: dict[str, Any]) -> list[str]:
    details = [f"v{fields['magic']}"]
    if not fields["is_valid"]:
        details.insert(0, "DAMAGED")
    if fields["compression"] != "none":
        details.append(fields["compression"])
    if fields["partition_leader_epoch"] >= 0:
        details.append(f"epoch {fields['partition_leader_epoch']}")
    if fields["producer_id"] >= 0:
        details.append(f"producer {fields['producer_id']}/{fields['producer_epoch']}")
        if fields["base_sequence"] >= 0:
            details.append(f"sequence {fields['base_sequence']}")
    details += [
        text for name, text in (("is_transactional", "transactional"), ("is_control", "control")) if fields[name]
    ]
    first, last = fields["base_offset"], fields["last_offset"]
    offsets = str(first) if first == last else f"{first}-{last}"
    newest = utc_text(fields["max_timestamp_ms"])
    return [
        str(fields["position"]),
        offsets,
        str(fields["count"]),
        str(fields["size_bytes"]),
        newest,
        ", ".join(details),
    ]


def _record_text(fields: dict[str, Any]) -> str:
    parts = [f"{'':>10}  @{fields['offset']}", utc_text(fields["timestamp_ms"]) or "-"]
    if "control" in fields:
        control = fields["control"]
        parts.append(f"control {control.get('name', control['type'])} {_value(control.get('data', {}))}")
    else:
        parts += [_value(fields["key"]), _value(fields["value"])]
    if "headers" in fields:
        parts.append(_value(fields["headers"]))
    return "  ".join(parts)


def _value(value: Any) -> str:
    if isinstance(value, dict) and "data" in value and "type" in value:
        return f"{value['type']} {_value(value['data'])}"
    return printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
