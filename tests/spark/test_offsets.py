"""Offsets: checkpoints, ranges, splits and limits; what a batch and a micro-batch read."""

from __future__ import annotations

import json
import logging
from random import Random

import pytest

from kwire.errors import ConfigurationError, KwireError, TopicError
from kwire.spark.offsets import (
    OffsetRange,
    from_checkpoint,
    lag,
    partitions_of,
    plan_batch,
    plan_micro_batch,
    ranges,
    rate_limit,
    resolve,
    split,
    to_checkpoint,
)
from tests.spark.fakes import FakeOffsetReader, options


def test_equal_offsets_give_the_same_checkpoint_text() -> None:
    offsets = {("b", 10): 3, ("a", 0): 1, ("b", 2): 2}
    text = '{"a": {"0": 1}, "b": {"2": 2, "10": 3}}'
    assert json.dumps(to_checkpoint(offsets)) == text
    assert json.dumps(to_checkpoint(dict(reversed(offsets.items())))) == text
    assert from_checkpoint(json.loads(text)) == offsets
    assert to_checkpoint({}) == {}


@pytest.mark.parametrize("shape", [{"a": 1}, {"a": {"x": 1}}, {"a": {"0": None}}, [1]])
def test_a_checkpoint_of_another_source_raises(shape: object) -> None:
    with pytest.raises(ConfigurationError, match="checkpoint"):
        from_checkpoint(shape)  # type: ignore[arg-type]


def test_ranges_omits_empty_ranges_and_partitions_without_start_or_end() -> None:
    start = {("t", 0): 0, ("t", 1): 5, ("t", 2): 9, ("t", 3): 1}
    end = {("t", 0): 4, ("t", 1): 5, ("t", 2): 3, ("t", 4): 1}
    assert ranges(start, end) == [OffsetRange("t", 0, 0, 4)]


@pytest.mark.parametrize(
    ("offset_ranges", "min_splits", "max_records", "sizes"),
    [
        ([OffsetRange("t", 0, 0, 10)], None, None, [10]),
        ([OffsetRange("t", 0, 0, 10), OffsetRange("t", 1, 5, 5)], None, None, [10]),
        ([], 4, None, []),
        ([OffsetRange("t", 0, 0, 10)], None, 3, [2, 3, 2, 3]),
        ([OffsetRange("t", 0, 0, 10)], None, 10, [10]),
        ([OffsetRange("t", 0, 0, 10)], 3, None, [3, 3, 4]),
        ([OffsetRange("t", 0, 0, 2)], 5, None, [1, 1]),
        ([OffsetRange("t", 0, 0, 100), OffsetRange("t", 1, 0, 10)], 3, None, [33, 33, 34, 10]),
        ([OffsetRange("t", 0, 0, 20_000), OffsetRange("t", 1, 0, 10)], 3, None, [6_666, 6_667, 6_667, 10]),
        ([OffsetRange("t", 0, 0, 13), OffsetRange("t", 1, 0, 13), OffsetRange("t", 2, 0, 13)], 4, None, [6, 7, 13, 13]),
        ([OffsetRange("t", 0, 0, 100), OffsetRange("t", 1, 0, 10)], 2, None, [100, 10]),
        ([OffsetRange("t", 0, 0, 100), OffsetRange("t", 1, 0, 10)], 4, 60, [25, 25, 25, 25, 10]),
    ],
)
def test_split(
    offset_ranges: list[OffsetRange], min_splits: int | None, max_records: int | None, sizes: list[int]
) -> None:
    assert [part.size for part in split(offset_ranges, min_splits=min_splits, max_records=max_records)] == sizes


def test_split_loses_and_repeats_no_offset() -> None:
    random = Random(3)
    for _ in range(300):
        offset_ranges = [
            OffsetRange("t", index, start := random.randrange(100), start + random.randrange(50)) for index in range(3)
        ]
        min_splits, max_records = random.choice([None, 1, 7, 40]), random.choice([None, 1, 9])
        splits = split(offset_ranges, min_splits=min_splits, max_records=max_records)
        for offset_range in offset_ranges:
            covered = [o for p in splits if p.partition == offset_range.partition for o in range(p.start, p.end)]
            assert covered == list(range(offset_range.start, offset_range.end))
        assert all(0 < part.size <= (max_records or 100) for part in splits)
        assert len(splits) >= min(min_splits or 0, sum(offset_range.size for offset_range in offset_ranges))


