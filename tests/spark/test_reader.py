"""A range is read to its end, gaps and all, and not beyond."""

from __future__ import annotations

import pytest
from pyspark.sql.datasource import InputPartition

from kwire.errors import ErrorCode, KwireError, NodeError, RequestTimeoutError, broker_error
from kwire.net import VirtualClock
from kwire.spark.columns import read_schema
from kwire.spark.offsets import OffsetRange
from kwire.spark.reader import portions, read_portion, read_range
from tests.spark.fakes import FakeConsumer, options

GONE = broker_error(ErrorCode.OFFSET_OUT_OF_RANGE)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ([[2, 3], [4, 5]], [[2, 3], [4, 5]]),
        ([[2, 3, 4, 5, 6, 7]], [[2, 3, 4, 5]]),  # fetches know no end
        ([[], [2], [], [3, 5]], [[2], [3, 5]]),
        ([[3], [9, 10]], [[3]]),  # compacted away: 2, and 4 to 8
        ([[2, 3], 6], [[2, 3]]),  # ends in a transaction marker
        ([6], []),
    ],
)
def test_read_range(script: list[list[int] | int | KwireError], expected: list[list[int]]) -> None:
    consumer = FakeConsumer(script)
    found = list(read_range(consumer, OffsetRange("t", 0, 2, 6), options(), VirtualClock()))
    assert [[record.offset for record in records] for records in found] == expected
    assert consumer.assigned == [[("t", 0, 2)]]


def test_silence_is_an_error_in_bounded_time() -> None:
    clock = VirtualClock()
    consumer = FakeConsumer([[2], [], 4])
    consumer.on_poll = lambda: clock.advance(0.1)
    reads = read_range(consumer, OffsetRange("t", 0, 2, 6), options({"kafkaConsumer.pollTimeoutMs": "2000"}), clock)
    assert [record.offset for record in next(reads)] == [2]
    with pytest.raises(
        RequestTimeoutError, match=r"from offset 4 on within 2000 ms; the read goes to 6 .*topic t, partition 0"
    ):
        next(reads)
    assert clock.now() == pytest.approx(2.3, abs=0.11)


def test_a_consumers_error_names_the_partition() -> None:
    consumer = FakeConsumer([NodeError("gone", broker="1 at b:9092")])
    with pytest.raises(NodeError, match="broker 1 at b:9092, topic t, partition 0"):
        list(read_range(consumer, OffsetRange("t", 0, 0, 1), options(), VirtualClock()))


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
        list(read_range(FakeConsumer([GONE], first=first), wanted, options(), VirtualClock()))
    lenient = options(failOnDataLoss="false")
    consumer = FakeConsumer([GONE, expected], first=first)
    found = list(read_range(consumer, wanted, lenient, VirtualClock()))
    assert [record.offset for records in found for record in records] == expected


def test_portions_are_sparks_partitions() -> None:
    cut = portions([OffsetRange("t", 0, 0, 10)], options(minPartitions="2"))
    assert [partition.value for partition in cut] == [OffsetRange("t", 0, 0, 5), OffsetRange("t", 0, 5, 10)]


@pytest.mark.parametrize("partition", [None, InputPartition(None)])
def test_sparks_ways_to_say_that_there_is_nothing(partition: InputPartition | None) -> None:
    assert list(read_portion(partition, options(), read_schema(with_headers=False))) == []
