"""TxnOffsetCommit: how far a group has come, from the transaction's commit on. From v5 on it joins by itself (KIP-890).

With the member and its generation (v3, KIP-447) a member that has lost its partitions is refused.
"""

from __future__ import annotations

from kwire.broker.broker_state import BrokerState
from kwire.broker.exchange import RequestContext
from kwire.broker.groups import UNKNOWN_GENERATION
from kwire.broker.handlers.handler import Handler
from kwire.broker.handlers.transactional import enter
from kwire.broker.offsets import OFFSETS_TOPIC, Committed, Place, offsets_partition
from kwire.broker.producer_ids import Identity
from kwire.errors import BrokerError, ErrorCode
from kwire.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

_FIRST_VERSION_WITH_ABORTABLE = 4
_FIRST_VERSION_THAT_ADDS = 5
_FIRST_VERSION_BY_ID = 6

_Asked = TxnOffsetCommitRequest.Topic
_Result = TxnOffsetCommitResponse.Topic


def handle(
    broker: BrokerState, request: TxnOffsetCommitRequest, exchange: RequestContext, now: float
) -> TxnOffsetCommitResponse:
    """A partition that does not exist has its own error; what is wrong with the rest of them is wrong with all."""
    found = {id(one): _place(broker, asked, one, exchange) for asked in request.topics for one in asked.partitions}
    refused: int = ErrorCode.NONE
    if any(isinstance(place, tuple) for place in found.values()):
        refused = _refused(broker, request, exchange, now)
    topics = []
    for asked in request.topics:
        results = []
        for one in asked.partitions:
            place = found[id(one)]
            code = place if isinstance(place, int) else refused or _commit(broker, request, place, one, now)
            results.append(_Result.Partition(partition_index=one.partition_index, error_code=code))
        topics.append(_Result(name=asked.name, topic_id=asked.topic_id, partitions=results))
    return TxnOffsetCommitResponse(topics=topics)


def _place(broker: BrokerState, asked: _Asked, one: _Asked.Partition, exchange: RequestContext) -> Place | int:
    """The partition, or why there is none."""
    cluster = broker.cluster
    try:
        by_id = exchange.version >= _FIRST_VERSION_BY_ID
        topic = cluster.find_topic_by_id(asked.topic_id) if by_id else cluster.find_topic(asked.name)
        cluster.partition(topic.name, one.partition_index)
    except BrokerError as error:
        return error.code
    place = (topic.name, one.partition_index)
    refused = exchange.refused(*place)
    return place if refused is None else refused


def _refused(broker: BrokerState, request: TxnOffsetCommitRequest, exchange: RequestContext, now: float) -> int:
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if not broker.coordinates(request.group_id):
        return ErrorCode.NOT_COORDINATOR
    try:
        enter(
            broker.cluster, request.transactional_id, Identity(request.producer_id, request.producer_epoch),
            (OFFSETS_TOPIC, offsets_partition(request.group_id)), now,
            adds=exchange.version >= _FIRST_VERSION_THAT_ADDS,
            knows_abortable=exchange.version >= _FIRST_VERSION_WITH_ABORTABLE,
        )  # fmt: skip
    except BrokerError as error:
        return error.code
    return _refused_by_group(broker, request)


def _refused_by_group(broker: BrokerState, request: TxnOffsetCommitRequest) -> ErrorCode:
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
    broker: BrokerState, request: TxnOffsetCommitRequest, place: Place, one: _Asked.Partition, now: float
) -> int:
    committed = Committed(one.committed_offset, one.committed_leader_epoch, one.committed_metadata or "", at=now)
    return broker.cluster.offsets.commit_in_transaction(request.group_id, request.producer_id, place, committed)


def refuse(request: TxnOffsetCommitRequest, code: int, version: int) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            _Result(
                name=asked.name, topic_id=asked.topic_id,
                partitions=[
                    _Result.Partition(partition_index=one.partition_index, error_code=code) for one in asked.partitions
                ],
            )
            for asked in request.topics
        ]
    )  # fmt: skip


def places(broker: BrokerState, request: TxnOffsetCommitRequest) -> list[Place]:
    by_id = broker.cluster.topics_by_id
    return [
        (asked.name or (by_id[asked.topic_id].name if asked.topic_id in by_id else ""), one.partition_index)
        for asked in request.topics
        for one in asked.partitions
    ]


TXN_OFFSET_COMMIT = Handler(TxnOffsetCommitRequest, handle, refuse, places, refuses_places=True)
