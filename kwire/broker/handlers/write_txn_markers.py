"""WriteTxnMarkers: end a transaction in partitions, whatever its coordinator knows; brokers and administrators ask."""

from __future__ import annotations

from kwire.broker.broker_state import BrokerState
from kwire.broker.exchange import RequestContext
from kwire.broker.handlers.handler import Handler
from kwire.broker.offsets import OFFSETS_PARTITIONS, OFFSETS_TOPIC
from kwire.broker.transactions import Place
from kwire.errors import BrokerError, ErrorCode
from kwire.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

_Asked = WriteTxnMarkersRequest.Marker
_Result = WriteTxnMarkersResponse.Marker


def handle(
    broker: BrokerState, request: WriteTxnMarkersRequest, exchange: RequestContext, now: float
) -> WriteTxnMarkersResponse:
    results = []
    for asked in request.markers:
        topics = []
        for topic in asked.topics:
            indexes = topic.partition_indexes
            codes = [(index, _write(broker, asked, topic.name, index, exchange, now)) for index in indexes]
            topics.append(_topic(topic.name, codes))
        results.append(_Result(producer_id=asked.producer_id, topics=topics))
    return WriteTxnMarkersResponse(markers=results)


def _write(broker: BrokerState, asked: _Asked, topic: str, index: int, exchange: RequestContext, now: float) -> int:
    refused = exchange.refused(topic, index)
    if refused is not None:
        return refused
    cluster = broker.cluster
    if topic == OFFSETS_TOPIC and 0 <= index < OFFSETS_PARTITIONS:
        cluster.offsets.settle(asked.producer_id, index, is_commit=asked.transaction_result)
        return ErrorCode.NONE
    try:
        partition = cluster.partition(topic, index)
        partition.check_leader(broker.id)
        partition.append_marker(
            "commit" if asked.transaction_result else "abort", producer_id=asked.producer_id,
            producer_epoch=asked.producer_epoch, coordinator_epoch=asked.coordinator_epoch, now=now,
            wall_ms=cluster.wall_ms(now),
        )  # fmt: skip
    except BrokerError as error:
        return error.code
    return ErrorCode.NONE


def _topic(name: str, codes: list[tuple[int, int]]) -> _Result.Topic:
    return _Result.Topic(
        name=name,
        partitions=[_Result.Topic.Partition(partition_index=index, error_code=code) for index, code in codes],
    )


def refuse(request: WriteTxnMarkersRequest, code: int, version: int) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            _Result(
                producer_id=asked.producer_id,
                topics=[_topic(topic.name, [(i, code) for i in topic.partition_indexes]) for topic in asked.topics],
            )
            for asked in request.markers
        ]
    )


def places(broker: BrokerState, request: WriteTxnMarkersRequest) -> list[Place]:
    return [
        (topic.name, index) for asked in request.markers for topic in asked.topics for index in topic.partition_indexes
    ]


WRITE_TXN_MARKERS = Handler(WriteTxnMarkersRequest, handle, refuse, places, refuses_places=True)
