"""Captures of exchanges made by hand, at times that the test chooses."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kwire.capture import Exchange, read_exchanges
from kwire.protocol.headers import encode_request, encode_response
from tests.capture.captures import ACK, BROKER, CLIENT, FIN, PSH, RST, SYN, Timed, ip_packet, link_packet, pcap

START_NS = 1_800_000_000 * 10**9
_SEGMENT_BYTES = 60_000


@dataclass
class Connection:
    """A TCP connection in a `Traffic`. Times are seconds from its start."""

    traffic: Traffic
    client: tuple[str, int]
    broker: tuple[str, int]
    client_id: str
    seqs: list[int] = field(default_factory=lambda: [1000, 5000])
    correlation_id: int = 0

    def opened(self, at: float, *, is_answered: bool = True) -> Connection:
        self._packet(at, CLIENT, SYN)
        self.seqs[CLIENT] += 1
        if is_answered:
            self._packet(at, BROKER, SYN | ACK)
            self.seqs[BROKER] += 1
            self._packet(at, CLIENT, ACK)
        return self

    def exchange(self, at: float, request: Any, version: int, response: Any | None, ms: float = 1.0) -> Connection:
        """Add a request and, `ms` later, its response; None if it gets none."""
        self.correlation_id += 1
        self._send(at, CLIENT, encode_request(request, version, self.correlation_id, self.client_id))
        if response is not None:
            self._send(at + ms / 1000, BROKER, encode_response(response, version, self.correlation_id))
        return self

    def closed(self, at: float, side: int = CLIENT) -> Connection:
        for one in (side, 1 - side):
            self._packet(at, one, FIN | ACK)
            self.seqs[one] += 1
        return self

    def reset(self, at: float, side: int = BROKER) -> Connection:
        self._packet(at, side, RST | ACK)
        return self

    def _send(self, at: float, side: int, parts: Any) -> None:
        body = b"".join(bytes(part) for part in parts)
        self.data(at, side, len(body).to_bytes(4, "big") + body)

    def data(self, at: float, side: int, data: bytes) -> None:
        """Add bytes of one side as they are."""
        for start in range(0, len(data), _SEGMENT_BYTES):
            piece = data[start : start + _SEGMENT_BYTES]
            self._packet(at, side, ACK | PSH, piece)
            self.seqs[side] += len(piece)

    def _packet(self, at: float, side: int, flags: int, data: bytes = b"") -> None:
        source, target = (self.client, self.broker) if side == CLIENT else (self.broker, self.client)
        ack = self.seqs[1 - side] if flags & ACK else 0
        self.traffic.add(at, ip_packet(source, target, self.seqs[side], ack, flags, data))


class Traffic:
    """Connections, and the capture of all their packets in the order of time."""

    def __init__(self) -> None:
        self._packets: list[tuple[float, int, bytes]] = []
        self._ports = iter(range(40_000, 60_000))

    def connection(
        self, at: float = 0.0, client_id: str = "app", node: int = 1, ip: str = "10.0.0.7", port: int | None = None
    ) -> Connection:
        """Return an open connection to the broker with this node id, which is at 10.0.1.NODE:9092.

        `port` is the client's; None means the next one.
        """
        return self.unopened(client_id, node, ip, port).opened(at)

    def unopened(
        self, client_id: str = "app", node: int = 1, ip: str = "10.0.0.7", port: int | None = None
    ) -> Connection:
        return Connection(self, (ip, port or next(self._ports)), (f"10.0.1.{node}", 9092), client_id)

    def add(self, at: float, packet: bytes) -> None:
        self._packets.append((at, len(self._packets), packet))

    def capture(self) -> bytes:
        """Return the pcap file."""
        packets = sorted(self._packets, key=lambda one: one[:2])
        frames = [(START_NS + round(at * 1e9), link_packet(1, packet)) for at, _, packet in packets]
        return pcap([Timed(at, data, len(data)) for at, data in frames], nano=True)

    def exchanges(self) -> Iterator[Exchange]:
        return read_exchanges(io.BytesIO(self.capture()))
