"""The producer's metrics: each record sent is acknowledged, failed or buffered."""

from __future__ import annotations

import asyncio

import pytest

import kwire
import kwire.aio
from kwire.broker import Cluster, Disconnect
from kwire.cluster import ClusterMetrics
from kwire.errors import ClosedError, DisconnectedError, ErrorCode
from kwire.producer.metrics import ProducerMetrics
from kwire.protocol import ApiKey
from tests.producer.fakes import Bench
from tests.producer.test_terms import within

CUT = DisconnectedError("the connection broke")
PATIENCE = 30


def counted(bench: Bench) -> ProducerMetrics:
    return bench.sender.metrics(ClusterMetrics({}, None))


def balance(metrics: ProducerMetrics) -> int:
    """Return the number of records sent, by the metrics."""
    return metrics.records_acknowledged + metrics.records_failed + metrics.records_in_flight + metrics.records_queued


def test_from_the_queue_to_the_acknowledgement() -> None:
    bench = Bench({"t": [(1, 0), (2, 0)]}, linger_ms=10)
    for number in range(4):
        bench.send(b"%d" % number, partition=number % 2)
    bench.send(b"", "unknown", key=b"k")
    assert (counted(bench).records_queued, counted(bench).batches_queued) == (5, 0), "still in the accumulator"
    bench.turn()
    before = counted(bench)
    assert (before.records_queued, before.batches_queued, before.buffered_bytes) == (5, 3, 500)
    sent = bench.turn(0.010)
    now = counted(bench)
    assert (now.requests_sent, now.batches_sent, now.records_sent) == (2, 2, 4)
    assert (now.batches_in_flight, now.records_in_flight, now.records_queued) == (2, 4, 1)
    assert now.bytes_sent == sum(len(batch.raw) for one in sent for batch in one.batches().values())
    assert now.queue_time.count == 2
    assert now.queue_time.mean == pytest.approx(0.010)
    for one in sent:
        one.respond(bench.now)
    after = counted(bench)
    assert (after.batches_acknowledged, after.records_acknowledged, after.records_in_flight) == (2, 4, 0)
    assert (after.buffered_bytes, after.buffered_bytes_max) == (100, 33_554_432)
    assert balance(before) == balance(now) == balance(after) == 5


def test_attempts_and_retries_count_and_waiting_does_not_count_twice() -> None:
    bench = Bench({"t": [(1, 0)]})
    bench.send(b"a", partition=0)
    bench.send(b"b", partition=0)
    bench.turn()[0].fail(bench.now, CUT)
    held = counted(bench)
    assert (held.records_retried, held.batches_retried, held.records_queued) == (2, 1, 2)
    bench.turn(1.0)[0].respond(bench.now)
    end = counted(bench)
    assert (end.requests_sent, end.records_sent, end.records_acknowledged) == (2, 4, 2)
    assert end.queue_time.count == 1
    assert balance(end) == 2


def test_failures_by_class() -> None:
    bench = Bench({"t": [(1, 0), (1, 0)]}, delivery_timeout_ms=1_000)
    bench.send(b"refused", partition=0)
    bench.send(b"refused too", partition=0)
    bench.turn()[0].respond(bench.now, ErrorCode.INVALID_TIMESTAMP)
    bench.view.down.add(1)
    bench.send(b"late", partition=1)
    bench.turn()
    bench.turn(1.0)
    bench.send(b"", "unknown", key=b"k")
    bench.turn()
    bench.sender.closed(ClosedError("closed"))
    end = counted(bench)
    assert end.failures == {"BrokerError": 2, "DeliveryError": 2}
    assert (end.records_failed, end.batches_failed) == (4, 3)
    assert balance(end) == 4


def test_a_record_whose_time_was_up_has_failed_though_it_was_acknowledged_later() -> None:
    bench = Bench({"t": [(1, 0)]})
    bench.send(b"a", partition=0, terms=within(1.0, bench))
    (sent,) = bench.turn()
    bench.turn(1.0)
    sent.respond(bench.now)
    end = counted(bench)
    assert (end.records_failed, end.records_acknowledged, balance(end)) == (1, 0, 1)


def test_over_real_sockets_before_during_and_after() -> None:
    with Cluster(brokers=2, topics={"t": 4}) as cluster:
        cluster.add_fault(Disconnect(), api=ApiKey.PRODUCE, after=1, times=1)
        producer = kwire.Producer(cluster.bootstrap, batch_bytes=200, retry_backoff_ms=10)
        assert producer.metrics().records_sent == 0
        assert producer.metrics().cluster.metadata_age is None
        for n in range(100):
            producer.send("t", b"%d" % n, partition=n % 4)
        producer.flush(PATIENCE)
        metrics = producer.metrics()
        producer.close()
        assert producer.metrics().records_acknowledged == metrics.records_acknowledged == 100
    assert metrics.buffered_bytes == metrics.records_failed == 0
    assert metrics.records_sent == 100 + metrics.records_retried > 100
    brokers = {node: broker for node, broker in metrics.cluster.brokers.items() if node > 0}
    assert set(brokers) == {1, 2}
    assert sum(broker.losses for broker in brokers.values()) == 1
    responses = sum(broker.latency["Produce"].count for broker in brokers.values())
    assert 0 < responses < metrics.requests_sent, "those that the lost connection request were not"
    assert sum(broker.bytes_out for broker in brokers.values()) > metrics.bytes_sent
    assert metrics.cluster.metadata_age is not None


def test_awaited() -> None:
    async def main(bootstrap: str) -> None:
        producer = kwire.aio.Producer(bootstrap)
        assert (await producer.metrics()).records_sent == 0
        await producer.send_and_wait("t", b"x")
        assert (await producer.metrics()).records_acknowledged == 1
        await producer.close()
        assert (await producer.metrics()).records_acknowledged == 1

    with Cluster(brokers=1) as cluster:
        asyncio.run(main(cluster.bootstrap))
