"""A member of a classic group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup (Kafka's ConsumerCoordinator).

A round: revoke what must be revoked before it; JoinGroup, whose response comes when all members have joined;
the leader divides the partitions; SyncGroup brings each member its part; revoke and assign the difference. Members
whose assignors are all cooperative keep their partitions during the round and join once more after a revocation
(KIP-429); others give all of them up before it.

That a member must join again is a demand that only a completed round ends: no error in between can lose it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial
from math import inf
from typing import Literal

from kwire.cluster import ClusterView, GroupMetadata, PendingRequest, Snapshot
from kwire.cluster.metadata import ALL_TOPICS
from kwire.consumer.assignors import (
    ASSIGNORS,
    MemberAssignment,
    MemberSubscription,
    RebalanceProtocol,
    TopicRacks,
    assignment_bytes,
    common_protocol,
    group_assignment,
    parse_assignment,
    parse_subscription,
    subscribed_topics,
    subscription_bytes,
)
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
from kwire.errors import (
    BrokerError,
    ClosedError,
    ConfigurationError,
    ErrorCode,
    GroupError,
    KwireError,
    UnsupportedVersionError,
    broker_error,
    error_name,
)
from kwire.protocol import Response
from kwire.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kwire.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kwire.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kwire.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kwire.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_log = logging.getLogger("kwire.consumer")

_PROTOCOL_TYPE = "consumer"
# What the versions of the requests bring.
_JOIN_INSTANCE_ID = 5
_INSTANCE_ID = 3  # of SyncGroup, Heartbeat, and the members of LeaveGroup
# JoinGroup's response may come this much after the rebalance timeout.
_JOIN_GRACE_MS = 5_000
_REASON_MAX = 255
# The state of a group in DescribeGroups in which nobody joins.
_STABLE = "Stable"
# The leader assigns on another thread from this many partitions times members on.
_LARGE_ASSIGNMENT = 20_000
# How long metadata may take that a round needs.
_METADATA_SECONDS = 5.0
# Rounds in a row that this member demanded and in which nothing moved, before they are slowed down.
_IDLE_ROUNDS_MAX = 10

_FATAL_REMEDIES: Mapping[int, str] = {
    ErrorCode.INVALID_SESSION_TIMEOUT: "choose session_timeout_ms between the broker's group.min.session.timeout.ms "
    "and group.max.session.timeout.ms",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "run fewer consumers, or raise group.max.size of the brokers",
}


class ClassicMembership(GroupMember):
    """The part of `Membership` that speaks the classic protocol.

    `member_id` is that of a member of this consumer whose LeaveGroup had no response: joining as that member, a group
    that still has it need not wait for the end of its session.
    """

    protocol: Literal["classic", "consumer"] = "classic"

    def __init__(self, context: GroupContext, steps: Steps, subscription: Subscription, member_id: str = "") -> None:
        super().__init__(context, steps, subscription, member_id)
        self._assignors = {assignor.name: assignor for assignor in context.options.assignors}
        self._has_own_assignor = any(type(one) not in ASSIGNORS.values() for one in self._assignors.values())
        self._is_cooperative = common_protocol(context.options.assignors) is RebalanceProtocol.COOPERATIVE
        self._watch = TopicWatch()
        self._topics: frozenset[str] = subscription.topics  # that the subscription means now
        self._joined_topics = self._topics  # that the last JoinGroup had
        self._demand: str | None = "the consumer subscribed"  # why to join again
        self._demanded_at: float | None = None  # None: before the first turn
        self._round: object | None = None  # the JoinGroup or SyncGroup on its way; an older one's response is ignored
        self._assign: Callable[[float], bool] | None = None  # the leader's work while it waits for metadata
        self._is_leader = False
        self._watches_partitions = False  # it leads the group, or nobody does
        self._group_topics: frozenset[str] = frozenset()  # those that it watches: of all members, for the leader
        self._assigned_from: TopicRacks = {}  # the metadata that the last assignment was made from, for who watches
        self._must_review = False  # the assignment of the group is that of an earlier process: see `_review_request`
        self._attempts = 0
        self._not_before = 0.0
        self._idle_rounds = 0
        self._heartbeat: object | None = None  # the Heartbeat in flight
        self._heartbeat_at = inf
        self._heartbeat_failures = 0
        self._pace = HeartbeatPace()
        self._session_since = 0.0  # when the coordinator last took a heartbeat
        self._outbox: list[PendingRequest] = []
        self._now = 0.0
        if subscription.regex is not None:
            self._refuse_regex()

    # -- for Membership

    @property
    def is_rebalancing(self) -> bool:
        if self.state in (MemberState.PREPARING_REBALANCE, MemberState.COMPLETING_REBALANCE):
            return True
        return 0 < self.context.commits.generation.generation_id < self.epoch  # its SyncGroup got no assignment

    def topics(self) -> Collection[str]:
        topics = self._topics | {topic for topic, _ in self.steps.owned}
        if self._is_leader or self._assign is not None:
            topics |= self._group_topics
        return topics | {ALL_TOPICS} if self.subscription.pattern is not None else topics

    def deadline(self) -> float | None:
        times: list[float] = []
        if self.departure is not None and (leave_at := self.departure.deadline()) is not None:
            times.append(leave_at)
        if self._demand is not None and self._round is None and self.steps.is_idle:
            times.append(self._not_before)
            times.append(self._metadata_until)
        if self._assign is not None:
            times.append(self._metadata_until)
        if self._has_heartbeats:
            times.append(self._session_since + self.options.session_timeout_ms / 1000)
            if self._heartbeat is None:
                times.append(self._heartbeat_at)
        return min((time for time in times if time > self._now), default=None)

    def subscribe(self, subscription: Subscription) -> None:
        self.subscription = subscription
        if subscription.regex is not None:
            self._refuse_regex()
        self._set_topics(subscription.matched(self._watch.known))
        self._demand_rejoin("the subscription changed")

    def _refuse_regex(self) -> None:
        error = ConfigurationError(
            f"group {self.options.group} speaks the classic protocol, in which brokers match no patterns",
            remedy="subscribe to a compiled pattern, re.compile(...), which is matched here",
        )
        self.fail(error, self._now)

    def commit_refused(self, code: int, sent: GroupMetadata) -> None:
        is_current = (sent.generation_id, sent.member_id) == (self.epoch, self.member_id) and not self.is_rebalancing
        match code:
            case ErrorCode.REBALANCE_IN_PROGRESS:
                self._demand_rejoin("a commit met a rebalance")
            case ErrorCode.ILLEGAL_GENERATION if is_current:
                self._reset("a commit was of an old generation", keep_id=True)
            case ErrorCode.UNKNOWN_MEMBER_ID if is_current:
                self._reset("the coordinator does not know this member", keep_id=False)
            case ErrorCode.FENCED_INSTANCE_ID if is_current:
                self._fail(fenced_instance(self.context.commits.generation))
            case ErrorCode.GROUP_AUTHORIZATION_FAILED:
                self._fail(broker_error(code, api="OffsetCommit", group=self.options.group))

    def poll_expired(self, now: float) -> None:
        self._now = now
        if self.options.instance_id is None and self.member_id:
            self._outbox.append(self._leave_request("polls are too far apart", None, lambda has_response: None))
        self._end_round()
        self.set_generation(self.member_id if self.options.instance_id is not None else "", -1)
        self.state = MemberState.STALE
        self.await_poll()
        self._demand_rejoin("polls were too far apart")
        self.steps.lose(lambda now: None, now)

    def turn(self, now: float, view: ClusterView) -> list[PendingRequest]:
        self._now = now
        if self._demanded_at is None:
            self._demanded_at = now
        if self.must_forget_coordinator:
            self.must_forget_coordinator = False
            view.forget_coordinator(self.route)
        if self.state is MemberState.FATAL:
            if self.must_leave:
                self.left()
            return self._sent()
        if view.snapshot is not self.snapshot:
            self._metadata_changed(view.snapshot, view)
        if self.must_leave:
            self._turn_leave(now)
        elif self.state is MemberState.STALE and self.has_polled_again():
            self.state = MemberState.UNJOINED
        if not self.must_leave and self.state is not MemberState.STALE:
            if self._assign is not None:
                self._assign(now)
            self._turn_join(now, view)
        self._turn_heartbeat(now, view)
        return self._sent()

    def _sent(self) -> list[PendingRequest]:
        sent, self._outbox = self._outbox, []
        return sent

    # -- metadata

    @property
    def _metadata_until(self) -> float:
        """Return how long a round waits for metadata that it needs."""
        return (self._demanded_at or 0.0) + _METADATA_SECONDS

    def _metadata_changed(self, snapshot: Snapshot, view: ClusterView) -> None:
        self.snapshot = snapshot
        self._watch.update(snapshot)
        if self._watch.is_unsure:
            view.request_metadata("topics are missing that were there before")
        self._set_topics(self.subscription.matched(self._watch.known))
        self.note_topic_ids({topic for topic, _ in self.steps.owned})
        self._check_round()

    def _check_round(self) -> None:
        """Demand another round if the subscription or the partitions have changed since the last one."""
        if self._demand is None and self._topics != self._joined_topics:
            self._demand_rejoin("the subscription changed")
        is_watching = self._demand is None and self._watches_partitions
        if is_watching and self._watch.racks(self._group_topics) != self._assigned_from:
            self._demand_rejoin("the partitions of the group's topics changed")

    def _set_topics(self, topics: frozenset[str]) -> None:
        if topics != self._topics:
            self._topics = topics
            self._demand_rejoin("other topics match the subscription")

    # -- joining

    def _demand_rejoin(self, reason: str) -> None:
        if self._demand is None:
            self._demand = reason
            self._demanded_at = self._now

    def _turn_join(self, now: float, view: ClusterView) -> None:
        if self._demand is None or self._round is not None or not self.steps.is_idle or now < self._not_before:
            return
        gone = {key for key in self.steps.owned if not self._is_cooperative or key[0] not in self._topics}
        if gone:
            self.steps.take_away(gone, lambda now: None, now)
            return
        # Members that join with different topics would cause one round after the other (KAFKA-7126).
        is_old = self.subscription.pattern is not None and self.snapshot.at <= (self._demanded_at or 0.0)
        if is_old and now < self._metadata_until:
            view.request_metadata("a member with a pattern joins its group")
            return
        self._join(now)

    def _join(self, now: float) -> None:
        self._round = round_ = object()
        self.state = MemberState.PREPARING_REBALANCE
        self._joined_topics = self._topics
        topics = sorted(self._topics)

        def user_data() -> dict[str, bytes | None]:
            return {name: assignor.user_data(topics) for name, assignor in self._assignors.items()}

        def send(data: dict[str, bytes | None] | Exception) -> None:
            if self._round is not round_:
                return
            if isinstance(data, Exception):
                self._fail(_broken_assignor(data))
                return
            self._outbox.append(self._join_request(round_, data))
            self.context.wake()

        if self._has_own_assignor:
            self.context.in_background(user_data, send)
        else:
            send(user_data())

    def _join_request(self, round_: object, user_data: Mapping[str, bytes | None]) -> PendingRequest:
        subscription = MemberSubscription(
            sorted(self._joined_topics), sorted(self.steps.owned), self.epoch, self.options.rack or None
        )
        protocols = [
            JoinGroupRequest.Protocol(
                name=name,
                metadata=subscription_bytes(
                    MemberSubscription(
                        subscription.topics, subscription.owned, subscription.generation, subscription.rack, data
                    )
                ),
            )
            for name, data in user_data.items()
        ]
        options, reason = self.options, (self._demand or "")[:_REASON_MAX]
        sent = self.member_id, self.epoch

        def build(version: int) -> JoinGroupRequest:
            self._check_static(version, _JOIN_INSTANCE_ID)
            return JoinGroupRequest(
                group_id=options.group,
                session_timeout_ms=options.session_timeout_ms,
                rebalance_timeout_ms=options.rebalance_timeout_ms,
                member_id=self.member_id,
                group_instance_id=options.instance_id,
                protocol_type=_PROTOCOL_TYPE,
                protocols=protocols,
                reason=reason,
            )

        def done(result: Response | KwireError | None, now: float) -> None:
            if self._round is not round_:
                return  # the generation was reset meanwhile
            self._now = now
            if isinstance(result, JoinGroupResponse) and not result.error_code:
                self._joined(result, round_, now)
            else:
                self._end_round()
                if isinstance(result, JoinGroupResponse):
                    self._join_failed(result, sent, now)
                else:
                    assert isinstance(result, KwireError)
                    self._request_failed(result, now)

        timeout_ms = max(self.context.request_timeout_ms, options.rebalance_timeout_ms + _JOIN_GRACE_MS)
        return PendingRequest(self.route, JoinGroupRequest, build, done, timeout_ms=timeout_ms, connection="join")

    def _check_static(self, version: int, since: int) -> None:
        if self.options.instance_id is not None and version < since:
            raise UnsupportedVersionError(
                "the coordinator has no static members",
                remedy="leave group_instance_id out, or use brokers from 2.3 on",
            )

    def _join_failed(self, response: JoinGroupResponse, sent: tuple[str, int], now: float) -> None:
        code = response.error_code
        is_unchanged = sent == (self.member_id, self.epoch)
        match code:
            case ErrorCode.MEMBER_ID_REQUIRED:
                self.set_generation(response.member_id, -1)
            case ErrorCode.UNKNOWN_MEMBER_ID:
                if is_unchanged:
                    self._reset("the coordinator does not know this member", keep_id=False)
                if not sent[0]:
                    self._back_off(now)  # no id was sent, so no membership has ended
            case ErrorCode.ILLEGAL_GENERATION:
                self._reset("the generation is over", keep_id=True)
            case ErrorCode.FENCED_INSTANCE_ID:
                self._fail(fenced_instance(self.context.commits.generation))
            case ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
                self._fail(self._no_common_assignor())
            case ErrorCode.COORDINATOR_LOAD_IN_PROGRESS | ErrorCode.REBALANCE_IN_PROGRESS:
                self._back_off(now)
            case _ if code in COORDINATOR_MOVED_CODES:
                self._coordinator_moved(now)
            case _:
                self._fail(self._broker_error(code, "JoinGroup"))

    def _no_common_assignor(self) -> GroupError:
        error = GroupError(
            f"the other members of the group are no consumers, or have none of the assignors of this one, "
            f"{', '.join(self._assignors)}",
            group=self.options.group,
            remedy="give all members of a group an assignor in common",
        )
        error.__cause__ = broker_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, api="JoinGroup")
        return error

    # -- joined: the assignment

    def _joined(self, response: JoinGroupResponse, round_: object, now: float) -> None:
        if response.protocol_type not in (None, _PROTOCOL_TYPE) or response.protocol_name not in self._assignors:
            self._fail(self._no_common_assignor())
            return
        self.set_generation(response.member_id, response.generation_id, is_assigned=False)
        self.state = MemberState.COMPLETING_REBALANCE
        self._session_since = now
        self._heartbeat_at = now + self.options.heartbeat_interval_ms / 1000
        name = response.protocol_name
        self._is_leader = response.leader == response.member_id
        self._watches_partitions = self._is_leader or not response.leader
        self._must_review = False
        _log.info(
            "group %s, generation %d: joined as %s with assignor %s%s",
            self.options.group, self.epoch, self.member_id, name, ", leads it" if self._is_leader else "",
        )  # fmt: skip
        if not self._is_leader:
            if self._watches_partitions:
                self._watch_own_topics()
            self._sync(name, {}, round_)
            return
        try:
            members = {
                one.member_id: parse_subscription(one.metadata, one.group_instance_id) for one in response.members
            }
        except KwireError as error:
            self._fail(error.at(group=self.options.group))
            return
        self._group_topics = frozenset(subscribed_topics(members))
        self._demanded_at = now
        self._assign = partial(self._lead, name, members, round_, response.skip_assignment)

    def _watch_own_topics(self) -> None:
        """Watch the partitions of the member's topics, as a leader does: the coordinator divided them (KIP-848).

        The group may become a classic one without another round: when a static member of the classic protocol takes
        the place of the last one of KIP-848. Its leader then does not know that it leads.
        """
        self._group_topics = self._topics
        self._assigned_from = self._watch.racks(self._group_topics)

    def _lead(
        self, name: str, members: Mapping[str, MemberSubscription], round_: object, skip: bool, now: float
    ) -> bool:
        """Divide the partitions, once there is metadata of all members' topics."""
        has_waited = now >= self._metadata_until
        if not has_waited and not self._group_topics <= self.snapshot.topics.keys():
            return False
        self._assign = None
        racks = self._watch.racks(self._group_topics)
        self._assigned_from = racks
        if skip:
            self._must_review = True
            self._sync(name, {}, round_)
            return True
        assignor = self._assignors[name]

        def assigned(result: Mapping[str, MemberAssignment] | Exception) -> None:
            if self._round is not round_:
                return
            if isinstance(result, Exception):
                self._fail(_broken_assignor(result))
            else:
                self._sync(name, result, round_)
                self.context.wake()

        is_large = sum(map(len, racks.values())) * len(members) > _LARGE_ASSIGNMENT
        if self._has_own_assignor or is_large:
            self.context.in_background(partial(group_assignment, assignor, racks, members), assigned)
            return True
        try:
            result: Mapping[str, MemberAssignment] | Exception = group_assignment(assignor, racks, members)
        except Exception as error:
            result = error
        assigned(result)
        return True

    def _sync(self, name: str, assignments: Mapping[str, MemberAssignment], round_: object) -> None:
        given = [
            SyncGroupRequest.Assignment(member_id=member, assignment=assignment_bytes(assignment))
            for member, assignment in assignments.items()
        ]
        sent = self.member_id, self.epoch

        def build(version: int) -> SyncGroupRequest:
            self._check_static(version, _INSTANCE_ID)
            return SyncGroupRequest(
                group_id=self.options.group,
                generation_id=sent[1],
                member_id=sent[0],
                group_instance_id=self.options.instance_id,
                protocol_type=_PROTOCOL_TYPE,
                protocol_name=name,
                assignments=given,
            )

        def done(result: Response | KwireError | None, now: float) -> None:
            if self._round is not round_:
                return
            self._now = now
            self._end_round()
            if not isinstance(result, SyncGroupResponse):
                assert isinstance(result, KwireError)
                self._request_failed(result, now)
            elif result.error_code:
                self._sync_failed(result.error_code, sent, now)
            elif result.protocol_name not in (None, name) or result.protocol_type not in (None, _PROTOCOL_TYPE):
                self._fail(self._no_common_assignor())
            else:
                self._synced(name, result.assignment, now)

        # Unlike JoinGroup it waits for the leader only, not for slow programs: request_timeout_ms is enough (Java).
        self._outbox.append(PendingRequest(self.route, SyncGroupRequest, build, done, connection="join"))

    def _sync_failed(self, code: int, sent: tuple[str, int], now: float) -> None:
        is_unchanged = sent == (self.member_id, self.epoch)
        match code:
            case ErrorCode.REBALANCE_IN_PROGRESS:
                pass  # join again, with the same id
            case ErrorCode.ILLEGAL_GENERATION:
                if is_unchanged:
                    self._reset("the generation is over", keep_id=True)
            case ErrorCode.UNKNOWN_MEMBER_ID:
                if is_unchanged:
                    self._reset("the coordinator does not know this member", keep_id=False)
            case ErrorCode.FENCED_INSTANCE_ID:
                self._fail(fenced_instance(self.context.commits.generation))
            case ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
                self._fail(self._no_common_assignor())
            case ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                self._back_off(now)
            case _ if code in COORDINATOR_MOVED_CODES:
                self._coordinator_moved(now)
            case _:
                self._fail(self._broker_error(code, "SyncGroup"))

    def _synced(self, name: str, data: bytes, now: float) -> None:
        try:
            assignment = parse_assignment(data)
        except KwireError as error:
            self._fail(error.at(group=self.options.group))
            return
        self.state = MemberState.STABLE
        self._attempts, self._not_before = 0, 0.0
        self._pace.changed()
        self._heartbeat_at = min(self._heartbeat_at, now + self._pace.wait(self.options.heartbeat_interval_ms / 1000))
        demand, self._demand = self._demand, None
        assigned = set(assignment.partitions)
        if self.subscription.pattern is None and any(topic not in self._topics for topic, _ in assigned):
            self._demand_rejoin("the assignment has topics that this member does not subscribe to")
            self._slow_down(now)
            return
        self.set_generation(self.member_id, self.epoch)
        self._check_round()
        if self._must_review and self._demand is None:
            self._outbox.append(self._review_request())
        self._note_assignment(name, assignment)
        self.note_topic_ids({topic for topic, _ in assigned})
        owned = set(self.steps.owned)
        if assigned == owned and demand is not None:
            self._idle_rounds += 1
        else:
            self._idle_rounds = 0

        def assign(now: float) -> None:
            self.steps.assign(assigned - self.steps.owned, lambda now: None)

        if self._is_cooperative and owned - assigned:
            self._demand_rejoin("partitions were revoked that others wait for")
        self.steps.take_away(owned - assigned, assign, now, will_assign=True)

    def _review_request(self) -> PendingRequest:
        """Compare the group's assignment with the metadata: for a static leader that came back to it (KIP-814).

        It did not make the assignment, and cannot know of which metadata it was made. Java's leader assumes the current
        metadata, so that partitions that were added while it was away have no owner until the next rebalance.
        """
        self._must_review = False
        generation = self.epoch

        def done(result: Response | KwireError | None, now: float) -> None:
            if self.epoch != generation or not self._is_leader:
                return
            self._now = now
            group = result.groups[0] if isinstance(result, DescribeGroupsResponse) and result.groups else None
            if group is None or group.error_code:
                self._demand_rejoin("the leader came back, and does not get to know the assignment of the group")
            elif group.group_state == _STABLE:
                self._review([one.member_assignment for one in group.members])
            self.context.wake()

        return PendingRequest(
            self.route, DescribeGroupsRequest, lambda version: DescribeGroupsRequest(groups=[self.options.group]), done
        )

    def _review(self, assignments: Collection[bytes]) -> None:
        try:
            owned = {key for data in assignments if data for key in parse_assignment(data).partitions}
        except KwireError as error:
            self._fail(error.at(group=self.options.group))
            return
        wanted = {(topic, number) for topic, racks in self._assigned_from.items() for number in range(len(racks))}
        if wanted - owned:
            self._demand_rejoin("partitions were added while the leader was away")

    def _note_assignment(self, name: str, assignment: MemberAssignment) -> None:
        assignor, generation = self._assignors[name], self.epoch
        if self._has_own_assignor:
            self.context.in_background(partial(assignor.on_assignment, assignment, generation), self._noted)
        else:
            assignor.on_assignment(assignment, generation)

    def _noted(self, result: object) -> None:
        if isinstance(result, Exception):
            _log.error("group %s: on_assignment of an assignor raised", self.options.group, exc_info=result)

    # -- what ends a round

    def _end_round(self) -> None:
        self._round = self._assign = None
        if self.state in (MemberState.PREPARING_REBALANCE, MemberState.COMPLETING_REBALANCE):
            self.state = MemberState.UNJOINED

    def _reset(self, reason: str, *, keep_id: bool) -> None:
        """End the generation for this member: what it owned belongs to others."""
        _log.info("group %s, generation %d: %s", self.options.group, self.epoch, reason)
        self._end_round()
        self.set_generation(self.member_id if keep_id else "", -1)
        self._is_leader = self._watches_partitions = False
        self.state = MemberState.UNJOINED
        self._demand_rejoin(reason)
        self.steps.lose(lambda now: None, self._now)

    def _fail(self, error: KwireError) -> None:
        self._end_round()
        self.fail(error, self._now)

    def _request_failed(self, error: KwireError, now: float) -> None:
        """Handle a request of a round that failed: by its connection, its timeout or its version."""
        if isinstance(error, BrokerError) or not error.is_retriable:
            self._fail(error.at(group=self.options.group))
        else:
            self._coordinator_moved(now)

    def _coordinator_moved(self, now: float) -> None:
        self.must_forget_coordinator = True
        self._back_off(now)

    def _back_off(self, now: float) -> None:
        self._attempts += 1
        self._not_before = now + self.context.backoff.seconds(self._attempts, self.context.random)

    def _slow_down(self, now: float) -> None:
        """Let the next round wait where the rounds before it changed nothing."""
        self._idle_rounds += 1
        if self._idle_rounds > _IDLE_ROUNDS_MAX:
            _log.warning(
                "group %s: %d rounds in a row moved no partition; the next one waits", self.options.group,
                self._idle_rounds,
            )  # fmt: skip
            self._not_before = now + self.context.backoff.seconds(self._idle_rounds, self.context.random)

    def _broker_error(self, code: int, api: str) -> BrokerError:
        return broker_error(code, api=api, group=self.options.group, remedy=_FATAL_REMEDIES.get(code))

    # -- heartbeats

    @property
    def _has_heartbeats(self) -> bool:
        return self.epoch >= 0 and self.state in (
            MemberState.STABLE, MemberState.COMPLETING_REBALANCE, MemberState.UNJOINED, MemberState.PREPARE_LEAVING,
        )  # fmt: skip

    def _turn_heartbeat(self, now: float, view: ClusterView) -> None:
        if not self._has_heartbeats:
            return
        if now >= self._session_since + self.options.session_timeout_ms / 1000:
            self._session_since = now
            _log.warning(
                "group %s: no response to a heartbeat for session_timeout_ms; looks the coordinator up again",
                self.options.group,
            )
            view.forget_coordinator(self.route)
            if self.options.fence_on_session_loss:
                self._reset("the session may be over", keep_id=True)
                return
        if self._heartbeat is None and now >= self._heartbeat_at:
            self._outbox.append(self._heartbeat_request())

    def _heartbeat_request(self) -> PendingRequest:
        self._heartbeat = token = object()
        self._heartbeat_at = inf  # until its response, or a round that ends before that
        sent = self.member_id, self.epoch

        def build(version: int) -> HeartbeatRequest:
            nonlocal sent
            if self.epoch < 0:  # the membership has ended while the request waited for the coordinator
                self._heartbeat = None
                raise ClosedError("the membership is over", group=self.options.group)
            sent = self.member_id, self.epoch
            return HeartbeatRequest(
                group_id=self.options.group,
                generation_id=self.epoch,
                member_id=self.member_id,
                group_instance_id=self.options.instance_id if version >= _INSTANCE_ID else None,
            )

        def done(result: Response | KwireError | None, now: float) -> None:
            if self._heartbeat is not token:
                return
            self._now, self._heartbeat = now, None
            next_at = now + self._pace.wait(self.options.heartbeat_interval_ms / 1000)
            self._heartbeat_at = min(self._heartbeat_at, next_at)
            if isinstance(result, HeartbeatResponse):
                self._heartbeat_failures = 0
                self._handle_heartbeat(result.error_code, sent, now)
            else:
                assert isinstance(result, KwireError)
                self._heartbeat_failed(result, now)

        return PendingRequest(self.route, HeartbeatRequest, build, done)

    def _heartbeat_failed(self, error: KwireError, now: float) -> None:
        if not error.is_retriable:
            self._fail(error.at(group=self.options.group))
            return
        self.must_forget_coordinator = True
        self._heartbeat_failures += 1
        self._heartbeat_at = now + self.context.backoff.seconds(self._heartbeat_failures, self.context.random)

    def _handle_heartbeat(self, code: int, sent: tuple[str, int], now: float) -> None:
        is_current = sent == (self.member_id, self.epoch)
        match code:
            case ErrorCode.NONE:
                self._session_since = now
            case ErrorCode.REBALANCE_IN_PROGRESS:
                self._session_since = now
                if self.state is MemberState.STABLE:
                    self._demand_rejoin("the group rebalances")
            case ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                pass
            case _ if code in COORDINATOR_MOVED_CODES:
                self.must_forget_coordinator = True
                self._heartbeat_failures += 1
                self._heartbeat_at = now + self.context.backoff.seconds(self._heartbeat_failures, self.context.random)
            case ErrorCode.ILLEGAL_GENERATION | ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.FENCED_INSTANCE_ID:
                if not is_current or self.is_rebalancing:
                    return  # of an older generation, or the response to JoinGroup or SyncGroup decides
                if code == ErrorCode.FENCED_INSTANCE_ID:
                    self._fail(fenced_instance(self.context.commits.generation))
                else:
                    keep_id = code == ErrorCode.ILLEGAL_GENERATION
                    self._reset(f"a heartbeat was refused: {error_name(code)}", keep_id=keep_id)
            case _:
                self._fail(self._broker_error(code, "Heartbeat"))

    # -- leaving

    def _turn_leave(self, now: float) -> None:
        if self.state not in (MemberState.PREPARE_LEAVING, MemberState.LEAVING):
            self._end_round()
            self._demand = None
            self.state = MemberState.PREPARE_LEAVING
        if self.state is MemberState.PREPARE_LEAVING:
            if self.steps.is_idle:
                self.steps.take_away(set(self.steps.owned), self._send_leave, now)
        elif self.departure is not None:
            self._outbox += self.departure.turn(now)

    def _send_leave(self, now: float) -> None:
        self.state = MemberState.LEAVING
        is_static = self.options.instance_id is not None
        if not self.member_id or self.leave_mode == "remain" or (is_static and self.leave_mode == "default"):
            self._finish_leave(True)
            return
        request = partial(self._leave_request, "the consumer is closed or has unsubscribed")
        self.departure = Departure(request, self._finish_leave, now)
        self._outbox += self.departure.turn(now)

    def _finish_leave(self, has_response: bool) -> None:
        if self.state is MemberState.LEAVING:
            self.departure = None
            self.kept_id = "" if has_response else self.member_id
            self.clear_generation()
            self.left()

    def _leave_request(self, reason: str, connection: str | None, on_done: Callable[[bool], object]) -> PendingRequest:
        group, member_id, instance_id = self.options.group, self.member_id, self.options.instance_id

        def build(version: int) -> LeaveGroupRequest:
            if version < _INSTANCE_ID:
                return LeaveGroupRequest(group_id=group, member_id=member_id)
            member = LeaveGroupRequest.Member(member_id=member_id, group_instance_id=instance_id, reason=reason)
            return LeaveGroupRequest(group_id=group, members=[member])

        def done(result: Response | KwireError | None, now: float) -> None:
            self._now = now
            if isinstance(result, LeaveGroupResponse) and result.error_code:
                _log.info("group %s: leaving was refused: %s", group, broker_error(result.error_code))
                self.must_forget_coordinator |= result.error_code in COORDINATOR_MOVED_CODES
            is_taken = isinstance(result, LeaveGroupResponse) and result.error_code not in COORDINATOR_MOVED_CODES
            self.context.wake()
            on_done(is_taken)

        timeout_ms = int(LEAVE_SECONDS_MAX * 1000)
        return PendingRequest(self.route, LeaveGroupRequest, build, done, timeout_ms=timeout_ms, connection=connection)


def _broken_assignor(error: Exception) -> KwireError:
    if isinstance(error, KwireError):
        return error
    broken = GroupError(
        f"an assignor raised {type(error).__name__}: {error}", remedy="mend the assignor; its traceback is the cause"
    )
    broken.__cause__ = error
    return broken
