"""OffsetFetch: how far groups have come, -1 where nothing is stored; several groups at once since v8.

With `require_stable` a partition for which an open transaction has an offset is UNSTABLE_OFFSET_COMMIT (KIP-447).
"""

from __future__ import annotations

from collections.abc import Sequence

from kwire.broker.broker_state import BrokerState
from kwire.broker.exchange import RequestContext
from kwire.broker.handlers.handler import Handler
from kwire.broker.offsets import Committed, Offsets, Place
from kwire.broker.state import Topic
from kwire.errors import BrokerError, ErrorCode
from kwire.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

_FIRST_VERSION_WITH_ERROR = 2
_FIRST_VERSION_WITH_EPOCH = 5
_FIRST_VERSION_OF_MANY = 8
_FIRST_VERSION_BY_ID = 10
_NOTHING = Committed(-1, -1, "", at=0.0)

_Old = OffsetFetchResponse.Topic
_Group = OffsetFetchResponse.Group
_Topic = OffsetFetchResponse.Group.Topic


def handle(
    broker: BrokerState, request: OffsetFetchRequest, exchange: RequestContext, now: float
) -> OffsetFetchResponse:
    if exchange.version >= _FIRST_VERSION_OF_MANY:
        return OffsetFetchResponse(
            groups=[_group(broker, asked, exchange.version, stable=request.require_stable) for asked in request.groups]
        )
    if not broker.coordinates(request.group_id):
        return refuse(request, ErrorCode.NOT_COORDINATOR, exchange.version)
    return _single(broker, request, exchange.version)


def _single(broker: BrokerState, request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
    stored = Stored(broker.cluster.offsets, request.group_id, stable=request.require_stable)
    if request.topics is None:
        asked = stored.by_topic()
    else:
        asked = {topic.name: topic.partition_indexes for topic in request.topics}
    has_epoch = version >= _FIRST_VERSION_WITH_EPOCH
    return OffsetFetchResponse(
        topics=[
            _Old(
                name=name,
                partitions=[_old(index, *stored.find((name, index)), has_epoch) for index in indexes],
            )
            for name, indexes in asked.items()
        ]
    )


def _old(index: int, committed: Committed, error: ErrorCode, has_epoch: bool) -> _Old.Partition:
    return _Old.Partition(
        partition_index=index, committed_offset=committed.offset, metadata=committed.metadata,
        committed_leader_epoch=committed.leader_epoch if has_epoch else -1, error_code=error,
    )  # fmt: skip


def _group(broker: BrokerState, asked: OffsetFetchRequest.Group, version: int, *, stable: bool) -> _Group:
    if not broker.coordinates(asked.group_id):
        return _Group(group_id=asked.group_id, topics=[], error_code=ErrorCode.NOT_COORDINATOR)
    stored = Stored(broker.cluster.offsets, asked.group_id, stable=stable)
    if asked.topics is None:
        topics = [
            _known(broker.cluster.find_topic(name), indexes, stored) for name, indexes in stored.by_topic().items()
        ]
    else:
        topics = [_asked(broker, topic, stored, version) for topic in asked.topics]
    return _Group(group_id=asked.group_id, topics=topics)


def _asked(broker: BrokerState, asked: OffsetFetchRequest.Group.Topic, stored: Stored, version: int) -> _Topic:
    if version < _FIRST_VERSION_BY_ID:
        return _Topic(name=asked.name, partitions=_partitions(asked.name, asked.partition_indexes, stored))
    try:
        return _known(broker.cluster.find_topic_by_id(asked.topic_id), asked.partition_indexes, stored)
    except BrokerError as error:
        partitions = [_partition(index, _NOTHING, error.code) for index in asked.partition_indexes]
        return _Topic(topic_id=asked.topic_id, partitions=partitions)


def _known(topic: Topic, indexes: Sequence[int], stored: Stored) -> _Topic:
    return _Topic(name=topic.name, topic_id=topic.id, partitions=_partitions(topic.name, indexes, stored))


def _partitions(name: str, indexes: Sequence[int], stored: Stored) -> list[_Topic.Partition]:
    return [_partition(index, *stored.find((name, index))) for index in indexes]


def _partition(index: int, committed: Committed, error: int) -> _Topic.Partition:
    return _Topic.Partition(
        partition_index=index, committed_offset=committed.offset, committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata, error_code=error,
    )  # fmt: skip


class Stored:
    """What one group has committed, as one request may see it."""

    def __init__(self, offsets: Offsets, group_id: str, *, stable: bool) -> None:
        self._offsets = offsets
        self._group_id = group_id
        self._stable = stable

    def find(self, place: Place) -> tuple[Committed, ErrorCode]:
        if self._stable and self._offsets.is_pending(self._group_id, place):
            return _NOTHING, ErrorCode.UNSTABLE_OFFSET_COMMIT
        return self._offsets.of(self._group_id).get(place, _NOTHING), ErrorCode.NONE

    def by_topic(self) -> dict[str, list[int]]:
        topics: dict[str, list[int]] = {}
        for topic, index in self._offsets.of(self._group_id):
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
