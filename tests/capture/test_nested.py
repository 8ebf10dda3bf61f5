"""Messages within bytes, and the one line of an exchange."""

from __future__ import annotations

import io
import struct
from typing import Any

from kwire.capture import read_exchanges
from kwire.capture.nested import nested_messages
from kwire.capture.summary import size_text, summary
from kwire.consumer.assignors.user_data import sticky_user_data
from kwire.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    encode_versioned,
)
from kwire.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kwire.protocol.messages.metadata import MetadataRequest
from kwire.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kwire.protocol.messages.produce import ProduceRequest, ProduceResponse
from kwire.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kwire.records import Compression, encode_batch
from tests.capture import samples
from tests.capture.captures import Talk, pcap, timed
from tests.capture.test_pairing import talked
from tests.cli.running import run


def subscription() -> bytes:
    data = sticky_user_data([("orders", 1)], 5)
    return encode_versioned(ConsumerProtocolSubscription(topics=["orders"], user_data=data, rack_id="a"), 3)


def assignment() -> bytes:
    part = ConsumerProtocolAssignment.TopicPartition(topic="orders", partitions=[0, 1])
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=[part]), 1)


def joining(protocol_type: str, metadata: bytes) -> JoinGroupRequest:
    protocol = JoinGroupRequest.Protocol(name="sticky", metadata=metadata)
    return JoinGroupRequest(
        group_id="g", session_timeout_ms=45_000, member_id="", protocol_type=protocol_type, protocols=[protocol]
    )


def test_a_subscription_and_its_user_data() -> None:
    ((path, name, message),) = nested_messages(11, "request", joining("consumer", subscription()))
    assert (path, name) == ("protocols[0].metadata", "ConsumerProtocolSubscription")
    assert (message["version"], message["topics"], message["rackId"]) == (3, ["orders"], "a")
    assert message["userData"] == {"topics": [{"topic": "orders", "partitions": [1]}], "generation": 5}
    (line,) = run("decode", stdin=samples.request(joining("consumer", subscription()), 5)).lines()
    assert line["nested"] == [{"path": path, "type": name, "message": message}]


def test_connect() -> None:
    worker = struct.pack(">hh", 1, 4) + b"http" + struct.pack(">q", 7)
    ((_, name, message),) = nested_messages(11, "request", joining("connect", worker))
    assert (name, message) == ("ConnectSubscription", {"version": 1, "url": "http", "configOffset": 7})
    task = struct.pack(">h", 1) + b"c" + struct.pack(">iii", 2, -1, 0)
    data = struct.pack(">hhh", 0, 0, 1) + b"l" + struct.pack(">h", 1) + b"u" + struct.pack(">qi", 9, 1) + task
    body = SyncGroupResponse(error_code=0, protocol_type="connect", assignment=data)
    ((_, name, message),) = nested_messages(14, "response", body)
    assert (name, message["assigned"]) == ("ConnectAssignment", [{"connector": "c", "tasks": [-1, 0]}])
    body.assignment = data[:9]
    assert list(nested_messages(14, "response", body)) == []


def test_one_line_for_an_exchange() -> None:
    batch = encode_batch(samples.RECORDS, compression=Compression.GZIP)
    partition = ProduceRequest.Topic.Partition(index=3, records=batch)
    topic = ProduceRequest.Topic(name="orders", partition_data=[partition])
    stored = ProduceResponse.Topic.Partition(index=3, error_code=0, base_offset=47)
    committed = OffsetCommitRequest.Topic.Partition(partition_index=0, committed_offset=12, committed_metadata="")
    talk: list[Any] = [
        (ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic]), 8,
         ProduceResponse(responses=[ProduceResponse.Topic(name="orders", partition_responses=[stored])])),
        (joining("consumer", subscription()), 5,
         JoinGroupResponse(error_code=0, generation_id=2, protocol_name="sticky", leader="m", member_id="m",
                           members=[])),
        (SyncGroupRequest(group_id="g", generation_id=2, member_id="m", assignments=[]), 3,
         SyncGroupResponse(error_code=0, assignment=assignment())),
        (OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=2, member_id="m", topics=[
            OffsetCommitRequest.Topic(name="orders", partitions=[committed])]), 7, OffsetCommitResponse(topics=[])),
    ]  # fmt: skip
    data = pcap(timed(talked(Talk().opened(), talk, first_id=1).closed().packets))
    lines = [summary(one) for one in read_exchanges(io.BytesIO(data))]
    assert lines == [
        f"orders[3] 3 records {len(batch)} B gzip, acks all  -> offset 47",
        "group g  sticky  session 45000 ms  -> generation 2 sticky",
        "group g  generation 2  member m  -> orders[0, 1]",
        "group g  orders[0]=12  generation 2",
    ]


def test_sizes() -> None:
    assert [size_text(size) for size in (0, 999, 1000, 9_849, 999_949, 999_950, 1_200_000_000, 5_000_000_000_000)] == [
        "0 B", "999 B", "1.0 kB", "9.8 kB", "999.9 kB", "1.0 MB", "1.2 GB", "5000.0 GB",
    ]  # fmt: skip


def test_bytes_left_over_keep_the_message() -> None:
    frame = samples.request(MetadataRequest(topics=None), 9) + b"\0\0\0"
    ran = run("decode", "--bare", stdin=frame)
    assert ran.code == 4
    (line,) = ran.lines()
    assert line["message"]["topics"] is None
    assert "3 bytes" in line["problems"][0]["message"]
