"""Check each ProduceRequest when the producer writes it: the rules of order that a client must keep.

    window            more batches of a partition are in flight than brokers remember, or two without sequences
    gate              a second batch is in flight to a leader that has acknowledged none (KAFKA-15591)
    two leaders       batches of a partition are in flight to two brokers
    two producer ids  batches of two producer ids or epochs are in flight
    sequence          a new batch's sequence does not follow the one before it, or it has none any more
    overtaken         a new batch is written while an earlier one has failed and is not written again
    changed           a batch is written again with other bytes under the same sequence
    stubborn          a batch is written again and again to a leader that does not know its sequence
    throttle          a request is written to a throttled broker before the throttle time is over

A sender that breaks these rules may still be lucky and lose nothing, so they are checked apart from the logs. This
module knows the wire format, and nothing of the sender's state.
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

# Kafka's ProducerStateEntry.NUM_BATCHES_TO_RETAIN: a broker recognises duplicates of this many batches.
_REMEMBERED = 5
# Seconds for which an acknowledgement proves that the leader knows the producer.
_PROOF_LASTS = 60.0
_SEQUENCES = 2**31
# A record batch's header: magic at 16, CRC at 17, producer id, epoch, base sequence and record count from 43 on.
_MAGIC_AT, _CRC, _PRODUCER_STATE = 16, Struct(">I"), Struct(">qhii")
_CRC_AT, _PRODUCER_STATE_AT = 17, 43
_MAGIC = 2
_NO_ID = -1
_STORED = frozenset({0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
# After these errors the sequence may go to another batch: the leader has stored nothing.
_LEADS_NOT = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
_OUT_OF_SEQUENCE = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
# A batch behind one that is refused may be refused a few times itself under one id and epoch.
_REFUSALS_MAX = 4

_TopicPartition = tuple[str, int]
_IdAndEpoch = tuple[int, int]  # producer id and epoch
_Leader = tuple[int, int]  # broker and leader epoch


@dataclass(slots=True, eq=False)
class _WrittenBatch:
    """A batch in a request. `crc` identifies its bytes; it is 0 in formats before v2."""

    place: _TopicPartition
    leader: _Leader
    id_and_epoch: _IdAndEpoch
    sequence: int
    count: int
    crc: int

    @property
    def end(self) -> int:
        return (self.sequence + self.count) % _SEQUENCES


@dataclass(slots=True, eq=False)
class _SequencedBatch:
    """A sequenced batch and the result of its last attempt."""

    sequence: int
    count: int
    crc: int
    is_in_flight: bool = True
    is_stored: bool = False
    was_led_elsewhere: bool = False
    refusals: int = 0  # for its sequence

    @property
    def end(self) -> int:
        return (self.sequence + self.count) % _SEQUENCES


@dataclass(slots=True)
class _Partition:
    in_flight: list[_WrittenBatch] = field(default_factory=list)
    proven_by: _Leader | None = None
    proven_at: float = 0.0
    is_held: bool = False  # a batch failed since the last time that none was in flight
    topic_id: UUID | None = None
    id_and_epoch: _IdAndEpoch | None = None
    batches: list[_SequencedBatch] = field(default_factory=list)  # of this id_and_epoch, by sequence


class Conduct:
    """The checks of one producer. `anomalies` are the rules that it broke.

    `first_sequence` is its first sequence in a partition. `keeps_producer_id` says that every broker supports producer
    ids, so that a producer with an id never sends without one.
    """

    def __init__(
        self,
        name: str,
        settings: ProducerSettings,
        now: Callable[[], float],
        first_sequence: int = 0,
        *,
        keeps_producer_id: bool = True,
    ) -> None:
        self.anomalies: list[Anomaly] = []
        self._name = name
        self._is_ordered = settings.ordered and settings.required_acks != 0
        self._now = now
        self._first_sequence = first_sequence
        self._has_producer_id = False
        self._keeps_producer_id = keeps_producer_id
        self._partitions: defaultdict[_TopicPartition, _Partition] = defaultdict(_Partition)
        self._muted_until: dict[int, float] = {}

    def watch(self, call: PendingRequest, view: ClusterView) -> PendingRequest:
        """Return the request with hooks that check what it writes and how it ends."""
        route = call.route
        if call.api is not ProduceRequest or not isinstance(route, ToNode):
            return call
        build, on_done, snapshot = call.build, call.on_done, view.snapshot
        written: list[_WrittenBatch] = []
        if self._now() < self._muted_until.get(route.node, 0.0):
            self._find("throttle", f"broker {route.node} throttled it until {self._muted_until[route.node]:.3f} s")

        def watched_build(version: int) -> ProduceRequest:
            request: ProduceRequest = build(version)  # type: ignore[assignment]
            for one in _written(request, route.node, snapshot):
                written.append(one)
                self._writes(one, snapshot)
            return request

        def watched_done(result: Response | KwireError | None, now: float) -> None:
            codes: dict[_TopicPartition, int] = {}
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

    # Before a batch is written.

    def _writes(self, one: _WrittenBatch, snapshot: Snapshot) -> None:
        partition = self._partitions[one.place]
        if self._is_ordered:
            self._check_window(one, partition)
            if one.id_and_epoch[0] == _NO_ID and self._has_producer_id and self._keeps_producer_id:
                self._find("sequence", f"a batch of {one.place} has none, though the producer has an id")
            if one.id_and_epoch[0] != _NO_ID:
                self._has_producer_id = True
                self._check_producer_id(one)
                self._check_sequence(one, partition, snapshot)
        partition.in_flight.append(one)

    def _check_window(self, one: _WrittenBatch, partition: _Partition) -> None:
        in_flight = len(partition.in_flight) + 1
        window = 1 if one.id_and_epoch[0] == _NO_ID else _REMEMBERED
        if in_flight > window:
            self._find("window", f"{in_flight} batches of {one.place} are in flight")
        if in_flight == 1:
            return
        if any(other.leader[0] != one.leader[0] for other in partition.in_flight):
            leaders = [other.leader for other in partition.in_flight]
            self._find("two leaders", f"{one.place} is in flight to {leaders}, and now to {one.leader}")
        elif partition.proven_by != one.leader or self._now() >= partition.proven_at + _PROOF_LASTS:
            self._find(
                "gate",
                f"{in_flight} batches of {one.place} are in flight to {one.leader}, proven by {partition.proven_by}",
            )

    def _check_producer_id(self, one: _WrittenBatch) -> None:
        for partition in self._partitions.values():
            for other in partition.in_flight:
                if other.id_and_epoch not in (one.id_and_epoch, (_NO_ID, _NO_ID)):
                    self._find(
                        "two producer ids", f"{one.id_and_epoch} and {other.id_and_epoch} in {one.place}, {other.place}"
                    )
                    return

    def _check_sequence(self, one: _WrittenBatch, partition: _Partition, snapshot: Snapshot) -> None:
        topic = snapshot.topics.get(one.place[0])
        topic_id = topic.id if topic is not None else None
        first_sequence = self._first_sequence if partition.id_and_epoch is None else 0
        if partition.id_and_epoch != one.id_and_epoch:
            partition.id_and_epoch, partition.topic_id, partition.batches = one.id_and_epoch, topic_id, []
        elif topic_id not in (None, partition.topic_id):
            # The topic was created again: a batch that may be in the new log keeps its sequence, others restart.
            partition.topic_id = topic_id
            if not any((known.sequence, known.crc) == (one.sequence, one.crc) for known in partition.batches):
                partition.batches = [_SequencedBatch(one.sequence, 0, 0, is_in_flight=False, is_stored=True)]
        batches = partition.batches
        last = batches[-1] if batches else None
        if last is not None and last.was_led_elsewhere and one.sequence == last.sequence and one.crc != last.crc:
            first_sequence = batches.pop().sequence  # it went to another partition; this is another batch
            last = batches[-1] if batches else None
        for place, known in enumerate(batches):
            inside = (one.sequence - known.sequence) % _SEQUENCES
            if known.count and inside < known.count:
                self._writes_again(one, batches, place, inside)
                return
        expected = first_sequence if last is None else last.end
        if one.sequence != expected:
            self._find("sequence", f"{one.sequence} in {one.place}, {expected} is the next")
        failed = [known.sequence for known in batches if not (known.is_in_flight or known.is_stored)]
        if failed:
            self._find("overtaken", f"{one.sequence} in {one.place} overtakes {failed}")
        batches.append(_SequencedBatch(one.sequence, one.count, one.crc))

    def _writes_again(self, one: _WrittenBatch, batches: list[_SequencedBatch], place: int, inside: int) -> None:
        known = batches[place]
        if one.count < known.count:  # a part of a batch that was too large
            rest = _SequencedBatch(one.end, known.count - inside - one.count, 0, is_in_flight=False)
            before = _SequencedBatch(known.sequence, inside, 0, is_in_flight=False)
            piece = _SequencedBatch(one.sequence, one.count, one.crc)
            batches[place : place + 1] = [part for part in (before, piece, rest) if part.count]
            return
        if (inside, one.count) != (0, known.count) or known.crc not in (0, one.crc):
            self._find("changed", f"{one.sequence} in {one.place} has {one.count} records, had {known.count}")
        known.is_in_flight, known.crc = True, one.crc

    # After an attempt.

    def _resolves(self, one: _WrittenBatch, code: int | None, now: float) -> None:
        """Record the end of an attempt. `code` is the broker's error code, None without a response."""
        partition = self._partitions[one.place]
        partition.in_flight.remove(one)
        is_stored = code in _STORED
        was_held = partition.is_held
        partition.is_held = (was_held or not is_stored) and bool(partition.in_flight)
        if is_stored and not was_held:
            partition.proven_by, partition.proven_at = one.leader, now
        else:
            partition.proven_by = None
        if partition.id_and_epoch == one.id_and_epoch:
            for known in partition.batches:
                if known.sequence == one.sequence:
                    known.is_in_flight = any(other.sequence == one.sequence for other in partition.in_flight)
                    known.is_stored |= is_stored
                    known.was_led_elsewhere = code in _LEADS_NOT
                    known.refusals += code in _OUT_OF_SEQUENCE
                    if known.refusals == _REFUSALS_MAX:
                        self._find("stubborn", f"{one.sequence} in {one.place} was refused {known.refusals} times")


