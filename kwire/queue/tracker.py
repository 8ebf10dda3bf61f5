"""The redelivery tracker: a member of a group that reads markers and sends again what nobody works on any more.

Any number of trackers share the partitions of the markers topic. For each of its partitions a tracker has a
`TrackerState`, and a producer whose transactional id is the partition's: to open it fences the tracker that had the
partition before, wherever that is. After that the tracker writes a TICK. When it has read that back, it knows every
marker that counts, and begins to redeliver.

A redelivery is one transaction: the message in the queue topic, or in the dead letter topic, the END of the old
message, and the group's offset. It happens as a whole or not at all, and only by the tracker that has the partition.
After any failure the producer is made anew and the state waits for a new TICK: the transaction may be committed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from kwire.cluster import Cluster
from kwire.consumer import Consumer, ConsumerRecord, TopicPartition
from kwire.errors import ClosedError, ConfigurationError, DecodeError, KwireError, WakeupError
from kwire.producer import Producer, ProduceResponse
from kwire.queue.envelope import Envelope, dead_letter_headers, redelivery_headers
from kwire.queue.markers import NO_TOPIC_ID, Identity, Marker, MarkerType, decode_marker, encode_marker
from kwire.queue.metrics import TrackerCounters
from kwire.queue.options import QueueOptions
from kwire.queue.tracker_state import InProgress, TrackerState

_log = logging.getLogger("kwire.queue.tracker")

_POLL_MAX = 5_000  # markers of one poll
_WAIT_MAX = 0.5  # seconds of one poll
_BATCH_MAX = 500  # messages of one transaction
_COMMIT_SECONDS = 5.0
_TRANSACTION_MS = 60_000
_CALL_SECONDS = 20.0  # how long a call of a partition's producer may stop the others
_RETRY_SECONDS, _RETRY_SECONDS_MAX = 0.1, 10.0
_TICK_SECONDS = 0.02  # a broker's clock and ours need not run at the same pace: ticks are this far apart at least

_NOBODY = Identity(NO_TOPIC_ID, -1, -1)


class Tracker:
    """A redelivery tracker. `run` works on the calling thread until `stop`; `with tracker:` has a thread of its own.

    >>> with service.tracker():                    # doctest: +SKIP
    ...     ...

    Made by `Service.tracker`.
    """

    def __init__(self, cluster: Cluster, options: QueueOptions, client_options: dict[str, Any], ready: Any) -> None:
        self._options = options
        self._cluster = cluster
        self._client_options = client_options
        self._ready = ready  # creates or checks the topics
        self._counters = TrackerCounters()
        self._partitions: dict[int, TrackedPartition] = {}
        self._is_stopping = False
        self._thread: threading.Thread | None = None
        self._consumer: Consumer | None = None
        self._failure: BaseException | None = None

    # -- running

    def run(self) -> None:
        """Read markers and redeliver, until `stop` is called.

        Errors that pass are logged and retried. Raises ConfigurationError for topics that are not fit, and what makes
        the group refuse this member.
        """
        self._ready()
        options = self._options
        consumer = Consumer(
            self._cluster, group=options.tracker_group, commit="manual", isolation="read_committed",
            on_no_offset="earliest", on_out_of_range="earliest", **self._client_options,
        )  # fmt: skip
        self._consumer = consumer
        self._ticks = Producer(self._cluster, linger_ms=0, when_full="raise", **self._client_options)
        try:
            consumer.subscribe(
                [options.marker_topic], on_assigned=self._assigned, on_revoked=self._revoked, on_lost=self._lost
            )
            while not self._is_stopping:
                try:
                    self._step(consumer)
                except WakeupError:
                    continue
                except (ClosedError, ConfigurationError):
                    raise
                except KwireError as error:
                    if not getattr(error, "is_retriable", False):
                        raise
                    _log.warning("tracker of %s: %s", options.marker_topic, error)
        finally:
            with suppress(KwireError):
                consumer.close()  # calls _revoked
            self._lost(list(consumer.assignment()) or [(options.marker_topic, one) for one in self._partitions])
            self._ticks.close(1.0)

    def _step(self, consumer: Consumer) -> None:
        now = self._now()
        for record in consumer.poll(_POLL_MAX, timeout=self._wait_seconds(now)):
            partition = self._partitions.get(record.partition)
            if partition is not None:
                partition.apply(record, self._now())
        for partition in list(self._partitions.values()):
            partition.work(self._now())

    def _wait_seconds(self, now: float) -> float:
        return min([_WAIT_MAX, *(max(0.0, one.works_at() - now) for one in self._partitions.values())])

    def _now(self) -> float:
        assert self._consumer is not None
        return self._consumer._runtime.clock.now()

    def stop(self) -> None:
        """Let `run` end, from any thread."""
        self._is_stopping = True
        if self._consumer is not None:
            with suppress(KwireError):
                self._consumer.wakeup()

    def start(self) -> None:
        """Run on a thread of its own."""
        if self._thread is not None:
            raise ConfigurationError("the tracker runs already", remedy="make another one")
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run_logged, name="kwire queue tracker", daemon=True)
        self._thread.start()

    def _run_logged(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self._failure = error
            _log.exception("the tracker of %s has ended", self._options.marker_topic)

    @property
    def is_running(self) -> bool:
        """Whether its own thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def close(self, timeout: float | None = 30.0) -> None:
        """Stop, and wait for the thread. Raises what ended it before."""
        self.stop()
        if self._thread is not None:
            self._thread.join(timeout)
            failure, self._failure, self._thread = self._failure, None, None
            if failure is not None:
                raise failure

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def metrics(self) -> TrackerCounters:
        """Return what was counted: a copy of now."""
        states = [one.state for one in list(self._partitions.values())]
        return replace(
            self._counters,
            partitions=len(states),
            replaying=sum(state.is_replaying for state in states),
            in_progress=sum(len(state) for state in states),
            in_progress_bytes=sum(state.in_progress_bytes for state in states),
            clock_jumps=sum(state.clock_jumps for state in states),
            committed_distance=sum(one.committed_distance for one in list(self._partitions.values())),
        )

    # -- rebalances, on the thread that polls

    def _assigned(self, partitions: Sequence[TopicPartition]) -> None:
        assert self._consumer is not None
        for _, index in partitions:
            self._partitions[index] = TrackedPartition(self, index, self._consumer)

    def _revoked(self, partitions: Sequence[TopicPartition]) -> None:
        for _, index in partitions:
            partition = self._partitions.pop(index, None)
            if partition is not None:
                partition.commit(self._now())
                partition.close()

    def _lost(self, partitions: Sequence[TopicPartition]) -> None:
        for _, index in partitions:
            partition = self._partitions.pop(index, None)
            if partition is not None:
                partition.close()

    # -- for its partitions

    def new_producer(self, index: int) -> Producer:
        """Return the producer of a partition: each new one fences those before, of any tracker."""
        options = self._options
        return Producer(
            self._cluster, transactional_id=f"{options.tracker_group}-{index}", transaction_timeout_ms=_TRANSACTION_MS,
            partitioner_ignore_keys=True, linger_ms=0, **self._client_options,
        )  # fmt: skip

    def tick(self, index: int) -> ProduceResponse:
        """Write a TICK into a partition."""
        self._counters.ticks += 1
        data = encode_marker(Marker(MarkerType.TICK, _NOBODY), self._options.marker_format)
        return self._ticks.send(self._options.marker_topic, data, None, None, index)


