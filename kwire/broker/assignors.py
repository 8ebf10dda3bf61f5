"""The assignors of the group coordinator (KIP-848): `uniform` and `range`, without I/O.

uniform   every member gets as many partitions as any other, and keeps what it has where that allows it. Kafka's
          UniformAssignor, which has one algorithm for equal subscriptions and one for different ones
range     of each topic, every member gets one contiguous range, the same members the same numbers. RangeAssignor
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import UUID

from kwire.broker.current_assignment import NO_PARTITIONS, Partitions, TopicIdPartition

# The second phase of the heterogeneous algorithm halves the imbalance in each round, so this is always enough in use.
_MAX_ROUNDS = 16


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """What an assignor knows about a member. All topics exist. `assigned` is its last target."""

    topics: frozenset[UUID]
    assigned: Partitions = NO_PARTITIONS
    instance_id: str | None = None


Members = Mapping[str, MemberSpec]
PartitionCounts = Mapping[UUID, int]
Targets = dict[str, Partitions]
Assignor = Callable[[Members, PartitionCounts], Targets]


def uniform(members: Members, counts: PartitionCounts) -> Targets:
    """Return the target of each member, balanced over all topics."""
    if len({spec.topics for spec in members.values()}) <= 1:
        return _uniform_homogeneous(members, counts)
    return _UniformHeterogeneous(members, counts).assign()


def _uniform_homogeneous(members: Members, counts: PartitionCounts) -> Targets:
    """Return quotas that differ by one at most. Members above their quota give the rest to members below theirs."""
    if not members:
        return {}
    topics = next(iter(members.values())).topics
    everything = [(topic, partition) for topic in sorted(topics) for partition in range(counts[topic])]
    valid = set(everything)
    held = {id: sorted(spec.assigned & valid) for id, spec in members.items()}
    quota, extras = divmod(len(everything), len(members))
    # The quotas that are larger by one go first to members that have that many: then nothing moves in a balanced group.
    order = sorted(members, key=lambda member_id: len(held[member_id]) <= quota)
    quotas = {id: quota + (place < extras) for place, id in enumerate(order)}
    kept = {id: held[id][: quotas[id]] for id in members}
    taken = {part for parts in kept.values() for part in parts}
    free = iter([part for part in everything if part not in taken])
    return {id: frozenset([*kept[id], *(next(free) for _ in range(quotas[id] - len(kept[id])))]) for id in members}


class _UniformHeterogeneous:
    """Members with different subscriptions: fill up the least loaded subscriber, then move from most to least loaded.

    The result is balanced within each topic's subscribers: no move of one partition would improve it.
    """

    def __init__(self, members: Members, counts: PartitionCounts) -> None:
        self._members = members
        self._counts = counts
        self._subscribers: dict[UUID, list[str]] = {}
        for id, spec in members.items():
            for topic in sorted(spec.topics):
                self._subscribers.setdefault(topic, []).append(id)
        self._rank = {id: place for place, id in enumerate(members)}
        self._owner: dict[TopicIdPartition, str] = {}
        self._load = dict.fromkeys(members, 0)
        # Topics with most partitions per subscriber first, then those with fewer subscribers.
        self._topics = sorted(
            self._subscribers,
            key=lambda topic: (
                -counts[topic] / len(self._subscribers[topic]),
                len(self._subscribers[topic]),
                topic,
            ),
        )

    def assign(self) -> Targets:
        self._keep()
        for topic in self._topics:
            self._fill(topic)
        for _ in range(_MAX_ROUNDS):
            moved = [self._balance(topic) for topic in self._topics]
            if not any(moved):
                break
        targets: dict[str, set[TopicIdPartition]] = {id: set() for id in self._members}
        for part, owner in self._owner.items():
            targets[owner].add(part)
        return {id: frozenset(parts) for id, parts in targets.items()}

    def _keep(self) -> None:
        for id, spec in self._members.items():
            for part in sorted(spec.assigned):
                if part[0] in spec.topics and part[1] < self._counts[part[0]] and part not in self._owner:
                    self._give(part, id)

    def _give(self, part: TopicIdPartition, to: str) -> None:
        if part in self._owner:
            self._load[self._owner[part]] -= 1
        self._owner[part] = to
        self._load[to] += 1

    def _by_load(self, topic: UUID) -> list[tuple[int, int, str]]:
        return sorted((self._load[id], self._rank[id], id) for id in self._subscribers[topic])

    def _fill(self, topic: UUID) -> None:
        ranking = self._by_load(topic)
        for partition in range(self._counts[topic]):
            if (topic, partition) not in self._owner:
                load, rank, id = ranking.pop(0)
                self._give((topic, partition), id)
                insort(ranking, (load + 1, rank, id))

    def _balance(self, topic: UUID) -> bool:
        """Move partitions of a topic from its most to its least loaded subscriber. Return whether any was moved."""
        parts: dict[str, list[TopicIdPartition]] = {}
        for partition in range(self._counts[topic]):
            parts.setdefault(self._owner[topic, partition], []).append((topic, partition))
        ranking = self._by_load(topic)
        moved = False
        while True:
            # Of those who can give a partition of this topic, the most loaded one.
            most = next((entry for entry in reversed(ranking) if parts.get(entry[2])), None)
            least = ranking[0]
            if most is None or most[0] - least[0] <= 1:
                return moved
            part = parts[most[2]].pop()
            self._give(part, least[2])
            parts.setdefault(least[2], []).append(part)
            for entry, change in ((most, -1), (least, 1)):
                ranking.remove(entry)
                insort(ranking, (entry[0] + change, entry[1], entry[2]))
            moved = True


def range_assignor(members: Members, counts: PartitionCounts) -> Targets:
    """Return the target of each member. Static members come first, by instance id; the others follow by member id."""
    order = sorted(members, key=lambda member_id: _range_key(member_id, members[member_id].instance_id))
    subscribers: dict[UUID, list[str]] = {}
    for id in order:
        for topic in members[id].topics:
            subscribers.setdefault(topic, []).append(id)
    targets: dict[str, set[TopicIdPartition]] = {id: set() for id in members}
    for topic, ids in subscribers.items():
        quota, extras = divmod(counts[topic], len(ids))
        start = 0
        for place, id in enumerate(ids):
            end = start + quota + (place < extras)
            targets[id].update((topic, partition) for partition in range(start, end))
            start = end
    return {id: frozenset(parts) for id, parts in targets.items()}


def _range_key(id: str, instance_id: str | None) -> tuple[int, str]:
    return (1, id) if instance_id is None else (0, instance_id)


# By name, the default one first (group.consumer.assignors).
ASSIGNORS: Mapping[str, Assignor] = {"uniform": uniform, "range": range_assignor}
DEFAULT_ASSIGNOR = "uniform"
