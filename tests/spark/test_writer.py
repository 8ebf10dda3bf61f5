"""Writes: every row is acknowledged, or an error names the row and the broker."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import Row

from kwire.errors import (
    BufferFullError,
    ConfigurationError,
    DeliveryError,
    DisconnectedError,
    ErrorCode,
    KwireError,
    broker_error,
)
from kwire.spark import writer
from kwire.spark.columns import ARROW_TYPES
from kwire.spark.sink import SinkBatch
from kwire.spark.writer import Written, deliver, row_batches
from tests.spark.fakes import FakeProducer

TASK = "DataFrame partition 3"


def batch(*rows: dict[str, Any], topics: str | pa.Array = "t") -> SinkBatch:
    schema = pa.schema([(name, ARROW_TYPES[name]) for name in ("value", "key", "headers", "partition", "timestamp")])
    return SinkBatch(topics, pa.RecordBatch.from_pylist(list(rows), schema=schema))


def row(number: int) -> dict[str, Any]:
    return {"value": b"v%d" % number, "key": b"k%d" % number}


def batches(*sizes: int) -> list[SinkBatch]:
    numbers = iter(range(sum(sizes)))
    return [batch(*(row(next(numbers)) for _ in range(size))) for size in sizes]


@pytest.mark.parametrize("sizes", [(), (0,), (1,), (3, 0, 2), (5, 5, 5)])
def test_every_row_is_sent_in_order_and_counted(sizes: tuple[int, ...]) -> None:
    producer = FakeProducer()
    assert deliver(producer, batches(*sizes), TASK) == sum(sizes)
    assert [sent[1] for sent in producer.sent] == [b"v%d" % number for number in range(sum(sizes))]
    assert producer.flushes == 1


def failure(broker: str = "1 at db:9092") -> DeliveryError:
    error = DeliveryError(
        "not acknowledged in time", possibly_persisted=True, topic="t", partition=6, remedy="look at it"
    )
    error.__cause__ = DisconnectedError("the broker went away", broker=broker)
    return error


@pytest.mark.parametrize(
    ("sizes", "failures", "expected"),
    [
        ((3, 3, 3), [1], "row 1 of DataFrame partition 3 (key b'k1', value of 2 bytes) was not written: "),
        ((3, 3, 3), [5], "row 5 of "),
        ((3, 3, 3), [8], "row 8 of "),
        (
            (3, 3),
            [3, 4, 5],
            "row 3 of DataFrame partition 3 (key b'k3', value of 2 bytes) was not written (other rows",
        ),
    ],
)
def test_a_failure_names_row_and_broker(sizes: tuple[int, ...], failures: list[int], expected: str) -> None:
    producer = FakeProducer(dict.fromkeys(failures, failure()))
    with pytest.raises(DeliveryError) as caught:
        deliver(producer, batches(*sizes), TASK)
    text = str(caught.value)
    assert text.startswith(expected)
    assert text.endswith("not acknowledged in time [broker 1 at db:9092, topic t, partition 6]: look at it")
    assert caught.value.possibly_persisted
    assert str(pickle.loads(pickle.dumps(caught.value))) == text


def test_a_failure_ends_the_task_before_the_input_does() -> None:
    produced = []

    def endless() -> Iterator[SinkBatch]:
        while True:
            produced.append(1)
            yield batch(row(len(produced)))

    with pytest.raises(DeliveryError):
        deliver(FakeProducer({1: failure()}), endless(), TASK)
    assert len(produced) == 2


def test_a_task_waits_only_when_too_many_bytes_are_unacknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = FakeProducer(is_slow=True)
    pending = []

    def six_batches() -> Iterator[SinkBatch]:
        for number in range(6):
            pending.append(sum(not response.done() for response in producer.responses))
            yield batch(row(number))

    monkeypatch.setattr(writer, "_UNACKNOWLEDGED_BYTES_MAX", 3 * batch(row(0)).records.nbytes)
    assert deliver(producer, six_batches(), TASK) == 6
    assert pending == [0, 1, 2, 3, 3, 3]
    assert all(response.done() for response in producer.responses)


@pytest.mark.parametrize(
    ("topics", "failed", "expected"),
    [
        ("aab", 2, "row 2 of "),
        ("aba", 1, "row 2 of "),  # sent: 0, 2 to a; 1 to b
        ("aba", 2, "row 1 of "),
        ("cabcab", 5, "row 5 of "),
        ("cabcab", 3, "row 4 of "),
    ],
)
def test_a_failure_names_the_row_among_several_topics(topics: str, failed: int, expected: str) -> None:
    rows = batch(*map(row, range(len(topics))), topics=pa.array(list(topics)))
    with pytest.raises(DeliveryError) as caught:
        deliver(FakeProducer({failed: failure()}), [rows], TASK)
    assert str(caught.value).startswith(expected)
    number = int(expected.split()[1])
    assert f"(key b'k{number}', " in str(caught.value)
    assert caught.value.where["topic"] == topics[number]


def test_of_several_topics_the_first_row_is_named() -> None:
    rows = batch(*map(row, range(4)), topics=pa.array(list("abba")))
    with pytest.raises(DeliveryError, match=r"row 1 of .* was not written \(other rows of this batch that failed: 1\)"):
        deliver(FakeProducer({1: failure(), 2: failure()}), [rows], TASK)  # sent: 0, 3 to a; 1, 2 to b


@pytest.mark.parametrize(
    ("first", "others", "message"),
    [
        (broker_error(ErrorCode.MESSAGE_TOO_LARGE, remedy="send less"), [], "row 1 of .* MESSAGE_TOO_LARGE .*: send l"),
        (broker_error(ErrorCode.MESSAGE_TOO_LARGE), [2], r"row 1 of .* that failed: 1\): MESSAGE_TOO_LARGE"),
    ],
)
def test_an_error_of_a_broker_names_the_row(first: KwireError, others: list[int], message: str) -> None:
    with pytest.raises(DeliveryError, match=message) as caught:
        deliver(FakeProducer({1: first, **dict.fromkeys(others, failure())}), batches(3), TASK)
    assert not caught.value.possibly_persisted
    assert caught.value.__cause__ is first


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (BufferFullError("no room", remedy="wait"), r"row 3 of .* \(key b'k3', value .*\) was not written: .*room"),
        (ValueError("no such topic"), "row 3 of .* was not written: no such topic"),
    ],
)
def test_an_error_of_send_arrow_names_the_first_row_that_was_not_sent(error: Exception, message: str) -> None:
    with pytest.raises(DeliveryError, match=message) as caught:
        deliver(FakeProducer(refusals={4: error}), batches(3, 2), TASK)
    assert not caught.value.possibly_persisted
    assert caught.value.__cause__ is error


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"topic": None}, "row 3 of .* has no topic: fill"),
        ({"headers": [{"key": None, "value": b""}]}, "row 3 of .* has a header without a key: give"),
        ({"partition": -1}, "row 3 of .* has the partition -1: give"),
        ({"key": None, "topic": None}, r"\(no key, value of 2 bytes\)"),
        ({"key": b"x" * 99, "topic": None}, rf"key b'{'x' * 40}'\.\.\. of 99 bytes, "),
    ],
)
def test_a_row_that_cannot_become_a_record_is_named(bad: dict[str, Any], message: str) -> None:
    producer = FakeProducer()
    topics = pa.array(["t", bad.pop("topic", "t")])
    with pytest.raises(ConfigurationError, match=message):
        deliver(producer, [*batches(2), batch(row(2), row(3) | bad, topics=topics)], TASK)
    assert len(producer.sent) == 2  # nothing of the batch with that row


def test_a_text_key_that_is_not_utf_8_is_shown() -> None:
    key = pa.array([b"\xff"]).view(pa.string())
    rows = SinkBatch("t", pa.RecordBatch.from_pydict({"value": pa.array([b"v"]), "key": key}))
    with pytest.raises(DeliveryError, match=r"row 0 of .* \(key b'\\xff', value of 1 byte\) was not written"):
        deliver(FakeProducer({0: failure()}), [rows], TASK)


def test_row_batches() -> None:
    rows = [Row(value=number) for number in range(5)]
    assert list(row_batches(iter(rows), 2)) == [rows[:2], rows[2:4], rows[4:]]
    assert list(row_batches(iter([]), 2)) == []


def test_the_message_to_the_driver_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(Written(7))) == Written(7)
