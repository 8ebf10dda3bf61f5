"""A listening socket, for the broker's side. The selector decides about the connections that it accepts."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING, Any

from kwire.errors import ConnectError
from kwire.net.dial import show_address

if TYPE_CHECKING:
    import ssl

_BACKLOG = 128
# The most accepted in one turn, so that new connections do not starve the others.
_ACCEPTS_PER_TURN = 64


class Listener:
    __slots__ = ("_sock", "address", "is_starved", "tls")

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        """Bind and listen. `host` is resolved here, which may block. Raises ConnectError."""
        where = show_address(host, port)
        if not 0 <= port < 65536:  # `getaddrinfo` takes it modulo 65536
            raise ConnectError(f"cannot listen on {where}: no such port", remedy="give one from 0 to 65535")
        try:
            family, _, _, _, sockaddr = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            self._sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            raise ConnectError(f"cannot listen on {where}: {error.strerror or error}") from error
        except UnicodeError as error:  # a label of more than 63 letters, which the IDNA codec refuses
            raise ConnectError(f"cannot listen on {where}: not a host name: {error}") from error
        try:
            # A broker that restarts needs its port while old connections are in TIME_WAIT.
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
        self.is_starved = False  # no file descriptor was left, and the log says so
        self.tls = tls

    def fileno(self) -> int:
        return self._sock.fileno()

    def accept(self) -> list[tuple[socket.socket, Any]]:
        """Return the new connections. Raises OSError when the process has no file descriptor left."""
        accepted: list[tuple[socket.socket, Any]] = []
        with contextlib.suppress(BlockingIOError, InterruptedError):
            while len(accepted) < _ACCEPTS_PER_TURN:
                try:
                    sock, peer = self._sock.accept()
                except ConnectionAbortedError:  # the peer closed it before this call
                    continue
                except OSError:
                    if accepted:  # the next turn raises the same error
                        break
                    raise
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                accepted.append((sock, peer))
        return accepted

    def close(self) -> None:
        self._sock.close()
