"""The committed offsets of all groups, those that wait for the end of a transaction, and when they are forgotten.

Owns what Kafka keeps in __consumer_offsets for the classic protocol. It refuses to judge who may commit: `groups` does.
Times are the caller's `now`, in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kwire.broker.groups import GroupCoordinator
from kwire.broker.options import Options
from kwire.errors import ErrorCode

TopicPartition = tuple[str, int]  # topic, partition

# Where Kafka keeps offsets: not a topic here, but a part of transactions under this name.
OFFSETS_TOPIC = "__consumer_offsets"
OFFSETS_PARTITIONS = 50


def offsets_partition(group_id: str) -> int:
    """The partition of __consumer_offsets in which Kafka keeps a group: by Java's hash of its name."""
    encoded = group_id.encode("utf-16-be", "surrogatepass")
    hashed = 0
    for at in range(0, len(encoded), 2):
        hashed = (31 * hashed + int.from_bytes(encoded[at : at + 2], "big")) % 2**32
    signed = hashed - 2**32 if hashed >= 2**31 else hashed
    return (0 if signed == -(2**31) else abs(signed)) % OFFSETS_PARTITIONS


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    offset: int
    leader_epoch: int
    metadata: str
    at: float
    expires_at: float | None = None  # what a client of OffsetCommit v2 to v4 asked for; None: the cluster's retention


class OffsetManager:
    def __init__(self, options: Options, groups: GroupCoordinator) -> None:
        self._options = options
        self._groups = groups
        self._by_group: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
        self._pending: dict[str, dict[int, dict[TopicPartition, OffsetAndMetadata]]] = {}  # by group and producer id
        # Places that were committed to since, by group: of two writes the later one counts, whenever it is settled.
        self._superseded: dict[tuple[str, int], set[TopicPartition]] = {}

    def commit(self, group_id: str, partition: TopicPartition, committed: OffsetAndMetadata) -> ErrorCode:
        error = self._check(group_id, partition, committed)
        if error is not ErrorCode.NONE:
            return error
        self._by_group.setdefault(group_id, {})[partition] = committed
        for producer_id, offsets in self._pending.get(group_id, {}).items():
            if partition in offsets:
                self._superseded.setdefault((group_id, producer_id), set()).add(partition)
        return ErrorCode.NONE

    def _check(self, group_id: str, partition: TopicPartition, committed: OffsetAndMetadata) -> ErrorCode:
        if len(committed.metadata.encode()) > self._options.offset_metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        offsets = self.of(group_id)
        if partition not in offsets and len(offsets) >= self._options.max_offsets_per_group:
            return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        return ErrorCode.NONE

    def of(self, group_id: str) -> Mapping[TopicPartition, OffsetAndMetadata]:
        return self._by_group.get(group_id, {})

    # In transactions.

    def commit_in_transaction(
        self, group_id: str, producer_id: int, partition: TopicPartition, committed: OffsetAndMetadata
    ) -> ErrorCode:
        """It counts from the transaction's commit on, or never."""
        error = self._check(group_id, partition, committed)
        if error is ErrorCode.NONE:
            self._pending.setdefault(group_id, {}).setdefault(producer_id, {})[partition] = committed
            self._superseded.get((group_id, producer_id), set()).discard(partition)
        return error

    def is_pending(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether an open transaction has an offset for it."""
        return any(partition in offsets for offsets in self._pending.get(group_id, {}).values())

    def complete_transaction(self, producer_id: int, partition: int, *, is_commit: bool) -> None:
        """A marker is written to a partition of __consumer_offsets: it ends the transaction for the groups there."""
        for group_id in [group_id for group_id in self._pending if offsets_partition(group_id) == partition]:
            offsets = self._pending[group_id].pop(producer_id, {})
            superseded = self._superseded.pop((group_id, producer_id), set())
            if not self._pending[group_id]:
                del self._pending[group_id]
            if is_commit:
                kept = {partition: committed for partition, committed in offsets.items() if partition not in superseded}
                self._by_group.setdefault(group_id, {}).update(kept)

    def delete(self, group_id: str, partition: TopicPartition) -> None:
        self._by_group.get(group_id, {}).pop(partition, None)

    def delete_group(self, group_id: str) -> None:
        self._by_group.pop(group_id, None)
        self._pending.pop(group_id, None)

    def delete_topic(self, topic: str) -> None:
        """The topic was deleted."""
        pending = [offsets for of_group in self._pending.values() for offsets in of_group.values()]
        for offsets in [*self._by_group.values(), *pending]:
            for partition in [partition for partition in offsets if partition[0] == topic]:
                del offsets[partition]

    def expire(self, now: float) -> None:
        """Drop offsets that nobody has used for the retention time, and with its last one a group without members."""
        retention = self._options.offsets_retention_ms / 1000
        for group in self._groups:
            if group.members or group.pending or group.id in self._pending:
                continue
            offsets = self._by_group.get(group.id, {})
            for partition, committed in list(offsets.items()):
                used = max(committed.at, group.empty_since or committed.at)
                expires_at = used + retention if committed.expires_at is None else committed.expires_at
                if expires_at <= now:
                    del offsets[partition]
            idle_since = group.empty_since
            if not offsets and (idle_since is None or idle_since + retention <= now):
                self._by_group.pop(group.id, None)
                self._groups.delete(group)
