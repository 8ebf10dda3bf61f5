"""The TCP streams of a capture that look like Kafka's.

A stream is Kafka's once the client is known: from a broker port that the user named, from the side that opened the
connection and then sent a request, or from the first side that sends something like a request. Until then the stream's
last bytes are kept.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Collection, Iterator
from itertools import count
from typing import BinaryIO

from kwire.cli.capture.exchange import CapturedConnection, CaptureEvent, Remark, ResponseMatcher
from kwire.cli.capture.frames import SEARCHED_BYTES_MAX, find_request, is_request
from kwire.cli.capture.packets import read_packets
from kwire.cli.capture.tcp import (
    ACK,
    FIN,
    RST,
    SYN,
    Endpoint,
    Event,
    Gap,
    HalfStream,
    Segment,
    SkippedPackets,
    StreamData,
    maybe_segment,
)
from kwire.errors import DecodeError

# As the size of a frame these would be 350 MB and more.
_TLS_RECORD = (b"\x15\x03", b"\x16\x03", b"\x17\x03")
_HEAD_BYTES = 300

# Why a connection is not read.
TLS = "encrypted with TLS: capture before TLS, or on a plaintext listener"
ANOTHER_PROTOCOL = "another protocol than Kafka's"
NO_REQUEST = "no request of Kafka's was found in it"


class TcpStream:
    """A TCP connection that may be Kafka's. `sides` are its ends; `numbers` numbers those that are."""

    def __init__(
        self, sides: tuple[Endpoint, Endpoint], broker_ports: Collection[int], frame_bytes_max: int,
        numbers: Iterator[int],
    ) -> None:  # fmt: skip
        self.sides = sides
        self.rejected: str | None = None  # why it is not read
        self.bytes = 0  # of what both sides said, as far as it was seen
        self._frame_bytes_max = frame_bytes_max
        self._numbers = numbers
        self._halves = (HalfStream(), HalfStream())
        self._is_over = False
        self._opener: int | None = None  # the side whose SYN was seen
        named = [side for side in (0, 1) if sides[side].port in broker_ports]
        self._client = 1 - named[0] if named else None
        self._heads = (bytearray(), bytearray())  # how each side began
        self._undecided: deque[tuple[int, Event]] = deque()
        self._undecided_bytes = 0
        self._exchange: ResponseMatcher | None = None

    @property
    def has_ended(self) -> bool:
        return self._is_over or all(half.has_ended for half in self._halves)

    def begins_anew(self, segment: Segment) -> bool:
        """Whether a segment opens another connection between the same ends."""
        is_opening = segment.flags & (SYN | ACK) == SYN
        return is_opening and self._halves[self._side(segment)].has_begun

    def add(self, segment: Segment) -> Iterator[CaptureEvent]:
        """What a segment completes."""
        side = self._side(segment)
        half, other = self._halves[side], self._halves[1 - side]
        seq = segment.seq
        if segment.flags & SYN:
            self._opener = side if not segment.flags & ACK else 1 - side
            seq += 1
            half.begin(seq)
        if segment.flags & ACK and other.has_begun:
            yield from self._take(1 - side, other.acknowledged(segment.ack))
        if segment.data or segment.missing:
            self.bytes += len(segment.data) + segment.missing
            events = half.add(seq, segment.data, segment.missing, segment.packet, segment.at_ns)
            yield from self._take(side, events)
        if segment.flags & FIN:
            half.finish(seq + len(segment.data) + segment.missing)
        if segment.flags & RST:
            yield from self.finish()

    def finish(self) -> Iterator[CaptureEvent]:
        """What is left when the connection or the capture ends."""
        if self._is_over:
            return
        for side, half in enumerate(self._halves):
            yield from self._take(side, half.flush())
        self._is_over = True
        if self._exchange is not None:
            yield from self._exchange.finish()
        elif self.rejected is None and self.bytes:
            self.rejected = NO_REQUEST

    def _side(self, segment: Segment) -> int:
        return 0 if segment.source == self.sides[0] else 1

    def _take(self, side: int, events: Iterator[Event]) -> Iterator[CaptureEvent]:
        for event in events:
            if self._exchange is not None:
                yield from self._exchange.take(side, event)
            elif self.rejected is None:
                self._decide(side, event)
                self._keep(side, event)
                yield from self._decided()

    def _decided(self) -> Iterator[CaptureEvent]:
        if self.rejected is not None:
            self._undecided.clear()
        elif self._client is not None:
            yield from self._begin(self._client)

    def _decide(self, side: int, event: Event) -> None:
        """Find the client, or that there is none."""
        if isinstance(event, Gap):
            self._opener = None  # how it began is not to be seen
            return
        head = self._heads[side]
        if len(head) < _HEAD_BYTES:
            head += event.data[:_HEAD_BYTES]
        # A connection that was joined midway is known by a later record, which mostly begins a segment.
        if head.startswith(_TLS_RECORD) or (event.is_start and _is_tls_record(event.data)):
            self.rejected = TLS
            return
        if self._client is not None:
            return
        if self._opener is None:
            if find_request(event.data, [0] if event.is_start else []) is not None:
                self._client = side
            return
        # What the side that opened it says first is a request, or this is not Kafka. The other side's answer may come
        # first all the same, where the capture is out of order.
        says_request = is_request(bytes(head)) if side == self._opener else None
        if says_request:
            self._client = side
        elif says_request is False:
            self.rejected = ANOTHER_PROTOCOL

    def _keep(self, side: int, event: Event) -> None:
        self._undecided.append((side, event))
        self._undecided_bytes += len(event.data) if isinstance(event, StreamData) else 0
        while self._undecided_bytes > SEARCHED_BYTES_MAX and len(self._undecided) > 1:
            _, dropped = self._undecided.popleft()
            self._undecided_bytes -= len(dropped.data) if isinstance(dropped, StreamData) else 0
            self._opener = None

    def _begin(self, client: int) -> Iterator[CaptureEvent]:
        """It is Kafka's: everything that was undecided is taken now."""
        connection = CapturedConnection(next(self._numbers), str(self.sides[client]), str(self.sides[1 - client]))
        self._exchange = ResponseMatcher(connection, client, self._frame_bytes_max, in_step=self._opener is not None)
        undecided, self._undecided = self._undecided, deque()
        for side, event in undecided:
            yield from self._exchange.take(side, event)


