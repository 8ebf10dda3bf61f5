"""Where micro-batches end: limits, minimums with their delay, and Trigger.AvailableNow."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from kwire.net import VirtualClock
from kwire.spark import stream
from kwire.spark.columns import read_schema
from kwire.spark.offsets import OffsetRange
from kwire.spark.stream import MicroBatches, StreamReader
from tests.spark.fakes import FakeLog, options

SCHEMA = read_schema(with_headers=False)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> FakeLog:
    """The table that every StreamReader of this test asks instead of a broker."""
    table = FakeLog({("t", 0): (0, 10), ("t", 1): (0, 30)})

    class Found:
        def get(self, keywords: Any) -> FakeLog:
            return table

    monkeypatch.setattr(stream, "consumers", Found())
    return table


def reader(**own: str) -> StreamReader:
    return StreamReader(options(own, is_stream=True), SCHEMA)


@pytest.mark.parametrize(
    ("own", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxOffsetsPerTrigger": "5"}, ReadMaxRows(5)),
        ({"minOffsetsPerTrigger": "5"}, ReadMinRows(5)),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "9"}, ReadMaxRows(9)),
    ],
)
def test_default_limit(own: dict[str, str], limit: object) -> None:
    assert reader(**own).getDefaultReadLimit() == limit


def test_from_the_first_to_the_last_offset(log: FakeLog) -> None:
    stream_reader = reader(startingOffsets="earliest", maxOffsetsPerTrigger="20")
    start = stream_reader.initialOffset()
    assert start == {"t": {"0": 0, "1": 0}}
    end = stream_reader.latestOffset(start, ReadMaxRows(20))
    assert end == {"t": {"0": 5, "1": 15}}
    planned = [partition.value for partition in stream_reader.partitions(start, end)]
    assert planned == [OffsetRange("t", 0, 0, 5), OffsetRange("t", 1, 0, 15)]
    assert stream_reader.latestOffset(end, ReadAllAvailable()) == {"t": {"0": 10, "1": 30}}
    assert stream_reader.reportLatestOffset() == {"t": {"0": 10, "1": 30}}


def test_by_default_a_stream_starts_at_the_end(log: FakeLog) -> None:
    assert reader().initialOffset() == {"t": {"0": 10, "1": 30}}


def test_a_new_partition_shares_the_limit(log: FakeLog) -> None:
    end = reader().latestOffset({"t": {"0": 10}}, ReadMaxRows(6))
    assert end == {"t": {"0": 10, "1": 6}}


def test_available_now_goes_no_further_than_it_was_told(log: FakeLog) -> None:
    stream_reader = reader(startingOffsets="earliest", minOffsetsPerTrigger="1000")
    stream_reader.prepareForTriggerAvailableNow()
    log.extents = {("t", 0): (0, 11), ("t", 1): (0, 31), ("t", 2): (0, 5)}
    end = stream_reader.latestOffset({"t": {"0": 0, "1": 0}}, ReadMinRows(1000))
    assert end == {"t": {"0": 10, "1": 30}}
    assert stream_reader.latestOffset(end, ReadMinRows(1000)) == end


def test_a_minimum_waits_for_rows_or_for_the_delay() -> None:
    clock = VirtualClock()
    pace = MicroBatches(options(is_stream=True, minOffsetsPerTrigger="5", maxTriggerDelay="60s"), clock)

    def ask(offset: int) -> int:
        return pace.next_end({("t", 0): 0}, {("t", 0): offset}, rows_max=None, rows_min=5)["t", 0]

    assert ask(4) == 0
    assert ask(5) == 5
    clock.advance(59)
    assert ask(4) == 0
    clock.advance(1)
    assert ask(4) == 4
    assert ask(4) == 0  # the delay counts from there anew


def test_everything_at_once_ignores_the_minimum(log: FakeLog) -> None:
    assert reader(minOffsetsPerTrigger="1000").latestOffset({"t": {"0": 9, "1": 30}}, ReadAllAvailable()) == {
        "t": {"0": 10, "1": 30}
    }


def test_a_reader_travels_to_its_tasks(log: FakeLog) -> None:
    stream_reader = reader()
    stream_reader.latestOffset({"t": {"0": 0, "1": 0}}, ReadAllAvailable())
    again = pickle.loads(pickle.dumps(stream_reader))
    assert again.initialOffset() == stream_reader.initialOffset()
