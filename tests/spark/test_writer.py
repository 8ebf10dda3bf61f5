"""Delivery: everything acknowledged, or an error that says which row and which broker."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

from kwire.errors import ConfigurationError, DeliveryError, DisconnectedError, ErrorCode, broker_error
from kwire.spark.rows import OutgoingRow
from kwire.spark.writer import Written, deliver, in_portions
from tests.spark.fakes import FakeProducer

TASK = "DataFrame partition 3"


def row(number: int, **changes: object) -> OutgoingRow:
    plain = OutgoingRow("t", b"v%d" % number, b"k%d" % number, (), None, None)
    return plain._replace(**changes)  # type: ignore[arg-type]


def portions(*sizes: int) -> list[list[OutgoingRow]]:
    numbers = iter(range(sum(sizes)))
    return [[row(next(numbers)) for _ in range(size)] for size in sizes]


@pytest.mark.parametrize("sizes", [(), (0,), (1,), (3, 0, 2), (5, 5, 5)])
def test_every_row_is_sent_in_order_and_counted(sizes: tuple[int, ...]) -> None:
    producer = FakeProducer()
    assert deliver(producer, portions(*sizes), TASK) == sum(sizes)
    assert [sent[1] for sent in producer.sent] == [b"v%d" % number for number in range(sum(sizes))]
    assert producer.flushes == 1


def test_what_send_gets() -> None:
    producer = FakeProducer()
    deliver(producer, [[OutgoingRow("t", None, b"k", (("h", b"1"),), 2, 9)]], TASK)
    assert producer.sent == [("t", None, b"k", (("h", b"1"),), 2, 9)]


def failure(broker: str = "1 at db:9092") -> DeliveryError:
    error = DeliveryError(
        "not acknowledged in time", possibly_persisted=True, topic="t", partition=6, remedy="look at it"
    )
    error.__cause__ = DisconnectedError("the broker went away", broker=broker)
    return error


@pytest.mark.parametrize(
    ("sizes", "failures", "expected"),
    [
        ((3, 3, 3), [1], "row 1 of DataFrame partition 3 (key b'k1') was not written: "),
        ((3, 3, 3), [5], "row 5 of "),
        ((3, 3, 3), [8], "row 8 of "),
        ((3, 3), [3, 4, 5], "row 3 of DataFrame partition 3 (key b'k3') was not written, as were 2 rows after it: "),
    ],
)
def test_a_failure_names_row_and_broker(sizes: tuple[int, ...], failures: list[int], expected: str) -> None:
    producer = FakeProducer(dict.fromkeys(failures, failure()))
    with pytest.raises(DeliveryError) as caught:
        deliver(producer, portions(*sizes), TASK)
    text = str(caught.value)
    assert text.startswith(expected)
    assert text.endswith("not acknowledged in time [broker 1 at db:9092, topic t, partition 6]: look at it")
    assert caught.value.possibly_persisted
    assert str(pickle.loads(pickle.dumps(caught.value))) == text


def test_a_failure_ends_the_task_before_the_input_does() -> None:
    drawn = []

    def endless() -> Iterator[list[OutgoingRow]]:
        while True:
            drawn.append(1)
            yield [row(len(drawn))]

    with pytest.raises(DeliveryError):
        deliver(FakeProducer({1: failure()}), endless(), TASK)
    assert len(drawn) == 3


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (broker_error(ErrorCode.MESSAGE_TOO_LARGE, remedy="send less"), r"row 1 of .* MESSAGE_TOO_LARGE .*: send less"),
        (ValueError("partition is -1"), "row 1 of .* was not written: partition is -1"),
    ],
)
def test_a_refusal_names_the_row_too(error: Exception, message: str) -> None:
    with pytest.raises(DeliveryError, match=message) as caught:
        deliver(FakeProducer(refusals={1: error}), portions(3), TASK)
    assert not caught.value.possibly_persisted
    assert caught.value.__cause__ is error


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (row(1, topic=None), "row 1 of .* has no topic"),
        (row(1, headers=((None, b""),)), "row 1 of .* has a header without a key"),
        (row(1, key=None, topic=None), r"\(no key\)"),
        (row(1, key=b"x" * 99, topic=None), rf"key b'{'x' * 40}'\.\.\."),
    ],
)
def test_rows_that_are_no_records(bad: OutgoingRow, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        deliver(FakeProducer(), [[row(0), bad]], TASK)


def test_in_portions() -> None:
    rows = [row(number) for number in range(5)]
    assert list(in_portions(iter(rows), 2)) == [rows[:2], rows[2:4], rows[4:]]
    assert list(in_portions(iter([]), 2)) == []


def test_the_message_to_the_driver_travels() -> None:
    assert pickle.loads(pickle.dumps(Written(7))) == Written(7)
