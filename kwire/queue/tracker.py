"""The redelivery tracker: a group member that reads markers, and sends messages again that nobody works on.

Any number of trackers share the partitions of the markers topic. For each of its partitions a tracker has a
`TrackerState`, and a producer whose transactional id is the partition's: opening it fences the tracker that had the
partition before, in any process. After that the tracker reads from the committed offset, and writes a TICK. When it has
read that back, it knows every marker that counts, and begins to redeliver.

A redelivery is one transaction: the message in the queue topic, or in the dead letter topic, the END of the old
message, and the group's offset. It happens as a whole or not at all, and only by the tracker that has the partition.
A transaction that fails is aborted, and its messages are tried again one by one, so that a message that no topic takes
holds up no others. If the abort fails, too, the transaction may be committed: the partition is opened anew.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kwire.cluster.waiting import Signal, blocking, run_blocking
from kwire.consumer import ConsumerRecord, TopicPartition
from kwire.consumer.group_client import GroupClient
from kwire.errors import (
    ClosedError,
    ConfigurationError,
    DecodeError,
    ErrorCode,
    KwireError,
    RecordTooLargeError,
    RequestTimeoutError,
    WakeupError,
)
from kwire.producer import Message, ProduceResponse
from kwire.producer.methods import ProducerMethods
from kwire.queue.backend import may_pass
from kwire.queue.envelope import Envelope, dead_letter_headers, redelivery_headers
from kwire.queue.markers import NO_TOPIC_ID, Identity, Marker, MarkerType, encode_marker, skim_marker
from kwire.queue.metrics import TrackerCounters
from kwire.queue.tracker_state import InProgress, TrackerState

if TYPE_CHECKING:
    from kwire.queue.service import ServiceClient

_log = logging.getLogger("kwire.queue.tracker")

_POLL_MAX = 5_000  # markers of one poll
_WAIT_MAX = 0.5  # seconds of one poll
_BATCH_MAX = 500  # messages of one transaction
_COMMIT_SECONDS = 5.0
_TRANSACTION_MS = 60_000
_CALL_SECONDS = 20.0  # how long a call of a partition's producer may stop the others
_ABORT_SECONDS = 5.0
_RETRY_SECONDS, _RETRY_SECONDS_MAX = 0.1, 10.0
_TICK_SECONDS = 0.02  # a broker's clock and ours need not run at the same pace: ticks are this far apart at least

_NOBODY = Identity(NO_TOPIC_ID, -1, -1)
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)

_Callback = Callable[[Sequence[TopicPartition]], Awaitable[None]]


def _backoff(failures: int) -> float:
    """Return the seconds until the next attempt after so many that failed, from 1 up."""
    return min(_RETRY_SECONDS * 2.0 ** min(failures - 1, 20), _RETRY_SECONDS_MAX)


class TrackerClient:
    """What a tracker does, as coroutines that wait by the waiter of its service."""

    def __init__(self, service: ServiceClient[Any, Any]) -> None:
        self._service = service
        self._options = service.options
        self._counters = TrackerCounters()
        self._partitions: dict[int, TrackedPartition] = {}
        self._is_stopping = False
        self._stopped: Signal | None = None  # ends a pause of `_run`
        self._consumer: GroupClient | None = None

    async def _run(self) -> None:
        """Read markers and redeliver, until `stop` is called.

        Errors that pass are logged and retried; brokers that cannot be reached are waited for, also at the start.
        Raises ConfigurationError for topics that are not fit, and what makes the group refuse this member.
        """
        await self._open_topics()
        if self._is_stopping:
            return
        options = self._options
        consumer = self._service.new_consumer(
            group=options.tracker_group, commit="manual", isolation="read_committed", on_no_offset="earliest",
            on_out_of_range="earliest",
        )  # fmt: skip
        self._consumer = consumer
        self._ticks = self._service.new_producer(linger_ms=0)
        try:
            await consumer._subscribe(
                [options.marker_topic], on_assigned=self._callback(self._assigned),
                on_revoked=self._callback(self._revoked), on_lost=self._callback(self._lost),
            )  # fmt: skip
            while not self._is_stopping:
                try:
                    await self._step(consumer)
                except WakeupError:
                    continue
                except (ClosedError, ConfigurationError):
                    raise
                except KwireError as error:
                    if not may_pass(error):
                        raise
                    _log.warning("tracker of %s: %s", options.marker_topic, error)
        finally:
            with suppress(KwireError):
                await consumer._close()  # calls _revoked
            await self._lost([(options.marker_topic, index) for index in self._partitions])
            await self._ticks._close(1.0)

    async def _open_topics(self) -> None:
        """Create or check the topics, once a broker can be reached."""
        failures = 0
        while not self._is_stopping:
            try:
                await self._service.topics()
                return
            except (ClosedError, ConfigurationError):
                raise
            except KwireError as error:
                if not may_pass(error):
                    raise
                failures += 1
                _log.warning("tracker of %s waits for the brokers: %s", self._options.marker_topic, error)
                self._stopped = self._service.waiter.signal()
                await self._stopped.wait(_backoff(failures))

    def _callback(self, function: _Callback) -> Callable[[Sequence[TopicPartition]], object]:
        """Return what the consumer calls in a rebalance."""
        return lambda partitions: run_blocking(function(partitions))  # type: ignore[arg-type]

    async def _step(self, consumer: GroupClient) -> None:
        for record in await consumer._poll(_POLL_MAX, self._wait_seconds(self._now())):
            partition = self._partitions.get(record.partition)
            if partition is not None:
                partition.apply(record, self._now())
        for partition in list(self._partitions.values()):
            await partition.work()

    def _wait_seconds(self, now: float) -> float:
        return min([_WAIT_MAX, *(max(0.0, one.works_at() - now) for one in self._partitions.values())])

    def _now(self) -> float:
        return self._service.clock.now()

    def stop(self) -> None:
        """Let `run` end, from any thread."""
        self._is_stopping = True
        if self._stopped is not None:
            self._stopped.set()
        if self._consumer is not None:
            with suppress(KwireError):
                self._consumer.wakeup()

    def metrics(self) -> TrackerCounters:
        """Return what was counted: a copy of now."""
        partitions = list(self._partitions.values())
        states = [one.state for one in partitions]
        return replace(
            self._counters,
            partitions=len(states),
            replaying=sum(state.is_replaying for state in states),
            in_progress=sum(len(state) for state in states),
            in_progress_bytes=sum(state.in_progress_bytes for state in states),
            clock_ms=min((state.clock_ms for state in states), default=0),
            stalled_seconds=max((state.stalled_for(self._now()) for state in states), default=0.0),
            clock_jumps=sum(state.clock_jumps for state in states),
            committed_distance=sum(one.committed_distance for one in partitions),
        )

    collect_metrics = metrics  # as exporters call it

    @property
    def client_id(self) -> str:
        return self._service.client_id

    # -- rebalances, in the call that polls

    async def _assigned(self, partitions: Sequence[TopicPartition]) -> None:
        assert self._consumer is not None
        for _, index in partitions:
            self._partitions[index] = TrackedPartition(self, index, self._consumer)
        self._consumer.pause(partitions)  # until they are opened

    async def _revoked(self, partitions: Sequence[TopicPartition]) -> None:
        for _, index in partitions:
            partition = self._partitions.pop(index, None)
            if partition is not None:
                await partition.commit()
                await partition.close()

    async def _lost(self, partitions: Sequence[TopicPartition]) -> None:
        for _, index in partitions:
            partition = self._partitions.pop(index, None)
            if partition is not None:
                await partition.close()

    # -- for its partitions

    def new_producer(self, index: int) -> ProducerMethods:
        """Return the producer of a partition: each new one fences those before, of any tracker."""
        return self._service.new_producer(
            transactional_id=f"{self._options.tracker_group}-{index}", transaction_timeout_ms=_TRANSACTION_MS,
            partitioner_ignore_keys=True, linger_ms=0,
        )  # fmt: skip

    async def tick(self, index: int) -> ProduceResponse:
        """Write a TICK into a partition."""
        self._counters.ticks += 1
        data = encode_marker(Marker(MarkerType.TICK, _NOBODY), self._options.marker_format)
        (response,) = await self._ticks._send_all([Message(self._options.marker_topic, data, partition=index)])
        return response

    async def stored(self, response: ProduceResponse) -> int:
        """Wait until a record is stored; return its offset."""
        signal = self._service.waiter.signal()
        response.add_done_callback(lambda _: signal.set())
        if not await signal.wait(_CALL_SECONDS) and not response.done():
            raise RequestTimeoutError(
                f"a TICK was not stored within {_CALL_SECONDS:.0f} s", topic=self._options.marker_topic
            )
        return response.result().offset


class Tracker(TrackerClient):
    """A redelivery tracker. `run` works on the calling thread until `stop`; `with tracker:` has a thread of its own.

    >>> with service.tracker():                    # doctest: +SKIP
    ...     ...

    Made by `Service.tracker`.
    """

    def __init__(self, service: ServiceClient[Any, Any]) -> None:
        super().__init__(service)
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    run = blocking(TrackerClient._run)

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
        """Return whether its own thread runs."""
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


class TrackedPartition:
    """A partition of the markers topic that this tracker has."""

    def __init__(self, tracker: TrackerClient, index: int, consumer: GroupClient) -> None:
        self._tracker = tracker
        self._options = tracker._options
        self._counters = tracker._counters
        self._now = tracker._now
        self._index = index
        self._consumer = consumer
        self._key = (self._options.marker_topic, index)
        self.state = self._new_state(0)
        self._producer: ProducerMethods | None = None  # None: not open
        self._failures = 0
        self._retry_at = 0.0
        self._limit = _BATCH_MAX  # of messages in a transaction
        self._unfit: set[Identity] = set()  # messages that the queue topic does not take
        self._tick: ProduceResponse | None = None
        self._ticked_at = 0.0
        self._committed = 0
        self._committed_at = 0.0
        self._uncommitted = 0  # markers since

    def _new_state(self, position: int) -> TrackerState:
        return TrackerState(position, clock_jump_ms=self._options.clock_jump_ms)

    @property
    def committed_distance(self) -> int:
        """Return how many offsets a successor would read."""
        return self.state.position - self._committed

    def apply(self, record: ConsumerRecord, now: float) -> None:
        """Apply a marker of the log."""
        if self._producer is None:  # it will be read again
            return
        marker, data = None, record.value or b""
        try:
            marker = skim_marker(data)
        except DecodeError as error:
            self._counters.unreadable += 1
            _log.warning("tracker: the record at %s/%d offset %d is no marker: %s", *self._key, record.offset, error)
        self.state.apply(record.offset, record.timestamp_ms, marker, now, data)
        self._counters.markers += 1
        self._uncommitted += 1

    def works_at(self) -> float:
        """Return when `work` has something to do, as far as it is known: infinity if a marker must come first."""
        if self._producer is None:
            return self._retry_at
        if self.state.is_replaying or self._tick is not None:
            return math.inf  # an open transaction can hide the TICK for long
        due = self.state.tick_due(self._ticked_at)
        if due is None:
            return self._ticked_at + 60.0
        return max(due, self._ticked_at + _TICK_SECONDS, self._retry_at)

    async def work(self) -> None:
        """Open the partition, redeliver what is due, commit, write a TICK: whatever it is time for."""
        if self._producer is None:
            if self._now() < self._retry_at:
                return
            await self._open()
        while self._producer is not None and self._now() >= self._retry_at and (due := self.state.due(self._limit)):
            await self._redeliver(self._producer, due)
        enough = self._uncommitted >= self._options.num_offsets_per_commit
        if self._uncommitted and (enough or self._now() >= self._committed_at + _COMMIT_SECONDS):
            await self.commit()
        await self._tick_if_due()

    # -- steps

    async def _open(self) -> None:
        """Fence the tracker that had the partition, begin to read where it committed, and find out where that ends."""
        tracker, consumer = self._tracker, self._consumer
        producer = tracker.new_producer(self._index)
        try:
            await producer._init_transactions(_CALL_SECONDS)
            committed = (await consumer._committed([self._key], _CALL_SECONDS))[self._key]
            offset = 0 if committed is None else committed.offset
            tick = await tracker.stored(await tracker.tick(self._index))
            consumer.seek(*self._key, "earliest" if committed is None else offset)
        except KwireError as error:
            await self._failed(producer, error)
            return
        self.state = self._new_state(offset)
        self.state.begin(tick)
        self._producer, self._tick = producer, None
        self._committed, self._uncommitted, self._ticked_at = offset, 0, self._now()
        consumer.resume([self._key])

    async def _redeliver(self, producer: ProducerMethods, due: Sequence[InProgress]) -> None:
        counts: list[str] = []
        sent: list[tuple[Identity, Sequence[ProduceResponse]]] = []  # of the END, and of the message if there is one
        try:
            await producer._begin(_CALL_SECONDS)
            for entry in due:
                message, end, count = self._again(entry)
                counts.append(count)
                responses = await producer._send_all([end] if message is None else [end, message])
                sent.append((entry.identity, responses))
            ended = frozenset(entry.identity for entry in due)
            offset = self.state.commit_offset(ended)
            await producer._send_offsets({self._key: offset}, self._consumer.group_metadata(), _CALL_SECONDS)
            await producer._commit(_CALL_SECONDS)
        except KwireError as error:
            await self._abort(producer, error, due, sent)
            return
        self._failures = 0
        self._limit = min(_BATCH_MAX, 2 * self._limit)
        self._committed, self._committed_at = offset, self._now()
        self._counters.lateness_ms = self.state.clock_ms - max(entry.deadline_ms for entry in due)
        for name in counts:
            setattr(self._counters, name, getattr(self._counters, name) + 1)
        for identity, (end_response, *_) in sent:
            self._unfit.discard(identity)
            self.state.end(identity, end_response.result().offset)  # the transaction is committed: this does not wait

    async def _abort(
        self, producer: ProducerMethods, error: KwireError, due: Sequence[InProgress],
        sent: Sequence[tuple[Identity, Sequence[ProduceResponse]]],
    ) -> None:  # fmt: skip
        """Abort a redelivery, so that its messages can be tried again."""
        try:
            await producer._abort(_ABORT_SECONDS)
        except KwireError as failure:
            _log.warning("tracker: the redelivery of %s/%d is not aborted: %s", *self._key, failure)
            await self._failed(producer, error)
            return
        self._counters.failures += 1
        refused = {identity for identity, responses in sent if _is_too_large(responses[-1])}
        if refused - self._unfit:
            self._unfit |= refused
            return  # they become dead letters at once
        self._failures += 1
        seconds = _backoff(self._failures)
        if len(due) == 1:
            self.state.postpone(due[0].identity, round(seconds * 1000))
        else:
            self._retry_at = self._now() + seconds
        self._limit = 1
        _log.warning("tracker: the redelivery of %d messages of %s/%d failed: %s", len(due), *self._key, error)

    def _again(self, entry: InProgress) -> tuple[Message | None, Message, str]:
        """Return the message to be sent, its END, and what it counts as."""
        options = self._options
        headers = entry.headers if options.is_go else redelivery_headers(entry.headers, is_uncounted=entry.is_uncounted)
        reason = self._reason(entry.identity, Envelope.read(headers))
        end = encode_marker(Marker(MarkerType.END, entry.identity), options.marker_format)
        ended = Message(options.marker_topic, end, entry.key if options.is_go else None, partition=self._index)
        if reason is None:
            return Message(options.message_topic, entry.value, entry.key, headers), ended, "redelivered"
        if not options.dead_letters:
            return None, ended, "dropped"
        place = (options.message_topic, entry.identity.partition, entry.identity.offset)
        dead = dead_letter_headers(headers, reason, place)
        return Message(options.dead_letters, entry.value, entry.key, dead), ended, "dead_lettered"

    def _reason(self, identity: Identity, envelope: Envelope) -> str | None:
        """Return why a message is not delivered again; None if it is."""
        limit = self._options.max_deliveries
        if limit is not None and envelope.deliveries >= limit:
            return f"delivered {envelope.deliveries} times"
        if envelope.expires_in and self.state.clock_ms >= envelope.first_at + envelope.expires_in:
            return "expired"
        return "too large for the queue topic" if identity in self._unfit else None

    async def _failed(self, producer: ProducerMethods, error: KwireError) -> None:
        """Open the partition anew, after a while: nobody knows what the last transaction has done."""
        self._counters.failures += 1
        self._failures += 1
        self._retry_at = self._now() + _backoff(self._failures)
        _log.warning("tracker: %s/%d is opened again: %s", *self._key, error)
        with suppress(KwireError):
            self._consumer.pause([self._key])
        self._producer = producer
        await self.close()

    async def commit(self) -> None:
        """Commit where a successor must begin to read. A failure is retried with the next commit."""
        self._committed_at = self._now()
        if self._producer is None or self.state.is_replaying:  # no news, or the position before the first marker
            return
        offset = self.state.commit_offset()
        try:
            await self._consumer._commit({self._key: offset}, timeout=_CALL_SECONDS)
        except KwireError as error:
            _log.warning("tracker: the offset of %s/%d is not committed: %s", *self._key, error)
            return
        self._committed, self._uncommitted = offset, 0
        self._counters.commits += 1

    async def _tick_if_due(self) -> None:
        if self._tick is not None and self._tick.done():
            if self._tick.exception() is None and self._tick.result().offset >= self.state.position:
                return  # stored, and not yet read
            self._tick = None
        is_ready = self._producer is not None and not self.state.is_replaying
        if self._tick is None and is_ready and self._now() >= self.works_at():
            self._ticked_at = self._now()
            self._tick = await self._tracker.tick(self._index)

    async def close(self) -> None:
        """End the producer. A transaction under way is aborted by the successor's, or by the broker."""
        producer, self._producer = self._producer, None
        if producer is not None:
            with suppress(KwireError):
                await producer._close(0)


def _is_too_large(response: ProduceResponse) -> bool:
    error = response.exception() if response.done() else None
    return isinstance(error, RecordTooLargeError) or getattr(error, "code", None) in _TOO_LARGE


__all__ = ["TrackedPartition", "Tracker", "TrackerClient"]
