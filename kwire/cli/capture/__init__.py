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

from kwire.cli.capture.conversation import read_capture
from kwire.cli.capture.exchange import CapturedFrame, Connection, Found, Remark, Unanswered
from kwire.cli.capture.packets import HEAD_BYTES, Joined, is_capture
from kwire.cli.capture.pairs import Pair, pair_up

__all__ = [
    "HEAD_BYTES", "CapturedFrame", "Connection", "Found", "Joined", "Pair", "Remark", "Unanswered", "is_capture",
    "pair_up", "read_capture",
]  # fmt: skip
