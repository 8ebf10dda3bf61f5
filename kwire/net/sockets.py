"""Bytes to and from a socket that never blocks: what C does without giving up the interpreter's lock.

Python's own calls give the lock up for every system call, however short. Where another thread computes, that thread
takes it, and keeps it for a switch interval: 5 ms, several times in each round trip. A call that cannot block needs no
lock given up; one that copies much gives it up all the same, so that others compute meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Protocol, TypeAlias

from kwire.wire.accel import speedups

# bytes, bytearray, memoryview: what has a buffer.
Piece: TypeAlias = Any

# What sendmsg takes at once: UIO_MAXIOV of Linux, and no system has less than 1024 today.
PIECES_MAX = 1024


class Sock(Protocol):
    """What is used of a `socket.socket` in non-blocking mode."""

    def fileno(self) -> int: ...

    def sendmsg(self, pieces: Iterable[Piece], /) -> int: ...

    def recv_into(self, target: Piece, /) -> int: ...


def send_pieces(sock: Sock, pieces: Sequence[Piece]) -> int:
    """Write the pieces, one after the other, the first PIECES_MAX if there are more; answers how many bytes were taken.
    OSError as `socket.sendmsg`."""
    return sock.sendmsg(islice(pieces, PIECES_MAX))


def receive_into(sock: Sock, target: Piece) -> int:
    """Read what is there into `target`; answers how many bytes, fewer than asked for only where there was no more; 0 at
    the end of the stream. OSError as `socket.recv_into`."""
    return sock.recv_into(target)


if speedups is not None and hasattr(speedups, "send_pieces"):  # not on systems without sendmsg
    send_pieces, receive_into = speedups.send_pieces, speedups.receive_into
