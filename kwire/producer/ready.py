"""Which partitions the sender examines in a turn: those of which something changed, or whose time has come.

A turn must cost what changed since the last one, not what the producer holds. So a partition is examined again only
when its readiness may have changed: a new batch, a response, new metadata or a new producer id. If it is not ready, it
is parked until its linger expires, its back-off ends, or the next such change.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import count

from kwire.producer.batch import ProducerBatch
from kwire.producer.partition import PartitionQueue


class ReadyQueue:
    """Times are seconds of the loop's clock."""

    def __init__(self, linger: float) -> None:
        self.lingers = True  # whether batches wait for more records: not while senders wait for the memory of these
        self.awaits_id = False  # some partition was put aside until the sequences are mended
        self.active: dict[PartitionQueue, None] = {}  # those that hold something; a dict keeps their order
        # No batch of these is overdue before this, which may be too early: all are looked through then, which is
        # seldom, since what is sent does not wait for as long as it may.
        self.overdue_at = math.inf
        self._linger = linger
        self._changed: dict[PartitionQueue, None] = {}
        self._lingering: dict[PartitionQueue, ProducerBatch] = {}  # with the open batch that is first
        self._parked: dict[PartitionQueue, None] = {}  # with something that is due and must wait
        self._tick_at = -math.inf  # when the last batch that was put aside for another reason has lingered too
        self._timers: list[tuple[float, int, PartitionQueue]] = []  # a heap; the number decides between equal times
        self._numbers = count()

    def add(self, queue: PartitionQueue) -> None:
        """Note that a partition got a batch."""
        self.active[queue] = None
        self._changed[queue] = None
        if queue.overdue_at < self.overdue_at:
            self.overdue_at = queue.overdue_at

    def mark_ready(self, queue: PartitionQueue) -> None:
        self._changed[queue] = None

    def requests_done(self, taken: Iterable[tuple[PartitionQueue, ProducerBatch]]) -> None:
        """Note that the requests with these batches have a response, or failed."""
        for queue, _ in taken:
            if queue.queued:
                self._changed[queue] = None
                self.overdue_at = min(self.overdue_at, queue.overdue_at)  # a batch that came back may be overdue
            elif queue.is_idle:
                self.active.pop(queue, None)

    def mark_all_ready(self) -> None:
        self._changed.update(self.active)

    def is_due(self, batch: ProducerBatch, now: float) -> bool:
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
            if at == queue.wakes_at:  # else an earlier time took its place
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
        """Whether some batch lingers, or would if it were not blocked for another reason."""
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
