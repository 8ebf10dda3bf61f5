"""The topics of the metadata as a group sees them: a topic that one response lacks is not gone yet.

A broker that has just started may leave out topics. If a member believed such a response, it would revoke partitions,
or match other topics than before, and have the whole group rebalance, twice (KAFKA-9815). So a topic is gone when two
refreshes in a row lack it.
"""

from __future__ import annotations

from collections.abc import Iterable

from kwire.cluster import Snapshot, Topic
from kwire.consumer.assignors import TopicRacks, topic_racks

_MISSES_MAX = 2


class TopicWatch:
    """The newest metadata of each topic that is not gone."""

    def __init__(self) -> None:
        self.known: dict[str, Topic] = {}
        self._misses: dict[str, int] = {}
        self._snapshot = Snapshot()

    @property
    def is_unsure(self) -> bool:
        """Return whether a topic was missing in the last refresh only; another one must show whether it is gone."""
        return bool(self._misses)

    def update(self, snapshot: Snapshot) -> None:
        is_refresh = snapshot.at != self._snapshot.at
        self._snapshot = snapshot
        present = {name: topic for name, topic in snapshot.topics.items() if topic.partitions}
        for name in list(self.known):
            if name in present:
                self._misses.pop(name, None)
            elif is_refresh:
                self._misses[name] = self._misses.get(name, 0) + 1
                if self._misses[name] >= _MISSES_MAX:
                    del self.known[name], self._misses[name]
        self.known.update(present)

    def racks(self, topics: Iterable[str]) -> TopicRacks:
        """Return the partitions of topics with the racks of their replicas, as assignors need them."""
        known = {name: self.known[name] for name in topics if name in self.known}
        return topic_racks(Snapshot(brokers=self._snapshot.brokers, topics=known), known)
