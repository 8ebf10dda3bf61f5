"""Test that kwire reads back what it wrote, byte for byte: on the embedded broker, the newest and the oldest Kafka."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kwire import Consumer, ConsumerRecord, Producer, RecordMetadata
from kwire.records import Compression
from tests.live.backends import CODECS, PARTITIONS, Backend

MEGABYTE = 1_000_000

# (key, value, headers)
RECORDS: Sequence[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]] = (
    (b"key", b"value", ()),
    (None, b"no key", ()),
    (b"no value", None, ()),
    (None, None, ()),
    (b"", b"", ()),
    (b"\x00\xff" * 100, bytes(range(256)) * 40, ()),
    ("schlüssel".encode(), b"headers", (("a", b"1"), ("a", b"2"), ("empty", b""), ("null", None), ("ü", b"\x00"))),
    (b"no UTF-8", b"in a name", (("n\udcff\udcfe", b"1"), ("\udcff", None))),
    (b"zeros", bytes(MEGABYTE - 1_000), ()),
    (b"noise", random.Random(5).randbytes(MEGABYTE), ()),
    (b"last", b"." * 1_000, ()),
)


def consume(backend: Backend, topic: str, count: int, partitions: Sequence[int] = (0,)) -> list[ConsumerRecord]:
    """Return `count` records from the beginning of some partitions, and check that there are no more."""
    records: list[ConsumerRecord] = []
    with Consumer(backend.bootstrap) as consumer:
        consumer.assign([(topic, partition, "earliest") for partition in partitions])
        while len(records) < count:
            polled = consumer.poll(max_records=10_000, timeout=30)
            assert polled, f"{len(records)} of {count} records, then nothing for 30 s"
            records += polled
        ends = consumer.end_offsets([(topic, partition) for partition in partitions])
    assert len(records) == count == sum(ends.values())
    return records


def contents(records: Sequence[ConsumerRecord]) -> list[tuple[Any, ...]]:
    return [(record.key, record.value, record.headers) for record in records]


@pytest.mark.parametrize(("backend", "codec"), CODECS, indirect=["backend"])
def test_every_kind_of_record(backend: Backend, make_topic: Callable[[int], str], codec: str) -> None:
    topic = make_topic(1)
    sent = [record for record in RECORDS if not (backend.is_ancient and record[2])]
    with Producer(backend.bootstrap, compression=Compression.of(codec), linger_ms=50) as producer:
        responses = [
            producer.send(topic, value, key=key, headers=headers, partition=0, timestamp_ms=1_700_000_000_000 + index)
            for index, (key, value, headers) in enumerate(sent)
        ]
        offsets = [response.result(timeout=60).offset for response in responses]
    received = consume(backend, topic, len(sent))
    assert offsets == list(range(len(sent)))
    assert contents(received) == sent
    assert [record.offset for record in received] == offsets
    timestamps = [-1] * len(sent) if backend.is_ancient else [1_700_000_000_000 + index for index in range(len(sent))]
    assert [record.timestamp_ms for record in received] == timestamps


@pytest.mark.parametrize(
    "options",
    [{"acks": "all", "idempotence": False}, {"acks": 1}, {"acks": 0}, {"linger_ms": 0}, {"batch_bytes": 100}],
    ids=str,
)
def test_every_kind_of_acknowledgement(
    backend: Backend, make_topic: Callable[[int], str], options: dict[str, Any]
) -> None:
    topic = make_topic(1)
    with Producer(backend.bootstrap, **options) as producer:
        metadata = [producer.send(topic, b"%d" % n, partition=0) for n in range(20)]
        results: list[RecordMetadata] = [one.result(timeout=30) for one in metadata]
    assert [record.value for record in consume(backend, topic, 20)] == [b"%d" % n for n in range(20)]
    if options.get("acks") != 0:
        assert [one.offset for one in results] == list(range(20))


def test_automatically_created_topic(backend: Backend, topic_name: str) -> None:
    if backend.is_external:
        pytest.skip("the cluster may not create topics by use")
    with Producer(backend.bootstrap) as producer:
        placed = producer.send(topic_name, b"first").result(timeout=60)
    with Consumer(backend.bootstrap) as consumer:
        assert consumer.partitions(topic_name) == list(range(PARTITIONS))
    assert consume(backend, topic_name, 1, range(PARTITIONS))[0].partition == placed.partition


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_100_000_records_over_8_partitions_in_order(
    backend: Backend, make_topic: Callable[[int], str], codec: str
) -> None:
    topic = make_topic(PARTITIONS)
    noise = random.Random(7)
    payload = noise.randbytes(4_096)
    # The number of the record, then some bytes that differ in place and length.
    values = [b"%07d" % n + payload[n % 1_000 : n % 1_000 + n % 150] for n in range(100_000)]
    with Producer(backend.bootstrap, compression=Compression.of(codec)) as producer:
        responses = [producer.send(topic, value, key=value[4:7]) for value in values]
        producer.flush(timeout=100)
    placed = [response.result(timeout=0) for response in responses]
    received = consume(backend, topic, len(values), range(PARTITIONS))

    sent_to = defaultdict(list)
    for value, place in zip(values, placed, strict=True):
        sent_to[place.partition].append((place.offset, value[4:7], value))
    read_from = defaultdict(list)
    for record in received:
        read_from[record.partition].append((record.offset, record.key, record.value))
    assert set(sent_to) == set(range(PARTITIONS))
    assert read_from == sent_to
    for partition in sent_to:
        assert [offset for offset, _, _ in sent_to[partition]] == list(range(len(sent_to[partition])))


def test_reading_from_the_middle_from_the_end_and_by_time(backend: Backend, make_topic: Callable[[int], str]) -> None:
    topic = make_topic(1)
    with Producer(backend.bootstrap) as producer:
        for n in range(100):
            producer.send(topic, b"%d" % n, partition=0, timestamp_ms=1_000_000 + 10 * n)
        producer.flush(timeout=30)
        with Consumer(backend.bootstrap) as consumer:
            consumer.assign([(topic, 0, 42)])
            assert next(consumer).value == b"42"
            assert consumer.position(topic, 0) == 43
            assert consumer.beginning_offsets([(topic, 0)]) == {(topic, 0): 0}
            assert consumer.end_offsets([(topic, 0)]) == {(topic, 0): 100}
            if not backend.is_ancient:
                assert consumer.offsets_at([(topic, 0, 1_000_155)]) == {(topic, 0): 16}
            consumer.assign([(topic, 0, "latest")])
            # The consumer must know the end offset before the next record, or might start behind that record.
            assert consumer.position(topic, 0) == 100
            producer.send(topic, b"late", partition=0).result(timeout=30)
            assert next(consumer).value == b"late"
