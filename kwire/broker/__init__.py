"""An in-process Kafka cluster that any client can talk to.

    with kwire.broker.Cluster(brokers=3) as cluster:
        ...  # cluster.bootstrap is "127.0.0.1:54321,..."

The public face is `cluster`: it runs a `Server` on a thread. Below it, in the order in which a request passes:

    server            sockets and the turn of the loop, for all brokers together
    connection        one client's connection: frames in, frames out
    broker            one broker: finds the handler, applies `faults`
    request_context   a request and how it completes
    handlers/         one file per API
    cluster_state     what all brokers share: nodes, topics, leaders, coordinators, timers
    partition, log    a partition's leader and replicas; its batches and offsets
    log_validator, producer_state         which batches a log accepts
    log_cleaner                           log compaction
    data_directory, segment_files         what a cluster keeps on a disk
    listeners, request_log, control       further listeners; the last requests; an HTTP port for tests
    groups, offsets, transactions, ids    the coordinators
    consumer_groups       the coordinator of consumer groups (KIP-848): consumer_group has the state of one,
                          current_assignment the way of a member to its target, assignors the targets, re2 the patterns
    classic_members       the classic protocol in such groups, and their conversion
    group_registry        the groups of all types by id
    group_configs                         the configs of groups
    streams_groups        the coordinator of groups of Kafka Streams (KIP-1071): streams_group has the state of one,
                          streams_topology its tasks and internal topics, streams_assignor the targets
    share_groups, share_assignor          members of share groups, and what they read
    share_partition                       the records that a share group works on
    share_partition_manager, share_sessions, share_coordinator, dead_letters
                                          share partitions on their leaders, and what is kept of them

Only `server` and `control` touch sockets, only `segment_files` and `data_directory` files. Everything else gets the
time as an argument, so that simulations run it on virtual time.

Imports: net, session, protocol, records, wire.
"""

from kwire.broker.cluster import Cluster, LogSnapshot, serve
from kwire.broker.faults import (
    Answer,
    ApplyLate,
    Corrupt,
    Cut,
    Delay,
    Disconnect,
    Fault,
    HalfOpen,
    Mute,
    Refuse,
    Reset,
    Throttle,
    Trickle,
)
from kwire.broker.listeners import Listener
from kwire.broker.options import FirstSequence, Options
from kwire.broker.request_log import RequestRecord
from kwire.session.sasl import AwsMskValidator, KerberosAcceptor, OAuthValidator, SaslServer

__all__ = [
    "Answer",
    "ApplyLate",
    "AwsMskValidator",
    "Cluster",
    "Corrupt",
    "Cut",
    "Delay",
    "Disconnect",
    "Fault",
    "FirstSequence",
    "HalfOpen",
    "KerberosAcceptor",
    "Listener",
    "LogSnapshot",
    "Mute",
    "OAuthValidator",
    "Options",
    "Refuse",
    "RequestRecord",
    "Reset",
    "SaslServer",
    "Throttle",
    "Trickle",
    "serve",
]