@pytest.mark.parametrize(
    ("start", "end", "rows_max", "expected"),
    [
        ([0, 0], [5, 5], 10, [5, 5]),
        ([0, 0], [5, 5], 4, [2, 2]),
        ([0, 0], [90, 10], 10, [9, 1]),
        ([0, 0], [999, 1], 10, [10, 0]),
        ([7, 3], [7, 13], 5, [7, 8]),
        ([9, 0], [4, 100], 10, [4, 10]),  # the limit does not hide a truncated log
        ([0, 0, 0], [1, 1, 1], 2, [1, 1, 0]),
    ],
)
def test_rate_limit(start: list[int], end: list[int], rows_max: int, expected: list[int]) -> None:
    def by_partition(offsets: list[int]) -> dict[tuple[str, int], int]:
        return {("t", index): offset for index, offset in enumerate(offsets)}

    assert rate_limit(by_partition(start), by_partition(end), rows_max) == by_partition(expected)


def test_rate_limit_is_exact_and_reaches_the_end() -> None:
    random = Random(4)
    for _ in range(100):
        end = {("t", index): random.choice([0, 1, 3, 1000]) for index in range(4)}
        position = dict.fromkeys(end, 0)
        rows_max = random.choice([1, 7, 100])
        while left := lag(position, end):
            after = rate_limit(position, end, rows_max)
            assert lag(position, after) == min(left, rows_max)
            assert all(position[key] <= after[key] <= end[key] for key in end)
            position = after
        assert position == end


TWO = {("t", 0): (0, 10), ("t", 1): (5, 8)}


def no_topics() -> list[str]:
    raise AssertionError("only a pattern needs the names of all topics")


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({"subscribe": "t"}, [("t", 0), ("t", 1)]),
        ({"subscribe": "u,t"}, [("t", 0), ("t", 1), ("u", 0)]),
        ({"assign": '{"t":[1]}'}, [("t", 1)]),
        ({"subscribePattern": "[tu]"}, [("t", 0), ("t", 1), ("u", 0)]),
        ({"subscribePattern": "t|uu"}, [("t", 0), ("t", 1)]),
        ({"subscribePattern": "x.*"}, []),
    ],
)
def test_partitions_of(own: dict[str, str], expected: list[tuple[str, int]]) -> None:
    offset_reader = FakeOffsetReader(TWO | {("u", 0): (0, 0)})
    topics = (lambda: ["u", "t", "tt"]) if "subscribePattern" in own else no_topics
    assert partitions_of(options(own).subscription, offset_reader, topics) == expected


@pytest.mark.parametrize("own", [{"subscribe": "nope"}, {"assign": '{"t":[2]}'}, {"assign": '{"nope":[0]}'}])
def test_a_missing_topic_or_partition_raises(own: dict[str, str]) -> None:
    with pytest.raises(TopicError):
        partitions_of(options(own).subscription, FakeOffsetReader(dict(TWO)), no_topics)


@pytest.mark.parametrize(
    ("own", "is_stream", "expected"),
    [
        ({"startingOffsets": "earliest"}, True, [0, 5]),
        ({"startingOffsets": "latest"}, True, [10, 8]),
        ({"startingOffsets": '{"t":{"0":-2,"1":-1}}'}, True, [0, 8]),
        ({"startingOffsets": '{"t":{"0":3,"1":7}}'}, False, [3, 7]),
        ({"startingTimestamp": "100"}, False, [4, 6]),
        ({"startingOffsetsByTimestamp": '{"t":{"0":100,"1":200}}'}, False, [4, 7]),
        ({"startingTimestamp": "999", "startingOffsetsByTimestampStrategy": "latest"}, False, [10, 8]),
    ],
)
def test_resolve(own: dict[str, str], is_stream: bool, expected: list[int]) -> None:
    read = options(own, is_stream=is_stream)
    offset_reader = FakeOffsetReader(dict(TWO), {("t", 0, 100): 4, ("t", 1, 100): 6, ("t", 1, 200): 7})
    found = resolve(read.starting, list(TWO), offset_reader, is_strict_on_time=read.is_strict_on_time)
    assert found == dict(zip(TWO, expected, strict=True))


def test_specific_offsets_need_no_request() -> None:
    offset_reader = FakeOffsetReader(dict(TWO))
    resolve(options(startingOffsets='{"t":{"0":3,"1":7}}').starting, list(TWO), offset_reader)
    assert offset_reader.requests == []


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"startingOffsets": '{"t":{"0":3}}'}, "startingOffsets lacks t-1"),
        ({"startingOffsets": '{"t":{"0":3,"1":7,"2":0}}'}, "startingOffsets names t-2, which is not read"),
        ({"startingOffsetsByTimestamp": '{"t":{"0":3}}'}, "startingOffsetsByTimestamp lacks t-1"),
        ({"startingTimestamp": "999"}, "startingTimestamp gives t-0 the time 999, after its last record"),
    ],
)
def test_a_bound_that_does_not_match_the_partitions_raises(own: dict[str, str], message: str) -> None:
    read = options(own)
    with pytest.raises(ConfigurationError, match=message):
        resolve(read.starting, list(TWO), FakeOffsetReader(dict(TWO)), is_strict_on_time=read.is_strict_on_time)


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({}, [OffsetRange("t", 0, 0, 10), OffsetRange("t", 1, 5, 8)]),
        ({"endingOffsets": '{"t":{"0":2,"1":-1}}'}, [OffsetRange("t", 0, 0, 2), OffsetRange("t", 1, 5, 8)]),
        ({"startingOffsets": '{"t":{"0":10,"1":6}}'}, [OffsetRange("t", 1, 6, 8)]),
        ({"endingTimestamp": "5"}, [OffsetRange("t", 0, 0, 10), OffsetRange("t", 1, 5, 8)]),
    ],
)
def test_plan_batch(own: dict[str, str], expected: list[OffsetRange]) -> None:
    assert plan_batch(options(own), FakeOffsetReader(dict(TWO)), no_topics) == expected


