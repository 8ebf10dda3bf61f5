"""The columns that a write takes, and how Spark's rows become what `Producer.send_arrow` takes.

value is required; key, headers, topic and partition are as in Spark's own Kafka sink; timestamp is ours: the record's
time, else now. offset and timestampType, which only a broker can give, are ignored, so that what was read can be
written as it is. Any other column is refused rather than dropped. Owns what can be wrong with a row; refuses to send.
"""

# pyarrow.compute makes its functions as it is imported, where pyright does not see them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, Row, StringType, StructType, TimestampType

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


class Fault(NamedTuple):
    """Why a row is no record: "it `what`"."""

    row: int
    what: str
    remedy: str


class Sending(NamedTuple):
    """Rows that go to one topic in one call. `rows`: where each stands among all; None: where it stands here."""

    topic: str
    records: pa.RecordBatch
    rows: pa.Array | None = None

    def row(self, index: int) -> int:
        row: int = index if self.rows is None else self.rows[index].as_py()
        return row


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Rows to be sent: columns by the names of `send_arrow`, and the topic of all, or of each."""

    topics: str | pa.Array
    records: pa.RecordBatch

    def __len__(self) -> int:
        return int(self.records.num_rows)

    def topic(self, row: int) -> str | None:
        topic: str | None = self.topics if isinstance(self.topics, str) else self.topics[row].as_py()
        return topic

    def key(self, row: int) -> bytes | None:
        cell = self._cell("key", row)
        return cell.as_buffer().to_pybytes() if cell is not None and cell.is_valid else None  # a string may be no UTF-8

    def value_bytes(self, row: int) -> int | None:
        cell = self._cell("value", row)
        return len(cell.as_buffer()) if cell is not None and cell.is_valid else None

    def partition(self, row: int) -> int | None:
        cell = self._cell("partition", row)
        return None if cell is None else cell.as_py()

    def sendings(self) -> Iterator[Sending]:
        """A sending a topic; rows of the same topic stay in order."""
        if not len(self):
            return
        if isinstance(self.topics, str):
            yield Sending(self.topics, self.records)
            return
        coded = self.topics.dictionary_encode()  # topics are numbered in the order in which they first appear
        names = coded.dictionary.to_pylist()
        if len(names) == 1:
            yield Sending(names[0], self.records)
            return
        rows = pc.array_sort_indices(coded.indices)  # stable
        records = self.records.take(rows)
        start = 0
        for name, count in zip(names, pc.value_counts(coded.indices).field("counts").to_pylist(), strict=True):
            yield Sending(name, records.slice(start, count), rows.slice(start, count))
            start += count

    def fault(self) -> Fault | None:
        """Of the first row that is no record."""
        return min(self._faults(), default=None)

    def _faults(self) -> Iterator[Fault]:
        """The first of each kind."""
        if not isinstance(self.topics, str) and (row := _first(self.topics.is_null())) >= 0:
            yield Fault(row, "has no topic", "fill the column topic, or give the option topic")
        for name, least in (("partition", 0), ("timestamp", "1970")):
            if name in self.records.schema.names:
                column = self.records.column(name)
                if (row := _first(pc.less(_numbers(column), 0))) >= 0:
                    yield Fault(row, f"has the {name} {column[row]}", f"give one from {least} up, or null for none")
        if "headers" in self.records.schema.names:
            headers = self.records.column("headers")
            pair = _first(pc.struct_field(headers.flatten(), 0).is_null())
            if pair >= 0:
                row = pc.list_parent_indices(headers)[pair].as_py()
                yield Fault(row, "has a header without a key", "give each header a key")

    def _cell(self, name: str, row: int) -> Any:
        """None where there is no such column."""
        return self.records.column(name)[row] if name in self.records.schema.names else None


@dataclass(frozen=True, slots=True)
class SinkColumns:
    """Where each column stands in a row; made on the driver, pickled to the tasks. `topic` is for all rows, or None."""

    places: dict[str, int]
    topic: str | None

    @classmethod
    def of(cls, schema: StructType, topic: str | None) -> SinkColumns:
        places: dict[str, int] = {}
        for place, field in enumerate(schema.fields):
            name = field.name.lower()
            if name in _IGNORED:
                continue
            if name not in _TYPES:
                raise ConfigurationError(
                    f"a write has no column {field.name}",
                    remedy=f"drop it, or pack it into value, as with to_json; the columns are {', '.join(_TYPES)}",
                )
            _check_type(field.name, name, field.dataType)
            places[name] = place
        if "value" not in places:
            raise ConfigurationError("the DataFrame has no column value", remedy="select what to write AS value")
        if topic is None and "topic" not in places:
            raise ConfigurationError("no topic is named", remedy="give the option topic or a column topic")
        return cls(places, topic)

    def of_batch(self, batch: pa.RecordBatch) -> Outgoing:
        return self._outgoing({name: batch.column(place) for name, place in self.places.items()})

    def of_rows(self, rows: Sequence[Row]) -> Outgoing:
        """For versions of Spark whose streaming sinks get no Arrow."""
        return self._outgoing(
            {name: _from_cells(name, [row[place] for row in rows]) for name, place in self.places.items()}
        )

    def _outgoing(self, columns: dict[str, pa.Array]) -> Outgoing:
        topics = columns.pop("topic", None)
        if "timestamp" in columns:
            columns["timestamp"] = _times(columns["timestamp"])
        return Outgoing(topics if self.topic is None else self.topic, pa.RecordBatch.from_pydict(columns))


def _check_type(given: str, name: str, kind: DataType) -> None:
    is_right = isinstance(kind, _TYPES[name])
    if name == "headers" and is_right:
        # Compared without nullability: array(struct(...)) of literals is not nullable, from_json's is.
        is_right = kind.simpleString() == HEADERS.simpleString()
    if not is_right:
        wanted = HEADERS.simpleString() if name == "headers" else " or ".join(t.typeName() for t in _TYPES[name])
        raise ConfigurationError(
            f"column {given} is {kind.simpleString()}", remedy=f"it must be {wanted}; convert it with CAST or to_json"
        )


def _first(flags: pa.Array) -> int:
    """The place of the first that is true; -1 where none is."""
    place: int = pc.index(flags, True).as_py()
    return place


def _numbers(column: pa.Array) -> pa.Array:
    return column.cast(pa.int64())


def _times(column: pa.Array) -> pa.Array:
    """-1 ms is how a record without a time reads: such a record is written anew with the present time."""
    micros = _numbers(column)
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
        cells = [cell and cell.astimezone(UTC) for cell in cells]  # a row's time is naive, in the worker's local zone
    return pa.array(cells, ARROW_TYPES[name])


def _to_bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else bytes(value)
