"""Reads: a range is read to its end, gaps included, and no further; micro-batches end where limits say."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

from kwire.broker import Cluster
from kwire.errors import (
    ConfigurationError,
    ErrorCode,
    KwireError,
    NodeError,
    RequestTimeoutError,
    TopicError,
    broker_error,
)
from kwire.net import Clock, VirtualClock
from kwire.protocol import ApiKey
from kwire.spark import reader
from kwire.spark.clients import consumers
from kwire.spark.columns import arrow_schema, read_schema
from kwire.spark.offsets import OffsetRange
from kwire.spark.options import ReadOptions
from kwire.spark.reader import (
    MicroBatchPlanner,
    StreamReader,
    input_partitions,
    read_partition,
    read_range,
    split_by_size,
)
from tests.consumer.embedded import fill
from tests.spark.fakes import FakeConsumer, FakeOffsetReader, options, piece

GONE = broker_error(ErrorCode.OFFSET_OUT_OF_RANGE)


def read(
    consumer: FakeConsumer, wanted: OffsetRange, own: ReadOptions | None = None, clock: Clock | None = None
) -> Iterator[list[int]]:
    """The offsets of each batch."""
    for batch in read_range(consumer, wanted, own or options(), clock or VirtualClock(), ["offset"]):
        yield batch.column("offset").to_pylist()


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ([[2, 3], [4, 5]], [[2, 3], [4, 5]]),
        ([[2, 3, 4, 5, 6, 7]], [[2, 3, 4, 5]]),  # the last fetch brings more
        ([[], [2], [], [3, 5]], [[2], [3, 5]]),
        ([[3], [9, 10]], [[3]]),  # compacted away: 2, and 4 to 8
        ([[2, 3], 6], [[2, 3]]),  # ends in a transaction marker
        ([6], []),
    ],
)
def test_read_range(script: list[list[int] | int | KwireError], expected: list[list[int]]) -> None:
    consumer = FakeConsumer(script)
    assert list(read(consumer, OffsetRange("t", 0, 2, 6))) == expected
    assert (consumer.assigned, consumer.ends) == ([[("t", 0, 2)]], [{("t", 0): 6}])


def test_no_progress_raises_after_the_timeout() -> None:
    clock = VirtualClock()
    consumer = FakeConsumer([[2], [], 4])
    consumer.on_poll = lambda: clock.advance(0.1)
    reads = read(consumer, OffsetRange("t", 0, 2, 6), options({"kafkaConsumer.pollTimeoutMs": "2000"}), clock)
    assert next(reads) == [2]
    with pytest.raises(
        RequestTimeoutError, match=r"from offset 4 on within 2000 ms; the read ends at 6 .*topic t, partition 0"
    ):
        next(reads)
    assert clock.now() == pytest.approx(2.3, abs=0.11)


def test_an_error_of_the_consumer_names_the_partition() -> None:
    consumer = FakeConsumer([NodeError("gone", broker="1 at b:9092")])
    with pytest.raises(NodeError, match="broker 1 at b:9092, topic t, partition 0"):
        list(read(consumer, OffsetRange("t", 0, 0, 1)))


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        (4, [4, 5]),  # retention took the first two
        (6, []),  # ... or all
        (0, []),  # the log is another one, shorter than where the range begins
    ],
)
def test_offsets_out_of_range(first: int, expected: list[int]) -> None:
    wanted = OffsetRange("t", 0, 2, 6)
    with pytest.raises(KwireError, match=f"data may be lost: offset 2 is not in the log, which begins at {first}"):
        list(read(FakeConsumer([GONE], first=first), wanted))
    lenient = options(failOnDataLoss="false")
    consumer = FakeConsumer([GONE, expected], first=first)
    assert [offset for offsets in read(consumer, wanted, lenient) for offset in offsets] == expected


def test_a_range_is_split_into_input_partitions() -> None:
    cut = input_partitions([OffsetRange("t", 0, 0, 10)], options(minPartitions="2"))
    assert [partition.value for partition in cut] == [OffsetRange("t", 0, 0, 5), OffsetRange("t", 0, 5, 10)]


@pytest.mark.parametrize("partition", [None, InputPartition(None)])
def test_an_input_partition_without_a_range_reads_nothing(partition: InputPartition | None) -> None:
    assert list(read_partition(partition, options(), read_schema(with_headers=False))) == []


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> FakeConsumer:
    """The consumer that a task gets from the cache."""
    found = FakeConsumer([])

    class Cache:
        def get(self, keywords: object) -> FakeConsumer:
            return found

    monkeypatch.setattr(reader, "consumers", Cache())
    return found


@pytest.mark.parametrize("with_headers", [False, True])
def test_a_task_returns_its_range_in_sparks_columns(consumer: FakeConsumer, with_headers: bool) -> None:
    consumer.script = [[piece(2, (5, b"k", b"v", (("h", b"1"),)), (6, None, None, ()))], [9]]
    schema = read_schema(with_headers=with_headers)
    found = list(read_partition(InputPartition(OffsetRange("t", 0, 2, 6)), options(), schema))
    assert [batch.schema for batch in found] == [arrow_schema(schema)]
    rows = found[0].to_pylist()
    assert [(row["offset"], row["key"], row["value"]) for row in rows] == [(2, b"k", b"v"), (3, None, None)]
    assert [row.get("headers") for row in rows] == [[{"key": "h", "value": b"1"}] if with_headers else None, None]
    assert consumer.assigned == [[("t", 0, 2)]]


def test_a_task_that_spark_stops_unassigns_its_partition(consumer: FakeConsumer) -> None:
    consumer.script = [[0], [1]]
    reads = read_partition(InputPartition(OffsetRange("t", 0, 0, 2)), options(), read_schema(with_headers=False))
    next(reads)
    reads.close()  # type: ignore[attr-defined]
    assert consumer.assigned[-1] == []


def test_the_tasks_of_a_worker_fetch_no_more_than_they_read() -> None:
    """Metadata is requested once, and each range needs one fetch."""
    with Cluster(brokers=1, topics={"t": 2}) as cluster:
        for partition in (0, 1):
            fill(cluster, "t", partition, range(100))
        own = options({"kafka.bootstrap.servers": cluster.bootstrap})
        made = cluster.requests()
        try:
            for wanted in [OffsetRange("t", index, start, start + 50) for index in (0, 1) for start in (0, 50)]:
                found = list(read_partition(InputPartition(wanted), own, read_schema(with_headers=False)))
                assert sum(batch.num_rows for batch in found) == 50
            made = cluster.requests() - made  # a consumer that is closed ends its fetch session by one more
        finally:
            consumers.close()
    assert made[ApiKey.FETCH] == 4
    assert made[ApiKey.METADATA] <= 2  # the brokers, then the topic's leaders


def test_a_column_that_spark_cannot_hold_names_the_partition(consumer: FakeConsumer) -> None:
    consumer.script = [[piece(0, (2**62, None, b"", ()))]]
    with pytest.raises(ConfigurationError, match=r"cannot hold: .*topic t, partition 0"):
        list(read_partition(InputPartition(OffsetRange("t", 0, 0, 1)), options(), read_schema(with_headers=False)))


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([1, 1, 1, 1], [[1, 1, 1, 1]]),
        ([40, 40, 40, 40], [[40, 40], [40, 40]]),
        ([900, 1, 1, 1, 1], [[900], [1], [1, 1, 1]]),
        ([900], [[900]]),
        ([], [[]]),
    ],
)
def test_a_batch_is_halved_until_it_is_small_enough(sizes: list[int], expected: list[list[int]]) -> None:
    batch = pa.RecordBatch.from_pydict({"value": pa.array([b"x" * size for size in sizes], pa.binary())})
    assert [[len(value) for value in part["value"].to_pylist()] for part in split_by_size(batch, 110)] == expected


SCHEMA = read_schema(with_headers=False)


@pytest.fixture
def offset_reader(monkeypatch: pytest.MonkeyPatch) -> FakeOffsetReader:
    """The offsets that every StreamReader of the test sees instead of a broker's."""
    table = FakeOffsetReader({("t", 0): (0, 10), ("t", 1): (0, 30)})

    class Cache:
        def get(self, keywords: Any) -> FakeOffsetReader:
            return table

    monkeypatch.setattr(reader, "consumers", Cache())
    return table


