"""`send` on the embedded cluster: several messages, requests with parameters, the caller's own partitioners."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import kwire
from kwire.broker import Cluster, Delay, Mute
from kwire.cluster import Topic
from kwire.errors import (
    BufferFullError,
    ClosedError,
    ConfigurationError,
    RecordTooLargeError,
    RequestTimeoutError,
    TopicError,
)
from kwire.producer import Message, ProducerRequest
from kwire.producer.partitioner import crc32_partition, murmur2_partition
from kwire.protocol import ApiKey
from tests.producer.conftest import PARTITIONS

PATIENCE = 30


def test_the_proposals_example(cluster: Cluster) -> None:
    request = (
        ProducerRequest()
        .add_message("topic-1", "my-key-1", "my-value-1")
        .add_message("topic-2", "my-key-2", "my-value-2")
        .timeout(10.0)
        .await_committed()
    )
    with kwire.Producer(cluster.bootstrap) as producer:
        responses = producer.send(request)
        places = [response.result(PATIENCE) for response in responses]
    assert [place.topic for place in places] == ["topic-1", "topic-2"]
    for place, value in zip(places, (b"my-value-1", b"my-value-2"), strict=True):
        assert cluster.log(place.topic, place.partition).records()[place.offset].value == value


def test_several_messages_return_a_response_each_in_order(cluster: Cluster) -> None:
    with kwire.Producer(cluster.bootstrap) as producer:
        responses = producer.send_all(Message("t", b"%d" % n, partition=n % 2) for n in range(10))
        places = [response.result(PATIENCE) for response in responses]
        assert producer.send_all([]) == []
    assert [(place.partition, place.offset) for place in places] == [(n % 2, n // 2) for n in range(10)]


def test_of_several_messages_one_that_is_too_large_fails_alone(cluster: Cluster) -> None:
    with kwire.Producer(cluster.bootstrap, max_request_bytes=1_000) as producer:
        small, large, last = producer.send_all([Message("t", b"x"), Message("t", b"x" * 2_000), Message("t", b"y")])
        assert isinstance(large.exception(0), RecordTooLargeError)
        assert small.exception(PATIENCE) is last.exception(PATIENCE) is None


def test_a_copied_record_keeps_a_header_name_that_is_no_utf_8(cluster: Cluster) -> None:
    first = (("plain", b"1"), (b"n\xff\xfe".decode(errors="surrogateescape"), b"2"))
    with kwire.Producer(cluster.bootstrap) as producer:
        producer.send("t", b"0", headers=first, partition=0).result(PATIENCE)
        (record,) = cluster.log("t", 0).records()
        for headers in (record.headers, list(record.headers), dict(record.headers)):
            producer.send("t", b"1", headers=headers, partition=0)
        producer.send_all([Message("t", b"2", headers=record.headers, partition=0)])
        producer.send_many("t", [b"3", b"4"], headers=[record.headers] * 2, partitions=[0, 0]).result(PATIENCE)
        producer.flush()
    records = cluster.log("t", 0).records()
    assert [one.headers for one in records] == [first] * 7


@pytest.mark.parametrize("name", ["\udc80", "t\ud800", "t" * 0x8000, ""])
def test_a_topic_that_no_request_can_name_is_refused_and_delays_no_other_record(cluster: Cluster, name: str) -> None:
    with kwire.Producer(cluster.bootstrap) as producer:
        with pytest.raises((ValueError, TypeError), match="topic is"):
            producer.send(name, b"v")
        with pytest.raises((ValueError, TypeError), match="topic is"):
            producer.send_many(name, [b"v"])
        with pytest.raises((ValueError, TypeError), match="topic is"):
            producer.send_all([Message(name, b"v")])
        assert producer.send("t", b"v").result(PATIENCE).offset == 0
    with kwire.Consumer(cluster.bootstrap) as consumer:
        with pytest.raises(ConfigurationError, match="topic is"):
            consumer.assign([(name, 0, 0)])
        with pytest.raises(ConfigurationError, match="topic is"):
            consumer.partitions(name)
    with pytest.raises(ConfigurationError, match="the name of a topic is"):
        kwire.NewTopic(name)


def test_a_record_above_the_brokers_default_limit_is_refused_at_once_unless_allowed(cluster: Cluster) -> None:
    large = bytes(1_100_000)
    with kwire.Producer(cluster.bootstrap) as producer:
        with pytest.raises(RecordTooLargeError, match="max_request_bytes"):
            producer.send("t", large)
        (error,) = producer.send_many("t", [b"small", large]).settled(PATIENCE).errors
        assert (error[0], type(error[1])) == (1, RecordTooLargeError)
    with kwire.Producer(cluster.bootstrap, max_request_bytes=2_000_000) as producer:
        refused = producer.send("t", large).exception(PATIENCE)
    assert isinstance(refused, RecordTooLargeError)
    assert "max.message.bytes" in str(refused), "the broker's word"


def test_of_several_messages_an_invalid_one_stops_all(cluster: Cluster) -> None:
    with kwire.Producer(cluster.bootstrap) as producer:
        with pytest.raises(TypeError, match="topic"):
            producer.send_all([Message("t", b"x"), Message("", b"y")])
        producer.flush(PATIENCE)
    assert sum(len(cluster.log("t", index).records()) for index in range(PARTITIONS)) == 0


def test_of_several_messages_those_without_memory_fail(cluster: Cluster) -> None:
    cluster.add_fault(Delay(ms=100), api=ApiKey.PRODUCE, times=None)
    with kwire.Producer(cluster.bootstrap, max_buffered_bytes=1_000, when_full="raise") as producer:
        first, second = producer.send_all([Message("t", b"x" * 900), Message("t", b"y" * 900)])
        assert isinstance(second.exception(0), BufferFullError)
        assert first.exception(PATIENCE) is None
    with pytest.raises(ClosedError):
        producer.send_all([Message("t", b"z")])


# -- an own partitioner


def test_an_own_partitioner_sees_leaders_and_runs_on_the_callers_thread(cluster: Cluster) -> None:
    seen: list[tuple[str, Message, Topic]] = []

    def on_broker_2(message: Message, topic: Topic) -> int | None:
        seen.append((threading.current_thread().name, message, topic))
        led = [partition.index for partition in topic.partitions if partition.leader == 2]
        return led[0] if message.key is None else None

    with kwire.Producer(cluster.bootstrap, partitioner=on_broker_2) as producer:
        place = producer.send("t", "value", headers={"h": "x"}).result(PATIENCE)
        assert cluster.leader("t", place.partition) == 2
        keyed = producer.send("t", b"v", key="some key").result(PATIENCE)
        (again,) = producer.send_all([Message("t", b"v")])
        assert again.result(PATIENCE).partition == place.partition
        assert producer.send("t", b"v", partition=3).result(PATIENCE).partition == 3
    assert keyed.partition == murmur2_partition(b"some key", PARTITIONS), "None leaves it to the default"
    thread, message, topic = seen[0]
    assert thread == threading.current_thread().name
    assert message == Message("t", b"value", None, (("h", b"x"),))
    assert len(topic.partitions) == PARTITIONS
    assert len(seen) == 3, "not called where the caller gave the partition"


@pytest.mark.parametrize("partition", [PARTITIONS, -1, "1", True])
def test_an_own_partitioner_that_returns_an_invalid_partition(cluster: Cluster, partition: int) -> None:
    with (
        kwire.Producer(cluster.bootstrap, partitioner=lambda message, topic: partition) as producer,
        pytest.raises(ValueError, match="the partitioner returned"),
    ):
        producer.send("t", b"x")


def test_an_own_partitioner_that_raises(cluster: Cluster) -> None:
    def rule(message: Message, topic: Topic) -> int:
        raise LookupError("mine")

    with kwire.Producer(cluster.bootstrap, partitioner=rule) as producer, pytest.raises(LookupError, match="mine"):
        producer.send("t", b"x")


def test_an_own_partitioner_waits_for_the_topic_for_so_long() -> None:
    def rule(message: Message, topic: Topic) -> int:
        raise AssertionError("nothing is known")

    with Cluster(brokers=1, auto_create_topics=False) as cluster:
        with kwire.Producer(cluster.bootstrap, partitioner=rule, max_block_ms=100) as producer:
            with pytest.raises(RequestTimeoutError, match="nowhere") as raised:
                producer.send("nowhere", b"x")
            assert isinstance(raised.value.__cause__, TopicError)
            with pytest.raises(TopicError):
                producer.send("not/a/name", b"x")
        bootstrap = cluster.bootstrap
    with (
        kwire.Producer(bootstrap, partitioner=rule, max_block_ms=100) as producer,
        pytest.raises(RequestTimeoutError, match="refused"),
    ):
        producer.send("t", b"x")


# -- one broker at a time


def test_a_producer_that_keeps_to_one_broker_has_one_connection(cluster: Cluster) -> None:
    """From the proposal: the idle timeout closes unused connections, such as the bootstrap connection."""

    def open_connections() -> int:
        return len(cluster._server._connections)

    with kwire.Producer(cluster.bootstrap, partitioner="single_broker", linger_ms=0, idle_timeout_ms=200) as producer:

        def nodes(until: int) -> set[int]:
            """Send until `until` connections are open; return the nodes that got records."""
            used = {cluster.leader("t", producer.send("t", b"x").result(PATIENCE).partition)}
            for _ in range(100_000):
                if open_connections() == until:
                    break
                used.add(cluster.leader("t", producer.send("t", b"x").result(PATIENCE).partition))
            return used

        (node,) = nodes(until=1)
        metrics = producer.metrics().cluster
        assert metrics.connections == open_connections() == 1
        assert [broker.node for broker in metrics.brokers.values() if broker.is_connected] == [node]
        assert {broker.node for broker in metrics.brokers.values() if "Produce" in broker.latency} == {node}
        cluster.stop(node)
        (other,) = nodes(until=1)
        assert other != node


def test_keys_go_where_they_belong_also_with_one_broker(cluster: Cluster) -> None:
    with kwire.Producer(cluster.bootstrap, partitioner="crc32+single_broker") as producer:
        keyed = {key: producer.send("t", b"x", key=key).result(PATIENCE).partition for key in (b"a", b"b", b"c", b"d")}
    assert keyed == {key: crc32_partition(key, PARTITIONS) for key in keyed}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 540_000),
        ({"partitioner": "single_broker"}, 15_000),
        ({"partitioner": "crc32+single_broker"}, 15_000),
        ({"partitioner": "single_broker", "idle_timeout_ms": 1_000}, 1_000),
    ],
)
def test_unused_connections_of_a_producer_with_one_broker_are_closed_soon(
    options: dict[str, Any], expected: int
) -> None:
    with kwire.Producer("h:1", **options) as producer:
        assert producer._core.runtime.config.idle_timeout_ms == expected


def test_a_topic_without_a_leader_does_not_take_the_memory_of_all() -> None:
    with Cluster(brokers=2) as cluster:
        for topic, node in (("dead", 2), ("healthy", 1)):
            cluster.create_topic(topic, partitions=1)
            if cluster.leader(topic) != node:
                cluster.move_leader(topic, 0, node)
        with kwire.Producer(
            cluster.bootstrap, linger_ms=0, max_buffered_bytes=100_000, when_full="raise", delivery_timeout_ms=600_000
        ) as producer:
            for topic in ("dead", "healthy"):
                producer.send(topic, b"first").result(PATIENCE)
            cluster.add_fault(Mute(), api=ApiKey.PRODUCE, node=2)
            responses = producer.send_all([Message("dead", bytes(200))] * 1_000)
            with pytest.raises(BufferFullError, match="for topic dead"):
                responses[-1].result(0)
            for _ in range(100):
                producer.send("healthy", bytes(1_000)).result(PATIENCE)
            bulk = producer.send_many("healthy", [bytes(100)] * 20)
            assert len(bulk.result(PATIENCE)) == 20
            cluster.clear_faults()
            producer.close(0)


def test_messages_in_send_raise_an_error_that_names_send_all(cluster: Cluster) -> None:
    one, other = Message("t", b"a"), Message("t", b"b")
    with kwire.Producer(cluster.bootstrap) as producer:
        for arguments in ((one,), (one, other)):
            with pytest.raises(TypeError, match="send_all"):
                producer.send(*arguments)
        assert len(producer.send_all([one, other])) == 2


def test_a_wait_that_looks_like_milliseconds_is_warned_about(cluster: Cluster) -> None:
    with kwire.Producer(cluster.bootstrap) as producer:
        with pytest.warns(UserWarning, match="a timeout of 10000: these are seconds") as warned:
            producer.send("t", b"v").result(10_000)
        with pytest.warns(UserWarning, match="these are seconds") as flushed:
            producer.flush(10_000)
        producer.flush(3_600)
    assert {one.filename for one in (*warned, *flushed)} == {__file__}
