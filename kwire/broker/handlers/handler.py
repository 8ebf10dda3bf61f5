"""The shape of a handler, and what several handlers share: leader hints (KIP-951) and authorized operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kwire.broker.broker import Broker
from kwire.broker.cluster_state import ClusterState, Node
from kwire.broker.partition import Partition
from kwire.broker.request_context import RequestContext
from kwire.errors import ErrorCode
from kwire.protocol.schema import Request, Response

R = TypeVar("R", bound=Request[Any])

# There is no authorizer, so every operation is allowed. One bit for each of Kafka's AclOperation codes that apply.
TOPIC_OPERATIONS = sum(1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))
GROUP_OPERATIONS = sum(1 << code for code in (3, 6, 8, 10, 11))
NOT_REQUESTED = -(2**31)

_WITH_LEADER_HINT = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


def no_partitions(broker: Broker, request: Request[Any]) -> Sequence[tuple[str, int]]:
    """Return nothing: the `named_partitions` of an API whose requests name no partitions."""
    return ()


@dataclass(frozen=True, slots=True)
class Handler(Generic[R]):
    """How a broker handles one API.

    handle                     return the response; None if it comes later, or never, through the context
    error_response             return the response that has this error code for everything in the request
    named_partitions           return the (topic, partition) pairs in the request, which faults match
    supports_partition_errors  whether `handle` calls `context.injected_error` for each of these partitions
    applied_error_response     like `error_response`, for a request that was applied; None if there is no difference
    """

    request: type[R]
    handle: Callable[[Broker, R, RequestContext, float], Response | None]
    error_response: Callable[[R, int, int], Response]
    named_partitions: Callable[[Broker, R], Sequence[tuple[str, int]]] = no_partitions
    supports_partition_errors: bool = False
    applied_error_response: Callable[[R, int, int], Response] | None = None


class LeaderHints:
    """The current leaders that one response names beside its errors, and their addresses (KIP-951)."""

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster
        self._leaders: dict[int, None] = {}  # an ordered set

    @staticmethod
    def applies_to(code: int) -> bool:
        """Return whether a response with this error names the leader."""
        return code in _WITH_LEADER_HINT

    def leader_of(self, partition: Partition) -> tuple[int, int]:
        """Return (leader, epoch). `nodes` will contain the leader."""
        if partition.leader in self._cluster.nodes:
            self._leaders[partition.leader] = None
        return partition.leader, partition.leader_epoch

    def nodes(self) -> list[Node]:
        """Return the leaders that were named."""
        return [self._cluster.nodes[id] for id in self._leaders]
