"""Kafka's requests and responses out of a network capture, decoded. `kwire decode` and its kin are thin faces of it.

    from kwire.capture import read_exchanges

    for exchange in read_exchanges("traffic.pcapng"):
        if exchange.errors:
            print(exchange.time, exchange.client_id, exchange.api_name, exchange.latency_ms, exchange.errors[0].name)

An `Exchange` is a request with its response: time, connection, client, API and version, both messages (as objects:
`request.body`, as Kafka's JSON: `request.message`), record batches (`request.record_batches()`), error codes, sizes,
latency, packet numbers, problems. Passwords and tokens are masked by default. `on_remark=` gets what could not be read.

    packets.py        packets out of pcap and pcapng files
    tcp.py            the TCP segment in a packet, and the byte stream of one direction, with the gaps of the capture
    frames.py         frames out of a byte stream, and how to find the next frame after a gap
    pairing.py        which response belongs to which request
    streams.py        every TCP stream of a capture that looks like Kafka's: `read_capture`
    tls.py            TLS connections decrypted by a key log: `KeyLog`
    decoded_frame.py  one frame decoded as far as its bytes make sense
    field_reader.py   headers, field by field; batch_fields.py record batches
    exchange.py       a request with its response, decoded: `read_exchanges`
    exchange_json.py  an exchange as one JSON object, as `kwire decode` prints it; frame_json.py one frame
    rows.py           an exchange as a row of columns
    secrets.py        passwords and tokens masked; on request payloads of records: masked_batches.py
    filters.py        the filter language of `-w`: `Filter("api == Produce and ms > 100")`
    summary.py        an exchange on one line
    nested.py         messages within bytes of other messages
    comparison.py     what differs between two captures
    pcapng.py         frames written as a capture: `CaptureWriter`
    record_fields.py  which fields hold record batches
    names.py          what a message names: topics, partitions, groups
    json.py           records, values and errors as JSON
    apis.py, times.py names and times as text

Memory depends on open streams and incomplete frames, not on the size of the file. Only the standard library is needed.
No network device is opened: capture with tcpdump or tshark, and read their file or pipe.

Imports: records, protocol, wire.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kwire.capture.exchange import Exchange, ExchangeDecoder, read_exchanges
    from kwire.capture.json import ResponseError
    from kwire.capture.packets import HEAD_BYTES, PrefixedFile, is_capture
    from kwire.capture.pairing import (
        CapturedConnection,
        CapturedFrame,
        CaptureEvent,
        Remark,
        RequestPair,
        ResponseMissing,
        is_incomplete,
        is_unreadable,
        pair_frames,
    )
    from kwire.capture.streams import read_capture
    from kwire.capture.tls import KeyLog

__all__ = [
    "HEAD_BYTES",
    "CaptureEvent",
    "CapturedConnection",
    "CapturedFrame",
    "Exchange",
    "ExchangeDecoder",
    "KeyLog",
    "PrefixedFile",
    "Remark",
    "RequestPair",
    "ResponseError",
    "ResponseMissing",
    "is_capture",
    "is_incomplete",
    "is_unreadable",
    "pair_frames",
    "read_capture",
    "read_exchanges",
]  # fmt: skip

# Name -> its file, imported on first use: the command line needs some files of this room at every start.
_FILES = {
    "CaptureEvent": "pairing",
    "CapturedConnection": "pairing",
    "CapturedFrame": "pairing",
    "Exchange": "exchange",
    "ExchangeDecoder": "exchange",
    "HEAD_BYTES": "packets",
    "KeyLog": "tls",
    "PrefixedFile": "packets",
    "Remark": "pairing",
    "RequestPair": "pairing",
    "ResponseError": "json",
    "ResponseMissing": "pairing",
    "is_capture": "packets",
    "is_incomplete": "pairing",
    "is_unreadable": "pairing",
    "pair_frames": "pairing",
    "read_capture": "streams",
    "read_exchanges": "exchange",
}

if not TYPE_CHECKING:  # or checkers would accept every name

    def __getattr__(name: str) -> Any:
        if name not in _FILES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_FILES[name]}"), name)
