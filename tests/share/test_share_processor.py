"""`ShareConsumer.process` on the embedded cluster."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import kwire
from kwire.broker import Cluster
from kwire.errors import ConfigurationError
from kwire.share import ShareConsumer, ShareRecord
from tests.waiting import PATIENCE_SECONDS, wait_until

COUNT = 200


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=1, topics={"orders": 2}) as running:
        running.alter_group("g", {"share.auto.offset.reset": "earliest"})
        with kwire.Producer(running.bootstrap) as producer:
            for number in range(COUNT):
                producer.send("orders", str(number), partition=number % 2)
        yield running


def consumer_of(cluster: Cluster, **options: Any) -> ShareConsumer:
    consumer = ShareConsumer(cluster.bootstrap, group="g", **options)
    consumer.subscribe(["orders"])
    return consumer


def lag(cluster: Cluster) -> int:
    with kwire.Admin(cluster.bootstrap) as admin:
        return admin.groups.lag("g").total


def test_every_record_is_processed_once_and_accepted(cluster: Cluster) -> None:
    seen: Counter[tuple[int, int]] = Counter()
    lock = threading.Lock()

    def work(record: ShareRecord) -> None:
        with lock:
            seen[record.partition, record.offset] += 1

    processor = consumer_of(cluster).process(work, concurrency=8)
    thread = threading.Thread(target=processor.run)
    thread.start()
    wait_until(lambda: processor.metrics().processed == COUNT)
    processor.stop()
    thread.join(PATIENCE_SECONDS)
    assert len(seen) == COUNT
    assert set(seen.values()) == {1}
    assert lag(cluster) == 0


def test_a_call_that_fails_gives_its_record_to_the_group_again(cluster: Cluster) -> None:
    deliveries: dict[int, list[int]] = {}
    lock = threading.Lock()

    def work(record: ShareRecord) -> None:
        if record.partition == 0 and record.offset in (3, 7):
            with lock:
                deliveries.setdefault(record.offset, []).append(record.delivery_count)
            if record.offset == 7 or record.delivery_count < 3:
                raise ValueError("not yet")

    processor = consumer_of(cluster).process(work, concurrency=4, retries=2)
    thread = threading.Thread(target=processor.run)
    thread.start()
    wait_until(lambda: processor.metrics().dead == 1 and processor.metrics().processed == COUNT - 1)
    processor.stop()
    thread.join(PATIENCE_SECONDS)
    assert deliveries == {3: [1, 2, 3], 7: [1, 2, 3]}
    assert lag(cluster) == 0, "the rejected record is done with"


def test_what_did_not_end_is_delivered_again(cluster: Cluster) -> None:
    started, release = threading.Event(), threading.Event()
    again: list[int] = []

    def stick(record: ShareRecord) -> None:
        started.set()
        release.wait(PATIENCE_SECONDS)

    first = consumer_of(cluster).process(stick, concurrency=2)
    thread = threading.Thread(target=first.run)
    thread.start()
    assert started.wait(PATIENCE_SECONDS)
    first.stop(drain=0)
    thread.join(PATIENCE_SECONDS)
    second = consumer_of(cluster).process(lambda record: again.append(record.offset), concurrency=2)
    thread = threading.Thread(target=second.run)
    thread.start()
    wait_until(lambda: len(again) == COUNT)
    release.set()
    second.stop()
    thread.join(PATIENCE_SECONDS)


def test_the_share_processor_of_asyncio(cluster: Cluster) -> None:
    async def main() -> int:
        seen: list[int] = []

        async def work(record: ShareRecord) -> None:
            await asyncio.sleep(0)
            seen.append(record.offset)
            if len(seen) == COUNT:
                processor.stop()

        async with kwire.aio.ShareConsumer(cluster.bootstrap, group="g") as consumer:
            await consumer.subscribe(["orders"])
            processor = consumer.process(work, concurrency=20)
            await processor.run()
        return len(seen)

    assert asyncio.run(main()) == COUNT
    assert lag(cluster) == 0


def test_a_consumer_that_accepts_by_itself_is_refused(cluster: Cluster) -> None:
    with (
        consumer_of(cluster, acknowledgement_mode="implicit") as consumer,
        pytest.raises(ConfigurationError, match="implicit"),
    ):
        consumer.process(print)
    with consumer_of(cluster) as consumer:
        consumer.process(print)
        with pytest.raises(ConfigurationError, match="has a processor"):
            consumer.process(print)
