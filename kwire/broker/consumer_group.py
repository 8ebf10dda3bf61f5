"""The state of one consumer group (KIP-848): members, epochs, target assignment, and the holders of partitions.

`ConsumerGroup` is Kafka's class of that name without its records and timeline. When its state changes is decided in
`consumer_groups`; how a member moves to its target is in `current_assignment`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol
from uuid import UUID

from kwire.broker.assignors import ASSIGNORS, DEFAULT_ASSIGNOR, MemberSpec
from kwire.broker.current_assignment import NO_PARTITIONS, CurrentAssignment, Partitions, Target, TopicIdPartition
from kwire.broker.group_registry import AnyGroup
from kwire.net.timers import Timer

# Member epochs that are commands in a heartbeat. The last is also the epoch of a static member that left for a while.
JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2

PROTOCOL_TYPE = "consumer"


@dataclass(frozen=True, slots=True)
class ClassicProtocol:
    """What a member that speaks the classic protocol sent in its JoinGroup."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]  # (name, subscription), the preferred one first


@dataclass(slots=True, eq=False)
class ConsumerMember:
    """A member of a consumer group. `classic` is None unless it speaks the classic protocol."""

    id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topics: frozenset[str] = frozenset()
    regex: str = ""
    assignor: str | None = None
    classic: ClassicProtocol | None = None
    current: CurrentAssignment = field(default_factory=CurrentAssignment)
    session: Timer | None = None
    revocation: Timer | None = None  # it has to give partitions up until then
    join: Timer | None = None  # a classic member has to rejoin until then
    sync: Timer | None = None  # a classic member has to sync until then

    @property
    def epoch(self) -> int:
        return self.current.epoch

    def cancel_timers(self) -> None:
        for timer in (self.session, self.revocation, self.join, self.sync):
            if timer is not None:
                timer.cancel()
        self.session = self.revocation = self.join = self.sync = None


class AnyTopic(Protocol):
    """What a group knows about a topic."""

    @property
    def id(self) -> UUID: ...

    @property
    def partitions(self) -> Collection[object]: ...


class TopicsImage(Protocol):
    """The topics of the cluster. `topics_revision` grows with every change of them."""

    @property
    def topics(self) -> Mapping[str, AnyTopic]: ...

    @property
    def topics_revision(self) -> int: ...


@dataclass(slots=True, eq=False)
class ConsumerGroup(AnyGroup):
    """One consumer group. The group epoch grows with every change of members, subscriptions or subscribed topics."""

    TYPE: ClassVar[str] = "consumer"

    id: str
    epoch: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    static: dict[str, str] = field(default_factory=dict)  # instance id -> member id
    assignment_epoch: int = 0  # the group epoch for which the targets were computed
    targets: dict[str, Partitions] = field(default_factory=dict)
    assigned_at: float | None = None  # when they were computed
    holders: dict[TopicIdPartition, str] = field(default_factory=dict)
    regexes: dict[str, frozenset[str]] = field(default_factory=dict)  # the topics that each pattern matches
    regexes_at: float = 0.0
    metadata: dict[str, tuple[UUID, int]] = field(default_factory=dict)  # subscribed topics: (id, partitions)
    metadata_revision: int = -1  # of the cluster's topics, when `metadata` was computed
    empty_since: float | None = None

    # Of any group.

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        reconciled = all(member.current.is_reconciled_to(self.assignment_epoch) for member in self.members.values())
        return "Stable" if reconciled else "Reconciling"

    @property
    def shown_protocol_type(self) -> str:
        return PROTOCOL_TYPE

    @property
    def is_empty(self) -> bool:
        return not self.members

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in self.topics_of(member) for member in self.members.values())

    # Members.

    def member_of_instance(self, instance_id: str | None) -> ConsumerMember | None:
        """Return the static member of an instance id."""
        member_id = self.static.get(instance_id) if instance_id is not None else None
        return None if member_id is None else self.members[member_id]

    def add(self, member: ConsumerMember) -> None:
        self.members[member.id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member.id
        self.empty_since = None

    def remove(self, member: ConsumerMember, now: float) -> None:
        """Remove a member with its target and its partitions. The group epoch is the caller's."""
        member.cancel_timers()
        del self.members[member.id]
        if member.instance_id is not None and self.static.get(member.instance_id) == member.id:
            del self.static[member.instance_id]
        self.targets.pop(member.id, None)
        self._release(member)
        if not self.members:
            self.empty_since = now

    def replace_static(self, old: ConsumerMember, new: ConsumerMember, now: float) -> None:
        """Replace a static member by a new one, which gets its target and its partitions."""
        target = self.targets.get(old.id, NO_PARTITIONS)
        self.remove(old, now)
        self.add(new)
        self.targets[new.id] = target
        self._hold(new)

    def set_current(self, member: ConsumerMember, current: CurrentAssignment) -> None:
        """Change the assignment of a member, and with it the holders of partitions."""
        self._release(member)
        member.current = current
        self._hold(member)

    def _release(self, member: ConsumerMember) -> None:
        for part in (*member.current.assigned, *member.current.pending_revocation):
            if self.holders.get(part) == member.id:
                del self.holders[part]

    def _hold(self, member: ConsumerMember) -> None:
        for part in (*member.current.assigned, *member.current.pending_revocation):
            self.holders[part] = member.id

    # Subscriptions.

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """Return the names that a member subscribes to, directly or by its regular expression."""
        return member.topics | self.regexes.get(member.regex, frozenset()) if member.regex else member.topics

    def topic_ids_of(self, member: ConsumerMember) -> frozenset[UUID]:
        """Return the ids of the topics that a member subscribes to and that exist."""
        return frozenset(self.metadata[name][0] for name in self.topics_of(member) if name in self.metadata)

    def update_metadata(self, image: TopicsImage) -> bool:
        """Look at the subscribed topics again. Return whether one was created, deleted or got more partitions."""
        names = {name for member in self.members.values() for name in self.topics_of(member)}
        metadata = {
            name: (image.topics[name].id, len(image.topics[name].partitions))
            for name in sorted(names)
            if name in image.topics
        }
        self.metadata_revision = image.topics_revision
        changed = metadata != self.metadata
        self.metadata = metadata
        return changed

    # The target.

    @property
    def assignor(self) -> str:
        """Return the assignor that most members prefer."""
        votes = Counter(member.assignor for member in self.members.values() if member.assignor is not None)
        return max(votes, key=lambda name: votes[name]) if votes else DEFAULT_ASSIGNOR

    def compute_targets(self, now: float) -> None:
        """Let the assignor choose new targets, of the present group epoch."""
        counts = dict(self.metadata.values())
        specs = {
            id: MemberSpec(
                self.topic_ids_of(member), frozenset(self.targets.get(id, NO_PARTITIONS)), member.instance_id
            )
            for id, member in self.members.items()
        }
        self.targets = ASSIGNORS[self.assignor](specs, counts)
        self.assignment_epoch = self.epoch
        self.assigned_at = now

    def target_of(self, member: ConsumerMember) -> Target:
        return Target(self.assignment_epoch, self.targets.get(member.id, NO_PARTITIONS))

    def is_waiting(self, member: ConsumerMember) -> bool:
        """Return whether another member still holds a partition of this member's target."""
        missing = self.target_of(member).partitions - member.current.assigned.keys()
        return any(part in self.holders for part in missing)


def grouped(parts: Iterable[TopicIdPartition]) -> dict[UUID, list[int]]:
    """Return partitions by topic, both in order."""
    topics: dict[UUID, list[int]] = {}
    for topic, partition in sorted(parts):
        topics.setdefault(topic, []).append(partition)
    return topics
