"""`format("kwire.log")`: the segments of a broker's log directory as a table, one row for each record.

`load` takes log directories, folders of partitions, segments and globs (`files`). A task reads a segment. What a broker
is about to remove or to replace is read only where a file is named. Topic and partition come from the name of the
folder. Every record of the log is a row, those of aborted transactions and control records included: `isControl` and
`isTransactional` tell. Records of Kafka's own topics (__consumer_offsets, __transaction_state, __share_group_state,
__cluster_metadata, __remote_log_metadata) have their meaning in `decoded`.

Options, beside the path:

    topic     the topic of the records. Default: from the folder's name
    onDamage  fail (default): a damaged batch ends the read; skip: it is left out, and the worker's log has a warning.
              So does a time that Spark cannot hold; skip: it is null
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import BooleanType, IntegerType, LongType, StringType, StructField, StructType

from kwire.errors import ConfigurationError, KwireError
from kwire.logs.files import is_live_segment
from kwire.logs.rows import LogRow, read_rows
from kwire.records.rows import shown_name
from kwire.spark.columns import TIMESTAMP_MS_MAX, read_schema
from kwire.spark.files import File, find_files, open_file, paths_of
from kwire.spark.option_parsers import own_options, parse_choice
from kwire.spark.table import arrow_schema, batches, check_schema

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger("kwire.spark")

NAME = "kwire.log"
_OPTIONS = ("path", "paths", "topic", "onDamage")
# The columns of a read of topics, then what only the log has. Spark's name -> LogRow's.
_OWN = {
    "producerId": ("producer_id", LongType()), "producerEpoch": ("producer_epoch", IntegerType()),
    "sequence": ("sequence", IntegerType()), "leaderEpoch": ("leader_epoch", IntegerType()),
    "compression": ("compression", StringType()), "isTransactional": ("is_transactional", BooleanType()),
    "isControl": ("is_control", BooleanType()), "control": ("control", StringType()),
    "decoded": ("decoded", StringType()), "file": ("", StringType()), "position": ("position", LongType()),
}  # fmt: skip
_SCHEMA = StructType(
    [*read_schema(with_headers=True).fields, *(StructField(name, kind) for name, (_, kind) in _OWN.items())]
)
_FIELDS = {"timestampType": "timestamp_type", **{name: field for name, (field, _) in _OWN.items()}}


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The options of a read, made on the driver and pickled to the tasks."""

    topic: str | None = None
    skips_damage: bool = False

    @classmethod
    def of(cls, options: Mapping[str, str]) -> LogOptions:
        """Parse the options. Raises ConfigurationError."""
        own = own_options(options, _OPTIONS)
        on_damage = parse_choice("onDamage", own.get("onDamage", "fail"), ("fail", "skip"))
        return cls(own.get("topic") or None, on_damage == "skip")


class LogDataSource(DataSource):
    """`format("kwire.log")`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        LogOptions.of(self.options)
        return _SCHEMA

    def reader(self, schema: StructType) -> LogReader:
        check_schema(schema, _SCHEMA, "a log")
        return LogReader(paths_of(self.options), LogOptions.of(self.options), schema)


class LogReader(DataSourceReader):
    """Reads each segment in a task."""

    def __init__(self, paths: list[str], options: LogOptions, schema: StructType) -> None:
        self._paths = paths
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        files = find_files(self._paths, is_live_segment)
        return [InputPartition(file) for file in sorted(files, key=lambda file: -file.size)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        file = partition.value if partition is not None else None
        if isinstance(file, File):
            with open_file(file.path) as opened:
                yield from read_log_table(opened, file.path, self._options, self._schema)


def read_log_table(file: BinaryIO, path: str, options: LogOptions, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield the records of one segment as Arrow batches with the columns of `schema`.

    Raises the error of a damaged batch, with its file and position, or ConfigurationError for a time that Spark cannot
    hold, unless damage is skipped.
    """
    yield from batches(_rows(file, path, options, [field.name for field in schema.fields]), arrow_schema(schema))


def _rows(file: BinaryIO, path: str, options: LogOptions, columns: list[str]) -> Iterator[list[Any]]:
    made = [_timestamp_maker(path, options) if column == "timestamp" else _maker(column, path) for column in columns]
    for found in read_rows(file, PurePosixPath(PurePath(path).as_posix()), options.topic):
        if not isinstance(found, KwireError):
            for row in found:
                yield [make(row) for make in made]
        elif options.skips_damage:
            _log.warning("%s: %s", path, found)
        else:
            found.remedy = f"{found.remedy + '; ' if found.remedy else ''}or set the option onDamage to skip"
            found.message = f"{path}: {found.message}"
            raise found


def _maker(column: str, path: str) -> Any:
    if column == "file":
        return lambda row: path
    if column == "headers":
        return lambda row: [{"key": shown_name(name), "value": value} for name, value in row.headers] or None
    index = LogRow._fields.index(_FIELDS.get(column, column))
    return lambda row: row[index]


def _timestamp_maker(path: str, options: LogOptions) -> Callable[[LogRow], int | None]:
    has_warned = False

    def make(row: LogRow) -> int | None:
        nonlocal has_warned
        if row.timestamp_ms is None or abs(row.timestamp_ms) <= TIMESTAMP_MS_MAX:
            return None if row.timestamp_ms is None else row.timestamp_ms * 1000
        what = f"{path}: the record at offset {row.offset} has the time {row.timestamp_ms} ms: Spark cannot hold it"
        if not options.skips_damage:
            raise ConfigurationError(
                what, remedy="give a schema without the column timestamp, or set the option onDamage to skip: null then"
            )
        if not has_warned:  # a program that takes nanoseconds for milliseconds does so in each record
            _log.warning("%s; such times are null", what)
            has_warned = True
        return None

    return make
