"""Handle ShareAcknowledge (KIP-932, KIP-1222): accept, release, reject or renew records of a share session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from kwire.broker.authorizer import Operation
from kwire.broker.broker import Broker
from kwire.broker.handlers.handler import Handler, LeaderHints, find_topic, needs_group
from kwire.broker.request_context import RequestContext
from kwire.broker.share_coordinator import ShareKey
from kwire.broker.share_partition import Acknowledgement
from kwire.broker.share_sessions import FINAL_EPOCH, INITIAL_EPOCH, SessionKey
from kwire.errors import BrokerError, ErrorCode, broker_error
from kwire.protocol.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse

_Result = ShareAcknowledgeResponse.Topic.Partition
_MEMBER_ID_MAX = 36
NO_LEADER_HINT = (-1, -1)


class _Batch(Protocol):
    @property
    def first_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def acknowledge_types(self) -> Sequence[int]: ...


def session_key(broker: Broker, group_id: str | None, member_id: str | None) -> SessionKey:
    """Return the session that a request means.

    Raises INVALID_REQUEST without a group or a member, and UNSUPPORTED_VERSION where share groups are off.
    """
    if not broker.cluster.options.share_level:
        raise broker_error(ErrorCode.UNSUPPORTED_VERSION, "share groups are off")
    if not group_id or not member_id or len(member_id) > _MEMBER_ID_MAX:
        raise broker_error(ErrorCode.INVALID_REQUEST, f"no share session for {member_id!r} in group {group_id!r}")
    return SessionKey(broker.id, group_id, member_id)


def acknowledge(
    broker: Broker,
    context: RequestContext,
    session: SessionKey,
    topic_id: UUID,
    index: int,
    batches: Sequence[_Batch],
    now: float,
    *,
    renews: bool,
) -> None:
    """Apply the acknowledgements of one partition. Raises BrokerError."""
    topic = find_topic(broker, context.access, Operation.READ, None, topic_id)
    refused = context.injected_error(topic.name, index)
    if refused is not None:
        raise broker_error(refused)
    found = [Acknowledgement(batch.first_offset, batch.last_offset, batch.acknowledge_types) for batch in batches]
    key = ShareKey(session.group, topic_id, index)
    broker.cluster.share_partitions.acknowledge(broker.id, key, session.member, found, now, renews=renews)


def handle(
    broker: Broker, request: ShareAcknowledgeRequest, context: RequestContext, now: float
) -> ShareAcknowledgeResponse:
    cluster = broker.cluster
    manager = cluster.share_partitions
    try:
        key = session_key(broker, request.group_id, request.member_id)
        if request.share_session_epoch == INITIAL_EPOCH:
            raise broker_error(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "only ShareFetch opens a session")
        session = manager.sessions.find(key, request.share_session_epoch)
    except BrokerError as error:
        return error_response(request, error.code, context.version, error.broker_message)
    if request.share_session_epoch != FINAL_EPOCH:
        session.advance()
    hints = LeaderHints(cluster, context.listener)
    responses = []
    for topic in request.topics:
        results = []
        for named in topic.partitions:
            result = _result(named.partition_index, ErrorCode.NONE)
            try:
                acknowledge(
                    broker, context, key, topic.topic_id, named.partition_index, named.acknowledgement_batches, now,
                    renews=request.is_renew_ack,
                )  # fmt: skip
            except BrokerError as error:
                result = _result(named.partition_index, error.code, error.broker_message)
                if hints.applies_to(error.code):
                    partition = cluster.topics_by_id[topic.topic_id].partitions[named.partition_index]
                    leader, epoch = hints.leader_of(partition)
                    result.current_leader = _Result.Leader(leader_id=leader, leader_epoch=epoch)
            results.append(result)
        responses.append(ShareAcknowledgeResponse.Topic(topic_id=topic.topic_id, partitions=results))
    if request.share_session_epoch == FINAL_EPOCH:
        manager.close_session(key, now)
    return ShareAcknowledgeResponse(
        error_code=ErrorCode.NONE, responses=responses,
        acquisition_lock_timeout_ms=cluster.group_configs.of(key.group).share_record_lock_ms,
        node_endpoints=[
            ShareAcknowledgeResponse.NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
            for node in hints.nodes()
        ],
    )  # fmt: skip


def _result(index: int, code: int, message: str | None = None) -> _Result:
    leader, epoch = NO_LEADER_HINT
    return _Result(
        partition_index=index, error_code=code, error_message=message,
        current_leader=_Result.Leader(leader_id=leader, leader_epoch=epoch),
    )  # fmt: skip


def error_response(
    request: ShareAcknowledgeRequest, code: int, version: int, message: str | None = None
) -> ShareAcknowledgeResponse:
    return ShareAcknowledgeResponse(error_code=code, error_message=message, responses=[], node_endpoints=[])


def named_partitions(broker: Broker, request: ShareAcknowledgeRequest) -> list[tuple[str, int]]:
    by_id = broker.cluster.topics_by_id
    return [
        (by_id[topic.topic_id].name, named.partition_index)
        for topic in request.topics
        if topic.topic_id in by_id
        for named in topic.partitions
    ]


SHARE_ACKNOWLEDGE = Handler(
    ShareAcknowledgeRequest,
    handle,
    error_response,
    named_partitions,
    supports_partition_errors=True,
    authorize=needs_group(Operation.READ),
)
