"""The sticky assignment when all members subscribe to the same topics: sizes are fixed, so one pass is enough.

With P partitions and N members, each member gets P // N, and P % N of them get one more. Members keep what they have up
to that. What is left is dealt in turns to the members that have too little.

This is the constrained algorithm of Kafka's `AbstractStickyAssignor`, with the same result. One choice in it depends on
the order of members: which of them keep P // N + 1 when too many have that. Kafka takes the order of a Java HashMap,
here it is the order of `owned`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from itertools import chain

from kwire.consumer.assignors.assignor import TopicPartition, TopicRacks, uses_racks


def assign_constrained(
    topics: TopicRacks, owned: Mapping[str, Sequence[TopicPartition]], racks: Mapping[str, str | None]
) -> dict[str, list[TopicPartition]]:
    """Return the partitions of each member. `owned` has all members; each partition in it has one owner.

    `racks` is the rack of each member; racks count if they can make a difference (see `uses_racks`).
    """
    return _Constrained(topics, owned, racks).assign()


class _Constrained:
    """The sizes, and the members that still need partitions."""

    def __init__(
        self, topics: TopicRacks, owned: Mapping[str, Sequence[TopicPartition]], racks: Mapping[str, str | None]
    ) -> None:
        self._topics = topics
        self._owned = owned
        known = {rack for rack in racks.values() if rack is not None}
        self._by_rack = uses_racks(known, (each for partitions in topics.values() for each in partitions))
        self._racks = racks if self._by_rack else {}
        self._assigned: dict[str, list[TopicPartition]] = {member: [] for member in owned}
        self._min, self._over_max = divmod(sum(map(len, topics.values())), len(owned))
        self._max = self._min + (self._over_max > 0)
        self._over = 0  # members that have more than _min; _over_max in the end
        self._under_min: list[str] = []
        self._at_min: list[str] = []  # those of exactly _min that may get one more

    def assign(self) -> dict[str, list[TopicPartition]]:
        kept = self._keep_owned()
        self._under_min.sort()
        self._at_min.sort()
        unassigned = [
            (topic, index)
            for topic in sorted(self._topics)
            for index in range(len(self._topics[topic]))
            if (topic, index) not in kept
        ]
        if self._by_rack:
            unassigned = self._assign_by_rack(unassigned)
        self._assign_rest(unassigned)
        return self._assigned

    def _keep_owned(self) -> set[TopicPartition]:
        """Let members keep what they own, up to their size. Return all that is kept."""
        kept: set[TopicPartition] = set()
        for member, partitions in self._owned.items():
            own = sorted((index, topic) for topic, index in partitions if self._matches(member, (topic, index)))
            size = self._min
            if len(own) < self._min:
                self._under_min.append(member)
            elif len(own) >= self._max and self._over < self._over_max:
                size = self._max
                self._count_over()
            elif self._over < self._over_max:
                self._at_min.append(member)
            keeps = [(topic, index) for index, topic in own[:size]]
            self._assigned[member] += keeps
            kept.update(keeps)
        return kept

    def _count_over(self) -> None:
        self._over += 1
        if self._over == self._over_max:
            self._at_min.clear()

    def _matches(self, member: str, partition: TopicPartition) -> bool:
        rack = self._racks.get(member)
        return rack is None or rack in self._replica_racks(partition)

    def _replica_racks(self, partition: TopicPartition) -> Collection[str]:
        topic, index = partition
        return self._topics[topic][index]

    def _assign_by_rack(self, unassigned: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Assign partitions to members in a rack of a replica, first those that suit the fewest. Return the others."""
        members_in = Counter(rack for rack in self._racks.values() if rack is not None)
        rest = []
        following = 0  # in _under_min
        for partition in sorted(
            unassigned, key=lambda each: sum(members_in[r] for r in set(self._replica_racks(each)))
        ):
            racks = self._replica_racks(partition)
            place = self._next_in_racks(self._under_min, racks, following)
            if place is not None:
                member = self._under_min[place]
                self._assigned[member].append(partition)
                following = place + 1
                if len(self._assigned[member]) >= self._min:
                    del self._under_min[place]
                    following = place
                    if self._over < self._over_max:
                        self._at_min.append(member)
                following %= len(self._under_min) or 1
                continue
            place = self._next_in_racks(self._at_min, racks, 0)
            if place is None:
                rest.append(partition)
                continue
            self._assigned[self._at_min.pop(place)].append(partition)
            self._count_over()
        return rest

    def _next_in_racks(self, members: Sequence[str], racks: Collection[str], start: int) -> int | None:
        """Return the place of the next member, from `start` on and round, in one of the racks."""
        for place in chain(range(start, len(members)), range(start)):
            rack = self._racks[members[place]]
            if rack is not None and rack in racks:
                return place
        return None

    def _assign_rest(self, unassigned: Sequence[TopicPartition]) -> None:
        """Assign in turn to the members below the smaller size, then one each to those that may have one more."""
        under_min = deque(self._under_min)
        at_min = deque(self._at_min)
        for partition in unassigned:
            if not under_min:
                self._assigned[at_min.popleft()].append(partition)
                continue
            member = under_min.popleft()
            self._assigned[member].append(partition)
            if len(self._assigned[member]) < self._min:
                under_min.append(member)
            else:
                at_min.append(member)
