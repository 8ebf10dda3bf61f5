"""One connection without its socket, for client and broker: handshake, SASL, requests in flight.

    session    `Session`: frames and time in, events and frames out
    events     the states of a connection, and the events
    handshake  ApiVersions, SaslHandshake, SaslAuthenticate
    versions   which version of an API to use; brokers before ApiVersions
    sasl       PLAIN, SCRAM and OAUTHBEARER, for client and broker

Imports: wire, protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
)
from kwire.session.session import Session

if TYPE_CHECKING:
    from kwire.session.sasl import MECHANISMS, Sasl, SaslServer

__all__ = [
    "MECHANISMS",
    "ConnectionBroken",
    "ConnectionClosed",
    "Event",
    "HandshakeDone",
    "RequestFailed",
    "RequestInfo",
    "RequestReceived",
    "ResponseReceived",
    "Role",
    "Sasl",
    "SaslServer",
    "Session",
    "State",
    "TrailingBytes",
]

if not TYPE_CHECKING:  # or checkers would accept every name

    def __getattr__(name: str) -> Any:
        """Import what is SASL's on first use."""
        if name not in {"MECHANISMS", "Sasl", "SaslServer"}:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from kwire.session import sasl

        return getattr(sasl, name)
