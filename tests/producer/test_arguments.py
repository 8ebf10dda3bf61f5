"""Arguments of a wrong type: the error has name, type and expected type, and no record is sent."""

from __future__ import annotations

import datetime
import enum
import math
from collections.abc import Iterator
from typing import Any

import pytest

import kwire
from kwire.broker import Cluster, Mute
from kwire.producer import GroupMetadata
from kwire.protocol import ApiKey


@pytest.fixture(scope="module")
def producer() -> Iterator[kwire.Producer]:
    with Cluster(brokers=1, topics={"t": 1}) as cluster, kwire.Producer(cluster.bootstrap) as producer:
        producer.send("t", b"the fast path is open from here on").result(timeout=30)
        yield producer


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"partition": "0"}, "partition is '0' (str): give an int from 0 up, or None to have one chosen"),
        ({"partition": 1.0}, "partition is 1.0 (float): give an int"),
        ({"partition": True}, "partition is True (bool): give an int"),
        ({"timestamp_ms": 1.5}, "timestamp_ms is 1.5 (float): give milliseconds since 1970 as an int, or None for now"),
        ({"timestamp_ms": True}, "timestamp_ms is True (bool): give milliseconds"),
        ({"timestamp_ms": datetime.datetime(2026, 1, 1)}, "timestamp_ms is datetime.datetime(2026, 1, 1, 0, 0) ("),
        ({"headers": "abc"}, "headers is 'abc' (str): give a mapping {name: value}, or (name, value) pairs"),
        ({"headers": 5}, "headers is 5 (int): give a mapping"),
        ({"headers": 0}, "headers is 0 (int): give a mapping"),  # the partition in the order of other clients
        ({"headers": ""}, "headers is '' (str): give a mapping"),
        ({"headers": ["ab"]}, "an item of headers is 'ab' (str): give a mapping"),
        ({"headers": [("a",)]}, "an item of headers is ('a',) (tuple): give a mapping"),
        ({"on_delivery": 5}, "callback is 5"),
        ({"key": 5}, "key is int: it must be bytes, str or None"),
    ],
)  # fmt: skip
def test_send(producer: kwire.Producer, arguments: dict[str, Any], expected: str) -> None:
    before = producer.metrics().records_sent
    with pytest.raises(TypeError) as caught:
        producer.send("t", b"v", **arguments)
    assert expected in str(caught.value)
    if "on_delivery" not in arguments:
        with pytest.raises(TypeError) as caught:
            producer.send_all([kwire.Message("t", b"v", **arguments)])
        assert expected in str(caught.value)
    producer.flush(timeout=30)
    assert producer.metrics().records_sent == before


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"partitions": "0"}, "partitions is '0' (str): give one int for all records, or an item for each"),
        ({"timestamps_ms": 1.5}, "timestamps_ms is 1.5 (float): give one int for all records"),
        ({"partitions": ["0"]}, "item 0 of partitions is str"),
        ({"headers": 0}, "headers is int: it must be a sequence with an item for each record"),
        ({"headers": ""}, "headers is str: it must be a sequence with an item for each record"),
    ],
)
def test_send_many(producer: kwire.Producer, arguments: dict[str, Any], expected: str) -> None:
    with pytest.raises(TypeError) as caught:
        producer.send_many("t", [b"v"], **arguments)
    assert expected in str(caught.value)


@pytest.mark.parametrize("item", ["t", ("t", b"v"), None], ids=repr)
def test_send_all_refuses_other_types_than_message(producer: kwire.Producer, item: Any) -> None:
    with pytest.raises(TypeError, match=r"^an item of messages is .*: give a kwire\.Message$"):
        producer.send_all([item])


@pytest.mark.parametrize("timeout", ["5", datetime.timedelta(seconds=5), True, b""], ids=repr)
def test_timeouts(timeout: Any) -> None:
    with Cluster(brokers=1, topics={"t": 1}) as cluster:
        fault = cluster.add_fault(Mute(), api=ApiKey.PRODUCE, times=1)
        with kwire.Producer(cluster.bootstrap, linger_ms=0, request_timeout_ms=500) as producer:
            response, bulk = producer.send("t", b"v"), producer.send_many("t", [b"v"])
            expected = rf"^timeout is .* \({type(timeout).__name__}\): give seconds as a number, or None"
            for wait in (response.result, response.exception, bulk.result, bulk.exception, producer.flush):
                with pytest.raises(TypeError, match=expected):
                    wait(timeout)
            response.result(timeout=30)
        assert fault.hits == 1


