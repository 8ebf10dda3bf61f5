"""What is asked of a broker, API by API, in every version that both it and kwire have.

Each function below asks one API in one version, after whatever that needs, and answers the exchange to keep.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

from brokers.cluster import KafkaCluster
from brokers.configuration import HOST, USERS
from brokers.jars import version_numbers

from kwire.errors import ErrorCode
from kwire.protocol import Request, Response
from kwire.protocol.messages.api_versions import ApiVersionsRequest
from kwire.protocol.messages.create_topics import CreateTopicsRequest
from kwire.protocol.messages.delete_topics import DeleteTopicsRequest
from kwire.protocol.messages.describe_cluster import DescribeClusterRequest
from kwire.protocol.messages.fetch import FetchRequest
from kwire.protocol.messages.find_coordinator import FindCoordinatorRequest
from kwire.protocol.messages.heartbeat import HeartbeatRequest
from kwire.protocol.messages.init_producer_id import InitProducerIdRequest
from kwire.protocol.messages.join_group import JoinGroupRequest
from kwire.protocol.messages.leave_group import LeaveGroupRequest
from kwire.protocol.messages.list_offsets import ListOffsetsRequest
from kwire.protocol.messages.metadata import MetadataRequest
from kwire.protocol.messages.offset_commit import OffsetCommitRequest
from kwire.protocol.messages.offset_fetch import OffsetFetchRequest
from kwire.protocol.messages.produce import ProduceRequest
from kwire.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kwire.protocol.messages.sasl_handshake import SaslHandshakeRequest
from kwire.protocol.messages.sync_group import SyncGroupRequest
from kwire.records import encode_batch
from kwire.session.versions import BROKERS_BEFORE_API_VERSIONS, common
from recording.wire import Exchange, Wire

TOPIC = "recorded"
NO_ID = UUID(int=0)
BEYOND_THE_END = 10_000
_PATIENCE_S = 30
_POLL_S = 0.1
_TIMESTAMP_MS = 1_700_000_000_000
# A consumer's subscription, version 0, to TOPIC: what a member of a group tells when it joins.
_SUBSCRIPTION = b"\0\0" + b"\0\0\0\1" + b"\0\x08recorded" + b"\xff\xff\xff\xff"
_ASSIGNMENT = b"\0\0" + b"\0\0\0\1" + b"\0\x08recorded" + b"\0\0\0\1\0\0\0\0" + b"\xff\xff\xff\xff"

R = TypeVar("R", bound=Response)


@dataclass
class Scene:
    """A running broker, what it speaks, and what is known of its topic."""

    cluster: KafkaCluster
    wire: Wire
    offered: Mapping[int, range]
    topic_id: UUID = NO_ID
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def versions(self, request: type[Request[Any]]) -> range:
        both = common(request.VERSIONS, self.offered.get(request.API_KEY, range(0)))
        if request is ProduceRequest and version_numbers(self.cluster.version) >= (4,):
            # Brokers from 4.0 on offer Produce from version 0, so that old librdkafkas take them for new enough, and
            # close the connection on what is older than 3.
            return range(max(3, both.start), both.stop)
        return both

    def newest(self, request: Request[R], at_most: int | None = None) -> R:
        """Ask in the newest version, for what is not recorded."""
        version = self.versions(type(request))[-1]
        return self.wire.ask(request, version if at_most is None else min(version, at_most))

    def new_name(self, kind: str) -> str:
        return f"{kind}-{next(self.numbers)}"


def set_up(cluster: KafkaCluster, wire: Wire) -> Scene:
    """Find out what the broker speaks, and wait until it has the topic and a group coordinator."""
    old = version_numbers(cluster.version) < (0, 10)
    scene = Scene(cluster, wire, BROKERS_BEFORE_API_VERSIONS["0.8.2"] if old else _offered(wire))
    cluster.commands.create_topic(TOPIC, partitions=2)

    def has_leaders() -> bool:
        topic = scene.newest(MetadataRequest(topics=[MetadataRequest.Topic(name=TOPIC)])).topics[0]
        scene.topic_id = topic.topic_id
        return not topic.error_code and all(partition.leader_id > 0 for partition in topic.partitions)

    def has_coordinator() -> bool:
        answer = scene.newest(FindCoordinatorRequest(key="a-group"), at_most=3)
        return not answer.error_code

    def has_producer_ids() -> bool:
        answer = scene.newest(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000))
        return not answer.error_code

    _wait(has_leaders, "leaders of the topic")
    _wait(has_coordinator, "a group coordinator")
    if scene.versions(InitProducerIdRequest):
        _wait(has_producer_ids, "producer ids")
    return scene


def _offered(wire: Wire) -> Mapping[int, range]:
    keys = wire.ask(ApiVersionsRequest(), 0).api_keys
    return {one.api_key: range(one.min_version, one.max_version + 1) for one in keys}


def _wait(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"no {what} after {_PATIENCE_S} s")
        time.sleep(_POLL_S)


def _api_versions(scene: Scene, version: int) -> Exchange:
    request = ApiVersionsRequest(client_software_name="kwire", client_software_version="0.1")
    return scene.wire.exchange(request, version)


def _metadata(scene: Scene, version: int) -> Exchange:
    return scene.wire.exchange(MetadataRequest(topics=[MetadataRequest.Topic(name=TOPIC)]), version)


def _produce(scene: Scene, version: int) -> Exchange:
    plain: Sequence[Any] = [(_TIMESTAMP_MS, b"key", b"value", ()), (_TIMESTAMP_MS + 1, None, None, ())]
    headers = (("header", b"of the record"), ("null", None)) if version >= 3 else ()
    # Only in partition 1: Kafka 0.11 cannot rewrite records with headers for an older Fetch.
    headed: Sequence[Any] = [(_TIMESTAMP_MS, b"key", b"value", headers)]
    magic = 2 if version >= 3 else max(0, version - 1)
    partitions = [
        ProduceRequest.Topic.Partition(index=index, records=encode_batch(records, magic=magic))
        for index, records in enumerate([plain, headed])
    ]
    topic = ProduceRequest.Topic(name=TOPIC, topic_id=scene.topic_id, partition_data=partitions)
    return scene.wire.exchange(ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[topic]), version)


def _fetch(scene: Scene, version: int) -> Exchange:
    part = FetchRequest.Topic.Partition(partition=0, fetch_offset=0, partition_max_bytes=400)
    other = FetchRequest.Topic.Partition(
        partition=1, fetch_offset=0 if version >= 4 else BEYOND_THE_END, partition_max_bytes=400
    )
    topic = FetchRequest.Topic(topic=TOPIC, topic_id=scene.topic_id, partitions=[part, other])
    request = FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=1_000, topics=[topic])
    return scene.wire.exchange(request, version)


def _list_offsets(scene: Scene, version: int) -> Exchange:
    kind = ListOffsetsRequest.Topic.Partition
    partitions = [kind(partition_index=0, timestamp=-2), kind(partition_index=1, timestamp=-1)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsRequest.Topic(name=TOPIC, partitions=partitions)])
    return scene.wire.exchange(request, version)


def _find_coordinator(scene: Scene, version: int) -> Exchange:
    asked: dict[str, Any] = {"coordinator_keys": ["a-group"]} if version >= 4 else {"key": "a-group"}
    return scene.wire.exchange(FindCoordinatorRequest(**asked), version)


def _init_producer_id(scene: Scene, version: int) -> Exchange:
    return scene.wire.exchange(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), version)


def _create_topics(scene: Scene, version: int) -> Exchange:
    kind = CreateTopicsRequest.Topic
    config = kind.Config(name="cleanup.policy", value="compact")
    by_count = kind(name=scene.new_name("created"), num_partitions=2, replication_factor=1, configs=[config])
    assignment = kind.Assignment(partition_index=0, broker_ids=[1])
    by_hand = kind(name=scene.new_name("assigned"), num_partitions=-1, replication_factor=-1, assignments=[assignment])
    return scene.wire.exchange(CreateTopicsRequest(topics=[by_count, by_hand], timeout_ms=10_000), version)


def _delete_topics(scene: Scene, version: int) -> Exchange:
    name = scene.new_name("deleted")
    topic = CreateTopicsRequest.Topic(name=name, num_partitions=1, replication_factor=1)
    created = scene.newest(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
    assert not created.topics[0].error_code
    if version >= 6:
        request = DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name=name)], timeout_ms=10_000)
    else:
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000)
    return scene.wire.exchange(request, version)


def _join_request(group: str, member_id: str) -> JoinGroupRequest:
    protocols = [JoinGroupRequest.Protocol(name="range", metadata=_SUBSCRIPTION)]
    return JoinGroupRequest(
        group_id=group, session_timeout_ms=10_000, rebalance_timeout_ms=10_000, member_id=member_id,
        protocol_type="consumer", protocols=protocols, reason="to be recorded",
    )  # fmt: skip


def _join_group(scene: Scene, version: int) -> Exchange:
    group = scene.new_name("group")
    exchange = scene.wire.exchange(_join_request(group, ""), version)
    answer: Any = exchange.response
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        exchange = scene.wire.exchange(_join_request(group, answer.member_id), version)
    return exchange


def _member(scene: Scene) -> tuple[str, int, str]:
    """A group with one member in it: (group, generation, member id)."""
    exchange = _join_group(scene, scene.versions(JoinGroupRequest)[-1])
    request: Any = exchange.request
    response: Any = exchange.response
    return request.group_id, response.generation_id, response.member_id


def _sync_request(group: str, generation: int, member: str) -> SyncGroupRequest:
    assignments = [SyncGroupRequest.Assignment(member_id=member, assignment=_ASSIGNMENT)]
    return SyncGroupRequest(
        group_id=group, generation_id=generation, member_id=member, assignments=assignments,
        protocol_type="consumer", protocol_name="range",
    )  # fmt: skip


def _stable_member(scene: Scene) -> tuple[str, int, str]:
    group, generation, member = _member(scene)
    assert not scene.newest(_sync_request(group, generation, member)).error_code
    return group, generation, member


def _sync_group(scene: Scene, version: int) -> Exchange:
    return scene.wire.exchange(_sync_request(*_member(scene)), version)


def _heartbeat(scene: Scene, version: int) -> Exchange:
    group, generation, member = _stable_member(scene)
    return scene.wire.exchange(HeartbeatRequest(group_id=group, generation_id=generation, member_id=member), version)


def _leave_group(scene: Scene, version: int) -> Exchange:
    group, _, member = _stable_member(scene)
    if version >= 3:
        request = LeaveGroupRequest(group_id=group, members=[LeaveGroupRequest.Member(member_id=member, reason="done")])
    else:
        request = LeaveGroupRequest(group_id=group, member_id=member)
    return scene.wire.exchange(request, version)


def _offset_commit(scene: Scene, version: int) -> Exchange:
    kind = OffsetCommitRequest.Topic.Partition
    partitions = [
        kind(partition_index=0, committed_offset=1, committed_metadata="noted"),
        kind(partition_index=1, committed_offset=2, committed_metadata=None if version >= 2 else ""),
    ]
    topic = OffsetCommitRequest.Topic(name=TOPIC, topic_id=scene.topic_id, partitions=partitions)
    return scene.wire.exchange(OffsetCommitRequest(group_id="committed", topics=[topic]), version)


def _offset_fetch(scene: Scene, version: int) -> Exchange:
    if version >= 8:
        kind = OffsetFetchRequest.Group.Topic
        topics = [kind(name=TOPIC, topic_id=scene.topic_id, partition_indexes=[0, 1])]
        request = OffsetFetchRequest(groups=[OffsetFetchRequest.Group(group_id="committed", topics=topics)])
    else:
        asked = [OffsetFetchRequest.Topic(name=TOPIC, partition_indexes=[0, 1])]
        request = OffsetFetchRequest(group_id="committed", topics=asked)
    return scene.wire.exchange(request, version)


def _sasl_handshake(scene: Scene, version: int) -> Exchange:
    with Wire(HOST, scene.cluster.port(1, "sasl")) as wire:
        return wire.exchange(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), version)


def _sasl_authenticate(scene: Scene, version: int) -> Exchange:
    with Wire(HOST, scene.cluster.port(1, "sasl")) as wire:
        wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        credentials = f"\0alice\0{USERS['alice']}".encode()
        return wire.exchange(SaslAuthenticateRequest(auth_bytes=credentials), version)


def _describe_cluster(scene: Scene, version: int) -> Exchange:
    return scene.wire.exchange(DescribeClusterRequest(include_cluster_authorized_operations=True), version)


# In this order: what is fetched must have been produced, what is read back committed.
APIS: Sequence[tuple[type[Request[Any]], Callable[[Scene, int], Exchange]]] = (
    (ApiVersionsRequest, _api_versions),
    (MetadataRequest, _metadata),
    (InitProducerIdRequest, _init_producer_id),
    (ProduceRequest, _produce),
    (FetchRequest, _fetch),
    (ListOffsetsRequest, _list_offsets),
    (FindCoordinatorRequest, _find_coordinator),
    (OffsetCommitRequest, _offset_commit),
    (OffsetFetchRequest, _offset_fetch),
    (JoinGroupRequest, _join_group),
    (SyncGroupRequest, _sync_group),
    (HeartbeatRequest, _heartbeat),
    (LeaveGroupRequest, _leave_group),
    (CreateTopicsRequest, _create_topics),
    (DeleteTopicsRequest, _delete_topics),
    (DescribeClusterRequest, _describe_cluster),
    (SaslHandshakeRequest, _sasl_handshake),
    (SaslAuthenticateRequest, _sasl_authenticate),
)
