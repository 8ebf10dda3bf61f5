"""Groups: list, describe and delete them; read, set, reset and delete their offsets; lag.

Kafka has classic groups, consumer groups (KIP-848), share groups (KIP-932) and groups of Kafka Streams (KIP-1071).
Requests about a group go to its coordinator; `list` sends one to every broker. The methods exist for threads (`Groups`)
and for asyncio (`kwire.aio`), over the coroutines of `GroupAdmin`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal, TypeVar

from kwire.admin.noun import by_topic, check_code, checked_mapping, checked_name, checked_names, error_or_none, raised
from kwire.admin.offsets import Isolation, LogOffsets, checked_isolation
from kwire.admin.results import Results
from kwire.admin.routed import NextRequest
from kwire.cluster import ToCoordinator
from kwire.cluster.waiting import blocking
from kwire.consumer.arguments import checked_partitions
from kwire.consumer.assignors.protocol import parse_assignment, parse_subscription
from kwire.consumer.offsets import NO_OFFSET, Ago, AtTimestamp, FoundOffset, Offset, OffsetsQuery
from kwire.errors import (
    BrokerError,
    ConfigurationError,
    DecodeError,
    ErrorCode,
    KwireError,
    UnsupportedVersionError,
    broker_error,
)
from kwire.protocol import Request
from kwire.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from kwire.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from kwire.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from kwire.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from kwire.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kwire.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from kwire.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kwire.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kwire.protocol.messages.list_offsets import EARLIEST, LATEST
from kwire.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kwire.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from kwire.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from kwire.protocol.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from kwire.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse
from kwire.protocol.messages.streams_group_heartbeat import StreamsTaskIds

TopicPartition = tuple[str, int]
GroupType = Literal["classic", "consumer", "share", "streams"]
ResetTarget = Literal["earliest", "latest", "current"] | datetime | timedelta | Ago | AtTimestamp | int
T = TypeVar("T")
Name = TypeVar("Name")
Result = TypeVar("Result")

_STATES_SINCE, _TYPES_SINCE = 4, 5
_ALL_OFFSETS_SINCE = 2  # OffsetFetch
_OFFSETS_OF_GROUPS_SINCE = 8  # OffsetFetch
_MEMBERS_SINCE = 3  # LeaveGroup
_NAMES_UNTIL = 9  # OffsetFetch and OffsetCommit: later versions have topic ids
_LAG_SINCE = 1  # DescribeShareGroupOffsets
_GRACE_SECONDS = 5.0
_NAMED_TARGETS = frozenset({"earliest", "latest", "current"})
_MEMBERLESS_STATES = frozenset({"Empty", "Dead"})
_COORDINATOR_CODES = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)
_NO_SUCH_GROUP_CODES = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group as `list` returns it. Brokers before Kafka 2.6 do not send `state`, which is "" then."""

    id: str
    type: GroupType
    state: str
    protocol_type: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class StreamsTasks:
    """The tasks of a member of a group of Kafka Streams, each as (subtopology id, partition)."""

    active: tuple[tuple[str, int], ...] = ()
    standby: tuple[tuple[str, int], ...] = ()
    warmup: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Subtopology:
    """A part of the topology of Kafka Streams, whose tasks are one per partition of its source topics."""

    id: str
    source_topics: tuple[str, ...] = ()
    repartition_source_topics: tuple[str, ...] = ()
    repartition_sink_topics: tuple[str, ...] = ()
    changelog_topics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group. Classic members have no epoch (-1), no target and no server-side pattern.

    Members of Kafka Streams have `tasks`, and no topics and partitions.
    """

    id: str
    client_id: str
    host: str
    instance_id: str | None = None
    rack: str | None = None
    epoch: int = -1
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assignment: tuple[TopicPartition, ...] = ()
    target: tuple[TopicPartition, ...] = ()
    tasks: StreamsTasks | None = None
    target_tasks: StreamsTasks | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """A group and its members. Classic groups have no epochs (-1); `assignor` is their protocol's name.

    Only groups of Kafka Streams have a `topology`, the epoch of which is `topology_epoch`.
    """

    id: str
    type: GroupType
    state: str
    protocol_type: str
    assignor: str
    epoch: int = -1
    assignment_epoch: int = -1
    members: tuple[GroupMember, ...] = ()
    topology: tuple[Subtopology, ...] = ()
    topology_epoch: int = -1

    def owner(self, partition: TopicPartition) -> GroupMember | None:
        """Return the member that has this partition."""
        return next((member for member in self.members if partition in member.assignment), None)


@dataclass(frozen=True, slots=True)
class Move:
    """What a reset changes: the committed offset of a partition, None where there is none."""

    topic: str
    partition: int
    before: int | None
    after: int


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far a group is behind in one partition. `committed` and `records` are None where it has committed nothing.

    `end` is None, with an `error`, where the end of the log could not be found.
    """

    topic: str
    partition: int
    committed: int | None
    end: int | None
    records: int | None
    member: GroupMember | None = None
    error: KwireError | None = None


