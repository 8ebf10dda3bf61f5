"""The committed offsets of all groups, and when they are forgotten.

Owns what Kafka keeps in __consumer_offsets for the classic protocol. It refuses to judge who may commit: `groups` does.
Times are the caller's `now`, in seconds.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kwire.broker.groups import Groups
from kwire.broker.options import Options
from kwire.errors import ErrorCode

Place = tuple[str, int]  # topic, partition


@dataclass(frozen=True, slots=True)
class Committed:
    offset: int
    leader_epoch: int
    metadata: str
    at: float
    expires_at: float | None = None  # what a client of OffsetCommit v2 to v4 asked for; None: the cluster's retention


class Offsets:
    def __init__(self, options: Options, groups: Groups) -> None:
        self._options = options
        self._groups = groups
        self._by_group: dict[str, dict[Place, Committed]] = {}

    def commit(self, group_id: str, place: Place, committed: Committed) -> ErrorCode:
        if len(committed.metadata.encode()) > self._options.offset_metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        offsets = self._by_group.setdefault(group_id, {})
        if place not in offsets and len(offsets) >= self._options.max_offsets_per_group:
            return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        offsets[place] = committed
        return ErrorCode.NONE

    def of(self, group_id: str) -> Mapping[Place, Committed]:
        return self._by_group.get(group_id, {})

    def forget(self, group_id: str, place: Place) -> None:
        self._by_group.get(group_id, {}).pop(place, None)

    def forget_group(self, group_id: str) -> None:
        self._by_group.pop(group_id, None)

    def forget_topic(self, topic: str) -> None:
        """The topic was deleted."""
        for offsets in self._by_group.values():
            for place in [place for place in offsets if place[0] == topic]:
                del offsets[place]

    def expire(self, now: float) -> None:
        """Drop offsets that nobody has used for the retention time, and with its last one a group without members."""
        retention = self._options.offsets_retention_ms / 1000
        for group in self._groups:
            if group.members or group.pending:
                continue
            offsets = self._by_group.get(group.id, {})
            for place, committed in list(offsets.items()):
                used = max(committed.at, group.empty_since or committed.at)
                expires_at = used + retention if committed.expires_at is None else committed.expires_at
                if expires_at <= now:
                    del offsets[place]
            idle_since = group.empty_since
            if not offsets and (idle_since is None or idle_since + retention <= now):
                self._by_group.pop(group.id, None)
                self._groups.delete(group)
