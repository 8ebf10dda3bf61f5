"""Frames to decode. The codecs that make them are tested in tests/protocol and tests/records."""

from __future__ import annotations

from typing import Any

from kwire.protocol.headers import encode_request, encode_response
from kwire.protocol.messages.fetch import FetchResponse
from kwire.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kwire.protocol.messages.produce import ProduceRequest
from kwire.records import Compression, encode_batch

RECORDS: list[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]] = [
    (1700000000000, b"k1", b"hello", (("trace", b"\xff\x00"), ("empty", None))),
    (1700000000001, None, b"w\xc3\xb6rld", ()),
    (1700000000002, b"k3", None, ()),
]
CODECS = (Compression.GZIP, Compression.SNAPPY, Compression.LZ4)
PLAIN_RECORDS = [(timestamp, key, value, ()) for timestamp, key, value, _ in RECORDS]


def sized(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


def request(message: Any, version: int, correlation_id: int = 7, client_id: str | None = "test") -> bytes:
    return b"".join(encode_request(message, version, correlation_id, client_id))


def response(message: Any, version: int, correlation_id: int = 7) -> bytes:
    return b"".join(encode_response(message, version, correlation_id))


def produce(records: bytes, version: int = 9) -> bytes:
    partition = ProduceRequest.Topic.Partition(index=3, records=records)
    topic = ProduceRequest.Topic(name="orders", partition_data=[partition])
    return request(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic]), version)


def fetch(records: bytes, version: int = 4) -> bytes:
    partition = FetchResponse.Topic.Partition(
        partition_index=0,
        error_code=0,
        high_watermark=3,
        last_stable_offset=3,
        aborted_transactions=None,
        records=records,
    )
    return response(FetchResponse(responses=[FetchResponse.Topic(topic="orders", partitions=[partition])]), version)


METADATA_REQUEST = request(MetadataRequest(topics=[MetadataRequest.Topic(name="orders")]), 9)
METADATA_RESPONSE = response(
    MetadataResponse(
        brokers=[MetadataResponse.Broker(node_id=1, host="db1.example.org", port=9092)],
        topics=[
            MetadataResponse.Topic(
                error_code=0,
                name="orders",
                partitions=[
                    MetadataResponse.Topic.Partition(
                        error_code=5, partition_index=0, leader_id=-1, replica_nodes=[1, 2], isr_nodes=[1]
                    )
                ],
            )
        ],
    ),
    9,
)
BATCHES = {
    "v2": encode_batch(RECORDS),
    **{f"v2 {codec.name.lower()}": encode_batch(RECORDS, compression=codec) for codec in CODECS},
    "v1": encode_batch(PLAIN_RECORDS, magic=1),
    "v1 gzip": encode_batch(PLAIN_RECORDS, magic=1, compression=Compression.GZIP),
    "v0": encode_batch(PLAIN_RECORDS, magic=0),
    "v0 lz4": encode_batch(PLAIN_RECORDS, magic=0, compression=Compression.LZ4),
}
