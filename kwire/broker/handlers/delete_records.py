"""Handle DeleteRecords (KIP-107): move the start of partitions forward. Offset -1 means the high watermark."""

from __future__ import annotations

from kwire.broker.authorizer import Operation
from kwire.broker.broker import Broker
from kwire.broker.handlers.handler import Handler
from kwire.broker.request_context import RequestContext
from kwire.errors import BrokerError, ErrorCode, broker_error
from kwire.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse

_HIGH_WATERMARK = -1

_Requested = DeleteRecordsRequest.Topic.Partition
_Result = DeleteRecordsResponse.Topic.Partition


def handle(broker: Broker, request: DeleteRecordsRequest, context: RequestContext, now: float) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsResponse.Topic(
                name=topic.name,
                partitions=[_delete(broker, context, topic.name, partition) for partition in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _delete(broker: Broker, context: RequestContext, topic: str, requested: _Requested) -> _Result:
    try:
        context.access.require_topic(Operation.DELETE, topic)
        injected = context.injected_error(topic, requested.partition_index)
        if injected is not None:
            raise broker_error(injected)
        partition = broker.cluster.partition(topic, requested.partition_index)
        partition.check_leader(broker.id)
        if not partition.settings.is_deleted:
            raise broker_error(ErrorCode.POLICY_VIOLATION, "the topic's cleanup.policy does not delete")
        log = partition.log
        start = log.delete_before(log.high_watermark if requested.offset == _HIGH_WATERMARK else requested.offset)
    except BrokerError as error:
        return _Result(partition_index=requested.partition_index, low_watermark=-1, error_code=error.code)
    return _Result(partition_index=requested.partition_index, low_watermark=start, error_code=ErrorCode.NONE)


def error_response(request: DeleteRecordsRequest, code: int, version: int) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsResponse.Topic(
                name=topic.name,
                partitions=[
                    _Result(partition_index=requested.partition_index, low_watermark=-1, error_code=code)
                    for requested in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def named_partitions(broker: Broker, request: DeleteRecordsRequest) -> list[tuple[str, int]]:
    return [(topic.name, requested.partition_index) for topic in request.topics for requested in topic.partitions]


DELETE_RECORDS = Handler(DeleteRecordsRequest, handle, error_response, named_partitions, supports_partition_errors=True)