def _is_tls_record(data: bytes) -> bool:
    """Type, version 3.0 to 3.4, and a length that a record may have."""
    is_typed = data[:2] in _TLS_RECORD and len(data) >= 5 and data[2] <= 4
    return is_typed and 0 < int.from_bytes(data[3:5], "big") <= 16384 + 2048


CONNECTIONS_MAX = 4096
FRAME_BYTES_MAX = 100 * 1024 * 1024


def read_capture(
    file: BinaryIO, *, ports: Collection[int] = (), frame_bytes_max: int = FRAME_BYTES_MAX
) -> Iterator[CaptureEvent]:
    """The frames of a capture in the order in which they became whole, and remarks on what could not be read.

    With `ports` only connections to brokers on these ports are read; without, all that look like Kafka's. Of a frame
    larger than `frame_bytes_max` only its beginning is kept. A file that is damaged or cut off ends with a Remark of
    the problem, after everything before it.
    """
    table = _Connections(frozenset(ports), frame_bytes_max)
    unreadable: SkippedPackets = Counter()
    problem = None
    try:
        for packet in read_packets(file):
            segment = maybe_segment(packet, unreadable)
            if segment is not None:
                yield from table.add(segment)
    except DecodeError as error:
        problem = error
    yield from table.finish()
    for reason, packets in unreadable.most_common():
        verb = "was" if packets == 1 else "were"
        yield Remark(f"{_counted(packets, 'packet')} {verb} left out: {reason}", is_problem=True)
    if problem is not None:
        yield Remark(str(problem), is_problem=True)


class _Connections:
    """The conversations that are open, by their two ends, the one that was silent longest first."""

    def __init__(self, ports: frozenset[int], frame_bytes_max: int) -> None:
        self._ports = ports
        self._frame_bytes_max = frame_bytes_max
        self._open: OrderedDict[frozenset[Endpoint], TcpStream] = OrderedDict()
        self._numbers = count(1)
        self._rejected: Counter[str] = Counter()
        self._rejected_bytes: Counter[str] = Counter()

    def add(self, segment: Segment) -> Iterator[CaptureEvent]:
        if self._ports and not {segment.source.port, segment.target.port} & self._ports:
            return
        ends = frozenset((segment.source, segment.target))
        conversation = self._open.get(ends)
        if conversation is not None and conversation.begins_anew(segment):
            yield from self._close(ends)
            conversation = None
        if conversation is None:
            sides = (segment.source, segment.target)
            conversation = TcpStream(sides, self._ports, self._frame_bytes_max, self._numbers)
            self._open[ends] = conversation
            if len(self._open) > CONNECTIONS_MAX:
                yield from self._close(next(iter(self._open)))
        self._open.move_to_end(ends)
        yield from conversation.add(segment)
        if conversation.has_ended:
            yield from self._close(ends)

    def finish(self) -> Iterator[CaptureEvent]:
        while self._open:
            yield from self._close(next(iter(self._open)))
        for reason, number in self._rejected.most_common():
            verb = "is" if number == 1 else "are"
            size = _counted(self._rejected_bytes[reason], "byte")
            yield Remark(f"{_counted(number, 'connection')} {verb} not read ({size}): {reason}")

    def _close(self, ends: frozenset[Endpoint]) -> Iterator[CaptureEvent]:
        conversation = self._open.pop(ends)
        yield from conversation.finish()
        if conversation.rejected is not None:
            self._rejected[conversation.rejected] += 1
            self._rejected_bytes[conversation.rejected] += conversation.bytes


def _counted(number: int, noun: str) -> str:
    """Return "1 packet", "2 packets"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
