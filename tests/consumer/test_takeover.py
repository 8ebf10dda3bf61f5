"""kwire and Confluent's Parallel Consumer take over each other's partitions: what is complete does not run again."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from brokers.jars import fetch_jars
from brokers.java import program_command

import kwire
from kwire.broker import Cluster
from kwire.consumer.processor import Processor
from tests.consumer.test_offset_map import VERSION
from tests.consumer.test_processor import Recorder, committed, consumer_of, fill
from tests.waiting import PATIENCE_SECONDS, wait_until

COUNT, STUCK = 20, 5

pytestmark = pytest.mark.live


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=1, topics={"orders": 1}) as running:
        fill(running, COUNT, keys=COUNT)
        yield running


def confluent(cluster: Cluster, count: int, stuck: int = -1) -> list[int]:
    """Process `count` records with Confluent's Parallel Consumer; return their offsets."""
    program = Path(__file__).with_name("ParallelConsumerTakeover.java")
    arguments = [cluster.bootstrap, "orders", "g", str(count), str(stuck)]
    command = program_command(fetch_jars("parallel-consumer-core", VERSION), program, *arguments)
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    last = (done.stdout.strip().splitlines() or [""])[-1]
    assert last.startswith("done ["), done.stdout[-1000:] + done.stderr[-2000:]
    return sorted(int(offset) for offset in last.removeprefix("done [").removesuffix("]").split(", "))


def test_confluents_consumer_goes_on_where_kwire_ended(cluster: Cluster) -> None:
    release, seen = threading.Event(), set[int]()

    def stick(record: kwire.ConsumerRecord) -> None:
        if record.offset == STUCK:
            release.wait(PATIENCE_SECONDS)
        else:
            seen.add(record.offset)

    processor: Processor = consumer_of(cluster).process(stick, order="none")
    thread = threading.Thread(target=processor.run)
    thread.start()
    wait_until(lambda: len(seen) == COUNT - 1)
    processor.stop(drain=0)
    thread.join(PATIENCE_SECONDS)
    release.set()
    assert committed(cluster) == {0: STUCK}
    assert confluent(cluster, 1) == [STUCK]
    assert committed(cluster) == {0: COUNT}


def test_kwire_goes_on_where_confluents_consumer_ended(cluster: Cluster) -> None:
    assert len(confluent(cluster, COUNT - 1, STUCK)) == COUNT - 1
    assert committed(cluster) == {0: STUCK}
    recorder = Recorder(1)
    recorder.run(consumer_of(cluster))
    assert [record.offset for record in recorder.records] == [STUCK]
    assert committed(cluster) == {0: COUNT}
