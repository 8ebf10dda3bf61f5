"""Run consumers and producers of queues with a tracker, and plain ones that do the same without marks."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

import kwire
import kwire.aio.queue
from bench.contestants.kwire_client import VERSION
from bench.meter import Meter, resident_bytes
from bench.task import Coordination, Sample, Task
from kwire.queue import Service
from kwire.queue.envelope import Envelope
from kwire.queue.markers import Identity, Marker, MarkerType, decode_marker, encode_marker
from kwire.queue.tracker_state import TrackerState

# The first key of a task: the stand fills topics with messages of this queue.
_QUEUE = "key-00000000"
_PACE_S = 0.005
_WORKERS = 4
_BATCH = 500  # records of a poll, messages of a receive_many
_PATIENCE_S = 60.0
_JOIN_S = 3.0  # until a new member of a group certainly has its partitions


def _options(task: Task, **more: Any) -> dict[str, Any]:
    """Return the options of a service: its topics have one replica, which only a bench can bear."""
    return {
        "message_topic": task.topic, "marker_topic": f"{task.topic}-markers", "dead_letter_topic": "",
        "partitions": task.partitions, "check_topics": False, **more,
    }  # fmt: skip


class _Count:
    """Count messages from any thread. The clock starts after the warm-up; `stop` runs after the last."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._lock = threading.Lock()
        self._seen = self._length = 0
        self._meter = Meter()
        self.stop: Callable[[], object] = lambda: None

    def add(self, payload: bytes) -> None:
        with self._lock:
            if self._seen == self._task.warmup:
                self._meter.__enter__()
            self._seen += 1
            if self._seen > self._task.warmup:
                self._length += len(payload)
            is_last = self._seen == self._task.warmup + self._task.records
        if is_last:
            self._meter.__exit__()
            self.stop()

    @property
    def is_full(self) -> bool:
        return self._seen >= self._task.warmup + self._task.records

    def sample(self) -> Sample:
        self._task.check_read(self._seen - self._task.warmup, self._length)
        return self._meter.sample(self._task.records, version=VERSION)


# -- consumers


def _await_senders(task: Task, coordination: Coordination, receive: Callable[[float], object]) -> None:
    """With senders beside it, join the group before they begin."""
    if "senders" in task.options:
        receive(_JOIN_S)
        coordination.say("joined")


def plain_poll(task: Task, coordination: Coordination) -> Sample:
    count = _Count(task)
    with kwire.Consumer(task.bootstrap, group=f"{task.topic}-plain") as consumer:
        consumer.subscribe([task.topic])
        _await_senders(task, coordination, lambda seconds: consumer.poll(1, seconds))
        while not count.is_full:
            records = consumer.poll(_BATCH, _PATIENCE_S)
            if not records:
                raise RuntimeError(f"no record for {_PATIENCE_S:.0f} s")
            for record in records:
                count.add(record.value or b"")
    return count.sample()


def plain_commit(task: Task, _: Coordination) -> Sample:
    """Read batches, process each record, and commit after each batch: no record is committed before it is processed."""
    count = _Count(task)
    with kwire.Consumer(task.bootstrap, group=f"{task.topic}-plain", commit="manual") as consumer:
        consumer.subscribe([task.topic])
        while not count.is_full:
            records = consumer.poll(_BATCH)
            for record in records:
                count.add(record.value or b"")
            if records:
                consumer.commit()
    return count.sample()


def plain_next(task: Task, _: Coordination) -> Sample:
    """Do the same record by record, as kmq's benchmark does with its plain consumer."""
    count = _Count(task)
    with kwire.Consumer(task.bootstrap, group=f"{task.topic}-plain", commit="manual") as consumer:
        consumer.subscribe([task.topic])
        for number, record in enumerate(consumer, 1):
            count.add(record.value or b"")
            if number % _BATCH == 0 or count.is_full:
                consumer.commit()
            if count.is_full:
                break
    return count.sample()


def _plain_process(task: Task, work: Callable[[], object], workers: int) -> Sample:
    count = _Count(task)

    def function(record: Any) -> None:
        work()
        count.add(record.value)

    consumer = kwire.Consumer(task.bootstrap, group=f"{task.topic}-plain")
    consumer.subscribe([task.topic])
    processor = consumer.process(function, concurrency=workers)
    count.stop = processor.stop
    processor.run()
    return count.sample()


