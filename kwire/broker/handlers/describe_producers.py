"""Handle DescribeProducers (KIP-664): return a partition's producers and the start of their open transactions."""

from __future__ import annotations

from kwire.broker.authorizer import Operation
from kwire.broker.broker import Broker
from kwire.broker.cluster_state import check_topic_name
from kwire.broker.handlers.handler import Handler
from kwire.broker.partition import Partition
from kwire.broker.request_context import RequestContext
from kwire.errors import BrokerError, ErrorCode
from kwire.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse

NO_OFFSET = -1

_Topic = DescribeProducersResponse.Topic
_Result = DescribeProducersResponse.Topic.Partition


def handle(
    broker: Broker, request: DescribeProducersRequest, context: RequestContext, now: float
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            _Topic(
                name=topic.name,
                partitions=[_describe(broker, topic.name, index, context) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _describe(broker: Broker, topic: str, index: int, context: RequestContext) -> _Result:
    try:
        context.access.require_topic(Operation.READ, topic)
        check_topic_name(topic)
        partition = broker.cluster.partition(topic, index)
        partition.check_replica(broker.id)
    except BrokerError as error:
        return _error_result(index, error.code)
    injected = context.injected_error(topic, index)
    if injected is not None:
        return _error_result(index, injected)
    return _Result(partition_index=index, error_code=ErrorCode.NONE, active_producers=_producers(partition))


def _producers(partition: Partition) -> list[_Result.Producer]:
    producers = partition.log.producers
    found = [(producer, producers.open_transaction_offset(producer.producer_id)) for producer in producers]
    return [
        _Result.Producer(
            producer_id=producer.producer_id, producer_epoch=producer.epoch, last_sequence=producer.last_sequence,
            last_timestamp=producer.last_ms, coordinator_epoch=producer.coordinator_epoch,
            current_txn_start_offset=NO_OFFSET if start is None else start,
        )
        for producer, start in found
    ]  # fmt: skip


def _error_result(index: int, code: int) -> _Result:
    return _Result(partition_index=index, error_code=code, active_producers=[])


def error_response(request: DescribeProducersRequest, code: int, version: int) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            _Topic(name=topic.name, partitions=[_error_result(index, code) for index in topic.partition_indexes])
            for topic in request.topics
        ]
    )


def named_partitions(broker: Broker, request: DescribeProducersRequest) -> list[tuple[str, int]]:
    return [(topic.name, index) for topic in request.topics for index in topic.partition_indexes]


DESCRIBE_PRODUCERS = Handler(
    DescribeProducersRequest, handle, error_response, named_partitions, supports_partition_errors=True
)