class TrackedPartition:
    """A partition of the markers topic that this tracker has."""

    def __init__(self, tracker: Tracker, index: int, consumer: Consumer) -> None:
        self._tracker = tracker
        self._options = tracker._options
        self._counters = tracker._counters
        self._index = index
        self._consumer = consumer
        self._key = (self._options.marker_topic, index)
        self.state = TrackerState(clock_jump_ms=self._options.clock_jump_ms)
        self._producer: Producer | None = None
        self._failures = 0
        self._retry_at = 0.0
        self._tick: ProduceResponse | None = None
        self._ticked_at = 0.0
        self._committed = 0
        self._committed_at = 0.0
        self._uncommitted = 0  # markers since

    @property
    def committed_distance(self) -> int:
        """How many offsets a successor would read."""
        return self.state.position - self._committed

    def apply(self, record: ConsumerRecord, now: float) -> None:
        """Apply a marker of the log."""
        marker = None
        try:
            marker = decode_marker(record.value or b"")
        except DecodeError as error:
            self._counters.unreadable += 1
            _log.warning("tracker: the record at %s/%d offset %d is no marker: %s", *self._key, record.offset, error)
        self.state.apply(record.offset, record.timestamp_ms, marker, now)
        self._counters.markers += 1
        self._uncommitted += 1

    def works_at(self) -> float:
        """Return when `work` has something to do, as far as it is known."""
        if self._producer is None:
            return self._retry_at
        if self.state.is_replaying or self._tick is not None:
            return self._ticked_at + 60.0  # a marker comes first
        due = self.state.tick_due(self._ticked_at)
        return self._ticked_at + 60.0 if due is None else max(due, self._ticked_at + _TICK_SECONDS)

    def work(self, now: float) -> None:
        """Open the partition, redeliver what is due, commit, write a TICK: whatever it is time for."""
        if self._producer is None:
            if now < self._retry_at:
                return
            self._open(now)
        while self._producer is not None and (due := self.state.due(_BATCH_MAX)):
            self._redeliver(due, now)
        enough = self._uncommitted >= self._options.num_offsets_per_commit
        if self._uncommitted and (enough or now >= self._committed_at + _COMMIT_SECONDS):
            self.commit(now)
        self._tick_if_due(now)

    # -- steps

    def _open(self, now: float) -> None:
        """Fence the tracker that had the partition, and find out where the log ends after that."""
        producer = self._tracker.new_producer(self._index)
        try:
            producer.init_transactions(_CALL_SECONDS)
            tick = self._tracker.tick(self._index)
            self.state.begin(tick.result(_CALL_SECONDS).offset)
        except KwireError as error:
            self._failed(producer, error, now)
            return
        self._producer, self._ticked_at, self._tick = producer, now, None

    def _redeliver(self, due: Sequence[InProgress], now: float) -> None:
        producer = self._producer
        assert producer is not None
        try:
            producer.begin(_CALL_SECONDS)
            counts = [self._send_again(producer, entry) for entry in due]
            ended = frozenset(entry.identity for entry in due)
            offset = self.state.commit_offset(ended)
            producer.send_offsets({self._key: offset}, self._consumer.group_metadata(), _CALL_SECONDS)
            producer.commit(_CALL_SECONDS)
        except KwireError as error:
            self._producer = None
            self._failed(producer, error, now)
            return
        self._failures = 0
        self._committed, self._committed_at = offset, now
        self._counters.lateness_ms = self.state.clock_ms - max(entry.deadline_ms for entry in due)
        for name in counts:
            setattr(self._counters, name, getattr(self._counters, name) + 1)
        for entry in due:
            self.state.end(entry.identity)

    def _send_again(self, producer: Producer, entry: InProgress) -> str:
        """Send a message and its END; return what it counts as."""
        options = self._options
        headers = entry.headers if options.is_go else redelivery_headers(entry.headers, is_uncounted=entry.is_uncounted)
        reason = self._reason(Envelope.read(headers))
        end = encode_marker(Marker(MarkerType.END, entry.identity), options.marker_format)
        if reason is None:
            producer.send(options.message_topic, entry.value, entry.key, headers)
        elif options.dead_letters:
            place = (options.message_topic, entry.identity.partition, entry.identity.offset)
            producer.send(options.dead_letters, entry.value, entry.key, dead_letter_headers(headers, reason, place))
        producer.send(options.marker_topic, end, entry.key if options.is_go else None, None, self._index)
        if reason is None:
            return "redelivered"
        return "dead_lettered" if options.dead_letters else "dropped"

    def _reason(self, envelope: Envelope) -> str | None:
        """Return why a message is not delivered again; None if it is."""
        limit = self._options.max_deliveries
        if limit is not None and envelope.deliveries >= limit:
            return f"delivered {envelope.deliveries} times"
        if envelope.expires_in and self.state.clock_ms >= envelope.first_at + envelope.expires_in:
            return "expired"
        return None

    def _failed(self, producer: Producer, error: KwireError, now: float) -> None:
        self._counters.failures += 1
        self._failures += 1
        self._retry_at = now + min(_RETRY_SECONDS * 2 ** min(self._failures - 1, 20), _RETRY_SECONDS_MAX)
        _log.warning("tracker: %s/%d is opened again: %s", *self._key, error)
        with suppress(KwireError):
            producer.close(0)

    def commit(self, now: float) -> None:
        """Commit where a successor must begin to read. A failure is retried with the next commit."""
        self._committed_at = now
        if self.state.is_replaying:  # a commit would be no news, or the position before the first marker
            return
        offset = self.state.commit_offset()
        try:
            self._consumer.commit({self._key: offset}, timeout=_CALL_SECONDS)
        except KwireError as error:
            _log.warning("tracker: the offset of %s/%d is not committed: %s", *self._key, error)
            return
        self._committed, self._uncommitted = offset, 0
        self._counters.commits += 1

    def _tick_if_due(self, now: float) -> None:
        if self._tick is not None and self._tick.done():
            if self._tick.exception() is None and self._tick.result().offset >= self.state.position:
                return  # stored, and not yet read
            self._tick = None
        if self._tick is None and self._producer is not None and not self.state.is_replaying and now >= self.works_at():
            self._tick, self._ticked_at = self._tracker.tick(self._index), now

    def close(self) -> None:
        """End the producer. A transaction under way is aborted by the successor's, or by the broker."""
        if self._producer is not None:
            with suppress(KwireError):
                self._producer.close(0)
            self._producer = None


__all__ = ["TrackedPartition", "Tracker"]