@dataclass(frozen=True, slots=True)
class GroupLag:
    """The lag of a group. `total` counts the partitions whose `records` are known."""

    group: str
    total: int
    by_partition: tuple[PartitionLag, ...] = field(default=())

    @property
    def errors(self) -> dict[TopicPartition, KwireError]:
        """Return the errors of the partitions whose end could not be found."""
        return {(one.topic, one.partition): one.error for one in self.by_partition if one.error is not None}


class GroupAdmin(LogOffsets):
    """The methods of `Admin.groups` as coroutines, which wait only through the client's waiter."""

    # -- groups

    async def _list(
        self,
        *,
        types: Iterable[GroupType] = (),
        states: Iterable[str] = (),
        protocol_types: Iterable[str] = (),
        timeout: float | None = None,
    ) -> list[GroupListing]:
        """Return the groups of the cluster, sorted by id; with filters only those of these types, states and protocols.

        Raises UnsupportedVersionError for a filter that a broker does not know: states need Kafka 2.6, types 3.8.
        A broker that cannot be reached is an error, since its groups would be missing.
        """
        deadline = self._deadline(timeout)
        wanted_types, wanted_states = checked_names("types", types), checked_names("states", states)
        wanted_protocols = checked_names("protocol_types", protocol_types)

        def build(version: int) -> ListGroupsRequest:
            _require(version, _STATES_SINCE, wanted_states, "states", "2.6")
            _require(version, _TYPES_SINCE, wanted_types, "types", "3.8")
            return ListGroupsRequest(states_filter=sorted(wanted_states), types_filter=sorted(wanted_types))

        known = await self._snapshot([], deadline)
        responses: dict[int, ListGroupsResponse] = await self._ask_brokers(
            known.brokers, ListGroupsRequest, build, deadline
        )
        found: dict[str, GroupListing] = {}
        for node, response in responses.items():
            if response.error_code:
                raise broker_error(response.error_code, api="ListGroups", broker=self._runtime.describe(node))
            for one in response.groups:
                if not wanted_protocols or one.protocol_type in wanted_protocols:
                    found[one.group_id] = GroupListing(
                        one.group_id, _type(one.group_type), one.group_state, one.protocol_type, node
                    )
        return [found[group] for group in sorted(found)]

    async def _describe(self, group: str, *, timeout: float | None = None) -> Group:
        """Return a group with its members. GROUP_ID_NOT_FOUND where there is none."""
        found = await self._describe_all([checked_name("group", group)], self._deadline(timeout))
        return raised(found, group)

    async def _describe_many(self, groups: Iterable[str], *, timeout: float | None = None) -> Results[str, Group]:
        """Return several groups with their members."""
        return Results(await self._describe_all(_group_ids(groups), self._deadline(timeout)))

    async def _delete(self, groups: str | Iterable[str], *, timeout: float | None = None) -> Results[str, None]:
        """Delete groups with their offsets. A group that has members is not deleted: NON_EMPTY_GROUP.

        A single group's error is raised.
        """
        names = _group_ids(groups)
        results = await self._coordinated(
            names, DeleteGroupsRequest, lambda name, version: DeleteGroupsRequest(groups_names=[name]), _deleted,
            self._deadline(timeout),
        )  # fmt: skip
        if isinstance(groups, str):
            raised(results, groups)
        return Results(results)

    async def _remove_members(
        self, group: str, *, instance_ids: Iterable[str] = (), every: bool = False, reason: str = "",
        timeout: float | None = None,
    ) -> Results[str, None]:  # fmt: skip
        """Remove static members by their instance ids, or every member, and so let the others take their partitions.

        The result has instance ids, and member ids of members without one. Members that run join again.
        """
        checked_name("group", group)
        wanted = checked_names("instance_ids", instance_ids)
        if not isinstance(reason, str):
            raise ConfigurationError(f"reason is {reason!r:.60}", remedy="give a str")
        if bool(every) == bool(wanted):
            raise ConfigurationError("no members are named", remedy="give instance_ids=[...] or every=True")
        deadline = self._deadline(timeout)
        members = [LeaveGroupRequest.Member(member_id="", group_instance_id=one, reason=reason or None)
                   for one in sorted(wanted)]  # fmt: skip
        if every:
            described = await self._describe(group, timeout=self._left(deadline))
            members = [
                LeaveGroupRequest.Member(member_id=one.id, group_instance_id=one.instance_id, reason=reason or None)
                for one in described.members
            ]
        if not members:
            return Results({})

        def build(name: str, version: int) -> LeaveGroupRequest:
            if version < _MEMBERS_SINCE:
                raise UnsupportedVersionError("brokers before Kafka 2.4 cannot remove several members", group=name)
            return LeaveGroupRequest(group_id=name, members=members)

        found = await self._coordinated([group], LeaveGroupRequest, build, _members_left, deadline)
        return Results(raised(found, group))

    # -- offsets

    async def _offsets(self, group: str, *, timeout: float | None = None) -> dict[TopicPartition, Offset]:
        """Return what a group has committed, by partition. For a share group: the start of what is not done yet."""
        checked_name("group", group)
        deadline = self._deadline(timeout)
        return await self._offsets_of(group, await self._is_share(group, deadline), deadline)

    async def _offsets_of(self, group: str, is_share: bool, deadline: float) -> dict[TopicPartition, Offset]:
        if is_share:
            share = raised(await self._share_offsets_of([group], deadline), group)
            return {key: one.start for key, one in share.items()}
        return raised(await self._committed_offsets_of([group], deadline), group)

    async def _committed_offsets_of(
        self, groups: Sequence[str], deadline: float
    ) -> dict[str, dict[TopicPartition, Offset] | KwireError]:
        api, build, parse, _, at_most = _OFFSETS_OF_OTHERS
        return await self._coordinated(groups, api, build, parse, deadline, at_most)

    async def _set_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int | Offset], *, timeout: float | None = None
    ) -> Results[TopicPartition, None]:
        """Set what a group has committed. The group must have no members."""
        checked_name("group", group)
        wanted: dict[TopicPartition, Offset] = {}
        for key, one in _pairs(offsets).items():
            if not isinstance(one, Offset) and (isinstance(one, bool) or not isinstance(one, int) or one < 0):
                raise ConfigurationError(
                    f"the offset of {key[0]}-{key[1]} is {one!r:.60}", remedy="give a whole number from 0 up"
                )
            wanted[key] = one if isinstance(one, Offset) else Offset(one)
        if not wanted:
            return Results({})
        deadline = self._deadline(timeout)
        return await self._set_offsets_of(group, await self._is_share(group, deadline), wanted, deadline)

    async def _set_offsets_of(
        self, group: str, is_share: bool, wanted: Mapping[TopicPartition, Offset], deadline: float
    ) -> Results[TopicPartition, None]:
        if is_share:
            build_share = partial(_alter_share_offsets, wanted)
            altered = await self._coordinated(
                [group], AlterShareGroupOffsetsRequest, build_share, _share_offsets_altered, deadline
            )
            return Results(raised(altered, group))
        found = await self._coordinated(
            [group], OffsetCommitRequest, partial(_offset_commit, wanted), _offsets_set, deadline, at_most=_NAMES_UNTIL
        )
        return Results(raised(found, group))

    async def _delete_offsets(
        self, group: str, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> Results[TopicPartition, None]:
        """Delete committed offsets. Members must not be subscribed to the topics: GROUP_SUBSCRIBED_TO_TOPIC.

        Of a share group the offsets of whole topics are deleted.
        """
        checked_name("group", group)
        wanted = list(dict.fromkeys(checked_partitions(partitions)))
        if not wanted:
            return Results({})
        deadline = self._deadline(timeout)
        if await self._is_share(group, deadline):
            build = partial(_delete_share_offsets, wanted)
            deleted = await self._coordinated(
                [group], DeleteShareGroupOffsetsRequest, build, _share_offsets_deleted, deadline
            )
            by_topic = raised(deleted, group)
            return Results({key: by_topic.get(key[0]) for key in wanted})
        build_delete = partial(_offset_delete, wanted)
        return Results(
            raised(
                await self._coordinated([group], OffsetDeleteRequest, build_delete, _offsets_deleted, deadline), group
            )
        )

    async def _reset(
        self,
        group: str,
        to: ResetTarget | None = None,
        *,
        by: int | None = None,
        topics: Iterable[str] | None = None,
        dry_run: bool = False,
        timeout: float | None = None,
    ) -> list[Move]:
        """Set what a group has committed to a point in its topics, and return what changes.

        to       "earliest", "latest", "current" (only commits what it has), a datetime, a timedelta or `Ago` back from
                 now, `AtTimestamp`, or an offset from 0 up
        by       instead of `to`: this many records forward, or back if it is negative
        topics   the topics to reset; by default those of which the group has committed offsets
        dry_run  return the moves and change nothing

        Offsets are kept inside the log. Raises NON_EMPTY_GROUP, with the members, while the group has members.
        """
        checked_name("group", group)
        if (to is None) == (by is None):
            raise ConfigurationError("a reset needs a target", remedy="give to=... or by=...")
        if by is not None and (isinstance(by, bool) or not isinstance(by, int)):
            raise ConfigurationError(f"by is {by!r:.60}", remedy="give a number of records, negative to go back")
        is_offset = isinstance(to, int) and not isinstance(to, bool)
        if isinstance(to, int) and to < 0:  # Kafka has -1 for the end and -2 for the beginning
            raise ConfigurationError(
                f"to is {to}", remedy='give an offset from 0 up; "latest" is the end, and by=-1 goes back one record'
            )
        if by is None and not is_offset and not (isinstance(to, str) and to in _NAMED_TARGETS):
            _timestamp_ms(to, 0)
        named = None if topics is None else checked_names("topics", topics)
        deadline = self._deadline(timeout)
        found = (await self._describe_all([group], deadline))[group]
        is_share = isinstance(found, Group) and found.type == "share"
        committed = {key: one.offset for key, one in (await self._offsets_of(group, is_share, deadline)).items()}
        _check_memberless(found, group, bool(committed))
        keys = sorted(committed) if named is None else await self._partitions_of(named, deadline)
        after = await self._targets(keys, committed, to, by, deadline)
        moves = [Move(*key, committed.get(key), after[key]) for key in keys if key in after]
        if not dry_run:
            wanted = {key: Offset(one) for key, one in after.items()}
            if wanted:
                (await self._set_offsets_of(group, is_share, wanted, deadline)).check()
        return moves

    async def _lag(
        self, group: str, *, isolation: Isolation = "read_uncommitted", timeout: float | None = None
    ) -> GroupLag:
        """Return how many records a group has still to process, per partition and in all.

        With "read_committed" the end is the last stable offset, as members with this isolation see it. Partitions that
        a member has and the group never committed are listed without a lag, and so are those whose end could not be
        found, such as one without a leader: they have an `error`.
        """
        checked_name("group", group)
        checked_isolation(isolation)
        return raised(await self._lags([group], isolation, self._deadline(timeout)), group)

    async def _lag_many(
        self, groups: Iterable[str], *, isolation: Isolation = "read_uncommitted", timeout: float | None = None
    ) -> Results[str, GroupLag]:
        """Return the lag of several groups."""
        deadline = self._deadline(timeout)
        checked_isolation(isolation)
        return Results(await self._lags(_group_ids(groups), isolation, deadline))

    # -- parts

    async def _describe_all(self, names: Sequence[str], deadline: float) -> dict[str, Group | KwireError]:
        return await self._described(names, lambda group: group, deadline)

    async def _described(
        self, names: Sequence[str], then: Callable[[Group], T | NextRequest], deadline: float
    ) -> dict[str, T | KwireError]:
        """Describe each group, and return what `then` makes of it: called in the client's own thread."""
        first, *others = (
            NextRequest(api, build, partial(_parsed, parse, then), _is_of_another_type)
            for api, build, parse in _DESCRIPTIONS
        )
        routes = {name: ToCoordinator(name) for name in names}
        return await self._routed(routes, first.api, first.build, first.parse, deadline, others=others)

    async def _lags(
        self, names: Sequence[str], isolation: Isolation, deadline: float
    ) -> dict[str, GroupLag | KwireError]:
        """Return the lag of each group. None waits for another one's: each request follows the response before it."""
        fetcher = self._fetcher(deadline, isolation)
        asked: set[TopicPartition] = set()
        queries: list[OffsetsQuery] = []

        def ask_for_offsets(group: Group) -> NextRequest:
            request = _OFFSETS_OF_SHARE if group.type == "share" else _OFFSETS_OF_OTHERS
            return request._replace(parse=partial(_parsed, request.parse, partial(ask_for_ends, group)))

        def ask_for_ends(group: Group, committed: _Committed) -> tuple[Group, _Committed]:
            keys = sorted(_partitions(group, committed) - asked)
            asked.update(keys)
            queries.append(OffsetsQuery(fetcher, dict.fromkeys(keys, LATEST), self._left(deadline)))
            return group, committed

        self._runtime.add(fetcher)
        try:
            found = await self._described(names, ask_for_offsets, deadline)
            ends: dict[TopicPartition, FoundOffset | KwireError] = {}
            for query in queries:
                of_query = await self._waiter.result_of(query.results, self._left(deadline) + _GRACE_SECONDS)
                ends.update(of_query)
        finally:
            self._runtime.remove(fetcher)
        return {
            name: one if isinstance(one, KwireError) else _group_lag(one[0], one[1], ends)
            for name, one in found.items()
        }

    async def _targets(
        self,
        keys: Sequence[TopicPartition],
        committed: Mapping[TopicPartition, int],
        to: ResetTarget | None,
        by: int | None,
        deadline: float,
    ) -> dict[TopicPartition, int]:
        starts = await self._offsets_at(dict.fromkeys(keys, EARLIEST), deadline)
        ends = await self._offsets_at(dict.fromkeys(keys, LATEST), deadline)
        if by is not None:
            wanted = {key: committed[key] + by for key in keys if key in committed}
        elif to == "current":
            wanted = {key: committed[key] for key in keys if key in committed}
        elif to == "earliest":
            wanted = {key: starts[key].offset for key in keys}
        elif to == "latest":
            wanted = {key: ends[key].offset for key in keys}
        elif isinstance(to, int) and not isinstance(to, bool):
            wanted = dict.fromkeys(keys, to)
        else:
            found = await self._offsets_at(dict.fromkeys(keys, _timestamp_ms(to, self._now_ms())), deadline)
            wanted = {key: ends[key].offset if one.offset == NO_OFFSET else one.offset for key, one in found.items()}
        return {key: min(max(one, starts[key].offset), ends[key].offset) for key, one in wanted.items()}

    def _now_ms(self) -> int:
        return int(datetime.now().timestamp() * 1000)

    async def _is_share(self, group: str, deadline: float) -> bool:
        """Return whether this is a share group. Brokers without share groups have none."""
        try:
            found = await self._coordinated([group], *_DESCRIBE_SHARE, deadline)
        except UnsupportedVersionError:
            return False
        return isinstance(found[group], Group)

    async def _share_offsets_of(
        self, groups: Sequence[str], deadline: float
    ) -> dict[str, dict[TopicPartition, ShareOffset] | KwireError]:
        api, build, parse, *_ = _OFFSETS_OF_SHARE
        return await self._coordinated(groups, api, build, parse, deadline)

    # -- requests

    async def _coordinated(
        self,
        groups: Sequence[str],
        api: type[Request[Any]],
        build: Callable[[str, int], Request[Any]],
        parse: Callable[[str, Any, bool], T],
        deadline: float,
        at_most: int | None = None,
    ) -> dict[str, T | KwireError]:
        routes = {group: ToCoordinator(group) for group in groups}
        return await self._routed(routes, api, build, parse, deadline, at_most)


class Groups(GroupAdmin):
    """`Admin.groups`, for threads. Each method blocks for at most `timeout` seconds, by default request_timeout_ms.

    A call that names one thing returns its result or raises its error; a call that names several returns `Results`.
    """

    list = blocking(GroupAdmin._list)
    delete = blocking(GroupAdmin._delete)
    remove_members = blocking(GroupAdmin._remove_members)
    offsets = blocking(GroupAdmin._offsets)
    set_offsets = blocking(GroupAdmin._set_offsets)
    delete_offsets = blocking(GroupAdmin._delete_offsets)
    reset = blocking(GroupAdmin._reset)
    describe = blocking(GroupAdmin._describe)
    describe_many = blocking(GroupAdmin._describe_many)
    lag = blocking(GroupAdmin._lag)
    lag_many = blocking(GroupAdmin._lag_many)


# -- arguments


def _group_ids(groups: str | Iterable[str]) -> list[str]:
    return checked_names("groups", [groups] if isinstance(groups, str) else groups)


def _pairs(keys: Mapping[TopicPartition, T]) -> dict[TopicPartition, T]:
    checked_mapping("offsets", keys, '{("orders", 0): 1000}')
    return dict(zip(checked_partitions(keys), keys.values(), strict=True))


def _timestamp_ms(to: datetime | timedelta | Ago | AtTimestamp | object, now_ms: int) -> int:
    match to:
        case datetime():
            return int(to.timestamp() * 1000)
        case timedelta():
            return Ago(abs(to)).timestamp_ms(now_ms)
        case Ago():
            return to.timestamp_ms(now_ms)
        case AtTimestamp():
            return to.timestamp_ms
    raise ConfigurationError(
        f"to is {to!r:.60}",
        remedy='give "earliest", "latest", "current", a datetime, a timedelta, Ago, AtTimestamp or an offset',
    )


# -- results


def _check_memberless(found: Group | KwireError, group: str, has_offsets: bool) -> None:
    """Raise NON_EMPTY_GROUP, with the members, or why the group could not be described."""
    if isinstance(found, BrokerError) and found.code == ErrorCode.GROUP_ID_NOT_FOUND and not has_offsets:
        return  # a new group, whose offsets are set before its first member joins
    if isinstance(found, KwireError):
        raise found
    if found.state not in _MEMBERLESS_STATES:
        members = ", ".join(f"{one.client_id} at {one.host}" for one in found.members[:5])
        raise broker_error(
            ErrorCode.NON_EMPTY_GROUP,
            f"the group is {found.state}; its members: {members or 'not known yet'}",
            remedy="stop its members first",
            group=group,
        )


def _type(name: str) -> GroupType:
    """Return the type of a group; brokers before Kafka 3.8 have classic groups only, and send none."""
    lowered = name.lower()
    return lowered if lowered in ("consumer", "share", "streams") else "classic"  # type: ignore[return-value]


def _require(version: int, since: int, names: Collection[str], what: str, kafka: str) -> None:
    if names and version < since:
        raise UnsupportedVersionError(
            f"the broker cannot filter groups by {what}", remedy=f"this needs Kafka {kafka}: list all and filter them"
        )


# -- describe: consumer groups, share groups, groups of Kafka Streams, classic groups


def _is_of_another_type(error: KwireError) -> bool:
    if isinstance(error, BrokerError):
        return error.code in _NO_SUCH_GROUP_CODES
    return isinstance(error, UnsupportedVersionError)


def _partitions_of(assignment: Any) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted((topic.topic_name, partition) for topic in assignment.topic_partitions for partition in topic.partitions)
    )


