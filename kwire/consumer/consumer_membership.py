"""A member of a group of the new protocol, KIP-848: one request, ConsumerGroupHeartbeat, and the broker assigns.

The coordinator sends a target. The member reconciles: it revokes what the target lacks, then takes over what is new,
then acknowledges by its next heartbeat, which has the partitions that it really owns. Epochs say which state each side
has seen. A member that the coordinator has fenced loses everything and joins with epoch 0 and the same id.

States and their names are those of Kafka's ConsumerMembershipManager.
"""

from __future__ import annotations

import logging
from base64 import urlsafe_b64encode
from collections.abc import Callable, Collection, Mapping
from functools import partial
from math import inf
from random import Random
from typing import Literal
from uuid import UUID

from kwire.cluster import ClusterView, GroupMetadata, PendingRequest
from kwire.cluster.metadata import ALL_TOPICS
from kwire.consumer.arguments import TopicPartition
from kwire.consumer.buffer import ClientError
from kwire.consumer.commits import COORDINATOR_MOVED_CODES, fenced_instance
from kwire.consumer.group_member import (
    LEAVE_SECONDS_MAX,
    Departure,
    GroupContext,
    GroupMember,
    HeartbeatPace,
    MemberState,
    Steps,
)
from kwire.consumer.subscription import Subscription
from kwire.consumer.topic_watch import TopicWatch
from kwire.errors import BrokerError, ErrorCode, KwireError, UnsupportedVersionError, broker_error
from kwire.protocol import Response
from kwire.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

_log = logging.getLogger("kwire.consumer")

# v0 has the coordinator make the member's id, and a lost response would leave behind a member without a process.
_VERSION_MIN = 1
_JOIN_EPOCH = 0
_LEAVE_EPOCH = -1
_LEAVE_STATIC_EPOCH = -2
_INTERVAL_MS = 1_000  # where the response has none
# The coordinator frees an instance id when the session of the process before has ended: the default of its session.
_UNRELEASED_SECONDS = 45.0

_S = MemberState
# From which states each state may be entered.
_BEFORE: Mapping[MemberState, frozenset[MemberState]] = {
    _S.JOINING: frozenset({_S.FENCED, _S.UNSUBSCRIBED, _S.STALE}),
    _S.RECONCILING: frozenset({_S.STABLE, _S.JOINING, _S.ACKNOWLEDGING, _S.RECONCILING}),
    _S.ACKNOWLEDGING: frozenset({_S.RECONCILING}),
    _S.STABLE: frozenset({_S.JOINING, _S.ACKNOWLEDGING, _S.RECONCILING}),
    _S.FENCED: frozenset({_S.JOINING, _S.STABLE, _S.RECONCILING, _S.ACKNOWLEDGING, _S.PREPARE_LEAVING, _S.LEAVING}),
    _S.PREPARE_LEAVING: frozenset({_S.JOINING, _S.STABLE, _S.RECONCILING, _S.ACKNOWLEDGING, _S.UNSUBSCRIBED}),
    _S.LEAVING: frozenset({_S.PREPARE_LEAVING}),
    _S.STALE: frozenset({_S.LEAVING}),
}
_IN_GROUP = frozenset({_S.JOINING, _S.RECONCILING, _S.ACKNOWLEDGING, _S.STABLE, _S.PREPARE_LEAVING})
_URGENT = frozenset({_S.JOINING, _S.ACKNOWLEDGING})

_FATAL_REMEDIES: Mapping[int, str] = {
    ErrorCode.GROUP_ID_NOT_FOUND: "the group exists and is of the classic protocol, and the brokers do not convert it: "
    'use group_protocol="auto" or "classic", or see group.consumer.migration.policy',
    ErrorCode.GROUP_MAX_SIZE_REACHED: "run fewer consumers, or raise group.consumer.max.size of the brokers",
}


def make_member_id(random: Random) -> str:
    """Return a new member id: 16 random bytes as Kafka's Uuid writes them, with no leading dash."""
    while True:
        text = urlsafe_b64encode(random.randbytes(16)).rstrip(b"=").decode()
        if not text.startswith("-"):
            return text


