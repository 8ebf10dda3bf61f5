"""Handle AlterShareGroupOffsets (KIP-932): move the start of an empty share group, and forget what it has delivered.

A group that does not exist is created.
"""

from __future__ import annotations

from kwire.broker.authorizer import Operation, ResourceType
from kwire.broker.broker import Broker
from kwire.broker.handlers.handler import Handler, needs_group
from kwire.broker.ids import NO_ID
from kwire.broker.request_context import RequestContext
from kwire.broker.share_coordinator import ShareKey
from kwire.errors import BrokerError, ErrorCode
from kwire.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)

_Result = AlterShareGroupOffsetsResponse.Topic


def handle(
    broker: Broker, request: AlterShareGroupOffsetsRequest, context: RequestContext, now: float
) -> AlterShareGroupOffsetsResponse:
    cluster = broker.cluster
    try:
        broker.check_coordinates(request.group_id)
        group = cluster.share_groups.find_or_create(request.group_id)
        group.check_empty()
    except BrokerError as error:
        return _error(error.code, error.broker_message)
    responses = []
    for requested in request.topics:
        topic = cluster.topics.get(requested.topic_name)
        results = []
        for named in requested.partitions:
            if not context.access.allows(Operation.READ, ResourceType.TOPIC, requested.topic_name):
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif topic is None or topic.partition(named.partition_index) is None:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                code = ErrorCode.NONE
                cluster.share_states.alter(ShareKey(group.id, topic.id, named.partition_index), named.start_offset)
            results.append(_Result.Partition(partition_index=named.partition_index, error_code=code))
        id = topic.id if topic is not None else NO_ID
        responses.append(_Result(topic_name=requested.topic_name, topic_id=id, partitions=results))
    cluster.share_partitions.drop_group(group.id)
    return AlterShareGroupOffsetsResponse(error_code=ErrorCode.NONE, responses=responses)


def _error(code: int, message: str | None = None) -> AlterShareGroupOffsetsResponse:
    return AlterShareGroupOffsetsResponse(error_code=code, error_message=message, responses=[])


def error_response(request: AlterShareGroupOffsetsRequest, code: int, version: int) -> AlterShareGroupOffsetsResponse:
    return _error(code)


ALTER_SHARE_GROUP_OFFSETS = Handler(
    AlterShareGroupOffsetsRequest, handle, error_response, authorize=needs_group(Operation.READ)
)
