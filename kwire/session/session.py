"""Session: one connection's requests and responses, without the connection. One machine for both roles.

    client                                              broker
    send(request) -> frames()   ... the wire ...        receive(frame) -> RequestReceived(tag)
    receive(frame) -> Answered  ... the wire ...        respond(tag, response) -> frames()

Owns the correlation ids, the FIFO of requests that wait for a response, their deadlines, and the greeting before them.
Both ends keep the same FIFO: Kafka answers in order, so a client checks a correlation id and never looks one up, and a
broker holds a finished response back until those before it are finished. Never reads a clock, never touches a socket:
time comes in as `now`, frames go in and out.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import Any

from kwire.errors import (
    AuthenticationError,
    ClosedError,
    DecodeError,
    DisconnectedError,
    KwireError,
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
    moved,
)
from kwire.session.handshake import (
    OWN_APIS,
    BrokerHandshake,
    HandshakeRequest,
    Negotiated,
    client_handshake,
    reauthenticate,
)
from kwire.session.sasl import Sasl, SaslServer
from kwire.session.versions import VersionRanges, highest_common, show
from kwire.version import VERSION
from kwire.wire.frame import BytesLike

MAX_IN_FLIGHT = 100
_CORRELATION_ID_MAX = 2**31 - 1
# An authentication of limited lifetime is renewed at this share of it, so that no request meets its end.
_RENEW_AT = 0.9
_OVER = (State.BROKEN, State.CLOSED)


@dataclass(slots=True, eq=False)
class InFlightRequest:
    """Client: a request on its way. `request` is None for a bare SASL message."""

    request: Request[Any] | None
    version: int | None
    token: Any
    deadline: float
    timeout_ms: float
    sent_at: float
    expects_response: bool = True
    is_greeting: bool = False
    is_sent: bool = False  # its frame has been handed out
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
    """Broker: a response to be given, and its frame once it is."""

    header: RequestHeader
    frame: list[BytesLike] | None = None
    is_answered: bool = False


class Session:
    """Made by `Session.client` or `Session.broker`; the methods of the other role raise RuntimeError."""

    def __init__(self, role: Role, peer: str) -> None:
        self.role = role
        self.peer = peer
        self._state = State.NEW
        self._out: deque[tuple[InFlightRequest | None, list[BytesLike]]] = deque()
        # Client
        self._client_id: str | None = None
        self._sasl: Sasl | None = None
        self._request_timeout_ms: float = 30_000
        self._max_in_flight = MAX_IN_FLIGHT
        self._greeting: Generator[HandshakeRequest, bytes, Negotiated] | None = None
        self._terms: Negotiated | None = None  # what the greeting came to
        self._versions: dict[tuple[type[Request[Any]], int | None], int] = {}  # by these terms, as far as asked for
        self._waiting: deque[InFlightRequest] = deque()
        self._in_flight: deque[InFlightRequest] = deque()
        self._next_id = 0
        self._renew_at = inf
        self._has_answered = False  # the peer, anything
        self._has_served = False  # the peer, an ordinary request
        # Broker
        self._apis: VersionRanges = {}
        self._entrance: BrokerHandshake | None = None
        self._owed: deque[PendingResponse] = deque()

    @classmethod
    def client(
        cls,
        node: str,
        *,
        client_id: str | None = "kwire",
        sasl: Sasl | None = None,
        request_timeout_ms: float = 30_000,
        assume: VersionRanges | None = None,
        software: tuple[str, str] = ("kwire", VERSION),
        max_in_flight: int = MAX_IN_FLIGHT,
    ) -> Session:
        """The client's end. `node` names the broker in errors, such as "1 at db:9092".

        `assume` are the versions of a broker that cannot be asked (`versions.BROKERS_BEFORE_API_VERSIONS`). Requests
        beyond `max_in_flight` wait here for their turn.
        """
        session = cls(Role.CLIENT, node)
        session._client_id = client_id
        session._sasl = sasl
        session._request_timeout_ms = request_timeout_ms
        session._max_in_flight = max_in_flight
        session._greeting = client_handshake(node, assume=assume, sasl=sasl, software=software)
        return session

    @classmethod
    def broker(
        cls,
        *,
        apis: VersionRanges,
        sasl: SaslServer | None = None,
        peer: str = "client",
        features: Mapping[str, tuple[int, int]] = MappingProxyType({}),
    ) -> Session:
        """The broker's end. `apis` are the versions to serve; ApiVersions and the SASL requests are the session's own,
        and are named in `apis` only to offer less of them (an empty range: not at all). `peer` names the client.
        `features` are those of the cluster (KIP-584): {name: (level, highest level there is)}, level 0 for none."""
        session = cls(Role.BROKER, peer)
        session._apis = {key: versions for key, versions in {**OWN_APIS, **apis}.items() if versions}
        session._entrance = BrokerHandshake(session._apis, sasl, peer, features)
        session._move(State.READY if sasl is None else State.NEGOTIATING)
        return session

    # Both roles

    @property
    def state(self) -> State:
        return self._state

    @property
    def is_ready(self) -> bool:
        """The greeting is over, and the connection is not. Stays True while an authentication is renewed."""
        if self.role is Role.CLIENT:
            return self._terms is not None and self._state not in _OVER
        return self._state is State.READY

    @property
    def in_flight(self) -> int:
        """Client: requests given to `send` that are not over. Broker: requests received and not yet responded to."""
        count = len(self._in_flight) + len(self._waiting) + len(self._owed)
        if self._greeting is not None:  # what it asks is nobody's request
            count -= sum(asked.is_greeting for asked in self._in_flight)
        return count

    @property
    def has_frames(self) -> bool:
        return bool(self._out)

    def frames(self) -> list[list[BytesLike]]:
        """What is to be written, in order; each frame as its pieces, without its size. Each is answered once."""
        frames = []
        while self._out:
            asked, frame = self._out.popleft()
            if asked is not None:
                asked.is_sent = True
            frames.append(frame)
        return frames

    def outgoing(self) -> list[RequestInfo]:
        """Client: describe the requests whose frames `frames` will hand out next, one for each, for a log."""
        return [asked.info for asked, _ in self._out if asked is not None]

    def awaited(self) -> RequestInfo | None:
        """Client: describe the request that the next frame must answer, for a log; None if there is none."""
        return self._in_flight[0].info if self._in_flight else None

    def tokens(self) -> list[Any]:
        """Client: return the tokens of the requests that have no response yet, in the order in which they were sent."""
        return [asked.token for asked in (*self._in_flight, *self._waiting) if asked.token is not None]

    def receive(self, frame: BytesLike, now: float) -> list[Event]:
        """A frame came, whole and without its size. After `ConnectionBroken` frames are ignored."""
        if self._state in _OVER:
            return []
        return self._receive_response(frame, now) if self.role is Role.CLIENT else self._receive_request(frame)

    def deadline(self) -> float | None:
        """When `expire` should be called next."""
        if self.role is Role.BROKER or self._state in _OVER:
            return None
        earliest = self._renew_at
        for queue in (self._in_flight, self._waiting):
            for asked in queue:
                earliest = min(earliest, asked.deadline)
        return None if earliest == inf else earliest

    def expire(self, now: float) -> list[Event]:
        """Fail what has waited too long. A request in flight that does takes the connection with it: its answer may
        still come, and nothing after it could be matched."""
        if self.role is Role.BROKER or self._state in _OVER:
            return []
        for asked in self._in_flight:
            if asked.deadline <= now:
                return self._break(self._too_late(asked))
        events: list[Event] = []
        for asked in [asked for asked in self._waiting if asked.deadline <= now]:
            self._waiting.remove(asked)
            events.append(self._failed(asked, self._too_late(asked)))
        if self._renew_at <= now and self._state is State.READY:
            assert self._sasl is not None
            assert self._terms is not None
            self._renew_at = inf
            self._greeting = reauthenticate(self.peer, self._sasl, self._terms)
            events += self._advance(None, now)
        return events

    def closed(self, cause: KwireError, now: float) -> list[Event]:
        """The connection is closed: fails everything, in the order in which it was sent, then answers Closed."""
        if self._state is State.CLOSED:
            return []
        died = self._state is State.NEGOTIATING and not self._has_answered and isinstance(cause, DisconnectedError)
        cause = self._explained(cause)
        self._state = moved(self._state, State.CLOSED)
        events: list[Event] = []
        unanswered = [asked for asked, _ in self._out if asked is not None and not asked.expects_response]
        for asked in (*self._in_flight, *unanswered, *self._waiting):
            if not asked.is_greeting:
                events.append(self._failed(asked, self._ended(asked, cause, now)))
        for queue in (self._in_flight, self._waiting, self._out, self._owed):
            queue.clear()
        self._greeting = None
        events.append(ConnectionClosed(cause, died_during_negotiation=died and self.role is Role.CLIENT))
        return events

    # Client

    def start(self, now: float) -> list[Event]:
        """The socket is connected. The first frames are there afterwards; Ready comes from here only if nothing needs
        to be asked (`assume`, and no SASL)."""
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
        """Send a request, in the highest version in common unless `version` says another; what becomes of it is told by
        one Answered or Failed, with `token`.

        Before the connection is ready, and beyond `max_in_flight`, it waits; the timeout counts from now. A request
        that expects no response (Produce with acks=0) is over once its frame is handed out, and no event tells of that.
        Raises EncodeError or UnsupportedVersionError when it is sent at once and cannot be, ClosedError on a connection
        that is over; one that had to wait gets Failed instead.
        """
        if self.role is not Role.CLIENT or self._state in _OVER:
            self._require(Role.CLIENT)
            raise ClosedError(f"the connection is {self._state.value}", broker=self.peer)
        limit_ms = self._request_timeout_ms if timeout_ms is None else timeout_ms
        asked = InFlightRequest(request, version, token, now + limit_ms / 1000, limit_ms, now, expects_response)
        if self._waiting or not self._has_room():
            self._waiting.append(asked)
        else:
            self._transmit(asked, now)

    def version(self, request_class: type[Request[Any]], at_most: int | None = None) -> int:
        """The highest version of an API that both sides have. Raises UnsupportedVersionError."""
        version = self._versions.get((request_class, at_most))
        if version is not None:
            return version
        if self._terms is None:
            name = api(request_class.API_KEY).name
            raise UnsupportedVersionError("no versions are agreed yet", broker=self.peer, api=name)
        version = highest_common(
            request_class.API_KEY, request_class.VERSIONS, self._terms.versions, at_most=at_most, broker=self.peer
        )
        self._versions[request_class, at_most] = version
        return version

    @property
    def features(self) -> Mapping[str, int]:
        """The levels of the cluster's features (KIP-584), as the broker told them in the greeting."""
        return self._terms.features if self._terms is not None else {}

    def _has_room(self) -> bool:
        return self._state is State.READY and len(self._in_flight) < self._max_in_flight

    def _transmit(self, asked: InFlightRequest, now: float) -> None:
        assert asked.request is not None
        if asked.version is None:
            asked.version = self.version(type(asked.request))
        frame = encode_request(asked.request, asked.version, self._next_id, self._client_id)
        asked.correlation_id = self._next_id
        self._next_id = 0 if self._next_id == _CORRELATION_ID_MAX else self._next_id + 1
        self._enqueue(asked, frame, now)

    def _enqueue(self, asked: InFlightRequest, frame: list[BytesLike], now: float) -> None:
        asked.sent_at = now
        self._out.append((asked, frame))
        if asked.expects_response:
            self._in_flight.append(asked)

    def _pump(self, now: float) -> list[Event]:
        """Send what waited, as far as there is room."""
        events: list[Event] = []
        while self._waiting and self._has_room():
            asked = self._waiting.popleft()
            try:
                self._transmit(asked, now)
            except KwireError as error:
                events.append(self._failed(asked, error))
        return events

    def _receive_response(self, frame: BytesLike, now: float) -> list[Event]:
        if not self._in_flight:
            return self._break(DecodeError("the broker sent a response that nothing asked for"))
        asked = self._in_flight[0]
        if asked.request is None:
            self._in_flight.popleft()
            return self._advance(frame, now)
        assert asked.version is not None
        try:
            if peek_correlation_id(frame) != asked.correlation_id:
                raise _out_of_order(frame, asked)
            if asked.is_greeting:
                self._has_answered = True
                self._in_flight.popleft()
                return self._advance(frame, now)
            response = decode_response_body(frame, type(asked.request), asked.version)
        except DecodeError as error:
            return self._break(error.at(api=asked.api, version=asked.version))
        self._in_flight.popleft()
        self._has_answered = self._has_served = True
        answered = ResponseReceived(asked.token, asked.request, response, asked.version, asked.sent_at)
        return [answered, *self._pump(now)] if self._waiting else [answered]

    def _advance(self, frame: BytesLike | None, now: float) -> list[Event]:
        """Give the greeting the answer that it waits for; send what it asks next, or be ready."""
        assert self._greeting is not None
        try:
            ask = next(self._greeting) if frame is None else self._greeting.send(bytes(frame))
        except StopIteration as done:
            return self._greeted(done.value, now)
        except KwireError as error:
            return self._break(error)
        if self._state is not ask.state:
            self._move(ask.state)
        deadline = now + self._request_timeout_ms / 1000
        asked = InFlightRequest(
            ask.request, ask.version, None, deadline, self._request_timeout_ms, now, is_greeting=True
        )
        if ask.request is None:
            self._enqueue(asked, [ask.bare], now)
        else:
            self._transmit(asked, now)
        return []

    def _greeted(self, greeted: Negotiated, now: float) -> list[Event]:
        self._greeting = None
        self._terms = greeted
        self._versions.clear()
        lifetime = greeted.session_lifetime_ms / 1000
        self._renew_at = now + lifetime * _RENEW_AT if lifetime > 0 else inf
        self._move(State.READY)
        return [HandshakeDone(greeted.versions, greeted.session_lifetime_ms), *self._pump(now)]

    # Broker

    @property
    def username(self) -> str | None:
        """Broker: who has authenticated."""
        return self._entrance.username if self._entrance is not None else None

    @property
    def software(self) -> tuple[str, str]:
        """Broker: the client's library and its version, as ApiVersions names them (KIP-511); empty before that."""
        return self._entrance.software if self._entrance is not None else ("", "")

    def respond(self, tag: Any, response: Response | None) -> None:
        """Answer the request of a RequestReceived; None for one that expects no response (Produce with acks=0).

        In any order: a response waits here until those of earlier requests are given. On a connection that is over it
        is dropped. Raises EncodeError, and RuntimeError for a second answer.
        """
        self._require(Role.BROKER)
        assert isinstance(tag, PendingResponse)
        if tag.is_answered:
            raise RuntimeError(f"answered twice: {tag.header}")
        if response is not None:
            tag.frame = encode_response(response, tag.header.api_version, tag.header.correlation_id)
        tag.is_answered = True
        while self._owed and self._owed[0].is_answered:
            frame = self._owed.popleft().frame
            if frame is not None:
                self._out.append((None, frame))

    def _receive_request(self, frame: BytesLike) -> list[Event]:
        assert self._entrance is not None
        if self._entrance.is_bare:
            return self._receive_bare(self._entrance, bytes(frame))
        try:
            header, start = decode_request_header(frame)
            key, version = header.api_key, header.api_version
            if version not in self._apis.get(key, ()):
                if key == ApiKey.API_VERSIONS and key in self._apis:
                    self._answer_unread(self._entrance, header)
                    return []
                served = show(self._apis.get(key, range(0)))
                raise UnsupportedVersionError(
                    f"the client asks for a version that is not served ({served})", api=api(key).name, version=version
                )
            if self._state is not State.READY and key not in OWN_APIS:
                raise AuthenticationError(f"the client sent {api(key).name} before it had authenticated")
            request, trailing = _decode_request_body(frame, header, start)
        except KwireError as error:
            return self._break(error)
        events: list[Event] = [TrailingBytes(header, trailing)] if trailing else []
        owed = PendingResponse(header)
        self._owed.append(owed)
        if key not in OWN_APIS:
            return [*events, RequestReceived(header, request, owed)]
        reply = self._entrance.reply(request, version, self._state)
        self.respond(owed, reply.response)
        return [*events, *self._enter(reply.state, reply.error)]

    def _receive_bare(self, entrance: BrokerHandshake, message: bytes) -> list[Event]:
        answer, state, error = entrance.bare(message)
        if error is None:
            self._out.append((None, [answer]))
        return self._enter(state, error)

    def _enter(self, state: State | None, error: KwireError | None) -> list[Event]:
        if error is not None:
            return self._break(error)
        if state is State.AUTHENTICATING:
            self._move(State.HANDSHAKING)
        if state is not None:
            self._move(state)
        return []

    def _answer_unread(self, entrance: BrokerHandshake, header: RequestHeader) -> None:
        """ApiVersions in a version newer than ours: its body is not read, and the answer has the form of v0."""
        owed = PendingResponse(RequestHeader(header.api_key, 0, header.correlation_id))
        self._owed.append(owed)
        self.respond(owed, entrance.api_versions(None, 0))

    # Ends

    def _move(self, state: State) -> None:
        self._state = moved(self._state, state)

    def _require(self, role: Role) -> None:
        if self.role is not role:
            raise RuntimeError(f"this is for a {role.value}, and the session is a {self.role.value}'s")

    def _break(self, error: KwireError) -> list[Event]:
        self._move(State.BROKEN)
        return [ConnectionBroken(error.at(broker=self.peer))]

    def _failed(self, asked: InFlightRequest, error: KwireError) -> RequestFailed:
        assert asked.request is not None
        return RequestFailed(asked.token, asked.request, error, asked.is_sent)

    def _ended(self, asked: InFlightRequest, cause: KwireError, now: float) -> KwireError:
        """Each request's own error, so that none grows a traceback of another's; `__cause__` is what ended them all."""
        error: KwireError
        if isinstance(cause, RequestTimeoutError):
            if asked.deadline <= now:
                return self._too_late(asked)
            error = DisconnectedError(
                "the connection was closed because an earlier request on it was not answered in time", broker=self.peer
            )
        else:
            error = copy.copy(cause)
        error.__cause__ = cause
        return error.at(api=asked.api, version=asked.version)

    def _too_late(self, asked: InFlightRequest) -> RequestTimeoutError:
        limit = f"{asked.timeout_ms:,.0f} ms"
        where: dict[str, object] = {"broker": self.peer, "api": asked.api, "version": asked.version}
        if self._state is State.NEGOTIATING:
            return RequestTimeoutError(
                f"the peer took the connection, but did not answer in {limit}", **where,
                remedy="check that the port is a Kafka listener, with or without TLS as configured here",
            )  # fmt: skip
        if not asked.is_sent:
            return RequestTimeoutError(f"could not be sent in {limit}", remedy="check the broker's load", **where)
        return RequestTimeoutError(
            f"no answer in {limit}", remedy="check the broker's load, or raise the timeout", **where
        )

    def _explained(self, cause: KwireError) -> KwireError:
        """What a broker means that just closes the connection, where it has no other way to say it."""
        if not isinstance(cause, DisconnectedError) or self.role is Role.BROKER:
            return cause
        better: KwireError | None = None
        if self._in_flight and self._in_flight[0].request is None and self._sasl is not None:
            better = AuthenticationError(
                f"the broker closed the connection over SASL {self._sasl.mechanism} for user {self._sasl.username!r}",
                broker=self.peer,
                remedy="so a broker before 1.0 refuses user name and password: check them",
            )
        elif self._sasl is None and self._state is State.READY and self._has_answered and not self._has_served:
            better = DisconnectedError(
                cause.message, broker=self.peer, remedy="it ended on the first request: this listener may demand SASL"
            )
        if better is None:
            return cause
        better.__cause__ = cause
        return better


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


def _out_of_order(frame: BytesLike, asked: InFlightRequest) -> DecodeError:
    return DecodeError(
        f"the response has correlation id {peek_correlation_id(frame)}, but the oldest request in flight has "
        f"{asked.correlation_id}",
        remedy="a broker answers in order; something between it and us loses or mixes up responses",
    )
