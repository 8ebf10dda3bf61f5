"""Packets out of a capture file: pcap and pcapng, plain or in gzip, from a file or a pipe.

pcap: either byte order, micro- or nanoseconds, and the long packet header of some old Linux (Kuznetzov's). pcapng:
several sections and interfaces, their time resolutions and offsets, enhanced, simple and old packet blocks; other
blocks are skipped. One packet is in memory at a time.

Damaged bytes raise DecodeError with their offset, after all packets before them.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from kwire.errors import DecodeError

if TYPE_CHECKING:
    import gzip

# More than any snapshot length (tcpdump's is 256 KiB), and small enough for memory.
PACKET_BYTES_MAX = 16 * 1024 * 1024
_BLOCK_BYTES_MAX = 2 * PACKET_BYTES_MAX
HEAD_BYTES = 4  # for is_capture
_SECOND_NS = 1_000_000_000

_PCAP_MAGICS = {0xA1B2C3D4: 1000, 0xA1B23C4D: 1, 0xA1B2CD34: 1000}  # to the nanoseconds of a fraction's unit
_KUZNETZOV = 0xA1B2CD34
_GZIP = b"\x1f\x8b"
_SECTION = b"\x0a\x0d\x0d\x0a"
_SECTION_HEADER, _INTERFACE, _OLD_PACKET, _SIMPLE_PACKET, _ENHANCED_PACKET = 0x0A0D0D0A, 1, 2, 3, 6
_BYTE_ORDER = 0x1A2B3C4D
_OPTION_RESOLUTION, _OPTION_OFFSET = 9, 14


class Packet(NamedTuple):
    """`data` as captured; `missing` bytes were not. `number` counts from 1, as in Wireshark."""

    number: int
    at_ns: int
    link_type: int
    data: bytes
    missing: int


def is_capture(head: bytes) -> bool:
    """Return whether bytes begin like a capture, or like gzip, which no Kafka frame does."""
    magics = (int.from_bytes(head[:4], "big"), int.from_bytes(head[:4], "little"))
    return len(head) >= 4 and (head[:2] == _GZIP or head[:4] == _SECTION or any(m in _PCAP_MAGICS for m in magics))


def read_packets(file: BinaryIO) -> Iterator[Packet]:
    """Yield the packets of a capture. Raises DecodeError at the byte where the file is damaged or cut off."""
    source = _Source(file)
    head = source.take(4, "a capture's magic number")
    if head[:2] == _GZIP:
        import gzip  # 2 ms that `kwire decode` of one frame need not wait

        source = _Source(gzip.GzipFile(fileobj=io.BufferedReader(PrefixedFile(head, file))))
        head = source.take(4, "a capture's magic number")
    yield from _pcapng(source) if head == _SECTION else _pcap(source, head)


class PrefixedFile(io.RawIOBase):
    """Bytes that were read already, and the file they came from. A read waits for one of the two only."""

    def __init__(self, head: bytes, file: BinaryIO) -> None:
        self._head = head
        self._read = getattr(file, "read1", file.read)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._head or self._read(len(buffer))
        self._head = b""
        buffer[: len(data)] = data
        return len(data)


class _Source:
    """A file that is read once, and the position in it."""

    def __init__(self, file: BinaryIO | gzip.GzipFile) -> None:
        self._file = file
        self.pos = 0

    def take(self, size: int, what: str) -> bytes:
        data = self.maybe_take(size, what)
        if data is None:
            raise DecodeError(f"the file ends before {what}", offset=self.pos)
        return data

    def maybe_take(self, size: int, what: str) -> bytes | None:
        """Return `size` bytes, or None at the end of the file. Fewer bytes are an error."""
        pieces, missing = [], size
        while missing:
            try:
                piece = self._file.read(missing)
            except (EOFError, OSError, zlib.error) as error:  # gzip's ways to say that it is cut off or damaged
                raise DecodeError(f"the file cannot be read: {error}", offset=self.pos) from None
            if not piece:
                break
            pieces.append(piece)
            missing -= len(piece)
        data = b"".join(pieces)
        if size and not data:
            return None
        if missing:
            raise DecodeError(f"the file ends inside {what}: {missing} bytes are missing", offset=self.pos)
        self.pos += size
        return data


def _pcap(source: _Source, head: bytes) -> Iterator[Packet]:
    for order in "<>":
        (magic,) = Struct(f"{order}I").unpack(head)
        if magic in _PCAP_MAGICS:
            break
    else:
        raise DecodeError(f"not a pcap or pcapng capture: it begins with {head.hex(' ')}", offset=0)
    unit_ns = _PCAP_MAGICS[magic]
    _, _, _, _, _, link_type = Struct(f"{order}HHiIII").unpack(source.take(20, "the file's header"))
    link_type &= 0xFFFF  # the upper bits describe a frame checksum
    header = Struct(f"{order}IIII" + ("8x" if magic == _KUZNETZOV else ""))
    number = 0
    while (packed := source.maybe_take(header.size, f"packet {number + 1}'s header")) is not None:
        number += 1
        seconds, fraction, size, full_size = header.unpack(packed)
        if size > PACKET_BYTES_MAX:
            raise DecodeError(
                f"packet {number} has an impossible size of {size} bytes", offset=source.pos - header.size
            )
        data = source.take(size, f"packet {number}")
        yield Packet(number, seconds * _SECOND_NS + fraction * unit_ns, link_type, data, max(0, full_size - size))


@dataclass(slots=True)
class _Interface:
    link_type: int
    snapshot_bytes: int
    ticks_per_second: int
    offset_s: int

    def at_ns(self, high: int, low: int) -> int:
        return (high << 32 | low) * _SECOND_NS // self.ticks_per_second + self.offset_s * _SECOND_NS


def _pcapng(source: _Source) -> Iterator[Packet]:
    """The packets of all sections. The section header's type is a palindrome and was read already."""
    section: _Section | None = None
    number = 0
    type_bytes: bytes | None = _SECTION
    while type_bytes is not None:
        start = source.pos - 4
        if type_bytes == _SECTION:
            section = _Section(source.take(8, "the section's header"), start)
            length = section.first_length
            body = source.take(_body_size(length, 16, start), "the section's header")
        else:
            assert section is not None
            (length,) = section.word.unpack(source.take(4, "a block's length"))
            body = source.take(_body_size(length, 12, start), "a block")
            (type_,) = section.word.unpack(type_bytes)
            packet = section.packet(type_, body, number + 1, start)
            if packet is not None:
                number += 1
                yield packet
        if section.word.unpack(source.take(4, "a block's end"))[0] != length:
            raise DecodeError("a block's two lengths differ", offset=start)
        type_bytes = source.maybe_take(4, "a block's type")


