"""Host names to addresses, off the selector's thread: `getaddrinfo` blocks, and nothing can interrupt it.

Owns the threads that wait for it. They are daemons: a name server that never answers must not hold up the end of the
process, as an executor's threads would. A resolver is an argument of the selector, so that a test (or a program with
asynchronous DNS of its own) can bring another.
"""
from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

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
