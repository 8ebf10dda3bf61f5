"""Admin clients that the program drops without `close`."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import kwire
import kwire.aio
from kwire.broker import Cluster
from tests.waiting import wait_until


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=1, topics={"t": 1}) as running:
        yield running


def client_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("dropped ")]


def list_and_drop(where: str | kwire.Cluster, **options: Any) -> list[str]:
    """List topics by a client that is gone when its noun is called: an assert would keep it."""
    names = kwire.Admin(where, **options).topics.list()
    gc.collect()
    return names


def test_a_call_of_a_client_that_nobody_keeps_is_done_and_its_thread_ends(cluster: Cluster) -> None:
    with pytest.warns(ResourceWarning, match=r"a kwire.Admin \('dropped'\) was dropped without close\(\); close it"):
        names = list_and_drop(cluster.bootstrap, client_id="dropped")
    assert names == ["t"]
    wait_until(lambda: not client_threads())


def test_a_client_of_asyncio_that_nobody_keeps(cluster: Cluster) -> None:
    async def list_and_drop() -> list[str]:
        names = await kwire.aio.Admin(cluster.bootstrap, client_id="dropped").topics.list()
        gc.collect()
        return names

    with pytest.warns(ResourceWarning, match="a kwire.aio.Admin"):
        names = asyncio.run(list_and_drop())
    assert names == ["t"]
    wait_until(lambda: not client_threads())


def test_one_that_was_not_used_or_was_closed_is_dropped_in_silence(cluster: Cluster) -> None:
    unused = kwire.Admin(cluster.bootstrap)
    del unused
    with kwire.Admin(cluster.bootstrap) as closed:
        assert closed.topics.list()
    del closed
    gc.collect()


def test_a_shared_cluster_goes_on_without_one_of_its_clients(cluster: Cluster) -> None:
    with kwire.Cluster(cluster.bootstrap) as shared, kwire.Admin(shared) as other:
        with pytest.warns(ResourceWarning):
            names = list_and_drop(shared)
        assert names == other.topics.list() == ["t"]
