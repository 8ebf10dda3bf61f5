"""Handle ListPartitionReassignments (KIP-455): return the partitions that wait for replicas on stopped brokers."""

from __future__ import annotations

from kwire.broker.authorizer import Operation
from kwire.broker.broker import Broker
from kwire.broker.handlers.handler import Handler, needs_cluster
from kwire.broker.request_context import RequestContext
from kwire.errors import ErrorCode
from kwire.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

_Topic = ListPartitionReassignmentsResponse.Topic


def handle(
    broker: Broker, request: ListPartitionReassignmentsRequest, context: RequestContext, now: float
) -> ListPartitionReassignmentsResponse:
    wanted = None
    if request.topics is not None:
        wanted = {(topic.name, index) for topic in request.topics for index in topic.partition_indexes}
    topics: dict[str, _Topic] = {}
    for one in broker.cluster.reassignments:
        topic, index = one.partition.topic, one.partition.index
        if wanted is None or (topic, index) in wanted:
            result = _Topic.Partition(
                partition_index=index, replicas=list(one.partition.replicas), adding_replicas=one.adding,
                removing_replicas=one.removing,
            )  # fmt: skip
            topics.setdefault(topic, _Topic(name=topic, partitions=[])).partitions.append(result)
    return ListPartitionReassignmentsResponse(
        error_code=ErrorCode.NONE, error_message=None, topics=list(topics.values())
    )


def error_response(
    request: ListPartitionReassignmentsRequest, code: int, version: int
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_code=code, error_message=None, topics=[])


LIST_PARTITION_REASSIGNMENTS = Handler(
    ListPartitionReassignmentsRequest, handle, error_response, authorize=needs_cluster(Operation.DESCRIBE)
)
