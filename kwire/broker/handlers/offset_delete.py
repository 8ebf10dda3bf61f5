"""OffsetDelete: forget a group's offsets of topics that none of its members subscribes to."""

from __future__ import annotations

from kwire.broker.broker_state import BrokerState
from kwire.broker.exchange import RequestContext
from kwire.broker.groups import Group
from kwire.broker.handlers.handler import Handler
from kwire.errors import DecodeError, ErrorCode
from kwire.protocol.messages.consumer_protocol import ConsumerProtocolSubscription, decode_versioned
from kwire.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse

_Result = OffsetDeleteResponse.Topic


def handle(
    broker: BrokerState, request: OffsetDeleteRequest, exchange: RequestContext, now: float
) -> OffsetDeleteResponse:
    if not broker.coordinates(request.group_id):
        return refuse(request, ErrorCode.NOT_COORDINATOR, exchange.version)
    group = broker.cluster.groups.get(request.group_id)
    if group is None:
        return refuse(request, ErrorCode.GROUP_ID_NOT_FOUND, exchange.version)
    subscribed = _subscribed(group)
    if subscribed is None:
        return refuse(request, ErrorCode.NON_EMPTY_GROUP, exchange.version)
    topics = []
    for asked in request.topics:
        results = []
        for one in asked.partitions:
            code = ErrorCode.NONE
            if asked.name in subscribed:
                code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            else:
                broker.cluster.offsets.forget(request.group_id, (asked.name, one.partition_index))
            results.append(_Result.Partition(partition_index=one.partition_index, error_code=code))
        topics.append(_Result(name=asked.name, partitions=results))
    return OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=topics)


def _subscribed(group: Group) -> set[str] | None:
    """The topics that members have asked for; None when that cannot be known."""
    topics: set[str] = set()
    try:
        for member in group.members.values():
            if member.protocol_type != "consumer":
                return None
            for _, metadata in member.protocols:
                topics.update(decode_versioned(ConsumerProtocolSubscription, metadata)[1].topics)
    except DecodeError:
        return None
    return topics


def refuse(request: OffsetDeleteRequest, code: int, version: int) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=code, topics=[])


OFFSET_DELETE = Handler(OffsetDeleteRequest, handle, refuse)
