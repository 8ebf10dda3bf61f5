"""OffsetFetch: how far groups have come, -1 where nothing is stored; several groups at once since v8.

`require_stable` changes nothing: no offsets are pending in a transaction here.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kwire.broker.exchange import Exchange
from kwire.broker.handlers.handler import Handler
from kwire.broker.offsets import Committed, Place
from kwire.broker.state import Topic
from kwire.errors import BrokerError, ErrorCode
from kwire.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

if TYPE_CHECKING:
    from kwire.broker.node import BrokerState

_FIRST_VERSION_WITH_ERROR = 2
_FIRST_VERSION_WITH_EPOCH = 5
_FIRST_VERSION_OF_MANY = 8
_FIRST_VERSION_BY_ID = 10
_NOTHING = Committed(-1, -1, "", at=0.0)

_Old = OffsetFetchResponse.Topic
_Group = OffsetFetchResponse.Group
_Topic = OffsetFetchResponse.Group.Topic


def handle(broker: BrokerState, request: OffsetFetchRequest, exchange: Exchange, now: float) -> OffsetFetchResponse:
    if exchange.version >= _FIRST_VERSION_OF_MANY:
        return OffsetFetchResponse(groups=[_group(broker, asked, exchange.version) for asked in request.groups])
    if not broker.coordinates(request.group_id):
        return refuse(request, ErrorCode.NOT_COORDINATOR, exchange.version)
    return _single(broker, request, exchange.version)


def _single(broker: BrokerState, request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
    stored = broker.cluster.offsets.of(request.group_id)
    if request.topics is None:
        asked = _by_topic(stored)
    else:
        asked = {topic.name: topic.partition_indexes for topic in request.topics}
    has_epoch = version >= _FIRST_VERSION_WITH_EPOCH
    return OffsetFetchResponse(
        topics=[
            _Old(
                name=name,
                partitions=[_old(index, stored.get((name, index), _NOTHING), has_epoch) for index in indexes],
            )
            for name, indexes in asked.items()
        ]
    )


def _old(index: int, committed: Committed, has_epoch: bool) -> _Old.Partition:
    return _Old.Partition(
        partition_index=index, committed_offset=committed.offset, metadata=committed.metadata,
        committed_leader_epoch=committed.leader_epoch if has_epoch else -1, error_code=ErrorCode.NONE,
    )  # fmt: skip


def _group(broker: BrokerState, asked: OffsetFetchRequest.Group, version: int) -> _Group:
    if not broker.coordinates(asked.group_id):
        return _Group(group_id=asked.group_id, topics=[], error_code=ErrorCode.NOT_COORDINATOR)
    stored = broker.cluster.offsets.of(asked.group_id)
    if asked.topics is None:
        topics = [
            _known(broker.cluster.find_topic(name), indexes, stored) for name, indexes in _by_topic(stored).items()
        ]
    else:
        topics = [_asked(broker, topic, stored, version) for topic in asked.topics]
    return _Group(group_id=asked.group_id, topics=topics)


def _asked(
    broker: BrokerState, asked: OffsetFetchRequest.Group.Topic, stored: Mapping[Place, Committed], version: int
) -> _Topic:
    if version < _FIRST_VERSION_BY_ID:
        return _Topic(name=asked.name, partitions=_partitions(asked.name, asked.partition_indexes, stored))
    try:
        return _known(broker.cluster.find_topic_by_id(asked.topic_id), asked.partition_indexes, stored)
    except BrokerError as error:
        partitions = _partitions("", asked.partition_indexes, {}, error.code)
        return _Topic(topic_id=asked.topic_id, partitions=partitions)


def _known(topic: Topic, indexes: Sequence[int], stored: Mapping[Place, Committed]) -> _Topic:
    return _Topic(name=topic.name, topic_id=topic.id, partitions=_partitions(topic.name, indexes, stored))


def _partitions(
    name: str, indexes: Sequence[int], stored: Mapping[Place, Committed], error: int = ErrorCode.NONE
) -> list[_Topic.Partition]:
    found = [(index, stored.get((name, index), _NOTHING)) for index in indexes]
    return [
        _Topic.Partition(
            partition_index=index, committed_offset=committed.offset, committed_leader_epoch=committed.leader_epoch,
            metadata=committed.metadata, error_code=error,
        )
        for index, committed in found
    ]  # fmt: skip


def _by_topic(stored: Mapping[Place, Committed]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, index in stored:
        topics.setdefault(topic, []).append(index)
    return topics


def refuse(request: OffsetFetchRequest, code: int, version: int) -> OffsetFetchResponse:
    if version >= _FIRST_VERSION_OF_MANY:
        groups = [_Group(group_id=asked.group_id, topics=[], error_code=code) for asked in request.groups]
        return OffsetFetchResponse(groups=groups)
    if version >= _FIRST_VERSION_WITH_ERROR:
        return OffsetFetchResponse(error_code=code)
    return OffsetFetchResponse(
        topics=[
            _Old(
                name=topic.name,
                partitions=[
                    _Old.Partition(partition_index=index, committed_offset=-1, metadata="", error_code=code)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
    )


OFFSET_FETCH = Handler(OffsetFetchRequest, handle, refuse)
