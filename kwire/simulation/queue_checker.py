"""Check what happened to the messages of a queue against what it promises (Q76).

lost               a stored message was neither acknowledged by a handler nor is it a dead letter
untracked          a message was handed out without a START in the log, or before the position was committed
redelivered early  a tracker redelivered a message before its deadline, as the markers in the log have it
redelivered twice  a tracker redelivered a message that was not in progress any more, or never
acked too late     `ack` returned although a tracker had redelivered the message already (F13)
delivered too often  a message was handed out more than max_deliveries times
dead letter        a message was given up too early, or is twice a dead letter of the tracker
duplicate          a message was handed out again, and nothing explains it
mode               a duplicate that transactions exclude: marked and redelivered, and then handed out (Q62)
stored twice       a message that was sent once is twice in the queue topic, and no tracker wrote it (Q60)
wrong message      payload, headers or id are not those that were sent
unexpected         user code got an error that no fault explains

The causes that explain a duplicate are counted: release, crash, close, lease, start.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kwire.consumer import ConsumerRecord
from kwire.queue.envelope import REASON, Envelope
from kwire.queue.markers import Identity, Marker, MarkerType, decode_marker
from kwire.simulation.checker import Anomaly
from kwire.simulation.queue_history import TOPICS, QueueEvent, QueueHistory

# A tracker may be that many milliseconds early: timestamps of brokers are whole milliseconds.
_EARLY_MS = 2
_MS = 0.001
# Markers of consumers that say nothing once the deadline is over.
_LATE = (MarkerType.END, MarkerType.KEEP_ALIVE, MarkerType.RELEASE)


@dataclass(frozen=True, slots=True)
class QueuePromises:
    """`is_transactional`: the mode. `timeout_ms`: the lease. `is_calm`: no fault explains the end of a lease.

    `is_true_clock`: no broker's clock jumped. `loses`: messages may be lost with their topic.
    """

    is_transactional: bool
    timeout_ms: int
    max_processing_ms: int
    max_deliveries: int | None
    is_gentle: bool = False
    is_true_clock: bool = True
    rereads: bool = False


@dataclass(slots=True)
class _Tracked:
    """A message by the markers in the log."""

    started_at: float  # when the first START was stored
    deadline_ms: int = 0
    is_released: bool = False
    ended_at: float | None = None
    starts: int = 0
    has_late_start: bool = False  # one was stored when the lease of the one before was over
    redeliveries: int = 0
    redelivered_at: float | None = None  # when it last was
    start_partitions: set[int] = field(default_factory=set)


@dataclass(slots=True)
class QueueChecker:
    history: QueueHistory
    promises: QueuePromises
    causes: Counter[str] = field(default_factory=Counter)
    _tracked: dict[Identity, _Tracked] = field(default_factory=dict)
    _by_place: dict[tuple[int, int], _Tracked] = field(default_factory=dict)
    _copied_twice: set[str] = field(default_factory=set)  # ids of messages with two redeliveries of one record
    _found: list[Anomaly] = field(default_factory=list)

    def anomalies(self) -> list[Anomaly]:
        """Return all that was wrong."""
        history = self.history
        self._found += [Anomaly("unexpected", what) for what in history.unexpected]
        by_topic: defaultdict[str, list[ConsumerRecord]] = defaultdict(list)
        for record in history.records:
            by_topic[record.topic].append(record)
        self._markers(by_topic[TOPICS["markers"]])
        self._find_copies(by_topic[TOPICS["messages"]])
        self._handed_out()
        self._ends(by_topic[TOPICS["messages"]], by_topic[TOPICS["dead"]])
        return self._found

    def _find(self, kind: str, what: str) -> None:
        self._found.append(Anomaly(kind, what))

    # -- markers

    def _markers(self, records: Sequence[ConsumerRecord]) -> None:
        """Follow the markers of each partition in their order. ENDs of trackers are in transactions of their own."""
        clock_ms: dict[int, int] = {}
        for record in sorted(records, key=lambda one: (one.partition, one.offset)):
            clock_ms[record.partition] = max(clock_ms.get(record.partition, 0), record.timestamp_ms)
            marker = decode_marker(record.value or b"")
            if marker.type != MarkerType.TICK:
                self._marker(marker, record, clock_ms[record.partition])

    def _is_tracker(self, record: ConsumerRecord) -> bool:
        return (record.partition, record.offset) in self.history.by_tracker

    def _marker(self, marker: Marker, record: ConsumerRecord, clock_ms: int) -> None:
        at, is_tracker = self.history.stored_at(record), self._is_tracker(record)
        known = self._tracked.get(marker.identity)
        if known is not None and not is_tracker and marker.type in _LATE and known.deadline_ms < clock_ms:
            return  # the tracker may have decided before it was stored
        deadline_ms = marker.not_before_ms or record.timestamp_ms + marker.redeliver_after_ms
        place = (marker.identity.partition, marker.identity.offset)
        if marker.type == MarkerType.START:
            is_late = known is not None and known.ended_at is None and known.deadline_ms < clock_ms
            if known is None or known.ended_at is not None:
                known = _Tracked(at) if known is None else known
                known.ended_at = None
                self._tracked[marker.identity] = self._by_place[place] = known
            known.starts += 1
            known.start_partitions.add(record.partition)
            known.is_released = False
            known.has_late_start |= is_late
            if not is_late:  # else the tracker may have decided by the lease before
                known.deadline_ms = deadline_ms
        elif known is None or known.ended_at is not None:
            if is_tracker:
                self._find("redelivered twice", f"the message at {place} at {at:.3f} s: it was not in progress")
        elif marker.type == MarkerType.END:
            known.ended_at = at
            if is_tracker:
                known.redelivered_at = at
                known.redeliveries += 1
                if self.promises.is_true_clock and clock_ms + _EARLY_MS < known.deadline_ms:
                    early = known.deadline_ms - clock_ms
                    self._find(
                        "redelivered early", f"the message at {place} at {at:.3f} s, {early} ms before its deadline"
                    )
        elif marker.type == MarkerType.KEEP_ALIVE and not known.is_released:
            known.deadline_ms = deadline_ms
        elif marker.type == MarkerType.RELEASE:
            known.deadline_ms, known.is_released = deadline_ms, True

    def _find_copies(self, messages: Sequence[ConsumerRecord]) -> None:
        """Find the messages of which two copies are valid.

        A consumer died between START and commit, its lease ended, and the next consumer read the record again.
        """
        for record in messages:
            tracked = self._by_place.get((record.partition, record.offset))
            if tracked is not None and tracked.redeliveries > 1:
                self._copied_twice.add(Envelope.read(record.headers).id)

    # -- what consumers got

    def _handed_out(self) -> None:
        handed: defaultdict[str, list[QueueEvent]] = defaultdict(list)
        settled: defaultdict[tuple[str, str, tuple[int, int]], list[QueueEvent]] = defaultdict(list)
        for event in self.history.events:
            if event.kind == "handed":
                handed[event.id].append(event)
            elif event.id:
                settled[event.process, event.id, event.place].append(event)
        for id, events in handed.items():
            if self._is_delivered_too_often(id, events):
                self._find("delivered too often", f"{id}: {len(events)} times")
            for number, event in enumerate(events):
                self._tracked_before(event)
                ends = settled[event.process, id, event.place]
                self._acked_in_time(event, ends)
                if number:
                    self._duplicate(events[number - 1], event, settled)

    def _is_delivered_too_often(self, id: str, events: Sequence[QueueEvent]) -> bool:
        limit = self.promises.max_deliveries
        if limit is None:
            return False
        if id in self._copied_twice and not self.promises.is_transactional:
            return any(one.deliveries > limit for one in events)  # each copy is counted by itself
        return len({one.place for one in events}) > limit

    def _tracked_before(self, event: QueueEvent) -> None:
        tracked = self._by_place.get(event.place)
        if tracked is None or (self.promises.is_true_clock and tracked.started_at > event.at):
            self._find("untracked", f"{event.id} at {event.place} was handed out at {event.at:.3f} s without a START")
        elif tracked.redelivered_at is not None and tracked.redelivered_at < event.at and self.promises.is_true_clock:
            if self.promises.is_transactional and not self.promises.rereads:
                self._find(
                    "mode", f"{event.id} at {event.place} was redelivered before it was handed out at {event.at:.3f} s"
                )
            self.causes["start"] += 1
        if self.history.committed_before(event.place[0], event.at) <= event.place[1]:
            self._find("untracked", f"{event.id} at {event.place} was handed out at {event.at:.3f} s, not committed")

    def _acked_in_time(self, event: QueueEvent, ends: Sequence[QueueEvent]) -> None:
        tracked = self._by_place.get(event.place)
        if tracked is None or tracked.redelivered_at is None or not self.promises.is_true_clock or tracked.starts > 1:
            return  # with several leases of a record nobody knows which one was over
        for end in ends:
            if end.kind == "acked" and tracked.redelivered_at + _MS < end.at:
                self._find("acked too late", f"{end.id} at {end.place} at {end.at:.3f} s: redelivered before")

    def _duplicate(
        self, before: QueueEvent, event: QueueEvent,
        settled: Mapping[tuple[str, str, tuple[int, int]], Sequence[QueueEvent]],
    ) -> None:  # fmt: skip
        ends = [one for one in settled.get((before.process, before.id, before.place), ()) if one.at <= event.at]
        process_ended = self.history.ended.get(before.process)
        closing = self.history.closing.get(before.process)
        if any(one.kind == "released" for one in ends):
            cause = "release"
        elif before.place == event.place:
            cause = "reread"
        elif process_ended is not None and process_ended <= event.at:
            cause = "close" if closing is not None else "crash"
        elif closing is not None and closing <= event.at:
            cause = "close"
        elif not self.promises.is_transactional and (
            event.id in self._copied_twice or self._was_read_again(before) or self._was_read_again(event)
        ):
            cause = "start"  # of a consumer that died before it committed: the next one read the record again
        elif self.history.frozen[before.process] or event.at - before.at >= self.promises.max_processing_ms / 1000:
            cause = "lease"
        else:
            cause = "lease" if not self.promises.is_gentle else ""
        if cause == "reread" and not self.promises.rereads:
            cause = ""
        if not cause:
            what = f"{event.id} by {event.process} at {event.at:.3f} s, after {before.process} at {before.at:.3f} s"
            self._find("duplicate", f"{what} ({', '.join(one.kind for one in ends) or 'not settled'})")
        self.causes[cause or "none"] += 1

    def _was_read_again(self, event: QueueEvent) -> bool:
        """Return whether the record had been redelivered before it was handed out, or was marked twice.

        If partitions were added in between, its two STARTs are in two of them, and neither replaces the other. Nor does
        a second START that is stored when the lease of the first is over: the tracker may have decided by that one.
        """
        tracked = self._by_place.get(event.place)
        if tracked is None:
            return False
        if tracked.redelivered_at is not None and (tracked.has_late_start or tracked.redelivered_at < event.at):
            return True
        return len(tracked.start_partitions) > 1

    # -- what has become of each message

    def _ends(self, messages: Sequence[ConsumerRecord], dead: Sequence[ConsumerRecord]) -> None:
        dead_ids: Counter[str] = Counter()
        for record in dead:
            envelope, reason = Envelope.read(record.headers), dict(record.headers)[REASON] or b""
            if reason != b"refused":
                dead_ids[envelope.id] += 1
            limit = self.promises.max_deliveries
            if reason.startswith(b"delivered") and envelope.deliveries != limit:
                self._find("dead letter", f"{envelope.id} after {envelope.deliveries} deliveries of {limit}")
        given_up = {Envelope.read(record.headers).id for record in dead}
        for id in self._lost(messages, given_up):
            self._find("lost", id)
        envelopes = [Envelope.read(record.headers) for record in messages]
        for id, count in Counter(one.id for one in envelopes if not one.first_at).items():
            if count > 1:
                self._find("stored twice", f"{id} is {count} times in the queue topic as it was sent")
        for id, count in dead_ids.items():
            chains = sum(
                1
                for one in messages
                if Envelope.read(one.headers).id == id and not Envelope.read(one.headers).deliveries
            )
            if count > max(1, chains) and self.promises.is_transactional:
                self._find("dead letter", f"{id} {count} times")

    def _lost(self, messages: Sequence[ConsumerRecord], given_up: set[str]) -> Iterator[str]:
        stored = {Envelope.read(record.headers).id for record in messages}
        for id, sent in self.history.sent.items():
            if not (sent.is_stored or id in stored) or id in self.history.acked or id in given_up:
                continue
            yield f"{id}, {'acknowledged to its producer' if sent.is_stored else 'in the queue topic'}"
