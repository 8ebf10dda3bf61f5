"""Handle DescribeQuorum (KIP-595): return who has the cluster's metadata. All brokers are controllers, too."""

from __future__ import annotations

from kwire.broker.authorizer import Operation
from kwire.broker.broker import Broker
from kwire.broker.handlers.handler import Handler, needs_cluster
from kwire.broker.request_context import RequestContext
from kwire.errors import ErrorCode
from kwire.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse

_FIRST_VERSION_WITH_NODES = 2
_TOPIC = "__cluster_metadata"
_Topic = DescribeQuorumResponse.Topic
_Partition = DescribeQuorumResponse.Topic.Partition
_Node = DescribeQuorumResponse.Node


def handle(
    broker: Broker, request: DescribeQuorumRequest, context: RequestContext, now: float
) -> DescribeQuorumResponse:
    topics = [
        _Topic(
            topic_name=topic.topic_name,
            partitions=[
                _described(broker, now) if (topic.topic_name, part.partition_index) == (_TOPIC, 0)
                else _unknown(part.partition_index)
                for part in topic.partitions
            ],
        )
        for topic in request.topics
    ]  # fmt: skip
    if context.version < _FIRST_VERSION_WITH_NODES:
        return DescribeQuorumResponse(error_code=ErrorCode.NONE, topics=topics)
    nodes = [
        _Node(node_id=node.id, listeners=[_Node.Listener(name="CONTROLLER", host=node.host, port=node.port)])
        for node in broker.cluster.nodes.values()
    ]
    return DescribeQuorumResponse(error_code=ErrorCode.NONE, topics=topics, nodes=nodes)


def _described(broker: Broker, now: float) -> _Partition:
    cluster = broker.cluster
    end, wall_ms = cluster.topics_revision + 1, cluster.wall_ms(now)
    voters = [
        _Partition.Replica(
            replica_id=node.id, log_end_offset=end, last_fetch_timestamp=wall_ms, last_caught_up_timestamp=wall_ms
        )
        for node in cluster.nodes.values()
    ]
    return _Partition(
        partition_index=0, error_code=ErrorCode.NONE, leader_id=cluster.controller_id, leader_epoch=1,
        high_watermark=end, current_voters=voters, observers=[],
    )  # fmt: skip


def _unknown(index: int) -> _Partition:
    return _Partition(
        partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message="This server does not host this topic-partition.", leader_id=0, leader_epoch=0,
        high_watermark=0, current_voters=[], observers=[],
    )  # fmt: skip


def error_response(request: DescribeQuorumRequest, code: int, version: int) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(error_code=code, topics=[])


DESCRIBE_QUORUM = Handler(DescribeQuorumRequest, handle, error_response, authorize=needs_cluster(Operation.DESCRIBE))
