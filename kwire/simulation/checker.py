"""Check a history against what a producer promises. The model is Jepsen's kafka workload.

Of records:

    unresolved        a response never resolved, though the faults ended long ago
    resolved twice    a response resolved twice
    order             acknowledged records are in the log in another order than they were sent
    resolution order  responses of a partition resolved in another order than their records were sent
    lost              acknowledged, and in no log
    duplicate         twice in a log, from an idempotent producer
    offset            acknowledged with an offset that holds something else
    false alarm       failed as surely not stored, and is in a log
    misplaced         in a log that it was not sent to
    foreign           in a log, and sent by no producer
    given up          failed although the delivery timeout outlasts all faults
    buffer            bytes still count as buffered although all responses resolved
    flush             a flush never ended

Of transactions, for readers with read_committed that have read to the end:

    torn              a reader got some records of a transaction and not others
    hidden            a transaction was committed, and a reader did not get its records
    seen              a transaction was aborted or never to be committed, and a reader got its records
    read twice        a reader got a record twice, or went backwards
    half acked        a transaction was committed although one of its records failed or never resolved
    both              a transaction was reported as committed and as aborted
    gave up early     a transaction was aborted, or its producer fenced, although waiting or an abort was enough
    left open         a transaction is open in a log long after its producer and its timeout ended
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from kwire.simulation.history import History, RecordId, Sent, SentTransaction


class Anomaly(NamedTuple):
    kind: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


@dataclass(frozen=True, slots=True)
class Promises:
    """What one producer promises. `delivers`: it has time enough to deliver every record."""

    is_idempotent: bool
    is_ordered: bool
    acks: int
    delivers: bool


_Place = tuple[str, UUID, int]  # a log


class Checker:
    def __init__(self, history: History, promises: Mapping[str, Promises], buffered: Mapping[str, int]) -> None:
        self._history = history
        self._promises = promises
        self._buffered = buffered
        # The offsets of each record, by log.
        self._places: dict[RecordId, dict[_Place, list[int]]] = {}
        self._foreign: list[Anomaly] = []
        self._read_logs()

    def anomalies(self) -> list[Anomaly]:
        return [
            *self._foreign,
            *self._misplaced(),
            *self._resolved_once(),
            *self._resolved_in_order(),
            *self._lost(),
            *self._duplicated(),
            *self._ordered(),
            *self._offsets(),
            *self._false_alarms(),
            *self._given_up(),
            *self._leftovers(),
        ]

    def _read_logs(self) -> None:
        for log in self._history.logs:
            for offset, value in log.records:
                id = RecordId.of(value)
                if id is None or id not in self._history.sent:
                    self._foreign.append(Anomaly("foreign", f"{value!r} at {log.topic}-{log.partition} {offset}"))
                    continue
                place = log.topic, log.topic_id, log.partition
                self._places.setdefault(id, {}).setdefault(place, []).append(offset)

    def _misplaced(self) -> Iterator[Anomaly]:
        for id, places in self._places.items():
            sent = self._history.sent[id]
            for topic, _, partition in places:
                if topic != id.topic or sent.partition not in (None, partition):
                    yield Anomaly("misplaced", f"{_name(sent)} is in {topic}-{partition}")

    def _resolved_once(self) -> Iterator[Anomaly]:
        for sent in self._history.sent.values():
            if not sent.resolutions:
                yield Anomaly("unresolved", _name(sent))
            elif len(sent.resolutions) > 1:
                yield Anomaly("resolved twice", _name(sent))

    def _resolved_in_order(self) -> Iterator[Anomaly]:
        """Compare the records of a partition, where the resolution names it."""
        last: dict[tuple[object, ...], Sent] = {}
        for sent in self._history.sent.values():
            if not sent.resolutions or not self._promises[sent.id.producer].is_ordered:
                continue
            partition = sent.reported_partition
            if partition is None or (sent.timeout is not None and sent.error is not None):
                continue  # its own timeout does not wait for earlier records
            group = sent.id.producer, sent.id.topic, sent.partitioned_by, partition
            before = last.get(group)
            if before is not None and before.resolutions[0].number > sent.resolutions[0].number:
                yield Anomaly("resolution order", f"{_name(sent)} before {_name(before)}")
            last[group] = sent

    def _lost(self) -> Iterator[Anomaly]:
        for sent in self._history.sent.values():
            if sent.acknowledged is None or sent.id in self._places:
                continue
            if self._promises[sent.id.producer].acks == 0 or self._is_cut(sent):
                continue  # it was only promised to be sent, or to be on replicas that are lost
            yield Anomaly("lost", f"{_name(sent)}, acknowledged at {sent.resolutions[0].at:.3f} s")

    def _duplicated(self) -> Iterator[Anomaly]:
        for id, places in self._places.items():
            if not self._promises[id.producer].is_idempotent:
                continue
            by_topic: Counter[tuple[str, UUID]] = Counter()
            for (topic, topic_id, _), offsets in places.items():
                by_topic[topic, topic_id] += len(offsets)
            if max(by_topic.values()) > 1:
                where = [(place[0], place[2], offset) for place, offsets in places.items() for offset in offsets]
                yield Anomaly("duplicate", f"{_name(self._history.sent[id])} at {where}")

    def _ordered(self) -> Iterator[Anomaly]:
        """Compare the first copies: a producer without idempotence may write a record twice."""
        last: dict[tuple[object, ...], tuple[int, Sent]] = {}
        for sent in self._history.sent.values():
            if sent.acknowledged is None or not self._promises[sent.id.producer].is_ordered:
                continue
            for place, offsets in self._places.get(sent.id, {}).items():
                group = sent.id.producer, sent.partitioned_by, place
                before = last.get(group)
                if before is not None and before[0] > offsets[0]:
                    yield Anomaly("order", f"{_name(sent)} at {offsets[0]}, {_name(before[1])} at {before[0]}")
                last[group] = offsets[0], sent

    def _offsets(self) -> Iterator[Anomaly]:
        for sent in self._history.sent.values():
            metadata = sent.acknowledged
            if metadata is None or metadata.offset < 0 or self._is_cut(sent):
                continue
            places = self._places.get(sent.id, {})
            if not any(
                topic == metadata.topic and partition == metadata.partition and metadata.offset in offsets
                for (topic, _, partition), offsets in places.items()
            ):
                yield Anomaly(
                    "offset",
                    f"{_name(sent)} was acknowledged at {metadata.partition}@{metadata.offset}, is at {places}",
                )

    def _is_cut(self, sent: Sent) -> bool:
        """Return whether Kafka itself may lose it: with a leader that alone had it, or by an unclean election."""
        is_with_leader = self._promises[sent.id.producer].acks == 1 and self._history.truncated[sent.id] > 0
        return is_with_leader or self._history.unclean[sent.id] > 0

    def _false_alarms(self) -> Iterator[Anomaly]:
        for sent in self._history.sent.values():
            if not sent.resolutions or sent.resolutions[0].may_be_stored:
                continue
            if sent.id in self._places or self._history.truncated[sent.id] > 0 or self._history.unclean[sent.id] > 0:
                yield Anomaly("false alarm", f"{_name(sent)} failed with {sent.error!r}, and was stored")

    def _given_up(self) -> Iterator[Anomaly]:
        for sent in self._history.sent.values():
            if sent.error is not None and sent.timeout is None and self._promises[sent.id.producer].delivers:
                yield Anomaly("given up", f"{_name(sent)}: {sent.error}")

    def _leftovers(self) -> Iterator[Anomaly]:
        for producer, size_bytes in self._buffered.items():
            if size_bytes and not self._history.unresolved:
                yield Anomaly("buffer", f"{size_bytes} bytes of {producer}")
        if self._history.flushes_done != self._history.flushes_requested:
            missing = self._history.flushes_requested - self._history.flushes_done
            yield Anomaly("flush", f"{missing} of {self._history.flushes_requested} never ended")


def _name(sent: Sent) -> str:
    id = sent.id
    return f"record {id.number} of {id.producer} for {id.topic} ({sent.partitioned_by}, sent at {sent.at:.3f} s)"


def anomalies_of_transactions(history: History) -> Iterator[Anomaly]:
    yield from _read_once(history)
    yield from (Anomaly("gave up early", what) for what in history.gave_up_early)
    for log in history.logs:
        if log.open_from is not None and not log.is_deleted:
            yield Anomaly("left open", f"{log.topic}-{log.partition} from offset {log.open_from} on")
    given: dict[str, set[RecordId | None]] = {}
    for copy in history.reads:
        given.setdefault(copy.reader, set()).update(RecordId.of(value) for _, value in copy.records)
    for one in history.transactions:
        yield from _ended_as_reported(history, one)
        for reader, records in given.items():
            yield from _seen_whole(one, reader, records)


def _read_once(history: History) -> Iterator[Anomaly]:
    for copy in history.reads:
        offsets = [offset for offset, _ in copy.records]
        values = [value for _, value in copy.records]
        if offsets != sorted(set(offsets)) or len(values) != len(set(values)):
            yield Anomaly("read twice", f"{copy.reader} in {copy.topic}-{copy.partition}: {copy.records}")


def _ended_as_reported(history: History, one: SentTransaction) -> Iterator[Anomaly]:
    if one.is_committed and one.is_aborted:
        yield Anomaly("both", str(one))
    if one.is_committed:
        failed = [id.number for id in one.records if history.sent[id].acknowledged is None]
        if failed:
            yield Anomaly("half acked", f"{one}: records {failed}")


def _seen_whole(one: SentTransaction, reader: str, given: set[RecordId | None]) -> Iterator[Anomaly]:
    seen = [id for id in one.records if id in given]
    may_be_seen = one.is_commit_requested and not one.is_aborted
    if seen and not may_be_seen:
        yield Anomaly("seen", f"{one} by {reader}: {len(seen)} of {len(one.records)} records")
    elif seen and len(seen) < len(one.records):
        yield Anomaly("torn", f"{one} for {reader}: {len(seen)} of {len(one.records)} records")
    elif not seen and one.is_committed and one.records:
        yield Anomaly("hidden", f"{one} from {reader}")
