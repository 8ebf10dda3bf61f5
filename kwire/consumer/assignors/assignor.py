"""The interface of assignors: how the leader of a classic group divides partitions among the members.

The coordinator chooses an assignor that all members have, and one member as leader. The leader calls `assign` with the
subscriptions of all members and sends the result to the coordinator, which gives each member its part. Write your own
by deriving from `Assignor`; examples/assignor.py is one.

Kafka's counterpart is `ConsumerPartitionAssignor`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain
from typing import ClassVar

from kwire.cluster import Snapshot
from kwire.errors import AssignorError

TopicPartition = tuple[str, int]

# {topic: for each partition, in order, the racks of its replicas}. Topics without metadata are absent. A partition
# without replicas in a known rack has an empty collection. Offline replicas count.
TopicRacks = Mapping[str, Sequence[Collection[str]]]

NO_GENERATION = -1


class RebalanceProtocol(IntEnum):
    """What members do with their partitions when a rebalance begins (KIP-429)."""

    EAGER = 0  # they revoke all of them
    COOPERATIVE = 1  # they keep them, and revoke only what the assignment takes away


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """What a member sends the leader when it joins, in the bytes of the consumer protocol except `instance_id`.

    `owned` is what the member had in `generation`, -1 for none. `user_data` is the assignor's own. `instance_id` is
    that of a static member (KIP-345); the coordinator sends it to the leader beside the bytes.
    """

    topics: Sequence[str]
    owned: Sequence[TopicPartition] = ()
    generation: int = NO_GENERATION
    rack: str | None = None
    user_data: bytes | None = None
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """What the leader gives a member: its partitions, and the assignor's own bytes."""

    partitions: Sequence[TopicPartition] = ()
    user_data: bytes | None = None


class Assignor(ABC):
    """A rule that divides partitions among the members of a group. All members must have it, under the same `name`.

    One object serves one consumer: it may keep state from `on_assignment` to the next `user_data`. All methods run on
    one thread at a time.
    """

    # What the members announce to the coordinator. Names of Kafka's assignors: range, roundrobin, sticky, ...
    name: ClassVar[str]
    # Members use COOPERATIVE if all of their assignors have it, else EAGER.
    protocols: ClassVar[Collection[RebalanceProtocol]] = (RebalanceProtocol.EAGER,)
    # The version of the user data, for your own use.
    version: ClassVar[int] = 0

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """Return bytes for the leader, which gets them in this member's subscription. Called before each join."""
        return None

    @abstractmethod
    def assign(
        self, topics: TopicRacks, members: Mapping[str, MemberSubscription]
    ) -> Mapping[str, MemberAssignment | Iterable[TopicPartition]]:
        """Return the partitions of each member. Only the leader calls this.

        `topics` holds the topics of all members that exist; `members` is by member id. A member that the result lacks
        gets nothing. It may run for long: on a thread of its own, within the rebalance timeout.
        """

    def on_assignment(self, assignment: MemberAssignment, generation: int) -> None:  # noqa: B027 (most need none)
        """Take note of this member's assignment in a new generation of the group."""


def topic_racks(snapshot: Snapshot, topics: Iterable[str]) -> dict[str, list[frozenset[str]]]:
    """Return what `Assignor.assign` needs to know of topics. Topics without metadata or partitions are left out."""
    racks_of: dict[tuple[int, ...], frozenset[str]] = {}  # partitions share few sets of replicas
    found: dict[str, list[frozenset[str]]] = {}
    for name in topics:
        topic = snapshot.topics.get(name)
        if topic is None or not topic.partitions:
            continue
        found[name] = racks = []
        for partition in topic.partitions:
            known = racks_of.get(partition.replicas)
            if known is None:
                brokers = (snapshot.brokers.get(node) for node in partition.replicas)
                known = frozenset(broker.rack for broker in brokers if broker is not None and broker.rack)
                racks_of[partition.replicas] = known
            racks.append(known)
    return found


def group_assignment(
    assignor: Assignor, topics: TopicRacks, members: Mapping[str, MemberSubscription]
) -> dict[str, MemberAssignment]:
    """Return the assignment of every member by an assignor, checked. This is what the leader of a group calls.

    A wrong assignment would have two members read one partition, or one member read a partition that does not exist.
    Raises AssignorError for that, and when the assignor raises.
    """
    try:
        assigned = {
            member: given if isinstance(given, MemberAssignment) else MemberAssignment(tuple(given))
            for member, given in assignor.assign(topics, members).items()
        }
    except Exception as error:
        raise _refused(assignor, f"raised {type(error).__name__}: {error}", "mend the assignor") from error
    owner: dict[TopicPartition, str] = {}
    subscribed = {member: frozenset(subscription.topics) for member, subscription in members.items()}
    for member, assignment in assigned.items():
        if member not in members:
            raise _refused(assignor, f"assigned partitions to {member!r}, which is no member")
        for entry in assignment.partitions:
            topic, partition = _checked_entry(assignor, member, entry)
            if topic not in subscribed[member]:
                raise _refused(
                    assignor, f"assigned {topic}-{partition} to {member}, which does not subscribe to {topic}"
                )
            if not 0 <= partition < len(topics.get(topic, ())):
                raise _refused(assignor, f"assigned {topic}-{partition} to {member}, which does not exist")
            other = owner.setdefault((topic, partition), member)
            if other != member:
                raise _refused(assignor, f"assigned {topic}-{partition} to two members, {other} and {member}")
        if len(set(assignment.partitions)) < len(assignment.partitions):
            raise _refused(assignor, f"assigned a partition to {member} twice")
    return {member: assigned.get(member, MemberAssignment()) for member in members}


def _checked_entry(assignor: Assignor, member: str, entry: object) -> TopicPartition:
    match entry:
        case (str(topic), int(partition)):
            return topic, partition
    raise _refused(assignor, f"assigned {entry!r:.60} to {member}: give (topic, partition)")


def _refused(
    assignor: Assignor, what: str, remedy: str = "each partition goes to one member that subscribes to its topic"
) -> AssignorError:
    return AssignorError(f"the assignor {assignor.name} {what}", remedy=remedy)


def subscribed_topics(members: Mapping[str, MemberSubscription]) -> set[str]:
    """Return the topics that any member subscribes to: those that the leader needs metadata of."""
    return set(chain.from_iterable(subscription.topics for subscription in members.values()))


def member_order(member: str, subscription: MemberSubscription) -> tuple[bool, str]:
    """Return the sort key of members in range and roundrobin: static members first, by instance id (KIP-345)."""
    instance_id = subscription.instance_id
    return (True, member) if instance_id is None else (False, instance_id)


def uses_racks(member_racks: Collection[str], partition_racks: Iterable[Collection[str]]) -> bool:
    """Return whether racks can make a difference (KIP-881).

    They cannot if no member is in the rack of a replica, or if each partition has replicas in all racks.
    """
    distinct = set(map(frozenset, partition_racks))
    all_racks = frozenset(chain.from_iterable(distinct))
    return not all_racks.isdisjoint(member_racks) and distinct != {all_racks}


def by_topic(partitions: Iterable[TopicPartition]) -> Sequence[tuple[str, list[int]]]:
    """Return the partitions of each topic, topics in the order of their first partition."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return list(grouped.items())
