"""What a consumer counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kwire.cluster import ClusterMetrics, Distribution
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
