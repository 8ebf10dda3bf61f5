"""Delegation tokens: create, renew, expire and list them (KIP-48, Kafka 1.1).

A token lets another program authenticate in the place of its owner: by SCRAM, with the token's id as the user name and
`password` as the password.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from kwire.admin.noun import Noun, check_code, checked_names, raised
from kwire.cluster import ToAny, ToController
from kwire.cluster.waiting import blocking
from kwire.errors import ConfigurationError, ErrorCode, KwireError, UnsupportedVersionError, broker_error
from kwire.protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from kwire.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from kwire.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from kwire.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse

_OWNERS_SINCE = 3  # CreateDelegationToken
_BROKERS_DEFAULT_MS = -1
# The controller learns of a token from the metadata log, some time after it has said that the token is made.
_NEW_SECONDS = 10.0
_PATIENCE_SECONDS = 3.0
_ONE = "token"


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token. Principals are written "User:alice". No repr shows the secret."""

    id: str
    owner: str
    requester: str
    issued_at: datetime
    expires_at: datetime
    lives_until: datetime
    renewers: tuple[str, ...] = ()
    hmac: bytes = field(default=b"", repr=False)

    @property
    def password(self) -> str:
        """Return what a client authenticates with, with `id` as the user name."""
        return base64.b64encode(self.hmac).decode()


class TokenAdmin(Noun):
    """What both faces share."""

    async def _create(
        self,
        *,
        owner: str | None = None,
        renewers: Iterable[str] = (),
        lifetime: timedelta | None = None,
        timeout: float | None = None,
    ) -> DelegationToken:
        """Create a token, for the caller's own principal or for another `owner` (Kafka 3.3).

        renewers  principals that may renew it, besides its owner
        lifetime  beyond which it cannot be renewed; by default the brokers' delegation.token.max.lifetime.ms
        """
        renewing = [_principal("renewers", one) for one in checked_names("renewers", renewers)]
        owning = None if owner is None else _principal("owner", owner)
        lifetime_ms = _period_ms("lifetime", lifetime)

        def build(version: int) -> CreateDelegationTokenRequest:
            request = CreateDelegationTokenRequest(
                renewers=[
                    CreateDelegationTokenRequest.Renewer(principal_type=kind, principal_name=name)
                    for kind, name in renewing
                ],
                max_lifetime_ms=lifetime_ms,
            )
            if owning is not None:
                if version < _OWNERS_SINCE:
                    raise UnsupportedVersionError("tokens are for the caller only", remedy="an owner needs Kafka 3.3")
                request.owner_principal_type, request.owner_principal_name = owning
            return request

        def parse(response: CreateDelegationTokenResponse) -> DelegationToken:
            check_code(response.error_code, "CreateDelegationToken")
            return _token(
                response,
                (response.issue_timestamp_ms, response.expiry_timestamp_ms, response.max_timestamp_ms),
                tuple(f"{kind}:{name}" for kind, name in renewing),
            )

        return await self._controlled(CreateDelegationTokenRequest, build, parse, self._deadline(timeout))

    async def _renew(
        self, token: DelegationToken | bytes, *, by: timedelta | None = None, timeout: float | None = None
    ) -> datetime:
        """Let a token, or the one with this hmac, live for `by` from now on; return when it expires then.

        The default of `by` is the brokers' delegation.token.expiry.time.ms. A token never outlives `lives_until`.
        For a token that was just made, this waits up to 3 s until the controller knows it.
        """
        request = RenewDelegationTokenRequest(hmac=_hmac(token), renew_period_ms=_period_ms("by", by))
        return await self._change_end(token, request, timeout)

    async def _expire(
        self, token: DelegationToken | bytes, *, after: timedelta | None = None, timeout: float | None = None
    ) -> datetime:
        """End a token, or the one with this hmac, at once or `after` a time; return when it expires.

        For a token that was just made, this waits up to 3 s until the controller knows it.
        """
        request = ExpireDelegationTokenRequest(hmac=_hmac(token), expiry_time_period_ms=_period_ms("after", after))
        return await self._change_end(token, request, timeout, is_removal=after is None)

    async def _change_end(
        self,
        token: DelegationToken | bytes,
        request: RenewDelegationTokenRequest | ExpireDelegationTokenRequest,
        timeout: float | None,
        *,
        is_removal: bool = False,
    ) -> datetime:
        clock, deadline = self._runtime.clock, self._deadline(timeout)
        patience_until = 0.0
        if isinstance(token, DelegationToken) and clock.time_ms() / 1000 - token.issued_at.timestamp() < _NEW_SECONDS:
            patience_until = min(clock.now() + _PATIENCE_SECONDS, deadline)

        def parse(
            _: str, response: RenewDelegationTokenResponse | ExpireDelegationTokenResponse, in_doubt: bool
        ) -> datetime | KwireError:
            if response.error_code != ErrorCode.DELEGATION_TOKEN_NOT_FOUND:
                check_code(response.error_code, api)
                return _time(response.expiry_timestamp_ms)
            if is_removal and in_doubt:  # by the attempt whose response was lost
                return _time(clock.time_ms())
            error = broker_error(response.error_code, api=api)
            if clock.now() < patience_until:
                raise error
            return error

        api = type(request).__name__.removesuffix("Request")
        results = await self._routed(
            {_ONE: ToController()}, type(request), lambda _, version: request, parse, deadline,
            busy=(ErrorCode.DELEGATION_TOKEN_NOT_FOUND,),
        )  # fmt: skip
        return raised(results, _ONE)

    async def _list(
        self, owners: Iterable[str] | None = None, *, timeout: float | None = None
    ) -> list[DelegationToken]:
        """Return the tokens of these owners, by default all that the caller may see."""
        wanted = None
        if owners is not None:
            principals = [_principal("owners", one) for one in checked_names("owners", owners)]
            owner = DescribeDelegationTokenRequest.Owner
            wanted = [owner(principal_type=kind, principal_name=name) for kind, name in principals]
        request = DescribeDelegationTokenRequest(owners=wanted)
        response: DescribeDelegationTokenResponse = await self._ask(
            ToAny(), DescribeDelegationTokenRequest, lambda version: request, self._deadline(timeout)
        )
        check_code(response.error_code, "DescribeDelegationToken")
        return sorted((_listed(one) for one in response.tokens), key=lambda one: one.id)


