"""One Fetch request, its response per partition, and how far the fetched batches reach.

Requests have no fetch session (KIP-227): each names all of its partitions, with session id 0 and epoch -1. From v13 on
topics have ids; without a known id, as in the metadata of old brokers, the request stays at v12. From v12 on a broker
that no longer leads a partition names the leader, from v16 on also the leader's address (KIP-951).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kwire.cluster.metadata import NO_ID, Broker, CurrentLeader
from kwire.consumer.options import ConsumerOptions
from kwire.consumer.partition import PartitionState
from kwire.consumer.routing import LeaderAndEpoch
from kwire.errors import ErrorCode
from kwire.protocol.messages.fetch import FetchRequest, FetchResponse

_ENVELOPE = struct.Struct(">qi")  # base offset, size of the rest
_MAGIC_AT = 16  # in every format, after the offset, the size and four bytes of checksum or leader epoch
_LAST_OFFSET_DELTA_AT = 23
_SIZE_MIN = 14  # a v0 message without key and value
_SIZE_TOLERANCE = 16  # a batch may be larger than the one before by this fraction of its size
BY_ID_SINCE = 13
# Before this version a request has no limit for the whole response, and a partition's limit cuts its first batch
# (KIP-74).
MAX_BYTES_SINCE = 3
_NOT_LEADER_CODES = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


@dataclass(slots=True, eq=False)
class FetchPosition:
    """A partition in a request, with the offset that was requested. A seek may have replaced the state since then."""

    state: PartitionState
    offset: int
    leader: LeaderAndEpoch


class Fetch:
    """A fetch from one node. `reserved_bytes` is the expected limit of its response."""

    __slots__ = ("_topic_by_id", "max_bytes", "max_wait_ms", "node", "partitions", "reserved_bytes", "version_max")

    def __init__(self, node: int, partitions: Sequence[FetchPosition], max_wait_ms: int, max_bytes: int) -> None:
        self.node = node
        self.partitions = partitions
        self.max_wait_ms = max_wait_ms
        self.max_bytes = max_bytes
        self.reserved_bytes = min(max_bytes, sum([one.state.fetch_bytes for one in partitions]))
        self._topic_by_id = {one.leader.topic_id: one.state.topic for one in partitions}
        self.version_max = BY_ID_SINCE - 1 if None in self._topic_by_id else None

    def request(self, options: ConsumerOptions, version: int) -> FetchRequest:
        """Return the request. The encoder leaves out the fields that `version` lacks."""
        return FetchRequest(
            replica_id=-1,
            max_wait_ms=self.max_wait_ms,
            min_bytes=options.min_bytes,
            max_bytes=self.max_bytes,
            isolation_level=int(options.is_committed_only),
            session_id=0,
            session_epoch=-1,
            topics=self._topics(),
            rack_id=options.rack,
        )

    def _topics(self) -> list[FetchRequest.Topic]:
        """Return the topics. Only neighbours share an entry: from v3 on partitions get bytes in this order."""
        topics: list[FetchRequest.Topic] = []
        last_name = None
        for position in self.partitions:
            state = position.state
            if state.topic != last_name:
                last_name = state.topic
                topic_id = position.leader.topic_id or NO_ID
                topics.append(FetchRequest.Topic(topic=state.topic, topic_id=topic_id, partitions=[]))
            topics[-1].partitions.append(
                FetchRequest.Topic.Partition(
                    partition=state.partition,
                    current_leader_epoch=position.leader.leader_epoch,
                    fetch_offset=position.offset,
                    partition_max_bytes=state.fetch_bytes,
                )
            )
        return topics

    def partition_responses(
        self, response: FetchResponse
    ) -> list[tuple[FetchPosition, FetchResponse.Topic.Partition | None]]:
        """Return each partition of the request once, with its part of the response, or None where that is missing.

        Partitions that were not requested are ignored. A version with topic ids has no names.
        """
        pending = {one.state.key: one for one in self.partitions}
        responses: list[tuple[FetchPosition, FetchResponse.Topic.Partition | None]] = []
        for topic in response.responses:
            name = topic.topic or self._topic_by_id.get(topic.topic_id, "")
            for partition in topic.partitions:
                position = pending.pop((name, partition.partition_index), None)
                if position is not None:
                    responses.append((position, partition))
        responses += [(position, None) for position in pending.values()]
        return responses


def current_leaders(
    partition_responses: Iterable[tuple[FetchPosition, FetchResponse.Topic.Partition | None]],
) -> list[CurrentLeader]:
    """Return the leaders that a broker names for partitions that it no longer leads."""
    return [
        CurrentLeader(
            position.state.topic,
            position.leader.topic_id or NO_ID,
            position.state.partition,
            leader.leader_id,
            leader.leader_epoch,
        )
        for position, response in partition_responses
        if response is not None and response.error_code in _NOT_LEADER_CODES
        if (leader := response.current_leader).leader_id >= 0
    ]


def endpoints(response: FetchResponse) -> list[Broker]:
    """Return the addresses of the leaders that a response names."""
    return [Broker(node.node_id, node.host, node.port, node.rack) for node in response.node_endpoints]


class BatchBounds(NamedTuple):
    """The whole batches in a fetched range: their size, and the offset that follows them (-1 without any).

    `needed_bytes` is the size of a last batch that was cut off, or 0 if there is none or its size is missing.
    `is_broken`: the size field after the whole batches is invalid, so the rest cannot be read.
    """

    whole_bytes: int
    next_offset: int
    needed_bytes: int = 0
    is_broken: bool = False


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
    if data[last + _MAGIC_AT] >= 2 and start - last >= _LAST_OFFSET_DELTA_AT + 4:
        offset += int.from_bytes(data[last + _LAST_OFFSET_DELTA_AT : last + _LAST_OFFSET_DELTA_AT + 4], "big")
    return BatchBounds(start, offset + 1, needed, is_broken)


def fetch_size(batch_bytes: int, limit: int) -> int:
    """Return a size to fetch, at most `limit`, that batches of this size fill.

    A batch that is cut off is sent twice: of batches a little larger than half of the limit, every second one.
    """
    count = limit // batch_bytes
    return min(limit, count * batch_bytes + batch_bytes // _SIZE_TOLERANCE) if count else limit
