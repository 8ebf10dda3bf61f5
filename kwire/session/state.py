"""The states of a connection, for both roles, and the moves between them.

Everything that decides which state may follow which stands in this file, and the file does not know which role it is
played by: the client asks its way through the states, the broker answers its way through them.
"""
from __future__ import annotations

from enum import Enum
from types import MappingProxyType


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
