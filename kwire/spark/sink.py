"""The columns of a write, checks of its rows, and their conversion for `Producer.send_arrow`.

value is required; key, headers, topic and partition are as in Spark's Kafka sink. timestamp is an addition: the
record's time, or null for the current time. offset and timestampType, which only a broker can set, are ignored, so that
the result of a read can be written as it is. Any other column raises a ConfigurationError.
"""

# pyarrow.compute creates its functions at import, so pyright cannot see them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    Row,
    StringType,
    StructType,
    TimestampType,
)

from kwire.errors import ConfigurationError
from kwire.spark.columns import ARROW_TYPES, HEADERS

_BYTES = (BinaryType, StringType)
_TYPES: dict[str, tuple[type[DataType], ...]] = {
    "value": _BYTES,
    "key": _BYTES,
    "headers": (ArrayType,),
    "topic": (StringType,),
    "partition": (IntegerType,),
    "timestamp": (TimestampType,),
}
_IGNORED = frozenset({"offset", "timestamptype"})
# Of a write to a queue: the queue chooses topic, key and partition, and the brokers the time.
_QUEUE_TYPES: dict[str, tuple[type[DataType], ...]] = {
    "value": _BYTES,
    "headers": (ArrayType,),
    "id": (StringType,),
    "delay_ms": (IntegerType, LongType),
    "expires_in_ms": (IntegerType, LongType),
}


class RowError(NamedTuple):
    """Why a row cannot become a record: `what` completes "row 7 ..."."""

    row: int
    what: str
    remedy: str


class TopicSlice(NamedTuple):
    """Rows for one topic. `rows` holds their indexes in the SinkBatch; None means that the indexes are the same."""

    topic: str
    records: pa.RecordBatch
    rows: pa.Array | None = None

    def row(self, index: int) -> int:
        row: int = index if self.rows is None else self.rows[index].as_py()
        return row


@dataclass(frozen=True, slots=True)
class SinkBatch:
    """Rows to send: columns named as for `send_arrow`, and one topic for all rows or a topic for each."""

    topics: str | pa.Array
    records: pa.RecordBatch

    def __len__(self) -> int:
        return int(self.records.num_rows)

    def topic(self, row: int) -> str | None:
        topic: str | None = self.topics if isinstance(self.topics, str) else self.topics[row].as_py()
        return topic

    def key(self, row: int) -> bytes | None:
        cell = self._cell("key", row)
        return (
            cell.as_buffer().to_pybytes() if cell is not None and cell.is_valid else None
        )  # a string may not be valid UTF-8

    def value_bytes(self, row: int) -> int | None:
        cell = self._cell("value", row)
        return len(cell.as_buffer()) if cell is not None and cell.is_valid else None

    def partition(self, row: int) -> int | None:
        cell = self._cell("partition", row)
        return None if cell is None else cell.as_py()

    def by_topic(self) -> Iterator[TopicSlice]:
        """Yield a slice for each topic. Rows of one topic stay in order."""
        if not len(self):
            return
        if isinstance(self.topics, str):
            yield TopicSlice(self.topics, self.records)
            return
        coded = self.topics.dictionary_encode()  # numbers topics in order of first appearance
        names = coded.dictionary.to_pylist()
        if len(names) == 1:
            yield TopicSlice(names[0], self.records)
            return
        rows = pc.array_sort_indices(coded.indices)  # stable
        records = self.records.take(rows)
        start = 0
        for name, count in zip(names, pc.value_counts(coded.indices).field("counts").to_pylist(), strict=True):
            yield TopicSlice(name, records.slice(start, count), rows.slice(start, count))
            start += count

    def first_error(self) -> RowError | None:
        """Return the error of the first row that cannot become a record."""
        return min(self._errors(), default=None)

    def _errors(self) -> Iterator[RowError]:
        """Yield the first error of each kind."""
        if not isinstance(self.topics, str) and (row := _first_true(self.topics.is_null())) >= 0:
            yield RowError(row, "has no topic", "fill the column topic, or give the option topic")
        for name, minimum in (("partition", 0), ("timestamp", "1970")):
            if name in self.records.schema.names:
                column = self.records.column(name)
                if (row := _first_true(pc.less(_as_int64(column), 0))) >= 0:
                    yield RowError(
                        row, f"has the {name} {column[row]}", f"give one from {minimum} on, or null for none"
                    )
        if "headers" in self.records.schema.names:
            headers = self.records.column("headers")
            pair = _first_true(pc.struct_field(headers.flatten(), 0).is_null())
            if pair >= 0:
                row = pc.list_parent_indices(headers)[pair].as_py()
                yield RowError(row, "has a header without a key", "give each header a key")

    def _cell(self, name: str, row: int) -> Any:
        """Return a cell, or None if there is no such column."""
        return self.records.column(name)[row] if name in self.records.schema.names else None


