"""The handshake of a connection: ApiVersions, SaslHandshake and SaslAuthenticate, for client and broker.

The client's side is a generator: each `yield` returns a request to send, and gets the frame of its response; or it
returns a message of the mechanism that takes time, and gets that message. The broker's side gets requests and returns
responses. `Session` sends, matches and counts them.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from kwire.errors import AuthenticationError, ErrorCode, UnsupportedVersionError, broker_error
from kwire.protocol import ApiKey
from kwire.protocol.headers import decode_response
from kwire.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kwire.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kwire.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kwire.protocol.schema import Request, Response
from kwire.session.events import State
from kwire.session.sasl.exchange import (
    AWS_MSK_IAM,
    GSSAPI,
    ClientMessage,
    Deferred,
    LaterClient,
    Login,
    SaslError,
    SaslExchange,
    on_one_line,
)
from kwire.session.versions import VersionRanges, common, highest_common, show

if TYPE_CHECKING:
    from kwire.session.sasl import SaslServer


class HandshakeRequest(NamedTuple):
    """A request to send in a state; or, to a broker before 1.0, a SASL token without a header."""

    state: State
    request: Request[Any] | None
    version: int = 0
    sasl_token: bytes = b""


class Negotiated(NamedTuple):
    """The result of a handshake. `features` are finalized levels (KIP-584), such as {"transaction.version": 2}.

    `api_versions` is the version of ApiVersions with which the next connection to this broker can begin.
    """

    versions: VersionRanges
    api_versions: int | None = None
    session_lifetime_ms: int = 0
    features: Mapping[str, int] = MappingProxyType({})


Frame: TypeAlias = bytes
# The cluster and the broker that a client means to talk to (KIP-1242).
Target: TypeAlias = tuple[str | None, int]
ANYONE: Target = (None, -1)
# What a handshake yields, and what it then gets.
Step: TypeAlias = HandshakeRequest | Deferred
Handshake: TypeAlias = Generator[Step, "Frame | None", Negotiated]


def client_handshake(
    broker: str,
    *,
    host: str,
    assume: VersionRanges | None,
    sasl: Login | None,
    software: tuple[str, str],
    target: Target = ANYONE,
    api_versions: int | None = None,
) -> Handshake:
    """Run the whole handshake. Raises a KwireError if the connection cannot be used."""
    if assume is not None:
        negotiated = Negotiated(assume)
    else:
        negotiated = yield from _negotiate(broker, software, target, api_versions)
    return negotiated if sasl is None else (yield from reauthenticate(broker, host, sasl, negotiated))


def reauthenticate(broker: str, host: str, sasl: Login, negotiated: Negotiated) -> Handshake:
    """Authenticate, also on an open connection to renew the authentication (KIP-368)."""
    lifetime_ms = yield from _authenticate(broker, host, sasl, negotiated.versions)
    return negotiated._replace(session_lifetime_ms=lifetime_ms)


def _negotiate(broker: str, software: tuple[str, str], target: Target, first: int | None) -> Handshake:
    """Send ApiVersions, first in version `first` or our highest, until the broker responds in the highest common one.

    A broker that lacks the version responds UNSUPPORTED_VERSION in the form of v0: since 2.4 with its own range
    (KIP-511), before that without, and then v0 is the version that it surely has. A broker that was upgraded since
    `first` was its highest version offers a higher one, in which it is asked again.
    """
    ours = ApiVersionsRequest.VERSIONS
    version = ours[-1] if first is None else first
    while True:
        request = ApiVersionsRequest(
            client_software_name=software[0], client_software_version=software[1], cluster_id=target[0],
            node_id=target[1],
        )  # fmt: skip
        frame = yield from _response(HandshakeRequest(State.NEGOTIATING, request, version))
        # In every version the error code comes first, after the four bytes of the correlation id.
        is_unsupported = frame[4:6] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
        _, response = decode_response(frame, ApiVersionsRequest, 0 if is_unsupported else version)
        if not is_unsupported:
            both = common(ours, _version_ranges(response).get(ApiKey.API_VERSIONS, range(0)))
            highest = both[-1] if both else version
            if highest <= version or ours is not ApiVersionsRequest.VERSIONS:
                break
            version = highest
            continue
        lower = _lower_version(broker, response, version)
        if lower is None:
            raise UnsupportedVersionError("the broker rejected ApiVersions v0", broker=broker, api="ApiVersions")
        ours, version = range(version), lower
    if response.error_code:
        raise broker_error(response.error_code, broker=broker, api="ApiVersions", version=version)
    features = {feature.name: feature.max_version_level for feature in response.finalized_features}
    return Negotiated(_version_ranges(response), max(version, highest), features=features)


def _version_ranges(response: ApiVersionsResponse) -> dict[int, range]:
    return {api.api_key: range(api.min_version, api.max_version + 1) for api in response.api_keys}


def _lower_version(broker: str, response: ApiVersionsResponse, rejected: int) -> int | None:
    """Return the version to try next. It is always lower than the rejected one, so the loop ends."""
    offered = _version_ranges(response).get(ApiKey.API_VERSIONS)
    if offered is None:
        return 0 if rejected > 0 else None
    both = common(range(rejected), offered)
    if not both:
        raise UnsupportedVersionError(
            f"no version in common: the broker has {show(offered)}, we have {show(ApiVersionsRequest.VERSIONS)}",
            broker=broker,
            api="ApiVersions",
        )
    return both[-1]


def _response(request: HandshakeRequest) -> Generator[Step, Frame | None, Frame]:
    frame = yield request
    assert frame is not None
    return frame


def _ready(message: ClientMessage) -> Generator[Step, Frame | None, bytes | None]:
    """Return a message, also one that takes time."""
    return (yield message) if isinstance(message, Deferred) else message


def _authenticate(broker: str, host: str, sasl: Login, versions: VersionRanges) -> Generator[Step, Frame | None, int]:
    """Run SaslHandshake and the mechanism's exchange; return the lifetime in ms, 0 for no limit.

    The first message is made before SaslHandshake is sent: while a token is obtained to renew an authentication, the
    connection serves other requests.
    """
    if ApiKey.SASL_HANDSHAKE not in versions:
        raise AuthenticationError(
            f"the broker does not support SASL {sasl.mechanism}",
            broker=broker,
            remedy="it is older than 0.10: connect without SASL, or to a newer broker",
        )
    is_without_headers = ApiKey.SASL_AUTHENTICATE not in versions  # before 1.0 (KIP-152)
    if is_without_headers and sasl.mechanism == GSSAPI:  # it ends without a response there
        raise AuthenticationError(
            "SASL GSSAPI needs Kafka 1.0", broker=broker, remedy="use another mechanism, or a newer broker"
        )
    client = sasl.exchange(host)
    token = yield from _ready(client.start())
    version = highest_common(
        ApiKey.SASL_HANDSHAKE,
        SaslHandshakeRequest.VERSIONS,
        versions,
        at_most=0 if is_without_headers else None,
        broker=broker,
    )
    request = SaslHandshakeRequest(mechanism=sasl.mechanism)
    frame = yield from _response(HandshakeRequest(State.HANDSHAKING, request, version))
    _, response = decode_response(frame, SaslHandshakeRequest, version)
    if response.error_code:
        raise _mechanism_error(broker, sasl, response.error_code, response.mechanisms)
    lifetime_ms = 0
    while token is not None:  # each mechanism has a bounded number of tokens, whatever the responses
        if is_without_headers:
            challenge = yield from _response(HandshakeRequest(State.AUTHENTICATING, None, sasl_token=token))
        else:
            version = highest_common(
                ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest.VERSIONS, versions, broker=broker
            )
            authenticate = SaslAuthenticateRequest(auth_bytes=token)
            frame = yield from _response(HandshakeRequest(State.AUTHENTICATING, authenticate, version))
            _, result = decode_response(frame, SaslAuthenticateRequest, version)
            if result.error_code:
                if isinstance(client, LaterClient):
                    client.refused()
                raise _authentication_error(broker, sasl, result.error_message, client.refusal)
            challenge, lifetime_ms = result.auth_bytes, result.session_lifetime_ms
        try:
            token = yield from _ready(client.step(bytes(challenge)))
        except SaslError as error:
            raise AuthenticationError(
                f"SASL {sasl.mechanism} for {sasl.identity} failed: {error}",
                broker=broker,
                remedy=f"check that this is the right broker, and {_CREDENTIALS.get(sasl.mechanism, _PASSWORD)}",
            ) from None
    assert client.is_done
    return lifetime_ms


_PASSWORD = "user name and password"
_USER = ", and that the broker has this user for this mechanism"
# What to check of other credentials than a password, after a refusal.
_CREDENTIALS: Mapping[str, str] = {
    GSSAPI: "the clocks of both machines, the broker's keytab, and its rules for the names of principals",
    AWS_MSK_IAM: (
        "this machine's clock, the region, and that the policy of the IAM identity allows kafka-cluster:Connect"
    ),
}


def _mechanism_error(broker: str, sasl: Login, code: int, offered: Sequence[str]) -> AuthenticationError:
    if code == ErrorCode.ILLEGAL_SASL_STATE:
        return AuthenticationError(
            f"this listener of the broker does not use SASL, and {sasl.mechanism} is configured",
            broker=broker,
            remedy="connect without SASL, or to a listener that has it",
        )
    if code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        names = on_one_line(", ".join(offered)) or "nothing"
        return AuthenticationError(
            f"the broker does not offer SASL {sasl.mechanism}; it offers {names}", broker=broker, remedy=f"use {names}"
        )
    return AuthenticationError(
        f"the broker rejected SASL {sasl.mechanism}: {broker_error(code)}", broker=broker, remedy="see its log"
    )


def _authentication_error(broker: str, sasl: Login, message: str | None, refusal: str) -> AuthenticationError:
    details = "".join(f": {text}" for text in (on_one_line(message or ""), refusal) if text)
    remedy = (
        "check the token: its audience, issuer, scope, times and signature, against the broker's configuration"
        if refusal
        else f"check {_CREDENTIALS.get(sasl.mechanism, _PASSWORD + _USER)}"
    )
    if sasl.mechanism.startswith("SCRAM-") and not sasl.identity.isascii():
        remedy = "rename the user: Kafka's brokers take a user name for SCRAM in ASCII only"
    return AuthenticationError(
        f"the broker rejected SASL {sasl.mechanism} for {sasl.identity}{details}", broker=broker, remedy=remedy
    )


OWN_APIS: VersionRanges = {
    ApiKey.API_VERSIONS: ApiVersionsRequest.VERSIONS,
    ApiKey.SASL_HANDSHAKE: SaslHandshakeRequest.VERSIONS,
    ApiKey.SASL_AUTHENTICATE: SaslAuthenticateRequest.VERSIONS,
}
_FIRST_VERSION_WITH_FEATURES_FROM_0 = 4
_LIFETIME_MS_MAX = 2**63 - 1
# The library names that KIP-511 allows.
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class HandshakeReply(NamedTuple):
    """A response, the state after it (None: the same), and the error that ends the connection after it, if any."""

    response: Response
    state: State | None = None
    error: AuthenticationError | None = None


class BrokerHandshake:
    """The handshake of one client, at the broker.

    `username` is set after authentication; after `expires_at` (None: never) of the session's time the client must
    authenticate again, as the same user with the same mechanism (KIP-368).
    """

    def __init__(
        self,
        apis: VersionRanges,
        sasl: SaslServer | None,
        peer: str,
        features: Mapping[str, tuple[int, int]],
        identity: Target = ANYONE,
    ) -> None:
        self._apis = apis
        self._features = features
        self._identity = identity
        self._sasl = sasl
        self._peer = peer
        self._exchange: SaslExchange | None = None
        self._mechanism = ""
        self.username: str | None = None
        self.expires_at: float | None = None
        self.is_by_token = False  # a delegation token, which cannot make others
        self.software = ("", "")
        self.expects_sasl_tokens = False  # the next frames are SASL tokens without headers (SaslHandshake v0)

    def reply(self, request: Request[Any], version: int, state: State, now: float) -> HandshakeReply:
        """Return the reply to a request of the handshake."""
        if isinstance(request, ApiVersionsRequest):
            return HandshakeReply(self.api_versions(request, version))
        if isinstance(request, SaslHandshakeRequest):
            return self._handshake(request, version, state)
        assert isinstance(request, SaslAuthenticateRequest)
        return self._authenticate(request, state, now)

    def api_versions(self, request: ApiVersionsRequest | None, version: int) -> ApiVersionsResponse:
        """Return the broker's versions. `request` is None if its version is too new: then v0 with the own range."""
        if request is None:
            ours = self._apis[ApiKey.API_VERSIONS]
            entry = ApiVersionsResponse.ApiVersion(
                api_key=ApiKey.API_VERSIONS, min_version=ours[0], max_version=ours[-1]
            )
            return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[entry])
        names = request.client_software_name, request.client_software_version
        if version >= 3 and not all(_SOFTWARE.fullmatch(name) for name in names):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
        if self._is_another(request):
            return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED, api_keys=[])
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

    def _is_another(self, request: ApiVersionsRequest) -> bool:
        """Return whether the client means another cluster, or another broker of this one: as Kafka's KafkaApis.

        A client that names no cluster means any broker.
        """
        if self._identity == ANYONE or request.cluster_id is None:
            return False
        return (request.cluster_id, request.node_id) != self._identity

    def reply_token(self, token: bytes) -> tuple[bytes, State | None, AuthenticationError | None]:
        """Return the reply to a SASL token without a header. On an error the connection just ends, as in Kafka."""
        assert self._exchange is not None
        try:
            response_bytes = self._exchange.step(token)
        except SaslError as error:
            return b"", None, self._failure(str(error))
        if not self._exchange.is_done:
            return response_bytes, None, None
        self.expects_sasl_tokens = False
        return response_bytes, *self._complete(self._exchange)

    def _handshake(self, request: SaslHandshakeRequest, version: int, state: State) -> HandshakeReply:
        if self._sasl is None:
            return HandshakeReply(SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[]))
        if state is State.AUTHENTICATING:
            return HandshakeReply(
                SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[]),
                error=self._failure("it sent SaslHandshake twice"),
            )
        mechanisms = list(self._sasl.mechanisms)
        if self.username is not None and request.mechanism != self._mechanism:
            return HandshakeReply(
                SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=mechanisms),
                error=self._failure(f"it authenticates again with another mechanism, {request.mechanism!r}"),
            )
        if request.mechanism not in mechanisms:
            return HandshakeReply(
                SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=mechanisms),
                error=self._failure(f"it requested mechanism {request.mechanism!r}"),
            )
        self._mechanism = request.mechanism
        self._exchange = self._sasl.exchange(request.mechanism)
        self.expects_sasl_tokens = version == 0
        return HandshakeReply(
            SaslHandshakeResponse(error_code=ErrorCode.NONE, mechanisms=mechanisms), State.AUTHENTICATING
        )

    def _authenticate(self, request: SaslAuthenticateRequest, state: State, now: float) -> HandshakeReply:
        if self._exchange is None or state is not State.AUTHENTICATING:
            response = SaslAuthenticateResponse(
                error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message="SaslHandshake comes first", auth_bytes=b""
            )
            return HandshakeReply(response, error=self._failure("it sent SaslAuthenticate before SaslHandshake"))
        try:
            response_bytes = self._exchange.step(bytes(request.auth_bytes))
        except SaslError as error:
            return self._rejected(self._failure(str(error)))
        if not self._exchange.is_done:
            return HandshakeReply(
                SaslAuthenticateResponse(error_code=ErrorCode.NONE, error_message=None, auth_bytes=response_bytes)
            )
        expires_at = self._exchange.expires_at
        state, failure = self._complete(self._exchange)
        if failure is not None:
            return self._rejected(failure)
        lifetime_ms = self._lifetime_ms(expires_at)
        self.expires_at = now + lifetime_ms / 1000 if lifetime_ms else None
        response = SaslAuthenticateResponse(
            error_code=ErrorCode.NONE,
            error_message=None,
            auth_bytes=response_bytes,
            session_lifetime_ms=lifetime_ms,
        )
        return HandshakeReply(response, state)

    def _rejected(self, error: AuthenticationError) -> HandshakeReply:
        """The reason is for the broker's log only; the client learns that it was rejected."""
        response = SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
            error_message=f"Authentication failed: invalid credentials with SASL mechanism {self._mechanism}",
            auth_bytes=b"",
        )
        return HandshakeReply(response, error=error)

    def _lifetime_ms(self, expires_at: float | None) -> int:
        """Return how long the authentication holds, 0 for no limit: the broker's limit, or the credentials' if less."""
        assert self._sasl is not None
        limits = [self._sasl.session_lifetime_ms] if self._sasl.session_lifetime_ms else []
        if expires_at is not None:
            limits.append(max(1, int((expires_at - self._sasl.unix_time()) * 1000)))
        return min([*limits, _LIFETIME_MS_MAX]) if limits else 0

    def _complete(self, exchange: SaslExchange) -> tuple[State, AuthenticationError | None]:
        before, self.username, self.is_by_token = self.username, exchange.username, exchange.is_by_token
        self._exchange = None
        if before is not None and before != self.username:
            return State.READY, self._failure(f"it authenticates again as another user, {self.username!r}")
        return State.READY, None

    def _failure(self, reason: str) -> AuthenticationError:
        mechanism = f" with SASL {self._mechanism}" if self._mechanism else ""
        return AuthenticationError(f"the client did not authenticate{mechanism}: {reason}", broker=self._peer)