def plain_process(task: Task, _: Coordination) -> Sample:
    return _plain_process(task, lambda: None, _WORKERS)


def plain_work(task: Task, _: Coordination) -> Sample:
    return _plain_process(task, lambda: time.sleep(task.options["work_s"]), task.options["workers"])


def _receive(task: Task, coordination: Coordination, service: Service) -> Sample:
    count = _Count(task)
    with service, service.queue(_QUEUE).consumer() as consumer:
        _await_senders(task, coordination, consumer.receive)
        while not count.is_full:
            message = consumer.receive(_PATIENCE_S)
            if message is None:
                raise RuntimeError(f"no message for {_PATIENCE_S:.0f} s")
            count.add(message.payload or b"")
            message.ack()
    return count.sample()


def receive(task: Task, coordination: Coordination) -> Sample:
    return _receive(task, coordination, Service(task.bootstrap, **_options(task)))


def receive_many(task: Task, coordination: Coordination) -> Sample:
    count = _Count(task)
    with Service(task.bootstrap, **_options(task)) as service, service.queue(_QUEUE).consumer() as consumer:
        _await_senders(task, coordination, consumer.receive)
        while not count.is_full:
            messages = consumer.receive_many(_BATCH, _PATIENCE_S)
            if not messages:
                raise RuntimeError(f"no message for {_PATIENCE_S:.0f} s")
            for message in messages:
                count.add(message.payload or b"")
            consumer.ack_many(messages)
    return count.sample()


def transactional(task: Task, coordination: Coordination) -> Sample:
    return _receive(task, coordination, Service(task.bootstrap, **_options(task, transactional=True)))


def _handle(task: Task, work: Callable[[], object], workers: int) -> Sample:
    count = _Count(task)

    def function(message: Any) -> None:
        work()
        count.add(message.payload)

    with Service(task.bootstrap, **_options(task)) as service:
        consumer = service.queue(_QUEUE).consumer()
        count.stop = consumer.stop
        consumer.handle(function, workers)
        return count.sample()


def handle(task: Task, _: Coordination) -> Sample:
    return _handle(task, lambda: None, _WORKERS)


def handle_work(task: Task, _: Coordination) -> Sample:
    return _handle(task, lambda: time.sleep(task.options["work_s"]), task.options["workers"])


def aio_receive(task: Task, _: Coordination) -> Sample:
    async def run() -> Sample:
        count = _Count(task)
        async with (
            kwire.aio.queue.Service(task.bootstrap, **_options(task)) as service,
            service.queue(_QUEUE).consumer() as consumer,
        ):
            while not count.is_full:
                message = await consumer.receive(_PATIENCE_S)
                if message is None:
                    raise RuntimeError(f"no message for {_PATIENCE_S:.0f} s")
                count.add(message.payload or b"")
                await message.ack()
        return count.sample()

    return asyncio.run(run())


def shared(task: Task, coordination: Coordination) -> Sample:
    """Read the topic of the stand by the backend of share groups, without the set-up of a queue's own topic."""
    from kwire.queue.backend import QueuePlace
    from kwire.queue.metrics import ConsumerCounters
    from kwire.queue.share_backend import ShareBackend

    class ServiceOfTheStand(Service):
        async def new_backend(self, queue: str, counters: ConsumerCounters) -> ShareBackend:
            return ShareBackend(self, queue, QueuePlace(task.topic, task.partitions, 1_000_000, 0), counters)

    own: dict[str, Any] = {"backend": "share", "message_topic": task.topic, "max_deliveries": 4}
    return _receive(task, coordination, ServiceOfTheStand(task.bootstrap, **own))


# -- producers


def plain_send(task: Task, _: Coordination) -> Sample:
    values = task.values(task.records)
    with kwire.Producer(task.bootstrap) as producer:
        producer.send(task.topic, values[0]).result(_PATIENCE_S)
        with Meter() as meter:
            for value in values:
                producer.send(task.topic, value, b"queue")
            producer.flush()
    return meter.sample(task.records, version=VERSION)


def _names(task: Task) -> list[str]:
    return [f"queue-{number}" for number in range(task.options.get("queues", 1))]


