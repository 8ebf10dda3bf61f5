"""What a session tells its owner. Plain values; a session never calls anybody."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from kwire.errors import KwireError
from kwire.protocol.headers import RequestHeader
from kwire.protocol.schema import Request, Response
from kwire.session.versions import VersionRanges


@dataclass(frozen=True, slots=True)
class Ready:
    """Versions are agreed and authentication, if any, is done. Requests given earlier are among the frames now.

    `versions` are the broker's, by API key, also of APIs that we do not know. `session_lifetime_ms` is how long the
    authentication holds (0: for ever); the session renews it by itself, and then tells Ready again.
    """

    versions: VersionRanges
    session_lifetime_ms: int = 0


@dataclass(slots=True)  # there is one for each response, and a frozen one takes seven times as long to make
class Answered:
    """The response to a request, in the order in which the requests were sent."""

    token: Any
    request: Request[Any]
    response: Response
    version: int
    sent_at: float


@dataclass(frozen=True, slots=True)
class Failed:
    """A request that gets no response. `was_sent` says that its bytes were handed out, so the broker may have acted."""

    token: Any
    request: Request[Any]
    error: KwireError
    was_sent: bool


@dataclass(frozen=True, slots=True)
class Broken:
    """The connection is of no more use: write what `frames` still has, close it, then call `closed` with this error."""

    error: KwireError


@dataclass(frozen=True, slots=True)
class Closed:
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


Event: TypeAlias = Ready | Answered | Failed | Broken | Closed | RequestReceived | TrailingBytes
