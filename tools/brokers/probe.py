"""Find free ports, and find out whether a cluster is up with one Metadata request v0, encoded here.

Every broker from 0.8.2 to 4.x supports that version. The probe does not use kwire, because kwire is under test.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import socket
import struct
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

_TIMEOUT_S = 2.0
_POLL_S = 0.05
# Below the kernel's range for outgoing connections, which could take a port before the broker binds it.
_PORTS = range(20_000, 32_000)
# A process locks the byte of each port that it got: a broker binds it seconds later.
_LOCKS = Path(tempfile.gettempdir(), f"kwire-ports-{os.getuid()}")


@cache
def _locks() -> int:
    """Return the descriptor of the file of locks, which must stay open: to close it ends them all."""
    return os.open(_LOCKS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


_taken: set[int] = set()  # a process can lock again what it has locked


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Return `count` different ports on which no program listens. Raises OSError if there are not so many.

    No other process of this user gets them from here, until this process ends.
    """
    locks = _locks()
    ports: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        if len(ports) == count:
            break
        if port in _taken:
            continue
        with contextlib.suppress(OSError), socket.socket() as candidate:
            candidate.bind((host, port))
            fcntl.lockf(locks, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
            _taken.add(port)
            ports.append(port)
    if len(ports) < count:
        raise OSError(f"{len(ports)} ports from {_PORTS[0]} to {_PORTS[-1]} are free, not {count}")
    return ports


def brokers_known(host: str, port: int, *, topic: str | None = None) -> set[int]:
    """Return the ids of the brokers that one broker knows. Raises OSError while it does not respond.

    Kafka 0.8 knows none before a topic exists: name a topic there, and the request creates it.
    """
    # API 3, version 0, correlation id 7, client id "probe", and the topics; no topic means all of them.
    request = struct.pack(">hhih5s", 3, 0, 7, 5, b"probe")
    name = (topic or "").encode()
    request += struct.pack(f">ih{len(name)}s", 1, len(name), name) if name else struct.pack(">i", 0)
    with socket.create_connection((host, port), timeout=_TIMEOUT_S) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        size = struct.unpack(">i", _read(connection, 4))[0]
        answer = _read(connection, size)
    count = struct.unpack_from(">i", answer, 4)[0]
    ids, at = set(), 8
    for _ in range(count):
        node, length = struct.unpack_from(">ih", answer, at)
        ids.add(node)
        at += 6 + length + 4
    return ids


def wait_until_up(
    addresses: Sequence[tuple[str, int]],
    nodes: set[int],
    *,
    timeout_s: float,
    check: Callable[[], None],
    topic: str | None = None,
) -> None:
    """Wait until every address reports exactly these nodes. `check` may raise, for a process that died."""
    end = time.monotonic() + timeout_s
    waiting = list(addresses)
    while waiting:
        check()
        with contextlib.suppress(OSError, struct.error):
            if brokers_known(*waiting[0], topic=topic) == nodes:
                waiting.pop(0)
                continue
        if time.monotonic() > end:
            raise TimeoutError(f"the brokers {sorted(nodes)} are not up after {timeout_s:.0f} s")
        time.sleep(_POLL_S)


def wait_for_port(port: int, *, timeout_s: float, check: Callable[[], None], host: str = "127.0.0.1") -> None:
    """Wait until a program accepts connections on a port."""
    end = time.monotonic() + timeout_s
    while True:
        check()
        try:
            socket.create_connection((host, port), timeout=_TIMEOUT_S).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(_POLL_S)


def wait_until_forgotten(port: int, nodes: set[int], *, timeout_s: float, host: str = "127.0.0.1") -> None:
    """Wait until ZooKeeper has ended the sessions of these brokers: it refuses a broker whose id it has in another."""
    end = time.monotonic() + timeout_s
    paths = {f"/brokers/ids/{node}" for node in nodes}
    while paths & _ephemeral_nodes(host, port):
        if time.monotonic() > end:
            raise TimeoutError(f"ZooKeeper still has the brokers {sorted(nodes)} after {timeout_s:.0f} s")
        time.sleep(_POLL_S)


def _ephemeral_nodes(host: str, port: int) -> set[str]:
    with socket.create_connection((host, port), timeout=_TIMEOUT_S) as connection:
        connection.sendall(b"dump\n")
        with connection.makefile("rb") as lines:
            return {line.strip().decode() for line in lines}


def _read(connection: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = connection.recv(size)
        if not part:
            raise ConnectionError("the broker closed the connection")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