class WatchedSender:
    """The sender as the event loop sees it; `Conduct` checks each of its requests."""

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


def _written(request: ProduceRequest, node: int, snapshot: Snapshot) -> Iterator[_WrittenBatch]:
    for topic in request.topic_data:
        name = topic.name or snapshot.topic_name(topic.topic_id) or str(topic.topic_id)
        for data in topic.partition_data:
            records = bytes(data.records or b"")
            id_and_epoch, sequence, count, crc = (_NO_ID, _NO_ID), -1, 0, 0
            if records[_MAGIC_AT] == _MAGIC:
                id, epoch, sequence, count = _PRODUCER_STATE.unpack_from(records, _PRODUCER_STATE_AT)
                id_and_epoch, (crc,) = (id, epoch), _CRC.unpack_from(records, _CRC_AT)
            known = snapshot.partition(name, data.index)
            leader = node, known.leader_epoch if known is not None else -1
            yield _WrittenBatch((name, data.index), leader, id_and_epoch, sequence, count, crc)


def _codes(response: ProduceResponse, snapshot: Snapshot) -> Iterator[tuple[_TopicPartition, int]]:
    for topic in response.responses:
        name = topic.name or snapshot.topic_name(topic.topic_id) or str(topic.topic_id)
        for one in topic.partition_responses:
            yield (name, one.index), one.error_code
