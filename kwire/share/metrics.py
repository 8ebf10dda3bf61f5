"""What a share consumer has counted."""

from __future__ import annotations

from dataclasses import dataclass

from kwire.cluster import ClusterMetrics


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
