"""Run confluent-kafka, Confluent's binding of librdkafka."""

from __future__ import annotations

from typing import Any

import confluent_kafka

from bench.contestants.latencies import latencies
from bench.contestants.queued import queued
from bench.contestants.reports import Reports
from bench.meter import Meter
from bench.settings import CONFLUENT_CONSUMER, CONFLUENT_PRODUCER
from bench.task import Coordination, Sample, Task

VERSION = f"{confluent_kafka.__version__} (librdkafka {confluent_kafka.libversion()[0]})"
POLL_EVERY = 1_000
BULK = 10_000


def _producer(task: Task, **options: Any) -> Any:
    own = {"bootstrap.servers": task.bootstrap, "compression.type": task.compression}
    return confluent_kafka.Producer(own | CONFLUENT_PRODUCER | options)


def _counting(reports: Reports) -> Any:
    delivered = reports.delivered

    def on_delivery(error: Any, _: Any) -> None:
        if error is not None:
            reports.failed(error)
        else:
            delivered()

    return on_delivery


def produce(task: Task, _: Coordination) -> Sample:
    producer = _producer(task)
    _send(producer, task, task.warmup)
    with Meter() as meter:
        _send(producer, task, task.records)
    return meter.sample(task.records, version=VERSION)


def produce_unreported(task: Task, _: Coordination) -> Sample:
    """Produce with reports of failures only; the broker's count shows whether all records arrived."""
    producer = _producer(task, **{"delivery.report.only.error": True})
    _hand_over(producer, task, task.warmup, {})
    with Meter() as meter:
        _hand_over(producer, task, task.records, {})
    return meter.sample(task.records, version=VERSION)


def _send(producer: Any, task: Task, count: int) -> None:
    reports = Reports(count)
    _hand_over(producer, task, count, {"on_delivery": _counting(reports)})
    reports.check()


def _hand_over(producer: Any, task: Task, count: int, asked: dict[str, Any]) -> None:
    topic, send = task.topic, producer.produce
    values, keys = task.values(count), task.key_list(count)
    for at in range(0, count, POLL_EVERY):
        chunk = zip(values[at : at + POLL_EVERY], keys[at : at + POLL_EVERY], strict=True)
        for value, key in chunk:
            while True:
                try:
                    send(topic, value, key, **asked)
                except BufferError:
                    producer.poll(0.01)
                else:
                    break
        producer.poll(0)
    producer.flush()


def produce_batch(task: Task, _: Coordination) -> Sample:
    """Produce prepared dicts without reports, which saves work; the broker's count shows whether all arrived."""
    producer = _producer(task)
    _send(producer, task, task.warmup)
    keys = task.key_list(task.records)
    messages = [{"value": value, "key": key} for value, key in zip(task.values(task.records), keys, strict=True)]
    chunks = [messages[at : at + BULK] for at in range(0, task.records, BULK)]
    with Meter() as meter:
        for chunk in chunks:
            while chunk:
                taken = producer.produce_batch(task.topic, chunk)
                # A record that did not fit is marked with its error and must be sent again.
                chunk = [] if taken == len(chunk) else [one for one in chunk if one.pop("_error", None) is not None]
                producer.poll(0.01 if chunk else 0)
        producer.flush()
    return meter.sample(task.records, version=VERSION)


def consume(task: Task, _: Coordination) -> Sample:
    def read(consumer: Any, count: int) -> tuple[int, int]:
        seen = length = 0
        while seen < count:
            messages = consumer.consume(500, 1.0)
            seen += len(messages)
            for message in messages:
                length += len(message.value())
        return seen, length

    return _consume(task, read)


def poll(task: Task, _: Coordination) -> Sample:
    def read(consumer: Any, count: int) -> tuple[int, int]:
        seen = length = 0
        poll = consumer.poll
        while seen < count:
            message = poll(1.0)
            if message is not None:
                seen += 1
                length += len(message.value())
        return seen, length

    return _consume(task, read)


def _consume(task: Task, read: Any) -> Sample:
    def partitions(topic: str) -> list[Any]:
        first = confluent_kafka.OFFSET_BEGINNING
        return [confluent_kafka.TopicPartition(topic, index, first) for index in range(task.partitions)]

    consumer: Any = confluent_kafka.Consumer({"bootstrap.servers": task.bootstrap} | CONFLUENT_CONSUMER)
    consumer.assign(partitions(task.warm_topic))
    read(consumer, task.warmup)
    with Meter() as meter:
        consumer.assign(partitions(task.topic))
        seen, length = read(consumer, task.records)
    consumer.close()
    task.check_read(seen, length)
    return meter.sample(task.records, version=VERSION)


def latency(task: Task, _: Coordination) -> Sample:
    producer = _producer(task, **{"linger.ms": 0})

    def send(value: bytes) -> None:
        reports = Reports(1)
        producer.produce(task.topic, value, on_delivery=_counting(reports))
        producer.flush()
        reports.check()

    return latencies(task, send, VERSION)


def memory(task: Task, coordination: Coordination) -> Sample:
    limits: dict[str, Any] = {"message.timeout.ms": 600_000, "queue.buffering.max.messages": 100_000}
    if not task.options["fill"]:
        limits |= {"queue.buffering.max.messages": 10_000_000, "queue.buffering.max.kbytes": 2_097_151}
    producer = _producer(task, **limits)
    _send(producer, task, task.warmup)
    reports = Reports(-1)
    on_delivery, topic = _counting(reports), task.topic

    def send(value: bytes) -> bool:
        try:
            producer.produce(topic, value, on_delivery=on_delivery)
        except BufferError:
            return False
        return True

    return queued(task, coordination, send, producer.flush, reports, VERSION)
