"""What a broker answers by itself: ApiVersions, SaslHandshake and SaslAuthenticate.

Owns the SASL exchange of one connection. Refuses to see frames: requests in, responses out; `Session` keeps the order.
"""
from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kwire.errors import AuthenticationError, ErrorCode
from kwire.protocol import ApiKey
from kwire.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kwire.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kwire.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kwire.protocol.schema import Request, Response
from kwire.session.sasl import SaslExchange, SaslServer
from kwire.session.sasl.scram import ScramError
from kwire.session.state import State
from kwire.session.versions import VersionRanges

OWN_APIS: VersionRanges = {
    ApiKey.API_VERSIONS: ApiVersionsRequest.VERSIONS,
    ApiKey.SASL_HANDSHAKE: SaslHandshakeRequest.VERSIONS,
    ApiKey.SASL_AUTHENTICATE: SaslAuthenticateRequest.VERSIONS,
}
_FIRST_VERSION_WITH_FEATURES_FROM_0 = 4
# What KIP-511 allows a client to call itself.
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, the state it leads to (None: the same), and what ends the connection after it, if anything does."""

    response: Response
    state: State | None = None
    error: AuthenticationError | None = None


class BrokerGreeting:
    """One client's way in. `username` is who it is, once it has authenticated."""

    def __init__(
        self, apis: VersionRanges, sasl: SaslServer | None, peer: str, features: Mapping[str, tuple[int, int]]
    ) -> None:
        self._apis = apis
        self._features = features
        self._sasl = sasl
        self._peer = peer
        self._exchange: SaslExchange | None = None
        self._mechanism = ""
        self.username: str | None = None
        self.software = ("", "")
        self.is_bare = False  # the next frames are SASL messages without headers (SaslHandshake v0)

    def reply(self, request: Request[Any], version: int, state: State) -> Reply:
        if isinstance(request, ApiVersionsRequest):
            return Reply(self.api_versions(request, version))
        if isinstance(request, SaslHandshakeRequest):
            return self._handshake(request, version, state)
        assert isinstance(request, SaslAuthenticateRequest)
        return self._authenticate(request, state)

    def api_versions(self, request: ApiVersionsRequest | None, version: int) -> ApiVersionsResponse:
        """Our versions. Without a request its version was too high to be read: then v0 with the range that we have."""
        if request is None:
            ours = self._apis[ApiKey.API_VERSIONS]
            entry = ApiVersionsResponse.ApiVersion(
                api_key=ApiKey.API_VERSIONS, min_version=ours[0], max_version=ours[-1]
            )
            return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[entry])
        names = request.client_software_name, request.client_software_version
        if version >= 3 and not all(_SOFTWARE.fullmatch(name) for name in names):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
        self.software = names
        return ApiVersionsResponse(
            error_code=ErrorCode.NONE,
            api_keys=[
                ApiVersionsResponse.ApiVersion(api_key=key, min_version=versions[0], max_version=versions[-1])
                for key, versions in sorted(self._apis.items())
            ],
            supported_features=[
                ApiVersionsResponse.SupportedFeature(name=name, min_version=0, max_version=highest)
                for name, (_, highest) in self._features.items()
                if version >= _FIRST_VERSION_WITH_FEATURES_FROM_0
            ],
            finalized_features_epoch=0 if self._features else -1,
            finalized_features=[
                ApiVersionsResponse.FinalizedFeature(name=name, max_version_level=level, min_version_level=level)
                for name, (level, _) in self._features.items()
                if level
            ],
        )

    def bare(self, message: bytes) -> tuple[bytes, State | None, AuthenticationError | None]:
        """Answer a SASL message without header. There is no form for an error: the connection just ends."""
        assert self._exchange is not None
        try:
            answer = self._exchange.step(message)
        except ScramError as error:
            return b"", None, self._failure(str(error))
        if not self._exchange.is_done:
            return answer, None, None
        self.is_bare = False
        return answer, self._let_in(self._exchange), None

    def _handshake(self, request: SaslHandshakeRequest, version: int, state: State) -> Reply:
        if self._sasl is None:
            return Reply(SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[]))
        if state is State.AUTHENTICATING:
            return Reply(
                SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[]),
                error=self._failure("it sent SaslHandshake twice"),
            )
        mechanisms = list(self._sasl.mechanisms)
        if request.mechanism not in mechanisms:
            return Reply(
                SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=mechanisms),
                error=self._failure(f"it asked for mechanism {request.mechanism!r}"),
            )
        self._mechanism = request.mechanism
        self._exchange = self._sasl.exchange(request.mechanism)
        self.is_bare = version == 0
        return Reply(SaslHandshakeResponse(error_code=ErrorCode.NONE, mechanisms=mechanisms), State.AUTHENTICATING)

    def _authenticate(self, request: SaslAuthenticateRequest, state: State) -> Reply:
        if self._exchange is None or state is not State.AUTHENTICATING:
            response = SaslAuthenticateResponse(
                error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message="SaslHandshake comes first", auth_bytes=b""
            )
            return Reply(response, error=self._failure("it sent SaslAuthenticate before SaslHandshake"))
        try:
            answer = self._exchange.step(bytes(request.auth_bytes))
        except ScramError as error:
            # What exactly was wrong is for our log; the client learns no more than that it was.
            response = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
                error_message=f"Authentication failed: invalid credentials with SASL mechanism {self._mechanism}",
                auth_bytes=b"",
            )
            return Reply(response, error=self._failure(str(error)))
        response = SaslAuthenticateResponse(error_code=ErrorCode.NONE, error_message=None, auth_bytes=answer)
        return Reply(response, self._let_in(self._exchange) if self._exchange.is_done else None)

    def _let_in(self, exchange: SaslExchange) -> State:
        self.username = exchange.username
        self._exchange = None
        return State.READY

    def _failure(self, reason: str) -> AuthenticationError:
        mechanism = f" with SASL {self._mechanism}" if self._mechanism else ""
        return AuthenticationError(f"the client did not authenticate{mechanism}: {reason}", broker=self._peer)
