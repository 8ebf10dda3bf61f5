"""The judge: what a producer promises, held against a history. Jepsen's kafka workload was the model.

The judge: what a producer promises, held against a history. Jepsen's kafka workload was the model.

    unresolved      a response has no outcome though everything has long been well
    resolved twice  a response has two
    order           acknowledged records are in the log in another order than they were sent in
    outcomes' order responses of one partition resolve in another order than their records were sent in
    lost            acknowledged, and in no log
    duplicate       twice in a log, from an idempotent producer
    offset          acknowledged with an offset at which something else is
    false alarm     failed as surely not stored, and was in a log
    misplaced       in a log that it was not sent to
    foreign         in a log, and sent by nobody
    given up        failed though there was all the time in the world
    buffer          bytes are still counted as buffered when nothing is
    flush           a flush never ended

It knows what a history says and what was promised, and nothing of how the run was made.

The judge of transactions: what readers with read_committed may see, held against what writers were told.

    torn          a reader was given some records of a transaction and not others
    hidden        a transaction was committed, and a reader was not given its records
    seen          a transaction was aborted, or never to be committed, and a reader was given records of it
    read twice    a reader was given a record twice, or went backwards
    half acked    a transaction was committed although a record of it had failed, or had no outcome
    both          a transaction was told to be committed, and aborted
    gave way      a transaction was aborted, or its writer fenced, by what waiting or an abort would have cured
    left open     a transaction is still open in a log though its writer and its time are long gone

Readers have read to the end when this is asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from kwire.simulation.history import History, RecordId, Sent, Transacted


class Anomaly(NamedTuple):
    kind: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


@dataclass(frozen=True, slots=True)
class Promises:
    """Of one producer. `delivers`: it has time enough for everything to be acknowledged."""

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
        # Where each record is: log -> offsets, in order.
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
            if not sent.outcomes:
                yield Anomaly("unresolved", _name(sent))
            elif len(sent.outcomes) > 1:
                yield Anomaly("resolved twice", _name(sent))

    def _resolved_in_order(self) -> Iterator[Anomaly]:
        """Within a partition, as far as the outcome says which that was."""
        last: dict[tuple[object, ...], Sent] = {}
        for sent in self._history.sent.values():
            if not sent.outcomes or not self._promises[sent.id.producer].is_ordered:
                continue
            partition = sent.told_partition
            if partition is None or (sent.timeout is not None and sent.error is not None):
                continue  # its own time limit ends when it ends, whatever stands before it
            group = sent.id.producer, sent.id.topic, sent.lane, partition
            before = last.get(group)
            if before is not None and before.outcomes[0].place > sent.outcomes[0].place:
                yield Anomaly("outcomes' order", f"{_name(sent)} before {_name(before)}")
            last[group] = sent

    def _lost(self) -> Iterator[Anomaly]:
        for sent in self._history.sent.values():
            if sent.acknowledged is None or sent.id in self._places:
                continue
            if self._promises[sent.id.producer].acks == 0 or self._is_cut(sent):
                continue  # all that was promised is that it was sent, or that replicas had it which are gone
            yield Anomaly("lost", f"{_name(sent)}, acknowledged at {sent.outcomes[0].at:.3f} s")

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
        """By the first copy of each record: a producer that is not idempotent may repeat itself."""
        last: dict[tuple[object, ...], tuple[int, Sent]] = {}
        for sent in self._history.sent.values():
            if sent.acknowledged is None or not self._promises[sent.id.producer].is_ordered:
                continue
            for place, offsets in self._places.get(sent.id, {}).items():
                group = sent.id.producer, sent.lane, place
                before = last.get(group)
                if before is not None and before[0] > offsets[0]:
                    yield Anomaly("order", f"{_name(sent)} at {offsets[0]}, {_name(before[1])} at {before[0]}")
                last[group] = offsets[0], sent

    def _offsets(self) -> Iterator[Anomaly]:
        for sent in self._history.sent.values():
            told = sent.acknowledged
            if told is None or told.offset < 0 or self._is_cut(sent):
                continue
            places = self._places.get(sent.id, {})
            if not any(
                topic == told.topic and partition == told.partition and told.offset in offsets
                for (topic, _, partition), offsets in places.items()
            ):
                yield Anomaly("offset", f"{_name(sent)} was told {told.partition}@{told.offset}, is at {places}")

    def _is_cut(self, sent: Sent) -> bool:
        """Whether it was lost by Kafka's own rules: with a leader that alone had it, or by an unclean election."""
        is_with_leader = self._promises[sent.id.producer].acks == 1 and self._history.truncated[sent.id] > 0
        return is_with_leader or self._history.unclean[sent.id] > 0

    def _false_alarms(self) -> Iterator[Anomaly]:
        for sent in self._history.sent.values():
            if not sent.outcomes or sent.outcomes[0].may_be_stored:
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
        if self._history.flushes_done != self._history.flushes_asked:
            missing = self._history.flushes_asked - self._history.flushes_done
            yield Anomaly("flush", f"{missing} of {self._history.flushes_asked} never ended")


def _name(sent: Sent) -> str:
    id = sent.id
    return f"record {id.number} of {id.producer} for {id.topic} ({sent.lane}, sent at {sent.at:.3f} s)"


def anomalies_of_transactions(history: History) -> Iterator[Anomaly]:
    yield from _read_once(history)
    yield from (Anomaly("gave way", what) for what in history.gave_way)
    for log in history.logs:
        if log.open_from is not None and not log.is_deleted:
            yield Anomaly("left open", f"{log.topic}-{log.partition} from offset {log.open_from} on")
    given: dict[str, set[RecordId | None]] = {}
    for copy in history.reads:
        given.setdefault(copy.reader, set()).update(RecordId.of(value) for _, value in copy.records)
    for one in history.transactions:
        yield from _ended_as_told(history, one)
        for reader, records in given.items():
            yield from _seen_whole(one, reader, records)


def _read_once(history: History) -> Iterator[Anomaly]:
    for copy in history.reads:
        offsets = [offset for offset, _ in copy.records]
        values = [value for _, value in copy.records]
        if offsets != sorted(set(offsets)) or len(values) != len(set(values)):
            yield Anomaly("read twice", f"{copy.reader} in {copy.topic}-{copy.partition}: {copy.records}")


def _ended_as_told(history: History, one: Transacted) -> Iterator[Anomaly]:
    if one.is_committed and one.is_aborted:
        yield Anomaly("both", str(one))
    if one.is_committed:
        failed = [id.number for id in one.records if history.sent[id].acknowledged is None]
        if failed:
            yield Anomaly("half acked", f"{one}: records {failed}")


def _seen_whole(one: Transacted, reader: str, given: set[RecordId | None]) -> Iterator[Anomaly]:
    seen = [id for id in one.records if id in given]
    may_be_seen = one.is_commit_asked and not one.is_aborted
    if seen and not may_be_seen:
        yield Anomaly("seen", f"{one} by {reader}: {len(seen)} of {len(one.records)} records")
    elif seen and len(seen) < len(one.records):
        yield Anomaly("torn", f"{one} for {reader}: {len(seen)} of {len(one.records)} records")
    elif not seen and one.is_committed and one.records:
        yield Anomaly("hidden", f"{one} from {reader}")
