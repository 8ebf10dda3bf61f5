"""The range assignor: of each topic, each subscriber gets a range of partitions, in the order of the members.

Topics with equal partitions and subscribers are co-partitioned: partition 3 of all of them goes to one member, which
can then join their records. If members and replicas are in racks, a member first gets partitions that have a replica in
its rack, as long as co-partitioning and balance allow it (KIP-881).

Kafka's counterpart is `RangeAssignor`; the result is the same, partition by partition.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice

from kwire.consumer.assignors.assignor import (
    Assignor,
    MemberAssignment,
    MemberSubscription,
    TopicPartition,
    TopicRacks,
    member_order,
    uses_racks,
)


class RangeAssignor(Assignor):
    """Divide each topic by itself. If the division leaves a remainder, the first members get one partition more."""

    name = "range"

    def assign(
        self, topics: TopicRacks, members: Mapping[str, MemberSubscription]
    ) -> Mapping[str, MemberAssignment | list[TopicPartition]]:
        ordered = sorted(members, key=lambda member: member_order(member, members[member]))
        subscribers: dict[str, dict[str, str | None]] = {}
        for member in ordered:
            for topic in members[member].topics:
                if topics.get(topic):
                    subscribers.setdefault(topic, {})[member] = members[member].rack or None
        ranges = [_TopicRanges(topic, topics[topic], subscribers[topic]) for topic in sorted(subscribers)]
        if any(ranges_.needs_racks for ranges_ in ranges):
            _match_racks(ranges)
        assigned: dict[str, list[TopicPartition]] = {member: [] for member in members}
        for topic_ranges in ranges:
            topic_ranges.fill()
            for member, partitions in topic_ranges.assigned.items():
                assigned[member] += ((topic_ranges.topic, partition) for partition in sorted(partitions))
        return assigned


def _match_racks(all_ranges: Sequence[_TopicRanges]) -> None:
    """Assign what can be assigned to a member in a rack of a replica, co-partitioned topics together."""
    groups: dict[object, list[_TopicRanges]] = {}
    for ranges in all_ranges:
        groups.setdefault((tuple(ranges.racks.items()), len(ranges.partition_racks)), []).append(ranges)
    for group in groups.values():
        if len(group) > 1:
            _match_co_partitioned(group)
        elif group[0].needs_racks:
            group[0].fill_by_rack()


def _match_co_partitioned(group: Sequence[_TopicRanges]) -> None:
    """Give partition p of all topics to the first member that all of its replicas' racks match.

    The topics have the same members and number of partitions, so a member's quota is the same in each.
    """
    first = group[0]
    # The members of each rack, None for those in no rack, which any partition matches. The last is the next in order.
    waiting: dict[str | None, list[str]] = {}
    for member in reversed(first.racks):
        waiting.setdefault(first.racks[member], []).append(member)
    order = {member: number for number, member in enumerate(first.racks)}
    for partition in range(len(first.partition_racks)):
        racks = frozenset.intersection(*(frozenset(ranges.partition_racks[partition]) for ranges in group))
        candidates = []
        for rack in (*racks, None):
            queue = waiting.get(rack, [])
            while queue and not first.quota(queue[-1]):
                queue.pop()  # a quota never grows
            candidates += queue[-1:]
        if candidates:
            member = min(candidates, key=order.__getitem__)
            for ranges in group:
                ranges.give(member, [partition])


class _TopicRanges:
    """The partitions of a topic while they are assigned. `racks` is that of each subscriber, in the members' order."""

    def __init__(self, topic: str, partition_racks: Sequence[Collection[str]], racks: dict[str, str | None]) -> None:
        self.topic = topic
        self.partition_racks = partition_racks
        self.racks = racks
        self.assigned: dict[str, list[int]] = {member: [] for member in racks}
        self.needs_racks = uses_racks({rack for rack in racks.values() if rack is not None}, partition_racks)
        self._unassigned = [True] * len(partition_racks)
        self._each, self._with_one_more = divmod(len(partition_racks), len(racks))

    def quota(self, member: str) -> int:
        """Return how many more partitions the member may get."""
        return max(self._each + (self._with_one_more > 0) - len(self.assigned[member]), 0)

    def give(self, member: str, partitions: Sequence[int]) -> None:
        self.assigned[member] += partitions
        for partition in partitions:
            self._unassigned[partition] = False
        if len(self.assigned[member]) > self._each:
            self._with_one_more -= 1

    def fill(self) -> None:
        """Give each member, in order, the first partitions that are left, up to its quota."""
        left = self._left()
        for member in self.racks:
            self._give_first(member, left)

    def fill_by_rack(self) -> None:
        """Do the same as `fill`, with the partitions that match the member's rack only."""
        # What a rack's iterator has passed is assigned, so members of the rack share one.
        left = {rack: self._left(rack) for rack in set(self.racks.values())}
        for member, rack in self.racks.items():
            self._give_first(member, left[rack])

    def _left(self, rack: str | None = None) -> Iterator[int]:
        for partition, racks in enumerate(self.partition_racks):
            if self._unassigned[partition] and (rack is None or rack in racks):
                yield partition

    def _give_first(self, member: str, left: Iterator[int]) -> None:
        quota = self.quota(member)
        if quota:
            self.give(member, list(islice(left, quota)))
