"""The frames waiting to be written to one connection, as a queue of pieces for vectored writes.

Owns the size prefix and the accounting of which frame is wholly written. Refuses to join large pieces: a batch of a
megabyte goes from the producer's buffer to the kernel without another copy.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from kwire.errors import EncodeError
from kwire.wire.frame import SIZE, BytesLike, Frame

# Below this a copy is cheaper than one more entry in the vector.
SMALL_BYTES = 1024
_MAX_SIZE = 2**31 - 1
_WHOLE = bytes, bytearray, memoryview


class Outgoing:
    __slots__ = ("_done", "_ends", "_queued", "pieces")

    def __init__(self) -> None:
        self.pieces: deque[memoryview] = deque()  # what is left to be written, frame after frame; to look at
        self._ends: deque[tuple[int, Frame]] = deque()  # position in the stream at which each frame ends
        self._queued = 0  # bytes ever pushed
        self._done = 0  # bytes ever taken away by `advance`

    def push(self, frame: Frame) -> None:
        """Queue a frame, its size in front. Its bytes must not change until `advance` has answered the frame."""
        parts: Sequence[BytesLike] = [frame] if isinstance(frame, _WHOLE) else frame  # pyright: ignore[reportAssignmentType]
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
        """Queue bytes as they are, without a size: what a peer that breaks the framing would send."""
        if data:
            self.pieces.append(memoryview(data))
        self._queued += len(data)
        self._ends.append((self._queued, data))

    def chunk(self, max_bytes: int) -> BytesLike:
        """The next bytes in one piece, for a writer that has no vectors; only pieces below `max_bytes` are joined."""
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
        """The first `count` bytes are written. Answers the frames that are now done with, in order."""
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
