"""Writing the markers that end a transaction: into every partition of it, whoever leads that by now.

Owns the wait for leaders and for replication: a marker counts when it is on all replicas in sync, and is written again
by the next leader when the one that wrote it fell before that. In place of markers in __consumer_offsets, which is no
log here, the group's pending offsets are settled. Kafka's TransactionMarkerChannelManager.
"""
from __future__ import annotations

from collections.abc import Callable, Collection

from kwire.broker.offsets import OFFSETS_TOPIC, Offsets
from kwire.broker.partition import NO_LEADER, Partition
from kwire.broker.transaction import Marker, Place
from kwire.errors import BrokerError

WallClock = Callable[[float], int]


class MarkerWriter:
    """`find(topic, index)` answers the partition, None where there is none any more; `wall_ms(now)` is wall time."""

    def __init__(self, find: Callable[[str, int], Partition | None], offsets: Offsets, wall_ms: WallClock) -> None:
        self._find = find
        self._offsets = offsets
        self._wall_ms = wall_ms

    def write(
        self, marker: Marker, places: Collection[Place], on_done: Callable[[float], None], now: float
    ) -> None:
        """`on_done(now)`, at once or later, when every place has its marker, or can have none: a topic that was
        deleted, a newer epoch of the same producer."""
        write = _Write(marker, on_done, self._wall_ms)
        for topic, index in places:
            if topic == OFFSETS_TOPIC:
                self._offsets.settle(marker.producer_id, index, is_commit=marker.is_commit)
                continue
            partition = self._find(topic, index)
            if partition is not None:
                write.begin(partition)
        write.start(now)


class _Write:
    """One transaction's markers. `_open` are the partitions that miss theirs, with the end offset and the leader epoch
    of what was written there, if it was."""

    def __init__(self, marker: Marker, on_done: Callable[[float], None], wall_ms: WallClock) -> None:
        self._marker = marker
        self._on_done = on_done
        self._wall_ms = wall_ms
        self._open: dict[Partition, tuple[int, int] | None] = {}
        self._is_over = False

    def begin(self, partition: Partition) -> None:
        self._open[partition] = None

    def start(self, now: float) -> None:
        for partition in self._open:
            partition.watch(self._look)
        self._look(now)

    def _look(self, now: float) -> None:
        # A marker that is appended changes the partition, which calls this again from within: what is written has to be
        # known before that, and so is looked for in the log.
        for partition in list(self._open):
            if partition in self._open and self._is_settled(partition, now) and partition in self._open:
                del self._open[partition]
                partition.unwatch(self._look)
        if not self._open and not self._is_over:
            self._is_over = True
            self._on_done(now)

    def _is_settled(self, partition: Partition, now: float) -> bool:
        if partition.is_deleted:
            return True
        if partition.leader == NO_LEADER:
            self._open[partition] = None
            return False
        written = self._open[partition]
        if written is None or written[1] != partition.leader_epoch:
            written = self._open[partition] = (partition.log.end_offset + 1, partition.leader_epoch)
            try:
                self._append(partition, now)
            except BrokerError:  # a newer epoch has written here, and ended this transaction by that
                return True
        return partition.log.high_watermark >= written[0]

    def _append(self, partition: Partition, now: float) -> None:
        marker = self._marker
        partition.append_marker(
            "commit" if marker.is_commit else "abort", producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch, coordinator_epoch=marker.coordinator_epoch, now=now,
            wall_ms=self._wall_ms(now),
        )  # fmt: skip
