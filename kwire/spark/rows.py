"""The columns that a write takes, and how Spark's rows become what `Producer.send` takes.

value is required; key, headers, topic and partition are as in Spark's own Kafka sink; timestamp is ours: the record's
time, else now. offset and timestampType, which only a broker can give, are ignored, so that what was read can be
written as it is. Any other column is refused rather than dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, Row, StringType, StructType, TimestampType

from kwire.errors import ConfigurationError
from kwire.spark.columns import HEADERS

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
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

Headers = tuple[tuple[str, bytes | None], ...]


class OutgoingRow(NamedTuple):
    """One record to send. `topic` and a header's name may be None here, where the DataFrame has a null: see `send`."""

    topic: str | None
    value: bytes | None
    key: bytes | None
    headers: Headers
    partition: int | None
    timestamp_ms: int | None


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

    def rows_of(self, batch: pa.RecordBatch) -> Iterator[OutgoingRow]:
        """The rows of an Arrow batch, converted column by column."""
        count = batch.num_rows
        nulls: list[Any] = [None] * count
        columns = {name: _convert(name, batch.column(place)) for name, place in self.places.items()}
        topics = [self.topic] * count if self.topic is not None else columns["topic"]
        return map(
            OutgoingRow,
            topics,
            columns["value"],
            columns.get("key", nulls),
            columns.get("headers", [()] * count),
            columns.get("partition", nulls),
            columns.get("timestamp", nulls),
        )

    def row_of(self, row: Row) -> OutgoingRow:
        """One of Spark's rows, for versions of Spark whose streaming sinks get no Arrow."""
        found = {name: row[place] for name, place in self.places.items()}
        return OutgoingRow(
            self.topic if self.topic is not None else found["topic"],
            _to_bytes(found["value"]),
            _to_bytes(found.get("key")),
            tuple((name, _to_bytes(value)) for name, value in found.get("headers") or ()),
            found.get("partition"),
            _to_ms(found.get("timestamp")),
        )


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


def _convert(name: str, column: pa.Array) -> Sequence[Any]:
    if name in ("value", "key"):
        column = column.cast(pa.binary())
    if name == "timestamp":
        micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
        return [None if number is None else _given(number // 1_000) for number in micros.to_pylist()]
    if name == "headers":
        return [tuple((pair["key"], pair["value"]) for pair in pairs) if pairs else () for pairs in column.to_pylist()]
    found: list[Any] = column.to_pylist()
    return found


def _to_bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else bytes(value)


def _to_ms(value: datetime | None) -> int | None:
    """A row's time is naive, in the worker's local zone."""
    return None if value is None else _given((value.astimezone(UTC) - _EPOCH) // _MILLISECOND)


def _given(timestamp_ms: int) -> int | None:
    """-1 is how a record without a time reads: such a record is written anew with the present time."""
    return None if timestamp_ms == -1 else timestamp_ms
