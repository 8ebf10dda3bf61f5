"""Batches of many partitions into the requests to the broker that leads them, just before these are written.

It takes from each partition's queue what may go out now, and gives it its sequence. What may not is put aside in the
agenda. It refuses to know which partitions there are, and what an answer means.
"""

from __future__ import annotations

from kwire.cluster import Call, Partition, ToNode, View
from kwire.errors import KwireError
from kwire.producer.agenda import Agenda
from kwire.producer.batch import Batch
from kwire.producer.identity import Identity, IdentityState
from kwire.producer.outcomes import Carried, Outcomes, Taken
from kwire.producer.partition_queue import PartitionQueue
from kwire.producer.request import SEQUENCES_SINCE, build_request, names_topics, refusal
from kwire.producer.settings import ProducerSettings
from kwire.producer.transaction import Transaction
from kwire.protocol import Response
from kwire.protocol.messages.produce import ProduceRequest

# How many batches that do not fit are passed over for the sake of smaller ones, when a request is filled.
_MISFITS_MAX = 8

Led = dict[PartitionQueue, Partition]  # what one broker leads and has something to send, in the order of their turns


class Collator:
    """All methods are for the loop's thread."""

    def __init__(
        self,
        settings: ProducerSettings,
        identity: Identity,
        outcomes: Outcomes,
        transaction: Transaction | None,
        agenda: Agenda,
        request_timeout_ms: int,
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._outcomes = outcomes
        self._transaction = transaction
        self._agenda = agenda
        self._request_timeout_ms = request_timeout_ms
        self._acks_by_default = settings.required_acks

    def requests(self, node: int, led: Led, version_max: int | None, now: float, view: View) -> list[Call]:
        """Requests to one broker, as many as its connection has room for: a batch of each partition, then again."""
        calls: list[Call] = []
        if now < self._outcomes.muted_until(node):
            return calls
        if self._transaction is not None:
            version_max = self._transaction.produce_limit(version_max)
        version = view.version(node, ProduceRequest, version_max)
        for _ in range(view.room(node)):
            taken = self._fill(led, version, now, view)
            if taken:
                calls.append(self._call(node, taken, version, now, view))
            if not led:
                break
        return calls

    def _fill(self, led: Led, version: int, now: float, view: View) -> Taken:
        """Take one batch of each partition until the request is full; all for the same acknowledgements.

        What did not fit comes first next time, and what was taken last.
        """
        taken: Taken = []
        held: list[PartitionQueue] = []
        size_bytes = acks = misfits = 0
        for queue, partition in led.items():
            leader = partition.leader, partition.leader_epoch
            if self._is_held(queue, leader, version, now):
                held.append(queue)
                continue
            if self._transaction is not None and not self._transaction.may_send((queue.topic, queue.index)):
                continue
            batch = queue.queued[0]
            batch.close()  # its size is looked at, and must not grow until it is taken
            if queue.limit.is_exceeded(batch):
                self._outcomes.cut(queue, batch)
                batch = queue.queued[0]
            sent_bytes = queue.limit.sent_bytes(batch)
            if taken and (size_bytes + sent_bytes > self._settings.max_request_bytes or self._acks(batch) != acks):
                misfits += 1
                if misfits == _MISFITS_MAX:
                    break
                continue
            refused = refusal(batch, version, self._settings)
            if refused is not None:
                if batch.is_sequenced:
                    self._identity.break_sequences()
                self._outcomes.give_up(queue.queued.popleft(), refused.at(broker=view.describe(partition.leader)))
                self._agenda.stir(queue)
                continue
            queue.take(leader)
            if self._identity.state is IdentityState.KNOWN and not batch.is_sequenced and version >= SEQUENCES_SINCE:
                queue.sequence(batch, self._identity.producer_id, self._identity.producer_epoch)
                batch.is_transactional = self._transaction is not None
            size_bytes += sent_bytes
            acks = self._acks(batch)
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
        if not self._agenda.is_due(head, now):
            self._agenda.linger(queue, head)
            return True
        if self._identity.state is IdentityState.BROKEN and not (head.is_sequenced and queue.sequenced_unsure()):
            self._agenda.awaits_identity = True
            return True  # only what must still be settled under the old identity may go, and what stands before it
        if queue.out and self._settings.ordered and version < SEQUENCES_SINCE:
            return True  # without sequences nothing but this keeps order, whatever the other brokers can
        if queue.closed_by(leader, now) is None:
            return False
        if now < queue.retry_at:
            self._agenda.wake(queue, queue.retry_at)
        self._agenda.block(queue)
        return True

    def _call(self, node: int, taken: Taken, version: int, now: float, view: View) -> Call:
        batches = [batch for _, batch in taken]
        tried_at, is_named = (view.describe(node), version), names_topics(version)
        for batch in batches:
            batch.tried_at = tried_at
            batch.was_named |= is_named
        acks, replicas_ms = self._acks(batches[0]), max(map(self._replicas_ms, batches))
        carried = Carried(node, version, taken, view.snapshot, acks)

        def build(negotiated: int) -> ProduceRequest:
            request = build_request(batches, negotiated, carried.snapshot, self._settings, acks, replicas_ms)
            self._outcomes.counters.sent(batches, now)
            return request

        def done(result: Response | KwireError | None, now: float) -> None:
            self._outcomes.settle(carried, result, now, view, was_written=call.was_written)
            for queue, _ in taken:
                self._agenda.stir(queue)

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
        return self._acks_by_default if batch.terms is None else batch.terms.acks

    def _replicas_ms(self, batch: Batch) -> int:
        """How long the replicas may take to follow."""
        if batch.terms is None or batch.terms.timeout is None:
            return self._request_timeout_ms
        return min(self._request_timeout_ms, max(1, int(batch.terms.timeout * 1000)))
