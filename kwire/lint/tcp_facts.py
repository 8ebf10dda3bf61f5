"""How TCP connections begin and end: SYN without an answer, who closed, for how long nothing was sent."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import BinaryIO

from kwire.capture.packets import read_packets
from kwire.capture.tcp import ACK, FIN, RST, SYN, Segment, SkippedPackets, maybe_segment
from kwire.errors import DecodeError

_CONNECTIONS_MAX = 100_000


@dataclass(slots=True)
class TcpConnection:
    """A connection whose SYN is in the capture. Times are seconds since 1970.

    `closed_by` is "client" or "broker", "" while it is open; `how` is "FIN" or "RST". `is_answered`: it came about.
    """

    client: str
    broker: str
    packet: int
    began_at: float
    is_answered: bool = False
    last_data_at: float = 0.0
    closed_at: float | None = None
    closed_by: str = ""
    how: str = ""
    closed_packet: int = 0

    @property
    def ip(self) -> str:
        return self.client.rpartition(":")[0]

    @property
    def client_port(self) -> int:
        return int(self.client.rpartition(":")[2])


def read_tcp(file: BinaryIO) -> list[TcpConnection]:
    """Return the connections whose beginning is in a capture, in its order. A damaged capture ends early."""
    found: list[TcpConnection] = []
    open_: dict[tuple[str, str], TcpConnection] = {}
    skipped: SkippedPackets = Counter()
    try:
        for packet in read_packets(file):
            segment = maybe_segment(packet, skipped)
            if segment is not None:
                _note(segment, found, open_)
    except DecodeError:
        pass  # reading the exchanges reports it
    return found


def _note(segment: Segment, found: list[TcpConnection], open_: dict[tuple[str, str], TcpConnection]) -> None:
    source, target = str(segment.source), str(segment.target)
    at = segment.at_ns / 1e9
    if segment.flags & (SYN | ACK) == SYN:
        before = open_.get((source, target))
        if (before is None or before.is_answered) and len(found) < _CONNECTIONS_MAX:
            made = open_[source, target] = TcpConnection(source, target, segment.packet, at, last_data_at=at)
            found.append(made)
        return
    by_client = (source, target) in open_
    one = open_.get((source, target)) or open_.get((target, source))
    if one is None:
        return
    if segment.flags & SYN:
        one.is_answered = True
    elif segment.data:
        one.last_data_at = at
    if segment.flags & (FIN | RST) and one.closed_at is None:
        one.closed_at, one.closed_packet = at, segment.packet
        one.closed_by = "client" if by_client else "broker"
        one.how = "RST" if segment.flags & RST else "FIN"
