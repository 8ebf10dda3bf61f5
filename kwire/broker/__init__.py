"""An in-process Kafka cluster that any client can talk to.

    with kwire.broker.Cluster(brokers=3) as cluster:
        ...  # cluster.bootstrap is "127.0.0.1:54321,..."

Sockets are in `server` alone; below it everything is pure state that is told the time: `node.BrokerState` takes a
decoded request and answers now or later, `state.ClusterState` is what brokers know together. `faults` makes things go
wrong; `simulation` runs brokers and clients in one thread on virtual time.

Imports: consumer, producer, cluster, net, session, protocol, records, wire.
"""

from kwire.broker.cluster import Cluster, LogSnapshot
from kwire.broker.faults import ApplyLate, Cut, Delay, Disconnect, Fault, Mute, Refuse
from kwire.broker.options import FirstSequence, Options
from kwire.broker.serve import serve

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
