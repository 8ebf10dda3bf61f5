"""The round robin assignor: one partition after the other, to one member after the other.

All partitions of all topics are in one row, sorted. A member that does not subscribe to a topic is skipped. Loads are
equal if all members subscribe to the same topics.

Kafka's counterpart is `RoundRobinAssignor`; the result is the same, partition by partition.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from kwire.consumer.assignors.assignor import (
    Assignor,
    MemberSubscription,
    TopicPartition,
    TopicRacks,
    member_order,
)


class RoundRobinAssignor(Assignor):
    """Deal out partitions like cards."""

    name = "roundrobin"

    def assign(
        self, topics: TopicRacks, members: Mapping[str, MemberSubscription]
    ) -> Mapping[str, list[TopicPartition]]:
        ordered = sorted(members, key=lambda member: member_order(member, members[member]))
        seats: dict[str, list[int]] = {}  # of each topic's subscribers, ascending
        for seat, member in enumerate(ordered):
            for topic in set(members[member].topics):
                seats.setdefault(topic, []).append(seat)
        assigned: dict[str, list[TopicPartition]] = {member: [] for member in members}
        seat = 0
        for topic in sorted(seats):
            subscribers = seats[topic]
            for partition in range(len(topics.get(topic, ()))):
                turn = bisect_left(subscribers, seat) % len(subscribers)
                assigned[ordered[subscribers[turn]]].append((topic, partition))
                seat = subscribers[turn] + 1
        return assigned
