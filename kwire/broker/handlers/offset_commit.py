"""OffsetCommit: store how far a group has come. A consumer without a group's members may store under its name too."""

from __future__ import annotations

from kwire.broker.broker_state import BrokerState
from kwire.broker.exchange import RequestContext
from kwire.broker.groups import UNKNOWN_GENERATION
from kwire.broker.handlers.handler import Handler
from kwire.broker.offsets import Committed
from kwire.errors import BrokerError, ErrorCode
from kwire.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse

_FIRST_VERSION_WITH_GROUP_ERROR = 9
_FIRST_VERSION_BY_ID = 10

_Asked = OffsetCommitRequest.Topic


def handle(
    broker: BrokerState, request: OffsetCommitRequest, exchange: RequestContext, now: float
) -> OffsetCommitResponse:
    error = _check(broker, request, exchange.version, now)
    if error is not ErrorCode.NONE:
        return refuse(request, error, exchange.version)
    topics = []
    for asked in request.topics:
        results = [
            OffsetCommitResponse.Topic.Partition(
                partition_index=one.partition_index,
                error_code=_commit(broker, request, exchange, asked, one, now),
            )
            for one in asked.partitions
        ]
        topics.append(OffsetCommitResponse.Topic(name=asked.name, topic_id=asked.topic_id, partitions=results))
    return OffsetCommitResponse(topics=topics)


def _check(broker: BrokerState, request: OffsetCommitRequest, version: int, now: float) -> ErrorCode:
    if not broker.coordinates(request.group_id):
        return ErrorCode.NOT_COORDINATOR
    groups = broker.cluster.groups
    generation = request.generation_id_or_member_epoch
    group = groups.get(request.group_id)
    if group is None:
        if generation != UNKNOWN_GENERATION:
            known = version >= _FIRST_VERSION_WITH_GROUP_ERROR
            return ErrorCode.GROUP_ID_NOT_FOUND if known else ErrorCode.ILLEGAL_GENERATION
        group = groups.get_or_create(request.group_id)
        if group is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return groups.check_commit(group, generation, request.member_id, request.group_instance_id, now)


def _commit(
    broker: BrokerState,
    request: OffsetCommitRequest,
    exchange: RequestContext,
    asked: _Asked,
    one: _Asked.Partition,
    now: float,
) -> int:
    cluster = broker.cluster
    try:
        by_id = exchange.version >= _FIRST_VERSION_BY_ID
        topic = cluster.find_topic_by_id(asked.topic_id) if by_id else cluster.find_topic(asked.name)
        cluster.partition(topic.name, one.partition_index)
    except BrokerError as error:
        return error.code
    refused = exchange.refused(topic.name, one.partition_index)
    if refused is not None:
        return refused
    retention_ms = request.retention_time_ms
    committed = Committed(
        one.committed_offset, one.committed_leader_epoch, one.committed_metadata or "", at=now,
        expires_at=now + retention_ms / 1000 if retention_ms >= 0 else None,
    )  # fmt: skip
    return cluster.offsets.commit(request.group_id, (topic.name, one.partition_index), committed)


def refuse(request: OffsetCommitRequest, code: int, version: int) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponse.Topic(
                name=asked.name, topic_id=asked.topic_id,
                partitions=[
                    OffsetCommitResponse.Topic.Partition(partition_index=one.partition_index, error_code=code)
                    for one in asked.partitions
                ],
            )
            for asked in request.topics
        ]
    )  # fmt: skip


def places(broker: BrokerState, request: OffsetCommitRequest) -> list[tuple[str, int]]:
    return [(asked.name, one.partition_index) for asked in request.topics for one in asked.partitions]


OFFSET_COMMIT = Handler(OffsetCommitRequest, handle, refuse, places, refuses_places=True)
