"""Handle TxnOffsetCommit: store a group's offsets, valid from the transaction's commit on.

Since v5 (KIP-890) it adds the offsets to the transaction itself. Since v3 (KIP-447) it names the member and the
generation, so that a member that has lost its partitions is fenced.
"""

from __future__ import annotations

from kwire.broker.broker import Broker
from kwire.broker.groups import UNKNOWN_GENERATION
from kwire.broker.handlers.handler import Handler
from kwire.broker.handlers.transactional import add_or_verify
from kwire.broker.ids import ProducerIdAndEpoch
from kwire.broker.offsets import OFFSETS_TOPIC, OffsetAndMetadata, TopicPartition, offsets_partition
from kwire.broker.request_context import RequestContext
from kwire.errors import BrokerError, ErrorCode
from kwire.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

_FIRST_VERSION_WITH_ABORTABLE = 4
_FIRST_VERSION_THAT_ADDS = 5
_FIRST_VERSION_BY_ID = 6

_Topic = TxnOffsetCommitRequest.Topic
_Result = TxnOffsetCommitResponse.Topic


def handle(
    broker: Broker, request: TxnOffsetCommitRequest, context: RequestContext, now: float
) -> TxnOffsetCommitResponse:
    """Handle the request. A partition that does not exist has its own error; any other error applies to all others."""
    resolved = {
        id(requested): _find(broker, topic, requested, context)
        for topic in request.topics
        for requested in topic.partitions
    }
    error: int = ErrorCode.NONE
    if any(isinstance(partition, tuple) for partition in resolved.values()):
        error = _check(broker, request, context, now)
    topics = []
    for topic in request.topics:
        results = []
        for requested in topic.partitions:
            partition = resolved[id(requested)]
            code = (
                partition
                if isinstance(partition, int)
                else error or _commit(broker, request, partition, requested, now)
            )
            results.append(_Result.Partition(partition_index=requested.partition_index, error_code=code))
        topics.append(_Result(name=topic.name, topic_id=topic.topic_id, partitions=results))
    return TxnOffsetCommitResponse(topics=topics)


def _find(broker: Broker, topic: _Topic, requested: _Topic.Partition, context: RequestContext) -> TopicPartition | int:
    """Return the partition, or the error code if there is none."""
    cluster = broker.cluster
    try:
        by_id = context.version >= _FIRST_VERSION_BY_ID
        stored_topic = cluster.find_topic_by_id(topic.topic_id) if by_id else cluster.find_topic(topic.name)
        cluster.partition(stored_topic.name, requested.partition_index)
    except BrokerError as error:
        return error.code
    partition = (stored_topic.name, requested.partition_index)
    injected = context.injected_error(*partition)
    return partition if injected is None else injected


def _check(broker: Broker, request: TxnOffsetCommitRequest, context: RequestContext, now: float) -> int:
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if not broker.coordinates(request.group_id):
        return ErrorCode.NOT_COORDINATOR
    try:
        add_or_verify(
            broker.cluster, request.transactional_id, ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            (OFFSETS_TOPIC, offsets_partition(request.group_id)), now,
            adds=context.version >= _FIRST_VERSION_THAT_ADDS,
            supports_abortable=context.version >= _FIRST_VERSION_WITH_ABORTABLE,
        )  # fmt: skip
    except BrokerError as error:
        return error.code
    return _check_group(broker, request)


def _check_group(broker: Broker, request: TxnOffsetCommitRequest) -> ErrorCode:
    groups = broker.cluster.groups
    generation = request.generation_id_or_member_epoch
    group = groups.get(request.group_id)
    if group is None and generation > UNKNOWN_GENERATION:
        return ErrorCode.ILLEGAL_GENERATION
    group = group or groups.get_or_create(request.group_id)
    if group is None:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return groups.check_transactional_commit(group, generation, request.member_id, request.group_instance_id)


def _commit(
    broker: Broker, request: TxnOffsetCommitRequest, partition: TopicPartition, requested: _Topic.Partition, now: float
) -> int:
    committed = OffsetAndMetadata(
        requested.committed_offset, requested.committed_leader_epoch, requested.committed_metadata or "", at=now
    )
    return broker.cluster.offsets.commit_in_transaction(request.group_id, request.producer_id, partition, committed)


def error_response(request: TxnOffsetCommitRequest, code: int, version: int) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            _Result(
                name=topic.name, topic_id=topic.topic_id,
                partitions=[
                    _Result.Partition(partition_index=requested.partition_index, error_code=code)
                    for requested in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )  # fmt: skip


def named_partitions(broker: Broker, request: TxnOffsetCommitRequest) -> list[TopicPartition]:
    by_id = broker.cluster.topics_by_id
    return [
        (topic.name or (by_id[topic.topic_id].name if topic.topic_id in by_id else ""), requested.partition_index)
        for topic in request.topics
        for requested in topic.partitions
    ]


TXN_OFFSET_COMMIT = Handler(
    TxnOffsetCommitRequest, handle, error_response, named_partitions, supports_partition_errors=True
)
