"""Records into Arrow, and the check of a read's schema."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from kwire.consumer import ConsumerRecord
from kwire.errors import ConfigurationError
from kwire.spark import columns
from kwire.spark.columns import arrow_schema, check_read_schema, read_schema, to_arrow

MS = 1_700_000_000_123
RECORDS = [
    ConsumerRecord("t", 3, 7, MS, 0, b"k", b"v", (("a", b"1"), ("a", None))),
    ConsumerRecord("t", 3, 9, MS + 1, 1, None, None, ()),
    ConsumerRecord("t", 3, 10, -1, -1, b"", b"", (("", b""),)),
]
EXPECTED = {
    "key": [b"k", None, b""],
    "value": [b"v", None, b""],
    "topic": ["t", "t", "t"],
    "partition": [3, 3, 3],
    "offset": [7, 9, 10],
    "timestamp": [
        datetime(2023, 11, 14, 22, 13, 20, 123000, UTC),
        datetime(2023, 11, 14, 22, 13, 20, 124000, UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999000, UTC),  # no time at all: as Spark's own connector shows it
    ],
    "timestampType": [0, 1, -1],
    "headers": [[{"key": "a", "value": b"1"}, {"key": "a", "value": None}], None, [{"key": "", "value": b""}]],
}
SUBSET = StructType([StructField("offset", LongType()), StructField("value", BinaryType())])


def test_every_column() -> None:
    schema = arrow_schema(read_schema(with_headers=True))
    batch = to_arrow(RECORDS, schema)
    assert batch.schema.equals(schema)
    batch.validate(full=True)
    assert batch.to_pydict() == EXPECTED


def test_arrow_types_are_those_that_spark_makes() -> None:
    schema = read_schema(with_headers=True)
    assert arrow_schema(schema).equals(to_arrow_schema(schema, timezone="UTC"), check_metadata=True)


def test_headers_only_on_request() -> None:
    assert read_schema(with_headers=False).names == [name for name in EXPECTED if name != "headers"]
    assert read_schema(with_headers=True).names == list(EXPECTED)


def test_only_the_schemas_columns_are_built_and_in_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in EXPECTED.keys() - {"offset", "value"}:
        monkeypatch.delitem(columns._BUILDERS, name)
    check_read_schema(SUBSET)
    batch = to_arrow(RECORDS, arrow_schema(SUBSET))
    assert batch.schema.names == ["offset", "value"]
    assert batch.to_pydict() == {name: EXPECTED[name] for name in ("offset", "value")}


def test_records_without_any_header() -> None:
    schema = arrow_schema(StructType([read_schema(with_headers=True)["headers"]]))
    assert to_arrow([RECORDS[1]] * 2, schema).to_pydict() == {"headers": [None, None]}


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
