"""The sticky assignors: balanced, and as much as possible stays with the member that has it (KIP-54).

    sticky              for eager rebalances; what a member had is in its user data
    cooperative-sticky  for cooperative ones too (KIP-429): what a member has is in the subscription's owned partitions.
                        A partition that moves is given to nobody until its owner has given it up in another rebalance.

The assignment itself is in `constrained`, for equal subscriptions, and `general`. Kafka's counterparts are
`StickyAssignor`, `CooperativeStickyAssignor` and `AbstractStickyAssignor`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from kwire.consumer.assignors.assignor import (
    NO_GENERATION,
    Assignor,
    MemberAssignment,
    MemberSubscription,
    RebalanceProtocol,
    TopicPartition,
    TopicRacks,
)
from kwire.consumer.assignors.constrained import assign_constrained
from kwire.consumer.assignors.general import assign_general
from kwire.consumer.assignors.user_data import (
    cooperative_user_data,
    parse_cooperative_user_data,
    parse_sticky_user_data,
    sticky_user_data,
)

logger = logging.getLogger("kwire.consumer")

# What a member says it has, and the generation in which it got that.
Claim = tuple[Sequence[TopicPartition], int]


class StickyAssignor(Assignor):
    """Keep partitions where they were before an eager rebalance, in which all members revoke everything.

    The leader reads what a member had from the user data only, as in Kafka: not from the owned partitions.
    """

    name = "sticky"

    def __init__(self) -> None:
        self._had: Claim | None = None

    def user_data(self, topics: Collection[str]) -> bytes | None:
        return None if self._had is None else sticky_user_data(*self._had)

    def on_assignment(self, assignment: MemberAssignment, generation: int) -> None:
        self._had = tuple(assignment.partitions), generation

    def assign(
        self, topics: TopicRacks, members: Mapping[str, MemberSubscription]
    ) -> Mapping[str, list[TopicPartition]]:
        claims = {member: parse_sticky_user_data(members[member].user_data) for member in members}
        return assign_sticky(topics, members, claims)


class CooperativeStickyAssignor(Assignor):
    """Keep partitions where they are, and move others in two rebalances, so that members never stop all work."""

    name = "cooperative-sticky"
    protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """Return the generation, for leaders that read subscriptions below version 2."""
        return cooperative_user_data(self._generation)

    def on_assignment(self, assignment: MemberAssignment, generation: int) -> None:
        self._generation = generation

    def assign(
        self, topics: TopicRacks, members: Mapping[str, MemberSubscription]
    ) -> Mapping[str, list[TopicPartition]]:
        claims = {member: (members[member].owned, _generation_of(members[member])) for member in members}
        return without_transfers(assign_sticky(topics, members, claims), claims)


def _generation_of(subscription: MemberSubscription) -> int:
    """Return the generation of the owned partitions; members of a version below 2 have it in the user data."""
    if subscription.generation != NO_GENERATION:
        return subscription.generation
    return parse_cooperative_user_data(subscription.user_data)


def assign_sticky(
    topics: TopicRacks,
    members: Mapping[str, MemberSubscription],
    claims: Mapping[str, Claim],
    order: Callable[[Collection[str]], Sequence[str]] = sorted,
) -> dict[str, list[TopicPartition]]:
    """Return a balanced assignment that follows the claims as far as possible.

    `order` is that of members where it makes a difference: tests take that of Java's HashMap.
    """
    if not members:
        return {}
    subscribed = {member: {topic for topic in members[member].topics if topics.get(topic)} for member in members}
    existing = {topic: topics[topic] for topic in set().union(*subscribed.values())}
    racks = {member: members[member].rack or None for member in members}
    owners = owners_of(existing, subscribed, claims)
    owned: dict[str, list[TopicPartition]] = {member: [] for member in order(members)}
    for partition, owner in owners.items():
        owned[owner].append(partition)
    if all(len(own) == len(existing) for own in subscribed.values()):
        return assign_constrained(existing, owned, racks)
    return assign_general(existing, subscribed, owned, racks)


def owners_of(
    topics: TopicRacks, subscribed: Mapping[str, Collection[str]], claims: Mapping[str, Claim]
) -> dict[TopicPartition, str]:
    """Return the owner of each claimed partition that exists, of those that subscribe to it.

    The newest generation wins (KIP-341). If two members claim a partition in the same one, neither owns it: one of them
    may have lost it without notice.
    """
    newest: dict[TopicPartition, tuple[int, str]] = {}
    disputed: dict[TopicPartition, tuple[str, str]] = {}
    for member, (partitions, generation) in claims.items():
        for partition in partitions:
            topic, index = partition
            if topic not in subscribed[member] or not 0 <= index < len(topics[topic]):
                continue
            known, other = newest.get(partition, (generation - 1, member))
            if generation > known:
                newest[partition] = generation, member
                disputed.pop(partition, None)
            elif generation == known and other != member:
                disputed[partition] = other, member
    for (topic, index), (one, other) in disputed.items():
        logger.warning(
            "%d partitions have two owners of one generation, such as %s-%d with %s and %s: none of these keep them",
            len(disputed), topic, index, one, other,
        )  # fmt: skip
        break
    return {partition: member for partition, (_, member) in newest.items() if partition not in disputed}


def without_transfers(
    assigned: Mapping[str, Sequence[TopicPartition]], claims: Mapping[str, Claim]
) -> dict[str, list[TopicPartition]]:
    """Leave out partitions that another member still has, unless their new owner claims them by a newer generation.

    Members work on while they learn of their assignment: the new owner could begin before the old one ends. When the
    old owner has given the partition up, it joins again, and then the partition is free.
    """
    claimed: dict[TopicPartition, list[tuple[str, int]]] = {}
    for member, (partitions, generation) in claims.items():
        for partition in partitions:
            claimed.setdefault(partition, []).append((member, generation))

    def is_free(partition: TopicPartition, taker: str) -> bool:
        others = [generation for member, generation in claimed.get(partition, ()) if member != taker]
        return not others or ((taker, claims[taker][1]) in claimed[partition] and claims[taker][1] > max(others))

    return {
        member: [partition for partition in partitions if is_free(partition, member)]
        for member, partitions in assigned.items()
    }
