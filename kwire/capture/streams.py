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

from kwire.capture.frames import SEARCHED_BYTES_MAX, find_request, is_request
from kwire.capture.packets import read_packets
from kwire.capture.pairing import CapturedConnection, CaptureEvent, Remark, ResponseMatcher
from kwire.capture.tcp import (
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
from kwire.capture.tls import NO_HANDSHAKE, KeyLog, TlsConnection, is_client_hello
from kwire.errors import DecodeError

# As the size of a Kafka frame these would be 350 MB or more.
_TLS_RECORD = (b"\x15\x03", b"\x16\x03", b"\x17\x03")
_HEAD_BYTES = 300

# Why a connection is not read.
TLS = "encrypted with TLS: give the key log of a side (--keylog), or capture on a plaintext listener"
ANOTHER_PROTOCOL = "another protocol than Kafka"
NO_REQUEST = "no Kafka requests"
CUT_OFF = "its packets are cut off: capture whole ones (tcpdump -s 0)"


class TcpStream:
    """A TCP connection that may be Kafka's. `sides` are its ends; `numbers` numbers Kafka's connections."""

    def __init__(
        self, sides: tuple[Endpoint, Endpoint], broker_ports: Collection[int], frame_bytes_max: int,
        numbers: Iterator[int], key_log: KeyLog | None = None,
    ) -> None:  # fmt: skip
        self.sides = sides
        self._key_log = key_log
        self._tls: TlsConnection | None = None
        self.rejected: str | None = None  # why it is not read
        self.bytes = 0  # captured or missing, of both sides
        self._bytes_captured = 0
        self._frame_bytes_max = frame_bytes_max
        self._numbers = numbers
        self._halves = (HalfStream(), HalfStream())
        self._is_over = False
        self._opener: int | None = None  # the side whose SYN was seen
        self._has_begin = True  # after that SYN no byte of the beginning is missing
        named = [side for side in (0, 1) if sides[side].port in broker_ports]
        self._client = 1 - named[0] if named else None
        self._heads = (bytearray(), bytearray())  # the first bytes of each side
        self._undecided: deque[tuple[int, Event]] = deque()
        self._undecided_bytes = 0
        self._matcher: ResponseMatcher | None = None

    @property
    def has_ended(self) -> bool:
        return self._is_over or all(half.has_ended for half in self._halves)

    def is_new_connection(self, segment: Segment) -> bool:
        """Return whether a segment opens another connection between the same ends."""
        if segment.flags & (SYN | ACK) != SYN:
            return False
        half = self._halves[self._side(segment)]
        # A SYN with the same number is a copy, unless a program made its packets up, as kwire's tap: all begin at 0.
        return half.has_begun and (segment.seq == 0 or not half.begins_at(segment.seq + 1))

    def is_repeated(self, segment: Segment) -> bool:
        """Return whether a segment that comes after the end is a copy of one before it."""
        half = self._halves[self._side(segment)]
        return half.has_had(segment.seq, len(segment.data) + segment.missing) and not self.is_new_connection(segment)

    def add(self, segment: Segment) -> Iterator[CaptureEvent]:
        """Yield what a segment completes."""
        side = self._side(segment)
        half, other = self._halves[side], self._halves[1 - side]
        seq = segment.seq
        if segment.flags & SYN:
            self._opener = side if not segment.flags & ACK else 1 - side
            seq += 1
            half.begin(seq)
        if segment.flags & ACK and other.has_begun:
            yield from self._process(1 - side, other.acknowledged(segment.ack))
        if segment.data or segment.missing:
            self.bytes += len(segment.data) + segment.missing
            self._bytes_captured += len(segment.data)
            events = half.add(seq, segment.data, segment.missing, segment.packet, segment.at_ns)
            yield from self._process(side, events)
        if segment.flags & (FIN | RST):
            half.finish(seq + len(segment.data) + segment.missing)
        if segment.flags & RST:
            yield from self.finish(is_open=True)

    def finish(self, *, is_open: bool) -> Iterator[CaptureEvent]:
        """Yield what is left. `is_open`: a side that did not tell its end might have sent more."""
        if self._is_over:
            return
        for side, half in enumerate(self._halves):
            yield from self._process(side, half.flush())
        self._is_over = True
        if self._matcher is not None:
            # Of a side that told its end it is known whether all came before it.
            whole = [side for side, half in enumerate(self._halves) if (half.has_ended if half.has_fin else is_open)]
            yield from self._matcher.finish(whole)
        elif self.rejected is None and self.bytes:
            self.rejected = CUT_OFF if self._bytes_captured * 2 < self.bytes else NO_REQUEST
        self._matcher = None

    def _side(self, segment: Segment) -> int:
        return 0 if segment.source == self.sides[0] else 1

    def _process(self, side: int, events: Iterator[Event]) -> Iterator[CaptureEvent]:
        for event in events:
            if self.rejected is None and self._key_log is not None:
                self._find_tls(side, event, self._key_log)
            if self._tls is None:
                yield from self._process_plain(side, event)
                continue
            for plain in self._tls.feed(side, event):
                yield from self._process_plain(side, plain)
            if self._tls.failure is not None and self._matcher is None:
                self.rejected = self._tls.failure

    def _process_plain(self, side: int, event: Event) -> Iterator[CaptureEvent]:
        if self._matcher is not None:
            yield from self._matcher.feed(side, event)
        elif self.rejected is None:
            self._decide(side, event)
            self._buffer(side, event)
            yield from self._process_decided()

    def _find_tls(self, side: int, event: Event, key_log: KeyLog) -> None:
        """Decrypt from now on if the first bytes of the connection are a ClientHello."""
        if self._tls is None and not any(self._heads) and isinstance(event, StreamData) and is_client_hello(event.data):
            self._tls = TlsConnection(key_log, side)

    def _process_decided(self) -> Iterator[CaptureEvent]:
        if self.rejected is not None:
            self._undecided.clear()
        elif self._client is not None:
            yield from self._begin(self._client)

    def _decide(self, side: int, event: Event) -> None:
        """Find the client, or that the connection is not Kafka's."""
        if isinstance(event, Gap):
            self._has_begin = False
            return
        head = self._heads[side]
        if len(head) < _HEAD_BYTES:
            head += event.data[:_HEAD_BYTES]
        # Without the first bytes, a later TLS record shows it; most begin a segment.
        if head.startswith(_TLS_RECORD) or (event.is_start and _is_tls_record(event.data)):
            self.rejected = TLS if self._key_log is None else NO_HANDSHAKE
            return
        if self._client is not None:
            return
        if self._opener is None or not self._has_begin:
            is_possible = self._opener in (None, side)
            if is_possible and find_request(event.data, [0] if event.is_start else []) is not None:
                self._client = side
            return
        # The opener's first bytes are a request, or this is not Kafka. A capture out of order may have the response
        # first.
        sends_request = is_request(bytes(head)) if side == self._opener else None
        if sends_request:
            self._client = side
        elif sends_request is False:
            self.rejected = ANOTHER_PROTOCOL

    def _buffer(self, side: int, event: Event) -> None:
        self._undecided.append((side, event))
        self._undecided_bytes += len(event.data) if isinstance(event, StreamData) else 0
        while self._undecided_bytes > SEARCHED_BYTES_MAX and len(self._undecided) > 1:
            _, dropped = self._undecided.popleft()
            self._undecided_bytes -= len(dropped.data) if isinstance(dropped, StreamData) else 0
            self._has_begin = False

    def _begin(self, client: int) -> Iterator[CaptureEvent]:
        """Process all buffered events: the connection is Kafka's."""
        client_end, broker_end = str(self.sides[client]), str(self.sides[1 - client])
        connection = CapturedConnection(next(self._numbers), client_end, broker_end, is_tls=self._tls is not None)
        in_step = self._opener is not None and self._has_begin
        self._matcher = ResponseMatcher(connection, client, self._frame_bytes_max, in_step=in_step)
        undecided, self._undecided = self._undecided, deque()
        for side, event in undecided:
            yield from self._matcher.feed(side, event)


def _is_tls_record(data: bytes) -> bool:
    """Return whether bytes begin like a TLS record: type, version 3.0 to 3.4, possible length."""
    is_typed = data[:2] in _TLS_RECORD and len(data) >= 5 and data[2] <= 4
    return is_typed and 0 < int.from_bytes(data[3:5], "big") <= 16384 + 2048


CONNECTIONS_MAX = 4096
FRAME_BYTES_MAX = 100 * 1024 * 1024


def read_capture(
    file: BinaryIO, *, ports: Collection[int] = (), frame_bytes_max: int = FRAME_BYTES_MAX,
    key_log: KeyLog | None = None,
) -> Iterator[CaptureEvent]:  # fmt: skip
    """Yield the frames of a capture as they become complete, and remarks on what could not be read.

    With `ports`, read only connections to brokers on these ports; without, all that look like Kafka's. Of a larger
    frame than `frame_bytes_max` only the beginning is kept. A damaged file ends with a Remark. With `key_log`, TLS
    connections are read whose secrets it has.
    """
    table = _Connections(frozenset(ports), frame_bytes_max, key_log)
    skipped: SkippedPackets = Counter()
    problem = None
    try:
        for packet in read_packets(file):
            segment = maybe_segment(packet, skipped)
            if segment is not None:
                yield from table.add(segment)
    except DecodeError as error:
        problem = error
    yield from table.finish()
    for reason, packets in skipped.most_common():
        verb = "was" if packets == 1 else "were"
        yield Remark(f"{_counted(packets, 'packet')} {verb} skipped: {reason}", is_problem=True)
    if problem is not None:
        yield Remark(str(problem), is_problem=True)


class _Connections:
    """Open TCP streams by their two ends; the one that was silent longest is first."""

    def __init__(self, ports: frozenset[int], frame_bytes_max: int, key_log: KeyLog | None) -> None:
        self._ports = ports
        self._key_log = key_log
        self._frame_bytes_max = frame_bytes_max
        self._open: OrderedDict[frozenset[Endpoint], TcpStream] = OrderedDict()
        self._ended: OrderedDict[frozenset[Endpoint], TcpStream] = OrderedDict()  # the last of them
        self._numbers = count(1)
        self._rejected: Counter[str] = Counter()
        self._rejected_bytes: Counter[str] = Counter()

    def add(self, segment: Segment) -> Iterator[CaptureEvent]:
        if self._ports and not {segment.source.port, segment.target.port} & self._ports:
            return
        ends = frozenset((segment.source, segment.target))
        stream = self._open.get(ends)
        if stream is not None and stream.is_new_connection(segment):
            yield from self._close(ends)
            stream = None
        if stream is None:
            ended = self._ended.get(ends)
            if ended is not None and ended.is_repeated(segment):
                return
            sides = (segment.source, segment.target)
            stream = TcpStream(sides, self._ports, self._frame_bytes_max, self._numbers, self._key_log)
            self._open[ends] = stream
            if len(self._open) > CONNECTIONS_MAX:
                yield from self._close(next(iter(self._open)))
        self._open.move_to_end(ends)
        yield from stream.add(segment)
        if stream.has_ended:
            yield from self._close(ends)

    def finish(self) -> Iterator[CaptureEvent]:
        while self._open:
            yield from self._close(next(iter(self._open)), is_open=True)
        for reason, number in self._rejected.most_common():
            verb = "is" if number == 1 else "are"
            size = _counted(self._rejected_bytes[reason], "byte")
            yield Remark(f"{_counted(number, 'connection')} {verb} not read ({size}): {reason}")

    def _close(self, ends: frozenset[Endpoint], *, is_open: bool = False) -> Iterator[CaptureEvent]:
        stream = self._open.pop(ends)
        self._ended.pop(ends, None)
        self._ended[ends] = stream
        if len(self._ended) > CONNECTIONS_MAX:
            self._ended.popitem(last=False)
        yield from stream.finish(is_open=is_open)
        if stream.rejected is not None:
            self._rejected[stream.rejected] += 1
            self._rejected_bytes[stream.rejected] += stream.bytes


def _counted(number: int, noun: str) -> str:
    """Return "1 packet", "2 packets"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
