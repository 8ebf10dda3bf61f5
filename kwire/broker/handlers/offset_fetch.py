"""Handle OffsetFetch: return committed offsets, -1 where there is none; of several groups since v8 (KIP-709).

With `require_stable`, a partition with an offset in an open transaction gets UNSTABLE_OFFSET_COMMIT (KIP-447).
"""

from __future__ import annotations

from collections.abc import Sequence

from kwire.broker.authorizer import Access, Operation
from kwire.broker.broker import Broker
from kwire.broker.cluster_state import Topic
from kwire.broker.consumer_group import ConsumerGroup
from kwire.broker.handlers.handler import Handler
from kwire.broker.offsets import OffsetAndMetadata, OffsetManager, TopicPartition
from kwire.broker.request_context import RequestContext
from kwire.broker.streams_group import StreamsGroup
from kwire.errors import BrokerError, ErrorCode
from kwire.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

_FIRST_VERSION_WITH_ERROR = 2
_FIRST_VERSION_WITH_EPOCH = 5
_FIRST_VERSION_OF_MANY = 8
_FIRST_VERSION_BY_ID = 10
_NOTHING = OffsetAndMetadata(-1, -1, "", at=0.0)

_OldTopic = OffsetFetchResponse.Topic
_Group = OffsetFetchResponse.Group
_Topic = OffsetFetchResponse.Group.Topic


def handle(broker: Broker, request: OffsetFetchRequest, context: RequestContext, now: float) -> OffsetFetchResponse:
    if context.version >= _FIRST_VERSION_OF_MANY:
        return OffsetFetchResponse(
            groups=[_group(broker, requested, context, stable=request.require_stable) for requested in request.groups]
        )
    try:
        context.access.require_group(Operation.DESCRIBE, request.group_id)
        broker.check_coordinates(request.group_id)
    except BrokerError as error:
        return error_response(request, error.code, context.version)
    return _one_group(broker, request, context)


def _one_group(broker: Broker, request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    version = context.version
    offsets = GroupOffsets(
        broker.cluster.offsets, request.group_id, stable=request.require_stable, access=context.access
    )
    if request.topics is None:
        requested = list(offsets.by_topic().items())
    else:
        requested = [(topic.name, topic.partition_indexes) for topic in request.topics]
    has_epoch = version >= _FIRST_VERSION_WITH_EPOCH
    return OffsetFetchResponse(
        topics=[
            _OldTopic(
                name=name,
                partitions=[_old_partition(index, *offsets.find((name, index)), has_epoch) for index in indexes],
            )
            for name, indexes in requested
        ]
    )


def _old_partition(index: int, committed: OffsetAndMetadata, error: ErrorCode, has_epoch: bool) -> _OldTopic.Partition:
    return _OldTopic.Partition(
        partition_index=index, committed_offset=committed.offset, metadata=committed.metadata,
        committed_leader_epoch=committed.leader_epoch if has_epoch else -1, error_code=error,
    )  # fmt: skip


def _group(broker: Broker, requested: OffsetFetchRequest.Group, context: RequestContext, *, stable: bool) -> _Group:
    version = context.version
    try:
        context.access.require_group(Operation.DESCRIBE, requested.group_id)
        broker.check_coordinates(requested.group_id)
    except BrokerError as error:
        return _Group(group_id=requested.group_id, topics=[], error_code=error.code)
    try:
        _check_member(broker, requested)
    except BrokerError as error:
        return _Group(group_id=requested.group_id, topics=[], error_code=error.code)
    offsets = GroupOffsets(broker.cluster.offsets, requested.group_id, stable=stable, access=context.access)
    if requested.topics is None:
        topics = [
            _topic(broker.cluster.find_topic(name), indexes, offsets) for name, indexes in offsets.by_topic().items()
        ]
    else:
        topics = [_topic_offsets(broker, topic, offsets, version) for topic in requested.topics]
    return _Group(group_id=requested.group_id, topics=topics)


def _check_member(broker: Broker, requested: OffsetFetchRequest.Group) -> None:
    """Raise BrokerError for a member that the group does not have, or with another epoch."""
    cluster, member_id, epoch = broker.cluster, requested.member_id, requested.member_epoch
    group = cluster.group_registry.get(requested.group_id)
    if isinstance(group, ConsumerGroup):
        cluster.consumer_groups.check_fetch(group, member_id, epoch)
    elif isinstance(group, StreamsGroup):
        cluster.streams_groups.check_member(group, member_id, epoch, is_optional=member_id is None)


def _topic_offsets(
    broker: Broker, requested: OffsetFetchRequest.Group.Topic, offsets: GroupOffsets, version: int
) -> _Topic:
    if version < _FIRST_VERSION_BY_ID:
        return _Topic(name=requested.name, partitions=_partitions(requested.name, requested.partition_indexes, offsets))
    try:
        return _topic(broker.cluster.find_topic_by_id(requested.topic_id), requested.partition_indexes, offsets)
    except BrokerError as error:
        partitions = [_partition(index, _NOTHING, error.code) for index in requested.partition_indexes]
        return _Topic(topic_id=requested.topic_id, partitions=partitions)


def _topic(topic: Topic, indexes: Sequence[int], offsets: GroupOffsets) -> _Topic:
    return _Topic(name=topic.name, topic_id=topic.id, partitions=_partitions(topic.name, indexes, offsets))


def _partitions(name: str, indexes: Sequence[int], offsets: GroupOffsets) -> list[_Topic.Partition]:
    return [_partition(index, *offsets.find((name, index))) for index in indexes]


def _partition(index: int, committed: OffsetAndMetadata, error: int) -> _Topic.Partition:
    return _Topic.Partition(
        partition_index=index, committed_offset=committed.offset, committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata, error_code=error,
    )  # fmt: skip


class GroupOffsets:
    """The committed offsets of one group, as one request may see them."""

    def __init__(self, offsets: OffsetManager, group_id: str, *, stable: bool, access: Access) -> None:
        self._access = access
        self._offsets = offsets
        self._group_id = group_id
        self._stable = stable

    def find(self, partition: TopicPartition) -> tuple[OffsetAndMetadata, ErrorCode]:
        if not self._access.describes(partition[0]):
            return _NOTHING, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if self._stable and self._offsets.is_pending(self._group_id, partition):
            return _NOTHING, ErrorCode.UNSTABLE_OFFSET_COMMIT
        return self._offsets.of(self._group_id).get(partition, _NOTHING), ErrorCode.NONE

    def by_topic(self) -> dict[str, list[int]]:
        topics: dict[str, list[int]] = {}
        for topic, index in self._offsets.of(self._group_id):
            if self._access.describes(topic):
                topics.setdefault(topic, []).append(index)
        return topics


def error_response(request: OffsetFetchRequest, code: int, version: int) -> OffsetFetchResponse:
    if version >= _FIRST_VERSION_OF_MANY:
        groups = [_Group(group_id=requested.group_id, topics=[], error_code=code) for requested in request.groups]
        return OffsetFetchResponse(groups=groups)
    if version >= _FIRST_VERSION_WITH_ERROR:
        return OffsetFetchResponse(error_code=code)
    return OffsetFetchResponse(
        topics=[
            _OldTopic(
                name=topic.name,
                partitions=[
                    _OldTopic.Partition(partition_index=index, committed_offset=-1, metadata="", error_code=code)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
    )


OFFSET_FETCH = Handler(OffsetFetchRequest, handle, error_response)
