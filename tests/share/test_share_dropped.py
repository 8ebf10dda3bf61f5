"""Share consumers that the program drops without `close`, or that still exist when the interpreter ends."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from time import monotonic
from typing import Any

import pytest

import kwire
import kwire.aio
from kwire.broker import Cluster, Mute
from kwire.consumer.dropped import LEAVE_SECONDS
from tests.waiting import PATIENCE_SECONDS, wait_until

COUNT = 10


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=1, topics={"t": 1}) as running:
        running.alter_group("g", {"share.auto.offset.reset": "earliest"})
        with kwire.Producer(running.bootstrap) as producer:
            producer.send_many("t", [str(number) for number in range(COUNT)]).result(PATIENCE_SECONDS)
        yield running


def member_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("dropped ")]


def members(cluster: Cluster) -> int:
    with kwire.Admin(cluster.bootstrap) as admin:
        return len(admin.groups.describe("g").members)


def drop(held: list[Any]) -> None:
    held.clear()
    gc.collect()


def offsets_of_the_next(cluster: Cluster) -> dict[int, int]:
    """Return what another member gets at once, long before locks of 30 s end: delivery counts by offset."""
    with kwire.ShareConsumer(cluster.bootstrap, group="g") as other:
        other.subscribe(["t"])
        records = other.poll(timeout=PATIENCE_SECONDS / 3)
        other.acknowledge(records, "release")
        return {record.offset: record.delivery_count for record in records}


def test_a_dropped_member_sends_what_was_accepted_releases_the_rest_and_leaves(cluster: Cluster) -> None:
    held: list[Any] = [kwire.ShareConsumer(cluster.bootstrap, group="g", client_id="dropped")]
    held[0].subscribe(["t"])
    held.append(held[0].poll(timeout=PATIENCE_SECONDS))
    for record in held[1][:3]:
        record.accept()
    with pytest.warns(ResourceWarning, match=r"kwire.ShareConsumer \('dropped'\) was dropped without close.*releases"):
        drop(held)
    wait_until(lambda: not member_threads())
    assert members(cluster) == 0
    assert offsets_of_the_next(cluster) == dict.fromkeys(range(3, COUNT), 2)


def test_records_do_not_keep_their_consumer(cluster: Cluster) -> None:
    held: list[Any] = [kwire.ShareConsumer(cluster.bootstrap, group="g", client_id="dropped")]
    held[0].subscribe(["t"])
    records = held[0].poll(timeout=PATIENCE_SECONDS)
    with pytest.warns(ResourceWarning):
        drop(held)
    wait_until(lambda: not member_threads())
    assert [record.value for record in records] == [b"%d" % number for number in range(COUNT)]


def test_a_dropped_member_of_asyncio_leaves(cluster: Cluster) -> None:
    async def main() -> None:
        held: list[Any] = [kwire.aio.ShareConsumer(cluster.bootstrap, group="g", client_id="dropped")]
        await held[0].subscribe(["t"])
        assert await held[0].poll(timeout=PATIENCE_SECONDS)
        with pytest.warns(ResourceWarning, match="kwire.aio.ShareConsumer"):
            drop(held)

    asyncio.run(main())
    wait_until(lambda: not member_threads())
    assert members(cluster) == 0


def test_one_that_was_not_used_or_was_closed_is_dropped_in_silence(cluster: Cluster) -> None:
    unused = kwire.ShareConsumer(cluster.bootstrap, group="g")
    del unused
    gc.collect()
    with kwire.ShareConsumer(cluster.bootstrap, group="g") as closed:
        closed.subscribe(["t"])
        assert closed.poll(1, PATIENCE_SECONDS)
    del closed
    gc.collect()


def test_dropping_does_not_wait_for_silent_brokers(cluster: Cluster) -> None:
    held: list[Any] = [kwire.ShareConsumer(cluster.bootstrap, group="g", client_id="dropped")]
    held[0].subscribe(["t"])
    assert held[0].poll(timeout=PATIENCE_SECONDS)
    cluster.add_fault(Mute(), times=None)
    before = monotonic()
    with pytest.warns(ResourceWarning):
        drop(held)
    assert monotonic() - before < LEAVE_SECONDS
    wait_until(lambda: not member_threads())


def test_a_member_leaves_when_the_interpreter_ends(cluster: Cluster) -> None:
    program = """
        import sys
        import kwire
        consumer = kwire.ShareConsumer(sys.argv[1], group="g")
        consumer.subscribe(["t"])
        consumer.poll(timeout=20)[0].accept()
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program), cluster.bootstrap], check=True, timeout=60)
    assert members(cluster) == 0
    assert offsets_of_the_next(cluster) == dict.fromkeys(range(1, COUNT), 2)
