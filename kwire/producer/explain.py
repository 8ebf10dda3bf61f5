"""Why records are not sent yet.

Each decision of the sender not to send has a `Reason` here: why, since when and until when. All current reasons are
listed; a reason that must end before another can end comes first.

`awaited` and `timeout_error` report the same for `flush`, `close` and the steps of a transaction that timed out.

Nothing here changes state, except that it opens a connection to a broker that has none, as the sender does.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from kwire.cluster import ClusterView, Partition, PendingRequest, ToCoordinator, Topic
from kwire.cluster.metadata import NO_NODE
from kwire.errors import ErrorCode, KwireError, RequestTimeoutError, broker_error, counted
from kwire.producer.accumulator import BufferPool
from kwire.producer.batch import ProducerBatch
from kwire.producer.options import ProducerSettings
from kwire.producer.partition import PartitionQueue
from kwire.producer.producer_id import IdStatus, ProducerIdState
from kwire.producer.responses import ResponseHandler
from kwire.producer.topic import TopicQueue
from kwire.producer.transaction import Transaction, TransactionState

_TOPICS_MAX = 3  # how many topics an error message names


class Awaited(NamedTuple):
    """What a caller waits for. `where` names the request in flight, as the fields of an error."""

    detail: str
    cause: KwireError | None
    where: dict[str, Any]


def awaited(
    transaction: Transaction | None,
    identity_call: PendingRequest | None,
    explainer: Explainer,
    now: float,
    view: ClusterView,
) -> Awaited | None:
    """Return the first of: the producer id, the records to deliver, the transaction's own request; None if none."""
    if transaction is not None and transaction.state is TransactionState.INITIALIZING:
        cause = explainer.identity.last_error
        return _awaited_response(f"the producer id of {transaction.transactional_id!r}", identity_call, cause, view)
    if transaction is None or transaction.state in (TransactionState.COMMITTING, TransactionState.ABORTING):
        records = _records(explainer, now, view)
        if records is not None:
            return records
    if transaction is None or (transaction.in_flight is None and transaction.last_error is None):
        return None
    part = "end" if transaction.state in (TransactionState.COMMITTING, TransactionState.ABORTING) else "next step"
    return _awaited_response(f"the transaction's {part}", transaction.in_flight, transaction.last_error, view)


def timeout_error(what: str, timeout: float | None, waits: Awaited | None) -> RequestTimeoutError:
    """Return the error of `what`, which is not done after `timeout` seconds, and what it waits for."""
    remedy = f"it goes on all the same: call {what} again to wait longer, or see producer.explain(topic)"
    if waits is None:
        return RequestTimeoutError(f"{what} is not done after {timeout} s", remedy=remedy)
    where, message = dict(waits.where), f"{what} is not done after {timeout} s: awaited is {waits.detail}"
    if waits.cause is not None:
        where = {**waits.cause.where, **where}
        message = f"{message}; the last failure was: {waits.cause.message}"
        remedy = f"{waits.cause.remedy}; {remedy}" if waits.cause.remedy else remedy
    error = RequestTimeoutError(message, remedy=remedy, **where)
    error.__cause__ = waits.cause
    return error


def _awaited_response(what: str, call: PendingRequest | None, cause: KwireError | None, view: ClusterView) -> Awaited:
    """Describe a wait for `what`, the result of a request; `call` is that request, None between two attempts."""
    if call is None:
        return Awaited(f"{what}, which will be requested again", cause or view.connection_error, {})
    api = call.api.__name__.removesuffix("Request")
    whom = "a broker"
    if isinstance(call.route, ToCoordinator):
        whom = f"the coordinator of {call.route.kind} {call.route.key!r}"
    cause = call.last_error or cause or view.connection_error
    if call.broker is None:
        return Awaited(f"{what}: {whom}, which would get {api}, is not found or not reached", cause, {"api": api})
    where = {"broker": call.broker, "api": api, "version": call.version}
    return Awaited(f"{what}: the response of {whom} to {api}", cause, where)


