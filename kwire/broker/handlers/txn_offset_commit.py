"""Handle TxnOffsetCommit: store a group's offsets, valid from the transaction's commit on.

Since v5 (KIP-890) it adds the offsets to the transaction itself. Since v3 (KIP-447) it names the member and the
generation, so that a member that has lost its partitions is fenced.
"""

from __future__ import annotations

from kwire.broker.authorizer import Access, Operation, ResourceType
from kwire.broker.broker import Broker
from kwire.broker.consumer_group import ConsumerGroup
from kwire.broker.consumer_groups import Commit
from kwire.broker.groups import UNKNOWN_GENERATION, Group
from kwire.broker.handlers.handler import Handler, find_topic
from kwire.broker.handlers.offset_commit import check_partitions
from kwire.broker.handlers.transactional import add_or_verify
from kwire.broker.ids import ProducerIdAndEpoch
from kwire.broker.offsets import OFFSETS_TOPIC, OffsetAndMetadata, TopicPartition, offsets_partition
from kwire.broker.request_context import RequestContext
from kwire.broker.streams_group import StreamsGroup
from kwire.errors import BrokerError, ErrorCode, broker_error
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
        id = topic.topic_id if by_id else None
        stored_topic = find_topic(broker, context.access, Operation.READ, topic.name, id)
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
    try:
        _check_group(broker, request, context.version)
    except BrokerError as error:
        return error.code
    return ErrorCode.NONE


def _check_group(broker: Broker, request: TxnOffsetCommitRequest, version: int) -> None:
    """Raise BrokerError unless the member may commit. Before v6, clients know neither of two errors of newer groups."""
    cluster = broker.cluster
    generation = request.generation_id_or_member_epoch
    group = cluster.group_registry.get(request.group_id)
    by_id = version >= _FIRST_VERSION_BY_ID
    if isinstance(group, ConsumerGroup):
        commit = Commit(request.member_id, generation, request.group_instance_id, is_transactional=True)
        try:
            check = cluster.consumer_groups.check_commit(group, commit)
            check_partitions(broker, check, request.topics, by_id=by_id)
        except BrokerError as error:
            if error.code == ErrorCode.STALE_MEMBER_EPOCH and not by_id:
                raise broker_error(ErrorCode.ILLEGAL_GENERATION, error.broker_message or "") from None
            raise
        return
    if isinstance(group, StreamsGroup):
        is_anonymous = not request.member_id  # a client before KIP-447
        cluster.streams_groups.check_member(
            group, request.member_id, generation, is_optional=is_anonymous or not group.members
        )
        return
    if group is None and generation <= UNKNOWN_GENERATION:
        group = cluster.groups.get_or_create(request.group_id)
        if group is None:
            raise broker_error(ErrorCode.COORDINATOR_NOT_AVAILABLE, "there are max_groups groups already")
    if not isinstance(group, Group):
        code = ErrorCode.GROUP_ID_NOT_FOUND if by_id else ErrorCode.ILLEGAL_GENERATION
        raise broker_error(code, f"there is no group {request.group_id}")
    code = cluster.groups.check_transactional_commit(group, generation, request.member_id, request.group_instance_id)
    if code is not ErrorCode.NONE:
        raise broker_error(code, f"member {request.member_id} may not commit")


def _commit(
    broker: Broker, request: TxnOffsetCommitRequest, partition: TopicPartition, requested: _Topic.Partition, now: float
) -> int:
    committed = OffsetAndMetadata(
        requested.committed_offset, requested.committed_leader_epoch, requested.committed_metadata or "", at=now
    )
    return broker.cluster.offsets.commit_in_transaction(request.group_id, request.producer_id, partition, committed)


def authorize(request: TxnOffsetCommitRequest, access: Access, version: int) -> None:
    access.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    access.require_group(Operation.READ, request.group_id)


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
    TxnOffsetCommitRequest,
    handle,
    error_response,
    named_partitions,
    supports_partition_errors=True,
    authorize=authorize,
)
