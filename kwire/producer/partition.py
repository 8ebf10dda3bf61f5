"""The one owner of order for a partition: its queue, its window of unanswered batches, its next sequence.

    queued -- take --> out -- acknowledged --> resolved
      ^                 |---- failed --------> resolved
      |                 `---- retry ---------> held, until everything that is out has resolved
      '------------------ back to the front, in the order in which they were first taken

Nothing overtakes: while a batch is held, nothing new is taken (rules 1 and 3), and a new leader gets nothing before the
old one's answers are in (rule 4).

A topic that was deleted and created again is another log under the same name. What is queued goes there, since callers
mean the name; that some of it may have been stored in the old log does not matter, for that is gone. Sequences begin
anew, except where a request by name got no answer: that may have reached the new log already, which then knows the
batch by its sequence.

It decides nothing about errors; the sender does, and tells it `retry` or `failed`.
"""

from __future__ import annotations

import math
from collections import deque
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

    `is_ordered`: outcomes are told in the order in which the batches came, whatever the order in which they are known.
    """

    def __init__(
        self,
        topic: str,
        index: int,
        window_max: int,
        *,
        limit: BatchSizeEstimator,
        footing: SlowStart,
        is_ordered: bool = True,
    ) -> None:
        self.topic = topic
        self.index = index
        self.queued: deque[ProducerBatch] = deque()
        self._line: deque[ProducerBatch] | None = (
            deque() if is_ordered else None
        )  # every batch whose outcome is not told yet
        self.limit, self.footing = limit, footing  # the topic's
        # No batch here is overdue before this. A long queue must not be looked through at every turn of the loop.
        self.overdue_at = math.inf
        self.wakes_at = math.inf  # the agenda's
        self.retry_at = 0.0
        self.attempts = 0  # failures in a row
        self.next_sequence = 0
        self._window_max = window_max
        self._out: deque[ProducerBatch] = deque()
        self._held: list[ProducerBatch] = []
        # First-ack gate: a window of 1 until this leader, in this epoch, has acknowledged something. Brokers 2.5 to
        # 4.4 accept any first sequence of a producer they do not know: with two batches out to a new leader, the
        # second could be stored and the first refused (KAFKA-15591), and then the first is lost.
        self.leader: Leader | None = None  # that was sent to last
        self.acknowledged_by: Leader | None = None  # who acknowledged something last
        self._proven_until = _NEVER
        self._topic_id = NO_ID

    def __repr__(self) -> str:
        return f"<PartitionQueue {self.topic}-{self.index}: {len(self.queued)} queued, {len(self._out)} out>"

    @property
    def is_idle(self) -> bool:
        return not (self.queued or self._out or self._held)

    @property
    def out(self) -> int:
        return len(self._out)

    def in_flight(self) -> list[ProducerBatch]:
        return list(self._out)

    def waiting(self) -> list[ProducerBatch]:
        """What is to be sent, or sent again."""
        return [*self._held, *self.queued]

    def is_out(self, batch: ProducerBatch) -> bool:
        return batch in self._out

    @property
    def is_new(self) -> bool:
        """Whether the leader that was sent to last is the partition's first, and has acknowledged nothing."""
        return self.leader is not None and self.leader[1] == _FIRST_EPOCH and self.acknowledged_by != self.leader

    def window(self, now: float) -> int:
        return self._window_max if now < self._proven_until else 1

    def unresolved(self) -> list[ProducerBatch]:
        """Every batch whose outcome is not told yet, oldest first."""
        return [*self._held, *self._out, *self.queued] if self._line is None else list(self._line)

    def sequenced_possibly_persisted(self) -> bool:
        """Whether some batch of the current epoch may or may not have been stored."""
        return any(batch.is_sequenced and batch.possibly_persisted for batch in (*self._held, *self._out, *self.queued))

    def add(self, batch: ProducerBatch) -> None:
        """A new batch, behind all others."""
        self.queued.append(batch)
        if batch.deadline < self.overdue_at:
            self.overdue_at = batch.deadline
        if self._line is not None:
            self._line.append(batch)
            batch.line = self._line

    def blocked_reason(self, leader: Leader, now: float) -> str | None:
        """Why nothing can be taken for this (leader, leader epoch) now; None when a batch can."""
        if now < self.retry_at:
            return "back-off"
        if self._held:
            return "batches that are to be sent again wait for answers to later ones"
        if self._out and self.leader is not None and self.leader[0] != leader[0]:
            return "the old leader has not answered yet"
        window = self._window_max if self.leader == leader and now < self._proven_until else 1
        if len(self._out) >= window:
            return f"window of {window}"
        return None

    def is_of(self, topic_id: UUID) -> bool:
        """Whether batches can be taken for the topic with this id; it may be another than before.

        Not while answers from the old one are awaited; then all that was settled with that begins anew. Brokers before
        2.8 tell no ids, and nothing begins anew.
        """
        if topic_id is self._topic_id:
            return True
        if self._topic_id not in (topic_id, NO_ID) and topic_id != NO_ID:
            if self._out:
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
        """Move the first queued batch out, to this leader. `blocked_reason` was asked before."""
        assert not self._held
        assert not self._out or self.leader is None or self.leader[0] == leader[0]
        if self.leader != leader:
            self.leader, self._proven_until = leader, _NEVER
        batch = self.queued.popleft()
        if batch.count < 0:
            batch.close()
        batch.attempts += 1
        self._out.append(batch)
        return batch

    @property
    def sequence_state(self) -> tuple[int, UUID] | None:
        """What must outlast this queue while the producer keeps its id, for `resume_sequences`; None if nothing."""
        return (self.next_sequence, self._topic_id) if self.next_sequence else None

    def resume_sequences(self, state: tuple[int, UUID]) -> None:
        """Go on where an earlier queue of the same partition was."""
        self.next_sequence, self._topic_id = state

    def sequence(self, batch: ProducerBatch, producer_id: int, producer_epoch: int) -> None:
        """Give a batch that is being written for the first time the next sequence."""
        batch.set_producer_state(producer_id, producer_epoch, self.next_sequence)
        self.next_sequence = (self.next_sequence + batch.count) % SEQUENCES

    def acknowledged(self, batch: ProducerBatch, now: float) -> None:
        self._out.remove(batch)  # the first: answers come in the order of the requests, if they come
        self.attempts = 0
        self.acknowledged_by = self.leader
        # Not while a batch is held: brokers recognise the last five batches of a producer, and with this window more
        # than four could be stored behind one that may have been stored itself. Sent again, it would look new.
        if self._held:
            self._proven_until = _NEVER
            self._settle()
        else:
            self._proven_until = now + _PROOF_LASTS

    def failed(self, batch: ProducerBatch) -> None:
        """The batch is given up; what follows it may go on."""
        self._out.remove(batch)
        self._proven_until = _NEVER
        self._settle()

    def retry(self, batch: ProducerBatch, retry_at: float) -> None:
        """The batch is to be sent again, after everything that is out has resolved."""
        self._out.remove(batch)
        self._held.append(batch)
        self._proven_until = _NEVER
        self.retry_at = max(self.retry_at, retry_at)
        self._settle()

    def unassign(self, batch: ProducerBatch, retry_at: float) -> bool:
        """Take a batch out that surely is in no log, as if it had never been here: another partition gets it.

        Its sequence will be the next one's. False where others count on it: then it stays.
        """
        is_last = not batch.is_sequenced or batch.sequence_of(batch.count) == self.next_sequence
        if not is_last or self._held or not self.footing.take_back(batch):
            return False
        self._out.remove(batch)
        if batch.is_sequenced:
            self.next_sequence = batch.sequence
            batch.clear_producer_state()
        if self._line is not None:
            self._line.remove(batch)
            batch.line = None
        self.retry_at = max(self.retry_at, retry_at)
        return True

    def replace(self, batch: ProducerBatch, pieces: list[ProducerBatch]) -> None:
        """Put pieces in the place of a batch that is first in the queue, or out and refused; then they wait as in
        `retry`."""
        if self._line is not None:
            at = self._line.index(batch)
            del self._line[at]
            for piece in reversed(pieces):
                self._line.insert(at, piece)
        if self.queued and self.queued[0] is batch:
            self.queued.popleft()
            self.queued.extendleft(reversed(pieces))
        else:
            self._out.remove(batch)
            self._held += pieces
            self._proven_until = _NEVER
            self._settle()

    def has_earlier(self, batch: ProducerBatch) -> bool:
        """Whether a batch that was taken before this one, which is out, is still to be settled."""
        return bool(self._held) or self._out[0] is not batch

    def leave_gap(self) -> None:
        """The batch that is out first is in no log, and will not be under its present sequence.

        Brokers take no sequence beyond a gap: so what is queued behind it is not stored either, whatever became of the
        answers, and need not be settled before there is a new identity.
        """
        for batch in self.queued:
            if batch.is_sequenced:
                batch.possibly_persisted = False

    def narrow_window(self, window_max: int) -> None:
        self._window_max = window_max

    def overdue_unqueued(self, now: float) -> list[ProducerBatch]:
        """Return the batches past their deadline that cannot be removed yet, without those returned before.

        They are in flight, wait to be retried, or are decided and wait for an earlier batch of the partition.
        """
        overdue = [batch for batch in self.unresolved() if batch.deadline <= now and not batch.is_overdue]
        queued = set(self.queued) if overdue else ()
        return [batch for batch in overdue if batch not in queued]

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
        """After an epoch bump: from 0, also for batches that were stamped but surely not stored (rule 2)."""
        assert not self._out
        self.next_sequence = 0
        self._proven_until = _NEVER
        for batch in self.queued:
            if batch.is_sequenced:
                batch.clear_producer_state()

    def _settle(self) -> None:
        if not self._out and self._held:
            # Held batches were taken one after the other, and answers came in that order.
            self.queued.extendleft(reversed(self._held))
            self.overdue_at = min(self.overdue_at, *(batch.deadline for batch in self._held))
            self._held.clear()
