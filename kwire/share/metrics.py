"""What a share consumer has counted."""

from __future__ import annotations

from dataclasses import dataclass

from kwire.cluster import ClusterMetrics
from kwire.cluster.telemetry import Reading, api_latency, cluster_readings


@dataclass(frozen=True, slots=True)
class ShareConsumerMetrics:
    """A snapshot. Counts are since the consumer was made; acknowledgements count when the broker has confirmed them.

    acquired_records         offsets that brokers have locked for this consumer
    polled_records           records that the caller has got
    expired_records          offsets whose lock ended before a poll returned them
    failed_acknowledgements  records whose acknowledgement did not count: they are delivered again
    gaps                     acquired offsets without a record
    cluster                  counts about brokers
    in_hand_records          records that the caller has and has not acknowledged
    """

    group: str
    member_id: str
    state: str
    member_epoch: int
    heartbeats: int
    rejoins: int
    assigned_partitions: int
    acquisition_lock_ms: int | None
    fetches: int
    acknowledge_requests: int
    sessions_opened: int
    acquired_records: int
    polled_records: int
    expired_records: int
    failed_acknowledgements: int
    accepted: int
    released: int
    rejected: int
    renewed: int
    gaps: int
    in_hand_records: int
    cluster: ClusterMetrics


def readings(metrics: ShareConsumerMetrics) -> list[Reading]:
    """Return what brokers may subscribe to, under the names of Java's client."""
    sent = metrics.accepted + metrics.released + metrics.rejected + metrics.renewed
    return [
        *cluster_readings("consumer", metrics.cluster),
        Reading("consumer.share.coordinator.heartbeat", metrics.heartbeats, is_count=True),
        Reading("consumer.share.fetch.manager.acknowledgements.send", sent, is_count=True),
        Reading("consumer.share.fetch.manager.acknowledgements.error", metrics.failed_acknowledgements, is_count=True),
        Reading("consumer.share.fetch.manager.fetch.latency", api_latency("ShareFetch", metrics.cluster)),
        Reading("consumer.share.fetch.manager.records.consumed", metrics.polled_records, is_count=True),
    ]
