"""Heartbeat: a member is alive, and learns whether its group rebalances."""

from __future__ import annotations

from kwire.broker.broker_state import BrokerState
from kwire.broker.exchange import RequestContext
from kwire.broker.handlers.handler import Handler
from kwire.errors import ErrorCode
from kwire.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(broker: BrokerState, request: HeartbeatRequest, exchange: RequestContext, now: float) -> HeartbeatResponse:
    if not broker.coordinates(request.group_id):
        return refuse(request, ErrorCode.NOT_COORDINATOR, exchange.version)
    error = broker.cluster.groups.heartbeat(
        request.group_id, request.generation_id, request.member_id, request.group_instance_id, now
    )
    return HeartbeatResponse(error_code=error)


def refuse(request: HeartbeatRequest, code: int, version: int) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=code)


HEARTBEAT = Handler(HeartbeatRequest, handle, refuse)
