"""Handle CreateDelegationToken (KIP-48): return a token for the caller, or for another owner (KIP-373)."""

from __future__ import annotations

from kwire.broker.broker import Broker
from kwire.broker.handlers.handler import Handler
from kwire.broker.request_context import RequestContext
from kwire.errors import BrokerError, ErrorCode
from kwire.protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse

_FIRST_VERSION_WITH_REQUESTER = 3


def handle(
    broker: Broker, request: CreateDelegationTokenRequest, context: RequestContext, now: float
) -> CreateDelegationTokenResponse:
    owner = ""
    if request.owner_principal_name:
        owner = f"{request.owner_principal_type}:{request.owner_principal_name}"
    renewers = [(one.principal_type, one.principal_name) for one in request.renewers]
    wall_ms = broker.cluster.wall_ms(now)
    try:
        token = broker.cluster.tokens.create(context.access, owner, renewers, request.max_lifetime_ms, wall_ms)
    except BrokerError as error:
        return error_response(request, error.code, context.version)
    owner_type, _, owner_name = token.owner.partition(":")
    response = CreateDelegationTokenResponse(
        error_code=ErrorCode.NONE, principal_type=owner_type, principal_name=owner_name,
        issue_timestamp_ms=token.issued_ms, expiry_timestamp_ms=token.expires_ms, max_timestamp_ms=token.max_ms,
        token_id=token.id, hmac=token.hmac,
    )  # fmt: skip
    if context.version >= _FIRST_VERSION_WITH_REQUESTER:
        kind, _, name = token.requester.partition(":")
        response.token_requester_principal_type, response.token_requester_principal_name = kind, name
    return response


def error_response(request: CreateDelegationTokenRequest, code: int, version: int) -> CreateDelegationTokenResponse:
    return CreateDelegationTokenResponse(
        error_code=code, principal_type="", principal_name="", issue_timestamp_ms=-1, expiry_timestamp_ms=-1,
        max_timestamp_ms=-1, token_id="", hmac=b"",
    )  # fmt: skip


CREATE_DELEGATION_TOKEN = Handler(CreateDelegationTokenRequest, handle, error_response)
