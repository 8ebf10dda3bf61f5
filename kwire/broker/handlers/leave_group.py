"""LeaveGroup: one member, or since v3 several, also static ones by their instance id alone."""

from __future__ import annotations

from kwire.broker.broker_state import BrokerState
from kwire.broker.exchange import RequestContext
from kwire.broker.handlers.handler import Handler
from kwire.errors import ErrorCode
from kwire.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse

_FIRST_VERSION_OF_MANY = 3


def handle(broker: BrokerState, request: LeaveGroupRequest, exchange: RequestContext, now: float) -> LeaveGroupResponse:
    if not broker.coordinates(request.group_id):
        return refuse(request, ErrorCode.NOT_COORDINATOR, exchange.version)
    groups = broker.cluster.groups
    if exchange.version < _FIRST_VERSION_OF_MANY:
        return LeaveGroupResponse(error_code=groups.leave(request.group_id, request.member_id, None, now))
    return LeaveGroupResponse(
        error_code=ErrorCode.NONE,
        members=[
            LeaveGroupResponse.Member(
                member_id=member.member_id, group_instance_id=member.group_instance_id,
                error_code=groups.leave(request.group_id, member.member_id, member.group_instance_id, now),
            )
            for member in request.members
        ],
    )  # fmt: skip


def refuse(request: LeaveGroupRequest, code: int, version: int) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=code)


LEAVE_GROUP = Handler(LeaveGroupRequest, handle, refuse)
