"""SyncGroup: the leader brings the assignments, everybody gets their part when it has."""

from __future__ import annotations

from kwire.broker.broker_state import BrokerState
from kwire.broker.exchange import RequestContext
from kwire.broker.groups import Sync, Synced
from kwire.broker.handlers.handler import Handler
from kwire.errors import ErrorCode
from kwire.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


def handle(
    broker: BrokerState, request: SyncGroupRequest, exchange: RequestContext, now: float
) -> SyncGroupResponse | None:
    if not broker.coordinates(request.group_id):
        return refuse(request, ErrorCode.NOT_COORDINATOR, exchange.version)
    sync = Sync(
        group_id=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
        assignments={one.member_id: one.assignment for one in request.assignments},
    )
    synced = broker.cluster.groups.sync(sync, now, lambda synced: exchange.answer(_response(synced)))
    return None if synced is None else _response(synced)


def _response(synced: Synced) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=synced.error, protocol_type=synced.protocol_type, protocol_name=synced.protocol,
        assignment=synced.assignment,
    )  # fmt: skip


def refuse(request: SyncGroupRequest, code: int, version: int) -> SyncGroupResponse:
    return _response(Synced(code))


SYNC_GROUP = Handler(SyncGroupRequest, handle, refuse)
