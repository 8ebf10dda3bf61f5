"""The member of a share group: ShareGroupHeartbeat joins, keeps and leaves the membership (KIP-932).

    UNSUBSCRIBED -> JOINING    `subscribe`: epoch 0 and the topics
    JOINING -> STABLE          the coordinator gave an epoch; heartbeats follow at its interval
    STABLE -> JOINING          fenced: what is acquired is void, the same member id joins again
    any -> LEAVING             `unsubscribe`, `leave`, or no poll for max_poll_interval_ms: epoch -1
    LEAVING -> UNSUBSCRIBED    left; or STALE, where the next poll joins again
    any -> FATAL               the coordinator refuses the group; every later poll raises the error

An assignment is valid at once: share groups have no rebalance, no callbacks and no static members. The member id is
made here, once per consumer (KIP-1082). Kafka's classes are ShareMembershipManager and ShareHeartbeatRequestManager.
Nothing here does I/O.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from enum import Enum
from functools import partial
from math import inf
from random import Random

from kwire.cluster import Backoff
from kwire.cluster.requests import ClusterView, PendingRequest, ToCoordinator
from kwire.consumer.consumer_membership import make_member_id
from kwire.errors import (
    AuthorizationError,
    BrokerError,
    ErrorCode,
    KwireError,
    NodeError,
    RequestTimeoutError,
    UnsupportedVersionError,
    broker_error,
)
from kwire.protocol import Response
from kwire.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from kwire.share.acknowledgements import SharePartition

_log = logging.getLogger("kwire.share")

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STABLE_SINCE = 1  # v0 is Kafka 4.0's early access, which 4.1 removed
_INTERVAL_MIN = 1.0  # seconds, in place of an interval of 0
_WAIT_FOR_COORDINATOR = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
_FENCED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.STALE_MEMBER_EPOCH})


class MemberState(Enum):
    UNSUBSCRIBED = "unsubscribed"
    JOINING = "joining"
    STABLE = "stable"
    LEAVING = "leaving"
    STALE = "stale"
    FATAL = "fatal"


_MOVES = {
    MemberState.UNSUBSCRIBED: {MemberState.JOINING, MemberState.FATAL},
    MemberState.JOINING: {MemberState.STABLE, MemberState.LEAVING, MemberState.FATAL},
    MemberState.STABLE: {MemberState.JOINING, MemberState.LEAVING, MemberState.FATAL},
    MemberState.LEAVING: {MemberState.UNSUBSCRIBED, MemberState.STALE, MemberState.JOINING},
    MemberState.STALE: {MemberState.JOINING, MemberState.UNSUBSCRIBED},
    MemberState.FATAL: set(),
}
_ACTIVE = frozenset({MemberState.JOINING, MemberState.STABLE})


class PollTimer:
    """When the caller last polled. The caller writes and the loop thread reads: two attributes, no lock."""

    __slots__ = ("is_polling", "last_poll")

    def __init__(self) -> None:
        self.is_polling = False  # the time inside a poll does not count
        self.last_poll = 0.0


def no_share_groups(cause: KwireError) -> UnsupportedVersionError:
    """Return the error for a broker without share groups; `cause` names the broker and the API."""
    error = UnsupportedVersionError(
        "the broker has no share groups",
        remedy="they need Kafka 4.2 (a preview in 4.1) with the feature share.version at 1: "
        "kafka-features.sh --bootstrap-server ... upgrade --feature share.version=1",
        **cause.where,
    )
    error.__cause__ = cause
    return error


class ShareMembership:
    """A `StateMachine`. Its methods are called on the loop thread; `state`, `epoch` and `error` any thread may read.

    `assign` gets the assigned partitions whenever they change, `lose` why all that is acquired is void, and
    `post_error` what poll should raise once.
    """

    def __init__(
        self, group: str, *, rack: str, max_poll_interval_ms: int | None, poll_timer: PollTimer, backoff: Backoff,
        random: Random, assign: Callable[[Collection[SharePartition]], None], lose: Callable[[KwireError], None],
        post_error: Callable[[KwireError], None],
    ) -> None:  # fmt: skip
        self.group = group
        self.member_id = make_member_id(random)
        self.epoch = JOIN_EPOCH
        self.state = MemberState.UNSUBSCRIBED
        self.error: KwireError | None = None  # that made it FATAL
        self.last_error: KwireError | None = None  # of the last heartbeat, None after a success
        self.heartbeats = 0
        self.rejoins = 0
        self._rack = rack or None
        self._max_poll_interval = inf if max_poll_interval_ms is None else max_poll_interval_ms / 1000
        self._poll_timer = poll_timer
        self._backoff = backoff
        self._random = random
        self._assign = assign
        self._lose = lose
        self._post_error = post_error
        self._route = ToCoordinator(group)
        self._topics: frozenset[str] = frozenset()
        self._sent_topics: frozenset[str] | None = None  # the subscription that the coordinator has
        self._interval = _INTERVAL_MIN
        self._next_heartbeat = 0.0
        self._pending: PendingRequest | None = None  # in flight, or waiting for the coordinator to be found
        self._is_urgent = False  # a heartbeat is due although the interval has not passed
        self._attempts = 0
        self._forgets_coordinator = False
        self._left_state = MemberState.UNSUBSCRIBED  # after LEAVING
        self._on_left: list[Callable[[], None]] = []
        self._leave_deadline: float | None = None
        self._is_closed = False

    # -- commands

    def subscribe(self, topics: Collection[str]) -> None:
        """Join the group with these topics, or change the subscription."""
        self._topics = frozenset(topics)
        if self.state in (MemberState.UNSUBSCRIBED, MemberState.STALE, MemberState.LEAVING):
            self._join()
        elif self.state in _ACTIVE:
            self._is_urgent = True

    def unsubscribe(self) -> None:
        """Leave the group."""
        self._topics = frozenset()
        self._begin_leave(MemberState.UNSUBSCRIBED)

    def rejoin(self) -> None:
        """Join again after the poll interval had passed: the caller polls."""
        if self.state is MemberState.STALE or (
            self.state is MemberState.LEAVING and self._left_state is MemberState.STALE
        ):
            self._join()

    def leave(self, deadline: float, on_left: Callable[[], None]) -> None:
        """Leave the group for good. `on_left` is called once, at the latest at `deadline`."""
        self._on_left.append(on_left)
        self._leave_deadline = deadline
        self._begin_leave(MemberState.UNSUBSCRIBED)
        has_joined = self.epoch > JOIN_EPOCH or (self._pending is not None and self._pending.broker is not None)
        if self.state is MemberState.LEAVING and not has_joined:
            self._end_leave()  # no coordinator has been reached
        if self.state is not MemberState.LEAVING:
            self._report_left()

    # -- StateMachine

    def topics(self) -> Collection[str]:
        return self._topics

    def deadline(self) -> float | None:
        times = [self._leave_deadline] if self._on_left else []
        if self.state in (MemberState.JOINING, MemberState.STABLE, MemberState.LEAVING) and self._pending is None:
            times.append(self._next_heartbeat)
        if self.state in _ACTIVE and not self._poll_timer.is_polling:
            times.append(self._poll_timer.last_poll + self._max_poll_interval)
        return min((time for time in times if time is not None), default=None)

    def closed(self, error: KwireError) -> None:
        self._is_closed = True
        self._report_left()

    def turn(self, now: float, view: ClusterView) -> list[PendingRequest]:
        if self._forgets_coordinator:
            self._forgets_coordinator = False
            view.forget_coordinator(self._route)
        if self._on_left and self._leave_deadline is not None and now >= self._leave_deadline:
            self._end_leave()
        if self.state in _ACTIVE:
            self._check_poll_interval(now)
        if self.state in (MemberState.UNSUBSCRIBED, MemberState.STALE, MemberState.FATAL) or self._pending is not None:
            return []
        if now < self._next_heartbeat and not (self._is_urgent and self._attempts == 0):
            return []
        return [self._heartbeat(now)]

    # -- steps

    def _move(self, state: MemberState) -> None:
        assert state is self.state or state in _MOVES[self.state], f"{self.state} cannot become {state}"
        self.state = state

    def _join(self) -> None:
        self._move(MemberState.JOINING)
        self.epoch = JOIN_EPOCH
        self._sent_topics = None
        self._next_heartbeat = 0.0

    def _begin_leave(self, after: MemberState) -> None:
        self._left_state = after
        if self.state in _ACTIVE:
            has_joined = self.epoch > JOIN_EPOCH or self._pending is not None
            self._move(MemberState.LEAVING)
            self._assign(())
            self._next_heartbeat = 0.0
            if not has_joined:
                self._end_leave()
        elif self.state is MemberState.STALE and after is MemberState.UNSUBSCRIBED:
            self._move(after)

    def _end_leave(self) -> None:
        if self.state is MemberState.LEAVING:
            self._move(self._left_state)
        self.epoch = JOIN_EPOCH
        self._attempts = 0
        self._report_left()

    def _report_left(self) -> None:
        waiting, self._on_left = self._on_left, []
        for on_left in waiting:
            on_left()

    def _check_poll_interval(self, now: float) -> None:
        timer = self._poll_timer
        if timer.is_polling or now < timer.last_poll + self._max_poll_interval:
            return
        _log.warning(
            "share group %s: no poll for %.0f s, longer than max_poll_interval_ms; the consumer leaves the group until "
            "the next poll: raise max_poll_interval_ms, or lower max_poll_records",
            self.group,
            now - timer.last_poll,
        )
        self._begin_leave(MemberState.STALE)

    def _heartbeat(self, now: float) -> PendingRequest:
        self._is_urgent = False
        is_leaving = self.state is MemberState.LEAVING
        epoch = LEAVE_EPOCH if is_leaving else self.epoch
        topics = self._topics if not is_leaving and self._topics != self._sent_topics else None
        rack = self._rack if epoch == JOIN_EPOCH else None
        sent_at = now

        def build(version: int) -> ShareGroupHeartbeatRequest:
            if version < STABLE_SINCE:
                raise UnsupportedVersionError("ShareGroupHeartbeat v0 is an early access version", group=self.group)
            return ShareGroupHeartbeatRequest(
                group_id=self.group,
                member_id=self.member_id,
                member_epoch=epoch,
                rack_id=rack,
                subscribed_topic_names=None if topics is None else sorted(topics),
            )

        timeout_ms = None
        if is_leaving and self._leave_deadline is not None:
            timeout_ms = max(1, round((self._leave_deadline - now) * 1000))
        done = partial(self._handle_response, epoch, topics, sent_at)
        self._pending = PendingRequest(self._route, ShareGroupHeartbeatRequest, build, done, timeout_ms=timeout_ms)
        return self._pending

    # -- responses

    def _handle_response(
        self,
        epoch: int,
        topics: frozenset[str] | None,
        sent_at: float,
        result: Response | KwireError | None,
        now: float,
    ) -> None:
        self._pending = None
        if self._is_closed:
            return
        if isinstance(result, ShareGroupHeartbeatResponse) and result.error_code:
            result = broker_error(result.error_code, result.error_message, api="ShareGroupHeartbeat", group=self.group)
        if epoch == LEAVE_EPOCH:
            self._handle_leave_response(result, now)
            return
        if self.state not in _ACTIVE:  # it leaves meanwhile: the heartbeat with epoch -1 follows
            if isinstance(result, ShareGroupHeartbeatResponse):
                self.epoch = result.member_epoch
            return
        if isinstance(result, ShareGroupHeartbeatResponse):
            self._handle_success(result, topics, sent_at)
        else:
            assert isinstance(result, KwireError)
            self._handle_error(result, now)

    def _handle_success(
        self, response: ShareGroupHeartbeatResponse, topics: frozenset[str] | None, sent_at: float
    ) -> None:
        self.heartbeats += 1
        self._attempts = 0
        self.last_error = None
        self._interval = response.heartbeat_interval_ms / 1000 or _INTERVAL_MIN
        self._next_heartbeat = sent_at + self._interval
        if self.epoch > response.member_epoch:
            return  # a late response
        self.epoch = response.member_epoch
        if topics is not None:
            self._sent_topics = topics
        self._move(MemberState.STABLE)
        if self._topics != self._sent_topics:
            self._is_urgent = True
        if response.assignment is not None:
            self._assign(
                {
                    SharePartition(topic.topic_id, partition): None
                    for topic in response.assignment.topic_partitions
                    for partition in topic.partitions
                    if partition >= 0
                }
            )

    def _handle_leave_response(self, result: Response | KwireError | None, now: float) -> None:
        """End the leave; try again only where the coordinator did not get it and there is time."""
        has_time = self._leave_deadline is None or now < self._leave_deadline
        is_lost = isinstance(result, (NodeError, RequestTimeoutError)) and result.is_retriable
        moved = isinstance(result, BrokerError) and (
            result.code in _WAIT_FOR_COORDINATOR or result.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        )
        if self.state is MemberState.LEAVING and self._on_left and has_time and (is_lost or moved):
            self._retry(result, now, forgets_coordinator=True)  # type: ignore[arg-type]  # an error, see above
        elif self.state is MemberState.LEAVING:
            self._end_leave()

    def _handle_error(self, error: KwireError, now: float) -> None:
        self.last_error = error
        # The coordinator may not have the subscription: the next heartbeat has all.
        self._sent_topics = None
        if isinstance(error, UnsupportedVersionError):
            self._fail(no_share_groups(error.at(group=self.group)))
        elif isinstance(error, (NodeError, RequestTimeoutError)):
            if not error.is_retriable and self._attempts == 0:
                self._post_error(error)
            self._retry(error, now, forgets_coordinator=True)
        elif not isinstance(error, BrokerError):
            self._fail(error)
        elif error.code in _FENCED:
            self._fenced(error)
        elif error.code in _WAIT_FOR_COORDINATOR:
            self._retry(error, now, forgets_coordinator=True)
        elif error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            self._retry(error, now)
        elif error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self._post_error(error)
            self._retry(error, now)
        elif error.code == ErrorCode.UNSUPPORTED_VERSION:
            self._fail(no_share_groups(error))
        else:
            self._fail(self._explained(error))

    def _explained(self, error: BrokerError) -> BrokerError:
        """Return a fatal error with a remedy for share groups."""
        if isinstance(error, AuthorizationError):
            error.remedy = "grant the operation Read on the group to this principal"
        elif error.code == ErrorCode.GROUP_MAX_SIZE_REACHED:
            error.remedy = "raise group.share.max.size at the brokers, or run fewer consumers"
        elif error.code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INCONSISTENT_GROUP_PROTOCOL):
            error.remedy = "a group of another type has this name: choose another one for the share group"
        return error

    def _fenced(self, error: BrokerError) -> None:
        _log.info("share group %s: member %s was fenced (%s); it joins again", self.group, self.member_id, error.name)
        self.rejoins += 1
        self._assign(())
        self._lose(error)
        self._join()

    def _retry(self, error: KwireError, now: float, *, forgets_coordinator: bool = False) -> None:
        self.last_error = error
        self._attempts += 1
        self._forgets_coordinator |= forgets_coordinator
        self._next_heartbeat = now + self._backoff.seconds(self._attempts, self._random)

    def _fail(self, error: KwireError) -> None:
        self.error = self.last_error = error
        self._move(MemberState.FATAL)
        self._assign(())
        self._lose(error)
        self._post_error(error)
        self._report_left()
