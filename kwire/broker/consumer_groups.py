"""The coordinator of consumer groups (KIP-848): heartbeats, fencing, timeouts, new targets.

It has the rules of Kafka's GroupMetadataManager. Members send everything in ConsumerGroupHeartbeat: subscription,
epoch, and the partitions that they own. Each heartbeat takes the member one step towards its target. Errors are raised
as BrokerError, with Kafka's text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random

from kwire.broker.assignors import ASSIGNORS
from kwire.broker.consumer_group import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroup,
    ConsumerMember,
    TopicsImage,
)
from kwire.broker.current_assignment import CurrentAssignment, MemberState, Partitions, TopicIdPartition
from kwire.broker.group_configs import GroupConfigs
from kwire.broker.group_registry import AnyGroup, GroupRegistry
from kwire.broker.ids import make_uuid
from kwire.broker.options import Options
from kwire.broker.re2 import Re2, Re2Error
from kwire.errors import ErrorCode, broker_error
from kwire.net.timers import Timers

_FIRST_COMMIT_OF_CONSUMERS = 9  # version of OffsetCommit


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A ConsumerGroupHeartbeat request. None means "as before"."""

    group_id: str
    member_id: str
    epoch: int
    client_id: str
    client_host: str
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: frozenset[str] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None
    makes_own_id: bool = True  # v1 (KIP-1082)

    @property
    def is_full(self) -> bool:
        """Return whether it has all fields, as after an error: the response then has the assignment."""
        has_all = self.rebalance_timeout_ms != -1 and self.owned is not None
        return self.epoch == JOIN_EPOCH or (has_all and (self.topics is not None or self.regex is not None))


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """The response. `assigned` is None where nothing is new."""

    member_id: str
    epoch: int
    interval_ms: int = 0
    assigned: Partitions | None = None


# Make a consumer group of the classic group that has the id, or None if that is not allowed.
Upgrade = Callable[[AnyGroup, float], ConsumerGroup | None]
# Make a classic group again when this member is about to leave. Return whether it was done.
Downgrade = Callable[[ConsumerGroup, ConsumerMember, float], bool]


