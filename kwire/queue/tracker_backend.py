"""The backend of `kwire.queue` on two topics: a consumer group reads messages, markers say what is in progress.

The order of a batch: read, keep the messages of this queue, write a START for each, wait until all are acknowledged,
commit the position, hand out. Any failure in between goes back to where the read began: nothing is handed out
untracked. A START that was written is no harm then, since the next one for the same message replaces it; to write an
END would be, if the message is another consumer's by now.

A marker goes to the partition that the START of its message went to, even if partitions were added since. Keep-alives
go out every third of the timeout, from the START on, until the message is settled or has been processed for
max_processing_ms. They are sent on the callback thread of the consumer's loop.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from kwire.cluster import ClusterView, LoopThread, PendingRequest
from kwire.cluster.waiting import Waiter, run_blocking
from kwire.consumer import ConsumerRecord, Offset, TopicPartition
from kwire.consumer.group_client import GroupClient
from kwire.errors import DeliveryError, KwireError, LeaseLostError
from kwire.producer import Message as ProducedMessage
from kwire.producer import Producer, ProduceResponse, RecordMetadata
from kwire.producer.accumulator import murmur2_partition
from kwire.producer.methods import ProducerMethods
from kwire.queue.backend import Backend, Delivery
from kwire.queue.dedup import DedupWindow
from kwire.queue.envelope import Envelope, dead_letter_headers, new_id
from kwire.queue.markers import Identity, Marker, MarkerFormat, MarkerType, encode_marker, overhead
from kwire.queue.metrics import ConsumerCounters
from kwire.queue.options import QueueOptions
from kwire.queue.topics import QueueTopics

if TYPE_CHECKING:
    from kwire.queue.service import ServiceClient

_log = logging.getLogger("kwire.queue")

# Neighbours in the queue topic share a partition of the markers topic, and so their markers a batch.
_RUN = 128


def marker_partition(identity: Identity, queue: bytes, count: int, format: MarkerFormat) -> int:
    """Return the partition for a message's markers: by the message, or by the queue as kafka-mq-go has it."""
    if format == "kafka-mq-v1":
        return murmur2_partition(queue, count)
    return (identity.partition + identity.offset // _RUN) % count


class TrackerBackend(Backend):
    has_delay = True

    def __init__(
        self, service: ServiceClient[Any, Any], queue: str, topics: QueueTopics, counters: ConsumerCounters
    ) -> None:
        self._options: QueueOptions = service.options
        self._waiter: Waiter = service.waiter
        self._service = service
        self._queue = queue.encode()
        self._topics = topics
        self._counters = counters
        self._group = self._options.queue_group(queue)
        self._records: GroupClient = service.new_consumer(
            group=self._group,
            commit="manual",
            on_no_offset=self._options.start,
            isolation="read_committed",
            max_poll_interval_ms=None,
        )
        self._markers: Producer = service.markers
        self.new_id = new_id  # a simulation has its own
        self._transactions: ProducerMethods | None = None
        self._is_subscribed = False
        self._foreign = 0  # records of other queues since the last commit
        self._windows: dict[int, DedupWindow] = {}  # by partition, with dedup_window_ms
        self._keep_alives = KeepAlives(self._records_runtime, self._send_keep_alives)
        self._lock = threading.Lock()  # guards is_settled, deadline and handed_out_at of deliveries

    @property
    def _records_runtime(self) -> LoopThread:
        return self._records._runtime

    def now(self) -> float:
        return self._records_runtime.clock.now()

    # -- taking messages

    async def fetch(self, limit: int, timeout: float) -> Sequence[Delivery]:
        if not self._is_subscribed:
            on_assigned = self._read_windows if self._options.dedup_window_ms else None
            # With a callback for it, a member that lost its partitions joins again only between two fetches: a commit
            # in a fetch is refused then, and does not go back over that of the next owner.
            await self._records._subscribe([self._options.message_topic], on_assigned=on_assigned, on_lost=_ignore)
            self._records_runtime.add(self._keep_alives)
            self._is_subscribed = True
        records = await self._records._poll(limit, timeout)
        if not records:
            return []
        own = [record for record in records if record.key == self._queue]
        foreign = len(records) - len(own)
        duplicates = self._counters.deduplicated
        if self._windows:
            own = [record for record in own if self._is_new(record)]
        duplicates = self._counters.deduplicated - duplicates
        largest = self._topics.message_bytes_max
        unmarkable = [one for one in own if len(one.value or b"") + overhead(one.headers) + len(self._queue) > largest]
        self._foreign += foreign
        self._counters.filtered_foreign += foreign
        positions = {(record.topic, record.partition): self._position_after(record) for record in records}
        deliveries: list[Delivery] = []
        try:
            for record in unmarkable:
                own.remove(record)
                await self._refuse(record)
            if own:
                deliveries = await self._start(own, positions)
            elif unmarkable or duplicates or self._foreign >= self._options.consumer_max_messages_per_commit:
                await self._commit(positions)
        except BaseException:
            self._rewind(records)
            raise
        # Their position is committed and their markers are written: a rebalance need not wait for the handlers.
        await self._records._allow_rebalance()
        return await self._held(deliveries)

    def _read_windows(self, partitions: Sequence[TopicPartition]) -> object:
        """Read again what the last window of these partitions has; the consumer's callback for an assignment."""
        return (
            self._find_windows(partitions)
            if self._waiter.shares_thread
            else run_blocking(self._find_windows(partitions))
        )

    async def _find_windows(self, partitions: Sequence[TopicPartition]) -> None:
        since_ms = max(0, self._service.clock.time_ms() - self._options.dedup_window_ms)
        committed = await self._records._committed(partitions)
        found = await self._records._offsets_at([(*key, since_ms) for key in partitions])
        for key in partitions:
            position = committed.get(key)
            until = 0 if position is None else position.offset
            self._windows[key[1]] = DedupWindow(self._options.dedup_window_ms, until)
            first = found.get(key)
            if first is not None and first < until:
                self._records.seek(*key, first)

    def _position_after(self, record: ConsumerRecord) -> Offset:
        """Return the position to commit: none that was committed before, while a window is read again."""
        window = self._windows.get(record.partition)
        return Offset(record.offset + 1 if window is None else max(record.offset + 1, window.known_until))

    def _is_new(self, record: ConsumerRecord) -> bool:
        """Return whether a record is neither read for its id only nor a duplicate."""
        window = self._windows[record.partition]
        envelope = Envelope.read(record.headers)
        if (
            envelope.id
            and not envelope.first_at
            and window.is_duplicate(envelope.id, record.offset, record.timestamp_ms)
        ):
            self._counters.deduplicated += record.offset >= window.known_until
            return False
        return record.offset >= window.known_until

    async def _start(
        self, records: Sequence[ConsumerRecord], positions: dict[TopicPartition, Offset]
    ) -> list[Delivery]:
        began = self.now()
        deliveries = [self._delivery(record, began) for record in records]
        markers = [self._start_marker(one) for one in deliveries]
        if self._options.transactional:
            results = await self._start_in_transaction(deliveries, markers, positions)
        else:
            results = await self._stored(
                [self._send(one, marker) for one, marker in zip(deliveries, markers, strict=True)]
            )
            await self._commit(positions)
        for one, result in zip(deliveries, results, strict=True):
            one.waited_ms = max(0, result.timestamp_ms - one.timestamp_ms)
            one.timestamp_ms = max(one.timestamp_ms, result.timestamp_ms)  # the broker's time, now
        return deliveries

    async def _refuse(self, record: ConsumerRecord) -> None:
        """Make a message a dead letter that no marker could hold: it would be read for ever."""
        _log.error("queue %s: message at %d/%d is too large to be marked", self._group, record.partition, record.offset)
        self._counters.dead_lettered += 1
        if self._options.dead_letters:
            place = (record.topic, record.partition, record.offset)
            headers = dead_letter_headers(record.headers, "too large for the markers topic", place)
            dead = ProducedMessage(self._options.dead_letters, record.value, self._queue, headers)
            await self._stored(await self._service.deliver([dead]))

    def _delivery(self, record: ConsumerRecord, now: float) -> Delivery:
        envelope = Envelope.read(record.headers)
        envelope.first_at = envelope.first_at or max(0, record.timestamp_ms)
        if not envelope.id:  # sent by another program
            envelope.id = f"{record.topic}-{record.partition}-{record.offset}"
        identity = Identity(self._topics.message_topic_id, record.partition, record.offset)
        timeout_ms = envelope.timeout or self._options.redelivery_timeout_ms
        count, format = self._topics.marker_partitions, self._options.marker_format
        return Delivery(
            record.value,
            envelope.headers(),
            envelope,
            identity,
            record.timestamp_ms,
            timeout_ms,
            now + timeout_ms / 1000,
            marker_partition(identity, self._queue, count, format),
        )

    def _start_marker(self, delivery: Delivery) -> Marker:
        delay, appended = delivery.envelope.delay, delivery.timestamp_ms
        return Marker(
            MarkerType.START,
            delivery.identity,
            delay or delivery.timeout_ms,
            self._queue,
            delivery.payload,
            delivery.headers,
            is_uncounted=bool(delay),
            not_before_ms=appended + delay if delay else 0,
        )

    async def _start_in_transaction(
        self, deliveries: Sequence[Delivery], markers: Sequence[Marker], positions: dict[TopicPartition, Offset]
    ) -> list[RecordMetadata]:
        """Write markers and commit the position at once: a crash in between leaves neither (Q62)."""
        producer = self._transactions
        if producer is None:
            producer = self._service.new_producer(transactional_id=f"{self._group}-{self.new_id()}", linger_ms=0)
            self._transactions = producer
        try:
            await producer._begin()
            responses = await producer._send_all(
                [
                    ProducedMessage(
                        self._options.marker_topic,
                        encode_marker(marker, self._options.marker_format),
                        self._marker_key(),
                        partition=one.marker_partition,
                    )
                    for one, marker in zip(deliveries, markers, strict=True)
                ]
            )
            offsets = {key: position.offset for key, position in positions.items()}
            await producer._send_offsets(offsets, self._records.group_metadata())
            await producer._commit()
        except BaseException as error:
            self._transactions = None  # a new one fences it, whatever became of the transaction
            with suppress(KwireError):
                await producer._abort_after(error, 5.0)
            with suppress(KwireError):
                await producer._close(1.0)
            raise
        self._count(MarkerType.START, len(markers))
        self._counters.commits += 1
        self._foreign = 0
        return await self._stored(responses)

    async def _commit(self, positions: dict[TopicPartition, Offset]) -> None:
        try:
            await self._records._commit(positions)
        except KwireError:
            self._counters.commit_failures += 1
            raise
        self._counters.commits += 1
        self._foreign = 0

    def _rewind(self, records: Iterable[ConsumerRecord]) -> None:
        """Read these records again, those of partitions that are still assigned."""
        self._counters.resets += 1
        first: dict[TopicPartition, int] = {}
        for record in records:
            first.setdefault((record.topic, record.partition), record.offset)
        assigned = set(self._records.assignment())
        for (topic, partition), offset in first.items():
            if (topic, partition) in assigned:
                with suppress(KwireError):
                    self._records.seek(topic, partition, offset)

    async def _held(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Return the messages to hand out: the others wait for their time, or their time is over."""
        held = []
        for one in deliveries:
            envelope, now_ms = one.envelope, one.timestamp_ms
            if envelope.delay:
                self._counters.delayed += 1
                continue
            if envelope.expires_in and now_ms >= envelope.first_at + envelope.expires_in:
                self._counters.expired += 1
                try:
                    await self.dead_letter(one, "expired")
                except KwireError as error:  # the tracker will see to it
                    _log.warning("queue %s: an expired message is no dead letter yet: %s", self._group, error)
                continue
            held.append(one)
            if self._options.keep_alive:
                self._keep_alives.add(one)
        return held

    # -- markers

    def _marker_key(self) -> bytes | None:
        return self._queue if self._options.is_go else None

    def _count(self, kind: MarkerType, count: int = 1) -> None:
        sent = self._counters.markers_sent
        sent[kind.name.lower()] = sent.get(kind.name.lower(), 0) + count

    def _send(self, delivery: Delivery, marker: Marker) -> ProduceResponse:
        self._count(MarkerType(marker.type))
        return self._markers.send(
            self._options.marker_topic,
            encode_marker(marker, self._options.marker_format),
            self._marker_key(),
            None,
            delivery.marker_partition,
        )

    def _send_and_watch(self, delivery: Delivery, marker: Marker) -> None:
        def stored(response: ProduceResponse) -> None:
            error = response.exception()
            if error is not None:
                self._counters.marker_failures += 1
                _log.warning(
                    "queue %s: a marker was not stored, so that message %s is delivered again: %s",
                    self._group, delivery.envelope.id, error,
                )  # fmt: skip

        self._send(delivery, marker).add_done_callback(stored)

    async def _stored(self, responses: Sequence[ProduceResponse]) -> list[RecordMetadata]:
        """Wait for these markers. Raises the first error, once all have a result."""
        errors: list[KwireError] = []
        results: list[RecordMetadata] = []
        for response in responses:
            await self._service.settled(response)
            error = response.exception()
            if error is None:
                results.append(response.result())
            else:
                errors.append(error)
        if errors:
            self._counters.marker_failures += len(errors)
            raise errors[0]
        return results

    def _send_keep_alives(self, deliveries: Sequence[Delivery]) -> None:
        """Send a keep-alive for each that is still in progress; on the callback thread."""
        for one in deliveries:
            with self._lock:
                now = self.now()
                started = one.handed_out_at
                limit_ms = self._options.max_processing_ms
                is_hung = started is not None and now - started > limit_ms / 1000
                if one.is_settled or is_hung or now > one.deadline:
                    continue
            marker = Marker(MarkerType.KEEP_ALIVE, one.identity, one.timeout_ms)
            try:
                response = self._send(one, marker)
            except KwireError as error:
                self._counters.marker_failures += 1
                _log.warning("queue %s: a keep-alive was not sent: %s", self._group, error)
            else:
                response.add_done_callback(partial(self._extended, one, now))
            self._keep_alives.add(one)

    def _extended(self, delivery: Delivery, since: float, response: ProduceResponse) -> None:
        if response.exception() is not None:
            self._counters.marker_failures += 1
            return
        with self._lock:
            delivery.deadline = max(delivery.deadline, since + delivery.timeout_ms / 1000)

    # -- settling

    def _end_lease(self, delivery: Delivery) -> None:
        """Stop the keep-alives. Raises LeaseLostError if the deadline is over: the message is another's."""
        with self._lock:
            is_lost = self.now() > delivery.deadline
            delivery.is_settled = True
        if is_lost:
            self._counters.lease_lost += 1
            raise LeaseLostError(
                f"the lease of message {delivery.envelope.id} is over: it is delivered again",
                remedy="process it in less time than redelivery_timeout_ms, extend it, or raise max_processing_ms",
                topic=self._options.message_topic, partition=delivery.identity.partition,
                offset=delivery.identity.offset,
            )  # fmt: skip

    async def ack(self, delivery: Delivery) -> None:
        self._end_lease(delivery)
        self._send_and_watch(delivery, Marker(MarkerType.END, delivery.identity))
        self._counters.acked += 1

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        if self._options.dead_letters:
            with self._lock:
                is_lost = self.now() > delivery.deadline
            if not is_lost:
                place = (self._options.message_topic, delivery.identity.partition, delivery.identity.offset)
                headers = dead_letter_headers(delivery.headers, reason, place)
                dead = ProducedMessage(self._options.dead_letters, delivery.payload, self._queue, headers)
                await self._stored(await self._service.deliver([dead]))
        self._end_lease(delivery)
        self._counters.dead_lettered += 1
        self._send_and_watch(delivery, Marker(MarkerType.END, delivery.identity))

    async def release(self, delivery: Delivery, delay_ms: int, *, is_counted: bool) -> None:
        self._end_lease(delivery)
        marker = Marker(MarkerType.RELEASE, delivery.identity, delay_ms, is_uncounted=not is_counted)
        self._send_and_watch(delivery, marker)
        self._counters.released += 1

    async def extend(self, delivery: Delivery, timeout_ms: int) -> None:
        with self._lock:
            now = self.now()
            if now > delivery.deadline:
                raise LeaseLostError(
                    f"the lease of message {delivery.envelope.id} is over: it is delivered again",
                    remedy="extend it earlier, or raise redelivery_timeout_ms",
                )
        response = self._send(delivery, Marker(MarkerType.KEEP_ALIVE, delivery.identity, timeout_ms))
        await self._stored([response])
        with self._lock:
            delivery.deadline, delivery.timeout_ms = now + timeout_ms / 1000, max(delivery.timeout_ms, timeout_ms)
        self._counters.extended += 1

    # -- the end

    async def flush(self, timeout: float | None) -> None:
        signal = self._waiter.signal()
        if self._markers._core.is_started:
            self._markers._core.flush(signal.set)
            await signal.wait(timeout)

    async def close(self, timeout: float | None) -> None:
        self._keep_alives.stop()
        try:
            await self.flush(timeout)
        except DeliveryError as error:
            _log.warning("queue %s: markers were not stored: %s", self._group, error)
        finally:
            if self._transactions is not None:
                await self._transactions._close(timeout)
            await self._records._close(timeout)


def _ignore(partitions: object) -> None:
    pass


class KeepAlives:
    """A state machine of the loop that says when keep-alives are due, a third of the timeout apart.

    `send` gets the deliveries that are due, on the callback thread, and adds those again that go on.
    """

    def __init__(self, runtime: LoopThread, send: Callable[[Sequence[Delivery]], object]) -> None:
        self._runtime = runtime
        self._send = send
        self._lock = threading.Lock()
        self._heap: list[tuple[float, int, Delivery]] = []
        self._numbers = itertools.count()
        self._is_stopped = False

    def add(self, delivery: Delivery) -> None:
        """Have a keep-alive sent for this delivery after a third of its timeout."""
        due = self._runtime.clock.now() + delivery.timeout_ms / 3000
        with self._lock:
            is_first = not self._heap or due < self._heap[0][0]
            heappush(self._heap, (due, next(self._numbers), delivery))
        if is_first:
            self._runtime.wakeup()

    def stop(self) -> None:
        """Send no more."""
        with self._lock:
            self._is_stopped = True
            self._heap.clear()

    def turn(self, now: float, view: ClusterView) -> Iterable[PendingRequest]:
        due = []
        with self._lock:
            while self._heap and (self._heap[0][2].is_settled or self._heap[0][0] <= now):
                due.append(heappop(self._heap)[2])
        due = [one for one in due if not one.is_settled]
        if due and not self._is_stopped:
            self._runtime.dispatch(self._send, due)
        return ()

    def deadline(self) -> float | None:
        with self._lock:
            return self._heap[0][0] if self._heap else None

    def topics(self) -> Collection[str]:
        return ()

    def closed(self, error: KwireError) -> None:
        self.stop()


__all__ = ["KeepAlives", "TrackerBackend", "marker_partition"]
