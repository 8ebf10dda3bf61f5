"""Produce requests, and what their responses mean for batches.

`build_request` and `partition_answers` know what differs between the versions of Produce: v0 and v1 carry message sets
of magic 0, v2 of magic 1, v3 and later record batches (KIP-98); zstd needs v7 (KIP-110); v13 names topics by id
(KIP-516). From v10 on a broker that is no longer the leader names the new one (KIP-951).

`error_action` says what an error code means for a batch, and `ResponseHandler` does it. Completion is total (rule 10):
each batch of a request is decided, in the order of the request, and each response resolves exactly once.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable
from enum import Enum, auto
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

from kwire.cluster import Backoff, Broker, ClusterView, CurrentLeader, Snapshot
from kwire.cluster.metadata import NO_NODE
from kwire.errors import (
    BrokerError,
    DecodeError,
    DeliveryError,
    ErrorCode,
    KwireError,
    NodeError,
    RequestTimeoutError,
    UnsupportedVersionError,
    broker_error,
)
from kwire.producer.batch import ProducerBatch
from kwire.producer.buffer_pool import BufferPool
from kwire.producer.metrics import Counters
from kwire.producer.options import ALL_IN_SYNC, ProducerSettings
from kwire.producer.partition import PartitionQueue
from kwire.producer.producer_id import IdStatus, ProducerIdState
from kwire.producer.splitting import split_batch, too_large_alone
from kwire.producer.transaction import Transaction
from kwire.protocol import Response
from kwire.protocol.messages.produce import ProduceRequest, ProduceResponse
from kwire.records import Compression


class ErrorAction(Enum):
    """What to do with a batch whose partition has an error code in the response.

    Codes that are not listed below mean RETRY where Kafka calls them retriable, else FAIL.
    """

    RETRY = auto()  # surely not stored: send it again
    RETRY_MAYBE_PERSISTED = auto()  # perhaps stored: send it again unchanged, and an idempotent broker recognises it
    # With acks=all the leader appends first and waits for its followers. If its log fails meanwhile, it reports that
    # with the batch stored: RETRY_MAYBE_PERSISTED. With other acks: RETRY.
    RETRY_DEPENDS_ON_ACKS = auto()
    # A leader that loses the partition while it waits reports the same as a broker that never led it. Only the former
    # returns an offset (Kafka's DelayedProduce): with one RETRY_MAYBE_PERSISTED, else RETRY.
    RETRY_DEPENDS_ON_OFFSET = auto()
    FAIL_MAYBE_PERSISTED = auto()  # perhaps stored, and to send it again would not help
    DUPLICATE = auto()  # it is stored already
    OUT_OF_SEQUENCE = auto()  # harmless while an earlier batch is unresolved, else the sequences need an epoch bump
    SPLIT = auto()  # too large, surely not stored: send it again in pieces
    BUMP_EPOCH = auto()  # the broker wants a newer producer epoch: surely not stored
    FAIL = auto()  # the broker will never accept it


_ACTIONS = {
    # Appended by the leader; the replicas did not follow in time
    ErrorCode.REQUEST_TIMED_OUT: ErrorAction.RETRY_MAYBE_PERSISTED,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorAction.RETRY_MAYBE_PERSISTED,
    ErrorCode.NETWORK_EXCEPTION: ErrorAction.RETRY_MAYBE_PERSISTED,
    # Kafka's ReplicaManager answers these before it appends, and from DelayedProduce, after it has.
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorAction.RETRY_DEPENDS_ON_OFFSET,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorAction.RETRY_DEPENDS_ON_OFFSET,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorAction.RETRY_DEPENDS_ON_ACKS,
    # Whatever went wrong may have gone wrong after the append
    ErrorCode.UNKNOWN_SERVER_ERROR: ErrorAction.FAIL_MAYBE_PERSISTED,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: ErrorAction.DUPLICATE,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: ErrorAction.OUT_OF_SEQUENCE,
    ErrorCode.UNKNOWN_PRODUCER_ID: ErrorAction.OUT_OF_SEQUENCE,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorAction.SPLIT,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorAction.SPLIT,
    ErrorCode.INVALID_PRODUCER_EPOCH: ErrorAction.BUMP_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: ErrorAction.BUMP_EPOCH,
}


def error_action(error: BrokerError, *, waits_for_followers: bool, has_offset: bool) -> ErrorAction:
    """What to do with a batch; `has_offset`: the answer has one, though it is an error."""
    known = _ACTIONS.get(error.code)  # type: ignore[call-overload]  # a plain int finds its IntEnum twin
    if known is ErrorAction.RETRY_DEPENDS_ON_OFFSET:
        return ErrorAction.RETRY_MAYBE_PERSISTED if has_offset else ErrorAction.RETRY
    if known is ErrorAction.RETRY_DEPENDS_ON_ACKS:
        return ErrorAction.RETRY_MAYBE_PERSISTED if waits_for_followers else ErrorAction.RETRY
    if known is not None:
        return known  # type: ignore[no-any-return]
    return ErrorAction.RETRY if error.is_retriable else ErrorAction.FAIL


_TOPIC_IDS_SINCE = 13
_ZSTD_SINCE = 7
SEQUENCES_SINCE = 3
_TIMESTAMPS_SINCE = 2
REFUSES_NOTHING_SINCE = max(SEQUENCES_SINCE, _ZSTD_SINCE)  # for such a version `refusal` need not be asked


PartitionAnswer = ProduceResponse.Topic.Partition


def magic(version: int) -> int:
    """The record format that a version of Produce carries."""
    if version >= SEQUENCES_SINCE:
        return 2
    return 1 if version >= _TIMESTAMPS_SINCE else 0


def names_topics(version: int) -> bool:
    """Whether a request says a topic's name, which a topic created again has too, and not its id."""
    return version < _TOPIC_IDS_SINCE