class ConsumerGroupCoordinator:
    """All consumer groups of the cluster. `classic_members` sets `upgrade` and `downgrade`."""

    def __init__(
        self,
        options: Options,
        timers: Timers,
        random: Random,
        registry: GroupRegistry,
        image: TopicsImage,
        configs: GroupConfigs,
    ) -> None:
        self._options = options
        self._timers = timers
        self._random = random
        self._registry = registry
        self._image = image
        self._configs = configs
        self.upgrade: Upgrade = lambda group, now: None
        self.downgrade: Downgrade = lambda group, leaving, now: False

    def get(self, group_id: str) -> ConsumerGroup | None:
        """Return a consumer group, None if there is none of this id and type."""
        return self._registry.find(group_id, ConsumerGroup)

    # ConsumerGroupHeartbeat.

    def heartbeat(self, beat: Heartbeat, now: float) -> HeartbeatResult:
        """Handle one heartbeat. Raises BrokerError."""
        self._validate(beat)
        if beat.epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            return self._leave(beat, now)
        group = self._find_or_create(beat, now)
        member_id = beat.member_id or str(make_uuid(self._random))
        before = self._find_member(group, member_id, beat, now)
        member = before or self._join(group, member_id, beat)
        had = None if before is None else frozenset(member.current.assigned)
        assignor = group.assignor
        changed = self._update(member, beat) or group.epoch == 0
        changed = changed or (group.assignor != assignor and self._options.is_at_least("4.4"))
        self.refresh(group, now, changed=changed)
        self.reconcile(group, member, beat.owned, now)
        self.restart_session(group, member, now)
        has = frozenset(member.current.assigned)
        return HeartbeatResult(
            member.id, member.epoch, self._configs.of(group.id).consumer_heartbeat_interval_ms,
            has if beat.is_full or has != had else None,
        )  # fmt: skip

    def _validate(self, beat: Heartbeat) -> None:
        if not beat.group_id:
            raise _invalid("GroupId can't be empty.")
        if beat.instance_id == "":
            raise _invalid("InstanceId can't be empty.")
        if beat.rack_id == "":
            raise _invalid("RackId can't be empty.")
        if not beat.member_id and (beat.makes_own_id or beat.epoch != JOIN_EPOCH):
            raise _invalid("MemberId can't be empty.")
        if beat.epoch < LEAVE_STATIC_EPOCH:
            raise _invalid("MemberEpoch is invalid.")
        if beat.epoch == LEAVE_STATIC_EPOCH and beat.instance_id is None:
            raise _invalid("InstanceId can't be null.")
        if beat.epoch == JOIN_EPOCH:
            if beat.rebalance_timeout_ms == -1:
                raise _invalid("RebalanceTimeoutMs must be provided in first request.")
            if beat.owned is None or beat.owned:
                raise _invalid("TopicPartitions must be empty when (re-)joining.")
            if beat.topics is None and beat.regex is None:
                raise _invalid(
                    "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
                )
        if beat.assignor is not None and beat.assignor not in ASSIGNORS:
            why = f"ServerAssignor {beat.assignor} is not supported. Supported assignors: {', '.join(ASSIGNORS)}."
            raise broker_error(ErrorCode.UNSUPPORTED_ASSIGNOR, why)
        if beat.regex:
            try:
                Re2(beat.regex)
            except Re2Error as error:
                why = f"SubscribedTopicRegex `{beat.regex}` is not a valid regular expression: {error}."
                raise broker_error(ErrorCode.INVALID_REGULAR_EXPRESSION, why) from None

    def _find_or_create(self, beat: Heartbeat, now: float) -> ConsumerGroup:
        group = self._registry.get(beat.group_id)
        if isinstance(group, ConsumerGroup):
            self.check_size(group, beat.member_id)
            return group
        if beat.epoch != JOIN_EPOCH:
            if group is None:
                raise not_found(f"Consumer group {beat.group_id} not found.")
            raise not_found(f"Group {beat.group_id} is not a consumer group.")
        if group is None or (group.TYPE == "classic" and group.is_empty):
            if group is None and self._registry.is_full:
                raise broker_error(ErrorCode.COORDINATOR_NOT_AVAILABLE, "there are max_groups groups already")
            if group is not None:
                group.dispose()
            # Since 4.3 a group begins at epoch 1, so that a member without topics does not stay at 0.
            made = ConsumerGroup(beat.group_id, epoch=int(self._options.is_at_least("4.3")), empty_since=now)
            self._registry.put(made)
            return made
        upgraded = self.upgrade(group, now)
        if upgraded is None:
            raise not_found(f"Group {beat.group_id} is not a consumer group.")
        return upgraded

    def check_size(self, group: ConsumerGroup, member_id: str) -> None:
        """Raise GROUP_MAX_SIZE_REACHED for a new member of a full group."""
        most = self._options.consumer_group_max_size
        if len(group.members) >= most and member_id not in group.members:
            why = f"The consumer group has reached its maximum capacity of {most} members."
            raise broker_error(ErrorCode.GROUP_MAX_SIZE_REACHED, why)

    def _find_member(self, group: ConsumerGroup, member_id: str, beat: Heartbeat, now: float) -> ConsumerMember | None:
        """Return the member that sent the heartbeat, None if it is new. A wrong epoch is fenced."""
        if beat.instance_id is None:
            member = group.members.get(member_id)
            if member is None:
                if beat.epoch == JOIN_EPOCH:
                    return None
                raise unknown_member(group, member_id)
            self._check_epoch(member, beat)
            return member
        existing = group.member_of_instance(beat.instance_id)
        if beat.epoch != JOIN_EPOCH:
            member = self.find_static(existing, beat.instance_id, member_id)
            self._check_epoch(member, beat)
            return member
        if existing is None:
            return None
        if existing.classic is None and existing.epoch != LEAVE_STATIC_EPOCH:
            why = (
                f"Static member {member_id} with instance id {beat.instance_id} cannot join the group because the "
                f"instance id is owned by {existing.id} member."
            )
            raise broker_error(ErrorCode.UNRELEASED_INSTANCE_ID, why)
        return self.replace_static(group, existing, member_id, now)

    def _check_epoch(self, member: ConsumerMember, beat: Heartbeat) -> None:
        """Raise FENCED_MEMBER_EPOCH for an epoch that the member does not have.

        The previous epoch is accepted with partitions that the member has: a response was lost. So is 0, with which a
        member rejoins, since 4.2.
        """
        if beat.epoch == member.epoch or (beat.epoch == JOIN_EPOCH and self._options.is_at_least("4.2")):
            return
        if beat.epoch > member.epoch:
            size = "greater"
        else:
            owned = beat.owned
            lost = owned is not None and owned <= member.current.assigned.keys()
            if beat.epoch == member.current.previous_epoch and lost:
                return
            size = "smaller"
        why = (
            f"The consumer group member has a {size} member epoch ({beat.epoch}) than the one known by the group "
            f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin."
        )
        raise broker_error(ErrorCode.FENCED_MEMBER_EPOCH, why)

    @staticmethod
    def find_static(existing: ConsumerMember | None, instance_id: str, member_id: str) -> ConsumerMember:
        """Return the member of an instance id. Raises UNKNOWN_MEMBER_ID; FENCED_INSTANCE_ID for another member id."""
        if existing is None:
            raise broker_error(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if existing.id != member_id:
            why = f"Static member {member_id} with instance id {instance_id} was fenced by member {existing.id}."
            raise broker_error(ErrorCode.FENCED_INSTANCE_ID, why)
        return existing

    def replace_static(
        self, group: ConsumerGroup, existing: ConsumerMember, member_id: str, now: float
    ) -> ConsumerMember:
        """Put a new member in the place of a static one. It begins at epoch 0 with the other's partitions."""
        was = existing.current
        current = CurrentAssignment(0, 0, was.state, was.assigned, was.pending_revocation)
        member = ConsumerMember(
            member_id, existing.instance_id, existing.rack_id, existing.client_id, existing.client_host,
            existing.rebalance_timeout_ms, existing.topics, existing.regex, existing.assignor, existing.classic,
            current,
        )  # fmt: skip
        group.replace_static(existing, member, now)
        return member

    @staticmethod
    def _join(group: ConsumerGroup, member_id: str, beat: Heartbeat) -> ConsumerMember:
        member = ConsumerMember(member_id, beat.instance_id)
        group.add(member)
        return member

    @staticmethod
    def _update(member: ConsumerMember, beat: Heartbeat) -> bool:
        """Take over what a heartbeat says. Return whether the subscription changed."""
        before = member.topics, member.regex
        member.client_id, member.client_host, member.classic = beat.client_id, beat.client_host, None
        if beat.rack_id is not None:
            member.rack_id = beat.rack_id
        if beat.rebalance_timeout_ms != -1:
            member.rebalance_timeout_ms = beat.rebalance_timeout_ms
        if beat.assignor is not None:
            member.assignor = beat.assignor
        if beat.topics is not None:
            member.topics = beat.topics
        if beat.regex is not None:
            member.regex = beat.regex
        return (member.topics, member.regex) != before

    # Steps that members of both protocols take.

    def refresh(self, group: ConsumerGroup, now: float, *, changed: bool) -> None:
        """Begin a new group epoch if a subscription or a subscribed topic changed, and compute the targets for it."""
        self._resolve_regexes(group, now)
        if changed or group.metadata_revision != self._image.topics_revision:
            changed = group.update_metadata(self._image) or changed
        if changed:
            group.epoch += 1
        if group.epoch > group.assignment_epoch and self._can_assign(group, now):
            group.compute_targets(now)

    def _resolve_regexes(self, group: ConsumerGroup, now: float) -> None:
        """Match the patterns again when topics changed. Kafka does it in another thread, so a moment later."""
        patterns = {member.regex for member in group.members.values() if member.regex}
        if patterns == group.regexes.keys() and group.metadata_revision == self._image.topics_revision:
            return
        names = sorted(self._image.topics)
        group.regexes = {
            pattern: frozenset(name for name in names if regex.matches(name))
            for pattern, regex in ((pattern, Re2(pattern)) for pattern in sorted(patterns))
        }

    def _can_assign(self, group: ConsumerGroup, now: float) -> bool:
        """Return whether the assignment interval has passed since the last targets (KIP-1263)."""
        if group.assigned_at is None or not self._options.is_at_least("4.3"):
            return True
        return now >= group.assigned_at + self._configs.of(group.id).consumer_assignment_interval_ms / 1000

    def reconcile(self, group: ConsumerGroup, member: ConsumerMember, owned: Partitions | None, now: float) -> None:
        """Take a member one step towards its target."""
        subscribed = group.topic_ids_of(member) if self._options.is_at_least("4.2") else None
        current = member.current.reconcile(
            group.target_of(member), has_holder=group.holders.__contains__, owned=owned, subscribed=subscribed
        )
        if current is member.current:
            return
        group.set_current(member, current)
        if member.classic is not None:
            return
        if current.state is MemberState.UNREVOKED_PARTITIONS:
            self._restart_revocation(group, member, now)
        elif member.revocation is not None:
            member.revocation.cancel()
            member.revocation = None

    def _restart_revocation(self, group: ConsumerGroup, member: ConsumerMember, now: float) -> None:
        """Restart the rebalance timer of a member that has to give partitions up in its present epoch."""
        if member.revocation is not None:
            member.revocation.cancel()
        until, epoch = now + member.rebalance_timeout_ms / 1000, member.epoch
        member.revocation = self._timers.at(until, lambda now: self._expire_revocation(group, member, epoch, now))

    def restart_session(self, group: ConsumerGroup, member: ConsumerMember, now: float) -> None:
        """Restart the session timer, which fences the member."""
        if member.classic is None:
            timeout_ms = self._configs.of(group.id).consumer_session_timeout_ms
        else:
            timeout_ms = member.classic.session_timeout_ms
        if member.session is not None:
            member.session.cancel()
        member.session = self._timers.at(now + timeout_ms / 1000, lambda now: self.fence(group, member, now))

    def _expire_revocation(self, group: ConsumerGroup, member: ConsumerMember, epoch: int, now: float) -> None:
        if member.epoch == epoch:
            self.fence(group, member, now)

    # Leaving.

    def _leave(self, beat: Heartbeat, now: float) -> HeartbeatResult:
        group = self.get(beat.group_id)
        if group is None:
            exists = beat.group_id in self._registry
            raise not_found(f"Group {beat.group_id} {'is not a consumer group' if exists else 'not found'}.")
        if beat.instance_id is None:
            if beat.member_id not in group.members:
                raise unknown_member(group, beat.member_id)
            member = group.members[beat.member_id]
        else:
            member = self.find_static(group.member_of_instance(beat.instance_id), beat.instance_id, beat.member_id)
        if beat.epoch == LEAVE_STATIC_EPOCH and beat.instance_id is not None:
            was = member.current
            group.set_current(
                member, CurrentAssignment(LEAVE_STATIC_EPOCH, was.previous_epoch, was.state, was.assigned)
            )
            # The session timer goes on: within it a new member may take the partitions over.
        else:
            self.fence(group, member, now)
        return HeartbeatResult(beat.member_id, beat.epoch)

    def fence(self, group: ConsumerGroup, member: ConsumerMember, now: float) -> None:
        """Remove a member. The others get new targets with the next heartbeat."""
        if group.members.get(member.id) is not member or self.downgrade(group, member, now):
            return
        self.remove(group, [member], now)

    def remove(self, group: ConsumerGroup, members: Iterable[ConsumerMember], now: float) -> None:
        """Remove members and begin a new group epoch."""
        for member in members:
            group.remove(member, now)
        group.update_metadata(self._image)
        group.epoch += 1
        if not group.members and self._options.is_at_least("4.4"):
            group.assignment_epoch = group.epoch  # nobody is left to compute targets for

    # Groups.

    def coordinators_moved(self, group_ids: Iterable[str], now: float) -> None:
        """Restart the timers of all members: these groups have a new coordinator."""
        for group in (self.get(group_id) for group_id in group_ids):
            if group is None:
                continue
            for member in group.members.values():
                self.restart_session(group, member, now)
                if member.revocation is not None:
                    self._restart_revocation(group, member, now)

    # Commits.

    def check_commit(self, group: ConsumerGroup, commit: Commit) -> CommitCheck:
        """Return what has to hold for each partition. Raises BrokerError if the request as a whole is rejected."""
        if commit.epoch < 0 and not group.members:
            return CommitCheck()
        if commit.is_transactional and commit.epoch == -1 and not commit.member_id and commit.instance_id is None:
            return CommitCheck()  # a client before KIP-447
        member = group.members.get(commit.member_id)
        if member is None:
            raise unknown_member(group, commit.member_id)
        if member.classic is None and not commit.is_transactional and commit.version < _FIRST_COMMIT_OF_CONSUMERS:
            why = "OffsetCommit version 9 or above must be used by members using the consumer group protocol"
            raise broker_error(ErrorCode.UNSUPPORTED_VERSION, why)
        if not self._options.is_at_least("4.3") or commit.epoch > member.epoch:
            check_member_epoch(member, commit.epoch)
        return CommitCheck(member, commit.epoch) if commit.epoch != member.epoch else CommitCheck()

    @staticmethod
    def check_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
        """Check the member of an OffsetFetch. Others, such as admin clients, send neither id nor epoch."""
        if member_id is None and epoch < 0:
            return
        member = group.members.get(member_id or "")
        if member is None:
            raise unknown_member(group, member_id)
        check_member_epoch(member, epoch)


@dataclass(frozen=True, slots=True)
class Commit:
    """Who commits offsets, in OffsetCommit or TxnOffsetCommit. `epoch` is a generation in classic groups."""

    member_id: str
    epoch: int
    instance_id: str | None = None
    version: int = _FIRST_COMMIT_OF_CONSUMERS  # of OffsetCommit
    is_transactional: bool = False


@dataclass(frozen=True, slots=True)
class CommitCheck:
    """The rule of KIP-1251 (4.3): with an older epoch, a member commits what it has had since that epoch.

    `member` is None where no partition needs a check.
    """

    member: ConsumerMember | None = None
    epoch: int = -1

    def check(self, part: TopicIdPartition) -> None:
        """Raise STALE_MEMBER_EPOCH for a partition that the member got later, or does not have."""
        if self.member is None:
            return
        current = self.member.current
        since = current.assigned.get(part, current.pending_revocation.get(part))
        if since is None or self.epoch < since:
            check_member_epoch(self.member, self.epoch)


def check_member_epoch(member: ConsumerMember, epoch: int) -> None:
    """Raise STALE_MEMBER_EPOCH unless the epoch is the member's; ILLEGAL_GENERATION to a classic member."""
    if epoch == member.epoch:
        return
    if member.classic is not None:
        why = f"The received generation id {epoch} does not match the expected member epoch {member.epoch}."
        raise broker_error(ErrorCode.ILLEGAL_GENERATION, why)
    why = f"The received member epoch {epoch} does not match the expected member epoch {member.epoch}."
    raise broker_error(ErrorCode.STALE_MEMBER_EPOCH, why)


def unknown_member(group: ConsumerGroup, member_id: str | None) -> Exception:
    return broker_error(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.id}.")


def not_found(why: str) -> Exception:
    return broker_error(ErrorCode.GROUP_ID_NOT_FOUND, why)


def _invalid(why: str) -> Exception:
    return broker_error(ErrorCode.INVALID_REQUEST, why)