def _records(explainer: Explainer, now: float, view: ClusterView) -> Awaited | None:
    parts: list[str] = []
    cause: KwireError | None = None
    for name, topic in explainer.topics.items():
        if topic.is_idle:
            continue
        held = explainer.explain(name, None, now, view)
        out = sum(
            len(batch) for queue in topic.partitions.values() for batch in queue.in_flight() if not batch.is_completed
        )
        why = next((f" ({reason.hold}: {reason.detail})" for reason in held.reasons), "")
        parts.append(f"{held.records_queued + out} of topic {name}{why}")
        cause = cause or next((reason.cause for reason in held.reasons if reason.cause is not None), None)
    if not parts:
        return None
    more = f", and of {len(parts) - _TOPICS_MAX} topics more" if len(parts) > _TOPICS_MAX else ""
    return Awaited(
        f"the delivery of records: {', '.join(parts[:_TOPICS_MAX])}{more}", cause or view.connection_error, {}
    )


class Hold(StrEnum):
    """Why a batch is not sent yet."""

    METADATA = "metadata"  # the topic is not known yet
    TOPIC = "topic"  # the brokers return an error for it
    PARTITION = "partition"  # the topic has no such partition
    LEADER = "leader"  # the partition has no leader
    UNREACHABLE = "unreachable"  # its leader cannot be reached
    CONNECTING = "connecting"  # a connection to its leader is being opened
    IDENTITY = "identity"  # the producer has no usable producer id
    TRANSACTION = "transaction"  # none is open, or the partition is not added to it yet
    BACK_OFF = "back-off"  # after a failure
    WINDOW = "window"  # earlier batches must be acknowledged first, to keep order
    THROTTLED = "throttled"  # the broker throttles the client: a quota is exceeded
    BUSY = "busy"  # max_in_flight requests are in flight to the broker
    LINGER = "linger"  # more records may join the batch
    ANSWER = "answer"  # it was sent and has no response yet
    MEMORY = "memory"  # the buffer is full: senders wait to append records


class Reason(NamedTuple):
    """One reason. `since` is seconds before now, `until` seconds after now; None if not known.

    `until` is when the reason ends or the sender tries again. `partitions` has those concerned, if a whole topic is
    explained.
    """

    hold: Hold
    detail: str
    since: float | None = None
    until: float | None = None
    cause: KwireError | None = None
    partitions: tuple[int, ...] = ()

    def __str__(self) -> str:
        text = f"{self.hold}: {self.detail}"
        if self.partitions:
            text += f" (partition {', '.join(map(str, self.partitions))})"
        if self.since is not None:
            text += f", for {self.since:.3g} s so far"
        if self.until is not None:
            text += f", {self.until:.3g} s to go"
        return f"{text}; the last failure was: {self.cause}" if self.cause is not None else text


class Explanation(NamedTuple):
    """The reasons why a topic's or a partition's records are not sent yet. `partition` None: the whole topic.

    No reasons: nothing is queued, or the loop sends it in its next turn. `oldest` is the age, in seconds, of the oldest
    record without a result; `given_up_in` the seconds until the first batch expires.
    """

    topic: str
    partition: int | None
    reasons: tuple[Reason, ...]
    batches_queued: int
    records_queued: int
    batches_in_flight: int
    oldest: float | None
    given_up_in: float | None

    def __str__(self) -> str:
        place = self.topic if self.partition is None else f"{self.topic}-{self.partition}"
        text = f"{place}: {self.batches_queued} batches ({self.records_queued} records) queued, "
        text += f"{self.batches_in_flight} in flight"
        if self.oldest is not None:
            text += f"; the oldest for {self.oldest:.3g} s"
        if self.given_up_in is not None:
            text += f", expires in {self.given_up_in:.3g} s"
        return "\n".join([text, *(f"  {reason}" for reason in self.reasons)])


