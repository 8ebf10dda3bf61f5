"""The coordinator of share groups: members, epochs and assignments (KIP-932; GroupMetadataManager's share groups).

The coordinator assigns, and a member has its assignment with the response to its heartbeat: there are no steps in
which members give partitions up, as several may read the same one. The group epoch rises with each change of members,
subscriptions or topics; a member gets the new epoch with its next heartbeat.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar
from uuid import UUID

from kwire.broker import share_assignor
from kwire.broker.group_configs import GroupConfigs
from kwire.broker.group_registry import AnyGroup, GroupRegistry
from kwire.broker.options import Options
from kwire.broker.share_assignor import TopicPartition
from kwire.errors import BrokerError, ErrorCode, broker_error
from kwire.net.timers import Timer, Timers

JOIN_EPOCH, LEAVE_EPOCH = 0, -1
_MEMBER_ID_MAX = 36

Topics = Mapping[str, tuple[UUID, int]]  # topic -> id, partitions


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What a member sends. `topics` and `rack` are None where nothing has changed."""

    group: str
    member: str
    epoch: int
    topics: Sequence[str] | None = None
    rack: str | None = None
    client_id: str = ""
    client_host: str = ""


@dataclass(slots=True, eq=False)
class ShareMember:
    """One member of a share group."""

    id: str
    rack: str | None = None
    client_id: str = ""
    client_host: str = ""
    epoch: int = 0
    previous_epoch: int = -1
    topics: frozenset[str] = frozenset()
    assigned: frozenset[TopicPartition] = frozenset()  # in the last response
    assigned_ids: frozenset[tuple[UUID, int]] = frozenset()  # ... by topic id
    session: Timer | None = None

    def cancel_session(self) -> None:
        if self.session is not None:
            self.session.cancel()


@dataclass(slots=True, eq=False)
class ShareGroup(AnyGroup):
    """One share group."""

    TYPE: ClassVar[str] = "share"
    EXPIRES: ClassVar[bool] = False

    id: str
    epoch: int = 0
    assignment_epoch: int = 0
    members: dict[str, ShareMember] = field(default_factory=dict)
    target: dict[str, set[TopicPartition]] = field(default_factory=dict)  # by member
    topics: dict[str, tuple[UUID, int]] = field(default_factory=dict)  # those subscribed to, as they were assigned
    empty_since: float | None = None

    @property
    def state_name(self) -> str:
        return "Stable" if self.members else "Empty"

    @property
    def shown_protocol_type(self) -> str:
        return self.TYPE

    @property
    def is_empty(self) -> bool:
        return not self.members

    def check_empty(self) -> None:
        """Raise NON_EMPTY_GROUP while the group has members."""
        if self.members:
            raise broker_error(ErrorCode.NON_EMPTY_GROUP, f"group {self.id} has members")

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in member.topics for member in self.members.values())

    def subscribed_topics(self) -> list[str]:
        return sorted(set().union(*(member.topics for member in self.members.values())))


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """The result of a heartbeat. `assigned` is None where the member has it already."""

    member: str
    epoch: int
    interval_ms: int
    assigned: frozenset[TopicPartition] | None = None


def _check_group_id(group_id: str) -> None:
    if not group_id:
        raise broker_error(ErrorCode.INVALID_GROUP_ID, "The group id is empty.")


