"""Run kafka-python, all Python but for crc32c in C."""

from __future__ import annotations

from typing import Any

import kafka
from kafka.errors import KafkaTimeoutError

from bench.contestants.latencies import latencies
from bench.contestants.queued import queued
from bench.contestants.reports import Reports
from bench.meter import Meter
from bench.settings import KAFKA_PYTHON_CONSUMER, KAFKA_PYTHON_PRODUCER
from bench.task import Coordination, Sample, Task

VERSION: str = kafka.__version__


def _producer(task: Task, **options: Any) -> Any:
    codec = None if task.compression == "none" else task.compression
    own = {"bootstrap_servers": task.bootstrap.split(","), "compression_type": codec}
    return kafka.KafkaProducer(**(own | KAFKA_PYTHON_PRODUCER | options))


def produce(task: Task, _: Coordination) -> Sample:
    producer = _producer(task)
    _send(producer, task, task.warmup)
    with Meter() as meter:
        _send(producer, task, task.records)
    producer.close()
    return meter.sample(task.records, version=VERSION)


def _send(producer: Any, task: Task, count: int) -> None:
    topic, send, reports = task.topic, producer.send, Reports(count)
    delivered, failed = (lambda _: reports.delivered()), reports.failed
    for value, key in zip(task.values(count), task.key_list(count), strict=True):
        future = send(topic, value, key)
        future.add_callback(delivered)
        future.add_errback(failed)
    producer.flush()
    reports.wait()


def consume(task: Task, _: Coordination) -> Sample:
    def read(count: int) -> tuple[int, int]:
        seen = length = 0
        while seen < count:
            for records in consumer.poll(timeout_ms=1000, max_records=500).values():
                seen += len(records)
                for record in records:
                    length += len(record.value)
        return seen, length

    def assign(topic: str) -> None:
        consumer.assign([kafka.TopicPartition(topic, index) for index in range(task.partitions)])
        consumer.seek_to_beginning()

    consumer: Any = kafka.KafkaConsumer(bootstrap_servers=task.bootstrap.split(","), **KAFKA_PYTHON_CONSUMER)
    assign(task.warm_topic)
    read(task.warmup)
    with Meter() as meter:
        assign(task.topic)
        seen, length = read(task.records)
    consumer.close()
    task.check_read(seen, length)
    return meter.sample(task.records, version=VERSION)


def latency(task: Task, _: Coordination) -> Sample:
    producer = _producer(task, linger_ms=0)
    sample = latencies(task, lambda value: producer.send(task.topic, value).get(60), VERSION)
    producer.close()
    return sample


def memory(task: Task, coordination: Coordination) -> Sample:
    """Queue as many records as the other clients' buffers hold, because this client's queue has no limit."""
    producer = _producer(task, max_block_ms=1_000, delivery_timeout_ms=600_000)
    _send(producer, task, task.warmup)
    reports = Reports(-1)
    delivered, failed = (lambda _: reports.delivered()), reports.failed

    def send(value: bytes) -> bool:
        try:
            future = producer.send(task.topic, value)
        except KafkaTimeoutError:
            return False
        future.add_callback(delivered)
        future.add_errback(failed)
        return True

    return queued(task, coordination, send, producer.flush, reports, VERSION)
