"""Kafka's frames out of a capture of the network: `kwire decode traffic.pcapng`.

    packets.py        packets out of pcap and pcapng files
    layers.py         the TCP segment in a packet
    reassembly.py     segments to streams, with the gaps of the capture
    framing.py        streams to frames, and back into step after a gap (search.py)
    conversation.py   a connection that may be Kafka's, and who is the client
    exchange.py       which response answers which request
    pairs.py          requests and responses as pairs

`read_capture` runs them as one stream: a capture of any size takes the memory of its connections and of the frames in
the making, not of the file. It needs no library but the standard one, and opens no device: capture with tcpdump or
tshark, and read their file or their pipe.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection, Iterator
from itertools import count
from typing import BinaryIO

from kwire.cli.capture.conversation import Conversation
from kwire.cli.capture.exchange import CapturedFrame, Connection, Found, Remark, Unanswered
from kwire.cli.capture.layers import Endpoint, Segment, Unreadable, maybe_segment
from kwire.cli.capture.packets import HEAD_BYTES, Joined, is_capture, read_packets
from kwire.cli.capture.pairs import Pair, pair_up
from kwire.cli.output import counted
from kwire.errors import DecodeError

__all__ = [
    "HEAD_BYTES", "CapturedFrame", "Connection", "Found", "Joined", "Pair", "Remark", "Unanswered", "is_capture",
    "pair_up", "read_capture",
]  # fmt: skip

CONNECTIONS_MAX = 4096
FRAME_BYTES_MAX = 100 * 1024 * 1024


def read_capture(
    file: BinaryIO, *, ports: Collection[int] = (), frame_bytes_max: int = FRAME_BYTES_MAX
) -> Iterator[Found]:
    """The frames of a capture in the order in which they became whole, and remarks on what could not be read.

    With `ports` only connections to brokers on these ports are read; without, all that look like Kafka's. Of a frame
    larger than `frame_bytes_max` only its beginning is kept. A file that is damaged or cut off ends with a Remark of
    the problem, after everything before it.
    """
    table = _Connections(frozenset(ports), frame_bytes_max)
    unreadable: Unreadable = Counter()
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
        yield Remark(f"{counted(packets, 'packet')} {verb} left out: {reason}", is_problem=True)
    if problem is not None:
        yield Remark(str(problem), is_problem=True)


class _Connections:
    """The conversations that are open, by their two ends, the one that was silent longest first."""

    def __init__(self, ports: frozenset[int], frame_bytes_max: int) -> None:
        self._ports = ports
        self._frame_bytes_max = frame_bytes_max
        self._open: OrderedDict[frozenset[Endpoint], Conversation] = OrderedDict()
        self._numbers = count(1)
        self._rejected: Counter[str] = Counter()
        self._rejected_bytes: Counter[str] = Counter()

    def add(self, segment: Segment) -> Iterator[Found]:
        if self._ports and not {segment.source.port, segment.target.port} & self._ports:
            return
        ends = frozenset((segment.source, segment.target))
        conversation = self._open.get(ends)
        if conversation is not None and conversation.begins_anew(segment):
            yield from self._close(ends)
            conversation = None
        if conversation is None:
            sides = (segment.source, segment.target)
            conversation = Conversation(sides, self._ports, self._frame_bytes_max, self._numbers)
            self._open[ends] = conversation
            if len(self._open) > CONNECTIONS_MAX:
                yield from self._close(next(iter(self._open)))
        self._open.move_to_end(ends)
        yield from conversation.add(segment)
        if conversation.has_ended:
            yield from self._close(ends)

    def finish(self) -> Iterator[Found]:
        while self._open:
            yield from self._close(next(iter(self._open)))
        for reason, number in self._rejected.most_common():
            verb = "is" if number == 1 else "are"
            size = counted(self._rejected_bytes[reason], "byte")
            yield Remark(f"{counted(number, 'connection')} {verb} not read ({size}): {reason}")

    def _close(self, ends: frozenset[Endpoint]) -> Iterator[Found]:
        conversation = self._open.pop(ends)
        yield from conversation.finish()
        if conversation.rejected is not None:
            self._rejected[conversation.rejected] += 1
            self._rejected_bytes[conversation.rejected] += conversation.bytes
