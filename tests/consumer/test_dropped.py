"""Consumers that the program drops without `close`: they leave, their threads end, and nothing waits for that."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from time import monotonic
from typing import Any

import pytest

import kwire
import kwire.aio
from kwire import Consumer
from kwire.broker import Cluster, Mute
from kwire.consumer.dropped import LEAVE_SECONDS
from tests.consumer.embedded import fill
from tests.waiting import wait_until

PATIENCE = 20.0


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=1, consumer_group_heartbeat_interval_ms=50) as running:
        running.create_topic("t", 2)
        fill(running, "t", 0, range(10))
        yield running


def member_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("dropped ")]


def read_one(consumer: Consumer) -> None:
    """Read one record as a member; its partition is in hand then."""
    consumer.subscribe(["t"])
    end = monotonic() + PATIENCE
    while not consumer.poll(1, 0.1):
        assert monotonic() < end


def drop(held: list[Any]) -> None:
    held.clear()
    gc.collect()


def until_owned(consumer: Consumer, count: int) -> None:
    consumer.subscribe(["t"])
    wait_until(lambda: consumer.poll(1, 0.05) is not None and len(consumer.assignment()) == count)


def options(protocol: str, **more: Any) -> Any:
    classic = {"heartbeat_interval_ms": 50} if protocol == "classic" else {}
    return {"group": "g", "group_protocol": protocol, "max_wait_ms": 20, **classic, **more}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_dropped_member_leaves_at_once(cluster: Cluster, protocol: str) -> None:
    held = [Consumer(cluster.bootstrap, client_id="dropped", **options(protocol))]
    read_one(held[0])
    with pytest.warns(ResourceWarning, match=r"kwire.Consumer \('dropped'\) was dropped without close"):
        drop(held)
    with Consumer(cluster.bootstrap, commit="manual", **options(protocol)) as other:
        until_owned(other, 2)  # a session would last 45 s
        assert set(other.committed().values()) == {None}
    wait_until(lambda: not member_threads())


def test_a_dropped_member_of_asyncio_leaves_at_once(cluster: Cluster) -> None:
    async def main() -> None:
        held = [kwire.aio.Consumer(cluster.bootstrap, client_id="dropped", **options("consumer"))]
        await held[0].subscribe(["t"])
        while not await held[0].poll(1, 0.1):
            pass
        with pytest.warns(ResourceWarning, match="kwire.aio.Consumer"):
            drop(held)

    asyncio.run(main())
    with Consumer(cluster.bootstrap, **options("consumer")) as other:
        until_owned(other, 2)
    wait_until(lambda: not member_threads())


def test_a_dropped_consumer_of_a_cluster_leaves_and_the_cluster_goes_on(cluster: Cluster) -> None:
    with kwire.Cluster(cluster.bootstrap) as shared:
        held = [Consumer(shared, **options("consumer"))]
        read_one(held[0])
        with pytest.warns(ResourceWarning):
            drop(held)
        with Consumer(shared, **options("consumer")) as other:
            until_owned(other, 2)


def test_the_thread_of_a_dropped_consumer_without_a_group_ends(cluster: Cluster) -> None:
    held = [Consumer(cluster.bootstrap, client_id="dropped")]
    held[0].assign([("t", 0, "earliest")])
    assert held[0].poll(1, PATIENCE)
    with pytest.warns(ResourceWarning, match="dropped without close"):
        drop(held)
    wait_until(lambda: not member_threads())


def test_a_consumer_that_was_not_used_or_was_closed_is_dropped_in_silence(cluster: Cluster) -> None:
    consumer = Consumer(cluster.bootstrap)
    del consumer
    gc.collect()
    with Consumer(cluster.bootstrap, client_id="dropped", **options("consumer")) as closed:
        read_one(closed)
    del closed
    gc.collect()


def test_dropping_does_not_wait_for_a_silent_coordinator(cluster: Cluster) -> None:
    """Nor for the loop thread, which can do nothing until the consumer is dropped."""
    held = [Consumer(cluster.bootstrap, client_id="dropped", **options("consumer"))]
    read_one(held[0])
    cluster.add_fault(Mute(), times=None)
    is_dropped = threading.Event()
    was_in_time: list[bool] = []
    held[0]._runtime.call_soon(lambda: was_in_time.append(is_dropped.wait(PATIENCE)))
    before = monotonic()
    with pytest.warns(ResourceWarning):
        drop(held)
    assert monotonic() - before < LEAVE_SECONDS
    is_dropped.set()
    wait_until(lambda: not member_threads())
    assert was_in_time == [True]
