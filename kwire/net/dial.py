"""One attempt to connect to a node: back-off, name resolution, then each of its addresses in turn.

`getaddrinfo` blocks and cannot be interrupted, so it runs on daemon threads. The resolver is an argument of the
selector, for tests and for programs with asynchronous DNS of their own.
"""

from __future__ import annotations

import errno
import os
import socket
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeAlias

from kwire.errors import ConnectError, NodeError, ResolveError
from kwire.net.threads import DaemonThreads
from kwire.wire.frame import Frame

if TYPE_CHECKING:
    import ssl


class Address(NamedTuple):
    """An address to connect to, as `getaddrinfo` returns it."""

    family: int
    sockaddr: tuple[Any, ...]

    def __str__(self) -> str:
        return show_address(self.sockaddr[0], self.sockaddr[1])


# The result of a resolution: addresses in the order in which to try them, or the error.
Outcome: TypeAlias = Sequence[Address] | OSError
Lookup: TypeAlias = Callable[[str, int], Sequence[Address]]


class Resolver(Protocol):
    def resolve(self, host: str, port: int, done: Callable[[Outcome], None]) -> None:
        """Look `host` up and call `done` once: now, or later from any thread. Never blocks."""
        ...

    def close(self) -> None: ...


class ThreadResolver:
    """Runs a blocking `lookup` on daemon threads, `MAX_THREADS` at most; a literal IP address does not need one."""

    def __init__(self, lookup: Lookup | None = None) -> None:
        self._lookup = lookup or system_lookup
        self._threads = DaemonThreads("kwire-resolve")
        self._closed = False

    def resolve(self, host: str, port: int, done: Callable[[Outcome], None]) -> None:
        literal = literal_address(host, port)
        if literal is not None:
            done([literal])
            return
        try:
            self._threads.submit(lambda: self._run(host, port, done))
        except RuntimeError as error:  # no thread is left
            done(OSError(str(error)))

    def close(self) -> None:
        """Drop the names that wait. The result of a running lookup is dropped, too."""
        self._closed = True
        self._threads.clear()

    def _run(self, host: str, port: int, done: Callable[[Outcome], None]) -> None:
        outcome: Outcome
        try:
            outcome = self._lookup(host, port)
        except OSError as error:
            outcome = error
        except ValueError as error:  # a NUL, or a label of more than 63 letters, which the IDNA codec refuses
            outcome = OSError(f"not a host name: {error}")
        if not self._closed:
            done(outcome)


def system_lookup(host: str, port: int) -> list[Address]:
    """Return the TCP addresses of a name, each once, in the system's order of preference (RFC 6724). Blocks."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return list(dict.fromkeys(Address(family, sockaddr) for family, _, _, _, sockaddr in found))


def literal_address(host: str, port: int) -> Address | None:
    """Return the IP address that `host` spells out, or None if it is a name. Does not block."""
    try:
        digits = host.encode("ascii")  # for a str, getaddrinfo imports the codec of international names: 3 ms
        found = socket.getaddrinfo(
            digits, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_NUMERICHOST
        )
    except (OSError, ValueError):
        return None
    family, _, _, _, sockaddr = found[0]
    return Address(family, sockaddr)


def show_address(host: object, port: object) -> str:
    """Return host:port, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"


class Stage(Enum):
    """WAITING -> RESOLVING -> CONNECTING -> DONE, and to FAILED from any of the first three."""

    WAITING = "the back-off is not over"
    RESOLVING = "the name is being resolved"
    CONNECTING = "one of the addresses is being tried"
    DONE = "a channel has the socket"
    FAILED = "the attempt is over"


_MOVES = {
    Stage.WAITING: {Stage.RESOLVING, Stage.FAILED},
    Stage.RESOLVING: {Stage.CONNECTING, Stage.FAILED},
    Stage.CONNECTING: {Stage.CONNECTING, Stage.DONE, Stage.FAILED},
    Stage.DONE: set(),
    Stage.FAILED: set(),
}


