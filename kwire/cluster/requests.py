"""State machines and the requests that they return to the event loop.

A `StateMachine` touches no socket, clock or thread. Once per turn the loop calls it with the time and a `ClusterView`,
and it returns the requests to send. The loop calls `on_done` of each exactly once, on its thread, with the response or
with the error in place of it, except for a request that the machine withdraws before it was written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from kwire.cluster.loop import LoopClient
    from kwire.cluster.metadata import Broker, CurrentLeader, MetadataStatus, Snapshot
    from kwire.cluster.recovery import Failure
    from kwire.errors import KwireError
    from kwire.protocol import Request, Response

CoordinatorKind = Literal["group", "transaction"]

# The use of a connection. A broker handles the requests of a connection one after the other, so requests that may wait
# there (a fetch for records, a coordinator for members) have connections of their own. The purposes are
# "produce", "fetch", "coordinator", "join", "leave" and "general". A JoinGroup waits at the coordinator for the other
# members, so that it would hold up heartbeats and commits: "join" is for it and for SyncGroup. "leave" is for the
# second attempt to leave a group, when the first may be stuck. Clients that share a loop have connections of their own
# to fetch and to join, under purposes such as "fetch 2": one may wait for the other.
Purpose = str


class ToNode(NamedTuple):
    """The broker with this id, at the address that the metadata gives it."""

    node: int


class ToLeader(NamedTuple):
    """The leader of a partition; the request waits while there is none."""

    topic: str
    partition: int


class ToCoordinator(NamedTuple):
    """The coordinator of a group or of a transactional id, found by FindCoordinator."""

    key: str
    kind: CoordinatorKind = "group"


class _Anywhere:
    """A route without fields: all of one class are equal. (A dataclass would do, and take 1 ms more to import.)"""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class ToController(_Anywhere):
    """The controller, by the newest metadata."""

    __slots__ = ()


class ToAny(_Anywhere):
    """Any broker that is ready, bootstrap addresses included; the least loaded one is used."""

    __slots__ = ()


Route = ToNode | ToLeader | ToCoordinator | ToController | ToAny


@dataclass(slots=True, eq=False)
class PendingRequest:
    """A request that the loop is to send, and the callback for its result.

    build             makes the request for the version negotiated with the broker, just before it is written
    on_done           gets the response, the error in place of it, or None where no response is expected
    timeout_ms        the time for all of it, waiting for a connection included; None: the client's request_timeout_ms
    at_most           the highest version to use, where the caller needs an older one
    may_retry         whether the loop may send it again after a lost connection: only where that is safe
    expects_response  False for the only request without a response: Produce with acks=0
    connection        the purpose of its connection, where it is another than the state machine's or, for a request to
                      a coordinator, than "coordinator"
    """

    route: Route
    api: type[Request[Any]]
    build: Callable[[int], Request[Any]]
    on_done: Callable[[Response | KwireError | None, float], None]
    timeout_ms: int | None = None
    at_most: int | None = None
    may_retry: bool = False
    expects_response: bool = True
    connection: Purpose | None = None
    # Set by the loop. After an error: whether bytes of the request may have been sent, so that a broker may have it.
    was_written: bool = field(default=False, init=False)
    # Set by the loop: which of the broker's connections it uses.
    purpose: Purpose = field(default="general", init=False)
    # Set by the loop: the client, and whether it has left the loop, so that a response is dropped.
    client: LoopClient | None = field(default=None, init=False)
    is_abandoned: bool = field(default=False, init=False)
    # Set by the loop when it sends: the broker, by its id and as errors name it, and the version of the API.
    node: int = field(default=-1, init=False)
    broker: str | None = field(default=None, init=False)
    version: int | None = field(default=None, init=False)
    # Set by the loop while the request waits for a broker, for a back-off or for its response: `last_error` is that of
    # the last attempt, or of the lookup of its broker.
    waiting_since: float = field(default=inf, init=False)
    deadline: float = field(default=inf, init=False)
    attempts: int = field(default=0, init=False)
    retry_at: float = field(default=0.0, init=False)
    last_error: KwireError | None = field(default=None, init=False)


class ClusterView(Protocol):
    """The cluster as a state machine may see it during a turn.

    What concerns a node concerns its connection for the purpose of the state machine.
    """

    @property
    def snapshot(self) -> Snapshot: ...

    @property
    def connection_error(self) -> KwireError | None:
        """Return the newest failure as long as no broker responds, else None."""
        ...

    @property
    def has_fatal_error(self) -> bool:
        """Return whether waiting cannot end `connection_error`: wrong credentials or certificate, not a Kafka port."""
        ...

    def is_ready(self, node: int) -> bool:
        """Return whether a request can be sent to the node now. If not, connect, after the back-off."""
        ...

    def capacity(self, node: int) -> int:
        """Return how many more requests may be in flight to the node, which must be ready."""
        ...

    def version(self, node: int, api: type[Request[Any]], at_most: int | None = None) -> int:
        """Return the highest common version with the node, which must be ready, or raise UnsupportedVersionError."""
        ...

    def supports(self, node: int, api: type[Request[Any]]) -> bool: ...

    def failure(self, node: int) -> KwireError | None:
        """Return why the last connection to the node ended or failed; None while one is ready."""
        ...

    def feature(self, name: str) -> int:
        """Return the level of a cluster feature (KIP-584), such as transaction.version; 0 without it."""
        ...

    def forget_coordinator(self, route: ToCoordinator) -> None:
        """Look the coordinator up again: the broker is not the coordinator, or is gone."""
        ...

    def withdraw(self, pending: PendingRequest) -> bool:
        """Take back a request that was never written, so that `on_done` is not called; return whether it was."""
        ...

    def describe(self, node: int) -> str:
        """Return the node as errors name it: "1 at host:9092"."""
        ...

    def unreachable_since(self, node: int) -> Failure | None:
        """Return the failure of a broker of the metadata that cannot be reached; None while it can."""
        ...

    def metadata_status(self) -> MetadataStatus:
        """Return whether metadata is being requested, from which broker, or when it may be."""
        ...

    def request_metadata(self, reason: str) -> None:
        """Request metadata as soon as the back-off allows."""
        ...

    def allow_topic_creation(self, topic: str) -> None:
        """Let brokers create a topic that the state machine needs, if they and the client's options allow it.

        The permission ends when the topic was seen once, so that no refresh creates a deleted topic again.
        """
        ...

    def update_leaders(self, hints: Iterable[CurrentLeader], endpoints: Iterable[Broker]) -> frozenset[tuple[str, int]]:
        """Apply the leaders that a response names beside its errors (KIP-951), without a request for metadata.

        They are `current_leader` and `node_endpoints` of a ProduceResponse (v10) or a FetchResponse (v12, v16). Return
        the (topic, partition) pairs whose leader is new. A hint without a higher leader epoch, for another topic of the
        same name, or with a broker of unknown address is ignored.
        """
        ...


class StateMachine(Protocol):
    """A participant of the event loop."""

    def turn(self, now: float, view: ClusterView) -> Iterable[PendingRequest]:
        """Return the requests to send. Called once per turn, after responses were handled."""
        ...

    def deadline(self) -> float | None:
        """Return the time at which `turn` must be called although nothing happens, or None."""
        ...

    def topics(self) -> Collection[str]:
        """Return the topics whose metadata it needs. Called in every turn."""
        ...

    def closed(self, error: KwireError) -> None:
        """Resolve everything that still waits with `error`: the loop or the client ends."""
        ...
