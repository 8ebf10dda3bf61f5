"""`kwire dump-log`: the files of a broker's log directory, read and verified."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import click

from kwire.cli.failures import ExitCode
from kwire.cli.logs import checkpoints, indexes, segments
from kwire.cli.logs.internal import INTERNAL_TOPICS, control_to_json, record_to_json, topic_of
from kwire.cli.logs.sheet import Sheet
from kwire.cli.output import Output, counted, output_options
from kwire.cli.values import batch_to_json, bytes_to_json, headers_to_json
from kwire.errors import ConfigurationError, DecodeError, KwireError
from kwire.records import Batch, Record

# What a broker adds to the name of a file that it is about to replace or to remove.
_PASSING = re.compile(r"\.(deleted|cleaned|swap)$")
_KINDS = {
    ".log": "log", ".checkpoint": "log", ".index": "index", ".timeindex": "timeindex", ".txnindex": "txnindex",
    ".snapshot": "producers",
}  # fmt: skip
_TEXTS = ("partition.metadata", "meta.properties", "quorum-state")
_BUFFER_BYTES = 1 << 20

Line = tuple[str, dict[str, Any]]  # what it is, and its fields


@click.command()
@click.argument(
    "paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(exists=True, readable=True, path_type=Path)
)
@click.option("--print-data", "has_data", is_flag=True, help="Show the records; those of Kafka's own topics are read.")
@click.option("--deep", "is_deep", is_flag=True, help="Unpack and verify the records, too. --print-data does.")
@click.option("--check", "is_check", is_flag=True, help="Show only what is wrong, and a line for each file.")
@click.option("--topic", "topic_text", metavar="NAME", help="Whose records these are. Default: as the folder is named.")
@output_options
def command(
    paths: tuple[Path, ...], has_data: bool, is_deep: bool, is_check: bool, topic_text: str | None, output: Output
) -> ExitCode:
    """Read and verify the files of a broker's log directory.

    Segments (.log) of every format, .index, .timeindex, .txnindex, producer snapshots (.snapshot), KRaft's log and its
    .checkpoint snapshots, and the text files beside them. A folder stands for all of these in it, however deep.

    Verified are checksums, ascending offsets and epochs, that files end where their last entry does, and that indexes
    fit the log beside them. What is wrong stands among the rest, with its position; the exit code is 4 then. Nothing is
    written. A running broker's newest entries may be half there.

    \b
        kwire dump-log data/orders-0
        kwire dump-log --check --deep /var/lib/kafka
        kwire dump-log data/__cluster_metadata-0/*.log --print-data
        kwire dump-log --print-data data/__consumer_offsets-7 | jq -c 'select(.kind == "record").key'
    """
    if topic_text is not None and topic_text.startswith("__") and topic_text not in INTERNAL_TOPICS:
        raise click.UsageError(f"--topic {topic_text}: Kafka's own topics are {', '.join(sorted(INTERNAL_TOPICS))}")
    sheet = Sheet(output, is_check=is_check)
    problems = files = 0
    for path, kind in _files(paths):
        files += 1
        dump = _Dump(path, topic_text or topic_of(path), is_deep or has_data, has_data)
        problems += sheet.show(path, kind, dump.lines(kind))
    output.note(f"{counted(files, 'file')}, {counted(problems, 'problem')}")
    return ExitCode.UNDECODABLE if problems else ExitCode.OK


def kind_of(path: Path) -> str | None:
    """Which of the files of a log directory this is, by its name: 00000000000000000042.timeindex, quorum-state, ..."""
    bare = Path(_PASSING.sub("", path.name))
    if bare.name in _TEXTS or bare.name.endswith("-checkpoint"):
        return "text"
    return _KINDS.get(bare.suffix)


def _files(paths: tuple[Path, ...]) -> Iterator[tuple[Path, str]]:
    for path in paths:
        if path.is_dir():
            inside = [(one, kind) for one in sorted(path.rglob("*")) if (kind := _kind_inside(one))]
            if not inside:
                raise ConfigurationError(f"{path} has no files of a log", remedy="give a folder such as data/orders-0")
            yield from inside
        elif kind := kind_of(path):
            yield path, kind
        else:
            raise ConfigurationError(
                f"{path.name} is not named as a broker's files are",
                remedy=f"it ends in one of {', '.join(_KINDS)}, -checkpoint, or is {', '.join(_TEXTS)}",
            )


def _kind_inside(path: Path) -> str | None:
    """The same for what is in a folder, where a server.log may be that is no log of records."""
    kind = kind_of(path) if path.is_file() else None
    is_segment = kind not in (None, "text") and not path.name.endswith(".checkpoint")
    return None if is_segment and not path.name.partition(".")[0].isdigit() else kind


class _Dump:
    """What is in one file, as lines of fields, and what is wrong with it, as errors among them."""

    def __init__(self, path: Path, topic: str | None, is_deep: bool, has_data: bool) -> None:
        self._path = path
        self._topic = topic
        self._is_deep = is_deep
        self._has_data = has_data
        bare = _PASSING.sub("", path.name).partition(".")[0]
        self._base_offset = int(bare) if bare.isdigit() else 0

    def lines(self, kind: str) -> Iterator[Line | KwireError]:
        readers: dict[str, Callable[[BinaryIO], Iterator[Line | KwireError]]] = {
            "log": self._log, "index": self._index, "timeindex": self._timeindex, "txnindex": self._aborted,
            "producers": self._producers, "text": self._text,
        }  # fmt: skip
        with self._path.open("rb", _BUFFER_BYTES) as file:
            yield from readers[kind](file)

    def _log(self, file: BinaryIO) -> Iterator[Line | KwireError]:
        base_offset = 0 if self._path.suffix == ".checkpoint" else self._base_offset
        for one in segments.in_order(segments.read_segment(file), base_offset):
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
            shown: dict[str, Any] = {"offset": record.offset, "timestamp_ms": record.timestamp_ms}
            try:
                if batch.is_control:
                    shown["control"] = control_to_json(record.key, record.value)
                elif self._topic in INTERNAL_TOPICS:
                    assert self._topic is not None
                    shown |= record_to_json(self._topic, record.key, record.value)
                else:
                    shown |= _as_bytes(record)
            except DecodeError as error:
                where = f"{error.where.get('path', 'record')} of offset {record.offset}"
                yield DecodeError(error.message, offset=position, path=where)
                shown |= _as_bytes(record)
            if record.headers:
                shown["headers"] = headers_to_json(record.headers)
            yield "record", shown

    def _index(self, file: BinaryIO) -> Iterator[Line | KwireError]:
        with _Beside(self._path) as log:
            check = indexes.OffsetCheck(log) if log is not None else None
            for one in indexes.read_offset_index(file, self._base_offset):
                if isinstance(one, KwireError):
                    yield one
                    continue
                yield "entry", {"offset": one.offset, "position": one.position}
                if check is not None and (problem := check.problem(one)):
                    yield problem

    def _timeindex(self, file: BinaryIO) -> Iterator[Line | KwireError]:
        with _Beside(self._path) as log:
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


class _Beside:
    """The .log to which an index belongs, open while the index is read; None where it is not there."""

    def __init__(self, index: Path) -> None:
        bare, _, passing = index.name.partition(".")
        suffix = ".log" + "".join(f".{part}" for part in passing.split(".")[1:])
        self._path = index.with_name(bare + suffix)
        self._file: BinaryIO | None = None

    def __enter__(self) -> BinaryIO | None:
        if self._path.is_file():
            # Only headers are read, and between them there may be much: no more than a page at a time.
            self._file = self._path.open("rb", 4096)
        return self._file

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
