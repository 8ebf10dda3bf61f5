"""DescribeProducers: the producers that a partition knows, and where their open transactions begin."""

from __future__ import annotations

from kwire.broker.broker_state import BrokerState
from kwire.broker.exchange import RequestContext
from kwire.broker.handlers.handler import Handler
from kwire.broker.partition import Partition
from kwire.broker.state import check_topic_name
from kwire.errors import BrokerError, ErrorCode
from kwire.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse

NO_OFFSET = -1

_Topic = DescribeProducersResponse.Topic
_Result = DescribeProducersResponse.Topic.Partition


def handle(
    broker: BrokerState, request: DescribeProducersRequest, exchange: RequestContext, now: float
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            _Topic(
                name=topic.name,
                partitions=[_describe(broker, topic.name, index, exchange) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _describe(broker: BrokerState, topic: str, index: int, exchange: RequestContext) -> _Result:
    try:
        check_topic_name(topic)
        partition = broker.cluster.partition(topic, index)
        partition.check_replica(broker.id)
    except BrokerError as error:
        return _failed(index, error.code)
    refused = exchange.refused(topic, index)
    if refused is not None:
        return _failed(index, refused)
    return _Result(partition_index=index, error_code=ErrorCode.NONE, active_producers=_producers(partition))


def _producers(partition: Partition) -> list[_Result.Producer]:
    producers = partition.log.producers
    found = [(producer, producers.open_offset(producer.producer_id)) for producer in producers]
    return [
        _Result.Producer(
            producer_id=producer.producer_id, producer_epoch=producer.epoch, last_sequence=producer.last_sequence,
            last_timestamp=producer.last_ms, coordinator_epoch=producer.coordinator_epoch,
            current_txn_start_offset=NO_OFFSET if start is None else start,
        )
        for producer, start in found
    ]  # fmt: skip


def _failed(index: int, code: int) -> _Result:
    return _Result(partition_index=index, error_code=code, active_producers=[])


def refuse(request: DescribeProducersRequest, code: int, version: int) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            _Topic(name=topic.name, partitions=[_failed(index, code) for index in topic.partition_indexes])
            for topic in request.topics
        ]
    )


def places(broker: BrokerState, request: DescribeProducersRequest) -> list[tuple[str, int]]:
    return [(topic.name, index) for topic in request.topics for index in topic.partition_indexes]


DESCRIBE_PRODUCERS = Handler(DescribeProducersRequest, handle, refuse, places, refuses_places=True)
