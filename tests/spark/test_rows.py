"""Spark's rows, as Arrow and as Row, into what is sent; what is wrong with one; and the check of a sink's schema."""

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
from kwire.spark.rows import Outgoing, SinkColumns
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
    """As Spark gives them."""
    data = [dict(zip(schema.names, given, strict=True)) for given in rows]
    return pa.RecordBatch.from_pylist(data, schema=to_arrow_schema(schema, timezone="UTC"))


def spark_row(schema: StructType, given: Given) -> Row:
    def as_spark_gives_it(value: Any) -> Any:
        if isinstance(value, datetime):
            return value.astimezone().replace(tzinfo=None)
        if isinstance(value, bytes):
            return bytearray(value)
        return [pair and Row(**pair) for pair in value] if isinstance(value, list) else value

    return Row(*schema.names)(*map(as_spark_gives_it, given))


def of_batch(columns: SinkColumns, schema: StructType, rows: list[Given]) -> Outgoing:
    return columns.of_batch(arrow(schema, rows))


def of_rows(columns: SinkColumns, schema: StructType, rows: list[Given]) -> Outgoing:
    return columns.of_rows([spark_row(schema, given) for given in rows])


# Spark hands a sink rows in either way.
in_both_ways = pytest.mark.parametrize("outgoing", [of_batch, of_rows])
Way = Callable[[SinkColumns, StructType, list[Given]], Outgoing]


def sent(outgoing: Outgoing) -> list[tuple[object, ...]]:
    producer = FakeProducer()
    deliver(producer, [outgoing], "the DataFrame")
    return producer.sent


@in_both_ways
def test_what_is_sent(outgoing: Way) -> None:
    rows = [given for given, _ in TABLE]
    columns = SinkColumns.of(EVERYTHING, None)
    assert sent(outgoing(columns, EVERYTHING, rows)) == [expected for _, expected in TABLE]
    for given, expected in TABLE:
        assert sent(outgoing(columns, EVERYTHING, [given])) == [expected]


@in_both_ways
def test_the_option_topic_overrides_the_column(outgoing: Way) -> None:
    schema = schema_of(topic=StringType(), value=StringType())
    columns = pickle.loads(pickle.dumps(SinkColumns.of(schema, "u")))
    assert [row[0] for row in sent(outgoing(columns, schema, [("t", "v"), (None, "v")]))] == ["u", "u"]


@in_both_ways
@pytest.mark.parametrize("topics", ["ab", "aaa", "abab", "bba", "abcabcaac"])
def test_rows_of_a_topic_are_sent_at_once_and_in_order(outgoing: Way, topics: str) -> None:
    schema = schema_of(topic=StringType(), value=StringType())
    rows = list(zip(topics, map(str, range(len(topics))), strict=True))
    portion = outgoing(SinkColumns.of(schema, None), schema, rows)
    assert sorted(sent(portion)) == sorted((topic, value.encode(), None, (), None, NOW) for topic, value in rows)
    sendings = list(portion.sendings())
    assert [sending.topic for sending in sendings] == sorted(set(topics), key=topics.index)
    for sending in sendings:
        numbers = [sending.row(index) for index in range(sending.records.num_rows)]
        assert numbers == [number for number, topic in enumerate(topics) if topic == sending.topic]
        assert sending.records["value"].cast(pa.string()).to_pylist() == [str(number) for number in numbers]


@in_both_ways
@pytest.mark.parametrize(
    ("bad", "what"),
    [
        ((0, TIME, [], "k", None, b"v"), "has no topic: fill the column"),
        ((-1, TIME, [], "k", "t", b"v"), "has the partition -1: give one from 0 up"),
        ((0, datetime(1969, 12, 31, 23, 59, 59, 998000, UTC), [], "k", "t", b"v"), "has the timestamp 1969-12-31 23:"),
        ((0, TIME, [{"key": "a", "value": b""}, {"key": None, "value": b""}], "k", "t", b"v"), "has a header without"),
        ((0, TIME, [None], "k", "t", b"v"), "has a header without a key: give each"),
    ],
)
def test_a_row_that_is_no_record_is_found(outgoing: Way, bad: Given, what: str) -> None:
    columns = SinkColumns.of(EVERYTHING, None)
    good = [given for given, _ in TABLE]
    assert outgoing(columns, EVERYTHING, good).fault() is None
    for number in range(len(good) + 1):
        fault = outgoing(columns, EVERYTHING, [*good[:number], bad, *good[number:], bad]).fault()
        assert fault is not None
        assert fault.row == number
        assert f"{fault.what}: {fault.remedy}".startswith(what)


def test_the_first_of_several_faults_is_told() -> None:
    rows = [(0, TIME, [None], "k", "t", b""), (-1, TIME, [], "k", None, b"")]
    columns = SinkColumns.of(EVERYTHING, None)
    assert (of_batch(columns, EVERYTHING, rows).fault() or (9,))[0] == 0
    assert (of_batch(columns, EVERYTHING, rows[::-1]).fault() or (9,))[:2] == (0, "has no topic")


def test_what_was_read_can_be_written() -> None:
    columns = SinkColumns.of(read_schema(with_headers=True), None)
    assert columns.places.keys() == {"key", "value", "topic", "partition", "timestamp", "headers"}


@in_both_ways
@pytest.mark.parametrize("topic", ["t", None])
def test_an_empty_batch(outgoing: Way, topic: str | None) -> None:
    portion = outgoing(SinkColumns.of(EVERYTHING, topic), EVERYTHING, [])
    assert (len(portion), portion.fault(), sent(portion)) == (0, None, [])


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
