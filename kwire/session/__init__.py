"""The sans-IO connection, for both roles: negotiation, authentication, the FIFO of requests in flight.

`Session.client` and `Session.broker` are two ends of one machine. Frames and time go in, events and frames come out.

Imports: wire, protocol.
"""

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
from kwire.session.sasl import MECHANISMS, Sasl, SaslServer
from kwire.session.session import Session

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
