"""Options that contradict themselves are refused before anything is connected."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from kwire.consumer import Ago, AtTimestamp, Consumer, ConsumerOptions
from kwire.errors import ClosedError, ConfigurationError


@pytest.mark.parametrize(
    "wrong",
    [
        {"isolation": "serializable"},
        {"on_out_of_range": "none"},
        {"on_out_of_range": 5},
        {"on_no_offset": "nearest"},
        {"on_no_offset": None},
        {"max_wait_ms": -1},
        {"max_wait_ms": 1.5},
        {"min_bytes": True},
        {"max_bytes": 0},
        {"max_bytes": 2**31},
        {"rack": None},
        {"unknown_topic_timeout_ms": -1},
    ],
    ids=str,
)
def test_wrong_consumer_options_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        ConsumerOptions(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"isolaton": "read_committed"},
        {"request_timeout_ms": 0},
    ],
    ids=str,
)
def test_wrong_arguments_of_the_constructor_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Consumer("localhost:9092", **wrong)


@pytest.mark.parametrize("policy", ["earliest", "latest", "error", AtTimestamp(5), Ago(hours=1)], ids=str)
def test_the_policies_take_words_times_and_durations(policy: Any) -> None:
    options = ConsumerOptions(on_no_offset=policy, on_out_of_range=policy)
    assert (options.on_no_offset, options.on_out_of_range) == (policy, policy)
    assert ConsumerOptions(on_out_of_range="nearest").on_no_offset == "earliest"


def test_options_can_be_pickled() -> None:
    options = ConsumerOptions(isolation="read_committed", rack="r")
    assert pickle.loads(pickle.dumps(options)) == options
    assert options.is_committed_only


@pytest.mark.parametrize(
    "wrong",
    [
        [("t", 0, -1)],
        [("t", 0, "newest")],
        [("t", -1, 0)],
        [("t", True, 0)],
        [("", 0, 0)],
        [(None, 0, 0)],
        [("t", 0, 0), ("t", 0, 1)],
    ],
    ids=str,
)
def test_wrong_assignments_are_refused(wrong: Any) -> None:
    with Consumer("localhost:9092") as consumer, pytest.raises(ConfigurationError):
        consumer.assign(wrong)


def test_reading_before_an_assignment_is_refused() -> None:
    with Consumer("localhost:9092") as consumer:
        with pytest.raises(ConfigurationError):
            consumer.poll(timeout=0)
        with pytest.raises(ConfigurationError):
            next(iter(consumer))
        with pytest.raises(ConfigurationError):
            consumer.seek("t", 0, 0)
        with pytest.raises(ConfigurationError):
            consumer.position("t", 0)
        with pytest.raises(ConfigurationError):
            consumer.poll(0)
        with pytest.raises(ConfigurationError):
            consumer.offsets_at([("t", 0, -5)])


def test_calls_after_close_raise_closed_error() -> None:
    consumer = Consumer("localhost:9092")
    consumer.close()
    consumer.close()
    calls: list[Callable[[], object]] = [
        lambda: consumer.poll(),
        lambda: consumer.assign([("t", 0, AtTimestamp(1))]),
        lambda: consumer.end_offsets([("t", 0)]),
        lambda: consumer.partitions("t"),
    ]
    for call in calls:
        with pytest.raises(ClosedError):
            call()
    assert list(consumer) == []
