"""Pushed filters narrow the ranges of a read, and never leave out a row for which they hold."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from pyspark.sql import datasource
from pyspark.sql.types import LongType, StructField, StructType

from kwire.broker import Cluster
from kwire.errors import ConfigurationError
from kwire.spark import KwireDataSource, reader
from kwire.spark.filters import PushedFilters
from kwire.spark.offsets import OffsetRange
from tests.consumer.embedded import START_MS, fill
from tests.spark.fakes import FakeOffsetReader, options

if not hasattr(datasource, "Filter"):
    pytest.skip("Spark 4.0 has no filters", allow_module_level=True)

from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

RANGES = [OffsetRange("t", 0, 0, 10), OffsetRange("t", 1, 5, 30), OffsetRange("u", 0, 0, 3)]
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1_000)


def narrowed(*filters: Any, times: FakeOffsetReader | None = None) -> list[tuple[str, int, int, int]]:
    return [tuple(one) for one in PushedFilters.of(filters).narrow(RANGES, times or FakeOffsetReader({}))]  # type: ignore[misc]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], [tuple(one) for one in RANGES]),
        ([EqualTo(("partition",), 1)], [("t", 1, 5, 30)]),
        ([EqualTo(("Partition",), 1), IsNotNull(("partition",))], [("t", 1, 5, 30)]),
        ([In(("partition",), (1, 7, None))], [("t", 1, 5, 30)]),
        ([GreaterThan(("partition",), 0)], [("t", 1, 5, 30)]),
        ([GreaterThanOrEqual(("partition",), 0), LessThan(("partition",), 1)], [("t", 0, 0, 10), ("u", 0, 0, 3)]),
        ([LessThanOrEqual(("partition",), -1)], []),
        ([EqualTo(("topic",), "u")], [("u", 0, 0, 3)]),
        ([EqualTo(("offset",), 5)], [("t", 0, 5, 6), ("t", 1, 5, 6)]),
        ([In(("offset",), (2, 7, None))], [("t", 0, 2, 8), ("t", 1, 5, 8), ("u", 0, 2, 3)]),
        ([In(("offset",), (None,))], []),
        ([GreaterThan(("offset",), 8)], [("t", 0, 9, 10), ("t", 1, 9, 30)]),
        ([GreaterThanOrEqual(("offset",), 9), LessThanOrEqual(("offset",), 10)], [("t", 0, 9, 10), ("t", 1, 9, 11)]),
        ([LessThan(("offset",), 2)], [("t", 0, 0, 2), ("u", 0, 0, 2)]),
        ([LessThan(("offset",), 2), LessThan(("offset",), 9)], [("t", 0, 0, 2), ("u", 0, 0, 2)]),
        # What is not understood leaves out nothing.
        ([Not(EqualTo(("partition",), 1)), StringStartsWith(("topic",), "u")], [tuple(one) for one in RANGES]),
        ([EqualTo(("value",), b"1"), EqualTo(("headers", "key"), "k")], [tuple(one) for one in RANGES]),
        ([LessThan(("timestamp",), NOON)], [tuple(one) for one in RANGES]),
        ([GreaterThan(("timestamp",), NOON.replace(tzinfo=None))], [tuple(one) for one in RANGES]),
        ([GreaterThan(("timestamp",), datetime(1969, 1, 1, tzinfo=UTC))], [tuple(one) for one in RANGES]),
    ],
)
def test_ranges(filters: list[Any], expected: list[tuple[str, int, int, int]]) -> None:
    assert narrowed(*filters) == expected


def test_a_time_is_where_reading_begins() -> None:
    times = FakeOffsetReader({}, {("t", 0, NOON_MS): 4, ("t", 1, NOON_MS): 2})  # none in u-0 is so young
    later = NOON.astimezone(timezone(timedelta(hours=2))) + timedelta(microseconds=999)
    filters = [GreaterThanOrEqual(("timestamp",), later), GreaterThan(("timestamp",), NOON - timedelta(days=1))]
    assert narrowed(*filters, times=times) == [("t", 0, 4, 10), ("t", 1, 5, 30)]
    assert times.requests == ["times"]
    assert narrowed(EqualTo(("partition",), 9), *filters, times=times) == []
    assert times.requests == ["times"]  # nothing was left to ask for


def test_the_reader_reads_only_what_is_left() -> None:
    schema = StructType([StructField("offset", LongType())])
    with Cluster(brokers=1, topics={"t": 2}) as cluster:
        for partition in range(2):
            fill(cluster, "t", partition, range(20))
        given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "t", "pushFilters": "true"}
        filtering: Any = KwireDataSource(given).reader(schema)
        since = datetime.fromtimestamp(START_MS / 1_000, UTC) + timedelta(milliseconds=15)
        filters = [EqualTo(("partition",), 1), GreaterThanOrEqual(("timestamp",), since)]
        assert list(filtering.pushFilters(filters)) == filters  # Spark checks them again
        (partition,) = filtering.partitions()
        assert partition.value == OffsetRange("t", 1, 15, 20)
        read = [offset for batch in filtering.read(partition) for offset in batch.column("offset").to_pylist()]
        assert read == list(range(15, 20))


def test_only_an_option_makes_a_reader_with_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark refuses a reader that overrides pushFilters unless a configuration of its own is set."""
    plain = reader.batch_reader(options(), StructType())
    assert type(plain).pushFilters is datasource.DataSourceReader.pushFilters
    monkeypatch.delattr(datasource.DataSourceReader, "pushFilters")
    with pytest.raises(ConfigurationError, match=r"needs Spark 4\.1"):
        reader.batch_reader(options(pushFilters="true"), StructType())
