"""`format("kwire.capture")`: captures of the network as a table, one row for each exchange.

`load` takes files, folders and globs (`files`). A task reads a file: a connection may begin anywhere in a file and end
in any packet after it, so a file cannot be split without losing what the first part told (clients, topic names,
requests in flight). Rotated captures (`tcpdump -C`, `kwire tap --rotate`) are the way to many tasks.

Options, beside the path:

    rows         exchanges (default), findings (what `kwire lint` says), remarks (what could not be read)
    lint         true: a column `findings` in exchanges; the file is read three times then
    ports        brokers on these ports only, such as 9092,9093; default: all connections that look like Kafka's
    redact       payloads: keys, values and headers of records are masked, too
    showSecrets  true: passwords and tokens are not masked
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kwire.capture import Remark, read_exchanges
from kwire.capture.rows import COLUMNS, row_maker
from kwire.capture.secrets import MASKED, Redaction
from kwire.errors import ConfigurationError
from kwire.lint import lint_capture
from kwire.lint.by_packet import FindingsByPacket, finding_to_dict
from kwire.spark.files import File, find_files, open_file, paths_of
from kwire.spark.option_parsers import own_options, parse_bool, parse_choice, parse_int
from kwire.spark.table import arrow_schema, batches, check_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_log = logging.getLogger("kwire.spark")

NAME = "kwire.capture"
_ENDINGS = (".pcap", ".pcapng", ".cap", ".pcap.gz", ".pcapng.gz", ".cap.gz")
_OPTIONS = ("path", "paths", "rows", "lint", "ports", "redact", "showSecrets")
_ROWS = ("exchanges", "findings", "remarks")
_STRING, _INT, _LONG = StringType(), IntegerType(), LongType()


def _struct(**fields: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])


_EXCHANGE = {
    "time": TimestampType(), "connection": _INT, "client": _STRING, "broker": _STRING, "client_id": _STRING,
    "software": _STRING, "api": _STRING, "api_key": _INT, "version": _INT, "correlation_id": _INT,
    "latency_ms": DoubleType(), "error": _STRING, "errors": ArrayType(_struct(path=_STRING, code=_INT, name=_STRING)),
    "request_bytes": _LONG, "response_bytes": _LONG, "request_packet": _LONG, "response_packet": _LONG,
    "is_guess": BooleanType(), "summary": _STRING, "request": _STRING, "response": _STRING,
    "problems": ArrayType(_STRING),
}  # fmt: skip
assert _EXCHANGE.keys() == COLUMNS.keys()
_FINDINGS = ArrayType(_struct(rule=_STRING, name=_STRING, level=_STRING, subject=_STRING, text=_STRING))
_TABLES: Mapping[str, StructType] = {
    "exchanges": _struct(file=_STRING, **_EXCHANGE),
    "findings": _struct(
        file=_STRING, rule=_STRING, name=_STRING, level=_STRING, subject=_STRING, text=_STRING, count=_LONG,
        time=TimestampType(), packets=ArrayType(_LONG), fix=_STRING,
    ),
    "remarks": _struct(file=_STRING, connection=_INT, is_problem=BooleanType(), text=_STRING),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """The options of a read, made on the driver and pickled to the tasks."""

    rows: str = "exchanges"
    has_findings: bool = False
    ports: tuple[int, ...] = ()
    redaction: Redaction = MASKED

    @classmethod
    def of(cls, options: Mapping[str, str]) -> CaptureOptions:
        """Parse the options. Raises ConfigurationError."""
        own = own_options(options, _OPTIONS)
        redact = parse_choice("redact", own.get("redact", "secrets"), ("secrets", "payloads"))
        shows = parse_bool("showSecrets", own.get("showSecrets", "false"))
        if shows and redact == "payloads":
            raise ConfigurationError("options showSecrets and redact contradict each other", remedy="give one of them")
        rows = parse_choice("rows", own.get("rows", "exchanges"), _ROWS)
        has_findings = parse_bool("lint", own.get("lint", "false"))
        if has_findings and rows != "exchanges":
            raise ConfigurationError(f"option lint is not for rows={rows}", remedy="remove it")
        if rows == "findings" and "ports" in own:
            raise ConfigurationError("option ports is not for rows=findings", remedy="lint reads all connections")
        ports = tuple(parse_int("ports", text) for text in own.get("ports", "").split(",") if text.strip())
        return cls(rows, has_findings, ports, Redaction(secrets=not shows, payloads=redact == "payloads"))

    def schema(self) -> StructType:
        """Return the whole schema of what is read."""
        fields = [*_TABLES[self.rows].fields]
        if self.has_findings:
            fields.append(StructField("findings", _FINDINGS))
        return StructType(fields)


class CaptureDataSource(DataSource):
    """`format("kwire.capture")`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return CaptureOptions.of(self.options).schema()

    def reader(self, schema: StructType) -> CaptureReader:
        options = CaptureOptions.of(self.options)
        check_schema(schema, options.schema(), "a capture")
        return CaptureReader(paths_of(self.options), options, schema)


