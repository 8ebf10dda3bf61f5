"""What members of both group protocols share: options, states, the partitions owned, and the steps that change them."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from math import inf
from random import Random
from typing import Any, Literal, NamedTuple, Protocol
from uuid import UUID

from kwire.cluster import Backoff, ClusterView, GroupMetadata, PendingRequest, Snapshot, ToCoordinator
from kwire.cluster.group_metadata import LOST_GENERATION
from kwire.cluster.metadata import NO_ID
from kwire.consumer.arguments import TopicPartition
from kwire.consumer.assignors import Assignor
from kwire.consumer.buffer import ClientError
from kwire.consumer.commits import CommitManager
from kwire.consumer.offsets import Offset
from kwire.consumer.rebalance import RebalanceStep, StepKind
from kwire.consumer.subscription import Subscription
from kwire.errors import KwireError

_log = logging.getLogger("kwire.consumer")

GroupProtocol = Literal["auto", "classic", "consumer"]
# What leaving does. "default": a static member stays in the group until its session ends, so that a restart causes no
# rebalance, and a dynamic member leaves. "remain" and "leave" are for both (KIP-1092).
LeaveMode = Literal["default", "leave", "remain"]

# The rebalance timeout without a poll interval.
_REBALANCE_TIMEOUT_MS = 300_000
# The longest wait for the commit before a revocation, and for the response to the request that leaves.
_COMMIT_SECONDS_MAX = 30.0
LEAVE_SECONDS_MAX = 1.0
# How long after a change of the group the first heartbeat comes; each later one waits twice as long.
_FIRST_HEARTBEAT_S = 0.1
# The second attempt to leave has a connection of its own, since the other may be silent, and begins after this time.
_LEAVE_AGAIN_SECONDS = 0.4
# Of the time to leave, what the commit before it may take.
_COMMIT_FRACTION = 0.5


class MemberState(Enum):
    """The state of a member; the values describe it for users."""

    # Of both protocols.
    UNSUBSCRIBED = "has no subscription, or has left the group"
    STABLE = "is a member, with the partitions that the group gave it"
    PREPARE_LEAVING = "commits and revokes its partitions before it leaves"
    LEAVING = "leaves the group"
    STALE = "has left because polls were too far apart; the next poll joins again"
    FATAL = "met an error that no retry can mend"
    # Of classic groups.
    UNJOINED = "is about to join"
    PREPARING_REBALANCE = "joins, and waits for the other members to join"
    COMPLETING_REBALANCE = "has joined, and waits for the leader's assignment"
    # Of groups of the new protocol (KIP-848).
    JOINING = "joins"
    RECONCILING = "revokes and takes over partitions"
    ACKNOWLEDGING = "is about to report the partitions that it has now"
    FENCED = "was dropped by the coordinator, and is about to join again"


class HeartbeatPace:
    """How long to wait between heartbeats: briefly after a change of the group, then ever longer, up to the interval.

    A member learns of a rebalance only by a heartbeat, and rebalances come in bursts: members start one after another,
    and what one member gives up another waits for. Some more heartbeats save whole intervals then.
    """

    def __init__(self) -> None:
        self._seconds = inf

    def changed(self) -> None:
        """Begin anew: the group has changed."""
        self._seconds = _FIRST_HEARTBEAT_S

    def wait(self, interval: float) -> float:
        """Return the seconds until the next heartbeat."""
        seconds = min(self._seconds, interval)
        self._seconds *= 2
        return seconds


class Member(NamedTuple):
    """A member as it sees itself; `epoch` is the generation in a classic group, `protocol` None before the choice."""

    id: str
    epoch: int
    state: MemberState
    protocol: Literal["classic", "consumer"] | None
    instance_id: str | None


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """The options of a member: see `ConsumerOptions`, which has them with their checks and descriptions.

    `is_classic_wanted` says that an option was given that only classic groups have, so that "auto" means classic.
    """

    group: str
    protocol: GroupProtocol = "auto"
    instance_id: str | None = None
    assignors: tuple[Assignor, ...] = ()
    remote_assignor: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int | None = 300_000
    rack: str = ""
    fence_on_session_loss: bool = False
    is_classic_wanted: bool = False

    @property
    def rebalance_timeout_ms(self) -> int:
        return self.max_poll_interval_ms or _REBALANCE_TIMEOUT_MS

    @property
    def commit_seconds(self) -> float:
        """Return how long a revocation waits for the commit before it."""
        return min(self.rebalance_timeout_ms / 2000, _COMMIT_SECONDS_MAX)


class PollTimer:
    """The time since the caller's last poll ended. The caller writes it and the loop reads it, without a lock.

    The caller calls `poll_ended` also when it subscribes, so that a consumer that never polls does not keep partitions.
    """

    __slots__ = ("polls", "since", "wake")

    def __init__(self) -> None:
        self.since = inf  # the loop's time at which the last poll ended; infinite during a poll
        self.polls = 0  # that began
        self.wake: Callable[[], None] | None = None  # set by the loop while it waits for a poll to begin

    def poll_began(self) -> None:
        self.since = inf
        self.polls += 1
        if self.wake is not None:
            self.wake()

    def poll_ended(self, now: float) -> None:
        self.since = now


class GroupFetcher(Protocol):
    """What a member needs of the `Fetcher`."""

    def stop_fetching(self, keys: Iterable[TopicPartition]) -> None: ...

    def remove(self, keys: Iterable[TopicPartition]) -> None: ...


@dataclass(frozen=True, slots=True)
class GroupContext:
    """What a member works with.

    in_background  runs its first argument away from the loop, then its second on the loop, with the result or with
                   the exception
    wake           has the loop take another turn
    """

    options: GroupOptions
    fetcher: GroupFetcher
    commits: CommitManager
    post: Callable[[RebalanceStep | ClientError], object]
    poll_timer: PollTimer
    backoff: Backoff
    random: Random
    request_timeout_ms: int
    in_background: Callable[[Callable[[], Any], Callable[[Any], object]], object]
    wake: Callable[[], None]


class Steps:
    """The partitions that a member owns, and the rebalance steps that change them: one at a time, but for `lose`.

    A step is posted to the caller, who reports it by `prepared` or `done`; `turn` goes on from there. `then(now)` is
    called when all is over, unless `lose` or `forget` comes before that.
    """

    def __init__(self, context: GroupContext) -> None:
        self.owned: set[TopicPartition] = set()
        self.epoch = -1
        self.topic_ids: dict[str, UUID] = {}  # of the topics of owned partitions, where known
        self._context = context
        self._outstanding: list[RebalanceStep] = []  # posted and not over
        self._processed: Mapping[TopicPartition, Offset] | None = None  # of the outstanding `prepare`
        self._committing: RebalanceStep | None = None  # the `prepare` whose commit has no result yet
        self._hurry_at: float | None = None  # when commits are no longer waited for
        self._revoked: RebalanceStep | None = None  # over, except commits in flight
        self._revoked_until: float | None = None
        self._round = 0  # what an older round waited for has no effect any more
        self._then: Callable[[float], object] | None = None
        self.will_assign = False  # the outstanding steps are of a round that ends with an `assign`, which is not done
        context.commits.owned = self.owned

    @property
    def is_idle(self) -> bool:
        return not self._outstanding and not self.is_committing and self._then is None

    @property
    def outstanding(self) -> RebalanceStep | None:
        """Return the oldest step that the caller has not reported."""
        return self._outstanding[0] if self._outstanding else None

    @property
    def is_committing(self) -> bool:
        """Return whether a revocation waits for commits."""
        return self._committing is not None or self._revoked is not None

    def deadline(self) -> float | None:
        times = [self._revoked_until, self._hurry_at if self.is_committing else None]
        return min((time for time in times if time is not None), default=None)

    def hurry(self, at: float | None) -> None:
        """Wait for no commit after this time, because the member leaves; None: as long as in any rebalance."""
        self._hurry_at = at

    # -- the caller's reports

    def prepared(self, step: RebalanceStep, processed: Mapping[TopicPartition, Offset]) -> None:
        if step in self._outstanding and step.kind == "prepare":
            self._processed = processed

    def done(self, step: RebalanceStep) -> None:
        if step not in self._outstanding:
            return
        self._outstanding.remove(step)
        if step.kind == "assign":
            self.will_assign = False
        elif step.kind == "revoke":
            self._revoked = step
        elif step.kind == "lost":
            self._context.fetcher.remove(step.partitions)  # an assign before it may have added them

    # -- the member's commands

    def take_away(
        self,
        partitions: Collection[TopicPartition],
        then: Callable[[float], object],
        now: float,
        *,
        will_assign: bool = False,
    ) -> None:
        """Revoke partitions: at the caller's next poll boundary, after a commit of what was processed.

        With `will_assign`, `then` calls `assign`.
        """
        assert self.is_idle, "one step at a time"
        revoked = self.owned & set(partitions)
        if not revoked:
            then(now)
            return
        self._then, self.will_assign = then, will_assign
        self._context.fetcher.stop_fetching(revoked)
        self._post("prepare", revoked)

    def assign(self, partitions: Collection[TopicPartition], then: Callable[[float], object]) -> None:
        """Give new partitions to the caller; also none, because every rebalance ends with on_assigned."""
        assert self.is_idle, "one step at a time"
        self._then = then
        self.owned.update(partitions)
        self._post("assign", partitions)

    def lose(self, then: Callable[[float], object], now: float) -> None:
        """Give up all partitions at once: others own them already. What the caller is doing ends first."""
        self.forget()
        self._outstanding = [step for step in self._outstanding if step.kind != "prepare"]
        revoked = {key for step in self._outstanding if step.kind == "revoke" for key in step.partitions}
        if self._revoked is not None:  # on_revoked has run for it
            self._drop(self._revoked)
        lost = self.owned - revoked
        self._context.fetcher.remove(set(self.owned))
        self._context.commits.lose(set(self.owned))
        self.owned.clear()
        if lost:
            self._post("lost", lost)
        self._then = then
        self.turn(now)

    def forget(self) -> None:
        """Do not go on after the outstanding steps."""
        self._round += 1
        self._then = self._processed = self._committing = None
        self.will_assign = False

    def turn(self, now: float) -> None:
        """Go on where the caller has reported."""
        if self._processed is not None:
            (step,), processed, self._processed = self._outstanding, self._processed, None
            self._outstanding.clear()
            self._commit(step, processed, now)
        if self._committing is not None and self._hurry_at is not None and now >= self._hurry_at:
            self._committed(self._committing)
        if self._revoked is not None:
            self._settle(self._revoked, now)
        if not self._outstanding and not self.is_committing and self._then is not None:
            then, self._then = self._then, None
            then(now)

    def _commit(self, step: RebalanceStep, processed: Mapping[TopicPartition, Offset], now: float) -> None:
        current = self._round
        self._committing = step

        def committed(results: Mapping[TopicPartition, KwireError | None]) -> None:
            failed = {key: error for key, error in results.items() if error is not None}
            if failed:
                (topic, partition), error = next(iter(failed.items()))
                _log.warning(
                    "%d of %d processed offsets were not committed before the rebalance; %s-%d: %s",
                    len(failed), len(results), topic, partition, error.text(without=("topic", "partition")),
                )  # fmt: skip
            if current == self._round and self._committing is step:
                self._committed(step)

        deadline = now + self._context.options.commit_seconds
        owned = {key: offset for key, offset in processed.items() if key in self.owned}
        self._context.commits.commit(owned, committed, deadline=deadline, retries=True, before_revoke=True)

    def _committed(self, step: RebalanceStep) -> None:
        self._committing = None
        self._post("revoke", self.owned & set(step.partitions))

    def _post(self, kind: StepKind, partitions: Collection[TopicPartition]) -> None:
        ids = {topic: self.topic_ids[topic] for topic, _ in partitions if topic in self.topic_ids}
        step = RebalanceStep(kind, tuple(sorted(partitions)), self.epoch, ids)
        self._outstanding.append(step)
        is_change = kind != "prepare" and bool(partitions)
        _log.log(
            logging.INFO if is_change else logging.DEBUG,
            "group %s, %s: %s", self._context.options.group, kind, show_partitions(step.partitions),
        )  # fmt: skip
        self._context.post(step)

    def _settle(self, step: RebalanceStep, now: float) -> None:
        """Drop what was revoked when no commit of it is on its way, such as one that on_revoked made."""
        if self._revoked_until is None:
            self._revoked_until = now + self._context.options.commit_seconds
            if self._hurry_at is not None:
                self._revoked_until = min(self._revoked_until, max(now, self._hurry_at))
        if now >= self._revoked_until or not self._context.commits.has_commits(step.partitions):
            self._drop(step)

    def _drop(self, step: RebalanceStep) -> None:
        self._revoked = self._revoked_until = None
        self._context.commits.lose(step.partitions)
        self._context.fetcher.remove(step.partitions)
        self.owned.difference_update(step.partitions)


class Departure:
    """The request that leaves a group: one attempt where the member's requests go, one on a connection of its own.

    The first may be stuck behind a response that never comes. Leaving twice is harmless: the second request is refused.
    The end is a response, or the failure of both, or `LEAVE_SECONDS_MAX`. `request(connection, on_done)` makes one.
    """

    def __init__(
        self,
        request: Callable[[str | None, Callable[[bool], object]], PendingRequest],
        on_done: Callable[[bool], object],
        now: float,
    ) -> None:
        self.until = now + LEAVE_SECONDS_MAX
        self._request = request
        self._on_done = on_done  # gets whether the coordinator has responded
        self._again_at: float | None = now + _LEAVE_AGAIN_SECONDS
        self._missing = 2  # attempts that have not failed
        self._is_over = False
        self._is_first_due = True

    def deadline(self) -> float | None:
        return self.until if self._again_at is None else self._again_at

    def turn(self, now: float) -> list[PendingRequest]:
        """Return the requests that are due."""
        due: list[PendingRequest] = []
        if now >= self.until:
            self._end(False)
        if self._is_over:
            return due
        if self._is_first_due:
            self._is_first_due = False
            due.append(self._request(None, self._attempted))
        if self._again_at is not None and now >= self._again_at:
            self._again_at = None
            due.append(self._request("leave", self._attempted))
        return due

    def _attempted(self, has_response: bool) -> None:
        self._missing -= 1
        if has_response or not self._missing:
            self._end(has_response)
        elif self._again_at is not None:
            self._again_at = 0.0  # the other attempt is due now

    def _end(self, has_response: bool) -> None:
        if not self._is_over:
            self._is_over = True
            self._on_done(has_response)


class GroupMember(ABC):
    """A member of a group of one protocol: the part of `Membership` that speaks it."""

    protocol: Literal["classic", "consumer"]

    def __init__(self, context: GroupContext, steps: Steps, subscription: Subscription, member_id: str = "") -> None:
        self.context = context
        self.options = context.options
        self.steps = steps
        self.subscription = subscription
        self.route = ToCoordinator(context.options.group)
        self.state = MemberState.UNJOINED
        self.member_id = member_id
        self.epoch = -1
        self.error: KwireError | None = None
        self.snapshot = Snapshot()
        self.must_forget_coordinator = False
        self.leave_mode: LeaveMode = "default"
        self.departure: Departure | None = None
        self.kept_id = ""  # of a member that the coordinator may still have, since leaving had no response
        self._on_left: Callable[[], object] | None = None
        self._polls_seen = 0

    # -- for Membership

    @abstractmethod
    def turn(self, now: float, view: ClusterView) -> list[PendingRequest]:
        """Go on, after `steps` had its turn; return the requests to send."""

    @abstractmethod
    def deadline(self) -> float | None:
        """Return when the next turn is due, or None."""

    @abstractmethod
    def topics(self) -> Collection[str]:
        """Return the topics whose metadata is needed."""

    @abstractmethod
    def subscribe(self, subscription: Subscription) -> None:
        """Change the subscription."""

    @abstractmethod
    def poll_expired(self, now: float) -> None:
        """Leave until the next poll: the last one ended too long ago."""

    @abstractmethod
    def commit_refused(self, code: int, sent: GroupMetadata) -> None:
        """Take note of an error of a commit: see `CommittingMember`."""

    @property
    @abstractmethod
    def is_rebalancing(self) -> bool: ...

    def leave(self, mode: LeaveMode, on_left: Callable[[], object], now: float, until: float | None) -> None:
        """Give everything up and leave the group; then call `on_left`. The next turn begins with it.

        Commits are waited for so long only that the request to leave is sent before the time `until`.
        """
        self.leave_mode, self._on_left = mode, on_left
        self.steps.hurry(None if until is None else now + (until - now) * _COMMIT_FRACTION)

    # -- for the protocols

    @property
    def is_outside(self) -> bool:
        """Return whether the poll interval does not count: the member has left, or is leaving."""
        return self.must_leave or self.state in (MemberState.UNSUBSCRIBED, MemberState.STALE, MemberState.FATAL)

    @property
    def must_leave(self) -> bool:
        return self._on_left is not None

    def left(self) -> None:
        """Report that `leave` is over."""
        self.state = MemberState.UNSUBSCRIBED
        self.steps.hurry(None)
        on_left, self._on_left = self._on_left, None
        if on_left is not None:
            on_left()

    def await_poll(self) -> None:
        """Have the next poll cause a turn."""
        self._polls_seen = self.context.poll_timer.polls
        self.context.poll_timer.wake = self.context.wake

    def has_polled_again(self) -> bool:
        """Return whether a poll has started since `await_poll`, and the steps before it are over."""
        if not self.steps.is_idle or self.context.poll_timer.polls == self._polls_seen:
            return False
        self.context.poll_timer.wake = None
        return True

    def set_generation(self, member_id: str, epoch: int, *, is_assigned: bool = True) -> None:
        """Set who the member is from now on, for heartbeats, commits and transactions.

        Without `is_assigned` it has no assignment of this generation yet. What it owns is of the one before, and its
        commits say so (as in Java, whose group metadata change with the response to SyncGroup).
        """
        self.member_id, self.epoch, self.steps.epoch = member_id, epoch, epoch
        if is_assigned:
            self._name_in_commits(member_id, epoch)

    def _name_in_commits(self, member_id: str, epoch: int) -> None:
        commits = self.context.commits
        # Brokers accept offsets of a transaction that names no member (KIP-447), so a lost one keeps its name there.
        named = member_id or commits.generation.member_id
        lost = LOST_GENERATION if named else -1
        commits.generation = GroupMetadata(
            self.options.group, epoch if epoch > 0 else lost, named, self.options.instance_id
        )

    def clear_generation(self) -> None:
        """Be nobody: the member has left the group."""
        self.set_generation("", -1)
        self.context.commits.generation = GroupMetadata(self.options.group, group_instance_id=self.options.instance_id)

    def note_topic_ids(self, topics: Iterable[str]) -> None:
        """Remember the ids of topics that the metadata has."""
        for name in topics:
            known = self.snapshot.topics.get(name)
            if known is not None and known.id != NO_ID:
                self.steps.topic_ids[name] = known.id

    def fail(self, error: KwireError, now: float) -> None:
        """End the membership by an error that every later poll raises."""
        if self.state is MemberState.FATAL:
            return
        _log.error("group %s: %s", self.options.group, error)
        self.state, self.error = MemberState.FATAL, error
        self.set_generation(self.member_id, -1)
        self.steps.lose(lambda now: None, now)
        self.context.post(ClientError(error))


def show_partitions(partitions: Collection[TopicPartition]) -> str:
    """Return partitions as log lines name them.

    >>> show_partitions([("t", 0), ("t", 2), ("u", 1)])
    't-0 t-2 u-1'
    """
    named = " ".join(f"{topic}-{partition}" for topic, partition in list(partitions)[:20])
    return f"{named} and {len(partitions) - 20} more" if len(partitions) > 20 else named or "none"
