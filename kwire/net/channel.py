"""A connected socket with its TLS, if any: frames in and frames out.

No call blocks: each does what the socket allows now. A NodeError ends the connection, which the selector then closes.

Sockets are read and written in C where possible, without releasing the GIL. Python's own calls release it for each
system call, however short. A thread that computes then takes it and keeps it for a switch interval of 5 ms, several
times in each round trip. The C calls keep it unless they copy much.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from kwire.errors import DisconnectedError, EncodeError, NodeError
from kwire.wire.accel import speedups
from kwire.wire.frame import SIZE, BytesLike, Frame, FrameReader

if TYPE_CHECKING:
    from kwire.net.tls_filter import TlsFilter

# bytes, bytearray, memoryview: an object with a buffer.
Piece: TypeAlias = Any

# struct linger: on, for 0 seconds.
_NO_LINGER = struct.pack("ii", 1, 0)
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


# Below this a copy is cheaper than one more entry in the vector.
SMALL_BYTES = 1024
_MAX_SIZE = 2**31 - 1
_WHOLE = bytes, bytearray, memoryview


def _parts(frame: Any) -> Sequence[BytesLike]:
    """Return a frame in parts; raise TypeError for what is none, such as an iterator, which can be read only once."""
    if isinstance(frame, (list, tuple)) or (isinstance(frame, Sequence) and not isinstance(frame, str)):
        return frame
    raise TypeError(f"{frame!r:.60} is no frame")


class SendQueue:
    """Frames to be written, as a stream of pieces for vectored writes."""

    __slots__ = ("_done", "_ends", "_queued", "pieces")

    def __init__(self) -> None:
        self.pieces: deque[memoryview] = deque()  # what is left to write; read-only for callers
        self._ends: deque[tuple[int, Frame]] = deque()  # the stream position at which each frame ends
        self._queued = 0  # bytes ever pushed
        self._done = 0  # bytes ever removed by `advance`

    def push(self, frame: Frame) -> None:
        """Queue a frame after its size. Its bytes must not change until `advance` has returned the frame.

        Raises TypeError for what is no frame, and EncodeError for one that is too large.
        """
        parts: Sequence[BytesLike] = [frame] if isinstance(frame, _WHOLE) else _parts(frame)  # pyright: ignore[reportAssignmentType]
        size, pieces = 0, []
        first = small = bytearray(SIZE.size)
        for part in parts:
            view = memoryview(part).cast("B")
            size += len(view)
            if len(view) < SMALL_BYTES:
                small += view
                continue
            if small:
                pieces.append(memoryview(small))
                small = bytearray()
            pieces.append(view)
        if small:
            pieces.append(memoryview(small))
        if size > _MAX_SIZE:
            raise EncodeError(f"a frame of {size:,} bytes: its size does not fit four bytes")
        SIZE.pack_into(first, 0, size)
        self.pieces += pieces
        self._queued += SIZE.size + size
        self._ends.append((self._queued, frame))

    def push_raw(self, data: bytes) -> None:
        """Queue bytes without a size field."""
        if data:
            self.pieces.append(memoryview(data))
        self._queued += len(data)
        self._ends.append((self._queued, data))

    def chunk(self, max_bytes: int) -> BytesLike:
        """Return the next bytes, at most `max_bytes`, in one piece, for a writer without vectors."""
        first = self.pieces[0]
        if len(first) >= max_bytes or len(self.pieces) == 1:
            return first[:max_bytes]
        joined = bytearray()
        for piece in self.pieces:
            joined += piece[: max_bytes - len(joined)]
            if len(joined) == max_bytes:
                break
        return joined

    def advance(self, count: int) -> list[Frame]:
        """Remove the first `count` bytes, which are written; return the frames that are now complete, in order."""
        self._done += count
        while count:
            first = self.pieces[0]
            if len(first) > count:
                self.pieces[0] = first[count:]
                break
            count -= len(first)
            self.pieces.popleft()
        frames: list[Frame] = []
        while self._ends and self._ends[0][0] <= self._done:
            frames.append(self._ends.popleft()[1])
        return frames

    def clear(self) -> None:
        self.pieces.clear()
        self._ends.clear()
        self._queued = self._done = 0

    @property
    def bytes_queued(self) -> int:
        return self._queued - self._done

    @property
    def frames_queued(self) -> int:
        return len(self._ends)


READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
# The most that is encrypted before the socket takes it.
_SEAL_BYTES = 256 * 1024
# The low-water mark for reading a large frame: a lower one would cost a turn of the loop for every few packets.
_GATHER_BYTES = 2 * 1024 * 1024
# The most that one channel writes in a turn, so that it does not starve the others.
_WRITE_BYTES_PER_TURN = 4 * 1024 * 1024

_NOT_OURS = "if this listener expects TLS or SASL, configure it; otherwise the broker's log says why"


class Channel:
    """One connection of the selector. `wants` says for which events the selector must watch its socket."""

    __slots__ = (
        "_failure", "_is_paused", "_low_watermark", "_outgoing", "_reader", "_sealed", "_sealed_frames", "_sock",
        "_tls", "broker", "is_accepted", "is_established", "last_active", "mask", "push", "push_raw", "wants",
    )  # fmt: skip

    def __init__(
        self,
        sock: socket.socket,
        *,
        broker: str,
        now: float,
        reader: FrameReader,
        tls: TlsFilter | None,
        is_accepted: bool,
    ) -> None:
        self._sock = sock
        self._tls = tls
        self._reader = reader
        self._outgoing = SendQueue()
        self.push, self.push_raw = self._outgoing.push, self._outgoing.push_raw
        self._sealed = memoryview(b"")  # encrypted and not yet written
        self._sealed_frames: list[Frame] = []  # frames whose last byte is in `_sealed`
        self._failure: NodeError | None = None  # of a write; raised when everything from the peer was read
        self._low_watermark = 1  # SO_RCVLOWAT of the socket
        self.broker = broker
        self.is_accepted = is_accepted
        self.is_established = tls is None  # the TLS handshake, if any, is over
        self._is_paused = False
        self.last_active = now
        self.wants = READ  # the events to watch for, a mask of READ and WRITE ...
        self.mask = 0  # ... and those that the selector has registered

    def fileno(self) -> int:
        return self._sock.fileno()

    @property
    def frames_read(self) -> int:
        return self._reader.frames_read

    @property
    def frames_queued(self) -> int:
        """Return the number of frames given to `push` and not yet returned by `flush`."""
        return self._outgoing.frames_queued + len(self._sealed_frames)

    @property
    def bytes_queued(self) -> int:
        return self._outgoing.bytes_queued + len(self._sealed)

    def pause(self, is_paused: bool) -> None:
        """Stop reading, or begin again."""
        self._is_paused = is_paused
        self._update_interest()

    def start(self, now: float) -> None:
        """Begin the TLS handshake, if there is one."""
        if self._tls is not None:
            self._tls.handshake()
            self.flush(now)

    def peername(self) -> tuple[str, int]:
        host, port = self._sock.getpeername()[:2]
        return host, port

    def sockname(self) -> tuple[str, int]:
        host, port = self._sock.getsockname()[:2]
        return host, port

    def peer_certificate(self) -> bytes | None:
        return self._tls.peer_certificate() if self._tls is not None else None

    def read(self, buffer: bytearray, budget: int, now: float) -> tuple[list[BytesLike], NodeError | None]:
        """Read until a frame is whole, at most `budget` bytes, through `buffer` where the bytes must be copied.

        Return the complete frames and, if the connection is over, the reason. Frames before the end come with it.
        """
        frames: list[BytesLike] = []
        reader, view = self._reader, memoryview(buffer)
        try:
            while budget > 0 and not frames:
                target = view if self._tls is not None else reader.recv_buffer(view)[:budget]
                count = receive_into(self._sock, target)
                if count == 0:
                    return frames, self._end()
                self.last_active = now
                budget -= count
                if self._tls is not None:
                    self._decrypt(self._tls, target[:count], frames)
                elif reader.pending is not None:
                    frames += reader.received(count)
                else:
                    frames += reader.feed(target[:count])
                if reader.failure is not None:
                    raise reader.failure
                if self._tls is not None and self._tls.is_ended:
                    return frames, self._end()
                if count < len(target):
                    break
        except (BlockingIOError, InterruptedError):
            pass
        except NodeError as error:
            return frames, error.at(broker=self.broker)
        except OSError as error:
            return frames, self._failure or self._cut(_reason(error))
        low_watermark = (
            1 if reader.pending is None or self._tls is not None else min(len(reader.pending), _GATHER_BYTES)
        )
        if low_watermark != self._low_watermark:
            self._gather(low_watermark)
        return frames, None

    def _gather(self, low_watermark: int) -> None:
        """Set how many bytes make the socket readable. The end of the connection makes it readable at any time."""
        with contextlib.suppress(OSError):  # without it the loop only turns more often
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low_watermark)
        self._low_watermark = low_watermark

    def flush(self, now: float) -> list[Frame]:
        """Write what the socket takes; return the frames that are written whole, in order.

        A failed write does not end the connection: the peer may have sent the reason before it closed (an HTTP error, a
        TLS alert). The next read finds that, and the end.
        """
        frames: list[Frame] = []
        if self._failure is not None:
            return frames
        try:
            if self._tls is None:
                self._flush_plain(now, frames)
            else:
                self._flush_tls(self._tls, now, frames)
        except (BlockingIOError, InterruptedError):
            pass
        except NodeError as error:
            self._failure = error.at(broker=self.broker)
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RD)  # TLS failed while the socket works: the next read must find an end
        except OSError as error:
            self._failure = self._cut(_reason(error))
        self._update_interest()
        return frames

    def _update_interest(self) -> None:
        """Set `wants`. A paused channel is not read, except to find the end after a failed write."""
        is_waiting = bool(self._sealed or self._sealed_frames or (self._outgoing.pieces and self.is_established))
        if self._failure is not None:
            self.wants = READ
        else:
            self.wants = (0 if self._is_paused else READ) | (WRITE if is_waiting else 0)

    def stalled(self, seconds: float) -> NodeError | None:
        """Return the error for a peer that sent nothing for so long in the middle of a frame; None between frames."""
        return self._cut(f"the peer sent nothing for {seconds:g} s") if self._reader.progress is not None else None

    def timeout_error(self) -> NodeError:
        """Return the error for a TLS handshake that took too long."""
        assert self._tls is not None
        return self._tls.timeout_error().at(broker=self.broker)

    def abandon(self) -> None:
        """Close the descriptor only: another process uses the connection."""
        self._sock.close()

    def close(self) -> None:
        """Close the socket, after a TLS close_notify where there is TLS. Queued frames are dropped."""
        if self._tls is not None and self._failure is None and self._sock.fileno() >= 0:
            # Without it, where the peer is gone or its window is full, the close says the same.
            with contextlib.suppress(OSError):
                self._sock.send(self._tls.close_notify() if not self._sealed else self._sealed)
        self._outgoing.clear()
        self._sealed_frames.clear()
        self._sock.close()

    def reset_on_close(self) -> None:
        """Let `close` send a TCP reset: the socket lingers for no time."""
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)

    def _decrypt(self, tls: TlsFilter, data: memoryview, frames: list[BytesLike]) -> None:
        try:
            plain = tls.decrypt(data)
        finally:
            self.is_established = tls.is_established
            self._seal_alerts(tls)  # also after a failure, so that the peer gets the alert
            self._update_interest()
        for chunk in plain:
            frames += self._reader.feed(chunk)
            if self._reader.failure is not None:
                break

    def _seal_alerts(self, tls: TlsFilter) -> None:
        """Write the handshake records, alerts and key updates that reading produced."""
        records = tls.sealed()
        if records:
            self._sealed = memoryview(bytes(self._sealed) + records)
            with contextlib.suppress(BlockingIOError, InterruptedError, OSError):
                self._sealed = self._sealed[send_pieces(self._sock, [self._sealed]) :]

    def _flush_plain(self, now: float, frames: list[Frame]) -> None:
        budget = _WRITE_BYTES_PER_TURN
        while self._outgoing.pieces and budget > 0:
            count = send_pieces(self._sock, self._outgoing.pieces)
            self.last_active = now
            budget -= count
            frames += self._outgoing.advance(count)

    def _flush_tls(self, tls: TlsFilter, now: float, frames: list[Frame]) -> None:
        budget = _WRITE_BYTES_PER_TURN
        while budget > 0:
            if not self._sealed:
                frames += self._sealed_frames
                self._sealed_frames = []
                self._seal(tls)
                if not self._sealed:
                    break
            count = send_pieces(self._sock, [self._sealed])
            self.last_active = now
            budget -= count
            self._sealed = self._sealed[count:]

    def _seal(self, tls: TlsFilter) -> None:
        """Encrypt the next part of the queue. Its frames are complete when the socket has taken all of it."""
        taken = 0
        while tls.is_established and self._outgoing.pieces and taken < _SEAL_BYTES:
            count = tls.encrypt(self._outgoing.chunk(tls.RECORD_BYTES))
            taken += count
            self._sealed_frames += self._outgoing.advance(count)
        self._sealed = memoryview(tls.sealed())

    def _end(self) -> NodeError:
        """Return the error for an end of the stream at this place."""
        foreign = self._reader.ended()
        if foreign is not None:
            return foreign.at(broker=self.broker)
        if self._tls is not None and not self._tls.is_established:
            return self._tls.cut().at(broker=self.broker)
        return self._failure or self._cut("the peer closed the connection")

    def _cut(self, reason: str) -> DisconnectedError:
        progress = self._reader.progress
        if progress is not None:
            got, size = progress
            reason = f"{reason} in the middle of a frame, {got:,} of {size:,} bytes in"
        remedy = None
        if self._reader.frames_read == 0 and not self.is_accepted:
            reason = reason if progress is not None else f"{reason}, before it had sent anything"
            remedy = _NOT_OURS
        return DisconnectedError(reason, broker=self.broker, remedy=remedy)


def _reason(error: OSError) -> str:
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return "the peer reset the connection"
    return f"the connection failed ({error.strerror or error})"
