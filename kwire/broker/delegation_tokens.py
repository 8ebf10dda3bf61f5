"""Delegation tokens (KIP-48): who has them, until when, and who may renew and end them.

A token logs in by SCRAM in the place of its owner. Times are milliseconds of wall time.
"""

from __future__ import annotations

import hmac as hmac_module
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from kwire.broker.authorizer import ANONYMOUS, Access, Operation, ResourceType
from kwire.broker.ids import make_uuid
from kwire.errors import ErrorCode, broker_error
from kwire.protocol.json import uuid_text
from kwire.session import SaslServer
from kwire.session.sasl.server import DelegationTokenLogin

_MAX_LIFETIME_MS = 7 * 86_400_000
_EXPIRY_MS = 86_400_000
_USER = "User"


@dataclass(frozen=True, slots=True)
class Token:
    """A token. Principals are written "User:alice"."""

    id: str
    owner: str
    requester: str
    issued_ms: int
    expires_ms: int
    max_ms: int
    renewers: tuple[str, ...]
    hmac: bytes = field(repr=False)

    def is_changed_by(self, principal: str) -> bool:
        return principal in (self.owner, self.requester, *self.renewers)


class DelegationTokens:
    """The tokens of a cluster, which log in at `sasl`."""

    def __init__(self, random: Random, sasl: SaslServer) -> None:
        self._random = random
        self._sasl = sasl
        self._secret = random.randbytes(32)
        self._tokens: dict[str, Token] = {}

    def create(
        self, access: Access, owner: str, renewers: Sequence[tuple[str, str]], lifetime_ms: int, wall_ms: int
    ) -> Token:
        """Create a token for `owner` ("" is the caller). Raises BrokerError."""
        _check_caller(access)
        owner = owner or access.principal
        if owner != access.principal:
            access.require(Operation.CREATE_TOKENS, ResourceType.USER, owner)
        if any(kind != _USER for kind, _ in renewers):
            raise broker_error(ErrorCode.INVALID_PRINCIPAL_TYPE)
        max_ms = wall_ms + (min(lifetime_ms, _MAX_LIFETIME_MS) if lifetime_ms > 0 else _MAX_LIFETIME_MS)
        id = uuid_text(make_uuid(self._random))
        token = Token(
            id, owner, access.principal, wall_ms, min(max_ms, wall_ms + _EXPIRY_MS), max_ms,
            tuple(f"{kind}:{name}" for kind, name in renewers), hmac_module.digest(self._secret, id.encode(), "sha512"),
        )  # fmt: skip
        self._keep(token)
        return token

    def renew(self, access: Access, hmac: bytes, period_ms: int, wall_ms: int) -> int:
        """Return when the token expires now. Raises BrokerError."""
        token = self._find(access, hmac)
        if token.max_ms < wall_ms or token.expires_ms < wall_ms:
            raise broker_error(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        return self._end_at(token, wall_ms + (_EXPIRY_MS if period_ms < 0 else period_ms))

    def expire(self, access: Access, hmac: bytes, period_ms: int, wall_ms: int) -> int:
        """End a token after a time, or now (below 0). Return when it expires. Raises BrokerError."""
        token = self._find(access, hmac)
        if period_ms < 0:
            self._remove(token)
            return wall_ms
        if token.max_ms < wall_ms or token.expires_ms < wall_ms:
            raise broker_error(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        return self._end_at(token, wall_ms + period_ms)

    def visible(self, access: Access, owners: Sequence[str] | None, wall_ms: int) -> list[Token]:
        """Return the tokens of these owners that the caller may see, all for None. Raises BrokerError."""
        _check_caller(access)
        for token in list(self._tokens.values()):
            if token.expires_ms <= wall_ms:
                self._remove(token)
        return [
            token
            for token in self._tokens.values()
            if (owners is None or token.owner in owners) and _may_see(access, token)
        ]

    def _find(self, access: Access, hmac: bytes) -> Token:
        _check_caller(access)
        token = next((one for one in self._tokens.values() if hmac_module.compare_digest(one.hmac, hmac)), None)
        if token is None:
            raise broker_error(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        if not token.is_changed_by(access.principal):
            raise broker_error(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
        return token

    def _end_at(self, token: Token, wall_ms: int) -> int:
        self._keep(replace(token, expires_ms=min(token.max_ms, wall_ms)))
        return self._tokens[token.id].expires_ms

    def _keep(self, token: Token) -> None:
        self._tokens[token.id] = token
        name = token.owner.removeprefix(f"{_USER}:")
        self._sasl.set_token(token.id, DelegationTokenLogin(name, token.hmac, token.expires_ms / 1000))

    def _remove(self, token: Token) -> None:
        del self._tokens[token.id]
        self._sasl.remove_token(token.id)


def _check_caller(access: Access) -> None:
    """Raise DELEGATION_TOKEN_REQUEST_NOT_ALLOWED for a client that has not authenticated, or has by such a token."""
    if access.principal == ANONYMOUS or access.is_by_token:
        raise broker_error(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def _may_see(access: Access, token: Token) -> bool:
    return (
        token.is_changed_by(access.principal)
        or access.allows(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.id)
        or access.allows(Operation.DESCRIBE_TOKENS, ResourceType.USER, token.owner)
    )
