"""The producer's state machine: it turns records into ProduceRequests and answers into outcomes.

Each turn: take in what was sent, give up what is too old, see to the producer's identity, give unkeyed batches their
partitions, and collate what is due by the broker that leads it, many partitions to a request, just before it is
written. Order belongs to each `PartitionQueue`; what an answer means is in `outcomes`.

It touches no socket, clock or thread: `turn` gets the time and the view of the cluster and answers calls.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future
from random import Random

from kwire.cluster import Backoff, Call, ClusterMetrics, Partition, Snapshot, ToAny, ToNode, View
from kwire.cluster.snapshot import NO_NODE
from kwire.errors import (
    AbortableError,
    ErrorCode,
    KwireError,
    RequestTimeoutError,
    TopicError,
    UnsupportedVersionError,
    broker_error,
)
from kwire.producer.batch import Batch
from kwire.producer.explain import Explainer, Explanation
from kwire.producer.identity import Identity, IdentityState
from kwire.producer.intake import Intake
from kwire.producer.lateness import awaited, late
from kwire.producer.metrics import ProducerMetrics, producer_metrics
from kwire.producer.outcomes import Carried, Outcomes, Taken
from kwire.producer.partition_queue import PartitionQueue
from kwire.producer.partitioners import routing
from kwire.producer.request import build_request, magic, names_topics, refusal, version_limit
from kwire.producer.settings import IDEMPOTENT_WINDOW, ProducerSettings
from kwire.producer.split import SizeLimit
from kwire.producer.topic_queue import TopicQueue
from kwire.producer.transaction import Transaction
from kwire.protocol import Response
from kwire.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kwire.protocol.messages.produce import ProduceRequest
from kwire.records import Compression

# A topic's own error, as metadata tells it, that waiting does not cure.
_LASTING_TOPIC_ERRORS = frozenset({ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_AUTHORIZATION_FAILED})

_UNORDERED_WINDOW = 1 << 30

Led = tuple[PartitionQueue, Partition]
_Causes = dict[tuple[str, int], KwireError | str | None]  # found once a turn for all batches of a place


class Sender:
    """A `Machine` of the event loop. All methods are for the loop's thread."""

    def __init__(
        self, settings: ProducerSettings, intake: Intake, *, backoff: Backoff, request_timeout_ms: int, random: Random
    ) -> None:
        self._settings = settings
        self._intake = intake
        self._backoff = backoff
        self._request_timeout_ms = request_timeout_ms
        self._random = random
        self._identity = Identity(
            settings.wants_idempotence,
            transactional_id=settings.transactional_id,
            timeout_ms=settings.transaction_timeout_ms,
        )
        self._identity_call: Call | None = None
        self.transaction: Transaction | None = None
        if settings.transactional_id is not None:
            self.transaction = Transaction(
                settings.transactional_id, self._identity, backoff=backoff, random=random, on_renewed=self._restart
            )
        self._outcomes = Outcomes(
            self._identity, intake, backoff, random, self.transaction, retries_max=settings.retries
        )
        make_spread = routing(settings.partitioner).spread
        self._spread = make_spread(random, settings.batch_bytes)
        self._topics: dict[str, TopicQueue] = {}
        self._explainer = Explainer(settings, self._topics, self._identity, self._outcomes, self.transaction, intake)
        self._active: dict[PartitionQueue, None] = {}  # the partitions that hold something; a dict keeps their order
        self._now = 0.0  # of the last turn
        self._view: View | None = None
        self._linger = settings.linger_ms / 1000
        self._next_deadline: float | None = None

    # -- Machine

    def topics(self) -> Collection[str]:
        return self._topics.keys()

    def deadline(self) -> float | None:
        return self._next_deadline

    def turn(self, now: float, view: View) -> list[Call]:
        self._now, self._view = now, view
        self._take_in(now)
        if self._intake.is_full:
            self._close_batches()
        self._give_up(now, view)
        self._route(now, view.snapshot)
        self._designate(now, view)
        calls = self._identity_calls(now, view)
        if self._identity.is_usable or self._identity.state is IdentityState.BROKEN:
            calls += self._collate(now, view)
        if self.transaction is not None:
            calls += self._transaction_calls(self.transaction, now, view)
        self._next_deadline = self._earliest(now)
        if self._next_deadline is not None and self._next_deadline <= now + self._linger:
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
        self._active.clear()

    def flush(self, on_done: Callable[[], None], now: float) -> None:
        """Send what was handed over before without linger; call `on_done` when all of it has resolved."""
        self._take_in(now)
        self._close_batches()
        self._outcomes.add_flush([batch for topic in self._topics.values() for batch in topic.unresolved()], on_done)

    def explain(self, topic: str, partition: int | None, now: float, view: View) -> Explanation:
        """Why a partition's, or a topic's, records are not sent now."""
        self._take_in(now)
        return self._explainer.explain(topic, partition, now, view)

    def late(self, what: str, timeout: float | None, now: float, view: View) -> RequestTimeoutError:
        """What to raise when `what` took longer than its caller wants to wait."""
        self._take_in(now)
        return late(what, timeout, awaited(self.transaction, self._identity_call, self._explainer, now, view))

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
        for run in self._intake.door.take():
            refusal: KwireError | None = None
            was_taken = run.since is not None  # and had to wait for its partitions
            if self.transaction is not None and not self.transaction.takes_records and not was_taken:
                refusal = self.transaction.not_now("take a record")
            topic = self._topics.get(run.topic)
            if topic is None:
                topic = self._topics[run.topic] = self._new_topic(run.topic)
            if refusal is not None:
                self._outcomes.give_up(topic.batch(run, now), refusal)
                continue
            queue = topic.add(run, now)
            if queue is not None:
                self._active[queue] = None

    def _has_work(self) -> bool:
        return bool(self._active) or any(topic.undesignated for topic in self._topics.values())

    def _new_topic(self, name: str) -> TopicQueue:
        window_max = 1
        if not self._settings.ordered:
            window_max = _UNORDERED_WINDOW
        elif self._identity.is_idempotent:
            window_max = IDEMPOTENT_WINDOW
        return TopicQueue(
            name,
            spread=self._spread,
            limit=self._size_limit(),
            window_max=window_max,
            is_ordered=self._settings.ordered,
            delivery_timeout=self._settings.delivery_timeout_ms / 1000,
            limited=self._outcomes.limited,
        )

    def _size_limit(self) -> SizeLimit:
        settings = self._settings
        is_compressed = settings.codec is not Compression.NONE
        return SizeLimit(settings.batch_bytes, settings.max_request_bytes if is_compressed else None)

    def _close_batches(self) -> None:
        for topic in self._topics.values():
            topic.close_batches()

    def _route(self, now: float, snapshot: Snapshot) -> None:
        """Tell the door the partitions; what waited for them comes back in new runs, ahead of what comes later."""
        for topic in list(self._topics.values()):
            topic.tell_limit(self._intake.door)
            known = snapshot.topics.get(topic.name)
            if known is topic.known and not (topic.unrouted and known is not None and known.partitions):
                continue
            topic.known = known
            waiting = list(topic.unrouted)
            # What others join lingers; and it is the present transaction's, though that may take no more records.
            apart = self._outcomes.is_flushing(waiting)
            apart |= self.transaction is not None and not self.transaction.takes_records
            topic.route(self._intake.door, known.partitions if known is not None else (), apart=apart)
            if known is not None and known.partitions:
                self._take_in(now)
                self._outcomes.replaced(waiting, topic.unresolved())

    # -- giving up

    def _give_up(self, now: float, view: View) -> None:
        hopeless = view.trouble if view.is_hopeless else None
        causes: _Causes = {}
        for topic in self._topics.values():
            error = hopeless or self._topic_error(topic, now, view)
            if error is not None:
                self._fail_topic(topic, error)
            for batch in topic.take_overdue(now):
                self._expire(batch, causes, now, view)
        for queue in list(self._active):
            for batch in queue.expired(now):
                if batch.is_sequenced:
                    self._identity.break_sequences()  # its sequence will never come: the next one would be out of order
                self._expire(batch, causes, now, view)
        for batch in [batch for batch in self._outcomes.limited if batch.deadline <= now]:
            queue = self._topics[batch.topic].partition(batch.partition)
            self._outcomes.tell_overdue(batch, is_out=queue.is_out(batch))

    def _topic_error(self, topic: TopicQueue, now: float, view: View) -> KwireError | None:
        """Why a topic's records can never be delivered: the error of its metadata, once it is certain."""
        known = view.snapshot.topics.get(topic.name)
        if known is None or (known.partitions and not known.error_code) or topic.is_idle:
            topic.unknown_since = None
            return None
        if known.error_code in _LASTING_TOPIC_ERRORS:
            return broker_error(known.error_code, topic=topic.name, **view.metadata_status().place)
        if known.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            topic.unknown_since = now if topic.unknown_since is None else topic.unknown_since
            if now - topic.unknown_since >= self._settings.unknown_topic_timeout_ms / 1000:
                return broker_error(
                    known.error_code,
                    f"the brokers did not know the topic for {self._settings.unknown_topic_timeout_ms} ms",
                    remedy="create the topic, check its name, or let the brokers create topics by themselves",
                    topic=topic.name,
                    **view.metadata_status().place,
                )
        return None

    def _fail_topic(self, topic: TopicQueue, error: KwireError) -> None:
        """Give up what is not out; what is out will be answered, or its connection will end."""
        for waiting in (topic.unrouted, topic.undesignated):
            while waiting:
                self._outcomes.give_up(waiting.popleft(), error)
        for queue in topic.partitions.values():
            while queue.queued:
                batch = queue.queued.popleft()
                if batch.is_sequenced:
                    self._identity.break_sequences()
                self._outcomes.give_up(batch, error)

    def _expire(self, batch: Batch, causes: _Causes, now: float, view: View) -> None:
        """Its time is over, unsent: what held it back is the cause, where no attempt left one."""
        cause: KwireError | str | None = batch.last_error
        if cause is None:
            place = batch.topic, batch.partition
            if place not in causes:
                causes[place] = self._explainer.cause(batch, now, view)
            cause = causes[place]
        limit = f"{self._settings.delivery_timeout_ms} ms"
        if batch.terms is not None and batch.terms.timeout is not None:
            limit = f"{batch.terms.timeout} s"
        what = f"not delivered within {limit}"
        if isinstance(cause, str):
            self._outcomes.undelivered(batch, f"{what}, held back by this: {cause}", None)
        else:
            self._outcomes.undelivered(batch, what, cause)

    # -- identity

    def _identity_calls(self, now: float, view: View) -> list[Call]:
        identity = self._identity
        is_wanted = self._has_work() if self.transaction is None else self.transaction.wants_identity
        if not is_wanted or not identity.must_ask(now, is_drained=True):
            return []
        for queue in self._active:
            known = view.snapshot.topics.get(queue.topic)
            if known is not None:
                queue.is_of(known.id)  # what was open in a topic that was deleted needs no settling any more
        is_drained = not any(queue.out or queue.sequenced_unsure() for queue in self._active)
        if not identity.must_ask(now, is_drained):
            return []
        identity.ask()
        route = ToAny() if self.transaction is None else self.transaction.route

        def done(result: Response | KwireError | None, now: float) -> None:
            self._identified(call, result, now)

        call = self._identity_call = Call(route, InitProducerIdRequest, identity.request, done, may_retry=True)
        return [call]

    def _identified(self, call: Call, result: Response | KwireError | None, now: float) -> None:
        if isinstance(result, InitProducerIdResponse) and not result.error_code:
            self._identity.answered(result)
            self._identity_call = None
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
            self._identity.give_up()
            for topic in self._topics.values():
                topic.narrow_window(1)
            return
        if is_lasting:
            if self.transaction is not None:
                self.transaction.die(error)
            for topic in self._topics.values():
                self._fail_topic(topic, error)

    def _restart(self) -> None:
        """There is a new identity: every sequence begins at 0, also those of idle partitions (KAFKA-12152)."""
        for topic in self._topics.values():
            for queue in topic.partitions.values():
                queue.restart_sequences()

    def _transaction_calls(self, transaction: Transaction, now: float, view: View) -> list[Call]:
        if not transaction.sends_records:
            self._throw_away(transaction)
        is_drained = all(topic.is_idle for topic in self._topics.values())
        return transaction.calls(now, view, is_drained=is_drained)

    def _throw_away(self, transaction: Transaction) -> None:
        """What the transaction will not send any more is given up; what is out is answered first."""
        for topic in self._topics.values():
            if not topic.is_idle:
                self._fail_topic(topic, transaction.error or AbortableError("the transaction was aborted"))

    # -- records out

    def _is_due(self, batch: Batch, now: float) -> bool:
        return batch.is_closed or now >= batch.created_at + self._linger

    def _designate(self, now: float, view: View) -> None:
        """Give due unkeyed batches to partitions whose leader could be sent one right now."""
        for topic in self._topics.values():
            known = view.snapshot.topics.get(topic.name)
            if known is None:
                continue
            while topic.undesignated and self._is_due(topic.undesignated[0], now):
                queue = topic.designate(known.partitions, view, now)
                if queue is None:
                    break
                self._active[queue] = None

    def _collate(self, now: float, view: View) -> list[Call]:
        """Requests by broker, from the partitions in turn, so that none starves."""
        by_node: dict[int, list[Led]] = {}
        for queue in list(self._active):
            if queue.is_idle:
                del self._active[queue]
                continue
            partition = self._led(queue, now, view)
            if partition is not None:
                by_node.setdefault(partition.leader, []).append((queue, partition))
        calls: list[Call] = []
        for node, led in by_node.items():
            if view.is_ready(node):
                calls += self._requests(node, led, now, view)
        return calls

    def _led(self, queue: PartitionQueue, now: float, view: View) -> Partition | None:
        """The partition with its leader, when its queue has a batch to send now."""
        if not queue.queued or not self._is_due(queue.queued[0], now):
            return None
        known = view.snapshot.topics.get(queue.topic)
        if known is not None and known.partitions and queue.index >= len(known.partitions):
            self._miss(queue, len(known.partitions), now, view)
            return None
        partition = view.snapshot.partition(queue.topic, queue.index)
        if partition is None or partition.leader == NO_NODE:
            view.request_metadata(f"{queue.topic}-{queue.index} has no leader")
            return None
        if known is not None and not queue.is_of(known.id):
            return None
        return partition if self._can_send(queue, partition, now) else None

    def _can_send(self, queue: PartitionQueue, partition: Partition, now: float) -> bool:
        if not queue.queued or not self._is_due(queue.queued[0], now):
            return False
        if self._identity.state is IdentityState.BROKEN and not (
            queue.queued[0].is_sequenced and queue.sequenced_unsure()
        ):
            return False  # only what must still be settled under the old identity may go, and what stands before it
        if queue.closed_by((partition.leader, partition.leader_epoch), now) is not None:
            return False
        if self.transaction is None:
            return True
        return self.transaction.sends_records and self.transaction.may_send((queue.topic, queue.index))

    def _miss(self, queue: PartitionQueue, count: int, now: float, view: View) -> None:
        """The metadata lacks the partition, which may be newer than that: it is given up when this is excluded."""
        if now < queue.queued[0].created_at + self._settings.unknown_topic_timeout_ms / 1000:
            if now >= queue.retry_at:
                view.request_metadata(f"{queue.topic} has {count} partitions, {queue.index} is wanted")
                queue.attempts += 1
                queue.retry_at = now + self._backoff.seconds(queue.attempts, self._random)
            return
        missing = TopicError(
            f"topic {queue.topic} has {count} partitions",
            code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            remedy=f"there is no partition {queue.index}: choose a lower one or add partitions",
            topic=queue.topic,
            partition=queue.index,
            **view.metadata_status().place,
        )
        while queue.queued:
            batch = queue.queued.popleft()
            if batch.is_sequenced:
                self._identity.break_sequences()
            self._outcomes.give_up(batch, missing)

    def _requests(self, node: int, led: list[Led], now: float, view: View) -> Iterable[Call]:
        """Requests to one broker, as many as its connection has room for: a batch of each partition, then again."""
        if now < self._outcomes.muted_until(node):
            return
        topics = {queue.topic for queue, _ in led}
        limit = version_limit(topics, view.snapshot)
        if self.transaction is not None:
            limit = self.transaction.produce_limit(limit)
        version = view.version(node, ProduceRequest, limit)
        for _ in range(view.room(node)):
            taken = self._fill(led, version)
            self._outcomes.counters.taken((batch for _, batch in taken), now)
            if taken:
                yield self._call(node, taken, version, view)
            # What did not fit comes first next time, and what was taken last.
            places = {queue for queue, _ in taken}
            led = [one for one in led if one[0] not in places] + [one for one in led if one[0] in places]
            led = [(queue, partition) for queue, partition in led if self._can_send(queue, partition, now)]
            if not led:
                break

    def _fill(self, led: list[Led], version: int) -> Taken:
        """Take one batch of each partition until the request is full; all for the same acknowledgements."""
        taken: Taken = []
        size_bytes = acks = 0
        for queue, partition in led:
            batch = queue.queued[0]
            batch.close()  # its size is looked at, and must not grow until it is taken
            if queue.limit.is_exceeded(batch):
                self._outcomes.cut(queue, batch)
                batch = queue.queued[0]
            sent_bytes = queue.limit.sent_bytes(batch)
            if taken and (
                size_bytes + sent_bytes > self._settings.max_request_bytes or self._acks(batch) != acks
            ):
                continue
            if queue.out and self._settings.ordered and magic(version) < 2:
                continue  # without sequences nothing but this keeps order, whatever the other brokers can
            refused = refusal(batch, version, self._settings)
            if refused is not None:
                assert self._view is not None
                refused.at(broker=self._view.describe(partition.leader))
                if batch.is_sequenced:
                    self._identity.break_sequences()
                self._outcomes.give_up(queue.queued.popleft(), refused)
                continue
            queue.take((partition.leader, partition.leader_epoch))
            if self._identity.state is IdentityState.KNOWN and not batch.is_sequenced and magic(version) == 2:
                queue.sequence(batch, self._identity.producer_id, self._identity.producer_epoch)
                batch.is_transactional = self.transaction is not None
            self._active[queue] = self._active.pop(queue)  # the next turn begins with the others
            size_bytes += sent_bytes
            acks = self._acks(batch)
            taken.append((queue, batch))
        return taken

    def _call(self, node: int, taken: Taken, version: int, view: View) -> Call:
        batches = [batch for _, batch in taken]
        tried_at = view.describe(node), version
        for batch in batches:
            batch.tried_at = tried_at
            batch.was_named |= names_topics(version)
        acks, replicas_ms = self._acks(batches[0]), max(map(self._replicas_ms, batches))
        carried = Carried(node, version, taken, view.snapshot, acks)

        def build(negotiated: int) -> ProduceRequest:
            request = build_request(batches, negotiated, carried.snapshot, self._settings, acks, replicas_ms)
            self._outcomes.counters.sent(batches)
            return request

        def done(result: Response | KwireError | None, now: float) -> None:
            self._outcomes.settle(carried, result, now, view, was_written=call.was_written)

        call = Call(
            ToNode(node),
            ProduceRequest,
            build,
            done,
            timeout_ms=self._request_timeout_ms,
            at_most=version,
            has_answer=acks != 0,
        )
        return call

    def _acks(self, batch: Batch) -> int:
        return self._settings.required_acks if batch.terms is None else batch.terms.acks

    def _replicas_ms(self, batch: Batch) -> int:
        """How long the replicas may take to follow."""
        if batch.terms is None or batch.terms.timeout is None:
            return self._request_timeout_ms
        return min(self._request_timeout_ms, max(1, int(batch.terms.timeout * 1000)))

    # -- time

    def _earliest(self, now: float) -> float | None:
        """When something changes by time alone: a linger or back-off ends, a batch grows too old."""
        times: list[float] = []
        for topic in self._topics.values():
            if topic.unrouted:
                times.append(min(batch.deadline for batch in topic.unrouted))
            if topic.undesignated:
                times += [topic.undesignated[0].created_at + self._linger, topic.undesignated[0].deadline]
            if topic.unknown_since is not None:
                times.append(topic.unknown_since + self._settings.unknown_topic_timeout_ms / 1000)
        for queue in self._active:
            if queue.queued:
                times += [queue.queued[0].created_at + self._linger, queue.queued[0].deadline, queue.retry_at]
        times += [batch.deadline for batch in self._outcomes.limited]
        times += [self._identity.retry_at, *self._outcomes.mutes()]
        if self.transaction is not None:
            times.append(self.transaction.retry_at)
        return min((time for time in times if time > now), default=None)
