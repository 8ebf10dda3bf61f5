"""Handle LeaveGroup: remove one member or, since v3 (KIP-345), several; static members by their instance id alone."""

from __future__ import annotations

from kwire.broker.authorizer import Operation
from kwire.broker.broker import Broker
from kwire.broker.handlers.handler import Handler, needs_group
from kwire.broker.request_context import RequestContext
from kwire.errors import ErrorCode
from kwire.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse

_FIRST_VERSION_OF_MANY = 3


def handle(broker: Broker, request: LeaveGroupRequest, context: RequestContext, now: float) -> LeaveGroupResponse:
    if not broker.coordinates(request.group_id):
        return error_response(request, ErrorCode.NOT_COORDINATOR, context.version)
    if not request.group_id:
        return error_response(request, ErrorCode.INVALID_GROUP_ID, context.version)
    if context.version < _FIRST_VERSION_OF_MANY:
        return LeaveGroupResponse(error_code=_leave(broker, request.group_id, request.member_id, None, now))
    return LeaveGroupResponse(
        error_code=ErrorCode.NONE,
        members=[
            LeaveGroupResponse.Member(
                member_id=member.member_id, group_instance_id=member.group_instance_id,
                error_code=_leave(broker, request.group_id, member.member_id, member.group_instance_id, now),
            )
            for member in request.members
        ],
    )  # fmt: skip


def _leave(broker: Broker, group_id: str, member_id: str, instance_id: str | None, now: float) -> int:
    """Remove a member. The one before may have changed the protocol of the group."""
    return broker.cluster.classic_protocol(group_id).leave(group_id, member_id, instance_id, now)


def error_response(request: LeaveGroupRequest, code: int, version: int) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=code)


LEAVE_GROUP = Handler(LeaveGroupRequest, handle, error_response, authorize=needs_group(Operation.READ))
