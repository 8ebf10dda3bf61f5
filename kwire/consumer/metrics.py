"""What a consumer counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kwire.cluster import ClusterMetrics, Distribution
from kwire.cluster.telemetry import Reading, api_latency, cluster_readings
from kwire.consumer.arguments import TopicPartition
from kwire.consumer.lag import Lag


@dataclass(slots=True)
class ConsumerCounters:
    """Counts since the consumer was made. The consumer's lock guards them."""

    polls: int = 0
    records_consumed: int = 0
    rebalances: int = 0
    partitions_assigned: int = 0
    partitions_revoked: int = 0
    partitions_lost: int = 0
    callbacks_failed: int = 0
    offsets_committed: int = 0
    commits_failed: int = 0


@dataclass(frozen=True, slots=True)
class ConsumerMetrics:
    """One moment's copy of what a consumer counted.

    polls                  calls of `poll` and the like; of an iteration, its waits for further records
    records_consumed       offsets that the program went past before its last poll
    rebalances             that ended, also those that changed nothing
    partitions_...         that on_assigned, on_revoked and on_lost were called with, or would have been
    callbacks_failed       calls of these that raised
    offsets_committed      offsets of partitions that the coordinator took
    commits_failed         offsets of partitions that it did not
    assigned_partitions    now
    buffered_bytes         fetched and not yet read, without paused partitions
    gate_closed_seconds    in which the program had records in hand, so that rebalances waited
    commit_time            from an OffsetCommit request to its response, or to its failure
    rebalance_time         from the begin of a rebalance to its last callback, waiting for polls included
    last_poll_seconds      since the program last polled; 0 while it waits for some
    lag                    by partition, where it is known
    cluster                counts about brokers
    """

    polls: int
    records_consumed: int
    rebalances: int
    partitions_assigned: int
    partitions_revoked: int
    partitions_lost: int
    callbacks_failed: int
    offsets_committed: int
    commits_failed: int
    assigned_partitions: int
    buffered_bytes: int
    gate_closed_seconds: float
    commit_time: Distribution
    rebalance_time: Distribution
    last_poll_seconds: float
    lag: Mapping[TopicPartition, Lag]
    cluster: ClusterMetrics


def readings(metrics: ConsumerMetrics) -> list[Reading]:
    """Return what brokers may subscribe to, under the names of Java's client."""
    lags = {key: lag.records for key, lag in metrics.lag.items() if lag.records is not None}
    return [
        *cluster_readings("consumer", metrics.cluster),
        Reading("consumer.last.poll.seconds.ago", metrics.last_poll_seconds),
        Reading("consumer.coordinator.assigned.partitions", metrics.assigned_partitions),
        Reading("consumer.coordinator.commit.latency", metrics.commit_time),
        Reading("consumer.coordinator.rebalance", metrics.rebalances, is_count=True, is_hourly=True),
        Reading("consumer.coordinator.rebalance.latency", metrics.rebalance_time),
        Reading("consumer.fetch.manager.fetch.latency", api_latency("Fetch", metrics.cluster)),
        Reading("consumer.fetch.manager.records.consumed", metrics.records_consumed, is_count=True),
        Reading("consumer.fetch.manager.records.lag.max", max(lags.values(), default=0)),
        *(
            Reading("consumer.fetch.manager.records.lag", lag, labels={"topic": topic, "partition": str(partition)})
            for (topic, partition), lag in lags.items()
        ),
    ]
