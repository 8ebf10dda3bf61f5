"""One Fetch request, its response per partition, and how far the fetched batches reach.

From v7 on requests belong to a fetch session (see `fetch_session`); older ones name all partitions each time. From v13
on topics have ids; without a known id, as in old metadata, the request stays at v12. From v12 on a broker
that no longer leads a partition names the leader, from v16 on also the leader's address (KIP-951).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from kwire.cluster.metadata import NO_ID, Broker, CurrentLeader
from kwire.consumer.fetch_session import FetchSession, Key, SessionPartition, SessionRequest
from kwire.consumer.options import ConsumerOptions
from kwire.consumer.partition import PartitionState
from kwire.errors import ErrorCode
from kwire.protocol.messages.fetch import FetchRequest, FetchResponse

_ENVELOPE = struct.Struct(">qi")  # base offset, size of the rest
_LEADER_EPOCH_AT = 12
_MAGIC_AT = 16  # in every format, after the offset, the size and four bytes of checksum or leader epoch
_LAST_OFFSET_DELTA_AT = 23
_SIZE_MIN = 14  # a v0 message without key and value
_SIZE_TOLERANCE = 16  # a batch may be larger than the one before by this fraction of its size
BY_ID_SINCE = 13
_SESSIONS_SINCE = 7
# Before this version a request has no limit for the whole response, and a partition's limit cuts its first batch
# (KIP-74).
_MAX_BYTES_SINCE = 3
_LAST_FETCHED_EPOCH_SINCE = 12
_NOT_LEADER_CODES = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})

PartitionResponse = FetchResponse.Topic.Partition


@dataclass(slots=True, eq=False)
class FetchPosition(SessionPartition):
    """A partition in a request, with the offset that is requested. A seek may have replaced the state since then."""

    state: PartitionState = field(kw_only=True)


class Fetch:
    """A fetch from one node. `reserved_bytes` is the expected limit of its response.

    `request` is what was sent, or None as long as nothing was.
    """

    __slots__ = ("_count", "max_bytes", "max_wait_ms", "node", "request", "reserved_bytes", "session", "version_max")

    def __init__(
        self, node: int, session: FetchSession[FetchPosition], *, max_wait_ms: int, max_bytes: int, partition_bytes: int
    ) -> None:
        self.node = node
        self.session = session
        self.max_wait_ms = max_wait_ms
        self.max_bytes = max_bytes
        self.reserved_bytes = max_bytes
        if len(session) * partition_bytes < 2 * max_bytes:
            self.reserved_bytes = min(max_bytes, sum([one.max_bytes for one in session.wanted]))
        self.version_max = None if session.has_ids else BY_ID_SINCE - 1
        self.request: SessionRequest[FetchPosition] | None = None
        # Without a limit for the response: as many partitions as fit, and the others first in the next fetch.
        self._count = max(1, max_bytes // partition_bytes)

    def build(self, options: ConsumerOptions, version: int) -> FetchRequest:
        """Return the request, and advance the session. The encoder leaves out the fields that `version` lacks."""
        session = self.session
        if version >= _SESSIONS_SINCE:
            request = session.build(uses_ids=version >= BY_ID_SINCE)
        else:
            request = session.build_sessionless(self._count if version < _MAX_BYTES_SINCE else None)
            if len(request.partitions) < len(session):
                for position in list(request.partitions):
                    session.want(position)
        self.request = request
        return FetchRequest(
            replica_id=-1,
            max_wait_ms=self.max_wait_ms,
            min_bytes=options.min_bytes,
            max_bytes=self.max_bytes,
            isolation_level=int(options.is_committed_only),
            session_id=request.session_id,
            session_epoch=request.epoch,
            topics=_topics(request, version),
            forgotten_topics_data=_forgotten(request),
            rack_id=options.rack,
        )

    def partition_responses(
        self, response: FetchResponse
    ) -> tuple[list[tuple[FetchPosition, PartitionResponse]], set[Key]]:
        """Return what the response has of the session's partitions, and the keys of all partitions in it.

        A version with topic ids has no names. What belongs to none of the partitions has a key of its own.
        """
        sent, topic_names = self.session.sent, self.session.topic_names
        responses: list[tuple[FetchPosition, PartitionResponse]] = []
        keys: set[Key] = set()
        for topic in response.responses:
            name = topic.topic or topic_names.get(topic.topic_id, "")
            for partition in topic.partitions:
                key = name, partition.partition_index
                position = sent.get(key)
                if position is not None and key not in keys and (topic.topic or topic.topic_id == position.topic_id):
                    responses.append((position, partition))
                keys.add(key)
        return responses, keys


def final_fetch(request: SessionRequest[FetchPosition], version: int) -> FetchRequest:
    """Return the request that ends a session; it names no partition, and the broker responds at once."""
    return FetchRequest(
        replica_id=-1, max_wait_ms=0, min_bytes=0, session_id=request.session_id, session_epoch=request.epoch, topics=[]
    )


def _topics(request: SessionRequest[FetchPosition], version: int) -> list[FetchRequest.Topic]:
    """Return the topics. In a full request only neighbours share an entry: partitions get bytes in this order."""
    topics: list[FetchRequest.Topic] = []
    by_name: dict[str, FetchRequest.Topic] = {}
    last_name = None
    for position in request.partitions:
        if position.topic != last_name:
            last_name = position.topic
            topic = None if request.is_full else by_name.get(last_name)
            if topic is None:
                topic = FetchRequest.Topic(topic=last_name, topic_id=position.topic_id or NO_ID, partitions=[])
                topics.append(topic)
            by_name[last_name] = topic
        by_name[position.topic].partitions.append(
            FetchRequest.Topic.Partition(
                partition=position.partition,
                current_leader_epoch=position.leader_epoch,
                fetch_offset=position.offset,
                last_fetched_epoch=position.last_fetched_epoch if version >= _LAST_FETCHED_EPOCH_SINCE else -1,
                partition_max_bytes=position.max_bytes,
            )
        )
    return topics


def _forgotten(request: SessionRequest[FetchPosition]) -> list[FetchRequest.ForgottenTopic]:
    topics: dict[object, FetchRequest.ForgottenTopic] = {}
    for position in request.forgotten:
        id = position.topic_id or NO_ID
        topic = topics.get((position.topic, id))
        if topic is None:
            topic = FetchRequest.ForgottenTopic(topic=position.topic, topic_id=id, partitions=[])
            topics[position.topic, id] = topic
        topic.partitions.append(position.partition)
    return list(topics.values())


def current_leaders(responses: Iterable[tuple[FetchPosition, PartitionResponse]]) -> list[CurrentLeader]:
    """Return the leaders that a broker names for partitions that it no longer leads."""
    return [
        CurrentLeader(
            position.topic, position.topic_id or NO_ID, position.partition, leader.leader_id, leader.leader_epoch
        )
        for position, response in responses
        if response.error_code in _NOT_LEADER_CODES
        if (leader := response.current_leader).leader_id >= 0
    ]


def endpoints(response: FetchResponse) -> list[Broker]:
    """Return the addresses of the leaders that a response names."""
    return [Broker(node.node_id, node.host, node.port, node.rack) for node in response.node_endpoints]


class BatchBounds(NamedTuple):
    """The whole batches in a fetched range: their size, and the offset that follows them (-1 without any).

    `leader_epoch` is that of the last whole batch, -1 in formats before v2.
    `needed_bytes` is the size of a last batch that was cut off, or 0 if there is none or its size is missing.
    `is_broken`: the size field after the whole batches is invalid, so the rest cannot be read.
    """

    whole_bytes: int
    next_offset: int
    needed_bytes: int = 0
    is_broken: bool = False
    leader_epoch: int = -1


def batch_bounds(data: memoryview) -> BatchBounds:
    """Return how far the batches reach, from their headers alone: the loop thread decodes no records.

    Every format begins with an offset and a size. A v2 header has the last offset delta; in older formats the offset is
    that of the last record.
    """
    unpack, end = _ENVELOPE.unpack_from, len(data)
    start, last, offset, needed = 0, -1, -1, 0
    is_broken = False
    while start + 12 <= end:
        following_offset, size = unpack(data, start)
        if size < _SIZE_MIN:
            is_broken = True
            break
        if start + 12 + size > end:
            needed = 12 + size
            break
        last, offset = start, following_offset
        start += 12 + size
    if last < 0:
        return BatchBounds(0, -1, needed, is_broken)
    leader_epoch = -1
    if data[last + _MAGIC_AT] >= 2 and start - last >= _LAST_OFFSET_DELTA_AT + 4:
        offset += int.from_bytes(data[last + _LAST_OFFSET_DELTA_AT : last + _LAST_OFFSET_DELTA_AT + 4], "big")
        epoch_at = last + _LEADER_EPOCH_AT
        leader_epoch = int.from_bytes(data[epoch_at : epoch_at + 4], "big", signed=True)
    return BatchBounds(start, offset + 1, needed, is_broken, leader_epoch)


def fetch_size(batch_bytes: int, limit: int) -> int:
    """Return a size to fetch, at most `limit`, that batches of this size fill.

    A batch that is cut off is sent twice: of batches a little larger than half of the limit, every second one.
    """
    count = limit // batch_bytes
    return min(limit, count * batch_bytes + batch_bytes // _SIZE_TOLERANCE) if count else limit