@pytest.mark.parametrize(
    ("own", "loss", "kept"),
    [
        (
            {"startingOffsets": '{"t":{"0":0,"1":2}}'},
            "offset 2, where the read starts, is deleted",
            OffsetRange("t", 1, 5, 8),
        ),
        ({"endingOffsets": '{"t":{"0":10,"1":20}}'}, "the log ends at 8", OffsetRange("t", 1, 5, 8)),
        (
            {"startingOffsets": '{"t":{"0":0,"1":500}}'},
            "offset 500, where the read starts, does not exist: the log ends at 8",
            None,
        ),
    ],
)
def test_lost_data_fails_a_batch_read_or_is_skipped(
    own: dict[str, str], loss: str, kept: OffsetRange | None, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(KwireError, match=f"{loss}.*topic t, partition 1.*failOnDataLoss"):
        plan_batch(options(own), FakeOffsetReader(dict(TWO)), no_topics)
    with caplog.at_level(logging.WARNING, "kwire.spark"):
        found = plan_batch(options(own, failOnDataLoss="false"), FakeOffsetReader(dict(TWO)), no_topics)
    assert found == [OffsetRange("t", 0, 0, 10), *([kept] if kept else [])]
    assert loss in caplog.text


@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_a_start_after_the_end_is_an_error(fail_on_data_loss: str) -> None:
    own = {"startingOffsets": '{"t":{"0":9,"1":6}}', "endingOffsets": '{"t":{"0":2,"1":7}}'}
    with pytest.raises(
        ConfigurationError, match=r"startingOffsets starts t-0 at offset 9, .* endingOffsets ends it at 2"
    ):
        plan_batch(options(own, failOnDataLoss=fail_on_data_loss), FakeOffsetReader(dict(TWO)), no_topics)


def test_an_end_that_retention_has_passed_is_lost_data() -> None:
    own = {"endingOffsets": '{"t":{"0":2,"1":3}}'}  # the log of t-1 begins at 5
    assert plan_batch(options(own), FakeOffsetReader(dict(TWO)), no_topics) == [OffsetRange("t", 0, 0, 2)]


def test_a_pattern_that_matches_nothing_reads_nothing() -> None:
    assert plan_batch(options(subscribePattern="x"), FakeOffsetReader(dict(TWO)), list) == []


def test_a_micro_batch_reads_a_new_partition_from_its_beginning() -> None:
    offset_reader = FakeOffsetReader({("t", 0): (0, 10), ("t", 1): (0, 4)})
    found = plan_micro_batch({("t", 0): 8}, {("t", 0): 10, ("t", 1): 4}, options(is_stream=True), offset_reader)
    assert found == [OffsetRange("t", 0, 8, 10), OffsetRange("t", 1, 0, 4)]


def test_a_micro_batch_without_new_partitions_needs_no_request() -> None:
    offset_reader = FakeOffsetReader({})
    assert plan_micro_batch({("t", 0): 8}, {("t", 0): 8}, options(is_stream=True), offset_reader) == []
    assert offset_reader.requests == []


@pytest.mark.parametrize(
    ("start", "end", "loss", "kept"),
    [
        ({("t", 0): 3}, {}, "the partition no longer exists; offsets from 3", []),
        ({("t", 0): 9}, {("t", 0): 2}, "the log ended at 9 earlier and now ends at 2", []),
        ({}, {("t", 1): 8}, "its log already begins at 5", [OffsetRange("t", 1, 5, 8)]),
    ],
)
def test_lost_data_fails_a_streaming_read_or_is_skipped(
    start: dict[tuple[str, int], int], end: dict[tuple[str, int], int], loss: str, kept: list[OffsetRange]
) -> None:
    offset_reader = FakeOffsetReader(dict(TWO))
    with pytest.raises(KwireError, match=loss):
        plan_micro_batch(start, end, options(is_stream=True), offset_reader)
    assert plan_micro_batch(start, end, options(is_stream=True, failOnDataLoss="false"), offset_reader) == kept
