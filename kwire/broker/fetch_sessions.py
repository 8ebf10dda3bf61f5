"""The fetch sessions of a broker (KIP-227): which partitions each client reads, and what it knows of them.

The cache has a fixed number of slots. A new session without a free slot takes that of a session that was idle for the
eviction time, or that is as old as that and names no more partitions. Kafka's FetchSessionCache has the same rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

from kwire.errors import ErrorCode, broker_error
from kwire.protocol.messages.fetch import FetchRequest, FetchResponse

NO_SESSION = 0
FULL_EPOCH = 0
FINAL_EPOCH = -1
_EPOCH_MAX = 2**31 - 1
_FIRST_VERSION = 7
_FIRST_VERSION_BY_ID = 13
_EVICTION_SECONDS = 120.0

# The topic's name, or its id in the sessions of v13 and later, and the partition.
Key = tuple[str | UUID, int]


@dataclass(slots=True, eq=False)
class FetchPartition:
    """A partition to read, and what the client knows of it: -1 after an error, so that the next response has it."""

    topic: str
    topic_id: UUID
    requested: FetchRequest.Topic.Partition
    high_watermark: int = -1
    log_start_offset: int = -1

    def take_news(self, result: FetchResponse.Topic.Partition) -> bool:
        """Return whether a result has something that the client does not know, and note that it knows it now."""
        has_news = bool(
            result.records
            or result.error_code
            or result.high_watermark != self.high_watermark
            or result.log_start_offset != self.log_start_offset
            or result.preferred_read_replica >= 0
            or result.diverging_epoch.end_offset >= 0
        )
        self.high_watermark = -1 if result.error_code else result.high_watermark
        self.log_start_offset = result.log_start_offset
        return has_news


@dataclass(slots=True, eq=False)
class FetchSession:
    """One session. `partitions` are in the order in which they are served."""

    id: int
    uses_ids: bool
    created_at: float
    used_at: float
    epoch: int = 1  # of the next request
    partitions: dict[Key, FetchPartition] = field(default_factory=dict)

    def update(self, request: FetchRequest) -> None:
        """Apply what an incremental request adds, alters and forgets."""
        for topic in request.topics:
            for requested in topic.partitions:
                key = (topic.topic_id if self.uses_ids else topic.topic, requested.partition)
                known = self.partitions.get(key)
                if known is None:
                    self.partitions[key] = FetchPartition(topic.topic, topic.topic_id, requested)
                else:
                    known.requested = requested
        for forgotten in request.forgotten_topics_data:
            for partition in forgotten.partitions:
                self.partitions.pop((forgotten.topic_id if self.uses_ids else forgotten.topic, partition), None)

    def move_to_back(self, partition: FetchPartition) -> None:
        """Serve a partition that returned records after the others from now on."""
        key = (partition.topic_id if self.uses_ids else partition.topic, partition.requested.partition)
        if self.partitions.get(key) is partition:
            del self.partitions[key]
            self.partitions[key] = partition


@dataclass(slots=True, eq=False)
class FetchContext:
    """The partitions that one request reads. `session` is None for a request that names all of them."""

    partitions: Sequence[FetchPartition]
    session: FetchSession | None = None
    wants_session: bool = False


class FetchSessionCache:
    """The sessions of one broker."""

    def __init__(self, slots: int, random: Random) -> None:
        self.sessions: dict[int, FetchSession] = {}
        self.evicted = 0
        self._slots = slots
        self._random = random

    def open(self, request: FetchRequest, version: int, now: float) -> FetchContext:
        """Return what a request reads. Raises BrokerError for a session or an epoch that is not known."""
        if version < _FIRST_VERSION:
            return FetchContext(_named(request))
        if request.session_epoch in (FULL_EPOCH, FINAL_EPOCH):
            self.sessions.pop(request.session_id, None)
            return FetchContext(_named(request), wants_session=request.session_epoch == FULL_EPOCH)
        session = self.sessions.get(request.session_id)
        if session is None:
            raise broker_error(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if request.session_epoch != session.epoch:
            raise broker_error(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_ids != (version >= _FIRST_VERSION_BY_ID):
            raise broker_error(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.update(request)
        if not session.partitions:
            del self.sessions[session.id]
            return FetchContext([])
        session.epoch = 1 if session.epoch == _EPOCH_MAX else session.epoch + 1
        session.used_at = now
        return FetchContext(list(session.partitions.values()), session)

    def create(self, context: FetchContext, version: int, now: float) -> int:
        """Return the id of a new session with the partitions of a full request, or 0 without a slot for it."""
        partitions = context.partitions
        if not context.wants_session or not partitions or not self._make_room(len(partitions), now):
            return NO_SESSION
        id = NO_SESSION
        while id == NO_SESSION or id in self.sessions:
            id = self._random.randrange(1, 2**31)
        uses_ids = version >= _FIRST_VERSION_BY_ID
        session = FetchSession(id, uses_ids, created_at=now, used_at=now)
        for one in partitions:
            session.partitions[one.topic_id if uses_ids else one.topic, one.requested.partition] = one
        self.sessions[id] = session
        return id

    def _make_room(self, size: int, now: float) -> bool:
        if len(self.sessions) < self._slots:
            return True
        if not self.sessions:
            return False
        idle = min(self.sessions.values(), key=lambda session: session.used_at)
        old = [session for session in self.sessions.values() if now - session.created_at > _EVICTION_SECONDS]
        smallest = min(old, key=lambda session: (len(session.partitions), session.id), default=None)
        if now - idle.used_at > _EVICTION_SECONDS:
            evicted = idle
        elif smallest is not None and size >= len(smallest.partitions):
            evicted = smallest
        else:
            return False
        del self.sessions[evicted.id]
        self.evicted += 1
        return True


def _named(request: FetchRequest) -> list[FetchPartition]:
    return [
        FetchPartition(topic.topic, topic.topic_id, requested)
        for topic in request.topics
        for requested in topic.partitions
    ]
