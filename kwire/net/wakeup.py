"""The one thing about a selector that other threads may touch: a socket pair that ends a sleep.

A socket pair and not an eventfd, because it works with every `selectors` implementation and every system.
"""

from __future__ import annotations

import socket

from kwire.net.sockets import receive_into, send_pieces

_RING = (b"\0",)
_DRAIN_BYTES = 64


class Wakeup:
    """`ring` from any thread makes the socket readable; `silence`, on the selector's thread, makes it unreadable again.

    `_rung` spares the system call when a ring is already pending. The order in `silence` is what makes that safe: the
    socket is drained first, the flag falls second, and only then does the selector look at what the ringers left for
    it. A ring between drain and flag finds the flag up and writes nothing, but what it announces was left before it
    rang, so that look sees it. Were the flag to fall first, a ring between flag and drain would raise it again and lose
    its byte to the drain: the flag would stay up over an empty socket, and no later ring would wake anybody.
    An interrupt (Ctrl-C) may end either method anywhere, and then lowers the flag: a lowered one is always safe, as it
    only costs a system call more.
    """

    __slots__ = ("_drained", "_reader", "_rung", "_writer")

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._drained = bytearray(_DRAIN_BYTES)
        self._rung = False

    def fileno(self) -> int:
        return self._reader.fileno()

    def ring(self) -> None:
        if self._rung:
            return
        try:
            self._rung = True
            send_pieces(self._writer, _RING)
        except OSError:  # a full buffer is awake enough, and a closed selector has nobody to wake
            pass
        except BaseException:
            self._rung = False
            raise

    def silence(self, _: int = 0) -> None:
        """Empty the socket. The selector calls it as it calls its other handlers, with a mask, which is ignored."""
        try:
            while receive_into(self._reader, self._drained) == _DRAIN_BYTES:  # fewer: there was no more
                pass
        except BlockingIOError:
            pass
        finally:
            self._rung = False

    def close(self) -> None:
        self._rung = True
        self._reader.close()
        self._writer.close()
