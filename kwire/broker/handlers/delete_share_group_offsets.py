"""Handle DeleteShareGroupOffsets (KIP-932): delete an empty share group's state of topics. It starts there again."""

from __future__ import annotations

from kwire.broker.authorizer import Operation, ResourceType
from kwire.broker.broker import Broker
from kwire.broker.handlers.handler import Handler, needs_group
from kwire.broker.ids import NO_ID
from kwire.broker.request_context import RequestContext
from kwire.errors import BrokerError, ErrorCode
from kwire.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)

_Result = DeleteShareGroupOffsetsResponse.Topic


def handle(
    broker: Broker, request: DeleteShareGroupOffsetsRequest, context: RequestContext, now: float
) -> DeleteShareGroupOffsetsResponse:
    cluster = broker.cluster
    try:
        broker.check_coordinates(request.group_id)
        group = cluster.share_groups.find(request.group_id)
        group.check_empty()
    except BrokerError as error:
        return _error(error.code, error.broker_message)
    responses = []
    for requested in request.topics:
        if not context.access.allows(Operation.READ, ResourceType.TOPIC, requested.topic_name):
            refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            responses.append(_Result(topic_name=requested.topic_name, topic_id=NO_ID, error_code=refused))
            continue
        topic = cluster.topics.get(requested.topic_name)
        code = ErrorCode.NONE if topic is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        id = topic.id if topic is not None else NO_ID
        for key in cluster.share_states.of_group(group.id):
            if key.topic_id == id:
                cluster.share_states.delete(key)
        responses.append(_Result(topic_name=requested.topic_name, topic_id=id, error_code=code))
    cluster.share_partitions.drop_group(group.id)
    return DeleteShareGroupOffsetsResponse(error_code=ErrorCode.NONE, responses=responses)


def _error(code: int, message: str | None = None) -> DeleteShareGroupOffsetsResponse:
    return DeleteShareGroupOffsetsResponse(error_code=code, error_message=message, responses=[])


def error_response(request: DeleteShareGroupOffsetsRequest, code: int, version: int) -> DeleteShareGroupOffsetsResponse:
    return _error(code)


DELETE_SHARE_GROUP_OFFSETS = Handler(
    DeleteShareGroupOffsetsRequest, handle, error_response, authorize=needs_group(Operation.DELETE)
)
