"""Handle OffsetDelete (KIP-496): delete a group's offsets of topics that no member subscribes to."""

from __future__ import annotations

from kwire.broker.authorizer import Operation, ResourceType
from kwire.broker.broker import Broker
from kwire.broker.groups import Group
from kwire.broker.handlers.handler import Handler, needs_group
from kwire.broker.request_context import RequestContext
from kwire.broker.share_groups import ShareGroup
from kwire.errors import ErrorCode
from kwire.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse

_Result = OffsetDeleteResponse.Topic


def handle(broker: Broker, request: OffsetDeleteRequest, context: RequestContext, now: float) -> OffsetDeleteResponse:
    if not broker.coordinates(request.group_id):
        return error_response(request, ErrorCode.NOT_COORDINATOR, context.version)
    if not request.group_id:
        return error_response(request, ErrorCode.INVALID_GROUP_ID, context.version)
    group = broker.cluster.group_registry.get(request.group_id)
    if group is None or isinstance(group, ShareGroup):
        return error_response(request, ErrorCode.GROUP_ID_NOT_FOUND, context.version)
    if isinstance(group, Group) and group.subscribed_topics() is None:
        return error_response(request, ErrorCode.NON_EMPTY_GROUP, context.version)
    topics = []
    for topic in request.topics:
        results = []
        for partition in topic.partitions:
            code = ErrorCode.NONE
            if not context.access.allows(Operation.READ, ResourceType.TOPIC, topic.name):
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif broker.cluster.maybe_partition(topic.name, partition.partition_index) is None:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif group.is_subscribed_to(topic.name):
                code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            else:
                broker.cluster.offsets.delete(request.group_id, (topic.name, partition.partition_index))
            results.append(_Result.Partition(partition_index=partition.partition_index, error_code=code))
        topics.append(_Result(name=topic.name, partitions=results))
    return OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=topics)


def error_response(request: OffsetDeleteRequest, code: int, version: int) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=code, topics=[])


OFFSET_DELETE = Handler(OffsetDeleteRequest, handle, error_response, authorize=needs_group(Operation.DELETE))
