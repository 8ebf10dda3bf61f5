"""What a poll tells: plain tuples, in lists that the selector fills anew each time."""
from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from kwire.errors import NodeError
from kwire.wire.frame import BytesLike, Frame

# The caller's own name for a connection: a broker id, or any other hashable value. Any, so that what goes in as an int
# comes out as one to the type checker; the selector itself does nothing with it but look it up.
Node: TypeAlias = Any


class Receive(NamedTuple):
    """A whole frame, its size taken off: bytes, unless the selector lends frames."""

    node: Node
    frame: BytesLike


class Sent(NamedTuple):
    """A frame, the very object that was given to `poll`, whose last byte the kernel has taken."""

    node: Node
    frame: Frame


class Disconnection(NamedTuple):
    """A connection, or an attempt at one, that ended without `disconnect` having been called.

    `unsent` counts the frames given for the node that were not wholly written, so that the peer cannot have acted on
    them. `is_idle` says that nothing is wrong: the connection was closed here because it had not been used.
    """

    node: Node
    cause: NodeError
    unsent: int = 0
    is_idle: bool = False
