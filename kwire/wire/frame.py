"""Size-prefixed frames: every Kafka message follows a big-endian signed length of four bytes.

FrameReader assembles frames from a stream split at any position. It also recognizes other protocols: the first four
bytes of HTTP or of a TLS record make an absurd size, and "the peer speaks HTTP" helps more than "a frame of
1213486160 bytes".

A frame above the limit is rejected by its size, before any allocation. Below the limit, memory is proportional to the
bytes received, of this frame or of the frame before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import TypeAlias

from kwire.errors import NotKafkaError
from kwire.wire.buffers import alloc, alloc_pooled

BytesLike: TypeAlias = bytes | bytearray | memoryview
# A frame to write: whole, or in parts that are written in order without a join.
Frame: TypeAlias = BytesLike | Sequence[BytesLike]

SIZE = Struct(">i")
# The default of Kafka's socket.request.max.bytes, and the limit of its clients.
MAX_FRAME_BYTES = 100 * 1024 * 1024

_HTTP_VERBS = (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI ")
# TLS record types, each followed by a major version byte (3 since SSL 3).
_TLS_RECORD_TYPES = {0x14: "a cipher change", 0x15: "an alert", 0x16: "a handshake", 0x17: "encrypted data"}
_TLS_MAJOR = 3
_SAMPLE_BYTES = 40
# A frame that misses at least this much gets all its memory once 1/16 of it has arrived, or if the frame before it was
# 1/16 as large: a peer cannot cause an allocation of more than 16 times what it sends.
_LARGE_BYTES = 256 * 1024
_SHARE_BEFORE = 16


class FrameReader:
    """Assembles frames from a stream that `feed` receives in pieces of any size.

    A frame is bytes. With `reuse_buffers`, a large frame may be a read-only view of memory that another frame reuses
    once nothing refers to it.

    >>> reader = FrameReader()
    >>> reader.feed(bytes([0, 0, 0, 2, 7]))
    []
    >>> reader.progress
    (1, 2)
    >>> reader.feed(bytes([8, 0, 0, 0, 0]))
    [b'\\x07\\x08', b'']
    """

    __slots__ = (
        "_before",
        "_head",
        "_max_frame_bytes",
        "_partial",
        "_reuse_buffers",
        "_room",
        "_size",
        "_whole",
        "failure",
        "frames_read",
        "pending",
    )  # fmt: skip

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES, *, reuse_buffers: bool = False) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._reuse_buffers = reuse_buffers
        self._head = b""  # of the size field, while it is incomplete
        self._size: int | None = None  # of the frame being assembled
        self._partial = bytearray()
        self._before = 0  # the size of the previous frame
        self._whole: BytesLike = b""  # the memory of a large frame ...
        self._room: memoryview | None = None  # ... a writable view of it
        # The part that is still missing. A caller may read into it instead of calling `feed`, which copies; it must
        # then call `received` with the number of bytes before any other method.
        self.pending: memoryview | None = None
        # The error of the stream, if any; nothing after it can be read.
        self.failure: NotKafkaError | None = None
        self.frames_read = 0

    def feed(self, data: BytesLike) -> list[BytesLike]:
        """Return copies of the frames that `data` completes.

        Raise NotKafkaError for an invalid size. If valid frames precede it in `data`, return them, set `failure` and
        raise at the next call.
        """
        if self.failure is not None:
            raise self.failure
        view = memoryview(data)
        position, end = 0, len(view)
        if self._size is None and not self._head and end >= SIZE.size:
            (size,) = SIZE.unpack_from(view)
            if end - SIZE.size == size <= self._max_frame_bytes:  # the usual case: exactly one frame
                return [self._done(bytes(view[SIZE.size :]))]
        frames: list[BytesLike] = []
        while position < end:
            if self._size is None:
                self._size, position = self._read_size(view, position)
                if self._size is None:  # incomplete or invalid
                    break
            if self.pending is not None:
                stop = min(end, position + len(self.pending))
                self.pending[: stop - position] = view[position:stop]
                frames += self.received(stop - position)
                position = stop
                continue
            stop = position + self._size - len(self._partial)
            if stop > end:
                self._partial += view[position:]
                break
            if self._partial:
                self._partial += view[position:stop]
                frames.append(self._done(bytes(self._partial)))
                self._partial = bytearray()
            else:
                frames.append(self._done(bytes(view[position:stop])))
            position = stop
        if self._size is not None and self.pending is None:
            self._make_room(self._size)
        if not frames and self.failure is not None:
            raise self.failure
        return frames

    def received(self, count: int) -> list[BytesLike]:
        """Note that `count` bytes were read into `pending`; return a list of the frame that they complete, if any."""
        assert self.pending is not None
        if count < len(self.pending):
            self.pending = self.pending[count:]
            return []
        whole, self._whole, self._room, self.pending = self._whole, b"", None, None
        return [self._done(memoryview(whole).toreadonly() if self._reuse_buffers else bytes(whole))]

    def recv_buffer(self, buffer: memoryview) -> memoryview:
        """Return the memory to read into: `pending`, or the part of `buffer` whose bytes are then given to `feed`.

        That part is only as long as a size field after a large frame, because the next frame is mostly large too.
        """
        if self.pending is not None:
            return self.pending
        if self._size is None and self._before >= _LARGE_BYTES:
            return buffer[: SIZE.size - len(self._head)]
        return buffer

    def _make_room(self, size: int) -> None:
        got = len(self._partial)
        if size - got >= _LARGE_BYTES and size <= _SHARE_BEFORE * max(got, self._before):
            self._whole, self._room = alloc_pooled(size) if self._reuse_buffers else alloc(size)
            self._room[:got] = self._partial
            self._partial, self.pending = bytearray(), self._room[got:]

    def _done(self, frame: BytesLike) -> BytesLike:
        self.frames_read += 1
        self._before, self._size = len(frame), None
        return frame

    @property
    def progress(self) -> tuple[int, int] | None:
        """Return (bytes received, bytes expected) of the current frame or its size field; None between frames."""
        if self._size is not None:
            got = len(self._partial) if self.pending is None else self._size - len(self.pending)
            return got, self._size
        return (len(self._head), SIZE.size) if self._head else None

    def ended(self) -> NotKafkaError | None:
        """Return an error if the stream, which has ended, shows another protocol in its incomplete frame; else None.

        `feed` does not detect this if the limit is very high or fewer than four bytes have arrived.
        """
        if self.failure is not None:
            return self.failure
        if self._size is None:
            return not_kafka(self._head)
        sample = self._partial
        if self._room is not None and self.pending is not None:
            sample = bytearray(self._room[: len(self._room) - len(self.pending)][:_SAMPLE_BYTES])
        return not_kafka(SIZE.pack(self._size) + sample[:_SAMPLE_BYTES])

    def _read_size(self, view: memoryview, position: int) -> tuple[int | None, int]:
        """Read (a part of) the size field; return the size (None: incomplete or invalid) and the next position."""
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
    """Return an error that names the protocol of a stream that begins with `sample`, or None if it is unknown."""
    if sample.startswith((b"HTTP", *_HTTP_VERBS)):
        role = "the peer speaks HTTP" if sample.startswith(b"HTTP") else "the peer is an HTTP client"
        return NotKafkaError(f"{role}: {_first_line(sample)!r}", remedy="this is no Kafka listener; check the port")
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
