"""A client that was closed and is no longer used is freed, with its event loop, whatever the implementation."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

import kwire
from kwire.broker import Cluster
from kwire.queue import Service
from tests.waiting import wait_until

TOPIC = "orders"
TIMES = 3


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Cluster(1, topics={TOPIC: 2}) as cluster:
        with kwire.Producer(cluster.bootstrap) as producer:
            producer.send(TOPIC, b"x")
        yield cluster.bootstrap


def produce(bootstrap: str) -> None:
    with kwire.Producer(bootstrap) as producer:
        producer.send(TOPIC, b"x")
        producer.send_many(TOPIC, [b"x"] * 10)


def produce_with_callbacks(bootstrap: str) -> None:
    with kwire.Producer(bootstrap) as producer:
        producer.send(TOPIC, b"x", on_delivery=lambda future: producer)


def produce_what_nobody_takes(bootstrap: str) -> None:
    """Records are in builders and batches when the producer ends."""
    producer = kwire.Producer("127.0.0.1:1", linger_ms=10_000)
    producer.send(TOPIC, b"x", on_delivery=lambda future: producer)
    producer.send(TOPIC, b"x", partition=1, on_delivery=lambda future: producer)
    producer.close(timeout=0)


def produce_in_transactions(bootstrap: str) -> None:
    with kwire.Producer(bootstrap, transactional_id="writer") as producer, producer.transaction():
        producer.send(TOPIC, b"x")


def consume(bootstrap: str) -> None:
    with kwire.Consumer(bootstrap, group="readers") as consumer:
        consumer.subscribe([TOPIC])
        while not consumer.assignment():
            consumer.poll(timeout=0.1)
        consumer.commit()


def consume_in_batches(bootstrap: str) -> None:
    with kwire.Consumer(bootstrap) as consumer:
        consumer.assign([(TOPIC, 0, 0), (TOPIC, 1, 0)])
        assert consumer.poll_batch(timeout=10)


def share(bootstrap: str) -> None:
    with kwire.ShareConsumer(bootstrap, group="sharers") as consumer:
        consumer.subscribe([TOPIC])
        consumer.poll(timeout=0.1)


def administer(bootstrap: str) -> None:
    with kwire.Admin(bootstrap) as admin:
        assert admin.topics.list()


def use_a_cluster(bootstrap: str) -> None:
    with kwire.Cluster(bootstrap) as cluster:
        produce(cluster)  # type: ignore[arg-type]
        consume(cluster)  # type: ignore[arg-type]


def use_a_queue(bootstrap: str) -> None:
    with Service(bootstrap) as service:
        queue = service.queue("jobs")
        with queue.producer() as producer, queue.consumer() as consumer:
            producer.send(b"x")
            message = consumer.receive(timeout=10)
            assert message is not None
            message.ack()


def produce_in_asyncio(bootstrap: str) -> None:
    async def run() -> None:
        async with kwire.aio.Producer(bootstrap) as producer:
            await producer.send(TOPIC, b"x")

    asyncio.run(run())


def consume_in_asyncio(bootstrap: str) -> None:
    async def run() -> None:
        async with kwire.aio.Consumer(bootstrap, on_no_offset="earliest") as consumer:
            consumer.assign([(TOPIC, 0, 0), (TOPIC, 1, 0)])
            assert await consumer.poll(timeout=10)

    asyncio.run(run())


WAYS = [
    produce, produce_with_callbacks, produce_what_nobody_takes, produce_in_transactions,
    consume, consume_in_batches, share, administer, use_a_cluster, use_a_queue, produce_in_asyncio, consume_in_asyncio,
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("use", WAYS)
def test_a_closed_client_is_freed(bootstrap: str, use: Callable[[str], None]) -> None:
    use(bootstrap)
    before = clients()
    for _ in range(TIMES):
        use(bootstrap)

    def kept_each_time() -> dict[str, int]:
        # A client that another test left in this process may open a connection meanwhile.
        return {name: count for name, count in (clients() - before).items() if count >= TIMES}

    with suppress(AssertionError):
        wait_until(lambda: not kept_each_time(), 5)  # a thread may be about to end
    assert kept_each_time() == {}


def clients() -> Counter[str]:
    """Count the objects of clients that are in use, by their classes. Those of the test's broker do not count."""
    gc.collect()
    return Counter(
        f"{type(one).__module__}.{type(one).__name__}"
        for one in gc.get_objects()
        if str(type(one).__module__).startswith(("kwire.producer", "kwire.consumer", "kwire.cluster", "kwire.queue"))
    )
