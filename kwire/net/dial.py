"""One attempt to connect to a node: back-off, name resolution, then each of its addresses in turn.

Host names to addresses, off the selector's thread: `getaddrinfo` blocks, and nothing can interrupt it.

Owns the threads that wait for it. They are daemons: a name server that never answers must not hold up the end of the
process, as an executor's threads would. A resolver is an argument of the selector, so that a test (or a program with
asynchronous DNS of its own) can bring another.

One attempt to connect to a node: back-off, name, then each of its addresses in turn.

Owns the stage of the attempt and what went wrong with each address. Refuses to wait and to read a clock: the selector
calls it when a timer, an answer of the resolver or the socket says so.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Protocol, TypeAlias

from kwire.errors import ConnectError, NodeError, ResolveError
from kwire.wire.frame import Frame

# More names than this at once wait in a queue: a cluster of a thousand names must not start a thousand threads.
MAX_THREADS = 8


@dataclass(frozen=True, slots=True)
class Address:
    """Where a socket can connect to: what `getaddrinfo` says of one address."""

    family: int
    sockaddr: tuple[Any, ...]

    def __str__(self) -> str:
        return show_address(self.sockaddr[0], self.sockaddr[1])


# What a resolution ends with: addresses in the order in which to try them, or why there are none.
Outcome: TypeAlias = Sequence[Address] | OSError
Lookup: TypeAlias = Callable[[str, int], Sequence[Address]]


class Resolver(Protocol):
    def resolve(self, host: str, port: int, done: Callable[[Outcome], None]) -> None:
        """Look `host` up and call `done` once: now, or later from any thread. Never blocks."""
        ...

    def close(self) -> None: ...


class ThreadResolver:
    """Runs a blocking `lookup` on daemon threads, `MAX_THREADS` at most; a literal IP address needs no thread."""

    def __init__(self, lookup: Lookup | None = None) -> None:
        self._lookup = lookup or system_lookup
        self._lock = threading.Lock()
        self._waiting: deque[tuple[str, int, Callable[[Outcome], None]]] = deque()
        self._threads = 0
        self._closed = False

    def resolve(self, host: str, port: int, done: Callable[[Outcome], None]) -> None:
        literal = literal_address(host, port)
        if literal is not None:
            done([literal])
            return
        with self._lock:
            self._waiting.append((host, port, done))
            if self._threads >= MAX_THREADS:
                return
            self._threads += 1
        threading.Thread(target=self._run, name=f"kwire-resolve-{host}", daemon=True).start()

    def close(self) -> None:
        """Forget what waits. A lookup that is under way ends when it ends, and tells nobody."""
        with self._lock:
            self._closed = True
            self._waiting.clear()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._threads -= 1
                    return
                host, port, done = self._waiting.popleft()
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
    """All TCP addresses of a name, in the system's order of preference (RFC 6724), each once. Blocks."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return list(dict.fromkeys(Address(family, sockaddr) for family, _, _, _, sockaddr in found))


def literal_address(host: str, port: int) -> Address | None:
    """The address that `host` writes out in digits, or None if it is a name. Asks nobody, so it does not block."""
    try:
        found = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_NUMERICHOST
        )
    except (OSError, ValueError):
        return None
    family, _, _, _, sockaddr = found[0]
    return Address(family, sockaddr)


def show_address(host: object, port: object) -> str:
    """host:port, with the brackets that an IPv6 address needs."""
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"


class Stage(Enum):
    """WAITING -> RESOLVING -> CONNECTING -> DONE, and to FAILED from any of the first three."""

    WAITING = "waits out the back-off"
    RESOLVING = "waits for the name to be resolved"
    CONNECTING = "connects to one of the addresses"
    DONE = "has given its socket away"
    FAILED = "is over"


_MOVES = {
    Stage.WAITING: {Stage.RESOLVING, Stage.FAILED},
    Stage.RESOLVING: {Stage.CONNECTING, Stage.FAILED},
    Stage.CONNECTING: {Stage.CONNECTING, Stage.DONE, Stage.FAILED},
    Stage.DONE: set(),
    Stage.FAILED: set(),
}


@dataclass(slots=True, eq=False)
class Dial:
    node: Hashable
    host: str
    port: int
    tls: ssl.SSLContext | None
    server_name: str | None
    deadline: float = 0.0  # of name, addresses and TLS handshake together
    stage: Stage = Stage.WAITING
    is_accepted: ClassVar[bool] = False  # what a Channel says of itself; an attempt is always ours
    frames: deque[Frame] = field(default_factory=deque)  # given while there is no channel yet
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
        """Host and port may come from a broker's metadata, and to `getaddrinfo` no host at all means this machine."""
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
        """Begin to connect to the next address that does not refuse at once; `sock` is then to be watched for writing.

        False when there is none left.
        """
        self.drop_socket()
        while self._addresses:
            self.address = self._addresses.popleft()
            try:
                self.sock = socket.socket(self.address.family, socket.SOCK_STREAM)
                self.sock.setblocking(False)
                code = self.sock.connect_ex(self.address.sockaddr)
            except OSError as error:  # no IPv6 on this machine, or out of file descriptors
                code = error.errno or errno.EINVAL
            if code in (0, errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EINTR):
                return True
            self.address_failed(code)
        return False

    def check(self) -> bool:
        """The socket became writable: True if that is because it is connected, False if this address has failed."""
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
        """When to give up on the present address: each that is left gets an equal share of the time that is left."""
        return now + max(0.0, self.deadline - now) / (1 + len(self._addresses))

    def give_socket(self) -> socket.socket:
        self.move(Stage.DONE)
        sock, self.sock = self.sock, None
        assert sock is not None
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return sock

    def give_up(self) -> None:
        self.move(Stage.FAILED)
        self.drop_socket()

    abandon = give_up

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
            tried = self._failures[0][1]  # the broker's own words have the address
        else:
            tried = "; ".join(f"{address}: {reason}" for address, reason in self._failures)
        return ConnectError(f"cannot connect ({tried})", broker=self.broker, remedy=_remedy(self._last_errno))

    def _is_connected_to_itself(self) -> bool:
        """TCP's simultaneous open: a closed ephemeral port may be dialled from that very port, and answer."""
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
