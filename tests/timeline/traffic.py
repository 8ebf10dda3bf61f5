"""A capture in which something of everything happens, for the timeline's tests."""

from __future__ import annotations

from kwire.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from kwire.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kwire.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kwire.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kwire.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kwire.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kwire.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kwire.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kwire.protocol.messages.produce import ProduceRequest, ProduceResponse
from kwire.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kwire.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kwire.records import Compression, encode_batch
from tests.lint.traffic import Connection, Traffic

SECRET = "hunter2-hunter2"
HOSTILE = "</script><img src=x onerror=alert(1)>\u202etxt\x1b[31m"


def produce(
    c: Connection, at: float, *, topic: str = "orders", partition: int = 0, code: int = 0, records: int = 3,
    ms: float | None = 2.0, acks: int = -1, value: bytes = b"value 42", txn: str | None = None,
) -> None:  # fmt: skip
    """Add a Produce of `records` records with the keys k0, k1, ...; without `ms` it gets no response."""
    batch = encode_batch(
        [(0, f"k{n}".encode(), value, (("trace", b"t1"),)) for n in range(records)], compression=Compression.LZ4
    )
    part = ProduceRequest.Topic.Partition(index=partition, records=batch)
    request = ProduceRequest(
        acks=acks, timeout_ms=1000, transactional_id=txn,
        topic_data=[ProduceRequest.Topic(name=topic, partition_data=[part])],
    )  # fmt: skip
    result = ProduceResponse.Topic.Partition(index=partition, error_code=code, base_offset=100)
    response = ProduceResponse(responses=[ProduceResponse.Topic(name=topic, partition_responses=[result])])
    c.exchange(at, request, 9, response if ms is not None else None, ms or 0.0)


def everything() -> Traffic:
    """Return three clients in 6 s: a producer with an error, a group's member with two generations, a transaction."""
    traffic = Traffic()
    shop = traffic.connection(0.0, "shop")
    shop.exchange(0.1, ApiVersionsRequest(client_software_name="lib", client_software_version="1.2"), 3,
                  ApiVersionsResponse(error_code=0, api_keys=[]))  # fmt: skip
    shop.exchange(0.2, SaslAuthenticateRequest(auth_bytes=f"\0shop\0{SECRET}".encode()), 2,
                  SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b""))  # fmt: skip
    shop.exchange(0.3, MetadataRequest(topics=[MetadataRequest.Topic(name=HOSTILE)]), 9, MetadataResponse(
        brokers=[], topics=[MetadataResponse.Topic(error_code=17, name=HOSTILE, partitions=[])]))  # fmt: skip
    for number in range(20):
        produce(shop, 1 + number / 5, partition=number % 3, code=6 if number == 7 else 0, ms=2.0 + number)
    produce(shop, 5.5, topic="payments", ms=None)
    shop.closed(5.9)

    member = traffic.connection(0.5, "billing", ip="10.0.0.8")
    for generation in (1, 2):
        at = generation * 2.0
        join = JoinGroupRequest(
            group_id="g1", session_timeout_ms=45_000, member_id="m1", protocol_type="consumer", protocols=[]
        )
        joined = JoinGroupResponse(
            error_code=0, generation_id=generation, protocol_name="range", leader="m1", member_id="m1", members=[]
        )
        member.exchange(at, join, 5, joined, ms=300)
        sync = SyncGroupRequest(group_id="g1", generation_id=generation, member_id="m1", assignments=[])
        member.exchange(at + 0.4, sync, 3, SyncGroupResponse(error_code=0, assignment=b""))
        beat = HeartbeatRequest(group_id="g1", generation_id=generation, member_id="m1")
        member.exchange(at + 1, beat, 4, HeartbeatResponse(error_code=27 if generation == 1 else 0))
    partition = OffsetCommitRequest.Topic.Partition(partition_index=1, committed_offset=57, committed_metadata="")
    topics = [OffsetCommitRequest.Topic(name="orders", partitions=[partition])]
    commit = OffsetCommitRequest(group_id="g1", generation_id_or_member_epoch=2, member_id="m1", topics=topics)
    member.exchange(5.2, commit, 7, OffsetCommitResponse(topics=[]))

    tx = traffic.connection(0.6, "tx", node=2, ip="10.0.0.9")
    for at, committed in ((1.0, True), (3.0, False)):
        add = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="t1", v3_and_below_producer_id=7, v3_and_below_producer_epoch=0,
            v3_and_below_topics=[],
        )  # fmt: skip
        tx.exchange(at, add, 3, AddPartitionsToTxnResponse())
        produce(tx, at + 0.1, txn="t1")
        end = EndTxnRequest(transactional_id="t1", producer_id=7, producer_epoch=0, committed=committed)
        tx.exchange(at + 0.5, end, 3, EndTxnResponse(error_code=0))
    produce(tx, 5.0, txn="t1")
    for epoch in (1, 1, 3):
        beat_848 = ConsumerGroupHeartbeatRequest(group_id="g2", member_id="m9", member_epoch=epoch)
        answer = ConsumerGroupHeartbeatResponse(error_code=0, member_epoch=epoch, heartbeat_interval_ms=5000)
        tx.exchange(5.1 + epoch / 10, beat_848, 0, answer)
    return traffic
