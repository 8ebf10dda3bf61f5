"""Bench: a cluster on virtual time with one topic, and valid and invalid records to send to it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kwire.errors import ErrorCode
from kwire.protocol.messages.fetch import FetchRequest
from kwire.protocol.messages.produce import ProduceRequest, ProduceResponse
from kwire.records import Compression, decode_batches, encode_batch
from kwire.wire.checksums import crc32c
from tests.broker.virtual_cluster import WALL_MS, SentRequest, VirtualCluster

NOBODY = UUID(int=0xBAD)
CODECS = list(Compression)


def batch(*values: bytes, magic: int = 2, time_ms: int = WALL_MS, key: bytes | None = b"k", **fields: Any) -> bytes:
    return encode_batch([(time_ms, key, value, ()) for value in values], magic=magic, **fields)


def transactional(value: bytes, producer_id: int) -> bytes:
    return batch(value, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)


class Bench(VirtualCluster):
    """A cluster with the topic t, of one partition by default."""

    def __init__(self, partitions: int = 1, configs: dict[str, str | None] | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.topic = self.state.create_topic("t", partitions, configs=configs)

    def produce_request(
        self, records: bytes | None, *, acks: int = -1, partition: int = 0, transaction: str | None = None, **more: Any
    ) -> ProduceRequest:
        data = ProduceRequest.Topic.Partition(index=partition, records=records)
        named = {"name": "t", "topic_id": self.topic.id, **more}
        topic = ProduceRequest.Topic(partition_data=[data], **named)
        return ProduceRequest(transactional_id=transaction, acks=acks, timeout_ms=1_000, topic_data=[topic])

    def produce(
        self, records: bytes | None, version: int = 13, *, node: int | None = None, **more: Any
    ) -> ProduceResponse.Topic.Partition:
        request = self.produce_request(records, **more)
        response = self.request(node or self.leader("t", more.get("partition", 0)), request, version)
        return response.responses[0].partition_responses[0]

    def fetch_request(
        self, offset: int = 0, *, max_wait_ms: int = 0, min_bytes: int = 1, limit: int = 1 << 20, epoch: int = -1,
        last_epoch: int = -1, committed: bool = False, partitions: int = 1, max_bytes: int = 1 << 20, **more: Any,
    ) -> FetchRequest:  # fmt: skip
        requested = [
            FetchRequest.Topic.Partition(
                partition=index, fetch_offset=offset, partition_max_bytes=limit, current_leader_epoch=epoch,
                last_fetched_epoch=last_epoch,
            )
            for index in range(partitions)
        ]  # fmt: skip
        named = {"topic": "t", "topic_id": self.topic.id, **more}
        return FetchRequest(
            max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, isolation_level=int(committed),
            topics=[FetchRequest.Topic(partitions=requested, **named)],
        )  # fmt: skip

    def fetch(self, offset: int = 0, version: int = 18, *, node: int | None = None, **more: Any) -> Any:
        response = self.request(node or self.leader("t"), self.fetch_request(offset, **more), version)
        return response.responses[0].partitions[0]

    def fetch_later(self, version: int = 18, **more: Any) -> SentRequest:
        return self.send(self.leader("t"), self.fetch_request(**more), version)

    def values(self, records: Any) -> list[bytes | None]:
        return [record.value for part in decode_batches(records) for record in part.records()]

    @property
    def follower(self) -> int:
        return next(id for id in self.brokers if id != self.leader("t"))


def corrupted(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def patched(data: bytes, at: int, value: int, size: int) -> bytes:
    """Return the batch with `size` bytes replaced and the checksum recomputed."""
    changed = bytearray(data)
    changed[at : at + size] = value.to_bytes(size, "big")
    changed[17:21] = crc32c(bytes(changed[21:])).to_bytes(4, "big")
    return bytes(changed)


GOOD = batch(b"v", b"w")
BAD_RECORDS = [
    # name, records, version, topic configs, error
    ("nothing", None, 13, {}, ErrorCode.INVALID_RECORD),
    ("empty", b"", 13, {}, ErrorCode.INVALID_RECORD),
    ("a wrong checksum", corrupted(GOOD), 13, {}, ErrorCode.CORRUPT_MESSAGE),
    ("a wrong checksum of a message", corrupted(batch(b"v", magic=1)), 2, {}, ErrorCode.CORRUPT_MESSAGE),
    ("cut off", GOOD[:-1], 13, {}, ErrorCode.INVALID_RECORD),
    ("more behind it", GOOD + b"\0", 13, {}, ErrorCode.CORRUPT_MESSAGE),
    ("two batches", GOOD + GOOD, 13, {}, ErrorCode.INVALID_RECORD),
    ("an old format", batch(b"v", magic=1), 3, {}, ErrorCode.INVALID_RECORD),
    ("a base offset", batch(b"v", base_offset=5), 13, {}, ErrorCode.INVALID_RECORD),
    ("more offsets than records", patched(GOOD, 23, 7, 4), 13, {}, ErrorCode.INVALID_RECORD),
    ("more records than offsets", patched(GOOD, 57, 7, 4), 13, {}, ErrorCode.CORRUPT_MESSAGE),
    ("no records", patched(batch(b"v"), 57, 0, 4), 13, {}, ErrorCode.INVALID_RECORD),
    ("an unknown codec", patched(GOOD, 21, 7, 2), 13, {}, ErrorCode.CORRUPT_MESSAGE),
    ("a control batch", patched(GOOD, 21, 0x20, 2), 13, {}, ErrorCode.INVALID_RECORD),
    ("a transaction of nobody", patched(GOOD, 21, 0x10, 2), 13, {}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ("a producer without sequence", batch(b"v", producer_id=1, producer_epoch=0), 13, {}, ErrorCode.INVALID_RECORD),
    ("zstd before its time", batch(b"v", compression=Compression.ZSTD), 6, {}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ("too large", batch(b"v" * 2000), 13, {"max.message.bytes": "1000"}, ErrorCode.MESSAGE_TOO_LARGE),
    ("no key", batch(b"v", key=None), 13, {"cleanup.policy": "compact"}, ErrorCode.INVALID_RECORD),
    ("a timestamp from the future", batch(b"v", time_ms=WALL_MS + 3_700_000), 13, {}, ErrorCode.INVALID_TIMESTAMP),
    ("a timestamp from the past", batch(b"v", time_ms=WALL_MS - 2_000), 13,
     {"message.timestamp.before.max.ms": "1000"}, ErrorCode.INVALID_TIMESTAMP),
]  # fmt: skip
