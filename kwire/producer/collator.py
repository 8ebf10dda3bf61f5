"""Batches of many partitions into the requests to the broker that leads them, just before these are written.

It takes from each partition's queue what may go out now, and gives it its sequence. What may not is put aside in the
agenda. It refuses to know which partitions there are, and what an answer means.
"""

from __future__ import annotations

from kwire.cluster import Call, Partition, ToNode, View
from kwire.errors import KwireError
from kwire.producer.agenda import Agenda
from kwire.producer.batch import NO_SEQUENCE, Batch
from kwire.producer.identity import Identity, IdentityState
from kwire.producer.outcomes import Carried, Outcomes, Taken
from kwire.producer.partition_queue import PartitionQueue
from kwire.producer.request import REFUSES_NOTHING_SINCE, SEQUENCES_SINCE, build_request, names_topics, refusal
from kwire.producer.settings import ProducerSettings
from kwire.producer.transaction import Transaction
from kwire.protocol import Response
from kwire.protocol.messages.produce import ProduceRequest

# How many batches that do not fit are passed over for the sake of smaller ones, when a request is filled.
_MISFITS_MAX = 8

# How many partitions a request carries that their leader has acknowledged nothing of yet. The first records of a
# partition cost a broker more than a thousand later ones: it makes and syncs files, and answers when all have them.
_NEW_MAX = 100

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
        self._request_bytes_max = settings.request_bytes_max

    def requests(self, node: int, led: Led, version_max: int | None, now: float, view: View) -> list[Call]:
        """Requests to one broker, as many as its connection has room for: a batch of each partition, then again."""
        calls: list[Call] = []
        if now < self._outcomes.muted_until.get(node, 0.0):
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
        settings, identity, transaction = self._settings, self._identity, self._transaction
        is_sequencing = identity.state is IdentityState.KNOWN and version >= SEQUENCES_SINCE
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
                size_bytes + sent_bytes > self._request_bytes_max
                or batch_acks != acks
                or (is_new and new == _NEW_MAX)
            ):
                misfits += 1
                if misfits == _MISFITS_MAX:
                    break
                continue
            refused = refusal(batch, version, settings) if version < REFUSES_NOTHING_SINCE else None
            if refused is not None:
                if batch.is_sequenced:
                    identity.break_sequences()
                    is_sequencing = False
                self._outcomes.give_up(queue.queued.popleft(), refused.at(broker=view.describe(partition.leader)))
                self._agenda.stir(queue)
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
        if self._identity.state is IdentityState.BROKEN and not (head.is_sequenced and queue.sequenced_unsure()):
            self._agenda.awaits_identity = True
            return True  # only what must still be settled under the old identity may go, and what stands before it
        if version < SEQUENCES_SINCE and queue.out and self._settings.ordered:
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
        first = batches[0].terms
        acks = self._acks_by_default if first is None else first.acks
        replicas_ms = self._replicas_ms(batches)
        carried = Carried(node, version, taken, view.snapshot, acks)

        def build(negotiated: int) -> ProduceRequest:
            request = build_request(batches, negotiated, carried.snapshot, self._settings, acks, replicas_ms)
            self._outcomes.counters.sent(batches, now)
            return request

        def done(result: Response | KwireError | None, now: float) -> None:
            self._outcomes.settle(carried, result, now, view, was_written=call.was_written)
            self._agenda.answered(taken)

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

    def _replicas_ms(self, batches: list[Batch]) -> int:
        """How long the replicas may take to follow: as long as the most patient of the batches."""
        longest_ms = 1
        for batch in batches:
            if batch.terms is None or batch.terms.timeout is None:
                return self._request_timeout_ms
            longest_ms = max(longest_ms, int(batch.terms.timeout * 1000))
        return min(self._request_timeout_ms, longest_ms)
