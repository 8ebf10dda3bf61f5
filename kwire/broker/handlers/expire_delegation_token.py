"""Handle ExpireDelegationToken (KIP-48): end a token, now or after a time."""

from __future__ import annotations

from kwire.broker.broker import Broker
from kwire.broker.handlers.handler import Handler
from kwire.broker.request_context import RequestContext
from kwire.errors import BrokerError, ErrorCode
from kwire.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse


def handle(
    broker: Broker, request: ExpireDelegationTokenRequest, context: RequestContext, now: float
) -> ExpireDelegationTokenResponse:
    period_ms, wall_ms = request.expiry_time_period_ms, broker.cluster.wall_ms(now)
    try:
        expires = broker.cluster.tokens.expire(context.access, bytes(request.hmac), period_ms, wall_ms)
    except BrokerError as error:
        return error_response(request, error.code, context.version)
    return ExpireDelegationTokenResponse(error_code=ErrorCode.NONE, expiry_timestamp_ms=expires)


def error_response(request: ExpireDelegationTokenRequest, code: int, version: int) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=-1)


EXPIRE_DELEGATION_TOKEN = Handler(ExpireDelegationTokenRequest, handle, error_response)
