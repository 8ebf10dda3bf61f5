"""The batches of one topic: those that have no partition yet, and the queues of its partitions.

    awaiting_metadata  records of a topic whose partitions are not known yet; in order
    undesignated       unkeyed batches; each gets its partition when it is drained, so that a dead leader holds up none

The second is the "one queue with partition -1 per topic" of the request-pipelining design. A topic with a single
partition has no undesignated batches: unkeyed records keep their place among those with a key.

`SlowStart` limits which partitions get unkeyed batches while leaders respond that they do not lead. For seconds after a
topic was created, metadata names leaders that do not know it yet. So a few partitions are tried first; when one
acknowledges, any will do. After the first refusal, batches go to partitions that have acknowledged something, and one
other is tried now and then, until enough tries in a row were acknowledged. A refused batch goes to another partition,
but only if no later batch has got one, so that order is kept.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from kwire.cluster import ClusterView, Partition, Topic
from kwire.cluster.metadata import NO_NODE
from kwire.producer.accumulator import RecordAccumulator
from kwire.producer.batch import ProducerBatch
from kwire.producer.batch_builder import UNDESIGNATED, UNROUTED, BatchBuilder
from kwire.producer.partition import PartitionQueue
from kwire.producer.partitioner import UnkeyedPartitioner
from kwire.producer.splitting import BatchSizeEstimator

if TYPE_CHECKING:
    from kwire.producer.producer_request import DeliveryOptions

_FIRST_TRIES = 4  # at once
_TRIES_ENOUGH = 16  # one by one, in a row
_TRIES_APART = 0.2  # seconds, of those that are acknowledged: batches go to the other partitions meanwhile
_AWAITED = 1.0  # seconds: a response behind other requests may take long


class SlowStart:
    """Which partitions of one topic may get unkeyed batches, while its leaders may not know that they lead."""

    def __init__(self) -> None:
        self.tries_at = 0.0  # no partition is tried before
        self.awaited_until = 0.0  # for the response to the last try
        self.is_sure = False  # any partition will do
        self._was_refused = False
        self._failures = self._successes = 0  # of tries in a row; failures of one back-off are one
        # Batches without a response yet, and how often each was sent again.
        self._tries: list[tuple[ProducerBatch, int]] = []
        self.given = 0  # how many batches got a partition: the number of the last one

    def may_try(self, now: float) -> bool:
        """Return whether a partition that has acknowledged nothing may get a batch. Only if not `is_sure`."""
        self._tries = [
            (batch, retries) for batch, retries in self._tries if batch.retries == retries and not batch.is_decided
        ]
        return now >= self.tries_at and len(self._tries) < (1 if self._was_refused else _FIRST_TRIES)

    def awaits(self, now: float) -> bool:
        """Return whether the response to a try must come first, when `may_try` returned False."""
        return bool(self._tries) and now < self.awaited_until

    def tries(self, batch: ProducerBatch, now: float) -> None:
        """Note that a batch got a partition that has acknowledged nothing."""
        self._tries.append((batch, batch.retries))
        self.awaited_until = now + _AWAITED

    def unassign(self, batch: ProducerBatch) -> bool:
        """Return whether a batch may get another partition: only if no later batch has got one."""
        is_last = batch.number == self.given
        self.given -= is_last
        return is_last

    def refused(self, now: float, pause: Callable[[int], float]) -> None:
        """Note that a leader does not lead. A refusal during the back-off belongs to a request sent before it."""
        if now >= self.tries_at or not self._was_refused:
            self._failures += 1
            self.tries_at = now + pause(self._failures)
        self.is_sure, self._was_refused, self._successes = False, True, 0

    def acknowledged(self, now: float) -> None:
        """Note that a partition has acknowledged its first batch."""
        self._failures = 0
        self._successes += 1
        self.tries_at = now + _TRIES_APART
        if not self._was_refused or self._successes == _TRIES_ENOUGH:
            self.is_sure, self._was_refused = True, False
            self._tries.clear()


class TopicQueue:
    def __init__(
        self,
        name: str,
        *,
        spread: UnkeyedPartitioner,
        limit: BatchSizeEstimator,
        window_max: int,
        is_ordered: bool,
        delivery_timeout: float,
    ) -> None:
        self.name = name
        self.known: Topic | None = None  # the metadata that the accumulator has
        self.awaiting_metadata: deque[ProducerBatch] = deque()
        self.undesignated: deque[ProducerBatch] = deque()
        self.partitions: dict[int, PartitionQueue] = {}
        self.overdue_at = math.inf  # no batch of these two queues is overdue before
        self.unknown_since: float | None = None
        self.used_at = 0.0  # when the last record came
        self.was_seen = False  # whether the brokers ever had the topic: then they must not create it again
        self.is_requested = True  # whether its metadata is requested
        self.slow_start = SlowStart()
        self._spread = spread
        self._limit = limit
        self._window_max = window_max
        self._is_ordered = is_ordered
        self._delivery_timeout = delivery_timeout
        self._busy: tuple[Topic, list[int]] | None = None  # the brokers for which the first undesignated batch waits

    @property
    def is_idle(self) -> bool:
        return (
            not self.awaiting_metadata
            and not self.undesignated
            and all(queue.is_idle for queue in self.partitions.values())
        )

    @property
    def is_settled(self) -> bool:
        """Return whether all records have a partition and the metadata has no error."""
        known = self.known
        is_known = known is not None and bool(known.partitions) and not known.error_code
        return is_known and self.unknown_since is None and not self.awaiting_metadata and not self.undesignated

    @property
    def is_needed(self) -> bool:
        """Return whether its metadata is needed: the brokers have the topic, or records wait for it."""
        return (self.known is not None and bool(self.known.partitions)) or not self.is_idle

    def partition(self, index: int) -> PartitionQueue:
        queue = self.partitions.get(index)
        if queue is None:
            queue = PartitionQueue(
                self.name,
                index,
                self._window_max,
                limit=self._limit,
                slow_start=self.slow_start,
                is_ordered=self._is_ordered,
            )
            self.partitions[index] = queue
        return queue

    def add(self, builder: BatchBuilder, now: float) -> PartitionQueue | None:
        """Add a batch; return its partition's queue if it has a partition."""
        self.used_at = now
        batch = self.batch(builder, now)
        if builder.partition >= 0:
            queue = self.partition(builder.partition)
            queue.add(batch)
            return queue
        (self.awaiting_metadata if builder.partition == UNROUTED else self.undesignated).append(batch)
        self.overdue_at = min(self.overdue_at, batch.deadline)
        return None

    def batch(self, builder: BatchBuilder, now: float) -> ProducerBatch:
        since = now if builder.since is None else builder.since
        terms: DeliveryOptions | None = builder.terms
        is_limited = terms is not None and terms.timeout is not None
        return ProducerBatch(builder, since, terms.deadline if terms and is_limited else since + self._delivery_timeout)

    def route(self, accumulator: RecordAccumulator, partitions: Sequence[Partition], *, apart: bool) -> None:
        """Give the accumulator the partitions; it puts the waiting records into new batches.

        `apart`: no later record joins these.
        """
        waiting, self.awaiting_metadata = self.awaiting_metadata, deque()
        if not partitions:
            waiting, self.awaiting_metadata = self.awaiting_metadata, waiting
        for batch in waiting:
            batch.builder.since = batch.created_at
        led = tuple(place for place, partition in enumerate(partitions) if partition.leader != NO_NODE)
        accumulator.route(
            self.name, len(partitions), led or range(len(partitions)), [batch.builder for batch in waiting], apart
        )

    def take_expired(self, now: float) -> list[ProducerBatch]:
        """Remove and return the batches without a partition that are past their deadline."""
        overdue: list[ProducerBatch] = []
        if now < self.overdue_at:
            return overdue
        self.overdue_at = math.inf
        for queue in (self.awaiting_metadata, self.undesignated):
            batches = list(queue)
            queue.clear()
            for batch in batches:
                if batch.deadline <= now:
                    overdue.append(batch)
                else:
                    queue.append(batch)
                    self.overdue_at = min(self.overdue_at, batch.deadline)
        return overdue

    def assign_partitions(
        self, known: Topic, view: ClusterView, is_due: Callable[[ProducerBatch, float], bool], now: float
    ) -> list[PartitionQueue]:
        """Give due undesignated batches, from the first, to partitions that can send one; return their queues.

        Each partition gets at most one.
        """
        given: list[PartitionQueue] = []
        if self._busy is not None and self._is_busy(*self._busy, known, view):
            return given
        partitions, slow_start = known.partitions, self.slow_start
        places = _Partitions(self.partitions, view, now)
        while self.undesignated and len(given) < len(partitions) and is_due(self.undesignated[0], now):
            batch = self.undesignated[0]
            places.may_try = slow_start.is_sure or slow_start.may_try(now)
            if not places.may_try and slow_start.awaits(now):
                break
            chosen = self._spread.choose(self.name, partitions, places, batch.builder.size_bytes, now)
            if chosen is None:
                if places.is_busy():
                    self._busy = known, list(places.brokers)
                break
            self.undesignated.popleft()
            batch.close()
            batch.assigned_at_drain = True
            batch.builder.partition = chosen.index
            queue = self.partitions.get(chosen.index) or self.partition(chosen.index)
            queue.add(batch)
            batch.number = slow_start.given = slow_start.given + 1
            if not slow_start.is_sure and queue.acknowledged_by != (chosen.leader, chosen.leader_epoch):
                slow_start.tries(batch, now)
            given.append(queue)
        return given

    def _is_busy(self, before: Topic, nodes: list[int], known: Topic, view: ClusterView) -> bool:
        """Return whether the brokers still have no capacity: so that a thousand partitions are not checked in vain."""
        if known is before and all(view.is_ready(node) and view.capacity(node) < 1 for node in nodes):
            return True
        self._busy = None
        return False

    def unassign(self, batch: ProducerBatch) -> None:
        """Take back the batch that was assigned last and is in no log, so that another partition gets it."""
        batch.assigned_at_drain = False
        batch.builder.partition = UNDESIGNATED
        self.undesignated.appendleft(batch)
        self.overdue_at = min(self.overdue_at, batch.deadline)

    def close_batches(self) -> None:
        """Close the open batches: no record joins them, and they do not linger."""
        for queue in (self.awaiting_metadata, self.undesignated, *(queue.queued for queue in self.partitions.values())):
            if queue:
                queue[-1].close()

    def narrow_window(self, window_max: int) -> None:
        """Lower the window, after the brokers turned out not to recognise duplicates."""
        self._window_max = window_max
        for queue in self.partitions.values():
            queue.narrow_window(window_max)

    def unresolved(self) -> list[ProducerBatch]:
        """Return every batch that is not completed."""
        placed = (batch for queue in self.partitions.values() for batch in queue.unresolved())
        return [*self.awaiting_metadata, *self.undesignated, *placed]


