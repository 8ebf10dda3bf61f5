"""Partitions that get other replicas (KIP-455).

Replicas share one log, so a reassignment is complete at once, unless a new replica is on a broker that is stopped. Then
the partition has its old and its new replicas until that broker starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kwire.broker.partition import Partition
from kwire.errors import ErrorCode, broker_error

if TYPE_CHECKING:
    from kwire.broker.cluster_state import ClusterState

_TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Reassignment:
    """One that waits for a broker."""

    partition: Partition
    before: tuple[int, ...]
    target: tuple[int, ...]

    @property
    def adding(self) -> list[int]:
        return [node for node in self.target if node not in self.before]

    @property
    def removing(self) -> list[int]:
        return [node for node in self.before if node not in self.target]


class Reassignments:
    """Those of a cluster that are not complete."""

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster
        self._waiting: dict[_TopicPartition, Reassignment] = {}

    def __iter__(self) -> Iterator[Reassignment]:
        return iter([one for one in self._waiting.values() if not one.partition.is_deleted])

    def start(self, key: _TopicPartition, target: Sequence[int], now: float, *, may_resize: bool) -> None:
        """Give a partition these replicas. Raises BrokerError."""
        partition = self._cluster.partition(*key)
        if not target or len(set(target)) != len(target) or any(node not in self._cluster.nodes for node in target):
            why = f"The manual partition assignment includes replicas {list(target)}, which cannot be."
            raise broker_error(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
        waiting = self._waiting.pop(key, None)
        before = waiting.before if waiting is not None else partition.replicas
        if not may_resize and len(target) != len(before):
            why = f"The replication factor is {len(before)}, and would become {len(target)}"
            raise broker_error(ErrorCode.INVALID_REPLICATION_FACTOR, why)
        reassignment = Reassignment(partition, before, tuple(target))
        if all(self._cluster.nodes[node].is_up for node in reassignment.adding):
            self._complete(reassignment, now)
        else:
            added = tuple(node for node in before if node not in target)
            partition.set_replicas((*target, *added), self._is_up, now)
            self._waiting[key] = reassignment

    def cancel(self, key: _TopicPartition, now: float) -> None:
        """Go back to the replicas before. Raises NO_REASSIGNMENT_IN_PROGRESS."""
        partition = self._cluster.partition(*key)
        waiting = self._waiting.pop(key, None)
        if waiting is None:
            raise broker_error(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        partition.set_replicas(waiting.before, self._is_up, now)

    def broker_started(self, now: float) -> None:
        """Complete what waited for a broker that has started."""
        for key, one in list(self._waiting.items()):
            if one.partition.is_deleted:
                del self._waiting[key]
            elif all(self._cluster.nodes[node].is_up for node in one.adding):
                del self._waiting[key]
                self._complete(one, now)

    def _complete(self, one: Reassignment, now: float) -> None:
        one.partition.set_replicas(one.target, self._is_up, now)
        self._cluster.find_topic(one.partition.topic).replication_factor = len(one.target)

    def _is_up(self, node: int) -> bool:
        return self._cluster.nodes[node].is_up
