"""Handle AlterPartitionReassignments (KIP-455): give partitions other replicas, or cancel that."""

from __future__ import annotations

from kwire.broker.authorizer import Operation
from kwire.broker.broker import Broker
from kwire.broker.handlers.handler import Handler, needs_cluster
from kwire.broker.request_context import RequestContext
from kwire.errors import BrokerError, ErrorCode
from kwire.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)

_Topic = AlterPartitionReassignmentsResponse.Topic


def handle(
    broker: Broker, request: AlterPartitionReassignmentsRequest, context: RequestContext, now: float
) -> AlterPartitionReassignmentsResponse:
    reassignments = broker.cluster.reassignments
    topics = []
    for topic in request.topics:
        results = []
        for named in topic.partitions:
            result = _Topic.Partition(
                partition_index=named.partition_index, error_code=ErrorCode.NONE, error_message=None
            )
            try:
                if named.replicas is None:
                    reassignments.cancel((topic.name, named.partition_index), now)
                else:
                    allows_change = request.allow_replication_factor_change
                    reassignments.start(
                        (topic.name, named.partition_index), named.replicas, now, may_resize=allows_change
                    )
            except BrokerError as error:
                result.error_code, result.error_message = error.code, error.broker_message
            results.append(result)
        topics.append(_Topic(name=topic.name, partitions=results))
    return AlterPartitionReassignmentsResponse(error_code=ErrorCode.NONE, error_message=None, responses=topics)


def error_response(
    request: AlterPartitionReassignmentsRequest, code: int, version: int
) -> AlterPartitionReassignmentsResponse:
    topics = [
        _Topic(
            name=topic.name,
            partitions=[
                _Topic.Partition(partition_index=named.partition_index, error_code=code, error_message=None)
                for named in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return AlterPartitionReassignmentsResponse(error_code=code, error_message=None, responses=topics)


def named_partitions(broker: Broker, request: AlterPartitionReassignmentsRequest) -> list[tuple[str, int]]:
    return [(topic.name, named.partition_index) for topic in request.topics for named in topic.partitions]


ALTER_PARTITION_REASSIGNMENTS = Handler(
    AlterPartitionReassignmentsRequest,
    handle,
    error_response,
    named_partitions,
    authorize=needs_cluster(Operation.ALTER),
)
