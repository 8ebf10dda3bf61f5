"""Handle RenewDelegationToken (KIP-48): let a token live longer."""

from __future__ import annotations

from kwire.broker.broker import Broker
from kwire.broker.handlers.handler import Handler
from kwire.broker.request_context import RequestContext
from kwire.errors import BrokerError, ErrorCode
from kwire.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse


def handle(
    broker: Broker, request: RenewDelegationTokenRequest, context: RequestContext, now: float
) -> RenewDelegationTokenResponse:
    wall_ms = broker.cluster.wall_ms(now)
    try:
        expires = broker.cluster.tokens.renew(context.access, bytes(request.hmac), request.renew_period_ms, wall_ms)
    except BrokerError as error:
        return error_response(request, error.code, context.version)
    return RenewDelegationTokenResponse(error_code=ErrorCode.NONE, expiry_timestamp_ms=expires)


def error_response(request: RenewDelegationTokenRequest, code: int, version: int) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=-1)


RENEW_DELEGATION_TOKEN = Handler(RenewDelegationTokenRequest, handle, error_response)
