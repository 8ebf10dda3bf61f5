"""FindCoordinator: which broker to ask about a group or a transactional id; several at once since v4."""

from __future__ import annotations

from kwire.broker.broker_state import BrokerState
from kwire.broker.exchange import RequestContext
from kwire.broker.handlers.handler import Handler
from kwire.errors import ErrorCode
from kwire.protocol.messages.find_coordinator import (
    GROUP,
    TRANSACTION,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_FIRST_VERSION_OF_MANY = 4

_Coordinator = FindCoordinatorResponse.Coordinator


def handle(
    broker: BrokerState, request: FindCoordinatorRequest, exchange: RequestContext, now: float
) -> FindCoordinatorResponse:
    keys = request.coordinator_keys if exchange.version >= _FIRST_VERSION_OF_MANY else [request.key]
    return _response([_find(broker, key, request.key_type) for key in keys], exchange.version)


def _find(broker: BrokerState, key: str, key_type: int) -> _Coordinator:
    if key_type not in (GROUP, TRANSACTION):
        return _none(key, ErrorCode.INVALID_REQUEST)
    node = broker.cluster.nodes.get(broker.cluster.coordinator_of(key))
    if node is None:
        return _none(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return _Coordinator(
        key=key, node_id=node.id, host=node.host, port=node.port, error_code=ErrorCode.NONE, error_message=None
    )


def _none(key: str, code: int) -> _Coordinator:
    return _Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=None)


def _response(found: list[_Coordinator], version: int) -> FindCoordinatorResponse:
    if version >= _FIRST_VERSION_OF_MANY:
        return FindCoordinatorResponse(coordinators=found)
    only = found[0]
    return FindCoordinatorResponse(
        error_code=only.error_code, error_message=only.error_message, node_id=only.node_id, host=only.host,
        port=only.port,
    )  # fmt: skip


def refuse(request: FindCoordinatorRequest, code: int, version: int) -> FindCoordinatorResponse:
    keys = request.coordinator_keys if version >= _FIRST_VERSION_OF_MANY else [request.key]
    return _response([_none(key, code) for key in keys], version)


FIND_COORDINATOR = Handler(FindCoordinatorRequest, handle, refuse)
