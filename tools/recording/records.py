"""Send the requests of records and offsets: Produce, Fetch, ListOffsets, OffsetForLeaderEpoch, DeleteRecords."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kwire.protocol.messages.delete_records import DeleteRecordsRequest
from kwire.protocol.messages.fetch import FetchRequest
from kwire.protocol.messages.list_offsets import ListOffsetsRequest
from kwire.protocol.messages.offset_for_leader_epoch import CONSUMER, OffsetForLeaderEpochRequest
from kwire.protocol.messages.produce import ProduceRequest
from kwire.records import encode_batch
from recording.scene import TOPIC, Scene
from recording.wire import Exchange

BEYOND_THE_END = 10_000
_TIMESTAMP_MS = 1_700_000_000_000


def produce(scene: Scene, version: int) -> Exchange:
    plain: Sequence[Any] = [(_TIMESTAMP_MS, b"key", b"value", ()), (_TIMESTAMP_MS + 1, None, None, ())]
    headers = (("header", b"of the record"), ("null", None)) if version >= 3 else ()
    # Only in partition 1: Kafka 0.11 cannot convert records with headers for an older Fetch.
    headed: Sequence[Any] = [(_TIMESTAMP_MS, b"key", b"value", headers)]
    magic = 2 if version >= 3 else max(0, version - 1)
    partitions = [
        ProduceRequest.Topic.Partition(index=index, records=encode_batch(records, magic=magic))
        for index, records in enumerate([plain, headed])
    ]
    topic = ProduceRequest.Topic(name=TOPIC, topic_id=scene.topic_id, partition_data=partitions)
    return scene.wire.exchange(ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[topic]), version)


def fetch(scene: Scene, version: int) -> Exchange:
    part = FetchRequest.Topic.Partition(partition=0, fetch_offset=0, partition_max_bytes=400)
    other = FetchRequest.Topic.Partition(
        partition=1, fetch_offset=0 if version >= 4 else BEYOND_THE_END, partition_max_bytes=400
    )
    topic = FetchRequest.Topic(topic=TOPIC, topic_id=scene.topic_id, partitions=[part, other])
    request = FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=1_000, topics=[topic])
    return scene.wire.exchange(request, version)


def list_offsets(scene: Scene, version: int) -> Exchange:
    kind = ListOffsetsRequest.Topic.Partition
    partitions = [kind(partition_index=0, timestamp=-2), kind(partition_index=1, timestamp=-1)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsRequest.Topic(name=TOPIC, partitions=partitions)])
    return scene.wire.exchange(request, version)


def offset_for_leader_epoch(scene: Scene, version: int) -> Exchange:
    partition = OffsetForLeaderEpochRequest.Topic.Partition(partition=0, leader_epoch=0)
    topic = OffsetForLeaderEpochRequest.Topic(topic=TOPIC, partitions=[partition])
    return scene.wire.exchange(OffsetForLeaderEpochRequest(replica_id=CONSUMER, topics=[topic]), version)


def delete_records(scene: Scene, version: int) -> Exchange:
    partition = DeleteRecordsRequest.Topic.Partition(partition_index=0, offset=1)
    topic = DeleteRecordsRequest.Topic(name=TOPIC, partitions=[partition])
    return scene.wire.exchange(DeleteRecordsRequest(topics=[topic], timeout_ms=10_000), version)
