"""Handle WriteTxnMarkers (KIP-98): end a transaction in partitions, whatever its coordinator knows.

Brokers and administrators send it.
"""

from __future__ import annotations

from kwire.broker.authorizer import CLUSTER_NAME, Access, Operation, ResourceType
from kwire.broker.broker import Broker
from kwire.broker.handlers.handler import Handler
from kwire.broker.offsets import OFFSETS_PARTITIONS, OFFSETS_TOPIC, TopicPartition
from kwire.broker.request_context import RequestContext
from kwire.errors import BrokerError, ErrorCode
from kwire.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

_Marker = WriteTxnMarkersRequest.Marker
_Result = WriteTxnMarkersResponse.Marker


def handle(
    broker: Broker, request: WriteTxnMarkersRequest, context: RequestContext, now: float
) -> WriteTxnMarkersResponse:
    results = []
    for marker in request.markers:
        topics = []
        for topic in marker.topics:
            indexes = topic.partition_indexes
            codes = [(index, _write(broker, marker, topic.name, index, context, now)) for index in indexes]
            topics.append(_topic(topic.name, codes))
        results.append(_Result(producer_id=marker.producer_id, topics=topics))
    return WriteTxnMarkersResponse(markers=results)


def _write(broker: Broker, marker: _Marker, topic: str, index: int, context: RequestContext, now: float) -> int:
    injected = context.injected_error(topic, index)
    if injected is not None:
        return injected
    cluster = broker.cluster
    if topic == OFFSETS_TOPIC and 0 <= index < OFFSETS_PARTITIONS:
        cluster.offsets.complete_transaction(marker.producer_id, index, is_commit=marker.transaction_result)
        return ErrorCode.NONE
    try:
        partition = cluster.partition(topic, index)
        partition.check_leader(broker.id)
        partition.append_marker(
            "commit" if marker.transaction_result else "abort", producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch, coordinator_epoch=marker.coordinator_epoch, now=now,
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


def authorize(request: WriteTxnMarkersRequest, access: Access, version: int) -> None:
    if not access.allows(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        access.require_cluster(Operation.CLUSTER_ACTION)


def error_response(request: WriteTxnMarkersRequest, code: int, version: int) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            _Result(
                producer_id=marker.producer_id,
                topics=[_topic(topic.name, [(i, code) for i in topic.partition_indexes]) for topic in marker.topics],
            )
            for marker in request.markers
        ]
    )


def named_partitions(broker: Broker, request: WriteTxnMarkersRequest) -> list[TopicPartition]:
    return [
        (topic.name, index)
        for marker in request.markers
        for topic in marker.topics
        for index in topic.partition_indexes
    ]


WRITE_TXN_MARKERS = Handler(
    WriteTxnMarkersRequest,
    handle,
    error_response,
    named_partitions,
    supports_partition_errors=True,
    authorize=authorize,
)
