"""What a produce request costs in calls of Python, counted where producer and brokers are simulated: no clock counts.

A call costs more than it seems to: its code and data are gone from the processor's caches, as batches have just gone
through them.
"""

from __future__ import annotations

from array import array
from random import Random
from typing import Any

import pytest

from kwire.broker.simulation.brokers import SimulatedCluster
from kwire.broker.simulation.history import History
from kwire.broker.simulation.net import Net
from kwire.broker.simulation.producer import SimulatedProducer
from kwire.broker.simulation.trace import Trace
from kwire.broker.simulation.world import World
from kwire.cluster import ClientConfig
from kwire.producer.bulk import Bulk, Slice
from kwire.producer.intake import Incoming
from kwire.producer.metrics import ProducerMetrics
from kwire.producer.settings import ProducerSettings
from kwire.records import BATCH_OVERHEAD_BYTES, record_bytes_max
from kwire.wire.accel import ManyColumns
from kwire.wire.sizes import lead_bytes, record_bytes
from tests.cluster.calls import Calls

BATCHES, PER_BATCH = 80, 10
TELLING_MAX = 90
AFTER_TELLING_MAX = 16
VALUE = bytes(100)
RECORD = record_bytes(lead_bytes(0, 0), None, VALUE)


def joined(partitions: int, **settings: Any) -> tuple[World, SimulatedProducer]:
    world, history = World(time_ms=1_700_000_000_000), History()
    net = Net(world, Random(1), Trace())
    cluster = SimulatedCluster(net, history, Random(2), brokers=1)
    cluster.create_topic("t", partitions)
    config = ClientConfig(cluster.bootstrap, client_id="producer")
    return world, SimulatedProducer(net, "producer", history, Random(3), config, ProducerSettings(**settings))


def calls_of(partitions: int) -> tuple[int, int]:
    """Calls and requests of so many records as fill BATCHES batches, all of which are in before the first leaves."""
    batch_bytes = BATCH_OVERHEAD_BYTES + (PER_BATCH - 1) * RECORD + record_bytes_max(None, VALUE)
    world, producer = joined(partitions, batch_bytes=batch_bytes, linger_ms=5, max_buffered_bytes=1 << 30)

    def sent(count: int, partitions: array[int] | None = None) -> ProducerMetrics:
        columns = ManyColumns([VALUE] * count, None, None, world.time_ms(), partitions)
        response = producer.intake.put(Bulk("t", [Slice(columns, count)], lambda *_: None))
        world.run(world.now() + 60.0, is_over=response.done)
        assert not response.errors
        return producer.sender.metrics(producer.event_loop.metrics())

    before = sent(partitions, array("i", range(partitions)))  # each leader has acknowledged something, and may get more
    with Calls("producer") as calls:  # simulated brokers run none of its code
        after = sent(BATCHES * PER_BATCH)
    assert after.batches_sent - before.batches_sent == BATCHES
    return calls.count, after.requests_sent - before.requests_sent


@pytest.mark.parametrize(("partitions", "calls_max"), [(1, 56), (4, 188)])
def test_a_request_takes_no_more_calls_than_this(partitions: int, calls_max: int) -> None:
    """One of a batch, and one of four. It was 66 and 269 when leaders were asked for room once for each partition that
    a batch might go to, and again when all had one, and sizes were compared that nobody had refused."""
    calls, requests = calls_of(partitions)
    assert requests == BATCHES // partitions
    assert calls / requests <= calls_max


def test_calls_of_a_send_that_is_waited_for() -> None:
    """At linger 0, with nothing else to do: from the loop's waking up to the telling of the outcome, and from there to
    the loop's next wait. Who was told needs the interpreter's lock, and the loop keeps it until then."""
    world, producer = joined(1, linger_ms=0)
    record = Incoming("t", None, (world.time_ms(), None, VALUE, ()), record_bytes_max(None, VALUE))
    told: list[int] = []
    for _ in range(2):  # the first waits for metadata and for an identity
        response = producer.intake.put(record)
        with Calls("cluster", "producer") as calls:
            response.add_done_callback(lambda _: told.append(calls.count))
            world.run(world.now() + 1.0)
    assert len(told) == 2
    assert told[1] <= TELLING_MAX, calls.by_name.most_common(20)
    assert calls.count - told[1] <= AFTER_TELLING_MAX, calls.by_name.most_common(20)