class CaptureReader(DataSourceReader):
    """Reads each file in a task."""

    def __init__(self, paths: list[str], options: CaptureOptions, schema: StructType) -> None:
        self._paths = paths
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        files = list_captures(self._paths)
        # The largest first: a task that begins last should not be the longest.
        return [InputPartition(file) for file in sorted(files, key=lambda file: -file.size)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        file = partition.value if partition is not None else None
        if isinstance(file, File):
            path = file.path
            yield from read_capture_table(lambda: open_file(path), path, self._options, self._schema)


def list_captures(paths: list[str]) -> list[File]:
    """Return the captures at these paths, sorted. Raises ConfigurationError for a path without any."""

    def is_capture(path: PurePosixPath) -> bool:
        return path.name.endswith(_ENDINGS)

    return find_files(paths, is_capture)


def read_capture_table(
    opened: Callable[[], BinaryIO], name: str, options: CaptureOptions, schema: StructType
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one capture as Arrow batches with the columns of `schema`. `opened` opens it anew."""
    columns = [field.name for field in schema.fields]
    rows = {"exchanges": _exchange_rows, "findings": _finding_rows, "remarks": _remark_rows}[options.rows]
    yield from batches(rows(opened, name, options, columns), arrow_schema(schema))


def _exchange_rows(
    opened: Callable[[], BinaryIO], name: str, options: CaptureOptions, columns: list[str]
) -> Iterator[list[Any]]:
    index = FindingsByPacket(lint_capture(opened).findings) if "findings" in columns else None
    make = row_maker(column for column in columns if column in COLUMNS)
    time_at = columns.index("time") if "time" in columns else None

    def warn(remark: Remark) -> None:
        if remark.is_problem:
            _log.warning("%s: %s", name, remark.text)

    with opened() as file:
        for exchange in read_exchanges(file, ports=options.ports, redaction=options.redaction, on_remark=warn):
            made = iter(make(exchange))
            row: list[Any] = []
            for column in columns:
                if column == "file":
                    row.append(name)
                elif column == "findings":
                    assert index is not None
                    row.append([_finding(found) for found in index.of(exchange)])
                else:
                    row.append(next(made))
            if time_at is not None:
                row[time_at] //= 1000
            yield row


def _finding(found: Any) -> dict[str, Any]:
    whole = finding_to_dict(found)
    return {field.name: whole[field.name] for field in _FINDINGS.elementType.fields}  # type: ignore[attr-defined]


def _finding_rows(
    opened: Callable[[], BinaryIO], name: str, options: CaptureOptions, columns: list[str]
) -> Iterator[list[Any]]:
    for found in lint_capture(opened).findings:
        whole = {**finding_to_dict(found), "file": name, "time": found.at_ns // 1000}
        yield [whole[column] for column in columns]


def _remark_rows(
    opened: Callable[[], BinaryIO], name: str, options: CaptureOptions, columns: list[str]
) -> Iterator[list[Any]]:
    remarks: list[Remark] = []
    with opened() as file:
        for _ in read_exchanges(file, ports=options.ports, redaction=options.redaction, on_remark=remarks.append):
            while remarks:
                yield _remark(remarks.pop(0), name, columns)
    yield from (_remark(remark, name, columns) for remark in remarks)


def _remark(remark: Remark, name: str, columns: list[str]) -> list[Any]:
    number = remark.connection.number if remark.connection is not None else None
    whole = {"file": name, "connection": number, "is_problem": remark.is_problem, "text": remark.text}
    return [whole[column] for column in columns]


def captures_of(files: DataFrame, **options: str) -> DataFrame:
    """Return the exchanges of captures that Spark's own format binaryFile has read: from any file system that it knows.

    `files` has the columns path and content; options are those of `format("kwire.capture")`. A whole file is in memory
    (binaryFile takes up to 2 GiB).
    """
    import io

    given = CaptureOptions.of(options)
    schema = given.schema()

    def read(found: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in found:
            for path, content in zip(batch.column("path"), batch.column("content"), strict=True):
                data = content.as_buffer()
                yield from read_capture_table(lambda data=data: io.BytesIO(data), path.as_py(), given, schema)  # type: ignore[misc]

    return files.select("path", "content").mapInArrow(read, schema)
