"""Test a topic with a small max.message.bytes, and one that is deleted and created again, also on a real Kafka."""

from __future__ import annotations

import random

import pytest

from kwire import Admin, NewTopic, Producer
from kwire.errors import BrokerError, ErrorCode, RecordTooLargeError
from kwire.records import Compression
from tests.live.backends import MODERN, Backend
from tests.live.test_round_trip import consume

PATIENCE = 60


@pytest.mark.parametrize("backend", MODERN, indirect=True)
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_batches_that_are_too_large_for_the_topic(backend: Backend, topic_name: str, codec: str) -> None:
    chance = random.Random(7)
    values = [b"%05d" % n + chance.randbytes(60) for n in range(2_000)]
    with Admin(backend.bootstrap) as admin, Producer(backend.bootstrap, compression=Compression.of(codec)) as producer:
        admin.create_topics(
            [NewTopic(topic_name, partitions=1, replication_factor=1, configs={"max.message.bytes": "3000"})]
        )
        responses = [producer.send(topic_name, value, partition=0) for value in values]
        offsets = [response.result(PATIENCE).offset for response in responses]
        error = producer.send(topic_name, chance.randbytes(4_000), partition=0).exception(PATIENCE)
        cut = producer.metrics().batches_cut
    assert offsets == list(range(len(values)))
    assert [record.value for record in consume(backend, topic_name, len(values))] == values
    assert 0 < cut < 100
    assert isinstance(error, RecordTooLargeError)
    assert f"max.message.bytes of topic {topic_name}" in (error.remedy or "")


@pytest.mark.parametrize("backend", MODERN, indirect=True)
def test_a_topic_that_is_created_again(backend: Backend, topic_name: str) -> None:
    with (
        Admin(backend.bootstrap) as admin,
        Producer(backend.bootstrap, linger_ms=1, batch_bytes=2_000, allow_auto_create_topics=False) as producer,
    ):
        admin.create_topics([NewTopic(topic_name, partitions=1, replication_factor=1)])
        for n in range(50):
            producer.send(topic_name, b"old %d" % n, partition=0).result(PATIENCE)
        between = [producer.send(topic_name, b"%05d" % n, partition=0) for n in range(1_000)]
        admin.delete_topics([topic_name])
        create_again(admin, topic_name)
        after = [producer.send(topic_name, b"%05d" % n, partition=0) for n in range(1_000, 2_000)]
        errors = [response.exception(PATIENCE) for response in [*between, *after]]
        last = after[-1].result(PATIENCE).offset
    assert errors == [None] * 2_000
    values = [record.value or b"" for record in consume(backend, topic_name, last + 1)]
    assert values == sorted(set(values)), "in order, once"
    assert values[-1_000:] == [b"%05d" % n for n in range(1_000, 2_000)]


def create_again(admin: Admin, topic: str) -> None:
    """Create a topic; retry while the broker has not completed the deletion."""
    for _ in range(600):
        try:
            admin.create_topics([NewTopic(topic, partitions=1, replication_factor=1)])
        except BrokerError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        else:
            return
    raise AssertionError("never created")
