"""Handle ShareGroupHeartbeat (KIP-932): join a share group, live in it, leave it."""

from __future__ import annotations

from kwire.broker.authorizer import Access, Operation
from kwire.broker.broker import Broker
from kwire.broker.handlers.handler import Handler
from kwire.broker.request_context import RequestContext
from kwire.broker.share_assignor import TopicPartition
from kwire.broker.share_groups import Heartbeat
from kwire.errors import BrokerError, ErrorCode
from kwire.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

_Assignment = ShareGroupHeartbeatResponse.Assignment


def handle(
    broker: Broker, request: ShareGroupHeartbeatRequest, context: RequestContext, now: float
) -> ShareGroupHeartbeatResponse:
    if not broker.cluster.options.share_level:
        return _error(
            ErrorCode.UNSUPPORTED_VERSION, "share groups are off: share.version is 0, or the release is before 4.2"
        )
    beat = Heartbeat(
        request.group_id, request.member_id, request.member_epoch, request.subscribed_topic_names, request.rack_id,
        context.client_id, context.client_host,
    )  # fmt: skip
    try:
        broker.check_coordinates(request.group_id)
        result = broker.cluster.share_groups.heartbeat(beat, now)
    except BrokerError as error:
        return _error(error.code, error.broker_message)
    return ShareGroupHeartbeatResponse(
        error_code=ErrorCode.NONE, member_id=result.member, member_epoch=result.epoch,
        heartbeat_interval_ms=result.interval_ms,
        assignment=None if result.assigned is None else _assignment(broker, result.assigned),
    )  # fmt: skip


def _assignment(broker: Broker, assigned: frozenset[TopicPartition]) -> _Assignment:
    topics = broker.cluster.topics
    return _Assignment(
        topic_partitions=[
            _Assignment.TopicPartitions(
                topic_id=topics[name].id, partitions=sorted(index for topic, index in assigned if topic == name)
            )
            for name in sorted({name for name, _ in assigned})
            if name in topics
        ]
    )


def _error(code: int, message: str | None) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=code, error_message=message, member_epoch=0, heartbeat_interval_ms=0)


def authorize(request: ShareGroupHeartbeatRequest, access: Access, version: int) -> None:
    access.require_group(Operation.READ, request.group_id)
    for topic in request.subscribed_topic_names or ():
        access.require_topic(Operation.DESCRIBE, topic)


def error_response(request: ShareGroupHeartbeatRequest, code: int, version: int) -> ShareGroupHeartbeatResponse:
    return _error(code, None)


SHARE_GROUP_HEARTBEAT = Handler(ShareGroupHeartbeatRequest, handle, error_response, authorize=authorize)