class ShareGroupCoordinator:
    """All share groups. Errors are BrokerErrors.

    topics           return the topics of the cluster
    on_subscribed    called with a group and the partitions that it subscribes to
    on_member_left   called with (group, member, now) for members that left or were fenced
    on_empty         called with a group whose last member left
    """

    def __init__(
        self,
        options: Options,
        timers: Timers,
        configs: GroupConfigs,
        *,
        topics: Callable[[], Topics],
        registry: GroupRegistry,
        on_subscribed: Callable[[str, Sequence[tuple[UUID, int]]], None],
        on_member_left: Callable[[str, str, float], None],
        on_empty: Callable[[str], None],
    ) -> None:
        self._options = options
        self._timers = timers
        self._configs = configs
        self._topics = topics
        self._registry = registry
        self._on_subscribed = on_subscribed
        self._on_member_left = on_member_left
        self._on_empty = on_empty

    def __iter__(self) -> Iterator[ShareGroup]:
        return (group for group in self._registry if isinstance(group, ShareGroup))

    def get(self, group_id: str) -> ShareGroup | None:
        return self._registry.find(group_id, ShareGroup)

    def find(self, group_id: str) -> ShareGroup:
        """Return a group. Raises GROUP_ID_NOT_FOUND, INVALID_GROUP_ID."""
        _check_group_id(group_id)
        group = self.get(group_id)
        if group is None:
            raise broker_error(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def find_or_create(self, group_id: str) -> ShareGroup:
        """Return a group, made if there is none. Raises GROUP_ID_NOT_FOUND for a group of another type,
        INVALID_GROUP_ID."""
        _check_group_id(group_id)
        group = self._registry.get(group_id)
        if group is None:
            group = ShareGroup(group_id)
            self._registry.put(group)
        if not isinstance(group, ShareGroup):
            raise broker_error(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
        return group

    def delete(self, group: ShareGroup) -> None:
        for member in group.members.values():
            member.cancel_session()
        self._registry.delete(group)

    # Heartbeats.

    def heartbeat(self, beat: Heartbeat, now: float) -> HeartbeatResult:
        """Handle a heartbeat: epoch 0 joins, -1 leaves."""
        _check(beat)
        if beat.epoch == LEAVE_EPOCH:
            return self._leave(beat, now)
        if beat.epoch == JOIN_EPOCH:
            group = self.find_or_create(beat.group)
            member = self._join(group, beat)
        else:
            group = self.find(beat.group)
            member = self._member(group, beat)
        self._update(group, member, beat)
        self._rebalance(group)
        self._start_session(group, member, now)
        return self._result(group, member, is_full=beat.topics is not None)

    def _join(self, group: ShareGroup, beat: Heartbeat) -> ShareMember:
        member = group.members.get(beat.member)
        if member is None:
            limit = self._options.share_group_max_size
            if len(group.members) >= limit:
                why = f"The share group has reached its maximum capacity of {limit} members."
                raise broker_error(ErrorCode.GROUP_MAX_SIZE_REACHED, why)
            member = group.members[beat.member] = ShareMember(beat.member)
            group.epoch += 1
            group.empty_since = None
        return member

    def _member(self, group: ShareGroup, beat: Heartbeat) -> ShareMember:
        member = group.members.get(beat.member)
        if member is None:
            raise broker_error(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {beat.member} is not a member of {group.id}.")
        # A member whose last response was lost still has the epoch before.
        if beat.epoch not in (member.epoch, member.previous_epoch):
            why = f"The member's epoch {beat.epoch} is not the one in the group, {member.epoch}: it must rejoin."
            raise broker_error(ErrorCode.FENCED_MEMBER_EPOCH, why)
        return member

    def _update(self, group: ShareGroup, member: ShareMember, beat: Heartbeat) -> None:
        member.client_id, member.client_host = beat.client_id, beat.client_host
        if beat.rack is not None:
            member.rack = beat.rack
        if beat.topics is not None and frozenset(beat.topics) != member.topics:
            member.topics = frozenset(beat.topics)
            if group.assignment_epoch == group.epoch:
                group.epoch += 1

    def _rebalance(self, group: ShareGroup) -> None:
        """Compute the assignment if members, subscriptions or topics have changed."""
        existing = self._topics()
        topics = {name: existing[name] for name in group.subscribed_topics() if name in existing}
        if topics != group.topics and group.assignment_epoch == group.epoch:
            group.epoch += 1
        if group.assignment_epoch == group.epoch:
            return
        # A topic that was deleted and created again has other partitions.
        same = {name for name, (id, _) in topics.items() if name not in group.topics or group.topics[name][0] == id}
        current = {member: {p for p in assigned if p[0] in same} for member, assigned in group.target.items()}
        subscriptions = {member.id: member.topics.intersection(topics) for member in group.members.values()}
        counts = {name: count for name, (_, count) in topics.items()}
        group.target = share_assignor.assign(subscriptions, counts, current)
        group.topics = topics
        group.assignment_epoch = group.epoch
        self._on_subscribed(group.id, [(id, index) for id, count in topics.values() for index in range(count)])

    def _result(self, group: ShareGroup, member: ShareMember, *, is_full: bool) -> HeartbeatResult:
        assigned = frozenset(group.target.get(member.id, ()))
        # By id: a topic that was deleted and created again has other partitions.
        by_id = frozenset((group.topics[topic][0], index) for topic, index in assigned)
        has_news = is_full or by_id != member.assigned_ids or member.epoch == JOIN_EPOCH
        if member.epoch != group.epoch:
            member.previous_epoch, member.epoch = member.epoch, group.epoch
        member.assigned, member.assigned_ids = assigned, by_id
        interval_ms = self._configs.of(group.id).share_heartbeat_interval_ms
        return HeartbeatResult(member.id, member.epoch, interval_ms, assigned if has_news else None)

    def _leave(self, beat: Heartbeat, now: float) -> HeartbeatResult:
        group = self.find(beat.group)
        member = group.members.get(beat.member)
        if member is None:
            raise broker_error(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {beat.member} is not a member of {group.id}.")
        self._remove(group, member, now)
        return HeartbeatResult(member.id, LEAVE_EPOCH, 0)

    # Sessions.

    def _start_session(self, group: ShareGroup, member: ShareMember, now: float) -> None:
        member.cancel_session()
        timeout = self._configs.of(group.id).share_session_timeout_ms / 1000
        member.session = self._timers.at(now + timeout, lambda now: self._remove(group, member, now))

    def _remove(self, group: ShareGroup, member: ShareMember, now: float) -> None:
        """Remove a member that left or whose session timed out."""
        member.cancel_session()
        del group.members[member.id]
        group.target.pop(member.id, None)
        group.epoch += 1
        self._on_member_left(group.id, member.id, now)
        if group.members:
            self._rebalance(group)
        else:
            group.assignment_epoch = group.epoch
            group.topics = {}
            group.empty_since = now
            self._on_empty(group.id)

    def coordinators_moved(self, groups: Sequence[str], now: float) -> None:
        """Give the members of these groups a whole session again: the new coordinator loads them."""
        for group in self:
            if group.id in groups:
                for member in group.members.values():
                    self._start_session(group, member, now)


def _check(beat: Heartbeat) -> None:
    """Raise INVALID_REQUEST for a heartbeat that no group could accept."""
    why = None
    if not beat.group:
        why = "GroupId can't be empty."
    elif not beat.member.strip() or len(beat.member) > _MEMBER_ID_MAX:
        why = "MemberId must be 1 to 36 characters."
    elif beat.epoch < LEAVE_EPOCH:
        why = f"MemberEpoch is {beat.epoch}, but must be greater than or equal to -1."
    elif beat.epoch == JOIN_EPOCH and not beat.topics:
        why = "SubscribedTopicNames must be set in first request."
    elif beat.rack is not None and not beat.rack.strip():
        why = "RackId can't be empty."
    if why is not None:
        raise _invalid(why)


def _invalid(why: str) -> BrokerError:
    return broker_error(ErrorCode.INVALID_REQUEST, why)