@dataclass(slots=True, eq=False)
class Dial:
    """One attempt. It neither waits nor reads a clock: the selector calls it for timers, addresses and the socket."""

    node: Hashable
    host: str
    port: int
    tls: ssl.SSLContext | None
    server_name: str | None
    deadline: float = 0.0  # of name, addresses and TLS handshake together
    stage: Stage = Stage.WAITING
    is_accepted: ClassVar[bool] = False  # as `Channel.is_accepted`
    frames: deque[Frame] = field(default_factory=deque)  # to be sent once there is a channel
    sock: socket.socket | None = None
    address: Address | None = None
    _addresses: deque[Address] = field(default_factory=deque)
    _failures: list[tuple[Address, str]] = field(default_factory=list)
    _last_errno: int = 0

    @property
    def broker(self) -> str:
        return f"{self.node} at {show_address(self.host, self.port)}"

    @property
    def is_addressable(self) -> bool:
        """Return whether host and port can be dialled. Metadata may lack a host, which `getaddrinfo` takes as local."""
        return bool(self.host) and 0 < self.port < 65536

    @property
    def frames_queued(self) -> int:
        return len(self.frames)

    def move(self, stage: Stage) -> None:
        assert stage in _MOVES[self.stage], f"{self.stage.name} -> {stage.name}"
        self.stage = stage

    def resolved(self, addresses: Sequence[Address]) -> None:
        self.move(Stage.CONNECTING)
        self._addresses = deque(addresses)

    def dial_next(self) -> bool:
        """Begin to connect to the next address that does not refuse at once; the caller watches `sock` for writing.

        Return False when no address is left.
        """
        self.drop_socket()
        while self._addresses:
            self.address = self._addresses.popleft()
            try:
                self.sock = socket.socket(self.address.family, socket.SOCK_STREAM)
                self.sock.setblocking(False)
                code = self.sock.connect_ex(self.address.sockaddr)
            except OSError as error:  # no IPv6 here, or no file descriptor left
                code = error.errno or errno.EINVAL
            if code in (0, errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EINTR):
                return True
            self.address_failed(code)
        return False

    def check(self) -> bool:
        """Return whether the socket, which became writable, is connected; if not, this address has failed."""
        assert self.sock is not None
        code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code == 0 and self._is_connected_to_itself():
            code = errno.ECONNREFUSED
        if code:
            self.address_failed(code)
        return code == 0

    def address_failed(self, code: int) -> None:
        assert self.address is not None
        self._failures.append((self.address, os.strerror(code)))
        self._last_errno = code
        self.drop_socket()

    def timed_out(self) -> None:
        self.address_failed(errno.ETIMEDOUT)

    def next_deadline(self, now: float) -> float:
        """Return the deadline of the current address: each address left gets an equal share of the time left."""
        return now + max(0.0, self.deadline - now) / (1 + len(self._addresses))

    def give_socket(self) -> socket.socket:
        self.move(Stage.DONE)
        sock, self.sock = self.sock, None
        assert sock is not None
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return sock

    def cancel(self) -> None:
        self.move(Stage.FAILED)
        self.drop_socket()

    abandon = cancel

    def drop_socket(self) -> None:
        if self.sock is not None:
            self.sock.close()
            self.sock = None

    def unaddressable(self) -> ConnectError:
        return ConnectError(
            f"{self.host!r}, port {self.port}, is no address",
            broker=self.broker,
            remedy="check the address (bootstrap, or the broker's advertised.listeners)",
        )

    def unresolved(self, reason: str) -> ResolveError:
        return ResolveError(
            f"the host name {self.host} has no address: {reason}",
            broker=self.broker,
            remedy="check the name (bootstrap, or the broker's advertised.listeners) and the name server",
        )

    def unconnected(self) -> NodeError:
        if [str(address) for address, _ in self._failures] == [show_address(self.host, self.port)]:
            tried = self._failures[0][1]  # the error has the address already
        else:
            tried = "; ".join(f"{address}: {reason}" for address, reason in self._failures)
        return ConnectError(f"cannot connect ({tried})", broker=self.broker, remedy=_remedy(self._last_errno))

    def _is_connected_to_itself(self) -> bool:
        """Return whether the socket has itself as its peer, by TCP's simultaneous open on an ephemeral port."""
        assert self.sock is not None
        try:
            return bool(self.sock.getsockname() == self.sock.getpeername())
        except OSError:
            return False


def _remedy(code: int) -> str:
    if code == errno.ECONNREFUSED:
        return "nothing listens there: check the port and that the broker runs"
    if code in (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH):
        return "check the address (bootstrap, or the broker's advertised.listeners), the route and the firewall"
    if code in (errno.EMFILE, errno.ENFILE):
        return "this process has too many open files: raise its limit"
    return "check the address and the network"
