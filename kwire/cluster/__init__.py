"""What a client knows of a cluster, and the one event loop that everything runs on.

    config        the options that all clients share
    snapshot      brokers, topics and leaders at one moment
    calls         how state machines and the loop speak: Machine, View, Call, routes
    metadata      when to refresh the snapshot            (state machine)
    events        what programs are told of the cluster
    recovery      which brokers failed, when to probe     (state machine)
    coordinators  where groups and transactions live      (state machine)
    greetings     how each broker wants to be greeted     (state machine)
    backoff       pauses before trying again
    connections   one Session per broker connection, joined to the KafkaSelector
    loop          the turn: poll, handle, metadata, incomplete, retries, new
    runtime       the thread that turns the loop, and the doors into it
    dispatcher    the thread that runs user code
    mailbox       the way into asyncio loops
    metrics       what is counted about brokers

It refuses to know what is produced or consumed.

Imports: net, session, protocol, wire.
"""

from kwire.cluster.cluster import Cluster, open_loop_thread
from kwire.cluster.config import ClientConfig, ClientKwargs, client_config, parse_bootstrap
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