def _consumer_group(group: str, response: ConsumerGroupDescribeResponse, in_doubt: bool) -> Group:
    one = response.groups[0]
    check_code(one.error_code, "ConsumerGroupDescribe", one.error_message, group=group)
    members = tuple(
        GroupMember(
            member.member_id, member.client_id, member.client_host, member.instance_id, member.rack_id,
            member.member_epoch, tuple(member.subscribed_topic_names), member.subscribed_topic_regex or None,
            _partitions_of(member.assignment), _partitions_of(member.target_assignment),
        )
        for member in one.members
    )  # fmt: skip
    return Group(
        group,
        "consumer",
        one.group_state,
        "consumer",
        one.assignor_name,
        one.group_epoch,
        one.assignment_epoch,
        members,
    )


def _share_group(group: str, response: ShareGroupDescribeResponse, in_doubt: bool) -> Group:
    one = response.groups[0]
    check_code(one.error_code, "ShareGroupDescribe", one.error_message, group=group)
    members = tuple(
        GroupMember(
            member.member_id, member.client_id, member.client_host, None, member.rack_id, member.member_epoch,
            tuple(member.subscribed_topic_names), None, _partitions_of(member.assignment),
        )
        for member in one.members
    )  # fmt: skip
    return Group(
        group, "share", one.group_state, "share", one.assignor_name, one.group_epoch, one.assignment_epoch, members
    )