def test_a_timeout_can_be_an_int_or_none_or_infinite(producer: kwire.Producer) -> None:
    for timeout in (30, 30.0, None):
        producer.send("t", b"v").result(timeout)
        producer.flush(timeout)
    with pytest.raises(TypeError):
        producer.close("x")  # type: ignore[arg-type]
    assert math.isfinite(producer.send("t", b"it is open as before").result(30).offset)


def test_what_a_broker_says_names_its_code_once() -> None:
    with Cluster(brokers=1, topics={"t": 1}) as cluster, kwire.Producer(cluster.bootstrap) as producer:
        error = producer.send("t", b"v", timestamp_ms=2**62).exception(timeout=30)
        assert isinstance(error, kwire.BrokerError)
        assert str(error).count("INVALID_TIMESTAMP (32)") == 1
        assert error.broker_message is not None
        assert "INVALID_TIMESTAMP" not in error.broker_message


@pytest.fixture(scope="module")
def in_transaction() -> Iterator[kwire.Producer]:
    with (
        Cluster(brokers=1, topics={"t": 1}) as cluster,
        kwire.Producer(cluster.bootstrap, transactional_id="x") as producer,
    ):
        producer.begin()
        yield producer
        producer.abort()


@pytest.mark.parametrize(
    ("offsets", "kind", "expected"),
    [
        ({"t": 5}, TypeError, "a key of offsets is 't' (str): give (topic, partition)"),
        ({("t", 0, 1): 5}, TypeError, "a key of offsets is ('t', 0, 1) (tuple): give (topic, partition)"),
        ({("t", "0"): 5}, TypeError, "a key of offsets is ('t', '0') (tuple)"),
        ({("t", True): 5}, TypeError, "a key of offsets is ('t', True) (tuple)"),
        ({(7, 0): 5}, TypeError, "a key of offsets is (7, 0) (tuple)"),
        ({("", 0): 5}, ValueError, "a key of offsets is ('', 0)"),
        ({("\ud800", 0): 5}, ValueError, "a key of offsets is ('\\ud800', 0)"),
        ({("t", -1): 5}, ValueError, "a key of offsets is ('t', -1)"),
        ({("t", 2**31): 5}, ValueError, "a key of offsets is ('t', 2147483648)"),
        ({("t", 0): "5"}, TypeError, "the offset of t-0 is '5' (str): give the next offset to read, an int"),
        ({("t", 0): None}, TypeError, "the offset of t-0 is None (NoneType)"),
        ({("t", 0): -5}, ValueError, "the offset of t-0 is -5: it must be from 0 to 2**63 - 1"),
        ({("t", 0): 2**63}, ValueError, "the offset of t-0 is 9223372036854775808"),
    ],
)
def test_send_offsets(
    in_transaction: kwire.Producer, offsets: dict[Any, Any], kind: type[Exception], expected: str
) -> None:
    with pytest.raises(kind) as caught:
        in_transaction.send_offsets(offsets, "g", timeout=30)
    assert expected in str(caught.value)
    in_transaction.send_offsets({("t", 0): 5}, "g", timeout=30)


@pytest.mark.parametrize("group", ["", "\ud800", "g" * 40_000, GroupMetadata("\ud800")])
def test_the_name_of_a_group_in_send_offsets(in_transaction: kwire.Producer, group: str | GroupMetadata) -> None:
    with pytest.raises(ValueError, match=r"group is .*its name must be text of 1 to 32767 bytes"):
        in_transaction.send_offsets({("t", 0): 5}, group, timeout=30)


class Region(enum.IntEnum):
    EU = 1
    US = 2


def test_a_member_of_an_int_enum_is_a_partition_and_a_time() -> None:
    with Cluster(brokers=1, topics={"t": 3}) as cluster, kwire.Producer(cluster.bootstrap) as producer:
        for _ in range(2):  # the second goes by the fast path
            sent = producer.send("t", b"v", partition=Region.EU, timestamp_ms=Region.US)
            (other,) = producer.send_all([kwire.Message("t", b"v", partition=Region.EU, timestamp_ms=Region.US)])
            for response in (sent, other):
                place = response.result(timeout=30)
                assert (place.partition, type(place.partition)) == (1, int)
                assert (place.timestamp_ms, type(place.timestamp_ms)) == (2, int)


def test_lines_of_any_memoryview(producer: kwire.Producer) -> None:
    assert len(producer.send_lines("t", memoryview(b"a\nb\nc\n")[::2]).result(timeout=30)) == 1
    assert len(producer.send_lines("t", memoryview(b"a\nb\nc\nd\n").cast("i")).result(timeout=30)) == 4
