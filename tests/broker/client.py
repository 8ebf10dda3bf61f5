"""A client of one broker for tests that send single requests: kwire's own selector and session, nothing above them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kwire.net import KafkaSelector, Tls
from kwire.protocol.schema import Request
from kwire.session import ConnectionBroken, HandshakeDone, ResponseReceived, Sasl, Session

PATIENCE_SECONDS = 10.0


class Client:
    """One connection to one broker, by kwire's own selector and session."""

    def __init__(self, address: tuple[str, int], *, tls: Tls | None = None, sasl: Sasl | None = None) -> None:
        self.selector = KafkaSelector(tls=tls)
        self.session = Session.client("the broker", sasl=sasl)
        self.events: list[Any] = []
        self.cause: Exception | None = None
        self.selector.connect("the broker", *address)
        self._until(lambda: bool(self.selector.connected) or self.cause is not None)
        if self.cause is None:
            self.session.start(0.0)
            self._until(lambda: self._has(HandshakeDone) or self._has(ConnectionBroken) or self.cause is not None)

    def request(self, request: Request[Any], version: int | None = None) -> Any:
        """Return the response, None if the connection was closed instead."""
        before = len(self.events)
        self.session.send(request, 0.0, version=version)
        self._until(lambda: len(self.events) > before or self.cause is not None)
        responses = [event for event in self.events[before:] if isinstance(event, ResponseReceived)]
        return responses[0].response if responses else None

    def wait_for_responses(self, count: int) -> None:
        self._until(lambda: sum(isinstance(event, ResponseReceived) for event in self.events) >= count)

    def wait_for_close(self) -> Exception:
        self._until(lambda: self.cause is not None)
        assert self.cause is not None
        return self.cause

    def close(self) -> None:
        self.selector.close()

    def _has(self, event: type) -> bool:
        return any(isinstance(e, event) for e in self.events)

    def _until(self, happened: Callable[[], bool]) -> None:
        """Poll until `happened()`. The limit is for failing tests: each poll returns as soon as something happens."""
        for _ in range(1000):
            sends = [(node, frame) for node in self.selector.nodes for frame in self.session.frames()]
            self.selector.poll(sends, PATIENCE_SECONDS)
            for receive in self.selector.completed_receives:
                self.events += self.session.receive(receive.frame, 0.0)
            for disconnection in self.selector.disconnected:
                self.cause = disconnection.cause
            if happened():
                return
            assert self.selector.completed_receives or self.selector.completed_sends or self.selector.connected, (
                "timed out"
            )
        raise AssertionError("the expected event did not happen")
