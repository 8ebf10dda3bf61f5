"""`Session`: one connection's requests and responses, without its socket. The same class for client and broker.

    client                                                    broker
    send(request) -> frames()           ... network ...       receive(frame) -> RequestReceived(tag)
    receive(frame) -> ResponseReceived  ... network ...       respond(tag, response) -> frames()

A session holds the correlation ids, the handshake, and a FIFO of requests without a response, with their deadlines.
Kafka responds in order: a client checks the correlation id of each response, and a broker holds a response back until
those before it are given. A session has no clock and no socket: callers pass `now` and frames.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kwire.errors import (
    AuthenticationError,
    ClosedError,
    ConfigurationError,
    DecodeError,
    DisconnectedError,
    KwireError,
    LoginError,
    RequestTimeoutError,
    UnsupportedVersionError,
)  # fmt: skip
from kwire.protocol import ApiKey, api
from kwire.protocol.diagnose import decode_prefix
from kwire.protocol.headers import (
    RequestHeader,
    decode_request_header,
    decode_response_body,
    encode_request,
    encode_response,
    peek_correlation_id,
)  # fmt: skip
from kwire.protocol.schema import Request, Response
from kwire.session.events import (
    ConnectionBroken,
    ConnectionClosed,
    Event,
    HandshakeDone,
    RequestFailed,
    RequestInfo,
    RequestReceived,
    ResponseReceived,
    Role,
    State,
    TrailingBytes,
    transition,
)
from kwire.session.handshake import (
    ANYONE,
    OWN_APIS,
    BrokerHandshake,
    Handshake,
    Negotiated,
    Target,
    client_handshake,
    reauthenticate,
)
from kwire.session.sasl.exchange import Deferred, Login
from kwire.session.versions import VersionRanges, check_ranges, highest_common, show
from kwire.version import VERSION
from kwire.wire.frame import BytesLike

if TYPE_CHECKING:
    from kwire.session.sasl import SaslServer

MAX_IN_FLIGHT = 100
_CORRELATION_ID_MAX = 2**31 - 1
# The share of a limited authentication's lifetime after which it is renewed, and by how much chance adds to it.
_RENEW_AT = 0.85
_RENEW_JITTER = 0.1
# A renewal that lacks credentials for now is tried again after this many seconds, or less if less is left.
_RENEW_RETRY = 10.0
_ENDED = (State.BROKEN, State.CLOSED)


@dataclass(slots=True, eq=False)
class InFlightRequest:
    """Client: a request that was sent or waits to be sent. `request` is None for a SASL token without a header."""

    request: Request[Any] | None
    version: int | None
    token: Any
    deadline: float
    timeout_ms: float
    sent_at: float
    expects_response: bool = True
    is_handshake: bool = False
    is_sent: bool = False  # `frames` has returned its frame
    correlation_id: int = -1

    @property
    def api(self) -> str:
        return api(self.request.API_KEY).name if self.request is not None else "SASL"

    @property
    def info(self) -> RequestInfo:
        version = self.version if self.request is not None else None
        return RequestInfo(self.api, version, self.correlation_id, self.sent_at)


@dataclass(slots=True, eq=False)
class PendingResponse:
    """Broker: the place of a response in the order of requests, and its frame once it is given."""

    header: RequestHeader
    frame: list[BytesLike] | None = None
    is_complete: bool = False


class Session:
    """One connection's state, without its socket. Made by `Session.client` or `Session.broker`.

    The methods of the other role raise RuntimeError.
    """

    def __init__(self, role: Role, peer: str) -> None:
        self.role = role
        self.peer = peer
        self._state = State.NEW
        self._out: deque[tuple[InFlightRequest | None, list[BytesLike]]] = deque()
        # Client
        self._client_id: str | None = None
        self._sasl: Login | None = None
        self._host = ""
        self._request_timeout_ms: float = 30_000
        self._max_in_flight = MAX_IN_FLIGHT
        self._handshake: Handshake | None = None
        self._deferred: Deferred | None = None  # the handshake waits for this message
        self._deferred_until = inf
        self._negotiated: Negotiated | None = None  # the result of the handshake
        self._versions: dict[tuple[type[Request[Any]], int | None], int] = {}  # a cache of `version`
        self._waiting: deque[InFlightRequest] = deque()
        self._in_flight: deque[InFlightRequest] = deque()
        self._next_id = 0
        self._chance: Callable[[], float] = lambda: 0.5
        self._renew_at = inf
        self._authenticated_until = inf
        self._authenticate_sent_at = 0.0
        self._is_used = False  # since the last authentication
        self._is_resting = False  # unused since then, so that it is renewed only before the next request
        self._awaits_renewal = False  # requests wait for it: a broker would close the connection
        self._has_received_any = False  # the peer, anything
        self._has_received_response = False  # the peer, an ordinary request
        # Broker
        self._apis: VersionRanges = {}
        self._broker_handshake: BrokerHandshake | None = None
        self._pending_responses: deque[PendingResponse] = deque()

    @classmethod
    def client(
        cls,
        node: str,
        *,
        client_id: str | None = "kwire",
        sasl: Login | None = None,
        host: str = "",
        request_timeout_ms: float = 30_000,
        assume: VersionRanges | None = None,
        software: tuple[str, str] = ("kwire", VERSION),
        max_in_flight: int = MAX_IN_FLIGHT,
        chance: Callable[[], float] = lambda: 0.5,
        target: Target = ANYONE,
        api_versions: int | None = None,
    ) -> Session:
        """Return the client's end. `node` names the broker in errors, such as "1 at db:9092".

        `host` is the broker's host name, which some SASL mechanisms need. `target` is the id of the cluster and of the
        broker that are meant: another broker of Kafka 4.4 refuses with REBOOTSTRAP_REQUIRED.
        `assume` are the versions of a broker without ApiVersions (`versions.BROKERS_BEFORE_API_VERSIONS`). Requests
        beyond `max_in_flight` wait in the session. `chance` returns a random number from 0 to 1: connections that were
        made together must not authenticate again together.
        `api_versions` is the version of ApiVersions to begin with: what `Session.api_versions` was on an earlier
        connection to this broker, so that an older broker need not refuse the highest one again.
        Raises ConfigurationError for a wrong option.
        """
        _check_time("request_timeout_ms", request_timeout_ms)
        if not isinstance(max_in_flight, int) or max_in_flight < 1:
            raise ConfigurationError(f"max_in_flight is {max_in_flight!r}", remedy="give a whole number above 0")
        if sasl is not None and not hasattr(sasl, "exchange"):
            raise ConfigurationError(f"sasl is {type(sasl).__name__}", remedy="give a kwire.Sasl")
        if assume is not None:
            check_ranges("assume", assume)
        session = cls(Role.CLIENT, node)
        session._client_id = client_id
        session._sasl = sasl
        session._request_timeout_ms = request_timeout_ms
        session._max_in_flight = max_in_flight
        session._chance = chance
        session._host = host
        session._handshake = client_handshake(
            node, host=host, assume=assume, sasl=sasl, software=software, target=target, api_versions=api_versions
        )
        return session

    @classmethod
    def broker(
        cls,
        *,
        apis: VersionRanges,
        sasl: SaslServer | None = None,
        peer: str = "client",
        features: Mapping[str, tuple[int, int]] = MappingProxyType({}),
        identity: Target = ANYONE,
    ) -> Session:
        """Return the broker's end. `peer` names the client in errors.

        `apis` are the versions to serve. The session handles ApiVersions and the SASL requests itself; `apis` names
        them only to restrict their versions (an empty range: not at all). `features` are the cluster's (KIP-584):
        {name: (level, highest level)}, level 0 for none. `identity` is the cluster's id and the broker's, where clients
        that mean another one shall be refused (KIP-1242). Raises ConfigurationError for wrong versions.
        """
        check_ranges("apis", apis)
        session = cls(Role.BROKER, peer)
        session._apis = {key: versions for key, versions in {**OWN_APIS, **apis}.items() if versions}
        session._broker_handshake = BrokerHandshake(session._apis, sasl, peer, features, identity)
        session._set_state(State.READY if sasl is None else State.NEGOTIATING)
        return session

    # Both roles

    @property
    def state(self) -> State:
        return self._state

    @property
    def is_ready(self) -> bool:
        """Return whether the handshake is done and the connection open; True while an authentication is renewed."""
        if self.role is Role.CLIENT:
            return self._negotiated is not None and self._state not in _ENDED
        return self._state is State.READY

    @property
    def in_flight(self) -> int:
        """Client: requests given to `send` that are not complete. Broker: requests without a response."""
        count = len(self._in_flight) + len(self._waiting) + len(self._pending_responses)
        if self._handshake is not None:  # its requests are not the caller's
            count -= sum(entry.is_handshake for entry in self._in_flight)
        return count

    @property
    def has_frames(self) -> bool:
        return bool(self._out)

    def frames(self) -> list[list[BytesLike]]:
        """Return the frames to write, in order, each once: as a list of parts, without the size."""
        frames = []
        while self._out:
            entry, frame = self._out.popleft()
            if entry is not None:
                entry.is_sent = True
            frames.append(frame)
        return frames

    def unsent_requests(self) -> list[RequestInfo]:
        """Client: return a description of each request whose frame `frames` will return next, for a log."""
        return [entry.info for entry, _ in self._out if entry is not None]

    def oldest_request(self) -> RequestInfo | None:
        """Client: return a description of the request that the next frame responds to, or None, for a log."""
        return self._in_flight[0].info if self._in_flight else None

    def tokens(self) -> list[Any]:
        """Client: return the tokens of the requests that have no response yet, in the order in which they were sent."""
        return [entry.token for entry in (*self._in_flight, *self._waiting) if entry.token is not None]

    def receive(self, frame: BytesLike, now: float) -> list[Event]:
        """Handle a whole frame, without its size. After `ConnectionBroken` frames are ignored."""
        if self._state in _ENDED:
            return []
        return self._receive_response(frame, now) if self.role is Role.CLIENT else self._receive_request(frame, now)

    def deadline(self) -> float | None:
        """Return when to call `expire` next, or None."""
        if self.role is Role.BROKER or self._state in _ENDED:
            return None
        earliest = self._renew_at
        if self._deferred is not None:
            earliest = min(earliest, self._deferred_until)
            if not self._awaits_renewal:
                earliest = min(earliest, self._authenticated_until)
        for queue in (self._in_flight, self._waiting):
            for entry in queue:
                earliest = min(earliest, entry.deadline)
        return None if earliest == inf else earliest

    def expire(self, now: float) -> list[Event]:
        """Fail the requests that have timed out. One in flight breaks the connection: its response may still arrive,
        and later responses could not be matched."""
        if self.role is Role.BROKER or self._state in _ENDED:
            return []
        for entry in self._in_flight:
            if entry.deadline <= now:
                return self._break(self._timeout_error(entry))
        if self._deferred is not None:
            if self._authenticated_until <= now:
                self._awaits_renewal = True
            if self._deferred_until <= now:
                return self.resume(self._deferred, self._login_timeout(), now)
        events: list[Event] = []
        for entry in [entry for entry in self._waiting if entry.deadline <= now]:
            self._waiting.remove(entry)
            events.append(self._failed(entry, self._timeout_error(entry)))
        if self._renew_at <= now and self._state is State.READY:
            self._renew_at = inf
            if self._is_used:
                assert self._sasl is not None
                assert self._negotiated is not None
                self._handshake = reauthenticate(self.peer, self._host, self._sasl, self._negotiated)
                events += self._advance(None, now)
            else:
                self._is_resting = True
        return events

    def closed(self, cause: KwireError, now: float, *, is_by_peer: bool = True) -> list[Event]:
        """End the session after its connection: fail every request, in send order, then report ConnectionClosed.

        Only what the peer closed says something about the peer: refused SASL, or a broker without ApiVersions.
        Raises TypeError for a cause that is no KwireError, such as an OSError of the caller's socket.
        """
        if not isinstance(cause, KwireError):
            raise TypeError(f"cause is {cause!r:.60}: give a KwireError, such as DisconnectedError(str(cause))")
        if self._state is State.CLOSED:
            return []
        is_cut = is_by_peer and isinstance(cause, DisconnectedError)
        died = is_cut and self._state is State.NEGOTIATING and not self._has_received_any
        if is_cut:
            cause = self._explain_close(cause)
        self._state = transition(self._state, State.CLOSED)
        events: list[Event] = []
        without_response = [entry for entry, _ in self._out if entry is not None and not entry.expects_response]
        for entry in (*self._in_flight, *without_response, *self._waiting):
            if not entry.is_handshake:
                events.append(self._failed(entry, self._close_error(entry, cause, now)))
        for queue in (self._in_flight, self._waiting, self._out, self._pending_responses):
            queue.clear()
        self._handshake = None
        events.append(ConnectionClosed(cause, died_during_negotiation=died and self.role is Role.CLIENT))
        return events

    # Client

    def start(self, now: float) -> list[Event]:
        """Begin the handshake on a connected socket. `frames` has the first frames afterwards. HandshakeDone is among
        the events only if there is nothing to send (`assume`, and no SASL)."""
        self._require(Role.CLIENT)
        if self._state is not State.NEW:
            raise RuntimeError(f"started twice (it is {self._state.value})")
        return self._advance(None, now)

    def send(
        self,
        request: Request[Any],
        now: float,
        *,
        version: int | None = None,
        timeout_ms: float | None = None,
        token: Any = None,
        expects_response: bool = True,
    ) -> None:
        """Send a request, in the highest common version unless `version` is given.

        One ResponseReceived or RequestFailed event with `token` reports the result. Before the handshake is done, and
        beyond `max_in_flight`, the request waits; its timeout counts from now. A request that expects no response
        (Produce with acks=0) is complete, without an event, once `frames` has returned its frame.
        Raises EncodeError or UnsupportedVersionError if it is sent at once (a waiting request gets RequestFailed),
        ClosedError on a closed connection, and TypeError or ConfigurationError for an argument of a wrong type.
        """
        if not isinstance(request, Request):
            raise TypeError(f"request is {request!r:.60}: give a request, such as MetadataRequest(topics=None)")
        if version is not None and not isinstance(version, int):
            raise TypeError(f"version is {version!r:.60}: give an int, or None for the highest in common")
        if self.role is not Role.CLIENT or self._state in _ENDED:
            self._require(Role.CLIENT)
            raise ClosedError(f"the connection is {self._state.value}", broker=self.peer)
        self._is_used = True
        if self._is_resting:
            self._is_resting, self._awaits_renewal, self._renew_at = False, True, now  # `expire` begins it
        limit_ms = self._request_timeout_ms
        if timeout_ms is not None:
            _check_time("timeout_ms", timeout_ms)
            limit_ms = timeout_ms
        entry = InFlightRequest(request, version, token, now + limit_ms / 1000, limit_ms, now, expects_response)
        if self._waiting or not self._can_send_more():
            self._waiting.append(entry)
        else:
            self._encode(entry, now)

    def version(self, request_class: type[Request[Any]], at_most: int | None = None) -> int:
        """Return the highest version of an API that both sides have. Raises UnsupportedVersionError."""
        version = self._versions.get((request_class, at_most))
        if version is not None:
            return version
        if self._negotiated is None:
            name = api(request_class.API_KEY).name
            raise UnsupportedVersionError("no versions are agreed yet", broker=self.peer, api=name)
        version = highest_common(
            request_class.API_KEY, request_class.VERSIONS, self._negotiated.versions, at_most=at_most, broker=self.peer
        )
        self._versions[request_class, at_most] = version
        return version

    @property
    def features(self) -> Mapping[str, int]:
        """Return the levels of the cluster's features (KIP-584), from ApiVersions."""
        return self._negotiated.features if self._negotiated is not None else {}

    @property
    def api_versions(self) -> int | None:
        """Client: return the highest version of ApiVersions that both sides have, or None if it was not asked."""
        return self._negotiated.api_versions if self._negotiated is not None else None

    def _can_send_more(self) -> bool:
        return self._state is State.READY and len(self._in_flight) < self._max_in_flight and not self._awaits_renewal

    def _encode(self, entry: InFlightRequest, now: float) -> None:
        assert entry.request is not None
        if entry.version is None:
            entry.version = self.version(type(entry.request))
        frame = encode_request(entry.request, entry.version, self._next_id, self._client_id)
        entry.correlation_id = self._next_id
        self._next_id = 0 if self._next_id == _CORRELATION_ID_MAX else self._next_id + 1
        self._enqueue(entry, frame, now)

    def _enqueue(self, entry: InFlightRequest, frame: list[BytesLike], now: float) -> None:
        entry.sent_at = now
        self._out.append((entry, frame))
        if entry.expects_response:
            self._in_flight.append(entry)

    def _send_waiting(self, now: float, *, after_login: bool = False) -> list[Event]:
        """Send the waiting requests, up to `max_in_flight`. `after_login`: they have waited for that.

        One that is overdue fails: once sent, it would break the connection at the next `expire`.
        """
        events: list[Event] = []
        while self._waiting and self._can_send_more():
            entry = self._waiting.popleft()
            if entry.deadline <= now:
                events.append(self._failed(entry, self._timeout_error(entry, after_login=after_login)))
                continue
            try:
                self._encode(entry, now)
            except KwireError as error:
                events.append(self._failed(entry, error))
        return events

    def _receive_response(self, frame: BytesLike, now: float) -> list[Event]:
        if not self._in_flight:
            return self._break(DecodeError("the broker sent a response without a request"))
        entry = self._in_flight[0]
        if entry.request is None:
            self._in_flight.popleft()
            return self._advance(frame, now)
        assert entry.version is not None
        try:
            if peek_correlation_id(frame) != entry.correlation_id:
                raise _out_of_order(frame, entry)
            if entry.is_handshake:
                self._has_received_any = True
                self._in_flight.popleft()
                return self._advance(frame, now)
            response = decode_response_body(frame, type(entry.request), entry.version)
        except DecodeError as error:
            return self._break(error.at(api=entry.api, version=entry.version))
        self._in_flight.popleft()
        self._has_received_any = self._has_received_response = True
        received = ResponseReceived(entry.token, entry.request, response, entry.version, entry.sent_at)
        return [received, *self._send_waiting(now)] if self._waiting else [received]

    @property
    def awaits_renewal(self) -> bool:
        """Client: whether `expire` must be called now, to renew an authentication before the next request."""
        return self._awaits_renewal

    def resume(self, step: Deferred, result: bytes | KwireError | None, now: float) -> list[Event]:
        """Continue the handshake with the message of a `Deferred` event, or with the error.

        Where a later login may succeed and the authentication still holds, it is renewed later.
        """
        self._require(Role.CLIENT)
        if self._state in _ENDED or self._deferred is not step:
            return []
        self._deferred = None
        if not isinstance(result, KwireError):
            return self._advance(result, now)
        # Once SaslHandshake is sent there is no way back to requests.
        left = self._authenticated_until - now if self._state is State.READY else 0.0
        if left > 0 and isinstance(result, LoginError) and result.is_retriable:
            self._handshake = None
            self._renew_at = now + min(_RENEW_RETRY, left / 2)
            self._awaits_renewal = False  # the broker still takes what has waited for it
            return self._send_waiting(now, after_login=True)
        return self._break(copy.copy(result))  # one failed login may be the end of many connections

    def _advance(self, result: BytesLike | None, now: float) -> list[Event]:
        """Pass a frame or a message to the handshake, then send its next request or complete it."""
        assert self._handshake is not None
        try:
            step = next(self._handshake) if result is None else self._handshake.send(bytes(result))
        except StopIteration as done:
            return self._complete_handshake(done.value, now)
        except KwireError as error:
            return self._break(error)
        except Exception as error:  # of a mechanism: other connections of the loop go on
            if self._sasl is None:
                raise
            what = f"SASL {self._sasl.mechanism} for {self._sasl.identity} failed with {type(error).__name__}"
            failed = AuthenticationError(what, remedy="see the traceback of __cause__")
            failed.__cause__ = error
            return self._break(failed)
        if isinstance(step, Deferred):
            self._deferred, self._deferred_until = step, now + self._request_timeout_ms / 1000
            return [step]
        if self._state is not step.state:
            self._set_state(step.state)
        self._authenticate_sent_at = now
        deadline = now + self._request_timeout_ms / 1000
        entry = InFlightRequest(
            step.request, step.version, None, deadline, self._request_timeout_ms, now, is_handshake=True
        )
        if step.request is None:
            self._enqueue(entry, [step.sasl_token], now)
            return []
        try:
            self._encode(entry, now)
        except KwireError as error:
            return self._break(error)
        return []

    def _complete_handshake(self, negotiated: Negotiated, now: float) -> list[Event]:
        self._handshake = None
        self._negotiated = negotiated
        self._versions.clear()
        lifetime = negotiated.session_lifetime_ms / 1000
        self._renew_at = self._authenticated_until = inf
        self._is_used = self._is_resting = self._awaits_renewal = False
        if lifetime > 0:  # it began no earlier than this request was sent
            self._authenticated_until = self._authenticate_sent_at + lifetime
            share = _RENEW_AT + _RENEW_JITTER * self._chance()
            self._renew_at = self._authenticate_sent_at + lifetime * share
        self._set_state(State.READY)
        done = HandshakeDone(negotiated.versions, negotiated.session_lifetime_ms)
        return [done, *self._send_waiting(now, after_login=True)]

    # Broker

    @property
    def username(self) -> str | None:
        """Broker: the authenticated user, or None."""
        return self._broker_handshake.username if self._broker_handshake is not None else None

    @property
    def is_by_token(self) -> bool:
        """Broker: whether the user has authenticated by a delegation token."""
        return self._broker_handshake is not None and self._broker_handshake.is_by_token

    @property
    def software(self) -> tuple[str, str]:
        """Broker: the name and version of the client's library from ApiVersions (KIP-511), or empty texts."""
        return self._broker_handshake.software if self._broker_handshake is not None else ("", "")

    def respond(self, tag: Any, response: Response | None) -> None:
        """Respond to the request of a RequestReceived event; None where it expects no response (Produce with acks=0).

        Responses may come in any order: each waits for those of earlier requests. On a closed connection it is dropped.
        Raises EncodeError, RuntimeError for a second response, and TypeError for a response to another API.
        """
        self._require(Role.BROKER)
        if not isinstance(tag, PendingResponse):
            raise TypeError(f"tag is {tag!r:.60}: give the tag of a RequestReceived event")
        if response is not None and not (isinstance(response, Response) and tag.header.api_key == response.API_KEY):
            raise TypeError(f"{response!r:.60} is no response to {api(tag.header.api_key).name}")
        if tag.is_complete:
            raise RuntimeError(f"a second response to one request: {tag.header}")
        if response is not None:
            tag.frame = encode_response(response, tag.header.api_version, tag.header.correlation_id)
        tag.is_complete = True
        while self._pending_responses and self._pending_responses[0].is_complete:
            frame = self._pending_responses.popleft().frame
            if frame is not None:
                self._out.append((None, frame))

    def _receive_request(self, frame: BytesLike, now: float) -> list[Event]:
        assert self._broker_handshake is not None
        if self._broker_handshake.expects_sasl_tokens:
            return self._receive_sasl_token(self._broker_handshake, bytes(frame))
        try:
            header, start = decode_request_header(frame)
            key, version = header.api_key, header.api_version
            if version not in self._apis.get(key, ()):
                if key == ApiKey.API_VERSIONS and key in self._apis:
                    self._reply_unsupported_version(self._broker_handshake, header)
                    return []
                served = show(self._apis.get(key, range(0)))
                raise UnsupportedVersionError(
                    f"the client requests a version that is not served ({served})", api=api(key).name, version=version
                )
            if self._state is not State.READY and key not in OWN_APIS:
                raise AuthenticationError(f"the client sent {api(key).name} before authentication")
            expires_at = self._broker_handshake.expires_at
            if expires_at is not None and now >= expires_at and key not in OWN_APIS:
                raise AuthenticationError(
                    f"the client sent {api(key).name} {now - expires_at:.1f} s after the end of its authentication"
                )
            request, trailing = _decode_request_body(frame, header, start)
        except KwireError as error:
            return self._break(error)
        events: list[Event] = [TrailingBytes(header, trailing)] if trailing else []
        pending = PendingResponse(header)
        self._pending_responses.append(pending)
        if key not in OWN_APIS:
            return [*events, RequestReceived(header, request, pending)]
        reply = self._broker_handshake.reply(request, version, self._state, now)
        self.respond(pending, reply.response)
        return [*events, *self._apply_reply(reply.state, reply.error)]

    def _receive_sasl_token(self, handshake: BrokerHandshake, token: bytes) -> list[Event]:
        reply, state, error = handshake.reply_token(token)
        if error is None:
            self._out.append((None, [reply]))
        return self._apply_reply(state, error)

    def _apply_reply(self, state: State | None, error: KwireError | None) -> list[Event]:
        if error is not None:
            return self._break(error)
        if state is State.AUTHENTICATING:
            self._set_state(State.HANDSHAKING)
        if state is not None:
            self._set_state(state)
        return []

    def _reply_unsupported_version(self, handshake: BrokerHandshake, header: RequestHeader) -> None:
        """Respond to ApiVersions in a version that is too new to decode; the response has the form of v0 (KIP-511)."""
        pending = PendingResponse(RequestHeader(header.api_key, 0, header.correlation_id))
        self._pending_responses.append(pending)
        self.respond(pending, handshake.api_versions(None, 0))

    # Ends

    def _set_state(self, state: State) -> None:
        self._state = transition(self._state, state)

    def _require(self, role: Role) -> None:
        if self.role is not role:
            raise RuntimeError(f"this is for a {role.value}, and the session is a {self.role.value}'s")

    def _break(self, error: KwireError) -> list[Event]:
        self._set_state(State.BROKEN)
        return [ConnectionBroken(error.at(broker=self.peer))]

    def _failed(self, entry: InFlightRequest, error: KwireError) -> RequestFailed:
        assert entry.request is not None
        return RequestFailed(entry.token, entry.request, error, entry.is_sent)

    def _login_timeout(self) -> LoginError:
        assert self._sasl is not None
        if self._state is State.AUTHENTICATING:  # the broker waits: only a proof takes time there
            return LoginError(
                f"computing the proof of SASL {self._sasl.mechanism} for {self._sasl.identity} takes longer than "
                f"{self._request_timeout_ms:,.0f} ms",
                may_retry=True,
                remedy="raise request_timeout_ms, or lower the iterations of this user's password",
            )
        return LoginError(
            f"no credentials for SASL {self._sasl.mechanism} in {self._request_timeout_ms:,.0f} ms: "
            f"{self._sasl.identity} takes longer",
            may_retry=True,
            remedy="check the token server, the key distribution centre or the callable",
        )

    def _close_error(self, entry: InFlightRequest, cause: KwireError, now: float) -> KwireError:
        """Return an error for each request of its own, so that tracebacks are not shared; `__cause__` is `cause`."""
        error: KwireError
        if isinstance(cause, RequestTimeoutError):
            if entry.deadline <= now:
                return self._timeout_error(entry)
            error = DisconnectedError(
                "the connection was closed because an earlier request on it timed out", broker=self.peer
            )
        else:
            error = copy.copy(cause)
        error.__cause__ = cause
        return error.at(api=entry.api, version=entry.version)

    def _timeout_error(self, entry: InFlightRequest, *, after_login: bool = False) -> RequestTimeoutError:
        limit = f"{entry.timeout_ms:,.0f} ms"
        where: dict[str, object] = {"broker": self.peer, "api": entry.api, "version": entry.version}
        if self._state is State.NEGOTIATING:
            return RequestTimeoutError(
                f"the peer accepted the connection but did not respond in {limit}", **where,
                remedy="check that the port is a Kafka listener, with or without TLS as configured here",
            )  # fmt: skip
        is_logging_in = after_login or self._awaits_renewal or self._state is not State.READY
        if not entry.is_sent and self._sasl is not None and is_logging_in:
            return RequestTimeoutError(
                f"could not be sent in {limit}: the connection was logging in", **where,
                remedy="check what issues the tokens, tickets or keys, and the broker's load",
            )  # fmt: skip
        if not entry.is_sent:
            return RequestTimeoutError(f"could not be sent in {limit}", remedy="check the broker's load", **where)
        return RequestTimeoutError(
            f"no response in {limit}", remedy="check the broker's load, or raise the timeout", **where
        )

    def _explain_close(self, cause: KwireError) -> KwireError:
        """Return a better error where closing the connection is a broker's only way to report one."""
        if self.role is Role.BROKER:
            return cause
        better: KwireError | None = None
        if self._in_flight and self._in_flight[0].request is None and self._sasl is not None:
            better = AuthenticationError(
                f"the broker closed the connection over SASL {self._sasl.mechanism} for {self._sasl.identity}",
                broker=self.peer,
                remedy="brokers before 1.0 reject a user name or password in this way: check them",
            )
        elif (
            self._sasl is None
            and self._state is State.READY
            and self._has_received_any
            and not self._has_received_response
        ):
            better = DisconnectedError(
                cause.message,
                broker=self.peer,
                remedy="it ended at the first request: a listener that requires SASL does so every time, a broker that "
                "starts or stops does so once",
            )
        if better is None:
            return cause
        better.__cause__ = cause
        return better


def _check_time(option: str, milliseconds: float) -> None:
    """Raise ConfigurationError for what is no time. A time that is over, below 0, is one."""
    if not isinstance(milliseconds, (int, float)) or milliseconds != milliseconds:
        raise ConfigurationError(f"{option} is {milliseconds!r}", remedy="give milliseconds")


def _decode_request_body(frame: BytesLike, header: RequestHeader, start: int) -> tuple[Request[Any], bytes]:
    """Return the request and the bytes after its last field, which Kafka's brokers do not read.

    librdkafka sends such bytes in a Metadata request for all topics. Raises DecodeError for any other bad bytes.
    """
    request_class = api(header.api_key).request
    try:
        return request_class.decode(frame, header.api_version, start), b""
    except DecodeError:
        request, end = decode_prefix(request_class, bytes(frame), header.api_version, start)
        return request, bytes(frame[end:])


def _out_of_order(frame: BytesLike, entry: InFlightRequest) -> DecodeError:
    return DecodeError(
        f"the response has correlation id {peek_correlation_id(frame)}, but the oldest request in flight has "
        f"{entry.correlation_id}",
        remedy="brokers respond in order; something between the broker and this client loses or mixes up responses",
    )
