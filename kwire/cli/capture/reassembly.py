"""One direction of a TCP connection as the stream that its reader got: in order, once, with the gaps of the capture.

What came out of order waits; what was sent again is dropped. A hole is a gap, not a wait, as soon as the reader must
have got what is missing: when it has acknowledged data beyond the hole, or has gone on for long, or the stream ends.
(The capture itself may be out of order, so an acknowledgement is believed only a few segments later.) Bounded: what
waits is at most WAITING_BYTES_MAX or WAITING_SEGMENTS_MAX, then the hole is a gap too.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

WAITING_BYTES_MAX = 1024 * 1024
WAITING_SEGMENTS_MAX = 256
# How many segments of the connection may follow before the acknowledgement of a hole is believed.
_PATIENCE = 3


class Piece(NamedTuple):
    """Bytes of the stream. `is_start` if they are a segment's first: senders often begin a frame there."""

    data: bytes
    packet: int
    at_ns: int
    is_start: bool


class Gap(NamedTuple):
    """Bytes of the stream that the capture lacks."""

    size: int


Event: TypeAlias = Piece | Gap


class _Waiting(NamedTuple):
    """A segment that came before its turn, at a position in the stream."""

    start: int
    packet: int
    at_ns: int
    data: bytes
    missing: int


class HalfStream:
    """The bytes of one side. Positions count from the first byte seen, sequence numbers wrap around at 2^32."""

    def __init__(self) -> None:
        self._next = 0  # the position of the byte that is wanted
        self._seq: int | None = None  # its sequence number
        self._waiting: list[_Waiting] = []
        self._waiting_bytes = 0
        self._patience = _PATIENCE
        self._end: int | None = None  # the position behind the last byte, from a FIN
        self.resent_bytes = 0

    @property
    def has_begun(self) -> bool:
        return self._seq is not None

    @property
    def has_ended(self) -> bool:
        return self._end is not None and self._next >= self._end

    def begin(self, seq: int) -> None:
        """The first byte will have this sequence number, from a SYN."""
        self._seq = seq & 0xFFFFFFFF

    def add(self, seq: int, data: bytes, missing: int, packet: int, at_ns: int) -> Iterator[Event]:
        """The events that a segment's data brings about."""
        if self._seq is None:
            self.begin(seq)
        start = self._position(seq)
        if start > self._next:
            insort(self._waiting, _Waiting(start, packet, at_ns, data, missing))
            self._waiting_bytes += len(data)
            if self._waiting_bytes > WAITING_BYTES_MAX or len(self._waiting) > WAITING_SEGMENTS_MAX:
                yield from self._give_up()
            return
        yield from self._take(_Waiting(start, packet, at_ns, data, missing))
        yield from self._take_waiting()

    def acknowledged(self, ack: int) -> Iterator[Event]:
        """The events that an acknowledgement of the other side, seen with any segment of it, brings about."""
        if not self._waiting or self._position(ack) <= self._waiting[0].start:
            self._patience = _PATIENCE
            return
        self._patience -= 1
        if self._patience <= 0:
            yield from self._give_up()

    def finish(self, seq: int) -> None:
        """The sender has said (FIN) that this is its end."""
        if self._seq is not None:
            self._end = self._position(seq)

    def flush(self) -> Iterator[Event]:
        """What waits still, with the gaps before it: the connection or the capture is at its end."""
        while self._waiting:
            yield from self._give_up()

    def _position(self, seq: int) -> int:
        """The nearest position that has this sequence number."""
        assert self._seq is not None
        distance = (seq - self._seq) & 0xFFFFFFFF
        return self._next + (distance if distance < 1 << 31 else distance - (1 << 32))

    def _give_up(self) -> Iterator[Event]:
        """Take the hole before what waits for a gap."""
        size = self._waiting[0].start - self._next
        self._advance(size)
        yield Gap(size)
        yield from self._take_waiting()

    def _take_waiting(self) -> Iterator[Event]:
        while self._waiting and self._waiting[0].start <= self._next:
            waiting = self._waiting.pop(0)
            self._waiting_bytes -= len(waiting.data)
            yield from self._take(waiting)
        self._patience = _PATIENCE

    def _take(self, segment: _Waiting) -> Iterator[Event]:
        """A segment that begins at the wanted byte or before it."""
        known = self._next - segment.start
        self.resent_bytes += min(known, len(segment.data))
        fresh = segment.data[known:]
        missing = segment.missing - max(0, known - len(segment.data))
        if fresh:
            self._advance(len(fresh))
            yield Piece(fresh, segment.packet, segment.at_ns, is_start=not known)
        if missing > 0:
            self._advance(missing)
            yield Gap(missing)

    def _advance(self, size: int) -> None:
        assert self._seq is not None
        self._next += size
        self._seq = (self._seq + size) & 0xFFFFFFFF
