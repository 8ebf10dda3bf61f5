"""JoinGroup: answered when all members of the group have joined, or the rebalance timeout has passed."""

from __future__ import annotations

from kwire.broker.broker_state import BrokerState
from kwire.broker.exchange import RequestContext
from kwire.broker.groups import Join, Joined
from kwire.broker.handlers.handler import Handler
from kwire.errors import ErrorCode
from kwire.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

_FIRST_VERSION_WITH_KNOWN_ID = 4
_FIRST_VERSION_WITH_NULL_PROTOCOL = 7
_FIRST_VERSION_WITH_SKIP = 9


def handle(
    broker: BrokerState, request: JoinGroupRequest, exchange: RequestContext, now: float
) -> JoinGroupResponse | None:
    if not broker.coordinates(request.group_id):
        return refuse(request, ErrorCode.NOT_COORDINATOR, exchange.version)
    has_rebalance_timeout = request.rebalance_timeout_ms >= 0
    join = Join(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=exchange.client_id,
        client_host=exchange.client_host,
        session_timeout_ms=request.session_timeout_ms,
        # v0 has no rebalance timeout; its session timeout served for both.
        rebalance_timeout_ms=request.rebalance_timeout_ms if has_rebalance_timeout else request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        needs_known_id=exchange.version >= _FIRST_VERSION_WITH_KNOWN_ID,
        can_skip_assignment=exchange.version >= _FIRST_VERSION_WITH_SKIP,
    )
    joined = broker.cluster.groups.join(join, now, lambda joined: exchange.answer(_response(joined, exchange.version)))
    return None if joined is None else _response(joined, exchange.version)


def _response(joined: Joined, version: int) -> JoinGroupResponse:
    nullable = version >= _FIRST_VERSION_WITH_NULL_PROTOCOL
    return JoinGroupResponse(
        error_code=joined.error,
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol if nullable else joined.protocol or "",
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=[
            JoinGroupResponse.Member(member_id=member_id, group_instance_id=instance_id, metadata=metadata)
            for member_id, instance_id, metadata in joined.members
        ],
    )


def refuse(request: JoinGroupRequest, code: int, version: int) -> JoinGroupResponse:
    return _response(Joined(code, request.member_id), version)


JOIN_GROUP = Handler(JoinGroupRequest, handle, refuse)