def _streams_group(group: str, response: StreamsGroupDescribeResponse, in_doubt: bool) -> Group:
    one = response.groups[0]
    check_code(one.error_code, "StreamsGroupDescribe", one.error_message, group=group)
    members = tuple(
        GroupMember(
            member.member_id, member.client_id, member.client_host, member.instance_id, member.rack_id,
            member.member_epoch, tasks=_tasks(member.assignment), target_tasks=_tasks(member.target_assignment),
        )
        for member in one.members
    )  # fmt: skip
    parts = (one.topology.subtopologies if one.topology is not None else None) or ()
    topology = tuple(
        Subtopology(
            part.subtopology_id,
            tuple(part.source_topics),
            tuple(topic.name for topic in part.repartition_source_topics),
            tuple(part.repartition_sink_topics),
            tuple(topic.name for topic in part.state_changelog_topics),
        )
        for part in parts
    )
    return Group(
        group, "streams", one.group_state, "streams", one.assignor_name or "", one.group_epoch, one.assignment_epoch,
        members, topology, -1 if one.topology is None else one.topology.epoch,
    )  # fmt: skip


def _tasks(assignment: StreamsGroupDescribeResponse.Group.Member.Assignment) -> StreamsTasks:
    def pairs(tasks: Iterable[StreamsTaskIds]) -> tuple[tuple[str, int], ...]:
        return tuple(sorted((one.subtopology_id, partition) for one in tasks for partition in one.partitions))

    return StreamsTasks(pairs(assignment.active_tasks), pairs(assignment.standby_tasks), pairs(assignment.warmup_tasks))


