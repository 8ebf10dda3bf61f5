"""Bytes of an offset, by samples from an embedded cluster, and micro-batches that they bound."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes

import kwire
from kwire.broker import Cluster
from kwire.errors import ErrorCode, KwireError, RequestTimeoutError, broker_error
from kwire.net import VirtualClock
from kwire.spark.columns import read_schema
from kwire.spark.offsets import byte_limit
from kwire.spark.reader import MicroBatchPlanner, StreamReader
from kwire.spark.record_sizes import RecordSizes
from tests.spark.fakes import FakeConsumer, options

TINY, LARGE, EMPTY = ("t", 0), ("t", 1), ("t", 2)
START, END = {TINY: 0, LARGE: 0, EMPTY: 0}, {TINY: 200, LARGE: 100, EMPTY: 0}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=1, topics={"t": 3, "short": 1}) as cluster:
        with kwire.Producer(cluster.bootstrap) as producer:
            sent = [
                producer.send_many("t", [b"v" * 9] * 200, keys=[b"k"] * 200, partitions=0),
                producer.send_many("t", [b"v" * 1_000] * 100, partitions=1),
                producer.send_many("short", [b"v" * 10] * 200, partitions=0),
            ]
            for one in sent:
                one.result(timeout=30)
        with kwire.Admin(cluster.bootstrap) as admin:
            admin.records.delete({("short", 0): 100})  # as retention does
        yield cluster


def test_a_partition_has_the_mean_of_its_records(cluster: Cluster) -> None:
    with kwire.Consumer(cluster.bootstrap) as consumer:
        assert RecordSizes(VirtualClock()).of(START, END, consumer) == {TINY: 10.0, LARGE: 1_000.0}


def test_samples_are_taken_now_and_then() -> None:
    clock, consumer = VirtualClock(), FakeConsumer([[0, 1], [5, 6]])
    sizes = RecordSizes(clock)
    assert sizes.of({TINY: 0}, {TINY: 9}, consumer) == {TINY: 1.0}  # of b"0", b"1"
    clock.advance(29)
    assert sizes.of({TINY: 5}, {TINY: 9}, consumer) == {TINY: 1.0}
    assert len(consumer.script) == 1
    clock.advance(1)
    sizes.of({TINY: 5}, {TINY: 9}, consumer)
    assert consumer.assigned == [[("t", 0, 0)], [], [("t", 0, 5)], []]
    assert not consumer.script


def test_offsets_without_a_record_have_no_bytes() -> None:
    assert RecordSizes(VirtualClock()).of({TINY: 0}, {TINY: 9}, FakeConsumer([9])) == {TINY: 0.0}


def test_a_partition_that_does_not_answer_counts_as_the_others() -> None:
    clock = VirtualClock()
    consumer = FakeConsumer([])
    consumer.on_poll = lambda: clock.advance(1)
    assert RecordSizes(clock).of({TINY: 0}, {TINY: 9}, consumer) == {TINY: 1_024.0}
    assert consumer.assigned[-1] == []


def test_an_error_of_a_sample_stops_its_fetches() -> None:
    consumer = FakeConsumer([RequestTimeoutError("late")])
    with pytest.raises(RequestTimeoutError):
        RecordSizes(VirtualClock()).of({TINY: 0}, {TINY: 9}, consumer)
    assert consumer.assigned[-1] == []


@pytest.mark.parametrize(("first", "size"), [(100, 3.0), (200, 1_024.0)])  # of b"100", b"101"; all is deleted
def test_a_sample_is_taken_where_the_log_begins(first: int, size: float) -> None:
    consumer = FakeConsumer([broker_error(ErrorCode.OFFSET_OUT_OF_RANGE), [100, 101]], first=first)
    assert RecordSizes(VirtualClock()).of({TINY: 5}, {TINY: 200}, consumer) == {TINY: size}
    assert consumer.assigned[0] == [("t", 0, 5)]
    assert consumer.assigned[-1] == []


@pytest.mark.parametrize("fails", ["true", "false"])
def test_what_retention_deleted_is_lost_by_the_task_and_not_by_the_plan(cluster: Cluster, fails: str) -> None:
    own = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "short", "startingOffsets": '{"short":{"0":5}}'}
    more = {"maxBytesPerTrigger": "1000", "failOnDataLoss": fails}
    reader = StreamReader(options({**own, **more}, is_stream=True), read_schema(with_headers=False))
    try:
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadMaxBytes(1_000))
        assert end == {"short": {"0": 105}}
        (task,) = reader.partitions(start, end)
        if fails == "true":
            with pytest.raises(KwireError, match="data may be lost: offset 5 is not in the log, which begins at 100"):
                list(reader.read(task))
        else:
            assert sum(batch.num_rows for batch in reader.read(task)) == 5
    finally:
        reader.stop()


@pytest.mark.parametrize(
    ("bytes_max", "expected"),
    [
        (1_000_000, {TINY: 200, LARGE: 100, EMPTY: 0}),
        (10_200, {TINY: 20, LARGE: 10, EMPTY: 0}),  # a tenth of 200 x 10 B and 100 x 1 kB
        (1, {TINY: 1, LARGE: 0, EMPTY: 0}),  # an offset, however large
    ],
)
def test_a_limit_is_shared_by_lag(bytes_max: int, expected: dict[Any, int]) -> None:
    assert byte_limit(START, END, bytes_max, {TINY: 10, LARGE: 1_000}) == expected


def test_partitions_without_bytes_are_read_whole() -> None:
    assert byte_limit({TINY: 0, LARGE: 0}, {TINY: 50, LARGE: 100}, 1_000, {TINY: 0, LARGE: 100}) == {
        TINY: 50,
        LARGE: 10,
    }


def test_rows_and_bytes_bound_a_micro_batch_together() -> None:
    planner = MicroBatchPlanner(options(is_stream=True), VirtualClock())

    def end(rows_max: int, bytes_max: int) -> int:
        return planner.next_end(
            {TINY: 0}, {TINY: 100}, rows_max=rows_max, rows_min=None, bytes_max=bytes_max,
            sizes=lambda start, end: {TINY: 10.0},
        )[TINY]  # fmt: skip

    assert [end(30, 200), end(10, 200), end(200, 5_000)] == [20, 10, 100]


def test_a_query_goes_through_a_topic_in_equal_bytes(cluster: Cluster) -> None:
    """Until all is read, each micro-batch has about as many bytes as the option says."""
    own = {
        "kafka.bootstrap.servers": cluster.bootstrap,
        "startingOffsets": "earliest",
        "maxBytesPerTrigger": "20400",
    }
    reader = StreamReader(options(own, is_stream=True), read_schema(with_headers=False))
    try:
        assert reader.getDefaultReadLimit() == ReadMaxBytes(20_400)
        start = reader.initialOffset()
        rows: list[Sequence[int]] = []
        while (end := reader.latestOffset(start, ReadMaxBytes(20_400))) != start:
            rows.append([end["t"][number] - start["t"][number] for number in ("0", "1")])
            start = end
        assert rows == [[40, 20]] * 5
        assert reader.latestOffset(reader.initialOffset(), ReadAllAvailable())["t"] == {"0": 200, "1": 100, "2": 0}
    finally:
        reader.stop()
