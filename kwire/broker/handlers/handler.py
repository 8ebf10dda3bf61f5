"""The shape of a handler, and what several share: repetitions, leader hints (KIP-951), authorized operations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from uuid import UUID

from kwire.broker.authorizer import Access, ResourceType
from kwire.broker.broker import Broker
from kwire.broker.cluster_state import ClusterState, Node, Topic
from kwire.broker.partition import Partition
from kwire.broker.request_context import RequestContext
from kwire.errors import ErrorCode, broker_error
from kwire.protocol.schema import Request, Response

R = TypeVar("R", bound=Request[Any])
K = TypeVar("K")
T = TypeVar("T")

NOT_REQUESTED = -(2**31)

_WITH_LEADER_HINT = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


def no_partitions(broker: Broker, request: Request[Any]) -> Sequence[tuple[str, int]]:
    """Return nothing: the `named_partitions` of an API whose requests name no partitions."""
    return ()


Authorize = Callable[[Any, Access, int], None]  # request, access, version


def open_to_all(request: Request[Any], access: Access, version: int) -> None:
    """Allow: the API needs no right, or only rights that its handler checks for each thing in the request."""


def needs_cluster(operation: int) -> Authorize:
    """Return the check of an API that needs a right on the cluster."""
    return lambda request, access, version: access.require_cluster(operation)


def needs_group(operation: int) -> Authorize:
    """Return the check of an API that needs a right on the group of the request."""
    return lambda request, access, version: access.require_group(operation, request.group_id)


def needs_transactional_id(operation: int) -> Authorize:
    """Return the check of an API that needs a right on the transactional id of the request."""
    type = ResourceType.TRANSACTIONAL_ID
    return lambda request, access, version: access.require(operation, type, request.transactional_id)


@dataclass(frozen=True, slots=True)
class Handler(Generic[R]):
    """How a broker handles one API.

    handle                     return the response; None if it comes later, or never, through the context
    error_response             return the response that has this error code for everything in the request
    named_partitions           return the (topic, partition) pairs in the request, which faults match
    supports_partition_errors  whether `handle` calls `context.injected_error` for each of these partitions
    authorize                  raise BrokerError if the client may not send the request at all
    applied_error_response     like `error_response`, for a request that was applied; None if there is no difference
    """

    request: type[R]
    handle: Callable[[Broker, R, RequestContext, float], Response | None]
    error_response: Callable[[R, int, int], Response]
    named_partitions: Callable[[Broker, R], Sequence[tuple[str, int]]] = no_partitions
    supports_partition_errors: bool = False
    authorize: Authorize = open_to_all
    applied_error_response: Callable[[R, int, int], Response] | None = None


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Return the items by their keys, in order: one request may name a thing more than once."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def find_topic(broker: Broker, access: Access, operation: int, name: str | None, id: UUID | None = None) -> Topic:
    """Return a topic that the client may use; by its id, if there is one. Raises BrokerError.

    A client without rights does not learn whether a name exists. Ids are not secret.
    """
    if id is None:
        access.require_topic(operation, name or "")
        return broker.cluster.find_topic(name or "")
    topic = broker.cluster.find_topic_by_id(id)
    access.require_topic(operation, topic.name)
    return topic


class Mutations:
    """The partitions that one request creates and deletes, against the quota of its client (KIP-599).

    Versions before `since` do not know the error: their requests are not limited.
    """

    def __init__(self, broker: Broker, context: RequestContext, *, since: int) -> None:
        self._quotas = broker.cluster.quotas
        self._context = context
        self.are_limited = context.version >= since and self._quotas.has_limits
        self.throttle_ms = 0

    def take(self, partitions: int, now: float) -> None:
        """Note that partitions are created or deleted. Raises THROTTLING_QUOTA_EXCEEDED."""
        if not self.are_limited:
            return
        principal, client_id = self._context.access.principal, self._context.client_id
        wait_ms = self._quotas.mutate_ms(principal, client_id, partitions, now)
        if wait_ms:
            self.throttle_ms = max(self.throttle_ms, wait_ms)
            why = "The throttling quota has been exceeded."
            raise broker_error(ErrorCode.THROTTLING_QUOTA_EXCEEDED, why)


class LeaderHints:
    """The current leaders that one response names beside its errors, and their addresses (KIP-951)."""

    def __init__(self, cluster: ClusterState, listener: str) -> None:
        self._cluster = cluster
        self._listener = listener  # by which the client came
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
        return [self._cluster.nodes[id].seen_by(self._listener) for id in self._leaders]
