"""The producer's state machine: it turns records into ProduceRequests.

Each turn drains the accumulator, fails what is too old, requests a producer id when one is needed, gives unkeyed
batches their partitions, and builds one request per leader from the batches that are ready (collation).
`PartitionQueue` decides the order, `ReadyQueue` which partitions a turn examines, `ResponseHandler` what a response
means.

It uses no socket, clock or thread: `turn` gets the time and the view of the cluster and returns requests.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection
from concurrent.futures import Future
from random import Random
from uuid import UUID

from kwire.cluster import (
    Backoff,
    ClusterMetrics,
    ClusterView,
    Partition,
    PendingRequest,
    Route,
    Snapshot,
    ToAny,
    ToNode,
)
from kwire.cluster.metadata import NO_NODE
from kwire.errors import (
    PERMANENT_TOPIC_CODES,
    AbortableError,
    ErrorCode,
    KwireError,
    RequestTimeoutError,
    TopicError,
    UnsupportedVersionError,
    broker_error,
    counted,
)
from kwire.producer.accumulator import BufferPool
from kwire.producer.batch import NO_SEQUENCE, ProducerBatch
from kwire.producer.explain import Explainer, Explanation, awaited, timeout_error
from kwire.producer.metrics import ProducerMetrics, producer_metrics
from kwire.producer.options import IDEMPOTENT_WINDOW, ProducerSettings
from kwire.producer.partition import PartitionQueue, ReadyQueue
from kwire.producer.partitioner import routing
from kwire.producer.producer_id import IdStatus, ProducerIdState
from kwire.producer.responses import (
    REFUSES_NOTHING_SINCE,
    SEQUENCES_SINCE,
    Batches,
    InFlightProduce,
    ResponseHandler,
    build_request,
    names_topics,
    refusal,
    version_limit,
)
from kwire.producer.splitting import BatchSizeEstimator
from kwire.producer.topic import TopicQueue
from kwire.producer.transaction import Transaction, TransactionState
from kwire.protocol import Response
from kwire.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kwire.protocol.messages.produce import ProduceRequest
from kwire.records import Compression

# How many batches that do not fit into a request are passed over in favour of smaller ones.
_MISFITS_MAX = 8

# How many partitions with no acknowledged batch a request carries. The first records of a partition cost a broker more
# than a thousand later ones: it creates and syncs files, and responds when all partitions of the request have theirs.
_NEW_MAX = 100

LeaderQueues = dict[
    PartitionQueue, Partition
]  # what one broker leads and has something to send, in the order of their turns


class RequestBuilder:
    """Builds the ProduceRequests to one broker from the queues of the partitions it leads. For the loop thread."""

    def __init__(
        self,
        settings: ProducerSettings,
        identity: ProducerIdState,
        handler: ResponseHandler,
        transaction: Transaction | None,
        ready: ReadyQueue,
        request_timeout_ms: int,
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._handler = handler
        self._transaction = transaction
        self._ready = ready
        self._request_timeout_ms = request_timeout_ms
        self._acks_by_default = settings.required_acks
        self._request_bytes_max = settings.request_bytes_max

    def build(
        self, node: int, led: LeaderQueues, version_max: int | None, now: float, view: ClusterView
    ) -> list[PendingRequest]:
        """Return requests to one broker, as many as it has capacity for: one batch of each partition each."""
        calls: list[PendingRequest] = []
        if now < self._handler.muted_until.get(node, 0.0):
            return calls
        if self._transaction is not None:
            version_max = self._transaction.produce_limit(version_max)
        version = view.version(node, ProduceRequest, version_max)
        for _ in range(view.capacity(node)):
            taken = self._drain(led, version, now, view)
            if taken:
                calls.append(self._pending_request(node, taken, version, now, view))
            if not led:
                break
        return calls

    def _drain(self, led: LeaderQueues, version: int, now: float, view: ClusterView) -> Batches:
        """Take one batch of each partition until the request is full; all batches have the same acks.

        Partitions that did not fit come first in the next request, those that were taken come last.
        """
        settings, identity, transaction = self._settings, self._identity, self._transaction
        is_sequencing = identity.state is IdStatus.KNOWN and version >= SEQUENCES_SINCE
        taken: Batches = []
        held: list[PartitionQueue] = []
        size_bytes = acks = misfits = new = 0
        for queue, partition in led.items():
            leader = partition.leader, partition.leader_epoch
            if self._is_blocked(queue, leader, version, now):
                held.append(queue)
                continue
            if transaction is not None and not transaction.may_send((queue.topic, queue.index)):
                continue
            batch, limit = queue.queued[0], queue.limit
            if batch.count < 0:
                batch.close()  # its size decides now, so it must not grow
            if limit.learns and limit.is_exceeded(batch):
                self._handler.split(queue, batch)
                batch = queue.queued[0]
            sent_bytes = batch.size_bytes if version >= SEQUENCES_SINCE else batch.buffered_bytes  # at most, before v2
            if limit.learns:
                sent_bytes = limit.sent_bytes(sent_bytes)
            is_new = queue.acknowledged_by != leader
            batch_acks = self._acks_by_default if batch.terms is None else batch.terms.acks
            if not taken:
                acks = batch_acks
            elif (
                size_bytes + sent_bytes > self._request_bytes_max or batch_acks != acks or (is_new and new == _NEW_MAX)
            ):
                misfits += 1
                if misfits == _MISFITS_MAX:
                    break
                continue
            refused = refusal(batch, version, settings) if version < REFUSES_NOTHING_SINCE else None
            if refused is not None:
                if batch.is_sequenced:
                    identity.require_epoch_bump()
                    is_sequencing = False
                self._handler.fail(queue.queued.popleft(), refused.at(broker=view.describe(partition.leader)))
                self._ready.mark_ready(queue)
                continue
            new += is_new
            queue.take(leader)
            if is_sequencing and batch.sequence == NO_SEQUENCE:
                queue.sequence(batch, identity.producer_id, identity.producer_epoch)
                batch.is_transactional = transaction is not None
            size_bytes += sent_bytes
            taken.append((queue, batch))
        for queue in held:
            del led[queue]
        for queue, _ in taken:
            partition = led.pop(queue)
            if queue.queued:
                led[queue] = partition
        return taken

    def _is_blocked(self, queue: PartitionQueue, leader: tuple[int, int], version: int, now: float) -> bool:
        """Return whether the partition can send nothing now; if so, park it until that may have changed."""
        if not queue.queued:
            return True
        head = queue.queued[0]
        if head.count < 0 and not self._ready.is_due(head, now):
            self._ready.park_until_linger(queue, head)
            return True
        is_open = head.is_sequenced and queue.sequenced_possibly_persisted()
        if self._identity.state is IdStatus.NEEDS_BUMP and not is_open:
            self._ready.awaits_id = True
            return True  # only batches that the old id may have stored are sent, and those before them
        if version < SEQUENCES_SINCE and queue.in_flight_count and self._settings.ordered:
            return True  # without sequences only one batch in flight keeps order
        if queue.blocked_reason(leader, now) is None:
            return False
        if now < queue.retry_at:
            self._ready.wake_at(queue, queue.retry_at)
        self._ready.park(queue)
        return True

    def _pending_request(
        self, node: int, taken: Batches, version: int, now: float, view: ClusterView
    ) -> PendingRequest:
        batches = [batch for _, batch in taken]
        tried_at, is_named = (view.describe(node), version), names_topics(version)
        for batch in batches:
            batch.tried_at = tried_at
            batch.was_named |= is_named
        first = batches[0].terms
        acks = self._acks_by_default if first is None else first.acks
        replication_timeout_ms = self._replication_timeout_ms(batches)
        in_flight = InFlightProduce(node, version, taken, view.snapshot, acks)

        def build(negotiated: int) -> ProduceRequest:
            request = build_request(
                batches, negotiated, in_flight.snapshot, self._settings, acks, replication_timeout_ms
            )
            self._handler.counters.sent(batches, now)
            return request

        def done(result: Response | KwireError | None, now: float) -> None:
            self._handler.handle_response(in_flight, result, now, view, was_written=call.was_written)
            self._ready.requests_done(taken)

        call = PendingRequest(
            ToNode(node),
            ProduceRequest,
            build,
            done,
            timeout_ms=self._request_timeout_ms,
            at_most=version,
            expects_response=acks != 0,
        )
        return call

    def _replication_timeout_ms(self, batches: list[ProducerBatch]) -> int:
        """Return how long the replicas may take to follow: the longest time limit among the batches."""
        longest_ms = 1
        for batch in batches:
            if batch.terms is None or batch.terms.timeout is None:
                return self._request_timeout_ms
            longest_ms = max(longest_ms, int(batch.terms.timeout * 1000))
        return min(self._request_timeout_ms, longest_ms)


_UNORDERED_WINDOW = 1 << 30
# How many refusals by brokers that give no producer ids end the search for one that does.
_ID_REFUSALS_MAX = 5
# Topics of which only the sequences are remembered. More than that cost a new producer id.
_FORGOTTEN_MAX = 1_000

_log = logging.getLogger("kwire.producer")

_Causes = dict[tuple[str, int], KwireError | str | None]  # by partition, found once a turn


class Sender:
    """A `StateMachine` of the event loop. All methods are for the loop thread."""

    def __init__(
        self,
        settings: ProducerSettings,
        buffer_pool: BufferPool,
        *,
        backoff: Backoff,
        request_timeout_ms: int,
        random: Random,
    ) -> None:
        self._settings = settings
        self._buffer_pool = buffer_pool
        self._backoff = backoff
        self._request_timeout_ms = request_timeout_ms
        self._random = random
        self._identity = ProducerIdState(
            settings.wants_idempotence,
            transactional_id=settings.transactional_id,
            timeout_ms=settings.transaction_timeout_ms,
        )
        self._id_request: PendingRequest | None = None
        self._id_node: int | None = None  # a broker that is to give the next id; None for any
        self._id_refusals = 0  # of brokers in a row that give no ids
        self.transaction: Transaction | None = None
        if settings.transactional_id is not None:
            self.transaction = Transaction(
                settings.transactional_id,
                self._identity,
                backoff=backoff,
                random=random,
                on_bumped=self._restart_sequences,
            )
        self._handler = ResponseHandler(
            self._identity, buffer_pool, backoff, random, self._unassign, self.transaction, retries_max=settings.retries
        )
        make_spread = routing(settings.partitioner).spread
        self._spread = make_spread(random, settings.batch_bytes, settings.single_broker_switch_ms / 1000)
        self._topics: dict[str, TopicQueue] = {}
        self._names: frozenset[str] | None = None  # of the topics; one object while none is new
        self._explainer = Explainer(
            settings, self._topics, self._identity, self._handler, self.transaction, buffer_pool
        )
        self._ready = ReadyQueue(settings.linger_ms / 1000)
        self._request_builder = RequestBuilder(
            settings, self._identity, self._handler, self.transaction, self._ready, request_timeout_ms
        )
        self._by_leader: dict[int, LeaderQueues] = {}  # by leader, in the order of their turns
        self._unsettled: dict[TopicQueue, None] = {}  # with records without a partition, or incomplete metadata
        self._snapshot = Snapshot()  # the one that the last turn saw
        self._version_max = version_limit(has_ids=False)  # of Produce, for that
        self._now = 0.0  # of the last turn
        self._view: ClusterView | None = None
        self._linger = settings.linger_ms / 1000
        self._idle_max = settings.metadata_max_idle_ms / 1000
        self._forget_at = math.inf  # no topic has been idle for so long before this
        # Of partitions whose topics were forgotten: brokers refuse another sequence under the same producer id.
        self._sequences: dict[str, dict[int, tuple[int, UUID]]] = {}
        self._next_deadline: float | None = None

    # -- StateMachine

    def topics(self) -> Collection[str]:
        if self._names is None:
            self._names = frozenset(name for name, topic in self._topics.items() if topic.is_requested)
        return self._names

    def deadline(self) -> float | None:
        return self._next_deadline

    def turn(self, now: float, view: ClusterView) -> list[PendingRequest]:
        self._now, self._view = now, view
        self._ready.lingers = not self._buffer_pool.is_full
        self._drain_accumulator(now)
        if now >= self._forget_at:  # not a deadline of its own: metadata refreshes make turns often enough
            self._forget_idle(now)
        is_news = view.snapshot is not self._snapshot
        if not (is_news or self._ready.active or self._unsettled) and self.transaction is None:  # it holds nothing
            self._next_deadline = None
            return []
        if is_news or self._ready.awaits_id:
            self._apply_news(view.snapshot)
        self._expire_batches(now, view)
        if self._unsettled:
            self._route_records(now)
            self._assign_partitions(now, view)
            self._request_topics(view)
        if self._identity.is_usable:
            calls = self._build_requests(now, view)
        else:
            calls = self._id_requests(now, view)
            if self._identity.state is IdStatus.NEEDS_BUMP:
                calls += self._build_requests(now, view)
        if self._ready.awaits_id:  # a batch that failed just now may have required a bump
            calls += self._id_requests(now, view)
        if self.transaction is not None:
            calls += self._transaction_requests(self.transaction, now, view)
        self._next_deadline = self._earliest_deadline(now)
        if self._next_deadline is not None and self._next_deadline <= now + self._linger and self._is_anything_due():
            # The loop wakes before a new record has lingered too long, so callers need not wake it. Pending work alone
            # does not guarantee that: the outstanding response may be slow, or never arrive.
            self._buffer_pool.accumulator.gather()
        return calls

    def closed(self, error: KwireError) -> None:
        self._buffer_pool.close(error)
        self._drain_accumulator(self._now)
        for topic in self._topics.values():
            for batch in topic.unresolved():
                if not batch.is_decided:
                    why = batch.last_error or error
                    self._handler.fail_delivery(batch, "the producer was closed before it was delivered", why)
        if self.transaction is not None:
            self.transaction.closed(error)
        self._buffer_pool.accumulator.drop_builders()
        self._topics.clear()
        self._names = None
        self._unsettled.clear()
        self._ready.clear()
        self._by_leader.clear()

    def flush(self, on_done: Callable[[], object], now: float) -> None:
        """Send all records without further linger; call `on_done` when each of them has an outcome."""
        self._drain_accumulator(now)
        self._close_batches()
        self._handler.add_flush([batch for topic in self._topics.values() for batch in topic.unresolved()], on_done)

    def drain(self, on_done: Callable[[], object], on_aborted: Callable[[], object], now: float) -> None:
        """End the transaction, then `flush`: what `close` waits for.

        Wait for a transaction that is being committed or aborted. Abort one that is open, as Java's
        `KafkaProducer.close` does, since nobody can commit it any more; then `on_aborted` is called.
        """
        transaction = self.transaction
        if transaction is None or not transaction.has_begun:
            self.flush(on_done, now)
            return
        is_commit = transaction.state is TransactionState.COMMITTING
        if not is_commit and transaction.state is not TransactionState.ABORTING:
            _log.warning(
                "the producer of transactional_id %r is closed inside a transaction that was not committed: "
                "the transaction is aborted, and none of its records becomes visible", transaction.transactional_id,
            )  # fmt: skip
        ended: Future[None] = Future()

        def on_ended(result: Future[None]) -> None:
            if not is_commit and result.exception() is None:
                on_aborted()
            self.flush(on_done, self._now)

        ended.add_done_callback(on_ended)
        self.end(transaction, ended, is_commit=is_commit)

    def explain(self, topic: str, partition: int | None, now: float, view: ClusterView) -> Explanation:
        """Return why the records of a partition, or of a whole topic, are not sent now."""
        self._drain_accumulator(now)
        return self._explainer.explain(topic, partition, now, view)

    def timeout_error(self, what: str, timeout: float | None, now: float, view: ClusterView) -> RequestTimeoutError:
        """Return the error to raise when `what` took longer than its caller's timeout."""
        self._drain_accumulator(now)
        return timeout_error(what, timeout, awaited(self.transaction, self._id_request, self._explainer, now, view))

    def metrics(self, cluster: ClusterMetrics) -> ProducerMetrics:
        return producer_metrics(self._handler.counters, self._topics.values(), self._buffer_pool, cluster)

    def end(self, transaction: Transaction, future: Future[None], *, is_commit: bool) -> None:
        """Commit or abort the transaction with all records sent so far."""
        if transaction.takes_records and self._view is not None:
            self._drain_accumulator(self._now)
        transaction.end(is_commit=is_commit, future=future)
        self._close_batches()

    # -- records in

    def _drain_accumulator(self, now: float) -> None:
        """Move the batches that callers began since the last turn into the topics' queues."""
        ready, topics, transaction = self._ready, self._topics, self.transaction
        for builder in self._buffer_pool.accumulator.take():
            topic = topics.get(builder.topic) or self._new_topic(builder.topic)
            was_taken = builder.since is not None  # it waited for its topic's metadata
            if transaction is not None and not transaction.takes_records and not was_taken:
                self._handler.fail(topic.batch(builder, now), transaction.state_error("take a record"))
                continue
            if not topic.is_requested:
                topic.is_requested, self._names = True, None
                self._unsettled[topic] = None
            queue = topic.add(builder, now)
            if queue is not None:
                ready.add(queue)
            else:
                self._unsettled[topic] = None

    def _has_work(self) -> bool:
        return bool(self._ready.active) or any(topic.undesignated for topic in self._unsettled)

    def _is_anything_due(self) -> bool:
        """Return whether a batch is due and not sent, for whatever reason."""
        is_placed = self._ready.is_waiting or any(self._by_leader.values())
        return is_placed or any(topic.undesignated for topic in self._unsettled)

    def _is_drained(self) -> bool:
        return all(queue.is_idle for queue in self._ready.active) and not any(
            topic.awaiting_metadata or topic.undesignated for topic in self._unsettled
        )

    def _new_topic(self, name: str) -> TopicQueue:
        window_max = 1
        if not self._settings.ordered:
            window_max = _UNORDERED_WINDOW
        elif self._identity.is_idempotent:
            window_max = IDEMPOTENT_WINDOW
        topic = self._topics[name] = TopicQueue(
            name,
            spread=self._spread,
            limit=self._size_limit(),
            window_max=window_max,
            is_ordered=self._settings.ordered,
            delivery_timeout=self._settings.delivery_timeout_ms / 1000,
        )
        self._unsettled[topic] = None
        self._names = None
        for index, state in self._sequences.pop(name, {}).items():
            topic.partition(index).resume_sequences(state)
        self._forget_at = min(self._forget_at, self._now + self._idle_max)
        return topic

    def _forget_idle(self, now: float) -> None:
        """Drop the topics that got no record for long; keep only the sequences of their partitions."""
        first = math.inf
        for topic in list(self._topics.values()):
            if now < topic.used_at + self._idle_max:
                first = min(first, topic.used_at + self._idle_max)
            elif topic.is_idle and self._buffer_pool.accumulator.forget(topic.name):
                del self._topics[topic.name]
                self._unsettled.pop(topic, None)
                self._spread.forget(topic.name)
                self._names = None
                queues = topic.partitions.values()
                for led in self._by_leader.values():
                    for queue in queues:
                        led.pop(queue, None)
                states = {queue.index: state for queue in queues if (state := queue.sequence_state) is not None}
                if states and self._identity.is_idempotent:
                    self._sequences[topic.name] = states
            else:
                first = now
        # In steps, since thousands of topics may become idle one after the other.
        self._forget_at = max(first, now + self._idle_max / 8)
        if len(self._sequences) > _FORGOTTEN_MAX and self.transaction is None:
            self._identity.require_epoch_bump()  # under a new producer id all of them start again

    def _size_limit(self) -> BatchSizeEstimator:
        settings = self._settings
        is_compressed = settings.codec is not Compression.NONE
        return BatchSizeEstimator(settings.batch_bytes, settings.request_bytes_max if is_compressed else None)

    def _close_batches(self) -> None:
        for topic in self._topics.values():
            topic.close_batches()

    def _apply_news(self, snapshot: Snapshot) -> None:
        """Apply what concerns every topic and partition: a new snapshot, a new producer id."""
        if snapshot is not self._snapshot:
            self._snapshot = snapshot
            known = snapshot.topics
            has_ids = all(topic.id.int for topic in known.values() if topic.partitions)
            self._version_max = version_limit(has_ids=has_ids)
            self._unsettled.update((t, None) for t in self._topics.values() if known.get(t.name) is not t.known)
            self._by_leader.clear()
            self._ready.mark_all_ready()
        if self._ready.awaits_id and self._identity.state is not IdStatus.NEEDS_BUMP:
            self._ready.awaits_id = False
            self._ready.mark_all_ready()

    def _route_records(self, now: float) -> None:
        """Give the accumulator the topics' partitions; waiting records come back in new batches, ahead of later."""
        for topic in list(self._unsettled):
            known = self._snapshot.topics.get(topic.name)
            if known is topic.known and not (topic.awaiting_metadata and known is not None and known.partitions):
                continue
            topic.known = known
            topic.was_seen |= known is not None and bool(known.partitions)
            waiting = list(topic.awaiting_metadata)
            # Later records must not join batches that a flush waits for, or those of a transaction that is ending.
            apart = self._handler.is_flushing(waiting)
            apart |= self.transaction is not None and not self.transaction.takes_records
            topic.route(self._buffer_pool.accumulator, known.partitions if known is not None else (), apart=apart)
            if known is not None and known.partitions:
                self._drain_accumulator(now)
                self._handler.replace_in_flushes(waiting, topic.unresolved())

    def _request_topics(self, view: ClusterView) -> None:
        """Request metadata of the topics that need it; allow creation of those that no broker ever had."""
        for topic in list(self._unsettled):
            if not topic.is_needed:
                topic.is_requested, self._names = False, None
                del self._unsettled[topic]
            elif not topic.was_seen:
                view.allow_topic_creation(topic.name)

    # -- expiry and failure

    def _expire_batches(self, now: float, view: ClusterView) -> None:
        hopeless = view.connection_error if view.has_fatal_error else None
        causes: _Causes = {}
        for topic in list(self._unsettled if hopeless is None else self._topics.values()):
            error = hopeless or self._topic_error(topic, now, view)
            if error is not None:
                self._fail_topic(topic, error)
            for batch in topic.take_expired(now):
                self._expire_batch(batch, causes, now, view)
        if now >= self._ready.overdue_at:
            for queue in self._ready.active:
                if now < queue.overdue_at:
                    continue
                for batch in queue.expired(now):
                    if batch.is_sequenced:
                        # Its sequence will be missing: the next one would be out of order
                        self._identity.require_epoch_bump()
                    self._expire_batch(batch, causes, now, view)
                    self._ready.mark_ready(queue)
                for batch in queue.overdue_unqueued(now):
                    self._handler.expire_early(batch, self._time_limit(batch), is_in_flight=queue.is_in_flight(batch))
            self._ready.overdue_at = min((queue.overdue_at for queue in self._ready.active), default=math.inf)

    def _topic_error(self, topic: TopicQueue, now: float, view: ClusterView) -> KwireError | None:
        """Return why a topic's records can never be delivered: the error of its metadata, once it is certain."""
        known = self._snapshot.topics.get(topic.name)
        if known is None or (known.partitions and not known.error_code) or topic.is_idle:
            topic.unknown_since = None
            return None
        if known.error_code in PERMANENT_TOPIC_CODES:
            return broker_error(known.error_code, topic=topic.name, **view.metadata_status().source)
        if known.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            topic.unknown_since = now if topic.unknown_since is None else topic.unknown_since
            if now - topic.unknown_since >= self._settings.unknown_topic_timeout_ms / 1000:
                return broker_error(
                    known.error_code,
                    f"the brokers did not know the topic for {self._settings.unknown_topic_timeout_ms} ms",
                    remedy="create the topic, check its name, or let the brokers create topics by themselves",
                    topic=topic.name,
                    **view.metadata_status().source,
                )
        return None

    def _fail_topic(self, topic: TopicQueue, error: KwireError) -> None:
        """Fail the batches that are not in flight; the others get a response, or their connection ends."""
        for waiting in (topic.awaiting_metadata, topic.undesignated):
            while waiting:
                self._handler.fail(waiting.popleft(), error)
        for queue in topic.partitions.values():
            if queue.queued:
                self._ready.mark_ready(queue)
            while queue.queued:
                batch = queue.queued.popleft()
                if batch.is_sequenced:
                    self._identity.require_epoch_bump()
                self._handler.fail(batch, error)

    def _expire_batch(self, batch: ProducerBatch, causes: _Causes, now: float, view: ClusterView) -> None:
        """Fail a batch past its deadline. Its cause is its last error, else what held it back."""
        cause: KwireError | str | None = batch.last_error
        if cause is None:
            place = batch.topic, batch.partition
            if place not in causes:
                causes[place] = self._explainer.cause(batch, now, view)
            cause = causes[place]
        what = f"not delivered within {self._time_limit(batch)}"
        if isinstance(cause, str):
            self._handler.fail_delivery(batch, f"{what}, held back by this: {cause}", None)
        else:
            self._handler.fail_delivery(batch, what, cause)

    def _time_limit(self, batch: ProducerBatch) -> str:
        if batch.terms is not None and batch.terms.timeout is not None:
            return f"{batch.terms.timeout} s"
        return f"{self._settings.delivery_timeout_ms} ms"

    # -- producer id

    def _id_requests(self, now: float, view: ClusterView) -> list[PendingRequest]:
        identity = self._identity
        if not identity.needs_request:
            return []
        is_wanted = self._has_work() if self.transaction is None else self.transaction.needs_producer_id
        if not is_wanted or not identity.should_request(now, is_drained=True):
            return []
        for queue in self._ready.active:
            known = view.snapshot.topics.get(queue.topic)
            if known is not None:
                queue.is_of(known.id)  # sequences of a deleted topic need no resolution
        is_open = any(queue.in_flight_count or queue.sequenced_possibly_persisted() for queue in self._ready.active)
        if not identity.should_request(now, is_drained=not is_open):
            return []
        identity.mark_requested()
        route: Route = ToAny() if self._id_node is None else ToNode(self._id_node)
        if self.transaction is not None:
            route = self.transaction.route
        self._id_node = None

        def done(result: Response | KwireError | None, now: float) -> None:
            self._handle_id_response(call, result, now)

        call = self._id_request = PendingRequest(route, InitProducerIdRequest, identity.request, done, may_retry=True)
        return [call]

    def _handle_id_response(self, call: PendingRequest, result: Response | KwireError | None, now: float) -> None:
        if isinstance(result, InitProducerIdResponse) and not result.error_code:
            self._identity.update(result)
            self._id_request, self._id_refusals = None, 0
            self._restart_sequences()
            if self.transaction is not None:
                self.transaction.initialized()
            return
        error: KwireError
        if isinstance(result, InitProducerIdResponse):
            refused = broker_error(result.error_code, broker=call.broker, api="InitProducerId", version=call.version)
            error, is_lasting = refused, not refused.is_retriable
            if self.transaction is not None:
                is_lasting = not self.transaction.should_retry_init(refused)
        else:
            assert isinstance(result, KwireError)
            error, is_lasting = result, isinstance(result, UnsupportedVersionError)
        self._identity.attempts += 1
        self._identity.request_failed(now + self._backoff.seconds(self._identity.attempts, self._random), error)
        if isinstance(error, UnsupportedVersionError) and self._settings.idempotence is None:
            self._try_next_id_broker(error)
            return
        if is_lasting:
            if self.transaction is not None:
                self.transaction.fail_fatally(error)
            for topic in self._topics.values():
                self._fail_topic(topic, error)

    def _try_next_id_broker(self, error: UnsupportedVersionError) -> None:
        """Request an id from another broker, while the cluster is in the middle of an upgrade; else go on without."""
        view, had_id = self._view, self._identity.producer_id >= 0
        ready = [] if view is None else [node for node in view.snapshot.brokers if view.is_ready(node)]
        capable = [node for node in ready if view is not None and view.supports(node, InitProducerIdRequest)]
        self._id_refusals += 1
        if capable and self._id_refusals <= _ID_REFUSALS_MAX:
            self._id_node = capable[0]
            self._identity.retry_at = self._now
            return
        if had_id and self._id_refusals <= _ID_REFUSALS_MAX:
            return  # another broker may be reached by then
        if had_id:
            _log.warning(
                "the producer had an id, lost its sequences, and no broker that can be reached gives it another: "
                "it goes on without idempotence, and a retry may store a record twice; upgrade the brokers that are "
                "older than 0.11, or set idempotence=True to fail instead (%s)", error,
            )  # fmt: skip
        self._identity.disable()
        self._restart_sequences()
        for topic in self._topics.values():
            topic.narrow_window(1)

    def _restart_sequences(self) -> None:
        """Begin every sequence at 0 under the new id, also those of idle partitions (KAFKA-12152)."""
        self._sequences.clear()
        for topic in self._topics.values():
            for queue in topic.partitions.values():
                queue.restart_sequences()

    def _transaction_requests(self, transaction: Transaction, now: float, view: ClusterView) -> list[PendingRequest]:
        if not transaction.sends_records:
            self._drop_records(transaction)
        return transaction.requests(now, view, is_drained=self._is_drained())

    def _drop_records(self, transaction: Transaction) -> None:
        """Fail the batches that the transaction will not send any more, except those in flight."""
        for topic in self._topics.values():
            if not topic.is_idle:
                self._fail_topic(topic, transaction.error or AbortableError("the transaction was aborted"))

    # -- records out

    def _assign_partitions(self, now: float, view: ClusterView) -> None:
        """Give due unkeyed batches to partitions that can send one right now."""
        for topic in list(self._unsettled):
            known = self._snapshot.topics.get(topic.name)
            if known is None:
                continue
            if topic.undesignated:
                for queue in topic.assign_partitions(known, view, self._ready.is_due, now):
                    self._ready.add(queue)
            if topic.is_settled:
                del self._unsettled[topic]

    def _unassign(self, batch: ProducerBatch) -> None:
        topic = self._topics[batch.topic]
        topic.unassign(batch)
        self._unsettled[topic] = None

    def _build_requests(self, now: float, view: ClusterView) -> list[PendingRequest]:
        """Return requests by broker; the partitions take turns, so that none starves."""
        for queue in self._ready.pop_ready(now):
            if queue.queued:
                self._queue_for_leader(queue, now, view)
            elif queue.is_idle:
                self._ready.active.pop(queue, None)
        calls: list[PendingRequest] = []
        if self.transaction is None or self.transaction.sends_records:
            for node, led in self._by_leader.items():
                if led and view.is_ready(node):
                    calls += self._request_builder.build(node, led, self._version_max, now, view)
        return calls

    def _queue_for_leader(self, queue: PartitionQueue, now: float, view: ClusterView) -> None:
        """Add a partition that has something to send to the queues of its leader."""
        known = self._snapshot.topics.get(queue.topic)
        count = 0 if known is None else len(known.partitions)
        if known is None or count <= queue.index:
            if count:
                self._check_missing(queue, count, now, view)
            else:
                view.request_metadata(f"{queue.topic}-{queue.index} has no leader")
            return
        partition = known.partitions[queue.index]
        if partition.leader == NO_NODE:
            view.request_metadata(f"{queue.topic}-{queue.index} has no leader")
        elif queue.is_of(known.id):
            led = self._by_leader.get(partition.leader)
            if led is None:
                led = self._by_leader[partition.leader] = {}
            led[queue] = partition

    def _check_missing(self, queue: PartitionQueue, count: int, now: float, view: ClusterView) -> None:
        """Fail the batches of a partition that metadata lacks, once it cannot be newer than the metadata."""
        if now < queue.queued[0].created_at + self._settings.unknown_topic_timeout_ms / 1000:
            if now >= queue.retry_at:
                view.request_metadata(f"{queue.topic} has {counted(count, 'partition')}, {queue.index} is wanted")
                queue.attempts += 1
                queue.retry_at = now + self._backoff.seconds(queue.attempts, self._random)
            self._ready.wake_at(queue, queue.retry_at)
            return
        missing = TopicError(
            f"topic {queue.topic} has {counted(count, 'partition')}",
            code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            remedy=f"there is no partition {queue.index}: choose a lower one or add partitions",
            topic=queue.topic,
            partition=queue.index,
            **view.metadata_status().source,
        )
        while queue.queued:
            batch = queue.queued.popleft()
            if batch.is_sequenced:
                self._identity.require_epoch_bump()
            self._handler.fail(batch, missing)
        self._ready.mark_ready(queue)

    # -- time

    def _earliest_deadline(self, now: float) -> float | None:
        """Return when something changes by time alone: a linger or back-off ends, a batch expires."""
        times = [*self._ready.deadlines(), self._identity.retry_at, *self._handler.muted_until.values()]
        for led in self._by_leader.values():
            if led and (queued := next(iter(led)).queued):
                times.append(queued[0].created_at + self._linger)
        for topic in self._unsettled:
            times.append(topic.overdue_at)
            if topic.undesignated:
                head = topic.undesignated[0]
                slow_start = topic.slow_start
                times += [head.created_at + self._linger, slow_start.tries_at, slow_start.awaited_until]
            if topic.unknown_since is not None:
                times.append(topic.unknown_since + self._settings.unknown_topic_timeout_ms / 1000)
        if self.transaction is not None:
            times.append(self.transaction.retry_at)
        first = math.inf
        for time in times:
            if now < time < first:
                first = time
        return None if first == math.inf else first
