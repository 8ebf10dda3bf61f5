"""The committed offsets of all groups, the pending offsets of open transactions, and their expiration.

It is what Kafka keeps in __consumer_offsets for the classic protocol. Who may commit is decided in `groups`. Times are
the caller's `now`, in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kwire.broker.group_registry import GroupRegistry
from kwire.broker.options import Options
from kwire.errors import ErrorCode

TopicPartition = tuple[str, int]

# Kafka's topic for offsets. It does not exist here, but transactions contain its partitions.
OFFSETS_TOPIC = "__consumer_offsets"
OFFSETS_PARTITIONS = 50


def offsets_partition(group_id: str) -> int:
    """Return the partition of __consumer_offsets in which Kafka keeps a group, by Java's hash of the group id."""
    encoded = group_id.encode("utf-16-be", "surrogatepass")
    hashed = 0
    for at in range(0, len(encoded), 2):
        hashed = (31 * hashed + int.from_bytes(encoded[at : at + 2], "big")) % 2**32
    signed = hashed - 2**32 if hashed >= 2**31 else hashed
    return (0 if signed == -(2**31) else abs(signed)) % OFFSETS_PARTITIONS


def _java_length(text: str) -> int:
    """Return the length of Java's string: a character outside of the Basic Multilingual Plane counts twice."""
    return len(text.encode("utf-16-be", "surrogatepass")) // 2


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A committed offset, and when it was committed and expires."""

    offset: int
    leader_epoch: int
    metadata: str
    at: float
    expires_at: float | None = None  # the retention in OffsetCommit v2 to v4; None: the cluster's


class OffsetManager:
    """The offsets of all groups (Kafka's OffsetMetadataManager)."""

    def __init__(self, options: Options, groups: GroupRegistry) -> None:
        self._options = options
        self._groups = groups
        self._by_group: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
        self._pending: dict[str, dict[int, dict[TopicPartition, OffsetAndMetadata]]] = {}  # by group and producer id
        # Partitions with a later commit outside of the transaction: of two commits the later one wins.
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
        if _java_length(committed.metadata) > self._options.offset_metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        offsets = self.of(group_id)
        if partition not in offsets and len(offsets) >= self._options.max_offsets_per_group:
            return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        return ErrorCode.NONE

    def of(self, group_id: str) -> Mapping[TopicPartition, OffsetAndMetadata]:
        return self._by_group.get(group_id, {})

    def groups(self) -> list[str]:
        """Return the groups with committed offsets."""
        return [group_id for group_id, offsets in self._by_group.items() if offsets]

    # In transactions.

    def commit_in_transaction(
        self, group_id: str, producer_id: int, partition: TopicPartition, committed: OffsetAndMetadata
    ) -> ErrorCode:
        """Store an offset that becomes valid when the transaction commits."""
        error = self._check(group_id, partition, committed)
        if error is ErrorCode.NONE:
            self._pending.setdefault(group_id, {}).setdefault(producer_id, {})[partition] = committed
            self._superseded.get((group_id, producer_id), set()).discard(partition)
        return error

    def is_pending(self, group_id: str, partition: TopicPartition) -> bool:
        """Return whether an open transaction has an offset for the partition."""
        return any(partition in offsets for offsets in self._pending.get(group_id, {}).values())

    def complete_transaction(self, producer_id: int, partition: int, *, is_commit: bool) -> None:
        """End a transaction for the groups in one partition of __consumer_offsets, which gets a marker in Kafka."""
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
        """Delete all offsets of a topic: the topic is deleted."""
        pending = [offsets for of_group in self._pending.values() for offsets in of_group.values()]
        for offsets in [*self._by_group.values(), *pending]:
            for partition in [partition for partition in offsets if partition[0] == topic]:
                del offsets[partition]

    def expire(self, now: float) -> None:
        """Delete offsets that were unused for the retention time, and empty groups without offsets."""
        retention = self._options.offsets_retention_ms / 1000
        for group in self._groups:
            offsets = self._by_group.get(group.id, {})
            for partition, committed in list(offsets.items()):
                used = group.offset_used_at(committed.at)
                if used is None or group.is_subscribed_to(partition[0]) or self.is_pending(group.id, partition):
                    continue
                expires_at = used + retention if committed.expires_at is None else committed.expires_at
                if expires_at <= now:
                    del offsets[partition]
            idle_since = group.empty_since
            is_idle = group.EXPIRES and group.is_empty and not offsets and group.id not in self._pending
            if is_idle and (idle_since is None or idle_since + retention <= now):
                self._by_group.pop(group.id, None)
                self._groups.delete(group)
