"""TCP segments out of packets, and the byte stream that one direction of a connection carries.

Link layers: Ethernet (with VLAN tags), Linux "cooked" captures of `-i any` (SLL, SLL2), BSD loopback in both byte
orders, and bare IP. The IP length decides where a segment ends, so Ethernet padding is not data, and bytes beyond the
snapshot length count as missing. An IP length of 0 (segmentation offload) means: as long as captured.

Checksums are not verified, because loopback and offloading cards leave them empty. Tunnels and IP fragments are not
read; `SkippedPackets` counts what was left out, by reason.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from ipaddress import IPv4Address, IPv6Address
from struct import Struct
from typing import NamedTuple, TypeAlias

from kwire.capture.packets import Packet

SkippedPackets: TypeAlias = Counter[str]

FIN, SYN, RST, ACK = 0x01, 0x02, 0x04, 0x10

_TCP = 6
_IPV4, _IPV6 = 0x0800, 0x86DD
_VLAN_TAGS = (0x8100, 0x88A8, 0x9100)
# IPv6 extension headers with a length in units of 8 bytes, and the fragment header.
_EXTENSIONS = (0, 43, 60, 135, 139, 140)
_FRAGMENT = 44
_AUTHENTICATION = 51

_TCP_HEADER = Struct(">HHIIBB")
_TCP_BYTES_MIN = 20
_IPV4_HEADER = Struct(">BxHxxHxB2x4s4s")
_IPV6_HEADER = Struct(">4xHBx16s16s")


class Endpoint(NamedTuple):
    """An address and a port. `address` is packed, which is cheap to compare."""

    address: bytes
    port: int

    def __str__(self) -> str:
        if len(self.address) == 4:
            return f"{IPv4Address(self.address)}:{self.port}"
        return f"[{IPv6Address(self.address)}]:{self.port}"


class Segment(NamedTuple):
    """A TCP segment. `missing` bytes follow `data` on the wire but not in the capture."""

    packet: int
    at_ns: int
    source: Endpoint
    target: Endpoint
    seq: int
    ack: int
    flags: int
    data: bytes
    missing: int


def maybe_segment(packet: Packet, skipped: SkippedPackets) -> Segment | None:
    """Return the TCP segment in a packet, or None. `skipped` counts packets that kwire cannot read."""
    find_ip = _LINKS.get(packet.link_type)
    if find_ip is None:
        skipped[f"link type {packet.link_type}"] += 1
        return None
    start = find_ip(packet.data)
    if start is None or start >= len(packet.data):
        return None
    version = packet.data[start] >> 4
    if version == 4:
        return _ipv4(packet, start, skipped)
    if version == 6:
        return _ipv6(packet, start, skipped)
    return None


def _ipv4(packet: Packet, start: int, skipped: SkippedPackets) -> Segment | None:
    data = packet.data
    if len(data) - start < _IPV4_HEADER.size:
        skipped["packets cut off in their headers"] += 1
        return None
    first, total, fragment, protocol, source, target = _IPV4_HEADER.unpack_from(data, start)
    if protocol != _TCP:
        return None
    if fragment & 0x3FFF:  # an offset, or more fragments
        skipped["fragments of IP packets"] += 1
        return None
    end = start + total if total else len(data) + packet.missing
    size = max(_IPV4_HEADER.size, (first & 0x0F) * 4)
    return _tcp(packet, start + size, end, source, target, skipped)


def _ipv6(packet: Packet, start: int, skipped: SkippedPackets) -> Segment | None:
    data = packet.data
    if len(data) - start < _IPV6_HEADER.size:
        skipped["packets cut off in their headers"] += 1
        return None
    length, following, source, target = _IPV6_HEADER.unpack_from(data, start)
    pos = start + _IPV6_HEADER.size
    end = pos + length if length else len(data) + packet.missing
    while following != _TCP:
        if pos + 8 > len(data):
            return None
        if following in _EXTENSIONS:
            size = (data[pos + 1] + 1) * 8
        elif following == _AUTHENTICATION:
            size = (data[pos + 1] + 2) * 4
        elif following == _FRAGMENT:
            if int.from_bytes(data[pos + 2 : pos + 4], "big") & 0xFFF9:
                skipped["fragments of IP packets"] += 1
                return None
            size = 8
        else:
            return None
        following = data[pos]
        pos += size
    return _tcp(packet, pos, end, source, target, skipped)


def _tcp(packet: Packet, start: int, end: int, source: bytes, target: bytes, skipped: SkippedPackets) -> Segment | None:
    data = packet.data
    if len(data) - start < _TCP_HEADER.size:
        skipped["packets cut off in their headers"] += 1
        return None
    source_port, target_port, seq, ack, offset, flags = _TCP_HEADER.unpack_from(data, start)
    begin = start + (offset >> 4) * 4
    if begin < start + _TCP_BYTES_MIN or begin > end:
        return None
    payload = data[begin:end]
    return Segment(
        packet.number, packet.at_ns, Endpoint(source, source_port), Endpoint(target, target_port), seq, ack, flags,
        payload, max(0, end - begin - len(payload)),
    )  # fmt: skip


def _ethernet(data: bytes) -> int | None:
    return _by_ethertype(data, 12)


def _by_ethertype(data: bytes, pos: int) -> int | None:
    """Return where IP begins; `pos` is the position of the EtherType."""
    type_ = int.from_bytes(data[pos : pos + 2], "big")
    while type_ in _VLAN_TAGS:
        pos += 4
        type_ = int.from_bytes(data[pos : pos + 2], "big")
    return pos + 2 if type_ in (_IPV4, _IPV6) else None


def _sll(data: bytes) -> int | None:
    return _by_ethertype(data, 14)


def _sll2(data: bytes) -> int | None:
    if int.from_bytes(data[:2], "big") in _VLAN_TAGS:  # the rest of the tag and the inner EtherType come next
        return _by_ethertype(data, 22)
    return 20 if int.from_bytes(data[:2], "big") in (_IPV4, _IPV6) else None


def _loopback(data: bytes) -> int | None:
    """Skip the four bytes of the address family, in either byte order; IP's own version is enough."""
    return 4


