"""Who leads a partition now, for the answers that say so together with their error (KIP-951).

Owns which errors are worth the hint, and the list of addresses of the leaders that one response has named.
"""

from __future__ import annotations

from kwire.broker.partition import Partition
from kwire.broker.state import ClusterState, Node
from kwire.errors import ErrorCode

_WORTH_A_HINT = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


class Leaders:
    """For one response."""

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster
        self._named: dict[int, None] = {}

    @staticmethod
    def concerns(code: int) -> bool:
        return code in _WORTH_A_HINT

    def of(self, partition: Partition) -> tuple[int, int]:
        """(leader, epoch); the leader's address will be in `named`."""
        if partition.leader in self._cluster.nodes:
            self._named[partition.leader] = None
        return partition.leader, partition.leader_epoch

    def named(self) -> list[Node]:
        return [self._cluster.nodes[id] for id in self._named]
