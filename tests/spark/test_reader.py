"""A range is read to its end, gaps and all, and not beyond."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition

from kwire.broker import Cluster
from kwire.errors import ConfigurationError, ErrorCode, KwireError, NodeError, RequestTimeoutError, broker_error
from kwire.net import Clock, VirtualClock
from kwire.protocol import ApiKey
from kwire.spark import reader
from kwire.spark.clients import consumers
from kwire.spark.columns import arrow_schema, read_schema
from kwire.spark.offsets import OffsetRange
from kwire.spark.options import ReadOptions
from kwire.spark.reader import in_pieces, portions, read_portion, read_range
from tests.consumer.embedded import fill
from tests.spark.fakes import FakeConsumer, options, piece

GONE = broker_error(ErrorCode.OFFSET_OUT_OF_RANGE)


def read(
    consumer: FakeConsumer, wanted: OffsetRange, own: ReadOptions | None = None, clock: Clock | None = None
) -> Iterator[list[int]]:
    """The offsets of each batch."""
    for batch in read_range(consumer, wanted, own or options(), clock or VirtualClock(), False):
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


def test_silence_is_an_error_in_bounded_time() -> None:
    clock = VirtualClock()
    consumer = FakeConsumer([[2], [], 4])
    consumer.on_poll = lambda: clock.advance(0.1)
    reads = read(consumer, OffsetRange("t", 0, 2, 6), options({"kafkaConsumer.pollTimeoutMs": "2000"}), clock)
    assert next(reads) == [2]
    with pytest.raises(
        RequestTimeoutError, match=r"from offset 4 on within 2000 ms; the read goes to 6 .*topic t, partition 0"
    ):
        next(reads)
    assert clock.now() == pytest.approx(2.3, abs=0.11)


def test_a_consumers_error_names_the_partition() -> None:
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


def test_portions_are_sparks_partitions() -> None:
    cut = portions([OffsetRange("t", 0, 0, 10)], options(minPartitions="2"))
    assert [partition.value for partition in cut] == [OffsetRange("t", 0, 0, 5), OffsetRange("t", 0, 5, 10)]


@pytest.mark.parametrize("partition", [None, InputPartition(None)])
def test_sparks_ways_to_say_that_there_is_nothing(partition: InputPartition | None) -> None:
    assert list(read_portion(partition, options(), read_schema(with_headers=False))) == []


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> FakeConsumer:
    """The consumer that a task finds."""
    found = FakeConsumer([])

    class Found:
        def get(self, keywords: object) -> FakeConsumer:
            return found

    monkeypatch.setattr(reader, "consumers", Found())
    return found


@pytest.mark.parametrize("with_headers", [False, True])
def test_a_task_answers_its_range_in_sparks_columns(consumer: FakeConsumer, with_headers: bool) -> None:
    consumer.script = [[piece(2, (5, b"k", b"v", (("h", b"1"),)), (6, None, None, ()))], [9]]
    schema = read_schema(with_headers=with_headers)
    found = list(read_portion(InputPartition(OffsetRange("t", 0, 2, 6)), options(), schema))
    assert [batch.schema for batch in found] == [arrow_schema(schema)]
    rows = found[0].to_pylist()
    assert [(row["offset"], row["key"], row["value"]) for row in rows] == [(2, b"k", b"v"), (3, None, None)]
    assert [row.get("headers") for row in rows] == [[{"key": "h", "value": b"1"}] if with_headers else None, None]
    assert consumer.assigned == [[("t", 0, 2)]]


def test_a_task_that_spark_stops_leaves_no_records_behind(consumer: FakeConsumer) -> None:
    consumer.script = [[0], [1]]
    reads = read_portion(InputPartition(OffsetRange("t", 0, 0, 2)), options(), read_schema(with_headers=False))
    next(reads)
    reads.close()  # type: ignore[attr-defined]
    assert consumer.assigned[-1] == []


def test_the_tasks_of_a_worker_ask_for_no_more_than_they_read() -> None:
    """Metadata once, and a fetch a task where one brings it all: none looks beyond the range."""
    with Cluster(brokers=1, topics={"t": 2}) as cluster:
        for partition in (0, 1):
            fill(cluster, "t", partition, range(100))
        own = options({"kafka.bootstrap.servers": cluster.bootstrap})
        made = cluster.requests()
        try:
            for wanted in [OffsetRange("t", index, start, start + 50) for index in (0, 1) for start in (0, 50)]:
                found = list(read_portion(InputPartition(wanted), own, read_schema(with_headers=False)))
                assert sum(batch.num_rows for batch in found) == 50
        finally:
            consumers.close()
        made = cluster.requests() - made
    assert made[ApiKey.FETCH] == 4
    assert made[ApiKey.METADATA] <= 2  # who is there; then, who leads the topic


def test_a_column_that_spark_cannot_hold_names_the_partition(consumer: FakeConsumer) -> None:
    consumer.script = [[piece(0, (2**62, None, b"", ()))]]
    with pytest.raises(ConfigurationError, match=r"cannot hold: .*topic t, partition 0"):
        list(read_portion(InputPartition(OffsetRange("t", 0, 0, 1)), options(), read_schema(with_headers=False)))


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
def test_a_batch_is_cut_until_it_is_small_enough(sizes: list[int], expected: list[list[int]]) -> None:
    batch = pa.RecordBatch.from_pydict({"value": pa.array([b"x" * size for size in sizes], pa.binary())})
    assert [[len(value) for value in part["value"].to_pylist()] for part in in_pieces(batch, 110)] == expected
