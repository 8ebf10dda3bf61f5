"""Provide selectors that collect the results of many polls, and peers for them.

A peer is a plain socket in the test's own thread: loopback delivers before `send` returns, so no test has to wait.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self

from kwire.net import Disconnection, KafkaSelector, Node, Receive, Sent
from kwire.net.dial import Address, Outcome
from kwire.wire.frame import SIZE, BytesLike, Frame

# A failing test ends after this long; a passing one never waits for it.
PATIENCE_SECONDS = 20.0


class Driver:
    """Hold a selector and all results of its polls."""

    def __init__(self, **options: Any) -> None:
        self.selector = KafkaSelector(**options)
        self.connected: list[Node] = []
        self.accepted: list[Node] = []
        self.disconnected: list[Disconnection] = []
        self.rejected: list[Disconnection] = []
        self.sent: list[Sent] = []
        self.received: list[Receive] = []

    def poll(self, sends: Iterable[tuple[Node, Frame]] = (), timeout: float | None = 0) -> list[Receive]:
        receives = self.selector.poll(sends, timeout)
        self.connected += self.selector.connected
        self.accepted += self.selector.accepted
        self.disconnected += self.selector.disconnected
        self.rejected += self.selector.rejected
        self.sent += self.selector.completed_sends
        self.received += receives
        return receives

    def frames(self, node: Node) -> list[BytesLike]:
        return [frame for of, frame in self.received if of == node]

    def connect(self, node: Node, address: tuple[str, int], **options: Any) -> None:
        """Connect, and wait for the connection."""
        self.selector.connect(node, *address, **options)
        drive(lambda: node in self.connected, self)

    def cause(self, node: Node) -> Any:
        """Wait for the end of a node's connection and return its cause."""
        drive(lambda: any(lost.node == node for lost in self.disconnected), self)
        return next(lost.cause for lost in self.disconnected if lost.node == node)

    def close(self) -> None:
        self.selector.close()


def drive(until: Callable[[], bool], *drivers: Driver) -> None:
    """Poll the drivers in turn until the condition holds."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not until():
        for driver in drivers:
            driver.poll(timeout=0.005)
        assert time.monotonic() < deadline, [(d.connected, d.disconnected, d.rejected) for d in drivers]


class Peer:
    """Listen on a socket; the test itself reads and writes the accepted connections."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.listener = socket.create_server((host, 0), family=family)
        self.address: tuple[str, int] = self.listener.getsockname()[:2]
        self.sockets: list[socket.socket] = []

    def accept(self) -> socket.socket:
        self.listener.settimeout(PATIENCE_SECONDS)
        sock, _ = self.listener.accept()
        sock.settimeout(PATIENCE_SECONDS)
        self.sockets.append(sock)
        return sock

    def close(self) -> None:
        for sock in (self.listener, *self.sockets):
            sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextlib.contextmanager
def running(**options: Any) -> Iterator[tuple[Driver, Peer]]:
    """Yield a driver and a peer, and close them at the end."""
    driver, peer = Driver(**options), Peer()
    try:
        yield driver, peer
    finally:
        driver.close()
        peer.close()


@contextlib.contextmanager
def joined(node: Node = 1, **options: Any) -> Iterator[tuple[Driver, socket.socket]]:
    """Yield a driver with `node` connected to the yielded socket."""
    with running(**options) as (driver, peer):
        driver.connect(node, peer.address)
        yield driver, peer.accept()


class FakeResolver:
    """Resolve the names of a table at once, and other names never."""

    def __init__(self, **names: Sequence[Address] | OSError) -> None:
        self.names = names
        self.lookups: list[str] = []
        self.is_closed = False

    def resolve(self, host: str, port: int, done: Callable[[Outcome], None]) -> None:
        self.lookups.append(host)
        if host in self.names:
            done(self.names[host])

    def close(self) -> None:
        self.is_closed = True


def address_of(peer: Peer | tuple[str, int]) -> Address:
    host, port = peer if isinstance(peer, tuple) else peer.address
    return Address(socket.AF_INET6 if ":" in host else socket.AF_INET, (host, port))


def closed_port() -> tuple[str, int]:
    """Return a loopback address on which no program listens, and none will: the port stays bound until the end."""
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    host, port = bound.getsockname()
    bound.detach()
    return host, port


def framed(*frames: bytes) -> bytes:
    return b"".join(SIZE.pack(len(frame)) + frame for frame in frames)


def read_frame(sock: socket.socket) -> bytes:
    (size,) = SIZE.unpack(read_exactly(sock, SIZE.size))
    return read_exactly(sock, size)


def read_exactly(sock: socket.socket, count: int) -> bytes:
    data = bytearray(count)
    view = memoryview(data)
    while view:
        got = sock.recv_into(view)
        assert got, f"closed, {len(view)} bytes short"
        view = view[got:]
    return bytes(data)
