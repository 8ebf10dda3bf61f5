"""Read and write sockets that never block, in C without releasing the GIL.

Python's own calls release the GIL for each system call, however short. A thread that computes then takes it and keeps
it for a switch interval of 5 ms, several times in each round trip. The C calls keep it unless they copy much.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from kwire.wire.accel import speedups

# bytes, bytearray, memoryview: an object with a buffer.
Piece: TypeAlias = Any

# The most pieces of one sendmsg: UIO_MAXIOV of Linux; no system has a lower limit today.
PIECES_MAX = 1024


class Sock(Protocol):
    """The part of a non-blocking `socket.socket` that is used here."""

    def fileno(self) -> int: ...

    def sendmsg(self, pieces: Iterable[Piece], /) -> int: ...

    def recv_into(self, target: Piece, /) -> int: ...


def send_pieces(sock: Sock, pieces: Sequence[Piece]) -> int:
    """Write the pieces in order, at most PIECES_MAX of them; return the number of bytes written.

    Raises OSError as `socket.sendmsg` does.
    """
    return sock.sendmsg(islice(pieces, PIECES_MAX))


def receive_into(sock: Sock, target: Piece) -> int:
    """Read into `target`; return the number of bytes, or 0 at the end of the stream.

    Fewer bytes than `target` holds mean that no more have arrived. Raises OSError as `socket.recv_into` does.
    """
    return sock.recv_into(target)


if not TYPE_CHECKING and speedups is not None and hasattr(speedups, "send_pieces"):  # not on systems without sendmsg
    send_pieces, receive_into = speedups.send_pieces, speedups.receive_into
