"""Handle Heartbeat: restart a member's session timer, and report whether its group rebalances."""

from __future__ import annotations

from kwire.broker.authorizer import Operation
from kwire.broker.broker import Broker
from kwire.broker.handlers.handler import Handler, needs_group
from kwire.broker.request_context import RequestContext
from kwire.errors import ErrorCode
from kwire.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(broker: Broker, request: HeartbeatRequest, context: RequestContext, now: float) -> HeartbeatResponse:
    if not broker.coordinates(request.group_id):
        return error_response(request, ErrorCode.NOT_COORDINATOR, context.version)
    if not request.group_id:
        return error_response(request, ErrorCode.INVALID_GROUP_ID, context.version)
    error = broker.cluster.classic_protocol(request.group_id).heartbeat(
        request.group_id, request.generation_id, request.member_id, request.group_instance_id, now
    )
    return HeartbeatResponse(error_code=error)


def error_response(request: HeartbeatRequest, code: int, version: int) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=code)


HEARTBEAT = Handler(HeartbeatRequest, handle, error_response, authorize=needs_group(Operation.READ))
