"""Kafka's requests and responses out of a network capture.

    packets.py    packets out of pcap and pcapng files
    tcp.py        the TCP segment in a packet, and the byte stream of one direction, with the gaps of the capture
    frames.py     frames out of a byte stream, and how to find the next frame after a gap
    exchange.py   which response belongs to which request
    streams.py    every TCP stream of a capture that looks like Kafka's: `read_capture`

Memory depends on open streams and incomplete frames, not on the size of the file. Only the standard library is needed.
No network device is opened: capture with tcpdump or tshark, and read their file or pipe.
"""

from __future__ import annotations

from kwire.cli.capture.exchange import (
    CapturedConnection,
    CapturedFrame,
    CaptureEvent,
    Remark,
    RequestPair,
    ResponseMissing,
    pair_frames,
)
from kwire.cli.capture.packets import HEAD_BYTES, PrefixedFile, is_capture
from kwire.cli.capture.streams import read_capture

__all__ = [
    "HEAD_BYTES",
    "CaptureEvent",
    "CapturedConnection",
    "CapturedFrame",
    "PrefixedFile",
    "Remark",
    "RequestPair",
    "ResponseMissing",
    "is_capture",
    "pair_frames",
    "read_capture",
]  # fmt: skip
