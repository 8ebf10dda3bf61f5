"""Share sessions: which partitions a member reads from one broker, and how many requests it has sent (KIP-932).

A session's epoch rises with each ShareFetch and ShareAcknowledge, so that a lost or repeated request is noticed. Epoch
0 opens a session, -1 closes it. A session ends with its connection.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from kwire.errors import ErrorCode, broker_error

INITIAL_EPOCH, FINAL_EPOCH = 0, -1
_EPOCH_MAX = 2**31 - 1

TopicIdPartition = tuple[UUID, int]


class SessionKey(NamedTuple):
    """A member has one session with each broker."""

    node: int
    group: str
    member: str


@dataclass(slots=True, eq=False)
class ShareSession:
    """One session. `epoch` is that of the next request."""

    key: SessionKey
    connection: int
    epoch: int = 1
    # The partitions in the order in which they were added: whether the next response names one that has no news.
    partitions: dict[TopicIdPartition, bool] = field(default_factory=dict)

    def add(self, partitions: Iterable[TopicIdPartition]) -> None:
        for partition in partitions:
            self.partitions.setdefault(partition, True)

    def forget(self, partitions: Iterable[TopicIdPartition]) -> None:
        for partition in partitions:
            self.partitions.pop(partition, None)

    def in_rotation(self) -> list[TopicIdPartition]:
        """Return the partitions, another one first in each request, so that none starves."""
        listed = list(self.partitions)
        start = self.epoch % len(listed) if listed else 0
        return listed[start:] + listed[:start]

    def advance(self) -> None:
        self.epoch = 1 if self.epoch == _EPOCH_MAX else self.epoch + 1


class ShareSessionCache:
    """The sessions of all brokers, at most `limit` on each. A full cache rejects new ones: nothing is evicted."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sessions: dict[SessionKey, ShareSession] = {}

    def open(self, key: SessionKey, connection: int, partitions: Iterable[TopicIdPartition]) -> ShareSession:
        """Open a session in place of the member's former one. Raises SHARE_SESSION_LIMIT_REACHED."""
        self._sessions.pop(key, None)
        if sum(other.node == key.node for other in self._sessions) >= self._limit:
            raise broker_error(ErrorCode.SHARE_SESSION_LIMIT_REACHED, f"the broker has {self._limit} share sessions")
        session = self._sessions[key] = ShareSession(key, connection)
        session.add(partitions)
        return session

    def find(self, key: SessionKey, epoch: int) -> ShareSession:
        """Return the session that a request of `epoch` belongs to.

        Raises SHARE_SESSION_NOT_FOUND, and INVALID_SHARE_SESSION_EPOCH for another epoch than the next or the final.
        """
        session = self._sessions.get(key)
        if session is None:
            raise broker_error(ErrorCode.SHARE_SESSION_NOT_FOUND, f"{key.member} has no share session")
        if epoch not in (FINAL_EPOCH, session.epoch):
            why = f"the epoch is {epoch}, not {session.epoch}"
            raise broker_error(ErrorCode.INVALID_SHARE_SESSION_EPOCH, why)
        return session

    def get(self, key: SessionKey) -> ShareSession | None:
        return self._sessions.get(key)

    def close(self, key: SessionKey) -> ShareSession | None:
        """Remove a session, and return it if there was one."""
        return self._sessions.pop(key, None)

    def of_connection(self, connection: int) -> list[SessionKey]:
        return [key for key, session in self._sessions.items() if session.connection == connection]

    def of_node(self, node: int) -> list[SessionKey]:
        return [key for key in self._sessions if key.node == node]
