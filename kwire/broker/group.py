"""One consumer group of the classic protocol: its members, its state, the moves between states.

Owns the state machine of Kafka's ClassicGroup: who has joined, which generation, which protocol. Answers to members who
wait leave through the `reply` that came with the request. It knows no API version, no offsets and no clock; `groups`
decides who may call what, and holds the timers' meaning.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum

from kwire.errors import ErrorCode
from kwire.net.timers import Timer


class GroupState(Enum):
    """Values are the names that DescribeGroups shows."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_MAY_COME_FROM = {
    GroupState.EMPTY: {GroupState.PREPARING_REBALANCE},
    GroupState.PREPARING_REBALANCE: {GroupState.EMPTY, GroupState.STABLE, GroupState.COMPLETING_REBALANCE},
    GroupState.COMPLETING_REBALANCE: {GroupState.PREPARING_REBALANCE},
    GroupState.STABLE: {GroupState.COMPLETING_REBALANCE},
    GroupState.DEAD: set(GroupState) - {GroupState.DEAD},
}


@dataclass(frozen=True, slots=True)
class Joined:
    """The answer to a JoinGroup."""

    error: int
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[tuple[str, str | None, bytes], ...] = ()  # (member id, instance id, metadata); for the leader only


@dataclass(frozen=True, slots=True)
class Synced:
    """The answer to a SyncGroup."""

    error: int
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


Protocols = tuple[tuple[str, bytes], ...]


@dataclass(slots=True, eq=False)
class Member:
    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    protocol_type: str
    protocols: Protocols  # (name, metadata), the member's favourite first
    session_timeout_ms: int
    rebalance_timeout_ms: int
    assignment: bytes = b""
    is_new: bool = True
    awaiting_join: Callable[[Joined], None] | None = None
    awaiting_sync: Callable[[Synced], None] | None = None
    session: Timer | None = None

    def metadata(self, protocol: str) -> bytes:
        return next(metadata for name, metadata in self.protocols if name == protocol)

    def stop_clock(self) -> None:
        if self.session is not None:
            self.session.cancel()
            self.session = None


@dataclass(slots=True, eq=False)
class Group:
    id: str
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static: dict[str, str] = field(default_factory=dict)  # instance id -> member id
    pending: dict[str, Timer] = field(default_factory=dict)  # ids that were given out but did not join yet
    # An ordered set of ids: what is walked must not depend on hashes.
    pending_sync: dict[str, None] = field(default_factory=dict)
    rebalance: Timer | None = None  # ends the join phase
    sync: Timer | None = None  # ends the sync phase
    # How much longer the first rebalance of an empty group may be put off; None: it is not put off.
    delay_left_ms: int | None = None
    joined_in_delay: bool = False  # somebody came while it was put off
    empty_since: float | None = None  # since when it has no member; None also for a group that never had one

    def __contains__(self, member_id: str) -> bool:
        return member_id in self.members

    def move(self, state: GroupState) -> None:
        assert self.state in _MAY_COME_FROM[state], f"group {self.id}: {self.state.name} -> {state.name}"
        self.state = state

    # Members.

    def add(self, member: Member) -> None:
        assert member.id not in self.members
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader is None:
            self.leader = member.id
        self.members[member.id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member.id
        self.drop_pending(member.id)

    def remove(self, member: Member) -> None:
        """Also answers it, if it waits."""
        member.stop_clock()
        self.answer_join(member, Joined(ErrorCode.UNKNOWN_MEMBER_ID, member.id))
        self.answer_sync(member, Synced(ErrorCode.UNKNOWN_MEMBER_ID))
        del self.members[member.id]
        self.pending_sync.pop(member.id, None)
        if member.instance_id is not None and self.static.get(member.instance_id) == member.id:
            del self.static[member.instance_id]
        if self.leader == member.id:
            self.leader = next(iter(self.members), None)

    def replace_static(self, member: Member, new_id: str) -> None:
        """A static member came back under a new id; whoever used the old one is fenced."""
        assert member.instance_id is not None
        self.answer_join(member, Joined(ErrorCode.FENCED_INSTANCE_ID, member.id))
        self.answer_sync(member, Synced(ErrorCode.FENCED_INSTANCE_ID))
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

    def drop_pending(self, member_id: str) -> bool:
        timer = self.pending.pop(member_id, None)
        if timer is not None:
            timer.cancel()
        return timer is not None

    # Protocols.

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols can join those who are here."""
        if not self.members:
            return bool(protocol_type and protocols)
        names = {name for name, _ in protocols}
        return protocol_type == self.protocol_type and bool(names & self._common_protocols())

    def select_protocol(self) -> str:
        """Every member votes for its favourite among those that all have; ties go to the first vote cast."""
        common = self._common_protocols()
        everybody = self.members.values()
        votes = Counter(next(name for name, _ in member.protocols if name in common) for member in everybody)
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
        return [member for member in self.members.values() if member.awaiting_join is None]

    def begin_generation(self) -> None:
        """The join phase is over: a new generation with those who are here."""
        self.generation += 1
        if self.members:
            self.protocol = self.select_protocol()
            self.move(GroupState.COMPLETING_REBALANCE)
            self.pending_sync = dict.fromkeys(self.members)
        else:
            self.protocol = None
            self.leader = None
            self.move(GroupState.EMPTY)

    def elect_joined_leader(self) -> bool:
        """If the leader did not come back, one who did leads. Whether there is one."""
        if self.leader is not None and self.members[self.leader].awaiting_join is not None:
            return True
        self.leader = next((member.id for member in self.members.values() if member.awaiting_join), self.leader)
        return self.leader is not None and self.members[self.leader].awaiting_join is not None

    def assign(self, assignments: dict[str, bytes]) -> None:
        """The leader has decided: everybody who waits gets their part."""
        for member in self.members.values():
            member.assignment = assignments.get(member.id, b"")
        self.move(GroupState.STABLE)
        for member in self.members.values():
            self.answer_sync(member, self.synced(member))

    def forget_assignments(self, error: ErrorCode) -> None:
        for member in self.members.values():
            member.assignment = b""
            self.answer_sync(member, Synced(error))

    def joined(self, member: Member, *, skip_assignment: bool = False) -> Joined:
        """This generation as `member` is told of it: only the leader learns who else is here."""
        assert self.protocol is not None
        protocol = self.protocol
        leads = member.id == self.leader
        members = tuple((m.id, m.instance_id, m.metadata(protocol)) for m in self.members.values()) if leads else ()
        return Joined(
            ErrorCode.NONE, member.id, self.generation, self.protocol_type, protocol, self.leader or "",
            skip_assignment=skip_assignment, members=members,
        )  # fmt: skip

    def synced(self, member: Member) -> Synced:
        return Synced(ErrorCode.NONE, self.protocol_type, self.protocol, member.assignment)

    # Answers; each is given once.

    @staticmethod
    def answer_join(member: Member, joined: Joined) -> None:
        reply, member.awaiting_join = member.awaiting_join, None
        if reply is not None:
            reply(joined)

    @staticmethod
    def answer_sync(member: Member, synced: Synced) -> None:
        reply, member.awaiting_sync = member.awaiting_sync, None
        if reply is not None:
            reply(synced)
