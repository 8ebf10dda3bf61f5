"""The coordinator of groups of Kafka Streams (KIP-1071): heartbeats, fencing, topologies, new targets.

It has the rules of Kafka's GroupMetadataManager in 4.3. A member sends its topology when it joins; the first one is the
group's. The response says which tasks it has, and by statuses what prevents others. Errors are raised as BrokerErrors,
with Kafka's text. Kafka's delay before the first assignment of a group does not exist here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kwire.broker.consumer_group import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH, TopicsImage
from kwire.broker.current_assignment import MemberState
from kwire.broker.group_configs import GroupConfigs
from kwire.broker.group_registry import GroupRegistry
from kwire.broker.options import Options
from kwire.broker.streams_assignor import Tasks
from kwire.broker.streams_group import StreamsGroup, StreamsMember
from kwire.broker.streams_topology import InternalTopic, Status, Topology, invalid_changelog
from kwire.errors import BrokerError, ErrorCode, broker_error
from kwire.net.timers import Timers

STALE_TOPOLOGY, SHUTDOWN_APPLICATION = 0, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A StreamsGroupHeartbeat request. None means "as before"; of `owned`, a kind that is None was not reported."""

    group_id: str
    member_id: str
    epoch: int
    client_id: str
    client_host: str
    endpoint_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topology: Topology | None = None
    has_patterns: bool = False  # among the source topics
    owned: Tasks | None = None
    unreported: str | None = None  # a kind of tasks that a joining member must report as empty, and does not
    process_id: str | None = None
    endpoint: tuple[str, int] | None = None
    client_tags: Mapping[str, str] | None = None
    has_task_offsets: bool = False
    shuts_down: bool = False


@dataclass(frozen=True, slots=True)
class EndpointPartitions:
    """What a process reads and stands by for, at the address where it serves queries."""

    endpoint: tuple[str, int]
    active: Mapping[str, list[int]]
    standby: Mapping[str, list[int]]


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """The response. `tasks` and `endpoints` are None where nothing is new; `missing` are topics to be created."""

    member_id: str
    epoch: int
    interval_ms: int = 0
    tasks: Tasks | None = None
    statuses: tuple[Status, ...] = ()
    endpoint_epoch: int = 0
    endpoints: tuple[EndpointPartitions, ...] | None = None
    missing: tuple[InternalTopic, ...] = ()
    partitions: Mapping[str, int] | None = None  # of the missing topics


