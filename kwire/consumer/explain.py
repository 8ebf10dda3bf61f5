"""Why a consumer gets no records. All current reasons are listed; a reason that must end first comes first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kwire.cluster.metadata import NO_NODE
from kwire.cluster.requests import ClusterView
from kwire.consumer.arguments import TopicPartition
from kwire.consumer.buffer import FetchBuffer
from kwire.consumer.group_member import Member, MemberState
from kwire.consumer.partition import FetchState, PartitionState
from kwire.consumer.routing import leader_of
from kwire.errors import KwireError, error_name


class Wait(StrEnum):
    """Why no records of a partition, or of all, are returned now."""

    SUBSCRIPTION = "subscription"  # nothing is subscribed or assigned
    MEMBERSHIP = "membership"  # the group has not let the member in, or it is outside
    COORDINATOR = "coordinator"  # the group's coordinator is not known, or cannot be reached
    TOPIC = "topic"  # the brokers do not have it, or do not let this client read it
    REBALANCE = "rebalance"  # a step of a rebalance waits for the program, or for a commit
    ASSIGNMENT = "assignment"  # the group gave this member no partition
    UNREACHABLE = "unreachable"  # no broker, or not the partition's leader, can be reached
    PAUSED = "paused"  # the program paused it
    FAILED = "failed"  # it raised an error; seek
    COMMITTED = "committed offset"  # the group's committed offset is looked up
    OFFSET = "offset"  # the offset to begin at is looked up
    VALIDATION = "validation"  # the position is compared with the leader's log (KIP-320)
    LEADER = "leader"  # the partition has no known leader
    BACK_OFF = "back-off"  # after a failure
    TRANSACTION = "transaction"  # the records after the position belong to a transaction that is open
    END = "end"  # there are no more records
    BUFFERED = "buffered"  # records are there: poll


@dataclass(frozen=True, slots=True)
class WaitReason:
    """One reason, with the partitions that it concerns (none: it concerns all), and the last failure, if any."""

    wait: Wait
    detail: str
    partitions: tuple[TopicPartition, ...] = ()
    cause: KwireError | None = None

    def __str__(self) -> str:
        where = " ".join(f"{topic}-{partition}" for topic, partition in self.partitions[:10])
        more = f" and {len(self.partitions) - 10} more" if len(self.partitions) > 10 else ""
        text = f"{self.wait}: {self.detail}" + (f" [{where}{more}]" if where else "")
        return f"{text}; the last failure was: {self.cause}" if self.cause is not None else text


@dataclass(frozen=True, slots=True)
class ConsumerExplanation:
    """What a consumer waits for: its group member, how many partitions it has, and the reasons."""

    member: Member
    assigned_partitions: int
    reasons: tuple[WaitReason, ...]

    def __str__(self) -> str:
        head = f"the consumer {self.member.state.value}; partitions assigned: {self.assigned_partitions}"
        return "\n".join([head, *(f"  {reason}" for reason in self.reasons)])


_OUTSIDE = {
    MemberState.UNJOINED, MemberState.PREPARING_REBALANCE, MemberState.COMPLETING_REBALANCE, MemberState.JOINING,
    MemberState.FENCED, MemberState.STALE, MemberState.FATAL, MemberState.LEAVING, MemberState.PREPARE_LEAVING,
}  # fmt: skip


def explain_group(
    member: Member | None,
    error: KwireError | None,
    step: str | None,
    is_assigned: bool,
    count: int,
    missing: Mapping[str, int],
    view: ClusterView,
    lookup_error: KwireError | None = None,
) -> list[WaitReason]:
    """Return the reasons that concern all partitions. `member` is None without a group; `step` waits for the caller.

    `missing` are the subscribed topics that cannot be read, each with its error code; `lookup_error` is why the group's
    coordinator is not known.
    """
    reasons: list[WaitReason] = []
    if not is_assigned:
        reasons.append(WaitReason(Wait.SUBSCRIPTION, "call subscribe() or assign()"))
        return reasons
    if view.connection_error is not None:
        reasons.append(WaitReason(Wait.UNREACHABLE, "no broker can be reached", cause=view.connection_error))
    if lookup_error is not None:
        reasons.append(WaitReason(Wait.COORDINATOR, "the group's coordinator is looked up", cause=lookup_error))
    if member is not None:
        if member.state in _OUTSIDE:
            reasons.append(WaitReason(Wait.MEMBERSHIP, f"the member {member.state.value}", cause=error))
        for topic, code in missing.items():
            reasons.append(WaitReason(Wait.TOPIC, f"{topic!r} cannot be read: {error_name(code)}"))
        if step is not None:
            reasons.append(WaitReason(Wait.REBALANCE, f"its step {step!r} waits until the program polls"))
        if member.state is MemberState.STABLE and not count and not missing:
            reasons.append(
                WaitReason(Wait.ASSIGNMENT, "the group gave this member no partition: it may have more members than "
                           "partitions, or no topic may match its pattern")
            )  # fmt: skip
    return reasons


def explain_partitions(
    states: Iterable[PartitionState],
    buffered: Mapping[TopicPartition, bool],
    fetch_buffer: FetchBuffer,
    is_committed_only: bool,
    now: float,
    view: ClusterView,
) -> list[WaitReason]:
    """Return the reasons of partitions, those with the same reason together. For the loop's thread."""
    found: dict[tuple[Wait, str, str], tuple[list[TopicPartition], KwireError | None]] = {}
    for state in states:
        wait, detail, cause = _explain(state, buffered, fetch_buffer, is_committed_only, now, view)
        entry = found.setdefault((wait, detail, str(cause)), ([], cause))
        entry[0].append(state.key)
    order = list(Wait)
    grouped: Sequence[tuple[tuple[Wait, str, str], tuple[list[TopicPartition], KwireError | None]]]
    grouped = sorted(found.items(), key=lambda item: order.index(item[0][0]))
    return [WaitReason(wait, detail, tuple(sorted(keys)), cause) for (wait, detail, _), (keys, cause) in grouped]


