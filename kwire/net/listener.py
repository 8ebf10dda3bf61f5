"""A listening socket: the broker's side.

Owns the socket and the context of its TLS. Refuses to decide anything about a connection: that is the selector's.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from typing import Any

from kwire.errors import ConnectError
from kwire.net.dial import show_address

_BACKLOG = 128
# More than this at once wait for the next turn, so that a crowd at the door does not starve those inside.
_ACCEPTS_PER_TURN = 64


class Listener:
    __slots__ = ("_sock", "address", "is_starved", "tls")

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        """Bind and listen; `host` is resolved here and now (it is this machine's own). Raises ConnectError."""
        where = show_address(host, port)
        try:
            family, _, _, _, sockaddr = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            self._sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            raise ConnectError(f"cannot listen on {where}: {error.strerror or error}") from error
        try:
            # A broker that restarts must get its port back while old connections linger in TIME_WAIT.
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._sock.setblocking(False)
            self._sock.bind(sockaddr)
            self._sock.listen(_BACKLOG)
        except OSError as error:
            self._sock.close()
            raise ConnectError(
                f"cannot listen on {where}: {error.strerror or error}", remedy="port 0 takes any free port"
            ) from error
        name = self._sock.getsockname()
        self.address: tuple[str, int] = (name[0], name[1])
        self.is_starved = False  # of file descriptors, as the log has said
        self.tls = tls

    def fileno(self) -> int:
        return self._sock.fileno()

    def accept(self) -> list[tuple[socket.socket, Any]]:
        """The connections that wait. Raises OSError when the process has no file descriptor left for one."""
        accepted: list[tuple[socket.socket, Any]] = []
        with contextlib.suppress(BlockingIOError, InterruptedError):
            while len(accepted) < _ACCEPTS_PER_TURN:
                try:
                    sock, peer = self._sock.accept()
                except ConnectionAbortedError:  # gone again before we looked
                    continue
                except OSError:
                    if accepted:  # the next turn will meet the same error with nothing in hand
                        break
                    raise
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                accepted.append((sock, peer))
        return accepted

    def close(self) -> None:
        self._sock.close()
