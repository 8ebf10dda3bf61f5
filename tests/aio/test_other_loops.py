"""The clients of asyncio in uvloop, and the blocking ones in a program of gevent."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest
import uvloop

import kwire.aio
from kwire.broker import Cluster

COUNT = 500
PATIENCE = 30


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2, topics={"t": 1}) as running:
        running.alter_group("shared", {"share.auto.offset.reset": "earliest"})
        yield running
        assert not running.failures


def test_uvloop(cluster: Cluster) -> None:
    async def main() -> tuple[int, int, int, list[str]]:
        async with kwire.aio.Producer(cluster.bootstrap) as producer:
            sent = await asyncio.gather(*[producer.send("t", b"%d" % number) for number in range(COUNT)])
        async with kwire.aio.Consumer(cluster.bootstrap, group="g") as consumer:
            await consumer.subscribe(["t"])
            read = 0
            async for _ in consumer:
                read += 1
                if read == COUNT:
                    break
        async with kwire.aio.ShareConsumer(cluster.bootstrap, group="shared") as sharing:
            await sharing.subscribe(["t"])
            shared = len(await sharing.poll(timeout=PATIENCE))
        async with kwire.aio.Admin(cluster.bootstrap) as admin:
            return len(sent), read, shared, await admin.topics.list()

    sent, read, shared, topics = uvloop.run(main())
    assert (sent, read, topics) == (COUNT, COUNT, ["t"])
    assert shared > 0


@pytest.mark.programs
def test_gevent(cluster: Cluster) -> None:
    """Greenlets run while a client waits: none of its waits blocks the hub."""
    program = """
        from gevent import monkey

        monkey.patch_all()
        import json
        import sys

        import gevent

        import kwire

        bootstrap, count = sys.argv[1], int(sys.argv[2])
        ticks = [0]

        def tick():
            while True:
                gevent.sleep(0.01)
                ticks[0] += 1

        gevent.spawn(tick)
        found = {}
        with kwire.Consumer(bootstrap) as consumer:
            consumer.assign([("t", 0, "latest")])
            found["records"] = len(consumer.poll(timeout=0.5))
            found["ticks"] = ticks[0]
            with kwire.Producer(bootstrap) as producer:
                sends = [gevent.spawn(lambda: producer.send("t", b"x").result(timeout=20)) for _ in range(count)]
                found["sent"] = sum(greenlet.get().offset >= 0 for greenlet in sends)
            while found["records"] < count:
                found["records"] += len(consumer.poll(timeout=20))
        with kwire.Admin(bootstrap) as admin:
            found["topics"] = admin.topics.list()
        print(json.dumps(found))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), cluster.bootstrap, str(COUNT)],
        check=True, capture_output=True, text=True, timeout=PATIENCE * 2,
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert found.pop("ticks") > 5  # of fifty, on a busy machine too
    assert found == {"records": COUNT, "sent": COUNT, "topics": ["t"]}
