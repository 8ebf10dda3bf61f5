"""Produce requests, and what their responses mean for batches.

`build_request` and `partition_results` know what differs between the versions of Produce: v0 and v1 carry message sets
of magic 0, v2 of magic 1, v3 and later record batches (KIP-98); zstd needs v7 (KIP-110); v13 names topics by id
(KIP-516). From v10 on a broker that is no longer the leader names the new one (KIP-951).

`error_action` says what an error code means for a batch, and `ResponseHandler` does it. Completion is total (rule 10):
each batch of a request is decided, in the order of the request, and each future resolves exactly once.
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
from kwire.producer.accumulator import BufferPool
from kwire.producer.batch import ProducerBatch
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
    # Kafka returns these both before the append (ReplicaManager) and after it (DelayedProduce).
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
    """Return what to do with a batch; `has_offset`: the response has an offset, though it is an error."""
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
REFUSES_NOTHING_SINCE = max(SEQUENCES_SINCE, _ZSTD_SINCE)  # from this version on `refusal` returns None


PartitionResult = ProduceResponse.Topic.Partition


def magic(version: int) -> int:
    """Return the record format of a version of Produce."""
    if version >= SEQUENCES_SINCE:
        return 2
    return 1 if version >= _TIMESTAMPS_SINCE else 0


def names_topics(version: int) -> bool:
    """Return whether a request names topics, instead of their ids; a topic created again has the same name."""
    return version < _TOPIC_IDS_SINCE


def version_limit(*, has_ids: bool) -> int | None:
    """Return the highest version to use: from v13 on, requests carry topic ids, which must be known."""
    return None if has_ids else _TOPIC_IDS_SINCE - 1


def refusal(batch: ProducerBatch, version: int, settings: ProducerSettings) -> KwireError | None:
    """Return why a broker of this version cannot accept the batch, or None."""
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
    if version < SEQUENCES_SINCE and batch.builder.has_headers:
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
    """Return one request with the batches; records are not copied. `timeout_ms` is for the replicas to follow."""
    by_topic: dict[str, list[ProduceRequest.Topic.Partition]] = {}
    form, codec, level = magic(version), settings.codec, settings.compression_level
    for batch in batches:
        data = ProduceRequest.Topic.Partition(index=batch.builder.partition, records=batch.encode(form, codec, level))
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
    """Return the new leaders that a response names, and their addresses, for `ClusterView.update_leaders`."""
    names = _names(version, ids)
    hints = [
        CurrentLeader(name, ids.topics[name].id, result.index, leader.leader_id, leader.leader_epoch)
        for topic in response.responses
        if (name := names.get(topic.topic_id, topic.name)) in ids.topics
        for result in topic.partition_responses
        if result.error_code and (leader := result.current_leader).leader_id >= 0
    ]
    return hints, [Broker(node.node_id, node.host, node.port, node.rack) for node in response.node_endpoints]


def partition_results(
    response: ProduceResponse, version: int, topics: Iterable[str], ids: Snapshot
) -> dict[tuple[str, int], PartitionResult]:
    """Return the results by (topic, partition). `ids` is the snapshot that the request was built with."""
    names: dict[int, str] = {}
    if version >= _TOPIC_IDS_SINCE:
        for name in topics:
            names[ids.topics[name].id.int] = name  # hashing a UUID itself is slow: it runs in Python
    results: dict[tuple[str, int], PartitionResult] = {}
    for topic in response.responses:
        name = names.get(topic.topic_id.int, topic.name)
        for result in topic.partition_responses:
            results[name, result.index] = result
    return results


def _names(version: int, ids: Snapshot) -> dict[UUID, str]:
    return {topic.id: topic.name for topic in ids.topics.values()} if version >= _TOPIC_IDS_SINCE else {}


_log = logging.getLogger("kwire.producer")

Batches = list[tuple[PartitionQueue, ProducerBatch]]


class InFlightProduce(NamedTuple):
    """The batches of one request, and the snapshot that it was built with."""

    node: int
    version: int
    batches: Batches
    snapshot: Snapshot
    acks: int


class _Flush:
    """The batches that a flush waits for."""

    def __init__(self, batches: Iterable[ProducerBatch], on_done: Callable[[], object]) -> None:
        self.batches = set(batches)
        self.on_done = on_done


class ResponseHandler:
    def __init__(
        self,
        identity: ProducerIdState,
        buffer_pool: BufferPool,
        backoff: Backoff,
        random: Random,
        unassign: Callable[[ProducerBatch], None],
        transaction: Transaction | None = None,
        *,
        retries_max: int | None = None,
    ) -> None:
        """`unassign` receives batches that may go to another partition; `retries_max` None: only time limits them."""
        self._retries_max = retries_max
        self._transaction = transaction
        self._identity = identity
        self._buffer_pool = buffer_pool
        self._backoff = backoff
        self._random = random
        self._unassign = unassign
        self._decided: deque[ProducerBatch] = deque()  # to be completed, in this order
        self._flushes: list[_Flush] = []
        self.muted_until: dict[int, float] = {}  # throttled nodes
        self._pauses: dict[int, float] = {}  # by the number of failures, while one response is handled
        self.counters = Counters()

    # -- responses

    def handle_response(
        self,
        request: InFlightProduce,
        result: Response | KwireError | None,
        now: float,
        view: ClusterView,
        *,
        was_written: bool,
    ) -> None:
        """Handle a response, or the error in its place: decide each batch of the request."""
        if result is None:  # acks=0: there is no response
            for queue, batch in request.batches:
                self._acknowledge(queue, batch, -1, -1, now)
        elif isinstance(result, ProduceResponse):
            self._handle_produce_response(request, result, now, view)
        else:
            assert isinstance(result, KwireError)
            view.request_metadata(f"a request to broker {request.node} failed")
            for queue, batch in request.batches:
                self._handle_request_error(queue, batch, result, now, was_written=was_written)
        self._pauses.clear()
        self._complete_in_order()

    def _handle_produce_response(
        self, request: InFlightProduce, response: ProduceResponse, now: float, view: ClusterView
    ) -> None:
        node, version = request.node, request.version
        if response.throttle_time_ms:
            self.muted_until[node] = now + response.throttle_time_ms / 1000
        results = partition_results(response, version, {queue.topic for queue, _ in request.batches}, request.snapshot)
        for result in results.values():
            if result.error_code:
                hints, endpoints = leader_hints(response, version, request.snapshot)
                if hints:
                    view.update_leaders(hints, endpoints)
                break
        early: list[tuple[PartitionQueue, ProducerBatch, BrokerError]] = []
        for queue, batch in request.batches:
            found = results.get((queue.topic, queue.index))
            if found is not None and not found.error_code:
                self._acknowledge(queue, batch, found.base_offset, found.log_append_time_ms, now)
                continue
            place: dict[str, Any] = {
                "broker": view.describe(node), "api": "Produce", "version": version,
                "topic": queue.topic, "partition": queue.index,
            }  # fmt: skip
            if found is None:
                left_out = DecodeError("the response lacks this partition", **place)
                self._handle_request_error(queue, batch, left_out, now, was_written=True)
            else:
                error = broker_error(found.error_code, found.error_message, **place)
                if error.code in _LEADS_NOT and found.base_offset < 0 and queue.is_new:
                    early.append((queue, batch, error))
                    continue
                self._handle_error(queue, batch, error, request, now, view, has_offset=found.base_offset >= 0)

        for queue, batch, error in reversed(early):
            queue.slow_start.refused(now, self._pause)
            if not self._try_unassign(queue, batch, error, view):
                self._handle_error(queue, batch, error, request, now, view, has_offset=False)

    def _handle_error(
        self,
        queue: PartitionQueue,
        batch: ProducerBatch,
        error: BrokerError,
        request: InFlightProduce,
        now: float,
        view: ClusterView,
        *,
        has_offset: bool,
    ) -> None:
        # No back-off when another leader is known by now. Newer metadata alone proves nothing: it names the leader of a
        # new topic before that broker knows of it.
        known = view.snapshot.partition(queue.topic, queue.index)
        has_moved = known is not None and known.leader != NO_NODE and (known.leader, known.leader_epoch) != queue.leader
        backs_off = not has_moved
        if error.code in _METADATA_CODES:
            view.request_metadata(f"{queue.topic}-{queue.index} returned {error.name}")
        match error_action(error, waits_for_followers=request.acks == ALL_IN_SYNC, has_offset=has_offset):
            case ErrorAction.DUPLICATE:
                self._acknowledge(queue, batch, -1, -1, now)
            case ErrorAction.RETRY:
                self._retry(queue, batch, error, now, backs_off=backs_off)
            case ErrorAction.RETRY_MAYBE_PERSISTED:
                batch.possibly_persisted = True
                self._retry(queue, batch, error, now, backs_off=backs_off)
            case ErrorAction.FAIL_MAYBE_PERSISTED:
                batch.possibly_persisted = True
                self._fail_in_flight(queue, batch, error)
            case ErrorAction.SPLIT if len(batch) > 1 and not batch.is_completed:
                _log.debug("%r is too large and sent again in pieces: %s", batch, error)
                batch.last_error = error
                queue.limit.refused(batch)
                self._buffer_pool.accumulator.limit(queue.topic, queue.limit.bytes_max)
                self.split(queue, batch)
            case ErrorAction.SPLIT:
                self._fail_in_flight(queue, batch, too_large_alone(batch, error))
            case ErrorAction.OUT_OF_SEQUENCE | ErrorAction.BUMP_EPOCH if self._can_resequence(queue, batch):
                # Out of sequence. While an earlier batch is unresolved that is only order; otherwise the broker and we
                # disagree about the sequences, and only an epoch bump helps.
                if not queue.has_earlier(batch):
                    is_news = self._identity.state is IdStatus.KNOWN  # else an earlier batch left the gap
                    self._identity.require_epoch_bump()
                    queue.leave_gap()
                    self._retry(queue, batch, error, now, counts=is_news)
                else:
                    self._retry(queue, batch, error, now, backs_off=False, counts=False)
            case _:
                self._fail_in_flight(queue, batch, error)

    def _try_unassign(self, queue: PartitionQueue, batch: ProducerBatch, error: BrokerError, view: ClusterView) -> bool:
        """Give a batch to another partition, if its leader does not know yet that it leads; return whether it did.

        Only if the batch is certainly in no log: it was never sent elsewhere, and the error has no offset (a leader
        that lost the partition after its append returns the same code with one). And only the batch that was assigned
        last, so that order is kept.
        """
        is_free = batch.assigned_at_drain and not (batch.possibly_persisted or batch.is_piece)
        unresolved = batch.unresolved
        if not is_free or batch.retries == self._retries_max or not queue.unassign(batch, queue.slow_start.tries_at):
            return False
        if unresolved is not None:
            self._collect_decided(unresolved)
        batch.last_error = error
        batch.retries += 1
        self.counters.retried(batch)
        view.request_metadata(f"{queue.topic}-{queue.index} returned {error.name}")
        _log.debug("%r goes to another partition: %s", batch, error)
        self._unassign(batch)
        return True

    def split(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Replace a batch by pieces that fit, in its queue and in every flush."""
        made = split_batch(batch, queue.limit.bytes_max)
        self.counters.cut(batch)
        queue.replace(batch, made)
        self.replace_in_flushes([batch], made)

    def _can_resequence(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        """Return whether a batch that was refused for its sequence or epoch can be sent again.

        Always while an earlier batch is unresolved. Otherwise it needs an epoch bump, which would abort a transaction,
        and could store twice what an earlier attempt may have stored.
        """
        if not batch.is_sequenced:
            return False
        return queue.has_earlier(batch) or (self._transaction is None and not batch.possibly_persisted)

    def _handle_request_error(
        self, queue: PartitionQueue, batch: ProducerBatch, error: KwireError, now: float, *, was_written: bool
    ) -> None:
        if was_written:
            batch.possibly_persisted = True
        if was_written or isinstance(error, (NodeError, RequestTimeoutError)):
            self._retry(queue, batch, error, now)
        else:  # no common version, or a value that it cannot carry: a retry would not help
            self._fail_in_flight(queue, batch, error)

    def _acknowledge(
        self, queue: PartitionQueue, batch: ProducerBatch, base_offset: int, append_time_ms: int, now: float
    ) -> None:
        if not batch.is_completed:
            self.counters.batches_acknowledged += 1
            self.counters.records_acknowledged += batch.count
        if queue.limit.learns and queue.limit.taken(batch):
            self._buffer_pool.accumulator.limit(queue.topic, queue.limit.bytes_max)
        if queue.acknowledged_by != queue.leader:
            queue.slow_start.acknowledged(now)
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
            self._remove_in_flight(queue, batch)
            self._fail_delivery(batch, f"failed after {batch.retries + 1} attempt{'s' * (batch.retries > 0)}", error)
            return
        batch.retries += counts
        self.counters.retried(batch)
        queue.attempts += backs_off
        _log.debug("%r is sent again: %s", batch, error)
        queue.retry(batch, now + self._pause(queue.attempts) if backs_off else now)

    def _pause(self, attempts: int) -> float:
        """Return one back-off for all batches of a response, so that they are retried in one request again."""
        if attempts not in self._pauses:
            self._pauses[attempts] = self._backoff.seconds(attempts, self._random)
        return self._pauses[attempts]

    def _fail_in_flight(self, queue: PartitionQueue, batch: ProducerBatch, error: KwireError) -> None:
        self._remove_in_flight(queue, batch)
        self._fail(batch, error)

    def _remove_in_flight(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        queue.failed(batch)
        if batch.is_sequenced:
            self._identity.require_epoch_bump()  # its sequence is lost: later batches would be out of order

    # -- ends

    def fail(self, batch: ProducerBatch, error: KwireError) -> None:
        """Fail a batch that is in no queue any more with the error that it met."""
        self._fail(batch, error)
        self._complete_in_order()

    def fail_delivery(self, batch: ProducerBatch, what: str, cause: KwireError | None) -> None:
        """Fail a batch with a DeliveryError that says whether it may be in the log (rule 7)."""
        self._fail_delivery(batch, what, cause)
        self._complete_in_order()

    def _fail(self, batch: ProducerBatch, error: KwireError) -> None:
        if batch.possibly_persisted:
            self._fail_delivery(batch, "failed", error)
        else:
            self._resolve(batch, error)

    def _fail_delivery(self, batch: ProducerBatch, what: str, cause: KwireError | None) -> None:
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
        batch.complete(error)
        for flush in self._flushes:
            flush.batches.discard(batch)
        self._end_flushes()

    def _resolve(self, batch: ProducerBatch, error: KwireError | None) -> None:
        """Decide a batch. It is completed after the earlier batches of its partition (rule 10)."""
        if batch.count < 0:
            batch.close()
        if error is not None:
            if not batch.is_completed:
                self.counters.failed(batch, error)
            if self._transaction is not None:
                self._transaction.fail(error, in_produce=True)
        batch.is_decided, batch.error = True, error
        unresolved = batch.unresolved
        if unresolved is None:
            self._decided.append(batch)
        else:
            self._collect_decided(unresolved)

    def _collect_decided(self, unresolved: deque[ProducerBatch]) -> None:
        while unresolved and unresolved[0].is_decided:
            self._decided.append(unresolved.popleft())

    def _complete_in_order(self) -> None:
        """Complete the decided batches. Their memory is released at once, so that blocked senders wake once."""
        decided = self._decided
        sizes: dict[str, int] = {}
        for batch in decided:
            sizes[batch.topic] = sizes.get(batch.topic, 0) + batch.buffered_bytes
        if sizes:
            self._buffer_pool.release(sizes)
        while decided:
            batch = decided.popleft()
            if not batch.is_completed:
                batch.complete(batch.error)
            batch.drop()
            for flush in self._flushes:
                flush.batches.discard(batch)
        if self._flushes:
            self._end_flushes()

    # -- flushes

    def add_flush(self, batches: Iterable[ProducerBatch], on_done: Callable[[], object]) -> None:
        self._flushes.append(_Flush((batch for batch in batches if not batch.is_completed), on_done))
        self._end_flushes()

    def is_flushing(self, batches: Collection[ProducerBatch]) -> bool:
        return any(not flush.batches.isdisjoint(batches) for flush in self._flushes)

    def replace_in_flushes(self, batches: Collection[ProducerBatch], others: Collection[ProducerBatch]) -> None:
        """Let flushes that wait for `batches` wait for `others`, which have their records now."""
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
    """Return an error that names the broker and API of its cause, else of the last attempt, and both remedies."""
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


# What the leader of a new partition returns until it knows that it leads.
_LEADS_NOT = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})

_METADATA_CODES = frozenset(code for code in ErrorCode if code.invalidates_metadata)

_REMEDY = {
    True: "it may be in the log all the same: read it back before sending it again, if a duplicate would do harm",
    False: "it is in no log: it can be sent again",
}