def _classic_group(group: str, response: DescribeGroupsResponse, in_doubt: bool) -> Group:
    one = response.groups[0]
    check_code(one.error_code, "DescribeGroups", one.error_message, group=group)
    if one.group_state == "Dead":  # before v6 this is the response for an unknown group
        raise broker_error(ErrorCode.GROUP_ID_NOT_FOUND, api="DescribeGroups", group=group)
    members = tuple(_classic_member(member, one.protocol_type) for member in one.members)
    return Group(group, "classic", one.group_state, one.protocol_type, one.protocol_data, members=members)


def _classic_member(member: DescribeGroupsResponse.Group.Member, protocol_type: str) -> GroupMember:
    """Return a member. Other protocol types, such as Connect's, have bytes of their own: topics stay unknown."""
    topics: tuple[str, ...] = ()
    rack = None
    assignment: tuple[TopicPartition, ...] = ()
    if protocol_type == "consumer":
        with suppress(DecodeError):
            subscription = parse_subscription(member.member_metadata)
            topics, rack = tuple(subscription.topics), subscription.rack
        with suppress(DecodeError):
            assignment = tuple(sorted(parse_assignment(member.member_assignment).partitions))
    return GroupMember(
        member.member_id, member.client_id, member.client_host, member.group_instance_id, rack, -1, topics, None,
        assignment,
    )  # fmt: skip


