"""The columns that a read answers, made of those that `Consumer.poll_arrow` answers, without a Python object a row.

Only the columns of the read's schema go to Spark: a user schema that leaves columns out saves their cost there, which
Spark's own connector cannot do. Owns the schema's check. Columns are as in Spark's connector: all nullable, times in
microseconds, no headers as null.
"""

from __future__ import annotations

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
# What Spark makes of these types (pyspark.sql.pandas.types.to_arrow_schema, whose signature changes between versions).
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


assert _TYPES.keys() == ARROW_TYPES.keys()
# What poll_arrow calls by another name.
_POLLED_NAMES = {"timestampType": "timestamp_type"}


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
    return pa.schema([pa.field(field.name, ARROW_TYPES[field.name]) for field in schema.fields])


def to_spark(polled: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """What `poll_arrow` answered as the columns of `schema`; those that are alike in both are not copied.

    A record without a time has -1, which Spark's connector shows as one millisecond before 1970; so do we.
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
