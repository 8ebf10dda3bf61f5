"""Handle OffsetCommit: store a group's offsets.

A consumer that is not a member may store offsets in an empty group.
"""

from __future__ import annotations

from collections.abc import Sequence

from kwire.broker.authorizer import Operation
from kwire.broker.broker import Broker
from kwire.broker.consumer_group import ConsumerGroup
from kwire.broker.consumer_groups import Commit, CommitCheck
from kwire.broker.groups import UNKNOWN_GENERATION, Group
from kwire.broker.handlers.handler import Handler, find_topic, needs_group
from kwire.broker.offsets import OffsetAndMetadata
from kwire.broker.request_context import RequestContext
from kwire.broker.streams_group import StreamsGroup
from kwire.errors import BrokerError, ErrorCode, broker_error
from kwire.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kwire.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

_FIRST_VERSION_WITH_GROUP_ERROR = 9
_FIRST_VERSION_BY_ID = 10

_Topic = OffsetCommitRequest.Topic


def handle(broker: Broker, request: OffsetCommitRequest, context: RequestContext, now: float) -> OffsetCommitResponse:
    group_error: int = ErrorCode.NONE
    # Kafka asks the coordinator only about what exists; nothing else makes a group.
    if any(not _missing(broker, context, topic, one) for topic in request.topics for one in topic.partitions):
        try:
            check = _check(broker, request, context.version, now)
            check_partitions(broker, check, request.topics, by_id=context.version >= _FIRST_VERSION_BY_ID)
        except BrokerError as error:
            group_error = error.code
    topics = []
    for topic in request.topics:
        results = [
            OffsetCommitResponse.Topic.Partition(
                partition_index=partition.partition_index,
                error_code=_commit(broker, request, context, topic, partition, now, group_error),
            )
            for partition in topic.partitions
        ]
        topics.append(OffsetCommitResponse.Topic(name=topic.name, topic_id=topic.topic_id, partitions=results))
    return OffsetCommitResponse(topics=topics)


def _check(broker: Broker, request: OffsetCommitRequest, version: int, now: float) -> CommitCheck:
    """Return what has to hold for each partition. Raises BrokerError if the member may not commit."""
    broker.check_coordinates(request.group_id)
    cluster = broker.cluster
    generation = request.generation_id_or_member_epoch
    group = cluster.group_registry.get(request.group_id)
    if isinstance(group, ConsumerGroup):
        commit = Commit(request.member_id, generation, request.group_instance_id, version)
        return cluster.consumer_groups.check_commit(group, commit)
    if isinstance(group, StreamsGroup):
        cluster.streams_groups.check_member(group, request.member_id, generation, is_optional=not group.members)
        return CommitCheck()
    if group is None and generation <= UNKNOWN_GENERATION:
        group = cluster.groups.get_or_create(request.group_id)
        if group is None:
            raise broker_error(ErrorCode.COORDINATOR_NOT_AVAILABLE, "there are max_groups groups already")
    if not isinstance(group, Group):
        known = version >= _FIRST_VERSION_WITH_GROUP_ERROR and cluster.options.is_at_least("4.0")
        code = ErrorCode.GROUP_ID_NOT_FOUND if known else ErrorCode.ILLEGAL_GENERATION
        raise broker_error(code, f"there is no group {request.group_id}")
    error = cluster.groups.check_commit(group, generation, request.member_id, request.group_instance_id, now)
    if error is not ErrorCode.NONE:
        raise broker_error(error, f"member {request.member_id} may not commit")
    return CommitCheck()


def check_partitions(
    broker: Broker,
    check: CommitCheck,
    topics: Sequence[_Topic | TxnOffsetCommitRequest.Topic],
    *,
    by_id: bool,
) -> None:
    """Check each partition that exists (KIP-1251). One that is stale rejects the whole request."""
    for topic in topics:
        known = broker.cluster.topics_by_id.get(topic.topic_id) if by_id else broker.cluster.topics.get(topic.name)
        if known is None:
            continue
        for requested in topic.partitions:
            check.check((known.id, requested.partition_index))


def _commit(
    broker: Broker,
    request: OffsetCommitRequest,
    context: RequestContext,
    topic: _Topic,
    partition: _Topic.Partition,
    now: float,
    group_error: int,
) -> int:
    cluster = broker.cluster
    error = _missing(broker, context, topic, partition) or group_error
    if error:
        return error
    name = cluster.find_topic_by_id(topic.topic_id).name if context.version >= _FIRST_VERSION_BY_ID else topic.name
    injected = context.injected_error(name, partition.partition_index)
    if injected is not None:
        return injected
    retention_ms = request.retention_time_ms
    committed = OffsetAndMetadata(
        partition.committed_offset, partition.committed_leader_epoch, partition.committed_metadata or "", at=now,
        expires_at=now + retention_ms / 1000 if retention_ms >= 0 else None,
    )  # fmt: skip
    return cluster.offsets.commit(request.group_id, (name, partition.partition_index), committed)


def _missing(broker: Broker, context: RequestContext, topic: _Topic, partition: _Topic.Partition) -> int:
    """Return the error of a partition that does not exist or that the client may not read, else NONE."""
    id = topic.topic_id if context.version >= _FIRST_VERSION_BY_ID else None
    try:
        found = find_topic(broker, context.access, Operation.READ, topic.name, id)
        broker.cluster.partition(found.name, partition.partition_index)
    except BrokerError as error:
        return error.code
    return ErrorCode.NONE


def error_response(request: OffsetCommitRequest, code: int, version: int) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponse.Topic(
                name=topic.name, topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponse.Topic.Partition(partition_index=partition.partition_index, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )  # fmt: skip


def named_partitions(broker: Broker, request: OffsetCommitRequest) -> list[tuple[str, int]]:
    return [(topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions]


OFFSET_COMMIT = Handler(
    OffsetCommitRequest,
    handle,
    error_response,
    named_partitions,
    supports_partition_errors=True,
    authorize=needs_group(Operation.READ),
)
