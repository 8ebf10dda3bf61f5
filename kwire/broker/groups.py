"""The coordinator of classic consumer groups: members, generations, rebalances and their timeouts.

`Group` is the state machine of Kafka's ClassicGroup. `GroupCoordinator` has the rules of the class of that name: member
ids, static members, and the three timeouts of a rebalance (initial delay, rebalance timeout, session timeout). Results
are returned, or passed to the request's `respond` callback when they come later. Offsets are in `offsets`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import ClassVar

from kwire.broker.group_registry import AnyGroup, GroupRegistry
from kwire.broker.ids import make_uuid
from kwire.broker.options import Options
from kwire.errors import DecodeError, ErrorCode
from kwire.net.timers import Timer, Timers
from kwire.protocol.messages.consumer_protocol import ConsumerProtocolSubscription, decode_versioned

UNKNOWN_GENERATION = -1
Protocols = tuple[tuple[str, bytes], ...]  # (name, metadata), the preferred one first


class GroupState(Enum):
    """The state of a group. Values are the names in DescribeGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_VALID_PREVIOUS_STATES = {
    GroupState.EMPTY: {GroupState.PREPARING_REBALANCE},
    GroupState.PREPARING_REBALANCE: {GroupState.EMPTY, GroupState.STABLE, GroupState.COMPLETING_REBALANCE},
    GroupState.COMPLETING_REBALANCE: {GroupState.PREPARING_REBALANCE},
    GroupState.STABLE: {GroupState.COMPLETING_REBALANCE},
    GroupState.DEAD: set(GroupState) - {GroupState.DEAD},
}


@dataclass(frozen=True, slots=True)
class JoinGroupResult:
    """The result of a JoinGroup."""

    error: int
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[tuple[str, str | None, bytes], ...] = ()  # (member id, instance id, metadata); for the leader only


@dataclass(frozen=True, slots=True)
class SyncGroupResult:
    """The result of a SyncGroup."""

    error: int
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(slots=True, eq=False)
class Member:
    """One member of a group."""

    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    protocol_type: str
    protocols: Protocols
    session_timeout_ms: int
    rebalance_timeout_ms: int
    assignment: bytes = b""
    is_new: bool = True
    awaiting_join: Callable[[JoinGroupResult], None] | None = None
    awaiting_sync: Callable[[SyncGroupResult], None] | None = None
    session: Timer | None = None

    def metadata(self, protocol: str) -> bytes:
        """Return the member's metadata for a protocol that it supports."""
        return next(metadata for name, metadata in self.protocols if name == protocol)

    def cancel_session(self) -> None:
        """Stop the session timer."""
        if self.session is not None:
            self.session.cancel()
            self.session = None


