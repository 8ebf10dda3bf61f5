"""Handle DescribeTopicPartitions (KIP-966): return topics and their partitions in pages.

Topics come in the order of their names. A response has at most `response_partition_limit` partitions; its cursor is
where the next request goes on.
"""

from __future__ import annotations

from kwire.broker.authorizer import ResourceType
from kwire.broker.broker import Broker
from kwire.broker.cluster_state import Topic, check_topic_name
from kwire.broker.faults import NO_PARTITION
from kwire.broker.handlers.handler import Handler
from kwire.broker.ids import NO_ID
from kwire.broker.partition import NO_LEADER, Partition
from kwire.broker.request_context import RequestContext
from kwire.errors import BrokerError, ErrorCode, broker_error
from kwire.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)

_PARTITIONS_MAX = 2_000
_Topic = DescribeTopicPartitionsResponse.Topic
_Cursor = DescribeTopicPartitionsResponse.Cursor


def handle(
    broker: Broker, request: DescribeTopicPartitionsRequest, context: RequestContext, now: float
) -> DescribeTopicPartitionsResponse:
    access, cluster = context.access, broker.cluster
    names = sorted(
        {topic.name for topic in request.topics} or {name for name in cluster.topics if access.describes(name)}
    )
    first_topic, first_partition = "", 0
    if request.cursor is not None:
        first_topic, first_partition = request.cursor.topic_name, request.cursor.partition_index
        names = [name for name in names if name >= first_topic]
    left = max(1, min(request.response_partition_limit, _PARTITIONS_MAX))
    refused: list[_Topic] = []
    topics: list[_Topic] = []
    for name in names:
        try:
            if not access.describes(name):
                raise broker_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            check_topic_name(name)
            topic = cluster.find_topic(name)
        except BrokerError as error:
            found = _error(name, error.code)
            if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                found.topic_authorized_operations = access.operations(ResourceType.TOPIC, name)
            (refused if error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED else topics).append(found)
            continue
        if left == 0:
            return _response(topics, refused, _Cursor(topic_name=name, partition_index=0))
        start = first_partition if name == first_topic else 0
        chosen = topic.partitions[start : start + left]
        left -= len(chosen)
        operations = access.operations(ResourceType.TOPIC, name)
        topics.append(_described(broker, topic, chosen, operations))
        if start + len(chosen) < len(topic.partitions):
            return _response(topics, refused, _Cursor(topic_name=name, partition_index=start + len(chosen)))
    return _response(topics, refused, None)


def _response(topics: list[_Topic], refused: list[_Topic], cursor: _Cursor | None) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(topics=topics + refused, next_cursor=cursor)


def _described(broker: Broker, topic: Topic, partitions: list[Partition], operations: int) -> _Topic:
    return _Topic(
        error_code=ErrorCode.NONE, name=topic.name, topic_id=topic.id, is_internal=topic.is_internal,
        partitions=[_partition(broker, partition) for partition in partitions],
        topic_authorized_operations=operations,
    )  # fmt: skip


def _partition(broker: Broker, partition: Partition) -> _Topic.Partition:
    leader = broker.cluster.told_leader(broker.id, partition)
    return _Topic.Partition(
        error_code=ErrorCode.NONE if leader != NO_LEADER else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=partition.index, leader_id=leader, leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas), isr_nodes=list(partition.isr), eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=[node for node in partition.replicas if not broker.cluster.nodes[node].is_up],
    )  # fmt: skip


def _error(name: str, code: int) -> _Topic:
    return _Topic(error_code=code, name=name, topic_id=NO_ID, partitions=[])


def error_response(request: DescribeTopicPartitionsRequest, code: int, version: int) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(topics=[_error(topic.name, code) for topic in request.topics])


def named_partitions(broker: Broker, request: DescribeTopicPartitionsRequest) -> list[tuple[str, int]]:
    return [(topic.name, NO_PARTITION) for topic in request.topics]


DESCRIBE_TOPIC_PARTITIONS = Handler(DescribeTopicPartitionsRequest, handle, error_response, named_partitions)
