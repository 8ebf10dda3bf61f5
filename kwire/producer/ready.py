"""The partitions that the sender examines in a turn: those that changed, and those whose timer expired.

The cost of a turn must depend on what changed since the last one, not on how many partitions hold batches. So the
sender examines a partition again only after a new batch, a response, new metadata or a new producer id. A partition
that is not ready is parked until its linger expires, its back-off ends, or the next such change.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import count

from kwire.producer.batch import ProducerBatch
from kwire.producer.partition import PartitionQueue


class ReadyQueue:
    """The partitions to examine, and their timers. Times are seconds of the loop's clock."""

    def __init__(self, linger: float) -> None:
        self.lingers = True  # whether batches linger: not while senders wait for memory
        self.awaits_id = False  # whether a partition waits for a new producer id
        self.active: dict[PartitionQueue, None] = {}  # partitions with batches; a dict keeps their order
        # A lower bound: no batch is overdue before this. All are examined at that time, which is rare, since few
        # batches wait that long.
        self.overdue_at = math.inf
        self._linger = linger
        self._changed: dict[PartitionQueue, None] = {}
        self._lingering: dict[PartitionQueue, ProducerBatch] = {}  # with its first batch, which is open
        self._parked: dict[PartitionQueue, None] = {}  # its first batch is due but blocked
        self._tick_at = -math.inf  # when the last parked batch would have lingered
        self._timers: list[tuple[float, int, PartitionQueue]] = []  # a heap; the number orders equal times
        self._numbers = count()

    def add(self, queue: PartitionQueue) -> None:
        """Add a partition that got a batch."""
        self.active[queue] = None
        self._changed[queue] = None
        if queue.overdue_at < self.overdue_at:
            self.overdue_at = queue.overdue_at

    def mark_ready(self, queue: PartitionQueue) -> None:
        """Examine the partition in the next turn."""
        self._changed[queue] = None

    def requests_done(self, taken: Iterable[tuple[PartitionQueue, ProducerBatch]]) -> None:
        """Examine the partitions of requests that got a response or failed; drop those that are idle."""
        for queue, _ in taken:
            if queue.queued:
                self._changed[queue] = None
                self.overdue_at = min(self.overdue_at, queue.overdue_at)  # a batch that came back may be overdue
            elif queue.is_idle:
                self.active.pop(queue, None)

    def mark_all_ready(self) -> None:
        """Examine all partitions that hold batches in the next turn."""
        self._changed.update(self.active)

    def is_due(self, batch: ProducerBatch, now: float) -> bool:
        """Return whether a batch is closed or has lingered."""
        return batch.run.is_closed or now >= batch.created_at + self._linger or not self.lingers

    def park_until_linger(self, queue: PartitionQueue, head: ProducerBatch) -> None:
        """Park a partition until its first batch is closed or has lingered."""
        self._lingering[queue] = head
        self.wake_at(queue, head.created_at + self._linger)

    def park(self, queue: PartitionQueue) -> None:
        """Park a partition whose first batch is due and blocked. While it would linger, callers need no wake-up."""
        self._parked[queue] = None
        self._tick_at = max(self._tick_at, queue.queued[0].created_at + self._linger)

    def wake_at(self, queue: PartitionQueue, at: float) -> None:
        """Examine the partition at this time, at the latest."""
        if at < queue.wakes_at:
            queue.wakes_at = at
            heappush(self._timers, (at, next(self._numbers), queue))

    def pop_ready(self, now: float) -> Iterable[PartitionQueue]:
        """Remove and return the partitions to examine now."""
        timers, lingering = self._timers, self._lingering
        while timers and timers[0][0] <= now:
            at, _, queue = heappop(timers)
            if at == queue.wakes_at:  # else an earlier timer replaced it
                queue.wakes_at = math.inf
                self._changed[queue] = None
        if lingering:
            # The accumulator reports new batches and wakes the loop for full ones, but does not say which are full.
            self._changed.update(
                dict.fromkeys([queue for queue, head in lingering.items() if not self.lingers or head.run.is_closed])
            )
        changed, self._changed = self._changed, {}
        if lingering or self._parked:
            for queue in changed:
                lingering.pop(queue, None)
                self._parked.pop(queue, None)
        return changed

    @property
    def is_waiting(self) -> bool:
        """Whether a batch lingers, or would linger if it were not blocked."""
        return bool(self._lingering or self._parked)

    def deadlines(self) -> tuple[float, float, float]:
        """Return when a partition wakes, when a batch may be overdue, when the parked batches would have lingered."""
        wakes_at = self._timers[0][0] if self._timers else math.inf
        return wakes_at, self.overdue_at, self._tick_at if self._parked else math.inf

    def clear(self) -> None:
        """Forget everything, at close."""
        self.active.clear()
        self._changed.clear()
        self._lingering.clear()
        self._parked.clear()
        self._timers.clear()
        self.overdue_at = math.inf
