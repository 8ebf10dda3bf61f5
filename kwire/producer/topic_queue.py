"""What a topic holds before its records have a partition: two queues, and the partitions' own.

    unrouted      keyed records of a topic whose partitions are not known yet; in order
    undesignated  unkeyed records, in batches; given a partition only when drained, so that a dead leader holds up none

The request-pipelining design's "one queue with partition -1 per topic" is the second.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence

from kwire.cluster import Partition, View
from kwire.cluster.snapshot import NO_NODE
from kwire.producer.batch import Batch
from kwire.producer.intake import Incoming
from kwire.producer.partition_queue import PartitionQueue
from kwire.producer.partitioners import KeyHash, Turns
from kwire.producer.producer_request import may_share
from kwire.producer.split import SizeLimit
from kwire.producer.spreads import Spread

UNDESIGNATED = -1


class TopicQueue:
    def __init__(
        self,
        name: str,
        *,
        key_hash: KeyHash | None,
        spread: Spread,
        batch_bytes: int,
        window_max: int,
        is_ordered: bool,
        delivery_timeout: float,
        limited: dict[Batch, None],
    ) -> None:
        """`limited` takes the batches that have a time limit of their own."""
        self.name = name
        self.unrouted: deque[tuple[Incoming, float]] = deque()
        self.unrouted_due = math.inf  # when the first of them has waited too long
        self.undesignated: deque[Batch] = deque()
        self.partitions: dict[int, PartitionQueue] = {}
        self.unknown_since: float | None = None
        self._key_hash = key_hash
        self._turns = Turns()  # where there is no hash
        self._spread = spread
        self._limit = SizeLimit(batch_bytes)
        self._window_max = window_max
        self._is_ordered = is_ordered
        self._delivery_timeout = delivery_timeout
        self._limited = limited

    @property
    def is_idle(self) -> bool:
        return not self.unrouted and not self.undesignated and all(queue.is_idle for queue in self.partitions.values())

    def partition(self, index: int) -> PartitionQueue:
        queue = self.partitions.get(index)
        if queue is None:
            queue = PartitionQueue(
                self.name, index, self._window_max, limit=self._limit, is_ordered=self._is_ordered
            )
            self.partitions[index] = queue
        return queue

    def add(self, incoming: Incoming, now: float, partitions: Sequence[Partition]) -> PartitionQueue | None:
        """Put a record where it belongs; answers the partition's queue when it has one. No partitions: not known."""
        if incoming.partition is not None:
            return self._add_to(incoming.partition, incoming, now)
        if incoming.record[1] is None and self._key_hash is not None:
            open_batch = self.undesignated[-1] if self.undesignated else None
            if open_batch is None or not _may_join(open_batch, incoming):
                if open_batch is not None:
                    open_batch.is_closed = True
                open_batch = self._batch(UNDESIGNATED, incoming, now)
                self.undesignated.append(open_batch)
            open_batch.append(incoming.record, incoming.response, incoming.size_bytes)
            return None
        if not partitions or self.unrouted:  # behind those that came before and still wait
            self.unrouted.append((incoming, now))
            self.unrouted_due = min(self.unrouted_due, self._deadline(incoming, now))
            return None
        return self._add_to(self._index(incoming, partitions), incoming, now)

    def route(self, partitions: Sequence[Partition]) -> list[PartitionQueue]:
        """The partitions are known: give the waiting records theirs."""
        touched = []
        while self.unrouted:
            incoming, since = self.unrouted.popleft()
            touched.append(self._add_to(self._index(incoming, partitions), incoming, since))
        self.unrouted_due = math.inf
        return touched

    def take_overdue(self, now: float) -> list[Batch]:
        """Take out what has no partition and has waited too long."""
        overdue: list[Batch] = []
        if self.unrouted_due <= now:
            waiting, self.unrouted, self.unrouted_due = self.unrouted, deque(), math.inf
            for incoming, since in waiting:
                deadline = self._deadline(incoming, since)
                if deadline <= now:
                    overdue.append(self._batch(UNDESIGNATED, incoming, since))
                    overdue[-1].append(incoming.record, incoming.response, incoming.size_bytes)
                else:
                    self.unrouted.append((incoming, since))
                    self.unrouted_due = min(self.unrouted_due, deadline)
        late = [batch for batch in self.undesignated if batch.deadline <= now]
        if late:
            self.undesignated = deque(batch for batch in self.undesignated if batch.deadline > now)
        return overdue + late

    def designate(self, partitions: Sequence[Partition], view: View, now: float) -> PartitionQueue | None:
        """Give the first undesignated batch to the partition that the spread chooses; None when none can take it."""
        batch = self.undesignated[0]
        chosen = self._spread.choose(self.name, partitions, _Places(self.partitions, view, now), batch.size_bytes, now)
        if chosen is None:
            return None
        self.undesignated.popleft()
        batch.is_closed = batch.was_designated = True
        batch.partition = chosen.index
        queue = self.partition(chosen.index)
        queue.add(batch)
        return queue

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

    def _index(self, incoming: Incoming, partitions: Sequence[Partition]) -> int:
        if self._key_hash is None:
            return self._turns.choose(partitions)
        key = incoming.record[1]
        assert key is not None
        return self._key_hash(key, len(partitions))

    def _add_to(self, index: int, incoming: Incoming, now: float) -> PartitionQueue:
        queue = self.partition(index)
        batch = queue.open_batch()
        if batch is None or not _may_join(batch, incoming):
            if batch is not None:
                batch.is_closed = True
            batch = self._batch(index, incoming, now)
            queue.add(batch)
        batch.append(incoming.record, incoming.response, incoming.size_bytes)
        return queue

    def _batch(self, partition: int, first: Incoming, now: float) -> Batch:
        batch = Batch(self.name, partition, self._limit.bytes_max, now, self._deadline(first, now), first.terms)
        if first.terms is not None and first.terms.timeout is not None:
            self._limited[batch] = None
        return batch

    def _deadline(self, incoming: Incoming, since: float) -> float:
        terms = incoming.terms
        return since + self._delivery_timeout if terms is None or terms.timeout is None else terms.deadline


def _may_join(batch: Batch, incoming: Incoming) -> bool:
    if batch.terms is not incoming.terms and not may_share(batch.terms, incoming.terms):
        return False
    return batch.has_room(incoming.size_bytes)


class _Places:
    """A topic's partitions as a spread may ask about them."""

    __slots__ = ("_now", "_queues", "_view")

    def __init__(self, queues: Mapping[int, PartitionQueue], view: View, now: float) -> None:
        self._queues = queues
        self._view = view
        self._now = now

    def can_take(self, partition: Partition) -> bool:
        """A partition holds one designated batch at a time.

        The rest stays free to go elsewhere when its leader dies, and none starves behind a partition that keyed records
        keep busy.
        """
        node = partition.leader
        if node == NO_NODE or not self._view.is_ready(node) or self._view.room(node) < 1:
            return False
        queue = self._queues.get(partition.index)
        if queue is None:
            return True
        if any(batch.was_designated for batch in queue.queued):
            return False
        return queue.closed_by((node, partition.leader_epoch), self._now) is None

    def queued(self, partition: Partition) -> int:
        queue = self._queues.get(partition.index)
        return 0 if queue is None else len(queue.queued)

    def is_down(self, node: int) -> bool:
        return self._view.failure(node) is not None
