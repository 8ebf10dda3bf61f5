"""How a state machine and the event loop speak: a `StateMachine` answers `PendingRequest`s, the loop carries them out.

A machine touches no socket, clock or thread. Once per turn of the loop it is given the time and a `ClusterView` of the
cluster and answers the requests that it wants sent; each call's `on_done` is called exactly once, on the loop's
thread, with the response or with the error that took its place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from kwire.cluster.loop import LoopClient
    from kwire.cluster.metadata import Broker, CurrentLeader, MetadataStatus, Snapshot
    from kwire.cluster.recovery import Failure
    from kwire.errors import KwireError
    from kwire.protocol import Request, Response

CoordinatorKind = Literal["group", "transaction"]

# What a connection is for. A broker answers the requests of a connection one after the other: so what may be slow has
# connections of its own, as fetches that wait for records and coordinators that wait for members.
# "produce", "fetch", "coordinator" and "general". Clients that share a loop have fetch connections of their own, under
# purposes such as "fetch 2": the fetch of one waits at the broker, and must not hold up the other's.
Purpose = str


@dataclass(frozen=True, slots=True)
class ToNode:
    """The broker with this id, at the address that the metadata gives it."""

    node: int


@dataclass(frozen=True, slots=True)
class ToLeader:
    """The leader of a partition; the call waits while there is none."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class ToCoordinator:
    """The coordinator of a group or of a transactional id; found by FindCoordinator and remembered."""

    key: str
    kind: CoordinatorKind = "group"


@dataclass(frozen=True, slots=True)
class ToController:
    """The controller, by the newest metadata."""


@dataclass(frozen=True, slots=True)
class ToAny:
    """Any broker that is ready, the least loaded first; bootstrap addresses count."""


Route = ToNode | ToLeader | ToCoordinator | ToController | ToAny


@dataclass(slots=True, eq=False)
class PendingRequest:
    """One request to be sent and its answer to be handed back.

    build       makes the request for the version negotiated with the broker, just before it is written
    on_done     gets the response, or the error that took its place, or None where no answer is to come; exactly once,
                on the loop's thread
    timeout_ms  the whole budget, waiting for a connection included; None: the client's request_timeout_ms
    at_most     the highest version to use, where the caller needs an older one
    may_retry   the loop may send it again when the connection broke: only for requests that are safe to repeat
    expects_response  False for the one request that brokers do not answer: Produce with acks=0
    """

    route: Route
    api: type[Request[Any]]
    build: Callable[[int], Request[Any]]
    on_done: Callable[[Response | KwireError | None, float], None]
    timeout_ms: int | None = None
    at_most: int | None = None
    may_retry: bool = False
    expects_response: bool = True
    # Set by the loop. After an error: whether bytes of the request may have left, so that it may have been carried out.
    was_written: bool = field(default=False, init=False)
    # Set by the loop: which of the broker's connections it goes by.
    purpose: Purpose = field(default="general", init=False)
    # Set by the loop: whose request it is, and whether that client left the loop, so that a response is dropped.
    client: LoopClient | None = field(default=None, init=False)
    is_abandoned: bool = field(default=False, init=False)
    # Set by the loop when it sends: the broker as errors name it, and the version of the API.
    broker: str | None = field(default=None, init=False)
    version: int | None = field(default=None, init=False)
    # Set by the loop while the call waits for its route, for a back-off, or for its answer: how long it may, how often
    # it was tried, when it may be again, and what became of its last attempt, or of looking for its broker.
    deadline: float = field(default=inf, init=False)
    attempts: int = field(default=0, init=False)
    retry_at: float = field(default=0.0, init=False)
    last_error: KwireError | None = field(default=None, init=False)


class ClusterView(Protocol):
    """The cluster as a machine may see it during a turn. What it says of a node is said of the node's connection for
    the machine's purpose."""

    @property
    def snapshot(self) -> Snapshot: ...

    @property
    def connection_error(self) -> KwireError | None:
        """Why no broker can be reached, while none can; the cause to give when patience runs out."""
        ...

    @property
    def has_fatal_error(self) -> bool:
        """`connection_error` will not pass by waiting: wrong credentials, wrong certificate, not a Kafka port."""
        ...

    def is_ready(self, node: int) -> bool:
        """Whether a request can be written to the node now. If not, a connection is started, back-off respected."""
        ...

    def capacity(self, node: int) -> int:
        """How many more requests may be put in flight to the node."""
        ...

    def version(self, node: int, api: type[Request[Any]], at_most: int | None = None) -> int:
        """The highest version that both sides speak; raises UnsupportedVersionError. The node must be ready."""
        ...

    def supports(self, node: int, api: type[Request[Any]]) -> bool: ...

    def failure(self, node: int) -> KwireError | None:
        """Why the last connection to the node ended or failed; None once a new one is ready."""
        ...

    def feature(self, name: str) -> int:
        """The level of a cluster feature (KIP-584), such as transaction.version; 0 where brokers know none."""
        ...

    def forget_coordinator(self, route: ToCoordinator) -> None:
        """A broker said that it is not the coordinator, or is gone: look it up again."""
        ...

    def describe(self, node: int) -> str:
        """The node as errors name it: "1 at host:9092"."""
        ...

    def unreachable_since(self, node: int) -> Failure | None:
        """Since when a broker of the metadata cannot be reached, and when it is tried again; None while it can."""
        ...

    def metadata_status(self) -> MetadataStatus:
        """Who is being asked for newer metadata, or when somebody may be."""
        ...

    def request_metadata(self, reason: str) -> None:
        """Ask for a refresh as soon as the back-off allows."""
        ...

    def allow_topic_creation(self, topic: str) -> None:
        """Let brokers create a topic that the machine wants, if they and the client's options allow that.

        For a record to a topic that the producer has never seen. The permission ends when the topic was seen once, so
        that no refresh creates a topic again that was deleted.
        """
        ...

    def update_leaders(self, hints: Iterable[CurrentLeader], endpoints: Iterable[Broker]) -> frozenset[tuple[str, int]]:
        """Take the leaders that a response names beside its errors (KIP-951), without a round trip for metadata.

        For `current_leader` and `node_endpoints` of a ProduceResponse (v10) or a FetchResponse (v12, v16) alike. The
        answer are the (topic, partition) for which that was news, so that they can be asked for at once: what names no
        higher leader epoch, another topic of the same name, or a broker of unknown address is passed over.
        """
        ...


class StateMachine(Protocol):
    """A participant of the event loop."""

    def turn(self, now: float, view: ClusterView) -> Iterable[PendingRequest]:
        """Called once per turn, after responses were handled; answers what to send."""
        ...

    def deadline(self) -> float | None:
        """When `turn` must be called next though nothing happens; None: not by time alone."""
        ...

    def topics(self) -> Collection[str]:
        """The topics whose metadata it needs. An empty answer costs nothing; the loop asks every turn."""
        ...

    def closed(self, error: KwireError) -> None:
        """The loop ends: resolve everything that is still waiting, with `error`."""
        ...