def _raw(data: bytes) -> int | None:
    return 0


# https://www.tcpdump.org/linktypes.html; some systems write 12 and 14 for raw IP.
_LINKS: Mapping[int, Callable[[bytes], int | None]] = {
    0: _loopback, 1: _ethernet, 12: _raw, 14: _raw, 101: _raw, 108: _loopback, 113: _sll, 228: _raw, 229: _raw,
    276: _sll2,
}  # fmt: skip


EARLY_BYTES_MAX = 1024 * 1024
EARLY_SEGMENTS_MAX = 256
# How many segments to wait before the acknowledgement of a hole counts.
_SEGMENTS_BEFORE_GAP = 3


class StreamData(NamedTuple):
    """Bytes of the stream. `is_start`: the first byte of a segment, where senders often begin a frame."""

    data: bytes
    packet: int
    at_ns: int
    is_start: bool


class Gap(NamedTuple):
    """Bytes of the stream that the capture lacks."""

    size: int


Event: TypeAlias = StreamData | Gap


class _EarlySegment(NamedTuple):
    """A segment that came out of order, at its position in the stream."""

    start: int
    packet: int
    at_ns: int
    data: bytes
    missing: int


class HalfStream:
    """One direction of a TCP connection, in order and once, with the gaps of the capture.

    Segments out of order wait; retransmissions are dropped. A hole becomes a gap when the reader must have received it:
    it acknowledged later data, or more than EARLY_BYTES_MAX or EARLY_SEGMENTS_MAX wait, or the stream ends. The capture
    itself may be out of order, so an acknowledgement counts only a few segments later. Positions count from the first
    byte seen; sequence numbers wrap around at 2^32.
    """

    def __init__(self) -> None:
        self._next = 0  # the position of the next byte
        self._seq: int | None = None  # its sequence number
        self._origin: int | None = None  # that of position 0
        self._waiting: list[_EarlySegment] = []
        self._waiting_bytes = 0
        self._segments_left = _SEGMENTS_BEFORE_GAP
        self._end: int | None = None  # the position after the last byte, from a FIN or RST
        self.resent_bytes = 0

    @property
    def has_begun(self) -> bool:
        return self._seq is not None

    @property
    def has_fin(self) -> bool:
        return self._end is not None

    @property
    def has_ended(self) -> bool:
        return self._end is not None and self._next >= self._end

    def begin(self, seq: int) -> None:
        """Set the sequence number of the first byte, from a SYN. A copy of this SYN changes nothing."""
        if not self.begins_at(seq):
            self._seq = self._origin = seq & 0xFFFFFFFF

    def begins_at(self, seq: int) -> bool:
        return self._origin == seq & 0xFFFFFFFF

    def has_had(self, seq: int, size: int) -> bool:
        """Return whether bytes lie within what has been seen, with the numbers of SYN and FIN around it."""
        return self._seq is not None and -1 <= self._position(seq) <= self._next + 1 - size

    def add(self, seq: int, data: bytes, missing: int, packet: int, at_ns: int) -> Iterator[Event]:
        """Yield the events of a segment's data."""
        if self._seq is None:
            self.begin(seq)
        start = self._position(seq)
        if start > self._next:
            insort(self._waiting, _EarlySegment(start, packet, at_ns, data, missing))
            self._waiting_bytes += len(data)
            if self._waiting_bytes > EARLY_BYTES_MAX or len(self._waiting) > EARLY_SEGMENTS_MAX:
                yield from self._emit_gap()
            return
        yield from self._add_now(_EarlySegment(start, packet, at_ns, data, missing))
        yield from self._add_waiting()

    def acknowledged(self, ack: int) -> Iterator[Event]:
        """Yield the events of an acknowledgement from the other side."""
        if not self._waiting or self._position(ack) <= self._waiting[0].start:
            self._segments_left = _SEGMENTS_BEFORE_GAP
            return
        self._segments_left -= 1
        if self._segments_left <= 0:
            yield from self._emit_gap()

    def finish(self, seq: int) -> None:
        """Set the end of the stream, from a FIN or RST."""
        if self._seq is not None:
            self._end = self._position(seq)

    def flush(self) -> Iterator[Event]:
        """Yield what waits, with the gaps before it, at the end of the connection or capture."""
        while self._waiting:
            yield from self._emit_gap()

    def _position(self, seq: int) -> int:
        """Return the nearest position with this sequence number."""
        assert self._seq is not None
        distance = (seq - self._seq) & 0xFFFFFFFF
        return self._next + (distance if distance < 1 << 31 else distance - (1 << 32))

    def _emit_gap(self) -> Iterator[Event]:
        """Make the hole before the first waiting segment a gap."""
        size = self._waiting[0].start - self._next
        self._advance(size)
        yield Gap(size)
        yield from self._add_waiting()

    def _add_waiting(self) -> Iterator[Event]:
        while self._waiting and self._waiting[0].start <= self._next:
            waiting = self._waiting.pop(0)
            self._waiting_bytes -= len(waiting.data)
            yield from self._add_now(waiting)
        self._segments_left = _SEGMENTS_BEFORE_GAP

    def _add_now(self, segment: _EarlySegment) -> Iterator[Event]:
        """Yield the new bytes of a segment that begins at the next byte or before it."""
        known = self._next - segment.start
        self.resent_bytes += min(known, len(segment.data))
        fresh = segment.data[known:]
        missing = segment.missing - max(0, known - len(segment.data))
        if fresh:
            self._advance(len(fresh))
            yield StreamData(fresh, segment.packet, segment.at_ns, is_start=not known)
        if missing > 0:
            self._advance(missing)
            yield Gap(missing)

    def _advance(self, size: int) -> None:
        assert self._seq is not None
        self._next += size
        self._seq = (self._seq + size) & 0xFFFFFFFF
