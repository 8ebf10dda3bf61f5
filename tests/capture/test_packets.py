"""Packets out of files: every format and byte order, and files that are damaged or cut off at any byte."""

from __future__ import annotations

import gzip
import io
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from kwire.capture import is_capture
from kwire.capture.packets import Packet, read_packets
from kwire.capture.pcapng import CaptureWriter
from kwire.capture.tcp import SkippedPackets, maybe_segment
from kwire.errors import DecodeError
from tests.capture import captures
from tests.capture.captures import CLIENT, Talk, Timed, link_packet, pcap, pcapng, pcapng_block, timed

TALK = Talk().opened().send(CLIENT, b"hello").closed()
SIX = Talk(("::1", 40000), ("fe80::2", 9092)).opened().send(CLIENT, b"hello").closed()
PACKETS = list(timed(TALK.packets))

FILES = {
    "pcap little": pcap(PACKETS),
    "pcap big": pcap(PACKETS, order=">"),
    "pcap nanoseconds": pcap(PACKETS, nano=True),
    "pcap nanoseconds big": pcap(PACKETS, nano=True, order=">"),
    "pcapng little": pcapng(PACKETS),
    "pcapng big": pcapng(PACKETS, order=">"),
    "pcapng nanoseconds": pcapng(PACKETS, resolution=9),
    "pcapng in powers of two": pcapng(PACKETS, resolution=0x80 | 30),
    "pcapng with an offset": pcapng(PACKETS, offset_s=1_600_000_000),
    "pcapng old packets": pcapng(PACKETS, packet_type=2),
    "pcapng two sections": pcapng(PACKETS[:3]) + pcapng(PACKETS[3:], order=">"),
    "pcap in gzip": gzip.compress(pcap(PACKETS)),
    "pcapng in gzip": gzip.compress(pcapng(PACKETS)),
}


@pytest.mark.parametrize("data", FILES.values(), ids=FILES)
def test_every_file_format(data: bytes) -> None:
    assert is_capture(data)
    found = list(read_packets(io.BytesIO(data)))
    assert [packet.number for packet in found] == list(range(1, len(PACKETS) + 1))
    for packet, made in zip(found, PACKETS, strict=True):
        assert (packet.link_type, packet.data, packet.missing) == (1, made.data, 0)
        assert abs(packet.at_ns - made.at_ns) < 1000, "as far as the resolution goes"


def test_simple_packets_have_no_time() -> None:
    found = list(read_packets(io.BytesIO(pcapng(PACKETS, packet_type=3))))
    assert [packet.data for packet in found] == [made.data for made in PACKETS]
    assert {packet.at_ns for packet in found} == {0}


def test_the_long_packet_header_of_old_linux() -> None:
    made = PACKETS[0]
    record = made.at_ns // 10**9, 0, len(made.data), made.size
    head = bytes.fromhex("34cdb2a1") + struct.pack("<HHiIII", 2, 4, 0, 0, 65535, 1)
    data = head + struct.pack("<IIII8x", *record) + made.data
    assert [packet.data for packet in read_packets(io.BytesIO(data))] == [made.data]


def test_a_pipe_with_short_reads() -> None:
    class Pipe(io.RawIOBase):
        def __init__(self, data: bytes) -> None:
            self.data = data

        def read(self, size: int = -1) -> bytes:
            piece, self.data = self.data[:3], self.data[3:]
            if size < 3:
                piece, self.data = piece[:size], piece[size:] + self.data
            return piece

    for data in FILES.values():
        assert len(list(read_packets(Pipe(data)))) == len(PACKETS)  # type: ignore[arg-type]


def test_bytes_beyond_the_snapshot_length_are_missing() -> None:
    cut = list(timed(TALK.packets, snapshot=56))
    assert any(packet.size > 56 for packet in cut)
    for data in (pcap(cut), pcapng(cut), pcapng(cut, packet_type=2)):
        assert [(len(p.data), p.missing) for p in read_packets(io.BytesIO(data))] == [
            (len(made.data), made.size - len(made.data)) for made in cut
        ]


def packets_until_error(data: bytes) -> tuple[list[Packet], DecodeError | None]:
    found: list[Packet] = []
    try:
        for packet in read_packets(io.BytesIO(data)):
            found.append(packet)
    except DecodeError as error:
        return found, error
    return found, None


