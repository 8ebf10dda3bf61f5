"""OffsetForLeaderEpoch: where an epoch ended, so that a consumer finds out what of its reading is gone (KIP-320)."""

from __future__ import annotations

from kwire.broker.broker_state import BrokerState
from kwire.broker.exchange import RequestContext
from kwire.broker.handlers.handler import Handler
from kwire.errors import BrokerError, ErrorCode, broker_error
from kwire.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse

_Asked = OffsetForLeaderEpochRequest.Topic.Partition
_Result = OffsetForLeaderEpochResponse.Topic.Partition


def handle(
    broker: BrokerState, request: OffsetForLeaderEpochRequest, exchange: RequestContext, now: float
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderEpochResponse.Topic(
                topic=topic.topic, partitions=[_find(broker, exchange, topic.topic, one) for one in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _find(broker: BrokerState, exchange: RequestContext, topic: str, asked: _Asked) -> _Result:
    try:
        refused = exchange.refused(topic, asked.partition)
        if refused is not None:
            raise broker_error(refused)
        partition = broker.cluster.partition(topic, asked.partition)
        partition.check_leader(broker.id, asked.current_leader_epoch)
    except BrokerError as error:
        return _Result(error_code=error.code, partition=asked.partition)
    epoch, end = partition.log.end_of_epoch(asked.leader_epoch)
    return _Result(error_code=ErrorCode.NONE, partition=asked.partition, leader_epoch=epoch, end_offset=end)


def refuse(request: OffsetForLeaderEpochRequest, code: int, version: int) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderEpochResponse.Topic(
                topic=topic.topic,
                partitions=[_Result(error_code=code, partition=asked.partition) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def places(broker: BrokerState, request: OffsetForLeaderEpochRequest) -> list[tuple[str, int]]:
    return [(topic.topic, asked.partition) for topic in request.topics for asked in topic.partitions]


OFFSET_FOR_LEADER_EPOCH = Handler(OffsetForLeaderEpochRequest, handle, refuse, places, refuses_places=True)
