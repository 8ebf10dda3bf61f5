"""The order of one partition: its queue, its window of batches in flight, its next sequence.

    queued -- take --> in flight -- acknowledged --> resolved
      ^                    |------- failed --------> resolved
      |                    '------- retry ---------> retrying, until everything in flight has resolved
      '--------------------- back to the front, in the order in which they were first sent

While a batch is retrying, no new batch is taken (rules 1 and 3). A new leader gets nothing before the old one has
responded (rule 4). This module decides nothing about errors: the response handler calls `retry` or `failed`.

A topic that was deleted and created again is another log under the same name. Queued batches go there, since callers
mean the name. Sequences start again, except where a request by name got no response: it may have reached the new log,
which then knows the batch by its sequence.

`ReadyQueue` holds the partitions that the sender examines in a turn. The cost of a turn must depend on what changed
since the last one, not on how many partitions hold batches. So the sender examines a partition again only after a new
batch, a response, new metadata or a new producer id. A partition that is not ready is parked until its linger expires,
its back-off ends, or the next such change.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING
from uuid import UUID

from kwire.cluster.metadata import NO_ID
from kwire.producer.batch import SEQUENCES, ProducerBatch
from kwire.producer.splitting import BatchSizeEstimator

if TYPE_CHECKING:
    from kwire.producer.topic import SlowStart

Leader = tuple[int, int]  # a broker, and the leader epoch in which it leads

_FIRST_EPOCH = 0
_NEVER = float("-inf")
# Seconds for which an acknowledgement proves that the leader knows this producer. Brokers forget producers that were
# idle for long (producer.id.expiration.ms, a day unless somebody set it), and then take any sequence again: of two
# batches that are out then, the second could be stored though the first is refused.
_PROOF_LASTS = 60.0


class PartitionQueue:
    """`window_max` is how many batches may be out at once, after the leader's first acknowledgement.

    `is_ordered`: batches complete in the order in which they were added, whatever the order of their responses.
    """

    def __init__(
        self,
        topic: str,
        index: int,
        window_max: int,
        *,
        limit: BatchSizeEstimator,
        slow_start: SlowStart,
        is_ordered: bool = True,
    ) -> None:
        self.topic = topic
        self.index = index
        self.queued: deque[ProducerBatch] = deque()
        self._unresolved: deque[ProducerBatch] | None = (
            deque() if is_ordered else None
        )  # batches whose futures are not all completed
        self.limit, self.slow_start = limit, slow_start  # the topic's
        # No batch here is overdue before this. A long queue must not be scanned at every turn of the loop.
        self.overdue_at = math.inf
        self.wakes_at = math.inf  # written by the ReadyQueue
        self.retry_at = 0.0
        self.attempts = 0  # failures in a row
        self.next_sequence = 0
        self._window_max = window_max
        self._in_flight: deque[ProducerBatch] = deque()
        self._retrying: list[ProducerBatch] = []
        # First-ack gate: a window of 1 until this leader, in this epoch, has acknowledged something. Brokers 2.5 to
        # 4.4 accept any first sequence of a producer they do not know: with two batches out to a new leader, the
        # second could be stored and the first refused (KAFKA-15591), and then the first is lost.
        self.leader: Leader | None = None  # that was sent to last
        self.acknowledged_by: Leader | None = None  # who acknowledged something last
        self._proven_until = _NEVER
        self._topic_id = NO_ID

    def __repr__(self) -> str:
        return f"<PartitionQueue {self.topic}-{self.index}: {len(self.queued)} queued, {len(self._in_flight)} out>"

    @property
    def is_idle(self) -> bool:
        return not (self.queued or self._in_flight or self._retrying)

    @property
    def in_flight_count(self) -> int:
        return len(self._in_flight)

    def in_flight(self) -> list[ProducerBatch]:
        return list(self._in_flight)

    def waiting(self) -> list[ProducerBatch]:
        """Return the batches to be sent, or sent again."""
        return [*self._retrying, *self.queued]

    def is_in_flight(self, batch: ProducerBatch) -> bool:
        return batch in self._in_flight

    @property
    def is_new(self) -> bool:
        """Return whether the leader that was sent to last is the partition's first, and has acknowledged nothing."""
        return self.leader is not None and self.leader[1] == _FIRST_EPOCH and self.acknowledged_by != self.leader

    def window(self, now: float) -> int:
        return self._window_max if now < self._proven_until else 1

    def unresolved(self) -> list[ProducerBatch]:
        """Return the batches that are not completed, oldest first."""
        return [*self._retrying, *self._in_flight, *self.queued] if self._unresolved is None else list(self._unresolved)

    def sequenced_possibly_persisted(self) -> bool:
        """Return whether it is unknown of some batch of the current epoch if it was stored."""
        return any(
            batch.is_sequenced and batch.possibly_persisted
            for batch in (*self._retrying, *self._in_flight, *self.queued)
        )

    def add(self, batch: ProducerBatch) -> None:
        """Append a new batch behind all others."""
        self.queued.append(batch)
        if batch.deadline < self.overdue_at:
            self.overdue_at = batch.deadline
        if self._unresolved is not None:
            self._unresolved.append(batch)
            batch.unresolved = self._unresolved

    def blocked_reason(self, leader: Leader, now: float) -> str | None:
        """Return why no batch can be taken for this (leader, leader epoch) now; None when one can."""
        if now < self.retry_at:
            return "back-off"
        if self._retrying:
            return "batches that are to be retried wait for the responses to later ones"
        if self._in_flight and self.leader is not None and self.leader[0] != leader[0]:
            return "the old leader has not responded yet"
        window = self._window_max if self.leader == leader and now < self._proven_until else 1
        if len(self._in_flight) >= window:
            return f"window of {window}"
        return None

    def is_of(self, topic_id: UUID) -> bool:
        """Return whether batches can be taken for the topic with this id, which may differ from before.

        Not while batches for the old topic are in flight; after them, leader and sequences start again. Brokers before
        2.8 return no ids, and nothing starts again.
        """
        if topic_id is self._topic_id:
            return True
        if self._topic_id not in (topic_id, NO_ID) and topic_id != NO_ID:
            if self._in_flight:
                return False
            self._begin_anew()
        if topic_id != NO_ID:
            self._topic_id = topic_id
        return True

    def _begin_anew(self) -> None:
        self.leader, self.acknowledged_by, self._proven_until = None, None, _NEVER
        if any(batch.is_sequenced and batch.possibly_persisted and batch.was_named for batch in self.queued):
            return
        for batch in self.queued:
            batch.possibly_persisted = False
        self.restart_sequences()

    def take(self, leader: Leader) -> ProducerBatch:
        """Put the first queued batch in flight to this leader. `blocked_reason` must have returned None."""
        assert not self._retrying
        assert not self._in_flight or self.leader is None or self.leader[0] == leader[0]
        if self.leader != leader:
            self.leader, self._proven_until = leader, _NEVER
        batch = self.queued.popleft()
        if batch.count < 0:
            batch.close()
        batch.attempts += 1
        self._in_flight.append(batch)
        return batch

    @property
    def sequence_state(self) -> tuple[int, UUID] | None:
        """Return the state to keep when this queue is dropped, for `resume_sequences`; None if nothing was sent."""
        return (self.next_sequence, self._topic_id) if self.next_sequence else None

    def resume_sequences(self, state: tuple[int, UUID]) -> None:
        """Continue the sequences of an earlier queue of the same partition."""
        self.next_sequence, self._topic_id = state

    def sequence(self, batch: ProducerBatch, producer_id: int, producer_epoch: int) -> None:
        """Give a batch that is being written for the first time the next sequence."""
        batch.set_producer_state(producer_id, producer_epoch, self.next_sequence)
        self.next_sequence = (self.next_sequence + batch.count) % SEQUENCES

    def acknowledged(self, batch: ProducerBatch, now: float) -> None:
        self._in_flight.remove(batch)  # usually the first: responses come in the order of the requests
        self.attempts = 0
        self.acknowledged_by = self.leader
        # Not while a batch is held: brokers recognise the last five batches of a producer, and with this window more
        # than four could be stored behind one that may have been stored itself. Sent again, it would look new.
        if self._retrying:
            self._proven_until = _NEVER
            self._requeue_retrying()
        else:
            self._proven_until = now + _PROOF_LASTS

    def failed(self, batch: ProducerBatch) -> None:
        """Remove a batch that failed; later batches may go on."""
        self._in_flight.remove(batch)
        self._proven_until = _NEVER
        self._requeue_retrying()

    def retry(self, batch: ProducerBatch, retry_at: float) -> None:
        """Send the batch again, after everything in flight has resolved."""
        self._in_flight.remove(batch)
        self._retrying.append(batch)
        self._proven_until = _NEVER
        self.retry_at = max(self.retry_at, retry_at)
        self._requeue_retrying()

    def unassign(self, batch: ProducerBatch, retry_at: float) -> bool:
        """Remove a batch that is certainly in no log, so that another partition gets it; return whether it did.

        The next batch gets its sequence. A batch with later ones behind it stays.
        """
        is_last = not batch.is_sequenced or batch.sequence_of(batch.count) == self.next_sequence
        if not is_last or self._retrying or not self.slow_start.unassign(batch):
            return False
        self._in_flight.remove(batch)
        if batch.is_sequenced:
            self.next_sequence = batch.sequence
            batch.clear_producer_state()
        if self._unresolved is not None:
            self._unresolved.remove(batch)
            batch.unresolved = None
        self.retry_at = max(self.retry_at, retry_at)
        return True

    def replace(self, batch: ProducerBatch, pieces: list[ProducerBatch]) -> None:
        """Put pieces in the place of a batch that is first in the queue, or out and refused; then they wait as in
        `retry`."""
        if self._unresolved is not None:
            at = self._unresolved.index(batch)
            del self._unresolved[at]
            for piece in reversed(pieces):
                self._unresolved.insert(at, piece)
        if self.queued and self.queued[0] is batch:
            self.queued.popleft()
            self.queued.extendleft(reversed(pieces))
        else:
            self._in_flight.remove(batch)
            self._retrying += pieces
            self._proven_until = _NEVER
            self._requeue_retrying()

    def has_earlier(self, batch: ProducerBatch) -> bool:
        """Return whether a batch that was taken before this one, which is in flight, is unresolved."""
        return bool(self._retrying) or self._in_flight[0] is not batch

    def leave_gap(self) -> None:
        """Note that the first batch in flight is in no log, and will not be under its present sequence.

        Brokers accept no sequence beyond a gap. So the batches queued behind it are not stored either, whatever became
        of their responses, and need not be resolved before the epoch bump.
        """
        for batch in self.queued:
            if batch.is_sequenced:
                batch.possibly_persisted = False

    def narrow_window(self, window_max: int) -> None:
        self._window_max = window_max

    def overdue_unqueued(self, now: float) -> list[ProducerBatch]:
        """Return the batches past their deadline that cannot be removed yet, without those returned before.

        They are in flight, wait to be retried, or are decided and wait for an earlier batch of the partition. A batch
        with a timeout of its own comes at its deadline. Any other waits for the batches before it, so that futures
        complete in order (rule 10): an earlier one may have a longer timeout of its own.
        """
        unresolved = self.unresolved()
        if not any(batch.deadline <= now and not batch.is_completed for batch in unresolved):
            return []
        queued = set(self.queued)
        overdue, is_first = [], True
        for batch in unresolved:
            if batch.is_completed:
                continue
            has_own_timeout = batch.terms is not None and batch.terms.timeout is not None
            if (
                batch.deadline <= now
                and batch not in queued
                and (is_first or has_own_timeout or self._unresolved is None)
            ):
                overdue.append(batch)
            else:
                is_first = False
        return overdue

    def expired(self, now: float) -> list[ProducerBatch]:
        """Remove and return the queued batches past their deadline. Call `overdue_unqueued` next, for the others."""
        if now < self.overdue_at:
            return []
        overdue = [batch for batch in self.queued if batch.deadline <= now]
        if overdue:
            self.queued = deque(batch for batch in self.queued if batch.deadline > now)
        coming = (batch.deadline for batch in self.unresolved() if batch.deadline > now)
        self.overdue_at = min(coming, default=math.inf)
        return overdue

    def restart_sequences(self) -> None:
        """Begin at 0 after an epoch bump, also for sequenced batches that are certainly not stored (rule 2)."""
        assert not self._in_flight
        self.next_sequence = 0
        self._proven_until = _NEVER
        for batch in self.queued:
            if batch.is_sequenced:
                batch.clear_producer_state()

    def _requeue_retrying(self) -> None:
        if not self._in_flight and self._retrying:
            # They were taken one after the other, and their responses came in that order.
            self.queued.extendleft(reversed(self._retrying))
            self.overdue_at = min(self.overdue_at, *(batch.deadline for batch in self._retrying))
            self._retrying.clear()


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
        return batch.builder.is_closed or now >= batch.created_at + self._linger or not self.lingers

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
                dict.fromkeys(
                    [queue for queue, head in lingering.items() if not self.lingers or head.builder.is_closed]
                )
            )
        changed, self._changed = self._changed, {}
        if lingering or self._parked:
            for queue in changed:
                lingering.pop(queue, None)
                self._parked.pop(queue, None)
        return changed

    @property
    def is_waiting(self) -> bool:
        """Return whether a batch lingers, or would linger if it were not blocked."""
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
