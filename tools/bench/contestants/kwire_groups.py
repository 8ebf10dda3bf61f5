"""Run kwire's consumers as members of groups, share groups and parallel processors."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import kwire
import kwire.aio
from bench.contestants.idling import idle
from bench.contestants.kwire_client import VERSION
from bench.contestants.storm import Ownership, storm
from bench.meter import Meter
from bench.task import Coordination, Sample, Task

Read = Callable[[Any, int], tuple[int, int]]


def _options(task: Task) -> dict[str, Any]:
    return {"group": task.options["group"], "group_protocol": task.options["protocol"]}


# -- subscribed consumers


def _poll(consumer: Any, count: int) -> tuple[int, int]:
    seen = length = 0
    while seen < count:
        records = consumer.poll(500)
        seen += len(records)
        for record in records:
            length += len(record.value)
    return seen, length


def _iterate(consumer: Any, count: int) -> tuple[int, int]:
    seen = length = 0
    for record in consumer:
        length += len(record.value)
        seen += 1
        if seen == count:
            break
    return seen, length


def _subscribed(task: Task, read: Read, **options: Any) -> Sample:
    """Read a topic to its end, in a group. The clock starts at the first record: the rebalance is not counted."""
    with kwire.Consumer(task.bootstrap, **(_options(task) | options)) as consumer:
        consumer.subscribe([task.warm_topic])
        read(consumer, task.warmup)
        consumer.subscribe([task.topic])
        return _to_the_end(task, consumer, read)


def _to_the_end(task: Task, consumer: Any, read: Read) -> Sample:
    first: list[Any] = []
    while not first:
        first = consumer.poll(1)
    with Meter() as meter:
        seen, length = read(consumer, task.records - 1)
    task.check_read(seen + 1, length + len(first[0].value))
    return meter.sample(task.records, version=VERSION)


def assigned(task: Task, _: Coordination) -> Sample:
    with kwire.Consumer(task.bootstrap) as consumer:
        consumer.assign([(task.warm_topic, index, "earliest") for index in range(task.partitions)])
        _poll(consumer, task.warmup)
        consumer.assign([(task.topic, index, "earliest") for index in range(task.partitions)])
        return _to_the_end(task, consumer, _poll)


def subscribed(task: Task, _: Coordination) -> Sample:
    return _subscribed(task, _poll)


def iterated(task: Task, _: Coordination) -> Sample:
    return _subscribed(task, _iterate)


def aio_iterated(task: Task, _: Coordination) -> Sample:
    async def read(consumer: Any, count: int) -> tuple[int, int]:
        seen = length = 0
        async for record in consumer:
            length += len(record.value)
            seen += 1
            if seen == count:
                break
        return seen, length

    async def run() -> Sample:
        async with kwire.aio.Consumer(task.bootstrap, **_options(task)) as consumer:
            await consumer.subscribe([task.warm_topic])
            await read(consumer, task.warmup)
            await consumer.subscribe([task.topic])
            first: list[Any] = []
            while not first:
                first = await consumer.poll(1)
            with Meter() as meter:
                seen, length = await read(consumer, task.records - 1)
        task.check_read(seen + 1, length + len(first[0].value))
        return meter.sample(task.records, version=VERSION)

    return asyncio.run(run())


# -- rebalances


class _Member:
    def __init__(self, consumer: Any, task: Task, number: int, ownership: Ownership) -> None:
        self._consumer = consumer
        consumer.subscribe(
            [task.topic],
            on_assigned=lambda partitions: ownership.assigned(number, [index for _, index in partitions]),
            on_revoked=lambda partitions: ownership.revoked(number, [index for _, index in partitions]),
        )

    def poll(self) -> Iterable[int]:
        return [record.partition for record in self._consumer.poll(500, 0.1)]

    def close(self) -> object:
        return self._consumer.close()


def rebalance(task: Task, _: Coordination) -> Sample:
    def make(number: int, ownership: Ownership) -> _Member:
        consumer = kwire.Consumer(task.bootstrap, commit="manual", **_options(task))
        return _Member(consumer, task, number, ownership)

    return storm(task, make, VERSION)


def rebalance_together(task: Task, _: Coordination) -> Sample:
    """Let all members use the event loop and thread of one `kwire.Cluster`."""
    with kwire.Cluster(task.bootstrap) as cluster:

        def make(number: int, ownership: Ownership) -> _Member:
            return _Member(kwire.Consumer(cluster, commit="manual", **_options(task)), task, number, ownership)

        return storm(task, make, VERSION)


# -- parallel processing


class _Count:
    """Count calls; `processor.stop` runs after the last. The clock starts with the first."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._lock = threading.Lock()
        self._count = 0
        self._meter = Meter()
        self.stop: Callable[[], object] = lambda: None

    def begun(self) -> None:
        if self._count == 0:
            self._meter.__enter__()

    def ended(self) -> None:
        with self._lock:
            self._count += 1
            is_last = self._count == self._wanted
        if is_last:
            self._meter.__exit__()
            self.stop()

    def sample(self) -> Sample:
        if self._count != self._wanted:
            raise RuntimeError(f"{self._count} calls for {self._wanted} records")
        return self._meter.sample(self._wanted, version=VERSION)


