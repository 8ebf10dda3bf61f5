"""Serializers: on the caller's thread, for every method that sends, with errors that name the argument."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest

import kwire
import kwire.aio
from kwire.broker import Cluster
from kwire.errors import ConfigurationError, SerializationError
from kwire.producer import Message, ProducerRequest
from kwire.producer.partitioner import murmur2_partition
from tests.producer.conftest import PARTITIONS

PATIENCE = 30


def as_json(topic: str, data: Any) -> str:
    return json.dumps([topic, data])


def as_key(topic: str, data: Any) -> bytes:
    return b"key %d" % data


def stored(cluster: Cluster) -> list[tuple[bytes | None, bytes | None]]:
    records = [record for index in range(PARTITIONS) for record in cluster.log("t", index).records()]
    return sorted(((record.key, record.value) for record in records), key=str)


ALL = sorted([(b"key %d" % n, b'["t", {"n": %d}]' % n) for n in range(6)], key=str)
ROWS: list[tuple[Any, Any]] = [(n, {"n": n}) for n in range(6)]


def test_every_way_in(cluster: Cluster) -> None:
    with kwire.Producer(cluster.bootstrap, key_serializer=as_key, value_serializer=as_json) as producer:
        first = producer.send("t", *reversed(ROWS[0])).result(PATIENCE)
        assert first.partition == murmur2_partition(b"key 0", PARTITIONS)
        producer.send("t", value=ROWS[1][1], key=ROWS[1][0])
        producer.send_all([Message("t", ROWS[2][1], ROWS[2][0])])
        producer.send(ProducerRequest().add_message("t", *ROWS[3]))
        producer.send_many("t", [value for _, value in ROWS[4:]], [key for key, _ in ROWS[4:]])
    assert stored(cluster) == ALL


def test_every_way_in_of_asyncio(cluster: Cluster) -> None:
    async def main() -> None:
        async with kwire.aio.Producer(cluster.bootstrap, key_serializer=as_key, value_serializer=as_json) as producer:
            await producer.send_and_wait("t", ROWS[0][1], key=ROWS[0][0])
            await producer.send("t", ROWS[1][1], key=ROWS[1][0])
            await producer.send_all([Message("t", ROWS[2][1], ROWS[2][0])])
            await producer.send(ProducerRequest().add_message("t", *ROWS[3]))
            await producer.send_many("t", [value for _, value in ROWS[4:]], [key for key, _ in ROWS[4:]])

    asyncio.run(main())
    assert stored(cluster) == ALL


def test_none_stays_none_and_one_serializer_leaves_the_other_argument_alone(cluster: Cluster) -> None:
    with kwire.Producer(cluster.bootstrap, value_serializer=as_json) as producer:
        producer.send("t", None, key=b"deleted")
        values: list[Any] = [None, 5]
        producer.send_many("t", values, ["deleted too", None])
    assert stored(cluster) == sorted([(b"deleted", None), (b"deleted too", None), (None, b'["t", 5]')], key=str)


def test_it_runs_on_the_callers_thread_before_the_callers_partitioner(cluster: Cluster) -> None:
    seen: list[Any] = []

    def value_serializer(topic: str, data: Any) -> bytes:
        seen.append((threading.current_thread(), topic, data))
        return b"%d" % data

    def partitioner(message: Message, topic: object) -> int:
        seen.append(message.value)
        return 2

    with kwire.Producer(cluster.bootstrap, value_serializer=value_serializer, partitioner=partitioner) as producer:
        sent: Any = 7
        assert producer.send("t", sent).result(PATIENCE).partition == 2
    assert seen == [(threading.current_thread(), "t", 7), b"7"]


def failing(topic: str, data: Any) -> Any:
    if data == "bad":
        raise KeyError("schema")
    return 5 if data == "worse" else b"fine"


@pytest.mark.parametrize(
    ("data", "cause", "words"), [("bad", KeyError, "KeyError: 'schema'"), ("worse", TypeError, "int")]
)
def test_errors_name_topic_and_argument_and_nothing_is_sent(
    cluster: Cluster, data: str, cause: type[Exception], words: str
) -> None:
    with kwire.Producer(cluster.bootstrap, key_serializer=failing, value_serializer=failing) as producer:
        for act, place in (
            (lambda: producer.send("t", data), "for value, of type str"),
            (lambda: producer.send("t", "fine", key=data), "for key, of type str"),
            (lambda: producer.send_all([Message("t", "fine"), Message("t", data)]), "for value, of type str"),
            (lambda: producer.send_many("t", ["fine", data]), "for item 1 of values"),
            (lambda: producer.send_many("t", ["fine"], [data]), "for item 0 of keys"),
        ):
            with pytest.raises(SerializationError, match="serializer failed") as caught:
                act()
            assert place in caught.value.message
            assert words in caught.value.message
            assert caught.value.where["topic"] == "t"
            assert isinstance(caught.value.__cause__, cause)
    assert stored(cluster) == []


def test_an_invalid_topic_or_column_never_reaches_a_serializer(cluster: Cluster) -> None:
    with kwire.Producer(cluster.bootstrap, value_serializer=failing) as producer:
        with pytest.raises(TypeError, match="topic is 5"):
            producer.send(5, "bad")  # type: ignore[call-overload]
        with pytest.raises(TypeError, match="values is str"):
            producer.send_many("t", "bad")


def test_an_invalid_serializer_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="value_serializer"):
        kwire.Producer("localhost:1", value_serializer="json")  # type: ignore[arg-type]


@pytest.mark.parametrize("serializer", [json.dumps, lambda value: value, lambda key, partitions, available: b""])
def test_a_function_of_other_arguments_is_refused_before_anything_is_sent(serializer: Any) -> None:
    with pytest.raises(ConfigurationError, match="give a function of two arguments, a topic and data"):
        kwire.Producer("localhost:1", value_serializer=serializer)
    with pytest.raises(ConfigurationError, match="give a name or a function of a message and a topic"):
        kwire.Producer("localhost:1", partitioner=serializer)


@pytest.mark.parametrize("serializer", [lambda *all: b"", lambda topic, data, more=1: b"", max])
def test_a_function_that_may_be_called_with_two_arguments_is_taken(serializer: Any) -> None:
    with kwire.Producer("localhost:1", value_serializer=serializer, partitioner=serializer) as producer:
        assert producer.client_id == "kwire"


def test_an_error_says_how_a_serializer_is_called() -> None:
    with (
        kwire.Producer("localhost:1", value_serializer=str.encode) as producer,  # as kafka-python's users write it
        pytest.raises(SerializationError, match=r"it is called as value_serializer\(topic, value\)"),
    ):
        producer.send("t", "v")
