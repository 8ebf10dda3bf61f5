"""Captures made by hand: TCP connections in packets of any link layer, and packets in files of any format."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from itertools import count

FIN, SYN, RST, PSH, ACK = 0x01, 0x02, 0x04, 0x08, 0x10

CLIENT, BROKER = 0, 1


@dataclass
class Talk:
    """A TCP connection, packet by packet. `packets` are IP packets in the order of the wire."""

    client: tuple[str, int] = ("127.0.0.1", 40000)
    broker: tuple[str, int] = ("127.0.0.1", 9092)
    segment_bytes: int = 1000
    seqs: list[int] = field(
        default_factory=lambda: [1000, 2**32 - 300]
    )  # the broker's sequence number soon wraps around
    packets: list[bytes] = field(default_factory=list)

    def opened(self) -> Talk:
        self._packet(CLIENT, SYN)
        self.seqs[CLIENT] += 1
        self._packet(BROKER, SYN | ACK)
        self.seqs[BROKER] += 1
        self._packet(CLIENT, ACK)
        return self

    def send(self, side: int, data: bytes) -> Talk:
        for start in range(0, len(data), self.segment_bytes):
            piece = data[start : start + self.segment_bytes]
            self._packet(side, ACK | PSH, piece)
            self.seqs[side] = (self.seqs[side] + len(piece)) % 2**32
        return self

    def acknowledge(self, side: int) -> Talk:
        self._packet(side, ACK)
        return self

    def closed(self) -> Talk:
        for side in (CLIENT, BROKER):
            self._packet(side, FIN | ACK)
            self.seqs[side] = (self.seqs[side] + 1) % 2**32
        self._packet(CLIENT, ACK)
        return self

    def reset(self, side: int = BROKER) -> Talk:
        self._packet(side, RST | ACK)
        return self

    def _packet(self, side: int, flags: int, data: bytes = b"") -> None:
        source, target = (self.client, self.broker) if side == CLIENT else (self.broker, self.client)
        ack = self.seqs[1 - side] if flags & ACK else 0
        self.packets.append(ip_packet(source, target, self.seqs[side], ack, flags, data))


def ip_packet(
    source: tuple[str, int], target: tuple[str, int], seq: int, ack: int, flags: int, data: bytes = b"",
    options: bytes = b"",
) -> bytes:  # fmt: skip
    offset = (20 + len(options)) // 4 << 4
    tcp = struct.pack(">HHIIBBHHH", source[1], target[1], seq, ack, offset, flags, 65535, 0, 0) + options + data
    addresses = [ip_address(source[0]), ip_address(target[0])]
    packed = addresses[0].packed + addresses[1].packed
    size = len(tcp) if len(tcp) < 65000 else -20  # the length is 0 in a segment that the network card splits
    if addresses[0].version == 4:
        return struct.pack(">BBHHHBBH", 0x45, 0, 20 + size, 1, 0x4000, 64, 6, 0) + packed + tcp
    return struct.pack(">IHBB", 6 << 28, max(size, 0), 6, 64) + packed + tcp


ETHERNET, NULL, RAW, LOOP, SLL, IPV4, IPV6, SLL2 = 1, 0, 101, 108, 113, 228, 229, 276


def link_packet(link: int, packet: bytes, *, vlan: bool = False, order: str = "<") -> bytes:
    """Return an IP packet with the header of a link layer."""
    version = packet[0] >> 4
    ethertype = struct.pack(">H", 0x0800 if version == 4 else 0x86DD)
    tagged = b"\x81\x00\x00\x05" + ethertype if vlan else ethertype
    if link == ETHERNET:
        return bytes(12) + tagged + packet + bytes(max(0, 46 - len(packet)))  # short frames are padded
    if link == NULL:
        return struct.pack(f"{order}I", 2 if version == 4 else 24) + packet
    if link == LOOP:
        return struct.pack(">I", 2 if version == 4 else 24) + packet
    if link == SLL:
        return struct.pack(">HHH8x", 0, 772, 6) + tagged + packet
    if link == SLL2:
        header = struct.pack(">xxIHBB8x", 1, 772, 0, 6)
        return (b"\x81\x00" + header + b"\x00\x05" + ethertype if vlan else ethertype + header) + packet
    return packet


@dataclass(frozen=True)
class Timed:
    """A packet of a link layer as it was captured: `size` was its size on the wire."""

    at_ns: int
    data: bytes
    size: int


def timed(packets: Iterable[bytes], *, link: int = ETHERNET, snapshot: int | None = None) -> Iterator[Timed]:
    """Packets a millisecond apart, cut off at `snapshot` bytes."""
    for at, packet in zip(count(1_700_000_000_123_456_000, 1_000_000), packets, strict=False):
        data = link_packet(link, packet)
        yield Timed(at, data[:snapshot], len(data))


def pcap(packets: Iterable[Timed], *, link: int = ETHERNET, order: str = "<", nano: bool = False) -> bytes:
    return b"".join(pcap_pieces(packets, link=link, order=order, nano=nano))


def pcap_pieces(
    packets: Iterable[Timed], *, link: int = ETHERNET, order: str = "<", nano: bool = False
) -> Iterator[bytes]:
    magic, unit = (0xA1B23C4D, 1) if nano else (0xA1B2C3D4, 1000)
    yield struct.pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, 262144, link)
    for packet in packets:
        seconds, rest = divmod(packet.at_ns, 10**9)
        yield struct.pack(f"{order}IIII", seconds, rest // unit, len(packet.data), packet.size) + packet.data


def pcapng(
    packets: Iterable[Timed], *, link: int = ETHERNET, order: str = "<", resolution: int | None = None,
    offset_s: int = 0, packet_type: int = 6,
) -> bytes:  # fmt: skip
    """A section with one interface. `resolution` is if_tsresol's byte; `packet_type` 6 enhanced, 3 simple, 2 old."""
    options = b""
    if resolution is not None:
        options += struct.pack(f"{order}HHB3x", 9, 1, resolution)
    if offset_s:
        options += struct.pack(f"{order}HHq", 14, 8, offset_s)
    if options:
        options += bytes(4)
    ticks = 10**6 if resolution is None else 2 ** (resolution & 0x7F) if resolution & 0x80 else 10**resolution
    blocks = [
        pcapng_block(0x0A0D0D0A, struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1), order),
        pcapng_block(1, struct.pack(f"{order}HHI", link, 0, 65535) + options, order),
        pcapng_block(5, bytes(12), order),  # statistics: stepped over
    ]
    for packet in packets:
        at = (packet.at_ns - offset_s * 10**9) * ticks // 10**9
        sizes = (at >> 32, at & 0xFFFFFFFF, len(packet.data), packet.size)
        head = {
            6: struct.pack(f"{order}IIIII", 0, *sizes),
            3: struct.pack(f"{order}I", packet.size),
            2: struct.pack(f"{order}HHIIII", 0, 7, *sizes),
        }[packet_type]
        blocks.append(pcapng_block(packet_type, head + packet.data + bytes(-len(packet.data) % 4), order))
    return b"".join(blocks)


def pcapng_block(type_: int, body: bytes, order: str) -> bytes:
    length = struct.pack(f"{order}I", 12 + len(body))
    return struct.pack(f"{order}I", type_) + length + body + length


def sized(parts: Sequence[bytes | bytearray | memoryview]) -> bytes:
    """A frame as it is on the wire."""
    frame = b"".join(parts)
    return struct.pack(">i", len(frame)) + frame
