"""One broker as its handlers see it: who it is, and the cluster that it belongs to. Requests come in by `apis`.

Owns nothing but that. No socket, no clock.
"""

from __future__ import annotations

from kwire.broker.state import ClusterState, Node
from kwire.errors import ErrorCode, broker_error


class BrokerState:
    """The broker `id` of a cluster."""

    def __init__(self, id: int, cluster: ClusterState) -> None:
        self.id = id
        self.cluster = cluster

    @property
    def node(self) -> Node:
        return self.cluster.nodes[self.id]

    def coordinates(self, key: str) -> bool:
        """Whether this broker is the coordinator of a group or a transactional id."""
        return self.cluster.coordinator_of(key) == self.id

    def check_coordinates(self, key: str) -> None:
        """Raises NOT_COORDINATOR."""
        if not self.coordinates(key):
            raise broker_error(ErrorCode.NOT_COORDINATOR, f"broker {self.id} does not coordinate {key}")