def _explain(
    state: PartitionState,
    buffered: Mapping[TopicPartition, bool],
    fetch_buffer: FetchBuffer,
    is_committed_only: bool,
    now: float,
    view: ClusterView,
) -> tuple[Wait, str, KwireError | None]:
    if state.is_paused:
        return Wait.PAUSED, "call resume()", None
    if buffered.get(state.key):
        return Wait.BUFFERED, "records are fetched: poll", None
    if state.fetch_state is FetchState.FAILED:
        return Wait.FAILED, "poll raised its error; seek to go on", state.last_error
    if state.fetch_state is FetchState.DONE:
        return Wait.END, "the end that assign() was given is reached", None
    if state.is_stopped:
        return Wait.REBALANCE, "it is being given to another member", None
    if state.committed_request is not None:
        return Wait.COMMITTED, "the group's committed offset is looked up", state.last_error
    leader = leader_of(view.snapshot, state.topic, state.partition)
    if leader.node == NO_NODE:
        return Wait.LEADER, "no leader is known", leader.error or state.last_error
    if not view.is_ready(leader.node):
        return Wait.UNREACHABLE, f"its leader, broker {leader.node}, is not reached", view.failure(leader.node)
    if now < state.not_before:
        return Wait.BACK_OFF, "it is tried again after a failure", state.last_error
    if state.fetch_state is FetchState.RESOLVING:
        return Wait.OFFSET, "the offset to begin at is looked up", state.last_error
    if state.fetch_state is FetchState.VALIDATING:
        return Wait.VALIDATION, "its position is compared with the leader's log", state.last_error
    watermarks = fetch_buffer.watermarks.get(state.assignment_epoch)
    if watermarks is None or state.offset is None:
        return Wait.OFFSET, "the first fetch has no response yet", state.last_error
    if is_committed_only and watermarks.last_stable_offset <= state.offset < watermarks.high_watermark:
        return Wait.TRANSACTION, f"a transaction is open at offset {watermarks.last_stable_offset}", None
    if state.offset >= watermarks.high_watermark:
        return Wait.END, "all its records were read", None
    return Wait.OFFSET, "a fetch is on its way", state.last_error
