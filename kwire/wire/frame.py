"""Size-prefixed frames: the four bytes of length, big-endian and signed, that stand before every Kafka message.

Owns the assembly of frames from a stream cut anywhere, and the recognition of peers that speak something else: the
first four bytes of HTTP or of a TLS record make an absurd size, and saying "this is a web server" helps more than
"a frame of 1213486160 bytes". Refuses to know what is inside a frame.

A frame above the limit is refused on its size alone, before anything is allocated for it; below the limit memory grows
only with the bytes that really came.
"""
from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import TypeAlias

from kwire.errors import NotKafkaError
from kwire.wire.accel import blank

BytesLike: TypeAlias = bytes | bytearray | memoryview
# A frame to be written: whole, or in parts that are written one after the other without being joined.
Frame: TypeAlias = BytesLike | Sequence[BytesLike]

SIZE = Struct(">i")
# Kafka's own socket.request.max.bytes, and what its clients will read.
MAX_FRAME_BYTES = 100 * 1024 * 1024

_HTTP_VERBS = (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI ")
# TLS record types (alert, handshake, ...) and the major version byte that every TLS since SSL 3 puts behind them.
_TLS_RECORD_TYPES = {0x14: "a cipher change", 0x15: "an alert", 0x16: "a handshake", 0x17: "encrypted data"}
_TLS_MAJOR = 3
_SAMPLE_BYTES = 40
# A frame of which as much is missing is given its memory at once, when a sixteenth of it has come: a peer cannot ask
# for more than sixteen times of what it sends.
_LARGE_BYTES = 256 * 1024
_SHARE_BEFORE = 16


class FrameReader:
    """Bytes in, frames out. `feed` may be given the stream whole, byte by byte or cut anywhere.

    >>> reader = FrameReader()
    >>> reader.feed(bytes([0, 0, 0, 2, 7]))
    []
    >>> reader.progress
    (1, 2)
    >>> reader.feed(bytes([8, 0, 0, 0, 0]))
    [b'\\x07\\x08', b'']
    """

    __slots__ = ("_got", "_head", "_max_frame_bytes", "_partial", "_room", "_size", "_whole", "failure", "frames_read")

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._head = b""  # of the size field, while it is cut
        self._size: int | None = None  # of the frame being assembled
        self._partial = bytearray()
        self._whole: BytesLike = b""  # of a large frame ...
        self._room: memoryview | None = None  # ... all of it, to be written into, ...
        self._got = 0  # ... of which so much has come
        # What is wrong with the stream, once something is; nothing behind it can be read.
        self.failure: NotKafkaError | None = None
        self.frames_read = 0

    def feed(self, data: BytesLike) -> list[bytes]:
        """The frames that `data` completes, copied out of it.

        A size that cannot be right raises NotKafkaError. Where good frames stand before it in the same data they are
        answered first, `failure` is set, and the next `feed` raises.
        """
        if self.failure is not None:
            raise self.failure
        view = memoryview(data)
        position, end = 0, len(view)
        if self._size is None and not self._head and end >= SIZE.size:
            (size,) = SIZE.unpack_from(view)
            if end - SIZE.size == size <= self._max_frame_bytes:  # what came is one frame, as it mostly is
                self.frames_read += 1
                return [bytes(view[SIZE.size :])]
        frames: list[bytes] = []
        while position < end:
            if self._size is None:
                self._size, position = self._read_size(view, position)
                if self._size is None:  # it is cut, or cannot be right
                    break
            if self._room is not None:
                stop = min(end, position + self._size - self._got)
                self._room[self._got : self._got + stop - position] = view[position:stop]
                frames += self._advance(stop - position)
                position = stop
                continue
            stop = position + self._size - len(self._partial)
            if stop > end:
                self._partial += view[position:]
                self._make_room()
                break
            if self._partial:
                self._partial += view[position:stop]
                frames.append(bytes(self._partial))
                self._partial = bytearray()
            else:
                frames.append(bytes(view[position:stop]))
            self._size = None
            position = stop
        self.frames_read += len(frames)
        if not frames and self.failure is not None:
            raise self.failure
        return frames

    def vacancy(self) -> memoryview | None:
        """Where what is missing of a large frame can be read to, instead of being given to `feed` and copied.

        Then `filled` is to be told how much it was, before anything else is done.
        """
        return None if self._room is None else self._room[self._got :]

    def filled(self, count: int) -> list[bytes]:
        """`count` bytes stand in the vacancy. Answers the frame that they complete, if they do."""
        frames = self._advance(count)
        self.frames_read += len(frames)
        return frames

    @property
    def missing(self) -> int:
        """How many bytes of a large frame are still to come; 1 where none was begun."""
        return len(self._room) - self._got if self._room is not None else 1

    def _make_room(self) -> None:
        assert self._size is not None
        got = len(self._partial)
        if self._size - got >= _LARGE_BYTES and got * _SHARE_BEFORE >= self._size:
            self._whole, self._room = blank(self._size)
            self._room[:got] = self._partial
            self._got, self._partial = got, bytearray()

    def _advance(self, count: int) -> list[bytes]:
        self._got += count
        if self._got != self._size:
            return []
        frame = bytes(self._whole)
        self._whole, self._room, self._size, self._got = b"", None, None, 0
        return [frame]

    @property
    def progress(self) -> tuple[int, int] | None:
        """(bytes got, bytes announced) of the frame begun, or of its size while that is cut; None between frames."""
        if self._size is not None:
            return self._got or len(self._partial), self._size
        return (len(self._head), SIZE.size) if self._head else None

    def ended(self) -> NotKafkaError | None:
        """The stream has ended: was its unfinished frame the first words of another protocol?

        A limit set very high lets such a size pass for a frame, and less than four bytes are never judged by `feed`.
        """
        if self.failure is not None:
            return self.failure
        if self._size is None:
            return not_kafka(self._head)
        sample = self._partial if self._room is None else self._room
        return not_kafka(SIZE.pack(self._size) + bytes(sample[:_SAMPLE_BYTES]))

    def _read_size(self, view: memoryview, position: int) -> tuple[int | None, int]:
        """Take (a part of) the size field: the size, once it is whole and right, and the next position."""
        stop = position + SIZE.size - len(self._head)
        head = self._head + bytes(view[position:stop])
        if len(head) < SIZE.size:
            self._head = head
            return None, len(view)
        self._head = b""
        (size,) = SIZE.unpack(head)
        if 0 <= size <= self._max_frame_bytes:
            return size, stop
        self.failure = self._explain(size, head + bytes(view[stop : stop + _SAMPLE_BYTES]))
        return None, stop

    def _explain(self, size: int, sample: bytes) -> NotKafkaError:
        known = not_kafka(sample)
        if known is not None:
            return known
        if size < 0:
            return NotKafkaError(
                f"the peer announced a frame of {size} bytes: its stream is not made of Kafka frames",
                remedy="check that the address is a Kafka listener",
            )
        return NotKafkaError(
            f"the peer announced a frame of {size:,} bytes, above the limit of {self._max_frame_bytes:,}",
            remedy="check that the address is a Kafka listener; if frames may be that large, raise max_frame_bytes",
        )


def not_kafka(sample: bytes) -> NotKafkaError | None:
    """Name the protocol that a stream beginning with `sample` (a few bytes) speaks, if it is one that we know."""
    if sample.startswith((b"HTTP", *_HTTP_VERBS)):
        role = "the peer answers in HTTP" if sample.startswith(b"HTTP") else "the peer is an HTTP client"
        return NotKafkaError(
            f"{role}: {_first_line(sample)!r}", remedy="this is no Kafka listener; check the port"
        )
    if len(sample) >= 2 and sample[0] in _TLS_RECORD_TYPES and sample[1] == _TLS_MAJOR:
        return NotKafkaError(
            f"the peer speaks TLS (it sent {_TLS_RECORD_TYPES[sample[0]]}), and this connection is plaintext",
            remedy="turn TLS on for this connection, or use the port of a plaintext listener",
        )
    if len(sample) >= SIZE.size and all(byte in b"\r\n\t" or 0x20 <= byte < 0x7F for byte in sample[: SIZE.size]):
        return NotKafkaError(
            f"the peer sent text: {_first_line(sample)!r}", remedy="this is no Kafka listener; check the port"
        )
    return None


def _first_line(sample: bytes) -> str:
    lines = sample[:_SAMPLE_BYTES].decode("ascii", "replace").splitlines()
    return lines[0] if lines else ""