class ConsumerMembership(GroupMember):
    """The part of `Membership` that speaks KIP-848."""

    protocol: Literal["classic", "consumer"] = "consumer"

    def __init__(self, context: GroupContext, steps: Steps, subscription: Subscription, member_id: str) -> None:
        super().__init__(context, steps, subscription, member_id)
        self.fall_back_reason: str | None = None  # why the classic protocol must be used
        self._watch = TopicWatch()
        self._topics: frozenset[str] = subscription.topics  # that the names and the pattern mean now
        self._had_regex = False  # the coordinator may have one of this member
        self._target: frozenset[tuple[UUID, int]] = frozenset()
        self._has_target = False  # since the member joined
        self._is_assign_due = False  # the target is new, and on_assigned not posted for it
        self._owned_ids: dict[TopicPartition, UUID] = {}
        self._unresolved: set[UUID] = set()
        self._heartbeat: object | None = None  # the one in flight; the response to an older one is ignored
        self._is_urgent = True  # send one out of schedule
        self._must_be_full = True
        self._heartbeat_at = 0.0
        self._not_before = 0.0
        self._attempts = 0
        self._pace = HeartbeatPace()
        self._sent_topics: list[str] | None = None  # what the coordinator has of each
        self._sent_regex: str | None = None
        self._sent_owned: frozenset[tuple[UUID, int]] | None = None
        # A target was reached. The coordinator waits to hear so, even if the same partitions were owned before.
        self._must_report = False
        self._unreleased_since: float | None = None
        self._error_polls = -1  # the poll that got the last error that did not end the membership
        self._outbox: list[PendingRequest] = []
        self._now = 0.0
        context.commits.is_epoch = True
        self.state = MemberState.UNSUBSCRIBED
        self._move(MemberState.JOINING)
        self.set_generation(member_id, _JOIN_EPOCH)

    def _move(self, state: MemberState) -> None:
        assert self.state in _BEFORE[state], f"{self.state.name} -> {state.name}"
        if state is not self.state:
            _log.debug("group %s: %s -> %s", self.options.group, self.state.name, state.name)
        self.state = state

    # -- for Membership

    @property
    def must_fall_back(self) -> bool:
        return self.fall_back_reason is not None

    @property
    def is_rebalancing(self) -> bool:
        return False  # commits go on: the epoch is valid in every state

    def topics(self) -> Collection[str]:
        topics = self._topics | {topic for topic, _ in self.steps.owned}
        if self.subscription.pattern is not None or (self._unresolved and self.subscription.regex is not None):
            return topics | {ALL_TOPICS}
        return topics

    def deadline(self) -> float | None:
        times: list[float] = []
        if self.departure is not None and (leave_at := self.departure.deadline()) is not None:
            times.append(leave_at)
        if self.state in _IN_GROUP and self._heartbeat is None:
            times.append(self._next_heartbeat())
        return min((time for time in times if self._now < time < inf), default=None)

    def subscribe(self, subscription: Subscription) -> None:
        self.subscription = subscription
        self._topics = subscription.matched(self._watch.known)
        self._is_urgent = True

    def commit_refused(self, code: int, sent: GroupMetadata) -> None:
        match code:
            case ErrorCode.FENCED_INSTANCE_ID:
                self._fail(fenced_instance(sent))
            case ErrorCode.GROUP_AUTHORIZATION_FAILED:
                self._fail(broker_error(code, api="OffsetCommit", group=self.options.group))
            case ErrorCode.UNKNOWN_MEMBER_ID:
                self._is_urgent = True  # the heartbeat decides

    def poll_expired(self, now: float) -> None:
        self._now = now
        if self.state is MemberState.FENCED:
            return  # it is not in the group
        self._move(MemberState.PREPARE_LEAVING)
        self._move(MemberState.LEAVING)
        epoch = _LEAVE_EPOCH if self.options.instance_id is None else _LEAVE_STATIC_EPOCH
        self._outbox.append(self._leave_request(epoch, None, lambda has_response: None))
        self._move(MemberState.STALE)
        self.await_poll()
        self._drop_membership()
        self.steps.lose(lambda now: None, now)

    def turn(self, now: float, view: ClusterView) -> list[PendingRequest]:
        self._now = now
        if self.must_forget_coordinator:
            self.must_forget_coordinator = False
            view.forget_coordinator(self.route)
        if view.snapshot is not self.snapshot:
            self.snapshot = view.snapshot
            self._watch.update(view.snapshot)
            if self._watch.is_unsure:
                view.request_metadata("topics are missing that were there before")
            topics = self.subscription.matched(self._watch.known)
            self._is_urgent |= topics != self._topics
            self._topics = topics
        if self.must_leave:
            self._turn_leave(now)
        elif self.state is MemberState.STALE:
            if self.has_polled_again():
                self._rejoin(now)
        elif self.state is MemberState.RECONCILING:
            self._turn_reconcile(now, view)
        if self.state in _IN_GROUP and self._heartbeat is None and now >= self._next_heartbeat():
            self._outbox.append(self._heartbeat_request())
        sent, self._outbox = self._outbox, []
        return sent

    # -- joining again

    def _drop_membership(self) -> None:
        """Forget what belongs to the membership that is over; the steps still have to end the use of the partitions."""
        self.set_generation(self.member_id, _JOIN_EPOCH)
        self._heartbeat = None
        self._target, self._has_target, self._is_assign_due = frozenset(), False, False
        self._owned_ids.clear()
        self._unresolved.clear()
        self._forget_sent()

    def _forget_sent(self) -> None:
        """Have the next heartbeat send all: the coordinator may not have what was sent."""
        self._must_be_full = True
        self._sent_topics = self._sent_regex = None
        self._sent_owned = None

    def _fence(self, reason: str) -> None:
        """Lose everything: the coordinator has dropped this member, and others own its partitions."""
        _log.info("group %s, epoch %d: fenced: %s", self.options.group, self.epoch, reason)
        self._move(MemberState.FENCED)
        self._drop_membership()
        self.steps.lose(self._rejoin, self._now)

    def _rejoin(self, now: float) -> None:
        self._move(MemberState.JOINING)
        self._had_regex = False
        self._is_urgent = True
        self._attempts, self._not_before = 0, 0.0

    def _fail(self, error: KwireError) -> None:
        self._heartbeat = None
        self._owned_ids.clear()
        self.fail(error, self._now)

    # -- reconciliation

    def _set_target(self, target: frozenset[tuple[UUID, int]], now: float) -> None:
        is_first, self._has_target = not self._has_target, True
        if target == self._target and not is_first:
            return
        self._target = target
        self._is_assign_due = True
        if self.state is MemberState.ACKNOWLEDGING:
            self._is_urgent = True
        self._move(MemberState.RECONCILING)

    def _turn_reconcile(self, now: float, view: ClusterView) -> None:
        """Bring what is owned one step nearer to the newest target."""
        if not self.steps.is_idle:
            return
        for key in self._owned_ids.keys() - self.steps.owned:
            del self._owned_ids[key]
        target = self._resolved()
        if self._unresolved:
            view.request_metadata(f"the assignment has {len(self._unresolved)} topics that are not known by their id")
        gone = {
            key
            for key, topic_id in self._owned_ids.items()
            if target.get(key) != topic_id and (topic_id, key[1]) not in self._target
        }
        if gone:
            self.steps.take_away(gone, lambda now: None, now)  # the next turn looks at the newest target
            return
        added = target.keys() - self.steps.owned
        if added or (self._is_assign_due and not self._unresolved):
            self._is_assign_due = bool(self._unresolved)
            for key in added:
                self._owned_ids[key] = self.steps.topic_ids[key[0]] = target[key]
            self.steps.assign(added, self._reconciled)

    def _resolved(self) -> dict[TopicPartition, UUID]:
        """Return the part of the target whose topics are known by name; the ids of the others are `_unresolved`."""
        names = {
            topic_id: self._owned_name(topic_id) or self.snapshot.topic_name(topic_id) for topic_id, _ in self._target
        }
        self._unresolved = {topic_id for topic_id, name in names.items() if name is None}
        return {
            (name, partition): topic_id for topic_id, partition in self._target if (name := names[topic_id]) is not None
        }

    def _owned_name(self, topic_id: UUID) -> str | None:
        """Return the name of a topic that is owned: metadata that lacks it for a while must not take it away."""
        return next((topic for (topic, _), owned in self._owned_ids.items() if owned == topic_id), None)

    def _reconciled(self, now: float) -> None:
        self._must_report = True
        if self.state is MemberState.RECONCILING:
            self._move(MemberState.ACKNOWLEDGING)

    # -- heartbeats

    def _next_heartbeat(self) -> float:
        if self._is_urgent or self.state in _URGENT:
            return self._not_before
        return max(self._heartbeat_at, self._not_before)

    def _heartbeat_request(self) -> PendingRequest:
        self._heartbeat = token = object()
        joined = self.epoch != _JOIN_EPOCH

        def build(version: int) -> ConsumerGroupHeartbeatRequest:
            if version < _VERSION_MIN:
                raise _too_old()
            return self._next_contents()

        def done(result: Response | KwireError | None, now: float) -> None:
            if self._heartbeat is not token:
                return
            self._now, self._heartbeat = now, None
            if isinstance(result, ConsumerGroupHeartbeatResponse) and not result.error_code:
                self._handle_heartbeat(result, now)
                return
            self._forget_sent()
            if isinstance(result, ConsumerGroupHeartbeatResponse):
                self._not_before = now + result.throttle_time_ms / 1000
                self._heartbeat_refused(result, joined, now)
            else:
                assert isinstance(result, KwireError)
                self._heartbeat_failed(result, now)

        return PendingRequest(self.route, ConsumerGroupHeartbeatRequest, build, done)

    def _next_contents(self) -> ConsumerGroupHeartbeatRequest:
        """Return the heartbeat of the present state, and note what the coordinator has when it arrives.

        A member that owns nothing sends all, so that a lost response with its first assignment comes again.
        """
        is_joining = self.state is MemberState.JOINING
        is_full = is_joining or self._must_be_full or (not self.steps.owned and self.steps.is_idle)
        topics = sorted(self._topics)
        regex = None if self.subscription.regex is None else self.subscription.regex.pattern
        if regex is None and self._had_regex:
            regex = ""
        owned = frozenset((self._owned_ids[key], key[1]) for key in self.steps.owned if key in self._owned_ids)
        # Not while a revocation is under way: the coordinator would believe that it is over.
        has_owned = is_full or (self.steps.is_idle and (self._must_report or owned != self._sent_owned))
        has_topics, has_regex = is_full or topics != self._sent_topics, is_full or regex != self._sent_regex
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.options.group,
            member_id=self.member_id,
            member_epoch=_JOIN_EPOCH if is_joining else self.epoch,
            instance_id=self.options.instance_id,
            rack_id=(self.options.rack or None) if is_joining else None,
            rebalance_timeout_ms=self.options.rebalance_timeout_ms if is_full else -1,
            subscribed_topic_names=topics if has_topics else None,
            subscribed_topic_regex=regex if has_regex else None,
            server_assignor=self.options.remote_assignor if is_full else None,
            topic_partitions=_topic_partitions(frozenset() if is_joining else owned) if has_owned else None,
        )
        self._had_regex |= bool(regex)
        self._sent_topics, self._sent_regex = topics, regex
        if has_owned:
            self._sent_owned = frozenset() if is_joining else owned
            self._must_report = False
        self._is_urgent = self._must_be_full = False
        if self.state is MemberState.ACKNOWLEDGING:
            # A target may have come while the callback of the one before ran.
            self._move(MemberState.STABLE if owned == self._target else MemberState.RECONCILING)
        return request

    def _handle_heartbeat(self, response: ConsumerGroupHeartbeatResponse, now: float) -> None:
        self._attempts, self._unreleased_since = 0, None
        target = None if response.assignment is None else _target(response.assignment)
        # A member that owns nothing gets its empty target with each response: it sends all.
        if response.member_epoch != self.epoch or target not in (None, self._target):
            self._pace.changed()
        self._heartbeat_at = now + self._pace.wait((response.heartbeat_interval_ms or _INTERVAL_MS) / 1000)
        self._not_before = now + response.throttle_time_ms / 1000
        if response.member_epoch < max(self.epoch, 1) or self.state is MemberState.PREPARE_LEAVING:
            return  # of an epoch that is over
        if response.member_epoch != self.epoch:
            self.set_generation(self.member_id, response.member_epoch)
        is_joining = self.state is MemberState.JOINING
        if target is not None:
            self._set_target(target, now)
        if is_joining and self.state is MemberState.JOINING:
            self._move(MemberState.STABLE)

    def _heartbeat_failed(self, error: KwireError, now: float) -> None:
        """Handle a heartbeat that failed by its connection, its timeout or its version. The membership lives on."""
        if isinstance(error, UnsupportedVersionError):
            self._unsupported(error)
        elif isinstance(error, BrokerError) or not error.is_retriable:
            self._fail(error.at(group=self.options.group))
        else:
            self.must_forget_coordinator = True
            self._back_off(now)

    def _heartbeat_refused(self, response: ConsumerGroupHeartbeatResponse, joined: bool, now: float) -> None:
        code = response.error_code
        error = broker_error(
            code, response.error_message, api="ConsumerGroupHeartbeat", group=self.options.group,
            remedy=_FATAL_REMEDIES.get(code),
        )  # fmt: skip
        match code:
            case ErrorCode.NOT_COORDINATOR | ErrorCode.COORDINATOR_NOT_AVAILABLE:
                self.must_forget_coordinator = True
                self._is_urgent = True
                self._back_off(now)
            case ErrorCode.COORDINATOR_LOAD_IN_PROGRESS | ErrorCode.REQUEST_TIMED_OUT:
                self._is_urgent = True
                self._back_off(now)
            case ErrorCode.THROTTLING_QUOTA_EXCEEDED:
                self._back_off(now)
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.FENCED_MEMBER_EPOCH | ErrorCode.STALE_MEMBER_EPOCH:
                if self.must_leave:
                    self._drop_membership()
                    self.steps.lose(lambda now: self.left(), now)
                else:
                    self._fence(error.name)
            case ErrorCode.UNRELEASED_INSTANCE_ID:
                self._unreleased(error, now)
            case ErrorCode.FENCED_INSTANCE_ID:
                self._fail(fenced_instance(self.context.commits.generation))
            case ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                if self._error_polls != self.context.poll_timer.polls:
                    self._error_polls = self.context.poll_timer.polls
                    self.context.post(ClientError(error))
                self._back_off(now)
            case ErrorCode.UNSUPPORTED_VERSION:
                self._unsupported(error)
            case ErrorCode.GROUP_ID_NOT_FOUND if joined:
                self._fence("the group has become a classic one, because it had no members of this protocol")
            case ErrorCode.GROUP_ID_NOT_FOUND if self.options.protocol == "auto":
                self._fall_back(error.name)
            case _:
                self._fail(error)

    def _unreleased(self, error: KwireError, now: float) -> None:
        """Wait for the end of the session of the process that had this instance id before."""
        if self._unreleased_since is None:
            self._unreleased_since = now
            _log.warning(
                "group %s: another member has group_instance_id %r; waits for up to %.0f s for it to end",
                self.options.group, self.options.instance_id, _UNRELEASED_SECONDS,
            )  # fmt: skip
        if now >= self._unreleased_since + _UNRELEASED_SECONDS:
            self._fail(error)
        else:
            self._back_off(now)

    def _unsupported(self, error: KwireError) -> None:
        if self.options.protocol == "auto":
            self._fall_back(error.message)
        else:
            failure = _too_old()
            failure.__cause__ = error
            self._fail(failure.at(group=self.options.group))

    def _fall_back(self, reason: str) -> None:
        if self.must_leave:
            self.steps.lose(lambda now: self.left(), self._now)
            return
        self._heartbeat = None
        self.context.commits.is_epoch = False
        self.set_generation("", -1)
        self.steps.lose(lambda now: None, self._now)
        self.fall_back_reason = reason

    def _back_off(self, now: float) -> None:
        self._attempts += 1
        wait = self.context.backoff.seconds(self._attempts, self.context.random)
        self._heartbeat_at = self._not_before = max(self._not_before, now + wait)

    # -- leaving

    def _turn_leave(self, now: float) -> None:
        if self.state in (MemberState.FENCED, MemberState.STALE, MemberState.FATAL):
            self.steps.forget()
            if self.steps.is_idle:
                self.left()
            return
        if self.state in _IN_GROUP and self.state is not MemberState.PREPARE_LEAVING:
            self.steps.forget()
            self._move(MemberState.PREPARE_LEAVING)
        if self.state is MemberState.PREPARE_LEAVING:
            if self.steps.is_idle:
                self.steps.take_away(set(self.steps.owned), self._send_leave, now)
        elif self.departure is not None:
            self._outbox += self.departure.turn(now)

    def _send_leave(self, now: float) -> None:
        self._move(MemberState.LEAVING)
        self._heartbeat = None
        is_static = self.options.instance_id is not None
        if self.leave_mode == "remain" and not is_static:
            self._finish_leave(True)
            return
        epoch = _LEAVE_STATIC_EPOCH if is_static and self.leave_mode != "leave" else _LEAVE_EPOCH
        self.departure = Departure(partial(self._leave_request, epoch), self._finish_leave, now)
        self._outbox += self.departure.turn(now)

    def _finish_leave(self, has_response: bool) -> None:
        if self.state is MemberState.LEAVING:
            self.departure = None
            self.set_generation(self.member_id, -1)
            self.left()

    def _leave_request(self, epoch: int, connection: str | None, on_done: Callable[[bool], object]) -> PendingRequest:
        def build(version: int) -> ConsumerGroupHeartbeatRequest:
            return ConsumerGroupHeartbeatRequest(
                group_id=self.options.group, member_id=self.member_id, member_epoch=epoch,
                instance_id=self.options.instance_id,
            )  # fmt: skip

        def done(result: Response | KwireError | None, now: float) -> None:
            self._now = now
            code = result.error_code if isinstance(result, ConsumerGroupHeartbeatResponse) else None
            self.must_forget_coordinator |= code in COORDINATOR_MOVED_CODES
            self.context.wake()
            on_done(code is not None and code not in COORDINATOR_MOVED_CODES)

        timeout_ms = int(LEAVE_SECONDS_MAX * 1000)
        return PendingRequest(
            self.route, ConsumerGroupHeartbeatRequest, build, done, timeout_ms=timeout_ms, connection=connection
        )


def _target(assignment: ConsumerGroupHeartbeatResponse.Assignment) -> frozenset[tuple[UUID, int]]:
    return frozenset(
        (topic.topic_id, partition)
        for topic in assignment.topic_partitions
        for partition in topic.partitions
        if partition >= 0
    )


def _topic_partitions(owned: frozenset[tuple[UUID, int]]) -> list[ConsumerGroupHeartbeatRequest.TopicPartitions]:
    by_topic: dict[UUID, list[int]] = {}
    for topic_id, partition in sorted(owned):
        by_topic.setdefault(topic_id, []).append(partition)
    return [
        ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic_id, partitions=partitions)
        for topic_id, partitions in by_topic.items()
    ]


def _too_old() -> UnsupportedVersionError:
    return UnsupportedVersionError(
        "the coordinator does not have the new group protocol (KIP-848)",
        remedy='use brokers from 4.0 on, or group_protocol="auto" or "classic"',
    )
