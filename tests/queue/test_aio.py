"""Queues for asyncio on the embedded broker."""

from __future__ import annotations

import asyncio

import pytest

from kwire.aio import queue as aio
from kwire.broker import Cluster
from kwire.errors import SettledError
from kwire.queue import Service as ThreadService


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
