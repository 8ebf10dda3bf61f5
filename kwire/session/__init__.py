"""One connection without its socket, for client and broker: handshake, SASL, requests in flight.

    session    `Session`: frames and time in, events and frames out
    events     the states of a connection, and the events
    handshake  ApiVersions, SaslHandshake, SaslAuthenticate
    versions   which version of an API to use; brokers before ApiVersions
    sasl       PLAIN, SCRAM and OAUTHBEARER, for client and broker

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
