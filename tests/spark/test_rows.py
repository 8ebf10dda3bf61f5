"""Spark's rows, as Arrow and as Row, into what is sent; and the check of a sink's schema."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    Row,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kwire.errors import ConfigurationError
from kwire.spark.columns import HEADERS, read_schema
from kwire.spark.rows import OutgoingRow, SinkColumns


def schema_of(**kinds: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


EVERYTHING = schema_of(
    Partition=IntegerType(),
    timestamp=TimestampType(),
    headers=HEADERS,
    key=StringType(),
    topic=StringType(),
    value=BinaryType(),
)
TIME = datetime(2023, 11, 14, 22, 13, 20, 123999, UTC)
TABLE: list[tuple[tuple[Any, ...], OutgoingRow]] = [
    (
        (2, TIME, [{"key": "a", "value": b"1"}, {"key": "b", "value": None}], "k\u00e9", "t", b"v"),
        OutgoingRow("t", b"v", "k\u00e9".encode(), (("a", b"1"), ("b", None)), 2, 1_700_000_000_123),
    ),
    ((None, None, None, None, "u", None), OutgoingRow("u", None, None, (), None, None)),
    ((0, None, [], "", "t", b""), OutgoingRow("t", b"", b"", (), 0, None)),
    (
        (0, datetime(1969, 12, 31, 23, 59, 59, 999000, UTC), None, "", None, b""),
        OutgoingRow(None, b"", b"", (), 0, None),
    ),
]


def test_arrow_rows() -> None:
    names = EVERYTHING.names
    data = [dict(zip(names, given, strict=True)) for given, _ in TABLE]
    batch = pa.RecordBatch.from_pylist(data, schema=to_arrow_schema(EVERYTHING, timezone="UTC"))
    assert list(SinkColumns.of(EVERYTHING, None).rows_of(batch)) == [expected for _, expected in TABLE]


@pytest.mark.parametrize(("given", "expected"), TABLE)
def test_spark_rows(given: tuple[Any, ...], expected: OutgoingRow) -> None:
    def as_spark_gives_it(value: Any) -> Any:
        if isinstance(value, datetime):
            return value.astimezone().replace(tzinfo=None)
        if isinstance(value, bytes):
            return bytearray(value)
        return [Row(**pair) for pair in value] if isinstance(value, list) else value

    row = Row(*EVERYTHING.names)(*map(as_spark_gives_it, given))
    assert SinkColumns.of(EVERYTHING, None).row_of(row) == expected


def test_the_option_topic_overrides_the_column() -> None:
    schema = schema_of(topic=StringType(), value=StringType())
    batch = pa.RecordBatch.from_pylist([{"topic": "t", "value": "v"}], schema=to_arrow_schema(schema, timezone="UTC"))
    columns = pickle.loads(pickle.dumps(SinkColumns.of(schema, "u")))
    assert [row.topic for row in columns.rows_of(batch)] == ["u"]
    assert columns.row_of(Row("topic", "value")("t", "v")).topic == "u"


def test_what_was_read_can_be_written() -> None:
    columns = SinkColumns.of(read_schema(with_headers=True), None)
    assert columns.places.keys() == {"key", "value", "topic", "partition", "timestamp", "headers"}


def test_an_empty_batch() -> None:
    schema = schema_of(value=StringType())
    batch = pa.RecordBatch.from_pylist([], schema=to_arrow_schema(schema, timezone="UTC"))
    assert list(SinkColumns.of(schema, "t").rows_of(batch)) == []


@pytest.mark.parametrize(
    ("schema", "topic", "message"),
    [
        (schema_of(key=StringType()), "t", "no column value: select what to write AS value"),
        (schema_of(value=StringType()), None, "no topic is named"),
        (schema_of(value=DoubleType()), "t", "column value is double: it must be binary or string"),
        (schema_of(value=StringType(), key=LongType()), "t", "column key is bigint"),
        (schema_of(value=StringType(), partition=LongType()), "t", "column partition is bigint: it must be integer"),
        (schema_of(value=StringType(), timestamp=LongType()), "t", "column timestamp is bigint"),
        (schema_of(value=StringType(), headers=ArrayType(StringType())), "t", "column headers is array<string>"),
        (schema_of(value=StringType(), headers=MapType(StringType(), BinaryType())), "t", "it must be array<struct"),
        (schema_of(value=StringType(), id=LongType()), "t", "no column id: drop it, or pack it into value"),
    ],
)
def test_a_wrong_schema_is_refused(schema: StructType, topic: str | None, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        SinkColumns.of(schema, topic)
