"""The cluster as clients know it, and the event loop that they run on.

    cluster       `kwire.Cluster`: connections that several clients share
    config        the options that all clients have
    security_properties  TLS and SASL by the names of Java's property files
    requests      state machines, the requests that they return, routes
    metadata      the snapshot of brokers, topics and leaders, and when to request a new one
    connections   one Session per broker connection; the handshake that each broker needs
    group_metadata  who a consumer is in its group
    coordinators  the coordinators of groups and transactions
    recovery      which brokers failed, and when to probe them
    events        what programs can observe
    loop          the event loop: poll, handle, metadata, waiting requests, retries, new requests
    thread        the thread of the loop, and the calls into it
    dropped       a client that is dropped without close: its thread ends, with a warning
    callbacks     the thread for user code, and the way into asyncio loops
    waiting       methods that wait, written once for threads and for asyncio
    interceptors  what the interceptors of all clients share
    metrics       counts about brokers
    telemetry     metrics that are pushed to brokers
    otlp          OpenTelemetry's format, for these
    logs          log lines about brokers

Of records the room knows only the compression, for metrics that are pushed.

Imports: net, session, records, protocol, wire.
"""

from typing import TYPE_CHECKING

from kwire.cluster.cluster import Cluster, open_loop_thread
from kwire.cluster.config import ClientConfig, ClientKwargs, client_config, parse_bootstrap
from kwire.cluster.group_metadata import GroupMetadata
from kwire.cluster.loop import EventLoop
from kwire.cluster.metadata import Broker, CurrentLeader, Partition, Snapshot, Topic, is_topic_name
from kwire.cluster.metrics import BrokerMetrics, ClusterMetrics, Distribution
from kwire.cluster.requests import (
    ClusterView,
    PendingRequest,
    Route,
    StateMachine,
    ToAny,
    ToController,
    ToCoordinator,
    ToLeader,
    ToNode,
)
from kwire.cluster.thread import LoopThread
from kwire.net.backoff import Backoff

if TYPE_CHECKING:
    from kwire.cluster.events import (
        BrokerAdded,
        BrokerFailed,
        BrokerRecovered,
        BrokerRemoved,
        ClusterEvent,
        LeaderLost,
        LeaderRecovered,
        MetadataUpdated,
    )

__all__ = [
    "Backoff",
    "Broker",
    "BrokerAdded",
    "BrokerFailed",
    "BrokerMetrics",
    "BrokerRecovered",
    "BrokerRemoved",
    "ClientConfig",
    "ClientKwargs",
    "Cluster",
    "ClusterEvent",
    "ClusterMetrics",
    "ClusterView",
    "CurrentLeader",
    "Distribution",
    "EventLoop",
    "GroupMetadata",
    "LeaderLost",
    "LeaderRecovered",
    "LoopThread",
    "MetadataUpdated",
    "Partition",
    "PendingRequest",
    "Route",
    "Snapshot",
    "StateMachine",
    "ToAny",
    "ToController",
    "ToCoordinator",
    "ToLeader",
    "ToNode",
    "Topic",
    "client_config",
    "is_topic_name",
    "open_loop_thread",
    "parse_bootstrap",
]

if not TYPE_CHECKING:  # or checkers would accept every name

    def __getattr__(name: str) -> object:
        """Import the events when one is used: see `EventLoop.observe`."""
        if name in __all__:
            from kwire.cluster import events

            return getattr(events, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
