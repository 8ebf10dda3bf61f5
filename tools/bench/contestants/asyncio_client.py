"""Run aiokafka on asyncio, with its C extension for records."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import aiokafka

from bench.contestants.latencies import Spinning, percentiles
from bench.contestants.reports import Reports
from bench.meter import Meter
from bench.settings import AIOKAFKA_CONSUMER, AIOKAFKA_PRODUCER
from bench.task import Coordination, Sample, Task

VERSION: str = aiokafka.__version__


def _producer(task: Task, **options: Any) -> Any:
    codec = None if task.compression == "none" else task.compression
    own = {"bootstrap_servers": task.bootstrap, "compression_type": codec}
    return aiokafka.AIOKafkaProducer(**(own | AIOKAFKA_PRODUCER | options))


def produce(task: Task, _: Coordination) -> Sample:
    async def run() -> Sample:
        async with _producer(task) as producer:
            await _send(producer, task, task.warmup)
            with Meter() as meter:
                await _send(producer, task, task.records)
        return meter.sample(task.records, version=VERSION)

    return asyncio.run(run())


async def _send(producer: Any, task: Task, count: int) -> None:
    topic, send, reports = task.topic, producer.send, Reports(count)

    def on_delivery(future: asyncio.Future[Any]) -> None:
        error = future.exception()
        if error is not None:
            reports.failed(error)
        else:
            reports.delivered()

    for value, key in zip(task.values(count), task.key_list(count), strict=True):
        future = await send(topic, value, key)
        future.add_done_callback(on_delivery)
    await producer.flush()
    await asyncio.sleep(0)  # the last callbacks
    reports.check()


def send_batch(task: Task, _: Coordination) -> Sample:
    """Send batches of one partition that the caller fills and assigns; keys do not choose the partition."""

    async def send(producer: Any, count: int) -> None:
        batch, turn, futures = producer.create_batch(), 0, []
        for value, key in zip(task.values(count), task.key_list(count), strict=True):
            if batch.append(key=key, value=value, timestamp=None) is None:
                futures.append(await producer.send_batch(batch, task.topic, partition=turn % task.partitions))
                batch, turn = producer.create_batch(), turn + 1
                batch.append(key=key, value=value, timestamp=None)
        futures.append(await producer.send_batch(batch, task.topic, partition=turn % task.partitions))
        await asyncio.gather(*futures)

    async def run() -> Sample:
        async with _producer(task) as producer:
            await send(producer, task.warmup)
            with Meter() as meter:
                await send(producer, task.records)
        return meter.sample(task.records, version=VERSION)

    return asyncio.run(run())


def consume(task: Task, _: Coordination) -> Sample:
    async def read(consumer: Any, count: int) -> tuple[int, int]:
        seen = length = 0
        while seen < count:
            for records in (await consumer.getmany(timeout_ms=1000, max_records=500)).values():
                seen += len(records)
                for record in records:
                    length += len(record.value)
        return seen, length

    async def assign(consumer: Any, topic: str) -> None:
        consumer.assign([aiokafka.TopicPartition(topic, index) for index in range(task.partitions)])
        await consumer.seek_to_beginning()

    async def run() -> Sample:
        async with aiokafka.AIOKafkaConsumer(bootstrap_servers=task.bootstrap, **AIOKAFKA_CONSUMER) as consumer:
            await assign(consumer, task.warm_topic)
            await read(consumer, task.warmup)
            with Meter() as meter:
                await assign(consumer, task.topic)
                seen, length = await read(consumer, task.records)
        task.check_read(seen, length)
        return meter.sample(task.records, version=VERSION)

    return asyncio.run(run())


def latency(task: Task, _: Coordination) -> Sample:
    async def run() -> Sample:
        seconds: list[float] = []
        values = task.values(task.warmup + task.records)
        async with _producer(task, linger_ms=0) as producer:
            for value in values[: task.warmup]:
                await producer.send_and_wait(task.topic, value)
            with Meter() as meter, Spinning(task.options["spinning"]):
                for value in values[task.warmup :]:
                    start = time.perf_counter()
                    await producer.send_and_wait(task.topic, value)
                    seconds.append(time.perf_counter() - start)
                    await asyncio.sleep(task.options["pause_s"])
        return meter.sample(task.records, measures=percentiles(seconds), version=VERSION)

    return asyncio.run(run())
