"""Handle ShareGroupDescribe (KIP-932): return the state, the members and the assignments of share groups."""

from __future__ import annotations

from functools import partial

from kwire.broker.broker import Broker
from kwire.broker.handlers.group_description import authorized_description
from kwire.broker.handlers.handler import Handler
from kwire.broker.request_context import RequestContext
from kwire.broker.share_assignor import NAME
from kwire.broker.share_groups import ShareMember
from kwire.errors import BrokerError, ErrorCode
from kwire.protocol.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse

_Result = ShareGroupDescribeResponse.Group
_Assignment = _Result.Member.Assignment


def handle(
    broker: Broker, request: ShareGroupDescribeRequest, context: RequestContext, now: float
) -> ShareGroupDescribeResponse:
    return ShareGroupDescribeResponse(
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
    try:
        broker.check_coordinates(group_id)
        group = broker.cluster.share_groups.find(group_id)
    except BrokerError as error:
        return _error_group(group_id, error.code, error.broker_message)
    return _Result(
        error_code=ErrorCode.NONE, group_id=group_id, group_state=group.state_name, group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch, assignor_name=NAME,
        members=[_member(broker, member) for member in group.members.values()], authorized_operations=operations,
    )  # fmt: skip


def _member(broker: Broker, member: ShareMember) -> _Result.Member:
    topics = broker.cluster.topics
    assigned = [
        _Assignment.TopicPartitions(
            topic_id=topics[name].id, topic_name=name,
            partitions=sorted(index for topic, index in member.assigned if topic == name),
        )
        for name in sorted({name for name, _ in member.assigned})
        if name in topics
    ]  # fmt: skip
    return _Result.Member(
        member_id=member.id, rack_id=member.rack, member_epoch=member.epoch, client_id=member.client_id,
        client_host=f"/{member.client_host}", subscribed_topic_names=sorted(member.topics),
        assignment=_Assignment(topic_partitions=assigned),
    )  # fmt: skip


def _error_group(group_id: str, code: int, message: str | None = None) -> _Result:
    return _Result(
        error_code=code, error_message=message, group_id=group_id, group_state="", group_epoch=0, assignment_epoch=0,
        assignor_name="", members=[],
    )  # fmt: skip


def error_response(request: ShareGroupDescribeRequest, code: int, version: int) -> ShareGroupDescribeResponse:
    return ShareGroupDescribeResponse(groups=[_error_group(group_id, code) for group_id in request.group_ids])


SHARE_GROUP_DESCRIBE = Handler(ShareGroupDescribeRequest, handle, error_response)
