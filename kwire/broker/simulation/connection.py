"""A simulated connection: two pipes and the two ends between which they lie.

Owns what a kernel owns of a TCP connection: when an end learns that the other is gone, and what becomes of bytes that
are on their way then. Frames are put together by the same `FrameReader` that real sockets have.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any, Protocol

from kwire.broker.simulation.pipe import Mark, Piece, Pipe, Weather
from kwire.broker.simulation.trace import Trace
from kwire.broker.simulation.world import World
from kwire.errors import DisconnectedError, NodeError
from kwire.wire.frame import BytesLike, FrameReader

Address = tuple[str, int]

# How often bytes outlive the end of the connection that they were written to.
_SURVIVAL = 0.75


class Owner(Protocol):
    """What an end tells: the selector that it belongs to."""

    name: str
    max_frame_bytes: int

    def name_peer(self) -> Any: ...
    def opened(self, end: End) -> None: ...
    def received(self, end: End, frames: list[BytesLike]) -> None: ...
    def ended(self, end: End, cause: NodeError) -> None: ...


class Ground(Protocol):
    """What a connection lies in: the net."""

    world: World
    trace: Trace
    seen: Counter[str]

    def forget(self, connection: Connection) -> None: ...


class End:
    """What a socket is to its selector. `out` leads to the other end."""

    def __init__(self, selector: Owner, node: Any, connection: Connection, *, is_accepted: bool) -> None:
        self.selector = selector
        self.node = node
        self.connection = connection
        self.is_accepted = is_accepted
        self.is_open = is_accepted  # bytes can be written
        self.is_closed = False
        self.reader = FrameReader(selector.max_frame_bytes, lends=True)
        self.last_active = 0.0
        self.out: Pipe
        self.into: Pipe

    def write(self, data: bytes) -> None:
        self.last_active = self.connection.net.world.now()
        self.out.write(data)

    def close(self) -> None:
        """The owner closes it: the other end will hear of it, and what is on its way to it may still arrive."""
        if not self.is_closed:
            self.is_closed = True
            self.into.discard()
            self.out.end(keeps=self.connection.survives())
            self.connection.closed()

    def arrived(self, piece: Piece) -> None:
        net = self.connection.net
        now = net.world.now()
        if isinstance(piece, Mark):
            net.trace.note(now, f"{self.connection} {piece.name} at {self.selector.name}")
            if piece is Mark.OPEN:
                self.is_open = True
                self.selector.opened(self)
            else:
                self._ended(self._cut())
            return
        net.trace.note(now, f"{self.connection} bytes at {self.selector.name}", piece)
        self.last_active = now
        try:
            frames = self.reader.feed(piece)
        except NodeError as error:
            self._ended(error)
            return
        if frames and self.other.is_closed:
            net.seen["frames from an end that was gone"] += len(frames)
        self.selector.received(self, frames)

    @property
    def other(self) -> End:
        return self.connection.broker if self is self.connection.client else self.connection.client

    def _ended(self, cause: NodeError) -> None:
        self.is_closed = True
        self.into.discard()
        self.out.end(keeps=False)
        self.connection.closed()
        self.selector.ended(self, cause)

    def _cut(self) -> DisconnectedError:
        reason = "the peer closed the connection"
        progress = self.reader.progress
        if progress is not None:
            self.connection.net.seen["connections cut inside a frame"] += 1
            reason = f"{reason} in the middle of a frame, {progress[0]:,} of {progress[1]:,} bytes in"
        return DisconnectedError(reason, broker=f"{self.node} at {self.connection}")


class Connection:
    """From a client to a broker's address."""

    def __init__(
        self, net: Ground, number: int, client: tuple[Owner, Any], broker: tuple[Owner, Any],
        address: Address, weather: Weather, random: Random,
    ) -> None:  # fmt: skip
        self.net = net
        self.number = number
        self.address = address
        self._random = random
        self.client = End(*client, self, is_accepted=False)
        self.broker = End(*broker, self, is_accepted=True)
        up = Pipe(net.world, random, weather, self.broker.arrived, self.lose)
        down = Pipe(net.world, random, weather, self.client.arrived, self.lose)
        self.client.out = self.broker.into = up
        self.broker.out = self.client.into = down
        down.open()

    def __str__(self) -> str:
        return f"#{self.number} {self.client.selector.name}-{self.address[0]}"

    @property
    def is_over(self) -> bool:
        return self.client.is_closed and self.broker.is_closed

    def pipe(self, *, to_broker: bool) -> Pipe:
        return self.client.out if to_broker else self.broker.out

    def lose(self) -> None:
        """The connection is lost between its ends: each finds out for itself."""
        self.client.out.end(keeps=self.survives())
        self.broker.out.end(keeps=self.survives())

    def silence(self) -> None:
        """It stays open at both ends, and nothing gets through any more."""
        self.client.out.silence()
        self.broker.out.silence()

    def survives(self) -> bool:
        return self._random.random() < _SURVIVAL

    def closed(self) -> None:
        if self.is_over:
            self.net.forget(self)
