"""The columns that a read answers, and how records become Arrow arrays, one column at a time.

Only the columns of the read's schema are built: a user schema that leaves columns out saves their whole cost, which
Spark's own connector cannot do. Owns the schema's check. Columns are as in Spark's connector: all nullable, times in
microseconds, no headers as null.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kwire.errors import ConfigurationError

if TYPE_CHECKING:
    from kwire.consumer import ConsumerRecord

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS,
}
# What Spark makes of these types (pyspark.sql.pandas.types.to_arrow_schema, whose signature changes between versions).
_ARROW_TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))),
}


def read_schema(*, with_headers: bool) -> StructType:
    """What a read answers when the user gives no schema."""
    names = [name for name in _TYPES if with_headers or name != "headers"]
    return StructType([StructField(name, _TYPES[name]) for name in names])


def check_read_schema(schema: StructType) -> None:
    """A user's schema may leave columns out and order them, but not rename or retype them."""
    for field in schema.fields:
        if field.name not in _TYPES:
            raise ConfigurationError(
                f"a read has no column {field.name}", remedy=f"its columns are {', '.join(_TYPES)}"
            )
        expected = _TYPES[field.name]
        if field.dataType != expected:
            raise ConfigurationError(
                f"column {field.name} is {expected.simpleString()}, not {field.dataType.simpleString()}",
                remedy="correct the schema, and convert the column after the read, as in CAST(value AS STRING)",
            )
        if not field.nullable:
            raise ConfigurationError(f"column {field.name} may be null", remedy="remove NOT NULL from the schema")


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark demands of what a read yields: inner names and nullability are compared as well."""
    return pa.schema([pa.field(field.name, _ARROW_TYPES[field.name]) for field in schema.fields])


def to_arrow(records: Sequence[ConsumerRecord], schema: pa.Schema) -> pa.RecordBatch:
    """The records of one partition, at least one, as the columns of `schema`."""
    assert records
    return pa.RecordBatch.from_arrays([_BUILDERS[field.name](records, field.type) for field in schema], schema=schema)


_Builder = Callable[[Sequence["ConsumerRecord"], pa.DataType], pa.Array]


def _keys(records: Sequence[ConsumerRecord], kind: pa.DataType) -> pa.Array:
    return pa.array([record.key for record in records], kind)


def _values(records: Sequence[ConsumerRecord], kind: pa.DataType) -> pa.Array:
    return pa.array([record.value for record in records], kind)


def _topic(records: Sequence[ConsumerRecord], kind: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(records[0].topic, kind), len(records))


def _partition(records: Sequence[ConsumerRecord], kind: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(records[0].partition, kind), len(records))


def _offsets(records: Sequence[ConsumerRecord], kind: pa.DataType) -> pa.Array:
    return pa.array([record.offset for record in records], kind)


def _timestamps(records: Sequence[ConsumerRecord], kind: pa.DataType) -> pa.Array:
    # A record without a time has -1, which Spark's connector shows as one millisecond before 1970; so do we.
    return pa.array([record.timestamp_ms * 1_000 for record in records], kind)


def _timestamp_types(records: Sequence[ConsumerRecord], kind: pa.DataType) -> pa.Array:
    return pa.array([record.timestamp_type for record in records], kind)


def _headers(records: Sequence[ConsumerRecord], kind: pa.DataType) -> pa.Array:
    # Built flat, keys and values of all records in one array each. A null among the borders makes that list null.
    names: list[str] = []
    values: list[bytes | None] = []
    borders: list[int | None] = []
    for record in records:
        borders.append(len(names) if record.headers else None)
        for name, value in record.headers:
            names.append(name)
            values.append(value)
    borders.append(len(names))
    pair = kind.value_type
    flat = pa.StructArray.from_arrays(
        [pa.array(names, pair.field(0).type), pa.array(values, pair.field(1).type)],
        fields=[pair.field(0), pair.field(1)],
    )
    return pa.ListArray.from_arrays(pa.array(borders, pa.int32()), flat, type=kind)


_BUILDERS: dict[str, _Builder] = {
    "key": _keys,
    "value": _values,
    "topic": _topic,
    "partition": _partition,
    "offset": _offsets,
    "timestamp": _timestamps,
    "timestampType": _timestamp_types,
    "headers": _headers,
}
assert _BUILDERS.keys() == _TYPES.keys() == _ARROW_TYPES.keys()