def _process(task: Task, function: Callable[[Any], Any], count: _Count) -> Sample:
    consumer = kwire.Consumer(task.bootstrap, **_options(task))
    consumer.subscribe([task.topic])
    processor = consumer.process(function, concurrency=task.options["concurrency"])
    count.stop = processor.stop
    processor.run()
    return count.sample()


def process_threads(task: Task, _: Coordination) -> Sample:
    count, work_s = _Count(task.records), task.options["work_s"]

    def work(record: Any) -> None:
        count.begun()
        if work_s:
            time.sleep(work_s)
        count.ended()

    return _process(task, work, count)


def process_tasks(task: Task, _: Coordination) -> Sample:
    count, work_s = _Count(task.records), task.options["work_s"]

    async def work(record: Any) -> None:
        count.begun()
        if work_s:
            await asyncio.sleep(work_s)
        count.ended()

    return _process(task, work, count)


def process_aio(task: Task, _: Coordination) -> Sample:
    count, work_s = _Count(task.records), task.options["work_s"]

    async def work(record: Any) -> None:
        count.begun()
        if work_s:
            await asyncio.sleep(work_s)
        count.ended()

    async def run() -> None:
        consumer = kwire.aio.Consumer(task.bootstrap, **_options(task))
        await consumer.subscribe([task.topic])
        processor = consumer.process(work, concurrency=task.options["concurrency"])
        count.stop = processor.stop
        await processor.run()

    asyncio.run(run())
    return count.sample()


# -- nothing to read


def idle_member(task: Task, coordination: Coordination) -> Sample:
    with kwire.Consumer(task.bootstrap, **_options(task)) as consumer:
        consumer.subscribe([task.topic])
        return idle(task, coordination, lambda: consumer.poll(500, 1.0), VERSION)


# -- share groups


def _shared(task: Task, read: Callable[[Any, int, int], tuple[int, int]], mode: Any) -> Sample:
    """Read a topic to its end, as the only member of a share group; the last records are acknowledged by `close`."""
    with kwire.ShareConsumer(task.bootstrap, group=task.options["group"], acknowledgement_mode=mode) as consumer:
        consumer.subscribe([task.topic])
        seen, length = read(consumer, 0, 1)
        with Meter() as meter:
            more, more_length = read(consumer, seen, task.records)
            consumer.commit()
    task.check_read(seen + more, length + more_length)
    return meter.sample(task.records - seen, version=VERSION)


def share_implicit(task: Task, _: Coordination) -> Sample:
    def read(consumer: Any, seen: int, count: int) -> tuple[int, int]:
        begin, length = seen, 0
        while seen < count:
            records = consumer.poll()
            seen += len(records)
            for record in records:
                length += len(record.value)
        return seen - begin, length

    return _shared(task, read, "implicit")


def share_explicit(task: Task, _: Coordination) -> Sample:
    def read(consumer: Any, seen: int, count: int) -> tuple[int, int]:
        begin, length = seen, 0
        while seen < count:
            records = consumer.poll()
            seen += len(records)
            for record in records:
                length += len(record.value)
                record.accept()
        return seen - begin, length

    return _shared(task, read, "explicit")
