"""Tables that are no topics: a Spark schema with its Arrow types, and rows of Python values as Arrow batches."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from kwire.errors import ConfigurationError

# Limits of one Arrow batch.
ROWS_MAX = 5_000
BYTES_MAX = 8 * 1024 * 1024
# So many new objects start a garbage collection: see `seldom_collected`.
_OBJECTS_MAX = 50_000
_ARROW: dict[type[DataType], pa.DataType] = {
    BinaryType: pa.binary(),
    BooleanType: pa.bool_(),
    DoubleType: pa.float64(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    StringType: pa.string(),
    TimestampType: pa.timestamp("us", "UTC"),
}


def arrow_type(kind: DataType) -> pa.DataType:
    """Return what Spark's to_arrow_schema returns for a type. Not called: its signature differs between versions."""
    if isinstance(kind, ArrayType):
        return pa.list_(pa.field("element", arrow_type(kind.elementType)))
    if isinstance(kind, StructType):
        return pa.struct([pa.field(field.name, arrow_type(field.dataType)) for field in kind.fields])
    return _ARROW[type(kind)]


def arrow_schema(schema: StructType) -> pa.Schema:
    return pa.schema([pa.field(field.name, arrow_type(field.dataType)) for field in schema.fields])


def check_schema(schema: StructType, whole: StructType, what: str) -> None:
    """Check a user's schema: it may omit and reorder the columns of `whole`, but not rename them or change their types.

    Columns that it omits cost nothing.
    """
    types = {field.name: field.dataType for field in whole.fields}
    for field in schema.fields:
        if field.name not in types:
            raise ConfigurationError(f"{what} has no column {field.name}", remedy=f"its columns are {', '.join(types)}")
        if field.dataType != types[field.name]:
            raise ConfigurationError(
                f"column {field.name} is {types[field.name].simpleString()}, not {field.dataType.simpleString()}",
                remedy="correct the schema, and convert the column after the read",
            )
        if not field.nullable:
            raise ConfigurationError(f"column {field.name} may be null", remedy="remove NOT NULL from the schema")


def batches(rows: Iterable[Sequence[Any]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield rows, whose values are in the order of the schema, as Arrow batches of bounded size."""
    held: list[Sequence[Any]] = []
    size = 0
    with seldom_collected():
        for row in rows:
            held.append(row)
            size += sum(len(value) for value in row if isinstance(value, (str, bytes)))
            if len(held) >= ROWS_MAX or size >= BYTES_MAX:
                yield _batch(held, schema)
                held, size = [], 0
    if held:
        yield _batch(held, schema)


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Collect garbage after 50,000 new objects, not after 700 as by default.

    A decoded batch of records is many objects, none of which is garbage soon: the search for garbage took half the
    time.
    """
    before = gc.get_threshold()
    gc.set_threshold(_OBJECTS_MAX, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _batch(rows: list[Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
