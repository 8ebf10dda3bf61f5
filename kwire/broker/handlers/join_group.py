"""Handle JoinGroup: respond when all members have joined or the rebalance timeout has passed."""

from __future__ import annotations

from kwire.broker.authorizer import Operation
from kwire.broker.broker import Broker
from kwire.broker.groups import JoinGroup, JoinGroupResult
from kwire.broker.handlers.handler import Handler, needs_group
from kwire.broker.request_context import RequestContext
from kwire.errors import ErrorCode
from kwire.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

_FIRST_VERSION_WITH_KNOWN_ID = 4
_FIRST_VERSION_WITH_NULL_PROTOCOL = 7
_FIRST_VERSION_WITH_SKIP = 9


def handle(broker: Broker, request: JoinGroupRequest, context: RequestContext, now: float) -> JoinGroupResponse | None:
    if not broker.coordinates(request.group_id):
        return error_response(request, ErrorCode.NOT_COORDINATOR, context.version)
    has_rebalance_timeout = request.rebalance_timeout_ms >= 0
    join = JoinGroup(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=context.client_id,
        client_host=context.client_host,
        session_timeout_ms=request.session_timeout_ms,
        # v0 has no rebalance timeout: its session timeout serves as both.
        rebalance_timeout_ms=request.rebalance_timeout_ms if has_rebalance_timeout else request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        needs_known_id=context.version >= _FIRST_VERSION_WITH_KNOWN_ID,
        can_skip_assignment=context.version >= _FIRST_VERSION_WITH_SKIP,
    )
    result = broker.cluster.classic_protocol(request.group_id).join(
        join, now, lambda result: context.respond(_response(result, context.version))
    )
    return None if result is None else _response(result, context.version)


def _response(result: JoinGroupResult, version: int) -> JoinGroupResponse:
    nullable = version >= _FIRST_VERSION_WITH_NULL_PROTOCOL
    return JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol if nullable else result.protocol or "",
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponse.Member(member_id=member_id, group_instance_id=instance_id, metadata=metadata)
            for member_id, instance_id, metadata in result.members
        ],
    )


def error_response(request: JoinGroupRequest, code: int, version: int) -> JoinGroupResponse:
    return _response(JoinGroupResult(code, request.member_id), version)


JOIN_GROUP = Handler(JoinGroupRequest, handle, error_response, authorize=needs_group(Operation.READ))