@pytest.mark.parametrize("data", FILES.values(), ids=FILES)
def test_a_file_truncated_anywhere(data: bytes) -> None:
    whole = packets_until_error(data)[0]
    ends = 0
    for cut in range(len(data)):
        found, error = packets_until_error(data[:cut])
        assert found == whole[: len(found)]
        if error is None:
            ends += 1
        else:
            assert error.where["offset"] is not None
    assert ends <= len(whole) + 8, "only between packets or blocks does a file end well"


BAD = [
    (b"", "ends before a capture's magic"),
    (b"\1\2", "2 bytes are missing"),
    (b"\0\0\0\x10\0\x12\0\0", "not a pcap or pcapng capture"),
    (pcap([]) + struct.pack("<IIII", 0, 0, 2**31, 0), "packet 1 has an impossible size of 2147483648 bytes"),
    (b"\x0a\x0d\x0d\x0a\x1c\0\0\0\0\0\0\0" + bytes(16), "has no byte order"),
    (pcapng([])[:-4] + bytes(4), "two lengths differ"),
    (pcapng([]) + b"\6\0\0\0\2\0\0\0", "has an impossible size of 2 bytes"),
    (pcapng([]) + b"\6\0\0\0\xff\xff\xff\x7f", "has an impossible size of 2147483647 bytes"),
    (pcapng([]) + pcapng_block(6, bytes(4), "<"), "4 bytes are too few for a block of type 6"),
    (pcapng([]) + pcapng_block(6, struct.pack("<IIIII", 3, 0, 0, 0, 0), "<"), "interface 3"),
    (pcapng([]) + pcapng_block(6, struct.pack("<IIIII", 0, 0, 0, 9, 9), "<"), "larger than its block"),
    (b"\x1f\x8bnonsense", "cannot be read"),
    (gzip.compress(pcap(PACKETS))[:-12], "cannot be read"),
]


