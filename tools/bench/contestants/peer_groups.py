"""Run confluent-kafka, aiokafka and Java's consumer as members of groups."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

import confluent_kafka
from brokers.cluster import NEWEST
from brokers.jars import fetch_jars
from brokers.java import java

from bench.contestants.idling import idle
from bench.contestants.java import run_tool
from bench.contestants.storm import Ownership, storm
from bench.meter import Meter, process_cpu_seconds
from bench.settings import CONFLUENT_MEMBER, JAVA_OPTIONS
from bench.task import Coordination, Sample, Task

_CONFLUENT = f"{confluent_kafka.__version__} (librdkafka {confluent_kafka.libversion()[0]})"

# -- confluent-kafka


def _confluent(task: Task, **options: Any) -> Any:
    own = {"bootstrap.servers": task.bootstrap, "group.id": task.options["group"]}
    return confluent_kafka.Consumer(own | CONFLUENT_MEMBER[task.options["protocol"]] | options)


def confluent_subscribed(task: Task, _: Coordination) -> Sample:
    def read(count: int) -> tuple[int, int]:
        seen = length = 0
        while seen < count:
            messages = consumer.consume(500, 1.0)
            seen += len(messages)
            for message in messages:
                length += len(message.value())
        return seen, length

    consumer = _confluent(task)
    consumer.subscribe([task.warm_topic])
    read(task.warmup)
    consumer.subscribe([task.topic])
    first: list[Any] = []
    while not first:
        first = consumer.consume(1, 1.0)
    with Meter() as meter:
        seen, length = read(task.records - 1)
    consumer.close()
    task.check_read(seen + 1, length + len(first[0].value()))
    return meter.sample(task.records, version=_CONFLUENT)


class _ConfluentMember:
    def __init__(self, task: Task, number: int, ownership: Ownership) -> None:
        self._consumer = _confluent(task, **{"enable.auto.commit": False})
        self._consumer.subscribe(
            [task.topic],
            on_assign=lambda _, partitions: ownership.assigned(number, [one.partition for one in partitions]),
            on_revoke=lambda _, partitions: ownership.revoked(number, [one.partition for one in partitions]),
        )

    def poll(self) -> Iterable[int]:
        return [message.partition() for message in self._consumer.consume(500, 0.1) if message.error() is None]

    def close(self) -> object:
        return self._consumer.close()


def confluent_rebalance(task: Task, _: Coordination) -> Sample:
    def make(number: int, ownership: Ownership) -> _ConfluentMember:
        return _ConfluentMember(task, number, ownership)

    return storm(task, make, _CONFLUENT)


def confluent_idle(task: Task, coordination: Coordination) -> Sample:
    consumer = _confluent(task)
    consumer.subscribe([task.topic])
    found = idle(task, coordination, lambda: consumer.consume(500, 1.0), _CONFLUENT)
    consumer.close()
    return found


# -- aiokafka


def _aiokafka(task: Task, **options: Any) -> Any:
    import aiokafka

    return aiokafka.AIOKafkaConsumer(
        bootstrap_servers=task.bootstrap, group_id=task.options["group"], auto_offset_reset="earliest", **options
    )


def _aiokafka_version() -> str:
    import aiokafka

    version: str = aiokafka.__version__
    return version


def aiokafka_subscribed(task: Task, _: Coordination) -> Sample:
    async def read(consumer: Any, count: int) -> tuple[int, int]:
        seen = length = 0
        while seen < count:
            for records in (await consumer.getmany(timeout_ms=1000, max_records=500)).values():
                seen += len(records)
                for record in records:
                    length += len(record.value)
        return seen, length

    async def run() -> Sample:
        async with _aiokafka(task) as consumer:
            consumer.subscribe([task.warm_topic])
            await read(consumer, task.warmup)
            consumer.subscribe([task.topic])
            first = await consumer.getone()
            with Meter() as meter:
                seen, length = await read(consumer, task.records - 1)
        task.check_read(seen + 1, length + len(first.value))
        return meter.sample(task.records, version=_aiokafka_version())

    return asyncio.run(run())


class _AiokafkaMember:
    """Wait in a thread for a consumer on the event loop of all members."""

    def __init__(self, loop: asyncio.AbstractEventLoop, task: Task, number: int, ownership: Ownership) -> None:
        import aiokafka

        class Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]  # the package has no types
            def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
                ownership.assigned(number, [one.partition for one in assigned])

            def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
                ownership.revoked(number, [one.partition for one in revoked])

        async def start() -> Any:
            consumer = _aiokafka(task, enable_auto_commit=False)
            consumer.subscribe([task.topic], listener=Listener())
            await consumer.start()
            return consumer

        self._loop = loop
        self._consumer = self._run(start())

    def _run(self, work: Any) -> Any:
        future: Future[Any] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result()

    def poll(self) -> Iterable[int]:
        return [one.partition for one in self._run(self._consumer.getmany(timeout_ms=100, max_records=500))]

    def close(self) -> object:
        return self._run(self._consumer.stop())


def aiokafka_rebalance(task: Task, _: Coordination) -> Sample:
    import threading

    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()

    def make(number: int, ownership: Ownership) -> _AiokafkaMember:
        return _AiokafkaMember(loop, task, number, ownership)

    return storm(task, make, _aiokafka_version())


def aiokafka_idle(task: Task, coordination: Coordination) -> Sample:
    runner = asyncio.Runner()
    consumer: Any = None

    async def start() -> Any:
        made = _aiokafka(task)
        made.subscribe([task.topic])
        await made.start()
        return made

    with runner:
        consumer = runner.run(start())
        found = idle(
            task, coordination, lambda: runner.run(consumer.getmany(timeout_ms=1000, max_records=500)),
            _aiokafka_version(),
        )  # fmt: skip
        runner.run(consumer.stop())
    return found


# -- Java

_MEMBER = {"classic": "group.protocol=classic", "consumer": "group.protocol=consumer"}


def java_idle(task: Task, coordination: Coordination) -> Sample:
    command = [
        java(), *JAVA_OPTIONS, "-cp", f"{fetch_jars('kafka', NEWEST)}/*",
        "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", task.bootstrap, "--topic", task.topic,
        "--group", task.options["group"], "--command-property", _MEMBER[task.options["protocol"]],
    ]  # fmt: skip
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, stderr=sys.stderr)
    try:
        time.sleep(task.options["settle_s"] + 5)  # the JVM starts
        coordination.say("count")
        with Meter(lambda: process_cpu_seconds(process.pid)) as meter:
            time.sleep(task.options["idle_s"])
        coordination.say("stop counting")
        if process.poll() is not None:
            raise RuntimeError(f"the console consumer ended with {process.returncode}")
    finally:
        process.kill()
        process.wait()
    return meter.sample(1, measures={"cpu_percent": 100 * meter.cpu_s / meter.wall_s}, version=NEWEST)


_SHARED = re.compile(r"^\d{4}-.*$", re.MULTILINE)


def java_shared(task: Task, _: Coordination) -> Sample:
    """Run ShareConsumerPerformance, which acknowledges implicitly; a JVM's start is part of its CPU time."""
    arguments = [
        "--bootstrap-server", task.bootstrap, "--topic", task.topic, "--group", task.options["group"],
        "--num-records", str(task.records), "--hide-header", "--timeout", "60000",
    ]  # fmt: skip
    cpu_s, printed = run_tool("ShareConsumerPerformance", arguments)
    # start, end, MB, MB/s, records/s, records, fetch ms
    fields = [field.strip() for field in _SHARED.findall(printed)[-1].split(", ")]
    if int(fields[5]) < task.records:
        raise RuntimeError(f"ShareConsumerPerformance read {fields[5]} records: {printed}")
    return Sample(task.records, cpu_s, task.records / float(fields[4]), version=NEWEST)