class Tokens(TokenAdmin):
    """`Admin.tokens`, for threads."""

    create = blocking(TokenAdmin._create)
    renew = blocking(TokenAdmin._renew)
    expire = blocking(TokenAdmin._expire)
    list = blocking(TokenAdmin._list)


def _principal(what: str, principal: str) -> tuple[str, str]:
    kind, colon, name = principal.partition(":") if isinstance(principal, str) else ("", "", "")
    if not (kind and colon and name):
        raise ConfigurationError(f"{what} has {principal!r}", remedy='give a principal with its type: "User:alice"')
    return kind, name


def _period_ms(what: str, period: timedelta | None) -> int:
    if period is None:
        return _BROKERS_DEFAULT_MS
    if not isinstance(period, timedelta) or period <= timedelta():
        raise ConfigurationError(f"{what} is {period!r:.60}", remedy="give a timedelta above 0, or None")
    return int(period.total_seconds() * 1000)


def _hmac(token: DelegationToken | bytes) -> bytes:
    hmac = token.hmac if isinstance(token, DelegationToken) else token
    if not isinstance(hmac, bytes) or not hmac:
        raise ConfigurationError("the token has no hmac", remedy="pass a DelegationToken, or its hmac as bytes")
    return hmac


def _time(timestamp_ms: int) -> datetime:
    return datetime.fromtimestamp(timestamp_ms / 1000).astimezone()


def _listed(token: DescribeDelegationTokenResponse.Token) -> DelegationToken:
    return _token(
        token,
        (token.issue_timestamp, token.expiry_timestamp, token.max_timestamp),
        tuple(f"{one.principal_type}:{one.principal_name}" for one in token.renewers),
    )


def _token(
    found: CreateDelegationTokenResponse | DescribeDelegationTokenResponse.Token,
    times_ms: tuple[int, int, int],
    renewers: tuple[str, ...],
) -> DelegationToken:
    owner = f"{found.principal_type}:{found.principal_name}"
    requester = found.token_requester_principal_name
    issued, expires, most = map(_time, times_ms)
    return DelegationToken(
        found.token_id,
        owner,
        f"{found.token_requester_principal_type}:{requester}" if requester else owner,
        issued,
        expires,
        most,
        renewers,
        bytes(found.hmac),
    )
