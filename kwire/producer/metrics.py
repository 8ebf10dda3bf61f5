"""The producer's metrics: records, batches and bytes sent, acknowledged, retried and failed.

The loop's thread counts per batch and per request, never per record, without a lock; so metrics are always on. A
`ProducerMetrics` is a snapshot. Its numbers only grow, except those marked "now".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kwire.cluster import ClusterMetrics, Distribution
from kwire.cluster.metrics import Histogram
from kwire.cluster.telemetry import Reading, cluster_readings
from kwire.errors import KwireError
from kwire.producer.accumulator import BufferPool
from kwire.producer.batch import ProducerBatch
from kwire.producer.topic import TopicQueue


@dataclass(frozen=True, slots=True)
class ProducerMetrics:
    """A snapshot: each record that was sent is acknowledged, failed, or buffered now.

    requests_sent ... bytes_sent  every attempt counts; bytes are those of batches, compressed
    *_retried                     attempts after which a batch must be sent again
    batches_cut                   batches split because a broker refused them as too large
    failures                      failed records by the class of their error
    records_in_flight             now: in requests that have no response yet
    records_queued                now: waiting to be sent
    buffered_bytes                now, of buffered_bytes_max: records that have no result yet
    senders_waiting               now: threads and tasks that wait for memory
    queue_time                    from the first record's arrival in a batch to the batch's first request
    cluster                       connections, request latency by broker and API, age of the metadata
    """

    requests_sent: int
    batches_sent: int
    records_sent: int
    bytes_sent: int
    batches_acknowledged: int
    records_acknowledged: int
    batches_retried: int
    records_retried: int
    batches_cut: int
    batches_failed: int
    records_failed: int
    failures: Mapping[str, int]
    batches_in_flight: int
    records_in_flight: int
    batches_queued: int
    records_queued: int
    buffered_bytes: int
    buffered_bytes_max: int
    senders_waiting: int
    queue_time: Distribution
    cluster: ClusterMetrics


def readings(metrics: ProducerMetrics) -> list[Reading]:
    """Return what brokers may subscribe to, under the names of Java's client."""
    return [
        *cluster_readings("producer", metrics.cluster),
        Reading("producer.record.send", metrics.records_sent, is_count=True),
        Reading("producer.record.retry", metrics.records_retried, is_count=True),
        Reading("producer.record.error", metrics.records_failed, is_count=True),
        Reading("producer.record.queue.time", metrics.queue_time),
        Reading("producer.buffer.total.bytes", metrics.buffered_bytes_max),
        Reading("producer.buffer.available.bytes", metrics.buffered_bytes_max - metrics.buffered_bytes),
        Reading("producer.waiting.threads", metrics.senders_waiting),
    ]


class Counters:
    """The counters, which only grow."""

    __slots__ = (
        "batches_acknowledged", "batches_cut", "batches_failed", "batches_retried", "batches_sent", "bytes_sent",
        "failures", "queue_time", "records_acknowledged", "records_retried", "records_sent", "requests_sent",
    )  # fmt: skip

    def __init__(self) -> None:
        self.requests_sent = self.batches_sent = self.records_sent = self.bytes_sent = 0
        self.batches_acknowledged = self.records_acknowledged = 0
        self.batches_retried = self.records_retried = 0
        self.batches_cut = self.batches_failed = 0
        self.failures: Counter[str] = Counter()
        self.queue_time = Histogram()

    def sent(self, batches: Sequence[ProducerBatch], now: float) -> None:
        """Count a request with these batches, which is being written."""
        self.requests_sent += 1
        self.batches_sent += len(batches)
        since, count = batches[0].created_at, 0  # most were created in the same turn
        for batch in batches:
            self.records_sent += batch.count
            self.bytes_sent += len(batch.encoded or b"")
            if batch.attempts == 1:
                if batch.created_at != since and count:
                    self.queue_time.observe(now - since, count)
                    count = 0
                since, count = batch.created_at, count + 1
        if count:
            self.queue_time.observe(now - since, count)

    def retried(self, batch: ProducerBatch) -> None:
        self.batches_retried += 1
        self.records_retried += batch.count

    def cut(self, batch: ProducerBatch) -> None:
        self.batches_cut += 1

    def failed(self, batch: ProducerBatch, error: KwireError) -> None:
        self.batches_failed += 1
        self.failures[type(error).__name__] += batch.count


def producer_metrics(
    counters: Counters, topics: Iterable[TopicQueue], buffer_pool: BufferPool, cluster: ClusterMetrics
) -> ProducerMetrics:
    """Return a snapshot of the counters and the queues. On the loop's thread."""
    in_flight: list[ProducerBatch] = []
    queued: list[ProducerBatch] = []
    for topic in topics:
        queued += topic.awaiting_metadata
        queued += topic.undesignated
        for queue in topic.partitions.values():
            in_flight += queue.in_flight()
            queued += queue.waiting()
    return ProducerMetrics(
        counters.requests_sent,
        counters.batches_sent,
        counters.records_sent,
        counters.bytes_sent,
        counters.batches_acknowledged,
        counters.records_acknowledged,
        counters.batches_retried,
        counters.records_retried,
        counters.batches_cut,
        counters.batches_failed,
        counters.failures.total(),
        dict(counters.failures),
        len(in_flight),
        sum(map(len, in_flight)),
        len(queued),
        sum(map(len, queued)) + buffer_pool.accumulator.untaken(),
        buffer_pool.used_bytes,
        buffer_pool.bytes_max,
        buffer_pool.waiting,
        counters.queue_time.distribution(),
        cluster,
    )