class StreamsGroupCoordinator:
    """All groups of Kafka Streams of the cluster."""

    def __init__(
        self, options: Options, timers: Timers, registry: GroupRegistry, image: TopicsImage, configs: GroupConfigs
    ) -> None:
        self._options = options
        self._timers = timers
        self._registry = registry
        self._image = image
        self._configs = configs

    def get(self, group_id: str) -> StreamsGroup | None:
        """Return a group, None if there is none of this id and type."""
        return self._registry.find(group_id, StreamsGroup)

    def find(self, group_id: str) -> StreamsGroup:
        """Return a group. Raises GROUP_ID_NOT_FOUND."""
        group = self._registry.get(group_id)
        if group is None:
            raise broker_error(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        if not isinstance(group, StreamsGroup):
            raise broker_error(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a streams group.")
        return group

    # Heartbeats.

    def heartbeat(self, beat: Heartbeat, now: float) -> HeartbeatResult:
        """Handle one heartbeat: epoch 0 joins, -1 leaves. Raises BrokerError."""
        _check(beat)
        if beat.epoch == LEAVE_EPOCH:
            return self._leave(beat, now)
        is_new = beat.group_id not in self._registry
        group = self._find_or_create(beat, now)
        member = self._find_member(group, beat)
        had = member.current.assigned
        changed = self._update(group, member, beat)
        if group.update_topics(self._image) or changed:
            group.epoch += 1
        if group.epoch > group.assignment_epoch:
            group.compute_targets(self._configs.of(group.id).streams_standby_replicas)
        self._reconcile(group, member, beat.owned, now)
        self._restart_session(group, member, now)
        if beat.shuts_down:
            group.shutdown_requested_by = member.id
        return self._result(group, member, beat, had, is_new=is_new)

    def _find_or_create(self, beat: Heartbeat, now: float) -> StreamsGroup:
        known = self._registry.get(beat.group_id)
        if beat.epoch == JOIN_EPOCH and (known is None or (known.TYPE == "classic" and known.is_empty)):
            if known is None and self._registry.is_full:
                raise broker_error(ErrorCode.COORDINATOR_NOT_AVAILABLE, "there are max_groups groups already")
            if known is not None:
                known.dispose()
            assert beat.topology is not None
            self._check_topology(beat.topology)
            made = StreamsGroup(beat.group_id, empty_since=now)
            self._registry.put(made)
            return made
        group = self.find(beat.group_id)
        most = self._options.streams_group_max_size
        if len(group.members) >= most and beat.member_id not in group.members:
            why = f"The streams group has reached its maximum capacity of {most} members."
            raise broker_error(ErrorCode.GROUP_MAX_SIZE_REACHED, why)
        if beat.topology is not None:
            self._check_topology(beat.topology)
            known_topology = group.topology
            is_older = known_topology is not None and beat.topology.epoch < known_topology.epoch
            if known_topology is not None and not is_older and beat.topology != known_topology:
                raise _invalid("Topology updates are not supported yet.")
        return group

    @staticmethod
    def _check_topology(topology: Topology) -> None:
        for one in topology.subtopologies:
            if (changelog := invalid_changelog(one.changelogs)) is not None:
                why = (
                    f"Changelog topic {changelog.name} must have an undefined partition count, but it is set to "
                    f"{changelog.partitions}."
                )
                raise broker_error(ErrorCode.STREAMS_INVALID_TOPOLOGY, why)

    def _find_member(self, group: StreamsGroup, beat: Heartbeat) -> StreamsMember:
        """Return the member, which is a new one if it joins. A wrong epoch is fenced."""
        member = group.members.get(beat.member_id)
        if member is None:
            if beat.epoch != JOIN_EPOCH:
                raise _unknown_member(group, beat.member_id)
            return StreamsMember(beat.member_id)
        if beat.epoch not in (JOIN_EPOCH, member.epoch):
            self._check_epoch(member, beat)
        return member

    @staticmethod
    def _check_epoch(member: StreamsMember, beat: Heartbeat) -> None:
        """Accept the previous epoch with tasks that the member has: a response was lost."""
        is_lost = beat.epoch == member.current.previous_epoch and beat.owned is not None
        if is_lost and beat.owned is not None and not beat.owned - member.current.assigned:
            return
        size = "greater" if beat.epoch > member.epoch else "smaller"
        why = (
            f"The streams group member has a {size} member epoch ({beat.epoch}) than the one known by the group "
            f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin."
        )
        raise broker_error(ErrorCode.FENCED_MEMBER_EPOCH, why)

    @staticmethod
    def _update(group: StreamsGroup, member: StreamsMember, beat: Heartbeat) -> bool:
        """Take over what a heartbeat says. Return whether a new group epoch begins."""
        before = member.rack_id, member.topology_epoch, member.process_id, member.endpoint, member.client_tags
        is_new = member.id not in group.members
        group.members[member.id] = member
        group.empty_since = None
        member.client_id, member.client_host = beat.client_id, beat.client_host
        if beat.rack_id is not None:
            member.rack_id = beat.rack_id
        if beat.rebalance_timeout_ms != -1:
            member.rebalance_timeout_ms = beat.rebalance_timeout_ms
        if beat.process_id is not None:
            member.process_id = beat.process_id
        if beat.endpoint is not None:
            member.endpoint = beat.endpoint
        if beat.client_tags is not None:
            member.client_tags = beat.client_tags
        if beat.topology is not None:
            member.topology_epoch = beat.topology.epoch
            if group.topology is None:
                group.topology, group.topics_revision = beat.topology, -1
        after = member.rack_id, member.topology_epoch, member.process_id, member.endpoint, member.client_tags
        return is_new or before != after

    def _result(
        self, group: StreamsGroup, member: StreamsMember, beat: Heartbeat, had: Tasks, *, is_new: bool
    ) -> HeartbeatResult:
        has_news = beat.epoch == JOIN_EPOCH or member.current.assigned != had
        endpoint_epoch = group.endpoint_epoch + (has_news and member.endpoint is not None)
        if not is_new:
            group.endpoint_epoch = endpoint_epoch
        configured = group.configured
        return HeartbeatResult(
            member.id, member.epoch, self._configs.of(group.id).streams_heartbeat_interval_ms,
            member.current.assigned if has_news else None, tuple(_statuses(group, member)), group.endpoint_epoch,
            _endpoints(group) if endpoint_epoch != beat.endpoint_epoch else None,
            configured.missing, configured.partitions,
        )  # fmt: skip

    # Steps of members.

    def _reconcile(self, group: StreamsGroup, member: StreamsMember, owned: Tasks | None, now: float) -> None:
        before = member.current
        group.reconcile(member, owned)
        if member.current is before:
            return
        if member.revocation is not None:
            member.revocation.cancel()
            member.revocation = None
        if member.current.state is MemberState.UNREVOKED_PARTITIONS:
            self._start_revocation(group, member, now)

    def _start_revocation(self, group: StreamsGroup, member: StreamsMember, now: float) -> None:
        until, epoch = now + member.rebalance_timeout_ms / 1000, member.epoch

        def expire(now: float) -> None:
            if member.epoch == epoch:
                self._fence(group, member, now)

        member.revocation = self._timers.at(until, expire)

    def _restart_session(self, group: StreamsGroup, member: StreamsMember, now: float) -> None:
        if member.session is not None:
            member.session.cancel()
        timeout = self._configs.of(group.id).streams_session_timeout_ms / 1000
        member.session = self._timers.at(now + timeout, lambda now: self._fence(group, member, now))

    def _leave(self, beat: Heartbeat, now: float) -> HeartbeatResult:
        group = self.find(beat.group_id)
        member = group.members.get(beat.member_id)
        if member is None:
            raise _unknown_member(group, beat.member_id)
        group.remove(member, now)
        return HeartbeatResult(beat.member_id, beat.epoch)

    @staticmethod
    def _fence(group: StreamsGroup, member: StreamsMember, now: float) -> None:
        """Remove a member whose time is over. The others get new targets with the next heartbeat."""
        if group.members.get(member.id) is member:
            group.remove(member, now)

    def coordinators_moved(self, group_ids: Iterable[str], now: float) -> None:
        """Restart the timers of all members: these groups have a new coordinator."""
        for group in (self.get(group_id) for group_id in group_ids):
            for member in group.members.values() if group is not None else ():
                assert group is not None
                self._restart_session(group, member, now)
                if member.revocation is not None:
                    member.revocation.cancel()
                    self._start_revocation(group, member, now)

    # Commits.

    @staticmethod
    def check_member(group: StreamsGroup, member_id: str | None, epoch: int, *, is_optional: bool) -> None:
        """Check the member that commits or fetches offsets. Others, such as admin clients, may where `is_optional`."""
        if epoch < 0 and is_optional:
            return
        member = group.members.get(member_id or "")
        if member is None:
            raise _unknown_member(group, member_id)
        if epoch != member.epoch:
            why = f"The received member epoch {epoch} does not match the expected member epoch {member.epoch}."
            raise broker_error(ErrorCode.STALE_MEMBER_EPOCH, why)


def _check(beat: Heartbeat) -> None:
    """Raise INVALID_REQUEST for a heartbeat that no group could accept."""
    why = None
    if beat.epoch < LEAVE_STATIC_EPOCH:
        why = f"MemberEpoch is {beat.epoch}, but must be greater than or equal to {LEAVE_STATIC_EPOCH}."
    elif beat.epoch == LEAVE_STATIC_EPOCH and beat.instance_id is None:
        why = "InstanceId can't be null."
    elif beat.instance_id is not None:
        why = "Static membership is not yet supported."
    elif beat.has_task_offsets:
        why = "TaskOffsets are not supported yet."
    elif beat.has_patterns:
        why = "Regular expressions for source topics are not supported yet."
    elif not beat.member_id:
        why = "MemberId can't be empty."
    elif not beat.group_id:
        why = "GroupId can't be empty."
    elif beat.rack_id == "":
        why = "RackId can't be empty."
    elif beat.epoch == JOIN_EPOCH:
        if beat.rebalance_timeout_ms == -1:
            why = "RebalanceTimeoutMs must be provided in first request."
        elif beat.topology is None:
            why = "Topology must be non-null when (re-)joining."
        elif beat.unreported is not None:
            why = f"{beat.unreported} must be empty when (re-)joining."
    if why is not None:
        raise _invalid(why)


def _statuses(group: StreamsGroup, member: StreamsMember) -> Iterable[Status]:
    if group.topology is not None and member.topology_epoch < group.topology.epoch:
        yield (
            STALE_TOPOLOGY,
            f"The member's topology epoch {member.topology_epoch} is behind the group's topology epoch "
            f"{group.topology.epoch}.",
        )
    if group.configured.status is not None:
        yield group.configured.status
    if group.shutdown_requested_by is not None:
        yield (
            SHUTDOWN_APPLICATION,
            f"Streams group member {group.shutdown_requested_by} encountered a fatal error and requested a shutdown "
            "for the entire application.",
        )


def _endpoints(group: StreamsGroup) -> tuple[EndpointPartitions, ...] | None:
    """Return what each address serves, None if no member has one."""
    found = [
        EndpointPartitions(
            member.endpoint, group.source_partitions(member.current.assigned.active),
            group.source_partitions(member.current.assigned.standby),
        )
        for member in group.members.values()
        if member.endpoint is not None
    ]  # fmt: skip
    return tuple(found) or None


def _unknown_member(group: StreamsGroup, member_id: str | None) -> BrokerError:
    return broker_error(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.id}.")


def _invalid(why: str) -> BrokerError:
    return broker_error(ErrorCode.INVALID_REQUEST, why)