class Explainer(NamedTuple):
    """The state by which the sender decides. All methods are for the loop's thread."""

    settings: ProducerSettings
    topics: Mapping[str, TopicQueue]
    identity: ProducerIdState
    handler: ResponseHandler
    transaction: Transaction | None
    buffer_pool: BufferPool

    def explain(self, topic: str, partition: int | None, now: float, view: ClusterView) -> Explanation:
        """Return why records of a topic, or of one partition, are not sent yet."""
        held = self.topics.get(topic)
        queues = [] if held is None else list(held.partitions.values())
        if partition is not None:
            queues = [queue for queue in queues if queue.index == partition]
        waiting = [batch for queue in queues for batch in queue.waiting()]
        out = [batch for queue in queues for batch in queue.in_flight()]
        records = sum(map(len, waiting))
        reasons: list[Reason] = []
        if held is not None:
            # Which partitions these are for is unknown until the topic is known.
            unplaced = [*held.awaiting_metadata, *(held.undesignated if partition is None else ())]
            waiting += unplaced
            records += sum(map(len, unplaced))
            if partition is None:
                reasons = self._of_topic(held, now, view)
            elif queues and not queues[0].is_idle:
                reasons = self._of_partition(queues[0], now, view)
            elif unplaced:
                reasons = self._held(held.partition(partition), unplaced[0], now, view)
        if self.buffer_pool.waiting_for(topic):
            reasons.append(self._memory(topic))
        unresolved = [batch for batch in waiting + out if not batch.is_completed]  # overdue batches have failed already
        return Explanation(
            topic,
            partition,
            tuple(reasons),
            len(waiting),
            records,
            len(out),
            max((now - batch.created_at for batch in unresolved), default=None),
            min((max(0.0, batch.deadline - now) for batch in unresolved), default=None),
        )

    def why(self, batch: ProducerBatch, now: float, view: ClusterView) -> list[Reason]:
        """Return why this batch is not sent yet; it may be out of its queue already."""
        if batch.partition < 0:
            return self._unplaced(self.topics[batch.topic], now, view)
        return self._held(self.topics[batch.topic].partition(batch.partition), batch, now, view)

    def cause(self, batch: ProducerBatch, now: float, view: ClusterView) -> KwireError | str | None:
        """Return the cause for a batch that was never sent: a failure, else the detail of the first reason."""
        reasons = self.why(batch, now, view)
        for reason in reasons:
            if reason.cause is not None:
                return reason.cause
        if view.connection_error is not None or not reasons:
            return view.connection_error
        return reasons[0].detail

    # -- of a topic, of a partition

    def _of_topic(self, held: TopicQueue, now: float, view: ClusterView) -> list[Reason]:
        reasons: list[Reason] = []
        if held.undesignated or held.awaiting_metadata:
            reasons += self._unplaced(held, now, view)
            if held.undesignated:
                reasons += self._linger(held.undesignated[0], now)
        merged: dict[tuple[Hold, str], Reason] = {}
        for queue in sorted(held.partitions.values(), key=lambda queue: queue.index):
            _merge(merged, queue.index, self._of_partition(queue, now, view))
        listed = {reason.hold for reason in reasons}
        return reasons + [reason for reason in merged.values() if reason.hold not in listed]

    def _of_partition(self, queue: PartitionQueue, now: float, view: ClusterView) -> list[Reason]:
        waiting = queue.waiting()
        if waiting:
            return self._held(queue, waiting[0], now, view)
        out = queue.in_flight()
        if not out:
            return []
        leader = view.snapshot.leader(queue.topic, queue.index)
        broker = "its leader" if leader == NO_NODE else f"broker {view.describe(leader)}"
        sent = f"{len(out)} batches are at {broker}, whose response is outstanding"
        return [Reason(Hold.ANSWER, sent, now - out[0].created_at, cause=out[0].last_error)]

    def _unplaced(self, held: TopicQueue, now: float, view: ClusterView) -> list[Reason]:
        """Return why records without a partition get none yet."""
        known = view.snapshot.topics.get(held.name)
        unknown = self._unknown(held.name, known, held.unknown_since, now, view)
        if unknown is not None:
            return [unknown]
        assert known is not None
        merged: dict[tuple[Hold, str], Reason] = {}
        for partition in known.partitions:
            queue = held.partitions.get(partition.index)
            reasons = self._at_leader(partition, queue, now, view) or self._untried(partition, queue, held, now)
            if not reasons:
                merged.clear()
                break
            _merge(merged, partition.index, reasons[:1])
        return [*self._of_producer(None, now), *merged.values()]

    def _untried(
        self, partition: Partition, queue: PartitionQueue | None, held: TopicQueue, now: float
    ) -> list[Reason]:
        is_known = queue is not None and queue.acknowledged_by == (partition.leader, partition.leader_epoch)
        if is_known or held.slow_start.is_sure or held.slow_start.may_try(now):
            return []
        cause = held.undesignated[0].last_error if held.undesignated else None
        until = max(0.0, held.slow_start.tries_at - now)
        return [Reason(Hold.BACK_OFF, "leaders have not heard yet that they are to lead", until=until, cause=cause)]

    def _held(self, queue: PartitionQueue, head: ProducerBatch, now: float, view: ClusterView) -> list[Reason]:
        """Return why the first batch of a partition is not sent yet."""
        known = view.snapshot.topics.get(queue.topic)
        held = self.topics[queue.topic]
        unknown = self._unknown(queue.topic, known, held.unknown_since, now, view)
        if unknown is not None:
            return [unknown]
        assert known is not None
        if queue.index >= len(known.partitions):
            until = head.created_at + self.settings.unknown_topic_timeout_ms / 1000 - now
            has = counted(len(known.partitions), "partition")
            return [Reason(Hold.PARTITION, f"the topic has {has}", until=max(0.0, until))]
        reasons = self._at_leader(known.partitions[queue.index], queue, now, view)
        return [*self._of_producer((queue, head), now), *reasons, *self._linger(head, now)]

    # -- each kind

    def _unknown(
        self, topic: str, known: Topic | None, unknown_since: float | None, now: float, view: ClusterView
    ) -> Reason | None:
        if known is not None and known.partitions:
            return None
        if known is not None and known.error_code:
            cause = broker_error(known.error_code, topic=topic, **view.metadata_status().source)
            until = None
            if unknown_since is not None:
                until = max(0.0, unknown_since + self.settings.unknown_topic_timeout_ms / 1000 - now)
            since = None if unknown_since is None else now - unknown_since
            return Reason(Hold.TOPIC, "the brokers do not offer the topic", since, until, cause)
        status = view.metadata_status()
        if status.request_node is not None:
            detail = f"the topic's partitions are being requested from broker {view.describe(status.request_node)}"
            return Reason(Hold.METADATA, detail, now - status.requested_at, cause=status.last_error)
        cause_or_none = view.connection_error or status.last_error
        if view.connection_error is not None:
            return Reason(Hold.METADATA, "no broker can be reached to request the topic", cause=cause_or_none)
        pause = max(0.0, status.next_at - now)
        return Reason(Hold.METADATA, "the topic's partitions will be requested", until=pause, cause=cause_or_none)

    def _at_leader(
        self, partition: Partition, queue: PartitionQueue | None, now: float, view: ClusterView
    ) -> list[Reason]:
        """Return why a batch cannot be sent to the partition's leader."""
        node = partition.leader
        if node == NO_NODE:
            status = view.metadata_status()
            since = None if partition.leaderless_since is None else now - partition.leaderless_since
            until = None if status.request_node is not None else max(0.0, status.next_at - now)
            cause = broker_error(partition.error_code or ErrorCode.LEADER_NOT_AVAILABLE, **status.source)
            return [Reason(Hold.LEADER, "the partition has no leader; newer metadata is awaited", since, until, cause)]
        broker = f"broker {view.describe(node)}"
        outage = view.unreachable_since(node)
        if outage is not None:
            until = max(0.0, outage.probe_at - now)
            return [Reason(Hold.UNREACHABLE, f"{broker} cannot be reached", now - outage.since, until, outage.cause)]
        reasons: list[Reason] = []
        if not view.is_ready(node):
            reasons.append(Reason(Hold.CONNECTING, f"a connection to {broker} is being made", cause=view.failure(node)))
        elif view.capacity(node) < 1:
            reasons.append(Reason(Hold.BUSY, f"{broker} has max_in_flight requests without a response"))
        muted = self.handler.muted_until.get(node, 0.0)
        if now < muted:
            reasons.append(
                Reason(Hold.THROTTLED, f"{broker} throttles the client: a quota is exceeded", until=muted - now)
            )
        return (self._window(partition, queue, now) if queue is not None else []) + reasons

    def _window(self, partition: Partition, queue: PartitionQueue, now: float) -> list[Reason]:
        closed = queue.blocked_reason((partition.leader, partition.leader_epoch), now)
        if closed is None:
            return []
        waiting = queue.waiting()
        cause = waiting[0].last_error if waiting else None
        if now < queue.retry_at:
            failed = f"{queue.attempts} failures in a row"
            return [Reason(Hold.BACK_OFF, failed, until=queue.retry_at - now, cause=cause)]
        out = queue.in_flight()
        return [Reason(Hold.WINDOW, closed, now - out[0].created_at if out else None, cause=cause)]

    def _of_producer(self, place: tuple[PartitionQueue, ProducerBatch] | None, now: float) -> list[Reason]:
        reasons: list[Reason] = []
        identity, transaction = self.identity, self.transaction
        until = identity.retry_at - now if identity.retry_at > now else None
        match identity.state:
            case IdStatus.UNKNOWN:
                wanted = "the producer has no id yet, and will request one"
                reasons.append(Reason(Hold.IDENTITY, wanted, until=until, cause=identity.last_error))
            case IdStatus.REQUESTED:
                reasons.append(Reason(Hold.IDENTITY, "the producer's id is being requested", cause=identity.last_error))
            case IdStatus.NEEDS_BUMP if (
                place is None or not place[1].is_sequenced or not place[0].sequenced_possibly_persisted()
            ):
                broken = "a sequence was lost: batches in flight resolve first, then a new producer id is requested"
                reasons.append(Reason(Hold.IDENTITY, broken, until=until, cause=identity.last_error))
        if transaction is not None and not transaction.sends_records:
            state = f"the transaction is {transaction.state.name.lower()}"
            reasons.append(Reason(Hold.TRANSACTION, state, cause=transaction.error))
        elif transaction is not None and place is not None:
            queue = place[0]
            if not transaction.is_added((queue.topic, queue.index)):
                pause = transaction.retry_at - now if transaction.retry_at > now else None
                reasons.append(Reason(Hold.TRANSACTION, "the partition is being added to the transaction", until=pause))
        return reasons

    def _linger(self, batch: ProducerBatch, now: float) -> list[Reason]:
        until = batch.created_at + self.settings.linger_ms / 1000 - now
        if batch.is_closed or until <= 0:
            return []
        return [Reason(Hold.LINGER, f"more records may join the batch of {len(batch)}", until=until)]

    def _memory(self, topic: str) -> Reason:
        used, limit = self.buffer_pool.used_bytes, self.buffer_pool.bytes_max
        largest, held = self.buffer_pool.accumulator.largest()
        return Reason(
            Hold.MEMORY,
            f"{self.buffer_pool.waiting_for(topic)} senders wait for room: {used} of {limit} bytes are buffered, "
            f"most of them, {held}, for {largest}",
        )


def _merge(into: dict[tuple[Hold, str], Reason], partition: int, reasons: list[Reason]) -> None:
    """Merge equal reasons of several partitions into one that lists the partitions."""
    for reason in reasons:
        key = reason.hold, reason.detail
        partitions = (*into[key].partitions, partition) if key in into else (partition,)
        into[key] = into.get(key, reason)._replace(partitions=partitions)
