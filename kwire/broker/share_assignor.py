"""The assignor of share groups (Kafka's SimpleAssignor, KIP-932): balanced first, then sticky.

Several members may have the same partition. Each partition gets as many members as it takes to occupy all of them;
what members have already stays with them as far as balance allows. With equal subscriptions the balance is over all
topics together, else over each topic alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil

TopicPartition = tuple[str, int]
Assignment = dict[str, set[TopicPartition]]  # by member

NAME = "simple"


def assign(
    subscriptions: Mapping[str, frozenset[str]],
    partitions: Mapping[str, int],
    current: Mapping[str, set[TopicPartition]],
) -> Assignment:
    """Return which partitions each member reads.

    subscriptions   topics by member
    partitions      how many partitions each existing topic has
    current         the assignment until now
    """
    result: Assignment = {member: set() for member in subscriptions}
    if len(set(subscriptions.values())) <= 1:
        topics = [sorted(next(iter(subscriptions.values()), frozenset()))]
    else:
        topics = [[topic] for topic in sorted(set().union(*subscriptions.values()))]
    for together in topics:
        targets = [(topic, index) for topic in together for index in range(partitions.get(topic, 0))]
        members = [member for member in subscriptions if set(together) <= subscriptions[member]]
        wanted = set(targets)
        before = {member: current.get(member, set()) & wanted for member in members}
        for member, assigned in _assign(members, targets, before).items():
            result[member] |= assigned
    return result


def _assign(
    members: Sequence[str], targets: Sequence[TopicPartition], current: Mapping[str, set[TopicPartition]]
) -> Assignment:
    """Assign partitions to members that all subscribe to all of them."""
    assigned: Assignment = {member: set() for member in members}
    if not targets or not members:
        return assigned
    sharing = ceil(len(members) / len(targets))  # members of each partition
    mean = sharing * len(targets) / len(members)
    quotas = {member: ceil(mean * (position + 1)) - ceil(mean * position) for position, member in enumerate(members)}
    readers: dict[TopicPartition, list[str]] = {target: [] for target in targets}
    for member in members:  # stickiness: keep what fits into both limits
        for target in sorted(current[member]):
            if len(assigned[member]) < quotas[member] and len(readers[target]) < sharing:
                assigned[member].add(target)
                readers[target].append(member)
    unfilled = [member for member in members if len(assigned[member]) < quotas[member]]
    position = 0
    for target in targets:
        tried = 0
        while len(readers[target]) < sharing and tried < len(unfilled):
            position %= len(unfilled)
            member = unfilled[position]
            if target in assigned[member]:
                position += 1
                tried += 1
                continue
            assigned[member].add(target)
            readers[target].append(member)
            tried = 0
            if len(assigned[member]) >= quotas[member]:
                unfilled.pop(position)
            else:
                position += 1
    return assigned
