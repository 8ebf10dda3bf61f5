"""Frames cut out of a stream with gaps: in step while sizes make sense, searching for the next frame when they do not.

A gap inside a frame whose size is known loses that frame's end and nothing else. After any other gap, or where a
connection was joined midway, a `search` (of requests or of responses, see `search`) says where a frame begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from kwire.cli.capture.reassembly import Event, Gap, Piece

SIZE_BYTES = 4
# What a frame's size can be: Kafka's own limit for requests, and as much again for large responses.
FRAME_SIZE_MAX = 200 * 1024 * 1024
# How much of a stream that makes no sense yet is kept.
SEARCHED_BYTES_MAX = 64 * 1024

# Where a frame begins in a buffer, given the positions at which segments began.
Search: TypeAlias = Callable[[bytes, Sequence[int]], int | None]


class Frame(NamedTuple):
    """A frame without its size; `missing` bytes of its end are not in the capture, or were too many to keep."""

    data: bytes
    missing: int
    packet: int
    at_ns: int


class Skipped(NamedTuple):
    """Bytes that are part of no frame that could be found, `lost` of them not captured at all."""

    size: int
    lost: int


class FrameCutter:
    """The frames of one side of a connection. `frame_bytes_max` bounds what is kept of one."""

    def __init__(self, search: Search, *, frame_bytes_max: int, in_step: bool) -> None:
        self._search = search
        self._frame_bytes_max = frame_bytes_max
        self._in_step = in_step
        self._buffer = bytearray()
        self._marks: list[int] = []  # while searching: where in the buffer segments began
        self._passing = 0  # bytes to come of a frame that was handed on already
        self._skipped = self._lost = 0
        self._packet = self._at_ns = 0

    def feed(self, event: Event) -> Iterator[Frame | Skipped]:
        yield from self._piece(event) if isinstance(event, Piece) else self._gap(event)

    def finish(self) -> Iterator[Frame | Skipped]:
        """What is left at the end of the stream."""
        if self._in_step and len(self._buffer) >= SIZE_BYTES:
            yield self._take()
        self._skip(len(self._buffer))
        yield from self._report()

    def _piece(self, piece: Piece) -> Iterator[Frame | Skipped]:
        data = piece.data[self._pass(len(piece.data)) :]
        if not data:
            return
        self._packet, self._at_ns = piece.packet, piece.at_ns
        if not self._in_step and piece.is_start and len(data) == len(piece.data):
            self._marks.append(len(self._buffer))
        self._buffer += data
        while self._in_step or self._find():
            yield from self._report()
            if len(self._buffer) < SIZE_BYTES:
                return
            size = self._size()
            if not 0 <= size <= FRAME_SIZE_MAX:
                self._in_step = False  # that was no size; perhaps something later is one
                self._marks = []
                self._skip(1)
            elif len(self._buffer) - SIZE_BYTES < min(size, self._frame_bytes_max):
                return
            else:
                yield self._take()

    def _gap(self, gap: Gap) -> Iterator[Frame | Skipped]:
        size = gap.size - self._pass(gap.size)
        if size and self._in_step and len(self._buffer) >= SIZE_BYTES:
            yield self._take()
            size -= self._pass(size)
        if size:
            self._in_step = False
            self._skip(len(self._buffer))
            self._lost += size

    def _pass(self, size: int) -> int:
        """Of `size` bytes that come next, how many belong to a frame that was handed on already."""
        passed = min(self._passing, size)
        self._passing -= passed
        return passed

    def _size(self) -> int:
        return int.from_bytes(self._buffer[:SIZE_BYTES], "big", signed=True)

    def _take(self) -> Frame:
        """Hand on the frame at the front of the buffer, whole or not; what is still to come of it will be passed."""
        size = self._size()
        data = bytes(self._buffer[SIZE_BYTES : SIZE_BYTES + min(size, self._frame_bytes_max)])
        end = min(SIZE_BYTES + size, len(self._buffer))
        self._passing = SIZE_BYTES + size - end
        del self._buffer[:end]
        return Frame(data, size - len(data), self._packet, self._at_ns)

    def _find(self) -> bool:
        """Whether, while searching, a frame was found: it is at the front of the buffer then."""
        found = self._search(bytes(self._buffer), self._marks) if self._buffer else None
        if found is None:
            excess = len(self._buffer) - SEARCHED_BYTES_MAX
            if excess > 0:
                self._skip(excess)
            return False
        self._skip(found)
        self._in_step = True
        return True

    def _skip(self, size: int) -> None:
        self._skipped += size
        del self._buffer[:size]
        self._marks = [mark - size for mark in self._marks if mark >= size]

    def _report(self) -> Iterator[Skipped]:
        if self._skipped or self._lost:
            yield Skipped(self._skipped, self._lost)
            self._skipped = self._lost = 0
