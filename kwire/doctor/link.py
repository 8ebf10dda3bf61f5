"""A connection that carries Kafka requests one at a time: a `Session` on a `Probe`. Each request has a time limit."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, TypeVar

from kwire.cluster.login import SharedLogin
from kwire.errors import DisconnectedError, KwireError, LoginError, NodeError, RequestTimeoutError
from kwire.net import Clock
from kwire.net.probe import Probe
from kwire.protocol import Request, Response
from kwire.session import (
    ConnectionBroken,
    ConnectionClosed,
    HandshakeDone,
    RequestFailed,
    ResponseReceived,
    Sasl,
    Session,
)
from kwire.session.sasl import Deferred

R = TypeVar("R", bound=Response)


class Link:
    """One connection after its handshake. The methods raise KwireError; the link is of no use afterwards."""

    def __init__(
        self, probe: Probe, clock: Clock, timeout: float, *, sasl: Sasl | None, client_id: str, host: str = ""
    ) -> None:
        self._probe = probe
        self._clock = clock
        self._login = _login(sasl, clock, timeout) if sasl is not None else None
        self._session = Session.client(
            probe.broker, client_id=client_id, sasl=self._login, host=host, request_timeout_ms=timeout * 1000
        )
        self.versions: Mapping[int, range] = {}
        self.session_lifetime_ms = 0

    @property
    def features(self) -> Mapping[str, int]:
        """Return the finalized levels of the cluster's features."""
        return self._session.features

    def handshake(self) -> None:
        """Agree on versions and, with SASL, authenticate."""
        done = self._run(self._session.start(self._clock.now()), HandshakeDone)
        self.versions, self.session_lifetime_ms = done.versions, done.session_lifetime_ms

    def ask(self, request: Request[R], *, version: int | None = None) -> R:
        """Send a request and return its response."""
        self._session.send(request, self._clock.now(), version=version)
        received: ResponseReceived = self._run([], ResponseReceived)
        return received.response  # type: ignore[return-value]

    def version(self, request_class: type[Request[Any]]) -> int:
        """Return the highest version that both sides have."""
        return self._session.version(request_class)

    def _run(self, events: list[Any], wanted: type[Any]) -> Any:
        """Write and read until an event of this class comes."""
        while True:
            for event in events:
                match event:
                    case ConnectionBroken() | RequestFailed():
                        raise event.error
                    case Deferred():
                        events += self._resumed(event)  # the loop goes on with what is added
                    case _ if isinstance(event, wanted):
                        return event
            try:
                for frame in self._session.frames():
                    self._probe.send(frame)
                events = self._session.receive(self._probe.receive(), self._clock.now())
            except (NodeError, RequestTimeoutError) as error:
                raise self._explained(error) from error

    def _resumed(self, step: Deferred) -> list[Any]:
        """Obtain a token or a secret here, which may block: a link has its thread to itself."""
        assert self._login is not None
        results: list[bytes | KwireError | None] = []
        step.begin(results.append)
        self._login.turn(self._clock.now())
        result = results[0] if results else LoginError(f"{self._login.identity} did not come", may_retry=True)
        return self._session.resume(step, result, self._clock.now())

    def _explained(self, error: KwireError) -> KwireError:
        """Return the session's explanation of a lost connection, which knows more than the socket."""
        if isinstance(error, DisconnectedError):
            for event in self._session.closed(error, self._clock.now()):
                if isinstance(event, ConnectionClosed):
                    return event.cause
        return error


def _login(sasl: Sasl, clock: Clock, timeout: float) -> SharedLogin:
    """Return a login whose calls run at once, on the thread that needs their result."""
    return SharedLogin(
        sasl, clock, Random(), timeout_ms=round(timeout * 1000), wake=lambda: None, submit=lambda call: call()
    )
