"""What ConsumerGroupDescribe and ShareGroupDescribe share: the rights on the group and on its topics."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kwire.broker.authorizer import Access, Operation, ResourceType
from kwire.broker.handlers.handler import NOT_REQUESTED
from kwire.errors import BrokerError, ErrorCode
from kwire.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from kwire.protocol.messages.share_group_describe import ShareGroupDescribeResponse

_G = TypeVar("_G", ConsumerGroupDescribeResponse.Group, ShareGroupDescribeResponse.Group)

_UNDESCRIBED_TOPICS = "The group has described topic(s) that the client is not authorized to describe."


def authorized_description(
    access: Access, group_id: str, describe: Callable[[int], _G], error_group: Callable[[str, int, str | None], _G],
    *, with_operations: bool,
) -> _G:  # fmt: skip
    """Return `describe(authorized operations)`, or `error_group` where a right is missing.

    A client needs Describe on the group and on every topic that is assigned to a member.
    """
    try:
        access.require_group(Operation.DESCRIBE, group_id)
    except BrokerError as error:
        return error_group(group_id, error.code, error.broker_message)
    described = describe(access.operations(ResourceType.GROUP, group_id) if with_operations else NOT_REQUESTED)
    assigned = [topic.topic_name for member in described.members for topic in member.assignment.topic_partitions]
    if not all(access.describes(topic) for topic in assigned):
        return error_group(group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, _UNDESCRIBED_TOPICS)
    return described
