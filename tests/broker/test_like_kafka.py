"""The embedded broker responds as Kafka does: each case sends the same valid and invalid requests to both.

A case is a function that yields the relevant fields of the responses. They must be equal. Fields that always differ
(ids, ports, times) are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from kwire.errors import ErrorCode
from kwire.protocol.messages.consumer_protocol import ConsumerProtocolSubscription, encode_versioned
from kwire.protocol.messages.create_partitions import CreatePartitionsRequest
from kwire.protocol.messages.create_topics import CreateTopicsRequest
from kwire.protocol.messages.delete_groups import DeleteGroupsRequest
from kwire.protocol.messages.delete_records import DeleteRecordsRequest
from kwire.protocol.messages.delete_topics import DeleteTopicsRequest
from kwire.protocol.messages.describe_cluster import DescribeClusterRequest
from kwire.protocol.messages.describe_configs import DescribeConfigsRequest
from kwire.protocol.messages.describe_groups import DescribeGroupsRequest
from kwire.protocol.messages.fetch import FetchRequest
from kwire.protocol.messages.find_coordinator import FindCoordinatorRequest
from kwire.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kwire.protocol.messages.init_producer_id import InitProducerIdRequest
from kwire.protocol.messages.join_group import JoinGroupRequest
from kwire.protocol.messages.leave_group import LeaveGroupRequest
from kwire.protocol.messages.list_groups import ListGroupsRequest
from kwire.protocol.messages.list_offsets import ListOffsetsRequest
from kwire.protocol.messages.metadata import MetadataRequest
from kwire.protocol.messages.offset_delete import OffsetDeleteRequest
from kwire.protocol.messages.offset_fetch import OffsetFetchRequest
from kwire.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kwire.records import Compression, encode_batch
from tests.broker.bench import BAD_RECORDS, NOBODY
from tests.broker.comparison import NOW_MS, Side, codes, results_by_side
from tests.waiting import wait_for

pytestmark = pytest.mark.live


def plain(*values: bytes, **fields: Any) -> bytes:
    return encode_batch([(NOW_MS + n, b"k", value, ()) for n, value in enumerate(values)], **fields)


def sequenced(producer_id: int, epoch: int, sequence: int, count: int = 1) -> bytes:
    return plain(*[b"v"] * count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


# Records to which Kafka does not respond, from which it drops trailing bytes, or for which it returns INVALID_RECORD or
# UNKNOWN_SERVER_ERROR instead of the embedded broker's CORRUPT_MESSAGE.
JUDGED_OTHERWISE = {"nothing", "more behind it", "more records than offsets", "an unknown codec"}


# The cases.


def bad_records(side: Side) -> Iterator[Any]:
    for name, records, version, configs, _ in BAD_RECORDS:
        if version >= 3 and "timestamp" not in name and name not in JUDGED_OTHERWISE:
            topic = side.topic(configs=configs)
            yield name, side.produce(topic, records, version)


def produce(side: Side) -> Iterator[Any]:
    topic = side.topic(2)
    for version in range(3, 14):
        yield version, side.produce(topic, plain(b"v"), version)
    yield "acks", side.produce(topic, plain(b"v"), acks=2)
    yield "partition", side.produce(topic, plain(b"v"), partition=2)
    yield "name", side.produce(("nowhere", NOBODY), plain(b"v"), 12)
    yield "id", side.produce(("nowhere", NOBODY), plain(b"v"), 13)
    yield "append time", side.produce(side.topic(configs={"message.timestamp.type": "LogAppendTime"}), plain(b"v"))
    yield "far future", side.produce(topic, encode_batch([(NOW_MS + 10**8, b"k", b"v", ())]))


def odd_produce(side: Side) -> Iterator[Any]:
    yield "min isr", side.produce(side.topic(configs={"min.insync.replicas": "2"}), plain(b"v"))
    packed = plain(b"v" * 20_000, compression=Compression.GZIP)
    yield "packed", side.produce(side.topic(configs={"max.message.bytes": "200"}), packed)
    small = {"max.message.bytes": "200", "compression.type": "uncompressed"}
    yield "unpacked", side.produce(side.topic(configs=small), packed)[0]


def sequences(side: Side) -> Iterator[Any]:
    topic = side.topic()
    steps = [(0, 0, 1), (0, 1, 2), (0, 1, 2), (0, 0, 1), (0, 4, 1), (0, 3, 1), (1, 5, 1), (1, 0, 1), (0, 4, 1)]
    for step in steps:
        yield step, side.produce(topic, sequenced(77, *step))
    for sequence in range(1, 9):
        side.produce(topic, sequenced(77, 1, sequence))
    yield "five back", side.produce(topic, sequenced(77, 1, 4))
    yield "six back", side.produce(topic, sequenced(77, 1, 3))
    yield "any first", side.produce(topic, sequenced(78, 0, 9))
    yield "wrapped", [side.produce(side.topic(), sequenced(79, 0, 2**31 - 1 - n)) for n in (1, 0)]
    topic = side.topic()
    yield "wraps", [side.produce(topic, sequenced(79, 0, sequence)) for sequence in (2**31 - 2, 2**31 - 1, 0, 1)]


def fetch(side: Side) -> Iterator[Any]:
    topic = side.topic()
    for n in range(3):
        side.produce(topic, plain(b"v" * 10 * n))
    for version in range(4, 18):
        yield version, [side.fetch(topic, offset, version) for offset in (0, 1, 3, 4, -1)]
    yield "limit", [side.fetch(topic, 0, limit=limit) for limit in (0, 1, 100, 170)]
    yield "epoch", [side.fetch(topic, 0, epoch=epoch) for epoch in (0, 1)]
    yield "last epoch", [side.fetch(topic, 3, last_epoch=epoch) for epoch in (0, 1)]
    yield "committed", side.fetch(topic, 0, committed=True)
    yield "session", [side.fetch(topic, 0, session=session) for session in ((5, 1), (0, -1))]
    yield "partition", side.fetch(topic, 0, partition=1)
    yield "name", side.fetch(("nowhere", NOBODY), 0, 12)
    yield "id", side.fetch(("nowhere", NOBODY), 0, 13)


def limits_of_fetch(side: Side) -> Iterator[Any]:
    name, id = side.topic(2)
    for partition in (0, 1):
        for _ in range(3):
            side.produce((name, id), plain(b"v" * 100), partition=partition)
    whole = side.fetch((name, id), 0)[5]
    size = whole // 3
    limits = [(9, 9), (2, 9), (9, 1), (9, 0.1), (0, 9), (0.1, 9), (9, 4), (2, 3), (2.5, 9), (9, 4.5), (9, 3.5)]
    for limit, max_bytes in limits:
        each = int(limit * size)
        requested = [
            FetchRequest.Topic.Partition(partition=p, fetch_offset=0, partition_max_bytes=each) for p in (0, 1)
        ]
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, max_bytes=int(max_bytes * size),
            topics=[FetchRequest.Topic(topic=name, topic_id=id, partitions=requested)],
        )  # fmt: skip
        (found,) = side.request(request, 17).responses
        yield limit, max_bytes, [len(result.records or b"") for result in found.partitions]


def zstd_for_old_fetches(side: Side) -> Iterator[Any]:
    topic = side.topic()
    side.produce(topic, plain(b"v", compression=Compression.ZSTD))
    yield [side.fetch(topic, 0, version) for version in (9, 10)]


def list_offsets(side: Side) -> Iterator[Any]:
    name, id = side.topic()
    for n in range(4):
        records = [(NOW_MS + n * 10 + m, b"k", b"v", ()) for m in (5, 0)]
        side.produce((name, id), encode_batch(records))

    def send(timestamp: int, version: int, epoch: int = -1, partition: int = 0, topic: str = name) -> Any:
        requested = ListOffsetsRequest.Topic.Partition(
            partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch
        )
        topics = [ListOffsetsRequest.Topic(name=topic, partitions=[requested])]
        (result,) = side.request(ListOffsetsRequest(replica_id=-1, topics=topics), version).topics[0].partitions
        time = result.timestamp - NOW_MS if result.timestamp > 0 else -1
        return result.error_code, time, result.offset, result.leader_epoch

    for version in range(1, 11):
        times = [-1, -2, NOW_MS, NOW_MS + 1, NOW_MS + 5, NOW_MS + 6, NOW_MS + 35, NOW_MS + 36]
        times += [-3] * (version >= 7) + [-4] * (version >= 8) + [-5] * (version >= 9)
        yield version, [send(time, version) for time in times]
    yield "epoch", [send(-1, 9, epoch) for epoch in (0, 1)]
    yield "unknown", send(-1, 9, partition=1), send(-1, 9, topic="nowhere")
    yield "meaningless", send(-9, 9)


def odd_list_offsets(side: Side) -> Iterator[Any]:
    name, _ = side.topic(2)

    def send(*requested: tuple[int, int], version: int = 9) -> Any:
        partitions = [ListOffsetsRequest.Topic.Partition(partition_index=p, timestamp=time) for p, time in requested]
        topics = [ListOffsetsRequest.Topic(name=name, partitions=partitions)]
        found = side.request(ListOffsetsRequest(replica_id=-1, topics=topics), version).topics
        return [(r.partition_index, r.error_code, r.offset, r.leader_epoch) for t in found for r in t.partitions]

    for version in range(1, 11):
        yield version, [send((0, time), version=version) for time in range(-7, 1)]
    yield "twice", send((0, -1), (0, -2)), sorted(send((0, -1), (1, -1), (0, -1)))


def repetitions(side: Side) -> Iterator[Any]:
    name, id = side.topic(2)

    def partitions(*counts: int) -> Any:
        topics = [CreatePartitionsRequest.Topic(name=name, count=count, assignments=None) for count in counts]
        return codes(side.request(CreatePartitionsRequest(topics=topics, timeout_ms=5000, validate_only=False)).results)

    def delete(*topics: DeleteTopicsRequest.Topic) -> Any:
        return sorted(codes(side.request(DeleteTopicsRequest(topics=list(topics), timeout_ms=5000)).responses))

    def alter(*values: str) -> Any:
        resources = [
            IncrementalAlterConfigsRequest.Resource(
                resource_type=2,
                resource_name=name,
                configs=[
                    IncrementalAlterConfigsRequest.Resource.Config(name="retention.ms", config_operation=0, value=value)
                ],
            )
            for value in values
        ]
        return codes(side.request(IncrementalAlterConfigsRequest(resources=resources, validate_only=False)).responses)

    def described(*topics: str | UUID) -> Any:
        requested = [
            MetadataRequest.Topic(topic_id=topic, name=None)
            if isinstance(topic, UUID)
            else MetadataRequest.Topic(name=topic)
            for topic in topics
        ]
        return [(t.error_code, t.name) for t in side.request(MetadataRequest(topics=requested), 12).topics]

    yield "partitions", partitions(3, 4), partitions(3)
    by_name, by_id, both = (
        DeleteTopicsRequest.Topic(name=name),
        DeleteTopicsRequest.Topic(topic_id=id),
        DeleteTopicsRequest.Topic(name=name, topic_id=id),
    )
    nowhere = DeleteTopicsRequest.Topic(name="nowhere")
    yield "deleted", delete(by_name, by_name), delete(by_id, by_id), delete(by_name, by_id), delete(both)
    yield "deleted", delete(DeleteTopicsRequest.Topic()), delete(nowhere, by_name, by_name), delete(nowhere, nowhere)
    yield "altered", alter("1", "2"), alter("1")
    yield "metadata", described(name, name), described(id, id), described(name, id), described(name, NOBODY)
    dotted, clash = f"{side.case}.a", f"{side.case}_a"
    side.request(MetadataRequest(topics=[MetadataRequest.Topic(name=dotted)]), 12)
    side.until_led(dotted)
    yield "collision", described(clash), described(clash)


def metadata(side: Side) -> Iterator[Any]:
    name, id = side.topic(2)

    def named(topic: str | UUID) -> MetadataRequest.Topic:
        if isinstance(topic, UUID):
            return MetadataRequest.Topic(topic_id=topic, name=None)
        return MetadataRequest.Topic(name=topic)

    def partition(p: Any) -> Any:
        return p.partition_index, p.error_code, p.leader_id, p.leader_epoch, *p.isr_nodes

    def send(names: list[Any] | None, version: int, **more: Any) -> Any:
        topics = None if names is None else [named(topic) for topic in names]
        response = side.request(MetadataRequest(topics=topics, **more), version)
        shown = [
            (t.error_code, t.name, t.is_internal, t.topic_authorized_operations, sorted(map(partition, t.partitions)))
            for t in response.topics
        ]  # fmt: skip
        return shown, response.controller_id, response.cluster_authorized_operations, len(response.brokers)

    for version in range(14):
        yield version, send([name], version)
        if version >= 4:
            never = {"allow_auto_topic_creation": False}
            yield version, [send([other], version, **never) for other in ("nowhere", "no/slash", "", "..")]
    yield "none", send([], 12)
    yield "ids", send([id], 12), send([NOBODY], 12)
    yield "operations", send([name], 8, include_topic_authorized_operations=True)
    yield "operations", send([name], 8, include_cluster_authorized_operations=True)


def topics(side: Side) -> Iterator[Any]:
    taken, _ = side.topic()

    def create(version: int = 7, validate_only: bool = True, **more: Any) -> Any:
        fields = {"name": f"{side.case}-new", "num_partitions": 1, "replication_factor": 1, **more}
        request = CreateTopicsRequest(topics=[CreateTopicsRequest.Topic(**fields)], validate_only=validate_only)
        (result,) = side.request(request, version).topics
        return result.error_code, result.num_partitions, result.replication_factor

    def configs(**values: str | None) -> Any:
        chosen = [CreateTopicsRequest.Topic.Config(name=n.replace("_", "."), value=v) for n, v in values.items()]
        return create(configs=chosen)

    def assigned(*partitions: tuple[int, list[int]], **more: Any) -> Any:
        chosen = [CreateTopicsRequest.Topic.Assignment(partition_index=p, broker_ids=ids) for p, ids in partitions]
        return create(assignments=chosen, **more)

    yield "names", [create(name=name)[0] for name in (taken, "", ".", "..", "a/b", "x" * 249, "x" * 250)]
    yield "partitions", [create(num_partitions=n) for n in (0, -2, -1, 3)]
    yield "replicas", [create(replication_factor=n) for n in (0, 2, -2, -1)]
    yield (
        "configs",
        [configs(retention_ms=value)[0] for value in ("1", "soon", "-1", "-2", None)],
        [configs(cleanup_policy=value)[0] for value in ("compact", "compact,delete", "burn", "")],
    )
    yield "configs", configs(no_such="1")[0], configs(compression_type="zip")[0], configs(min_insync_replicas="0")[0]
    both = {"num_partitions": -1, "replication_factor": -1}
    yield "assigned", assigned((0, [1]))[0], assigned((0, [1]), **both)[0], assigned((1, [1]), **both)[0]
    yield "assigned", assigned((0, [9]), **both)[0], assigned((0, [1, 1]), **both)[0], assigned((0, []), **both)[0]
    twice = CreateTopicsRequest.Topic(name="twice", num_partitions=1, replication_factor=1)
    yield "twice", codes(side.request(CreateTopicsRequest(topics=[twice, twice])).topics)
    for version in range(2, 8):
        name = f"{side.case}-v{version}"
        yield "created", create(version, validate_only=False, name=name)
        side.until_led(name)
    gone = [DeleteTopicsRequest.Topic(name=name) for name in (taken, "nowhere")]
    request = DeleteTopicsRequest(topics=[*gone, DeleteTopicsRequest.Topic(topic_id=NOBODY)], timeout_ms=5000)
    yield "deleted", sorted(codes(side.request(request).responses))


def values_of_configs(side: Side) -> Iterator[Any]:
    values = {
        "compression.gzip.level": "-2 -1 0 1 9 10", "compression.lz4.level": "0 1 17 18",
        "compression.zstd.level": "-131073 -131072 22 23", "file.delete.delay.ms": "-1 0", "flush.messages": "0 1",
        "flush.ms": "-1 0", "index.interval.bytes": "-1 0", "local.retention.bytes": "-3 -2",
        "local.retention.ms": "-3 -2", "max.message.bytes": "-1 0 2147483648", "preallocate": "TRUE maybe",
        "remote.storage.enable": "false true maybe", "retention.bytes": "-2 1.5", "retention.ms": "-2 -1 1_000 +5 1e3",
        "segment.bytes": "1048575 1048576", "segment.index.bytes": "3 4", "segment.jitter.ms": "-1 0",
        "segment.ms": "0 1", "unclean.leader.election.enable": "TRUE yes", "min.insync.replicas": "0 1",
        "leader.replication.throttled.replicas": "* x 0:1 0:1, 0:1,1:2", "min.cleanable.dirty.ratio": "-0.1 .5 1.1",
    }  # fmt: skip
    for name, listed in values.items():
        found = []
        for value in listed.split():
            config = CreateTopicsRequest.Topic.Config(name=name, value=value)
            topic = CreateTopicsRequest.Topic(name=side.case, num_partitions=1, replication_factor=1, configs=[config])
            found += codes(side.request(CreateTopicsRequest(topics=[topic], validate_only=True)).topics)
        yield name, list(zip(listed.split(), found, strict=True))


def odd_commits(side: Side) -> Iterator[Any]:
    topic, _ = side.topic()
    for generation, member_id in [(-1, "me"), (-2, ""), (-2, "me"), (0, ""), (1, "me")]:
        group = f"{side.case}{generation}{member_id}"
        yield [side.commit(group, topic, generation=generation, member_id=member_id) for _ in range(2)]
    for metadata in ("\u00e9" * 4096, "\u00e9" * 4097, "\U0001f600" * 2048, "\U0001f600" * 2049):
        yield side.commit(side.case, topic, metadata=metadata)
    joined = side.joined(f"{side.case}-joined")
    yield side.commit(f"{side.case}-joined", "nowhere", generation=9, member_id="me")
    yield side.sync(f"{side.case}-joined", joined, protocol_type=None)
    yield side.sync(f"{side.case}-joined", joined, protocol_name=None)
    named = [(topic, [0, 9]), ("nowhere", [0])]
    topics = [
        OffsetDeleteRequest.Topic(
            name=name, partitions=[OffsetDeleteRequest.Topic.Partition(partition_index=index) for index in indexes]
        )
        for name, indexes in named
    ]
    found = side.request(OffsetDeleteRequest(group_id=side.case, topics=topics))
    yield (
        found.error_code,
        sorted((t.name == topic, p.partition_index, p.error_code) for t in found.topics for p in t.partitions),
    )
    yield side.request(OffsetDeleteRequest(group_id="", topics=topics)).error_code, side.heartbeat("", joined)
    yield side.sync("", joined), side.request(LeaveGroupRequest(group_id="", members=[])).error_code


def groups(side: Side) -> Iterator[Any]:
    topic, _ = side.topic()
    group = side.case

    def fields(joined: Any) -> Any:
        return (
            joined.error_code, joined.generation_id, joined.protocol_type, joined.protocol_name,
            joined.leader == joined.member_id, len(joined.members), joined.skip_assignment,
        )  # fmt: skip

    for version in range(10):
        joined = side.join(f"{group}-v{version}", version=version)
        yield version, fields(joined)
        if version >= 4:
            yield version, fields(side.join(f"{group}-v{version}", joined.member_id, version))
    yield "refused", fields(side.join("")), fields(side.join(group, "me"))
    yield "refused", [fields(side.join(group, session_timeout_ms=ms)) for ms in (5_999, 1_800_001)]
    yield "refused", fields(side.join(group, protocols=[])), fields(side.join(group, protocol_type=""))
    joined = side.joined(group)
    yield "joined", fields(joined), fields(side.join(group, joined.member_id))
    yield "sync phase", side.heartbeat(group, joined)
    yield "sync phase", side.commit(group, topic, generation=joined.generation_id, member_id=joined.member_id)
    yield "sync refused", side.sync(group, joined, 9), side.sync(group, joined, member_id="me")
    yield "sync refused", side.sync(group, joined, protocol_name="sticky"), side.sync("nowhere", joined)
    yield "sync", side.sync(group, joined), side.sync(group, joined)
    yield "beats", side.heartbeat(group, joined), side.heartbeat(group, joined, generation_id=9)
    yield "beats", side.heartbeat(group, joined, member_id="me"), side.heartbeat("nowhere", joined)
    yield "beats", side.heartbeat(group, joined, group_instance_id="i")
    yield "refused", fields(side.join(group, protocol_type="connect"))
    yield "refused", fields(side.join(group, protocols=[JoinGroupRequest.Protocol(name="sticky", metadata=b"")]))
    member = {"generation": joined.generation_id, "member_id": joined.member_id}
    yield "commits", side.commit(group, topic, **member), side.commit(group, topic), side.commit("", topic)
    yield "commits", side.commit(group, topic, generation=9, member_id=joined.member_id)
    yield "commits", side.commit(group, "nowhere", **member), side.commit(group, topic, **member, partition=1)
    yield "commits", side.commit(group, topic, **member, metadata="x" * 4097), side.commit("other", topic)
    yield "commits", side.commit("none", topic, generation=3, member_id="x")

    def leave(*members: tuple[str, str | None], version: int = 5) -> Any:
        requested = [LeaveGroupRequest.Member(member_id=m, group_instance_id=i) for m, i in members]
        response = side.request(LeaveGroupRequest(group_id=group, members=requested), version)
        return response.error_code, codes(response.members)

    yield "leaves", leave(("me", None)), leave(("", "i")), [leave((joined.member_id, None)) for _ in range(2)]
    yield "left", side.heartbeat(group, joined), side.commit(group, topic)


def static_members(side: Side) -> Iterator[Any]:
    # A coordinator that has just started may fail to store the member, and yet have it: begin with another group.
    for number in range(10):
        group = f"{side.case}-{number}"
        first = side.join(group, group_instance_id="i")
        if first.error_code != ErrorCode.UNKNOWN_SERVER_ERROR:
            break
    yield first.error_code, side.sync(group, first, group_instance_id="i")
    back = side.join(group, group_instance_id="i")
    yield back.error_code, back.generation_id, back.leader == back.member_id, back.skip_assignment, len(back.members)
    yield side.heartbeat(group, first, group_instance_id="i"), side.heartbeat(group, back, group_instance_id="i")
    yield side.join(group, first.member_id, group_instance_id="i").error_code
    again = side.join(group, group_instance_id="i", version=8)
    yield again.error_code, again.leader == back.member_id, again.skip_assignment, len(again.members)


def offset_fetch(side: Side) -> Iterator[Any]:
    topic, id = side.topic(2)
    group = side.case
    side.commit(f"{group}-x", topic, 42, metadata="m")

    def fields(topics: list[Any]) -> Any:
        return [
            (p.partition_index, p.committed_offset, p.committed_leader_epoch, p.metadata, p.error_code)
            for t in topics
            for p in t.partitions
        ]

    for version in range(1, 8):
        names = (topic, "nowhere")
        requested: list[Any] = [OffsetFetchRequest.Topic(name=name, partition_indexes=[0, 1]) for name in names]
        for name in (f"{group}-x", "no-such-group"):
            yield version, fields(side.request(OffsetFetchRequest(group_id=name, topics=requested), version).topics)
        if version >= 2:
            yield version, fields(side.request(OffsetFetchRequest(group_id=f"{group}-x", topics=None), version).topics)
    for version in (8, 9, 10):
        ids = [(topic, id), ("nowhere", NOBODY)]
        requested = [OffsetFetchRequest.Group.Topic(name=n, topic_id=i, partition_indexes=[0, 1]) for n, i in ids]
        request = OffsetFetchRequest(
            groups=[
                OffsetFetchRequest.Group(group_id=f"{group}-x", topics=requested),
                OffsetFetchRequest.Group(group_id=f"{group}-x", topics=None),
            ]
        )
        yield version, [(g.error_code, fields(g.topics)) for g in side.request(request, version).groups]


def small_apis(side: Side) -> Iterator[Any]:
    for version in range(4):
        found = side.request(FindCoordinatorRequest(key="g", key_type=0), version)
        yield version, found.error_code, found.node_id
    many = side.request(FindCoordinatorRequest(key_type=0, coordinator_keys=["a", "b"]), 4)
    yield [(c.key, c.error_code, c.node_id) for c in many.coordinators]
    for timeout_ms in (0, -1, 900_001):
        requested = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=timeout_ms)
        yield side.request(requested, 5).error_code
    plain_id = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0, producer_id=5, producer_epoch=3)
    responses = [side.until_coordinated(lambda: side.request(plain_id, 5)) for _ in range(2)]
    yield [(a.error_code, a.producer_epoch) for a in responses], responses[0].producer_id != responses[1].producer_id
    yield side.request(InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000), 5).error_code
    for version, kind in [(0, 1), (1, 1), (2, 1), (1, 2)]:
        request = DescribeClusterRequest(endpoint_type=kind, include_cluster_authorized_operations=True)
        response = side.request(request, version)
        yield response.error_code, len(response.brokers), response.cluster_authorized_operations


def epochs(side: Side) -> Iterator[Any]:
    name, id = side.topic()
    side.produce((name, id), plain(b"v", b"w"))

    def send(epoch: int, current: int = -1, topic: str = name, partition: int = 0, version: int = 4) -> Any:
        requested = OffsetForLeaderEpochRequest.Topic.Partition(
            partition=partition, current_leader_epoch=current, leader_epoch=epoch
        )
        topics = [OffsetForLeaderEpochRequest.Topic(topic=topic, partitions=[requested])]
        (found,) = side.request(OffsetForLeaderEpochRequest(replica_id=-1, topics=topics), version).topics[0].partitions
        return found.error_code, found.leader_epoch, found.end_offset

    for version in (2, 3, 4):
        yield version, [send(epoch, version=version) for epoch in (-1, 0, 1, 5)]
    yield (
        [send(0, current) for current in (0, 1)],
        send(0, topic="nowhere"),
        send(0, partition=1),
    )


def deletion_of_records(side: Side) -> Iterator[Any]:
    name, id = side.topic()
    for _ in range(3):
        side.produce((name, id), plain(b"v", b"w"))

    def send(offset: int, topic: str = name, partition: int = 0) -> Any:
        requested = DeleteRecordsRequest.Topic.Partition(partition_index=partition, offset=offset)
        topics = [DeleteRecordsRequest.Topic(name=topic, partitions=[requested])]
        (found,) = side.request(DeleteRecordsRequest(topics=topics, timeout_ms=5000)).topics[0].partitions
        return found.error_code, found.low_watermark

    yield (
        [send(offset) for offset in (3, 1, 7, -2, -1)],
        send(0, "nowhere"),
        send(0, partition=1),
    )
    yield side.fetch((name, id), 5)[0], side.fetch((name, id), 6)
    yield side.produce((name, id), plain(b"v"))
    yield send(0, side.topic(configs={"cleanup.policy": "compact"})[0])


def more_partitions(side: Side) -> Iterator[Any]:
    name, _ = side.topic(2)

    def send(count: int, topic: str = name, assigned: list[list[int]] | None = None) -> Any:
        assignments = None
        if assigned is not None:
            assignments = [CreatePartitionsRequest.Topic.Assignment(broker_ids=ids) for ids in assigned]
        topics = [CreatePartitionsRequest.Topic(name=topic, count=count, assignments=assignments)]
        (found,) = side.request(CreatePartitionsRequest(topics=topics, timeout_ms=5000, validate_only=False)).results
        return found.error_code

    yield [send(count) for count in (2, 1, 0, -1)], send(3, "nowhere")
    yield (
        send(4, assigned=[[1]]),
        send(3, assigned=[]),
        send(3, assigned=[[9]]),
        send(3, assigned=[[1, 1]]),
    )
    yield send(3), send(4, assigned=[[1]])
    side.until_led(name, 4)


def configs(side: Side) -> Iterator[Any]:
    name, _ = side.topic(configs={"retention.ms": "1000"})

    def send(version: int, names: list[str] | None = None, type: int = 2, resource: str = name, **more: bool) -> Any:
        requested = DescribeConfigsRequest.Resource(
            resource_type=type, resource_name=resource, configuration_keys=names
        )
        (found,) = side.request(DescribeConfigsRequest(resources=[requested], **more), version).results
        # The source of these two depends on the start of the real broker.
        shown = {
            c.name: (
                c.value, c.read_only, c.config_type, c.is_sensitive,
                c.name in ("max.message.bytes", "min.insync.replicas") or c.config_source,
            )
            for c in found.configs
        }  # fmt: skip
        return found.error_code, dict(sorted(shown.items()))

    for version in range(1, 5):
        yield version, send(version)
    yield send(4, ["retention.ms", "nonsense"]), send(4, [])
    yield send(4, resource="nowhere"), send(4, resource="a/b"), send(4, type=99)[0]
    yield send(4, type=4, resource="9")[0], send(4, ["num.partitions"], type=4, resource="1")[0]

    def alter(*changes: tuple[str, int, str | None], resource: str = name, type: int = 2) -> Any:
        altered = [
            IncrementalAlterConfigsRequest.Resource.Config(name=n, config_operation=o, value=v) for n, o, v in changes
        ]
        resources = [
            IncrementalAlterConfigsRequest.Resource(resource_type=type, resource_name=resource, configs=altered)
        ]
        request = IncrementalAlterConfigsRequest(resources=resources, validate_only=False)
        return codes(side.request(request).responses)

    yield "wrong", alter(("nonsense", 0, "1")), alter(("retention.ms", 0, "x")), alter(("retention.ms", 2, "1"))
    yield "wrong", alter(("retention.ms", 0, None))
    yield "wrong", alter(("retention.ms", 0, "1"), resource="nowhere")
    yield "wrong", alter(("retention.ms", 0, "1"), ("retention.ms", 0, "2"))
    yield "right", alter(("max.message.bytes", 0, "500"), ("retention.ms", 1, None), ("cleanup.policy", 2, "compact"))
    wanted = ["max.message.bytes", "retention.ms", "cleanup.policy"]
    yield (
        "right",
        wait_for(lambda: send(4, wanted), lambda fields: fields[1]["max.message.bytes"][0] == "500"),
    )
    yield "right", alter(("cleanup.policy", 3, "delete"))
    yield (
        "right",
        wait_for(lambda: send(4, wanted), lambda fields: fields[1]["cleanup.policy"][0] == "compact"),
    )


def groups_as_seen_from_outside(side: Side) -> Iterator[Any]:
    topic, _ = side.topic()
    other, _ = side.topic()
    group, empty = side.case, f"{side.case}-empty"

    def describe(version: int, *names: str) -> Any:
        found = side.request(DescribeGroupsRequest(groups=list(names)), version).groups
        return sorted(
            (g.group_id, g.error_code, g.error_message, g.group_state, g.protocol_type, g.protocol_data,
             [(m.client_id, m.client_host, m.member_metadata, m.member_assignment) for m in g.members])
            for g in found
        )  # fmt: skip

    def listed(version: int, **more: Any) -> Any:
        found = side.request(ListGroupsRequest(**more), version)
        mine = [g for g in found.groups if g.group_id.startswith(group)]
        return found.error_code, sorted((g.group_id, g.protocol_type, g.group_state, g.group_type) for g in mine)

    def forget(name: str, *topics: str) -> Any:
        requested = [
            OffsetDeleteRequest.Topic(name=t, partitions=[OffsetDeleteRequest.Topic.Partition(partition_index=0)])
            for t in topics
        ]
        found = side.request(OffsetDeleteRequest(group_id=name, topics=requested))
        return found.error_code, [codes(t.partitions) for t in found.topics]

    def delete(*names: str) -> Any:
        results = side.request(DeleteGroupsRequest(groups_names=list(names))).results
        return sorted((result.group_id, result.error_code) for result in results)

    subscription = encode_versioned(ConsumerProtocolSubscription(topics=[topic]), 1)
    protocols = [JoinGroupRequest.Protocol(name="range", metadata=subscription)]
    given = side.join(group, protocols=protocols)
    joined = side.join(group, given.member_id, protocols=protocols)
    yield describe(6, group)
    side.sync(group, joined)
    side.commit(empty, topic)
    for version in range(7):
        yield version, describe(version, group, empty, "no-such-group")
    for version in range(6):
        yield version, listed(version)
    yield listed(5, states_filter=["stable"]), listed(5, states_filter=["Empty"]), listed(5, types_filter=["Classic"])
    yield listed(5, types_filter=["consumer"])
    for name in (topic, other):
        side.commit(group, name, generation=joined.generation_id, member_id=joined.member_id)
    yield forget(group, topic, other), forget(empty, topic), forget("no-such-group", topic)
    yield delete(group, empty, "no-such-group", "")
    yield describe(6, empty)


CASES = [
    bad_records, produce, odd_produce, sequences, fetch, limits_of_fetch, zstd_for_old_fetches, list_offsets,
    odd_list_offsets, metadata, repetitions, topics, values_of_configs, odd_commits, groups, static_members,
    offset_fetch, small_apis, epochs, deletion_of_records, more_partitions, configs, groups_as_seen_from_outside,
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_both_respond_alike(sides: tuple[Side, Side], case: Callable[[Side], Iterator[Any]]) -> None:
    real, embedded = results_by_side(sides, case)
    assert embedded == real