def _describe_consumer(group: str, version: int) -> ConsumerGroupDescribeRequest:
    return ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)


def _describe_share(group: str, version: int) -> ShareGroupDescribeRequest:
    return ShareGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)


def _describe_streams(group: str, version: int) -> StreamsGroupDescribeRequest:
    return StreamsGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)


def _describe_classic(group: str, version: int) -> DescribeGroupsRequest:
    return DescribeGroupsRequest(groups=[group])


_DESCRIBE_SHARE: tuple[Any, Any, Any] = (ShareGroupDescribeRequest, _describe_share, _share_group)
# In this order: a coordinator returns classic groups last, since an unknown group is a dead classic one to it.
_DESCRIPTIONS: tuple[tuple[Any, Any, Any], ...] = (
    (ConsumerGroupDescribeRequest, _describe_consumer, _consumer_group),
    _DESCRIBE_SHARE,
    (StreamsGroupDescribeRequest, _describe_streams, _streams_group),
    (DescribeGroupsRequest, _describe_classic, _classic_group),
)


def _parsed(
    parse: Callable[[str, Any, bool], Result], then: Callable[[Result], T], group: str, response: Any, in_doubt: bool
) -> T:
    return then(parse(group, response, in_doubt))


# -- delete, remove members


def _deleted(group: str, response: DeleteGroupsResponse, in_doubt: bool) -> None:
    code = response.results[0].error_code
    if code == ErrorCode.GROUP_ID_NOT_FOUND and in_doubt:
        return  # an earlier attempt, whose response was lost, has deleted it
    check_code(code, "DeleteGroups", response.results[0].error_message, group=group)


