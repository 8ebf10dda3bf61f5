"""The columns of a read: their Spark and Arrow types, and the conversion from `Consumer.poll_arrow`.

Columns are as in Spark's Kafka connector: all nullable, timestamps in microseconds, null for a record without headers.
Only the columns of the read's schema are decoded and go to Spark, so a schema without some columns saves their cost.
"""

from __future__ import annotations

from collections.abc import Sequence

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
# What Spark's to_arrow_schema returns for these types. Not called here: its signature differs between Spark versions.
ARROW_TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))),
}


# Spark's timestamps are microseconds in 64 bits.
TIMESTAMP_MS_MAX = (2**63 - 1) // 1000

assert _TYPES.keys() == ARROW_TYPES.keys()
# Names that differ in `poll_arrow`.
_POLLED_NAMES = {"timestampType": "timestamp_type"}


def read_schema(*, with_headers: bool, names: Sequence[str] | None = None) -> StructType:
    """Return the schema of a read for which the user gives none: that of the option columns, or of all columns."""
    if names is None:
        names = [name for name in _TYPES if with_headers or name != "headers"]
    return StructType([StructField(name, _TYPES[name]) for name in names])


def parse_columns(option: str, text: str) -> tuple[str, ...]:
    """Parse names of columns separated by commas, in any case, and keep their order."""
    by_lower = {name.lower(): name for name in _TYPES}
    given = [part.strip() for part in text.split(",") if part.strip()]
    for name in given:
        if name.lower() not in by_lower:
            raise ConfigurationError(
                f"option {option} names {name}, which is no column", remedy=f"the columns are {', '.join(_TYPES)}"
            )
    names = tuple(by_lower[name.lower()] for name in given)
    if not names or len(set(names)) < len(names):
        raise ConfigurationError(
            f"option {option} is {text!r}", remedy="give one or more columns, each once, separated by commas"
        )
    return names


def polled_columns(schema: pa.Schema) -> list[str]:
    """Return the columns of `poll_arrow` that a read needs: those of the schema, and the offset for the range's end."""
    names: list[str] = schema.names
    return list(dict.fromkeys(["offset", *(_POLLED_NAMES.get(name, name) for name in names)]))


def check_read_schema(schema: StructType) -> None:
    """Check a user's schema. It may omit and reorder columns, but not rename them or change their types."""
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
    """Return the Arrow schema that Spark requires of a read. Spark compares nested names and nullability too."""
    return pa.schema([pa.field(field.name, ARROW_TYPES[field.name]) for field in schema.fields])


def to_spark(polled: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert a batch of `poll_arrow` to the columns of `schema`. A column of the same type is not copied.

    A record without a timestamp has -1 and reads as one millisecond before 1970, as in Spark's Kafka connector.
    """
    columns = [polled.column(_POLLED_NAMES.get(field.name, field.name)) for field in schema]
    try:
        cast = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(columns, schema, strict=True)
        ]
    except pa.ArrowInvalid as error:
        raise ConfigurationError(
            f"a record has a time that Spark's timestamps cannot hold: {error}",
            remedy="give a schema without the column timestamp",
        ) from error
    return pa.RecordBatch.from_arrays(cast, schema=schema)
