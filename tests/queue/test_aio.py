"""Queues for asyncio on the embedded broker."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from kwire.aio import queue as aio
from kwire.broker import Cluster, Delay
from kwire.errors import RequestTimeoutError, SettledError
from kwire.protocol import ApiKey
from kwire.queue import Service as ThreadService


@pytest.mark.parametrize("backend", ["tracker", "share"])
def test_q83_a_message_that_expires_in_the_buffer_is_a_dead_letter(backend: Any) -> None:
    async def run(bootstrap: str) -> None:
        async with aio.Service(bootstrap, partitions=1, backend=backend) as service:
            queue = service.queue("jobs")
            consumer = queue.consumer()
            async with queue.producer() as producer:
                for response in await producer.send_many([b"one", b"two"], expires_in_ms=20_000):
                    await response
            message = await consumer.receive(10)
            assert (message is not None, len(consumer._buffer)) == (True, 1)
            now = consumer._now
            consumer._now = lambda: now() + 25.0
            assert await consumer.receive(0.1) is None
            assert [(one.payload, one.reason) for one in await service.dead_letters()] == [(b"two", "expired")]

    with Cluster(brokers=1, group_initial_rebalance_delay_ms=0) as cluster:
        asyncio.run(run(cluster.bootstrap))


@pytest.mark.parametrize(("backend", "api"), [("tracker", ApiKey.PRODUCE), ("share", ApiKey.SHARE_ACKNOWLEDGE)])
def test_a_flush_says_that_acknowledgements_are_not_stored_in_time(backend: Any, api: ApiKey) -> None:
    async def run(cluster: Cluster) -> None:
        async with aio.Service(cluster.bootstrap, partitions=1, backend=backend) as service:
            queue = service.queue("jobs")
            await (await queue.producer().send(b"hi"))
            consumer = queue.consumer()
            message = await consumer.receive(10)
            assert message is not None
            cluster.add_fault(Delay(ms=1_000), api=api)
            await message.ack()
            with pytest.raises(RequestTimeoutError):
                await consumer.flush(0.1)

    with Cluster(brokers=1, group_initial_rebalance_delay_ms=0) as cluster:
        asyncio.run(run(cluster))


@pytest.mark.parametrize("is_transactional", [False, True])
def test_q93_tasks_send_receive_and_settle(is_transactional: bool) -> None:
    async def run(bootstrap: str) -> None:
        async with aio.Service(bootstrap, partitions=2, transactional=is_transactional, backoff_ms=0) as service:
            queue = service.queue("jobs")
            async with queue.producer() as producer:
                for response in [await producer.send(b"%d" % number) for number in range(50)]:
                    await response
            async with queue.consumer() as consumer:
                got: dict[bytes | None, int] = {}

                async def work() -> None:
                    while len(got) < 50:
                        message = await consumer.receive(0.2)
                        if message is None:
                            continue
                        if message.payload == b"7" and message.deliveries == 1:
                            with pytest.raises(ZeroDivisionError):
                                async with message:
                                    _ = 1 / 0
                            continue
                        async with message:
                            got[message.payload] = message.deliveries
                        with pytest.raises(SettledError):
                            await message.release()

                await asyncio.wait_for(asyncio.gather(*(work() for _ in range(5))), 30)
                assert set(got) == {b"%d" % number for number in range(50)}
                assert {payload for payload, deliveries in got.items() if deliveries == 2} == {b"7"}

    with (
        Cluster(brokers=1, group_initial_rebalance_delay_ms=0) as cluster,
        ThreadService(cluster.bootstrap, partitions=2) as service,
        service.tracker(),
    ):
        asyncio.run(run(cluster.bootstrap))


def test_q89_a_receive_that_is_cancelled_while_it_joins_lets_no_duplicate_through() -> None:
    async def run(cluster: Cluster) -> None:
        async with aio.Service(cluster.bootstrap, partitions=1, dedup_window_ms=60_000) as service:
            queue = service.queue("jobs")
            producer = queue.producer()
            await (await producer.send(b"first", message_id="job-1"))
            async with queue.consumer() as consumer:
                message = await consumer.receive(10)
                assert message is not None
                await message.ack()
            await (await producer.send(b"again", message_id="job-1"))
            cluster.add_fault(Delay(400), api=ApiKey.OFFSET_FETCH, times=None)
            async with queue.consumer() as consumer:
                while not consumer.metrics().deduplicated:
                    with suppress(TimeoutError):
                        assert await asyncio.wait_for(consumer.receive(5), 0.3) is None

    with Cluster(brokers=1, group_initial_rebalance_delay_ms=0) as cluster:
        asyncio.run(asyncio.wait_for(run(cluster), 30))
