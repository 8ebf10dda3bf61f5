"""A correct program of a user: type checkers must find no error, and infer the asserted types.

It is checked, not run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import assert_type

import kwire
from kwire.broker import Cluster
from kwire.producer.options import ProducerKwargs

COMMON: ProducerKwargs = {"linger_ms": 20, "compression": "lz4", "acks": "all"}


def send(bootstrap: str) -> None:
    with kwire.Producer(bootstrap, **COMMON) as producer:
        response = producer.send("orders", b"value", key="key", headers={"trace": b"1"})
        assert_type(response, kwire.ProduceResponse)
        assert_type(response.result(timeout=1.0), kwire.RecordMetadata)
        assert_type(response.result().offset, int)
        producer.send("orders", None, on_delivery=delivered)
    kwire.Producer([bootstrap], partitioner="crc32+sticky", tls=True, sasl=kwire.Sasl("PLAIN", "user", "secret"))


def share(bootstrap: str) -> None:
    with kwire.Cluster(bootstrap, client_id="shop") as cluster, kwire.Producer(cluster, linger_ms=5) as producer:
        producer.send("orders", b"value")
        kwire.Consumer(cluster)
        kwire.Admin(cluster, request_timeout_ms=1_000)
        kwire.aio.Producer(cluster)


def delivered(response: kwire.ProduceResponse) -> None:
    assert_type(response.exception(0), kwire.KwireError | None)


def read(bootstrap: str) -> list[bytes | None]:
    with kwire.Consumer(bootstrap, isolation="read_committed", max_wait_ms=100) as consumer:
        consumer.assign([("orders", 0, "earliest"), ("orders", 1, 5), ("orders", 2, kwire.AtTimestamp(0))])
        records = consumer.poll(timeout=1.0)
        assert_type(records, list[kwire.ConsumerRecord])
        for record in consumer:
            assert_type(record, kwire.ConsumerRecord)
        return [value_of(record) for record in records]


def value_of(record: kwire.ConsumerRecord) -> bytes | None:
    assert_type(record.offset, int)
    assert_type(record.headers, tuple[tuple[str, bytes | None], ...])
    assert_type(record.value, bytes | None)
    return record.value


async def given_back(partitions: Sequence[kwire.TopicPartition]) -> None:
    assert partitions


def process(bootstrap: str) -> None:
    with (
        kwire.Consumer(bootstrap, group="billing", commit="manual", group_protocol="consumer") as consumer,
        kwire.Producer(bootstrap, transactional_id="billing-1") as producer,
    ):
        consumer.subscribe(re.compile(r"orders-\d+"), on_assigned=print)
        batch = consumer.poll_batch(timeout=1.0)
        assert_type(batch.commit(), None)
        for record in consumer:
            consumer.commit(record)
            consumer.commit({(record.topic, record.partition): record.offset + 1})
        producer.send_offsets(batch, group=consumer)


async def read_from_a_task(bootstrap: str) -> None:
    async with kwire.aio.Consumer(bootstrap, max_wait_ms=100) as consumer:
        consumer.assign([("orders", 0, "earliest")])
        assert_type(await consumer.poll(timeout=1.0), list[kwire.ConsumerRecord])
        assert_type(await consumer.position("orders", 0), int)
        await consumer.subscribe(["orders"], on_revoked=given_back)
        batch = await consumer.poll_batch(100)
        await batch.commit()
        assert_type(await consumer.lag(), dict[kwire.TopicPartition, kwire.consumer.Lag])
        assert_type(await consumer.committed(), dict[kwire.TopicPartition, kwire.Offset | None])
        async for record in consumer:
            assert_type(record, kwire.ConsumerRecord)


async def send_from_a_task(bootstrap: str) -> int:
    async with kwire.aio.Producer(bootstrap, linger_ms=0) as producer:
        response = await producer.send("orders", b"value")
        assert_type(await response, kwire.RecordMetadata)
        return (await producer.send_and_wait("orders", b"value")).partition


def administer(bootstrap: str) -> None:
    with kwire.Admin(bootstrap, client_id="setup") as admin:
        try:
            admin.create_topics([kwire.NewTopic("orders", partitions=3)])
        except kwire.TopicError as error:
            assert_type(error.code, int)
        except kwire.errors.KwireError as error:
            assert_type(error.remedy, str | None)
    assert kwire.implementation() in ("c", "python")


def embedded() -> None:
    with Cluster(brokers=3, topics={"orders": 3}) as cluster:
        send(cluster.bootstrap)