@dataclass(frozen=True, slots=True)
class SinkColumns:
    """The index of each column in a row, created on the driver and pickled. `topic`, if given, is for all rows."""

    indexes: dict[str, int]
    topic: str | None

    @classmethod
    def from_schema(cls, schema: StructType, topic: str | None, *, is_queue: bool = False) -> SinkColumns:
        indexes: dict[str, int] = {}
        types, ignored, kind = (_QUEUE_TYPES, (), " to a queue") if is_queue else (_TYPES, _IGNORED, "")
        for index, field in enumerate(schema.fields):
            name = field.name.lower()
            if name in ignored:
                continue
            if name not in types:
                raise ConfigurationError(
                    f"a write{kind} has no column {field.name}",
                    remedy=f"drop it, or put it into value with to_json; the columns are {', '.join(types)}",
                )
            _check_type(field.name, name, field.dataType, types[name])
            indexes[name] = index
        if "value" not in indexes:
            raise ConfigurationError("the DataFrame has no column value", remedy="select what to write AS value")
        if topic is None and "topic" not in indexes:
            raise ConfigurationError("no topic is named", remedy="give the option topic or a column topic")
        return cls(indexes, topic)

    def convert_batch(self, batch: pa.RecordBatch) -> SinkBatch:
        return self._sink_batch({name: batch.column(index) for name, index in self.indexes.items()})

    def convert_rows(self, rows: Sequence[Row]) -> SinkBatch:
        """Convert rows, which Spark 4.0 passes to streaming sinks instead of Arrow batches."""
        return self._sink_batch(
            {name: _from_cells(name, [row[index] for row in rows]) for name, index in self.indexes.items()}
        )

    def _sink_batch(self, columns: dict[str, pa.Array]) -> SinkBatch:
        topics = columns.pop("topic", None)
        if "timestamp" in columns:
            columns["timestamp"] = _timestamps(columns["timestamp"])
        return SinkBatch(topics if self.topic is None else self.topic, pa.RecordBatch.from_pydict(columns))


def _check_type(given: str, name: str, kind: DataType, types: tuple[type[DataType], ...]) -> None:
    is_valid = isinstance(kind, types)
    if name == "headers" and is_valid:
        # Ignore nullability: array(struct(...)) of literals is not nullable, the result of from_json is.
        is_valid = kind.simpleString() == HEADERS.simpleString()
    if not is_valid:
        wanted = HEADERS.simpleString() if name == "headers" else " or ".join(t.typeName() for t in types)
        raise ConfigurationError(
            f"column {given} is {kind.simpleString()}", remedy=f"it must be {wanted}; convert it with CAST or to_json"
        )


def _first_true(flags: pa.Array) -> int:
    """Return the index of the first true value, or -1."""
    index: int = pc.index(flags, True).as_py()
    return index


def _as_int64(column: pa.Array) -> pa.Array:
    return column.cast(pa.int64())


def _timestamps(column: pa.Array) -> pa.Array:
    """Replace -1 ms, which a record without a timestamp reads as, by null: the record gets the current time."""
    micros = _as_int64(column)
    if (pc.min(micros).as_py() or 0) >= 0:
        return column
    is_none = pc.and_(pc.greater_equal(micros, -1_000), pc.less(micros, 0))
    return pc.if_else(is_none, pa.scalar(None, column.type), column)


def _from_cells(name: str, cells: list[Any]) -> pa.Array:
    if name in ("value", "key"):
        cells = [_to_bytes(cell) for cell in cells]
    elif name == "headers":
        cells = [cell and [pair and {"key": pair[0], "value": _to_bytes(pair[1])} for pair in cell] for cell in cells]
    elif name == "timestamp":
        cells = [
            cell and cell.astimezone(UTC) for cell in cells
        ]  # a row's datetime is naive, in the worker's time zone
    return pa.array(cells, ARROW_TYPES.get(name))


def _to_bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else bytes(value)
