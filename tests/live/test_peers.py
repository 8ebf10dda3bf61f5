"""Test that Kafka's console tools, librdkafka and kafka-python read what kwire writes, and the reverse.

Each runs on every cluster that the peer supports: librdkafka 2 supports no broker before 0.9.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Message
from confluent_kafka import Producer as ConfluentProducer
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from kwire import Producer
from kwire.records import Compression
from tests.live.backends import CODECS, MODERN_CODECS, OLDEST, Backend
from tests.live.test_round_trip import consume

LINES = [b"key-%d\tvalue %d" % (n, n) for n in range(50)]
# (key, value) of all kinds, large enough together for compression.
PAIRS: Sequence[tuple[bytes | None, bytes | None]] = [
    (b"key", b"value"),
    (None, b"no key"),
    (b"no value", None),
    (b"", b""),
    (b"\x00\xff", bytes(range(256)) * 400),
    *((b"%d" % n, b"value " * n) for n in range(100)),
]
# kafka-python 3 cannot write lz4 in the oldest format.
KAFKA_PYTHON_CODECS = [pair for pair in CODECS if pair != (OLDEST, "lz4")]
HEADERS: list[tuple[str, str | bytes | None]] = [("a", b"1"), ("a", b""), ("null", None)]


def write(backend: Backend, topic: str, codec: str, headers: Sequence[tuple[str, str | bytes | None]]) -> None:
    with Producer(backend.bootstrap, compression=Compression.of(codec), linger_ms=20) as producer:
        responses = [producer.send(topic, value, key=key, headers=headers, partition=0) for key, value in PAIRS]
        for response in responses:
            response.result(timeout=30)


def test_console_consumer_reads_what_kwire_wrote(backend: Backend, make_topic: Callable[[int], str]) -> None:
    topic = make_topic(1)
    with Producer(backend.bootstrap, compression="gzip") as producer:
        for line in LINES:
            key, value = line.split(b"\t")
            producer.send(topic, value, key=key, partition=0)
    assert backend.commands.consume(topic, len(LINES), properties={"print.key": "true"}) == LINES


def test_kwire_reads_what_the_console_producer_wrote(backend: Backend, make_topic: Callable[[int], str]) -> None:
    topic = make_topic(1)
    backend.commands.produce(topic, LINES, properties={"parse.key": "true"})
    records = consume(backend, topic, len(LINES))
    assert [(record.key or b"") + b"\t" + (record.value or b"") for record in records] == LINES


@pytest.mark.parametrize(("backend", "codec"), MODERN_CODECS, indirect=["backend"])
def test_librdkafka_reads_what_kwire_wrote(backend: Backend, make_topic: Callable[[int], str], codec: str) -> None:
    topic = make_topic(1)
    write(backend, topic, codec, HEADERS)
    settings = {"bootstrap.servers": backend.bootstrap, "group.id": topic, "auto.offset.reset": "earliest",
                "check.crcs": True}  # fmt: skip
    consumer = ConfluentConsumer(settings)
    try:
        consumer.subscribe([topic])
        messages: list[Message] = []
        while len(messages) < len(PAIRS):
            got = consumer.consume(len(PAIRS) - len(messages), timeout=30)
            assert got, f"{len(messages)} of {len(PAIRS)}, then nothing for 30 s"
            messages += got
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    assert [message.error() for message in messages] == [None] * len(PAIRS)
    assert [(message.key(), message.value()) for message in messages] == PAIRS
    assert messages[0].headers() == HEADERS


@pytest.mark.parametrize(("backend", "codec"), MODERN_CODECS, indirect=["backend"])
def test_kwire_reads_what_librdkafka_wrote(backend: Backend, make_topic: Callable[[int], str], codec: str) -> None:
    topic = make_topic(1)
    settings: dict[str, Any] = {
        "bootstrap.servers": backend.bootstrap, "compression.type": codec, "linger.ms": 20, "enable.idempotence": True,
    }  # fmt: skip
    producer = ConfluentProducer(settings)
    failures: list[Any] = []
    for key, value in PAIRS:
        producer.produce(
            topic, value, key, partition=0, headers=HEADERS, timestamp=1_700_000_000_000,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )  # fmt: skip
    assert (producer.flush(30), failures) == (0, [])
    records = consume(backend, topic, len(PAIRS))
    assert [(record.key, record.value) for record in records] == PAIRS
    assert {record.headers for record in records} == {tuple(HEADERS)}
    assert {record.timestamp_ms for record in records} == {1_700_000_000_000}


@pytest.mark.parametrize(("backend", "codec"), KAFKA_PYTHON_CODECS, indirect=["backend"])
def test_kafka_python_both_ways(backend: Backend, make_topic: Callable[[int], str], codec: str) -> None:
    topic = make_topic(1)
    settings: dict[str, Any] = {"bootstrap_servers": backend.bootstrap.split(",")}
    if backend.is_ancient:
        settings["api_version"] = (0, 8, 2)
    write(backend, topic, codec, ())
    producer = KafkaProducer(**settings, compression_type=None if codec == "none" else codec, linger_ms=20)
    try:
        futures = [producer.send(topic, value, key, partition=0) for key, value in PAIRS]
        for future in futures:
            future.get(timeout=30)
    finally:
        producer.close()
    records = consume(backend, topic, 2 * len(PAIRS))
    assert [(record.key, record.value) for record in records] == [*PAIRS, *PAIRS]

    consumer = KafkaConsumer(**settings, auto_offset_reset="earliest", enable_auto_commit=False)
    try:
        consumer.assign([TopicPartition(topic, 0)])
        read: list[Any] = []
        while len(read) < 2 * len(PAIRS):
            polled = consumer.poll(timeout_ms=30_000)
            assert polled, f"{len(read)} of {2 * len(PAIRS)}, then nothing for 30 s"
            read += [message for messages in polled.values() for message in messages]
    finally:
        consumer.close()
    assert [(message.key, message.value) for message in read] == [*PAIRS, *PAIRS]
