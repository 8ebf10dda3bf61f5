"""Run kwire: one by one, in bulk, in columns. KWIRE_IMPL in the environment chooses the implementation."""

from __future__ import annotations

import gc
from typing import Any

import kwire
from bench.contestants.latencies import latencies
from bench.contestants.queued import queued
from bench.contestants.reports import Reports
from bench.meter import Meter
from bench.settings import KWIRE_PRODUCER
from bench.task import Coordination, Sample, Task
from kwire.errors import BufferFullError
from kwire.records import Compression
from kwire.wire.accel import IMPLEMENTATION

VERSION = f"{kwire.__version__} ({IMPLEMENTATION})"
BULK = 10_000


def _producer(task: Task, **options: Any) -> Any:
    return kwire.Producer(task.bootstrap, compression=Compression.of(task.compression), **(KWIRE_PRODUCER | options))


def produce(task: Task, _: Coordination) -> Sample:
    with _producer(task) as producer:
        _send(producer, task, task.warmup)
        with Meter() as meter:
            _send(producer, task, task.records)
    return meter.sample(task.records, version=VERSION)


def _send(producer: Any, task: Task, count: int) -> None:
    topic, send, reports = task.topic, producer.send, Reports(count)
    delivered = reports.delivered

    def on_delivery(response: kwire.ProduceResponse) -> None:
        error = response.exception()
        if error is not None:
            reports.failed(error)
        else:
            delivered()

    if task.keys:
        for value, key in zip(task.values(count), task.key_list(count), strict=True):
            send(topic, value, key, on_delivery=on_delivery)
    else:
        for value in task.values(count):
            send(topic, value, on_delivery=on_delivery)
    producer.flush()
    reports.wait()


def send_many(task: Task, _: Coordination) -> Sample:
    values, keys = task.values(task.records), task.key_list(task.records) if task.keys else None
    chunks = [
        (values[at : at + BULK], None if keys is None else keys[at : at + BULK]) for at in range(0, len(values), BULK)
    ]
    with _producer(task) as producer:
        producer.send_many(task.topic, task.values(task.warmup)).result()
        with Meter() as meter:
            responses = [producer.send_many(task.topic, chunk, keys=own) for chunk, own in chunks]
            producer.flush()
            for response in responses:
                response.result()
    return meter.sample(task.records, version=VERSION)


def send_arrow(task: Task, _: Coordination) -> Sample:
    import pyarrow

    def table(count: int) -> Any:
        columns = {"value": pyarrow.array(task.values(count), pyarrow.binary())}
        if task.keys:
            columns["key"] = pyarrow.array(task.key_list(count), pyarrow.binary())
        return pyarrow.table(columns)

    whole = table(task.records)
    with _producer(task) as producer:
        producer.send_arrow(task.topic, table(task.warmup)).result()
        with Meter() as meter:
            responses = [producer.send_arrow(task.topic, whole.slice(at, BULK)) for at in range(0, task.records, BULK)]
            producer.flush()
            for response in responses:
                response.result()
    return meter.sample(task.records, version=VERSION)


def consume(task: Task, _: Coordination) -> Sample:
    def read(consumer: Any, count: int) -> tuple[int, int]:
        seen = length = 0
        while seen < count:
            records = consumer.poll(500)
            seen += len(records)
            for record in records:
                length += len(record.value)
        return seen, length

    return _consume(task, read)


def iterate(task: Task, _: Coordination) -> Sample:
    def read(consumer: Any, count: int) -> tuple[int, int]:
        seen = length = 0
        for record in consumer:
            length += len(record.value)
            seen += 1
            if seen == count:
                break
        return seen, length

    return _consume(task, read)


def poll_batch(task: Task, _: Coordination) -> Sample:
    def read(consumer: Any, count: int) -> tuple[int, int]:
        seen = length = 0
        while seen < count:
            for columns in consumer.poll_batch().partitions():
                seen += len(columns)
                length += columns.values.data.nbytes
        return seen, length

    return _consume(task, read)


def poll_arrow(task: Task, _: Coordination) -> Sample:
    import pyarrow.compute

    def read(consumer: Any, count: int) -> tuple[int, int]:
        seen = length = 0
        while seen < count:
            batch = consumer.poll_arrow()
            seen += batch.num_rows
            length += pyarrow.compute.sum(pyarrow.compute.binary_length(batch["value"])).as_py() or 0
        return seen, length

    return _consume(task, read)


def _consume(task: Task, read: Any) -> Sample:
    with kwire.Consumer(task.bootstrap) as consumer:
        consumer.assign([(task.warm_topic, index, "earliest") for index in range(task.partitions)])
        read(consumer, task.warmup)
        with Meter() as meter:
            consumer.assign([(task.topic, index, "earliest") for index in range(task.partitions)])
            seen, length = read(consumer, task.records)
    task.check_read(seen, length)
    return meter.sample(task.records, version=VERSION)


def latency(task: Task, _: Coordination) -> Sample:
    with _producer(task, linger_ms=0) as producer:
        send, topic = producer.send, task.topic
        return latencies(task, lambda value: send(topic, value).result(60), VERSION)


def memory(task: Task, coordination: Coordination) -> Sample:
    bound = {} if task.options["fill"] else {"max_buffered_bytes": 1 << 40}
    with _producer(task, when_full="raise", delivery_timeout_ms=600_000, **bound) as producer:
        _send(producer, task, task.warmup)
        gc.collect()
        reports = Reports(-1)

        def on_delivery(response: kwire.ProduceResponse) -> None:
            reports.delivered() if response.exception() is None else reports.failed(response.exception())

        def send(value: bytes) -> bool:
            try:
                producer.send(task.topic, value, on_delivery=on_delivery)
            except BufferFullError:
                return False
            return True

        return queued(task, coordination, send, producer.flush, reports, VERSION)
