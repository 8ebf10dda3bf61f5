"""What a client asks before its first request: which versions the broker speaks, and to be let in.

Owns the order of these questions and the reading of their answers, as generators: each `yield` asks one question, and
is given the frame that answers it. They never see time, queues or other requests; `Session` sends, matches and counts.
"""
from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from kwire.errors import AuthenticationError, ErrorCode, UnsupportedVersionError, broker_error
from kwire.protocol import ApiKey
from kwire.protocol.headers import decode_response
from kwire.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kwire.protocol.schema import Request
from kwire.session.sasl import Sasl
from kwire.session.sasl.scram import ScramError
from kwire.session.state import State
from kwire.session.versions import VersionRanges, common, highest_common, show


@dataclass(frozen=True, slots=True)
class Ask:
    """A request to be sent in a state; or, to a broker before 1.0, a bare SASL message without any header."""

    state: State
    request: Request[Any] | None
    version: int = 0
    bare: bytes = b""


@dataclass(frozen=True, slots=True)
class Greeted:
    """`features` are the levels that the cluster has agreed on (KIP-584), such as transaction.version: 2."""

    versions: VersionRanges
    session_lifetime_ms: int = 0
    features: Mapping[str, int] = field(default_factory=dict)


Frame: TypeAlias = bytes


def greet(
    broker: str, *, assume: VersionRanges | None, sasl: Sasl | None, software: tuple[str, str]
) -> Generator[Ask, Frame, Greeted]:
    """The whole greeting. Raises a KwireError when the connection can come to nothing."""
    greeted = Greeted(assume) if assume is not None else (yield from _negotiate(broker, software))
    return greeted if sasl is None else (yield from greet_again(broker, sasl, greeted))


def greet_again(broker: str, sasl: Sasl, greeted: Greeted) -> Generator[Ask, Frame, Greeted]:
    """Authenticate; on a living connection too, to renew it (KIP-368)."""
    lifetime_ms = yield from _authenticate(broker, sasl, greeted.versions)
    return replace(greeted, session_lifetime_ms=lifetime_ms)


def _negotiate(broker: str, software: tuple[str, str]) -> Generator[Ask, Frame, Greeted]:
    """ApiVersions, from our highest version down to one that the broker has.

    A broker that lacks the version answers UNSUPPORTED_VERSION in the form of v0, since 2.4 (KIP-511) with its own
    range in it, before that with nothing; then v0 is what it surely has.
    """
    version = ApiVersionsRequest.VERSIONS[-1]
    while True:
        request = ApiVersionsRequest(client_software_name=software[0], client_software_version=software[1])
        frame = yield Ask(State.NEGOTIATING, request, version)
        # The error code comes first in every version, behind the four bytes of the correlation id.
        is_refused = frame[4:6] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
        _, response = decode_response(frame, ApiVersionsRequest, 0 if is_refused else version)
        if not is_refused:
            break
        lower = _lower_version(broker, response, version)
        if lower is None:
            raise UnsupportedVersionError("the broker refused ApiVersions v0", broker=broker, api="ApiVersions")
        version = lower
    if response.error_code:
        raise broker_error(response.error_code, broker=broker, api="ApiVersions", version=version)
    features = {feature.name: feature.max_version_level for feature in response.finalized_features}
    return Greeted(_offered(response), features=features)


def _offered(response: ApiVersionsResponse) -> dict[int, range]:
    return {api.api_key: range(api.min_version, api.max_version + 1) for api in response.api_keys}


def _lower_version(broker: str, response: ApiVersionsResponse, refused: int) -> int | None:
    """The version to ask in next; always lower than the one refused, so that this ends."""
    offered = _offered(response).get(ApiKey.API_VERSIONS)
    if offered is None:
        return 0 if refused > 0 else None
    both = common(range(refused), offered)
    if not both:
        raise UnsupportedVersionError(
            f"no version in common: the broker has {show(offered)}, we have {show(ApiVersionsRequest.VERSIONS)}",
            broker=broker,
            api="ApiVersions",
        )
    return both[-1]


def _authenticate(broker: str, sasl: Sasl, versions: VersionRanges) -> Generator[Ask, Frame, int]:
    """SaslHandshake and the mechanism's messages. Answers how many ms the authentication holds, 0 for ever."""
    from kwire.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
    from kwire.protocol.messages.sasl_handshake import SaslHandshakeRequest

    if ApiKey.SASL_HANDSHAKE not in versions:
        raise AuthenticationError(
            f"the broker does not know SASL {sasl.mechanism}",
            broker=broker,
            remedy="it is older than 0.10: connect without SASL, or to a newer broker",
        )
    is_bare = ApiKey.SASL_AUTHENTICATE not in versions  # before 1.0 (KIP-152)
    version = highest_common(
        ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest.VERSIONS, versions, at_most=0 if is_bare else None, broker=broker
    )
    frame = yield Ask(State.HANDSHAKING, SaslHandshakeRequest(mechanism=sasl.mechanism), version)
    _, response = decode_response(frame, SaslHandshakeRequest, version)
    if response.error_code:
        raise _refused_mechanism(broker, sasl, response.error_code, response.mechanisms)
    client = sasl.client()
    message: bytes | None = client.start()
    lifetime_ms = 0
    while message is not None:  # every mechanism of ours comes to an end, whatever it is answered
        if is_bare:
            challenge = yield Ask(State.AUTHENTICATING, None, bare=message)
        else:
            version = highest_common(
                ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest.VERSIONS, versions, broker=broker
            )
            frame = yield Ask(State.AUTHENTICATING, SaslAuthenticateRequest(auth_bytes=message), version)
            _, answer = decode_response(frame, SaslAuthenticateRequest, version)
            if answer.error_code:
                raise _refused(broker, sasl, answer.error_message)
            challenge, lifetime_ms = answer.auth_bytes, answer.session_lifetime_ms
        try:
            message = client.step(bytes(challenge))
        except ScramError as error:
            raise AuthenticationError(
                f"SASL {sasl.mechanism} for user {sasl.username!r} failed: {error}",
                broker=broker,
                remedy="check that this is the right broker, and user name and password",
            ) from None
    assert client.is_done
    return lifetime_ms


def _refused_mechanism(broker: str, sasl: Sasl, code: int, offered: Sequence[str]) -> AuthenticationError:
    if code == ErrorCode.ILLEGAL_SASL_STATE:
        return AuthenticationError(
            f"this listener of the broker does not use SASL, and {sasl.mechanism} is configured",
            broker=broker,
            remedy="connect without SASL, or to a listener that has it",
        )
    if code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        names = ", ".join(offered) or "nothing"
        return AuthenticationError(
            f"the broker does not offer SASL {sasl.mechanism}; it offers {names}", broker=broker, remedy=f"use {names}"
        )
    return AuthenticationError(
        f"the broker refused to begin SASL {sasl.mechanism}: {broker_error(code)}", broker=broker, remedy="see its log"
    )


def _refused(broker: str, sasl: Sasl, message: str | None) -> AuthenticationError:
    said = f": {message}" if message else ""
    return AuthenticationError(
        f"the broker refused SASL {sasl.mechanism} for user {sasl.username!r}{said}",
        broker=broker,
        remedy="check user name and password, and that the broker has this user for this mechanism",
    )
