"""Subscriptions and bounds into offsets, on a log that is a table."""

from __future__ import annotations

import logging

import pytest

from kwire.errors import ConfigurationError, KwireError, TopicError
from kwire.spark.offsets import OffsetRange as R
from kwire.spark.planning import partitions_of, plan_batch, plan_micro_batch, resolve
from tests.spark.fakes import FakeLog, options

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
    log = FakeLog(TWO | {("u", 0): (0, 0)})
    topics = (lambda: ["u", "t", "tt"]) if "subscribePattern" in own else no_topics
    assert partitions_of(options(own).subscription, log, topics) == expected


@pytest.mark.parametrize("own", [{"subscribe": "nope"}, {"assign": '{"t":[2]}'}, {"assign": '{"nope":[0]}'}])
def test_what_does_not_exist_is_an_error(own: dict[str, str]) -> None:
    with pytest.raises(TopicError):
        partitions_of(options(own).subscription, FakeLog(dict(TWO)), no_topics)


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
    log = FakeLog(dict(TWO), {("t", 0, 100): 4, ("t", 1, 100): 6, ("t", 1, 200): 7})
    found = resolve(read.starting, list(TWO), log, is_strict_on_time=read.is_strict_on_time)
    assert found == dict(zip(TWO, expected, strict=True))


def test_specific_offsets_ask_no_broker() -> None:
    log = FakeLog(dict(TWO))
    resolve(options(startingOffsets='{"t":{"0":3,"1":7}}').starting, list(TWO), log)
    assert log.asked == []


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"startingOffsets": '{"t":{"0":3}}'}, "startingOffsets lacks t-1"),
        ({"startingOffsets": '{"t":{"0":3,"1":7,"2":0}}'}, "startingOffsets names t-2, which is not read"),
        ({"startingOffsetsByTimestamp": '{"t":{"0":3}}'}, "startingOffsetsByTimestamp lacks t-1"),
        ({"startingTimestamp": "999"}, "startingTimestamp gives t-0 the time 999, after its last record"),
    ],
)
def test_a_bound_that_does_not_fit_is_named(own: dict[str, str], message: str) -> None:
    read = options(own)
    with pytest.raises(ConfigurationError, match=message):
        resolve(read.starting, list(TWO), FakeLog(dict(TWO)), is_strict_on_time=read.is_strict_on_time)


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({}, [R("t", 0, 0, 10), R("t", 1, 5, 8)]),
        ({"endingOffsets": '{"t":{"0":2,"1":-1}}'}, [R("t", 0, 0, 2), R("t", 1, 5, 8)]),
        ({"startingOffsets": '{"t":{"0":10,"1":6}}'}, [R("t", 1, 6, 8)]),
        ({"startingOffsets": '{"t":{"0":9,"1":6}}', "endingOffsets": '{"t":{"0":2,"1":7}}'}, [R("t", 1, 6, 7)]),
        ({"endingTimestamp": "5"}, [R("t", 0, 0, 10), R("t", 1, 5, 8)]),
    ],
)
def test_plan_batch(own: dict[str, str], expected: list[R]) -> None:
    assert plan_batch(options(own), FakeLog(dict(TWO)), no_topics) == expected


@pytest.mark.parametrize(
    ("own", "loss", "kept"),
    [
        ({"startingOffsets": '{"t":{"0":0,"1":2}}'}, "offset 2, where the read starts, is gone", R("t", 1, 5, 8)),
        ({"endingOffsets": '{"t":{"0":10,"1":20}}'}, "the log ends at 8", R("t", 1, 5, 8)),
    ],
)
def test_lost_data_fails_a_batch_or_is_skipped(
    own: dict[str, str], loss: str, kept: R, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(KwireError, match=f"{loss}.*topic t, partition 1.*failOnDataLoss"):
        plan_batch(options(own), FakeLog(dict(TWO)), no_topics)
    with caplog.at_level(logging.WARNING, "kwire.spark"):
        found = plan_batch(options(own, failOnDataLoss="false"), FakeLog(dict(TWO)), no_topics)
    assert found == [R("t", 0, 0, 10), kept]
    assert loss in caplog.text


def test_a_pattern_that_matches_nothing_reads_nothing() -> None:
    assert plan_batch(options(subscribePattern="x"), FakeLog(dict(TWO)), list) == []


def test_a_micro_batch_takes_a_new_partition_from_its_beginning() -> None:
    log = FakeLog({("t", 0): (0, 10), ("t", 1): (0, 4)})
    found = plan_micro_batch({("t", 0): 8}, {("t", 0): 10, ("t", 1): 4}, options(is_stream=True), log)
    assert found == [R("t", 0, 8, 10), R("t", 1, 0, 4)]


def test_a_micro_batch_without_new_partitions_asks_no_broker() -> None:
    log = FakeLog({})
    assert plan_micro_batch({("t", 0): 8}, {("t", 0): 8}, options(is_stream=True), log) == []
    assert log.asked == []


@pytest.mark.parametrize(
    ("start", "end", "loss", "kept"),
    [
        ({("t", 0): 3}, {}, "the partition is gone; offsets from 3", []),
        ({("t", 0): 9}, {("t", 0): 2}, "the log ended at 9 before, and ends at 2 now", []),
        ({}, {("t", 1): 8}, "its log begins at 5 already", [R("t", 1, 5, 8)]),
    ],
)
def test_lost_data_fails_a_stream_or_is_skipped(
    start: dict[tuple[str, int], int], end: dict[tuple[str, int], int], loss: str, kept: list[R]
) -> None:
    log = FakeLog(dict(TWO))
    with pytest.raises(KwireError, match=loss):
        plan_micro_batch(start, end, options(is_stream=True), log)
    assert plan_micro_batch(start, end, options(is_stream=True, failOnDataLoss="false"), log) == kept
