"""Membership in a group: the state machine that the loop runs, whichever protocol the group speaks.

It chooses the protocol, watches the poll interval, and passes the caller's reports on. `ClassicMembership` joins by
JoinGroup and SyncGroup; `ConsumerMembership` by heartbeats (KIP-848). With "auto" the second is tried first, unless an
option was given that only the first has, and the first is used where the coordinator refuses the second.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from math import inf

from kwire.cluster import ClusterView, GroupMetadata, PendingRequest, Snapshot
from kwire.cluster.metrics import Histogram
from kwire.consumer.arguments import TopicPartition
from kwire.consumer.classic_membership import ClassicMembership
from kwire.consumer.consumer_membership import ConsumerMembership, make_member_id
from kwire.consumer.group_member import (
    GroupContext,
    GroupMember,
    GroupOptions,
    LeaveMode,
    Member,
    MemberState,
    PollTimer,
    Steps,
)
from kwire.consumer.offsets import Offset
from kwire.consumer.rebalance import RebalanceStep
from kwire.consumer.subscription import Subscription
from kwire.errors import KwireError, error_name

__all__ = [
    "GroupContext",
    "GroupOptions",
    "LeaveMode",
    "Member",
    "MemberState",
    "Membership",
    "PollTimer",
]

_log = logging.getLogger("kwire.consumer")

# A topic may just be created: how long after `subscribe` one that does not exist is logged.
_TOPICS_SECONDS = 5.0


class Membership:
    """A `StateMachine`. The commands are for the loop's thread; the properties may be read from any thread."""

    def __init__(self, context: GroupContext) -> None:
        self._context = context
        self._options = context.options
        self._steps = Steps(context)
        self._member: GroupMember | None = None
        self._new_subscription: Subscription | None = None
        self._subscription: Subscription | None = None
        self._on_left: Callable[[], object] | None = None
        self._leave_mode: LeaveMode = "default"
        self._leave_until: float | None = None
        self._kept_id = ""  # of a classic member that the coordinator may still have
        self._has_fallen_back = False  # to the classic protocol
        self._deadline: float | None = None
        self._now = 0.0
        self._warned_since: float | None = None
        self._check_topics_at: float | None = None
        self.latency = Histogram()  # of rebalances
        self._rebalance_began: float | None = None
        self._member_id = make_member_id(context.random)  # one for the life of the consumer (KIP-1082)
        context.commits.member = self

    # -- from any thread

    @property
    def fatal_error(self) -> KwireError | None:
        """Return the error that ended the membership; every poll raises it. It was posted once as a `ClientError`."""
        member = self._member
        return None if member is None else member.error

    def group_metadata(self) -> GroupMetadata:
        """Return who the member is now, for a transaction. Read it when the request is sent."""
        return self._context.commits.generation

    def member(self) -> Member:
        member, options = self._member, self._options
        if member is None:
            return Member("", -1, MemberState.UNSUBSCRIBED, None, options.instance_id)
        return Member(member.member_id, member.epoch, member.state, member.protocol, options.instance_id)

    @property
    def pending_step(self) -> RebalanceStep | None:
        """Return the step of a rebalance that waits for the caller, if any."""
        return self._steps.outstanding

    @property
    def will_assign(self) -> bool:
        """Return whether the steps of now take partitions away, and an `assign` of the same round ends them."""
        return self._steps.will_assign

    # -- commands

    def subscribe(self, subscription: Subscription) -> None:
        """Join the group for these topics, or change those of a member."""
        self._new_subscription = subscription
        self._context.wake()

    def unsubscribe(self, on_done: Callable[[], object]) -> None:
        """Revoke all partitions and leave the group, then call `on_done`."""
        self.leave("default", on_done)

    def leave(self, mode: LeaveMode, on_done: Callable[[], object], until: float | None = None) -> None:
        """Revoke all partitions, leave the group as `mode` says, then call `on_done`.

        `until` is the time of the loop at which the caller stops waiting: the commit before it is given up in time to
        send the request that leaves.
        """
        self._new_subscription = None
        self._leave_until = until
        previous = self._on_left
        self._leave_mode = mode
        self._on_left = on_done if previous is None else lambda: (previous(), on_done())
        self._context.wake()

    def prepared(self, step: RebalanceStep, processed: Mapping[TopicPartition, Offset]) -> None:
        """Go on after a `prepare`: commit what was processed, then revoke."""
        self._steps.prepared(step, processed)
        self._context.wake()

    def step_done(self, step: RebalanceStep, error: BaseException | None = None) -> None:
        """Go on after a step; `error` is what the user's callback raised, which stops nothing."""
        if error is not None:
            _log.warning("group %s, %s: the callback raised %r", self._options.group, step.kind, error)
        self._steps.done(step)
        self._context.wake()

    # -- CommittingMember

    @property
    def is_rebalancing(self) -> bool:
        return self._member is not None and self._member.is_rebalancing

    def commit_refused(self, code: int, sent: GroupMetadata) -> None:
        if self._member is not None:
            self._member.commit_refused(code, sent)

    # -- StateMachine

    def topics(self) -> Collection[str]:
        return () if self._member is None else self._member.topics()

    def deadline(self) -> float | None:
        times = [
            self._deadline,
            self._check_topics_at,
            self._steps.deadline(),
            None if self._member is None else self._member.deadline(),
        ]
        return min((time for time in times if time is not None), default=None)

    def closed(self, error: KwireError) -> None:
        self._steps.forget()
        on_left, self._on_left = self._on_left, None
        if on_left is not None:
            on_left()

    def turn(self, now: float, view: ClusterView) -> list[PendingRequest]:
        self._now = now
        self._steps.turn(now)
        if self._on_left is not None:
            self._leave()
        if self._new_subscription is not None and (self._member is None or not self._member.must_leave):
            subscription, self._new_subscription = self._new_subscription, None
            self._subscribe(subscription)
        member = self._member
        if member is None:
            return []
        if isinstance(member, ConsumerMembership) and member.must_fall_back:
            member = self._member = self._fall_back(member)
        self._check_poll_interval(member, now)
        if self._check_topics_at is not None and now >= self._check_topics_at:
            self._warn_of_missing_topics(view.snapshot)
        requests = member.turn(now, view)
        self._time_rebalance(member, now)
        return requests

    def _time_rebalance(self, member: GroupMember, now: float) -> None:
        """Measure from when the member leaves its stable state, or has a step to do, to when it is back."""
        if member.is_outside:
            self._rebalance_began = None
        elif member.state is not MemberState.STABLE or not self._steps.is_idle:
            if self._rebalance_began is None:
                self._rebalance_began = now
        elif self._rebalance_began is not None:
            self.latency.observe(now - self._rebalance_began)
            self._rebalance_began = None

    def _subscribe(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self._check_topics_at = self._now + _TOPICS_SECONDS if subscription.topics else None
        if self._member is not None:
            self._member.subscribe(subscription)
            return
        self._context.commits.owned = self._steps.owned  # between two memberships the program may assign partitions
        use_classic = self._options.protocol == "classic" or (
            self._options.protocol == "auto" and (self._options.is_classic_wanted or self._has_fallen_back)
        )
        if use_classic:
            self._member = ClassicMembership(self._context, self._steps, subscription, self._kept_id)
            self._kept_id = ""
        else:
            self._member = ConsumerMembership(self._context, self._steps, subscription, self._member_id)

    def _fall_back(self, member: ConsumerMembership) -> ClassicMembership:
        _log.info("group %s speaks the classic protocol: %s", self._options.group, member.fall_back_reason)
        self._has_fallen_back = True
        return ClassicMembership(self._context, self._steps, member.subscription)

    def _leave(self) -> None:
        member = self._member
        if member is None:
            self._left()
        elif not member.must_leave:
            member.leave(self._leave_mode, self._left, self._now, self._leave_until)

    def _left(self) -> None:
        if self._member is not None:
            self._kept_id = self._member.kept_id
        self._member = None
        self._has_fallen_back = False
        self._context.wake()
        on_left, self._on_left = self._on_left, None
        if on_left is not None:
            on_left()

    def _warn_of_waiting(self, since: float, expires_at: float, now: float) -> None:
        """Log that a rebalance waits for a poll, when half of the time for it is over."""
        half = (since + expires_at) / 2
        if now < half:
            self._deadline = half
        elif self._steps.outstanding is not None and self._warned_since != since:
            self._warned_since = since
            _log.warning(
                "group %s: a rebalance is waiting for the next poll; the last one ended %.1f s ago, and without "
                "another within %.1f s this member is dropped",
                self._options.group, now - since, expires_at - now,
            )  # fmt: skip

    def _warn_of_missing_topics(self, snapshot: Snapshot) -> None:
        """Log once, some time after `subscribe`, what the brokers do not have: most likely a name is wrong."""
        self._check_topics_at = None
        if not snapshot.brokers or self._subscription is None:
            return  # why there is no metadata is logged elsewhere
        for name, code in self._subscription.missing(snapshot).items():
            _log.warning(
                "group %s: topic %r cannot be read yet: %s; this member gets its records as soon as it can",
                self._options.group, name, error_name(code),
            )  # fmt: skip

    def _check_poll_interval(self, member: GroupMember, now: float) -> None:
        self._deadline = None
        interval, since = self._options.max_poll_interval_ms, self._context.poll_timer.since
        if interval is None or since == inf or member.is_outside:
            return
        expires_at = since + interval / 1000
        if now < expires_at:
            self._deadline = expires_at
            self._warn_of_waiting(since, expires_at, now)
            return
        _log.warning(
            "group %s: no poll for %.1f s, which is more than max_poll_interval_ms: this member leaves, and the next "
            "poll joins again. Raise max_poll_interval_ms, or lower max_poll_records",
            self._options.group, now - since,
        )  # fmt: skip
        member.poll_expired(now)
