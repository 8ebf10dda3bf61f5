"""The states of a connection, and the events that a session reports. Both are the same for client and broker."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from kwire.errors import KwireError
from kwire.protocol.headers import RequestHeader
from kwire.protocol.schema import Request, Response
from kwire.session.sasl.exchange import Deferred
from kwire.session.versions import VersionRanges


class Role(Enum):
    CLIENT = "client"
    BROKER = "broker"


class State(Enum):
    NEW = "not started"
    NEGOTIATING = "agreeing on versions"
    HANDSHAKING = "agreeing on a SASL mechanism"
    AUTHENTICATING = "exchanging SASL messages"
    READY = "open to requests"
    BROKEN = "to be closed"
    CLOSED = "closed"


TRANSITIONS = MappingProxyType({
    # A client that assumes versions, and a broker without SASL, skip states.
    State.NEW: {State.NEGOTIATING, State.HANDSHAKING, State.READY, State.BROKEN, State.CLOSED},
    State.NEGOTIATING: {State.HANDSHAKING, State.READY, State.BROKEN, State.CLOSED},
    State.HANDSHAKING: {State.AUTHENTICATING, State.BROKEN, State.CLOSED},
    State.AUTHENTICATING: {State.READY, State.BROKEN, State.CLOSED},
    # Back to HANDSHAKING: an authentication with a lifetime is renewed on the open connection (KIP-368).
    State.READY: {State.HANDSHAKING, State.BROKEN, State.CLOSED},
    State.BROKEN: {State.CLOSED},
    State.CLOSED: set(),
})  # fmt: skip


def transition(state: State, to: State) -> State:
    """Return `to`; raise RuntimeError unless the table allows the transition."""
    if to not in TRANSITIONS[state]:
        raise RuntimeError(f"a connection that is {state.value} ({state.name}) cannot become {to.value} ({to.name})")
    return to


class HandshakeDone(NamedTuple):
    """Versions are agreed and authentication, if any, is done. `frames` has the requests that waited for it.

    `versions` are the broker's, by API key, including unknown APIs. `session_lifetime_ms` is the lifetime of the
    authentication (0: no limit); the session renews it, and reports this event again.
    """

    versions: VersionRanges
    session_lifetime_ms: int = 0


@dataclass(slots=True)  # not frozen: that would make the constructor seven times slower, for every response
class ResponseReceived:
    """The response to a request, in the order in which the requests were sent."""

    token: Any
    request: Request[Any]
    response: Response
    version: int
    sent_at: float


class RequestFailed(NamedTuple):
    """A request without a response. With `was_sent` its frame may have been written, and the broker may have acted."""

    token: Any
    request: Request[Any]
    error: KwireError
    was_sent: bool


class ConnectionBroken(NamedTuple):
    """The connection cannot be used any more: write what `frames` has, close it, then call `closed` with this error."""

    error: KwireError


class ConnectionClosed(NamedTuple):
    """The last event, after RequestFailed of every request.

    `cause` is that of `closed`, or a better one if the state of the session has it. With `died_during_negotiation` the
    broker may be older than 0.10, which closes the connection on ApiVersions: connect again with `assume=`.
    """

    cause: KwireError
    died_during_negotiation: bool


class RequestReceived(NamedTuple):
    """Broker: a request. Respond to it with `respond(tag, response)`."""

    header: RequestHeader
    request: Request[Any]
    tag: Any


class TrailingBytes(NamedTuple):
    """Broker: a request had bytes after its last field. They are ignored, as in Kafka; the request is valid."""

    header: RequestHeader
    data: bytes


class RequestInfo(NamedTuple):
    """A request as a log shows it. For a SASL token without a header `version` is None, `correlation_id` -1."""

    api: str
    version: int | None
    correlation_id: int
    sent_at: float

    def __str__(self) -> str:
        if self.version is None:
            return self.api
        return f"{self.api} v{self.version} (correlation id {self.correlation_id})"


Event: TypeAlias = (
    HandshakeDone
    | ResponseReceived
    | RequestFailed
    | ConnectionBroken
    | ConnectionClosed
    | RequestReceived
    | TrailingBytes
    | Deferred  # client: begin it, and call `resume` with its result
)