def new_reader(**own: str) -> StreamReader:
    return StreamReader(options(own, is_stream=True), SCHEMA)


@pytest.mark.parametrize(
    ("own", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxOffsetsPerTrigger": "5"}, ReadMaxRows(5)),
        ({"minOffsetsPerTrigger": "5"}, ReadMinRows(5)),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "9"}, ReadMaxRows(9)),
        ({"maxBytesPerTrigger": "7", "minOffsetsPerTrigger": "5"}, ReadMaxBytes(7)),
    ],
)
def test_default_limit(own: dict[str, str], limit: object) -> None:
    assert new_reader(**own).getDefaultReadLimit() == limit


def test_from_the_first_to_the_last_offset(offset_reader: FakeOffsetReader) -> None:
    stream_reader = new_reader(startingOffsets="earliest", maxOffsetsPerTrigger="20")
    start = stream_reader.initialOffset()
    assert start == {"t": {"0": 0, "1": 0}}
    end = stream_reader.latestOffset(start, ReadMaxRows(20))
    assert end == {"t": {"0": 5, "1": 15}}
    planned = [partition.value for partition in stream_reader.partitions(start, end)]
    assert planned == [OffsetRange("t", 0, 0, 5), OffsetRange("t", 1, 0, 15)]
    assert stream_reader.latestOffset(end, ReadAllAvailable()) == {"t": {"0": 10, "1": 30}}
    assert new_reader().reportLatestOffset() == {"t": {"0": 10, "1": 30}}


