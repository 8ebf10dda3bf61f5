"""Handle DescribeDelegationToken (KIP-48): return the tokens that the caller may see."""

from __future__ import annotations

from kwire.broker.broker import Broker
from kwire.broker.delegation_tokens import Token
from kwire.broker.handlers.handler import Handler
from kwire.broker.request_context import RequestContext
from kwire.errors import BrokerError, ErrorCode
from kwire.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

_FIRST_VERSION_WITH_REQUESTER = 3
_Token = DescribeDelegationTokenResponse.Token


def handle(
    broker: Broker, request: DescribeDelegationTokenRequest, context: RequestContext, now: float
) -> DescribeDelegationTokenResponse:
    owners = None
    if request.owners is not None:
        owners = [f"{owner.principal_type}:{owner.principal_name}" for owner in request.owners]
    try:
        tokens = broker.cluster.tokens.visible(context.access, owners, broker.cluster.wall_ms(now))
    except BrokerError as error:
        return error_response(request, error.code, context.version)
    found = [_shown(token, context.version) for token in tokens]
    return DescribeDelegationTokenResponse(error_code=ErrorCode.NONE, tokens=found)


def _shown(token: Token, version: int) -> _Token:
    kind, _, name = token.owner.partition(":")
    shown = _Token(
        principal_type=kind, principal_name=name, issue_timestamp=token.issued_ms, expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms, token_id=token.id, hmac=token.hmac,
        renewers=[
            _Token.Renewer(principal_type=one.partition(":")[0], principal_name=one.partition(":")[2])
            for one in token.renewers
        ],
    )  # fmt: skip
    if version >= _FIRST_VERSION_WITH_REQUESTER:
        kind, _, name = token.requester.partition(":")
        shown.token_requester_principal_type, shown.token_requester_principal_name = kind, name
    return shown


def error_response(request: DescribeDelegationTokenRequest, code: int, version: int) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=code, tokens=[])


DESCRIBE_DELEGATION_TOKEN = Handler(DescribeDelegationTokenRequest, handle, error_response)
