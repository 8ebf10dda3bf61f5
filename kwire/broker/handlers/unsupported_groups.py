"""Reject ConsumerGroupHeartbeat (KIP-848) with an error and a log message.

These brokers do not have consumer groups. They offer the API and return UNSUPPORTED_VERSION, as Kafka does where
`group.version` is off. If the API were missing, the client would wait silently for ever.
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

_NO_CONSUMER_PROTOCOL = (
    "the embedded broker does not support the consumer protocol (KIP-848): use group.protocol=classic"
)


def handle_consumer(
    broker: Broker, request: ConsumerGroupHeartbeatRequest, context: RequestContext, now: float
) -> ConsumerGroupHeartbeatResponse:
    _log_rejection(broker, request.group_id, context, _NO_CONSUMER_PROTOCOL)
    return consumer_error_response(request, ErrorCode.UNSUPPORTED_VERSION, context.version, _NO_CONSUMER_PROTOCOL)


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


def _error_fields(code: int, message: str | None) -> dict[str, Any]:
    return {"error_code": code, "error_message": message, "member_epoch": 0, "heartbeat_interval_ms": 0}


CONSUMER_GROUP_HEARTBEAT = Handler(ConsumerGroupHeartbeatRequest, handle_consumer, consumer_error_response)
