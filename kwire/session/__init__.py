"""The sans-IO connection, for both roles: negotiation, authentication, the FIFO of requests in flight.

`Session.client` and `Session.broker` are two ends of one machine. Frames and time go in, events and frames come out.

Imports: wire, protocol.
"""
from kwire.session.events import (
    Answered,
    Broken,
    Closed,
    Event,
    Failed,
    Ready,
    RequestInfo,
    RequestReceived,
    TrailingBytes,
)
from kwire.session.sasl import MECHANISMS, Sasl, SaslServer
from kwire.session.session import Session
from kwire.session.state import Role, State

__all__ = [
    "MECHANISMS",
    "Answered",
    "Broken",
    "Closed",
    "Event",
    "Failed",
    "Ready",
    "RequestInfo",
    "RequestReceived",
    "Role",
    "Sasl",
    "SaslServer",
    "Session",
    "State",
    "TrailingBytes",
]
