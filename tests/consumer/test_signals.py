"""`stop_on_signals` ends what every kind of consumer does, also of one that is made after the signal."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any

import pytest

import kwire
import kwire.aio
from kwire.broker import Cluster
from kwire.consumer import signals
from kwire.queue import Message, Service
from tests.waiting import PATIENCE_SECONDS

COUNT = 10
Seen = Callable[[object], None]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=1, topics={"t": 1}) as running:
        running.alter_group("g", {"share.auto.offset.reset": "earliest"})
        with kwire.Producer(running.bootstrap) as producer:
            producer.send_many("t", [str(number) for number in range(COUNT)]).result(PATIENCE_SECONDS)
        yield running


def iterate(kind: Callable[..., Any], bootstrap: str, seen: Seen) -> None:
    with kind(bootstrap, group="g") as consumer:
        consumer.subscribe(["t"])
        for record in consumer:
            seen(record)


def poll(kind: Callable[..., Any], bootstrap: str, seen: Seen) -> None:
    """Poll until the signal. The poll after it waits for nothing."""
    with kind(bootstrap, group="g") as consumer:
        consumer.subscribe(["t"])
        while True:
            for record in (records := consumer.poll(timeout=None)):
                seen(record)
            if not records:
                return
            if isinstance(consumer, kwire.ShareConsumer):
                consumer.acknowledge(records)


def process(kind: Callable[..., Any], bootstrap: str, seen: Seen) -> None:
    consumer = kind(bootstrap, group="g")
    consumer.subscribe(["t"])
    consumer.process(seen, concurrency=2).run()


async def iterate_async(kind: Callable[..., Any], bootstrap: str, seen: Seen) -> None:
    async with kind(bootstrap, group="g") as consumer:
        await consumer.subscribe(["t"])
        async for record in consumer:
            seen(record)


async def process_async(kind: Callable[..., Any], bootstrap: str, seen: Seen) -> None:
    async def call(record: object) -> None:
        seen(record)

    consumer = kind(bootstrap, group="g")
    await consumer.subscribe(["t"])
    await consumer.process(call, concurrency=2).run()


def in_loop(work: Callable[..., Any]) -> Callable[..., None]:
    def run(kind: Callable[..., Any], bootstrap: str, seen: Seen) -> None:
        asyncio.run(work(kind, bootstrap, seen))

    return run


def handle(kind: Callable[..., Any], bootstrap: str, seen: Seen) -> None:
    def call(message: Message) -> None:
        seen(message)

    with kind(bootstrap, backend="tracker") as service:
        with service.queue("jobs").producer() as producer:
            for _ in range(COUNT):
                producer.send(b"job")
        service.queue("jobs").consumer().handle(call)


WORK = [
    pytest.param(work, kind, id=f"{name}-{work.__name__}")
    for name, kind in (("consumer", kwire.Consumer), ("share", kwire.ShareConsumer))
    for work in (iterate, poll, process)
] + [
    *(
        pytest.param(in_loop(work), kind, id=f"aio-{name}-{work.__name__}")
        for name, kind in (("consumer", kwire.aio.Consumer), ("share", kwire.aio.ShareConsumer))
        for work in (iterate_async, process_async)
    ),
    pytest.param(handle, Service, id="queue-handle"),
]


def send_signal() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.timeout(60)  # where a signal is lost, the work goes on for ever
@pytest.mark.parametrize(("work", "kind"), WORK)
def test_a_signal_ends_the_work(work: Callable[..., None], kind: Callable[..., Any], cluster: Cluster) -> None:
    seen: list[object] = []

    def see(record: object) -> None:
        seen.append(record)
        if len(seen) == COUNT:
            send_signal()

    with kwire.stop_on_signals() as stop:
        work(kind, cluster.bootstrap, see)
    assert stop.is_set()
    assert len(seen) == COUNT
    if kind in (kwire.Consumer, kwire.aio.Consumer):
        assert cluster.committed("g") == {("t", 0): COUNT}


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("work", "kind"), WORK)
def test_a_consumer_that_is_made_after_the_signal_does_not_begin(
    work: Callable[..., None], kind: Callable[..., Any], cluster: Cluster
) -> None:
    begun = monotonic()
    with kwire.stop_on_signals():
        send_signal()
        work(kind, cluster.bootstrap, lambda record: None)
    assert monotonic() - begun < PATIENCE_SECONDS


@pytest.mark.parametrize("kind", [kwire.Consumer, kwire.ShareConsumer])
def test_after_the_block_a_consumer_goes_on(kind: Callable[..., Any], cluster: Cluster) -> None:
    with kind(cluster.bootstrap, group="g") as consumer:
        consumer.subscribe(["t"])
        with kwire.stop_on_signals():
            send_signal()
        assert next(iter(consumer)).value == b"0"


def test_a_block_of_another_thread_is_refused_and_leaves_nothing() -> None:
    with ThreadPoolExecutor(1) as pool:
        refused = pool.submit(lambda: kwire.stop_on_signals().__enter__())
        assert isinstance(refused.exception(PATIENCE_SECONDS), ValueError)
    assert not signals._blocks


def test_consumers_are_made_while_a_signal_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever thread makes one: the set may change while it is read."""

    class Growing(set[Any]):
        tries = 0

        def __iter__(self) -> Iterator[Any]:
            self.tries += 1
            if self.tries == 1:
                raise RuntimeError("Set changed size during iteration")
            return super().__iter__()

    class Stoppable:
        is_stopping = False

        def stop(self, is_stopping: bool = True) -> None:
            self.is_stopping = is_stopping

    one = Stoppable()
    monkeypatch.setattr(signals, "_consumers", Growing([one]))
    with kwire.stop_on_signals():
        send_signal()
        assert one.is_stopping
    assert not one.is_stopping
