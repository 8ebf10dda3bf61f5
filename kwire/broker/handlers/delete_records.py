"""DeleteRecords: raise where partitions begin; -1 stands for the high watermark."""

from __future__ import annotations

from kwire.broker.broker_state import BrokerState
from kwire.broker.exchange import RequestContext
from kwire.broker.handlers.handler import Handler
from kwire.errors import BrokerError, ErrorCode, broker_error
from kwire.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse

_HIGH_WATERMARK = -1

_Asked = DeleteRecordsRequest.Topic.Partition
_Result = DeleteRecordsResponse.Topic.Partition


def handle(
    broker: BrokerState, request: DeleteRecordsRequest, exchange: RequestContext, now: float
) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsResponse.Topic(
                name=topic.name, partitions=[_delete(broker, exchange, topic.name, one) for one in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _delete(broker: BrokerState, exchange: RequestContext, topic: str, asked: _Asked) -> _Result:
    try:
        refused = exchange.refused(topic, asked.partition_index)
        if refused is not None:
            raise broker_error(refused)
        partition = broker.cluster.partition(topic, asked.partition_index)
        partition.check_leader(broker.id)
        if not partition.settings.is_deleted:
            raise broker_error(ErrorCode.POLICY_VIOLATION, "the topic's cleanup.policy does not delete")
        log = partition.log
        start = log.delete_before(log.high_watermark if asked.offset == _HIGH_WATERMARK else asked.offset)
    except BrokerError as error:
        return _Result(partition_index=asked.partition_index, low_watermark=-1, error_code=error.code)
    return _Result(partition_index=asked.partition_index, low_watermark=start, error_code=ErrorCode.NONE)


def refuse(request: DeleteRecordsRequest, code: int, version: int) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsResponse.Topic(
                name=topic.name,
                partitions=[
                    _Result(partition_index=asked.partition_index, low_watermark=-1, error_code=code)
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def places(broker: BrokerState, request: DeleteRecordsRequest) -> list[tuple[str, int]]:
    return [(topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions]


DELETE_RECORDS = Handler(DeleteRecordsRequest, handle, refuse, places, refuses_places=True)
