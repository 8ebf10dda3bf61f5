"""Handle FindCoordinator: return the coordinator of a group, transactional id or share partition.

Since v4 it returns several (KIP-699)."""

from __future__ import annotations

from kwire.broker.authorizer import Access, Operation, ResourceType
from kwire.broker.broker import Broker
from kwire.broker.handlers.handler import Handler
from kwire.broker.request_context import RequestContext
from kwire.broker.segment_files import decode_uuid
from kwire.errors import BrokerError, ErrorCode
from kwire.protocol.messages.find_coordinator import (
    GROUP,
    SHARE,
    TRANSACTION,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_FIRST_VERSION_OF_MANY = 4
_FIRST_VERSION_OF_SHARES = 6

_Coordinator = FindCoordinatorResponse.Coordinator


def handle(
    broker: Broker, request: FindCoordinatorRequest, context: RequestContext, now: float
) -> FindCoordinatorResponse:
    keys = request.coordinator_keys if context.version >= _FIRST_VERSION_OF_MANY else [request.key]
    return _response([_find(broker, key, request.key_type, context) for key in keys], context.version)


def _find(broker: Broker, key: str, key_type: int, context: RequestContext) -> _Coordinator:
    if key_type not in (GROUP, TRANSACTION, SHARE):
        return _error_result(key, ErrorCode.INVALID_REQUEST)
    if key_type == SHARE and (context.version < _FIRST_VERSION_OF_SHARES or not _is_share_key(key)):
        return _error_result(key, ErrorCode.INVALID_REQUEST)
    try:
        _authorize(context.access, key, key_type)
    except BrokerError as error:
        return _error_result(key, error.code)
    node = broker.cluster.nodes.get(broker.cluster.coordinator_of(key))
    if node is None:
        return _error_result(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    node = node.seen_by(context.listener)
    return _Coordinator(
        key=key, node_id=node.id, host=node.host, port=node.port, error_code=ErrorCode.NONE, error_message=None
    )


def _authorize(access: Access, key: str, key_type: int) -> None:
    if key_type == SHARE:
        access.require_cluster(Operation.CLUSTER_ACTION)
    else:
        type = ResourceType.GROUP if key_type == GROUP else ResourceType.TRANSACTIONAL_ID
        access.require(Operation.DESCRIBE, type, key)


def _is_share_key(key: str) -> bool:
    """Return whether a key names a share partition: "group:topic id:partition" (KIP-932)."""
    group, _, rest = key.partition(":")
    topic_id, _, partition = rest.rpartition(":")
    try:
        decode_uuid(topic_id)
    except ValueError:
        return False
    return bool(group) and partition.isdigit()


def _error_result(key: str, code: int) -> _Coordinator:
    return _Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=None)


def _response(found: list[_Coordinator], version: int) -> FindCoordinatorResponse:
    if version >= _FIRST_VERSION_OF_MANY:
        return FindCoordinatorResponse(coordinators=found)
    first = found[0]
    return FindCoordinatorResponse(
        error_code=first.error_code, error_message=first.error_message, node_id=first.node_id, host=first.host,
        port=first.port,
    )  # fmt: skip


def error_response(request: FindCoordinatorRequest, code: int, version: int) -> FindCoordinatorResponse:
    keys = request.coordinator_keys if version >= _FIRST_VERSION_OF_MANY else [request.key]
    return _response([_error_result(key, code) for key in keys], version)


FIND_COORDINATOR = Handler(FindCoordinatorRequest, handle, error_response)
