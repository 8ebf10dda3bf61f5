"""Handle SyncGroup: accept the leader's assignments, and return each member its own."""

from __future__ import annotations

from kwire.broker.authorizer import Operation
from kwire.broker.broker import Broker
from kwire.broker.groups import SyncGroup, SyncGroupResult
from kwire.broker.handlers.handler import Handler, needs_group
from kwire.broker.request_context import RequestContext
from kwire.errors import ErrorCode
from kwire.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_FIRST_VERSION_WITH_PROTOCOL = 5


def handle(broker: Broker, request: SyncGroupRequest, context: RequestContext, now: float) -> SyncGroupResponse | None:
    if not broker.coordinates(request.group_id):
        return error_response(request, ErrorCode.NOT_COORDINATOR, context.version)
    if not request.group_id:
        return error_response(request, ErrorCode.INVALID_GROUP_ID, context.version)
    has_protocol = request.protocol_type is not None and request.protocol_name is not None
    if context.version >= _FIRST_VERSION_WITH_PROTOCOL and not has_protocol:
        return error_response(request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, context.version)
    sync = SyncGroup(
        group_id=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
        assignments={assignment.member_id: assignment.assignment for assignment in request.assignments},
    )
    result = broker.cluster.classic_protocol(request.group_id).sync(
        sync, now, lambda result: context.respond(_response(result))
    )
    return None if result is None else _response(result)


def _response(result: SyncGroupResult) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=result.error, protocol_type=result.protocol_type, protocol_name=result.protocol,
        assignment=result.assignment,
    )  # fmt: skip


def error_response(request: SyncGroupRequest, code: int, version: int) -> SyncGroupResponse:
    return _response(SyncGroupResult(code))


SYNC_GROUP = Handler(SyncGroupRequest, handle, error_response, authorize=needs_group(Operation.READ))
