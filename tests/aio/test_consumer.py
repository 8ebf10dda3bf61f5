"""`kwire.aio.Consumer` against the embedded cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from kwire.aio import Consumer
from kwire.broker import Cluster
from kwire.errors import ClosedError
from tests.consumer.embedded import fill, number_of, numbers

PATIENCE = 30


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2, default_partitions=1) as running:
        yield running
        assert not running.failures


def test_polls_and_an_iteration_return_all_records_in_order(cluster: Cluster) -> None:
    cluster.create_topic("t", 2)
    for partition in range(2):
        fill(cluster, "t", partition, range(3_000))

    async def main() -> None:
        async with Consumer(cluster.bootstrap) as consumer:
            consumer.assign([("t", 0, "earliest"), ("t", 1, 0)])
            assert await consumer.position("t", 0, PATIENCE) == 0
            records = await consumer.poll(700, PATIENCE)
            records += await consumer.poll_batch(300, PATIENCE)
            records.append(await anext(consumer))
            async for record in consumer:
                records.append(record)
                if len(records) == 6_000:
                    break
            assert await consumer.poll(timeout=0) == []
            assert numbers(records) == {0: list(range(3_000)), 1: list(range(3_000))}
            assert await consumer.end_offsets([("t", 0)]) == {("t", 0): 3_000}
            assert await consumer.partitions("t") == [0, 1]

    asyncio.run(main())


def test_a_cancelled_poll_loses_no_record(cluster: Cluster) -> None:
    cluster.create_topic("t", 1)

    async def main() -> None:
        async with Consumer(cluster.bootstrap, max_wait_ms=5) as consumer:
            consumer.assign([("t", 0, 0)])
            found: list[int] = []
            for number in range(40):
                task = asyncio.create_task(consumer.poll(timeout=PATIENCE))
                await asyncio.sleep(0)
                fill(cluster, "t", 0, [number])
                for _ in range(number % 7):
                    await asyncio.sleep(0)
                task.cancel()
                found += [
                    number_of(one) for one in await asyncio.gather(task, return_exceptions=True) for one in _list(one)
                ]
            while len(found) < 40:
                found += [number_of(one) for one in await consumer.poll(timeout=PATIENCE)]
            assert found == list(range(40))

    asyncio.run(main())


def _list(result: object) -> list:  # type: ignore[type-arg]
    return result if isinstance(result, list) else []


def test_other_tasks_run_beside_an_iteration_that_never_waits(cluster: Cluster) -> None:
    cluster.create_topic("t", 1)
    fill(cluster, "t", 0, range(50_000), batch_size=5_000)

    async def main() -> None:
        async with Consumer(cluster.bootstrap) as consumer:
            consumer.assign([("t", 0, 0)])
            turns = 0

            async def other() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            task = asyncio.create_task(other())
            seen = [0]
            count = 0
            async for _ in consumer:
                count += 1
                if turns != seen[-1]:
                    seen.append(turns)
                if count == 50_000:
                    break
            task.cancel()
            assert len(seen) > 2

    asyncio.run(main())


def test_closing_ends_an_iteration_and_wakes_a_poll(cluster: Cluster) -> None:
    cluster.create_topic("t", 1)

    async def main() -> None:
        consumer = Consumer(cluster.bootstrap)
        consumer.assign([("t", 0, 0)])

        async def iterate() -> int:
            return len([record async for record in consumer])

        iterating, polling = asyncio.create_task(iterate()), asyncio.create_task(consumer.poll(timeout=None))
        await consumer.position("t", 0, PATIENCE)
        await consumer.close()
        assert await iterating == 0
        with pytest.raises(ClosedError):
            await polling
        await consumer.close()

    asyncio.run(main())


def test_one_consumer_serves_several_event_loops_in_turn(cluster: Cluster) -> None:
    cluster.create_topic("t", 1)
    fill(cluster, "t", 0, range(2_000))
    consumer = Consumer(cluster.bootstrap)
    consumer.assign([("t", 0, 0)])
    found = [number_of(asyncio.run(consumer.poll(1, PATIENCE))[0]) for _ in range(3)]
    asyncio.run(consumer.close())
    assert found == [0, 1, 2]
