"""Check each ProduceRequest as a producer writes it: what order demands of the client, seen from outside.

    window          more batches of a partition are out than brokers remember, or more than one without sequences
    gate            a second batch is out to a leader that has proven nothing (first-ack gate, KAFKA-15591)
    two leaders     a partition's batches are out to two brokers at once
    two identities  batches of two producer ids or epochs are out at once
    sequence        a new batch's sequence does not follow on from the one before it, or it has none any more
    overtaken       a new batch is written while an earlier one has failed and is not out again
    changed         a batch is written again with other bytes under the same sequence
    stubborn        a batch is written again and again to a leader that does not know its sequence
    throttle        a request is written to a broker that asked for a pause which is not over

A run of which the logs come out well may still break these rules: it was lucky. That is why they are checked by
themselves. This module knows the wire format and nothing of the sender's state.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from struct import Struct
from uuid import UUID

from kwire.cluster import ClusterView, PendingRequest, Snapshot, ToNode
from kwire.errors import ErrorCode, KwireError
from kwire.producer.options import ProducerSettings
from kwire.producer.sender import Sender
from kwire.protocol import Response
from kwire.protocol.messages.produce import ProduceRequest, ProduceResponse
from kwire.simulation.checker import Anomaly

# Kafka's ProducerStateEntry.NUM_BATCHES_TO_RETAIN: of more batches a broker does not recognise a duplicate.
_REMEMBERED = 5
# Seconds that an acknowledgement proves that the leader knows the producer.
_PROOF_LASTS = 60.0
_SEQUENCES = 2**31
# A record batch's header: magic at 16, CRC at 17, producer id, epoch, base sequence and record count from 43 on.
_MAGIC_AT, _CRC, _IDENTITY = 16, Struct(">I"), Struct(">qhii")
_CRC_AT, _IDENTITY_AT = 17, 43
_MAGIC = 2
_NO_ID = -1
_STORED = frozenset({0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
# After these a leader that never stored anything leaves no trace, and the sequence may go to another batch.
_LEADS_NOT = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
_OUT_OF_SEQUENCE = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
# Behind one that is refused, and to settle what is behind it, a batch may be refused a few times under one identity.
_REFUSALS_MAX = 4

_Place = tuple[str, int]
_Identity = tuple[int, int]  # producer id and epoch
_Leader = tuple[int, int]  # broker and leader epoch


@dataclass(slots=True, eq=False)
class _Written:
    """A batch in a request. `crc` stands for its bytes; 0 in formats before v2."""

    place: _Place
    leader: _Leader
    identity: _Identity
    sequence: int
    count: int
    crc: int

    @property
    def end(self) -> int:
        return (self.sequence + self.count) % _SEQUENCES


@dataclass(slots=True, eq=False)
class _Known:
    """A sequenced batch: what became of its last attempt."""

    sequence: int
    count: int
    crc: int
    is_out: bool = True
    is_stored: bool = False
    was_led_elsewhere: bool = False
    refusals: int = 0  # for its sequence

    @property
    def end(self) -> int:
        return (self.sequence + self.count) % _SEQUENCES


@dataclass(slots=True)
class _Partition:
    out: list[_Written] = field(default_factory=list)
    proven_by: _Leader | None = None
    proven_at: float = 0.0
    is_held: bool = False  # something failed since the last time that nothing was out
    topic_id: UUID | None = None
    identity: _Identity | None = None
    batches: list[_Known] = field(default_factory=list)  # of this identity, by sequence


class Conduct:
    """Of one producer. `anomalies` are what it did wrong. Its first sequence in a partition is `first_sequence`.

    `keeps_identity`: every broker gives ids, so that a producer that has one never goes on without.
    """

    def __init__(
        self,
        name: str,
        settings: ProducerSettings,
        now: Callable[[], float],
        first_sequence: int = 0,
        *,
        keeps_identity: bool = True,
    ) -> None:
        self.anomalies: list[Anomaly] = []
        self._name = name
        self._is_ordered = settings.ordered and settings.required_acks != 0
        self._now = now
        self._first_sequence = first_sequence
        self._has_identity = False
        self._keeps_identity = keeps_identity
        self._partitions: defaultdict[_Place, _Partition] = defaultdict(_Partition)
        self._muted_until: dict[int, float] = {}

    def watch(self, call: PendingRequest, view: ClusterView) -> PendingRequest:
        """Look at what the call writes, and at what becomes of it."""
        route = call.route
        if call.api is not ProduceRequest or not isinstance(route, ToNode):
            return call
        build, on_done, snapshot = call.build, call.on_done, view.snapshot
        written: list[_Written] = []
        if self._now() < self._muted_until.get(route.node, 0.0):
            self._find("throttle", f"broker {route.node} asked for a pause until {self._muted_until[route.node]:.3f} s")

        def watched_build(version: int) -> ProduceRequest:
            request: ProduceRequest = build(version)  # type: ignore[assignment]
            for one in _written(request, route.node, snapshot):
                written.append(one)
                self._writes(one, snapshot)
            return request

        def watched_done(result: Response | KwireError | None, now: float) -> None:
            codes: dict[_Place, int] = {}
            if isinstance(result, ProduceResponse):
                codes = dict(_codes(result, snapshot))
                if result.throttle_time_ms:
                    self._muted_until[route.node] = now + result.throttle_time_ms / 1000
            for one in written:
                self._resolves(one, 0 if result is None else codes.get(one.place), now)
            on_done(result, now)

        call.build, call.on_done = watched_build, watched_done
        return call

    def _find(self, kind: str, what: str) -> None:
        self.anomalies.append(Anomaly(kind, f"{self._name} at {self._now():.3f} s: {what}"))

    # A batch is written.

    def _writes(self, one: _Written, snapshot: Snapshot) -> None:
        partition = self._partitions[one.place]
        if self._is_ordered:
            self._check_window(one, partition)
            if one.identity[0] == _NO_ID and self._has_identity and self._keeps_identity:
                self._find("sequence", f"a batch of {one.place} has none, though the producer has an id")
            if one.identity[0] != _NO_ID:
                self._has_identity = True
                self._check_identity(one)
                self._check_sequence(one, partition, snapshot)
        partition.out.append(one)

    def _check_window(self, one: _Written, partition: _Partition) -> None:
        out = len(partition.out) + 1
        window = 1 if one.identity[0] == _NO_ID else _REMEMBERED
        if out > window:
            self._find("window", f"{out} batches of {one.place} are out")
        if out == 1:
            return
        if any(other.leader[0] != one.leader[0] for other in partition.out):
            leaders = [other.leader for other in partition.out]
            self._find("two leaders", f"{one.place} is out to {leaders}, and now to {one.leader}")
        elif partition.proven_by != one.leader or self._now() >= partition.proven_at + _PROOF_LASTS:
            self._find("gate", f"{out} batches of {one.place} are out to {one.leader}, proven by {partition.proven_by}")

    def _check_identity(self, one: _Written) -> None:
        for partition in self._partitions.values():
            for other in partition.out:
                if other.identity not in (one.identity, (_NO_ID, _NO_ID)):
                    self._find("two identities", f"{one.identity} and {other.identity} in {one.place}, {other.place}")
                    return

    def _check_sequence(self, one: _Written, partition: _Partition, snapshot: Snapshot) -> None:
        topic = snapshot.topics.get(one.place[0])
        topic_id = topic.id if topic is not None else None
        first_sequence = self._first_sequence if partition.identity is None else 0
        if partition.identity != one.identity:
            partition.identity, partition.topic_id, partition.batches = one.identity, topic_id, []
        elif topic_id not in (None, partition.topic_id):
            # Created again: what may be in the new log keeps its sequence, all else begins anew.
            partition.topic_id = topic_id
            if not any((known.sequence, known.crc) == (one.sequence, one.crc) for known in partition.batches):
                partition.batches = [_Known(one.sequence, 0, 0, is_out=False, is_stored=True)]
        batches = partition.batches
        last = batches[-1] if batches else None
        if last is not None and last.was_led_elsewhere and one.sequence == last.sequence and one.crc != last.crc:
            batches.pop()  # it went to another partition, and this is another batch
            last = batches[-1] if batches else None
        for place, known in enumerate(batches):
            inside = (one.sequence - known.sequence) % _SEQUENCES
            if known.count and inside < known.count:
                self._writes_again(one, batches, place, inside)
                return
        expected = first_sequence if last is None else last.end
        if one.sequence != expected:
            self._find("sequence", f"{one.sequence} in {one.place}, {expected} is the next")
        failed = [known.sequence for known in batches if not (known.is_out or known.is_stored)]
        if failed:
            self._find("overtaken", f"{one.sequence} in {one.place} overtakes {failed}")
        batches.append(_Known(one.sequence, one.count, one.crc))

    def _writes_again(self, one: _Written, batches: list[_Known], place: int, inside: int) -> None:
        known = batches[place]
        if one.count < known.count:  # a piece of one that was too large
            rest = _Known(one.end, known.count - inside - one.count, 0, is_out=False)
            before = _Known(known.sequence, inside, 0, is_out=False)
            piece = _Known(one.sequence, one.count, one.crc)
            batches[place : place + 1] = [part for part in (before, piece, rest) if part.count]
            return
        if (inside, one.count) != (0, known.count) or known.crc not in (0, one.crc):
            self._find("changed", f"{one.sequence} in {one.place} has {one.count} records, had {known.count}")
        known.is_out, known.crc = True, one.crc

    # A batch's attempt is over.

    def _resolves(self, one: _Written, code: int | None, now: float) -> None:
        """`code` is the broker's; None: there was no answer."""
        partition = self._partitions[one.place]
        partition.out.remove(one)
        is_stored = code in _STORED
        was_held = partition.is_held
        partition.is_held = (was_held or not is_stored) and bool(partition.out)
        if is_stored and not was_held:
            partition.proven_by, partition.proven_at = one.leader, now
        else:
            partition.proven_by = None
        if partition.identity == one.identity:
            for known in partition.batches:
                if known.sequence == one.sequence:
                    known.is_out = any(other.sequence == one.sequence for other in partition.out)
                    known.is_stored |= is_stored
                    known.was_led_elsewhere = code in _LEADS_NOT
                    known.refusals += code in _OUT_OF_SEQUENCE
                    if known.refusals == _REFUSALS_MAX:
                        self._find("stubborn", f"{one.sequence} in {one.place} was refused {known.refusals} times")


