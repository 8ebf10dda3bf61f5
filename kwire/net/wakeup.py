"""Wake a selector from another thread, by a socket pair.

A socket pair works with every implementation of `selectors` and on every system; an eventfd does not.
"""

from __future__ import annotations

import socket

from kwire.net.sockets import receive_into, send_pieces

_BYTE = (b"\0",)
_DRAIN_BYTES = 64


class Wakeup:
    """A socket that `notify` makes readable, from any thread, and `drain` empties, on the selector's thread.

    `_is_notified` saves the system call while a notification is pending. That is safe because of the order in `drain`:
    it empties the socket, then clears the flag, and only then does the selector read what other threads left for it. A
    `notify` between the two steps writes nothing, but its thread left its work before, so the selector finds that work.
    In the other order the byte of such a `notify` would be lost while the flag stays set, and no later one would wake
    the selector. An interrupt (Ctrl-C) at any point clears the flag, which costs at most one more system call.
    """

    __slots__ = ("_buffer", "_is_notified", "_reader", "_writer")

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._buffer = bytearray(_DRAIN_BYTES)
        self._is_notified = False

    def fileno(self) -> int:
        return self._reader.fileno()

    def notify(self) -> None:
        if self._is_notified:
            return
        try:
            self._is_notified = True
            send_pieces(self._writer, _BYTE)
        except OSError:  # the buffer is full, so the selector will wake; or the selector is closed
            pass
        except BaseException:
            self._is_notified = False
            raise

    def drain(self, _: int = 0) -> None:
        """Empty the socket. The argument is the event mask that the selector gives to all handlers."""
        try:
            while receive_into(self._reader, self._buffer) == _DRAIN_BYTES:  # fewer: there was no more
                pass
        except BlockingIOError:
            pass
        finally:
            self._is_notified = False

    def close(self) -> None:
        self._is_notified = True
        self._reader.close()
        self._writer.close()
