"""Handle OffsetForLeaderEpoch (KIP-320): return where an epoch ends, so that consumers detect truncation."""

from __future__ import annotations

from kwire.broker.authorizer import CLUSTER_NAME, Operation, ResourceType
from kwire.broker.broker import Broker
from kwire.broker.handlers.handler import Handler
from kwire.broker.request_context import RequestContext
from kwire.errors import BrokerError, ErrorCode, broker_error
from kwire.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse

_Requested = OffsetForLeaderEpochRequest.Topic.Partition
_Result = OffsetForLeaderEpochResponse.Topic.Partition


def handle(
    broker: Broker, request: OffsetForLeaderEpochRequest, context: RequestContext, now: float
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderEpochResponse.Topic(
                topic=topic.topic,
                partitions=[_end_offset(broker, context, topic.topic, partition) for partition in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _end_offset(broker: Broker, context: RequestContext, topic: str, requested: _Requested) -> _Result:
    try:
        if not context.access.allows(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):  # a follower
            context.access.require_topic(Operation.DESCRIBE, topic)
        injected = context.injected_error(topic, requested.partition)
        if injected is not None:
            raise broker_error(injected)
        partition = broker.cluster.partition(topic, requested.partition)
        partition.check_leader(broker.id, requested.current_leader_epoch)
    except BrokerError as error:
        return _Result(error_code=error.code, partition=requested.partition)
    epoch, end = partition.log.end_of_epoch(requested.leader_epoch)
    return _Result(error_code=ErrorCode.NONE, partition=requested.partition, leader_epoch=epoch, end_offset=end)


def error_response(request: OffsetForLeaderEpochRequest, code: int, version: int) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderEpochResponse.Topic(
                topic=topic.topic,
                partitions=[_Result(error_code=code, partition=requested.partition) for requested in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def named_partitions(broker: Broker, request: OffsetForLeaderEpochRequest) -> list[tuple[str, int]]:
    return [(topic.topic, requested.partition) for topic in request.topics for requested in topic.partitions]


OFFSET_FOR_LEADER_EPOCH = Handler(
    OffsetForLeaderEpochRequest, handle, error_response, named_partitions, supports_partition_errors=True
)