def version_limit(*, has_ids: bool) -> int | None:
    """The highest version to use: topic ids are on the wire from v13, and must be known then."""
    return None if has_ids else _TOPIC_IDS_SINCE - 1


def refusal(batch: ProducerBatch, version: int, settings: ProducerSettings) -> KwireError | None:
    """Why a broker of this version cannot take the batch."""
    where = {"api": "Produce", "version": version, "topic": batch.topic, "partition": batch.partition}
    if version < SEQUENCES_SINCE and (batch.is_sequenced or settings.idempotence):
        return UnsupportedVersionError(
            "the broker is too old for an idempotent producer",
            remedy="some brokers of this cluster are from before 0.11: upgrade them, or set idempotence=False",
            **where,
        )
    if settings.codec is Compression.ZSTD and version < _ZSTD_SINCE:
        return UnsupportedVersionError(
            "the broker is too old for zstd", remedy="use lz4, snappy or gzip, or brokers from 2.1", **where
        )
    if version < SEQUENCES_SINCE and batch.run.has_headers:
        return UnsupportedVersionError(
            "the broker is too old for record headers", remedy="send without headers, or use brokers from 0.11", **where
        )
    return None


def build_request(
    batches: Iterable[ProducerBatch],
    version: int,
    ids: Snapshot,
    settings: ProducerSettings,
    acks: int,
    timeout_ms: int,
) -> ProduceRequest:
    """One request of many partitions; the records are not copied. `timeout_ms` is for the replicas to follow."""
    by_topic: dict[str, list[ProduceRequest.Topic.Partition]] = {}
    form, codec, level = magic(version), settings.codec, settings.compression_level
    for batch in batches:
        data = ProduceRequest.Topic.Partition(index=batch.run.partition, records=batch.encode(form, codec, level))
        partitions = by_topic.get(batch.topic)
        if partitions is None:
            by_topic[batch.topic] = [data]
        else:
            partitions.append(data)
    topic_data: list[ProduceRequest.Topic] = []
    for topic, partitions in by_topic.items():
        if version >= _TOPIC_IDS_SINCE:
            topic_data.append(ProduceRequest.Topic(topic_id=ids.topics[topic].id, partition_data=partitions))
        else:
            topic_data.append(ProduceRequest.Topic(name=topic, partition_data=partitions))
    return ProduceRequest(
        transactional_id=settings.transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=topic_data,
    )


def leader_hints(response: ProduceResponse, version: int, ids: Snapshot) -> tuple[list[CurrentLeader], list[Broker]]:
    """Who leads the partitions that the broker refused, and the addresses of those; for
    `ClusterView.update_leaders`."""
    names = _names(version, ids)
    hints = [
        CurrentLeader(name, ids.topics[name].id, answer.index, leader.leader_id, leader.leader_epoch)
        for topic in response.responses
        if (name := names.get(topic.topic_id, topic.name)) in ids.topics
        for answer in topic.partition_responses
        if answer.error_code and (leader := answer.current_leader).leader_id >= 0
    ]
    return hints, [Broker(node.node_id, node.host, node.port, node.rack) for node in response.node_endpoints]


def partition_answers(
    response: ProduceResponse, version: int, topics: Iterable[str], ids: Snapshot
) -> dict[tuple[str, int], PartitionAnswer]:
    """The answers by (topic, partition). `ids` is the snapshot that the request for these topics was built with."""
    names: dict[int, str] = {}
    if version >= _TOPIC_IDS_SINCE:
        for name in topics:
            names[ids.topics[name].id.int] = name  # the hash of a UUID itself is made in Python
    answers: dict[tuple[str, int], PartitionAnswer] = {}
    for topic in response.responses:
        name = names.get(topic.topic_id.int, topic.name)
        for answer in topic.partition_responses:
            answers[name, answer.index] = answer
    return answers