def _members_left(group: str, response: LeaveGroupResponse, in_doubt: bool) -> dict[str, KwireError | None]:
    check_code(response.error_code, "LeaveGroup", group=group)
    results: dict[str, KwireError | None] = {}
    for member in response.members:
        code = 0 if in_doubt and member.error_code == ErrorCode.UNKNOWN_MEMBER_ID else member.error_code
        name = member.group_instance_id or member.member_id
        results[name] = broker_error(code, api="LeaveGroup", group=group) if code else None
    return results


# -- offsets of classic and consumer groups


def _offset_fetch(group: str, version: int) -> OffsetFetchRequest:
    if version < _ALL_OFFSETS_SINCE:
        raise UnsupportedVersionError(
            "brokers before Kafka 0.10.2 cannot list what a group has committed",
            remedy="use Consumer.committed of the group, which names the partitions",
            group=group,
        )
    if version >= _OFFSETS_OF_GROUPS_SINCE:
        return OffsetFetchRequest(groups=[OffsetFetchRequest.Group(group_id=group, topics=None)])
    return OffsetFetchRequest(group_id=group, topics=None)


def _committed(group: str, response: OffsetFetchResponse, in_doubt: bool) -> dict[TopicPartition, Offset]:
    found: Any = response.groups[0] if response.groups else response
    check_code(found.error_code, "OffsetFetch", group=group)
    offsets: dict[TopicPartition, Offset] = {}
    for topic in found.topics:
        for one in topic.partitions:
            if one.error_code:
                raise broker_error(
                    one.error_code, api="OffsetFetch", topic=topic.name, partition=one.partition_index, group=group
                )
            if one.committed_offset >= 0:
                epoch = one.committed_leader_epoch if one.committed_leader_epoch >= 0 else None
                offsets[topic.name, one.partition_index] = Offset(one.committed_offset, epoch, one.metadata or "")
    return offsets


def _offset_commit(offsets: Mapping[TopicPartition, Offset], group: str, version: int) -> OffsetCommitRequest:
    """Return a commit from outside of the group: without a member and a generation."""
    topics = [
        OffsetCommitRequest.Topic(
            name=topic,
            partitions=[
                OffsetCommitRequest.Topic.Partition(
                    partition_index=partition,
                    committed_offset=offsets[topic, partition].offset,
                    committed_leader_epoch=_epoch(offsets[topic, partition]),
                    committed_metadata=offsets[topic, partition].metadata,
                )
                for partition in partitions
            ],
        )
        for topic, partitions in by_topic(offsets).items()
    ]
    return OffsetCommitRequest(group_id=group, topics=topics)


def _epoch(offset: Offset) -> int:
    return -1 if offset.leader_epoch is None else offset.leader_epoch


def _offsets_set(group: str, response: OffsetCommitResponse, in_doubt: bool) -> dict[TopicPartition, KwireError | None]:
    results: dict[TopicPartition, KwireError | None] = {}
    for topic in response.topics:
        for one in topic.partitions:
            if one.error_code in _COORDINATOR_CODES:
                check_code(one.error_code, "OffsetCommit", group=group)
            code = one.error_code
            if code == ErrorCode.UNKNOWN_MEMBER_ID:  # Kafka's way to say that the group has members
                code = ErrorCode.NON_EMPTY_GROUP
            key = topic.name, one.partition_index
            results[key] = error_or_none(code, "OffsetCommit", topic=key[0], partition=key[1], group=group)
    return results


def _offset_delete(keys: Iterable[TopicPartition], group: str, version: int) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequest.Topic(
                name=topic,
                partitions=[OffsetDeleteRequest.Topic.Partition(partition_index=one) for one in partitions],
            )
            for topic, partitions in by_topic(keys).items()
        ],
    )


def _offsets_deleted(
    group: str, response: OffsetDeleteResponse, in_doubt: bool
) -> dict[TopicPartition, KwireError | None]:
    check_code(response.error_code, "OffsetDelete", group=group)
    return {
        (topic.name, one.partition_index): error_or_none(
            one.error_code, "OffsetDelete", topic=topic.name, partition=one.partition_index, group=group
        )
        for topic in response.topics
        for one in topic.partitions
    }