def _body_size(length: int, around: int, start: int) -> int:
    if length < around or length % 4 or length > _BLOCK_BYTES_MAX:
        raise DecodeError(f"a block has an impossible size of {length} bytes", offset=start)
    return length - around


class _Section:
    """What blocks of a section mean: its byte order and the interfaces that it has named so far."""

    def __init__(self, length_and_magic: bytes, start: int) -> None:
        for order in "<>":
            self.first_length, magic = Struct(f"{order}II").unpack(length_and_magic)
            if magic == _BYTE_ORDER:
                break
        else:
            raise DecodeError("the section header has no byte order", offset=start)
        self.word = Struct(f"{order}I")
        self._interface = Struct(f"{order}HxxI")
        self._enhanced = Struct(f"{order}IIIII")
        self._old = Struct(f"{order}HHIIII")
        self._option = Struct(f"{order}HH")
        self._offset = Struct(f"{order}q")
        self._interfaces: list[_Interface] = []

    def packet(self, type_: int, body: bytes, number: int, start: int) -> Packet | None:
        """Return the packet in a block, if it is a block of a packet."""
        layout = {_ENHANCED_PACKET: self._enhanced, _OLD_PACKET: self._old, _SIMPLE_PACKET: self.word,
                  _INTERFACE: self._interface}.get(type_)  # fmt: skip
        if layout is None:
            return None
        if len(body) < layout.size:
            raise DecodeError(f"{len(body)} bytes are too few for a block of type {type_}", offset=start)
        if type_ == _INTERFACE:
            self._interfaces.append(self._described(body))
            return None
        if type_ == _SIMPLE_PACKET:
            return self._simple(body, number, start)
        if type_ == _ENHANCED_PACKET:
            which, high, low, size, full_size = self._enhanced.unpack_from(body)
        else:
            which, _, high, low, size, full_size = self._old.unpack_from(body)
        interface = self._of(which, start)
        data = body[layout.size : layout.size + size]
        if len(data) < size:
            raise DecodeError(f"packet {number} is larger than its block", offset=start)
        return Packet(number, interface.at_ns(high, low), interface.link_type, data, max(0, full_size - size))

    def _simple(self, body: bytes, number: int, start: int) -> Packet:
        """Of the first interface, with no time."""
        interface = self._of(0, start)
        (full_size,) = self.word.unpack_from(body)
        size = min(full_size, interface.snapshot_bytes or full_size)
        data = body[self.word.size : self.word.size + size]
        return Packet(number, 0, interface.link_type, data, full_size - len(data))

    def _of(self, which: int, start: int) -> _Interface:
        if which >= len(self._interfaces):
            raise DecodeError(f"a packet of interface {which}, which has no description", offset=start)
        return self._interfaces[which]

    def _described(self, body: bytes) -> _Interface:
        link_type, snapshot_bytes = self._interface.unpack_from(body)
        found = _Interface(link_type, snapshot_bytes, 1_000_000, 0)
        for code, value in self._options(body[self._interface.size :]):
            if code == _OPTION_RESOLUTION and value:
                power = value[0] & 0x7F
                found.ticks_per_second = 1 << power if value[0] & 0x80 else 10**power
            elif code == _OPTION_OFFSET and len(value) >= self._offset.size:
                (found.offset_s,) = self._offset.unpack_from(value)
        return found

    def _options(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        pos = 0
        while pos + self._option.size <= len(data):
            code, size = self._option.unpack_from(data, pos)
            if code == 0:
                return
            pos += self._option.size
            yield code, data[pos : pos + size]
            pos += size + -size % 4