def send(task: Task, _: Coordination) -> Sample:
    values, names = task.values(task.records), _names(task)
    with Service(task.bootstrap, **_options(task)) as service:
        producers = [service.queue(name).producer() for name in names]
        producers[0].send(values[0]).result(_PATIENCE_S)
        with Meter() as meter:
            for number, value in enumerate(values):
                producers[number % len(producers)].send(value)
            producers[0].flush()
    return meter.sample(task.records, version=VERSION)


def send_many(task: Task, _: Coordination) -> Sample:
    values = task.values(task.records)
    with Service(task.bootstrap, **_options(task)) as service:
        producer = service.queue(_QUEUE).producer()
        producer.send(values[0]).result(_PATIENCE_S)
        with Meter() as meter:
            for start in range(0, len(values), 1_000):
                producer.send_many(values[start : start + 1_000])
            producer.flush()
    return meter.sample(task.records, version=VERSION)


def aio_send(task: Task, _: Coordination) -> Sample:
    async def run() -> Sample:
        values = task.values(task.records)
        async with kwire.aio.queue.Service(task.bootstrap, **_options(task)) as service:
            producer = service.queue(_QUEUE).producer()
            await (await producer.send(values[0]))
            with Meter() as meter:
                for value in values:
                    await producer.send(value)
                await producer.flush()
        return meter.sample(task.records, version=VERSION)

    return asyncio.run(run())


# -- latency


def _paced(task: Task, send: Callable[[bytes], object]) -> threading.Thread:
    def run() -> None:
        for _ in range(task.warmup // 100 + task.records):
            time.sleep(_PACE_S)
            send(b"%d" % time.perf_counter_ns())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def _latencies(task: Task, found: list[float]) -> Sample:
    some = sorted(found[task.warmup // 100 :])
    measures = {f"p{percent}_ms": some[min(len(some) - 1, len(some) * percent // 100)] for percent in (50, 95, 99)}
    return Sample(len(some), 1.0, 1.0, measures, VERSION)


def _since(payload: bytes | None) -> float:
    return (time.perf_counter_ns() - int(payload or b"0")) / 1e6


def plain_latency(task: Task, _: Coordination) -> Sample:
    found: list[float] = []
    with (
        kwire.Producer(task.bootstrap, linger_ms=0) as producer,
        kwire.Consumer(task.bootstrap, group=f"{task.topic}-plain") as consumer,
    ):
        consumer.subscribe([task.topic])
        consumer.poll(1, 3.0)
        thread = _paced(task, lambda value: producer.send(task.topic, value))
        while len(found) < task.warmup // 100 + task.records:
            found += [_since(record.value) for record in consumer.poll(500, 5.0)]
        thread.join()
    return _latencies(task, found)


def latency(task: Task, _: Coordination) -> Sample:
    found: list[float] = []
    with Service(task.bootstrap, **_options(task)) as service, service.tracker():
        producer, consumer = service.queue(_QUEUE).producer(), service.queue(_QUEUE).consumer()
        consumer.receive(3.0)
        thread = _paced(task, producer.send)
        while len(found) < task.warmup // 100 + task.records:
            message = consumer.receive(5.0)
            if message is not None:
                found.append(_since(message.payload))
                message.ack()
        thread.join()
    return _latencies(task, found)


# -- memory


def memory(task: Task, _: Coordination) -> Sample:
    """Put messages into the state of a tracker's partition; the CPU time is that of a START, decoded and applied."""
    state = TrackerState()
    state.begin(0)
    state.apply(0, 1, None, 0.0)
    topic_id, values = UUID(int=1 << 100), task.values(task.records)
    headers = Envelope("0" * 32, first_at=1_700_000_000_000).headers()
    starts = (
        encode_marker(
            Marker(MarkerType.START, Identity(topic_id, number % 4, number), 60_000, b"queue", value, headers)
        )
        for number, value in enumerate(values)
    )
    gc.collect()
    before = resident_bytes()
    with Meter() as meter:
        for number, data in enumerate(starts, 1):
            state.apply(number, 1_700_000_000_000 + number // 20, decode_marker(data), 0.0, data)
    gc.collect()
    per_message = (resident_bytes() - before) / task.records - task.size
    return meter.sample(task.records, measures={"bytes": per_message}, version=VERSION)
