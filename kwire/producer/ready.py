"""Which partitions the sender looks at in a turn: those of which something changed, or whose time has come.

A turn costs what changed since the last one, not what the producer holds: of a thousand partitions with batches, a
request may carry four. So whoever changes what a look at a partition goes by stirs it: it got a batch or an answer,
there is other metadata or another producer id. A look that finds that nothing is to be sent yet leaves the partition to
linger, or to wake at the end of a back-off, or aside, until it is stirred again.

It refuses to know what a look finds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import count

from kwire.producer.batch import ProducerBatch
from kwire.producer.partition import PartitionQueue


class ReadyQueue:
    """Times are the loop's."""

    def __init__(self, linger: float) -> None:
        self.lingers = True  # whether batches wait for more records: not while senders wait for the memory of these
        self.awaits_identity = False  # some partition was put aside until the sequences are mended
        self.active: dict[PartitionQueue, None] = {}  # those that hold something; a dict keeps their order
        # No batch of these is overdue before this, which may be too early: all are looked through then, which is
        # seldom, since what is sent does not wait for as long as it may.
        self.overdue_at = math.inf
        self._linger = linger
        self._stirred: dict[PartitionQueue, None] = {}
        self._lingering: dict[PartitionQueue, ProducerBatch] = {}  # with the open batch that is first
        self._blocked: dict[PartitionQueue, None] = {}  # with something that is due and must wait
        self._tick_at = -math.inf  # when the last batch that was put aside for another reason has lingered too
        self._timers: list[tuple[float, int, PartitionQueue]] = []  # a heap; the number decides between equal times
        self._numbers = count()

    def add(self, queue: PartitionQueue) -> None:
        """A partition got a batch."""
        self.active[queue] = None
        self._stirred[queue] = None
        if queue.overdue_at < self.overdue_at:
            self.overdue_at = queue.overdue_at

    def mark_ready(self, queue: PartitionQueue) -> None:
        self._stirred[queue] = None

    def answered(self, taken: Iterable[tuple[PartitionQueue, ProducerBatch]]) -> None:
        """What was out of these partitions has come back, one way or the other."""
        for queue, _ in taken:
            if queue.queued:
                self._stirred[queue] = None
                self.overdue_at = min(self.overdue_at, queue.overdue_at)  # a batch that came back may be overdue
            elif queue.is_idle:
                self.active.pop(queue, None)

    def mark_all_ready(self) -> None:
        self._stirred.update(self.active)

    def is_due(self, batch: ProducerBatch, now: float) -> bool:
        return batch.run.is_closed or now >= batch.created_at + self._linger or not self.lingers

    def linger(self, queue: PartitionQueue, head: ProducerBatch) -> None:
        """Nothing is to be done before its first batch, which is not due, is closed or has lingered."""
        self._lingering[queue] = head
        self.wake(queue, head.created_at + self._linger)

    def block(self, queue: PartitionQueue) -> None:
        """Its first batch is due and must wait. As long as it would have lingered, nobody is woken for others."""
        self._blocked[queue] = None
        self._tick_at = max(self._tick_at, queue.queued[0].created_at + self._linger)

    def wake(self, queue: PartitionQueue, at: float) -> None:
        """Look at it then, at the latest."""
        if at < queue.wakes_at:
            queue.wakes_at = at
            heappush(self._timers, (at, next(self._numbers), queue))

    def due(self, now: float) -> Iterable[PartitionQueue]:
        """The partitions to look at now."""
        timers, lingering = self._timers, self._lingering
        while timers and timers[0][0] <= now:
            at, _, queue = heappop(timers)
            if at == queue.wakes_at:  # else an earlier time took its place
                queue.wakes_at = math.inf
                self._stirred[queue] = None
        if lingering:
            # The door tells of new runs and wakes for full ones, but does not say which are full.
            self._stirred.update(
                dict.fromkeys([queue for queue, head in lingering.items() if not self.lingers or head.run.is_closed])
            )
        stirred, self._stirred = self._stirred, {}
        if lingering or self._blocked:
            for queue in stirred:
                lingering.pop(queue, None)
                self._blocked.pop(queue, None)
        return stirred

    @property
    def is_waiting(self) -> bool:
        """Whether some batch lingers, or would if it did not have to wait for another reason."""
        return bool(self._lingering or self._blocked)

    def deadlines(self) -> tuple[float, float, float]:
        """When a partition wakes; when one may hold something overdue; when what must wait would have lingered."""
        wakes_at = self._timers[0][0] if self._timers else math.inf
        return wakes_at, self.overdue_at, self._tick_at if self._blocked else math.inf

    def clear(self) -> None:
        """All is over."""
        self.active.clear()
        self._stirred.clear()
        self._lingering.clear()
        self._blocked.clear()
        self._timers.clear()
        self.overdue_at = math.inf