class WatchedSender:
    """The sender as the event loop sees it, with its conduct looked at."""

    def __init__(self, sender: Sender, conduct: Conduct) -> None:
        self._sender = sender
        self._conduct = conduct

    def topics(self) -> Collection[str]:
        return self._sender.topics()

    def deadline(self) -> float | None:
        return self._sender.deadline()

    def turn(self, now: float, view: ClusterView) -> list[PendingRequest]:
        return [self._conduct.watch(call, view) for call in self._sender.turn(now, view)]

    def closed(self, error: KwireError) -> None:
        self._sender.closed(error)


def _written(request: ProduceRequest, node: int, snapshot: Snapshot) -> Iterator[_Written]:
    for topic in request.topic_data:
        name = topic.name or snapshot.topic_name(topic.topic_id) or str(topic.topic_id)
        for data in topic.partition_data:
            records = bytes(data.records or b"")
            identity, sequence, count, crc = (_NO_ID, _NO_ID), -1, 0, 0
            if records[_MAGIC_AT] == _MAGIC:
                id, epoch, sequence, count = _IDENTITY.unpack_from(records, _IDENTITY_AT)
                identity, (crc,) = (id, epoch), _CRC.unpack_from(records, _CRC_AT)
            known = snapshot.partition(name, data.index)
            leader = node, known.leader_epoch if known is not None else -1
            yield _Written((name, data.index), leader, identity, sequence, count, crc)


def _codes(response: ProduceResponse, snapshot: Snapshot) -> Iterator[tuple[_Place, int]]:
    for topic in response.responses:
        name = topic.name or snapshot.topic_name(topic.topic_id) or str(topic.topic_id)
        for one in topic.partition_responses:
            yield (name, one.index), one.error_code
