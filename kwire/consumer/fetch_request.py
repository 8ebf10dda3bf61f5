"""One Fetch request, and whose each part of its response is.

How far the records of a Fetch answer reach, told from the batches' envelopes alone, without decoding any.

The event loop must know where to fetch next before the user has read what came. Every format begins with an offset and
a size; a v2 batch tells its last offset in its header, and in the older formats the offset is that of the last record.
The answer's last batch may be cut off where the size limit fell: it does not count.

One Fetch: which partitions it asks for, the request at any version, and whose each part of the answer is.

Without a fetch session (KIP-227): every request names all of its partitions, session 0 with epoch -1 says so. From v13
on topics go by id; a topic whose id is not known (metadata of an old broker) holds the request at v12. From v12 on a
broker that leads a partition no more says who does, and from v16 on where that broker is (KIP-951).
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

_ENVELOPE = struct.Struct(">qi")  # offset, size of what follows
_MAGIC_AT = 16  # in every format: offset, size, and four bytes of checksum or leader epoch stand before it
_LAST_OFFSET_DELTA_AT = 23
_SIZE_MIN = 14  # a v0 message without key and value
_UNLIKE = 16  # the part of its size by which a batch may be larger than the one before


class BatchBounds(NamedTuple):
    """`whole_bytes` of the data are whole batches, after which `next_offset` follows; -1 with none whole.

    `needed_bytes` is the size of the batch behind them that was cut off, or 0 if there is none or not even its size.
    `is_broken`: the envelope after the whole ones is none, so nobody can tell what follows.
    """

    whole_bytes: int
    next_offset: int
    needed_bytes: int = 0
    is_broken: bool = False


def batch_bounds(data: memoryview) -> BatchBounds:
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


def worth_asking(batch_bytes: int, limit: int) -> int:
    """How much to ask for, at most `limit`, where a batch of this size and more like it follow.

    It is what whole batches fill. What is cut off has to come again: of batches that are a little larger than half of
    the limit, every second one would.
    """
    count = limit // batch_bytes
    return min(limit, count * batch_bytes + batch_bytes // _UNLIKE) if count else limit


BY_ID_SINCE = 13
# Before this the broker takes no limit for the whole answer (KIP-74), and sends no batch that is over its partition's.
MAX_BYTES_SINCE = 3
_LEADS_NO_MORE = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


@dataclass(slots=True, eq=False)
class FetchPosition:
    """A partition in a request; `offset` as it was then. The position may since have been replaced by a seek."""

    position: PartitionState
    offset: int
    place: LeaderAndEpoch


class Fetch:
    """What is in flight to a node. `reserved_bytes` is what its answer may be expected to bring at most."""

    __slots__ = ("_names", "asked", "max_bytes", "max_wait_ms", "node", "reserved_bytes", "version_max")

    def __init__(self, node: int, asked: Sequence[FetchPosition], max_wait_ms: int, max_bytes: int) -> None:
        self.node = node
        self.asked = asked
        self.max_wait_ms = max_wait_ms
        self.max_bytes = max_bytes
        self.reserved_bytes = min(max_bytes, sum([one.position.fetch_bytes for one in asked]))
        self._names = {one.place.topic_id: one.position.topic for one in asked}
        self.version_max = BY_ID_SINCE - 1 if None in self._names else None

    def request(self, options: ConsumerOptions, version: int) -> FetchRequest:
        """Fields that `version` lacks (topics' names or ids, epochs, isolation) are left out by the encoder."""
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
        """Neighbours of one topic share an entry, and only neighbours: from v3 on the order decides who gets bytes."""
        topics: list[FetchRequest.Topic] = []
        last_name = None
        for asked in self.asked:
            position = asked.position
            if position.topic != last_name:
                last_name = position.topic
                topic_id = asked.place.topic_id or NO_ID
                topics.append(FetchRequest.Topic(topic=position.topic, topic_id=topic_id, partitions=[]))
            topics[-1].partitions.append(
                FetchRequest.Topic.Partition(
                    partition=position.partition,
                    current_leader_epoch=asked.place.leader_epoch,
                    fetch_offset=asked.offset,
                    partition_max_bytes=position.fetch_bytes,
                )
            )
        return topics

    def answers(self, response: FetchResponse) -> list[tuple[FetchPosition, FetchResponse.Topic.Partition | None]]:
        """Each partition asked for, once, with its part of the answer, or with None if the broker left it out.

        What was not asked for is passed over. Names and ids are told apart by the response itself: a version that has
        ids sends no names.
        """
        left = {one.position.key: one for one in self.asked}
        answers: list[tuple[FetchPosition, FetchResponse.Topic.Partition | None]] = []
        for topic in response.responses:
            name = topic.topic or self._names.get(topic.topic_id, "")
            for partition in topic.partitions:
                asked = left.pop((name, partition.partition_index), None)
                if asked is not None:
                    answers.append((asked, partition))
        answers += [(asked, None) for asked in left.values()]
        return answers


def leader_hints(answers: Iterable[tuple[FetchPosition, FetchResponse.Topic.Partition | None]]) -> list[CurrentLeader]:
    """Who leads the partitions that the broker refused; for `View.update_leaders`."""
    return [
        CurrentLeader(
            asked.position.topic,
            asked.place.topic_id or NO_ID,
            asked.position.partition,
            leader.leader_id,
            leader.leader_epoch,
        )
        for asked, answer in answers
        if answer is not None and answer.error_code in _LEADS_NO_MORE
        if (leader := answer.current_leader).leader_id >= 0
    ]


def endpoints(response: FetchResponse) -> list[Broker]:
    """The addresses of the leaders that a response names."""
    return [Broker(node.node_id, node.host, node.port, node.rack) for node in response.node_endpoints]