@dataclass(slots=True, eq=False)
class Group(AnyGroup):
    """One classic group, without its timeouts' rules."""

    TYPE: ClassVar[str] = "classic"

    id: str
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static: dict[str, str] = field(default_factory=dict)  # instance id -> member id
    pending: dict[str, Timer] = field(default_factory=dict)  # assigned ids that have not joined yet
    # An ordered set of ids: the order of iteration must not depend on hashes.
    pending_sync: dict[str, None] = field(default_factory=dict)
    rebalance: Timer | None = None  # ends the join phase
    sync: Timer | None = None  # ends the sync phase
    # How much longer the first rebalance of an empty group may be delayed; None: there is no delay.
    delay_left_ms: int | None = None
    joined_in_delay: bool = False  # a member joined during the delay
    empty_since: float | None = None  # when the last member left; None for a group that never had one

    def __contains__(self, member_id: str) -> bool:
        return member_id in self.members

    # Of any group.

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def shown_protocol_type(self) -> str:
        return self.protocol_type or ""

    @property
    def is_empty(self) -> bool:
        return not self.members

    def is_subscribed_to(self, topic: str) -> bool:
        topics = self.subscribed_topics()
        return topics is not None and topic in topics

    def subscribed_topics(self) -> set[str] | None:
        """Return the topics that members subscribe to; None if their metadata is not that of consumers."""
        topics: set[str] = set()
        try:
            for member in self.members.values():
                if member.protocol_type != "consumer":
                    return None
                for _, metadata in member.protocols:
                    topics.update(decode_versioned(ConsumerProtocolSubscription, metadata)[1].topics)
        except DecodeError:
            return None
        return topics

    def dispose(self) -> None:
        for member_id in list(self.pending):
            self.remove_pending(member_id)
        for timer in (self.rebalance, self.sync):
            if timer is not None:
                timer.cancel()
        self.transition(GroupState.DEAD)

    def offset_used_at(self, committed_at: float) -> float | None:
        if self.pending:
            return None
        if not self.members:
            return max(committed_at, self.empty_since or committed_at)
        # Of a stable group of consumers, the offsets of topics that it no longer subscribes to expire (KAFKA-4682).
        return committed_at if self.state is GroupState.STABLE and self.subscribed_topics() is not None else None

    def transition(self, state: GroupState) -> None:
        """Change the state."""
        assert self.state in _VALID_PREVIOUS_STATES[state], f"group {self.id}: {self.state.name} -> {state.name}"
        self.state = state

    # Members.

    def add(self, member: Member) -> None:
        """Add a member. The first one leads."""
        assert member.id not in self.members
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader is None:
            self.leader = member.id
        self.members[member.id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member.id
        self.remove_pending(member.id)

    def remove(self, member: Member) -> None:
        """Remove a member, and complete the requests that it waits for with UNKNOWN_MEMBER_ID."""
        member.cancel_session()
        self.complete_join(member, JoinGroupResult(ErrorCode.UNKNOWN_MEMBER_ID, member.id))
        self.complete_sync(member, SyncGroupResult(ErrorCode.UNKNOWN_MEMBER_ID))
        del self.members[member.id]
        self.pending_sync.pop(member.id, None)
        if member.instance_id is not None and self.static.get(member.instance_id) == member.id:
            del self.static[member.instance_id]
        if self.leader == member.id:
            self.leader = next(iter(self.members), None)

    def replace_static(self, member: Member, new_id: str) -> None:
        """Give a static member a new id, because it restarted, and fence the old id."""
        assert member.instance_id is not None
        self.complete_join(member, JoinGroupResult(ErrorCode.FENCED_INSTANCE_ID, member.id))
        self.complete_sync(member, SyncGroupResult(ErrorCode.FENCED_INSTANCE_ID))
        was_leader = self.leader == member.id
        del self.members[member.id]
        was_pending_sync = self.pending_sync.pop(member.id, "no") is None
        member.id = new_id
        self.members[new_id] = member
        self.static[member.instance_id] = new_id
        if was_pending_sync:
            self.pending_sync[new_id] = None
        if was_leader:
            self.leader = new_id

    def remove_pending(self, member_id: str) -> bool:
        """Remove an assigned id that has not joined. Return whether there was one."""
        timer = self.pending.pop(member_id, None)
        if timer is not None:
            timer.cancel()
        return timer is not None

    # Protocols.

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Return whether a member with these protocols can join."""
        if not self.members:
            return bool(protocol_type and protocols)
        names = {name for name, _ in protocols}
        return protocol_type == self.protocol_type and bool(names & self._common_protocols())

    def select_protocol(self) -> str:
        """Return the protocol with most votes: each member votes for its preferred one that all members support."""
        common = self._common_protocols()
        members = self.members.values()
        votes = Counter(next(name for name, _ in member.protocols if name in common) for member in members)
        return max(votes, key=lambda name: votes[name])

    def _common_protocols(self) -> set[str]:
        sets: Iterable[set[str]] = ({name for name, _ in member.protocols} for member in self.members.values())
        return set.intersection(*sets)

    # Phases.

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def has_all_joined(self) -> bool:
        return not self.pending and all(member.awaiting_join is not None for member in self.members.values())

    def not_yet_joined(self) -> list[Member]:
        """Return the members that have not rejoined."""
        return [member for member in self.members.values() if member.awaiting_join is None]

    def start_generation(self) -> None:
        """Start a new generation with the present members: the join phase is over."""
        self.generation += 1
        if self.members:
            self.protocol = self.select_protocol()
            self.transition(GroupState.COMPLETING_REBALANCE)
            self.pending_sync = dict.fromkeys(self.members)
        else:
            self.protocol = None
            self.leader = None
            self.transition(GroupState.EMPTY)

    def elect_joined_leader(self) -> bool:
        """Replace a leader that has not rejoined by a member that has. Return whether a leader has joined."""
        if self.leader is not None and self.members[self.leader].awaiting_join is not None:
            return True
        self.leader = next((member.id for member in self.members.values() if member.awaiting_join), self.leader)
        return self.leader is not None and self.members[self.leader].awaiting_join is not None

    def assign(self, assignments: dict[str, bytes]) -> None:
        """Store the leader's assignments and complete the waiting SyncGroups."""
        for member in self.members.values():
            member.assignment = assignments.get(member.id, b"")
        self.transition(GroupState.STABLE)
        for member in self.members.values():
            self.complete_sync(member, self.synced(member))

    def reset_assignments(self, error: ErrorCode) -> None:
        """Drop the assignments and fail the waiting SyncGroups."""
        for member in self.members.values():
            member.assignment = b""
            self.complete_sync(member, SyncGroupResult(error))

    def joined(self, member: Member, *, skip_assignment: bool = False) -> JoinGroupResult:
        """Return the JoinGroup result of a member. Only the leader's has the list of members."""
        assert self.protocol is not None
        protocol = self.protocol
        leads = member.id == self.leader
        members = tuple((m.id, m.instance_id, m.metadata(protocol)) for m in self.members.values()) if leads else ()
        return JoinGroupResult(
            ErrorCode.NONE, member.id, self.generation, self.protocol_type, protocol, self.leader or "",
            skip_assignment=skip_assignment, members=members,
        )  # fmt: skip

    def synced(self, member: Member) -> SyncGroupResult:
        """Return the SyncGroup result of a member."""
        return SyncGroupResult(ErrorCode.NONE, self.protocol_type, self.protocol, member.assignment)

    # Waiting requests; each completes once.

    @staticmethod
    def complete_join(member: Member, joined: JoinGroupResult) -> None:
        """Complete the JoinGroup that a member waits for, if there is one."""
        respond, member.awaiting_join = member.awaiting_join, None
        if respond is not None:
            respond(joined)

    @staticmethod
    def complete_sync(member: Member, synced: SyncGroupResult) -> None:
        """Complete the SyncGroup that a member waits for, if there is one."""
        respond, member.awaiting_sync = member.awaiting_sync, None
        if respond is not None:
            respond(synced)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroup:
    """A JoinGroup request of any version."""

    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    needs_known_id: bool  # v4 (KIP-394): a dynamic member gets its id before it joins
    can_skip_assignment: bool  # v9


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroup:
    """A SyncGroup request of any version. Protocol names are None before v5."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    protocol_type: str | None
    protocol: str | None
    assignments: dict[str, bytes]


class GroupCoordinator:
    """All classic groups of the cluster."""

    def __init__(self, options: Options, timers: Timers, random: Random, registry: GroupRegistry) -> None:
        self._options = options
        self._timers = timers
        self._random = random
        self._registry = registry

    def __iter__(self) -> Iterator[Group]:
        return (group for group in self._registry if isinstance(group, Group))

    def get(self, group_id: str) -> Group | None:
        """Return a classic group, None if there is none of this id and type."""
        return self._registry.find(group_id, Group)

    def get_or_create(self, group_id: str) -> Group | None:
        """Return a group. None if there are `max_groups` already, or the id belongs to a group of another type.

        An empty consumer group becomes a classic group: it has nothing to lose but its epochs.
        """
        group = self._registry.get(group_id)
        if isinstance(group, Group):
            return group
        if group is None and self._registry.is_full:
            return None
        if group is not None and not (group.TYPE == "consumer" and group.is_empty):
            return None
        made = Group(group_id)
        self._registry.put(made)
        return made

    # JoinGroup.

    def join(self, join: JoinGroup, now: float, respond: Callable[[JoinGroupResult], None]) -> JoinGroupResult | None:
        """Return the result, or None if `respond` gets it later, when all members have joined."""
        error = self.validate(join)
        if error is not None:
            return JoinGroupResult(error, join.member_id)
        if join.member_id and join.group_id not in self._registry:
            return JoinGroupResult(ErrorCode.UNKNOWN_MEMBER_ID, join.member_id)
        group = self.get_or_create(join.group_id)
        if group is None:
            is_other = join.group_id in self._registry  # a share group
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL if is_other else ErrorCode.COORDINATOR_NOT_AVAILABLE
            return JoinGroupResult(error, join.member_id)
        if not group.supports(join.protocol_type, join.protocols):
            return JoinGroupResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, join.member_id)
        if not join.member_id:
            return self._join_unknown(group, join, now, respond)
        return self._join_known(group, join, now, respond)

    def validate(self, join: JoinGroup) -> ErrorCode | None:
        """Return the error of a JoinGroup that no group accepts."""
        if not join.group_id:
            return ErrorCode.INVALID_GROUP_ID
        least, most = self._options.group_min_session_timeout_ms, self._options.group_max_session_timeout_ms
        if not least <= join.session_timeout_ms <= most:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        return None

    def _join_unknown(
        self, group: Group, join: JoinGroup, now: float, respond: Callable[[JoinGroupResult], None]
    ) -> JoinGroupResult | None:
        if join.instance_id is not None and join.instance_id in group.static:
            return self._rejoin_static(group, join, now, respond)
        if len(group.members) + len(group.pending) >= self._options.group_max_size:
            return JoinGroupResult(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
        new_id = self.make_member_id(join)
        if join.needs_known_id and join.instance_id is None:
            until = now + join.session_timeout_ms / 1000
            group.pending[new_id] = self._timers.at(until, lambda now: self._expire_pending(group, new_id, now))
            return JoinGroupResult(ErrorCode.MEMBER_ID_REQUIRED, new_id)
        self._add(group, join, new_id, now, respond)
        return None

    def _join_known(
        self, group: Group, join: JoinGroup, now: float, respond: Callable[[JoinGroupResult], None]
    ) -> JoinGroupResult | None:
        if join.member_id in group.pending:
            if len(group.members) >= self._options.group_max_size:
                return JoinGroupResult(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
            self._add(group, join, join.member_id, now, respond)
            return None
        error = _check_identity(group, join.member_id, join.instance_id)
        if error is not None:
            return JoinGroupResult(error, join.member_id)
        member = group.members[join.member_id]
        if group.state is GroupState.COMPLETING_REBALANCE and member.protocols == join.protocols:
            return group.joined(member)  # the response was lost: repeat it
        if group.state is GroupState.STABLE and member.id != group.leader and member.protocols == join.protocols:
            return group.joined(member)  # an unchanged follower triggers no rebalance, a leader does
        self._update(group, member, join, respond)
        self._rebalance_or_complete(group, now)
        return None

    def _rejoin_static(
        self, group: Group, join: JoinGroup, now: float, respond: Callable[[JoinGroupResult], None]
    ) -> JoinGroupResult | None:
        """Replace a restarted static member, without a rebalance if nothing else changed."""
        assert join.instance_id is not None
        old_id, new_id = group.static[join.instance_id], self.make_member_id(join)
        old_leader = group.leader
        member = group.members[old_id]
        group.replace_static(member, new_id)
        self._update(group, member, join, respond)
        self.restart_session(group, member, member.session_timeout_ms, now)
        if group.state is not GroupState.STABLE or group.protocol is None or group.select_protocol() != group.protocol:
            self._rebalance_or_complete(group, now)
            return None
        member.awaiting_join = None
        result = group.joined(member, skip_assignment=join.can_skip_assignment and new_id == group.leader)
        if old_leader == old_id and not join.can_skip_assignment:
            # A leader of an old version would send assignments, which a stable group does not accept. So the response
            # names its former id as the leader, and the member syncs as a follower.
            return JoinGroupResult(
                ErrorCode.NONE, new_id, result.generation, result.protocol_type, result.protocol, leader=old_id
            )
        return result

    def make_member_id(self, join: JoinGroup) -> str:
        """Return an id for a member that has none."""
        return f"{join.instance_id or join.client_id}-{make_uuid(self._random)}"

    def _add(
        self, group: Group, join: JoinGroup, member_id: str, now: float, respond: Callable[[JoinGroupResult], None]
    ) -> None:
        member = Member(
            id=member_id, instance_id=join.instance_id, client_id=join.client_id, client_host=join.client_host,
            protocol_type=join.protocol_type, protocols=join.protocols, session_timeout_ms=join.session_timeout_ms,
            rebalance_timeout_ms=join.rebalance_timeout_ms, awaiting_join=respond,
        )  # fmt: skip
        group.add(member)
        group.joined_in_delay = True
        group.empty_since = None
        self.restart_session(group, member, self._options.new_member_join_timeout_ms, now)
        self._rebalance_or_complete(group, now)

    def _update(
        self, group: Group, member: Member, join: JoinGroup, respond: Callable[[JoinGroupResult], None]
    ) -> None:
        # A second JoinGroup of a member replaces the one that waits.
        group.complete_join(member, JoinGroupResult(ErrorCode.UNKNOWN_MEMBER_ID, member.id))
        member.protocols = join.protocols
        member.session_timeout_ms = join.session_timeout_ms
        member.rebalance_timeout_ms = join.rebalance_timeout_ms
        member.client_id, member.client_host = join.client_id, join.client_host
        member.awaiting_join = respond

    # The rebalance.

    def _rebalance_or_complete(self, group: Group, now: float) -> None:
        """Start a rebalance, or complete the current one if all members have joined."""
        if group.state is not GroupState.PREPARING_REBALANCE:
            self.prepare_rebalance(group, now)
        self._maybe_complete_join(group, now)

    def prepare_rebalance(self, group: Group, now: float) -> None:
        """Begin a join phase."""
        if group.state is GroupState.COMPLETING_REBALANCE:
            for member in group.members.values():
                if member.awaiting_sync is not None:  # its session may have expired while it waited
                    self.restart_session(group, member, member.session_timeout_ms, now)
            group.reset_assignments(ErrorCode.REBALANCE_IN_PROGRESS)
        self._stop_sync_phase(group)
        delay_ms = self._options.group_initial_rebalance_delay_ms
        timeout_ms = group.rebalance_timeout_ms
        if group.state is GroupState.EMPTY and delay_ms > 0:
            group.delay_left_ms = max(timeout_ms - delay_ms, 0)
            group.joined_in_delay = False
            group.rebalance = self._timers.at(now + delay_ms / 1000, lambda now: self._extend_delay(group, now))
        else:
            group.rebalance = self._timers.at(now + timeout_ms / 1000, lambda now: self._complete_join(group, now))
        group.transition(GroupState.PREPARING_REBALANCE)

    def _extend_delay(self, group: Group, now: float) -> None:
        """Extend the initial delay if a member joined in it, up to the rebalance timeout; else end the join phase."""
        left_ms = group.delay_left_ms or 0
        if group.joined_in_delay and left_ms > 0:
            delay_ms = min(self._options.group_initial_rebalance_delay_ms, left_ms)
            group.delay_left_ms = left_ms - delay_ms
            group.joined_in_delay = False
            group.rebalance = self._timers.at(now + delay_ms / 1000, lambda now: self._extend_delay(group, now))
            return
        group.delay_left_ms = None
        self._complete_join(group, now)

    def _maybe_complete_join(self, group: Group, now: float) -> None:
        if group.state is GroupState.PREPARING_REBALANCE and group.delay_left_ms is None and group.has_all_joined:
            self._complete_join(group, now)

    def _complete_join(self, group: Group, now: float) -> None:
        """End the join phase: remove members that have not rejoined, except static ones, and start a generation."""
        assert group.state is GroupState.PREPARING_REBALANCE
        if group.rebalance is not None:
            group.rebalance.cancel()
            group.rebalance = None
        for member in group.not_yet_joined():
            if member.instance_id is None:
                group.remove(member)
        if group.members and not group.elect_joined_leader():
            # Only static members are left, and none has rejoined: wait until their sessions expire.
            timeout = group.rebalance_timeout_ms / 1000
            group.rebalance = self._timers.at(now + timeout, lambda now: self._complete_join(group, now))
            return
        group.start_generation()
        if not group.members:
            group.empty_since = now
            return
        group.sync = self._timers.at(now + group.rebalance_timeout_ms / 1000, lambda now: self._expire_sync(group, now))
        for member in list(group.members.values()):
            member.is_new = False
            self.restart_session(group, member, member.session_timeout_ms, now)
            group.complete_join(member, group.joined(member))

    def _expire_sync(self, group: Group, now: float) -> None:
        """Remove the members that have not sent SyncGroup."""
        group.sync = None
        missing = [group.members[member_id] for member_id in group.pending_sync]
        for member in missing:
            group.remove(member)
        if missing:
            self._rebalance_or_complete(group, now)

    def _stop_sync_phase(self, group: Group) -> None:
        group.pending_sync.clear()
        if group.sync is not None:
            group.sync.cancel()
            group.sync = None

    # SyncGroup, Heartbeat, LeaveGroup.

    def sync(self, sync: SyncGroup, now: float, respond: Callable[[SyncGroupResult], None]) -> SyncGroupResult | None:
        """Return the result, or None if `respond` gets it later, when the leader has sent the assignments."""
        group = self.get(sync.group_id)
        error = _check_member(group, sync.generation, sync.member_id, sync.instance_id)
        if group is None or error is not None:
            return SyncGroupResult(error or ErrorCode.UNKNOWN_MEMBER_ID)
        if sync.protocol_type not in (None, group.protocol_type) or sync.protocol not in (None, group.protocol):
            return SyncGroupResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.state is GroupState.PREPARING_REBALANCE:
            return SyncGroupResult(ErrorCode.REBALANCE_IN_PROGRESS)
        member = group.members[sync.member_id]
        group.pending_sync.pop(member.id, None)
        if group.state is GroupState.STABLE:
            self.restart_session(group, member, member.session_timeout_ms, now)
            return group.synced(member)
        group.complete_sync(member, SyncGroupResult(ErrorCode.UNKNOWN_MEMBER_ID))  # a second request replaces the first
        member.awaiting_sync = respond
        if member.id == group.leader:
            # The other members still have to sync, so the sync timer keeps running.
            group.assign(sync.assignments)
            for other in group.members.values():
                self.restart_session(group, other, other.session_timeout_ms, now)
        if not group.pending_sync:
            self._stop_sync_phase(group)
        return None

    def heartbeat(
        self, group_id: str, generation: int, member_id: str, instance_id: str | None, now: float
    ) -> ErrorCode:
        """Restart the session timer. Return REBALANCE_IN_PROGRESS if the member should rejoin."""
        group = self.get(group_id)
        error = _check_member(group, generation, member_id, instance_id)
        if group is None or error is not None:
            return error or ErrorCode.UNKNOWN_MEMBER_ID
        member = group.members[member_id]
        self.restart_session(group, member, member.session_timeout_ms, now)
        preparing = group.state is GroupState.PREPARING_REBALANCE
        return ErrorCode.REBALANCE_IN_PROGRESS if preparing else ErrorCode.NONE

    def leave(self, group_id: str, member_id: str, instance_id: str | None, now: float) -> ErrorCode:
        """Remove a member, and rebalance the others."""
        group = self.get(group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if instance_id is None and group.remove_pending(member_id):
            self._maybe_complete_join(group, now)
            return ErrorCode.NONE
        if not member_id and instance_id is not None:  # an administrator removes a static member
            member_id = group.static.get(instance_id, "")
        error = _check_identity(group, member_id, instance_id)
        if error is not None:
            return error
        self._remove(group, group.members[member_id], now)
        return ErrorCode.NONE

    def check_commit(
        self, group: Group, generation: int, member_id: str, instance_id: str | None, now: float
    ) -> ErrorCode:
        """Return NONE if this member may commit offsets now. It counts as a heartbeat."""
        if generation <= UNKNOWN_GENERATION and group.state is GroupState.EMPTY:
            return ErrorCode.NONE  # a consumer without subscription, whatever it calls itself
        error = _check_member(group, generation, member_id, instance_id)
        if error is not None:
            return error
        if group.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        member = group.members[member_id]
        self.restart_session(group, member, member.session_timeout_ms, now)
        return ErrorCode.NONE

    def check_transactional_commit(
        self, group: Group, generation: int, member_id: str, instance_id: str | None
    ) -> ErrorCode:
        """Return NONE if offsets may be committed in a transaction.

        Clients before KIP-447 send no member id. Members may commit during a rebalance. It is no heartbeat.
        """
        if generation <= UNKNOWN_GENERATION and (
            group.state is GroupState.EMPTY or (not member_id and instance_id is None)
        ):
            return ErrorCode.NONE
        return _check_member(group, generation, member_id, instance_id) or ErrorCode.NONE

    # Timeouts and moves.

    def restart_session(self, group: Group, member: Member, within_ms: int, now: float) -> None:
        """Restart the session timer, which removes the member after `within_ms`."""
        member.cancel_session()
        member.session = self._timers.at(now + within_ms / 1000, lambda now: self._expire(group, member, now))

    def _expire(self, group: Group, member: Member, now: float) -> None:
        is_waiting = member.awaiting_join is not None or member.awaiting_sync is not None
        if is_waiting and not member.is_new:
            return  # it waits for the broker: the response restarts its session
        self._remove(group, member, now)

    def _expire_pending(self, group: Group, member_id: str, now: float) -> None:
        group.remove_pending(member_id)
        self._maybe_complete_join(group, now)

    def _remove(self, group: Group, member: Member, now: float) -> None:
        group.remove(member)
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self.prepare_rebalance(group, now)
        self._maybe_complete_join(group, now)

    def coordinators_moved(self, group_ids: Iterable[str], now: float) -> None:
        """Fail waiting requests with NOT_COORDINATOR and restart all sessions: these groups have a new coordinator."""
        for group in [group for group_id in group_ids if (group := self.get(group_id)) is not None]:
            for member in list(group.members.values()):
                group.complete_join(member, JoinGroupResult(ErrorCode.NOT_COORDINATOR, member.id))
                group.complete_sync(member, SyncGroupResult(ErrorCode.NOT_COORDINATOR))
                member.is_new = False
                self.restart_session(group, member, member.session_timeout_ms, now)


def _check_identity(group: Group, member_id: str, instance_id: str | None) -> ErrorCode | None:
    if instance_id is not None:
        if instance_id not in group.static:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if group.static[instance_id] != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return None if member_id in group else ErrorCode.UNKNOWN_MEMBER_ID


def _check_member(group: Group | None, generation: int, member_id: str, instance_id: str | None) -> ErrorCode | None:
    """Return the error of a request that must come from a member of the current generation."""
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = _check_identity(group, member_id, instance_id)
    if error is not None:
        return error
    return ErrorCode.ILLEGAL_GENERATION if generation != group.generation else None
