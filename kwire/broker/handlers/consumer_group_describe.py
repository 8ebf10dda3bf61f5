"""Handle ConsumerGroupDescribe (KIP-848): epochs, members, and what each has and will have."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from uuid import UUID

from kwire.broker.broker import Broker
from kwire.broker.consumer_group import ConsumerGroup, ConsumerMember, grouped
from kwire.broker.current_assignment import NO_PARTITIONS, TopicIdPartition
from kwire.broker.handlers.group_description import authorized_description
from kwire.broker.handlers.handler import Handler
from kwire.broker.request_context import RequestContext
from kwire.errors import ErrorCode
from kwire.protocol.messages.consumer_group_describe import (
    ConsumerGroupAssignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)

# Member types (KIP-1099).
CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1

_Result = ConsumerGroupDescribeResponse.Group


def handle(
    broker: Broker, request: ConsumerGroupDescribeRequest, context: RequestContext, now: float
) -> ConsumerGroupDescribeResponse:
    if not broker.cluster.options.has_consumer_groups:
        return error_response(request, ErrorCode.UNSUPPORTED_VERSION, context.version)
    return ConsumerGroupDescribeResponse(
        groups=[
            authorized_description(
                context.access,
                group_id,
                partial(_describe, broker, group_id),
                _error_group,
                with_operations=request.include_authorized_operations,
            )
            for group_id in request.group_ids
        ]
    )


def _describe(broker: Broker, group_id: str, operations: int) -> _Result:
    if not group_id:
        return _error_group(group_id, ErrorCode.INVALID_GROUP_ID)
    if not broker.coordinates(group_id):
        return _error_group(group_id, ErrorCode.NOT_COORDINATOR)
    group = broker.cluster.consumer_groups.get(group_id)
    if group is None:
        exists = group_id in broker.cluster.group_registry
        why = f"Group {group_id} {'is not a consumer group' if exists else 'not found'}."
        return _error_group(group_id, ErrorCode.GROUP_ID_NOT_FOUND, why)
    names = {id: topic.name for id, topic in broker.cluster.topics_by_id.items()}
    return _Result(
        error_code=ErrorCode.NONE, group_id=group_id, group_state=group.state_name, group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch, assignor_name=group.assignor,
        members=[_member(group, member, names) for member in group.members.values()],
        authorized_operations=operations,
    )  # fmt: skip


def _member(group: ConsumerGroup, member: ConsumerMember, names: dict[UUID, str]) -> _Result.Member:
    return _Result.Member(
        member_id=member.id, instance_id=member.instance_id, rack_id=member.rack_id, member_epoch=member.epoch,
        client_id=member.client_id, client_host=f"/{member.client_host}",
        subscribed_topic_names=sorted(member.topics), subscribed_topic_regex=member.regex,
        # What it still has to revoke is part of what it has.
        assignment=_assignment([*member.current.assigned, *member.current.pending_revocation], names),
        target_assignment=_assignment(group.targets.get(member.id, NO_PARTITIONS), names),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )  # fmt: skip


def _assignment(parts: Iterable[TopicIdPartition], names: dict[UUID, str]) -> ConsumerGroupAssignment:
    """Return partitions by topic. Deleted topics have no name, and are left out."""
    return ConsumerGroupAssignment(
        topic_partitions=[
            ConsumerGroupAssignment.TopicPartitions(topic_id=topic, topic_name=names[topic], partitions=partitions)
            for topic, partitions in grouped(parts).items()
            if topic in names
        ]
    )


def _error_group(group_id: str, code: int, message: str | None = None) -> _Result:
    return _Result(
        error_code=code, error_message=message, group_id=group_id, group_state="", group_epoch=0, assignment_epoch=0,
        assignor_name="", members=[],
    )  # fmt: skip


def error_response(request: ConsumerGroupDescribeRequest, code: int, version: int) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(groups=[_error_group(group_id, code) for group_id in request.group_ids])


CONSUMER_GROUP_DESCRIBE = Handler(ConsumerGroupDescribeRequest, handle, error_response)
