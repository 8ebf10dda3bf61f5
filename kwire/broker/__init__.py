"""An in-process Kafka cluster that any client can talk to.

    with kwire.broker.Cluster(brokers=3) as cluster:
        ...  # cluster.bootstrap is "127.0.0.1:54321,..."

Only `server` touches sockets. Everything below it is state that gets the time as an argument: `broker.Broker` handles
one decoded request, now or later; `state.ClusterState` is what the brokers share. `faults` holds the disturbances that
a test can ask for. `kwire.simulation` runs these brokers on virtual time.

Imports: net, session, protocol, records, wire.
"""

from kwire.broker.cluster import Cluster, LogSnapshot, serve
from kwire.broker.faults import ApplyLate, Cut, Delay, Disconnect, Fault, Mute, Refuse
from kwire.broker.options import FirstSequence, Options

__all__ = [
    "ApplyLate",
    "Cluster",
    "Cut",
    "Delay",
    "Disconnect",
    "Fault",
    "FirstSequence",
    "LogSnapshot",
    "Mute",
    "Options",
    "Refuse",
    "serve",
]
