"""Conversion of Spark's rows, as Arrow and as Row, for the producer; errors in rows; the check of a write's schema."""

from __future__ import annotations

import pickle
from collections.abc import Callable
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
from kwire.spark.sink import SinkBatch, SinkColumns
from kwire.spark.writer import deliver
from tests.spark.fakes import NOW, FakeProducer


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
Given = tuple[Any, ...]
# Rows of EVERYTHING, and what is sent of each: topic, value, key, headers, partition, timestamp_ms.
TABLE: list[tuple[Given, Given]] = [
    (
        (2, TIME, [{"key": "a", "value": b"1"}, {"key": "b", "value": None}], "k\u00e9", "t", b"v"),
        ("t", b"v", "k\u00e9".encode(), (("a", b"1"), ("b", None)), 2, 1_700_000_000_123),
    ),
    ((None, None, None, None, "t", None), ("t", None, None, (), None, NOW)),
    ((0, None, [], "", "t", b""), ("t", b"", b"", (), 0, NOW)),
    ((0, datetime(1969, 12, 31, 23, 59, 59, 999000, UTC), None, "", "t", b""), ("t", b"", b"", (), 0, NOW)),
    ((0, datetime(1970, 1, 1, 0, 0, 0, 999, UTC), None, "", "t", b""), ("t", b"", b"", (), 0, 0)),
]


def arrow(schema: StructType, rows: list[Given]) -> pa.RecordBatch:
    """Return rows as Spark passes them to an Arrow writer."""
    data = [dict(zip(schema.names, given, strict=True)) for given in rows]
    return pa.RecordBatch.from_pylist(data, schema=to_arrow_schema(schema, timezone="UTC"))


def spark_row(schema: StructType, given: Given) -> Row:
    def as_spark_passes_it(value: Any) -> Any:
        if isinstance(value, datetime):
            return value.astimezone().replace(tzinfo=None)
        if isinstance(value, bytes):
            return bytearray(value)
        return [pair and Row(**pair) for pair in value] if isinstance(value, list) else value

    return Row(*schema.names)(*map(as_spark_passes_it, given))


def from_arrow(columns: SinkColumns, schema: StructType, rows: list[Given]) -> SinkBatch:
    return columns.convert_batch(arrow(schema, rows))


def from_rows(columns: SinkColumns, schema: StructType, rows: list[Given]) -> SinkBatch:
    return columns.convert_rows([spark_row(schema, given) for given in rows])


# Spark passes rows to a sink in one of these forms, depending on its version.
in_both_forms = pytest.mark.parametrize("convert", [from_arrow, from_rows])
Convert = Callable[[SinkColumns, StructType, list[Given]], SinkBatch]


def sent(batch: SinkBatch) -> list[tuple[object, ...]]:
    producer = FakeProducer()
    deliver(producer, [batch], "the DataFrame")
    return producer.sent


@in_both_forms
def test_every_column_is_sent(convert: Convert) -> None:
    rows = [given for given, _ in TABLE]
    columns = SinkColumns.from_schema(EVERYTHING, None)
    assert sent(convert(columns, EVERYTHING, rows)) == [expected for _, expected in TABLE]
    for given, expected in TABLE:
        assert sent(convert(columns, EVERYTHING, [given])) == [expected]


@in_both_forms
def test_the_option_topic_overrides_the_column(convert: Convert) -> None:
    schema = schema_of(topic=StringType(), value=StringType())
    columns = pickle.loads(pickle.dumps(SinkColumns.from_schema(schema, "u")))
    assert [row[0] for row in sent(convert(columns, schema, [("t", "v"), (None, "v")]))] == ["u", "u"]


@in_both_forms
@pytest.mark.parametrize("topics", ["ab", "aaa", "abab", "bba", "abcabcaac"])
def test_rows_of_a_topic_form_one_slice_in_order(convert: Convert, topics: str) -> None:
    schema = schema_of(topic=StringType(), value=StringType())
    rows = list(zip(topics, map(str, range(len(topics))), strict=True))
    batch = convert(SinkColumns.from_schema(schema, None), schema, rows)
    assert sorted(sent(batch)) == sorted((topic, value.encode(), None, (), None, NOW) for topic, value in rows)
    slices = list(batch.by_topic())
    assert [topic_slice.topic for topic_slice in slices] == sorted(set(topics), key=topics.index)
    for topic_slice in slices:
        numbers = [topic_slice.row(index) for index in range(topic_slice.records.num_rows)]
        assert numbers == [number for number, topic in enumerate(topics) if topic == topic_slice.topic]
        assert topic_slice.records["value"].cast(pa.string()).to_pylist() == [str(number) for number in numbers]


@in_both_forms
@pytest.mark.parametrize(
    ("bad", "what"),
    [
        ((0, TIME, [], "k", None, b"v"), "has no topic: fill the column"),
        ((-1, TIME, [], "k", "t", b"v"), "has the partition -1: give one from 0 on"),
        ((0, datetime(1969, 12, 31, 23, 59, 59, 998000, UTC), [], "k", "t", b"v"), "has the timestamp 1969-12-31 23:"),
        ((0, TIME, [{"key": "a", "value": b""}, {"key": None, "value": b""}], "k", "t", b"v"), "has a header without"),
        ((0, TIME, [None], "k", "t", b"v"), "has a header without a key: give each"),
    ],
)
def test_a_row_that_cannot_become_a_record_is_found(convert: Convert, bad: Given, what: str) -> None:
    columns = SinkColumns.from_schema(EVERYTHING, None)
    good = [given for given, _ in TABLE]
    assert convert(columns, EVERYTHING, good).first_error() is None
    for number in range(len(good) + 1):
        row_error = convert(columns, EVERYTHING, [*good[:number], bad, *good[number:], bad]).first_error()
        assert row_error is not None
        assert row_error.row == number
        assert f"{row_error.what}: {row_error.remedy}".startswith(what)


def test_the_error_of_the_first_row_is_returned() -> None:
    rows = [(0, TIME, [None], "k", "t", b""), (-1, TIME, [], "k", None, b"")]
    columns = SinkColumns.from_schema(EVERYTHING, None)
    assert (from_arrow(columns, EVERYTHING, rows).first_error() or (9,))[0] == 0
    assert (from_arrow(columns, EVERYTHING, rows[::-1]).first_error() or (9,))[:2] == (0, "has no topic")


def test_the_result_of_a_read_can_be_written() -> None:
    columns = SinkColumns.from_schema(read_schema(with_headers=True), None)
    assert columns.indexes.keys() == {"key", "value", "topic", "partition", "timestamp", "headers"}


@in_both_forms
@pytest.mark.parametrize("topic", ["t", None])
def test_an_empty_batch(convert: Convert, topic: str | None) -> None:
    batch = convert(SinkColumns.from_schema(EVERYTHING, topic), EVERYTHING, [])
    assert (len(batch), batch.first_error(), sent(batch)) == (0, None, [])


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
        (schema_of(value=StringType(), id=LongType()), "t", "no column id: drop it, or put it into value"),
    ],
)
def test_a_wrong_schema_is_refused(schema: StructType, topic: str | None, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        SinkColumns.from_schema(schema, topic)