# -- lag


def _partitions(group: Group, committed: _Committed) -> set[TopicPartition]:
    """Return the partitions that a group has a lag in: what it has committed, and what its members have."""
    return {*committed, *(key for member in group.members for key in member.assignment)}


def _group_lag(
    group: Group, committed: _Committed, ends: Mapping[TopicPartition, FoundOffset | KwireError]
) -> GroupLag:
    lags = [
        _partition_lag(key, committed.get(key), ends[key], group.owner(key))
        for key in sorted(_partitions(group, committed))
    ]
    return GroupLag(group.id, sum(lag.records or 0 for lag in lags), tuple(lags))


def _partition_lag(
    key: TopicPartition,
    committed: Offset | ShareOffset | None,
    found: FoundOffset | KwireError,
    owner: GroupMember | None,
) -> PartitionLag:
    start = committed.start if isinstance(committed, ShareOffset) else committed
    at = None if start is None else start.offset
    error = found if isinstance(found, KwireError) else None
    end = None if isinstance(found, KwireError) else found.offset
    records = None if at is None or end is None else max(0, end - at)
    if isinstance(committed, ShareOffset) and committed.lag >= 0:
        records = committed.lag
    return PartitionLag(*key, at, end, records, owner, error)


# -- offsets of share groups


@dataclass(frozen=True, slots=True)
class ShareOffset:
    """The share-partition start offset; `lag` is -1 where the broker does not send it (before Kafka 4.2)."""

    start: Offset
    lag: int


def _describe_share_offsets(group: str, version: int) -> DescribeShareGroupOffsetsRequest:
    return DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequest.Group(group_id=group, topics=None)]
    )


def _share_offsets_described(
    group: str, response: DescribeShareGroupOffsetsResponse, in_doubt: bool
) -> dict[TopicPartition, ShareOffset]:
    found = response.groups[0]
    check_code(found.error_code, "DescribeShareGroupOffsets", found.error_message, group=group)
    offsets: dict[TopicPartition, ShareOffset] = {}
    for topic in found.topics:
        for one in topic.partitions:
            if one.error_code:
                raise broker_error(
                    one.error_code, one.error_message, api="DescribeShareGroupOffsets", topic=topic.topic_name,
                    partition=one.partition_index, group=group,
                )  # fmt: skip
            if one.start_offset >= 0:
                offsets[topic.topic_name, one.partition_index] = ShareOffset(Offset(one.start_offset), one.lag)
    return offsets


_OFFSETS_OF_OTHERS = NextRequest(OffsetFetchRequest, _offset_fetch, _committed, at_most=_NAMES_UNTIL)
_OFFSETS_OF_SHARE = NextRequest(DescribeShareGroupOffsetsRequest, _describe_share_offsets, _share_offsets_described)
_Committed = Mapping[TopicPartition, Offset | ShareOffset]


def _alter_share_offsets(
    offsets: Mapping[TopicPartition, Offset], group: str, version: int
) -> AlterShareGroupOffsetsRequest:
    partition_class = AlterShareGroupOffsetsRequest.Topic.Partition
    return AlterShareGroupOffsetsRequest(
        group_id=group,
        topics=[
            AlterShareGroupOffsetsRequest.Topic(
                topic_name=topic,
                partitions=[
                    partition_class(partition_index=one, start_offset=offsets[topic, one].offset) for one in partitions
                ],
            )
            for topic, partitions in by_topic(offsets).items()
        ],
    )


def _share_offsets_altered(
    group: str, response: AlterShareGroupOffsetsResponse, in_doubt: bool
) -> dict[TopicPartition, KwireError | None]:
    check_code(response.error_code, "AlterShareGroupOffsets", response.error_message, group=group)
    return {
        (topic.topic_name, one.partition_index): error_or_none(
            one.error_code, "AlterShareGroupOffsets", topic=topic.topic_name, partition=one.partition_index, group=group
        )
        for topic in response.responses
        for one in topic.partitions
    }


def _delete_share_offsets(keys: Iterable[TopicPartition], group: str, version: int) -> DeleteShareGroupOffsetsRequest:
    topics = [DeleteShareGroupOffsetsRequest.Topic(topic_name=topic) for topic in by_topic(keys)]
    return DeleteShareGroupOffsetsRequest(group_id=group, topics=topics)


def _share_offsets_deleted(
    group: str, response: DeleteShareGroupOffsetsResponse, in_doubt: bool
) -> dict[str, KwireError | None]:
    check_code(response.error_code, "DeleteShareGroupOffsets", response.error_message, group=group)
    return {
        topic.topic_name: error_or_none(
            topic.error_code, "DeleteShareGroupOffsets", topic=topic.topic_name, group=group
        )
        for topic in response.responses
    }
