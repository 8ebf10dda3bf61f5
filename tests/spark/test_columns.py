"""Polled records in Spark's columns, and the check of a read's schema."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from kwire.consumer import PolledBatch
from kwire.errors import ConfigurationError
from kwire.spark import KwireDataSource
from kwire.spark.columns import arrow_schema, check_read_schema, polled_columns, read_schema, to_spark
from tests.spark.fakes import piece

MS = 1_700_000_000_123
PIECES = [
    piece(7, (MS, b"k", b"v", (("a", b"1"), ("a", None))), partition=3),
    piece(9, (MS + 1, None, None, ()), timestamp_type=1, partition=3),
    piece(10, (-1, b"", b"", ()), magic=0, partition=3),
    piece(11, (MS, b"\x00", b"\xff" * 300, (("", b""),)), partition=3),
]
EXPECTED = {
    "key": [b"k", None, b"", b"\x00"],
    "value": [b"v", None, b"", b"\xff" * 300],
    "topic": ["t"] * 4,
    "partition": [3] * 4,
    "offset": [7, 9, 10, 11],
    "timestamp": [
        datetime(2023, 11, 14, 22, 13, 20, 123000, UTC),
        datetime(2023, 11, 14, 22, 13, 20, 124000, UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999000, UTC),  # no time at all: as Spark's own connector shows it
        datetime(2023, 11, 14, 22, 13, 20, 123000, UTC),
    ],
    "timestampType": [0, 1, -1, 0],
    "headers": [[{"key": "a", "value": b"1"}, {"key": "a", "value": None}], None, None, [{"key": "", "value": b""}]],
}
POLLED = PolledBatch(PIECES).to_arrow(include_headers=True)
SUBSET = StructType([StructField("offset", LongType()), StructField("value", BinaryType())])


def test_every_column() -> None:
    schema = arrow_schema(read_schema(with_headers=True))
    batch = to_spark(POLLED, schema)
    assert batch.schema.equals(schema)
    batch.validate(full=True)
    assert batch.to_pydict() == EXPECTED


def test_arrow_types_are_those_that_spark_makes() -> None:
    schema = read_schema(with_headers=True)
    assert arrow_schema(schema).equals(to_arrow_schema(schema, timezone="UTC"), check_metadata=True)


def test_headers_only_on_request() -> None:
    assert read_schema(with_headers=False).names == [name for name in EXPECTED if name != "headers"]
    assert read_schema(with_headers=True).names == list(EXPECTED)


def test_columns_and_order_follow_the_schema() -> None:
    check_read_schema(SUBSET)
    batch = to_spark(POLLED, arrow_schema(SUBSET))
    assert batch.schema.names == ["offset", "value"]
    assert batch.to_pydict() == {name: EXPECTED[name] for name in ("offset", "value")}


def test_records_without_any_header() -> None:
    schema = arrow_schema(StructType([read_schema(with_headers=True)["headers"]]))
    polled = PolledBatch(PIECES[1:3]).to_arrow(include_headers=True)
    assert to_spark(polled, schema).to_pydict() == {"headers": [None, None]}


def test_keys_and_values_are_not_copied() -> None:
    batch = to_spark(POLLED, arrow_schema(SUBSET))
    assert batch.column("value").buffers()[2].address == POLLED.column("value").buffers()[2].address


def test_a_time_that_spark_cannot_hold() -> None:
    polled = PolledBatch([piece(0, (2**62, None, b"", ()))]).to_arrow()
    with pytest.raises(ConfigurationError, match=r"a time that Spark's timestamps cannot hold: .*without the column"):
        to_spark(polled, arrow_schema(read_schema(with_headers=False)))
    assert to_spark(polled, arrow_schema(SUBSET)).num_rows == 1


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (StructField("size", LongType()), "no column size: its columns are key, value"),
        (StructField("Value", BinaryType()), "no column Value"),
        (StructField("value", StringType()), "column value is binary, not string: .*CAST"),
        (StructField("value", BinaryType(), nullable=False), "column value may be null: remove NOT NULL"),
    ],
)
def test_a_wrong_schema_is_refused(field: StructField, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        check_read_schema(StructType([field]))


def test_only_the_columns_of_the_schema_are_polled() -> None:
    schema = arrow_schema(SUBSET)
    assert polled_columns(schema) == ["offset", "value"]
    batch = to_spark(PolledBatch(PIECES).to_arrow(columns=polled_columns(schema)), schema)
    assert batch.to_pydict() == {name: EXPECTED[name] for name in ("offset", "value")}
    assert polled_columns(arrow_schema(read_schema(with_headers=True, names=["timestampType", "headers"]))) == [
        "offset", "timestamp_type", "headers",
    ]  # fmt: skip


def test_an_option_names_the_columns() -> None:
    given = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "columns": "offset,value"}
    source = KwireDataSource(given)
    assert source.schema() == SUBSET
    source.reader(SUBSET)
    with pytest.raises(ConfigurationError, match="contradict each other: offset, value, and value"):
        source.streamReader(StructType([StructField("value", BinaryType())]))
