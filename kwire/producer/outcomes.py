"""What answers mean for batches: acknowledged, to be sent again, or given up. And who waits for it.

Completion is total (rule 10): whatever came instead of an answer, every batch of the request gets a verdict, in the
order in which the request listed them, and every response resolves exactly once.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable
from random import Random
from typing import Any, NamedTuple

from kwire.cluster import Backoff, Snapshot, View
from kwire.cluster.snapshot import NO_NODE
from kwire.errors import (
    BrokerError,
    DecodeError,
    DeliveryError,
    ErrorCode,
    KwireError,
    NodeError,
    RequestTimeoutError,
    broker_error,
)
from kwire.producer.batch import Batch
from kwire.producer.identity import Identity, IdentityState
from kwire.producer.intake import Intake
from kwire.producer.metrics import Counters
from kwire.producer.partition_queue import PartitionQueue
from kwire.producer.request import leader_hints, partition_answers
from kwire.producer.settings import ALL_IN_SYNC
from kwire.producer.split import pieces, too_large_alone
from kwire.producer.transaction import Transaction
from kwire.producer.verdicts import Verdict, verdict
from kwire.protocol import Response
from kwire.protocol.messages.produce import ProduceResponse

_log = logging.getLogger("kwire.producer")

Taken = list[tuple[PartitionQueue, Batch]]


class Carried(NamedTuple):
    """What one request carries, and the snapshot that it was built with."""

    node: int
    version: int
    taken: Taken
    snapshot: Snapshot
    acks: int


class _Flush:
    """What a flush waits for."""

    def __init__(self, batches: Iterable[Batch], on_done: Callable[[], object]) -> None:
        self.batches = set(batches)
        self.on_done = on_done


class Outcomes:
    def __init__(
        self,
        identity: Identity,
        intake: Intake,
        backoff: Backoff,
        random: Random,
        take_back: Callable[[Batch], None],
        transaction: Transaction | None = None,
        *,
        retries_max: int | None = None,
    ) -> None:
        """`take_back` gets batches that another partition may have; `retries_max`: None for no bound but their time."""
        self._retries_max = retries_max
        self._transaction = transaction
        self._identity = identity
        self._intake = intake
        self._backoff = backoff
        self._random = random
        self._take_back = take_back
        self._decided: deque[Batch] = deque()  # their outcomes are to be told, in this order
        self._flushes: list[_Flush] = []
        self.muted_until: dict[int, float] = {}  # nodes that asked for a pause
        self._pauses: dict[int, float] = {}  # by the number of failures, while an answer is looked at
        self.counters = Counters()
        self.limited: dict[Batch, None] = {}  # unresolved batches with a time limit of their own

    # -- answers

    def settle(
        self, carried: Carried, result: Response | KwireError | None, now: float, view: View, *, was_written: bool
    ) -> None:
        """Take what became of a request: give each of its batches its verdict."""
        if result is None:  # acks=0: sent is all there is to know
            for queue, batch in carried.taken:
                self._acknowledged(queue, batch, -1, -1, now)
        elif isinstance(result, ProduceResponse):
            self._answered(carried, result, now, view)
        else:
            assert isinstance(result, KwireError)
            view.request_metadata(f"a request to broker {carried.node} failed")
            for queue, batch in carried.taken:
                self._unanswered(queue, batch, result, now, was_written=was_written)
        self._pauses.clear()
        self._tell_decided()

    def _answered(self, carried: Carried, response: ProduceResponse, now: float, view: View) -> None:
        node, version = carried.node, carried.version
        if response.throttle_time_ms:
            self.muted_until[node] = now + response.throttle_time_ms / 1000
        answers = partition_answers(response, version, {queue.topic for queue, _ in carried.taken}, carried.snapshot)
        for answer in answers.values():
            if answer.error_code:
                hints, endpoints = leader_hints(response, version, carried.snapshot)
                if hints:
                    view.learn_leaders(hints, endpoints)
                break
        early: list[tuple[PartitionQueue, Batch, BrokerError]] = []
        for queue, batch in carried.taken:
            found = answers.get((queue.topic, queue.index))
            if found is not None and not found.error_code:
                self._acknowledged(queue, batch, found.base_offset, found.log_append_time_ms, now)
                continue
            place: dict[str, Any] = {
                "broker": view.describe(node), "api": "Produce", "version": version,
                "topic": queue.topic, "partition": queue.index,
            }  # fmt: skip
            if found is None:
                left_out = DecodeError("the answer leaves this partition out", **place)
                self._unanswered(queue, batch, left_out, now, was_written=True)
            else:
                error = broker_error(found.error_code, found.error_message, **place)
                if error.code in _LEADS_NOT and found.base_offset < 0 and queue.is_new:
                    early.append((queue, batch, error))
                    continue
                self._failed(queue, batch, error, carried, now, view, has_offset=found.base_offset >= 0)

        for queue, batch, error in reversed(early):
            queue.footing.refused(now, self._pause)
            if not self._is_let_go(queue, batch, error, view):
                self._failed(queue, batch, error, carried, now, view, has_offset=False)

    def _failed(
        self,
        queue: PartitionQueue,
        batch: Batch,
        error: BrokerError,
        carried: Carried,
        now: float,
        view: View,
        *,
        has_offset: bool,
    ) -> None:
        # Where another leader is known by now, from this answer at the latest, there is nothing to back off for. That
        # there is newer metadata proves nothing: it names the leader of a new topic before that knows of it.
        known = view.snapshot.partition(queue.topic, queue.index)
        has_moved = known is not None and known.leader != NO_NODE and (known.leader, known.leader_epoch) != queue.leader
        backs_off = not has_moved
        if error.code in _METADATA_CODES:
            view.request_metadata(f"{queue.topic}-{queue.index} answered {error.name}")
        match verdict(error, waits_for_followers=carried.acks == ALL_IN_SYNC, has_offset=has_offset):
            case Verdict.STORED:
                self._acknowledged(queue, batch, -1, -1, now)
            case Verdict.RETRY:
                self._retry(queue, batch, error, now, backs_off=backs_off)
            case Verdict.UNSURE:
                batch.is_unsure = True
                self._retry(queue, batch, error, now, backs_off=backs_off)
            case Verdict.LOST:
                batch.is_unsure = True
                self._refused(queue, batch, error)
            case Verdict.SIZE if len(batch) > 1 and not batch.is_overdue:
                _log.debug("%r is too large and sent again in pieces: %s", batch, error)
                batch.last_error = error
                queue.limit.refused(batch)
                self._intake.door.limit(queue.topic, queue.limit.bytes_max)
                self.cut(queue, batch)
            case Verdict.SIZE:
                self._refused(queue, batch, too_large_alone(batch, error))
            case Verdict.ORDER | Verdict.EPOCH if self._is_mended(queue, batch):
                # Refused for its place. With an earlier batch still to come that is only order; otherwise the broker
                # and we disagree about the sequences, and only a new identity mends that.
                if not queue.has_earlier(batch):
                    is_news = self._identity.state is IdentityState.KNOWN  # else a batch before it left the gap
                    self._identity.break_sequences()
                    queue.leave_gap()
                    self._retry(queue, batch, error, now, counts=is_news)
                else:
                    self._retry(queue, batch, error, now, backs_off=False, counts=False)
            case _:
                self._refused(queue, batch, error)

    def _is_let_go(self, queue: PartitionQueue, batch: Batch, error: BrokerError, view: View) -> bool:
        """Whether another partition gets a batch, whose leader has not heard yet that it is to lead.

        Only where no doubt is left that the batch is in no log: it was never sent anywhere else, and a leader that
        leads no more by the time the followers have a batch says the same code, but tells the batch's offset. And only
        the batch that was designated last, so that order is kept: of an answer those come first.
        """
        is_free = batch.was_designated and not (batch.is_unsure or batch.is_piece)
        line = batch.line
        if not is_free or batch.retries == self._retries_max or not queue.let_go(batch, queue.footing.tries_at):
            return False
        if line is not None:
            self._tell_in_line(line)
        batch.last_error = error
        batch.retries += 1
        self.counters.retried(batch)
        view.request_metadata(f"{queue.topic}-{queue.index} answered {error.name}")
        _log.debug("%r goes to another partition: %s", batch, error)
        self._take_back(batch)
        return True

    def cut(self, queue: PartitionQueue, batch: Batch) -> None:
        """Put pieces that fit in the place of a batch, everywhere."""
        made = pieces(batch, queue.limit.bytes_max)
        self.counters.cut(batch)
        queue.replace(batch, made)
        self.replaced([batch], made)
        if batch in self.limited:
            del self.limited[batch]
            self.limited.update(dict.fromkeys(made))

    def _is_mended(self, queue: PartitionQueue, batch: Batch) -> bool:
        """Whether a batch that was refused for its sequence or epoch can be sent again by this producer.

        Mere order always can. Otherwise it takes a new identity, which would abort a transaction, and under which a
        batch that an earlier attempt may have stored would be stored twice.
        """
        if not batch.is_sequenced:
            return False
        return queue.has_earlier(batch) or (self._transaction is None and not batch.is_unsure)

    def _unanswered(
        self, queue: PartitionQueue, batch: Batch, error: KwireError, now: float, *, was_written: bool
    ) -> None:
        if was_written:
            batch.is_unsure = True  # whatever went wrong with the answer
        if was_written or isinstance(error, (NodeError, RequestTimeoutError)):
            self._retry(queue, batch, error, now)
        else:  # no common version, or a value that the version cannot carry: trying again would not help
            self._refused(queue, batch, error)

    def _acknowledged(
        self, queue: PartitionQueue, batch: Batch, base_offset: int, append_time_ms: int, now: float
    ) -> None:
        if not batch.is_overdue:
            self.counters.batches_acknowledged += 1
            self.counters.records_acknowledged += batch.count
        if queue.limit.learns and queue.limit.taken(batch):
            self._intake.door.limit(queue.topic, queue.limit.bytes_max)
        if queue.acknowledged_by != queue.leader:
            queue.footing.acknowledged(now)
        queue.acknowledged(batch, now)
        batch.base_offset, batch.append_time_ms = base_offset, append_time_ms
        self._resolve(batch, None)

    def _retry(
        self,
        queue: PartitionQueue,
        batch: Batch,
        error: KwireError,
        now: float,
        *,
        backs_off: bool = True,
        counts: bool = True,
    ) -> None:
        batch.last_error = error
        if counts and batch.retries == self._retries_max:
            self._leave(queue, batch)
            self._undelivered(batch, f"given up after {batch.retries + 1} attempt{'s' * (batch.retries > 0)}", error)
            return
        batch.retries += counts
        self.counters.retried(batch)
        queue.attempts += backs_off
        _log.debug("%r is sent again: %s", batch, error)
        queue.retry(batch, now + self._pause(queue.attempts) if backs_off else now)

    def _pause(self, attempts: int) -> float:
        """One for all that an answer fails alike: what was in one request goes in one request again."""
        if attempts not in self._pauses:
            self._pauses[attempts] = self._backoff.seconds(attempts, self._random)
        return self._pauses[attempts]

    def _refused(self, queue: PartitionQueue, batch: Batch, error: KwireError) -> None:
        self._leave(queue, batch)
        self._give_up(batch, error)

    def _leave(self, queue: PartitionQueue, batch: Batch) -> None:
        queue.failed(batch)
        if batch.is_sequenced:
            self._identity.break_sequences()  # its sequence is burnt: the batches behind it would be out of order

    # -- ends

    def give_up(self, batch: Batch, error: KwireError) -> None:
        """Resolve a batch that is in no queue any more with the error that it met."""
        self._give_up(batch, error)
        self._tell_decided()

    def undelivered(self, batch: Batch, what: str, cause: KwireError | None) -> None:
        """Resolve a batch with a DeliveryError that says whether it may be in the log (rule 7)."""
        self._undelivered(batch, what, cause)
        self._tell_decided()

    def _give_up(self, batch: Batch, error: KwireError) -> None:
        if batch.is_unsure:
            self._undelivered(batch, "given up", error)
        else:
            self._resolve(batch, error)

    def _undelivered(self, batch: Batch, what: str, cause: KwireError | None) -> None:
        self._resolve(batch, _delivery_error(batch, what, cause, possibly_persisted=batch.is_unsure))

    def tell_overdue(self, batch: Batch, *, is_out: bool) -> None:
        """The batch's own time limit is over while it is out or held: tell its responses now.

        The batch keeps its place until it is answered (rules 2 and 4); then only its memory is left to be given back.
        """
        assert batch.terms is not None
        batch.close()
        error = batch.error
        if not batch.is_decided:
            what, is_unsure = f"not acknowledged within {batch.terms.timeout} s", is_out or batch.is_unsure
            error = _delivery_error(batch, what, batch.last_error, possibly_persisted=is_unsure)
            self.counters.failed(batch, error)
            if self._transaction is not None:
                self._transaction.fail(error, in_produce=True)
        self.limited.pop(batch, None)
        batch.is_overdue = True
        batch.tell(error)

    def _resolve(self, batch: Batch, error: KwireError | None) -> None:
        """The outcome is known. It is told after those of the batches before it: never out of order (rule 10)."""
        if batch.count < 0:
            batch.close()
        if error is not None:
            if not batch.is_overdue:
                self.counters.failed(batch, error)
            if self._transaction is not None:
                self._transaction.fail(error, in_produce=True)
        batch.is_decided, batch.error = True, error
        line = batch.line
        if line is None:
            self._decided.append(batch)
        else:
            self._tell_in_line(line)

    def _tell_in_line(self, line: deque[Batch]) -> None:
        while line and line[0].is_decided:
            self._decided.append(line.popleft())

    def _tell_decided(self) -> None:
        """Give back the memory of all batches at once: then who waits for some wakes once, and finds room."""
        decided = self._decided
        sizes: dict[str, int] = {}
        for batch in decided:
            sizes[batch.topic] = sizes.get(batch.topic, 0) + batch.buffered_bytes
        if sizes:
            self._intake.release(sizes)
        while decided:
            batch = decided.popleft()
            if not batch.is_overdue:
                if self.limited:
                    self.limited.pop(batch, None)
                batch.tell(batch.error)
            batch.drop()
            for flush in self._flushes:
                flush.batches.discard(batch)
        if self._flushes:
            self._end_flushes()

    # -- flushes

    def add_flush(self, batches: Iterable[Batch], on_done: Callable[[], object]) -> None:
        self._flushes.append(_Flush(batches, on_done))
        self._end_flushes()

    def is_flushing(self, batches: Collection[Batch]) -> bool:
        return any(not flush.batches.isdisjoint(batches) for flush in self._flushes)

    def replaced(self, batches: Collection[Batch], others: Collection[Batch]) -> None:
        """The records of some batches are in others now: who waits for those waits for these."""
        for flush in self._flushes:
            if not flush.batches.isdisjoint(batches):
                flush.batches.difference_update(batches)
                flush.batches.update(others)
        self._end_flushes()

    def _end_flushes(self) -> None:
        ended = [flush for flush in self._flushes if not flush.batches]
        for flush in ended:
            self._flushes.remove(flush)
            flush.on_done()


def _delivery_error(batch: Batch, what: str, cause: KwireError | None, *, possibly_persisted: bool) -> DeliveryError:
    """It names the places of its cause, else of the last attempt, and says what to check, there and here."""
    where: dict[str, Any] = {}
    if batch.tried_at is not None:
        where = {"broker": batch.tried_at[0], "api": "Produce", "version": batch.tried_at[1]}
    remedy = _REMEDY[possibly_persisted]
    if cause is not None:
        where |= cause.where
        what = f"{what}; the last failure was: {cause.message}"
        remedy = f"{cause.remedy}; {remedy}" if cause.remedy else remedy
    where |= {"topic": batch.topic, "partition": batch.partition if batch.partition >= 0 else None}
    error = DeliveryError(what, possibly_persisted=possibly_persisted, remedy=remedy, **where)
    error.__cause__ = cause
    return error


# What the leader of a new partition answers until it has heard of that.
_LEADS_NOT = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})

_METADATA_CODES = frozenset(code for code in ErrorCode if code.invalidates_metadata)

_REMEDY = {
    True: "it may be in the log all the same: read it back before sending it again, if a duplicate would do harm",
    False: "it is in no log: it can be sent again",
}
