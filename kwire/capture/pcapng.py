"""Write frames as a pcapng capture that kwire, Wireshark and tshark read: IP and TCP headers are made up around them.

A block is written whole, so a file is readable at any time, also after its program was killed. A connection begins with
a handshake in each file, so that a reader is in step from the first byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from struct import Struct
from typing import BinaryIO

from kwire.version import VERSION

Data = bytes | bytearray | memoryview

_SECTION, _INTERFACE, _PACKET = 0x0A0D0D0A, 1, 6
_BYTE_ORDER = 0x1A2B3C4D
_RAW_IP = 101  # link type: packets begin with the IP header
_FIN, _SYN, _PUSH, _ACK = 0x01, 0x02, 0x08, 0x10
# An IP packet has at most 65,535 bytes.
_SEGMENT_BYTES = 60_000

_BLOCK = Struct("<II")
_LENGTH = Struct("<I")
_OPTION = Struct("<HH")
_PACKET_HEADER = Struct("<IIIII")
_TCP = Struct(">HHIIBBHHH")
_IPV4 = Struct(">BBHHHBBH4s4s")
_IPV6 = Struct(">IHBB16s16s")


@dataclass(slots=True)
class WrittenConnection:
    """The two ends of a connection, and how many bytes each has sent in the current file."""

    client: tuple[str, int]
    broker: tuple[str, int]
    ips: tuple[IPv4Address | IPv6Address, IPv4Address | IPv6Address]
    sent: list[int]
    is_open: bool = False


class CaptureWriter:
    """Writes a capture into a file. `comment` says what was masked. `size` counts bytes written."""

    def __init__(self, file: BinaryIO, comment: str = "") -> None:
        self._file = file
        self._comment = comment
        self._blocks: list[Data] = []
        self.size = 0
        self._begin()

    def connection(self, client: tuple[str, int], broker: tuple[str, int]) -> WrittenConnection:
        """Return a connection to write frames of. Addresses are numbers; a name becomes 0.0.0.0."""
        return WrittenConnection(client, broker, (_numeric(client[0]), _numeric(broker[0])), [1, 1])

    def write_frame(self, connection: WrittenConnection, *, from_client: bool, frame: Data, at_ns: int) -> None:
        """Write a frame of one side behind its size, in as many packets as needed."""
        if not connection.is_open:
            self._open(connection, at_ns)
        size = len(frame).to_bytes(4, "big")
        view = memoryview(frame)
        self._segment(connection, from_client, _PUSH | _ACK, view[:_SEGMENT_BYTES], at_ns, size)
        for start in range(_SEGMENT_BYTES, len(view), _SEGMENT_BYTES):
            self._segment(connection, from_client, _PUSH | _ACK, view[start : start + _SEGMENT_BYTES], at_ns)

    def close(self, connection: WrittenConnection, at_ns: int, *, by_client: bool) -> None:
        """Write the end of a connection."""
        if connection.is_open:
            for from_client in (by_client, not by_client):
                self._segment(connection, from_client, _FIN | _ACK, b"", at_ns)
                connection.sent[not from_client] += 1
            connection.is_open = False

    def flush(self) -> None:
        """Write what was collected, in one call."""
        if self._blocks:
            data = memoryview(b"".join(self._blocks))
            self._blocks.clear()
            while data:  # a file without a buffer may take a part, such as on a disk that is nearly full
                data = data[self._file.write(data) :]
            self._file.flush()

    def next_file(self, file: BinaryIO, connections: list[WrittenConnection]) -> None:
        """Go on in another file; the connections begin there again."""
        self.flush()
        self._file = file
        self.size = 0
        self._begin()
        for one in connections:
            one.is_open = False
            one.sent[:] = [1, 1]

    def _begin(self) -> None:
        options = _option(4, f"kwire {VERSION}".encode())
        if self._comment:
            options += _option(1, self._comment.encode())
        self._block(_SECTION, Struct("<IHHq").pack(_BYTE_ORDER, 1, 0, -1) + options + _option(0, b""))
        # Times in nanoseconds, packets of any length.
        self._block(_INTERFACE, Struct("<HHI").pack(_RAW_IP, 0, 0) + _option(9, b"\x09") + _option(0, b""))
        self.flush()

    def _open(self, connection: WrittenConnection, at_ns: int) -> None:
        connection.is_open = True
        connection.sent[:] = [0, 0]
        self._segment(connection, True, _SYN, b"", at_ns)
        connection.sent[0] = 1
        self._segment(connection, False, _SYN | _ACK, b"", at_ns)
        connection.sent[1] = 1
        self._segment(connection, True, _ACK, b"", at_ns)

    def _segment(
        self, connection: WrittenConnection, from_client: bool, flags: int, data: Data, at_ns: int, size: bytes = b""
    ) -> None:
        side = 0 if from_client else 1
        source, target = (connection.client, connection.broker)[:: 1 if from_client else -1]
        seq, ack = connection.sent[side], connection.sent[1 - side]
        tcp = _TCP.pack(
            source[1], target[1], seq & 0xFFFFFFFF, ack & 0xFFFFFFFF if flags & _ACK else 0, 5 << 4, flags, 65_535, 0, 0
        )
        length = len(size) + len(data)
        connection.sent[side] += length
        ip = _ip(connection.ips[side], connection.ips[1 - side], len(tcp) + length)
        length += len(ip) + len(tcp)
        header = _PACKET_HEADER.pack(0, at_ns >> 32 & 0xFFFFFFFF, at_ns & 0xFFFFFFFF, length, length)
        self._block(_PACKET, header + ip + tcp + size, data)

    def _block(self, kind: int, start: bytes, data: Data = b"") -> None:
        padding = bytes(-(len(start) + len(data)) % 4)
        size = len(start) + len(data) + len(padding) + 12
        self._blocks += (_BLOCK.pack(kind, size) + start, data, padding + _LENGTH.pack(size))
        self.size += size


def _option(code: int, value: bytes) -> bytes:
    return _OPTION.pack(code, len(value)) + value + bytes(-len(value) % 4)


def _numeric(host: str) -> IPv4Address | IPv6Address:
    try:
        return ip_address(host)
    except ValueError:
        return IPv4Address(0)


def _ip(source: IPv4Address | IPv6Address, target: IPv4Address | IPv6Address, size: int) -> bytes:
    if source.version == 4 and target.version == 4:
        return _IPV4.pack(0x45, 0, 20 + size, 0, 0, 64, 6, 0, source.packed, target.packed)
    packed = [end.packed if end.version == 6 else bytes(10) + b"\xff\xff" + end.packed for end in (source, target)]
    return _IPV6.pack(6 << 28, size, 6, 64, packed[0], packed[1])
