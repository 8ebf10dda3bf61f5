"""Reject ConsumerGroupHeartbeat (KIP-848) and ShareGroupHeartbeat (KIP-932) with an error and a log message.

These brokers have classic groups only. They offer the two APIs and return UNSUPPORTED_VERSION, as Kafka does where
`group.version` or `share.version` is off. If the APIs were missing, the client would wait silently for ever.
"""

from __future__ import annotations

from typing import Any

from kwire.broker.broker import Broker
from kwire.broker.diagnostics import logger
from kwire.broker.handlers.handler import Handler
from kwire.broker.request_context import RequestContext
from kwire.errors import ErrorCode
from kwire.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kwire.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

_NO_CONSUMER_PROTOCOL = (
    "the embedded broker does not support the consumer protocol (KIP-848): use group.protocol=classic"
)
_NO_SHARE_GROUPS = (
    "the embedded broker does not support share groups (KIP-932): use a consumer with group.protocol=classic"
)


def handle_consumer(
    broker: Broker, request: ConsumerGroupHeartbeatRequest, context: RequestContext, now: float
) -> ConsumerGroupHeartbeatResponse:
    _log_rejection(broker, request.group_id, context, _NO_CONSUMER_PROTOCOL)
    return consumer_error_response(request, ErrorCode.UNSUPPORTED_VERSION, context.version, _NO_CONSUMER_PROTOCOL)


def handle_share(
    broker: Broker, request: ShareGroupHeartbeatRequest, context: RequestContext, now: float
) -> ShareGroupHeartbeatResponse:
    _log_rejection(broker, request.group_id, context, _NO_SHARE_GROUPS)
    return share_error_response(request, ErrorCode.UNSUPPORTED_VERSION, context.version, _NO_SHARE_GROUPS)


def _log_rejection(broker: Broker, group: str, context: RequestContext, why: str) -> None:
    """Log a rejection once for each client and group: clients repeat the request."""
    key = (context.client_host, context.client_id, group)
    if key not in broker.cluster.rejected_members:
        broker.cluster.rejected_members.add(key)
        client = f"client {context.client_id!r} at {context.client_host}"
        logger.warning("broker %d rejects %s as a member of group %s: %s", broker.id, client, group, why)


def consumer_error_response(
    request: ConsumerGroupHeartbeatRequest, code: int, version: int, message: str | None = None
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(**_error_fields(code, message))


def share_error_response(
    request: ShareGroupHeartbeatRequest, code: int, version: int, message: str | None = None
) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(**_error_fields(code, message))


def _error_fields(code: int, message: str | None) -> dict[str, Any]:
    return {"error_code": code, "error_message": message, "member_epoch": 0, "heartbeat_interval_ms": 0}


CONSUMER_GROUP_HEARTBEAT = Handler(ConsumerGroupHeartbeatRequest, handle_consumer, consumer_error_response)
SHARE_GROUP_HEARTBEAT = Handler(ShareGroupHeartbeatRequest, handle_share, share_error_response)