def test_a_trigger_asks_the_brokers_once_where_the_partitions_end(offset_reader: FakeOffsetReader) -> None:
    stream_reader = new_reader()
    start = {"t": {"0": 0, "1": 0}}
    for end in (30, 31):
        offset_reader.extents["t", 1] = (0, end)
        offset_reader.requests.clear()
        stream_reader.latestOffset(start, ReadMaxRows(5))
        assert stream_reader.reportLatestOffset() == {"t": {"0": 10, "1": end}}
        assert offset_reader.requests == ["ends"]


def test_by_default_a_stream_starts_at_the_end(offset_reader: FakeOffsetReader) -> None:
    assert new_reader().initialOffset() == {"t": {"0": 10, "1": 30}}


def test_a_new_partition_shares_the_limit(offset_reader: FakeOffsetReader) -> None:
    end = new_reader().latestOffset({"t": {"0": 10}}, ReadMaxRows(6))
    assert end == {"t": {"0": 10, "1": 6}}


def test_available_now_reads_no_further_than_its_start(offset_reader: FakeOffsetReader) -> None:
    stream_reader = new_reader(startingOffsets="earliest", minOffsetsPerTrigger="1000")
    stream_reader.prepareForTriggerAvailableNow()
    offset_reader.extents = {("t", 0): (0, 11), ("t", 1): (0, 31), ("t", 2): (0, 5)}
    end = stream_reader.latestOffset({"t": {"0": 0, "1": 0}}, ReadMinRows(1000))
    assert end == {"t": {"0": 10, "1": 30}}
    assert stream_reader.latestOffset(end, ReadMinRows(1000)) == end


def test_a_stream_that_starts_beyond_the_end_is_an_error(offset_reader: FakeOffsetReader) -> None:
    own = {"startingOffsets": '{"t":{"0":500,"1":-1}}'}
    with pytest.raises(KwireError, match="where the read starts, does not exist: the log ends at 10"):
        new_reader(**own).initialOffset()
    assert new_reader(**own, failOnDataLoss="false").initialOffset() == {"t": {"0": 500, "1": 30}}


@pytest.mark.parametrize("own", [{"subscribe": "gone,t"}, {"assign": '{"gone":[0],"t":[0,1]}'}])
def test_a_deleted_topic_ends_a_stream_only_under_fail_on_data_loss(
    offset_reader: FakeOffsetReader, own: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(TopicError):
        new_reader(**own).prepareForTriggerAvailableNow()
    stream_reader = new_reader(**own, failOnDataLoss="false")
    with pytest.raises(TopicError):
        stream_reader.initialOffset()  # a topic that never was is a wrong option
    stream_reader.prepareForTriggerAvailableNow()
    start = {"gone": {"0": 3}, "t": {"0": 4, "1": 30}}
    end = stream_reader.latestOffset(start, ReadAllAvailable())
    assert end == {"t": {"0": 10, "1": 30}}
    assert [one.value for one in stream_reader.partitions(start, end)] == [OffsetRange("t", 0, 4, 10)]
    assert "the partition no longer exists; offsets from 3 on cannot be read [topic gone, partition 0]" in caplog.text


def test_a_micro_batch_waits_for_the_minimum_or_the_delay() -> None:
    clock = VirtualClock()
    planner = MicroBatchPlanner(options(is_stream=True, minOffsetsPerTrigger="5", maxTriggerDelay="60s"), clock)

    def next_end(offset: int) -> int:
        return planner.next_end({("t", 0): 0}, {("t", 0): offset}, rows_max=None, rows_min=5)["t", 0]

    assert next_end(4) == 4  # the first does not wait, as in Spark's connector
    assert next_end(4) == 0
    assert next_end(5) == 5
    clock.advance(59)
    assert next_end(4) == 0
    clock.advance(1)
    assert next_end(4) == 4
    assert next_end(4) == 0  # the delay starts again


def test_everything_at_once_ignores_the_minimum(offset_reader: FakeOffsetReader) -> None:
    assert new_reader(minOffsetsPerTrigger="1000").latestOffset({"t": {"0": 9, "1": 30}}, ReadAllAvailable()) == {
        "t": {"0": 10, "1": 30}
    }


def test_a_reader_can_be_pickled(offset_reader: FakeOffsetReader) -> None:
    stream_reader = new_reader()
    stream_reader.latestOffset({"t": {"0": 0, "1": 0}}, ReadAllAvailable())
    again = pickle.loads(pickle.dumps(stream_reader))
    assert again.initialOffset() == stream_reader.initialOffset()
