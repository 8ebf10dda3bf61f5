"""Events of a cluster: brokers that come, fail and go, partitions without a leader, metadata that changed.

`on_cluster_event` of a client calls a function with each event, on the callback thread. The state may have changed
again by then. franz-go's hooks (BrokerConnectHook) and Java's ClusterResourceListener serve the same purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from kwire.cluster.metadata import NO_NODE, Broker, Snapshot, Topic
from kwire.errors import KwireError


@dataclass(frozen=True, slots=True)
class MetadataUpdated:
    """Newer metadata differs from what was known: brokers, the controller, topics, partitions, leaders or replicas.

    It comes before the events that say what has changed. `snapshot` has all brokers, and the topics that the client
    uses.
    """

    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class BrokerAdded:
    """The metadata has a new broker. The first metadata gives an event for each broker."""

    broker: Broker


@dataclass(frozen=True, slots=True)
class BrokerRemoved:
    """The metadata no longer has a broker: it was shut down, or the controller lost it."""

    broker: Broker


@dataclass(frozen=True, slots=True)
class BrokerFailed:
    """A connection to a broker broke or could not be made. It is tried again until `BrokerRecovered` or
    `BrokerRemoved`."""

    broker: Broker
    cause: KwireError


@dataclass(frozen=True, slots=True)
class BrokerRecovered:
    """A connection to a broker that had failed is ready. `unreachable_since` is how long that took, in seconds."""

    broker: Broker
    unreachable_since: float


@dataclass(frozen=True, slots=True)
class LeaderLost:
    """A partition has no leader. `leader` is the id of the last one."""

    topic: str
    partition: int
    leader: int


@dataclass(frozen=True, slots=True)
class LeaderRecovered:
    """A partition that had no leader has one again, or for the first time."""

    topic: str
    partition: int
    leader: int


ClusterEvent: TypeAlias = (
    MetadataUpdated | BrokerAdded | BrokerRemoved | BrokerFailed | BrokerRecovered | LeaderLost | LeaderRecovered
)


class Observer:
    """Makes the events of what the event loop tells, and calls a function with each, on the loop's thread."""

    def __init__(self, callback: Callable[[ClusterEvent], object]) -> None:
        self._callback = callback

    def updated(self, old: Snapshot, new: Snapshot) -> None:
        for event in changes(old, new):
            self._callback(event)

    def failed(self, broker: Broker, cause: KwireError) -> None:
        self._callback(BrokerFailed(broker, cause))

    def recovered(self, broker: Broker, unreachable_since: float) -> None:
        self._callback(BrokerRecovered(broker, unreachable_since))


def changes(old: Snapshot, new: Snapshot) -> Iterator[ClusterEvent]:
    """Yield what has happened between two snapshots; nothing if they say the same."""
    if (old.brokers, old.controller_id, old.topics) == (new.brokers, new.controller_id, new.topics):
        return
    yield MetadataUpdated(new)
    for node in sorted(old.brokers.keys() - new.brokers.keys()):
        yield BrokerRemoved(old.brokers[node])
    for node in sorted(new.brokers.keys() - old.brokers.keys()):
        yield BrokerAdded(new.brokers[node])
    for name, topic in new.topics.items():
        before = old.topics.get(name)
        if topic is not before:
            yield from _leaders(before, topic)


def _leaders(old: Topic | None, new: Topic) -> Iterator[ClusterEvent]:
    for partition in new.partitions:
        if old is None or partition.index >= len(old.partitions):
            continue
        before = old.partitions[partition.index].leader
        if before != NO_NODE and partition.leader == NO_NODE:
            yield LeaderLost(new.name, partition.index, before)
        elif before == NO_NODE and partition.leader != NO_NODE:
            yield LeaderRecovered(new.name, partition.index, partition.leader)
