"""Members of consumer groups that speak the classic protocol, and groups that change their type (KIP-848's migration).

A classic group whose members are consumers becomes a consumer group when the first member of the new protocol joins,
and a classic group again when the last one leaves, as `consumer_group_migration_policy` allows. In between, classic
members rejoin whenever the coordinator requires it: their JoinGroup reports what they own, and their SyncGroup gets
what they may have now. They elect no leader. This is the part of Kafka's GroupMetadataManager whose methods end in
`ToConsumerGroup`, with the conversions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kwire.broker.consumer_group import (
    PROTOCOL_TYPE,
    ClassicProtocol,
    ConsumerGroup,
    ConsumerMember,
    TopicsImage,
)
from kwire.broker.consumer_groups import ConsumerGroupCoordinator, unknown_member
from kwire.broker.current_assignment import (
    NO_PARTITIONS,
    CurrentAssignment,
    MemberState,
    Partitions,
    TopicIdPartition,
)
from kwire.broker.group_registry import AnyGroup, GroupRegistry
from kwire.broker.groups import (
    Group,
    GroupCoordinator,
    GroupState,
    JoinGroup,
    JoinGroupResult,
    Member,
    SyncGroup,
    SyncGroupResult,
)
from kwire.broker.options import Options
from kwire.errors import BrokerError, DecodeError, ErrorCode, broker_error
from kwire.net.timers import Timer, Timers
from kwire.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_versioned,
    encode_versioned,
)

_UPGRADES, _DOWNGRADES = ("bidirectional", "upgrade"), ("bidirectional", "downgrade")


class ClassicMembers:
    """The classic protocol in consumer groups, with the methods of `GroupCoordinator`. No request waits: results are
    returned at once."""

    def __init__(
        self,
        options: Options,
        timers: Timers,
        registry: GroupRegistry,
        image: TopicsImage,
        classic: GroupCoordinator,
        consumer: ConsumerGroupCoordinator,
    ) -> None:
        self._options = options
        self._timers = timers
        self._registry = registry
        self._image = image
        self._classic = classic
        self._consumer = consumer
        consumer.upgrade = self.upgrade
        consumer.downgrade = self.downgrade

    # The classic protocol.

    def join(self, join: JoinGroup, now: float, respond: Callable[[JoinGroupResult], None]) -> JoinGroupResult:
        """Return the result of a JoinGroup: the member's epoch is its generation, and nobody leads."""
        invalid = self._classic.validate(join)
        if invalid is not None:
            return JoinGroupResult(invalid, join.member_id)
        try:
            return self._join(self._group(join.group_id), join, now)
        except BrokerError as error:
            return JoinGroupResult(error.code, join.member_id)

    def _join(self, group: ConsumerGroup, join: JoinGroup, now: float) -> JoinGroupResult:
        is_unknown = not join.member_id
        member_id = join.member_id or self._classic.make_member_id(join)
        self._consumer.check_size(group, member_id)
        _check_protocols(group, join)
        if join.needs_known_id and is_unknown and join.instance_id is None:
            return JoinGroupResult(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        subscription = _subscription(join.protocols[0][1])
        last = self._last_consumer_replaced_by(group, join)
        member = self._member(group, join, member_id, now)
        before = member.topics, member.regex
        member.rack_id = subscription.rack_id or member.rack_id
        member.rebalance_timeout_ms = join.rebalance_timeout_ms
        member.topics, member.regex = frozenset(subscription.topics), ""
        member.client_id, member.client_host = join.client_id, join.client_host
        member.classic = ClassicProtocol(join.session_timeout_ms, join.protocols)
        self._consumer.refresh(group, now, changed=(member.topics, member.regex) != before)
        self._consumer.reconcile(group, member, self._owned(subscription), now)
        _cancel(member.join)
        member.join = None
        result = JoinGroupResult(
            ErrorCode.NONE, member.id, member.epoch, PROTOCOL_TYPE, join.protocols[0][0], leader=""
        )
        if last and self._may_downgrade(group, len(group.members)):
            self._make_classic(group, list(group.members.values()), now)
            return result
        self._consumer.restart_session(group, member, now)
        _cancel(member.sync)
        member.sync = self._fence_after(group, member, now)
        return result

    @staticmethod
    def _last_consumer_replaced_by(group: ConsumerGroup, join: JoinGroup) -> bool:
        """Return whether this static member replaces the last one that speaks the new protocol."""
        replaced = group.member_of_instance(join.instance_id)
        others = (member for member in group.members.values() if member is not replaced)
        return replaced is not None and replaced.classic is None and all(other.classic for other in others)

    def _member(self, group: ConsumerGroup, join: JoinGroup, member_id: str, now: float) -> ConsumerMember:
        """Return the member that joins: known, new, or in the place of a static one."""
        if join.instance_id is not None:
            existing = group.member_of_instance(join.instance_id)
            if join.member_id:
                return self._consumer.find_static(existing, join.instance_id, member_id)
            if existing is not None:
                return self._consumer.replace_static(group, existing, member_id, now)
        elif member_id in group.members:
            return group.members[member_id]
        member = ConsumerMember(member_id, join.instance_id)
        group.add(member)
        return member

    def sync(self, sync: SyncGroup, now: float, respond: Callable[[SyncGroupResult], None]) -> SyncGroupResult:
        """Return the partitions that the member has now."""
        try:
            group = self._group(sync.group_id)
            member = self._classic_member(group, sync.member_id, sync.instance_id)
            assert member.classic is not None
            _check_generation(member, sync.generation)
            names = (None, member.classic.protocols[0][0])
            if sync.protocol_type not in (None, PROTOCOL_TYPE) or sync.protocol not in names:
                raise broker_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "another protocol than in JoinGroup")
            if group.epoch > member.epoch and member.current.state is not MemberState.UNREVOKED_PARTITIONS:
                self._start_join_timer(group, member, now)
                raise broker_error(ErrorCode.REBALANCE_IN_PROGRESS, "the group has a new epoch: join again")
        except BrokerError as error:
            return SyncGroupResult(error.code)
        _cancel(member.sync)
        member.sync = None
        self._consumer.restart_session(group, member, now)
        assignment = self._encode(member.current.assigned, member.classic)
        return SyncGroupResult(ErrorCode.NONE, sync.protocol_type, sync.protocol, assignment)

    def heartbeat(self, group_id: str, generation: int, member_id: str, instance_id: str | None, now: float) -> int:
        """Restart the session. Return REBALANCE_IN_PROGRESS if the member has partitions to revoke or to get."""
        try:
            group = self._group(group_id)
            member = self._classic_member(group, member_id, instance_id)
            _check_generation(member, generation)
        except BrokerError as error:
            return error.code
        self._consumer.restart_session(group, member, now)
        state = member.current.state
        has_to_join = (
            member.epoch < group.epoch
            or state is MemberState.UNREVOKED_PARTITIONS
            or (state is MemberState.UNRELEASED_PARTITIONS and not group.is_waiting(member))
        )
        if not has_to_join:
            return ErrorCode.NONE
        self._start_join_timer(group, member, now)
        return ErrorCode.REBALANCE_IN_PROGRESS

    def leave(self, group_id: str, member_id: str, instance_id: str | None, now: float) -> int:
        """Remove a member of either protocol, as an administrator may; a static one also without its member id."""
        try:
            group = self._group(group_id)
            if instance_id is not None and not member_id:
                member_id = group.static.get(instance_id, "")
            member = self._any_member(group, member_id, instance_id)
        except BrokerError as error:
            return error.code
        self._consumer.fence(group, member, now)
        return ErrorCode.NONE

    def _group(self, group_id: str) -> ConsumerGroup:
        group = self._consumer.get(group_id)
        assert group is not None
        return group

    def _classic_member(self, group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
        """Return a member that speaks the classic protocol. Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        member = self._any_member(group, member_id, instance_id)
        if member.classic is None:
            raise unknown_member(group, member_id)
        return member

    def _any_member(self, group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
        if instance_id is not None:
            return self._consumer.find_static(group.member_of_instance(instance_id), instance_id, member_id)
        member = group.members.get(member_id)
        if member is None:
            raise unknown_member(group, member_id)
        return member

    # Their timers: a classic member has to join, and then to sync, within its rebalance timeout.

    def _start_join_timer(self, group: ConsumerGroup, member: ConsumerMember, now: float) -> None:
        if member.join is None:
            member.join = self._fence_after(group, member, now)

    def _fence_after(self, group: ConsumerGroup, member: ConsumerMember, now: float) -> Timer:
        until = now + member.rebalance_timeout_ms / 1000
        return self._timers.at(until, lambda now: self._consumer.fence(group, member, now))

    # Conversions.

    def upgrade(self, group: AnyGroup, now: float) -> ConsumerGroup | None:
        """Make a consumer group of a classic one. None if that is not allowed, or its members are no consumers."""
        if not isinstance(group, Group) or self._options.consumer_group_migration_policy not in _UPGRADES:
            return None
        if group.protocol_type != PROTOCOL_TYPE or len(group.members) > self._options.consumer_group_max_size:
            return None
        try:
            members = [self._converted(group, member) for member in group.members.values()]
        except (DecodeError, BrokerError):
            return None
        made = ConsumerGroup(group.id, epoch=group.generation, assignment_epoch=group.generation)
        for member in members:
            made.add(member)
            made.targets[member.id] = frozenset(member.current.assigned)
            made.set_current(member, member.current)
        made.update_metadata(self._image)
        for waiting in group.members.values():
            group.complete_join(waiting, JoinGroupResult(ErrorCode.REBALANCE_IN_PROGRESS, waiting.id))
            group.complete_sync(waiting, SyncGroupResult(ErrorCode.REBALANCE_IN_PROGRESS))
            waiting.cancel_session()
        group.dispose()
        self._registry.put(made)
        for member in members:
            self._consumer.restart_session(made, member, now)
        return made

    def _converted(self, group: Group, member: Member) -> ConsumerMember:
        protocol = group.protocol or group.select_protocol()
        subscription = _subscription(member.metadata(protocol))
        assigned: set[TopicIdPartition] = set()
        if member.assignment:
            _, assignment = decode_versioned(ConsumerProtocolAssignment, member.assignment)
            for topic in assignment.assigned_partitions:
                known = self._image.topics.get(topic.topic)
                if known is not None:
                    assigned.update((known.id, partition) for partition in topic.partitions)
        generation = group.generation
        return ConsumerMember(
            member.id, member.instance_id, subscription.rack_id, member.client_id, member.client_host,
            member.rebalance_timeout_ms, frozenset(subscription.topics),
            classic=ClassicProtocol(member.session_timeout_ms, member.protocols),
            current=CurrentAssignment(
                generation, generation, MemberState.STABLE, dict.fromkeys(sorted(assigned), generation)
            ),
        )  # fmt: skip

    def downgrade(self, group: ConsumerGroup, leaving: ConsumerMember, now: float) -> bool:
        """Make a classic group when the last member of the new protocol leaves. Return whether it was done."""
        others = [member for member in group.members.values() if member is not leaving]
        is_last = leaving.classic is None and others and all(member.classic is not None for member in others)
        if not is_last or not self._may_downgrade(group, len(others)):
            return False
        leaving.cancel_timers()
        made = self._make_classic(group, others, now)
        self._classic.prepare_rebalance(made, now)
        return True

    def _may_downgrade(self, group: ConsumerGroup, size: int) -> bool:
        options = self._options
        return options.consumer_group_migration_policy in _DOWNGRADES and size <= options.group_max_size

    def _make_classic(self, group: ConsumerGroup, members: Iterable[ConsumerMember], now: float) -> Group:
        """Put a stable classic group in the place of a consumer group, with its targets as assignments."""
        made = Group(group.id, generation=group.epoch)
        for member in members:
            member.cancel_timers()
            assert member.classic is not None
            made.add(
                Member(
                    id=member.id, instance_id=member.instance_id, client_id=member.client_id,
                    client_host=member.client_host, protocol_type=PROTOCOL_TYPE, protocols=member.classic.protocols,
                    session_timeout_ms=member.classic.session_timeout_ms,
                    rebalance_timeout_ms=member.rebalance_timeout_ms, is_new=False,
                    assignment=self._encode(group.targets.get(member.id, NO_PARTITIONS), member.classic),
                )
            )  # fmt: skip
        made.protocol = made.select_protocol()
        made.state = GroupState.STABLE
        self._registry.put(made)
        for classic_member in made.members.values():
            self._classic.restart_session(made, classic_member, classic_member.session_timeout_ms, now)
        return made

    # The consumer protocol's bytes.

    def _owned(self, subscription: ConsumerProtocolSubscription) -> Partitions:
        topics = self._image.topics
        return frozenset(
            (topics[owned.topic].id, partition)
            for owned in subscription.owned_partitions
            if owned.topic in topics
            for partition in owned.partitions
        )

    def _encode(self, parts: Iterable[TopicIdPartition], protocol: ClassicProtocol) -> bytes:
        """Return an assignment in the version of the member's subscription. Deleted topics are left out."""
        names = {topic.id: name for name, topic in self._image.topics.items()}
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(parts):
            if topic in names:
                topics.setdefault(names[topic], []).append(partition)
        version, _ = decode_versioned(ConsumerProtocolSubscription, protocol.protocols[0][1])
        message = ConsumerProtocolAssignment(
            assigned_partitions=[
                ConsumerProtocolAssignment.TopicPartition(topic=name, partitions=partitions)
                for name, partitions in topics.items()
            ]
        )
        return encode_versioned(message, min(version, ConsumerProtocolAssignment.VERSIONS[-1]))


def _check_protocols(group: ConsumerGroup, join: JoinGroup) -> None:
    """Raise INCONSISTENT_GROUP_PROTOCOL unless all classic members have a protocol in common with the new one."""
    offered = {name for name, _ in join.protocols}
    others = [member.classic for member in group.members.values() if member.classic is not None]
    common = offered.intersection(*({name for name, _ in classic.protocols} for classic in others))
    if join.protocol_type != PROTOCOL_TYPE or not common:
        why = f"Member {join.member_id}'s protocols are not supported."
        raise broker_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, why)


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if generation != member.epoch:
        why = f"The request generation {generation} is not equal to the member epoch {member.epoch}"
        raise broker_error(ErrorCode.ILLEGAL_GENERATION, why)


def _subscription(data: bytes) -> ConsumerProtocolSubscription:
    try:
        return decode_versioned(ConsumerProtocolSubscription, data)[1]
    except DecodeError as error:
        why = f"Malformed embedded consumer protocol in subscription deserialization: {error}"
        raise broker_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, why) from None


def _cancel(timer: Timer | None) -> None:
    if timer is not None:
        timer.cancel()