def _names(version: int, ids: Snapshot) -> dict[UUID, str]:
    return {topic.id: topic.name for topic in ids.topics.values()} if version >= _TOPIC_IDS_SINCE else {}


_log = logging.getLogger("kwire.producer")

Taken = list[tuple[PartitionQueue, ProducerBatch]]


class InFlightProduce(NamedTuple):
    """What one request carries, and the snapshot that it was built with."""

    node: int
    version: int
    taken: Taken
    snapshot: Snapshot
    acks: int


class _Flush:
    """What a flush waits for."""

    def __init__(self, batches: Iterable[ProducerBatch], on_done: Callable[[], object]) -> None:
        self.batches = set(batches)
        self.on_done = on_done


class ResponseHandler:
    def __init__(
        self,
        identity: ProducerIdState,
        intake: BufferPool,
        backoff: Backoff,
        random: Random,
        take_back: Callable[[ProducerBatch], None],
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
        self._decided: deque[ProducerBatch] = deque()  # their outcomes are to be told, in this order
        self._flushes: list[_Flush] = []
        self.muted_until: dict[int, float] = {}  # nodes that asked for a pause
        self._pauses: dict[int, float] = {}  # by the number of failures, while an answer is looked at
        self.counters = Counters()

    # -- answers

    def settle(
        self,
        carried: InFlightProduce,
        result: Response | KwireError | None,
        now: float,
        view: ClusterView,
        *,
        was_written: bool,
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

    def _answered(self, carried: InFlightProduce, response: ProduceResponse, now: float, view: ClusterView) -> None:
        node, version = carried.node, carried.version
        if response.throttle_time_ms:
            self.muted_until[node] = now + response.throttle_time_ms / 1000
        answers = partition_answers(response, version, {queue.topic for queue, _ in carried.taken}, carried.snapshot)
        for answer in answers.values():
            if answer.error_code:
                hints, endpoints = leader_hints(response, version, carried.snapshot)
                if hints:
                    view.update_leaders(hints, endpoints)
                break
        early: list[tuple[PartitionQueue, ProducerBatch, BrokerError]] = []
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
        batch: ProducerBatch,
        error: BrokerError,
        carried: InFlightProduce,
        now: float,
        view: ClusterView,
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
        match error_action(error, waits_for_followers=carried.acks == ALL_IN_SYNC, has_offset=has_offset):
            case ErrorAction.DUPLICATE:
                self._acknowledged(queue, batch, -1, -1, now)
            case ErrorAction.RETRY:
                self._retry(queue, batch, error, now, backs_off=backs_off)
            case ErrorAction.RETRY_MAYBE_PERSISTED:
                batch.possibly_persisted = True
                self._retry(queue, batch, error, now, backs_off=backs_off)
            case ErrorAction.FAIL_MAYBE_PERSISTED:
                batch.possibly_persisted = True
                self._refused(queue, batch, error)
            case ErrorAction.SPLIT if len(batch) > 1 and not batch.is_overdue:
                _log.debug("%r is too large and sent again in pieces: %s", batch, error)
                batch.last_error = error
                queue.limit.refused(batch)
                self._intake.door.limit(queue.topic, queue.limit.bytes_max)
                self.cut(queue, batch)
            case ErrorAction.SPLIT:
                self._refused(queue, batch, too_large_alone(batch, error))
            case ErrorAction.OUT_OF_SEQUENCE | ErrorAction.BUMP_EPOCH if self._is_mended(queue, batch):
                # Refused for its place. With an earlier batch still to come that is only order; otherwise the broker
                # and we disagree about the sequences, and only a new identity mends that.
                if not queue.has_earlier(batch):
                    is_news = self._identity.state is IdStatus.KNOWN  # else a batch before it left the gap
                    self._identity.require_epoch_bump()
                    queue.leave_gap()
                    self._retry(queue, batch, error, now, counts=is_news)
                else:
                    self._retry(queue, batch, error, now, backs_off=False, counts=False)
            case _:
                self._refused(queue, batch, error)

    def _is_let_go(self, queue: PartitionQueue, batch: ProducerBatch, error: BrokerError, view: ClusterView) -> bool:
        """Whether another partition gets a batch, whose leader has not heard yet that it is to lead.

        Only where no doubt is left that the batch is in no log: it was never sent anywhere else, and a leader that
        leads no more by the time the followers have a batch says the same code, but tells the batch's offset. And only
        the batch that was designated last, so that order is kept: of an answer those come first.
        """
        is_free = batch.was_designated and not (batch.possibly_persisted or batch.is_piece)
        line = batch.line
        if not is_free or batch.retries == self._retries_max or not queue.unassign(batch, queue.footing.tries_at):
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

    def cut(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Put pieces that fit in the place of a batch, everywhere."""
        made = split_batch(batch, queue.limit.bytes_max)
        self.counters.cut(batch)
        queue.replace(batch, made)
        self.replaced([batch], made)

    def _is_mended(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        """Whether a batch that was refused for its sequence or epoch can be sent again by this producer.

        Mere order always can. Otherwise it takes a new identity, which would abort a transaction, and under which a
        batch that an earlier attempt may have stored would be stored twice.
        """
        if not batch.is_sequenced:
            return False
        return queue.has_earlier(batch) or (self._transaction is None and not batch.possibly_persisted)

    def _unanswered(
        self, queue: PartitionQueue, batch: ProducerBatch, error: KwireError, now: float, *, was_written: bool
    ) -> None:
        if was_written:
            batch.possibly_persisted = True  # whatever went wrong with the answer
        if was_written or isinstance(error, (NodeError, RequestTimeoutError)):
            self._retry(queue, batch, error, now)
        else:  # no common version, or a value that the version cannot carry: trying again would not help
            self._refused(queue, batch, error)

    def _acknowledged(
        self, queue: PartitionQueue, batch: ProducerBatch, base_offset: int, append_time_ms: int, now: float
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
        batch: ProducerBatch,
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

    def _refused(self, queue: PartitionQueue, batch: ProducerBatch, error: KwireError) -> None:
        self._leave(queue, batch)
        self._give_up(batch, error)

    def _leave(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        queue.failed(batch)
        if batch.is_sequenced:
            self._identity.require_epoch_bump()  # its sequence is burnt: the batches behind it would be out of order

    # -- ends

    def give_up(self, batch: ProducerBatch, error: KwireError) -> None:
        """Resolve a batch that is in no queue any more with the error that it met."""
        self._give_up(batch, error)
        self._tell_decided()

    def undelivered(self, batch: ProducerBatch, what: str, cause: KwireError | None) -> None:
        """Resolve a batch with a DeliveryError that says whether it may be in the log (rule 7)."""
        self._undelivered(batch, what, cause)
        self._tell_decided()

    def _give_up(self, batch: ProducerBatch, error: KwireError) -> None:
        if batch.possibly_persisted:
            self._undelivered(batch, "given up", error)
        else:
            self._resolve(batch, error)

    def _undelivered(self, batch: ProducerBatch, what: str, cause: KwireError | None) -> None:
        self._resolve(batch, _delivery_error(batch, what, cause, possibly_persisted=batch.possibly_persisted))

    def expire_early(self, batch: ProducerBatch, limit: str, *, is_in_flight: bool) -> None:
        """Complete the futures of a batch that is past its deadline, but in flight or waiting to be retried.

        The batch keeps its place and its memory until its request has a response or failed (rules 2, 4 and 8).
        """
        batch.close()
        error = batch.error
        if not batch.is_decided:
            possibly_persisted = is_in_flight or batch.possibly_persisted
            what = f"not acknowledged within {limit}"
            error = _delivery_error(batch, what, batch.last_error, possibly_persisted=possibly_persisted)
            self.counters.failed(batch, error)
            if self._transaction is not None:
                self._transaction.fail(error, in_produce=True)
        batch.is_overdue = True
        batch.tell(error)
        for flush in self._flushes:
            flush.batches.discard(batch)
        self._end_flushes()

    def _resolve(self, batch: ProducerBatch, error: KwireError | None) -> None:
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

    def _tell_in_line(self, line: deque[ProducerBatch]) -> None:
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
                batch.tell(batch.error)
            batch.drop()
            for flush in self._flushes:
                flush.batches.discard(batch)
        if self._flushes:
            self._end_flushes()

    # -- flushes

    def add_flush(self, batches: Iterable[ProducerBatch], on_done: Callable[[], object]) -> None:
        self._flushes.append(_Flush((batch for batch in batches if not batch.is_overdue), on_done))
        self._end_flushes()

    def is_flushing(self, batches: Collection[ProducerBatch]) -> bool:
        return any(not flush.batches.isdisjoint(batches) for flush in self._flushes)

    def replaced(self, batches: Collection[ProducerBatch], others: Collection[ProducerBatch]) -> None:
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


def _delivery_error(
    batch: ProducerBatch, what: str, cause: KwireError | None, *, possibly_persisted: bool
) -> DeliveryError:
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
