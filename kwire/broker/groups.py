"""The coordinator of classic consumer groups: who may join, sync, beat and leave, and what happens when they do not.

Owns the groups of the cluster and the rules of Kafka's GroupCoordinator: member ids, static members, the rebalance and
its three clocks (initial delay, rebalance timeout, session timeout). Requests come as plain values; an answer is
returned, or given to `reply` when it must wait. Which broker coordinates a group is not known here, offsets are in
`offsets`.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from random import Random

from kwire.broker.group import Group, GroupState, Joined, Member, Protocols, Synced
from kwire.broker.ids import make_uuid
from kwire.broker.options import Options
from kwire.errors import ErrorCode
from kwire.net.timers import Timers

UNKNOWN_GENERATION = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A JoinGroup, whatever its version."""

    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    needs_known_id: bool  # v4+: a dynamic member is given its id first, so that one that dies leaves no trace
    can_skip_assignment: bool  # v9+


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """A SyncGroup, whatever its version. Protocol names are None before v5."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    protocol_type: str | None
    protocol: str | None
    assignments: dict[str, bytes]


class Groups:
    def __init__(self, options: Options, timers: Timers, random: Random) -> None:
        self._options = options
        self._timers = timers
        self._random = random
        self._groups: dict[str, Group] = {}

    def __iter__(self) -> Iterator[Group]:
        return iter(tuple(self._groups.values()))

    def get(self, group_id: str) -> Group | None:
        return self._groups.get(group_id)

    def get_or_create(self, group_id: str) -> Group | None:
        """None when there are too many groups."""
        group = self._groups.get(group_id)
        if group is None and len(self._groups) < self._options.max_groups:
            group = self._groups[group_id] = Group(group_id)
        return group

    def delete(self, group: Group) -> None:
        assert not group.members
        for member_id in list(group.pending):
            group.drop_pending(member_id)
        if group.rebalance is not None:
            group.rebalance.cancel()
        group.move(GroupState.DEAD)
        del self._groups[group.id]

    # JoinGroup.

    def join(self, join: Join, now: float, reply: Callable[[Joined], None]) -> Joined | None:
        """The answer, or None when it comes through `reply`, once everybody has joined."""
        error = self._invalid(join)
        if error is not None:
            return Joined(error, join.member_id)
        if join.member_id and join.group_id not in self._groups:
            return Joined(ErrorCode.UNKNOWN_MEMBER_ID, join.member_id)
        group = self.get_or_create(join.group_id)
        if group is None:
            return Joined(ErrorCode.COORDINATOR_NOT_AVAILABLE, join.member_id)
        if not group.supports(join.protocol_type, join.protocols):
            return Joined(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, join.member_id)
        if not join.member_id:
            return self._join_unknown(group, join, now, reply)
        return self._join_known(group, join, now, reply)

    def _invalid(self, join: Join) -> ErrorCode | None:
        if not join.group_id:
            return ErrorCode.INVALID_GROUP_ID
        least, most = self._options.group_min_session_timeout_ms, self._options.group_max_session_timeout_ms
        if not least <= join.session_timeout_ms <= most:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        return None

    def _join_unknown(self, group: Group, join: Join, now: float, reply: Callable[[Joined], None]) -> Joined | None:
        if join.instance_id is not None and join.instance_id in group.static:
            return self._rejoin_static(group, join, now, reply)
        if len(group.members) + len(group.pending) >= self._options.group_max_size:
            return Joined(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
        new_id = self._make_member_id(join)
        if join.needs_known_id and join.instance_id is None:
            until = now + join.session_timeout_ms / 1000
            group.pending[new_id] = self._timers.at(until, lambda now: self._forget_pending(group, new_id, now))
            return Joined(ErrorCode.MEMBER_ID_REQUIRED, new_id)
        self._add(group, join, new_id, now, reply)
        return None

    def _join_known(self, group: Group, join: Join, now: float, reply: Callable[[Joined], None]) -> Joined | None:
        if join.member_id in group.pending:
            if len(group.members) >= self._options.group_max_size:
                return Joined(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
            self._add(group, join, join.member_id, now, reply)
            return None
        error = _not_a_member(group, join.member_id, join.instance_id)
        if error is not None:
            return Joined(error, join.member_id)
        member = group.members[join.member_id]
        if group.state is GroupState.COMPLETING_REBALANCE and member.protocols == join.protocols:
            return group.joined(member)  # its answer was lost: the same generation again
        if group.state is GroupState.STABLE and member.id != group.leader and member.protocols == join.protocols:
            return group.joined(member)  # a follower with no news makes no rebalance; a leader's rejoin asks for one
        self._update(group, member, join, reply)
        self._rebalance_or_complete(group, now)
        return None

    def _rejoin_static(self, group: Group, join: Join, now: float, reply: Callable[[Joined], None]) -> Joined | None:
        """A static member restarted: it takes its old place, without a rebalance if nothing else changed."""
        assert join.instance_id is not None
        old_id, new_id = group.static[join.instance_id], self._make_member_id(join)
        old_leader = group.leader
        member = group.members[old_id]
        group.replace_static(member, new_id)
        self._update(group, member, join, reply)
        self._expect(group, member, member.session_timeout_ms, now)
        if group.state is not GroupState.STABLE or group.protocol is None or group.select_protocol() != group.protocol:
            self._rebalance_or_complete(group, now)
            return None
        member.awaiting_join = None
        answer = group.joined(member, skip_assignment=join.can_skip_assignment and new_id == group.leader)
        if old_leader == old_id and not join.can_skip_assignment:
            # An old client that is told that it leads would assign and sync, which a stable group does not take in: so
            # it is told that its former self leads, and just asks for its part.
            return Joined(
                ErrorCode.NONE, new_id, answer.generation, answer.protocol_type, answer.protocol, leader=old_id
            )
        return answer

    def _make_member_id(self, join: Join) -> str:
        return f"{join.instance_id or join.client_id}-{make_uuid(self._random)}"

    def _add(self, group: Group, join: Join, member_id: str, now: float, reply: Callable[[Joined], None]) -> None:
        member = Member(
            id=member_id, instance_id=join.instance_id, client_id=join.client_id, client_host=join.client_host,
            protocol_type=join.protocol_type, protocols=join.protocols, session_timeout_ms=join.session_timeout_ms,
            rebalance_timeout_ms=join.rebalance_timeout_ms, awaiting_join=reply,
        )  # fmt: skip
        group.add(member)
        group.joined_in_delay = True
        group.empty_since = None
        self._expect(group, member, self._options.new_member_join_timeout_ms, now)
        self._rebalance_or_complete(group, now)

    def _update(self, group: Group, member: Member, join: Join, reply: Callable[[Joined], None]) -> None:
        # A member that joins again while its first JoinGroup waits has given up on that one.
        group.answer_join(member, Joined(ErrorCode.UNKNOWN_MEMBER_ID, member.id))
        member.protocols = join.protocols
        member.session_timeout_ms = join.session_timeout_ms
        member.rebalance_timeout_ms = join.rebalance_timeout_ms
        member.client_id, member.client_host = join.client_id, join.client_host
        member.awaiting_join = reply

    # The rebalance.

    def _rebalance_or_complete(self, group: Group, now: float) -> None:
        """Something changed: begin to rebalance, or if that is going on, see whether everybody is here now."""
        if group.state is not GroupState.PREPARING_REBALANCE:
            self._prepare_rebalance(group, now)
        self._maybe_complete_join(group, now)

    def _prepare_rebalance(self, group: Group, now: float) -> None:
        if group.state is GroupState.COMPLETING_REBALANCE:
            group.forget_assignments(ErrorCode.REBALANCE_IN_PROGRESS)
        self._stop_sync_phase(group)
        delay_ms = self._options.group_initial_rebalance_delay_ms
        timeout_ms = group.rebalance_timeout_ms
        if group.state is GroupState.EMPTY and delay_ms > 0:
            group.delay_left_ms = max(timeout_ms - delay_ms, 0)
            group.joined_in_delay = False
            group.rebalance = self._timers.at(now + delay_ms / 1000, lambda now: self._end_delay(group, now))
        else:
            group.rebalance = self._timers.at(now + timeout_ms / 1000, lambda now: self._complete_join(group, now))
        group.move(GroupState.PREPARING_REBALANCE)

    def _end_delay(self, group: Group, now: float) -> None:
        """Whoever comes during the initial delay extends it, as long as the rebalance timeout allows."""
        left_ms = group.delay_left_ms or 0
        if group.joined_in_delay and left_ms > 0:
            delay_ms = min(self._options.group_initial_rebalance_delay_ms, left_ms)
            group.delay_left_ms = left_ms - delay_ms
            group.joined_in_delay = False
            group.rebalance = self._timers.at(now + delay_ms / 1000, lambda now: self._end_delay(group, now))
            return
        group.delay_left_ms = None
        self._complete_join(group, now)

    def _maybe_complete_join(self, group: Group, now: float) -> None:
        if group.state is GroupState.PREPARING_REBALANCE and group.delay_left_ms is None and group.has_all_joined:
            self._complete_join(group, now)

    def _complete_join(self, group: Group, now: float) -> None:
        """All have joined, or time is up: those who did not come back are out, static ones excepted."""
        assert group.state is GroupState.PREPARING_REBALANCE
        if group.rebalance is not None:
            group.rebalance.cancel()
            group.rebalance = None
        for member in group.not_yet_joined():
            if member.instance_id is None:
                group.remove(member)
        if group.members and not group.elect_joined_leader():
            # Only static members are left and none came: wait for them as long as their sessions last.
            timeout = group.rebalance_timeout_ms / 1000
            group.rebalance = self._timers.at(now + timeout, lambda now: self._complete_join(group, now))
            return
        group.begin_generation()
        if not group.members:
            group.empty_since = now
            return
        group.sync = self._timers.at(now + group.rebalance_timeout_ms / 1000, lambda now: self._end_sync(group, now))
        for member in list(group.members.values()):
            member.is_new = False
            self._expect(group, member, member.session_timeout_ms, now)
            group.answer_join(member, group.joined(member))

    def _end_sync(self, group: Group, now: float) -> None:
        """Whoever has not asked for its assignment by now is out."""
        group.sync = None
        late = [group.members[member_id] for member_id in group.pending_sync]
        for member in late:
            group.remove(member)
        if late:
            self._rebalance_or_complete(group, now)

    def _stop_sync_phase(self, group: Group) -> None:
        group.pending_sync.clear()
        if group.sync is not None:
            group.sync.cancel()
            group.sync = None

    # SyncGroup, Heartbeat, LeaveGroup.

    def sync(self, sync: Sync, now: float, reply: Callable[[Synced], None]) -> Synced | None:
        """The answer, or None when it comes through `reply`, once the leader has assigned."""
        group = self._groups.get(sync.group_id)
        error = _refused(group, sync.generation, sync.member_id, sync.instance_id)
        if group is None or error is not None:
            return Synced(error or ErrorCode.UNKNOWN_MEMBER_ID)
        if sync.protocol_type not in (None, group.protocol_type) or sync.protocol not in (None, group.protocol):
            return Synced(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.state is GroupState.PREPARING_REBALANCE:
            return Synced(ErrorCode.REBALANCE_IN_PROGRESS)
        member = group.members[sync.member_id]
        group.pending_sync.pop(member.id, None)
        if group.state is GroupState.STABLE:
            self._expect(group, member, member.session_timeout_ms, now)
            return group.synced(member)
        group.answer_sync(member, Synced(ErrorCode.UNKNOWN_MEMBER_ID))  # a second request replaces the first
        member.awaiting_sync = reply
        if member.id == group.leader:
            # Those who have not asked yet still must within the sync phase, so its clock runs on.
            group.assign(sync.assignments)
            for other in group.members.values():
                self._expect(group, other, other.session_timeout_ms, now)
        if not group.pending_sync:
            self._stop_sync_phase(group)
        return None

    def heartbeat(
        self, group_id: str, generation: int, member_id: str, instance_id: str | None, now: float
    ) -> ErrorCode:
        group = self._groups.get(group_id)
        error = _refused(group, generation, member_id, instance_id)
        if group is None or error is not None:
            return error or ErrorCode.UNKNOWN_MEMBER_ID
        member = group.members[member_id]
        self._expect(group, member, member.session_timeout_ms, now)
        preparing = group.state is GroupState.PREPARING_REBALANCE
        return ErrorCode.REBALANCE_IN_PROGRESS if preparing else ErrorCode.NONE

    def leave(self, group_id: str, member_id: str, instance_id: str | None, now: float) -> ErrorCode:
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if instance_id is None and group.drop_pending(member_id):
            self._maybe_complete_join(group, now)
            return ErrorCode.NONE
        if not member_id and instance_id is not None:  # an administrator removes a static member by its name
            member_id = group.static.get(instance_id, "")
        error = _not_a_member(group, member_id, instance_id)
        if error is not None:
            return error
        self._remove(group, group.members[member_id], now)
        return ErrorCode.NONE

    def check_commit(
        self, group: Group, generation: int, member_id: str, instance_id: str | None, now: float
    ) -> ErrorCode:
        """Whether this member may commit offsets now; counts as a heartbeat."""
        if generation == UNKNOWN_GENERATION and not member_id and group.state is GroupState.EMPTY:
            return ErrorCode.NONE  # a consumer that assigns by itself and only stores its offsets here
        error = _refused(group, generation, member_id, instance_id)
        if error is not None:
            return error
        if group.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        member = group.members[member_id]
        self._expect(group, member, member.session_timeout_ms, now)
        return ErrorCode.NONE

    def check_transactional_commit(
        self, group: Group, generation: int, member_id: str, instance_id: str | None
    ) -> ErrorCode:
        """Whether offsets may be committed in a transaction. Clients from before KIP-447 do not say who they are, and
        during a rebalance its members may still commit; it does not count as a heartbeat."""
        if generation <= UNKNOWN_GENERATION and (
            group.state is GroupState.EMPTY or (not member_id and instance_id is None)
        ):
            return ErrorCode.NONE
        return _refused(group, generation, member_id, instance_id) or ErrorCode.NONE

    # Clocks and moves.

    def _expect(self, group: Group, member: Member, within_ms: int, now: float) -> None:
        """Hear from the member within this time, or it is out."""
        member.stop_clock()
        member.session = self._timers.at(now + within_ms / 1000, lambda now: self._expire(group, member, now))

    def _expire(self, group: Group, member: Member, now: float) -> None:
        waits = member.awaiting_join is not None or member.awaiting_sync is not None
        if waits and not member.is_new:
            return  # it is us who keep it waiting; the clock starts anew with the answer
        self._remove(group, member, now)

    def _forget_pending(self, group: Group, member_id: str, now: float) -> None:
        group.drop_pending(member_id)
        self._maybe_complete_join(group, now)

    def _remove(self, group: Group, member: Member, now: float) -> None:
        group.remove(member)
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self._prepare_rebalance(group, now)
        self._maybe_complete_join(group, now)

    def moved(self, group_ids: Iterable[str], now: float) -> None:
        """These groups have another coordinator. Members who wait are sent to look for it; all get a fresh session."""
        for group in [self._groups[group_id] for group_id in group_ids if group_id in self._groups]:
            for member in list(group.members.values()):
                group.answer_join(member, Joined(ErrorCode.NOT_COORDINATOR, member.id))
                group.answer_sync(member, Synced(ErrorCode.NOT_COORDINATOR))
                member.is_new = False
                self._expect(group, member, member.session_timeout_ms, now)


def _not_a_member(group: Group, member_id: str, instance_id: str | None) -> ErrorCode | None:
    if instance_id is not None:
        if instance_id not in group.static:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if group.static[instance_id] != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return None if member_id in group else ErrorCode.UNKNOWN_MEMBER_ID


def _refused(group: Group | None, generation: int, member_id: str, instance_id: str | None) -> ErrorCode | None:
    """The checks that all calls of a member have in common."""
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = _not_a_member(group, member_id, instance_id)
    if error is not None:
        return error
    return ErrorCode.ILLEGAL_GENERATION if generation != group.generation else None
