"""What a topic holds before its records have a partition: two queues, and the partitions' own.

    unrouted      keyed records of a topic whose partition count is not known yet; in order
    undesignated  unkeyed records, in batches; given a partition only when drained, so that a dead leader holds up none

The request-pipelining design's "one queue with partition -1 per topic" is the second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from kwire.cluster.snapshot import Partition
from kwire.producer.batch import Batch
from kwire.producer.intake import Incoming
from kwire.producer.partition_queue import PartitionQueue
from kwire.producer.partitioners import Partitioner

UNDESIGNATED = -1


class TopicQueue:
    def __init__(
        self,
        name: str,
        *,
        partitioner: Partitioner,
        batch_bytes: int,
        window_max: int,
        delivery_timeout: float,
    ) -> None:
        self.name = name
        self.unrouted: deque[tuple[Incoming, float]] = deque()
        self.undesignated: deque[Batch] = deque()
        self.partitions: dict[int, PartitionQueue] = {}
        self.unknown_since: float | None = None
        self._partitioner = partitioner
        self._batch_bytes = batch_bytes
        self._window_max = window_max
        self._delivery_timeout = delivery_timeout
        self._rotation = 0

    @property
    def is_idle(self) -> bool:
        return not self.unrouted and not self.undesignated and all(queue.is_idle for queue in self.partitions.values())

    def partition(self, index: int) -> PartitionQueue:
        queue = self.partitions.get(index)
        if queue is None:
            queue = self.partitions[index] = PartitionQueue(self.name, index, self._window_max)
        return queue

    def add(self, incoming: Incoming, now: float, partition_count: int) -> PartitionQueue | None:
        """Put a record where it belongs; answers the partition's queue when it has one. A count of 0: not known."""
        if incoming.partition is not None:
            return self._add_to(incoming.partition, incoming, now)
        key = incoming.record[1]
        if key is None:
            open_batch = self.undesignated[-1] if self.undesignated else None
            if open_batch is None or not open_batch.has_room(incoming.size_bytes):
                if open_batch is not None:
                    open_batch.is_closed = True
                open_batch = self._batch(UNDESIGNATED, now)
                self.undesignated.append(open_batch)
            open_batch.append(incoming.record, incoming.response, incoming.size_bytes)
            return None
        if partition_count == 0 or self.unrouted:  # behind those that came before and still wait
            self.unrouted.append((incoming, now))
            return None
        return self._add_to(self._partitioner(key, partition_count), incoming, now)

    def route(self, partition_count: int) -> list[PartitionQueue]:
        """The partition count is known: give the waiting keyed records their partitions."""
        touched = []
        while self.unrouted:
            incoming, since = self.unrouted.popleft()
            key = incoming.record[1]
            assert key is not None
            touched.append(self._add_to(self._partitioner(key, partition_count), incoming, since))
        return touched

    def designate(
        self, partitions: Sequence[Partition], can_take: Callable[[Partition], bool]
    ) -> PartitionQueue | None:
        """Give the first undesignated batch to the partition with the shortest queue; None when none can take it.

        Among equals they take turns, by whole batches, so that each partition gets the same bytes over time and few
        requests carry much (KIP-794). A partition holds one such batch at a time: the rest stays free to go elsewhere
        when its leader dies, and none starves behind a partition that keyed records keep busy.
        """
        best: Partition | None = None
        shortest = 0
        for step in range(len(partitions)):
            partition = partitions[(self._rotation + step) % len(partitions)]
            queue = self.partitions.get(partition.index)
            queued = 0 if queue is None else len(queue.queued)
            if (best is None or queued < shortest) and can_take(partition):
                if queue is not None and any(batch.was_designated for batch in queue.queued):
                    continue
                best, shortest = partition, queued
                if not queued:
                    break
        if best is None:
            return None
        self._rotation = best.index + 1
        batch = self.undesignated.popleft()
        batch.is_closed = batch.was_designated = True
        batch.partition = best.index
        chosen = self.partition(best.index)
        chosen.queued.append(batch)
        return chosen

    def close_batches(self) -> None:
        """Let no further record join what is there; closed batches do not wait for the linger."""
        if self.undesignated:
            self.undesignated[-1].is_closed = True
        for queue in self.partitions.values():
            batch = queue.open_batch()
            if batch is not None:
                batch.is_closed = True

    def narrow_window(self, window_max: int) -> None:
        """The brokers turned out not to recognise duplicates: fewer batches may be out at once."""
        self._window_max = window_max
        for queue in self.partitions.values():
            queue.narrow_window(window_max)

    def unresolved(self) -> list[Batch]:
        return [*self.undesignated, *(batch for queue in self.partitions.values() for batch in queue.unresolved())]

    def _add_to(self, index: int, incoming: Incoming, now: float) -> PartitionQueue:
        queue = self.partition(index)
        batch = queue.open_batch()
        if batch is None or not batch.has_room(incoming.size_bytes):
            if batch is not None:
                batch.is_closed = True
            batch = self._batch(index, now)
            queue.queued.append(batch)
        batch.append(incoming.record, incoming.response, incoming.size_bytes)
        return queue

    def _batch(self, partition: int, now: float) -> Batch:
        return Batch(self.name, partition, self._batch_bytes, now, now + self._delivery_timeout)
