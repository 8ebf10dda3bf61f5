"""Handle ConsumerGroupHeartbeat (KIP-848): a member joins, reports what it owns, gets its assignment, or leaves.

Where consumer groups are off, it returns UNSUPPORTED_VERSION, as Kafka does where `group.version` is 0. If the API were
missing, the client would wait silently for ever.
"""

from __future__ import annotations

from kwire.broker.authorizer import Access, Operation
from kwire.broker.broker import Broker
from kwire.broker.consumer_group import grouped
from kwire.broker.consumer_groups import Heartbeat, HeartbeatResult
from kwire.broker.diagnostics import logger
from kwire.broker.handlers.handler import Handler
from kwire.broker.request_context import RequestContext
from kwire.errors import BrokerError, ErrorCode
from kwire.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

_FIRST_VERSION_WITH_OWN_ID = 1

_OFF = "the consumer protocol (KIP-848) is off in this cluster: use group.protocol=classic"

_Assignment = ConsumerGroupHeartbeatResponse.Assignment


def handle(
    broker: Broker, request: ConsumerGroupHeartbeatRequest, context: RequestContext, now: float
) -> ConsumerGroupHeartbeatResponse:
    if not broker.cluster.options.has_consumer_groups:
        _log_rejection(broker, request.group_id, context)
        return error_response(request, ErrorCode.UNSUPPORTED_VERSION, context.version, _OFF)
    if not broker.coordinates(request.group_id):
        return error_response(request, ErrorCode.NOT_COORDINATOR, context.version)
    owned = request.topic_partitions
    beat = Heartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        epoch=request.member_epoch,
        client_id=context.client_id,
        client_host=context.client_host,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=None if request.subscribed_topic_names is None else frozenset(request.subscribed_topic_names),
        regex=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=None
        if owned is None
        else frozenset((topic.topic_id, partition) for topic in owned for partition in topic.partitions),
        makes_own_id=context.version >= _FIRST_VERSION_WITH_OWN_ID,
    )
    try:
        return _response(broker.cluster.consumer_groups.heartbeat(beat, now))
    except BrokerError as error:
        return error_response(request, error.code, context.version, error.broker_message)


def _log_rejection(broker: Broker, group: str, context: RequestContext) -> None:
    """Log a rejection once for each client and group: clients repeat the request."""
    key = (context.client_host, context.client_id, group)
    if key not in broker.cluster.rejected_members:
        broker.cluster.rejected_members.add(key)
        client = f"client {context.client_id!r} at {context.client_host}"
        logger.warning("broker %d rejects %s as a member of group %s: %s", broker.id, client, group, _OFF)


def _response(result: HeartbeatResult) -> ConsumerGroupHeartbeatResponse:
    assignment = None
    if result.assigned is not None:
        topics = grouped(result.assigned)
        parts = [_Assignment.TopicPartitions(topic_id=topic, partitions=numbers) for topic, numbers in topics.items()]
        assignment = _Assignment(topic_partitions=parts)
    return ConsumerGroupHeartbeatResponse(
        error_code=ErrorCode.NONE, member_id=result.member_id, member_epoch=result.epoch,
        heartbeat_interval_ms=result.interval_ms, assignment=assignment,
    )  # fmt: skip


def authorize(request: ConsumerGroupHeartbeatRequest, access: Access, version: int) -> None:
    access.require_group(Operation.READ, request.group_id)
    for topic in request.subscribed_topic_names or ():
        access.require_topic(Operation.DESCRIBE, topic)


def error_response(
    request: ConsumerGroupHeartbeatRequest, code: int, version: int, message: str | None = None
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=code, error_message=message, member_epoch=0, heartbeat_interval_ms=0
    )


CONSUMER_GROUP_HEARTBEAT = Handler(ConsumerGroupHeartbeatRequest, handle, error_response, authorize=authorize)
