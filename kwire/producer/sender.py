"""The producer's state machine.

Batches of many partitions into the requests to the broker that leads them, just before these are written.

It takes from each partition's queue what may go out now, and gives it its sequence. What may not is put aside in the
agenda. It refuses to know which partitions there are, and what an answer means.

The producer's state machine: it turns records into ProduceRequests and answers into outcomes.

Each turn: take in what was sent, give up what is too old, see to the producer's identity, give unkeyed batches their
partitions, and collate what is due by the broker that leads it, many partitions to a request, just before it is
written. Order belongs to each `PartitionQueue`; what an answer means is in `outcomes`; which partitions a turn looks at
is in `agenda`.

It touches no socket, clock or thread: `turn` gets the time and the view of the cluster and answers calls.
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
)
from kwire.producer.batch import NO_SEQUENCE, ProducerBatch
from kwire.producer.buffer_pool import BufferPool
from kwire.producer.explain import Explainer, Explanation, awaited, timeout_error
from kwire.producer.metrics import ProducerMetrics, producer_metrics
from kwire.producer.options import IDEMPOTENT_WINDOW, ProducerSettings
from kwire.producer.partition import PartitionQueue
from kwire.producer.partitioner import routing
from kwire.producer.producer_id import IdStatus, ProducerIdState
from kwire.producer.ready import ReadyQueue
from kwire.producer.responses import (
    REFUSES_NOTHING_SINCE,
    SEQUENCES_SINCE,
    InFlightProduce,
    ResponseHandler,
    Taken,
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

# How many batches that do not fit are passed over for the sake of smaller ones, when a request is filled.
_MISFITS_MAX = 8

# How many partitions a request carries that their leader has acknowledged nothing of yet. The first records of a
# partition cost a broker more than a thousand later ones: it makes and syncs files, and answers when all have them.
_NEW_MAX = 100

Led = dict[PartitionQueue, Partition]  # what one broker leads and has something to send, in the order of their turns


class RequestBuilder:
    """All methods are for the loop's thread."""

    def __init__(
        self,
        settings: ProducerSettings,
        identity: ProducerIdState,
        outcomes: ResponseHandler,
        transaction: Transaction | None,
        agenda: ReadyQueue,
        request_timeout_ms: int,
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._outcomes = outcomes
        self._transaction = transaction
        self._agenda = agenda
        self._request_timeout_ms = request_timeout_ms
        self._acks_by_default = settings.required_acks
        self._request_bytes_max = settings.request_bytes_max

    def requests(
        self, node: int, led: Led, version_max: int | None, now: float, view: ClusterView
    ) -> list[PendingRequest]:
        """Requests to one broker, as many as its connection has room for: a batch of each partition, then again."""
        calls: list[PendingRequest] = []
        if now < self._outcomes.muted_until.get(node, 0.0):
            return calls
        if self._transaction is not None:
            version_max = self._transaction.produce_limit(version_max)
        version = view.version(node, ProduceRequest, version_max)
        for _ in range(view.capacity(node)):
            taken = self._fill(led, version, now, view)
            if taken:
                calls.append(self._call(node, taken, version, now, view))
            if not led:
                break
        return calls

    def _fill(self, led: Led, version: int, now: float, view: ClusterView) -> Taken:
        """Take one batch of each partition until the request is full; all for the same acknowledgements.

        What did not fit comes first next time, and what was taken last.
        """
        settings, identity, transaction = self._settings, self._identity, self._transaction
        is_sequencing = identity.state is IdStatus.KNOWN and version >= SEQUENCES_SINCE
        taken: Taken = []
        held: list[PartitionQueue] = []
        size_bytes = acks = misfits = new = 0
        for queue, partition in led.items():
            leader = partition.leader, partition.leader_epoch
            if self._is_held(queue, leader, version, now):
                held.append(queue)
                continue
            if transaction is not None and not transaction.may_send((queue.topic, queue.index)):
                continue
            batch, limit = queue.queued[0], queue.limit
            if batch.count < 0:
                batch.close()  # its size is looked at, and must not grow until it is taken
            if limit.learns and limit.is_exceeded(batch):
                self._outcomes.cut(queue, batch)
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
                self._outcomes.give_up(queue.queued.popleft(), refused.at(broker=view.describe(partition.leader)))
                self._agenda.mark_ready(queue)
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

    def _is_held(self, queue: PartitionQueue, leader: tuple[int, int], version: int, now: float) -> bool:
        """Whether nothing of the partition may go out before something stirs it."""
        if not queue.queued:
            return True
        head = queue.queued[0]
        if head.count < 0 and not self._agenda.is_due(head, now):
            self._agenda.linger(queue, head)
            return True
        if self._identity.state is IdStatus.BROKEN and not (head.is_sequenced and queue.sequenced_possibly_persisted()):
            self._agenda.awaits_identity = True
            return True  # only what must still be settled under the old identity may go, and what stands before it
        if version < SEQUENCES_SINCE and queue.out and self._settings.ordered:
            return True  # without sequences nothing but this keeps order, whatever the other brokers can
        if queue.blocked_reason(leader, now) is None:
            return False
        if now < queue.retry_at:
            self._agenda.wake(queue, queue.retry_at)
        self._agenda.block(queue)
        return True

    def _call(self, node: int, taken: Taken, version: int, now: float, view: ClusterView) -> PendingRequest:
        batches = [batch for _, batch in taken]
        tried_at, is_named = (view.describe(node), version), names_topics(version)
        for batch in batches:
            batch.tried_at = tried_at
            batch.was_named |= is_named
        first = batches[0].terms
        acks = self._acks_by_default if first is None else first.acks
        replicas_ms = self._replicas_ms(batches)
        carried = InFlightProduce(node, version, taken, view.snapshot, acks)

        def build(negotiated: int) -> ProduceRequest:
            request = build_request(batches, negotiated, carried.snapshot, self._settings, acks, replicas_ms)
            self._outcomes.counters.sent(batches, now)
            return request

        def done(result: Response | KwireError | None, now: float) -> None:
            self._outcomes.settle(carried, result, now, view, was_written=call.was_written)
            self._agenda.answered(taken)

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

    def _replicas_ms(self, batches: list[ProducerBatch]) -> int:
        """How long the replicas may take to follow: as long as the most patient of the batches."""
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

_Causes = dict[tuple[str, int], KwireError | str | None]  # found once a turn for all batches of a place


class Sender:
    """A `Machine` of the event loop. All methods are for the loop's thread."""

    def __init__(
        self,
        settings: ProducerSettings,
        intake: BufferPool,
        *,
        backoff: Backoff,
        request_timeout_ms: int,
        random: Random,
    ) -> None:
        self._settings = settings
        self._intake = intake
        self._backoff = backoff
        self._request_timeout_ms = request_timeout_ms
        self._random = random
        self._identity = ProducerIdState(
            settings.wants_idempotence,
            transactional_id=settings.transactional_id,
            timeout_ms=settings.transaction_timeout_ms,
        )
        self._identity_call: PendingRequest | None = None
        self._identity_node: int | None = None  # a broker that is to give the next id; None for any
        self._identity_refusals = 0  # of brokers in a row that give no ids
        self.transaction: Transaction | None = None
        if settings.transactional_id is not None:
            self.transaction = Transaction(
                settings.transactional_id, self._identity, backoff=backoff, random=random, on_renewed=self._restart
            )
        self._outcomes = ResponseHandler(
            self._identity, intake, backoff, random, self._take_back, self.transaction, retries_max=settings.retries
        )
        make_spread = routing(settings.partitioner).spread
        self._spread = make_spread(random, settings.batch_bytes, settings.single_broker_switch_ms / 1000)
        self._topics: dict[str, TopicQueue] = {}
        self._names: frozenset[str] | None = None  # of the topics; one object while none is new
        self._explainer = Explainer(settings, self._topics, self._identity, self._outcomes, self.transaction, intake)
        self._agenda = ReadyQueue(settings.linger_ms / 1000)
        self._collator = RequestBuilder(
            settings, self._identity, self._outcomes, self.transaction, self._agenda, request_timeout_ms
        )
        self._led: dict[int, Led] = {}  # by leader; in the order in which it is their turn
        self._unsettled: dict[TopicQueue, None] = {}  # with records without a partition, or metadata with a flaw
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

    # -- Machine

    def topics(self) -> Collection[str]:
        if self._names is None:
            self._names = frozenset(name for name, topic in self._topics.items() if topic.is_asked_for)
        return self._names

    def deadline(self) -> float | None:
        return self._next_deadline

    def turn(self, now: float, view: ClusterView) -> list[PendingRequest]:
        self._now, self._view = now, view
        self._agenda.lingers = not self._intake.is_full
        self._take_in(now)
        if now >= self._forget_at:  # no turn for its own sake: those that metadata refreshes make will do
            self._forget_idle(now)
        is_news = view.snapshot is not self._snapshot
        if not (is_news or self._agenda.active or self._unsettled) and self.transaction is None:  # it holds nothing
            self._next_deadline = None
            return []
        if is_news or self._agenda.awaits_identity:
            self._notice(view.snapshot)
        self._give_up(now, view)
        if self._unsettled:
            self._route(now)
            self._designate(now, view)
            self._ask_for_needed(view)
        if self._identity.is_usable:
            calls = self._collate(now, view)
        else:
            calls = self._identity_calls(now, view)
            if self._identity.state is IdStatus.BROKEN:
                calls += self._collate(now, view)
        if self._agenda.awaits_identity:  # what was refused just now may have broken it
            calls += self._identity_calls(now, view)
        if self.transaction is not None:
            calls += self._transaction_calls(self.transaction, now, view)
        self._next_deadline = self._earliest(now)
        if self._next_deadline is not None and self._next_deadline <= now + self._linger and self._is_waiting():
            # The loop wakes by itself before a new record has lingered too long. That there is work is not enough: an
            # answer that is awaited may be long in coming, or have been the last.
            self._intake.door.gather()
        return calls

    def closed(self, error: KwireError) -> None:
        self._intake.close(error)
        self._take_in(self._now)
        for topic in self._topics.values():
            for batch in topic.unresolved():
                if not batch.is_decided:
                    why = batch.last_error or error
                    self._outcomes.undelivered(batch, "the producer was closed before it was delivered", why)
        if self.transaction is not None:
            self.transaction.closed(error)
        self._topics.clear()
        self._names = None
        self._unsettled.clear()
        self._agenda.clear()
        self._led.clear()

    def flush(self, on_done: Callable[[], object], now: float) -> None:
        """Send what was handed over before without linger; call `on_done` when all of it has resolved."""
        self._take_in(now)
        self._close_batches()
        self._outcomes.add_flush([batch for topic in self._topics.values() for batch in topic.unresolved()], on_done)

    def drain(self, on_done: Callable[[], object], on_aborted: Callable[[], object], now: float) -> None:
        """End the transaction, then `flush`: what `close` waits for.

        A transaction that is being committed or aborted is waited for. One that is open is aborted, as Java's
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
        """Why a partition's, or a topic's, records are not sent now."""
        self._take_in(now)
        return self._explainer.explain(topic, partition, now, view)

    def late(self, what: str, timeout: float | None, now: float, view: ClusterView) -> RequestTimeoutError:
        """What to raise when `what` took longer than its caller wants to wait."""
        self._take_in(now)
        return timeout_error(what, timeout, awaited(self.transaction, self._identity_call, self._explainer, now, view))

    def metrics(self, cluster: ClusterMetrics) -> ProducerMetrics:
        return producer_metrics(self._outcomes.counters, self._topics.values(), self._intake, cluster)

    def end(self, transaction: Transaction, future: Future[None], *, is_commit: bool) -> None:
        """Commit or abort what was handed over before."""
        if transaction.takes_records and self._view is not None:
            self._take_in(self._now)
        transaction.end(is_commit=is_commit, future=future)
        self._close_batches()

    # -- records in

    def _take_in(self, now: float) -> None:
        """Take in the runs that were begun since."""
        agenda, topics, transaction = self._agenda, self._topics, self.transaction
        for run in self._intake.door.take():
            topic = topics.get(run.topic) or self._new_topic(run.topic)
            was_taken = run.since is not None  # and had to wait for its partitions
            if transaction is not None and not transaction.takes_records and not was_taken:
                self._outcomes.give_up(topic.batch(run, now), transaction.not_now("take a record"))
                continue
            if not topic.is_asked_for:
                topic.is_asked_for, self._names = True, None
                self._unsettled[topic] = None
            queue = topic.add(run, now)
            if queue is not None:
                agenda.add(queue)
            else:
                self._unsettled[topic] = None

    def _has_work(self) -> bool:
        return bool(self._agenda.active) or any(topic.undesignated for topic in self._unsettled)

    def _is_waiting(self) -> bool:
        """Whether something is to be sent and is not, for whatever reason."""
        is_placed = self._agenda.is_waiting or any(self._led.values())
        return is_placed or any(topic.undesignated for topic in self._unsettled)

    def _is_drained(self) -> bool:
        return all(queue.is_idle for queue in self._agenda.active) and not any(
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
        """Drop the topics that got no record for long; what they have to remember is remembered in short."""
        first = math.inf
        for topic in list(self._topics.values()):
            if now < topic.used_at + self._idle_max:
                first = min(first, topic.used_at + self._idle_max)
            elif topic.is_idle and self._intake.door.forget(topic.name):
                del self._topics[topic.name]
                self._unsettled.pop(topic, None)
                self._spread.forget(topic.name)
                self._names = None
                queues = topic.partitions.values()
                for led in self._led.values():
                    for queue in queues:
                        led.pop(queue, None)
                states = {queue.index: state for queue in queues if (state := queue.sequence_state) is not None}
                if states and self._identity.is_idempotent:
                    self._sequences[topic.name] = states
            else:
                first = now
        # Not for each topic apart, where there are thousands.
        self._forget_at = max(first, now + self._idle_max / 8)
        if len(self._sequences) > _FORGOTTEN_MAX and self.transaction is None:
            self._identity.require_epoch_bump()  # under a new producer id all of them begin anew

    def _size_limit(self) -> BatchSizeEstimator:
        settings = self._settings
        is_compressed = settings.codec is not Compression.NONE
        return BatchSizeEstimator(settings.batch_bytes, settings.request_bytes_max if is_compressed else None)

    def _close_batches(self) -> None:
        for topic in self._topics.values():
            topic.close_batches()

    def _notice(self, snapshot: Snapshot) -> None:
        """See whether anything is other than in the last turn that concerns every topic and partition."""
        if snapshot is not self._snapshot:
            self._snapshot = snapshot
            known = snapshot.topics
            has_ids = all(topic.id.int for topic in known.values() if topic.partitions)
            self._version_max = version_limit(has_ids=has_ids)
            self._unsettled.update((t, None) for t in self._topics.values() if known.get(t.name) is not t.known)
            self._led.clear()
            self._agenda.mark_all_ready()
        if self._agenda.awaits_identity and self._identity.state is not IdStatus.BROKEN:
            self._agenda.awaits_identity = False
            self._agenda.mark_all_ready()

    def _route(self, now: float) -> None:
        """Tell the door the partitions; what waited for them comes back in new runs, ahead of what comes later."""
        for topic in list(self._unsettled):
            known = self._snapshot.topics.get(topic.name)
            if known is topic.known and not (topic.awaiting_metadata and known is not None and known.partitions):
                continue
            topic.known = known
            topic.was_seen |= known is not None and bool(known.partitions)
            waiting = list(topic.awaiting_metadata)
            # What others join lingers; and it is the present transaction's, though that may take no more records.
            apart = self._outcomes.is_flushing(waiting)
            apart |= self.transaction is not None and not self.transaction.takes_records
            topic.route(self._intake.door, known.partitions if known is not None else (), apart=apart)
            if known is not None and known.partitions:
                self._take_in(now)
                self._outcomes.replaced(waiting, topic.unresolved())

    def _ask_for_needed(self, view: ClusterView) -> None:
        """Want metadata of the topics that need it; let those be created that no broker ever had."""
        for topic in list(self._unsettled):
            if not topic.is_needed:
                topic.is_asked_for, self._names = False, None
                del self._unsettled[topic]
            elif not topic.was_seen:
                view.allow_topic_creation(topic.name)

    # -- giving up

    def _give_up(self, now: float, view: ClusterView) -> None:
        hopeless = view.connection_error if view.has_fatal_error else None
        causes: _Causes = {}
        for topic in list(self._unsettled if hopeless is None else self._topics.values()):
            error = hopeless or self._topic_error(topic, now, view)
            if error is not None:
                self._fail_topic(topic, error)
            for batch in topic.take_overdue(now):
                self._expire(batch, causes, now, view)
        if now >= self._agenda.overdue_at:
            for queue in self._agenda.active:
                if now < queue.overdue_at:
                    continue
                for batch in queue.expired(now):
                    if batch.is_sequenced:
                        # Its sequence never comes: the next one would be out of order
                        self._identity.require_epoch_bump()
                    self._expire(batch, causes, now, view)
                    self._agenda.mark_ready(queue)
                for batch in queue.overdue_unqueued(now):
                    self._outcomes.expire_early(batch, self._time_limit(batch), is_in_flight=queue.is_out(batch))
            self._agenda.overdue_at = min((queue.overdue_at for queue in self._agenda.active), default=math.inf)

    def _topic_error(self, topic: TopicQueue, now: float, view: ClusterView) -> KwireError | None:
        """Why a topic's records can never be delivered: the error of its metadata, once it is certain."""
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
        """Give up what is not out; what is out will be answered, or its connection will end."""
        for waiting in (topic.awaiting_metadata, topic.undesignated):
            while waiting:
                self._outcomes.give_up(waiting.popleft(), error)
        for queue in topic.partitions.values():
            if queue.queued:
                self._agenda.mark_ready(queue)
            while queue.queued:
                batch = queue.queued.popleft()
                if batch.is_sequenced:
                    self._identity.require_epoch_bump()
                self._outcomes.give_up(batch, error)

    def _expire(self, batch: ProducerBatch, causes: _Causes, now: float, view: ClusterView) -> None:
        """Its time is over, unsent: what held it back is the cause, where no attempt left one."""
        cause: KwireError | str | None = batch.last_error
        if cause is None:
            place = batch.topic, batch.partition
            if place not in causes:
                causes[place] = self._explainer.cause(batch, now, view)
            cause = causes[place]
        what = f"not delivered within {self._time_limit(batch)}"
        if isinstance(cause, str):
            self._outcomes.undelivered(batch, f"{what}, held back by this: {cause}", None)
        else:
            self._outcomes.undelivered(batch, what, cause)

    def _time_limit(self, batch: ProducerBatch) -> str:
        if batch.terms is not None and batch.terms.timeout is not None:
            return f"{batch.terms.timeout} s"
        return f"{self._settings.delivery_timeout_ms} ms"

    # -- identity

    def _identity_calls(self, now: float, view: ClusterView) -> list[PendingRequest]:
        identity = self._identity
        if not identity.is_to_be_asked:
            return []
        is_wanted = self._has_work() if self.transaction is None else self.transaction.wants_identity
        if not is_wanted or not identity.must_ask(now, is_drained=True):
            return []
        for queue in self._agenda.active:
            known = view.snapshot.topics.get(queue.topic)
            if known is not None:
                queue.is_of(known.id)  # what was open in a topic that was deleted needs no settling any more
        is_drained = not any(queue.out or queue.sequenced_possibly_persisted() for queue in self._agenda.active)
        if not identity.must_ask(now, is_drained):
            return []
        identity.ask()
        route: Route = ToAny() if self._identity_node is None else ToNode(self._identity_node)
        if self.transaction is not None:
            route = self.transaction.route
        self._identity_node = None

        def done(result: Response | KwireError | None, now: float) -> None:
            self._identified(call, result, now)

        call = self._identity_call = PendingRequest(
            route, InitProducerIdRequest, identity.request, done, may_retry=True
        )
        return [call]

    def _identified(self, call: PendingRequest, result: Response | KwireError | None, now: float) -> None:
        if isinstance(result, InitProducerIdResponse) and not result.error_code:
            self._identity.answered(result)
            self._identity_call, self._identity_refusals = None, 0
            self._restart()
            if self.transaction is not None:
                self.transaction.initialized()
            return
        error: KwireError
        if isinstance(result, InitProducerIdResponse):
            refused = broker_error(result.error_code, broker=call.broker, api="InitProducerId", version=call.version)
            error, is_lasting = refused, not refused.is_retriable
            if self.transaction is not None:
                is_lasting = not self.transaction.may_ask_again(refused)
        else:
            assert isinstance(result, KwireError)
            error, is_lasting = result, isinstance(result, UnsupportedVersionError)
        self._identity.attempts += 1
        self._identity.failed(now + self._backoff.seconds(self._identity.attempts, self._random), error)
        if isinstance(error, UnsupportedVersionError) and self._settings.idempotence is None:
            self._try_next_id_broker(error)
            return
        if is_lasting:
            if self.transaction is not None:
                self.transaction.die(error)
            for topic in self._topics.values():
                self._fail_topic(topic, error)

    def _try_next_id_broker(self, error: UnsupportedVersionError) -> None:
        """Request an id from another broker, while the cluster is in the middle of an upgrade; else go on without."""
        view, had_id = self._view, self._identity.producer_id >= 0
        ready = [] if view is None else [node for node in view.snapshot.brokers if view.is_ready(node)]
        capable = [node for node in ready if view is not None and view.supports(node, InitProducerIdRequest)]
        self._identity_refusals += 1
        if capable and self._identity_refusals <= _ID_REFUSALS_MAX:
            self._identity_node = capable[0]
            self._identity.retry_at = self._now
            return
        if had_id and self._identity_refusals <= _ID_REFUSALS_MAX:
            return  # another broker may be reached by then
        if had_id:
            _log.warning(
                "the producer had an id, lost its sequences, and no broker that can be reached gives it another: "
                "it goes on without idempotence, and a retry may store a record twice; upgrade the brokers that are "
                "older than 0.11, or set idempotence=True to fail instead (%s)", error,
            )  # fmt: skip
        self._identity.give_up()
        self._restart()
        for topic in self._topics.values():
            topic.narrow_window(1)

    def _restart(self) -> None:
        """There is a new identity: every sequence begins at 0, also those of idle partitions (KAFKA-12152)."""
        self._sequences.clear()
        for topic in self._topics.values():
            for queue in topic.partitions.values():
                queue.restart_sequences()

    def _transaction_calls(self, transaction: Transaction, now: float, view: ClusterView) -> list[PendingRequest]:
        if not transaction.sends_records:
            self._throw_away(transaction)
        return transaction.calls(now, view, is_drained=self._is_drained())

    def _throw_away(self, transaction: Transaction) -> None:
        """What the transaction will not send any more is given up; what is out is answered first."""
        for topic in self._topics.values():
            if not topic.is_idle:
                self._fail_topic(topic, transaction.error or AbortableError("the transaction was aborted"))

    # -- records out

    def _designate(self, now: float, view: ClusterView) -> None:
        """Give due unkeyed batches to partitions whose leader could be sent one right now."""
        for topic in list(self._unsettled):
            known = self._snapshot.topics.get(topic.name)
            if known is None:
                continue
            if topic.undesignated:
                for queue in topic.designate(known, view, self._agenda.is_due, now):
                    self._agenda.add(queue)
            if topic.is_settled:
                del self._unsettled[topic]

    def _take_back(self, batch: ProducerBatch) -> None:
        topic = self._topics[batch.topic]
        topic.take_back(batch)
        self._unsettled[topic] = None

    def _collate(self, now: float, view: ClusterView) -> list[PendingRequest]:
        """Requests by broker, from the partitions in turn, so that none starves."""
        for queue in self._agenda.due(now):
            if queue.queued:
                self._look(queue, now, view)
            elif queue.is_idle:
                self._agenda.active.pop(queue, None)
        calls: list[PendingRequest] = []
        if self.transaction is None or self.transaction.sends_records:
            for node, led in self._led.items():
                if led and view.is_ready(node):
                    calls += self._collator.requests(node, led, self._version_max, now, view)
        return calls

    def _look(self, queue: PartitionQueue, now: float, view: ClusterView) -> None:
        """Put a partition, which has something to send, among those of its leader."""
        known = self._snapshot.topics.get(queue.topic)
        count = 0 if known is None else len(known.partitions)
        if known is None or count <= queue.index:
            if count:
                self._miss(queue, count, now, view)
            else:
                view.request_metadata(f"{queue.topic}-{queue.index} has no leader")
            return
        partition = known.partitions[queue.index]
        if partition.leader == NO_NODE:
            view.request_metadata(f"{queue.topic}-{queue.index} has no leader")
        elif queue.is_of(known.id):
            led = self._led.get(partition.leader)
            if led is None:
                led = self._led[partition.leader] = {}
            led[queue] = partition

    def _miss(self, queue: PartitionQueue, count: int, now: float, view: ClusterView) -> None:
        """The metadata lacks the partition, which may be newer than that: it is given up when this is excluded."""
        if now < queue.queued[0].created_at + self._settings.unknown_topic_timeout_ms / 1000:
            if now >= queue.retry_at:
                view.request_metadata(f"{queue.topic} has {count} partitions, {queue.index} is wanted")
                queue.attempts += 1
                queue.retry_at = now + self._backoff.seconds(queue.attempts, self._random)
            self._agenda.wake(queue, queue.retry_at)
            return
        missing = TopicError(
            f"topic {queue.topic} has {count} partitions",
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
            self._outcomes.give_up(batch, missing)
        self._agenda.mark_ready(queue)

    # -- time

    def _earliest(self, now: float) -> float | None:
        """When something changes by time alone: a linger or back-off ends, a batch grows too old."""
        times = [*self._agenda.deadlines(), self._identity.retry_at, *self._outcomes.muted_until.values()]
        for led in self._led.values():
            if led and (queued := next(iter(led)).queued):
                times.append(queued[0].created_at + self._linger)
        for topic in self._unsettled:
            times.append(topic.overdue_at)
            if topic.undesignated:
                head = topic.undesignated[0]
                footing = topic.footing
                times += [head.created_at + self._linger, footing.tries_at, footing.awaited_until]
            if topic.unknown_since is not None:
                times.append(topic.unknown_since + self._settings.unknown_topic_timeout_ms / 1000)
        if self.transaction is not None:
            times.append(self.transaction.retry_at)
        first = math.inf
        for time in times:
            if now < time < first:
                first = time
        return None if first == math.inf else first
