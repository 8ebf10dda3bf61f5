"""A fetch session with one broker (KIP-227): each request names only what has changed since the one before.

    epoch 0      full: the request names every wanted partition, and requests a session
    epoch 1, ..  incremental: it names what was added or altered, and what the broker must forget
    epoch -1     final: no session is wanted, and an existing one ends

The broker keeps the list of partitions, and responds with those that have news. It may end a session at any time
(FETCH_SESSION_ID_NOT_FOUND) or give none at all (session id 0); then the next request is full. After any other failure
the client cannot know what the broker has: the next request is full and ends the old session.

Kafka's FetchSessionHandler has the same rules. This file knows no request and no socket.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar
from uuid import UUID

from kwire.errors import ErrorCode

NO_SESSION = 0
FULL_EPOCH = 0
FINAL_EPOCH = -1
_EPOCH_MAX = 2**31 - 1

Key = tuple[str, int]


@dataclass(slots=True, eq=False)
class SessionPartition:
    """A partition as a Fetch request names it. `topic_id` is None where metadata has none."""

    topic: str
    partition: int
    topic_id: UUID | None
    offset: int
    max_bytes: int
    leader_epoch: int = -1
    last_fetched_epoch: int = -1

    @property
    def key(self) -> Key:
        return self.topic, self.partition

    def is_altered(self, sent: SessionPartition) -> bool:
        """Return whether the broker, which has `sent`, must get this one."""
        return (
            self.offset != sent.offset
            or self.max_bytes != sent.max_bytes
            or self.leader_epoch != sent.leader_epoch
            or self.last_fetched_epoch != sent.last_fetched_epoch
        )


P = TypeVar("P", bound=SessionPartition)


@dataclass(frozen=True, slots=True, eq=False)
class SessionRequest(Generic[P]):
    """What one Fetch request says. `forgotten` are partitions as the broker has them."""

    session_id: int
    epoch: int
    partitions: Collection[P]
    forgotten: Collection[P] = ()

    @property
    def is_full(self) -> bool:
        return self.epoch in (FULL_EPOCH, FINAL_EPOCH)


class FetchSession(Generic[P]):
    """The client's side of a session. Call in turn `build` and, once, `handle_response` or `handle_error`.

    `want` and `forget` may be called at any time, and count from the next `build` on. Their cost, and that of `build`
    within a session, is that of what has changed, however many partitions the session has.
    """

    def __init__(self) -> None:
        self.id = NO_SESSION
        self.epoch = FULL_EPOCH  # of the next request
        self.sent: dict[Key, P] = {}  # as the broker has them, if the last request arrived
        self.topic_names: dict[UUID | None, str] = {}  # of `sent`, and of topics that were in it
        self._wanted: dict[Key, P] = {}  # in the order of a full request
        self._changed: dict[Key, None] = {}  # since the last `build`
        self._without_id: set[Key] = set()
        self._uses_ids = False

    def __len__(self) -> int:
        """Return the number of wanted partitions."""
        return len(self._wanted)

    def __repr__(self) -> str:
        return f"<FetchSession {self.id} epoch {self.epoch}, partitions wanted: {len(self)}, sent: {len(self.sent)}>"

    @property
    def has_ids(self) -> bool:
        """Return whether the topics of all wanted partitions have ids, as v13 and later require."""
        return not self._without_id

    @property
    def wanted(self) -> Iterable[P]:
        return self._wanted.values()

    def wanted_at(self, key: Key) -> P | None:
        """Return what is wanted of a partition, or None."""
        return self._wanted.get(key)

    def want(self, partition: P) -> None:
        """Fetch this partition; one that was wanted already goes to the end of the next full request."""
        key = partition.key
        self._wanted.pop(key, None)
        self._wanted[key] = partition
        self._changed[key] = None
        if partition.topic_id is None:
            self._without_id.add(key)
        elif self._without_id:
            self._without_id.discard(key)

    def forget(self, key: Key) -> None:
        """Fetch this partition no longer."""
        if self._wanted.pop(key, None) is not None:
            self._changed[key] = None
            self._without_id.discard(key)

    def build_sessionless(self, count: int | None = None) -> SessionRequest[P]:
        """Return a request of the first `count` wanted partitions (None: of all), for a broker without sessions."""
        self._start_over(NO_SESSION)
        self.sent = dict(islice(self._wanted.items(), count))
        self._changed.clear()
        return SessionRequest(NO_SESSION, FINAL_EPOCH, self.sent.values())

    def build(self, *, uses_ids: bool) -> SessionRequest[P]:
        """Return the next request. `uses_ids`: it names topics by id; a session does so always or never."""
        if uses_ids != self._uses_ids:
            self._uses_ids = uses_ids
            self._start_over(self.id)
        if self.epoch == FULL_EPOCH:
            self.sent = dict(self._wanted)
            self.topic_names = {one.topic_id: one.topic for one in self.sent.values()}
            self._changed.clear()
            return SessionRequest(self.id, FULL_EPOCH, self.sent.values())
        sent = self.sent
        partitions: list[P] = []
        forgotten: list[P] = []
        for key in self._changed:
            wanted, before = self._wanted.get(key), sent.get(key)
            if wanted is None:
                if before is not None:
                    forgotten.append(sent.pop(key))
                continue
            if before is None or wanted.is_altered(before) or (uses_ids and wanted.topic_id != before.topic_id):
                partitions.append(wanted)
            if before is not None and uses_ids and wanted.topic_id != before.topic_id:
                forgotten.append(before)  # another topic of the same name
            sent[key] = wanted
            self.topic_names[wanted.topic_id] = wanted.topic
        self._changed.clear()
        return SessionRequest(self.id, self.epoch, partitions, forgotten)

    def handle_response(
        self, request: SessionRequest[P], error_code: int, session_id: int, keys: Collection[Key], *, is_throttled: bool
    ) -> bool:
        """React to a response with these partitions; return whether what it holds can be used.

        `is_throttled`: the broker's quota delays the client. An empty response to a full request then says nothing.
        """
        if error_code:
            self._start_over(NO_SESSION if error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND else self.id)
            return False
        if request.epoch == FINAL_EPOCH:
            return True
        if not request.is_full:
            if any(key not in self.sent for key in keys):
                self._start_over(self.id)
            elif session_id == NO_SESSION:
                self._start_over(NO_SESSION)
            else:
                self.epoch = next_epoch(self.epoch)
            return True
        if not keys and is_throttled:
            self._start_over(NO_SESSION)
            return False
        if session_id == NO_SESSION or self.sent.keys() != set(keys):
            self._start_over(NO_SESSION)
        else:
            self.id, self.epoch = session_id, 1
        return True

    def end(self) -> SessionRequest[P] | None:
        """Return the request that has the broker end the session, or None if there is none to end."""
        id = self.id
        self._start_over(NO_SESSION)
        return None if id == NO_SESSION else SessionRequest(id, FINAL_EPOCH, ())

    def handle_error(self) -> None:
        """React to a request without a response: the broker may have handled it or not."""
        self._start_over(self.id)

    def _start_over(self, id: int) -> None:
        """Make the next request full; with an id it ends that session at the broker."""
        self.id, self.epoch = id, FULL_EPOCH


def next_epoch(epoch: int) -> int:
    """Return the epoch after one of an incremental request.

    >>> next_epoch(1), next_epoch(2**31 - 1)
    (2, 1)
    """
    return 1 if epoch == _EPOCH_MAX else epoch + 1