class _Partitions:
    """A topic's partitions as a partitioner sees them in one turn; the state of each node is read once."""

    __slots__ = ("_now", "_queues", "_view", "brokers", "may_try")

    def __init__(self, queues: Mapping[int, PartitionQueue], view: ClusterView, now: float) -> None:
        self._queues = queues
        self._view = view
        self._now = now
        self.brokers: dict[int, bool] = {}  # those that were checked, and whether they can be sent a request now
        self.may_try = True  # whether a partition that has acknowledged nothing may be chosen

    def is_busy(self) -> bool:
        """Return whether the only obstacle is that every checked broker has its maximum of requests in flight."""
        ready = self._view.is_ready
        return bool(self.brokers) and not any(is_open or not ready(node) for node, is_open in self.brokers.items())

    def can_take(self, partition: Partition) -> bool:
        """A partition holds one designated batch at a time.

        The rest stays free to go elsewhere when its leader dies, and none starves behind a partition that keyed records
        keep busy.
        """
        node = partition.leader
        if node == NO_NODE:
            return False
        is_open = self.brokers.get(node)
        if is_open is None:
            is_open = self.brokers[node] = self._view.is_ready(node) and self._view.capacity(node) > 0
        queue = self._queues.get(partition.index)
        if not is_open or queue is None:
            return is_open and self.may_try
        leader = node, partition.leader_epoch
        if not self.may_try and queue.acknowledged_by != leader:
            return False
        for batch in queue.queued:
            if batch.assigned_at_drain:
                return False
        return queue.blocked_reason(leader, self._now) is None

    def queued(self, partition: Partition) -> int:
        queue = self._queues.get(partition.index)
        return 0 if queue is None else len(queue.queued)

    def is_down(self, node: int) -> bool:
        return self._view.failure(node) is not None
