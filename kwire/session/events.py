"""The states of a connection, and the events that a session reports.

The states of a connection, for both roles, and the moves between them.

Everything that decides which state may follow which stands in this file, and the file does not know which role it is
played by: the client asks its way through the states, the broker answers its way through them.

What a session tells its owner. Plain values; a session never calls anybody.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, TypeAlias

from kwire.errors import KwireError
from kwire.protocol.headers import RequestHeader
from kwire.protocol.schema import Request, Response
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


MOVES = MappingProxyType({
    # A client that assumes the versions of an old broker, and a broker without SASL, skip stages.
    State.NEW: {State.NEGOTIATING, State.HANDSHAKING, State.READY, State.BROKEN, State.CLOSED},
    State.NEGOTIATING: {State.HANDSHAKING, State.READY, State.BROKEN, State.CLOSED},
    State.HANDSHAKING: {State.AUTHENTICATING, State.BROKEN, State.CLOSED},
    State.AUTHENTICATING: {State.READY, State.BROKEN, State.CLOSED},
    # Back to HANDSHAKING: authentication that lasts for a limited time is repeated on the living connection (KIP-368).
    State.READY: {State.HANDSHAKING, State.BROKEN, State.CLOSED},
    State.BROKEN: {State.CLOSED},
    State.CLOSED: set(),
})  # fmt: skip


def moved(state: State, to: State) -> State:
    """`to`, if the table has the move. Anything else is a bug of ours, and raises."""
    if to not in MOVES[state]:
        raise RuntimeError(f"a connection that is {state.value} ({state.name}) cannot become {to.value} ({to.name})")
    return to


@dataclass(frozen=True, slots=True)
class HandshakeDone:
    """Versions are agreed and authentication, if any, is done. Requests given earlier are among the frames now.

    `versions` are the broker's, by API key, also of APIs that we do not know. `session_lifetime_ms` is how long the
    authentication holds (0: for ever); the session renews it by itself, and then tells Ready again.
    """

    versions: VersionRanges
    session_lifetime_ms: int = 0


@dataclass(slots=True)  # there is one for each response, and a frozen one takes seven times as long to make
class ResponseReceived:
    """The response to a request, in the order in which the requests were sent."""

    token: Any
    request: Request[Any]
    response: Response
    version: int
    sent_at: float


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """A request that gets no response. `was_sent` says that its bytes were handed out, so the broker may have acted."""

    token: Any
    request: Request[Any]
    error: KwireError
    was_sent: bool


@dataclass(frozen=True, slots=True)
class ConnectionBroken:
    """The connection is of no more use: write what `frames` still has, close it, then call `closed` with this error."""

    error: KwireError


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """The last event, behind the Failed of every request.

    `cause` is the one given to `closed`, or a better one where the stage of the session explains it. With
    `died_during_negotiation` the broker may be older than 0.10 and have closed the connection on ApiVersions: connect
    again with `assume=`.
    """

    cause: KwireError
    died_during_negotiation: bool


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """Broker: a request to be answered with `respond(tag, response)`."""

    header: RequestHeader
    request: Request[Any]
    tag: Any


@dataclass(frozen=True, slots=True)
class TrailingBytes:
    """Broker: a request had bytes after its last field. They are ignored, as Kafka ignores them; the request counts."""

    header: RequestHeader
    data: bytes


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """A request as a log shows it. `version` is None, and `correlation_id` -1, for a SASL message without a header."""

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
)