@pytest.mark.parametrize(("data", "reason"), BAD)
def test_damaged_files(data: bytes, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        list(read_packets(io.BytesIO(data)))


@pytest.mark.parametrize("head", [b"", b"\0\0\0\x10", b"0a0d", b"GET ", b"\xa1\xb2"])
def test_files_that_are_not_captures(head: bytes) -> None:
    assert not is_capture(head)


def link_cases() -> Iterator[tuple[str, int, bytes]]:
    for name, talk in (("IPv4", TALK), ("IPv6", SIX)):
        for link in (captures.ETHERNET, captures.NULL, captures.LOOP, captures.SLL, captures.SLL2, captures.RAW):
            yield f"{name} {link}", link, link_packet(link, talk.packets[3])
        for link in (captures.ETHERNET, captures.SLL, captures.SLL2):
            yield f"{name} {link} VLAN", link, link_packet(link, talk.packets[3], vlan=True)
        yield f"{name} loopback, big", captures.NULL, link_packet(captures.NULL, talk.packets[3], order=">")
    yield "bare IPv4", captures.IPV4, TALK.packets[3]
    yield "bare IPv6", captures.IPV6, SIX.packets[3]


LINKS = {name: (link, data) for name, link, data in link_cases()}


@pytest.mark.parametrize("name", LINKS)
def test_every_link_layer(name: str) -> None:
    link, data = LINKS[name]
    segment = maybe_segment(Packet(1, 5, link, data, 0), SkippedPackets())
    assert segment is not None
    talk = SIX if "IPv6" in name else TALK
    assert (segment.data, segment.missing, segment.seq, segment.flags) == (b"hello", 0, 1001, 0x18)
    assert str(segment.source) == ("[::1]:40000" if talk is SIX else "127.0.0.1:40000")
    assert str(segment.target) == ("[fe80::2]:9092" if talk is SIX else "127.0.0.1:9092")
    for cut in range(len(data)):
        maybe_segment(Packet(1, 5, link, data[:cut], len(data) - cut), SkippedPackets())


def test_missing_bytes_of_a_segment() -> None:
    whole = link_packet(captures.ETHERNET, TALK.packets[3])
    cut = whole[: 14 + 40 + 2]
    segment = maybe_segment(Packet(1, 0, 1, cut, len(whole) - len(cut)), SkippedPackets())
    assert segment is not None
    assert (segment.data, segment.missing) == (b"he", 3)


def test_options_and_extension_headers_are_skipped() -> None:
    ends = ("127.0.0.1", 1), ("127.0.0.1", 2)
    with_options = captures.ip_packet(*ends, 7, 0, captures.ACK, b"data", options=bytes(12))
    six = captures.ip_packet(("::1", 1), ("::2", 2), 7, 0, captures.ACK, b"data")
    hop_by_hop = bytes([6, 1]) + bytes(14)
    atomic = bytes([6, 0, 0, 0]) + bytes(4)  # the only fragment
    extended = [
        six[:4] + (len(six) - 40 + len(more)).to_bytes(2, "big") + bytes([kind]) + six[7:40] + more + six[40:]
        for kind, more in ((0, hop_by_hop), (44, atomic), (51, bytes([6, 1]) + bytes(10)))
    ]
    for packet in (with_options, *extended):
        segment = maybe_segment(Packet(1, 0, captures.RAW, packet, 0), SkippedPackets())
        assert segment is not None
        assert segment.data == b"data"


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_an_ip_length_of_zero_means_as_long_as_captured(host: str) -> None:
    packet = captures.ip_packet((host, 1), (host, 2), 7, 0, captures.ACK, b"data" * 20_000)
    segment = maybe_segment(Packet(1, 0, captures.RAW, packet, 0), SkippedPackets())
    assert segment is not None
    assert len(segment.data) == 80_000


LEFT_OUT = [
    (147, b"whatever", "link type 147"),
    (captures.RAW, TALK.packets[3][:6] + b"\x20\x00" + TALK.packets[3][8:], "fragments of IP packets"),
    (captures.RAW, TALK.packets[3][:6] + b"\x00\x10" + TALK.packets[3][8:], "fragments of IP packets"),
    (captures.RAW, TALK.packets[3][:10], "packets cut off in their headers"),
    (captures.RAW, TALK.packets[3][:30], "packets cut off in their headers"),
]


@pytest.mark.parametrize(("link", "data", "reason"), LEFT_OUT)
def test_skipped_packets_are_counted(link: int, data: bytes, reason: str) -> None:
    unreadable = SkippedPackets()
    assert maybe_segment(Packet(1, 0, link, data, 0), unreadable) is None
    assert unreadable == {reason: 1}


NOT_TCP = [
    (captures.ETHERNET, bytes(12) + b"\x08\x06" + bytes(28)),  # ARP
    (captures.RAW, TALK.packets[3][:9] + b"\x11" + TALK.packets[3][10:]),  # UDP
    (captures.RAW, b"\x50" + bytes(40)),  # a version of IP that does not exist
    (captures.ETHERNET, b""),
    (captures.RAW, TALK.packets[3][:32] + b"\x10" + TALK.packets[3][33:]),  # a TCP header below the least length
]


@pytest.mark.parametrize(("link", "data"), NOT_TCP)
def test_other_protocols_than_tcp_are_ignored(link: int, data: bytes) -> None:
    unreadable = SkippedPackets()
    assert maybe_segment(Packet(1, 0, link, data, 0), unreadable) is None
    assert not unreadable


def test_a_packet_is_unchanged() -> None:
    made = Timed(5, b"x", 9)
    (found,) = read_packets(io.BytesIO(pcap([made], nano=True)))
    assert found == Packet(1, 5, 1, b"x", 8)


class Hesitant(io.RawIOBase):
    """A file that takes a few bytes at a time, as a disk does that is nearly full."""

    def __init__(self) -> None:
        self.data = b""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.data += bytes(data[:7])
        return min(7, len(data))


def test_a_file_that_takes_a_part_gets_the_rest() -> None:
    whole, hesitant = io.BytesIO(), Hesitant()
    files: list[Any] = [whole, hesitant]
    for file in files:
        writer = CaptureWriter(file)
        connection = writer.connection(("10.0.0.1", 1), ("10.0.0.2", 9092))
        for number in range(3):
            writer.write_frame(connection, from_client=True, frame=bytes(100), at_ns=number)
        writer.flush()
    assert hesitant.data == whole.getvalue()
