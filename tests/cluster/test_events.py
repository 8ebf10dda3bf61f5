"""Test cluster events: which there are, their order, and the thread of the callbacks."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

import kwire
import kwire.aio
from kwire.broker import Cluster
from kwire.cluster import (
    BrokerAdded,
    BrokerFailed,
    BrokerRecovered,
    BrokerRemoved,
    ClusterEvent,
    LeaderLost,
    LeaderRecovered,
    MetadataUpdated,
    Snapshot,
)
from kwire.cluster.events import changes
from tests.cluster.snapshots import metadata, snapshot
from tests.cluster.test_loop import Watcher, World

FIRST = snapshot({"t": [(1, 0), (2, 0)]}, brokers=(1, 2))


def names(events: list[ClusterEvent]) -> list[str]:
    return [type(event).__name__ for event in events]


def test_the_first_metadata_adds_every_broker_and_loses_no_leader() -> None:
    events = list(changes(Snapshot(), FIRST))
    assert events == [MetadataUpdated(FIRST), BrokerAdded(FIRST.brokers[1]), BrokerAdded(FIRST.brokers[2])]


def test_equal_metadata_causes_no_event() -> None:
    again = FIRST.updated(metadata({"t": [(1, 0), (2, 0)]}, brokers=(1, 2)), 99.0)
    assert list(changes(FIRST, again)) == []


def test_a_leader_that_moved_is_an_update_and_one_that_is_missing_is_lost() -> None:
    moved = FIRST.updated(metadata({"t": [(2, 1), (2, 0)]}, brokers=(1, 2)), 2.0)
    assert list(changes(FIRST, moved)) == [MetadataUpdated(moved)]
    lost = moved.updated(metadata({"t": [(-1, 2), (2, 0)]}, brokers=(2, 3)), 3.0)
    assert list(changes(moved, lost)) == [
        MetadataUpdated(lost), BrokerRemoved(moved.brokers[1]), BrokerAdded(lost.brokers[3]), LeaderLost("t", 0, 2)
    ]  # fmt: skip
    back = lost.updated(metadata({"t": [(3, 3), (2, 0)]}, brokers=(2, 3)), 4.0)
    assert list(changes(lost, back)) == [MetadataUpdated(back), LeaderRecovered("t", 0, 3)]


def test_a_broker_fails_once_and_recovers_once() -> None:
    world, events = World(), list[ClusterEvent]()
    loop = world.net.loop
    loop.observe(events.append)
    loop.add(Watcher("t"), "produce")
    world.net.run(lambda: loop.is_ready(2, "produce"))
    events.clear()
    world.hosts[2].is_up = False
    world.net.rest(10.0)
    world.hosts[2].is_up = True
    world.net.rest(10.0)
    assert names(events) == ["BrokerFailed", "BrokerRecovered"]
    failed, recovered = events
    assert isinstance(failed, BrokerFailed)
    assert isinstance(recovered, BrokerRecovered)
    assert (failed.broker.id, recovered.broker.id) == (2, 2)
    assert 10.0 <= recovered.unreachable_since < 12.0


def test_events_come_on_the_callback_thread_until_the_callback_is_removed(caplog: pytest.LogCaptureFixture) -> None:
    with Cluster(brokers=1) as cluster, kwire.Producer(cluster.bootstrap) as producer:
        events, threads, has_broker = list[ClusterEvent](), set[int](), threading.Event()

        def fail(event: ClusterEvent) -> None:
            raise ValueError("this callback is broken")

        def take(event: ClusterEvent) -> None:
            events.append(event)
            threads.add(threading.get_ident())
            if isinstance(event, BrokerAdded):
                has_broker.set()

        producer.on_cluster_event(fail)
        unsubscribe = producer.on_cluster_event(take)
        with caplog.at_level(logging.ERROR, "kwire.callbacks"):
            producer.send("t", b"a").result(10)
            assert has_broker.wait(10)
        assert "this callback is broken" in caplog.text
        assert threading.get_ident() not in threads
        assert len(threads) == 1
        unsubscribe()
        unsubscribe()
        count = len(events)
        producer.send("another", b"a").result(10)
    assert len(events) == count


def test_asyncio_callbacks_run_in_the_event_loop() -> None:
    async def main(bootstrap: str) -> tuple[ClusterEvent, bool]:
        async with kwire.aio.Producer(bootstrap) as producer:
            first: asyncio.Future[ClusterEvent] = asyncio.get_running_loop().create_future()
            here = threading.get_ident()
            threads: set[int] = set()

            def take(event: ClusterEvent) -> None:
                threads.add(threading.get_ident())
                if not first.done():
                    first.set_result(event)

            producer.on_cluster_event(take)
            await (await producer.send("t", b"a"))
            return await asyncio.wait_for(first, 10), threads == {here}

    with Cluster(brokers=1) as cluster:
        event, is_here = asyncio.run(main(cluster.bootstrap))
    assert isinstance(event, MetadataUpdated)
    assert is_here


def test_consumers_and_admin_clients_get_events_too() -> None:
    with Cluster(brokers=1, topics={"t": 1}) as cluster:
        with kwire.Consumer(cluster.bootstrap) as consumer:
            has_event = threading.Event()
            consumer.on_cluster_event(lambda event: has_event.set())
            consumer.assign([("t", 0, "earliest")])
            assert has_event.wait(10)
        with kwire.Admin(cluster.bootstrap) as admin:
            has_event = threading.Event()
            admin.on_cluster_event(lambda event: has_event.set())
            admin.create_topics([kwire.NewTopic("u", 1)])
            assert has_event.wait(10)
