"""Handle DescribeShareGroupOffsets (KIP-932, KIP-1226): return where share groups start, and their lag."""

from __future__ import annotations

from collections.abc import Iterable

from kwire.broker.authorizer import Access, Operation
from kwire.broker.broker import Broker
from kwire.broker.handlers.handler import Handler
from kwire.broker.ids import NO_ID
from kwire.broker.request_context import RequestContext
from kwire.broker.share_coordinator import ShareKey
from kwire.broker.share_partition import NO_OFFSET
from kwire.errors import BrokerError, ErrorCode
from kwire.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)

_Requested = DescribeShareGroupOffsetsRequest.Group
_Group = DescribeShareGroupOffsetsResponse.Group
_Topic = _Group.Topic


def handle(
    broker: Broker, request: DescribeShareGroupOffsetsRequest, context: RequestContext, now: float
) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(
        groups=[_describe(broker, group, context.access) for group in request.groups]
    )


def _describe(broker: Broker, requested: _Requested, access: Access) -> _Group:
    group = requested.group_id
    try:
        access.require_group(Operation.DESCRIBE, group)
        broker.check_coordinates(group)
    except BrokerError as error:
        return _error_group(group, error.code, error.broker_message)
    if requested.topics is None:
        every = _all(broker, group)
        named: Iterable[tuple[str, list[int]]] = [one for one in every if access.describes(one[0])]
    else:
        named = [(topic.topic_name, list(topic.partitions)) for topic in requested.topics]
    topics = []
    for name, indexes in named:
        if not access.describes(name):
            results = [_refused_partition(index) for index in indexes]
            topics.append(_Topic(topic_name=name, topic_id=NO_ID, partitions=results))
            continue
        topic = broker.cluster.topics.get(name)
        topics.append(
            _Topic(
                topic_name=name, topic_id=topic.id if topic is not None else NO_ID,
                partitions=[_partition(broker, group, name, index) for index in indexes],
            )
        )  # fmt: skip
    return _Group(group_id=group, topics=topics, error_code=ErrorCode.NONE)


def _all(broker: Broker, group: str) -> list[tuple[str, list[int]]]:
    """Return every partition that the group has read or subscribed to."""
    found: dict[str, list[int]] = {}
    for key in broker.cluster.share_states.of_group(group):
        topic = broker.cluster.topics_by_id.get(key.topic_id)
        if topic is not None:
            found.setdefault(topic.name, []).append(key.partition)
    return [(name, sorted(indexes)) for name, indexes in sorted(found.items())]


def _partition(broker: Broker, group: str, name: str, index: int) -> _Topic.Partition:
    partition = broker.cluster.maybe_partition(name, index)
    if partition is None:
        return _Topic.Partition(
            partition_index=index, start_offset=NO_OFFSET, leader_epoch=0, lag=-1, error_code=ErrorCode.NONE
        )
    state = broker.cluster.share_states.get(ShareKey(group, broker.cluster.topics[name].id, index))
    if state is None or state.start_offset == NO_OFFSET:
        start, lag, epoch = NO_OFFSET, -1, 0
    else:
        start, epoch = state.start_offset, state.leader_epoch
        lag = max(0, partition.log.high_watermark - start - state.delivery_complete_count)
    return _Topic.Partition(
        partition_index=index, start_offset=start, leader_epoch=epoch, lag=lag, error_code=ErrorCode.NONE
    )


def _refused_partition(index: int) -> _Topic.Partition:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return _Topic.Partition(partition_index=index, start_offset=NO_OFFSET, leader_epoch=0, lag=-1, error_code=code)


def _error_group(group: str, code: int, message: str | None = None) -> _Group:
    return _Group(group_id=group, topics=[], error_code=code, error_message=message)


def error_response(
    request: DescribeShareGroupOffsetsRequest, code: int, version: int
) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(groups=[_error_group(group.group_id, code) for group in request.groups])


DESCRIBE_SHARE_GROUP_OFFSETS = Handler(DescribeShareGroupOffsetsRequest, handle, error_response)
