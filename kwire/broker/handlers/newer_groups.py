"""ConsumerGroupHeartbeat and ShareGroupHeartbeat: refused, aloud.

These brokers have groups of the classic protocol only. They offer the two APIs all the same and answer
UNSUPPORTED_VERSION, as Kafka's KafkaApis does where `group.version` or `share.version` is off: a client that found the
API missing would wait for its assignment without a word, to its user or to the broker.
"""

from __future__ import annotations

from typing import Any

from kwire.broker.broker_state import BrokerState
from kwire.broker.diagnostics import logger
from kwire.broker.exchange import RequestContext
from kwire.broker.handlers.handler import Handler
from kwire.errors import ErrorCode
from kwire.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kwire.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

_NO_CONSUMER_PROTOCOL = "the embedded broker has no consumer groups of KIP-848: use group.protocol=classic"
_NO_SHARE_GROUPS = "the embedded broker has no share groups (KIP-932): use a consumer with group.protocol=classic"


def handle_consumer(
    broker: BrokerState, request: ConsumerGroupHeartbeatRequest, exchange: RequestContext, now: float
) -> ConsumerGroupHeartbeatResponse:
    _log_refusal(broker, request.group_id, exchange, _NO_CONSUMER_PROTOCOL)
    return refuse_consumer(request, ErrorCode.UNSUPPORTED_VERSION, exchange.version, _NO_CONSUMER_PROTOCOL)


def handle_share(
    broker: BrokerState, request: ShareGroupHeartbeatRequest, exchange: RequestContext, now: float
) -> ShareGroupHeartbeatResponse:
    _log_refusal(broker, request.group_id, exchange, _NO_SHARE_GROUPS)
    return refuse_share(request, ErrorCode.UNSUPPORTED_VERSION, exchange.version, _NO_SHARE_GROUPS)


def _log_refusal(broker: BrokerState, group: str, exchange: RequestContext, why: str) -> None:
    """Once for each client and group: a client may ask again and again."""
    known = (exchange.client_host, exchange.client_id, group)
    if known not in broker.cluster.refused_groups:
        broker.cluster.refused_groups.add(known)
        client = f"client {exchange.client_id!r} at {exchange.client_host}"
        logger.warning("broker %d refuses %s as a member of group %s: %s", broker.id, client, group, why)


def refuse_consumer(
    request: ConsumerGroupHeartbeatRequest, code: int, version: int, message: str | None = None
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(**_refusal(code, message))


def refuse_share(
    request: ShareGroupHeartbeatRequest, code: int, version: int, message: str | None = None
) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(**_refusal(code, message))


def _refusal(code: int, message: str | None) -> dict[str, Any]:
    return {"error_code": code, "error_message": message, "member_epoch": 0, "heartbeat_interval_ms": 0}


CONSUMER_GROUP_HEARTBEAT = Handler(ConsumerGroupHeartbeatRequest, handle_consumer, refuse_consumer)
SHARE_GROUP_HEARTBEAT = Handler(ShareGroupHeartbeatRequest, handle_share, refuse_share)
