"""The backend of `kwire.queue` on two topics: a consumer group reads messages, markers say what is in progress.

The order of a batch: read, keep the messages of this queue, write a START for each, wait until all are acknowledged,
commit the position, hand out. A failure before all STARTs are stored goes back to where the read began: nothing is
handed out untracked. If the commit fails, the next fetch commits again, and marks nothing again: with each new START
one more lease could end, and leave one more copy of the message. It forgets messages that are another consumer's by
then, and those whose lease is over. A commit that a rebalance refuses is no error for the caller. If another consumer
reads a message again, an old START does no harm, since the new START replaces it; an END would.

A marker goes to the partition that the START of its message went to, even if partitions were added since. Keep-alives
go out every third of the timeout, from the START on, until the message is settled or has been processed for
max_processing_ms. They are sent on the callback thread of the consumer's loop.

If a program hangs, others get its messages: what has waited in the buffer for max_processing_ms goes back, not counted
as delivered, and a member that makes no progress for that time and a lease leaves the group until it reads again.
"""

from __future__ import annotations

import itertools
import logging
import threading
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from heapq import heapify, heappop, heappush
from math import ceil, inf
from operator import attrgetter, lt
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kwire.cluster import ClusterView, LoopThread, PendingRequest
from kwire.cluster.waiting import BLOCKING, Waiter, run_blocking
from kwire.consumer import ConsumerRecord, Offset, TopicPartition
from kwire.consumer.group_client import GroupClient
from kwire.consumer.offsets import list_offsets_timestamp
from kwire.consumer.rebalance import RebalanceListener
from kwire.errors import (
    AbortableError,
    BrokerError,
    CommitError,
    CommitFailedError,
    ErrorCode,
    KwireError,
    LeaseLostError,
    RebalanceInProgressError,
)
from kwire.producer import BulkResponse, BulkResult, Producer
from kwire.producer import Message as ProducedMessage
from kwire.producer.accumulator import murmur2_partition
from kwire.producer.methods import ProducerMethods
from kwire.queue.backend import Backend, Delivery, Lease, new_deliveries, record_envelope
from kwire.queue.dedup import DedupWindow
from kwire.queue.envelope import Envelope, dead_letter_headers, new_id
from kwire.queue.markers import Marker, MarkerType, encode_ends, encode_marker, encode_starts, overhead
from kwire.queue.metrics import ConsumerCounters
from kwire.queue.options import TIME_MAX_MS, QueueOptions, Start
from kwire.queue.topics import QueueTopics

if TYPE_CHECKING:
    from kwire.queue.service import ServiceClient

_log = logging.getLogger("kwire.queue")

# How long a consumer looks where it begins. With a window of ids: how far back, for the time of the last record.
_LOOK_SECONDS, _LOOK_BACK = 5.0, 10
# So many neighbours in the queue topic share a partition of the markers topic, and so their markers a batch.
_RUN = 128
# So many settled deliveries may wait in KeepAlives to be forgotten, beside as many as are in progress.
_SWEEP_MIN = 2_000
_KEY, _PARTITION, _OFFSET = attrgetter("key"), attrgetter("partition"), attrgetter("offset")
_RECORD, _LEASE = attrgetter("record"), attrgetter("lease")
_NONE: list[bytes | None] = [None]
_REBALANCE_CODES = frozenset(
    {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_MEMBER_EPOCH,
    }
)


def _topic_id_bytes(topic_id: UUID) -> bytes:
    return topic_id.bytes if topic_id.int else b""


def _is_rebalance(error: BaseException | None) -> bool:
    """Return whether a position is not committed because the group rebalances: a poll goes on with it."""
    match error:
        case AbortableError():
            return _is_rebalance(error.__cause__)
        case CommitError():
            return all(map(_is_rebalance, error.failed.values()))
        case BrokerError():
            return error.code in _REBALANCE_CODES
        case _:
            return isinstance(error, RebalanceInProgressError | CommitFailedError)


@dataclass(frozen=True, slots=True)
class _Marked:
    """Messages of a read whose STARTs are stored, while their position is not committed."""

    deliveries: Sequence[Delivery]
    positions: dict[TopicPartition, Offset]

    def without(self, lost: Collection[TopicPartition]) -> _Marked | None:
        """Return what is left without these partitions; None if nothing is."""
        if not lost:
            return self
        positions = {key: position for key, position in self.positions.items() if key not in lost}
        deliveries = [one for one in self.deliveries if (one.record.topic, one.record.partition) not in lost]
        return _Marked(deliveries, positions) if positions else None


class TrackerBackend(Backend):
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
            max_poll_interval_ms=self._options.poll_interval_ms,
        )
        self._markers: Producer = service.markers
        self.now = self._records_runtime.clock.now
        self.new_id, self.run = new_id, _RUN  # a simulation has its own
        self._transactions: ProducerMethods | None = None
        self._transactional_id = ""
        self._marker_bytes_max = topics.message_bytes_max
        self._again: dict[TopicPartition, int] = {}  # where to read again after a failure
        self._marked: _Marked | None = None
        self._logs: dict[int, tuple[UUID, int]] = {}  # by partition: the topic's id, the offset after the last record
        self._is_subscribed = False
        self._not_taken_over: set[TopicPartition] = set()  # assigned; `_take_over` has not come to its end
        self._take_back: Callable[[Delivery], bool] = lambda _: False
        self._foreign = 0  # records of other queues since the last commit
        self._windows: dict[int, DedupWindow] = {}  # by partition, with dedup_window_ms
        self._keep_alives = KeepAlives(self._records_runtime, self._send_keep_alives)
        # What is to be sent. Threads append without a lock, then look whether the callback thread knows of it.
        self._acked: deque[Delivery] = deque()
        self._last_markers: deque[tuple[Marker, Delivery]] = deque()
        self._is_sending = False
        self._sending_lock = threading.Lock()  # nobody sees them gone before they are appended

    @property
    def _records_runtime(self) -> LoopThread:
        return self._records._runtime

    def watch(self, progress: Callable[[], object], take_back: Callable[[Delivery], bool]) -> None:
        self._records._own_progress, self._take_back = progress, take_back

    # -- taking messages

    async def fetch(self, limit: int, timeout: float) -> Sequence[Delivery]:
        if not self._is_subscribed:
            # With callbacks, a member that lost its partitions joins again only between two fetches: a commit
            # in a fetch is refused then, and does not go back over that of the next owner. A rebalance that gives this
            # member nothing needs no callback: it would wait for the handlers, and hold up those that get partitions.
            listener = RebalanceListener(self._assigned, on_lost=_ignore, has_empty=False)
            await self._records._subscribe([self._options.message_topic], listener=listener)
            self._records_runtime.add(self._keep_alives)
            self._is_subscribed = True
        if self._marked is not None and self._is_still_assigned(self._marked):
            return await self._commit_again(self._marked, timeout)
        if self._not_taken_over:  # a broker failed, or the task was cancelled
            self._not_taken_over.intersection_update(self._records.assignment())
            await self._waiter.shielded(self._take_over(tuple(self._not_taken_over)))
        if self._again:
            await self._rewind()
        records = await self._records._poll(limit, timeout)
        if not records:
            return []
        queue = self._queue
        own = list(itertools.compress(records, map(queue.__eq__, map(_KEY, records))))
        foreign = len(records) - len(own)
        duplicates = self._counters.deduplicated
        if self._windows:
            own = [record for record in own if self._is_new(record)]
        duplicates = self._counters.deduplicated - duplicates
        self._foreign += foreign
        self._counters.filtered_foreign += foreign
        positions = self._positions_after(records)
        deliveries: list[Delivery] = []
        try:
            if own:
                deliveries = await self._start(own, positions)
            elif duplicates or self._foreign >= self._options.consumer_max_messages_per_commit:
                await self._commit(positions)
        except BaseException as error:
            self._counters.resets += 1
            if self._marked is None:
                for record in records:
                    self._again.setdefault((record.topic, record.partition), record.offset)
            if not _is_rebalance(error):
                raise
            _log.info("queue %s: %d messages wait for the group's rebalance: %s", self._group, len(own), error)
            return []
        return await self._hand_out(deliveries)

    def _is_still_assigned(self, marked: _Marked) -> bool:
        """Forget the marked messages of partitions that were lost, and return whether others are left."""
        self._marked = marked.without(marked.positions.keys() - self._records.assignment())
        return self._marked is not None

    async def _commit_again(self, marked: _Marked, timeout: float) -> list[Delivery]:
        """Commit the position of messages that are marked, and return those whose lease is not over."""
        try:
            await self._commit(marked.positions)
        except KwireError as error:
            if not _is_rebalance(error):
                raise
            await self._records._allow_rebalance()
            pause = self._records_runtime.config.retry_backoff_ms / 1000
            await self._waiter.signal().wait(min(timeout, pause))
            return []
        self._marked, now = None, self.now()
        kept = [one for one in marked.deliveries if now <= one.lease.deadline]
        over = len(marked.deliveries) - len(kept)
        if over:
            self._counters.lease_lost += over
            _log.warning(
                "queue %s: %d messages were committed after their lease: they are delivered again", self._group, over
            )
        return await self._hand_out(kept)

    async def _hand_out(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        # Their position is committed and their markers are written: a rebalance need not wait for the handlers.
        await self._records._allow_rebalance()
        return await self._held(deliveries)

    def _assigned(self, partitions: Sequence[TopicPartition]) -> object:
        """Begin anew with these partitions; the consumer's callback for an assignment."""
        for key in partitions:
            self._logs.pop(key[1], None)
            self._again.pop(key, None)
            if self._marked is not None:
                self._marked = self._marked.without({key})
        self._not_taken_over.update(partitions)
        taken = self._take_over(partitions)
        return run_blocking(taken) if self._waiter is BLOCKING else taken

    async def _take_over(self, partitions: Collection[TopicPartition]) -> None:
        """Begin where the group is; where it has no position, give it one before anything is read."""
        if not partitions:
            return
        topic = self._options.message_topic
        known = self._records_runtime.snapshot.topics.get(topic)
        others = [] if known is None else [(topic, index) for index in range(len(known.partitions))]
        committed: Mapping[TopicPartition, Offset | None] | None = None
        try:
            committed = await self._records._committed({*partitions, *others}, _LOOK_SECONDS)
            await self._begin(partitions, committed)
        except KwireError as error:
            if committed is None and self._options.dedup_window_ms:  # without its window it took duplicates for new
                raise
            # The first read finds the place then, and commits it with its messages.
            _log.warning("queue %s: where it begins is not committed yet: %s", self._group, error)
        if committed is not None and self._options.dedup_window_ms:
            await self._find_windows(partitions, committed)
        self._not_taken_over.difference_update(partitions)

    async def _begin(
        self, partitions: Collection[TopicPartition], committed: Mapping[TopicPartition, Offset | None]
    ) -> None:
        """Commit where partitions begin that have no position, so that a consumer that reads nothing keeps the place.

        With start="latest" the next one would begin behind all that was sent meanwhile (F18). A partition that was
        added to a queue with positions begins at its first message, whatever `start` says: all its messages are new.
        """
        new = [key for key in partitions if committed.get(key) is None]
        if not new:
            return
        is_added = any(committed.values()) and not self._options.is_go
        start: Start = "earliest" if is_added else self._options.start
        for key in new:
            self._records.seek(*key, start)
        offsets = await self._offsets_of(start, new)
        await self._records._commit({key: Offset(offset) for key, offset in offsets.items()}, timeout=_LOOK_SECONDS)
        for key, offset in offsets.items():
            self._records.seek(*key, offset)
        places = ", ".join(f"partition {index} at {offset}" for (_, index), offset in sorted(offsets.items()))
        _log.info("queue %s: has no position, and begins at %s: %s", self._group, start, places)

    async def _offsets_of(self, start: Start, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        if start == "earliest":
            return await self._records._beginning_offsets(partitions, _LOOK_SECONDS)
        ends = await self._records._end_offsets(partitions, _LOOK_SECONDS)
        if start == "latest":
            return ends
        at_ms = list_offsets_timestamp(start, self._records_runtime.clock.time_ms())
        found = await self._records._offsets_at([(*key, at_ms) for key in partitions], _LOOK_SECONDS)
        return {key: ends[key] if offset is None else offset for key, offset in found.items()}

    async def _find_windows(
        self, partitions: Collection[TopicPartition], committed: Mapping[TopicPartition, Offset | None]
    ) -> None:
        """Read again what the last window of these partitions has, before the next record that is new."""
        positions = {key: committed.get(key) for key in partitions}
        until = {key: 0 if position is None else position.offset for key, position in positions.items()}
        window_ms = self._options.dedup_window_ms
        times = await self._times_before({key: offset for key, offset in until.items() if offset})
        found = await self._records._offsets_at([(*key, max(0, at_ms - window_ms)) for key, at_ms in times.items()])
        for key in partitions:
            self._windows[key[1]] = DedupWindow(window_ms, until[key])
            first = found.get(key)
            if first is not None and first < until[key]:
                self._records.seek(*key, first)

    async def _times_before(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return when the last record before each position was stored, by the broker's clock.

        Where none was found in time it is 0: then everything that is there is read again.
        """
        times = dict.fromkeys(positions, 0)
        if not positions:
            return times
        reader = self._service.new_consumer(isolation="read_uncommitted")
        try:
            first, ends = await reader._beginning_offsets(positions), await reader._end_offsets(positions)
            # The last offset before a position may be the end of a transaction, which is no record: look further back.
            begins = {key: max(first[key], offset - _LOOK_BACK) for key, offset in positions.items()}
            left = {key for key, at in begins.items() if at < min(positions[key], ends[key])}
            reader.assign([(*key, begins[key]) for key in left], ends={key: positions[key] for key in left})
            deadline = self.now() + _LOOK_SECONDS
            while left and self.now() < deadline:
                for record in await reader._poll(timeout=0.2):
                    if record.offset < positions[record.topic, record.partition]:
                        times[record.topic, record.partition] = record.timestamp_ms
                left = {key for key in left if (reader._position_of(key) or 0) < positions[key]}
        finally:
            with suppress(KwireError):
                await reader._close(1.0)
        return times

    def _positions_after(self, records: Sequence[ConsumerRecord]) -> dict[TopicPartition, Offset]:
        """Return the positions to commit: none that was committed before, while a window is read again."""
        last = dict(zip(map(_PARTITION, records), map(_OFFSET, records), strict=True))  # of each partition the last
        positions = {}
        for partition, offset in last.items():
            window = self._windows.get(partition)
            position = offset + 1 if window is None else max(offset + 1, window.known_until)
            positions[self._options.message_topic, partition] = Offset(position)
        return positions

    def _is_new(self, record: ConsumerRecord) -> bool:
        """Return False for a duplicate, and for a record that is read only for its id."""
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
        deliveries: list[Delivery] = []
        values: list[bytes] = []
        for topic_id, run in self._runs(records):
            self._mark(topic_id, run, began, deliveries, values)
        leases = [(lease, sum(1 for _ in group)) for lease, group in itertools.groupby(map(_LEASE, deliveries))]
        if len(deliveries) < len(records):
            await self._refuse_unmarkable(records, deliveries)
            if not deliveries:
                await self._commit(positions)
                return deliveries
        partitions: list[int] = []
        for lease, count in leases:
            partitions += [lease.marker_partition] * count
        if self._options.transactional:
            result = await self._start_in_transaction(values, partitions, positions)
        else:
            self._count(MarkerType.START, len(values))
            result = await self._stored(self._send_markers(values, partitions))
        appended_ms, last = result.timestamps_ms, -1
        for lease, count in leases:
            last += count
            lease.appended_ms = appended_ms[last]  # the broker's time, now
        if not self._options.transactional:
            self._marked = _Marked(deliveries, positions)
            await self._commit(positions)
            self._marked = None
        return deliveries

    def _runs(self, records: Sequence[ConsumerRecord]) -> list[tuple[UUID, list[ConsumerRecord]]]:
        """Return the records in runs, each of one partition of one topic; the order stays."""
        runs: list[tuple[UUID, list[ConsumerRecord]]] = []
        for partition, group in itertools.groupby(records, key=_PARTITION):
            of_partition = list(group)
            for run in _rising(of_partition):
                topic_id = self._topic_id(run[0])
                self._logs[partition] = topic_id, run[-1].offset + 1
                runs.append((topic_id, run))
        return runs

    def _mark(
        self, topic_id: UUID, run: list[ConsumerRecord], began: float, deliveries: list[Delivery], values: list[bytes]
    ) -> None:
        """Append the delivery of each of these records, and its START; none for a record that no marker can hold."""
        options, queue, count = self._options, self._queue, self._topics.marker_partitions
        timeout_ms, format, bytes_max = options.redelivery_timeout_ms, options.marker_format, self._marker_bytes_max
        starts: Sequence[bytes | None] = _NONE * len(run)
        if not options.is_go:
            starts = encode_starts(run, queue, _topic_id_bytes(topic_id), timeout_ms, bytes_max)
        deadline, partition, run_length = began + timeout_ms / 1000, run[0].partition, self.run
        own_partition = murmur2_partition(queue, count)  # where kafka-mq-go has all markers of a queue
        offsets, first = list(map(_OFFSET, run)), 0
        while first < len(run):
            number = offsets[first] // run_length
            after = bisect_left(offsets, (number + 1) * run_length, first)
            place = own_partition if options.is_go else (partition + number) % count
            lease = Lease(topic_id, timeout_ms, deadline, began, place)
            some = starts[first:after]
            if None not in some:
                deliveries += new_deliveries(Delivery, run[first:after], lease)
                values += some  # type: ignore[arg-type]
                first = after
                continue
            for record, start in zip(run[first:after], some, strict=True):
                if start is not None:
                    deliveries.append(Delivery(record, lease))
                    values.append(start)
                elif len(record.value or b"") + overhead(record.headers) + len(queue) <= bytes_max:
                    envelope = record_envelope(record)
                    own_ms = envelope.timeout or timeout_ms
                    own = Lease(topic_id, own_ms, began + own_ms / 1000, began, place)
                    one = Delivery(record, own, envelope)
                    deliveries.append(one)
                    values.append(encode_marker(self._start_marker(one), format))
            first = after

    async def _refuse_unmarkable(self, records: Sequence[ConsumerRecord], deliveries: Sequence[Delivery]) -> None:
        """Make dead letters of the records that have no delivery."""
        marked = {(one.record.partition, one.record.offset) for one in deliveries}
        for record in records:
            if (record.partition, record.offset) not in marked:
                await self._refuse(record)

    async def _refuse(self, record: ConsumerRecord) -> None:
        """Make a dead letter of a message that no marker can hold: it would be read for ever."""
        _log.error("queue %s: message at %d/%d is too large to be marked", self._group, record.partition, record.offset)
        self._counters.dead_lettered += 1
        if self._options.dead_letters:
            place = (record.topic, record.partition, record.offset)
            headers = dead_letter_headers(record.headers, "too large for the markers topic", place)
            dead = ProducedMessage(self._options.dead_letters, record.value, self._queue, headers)
            await self._delivered(dead)

    def _topic_id(self, record: ConsumerRecord) -> UUID:
        """Return the id of the topic that a record is of: one of this name may have been deleted and created again.

        Records that go on from the last one are of the same topic; else it is the one that metadata know now.
        """
        known = self._logs.get(record.partition)
        if known is not None and record.offset >= known[1]:
            return known[0]
        topic = self._records_runtime.snapshot.topics.get(record.topic)
        return self._topics.message_topic_id if topic is None else topic.id

    def _start_marker(self, delivery: Delivery) -> Marker:
        delay, appended = delivery.envelope.delay, delivery.record.timestamp_ms
        return Marker(
            MarkerType.START,
            delivery.identity,
            delay or delivery.lease.timeout_ms,
            self._queue,
            delivery.payload,
            delivery.headers,
            is_uncounted=bool(delay),
            not_before_ms=appended + delay if delay else 0,
        )

    async def _start_in_transaction(
        self, values: Sequence[bytes], partitions: Sequence[int], positions: dict[TopicPartition, Offset]
    ) -> BulkResult:
        """Write markers and commit the position at once: a crash in between leaves neither (Q62)."""
        producer, began = await self._transactional_producer(), self.now()
        try:
            await producer._begin()
            response = await producer._send_many(
                self._options.marker_topic, values, self._marker_keys(len(values)), partitions=partitions
            )
            offsets = {key: position.offset for key, position in positions.items()}
            await producer._send_offsets(offsets, self._records.group_metadata())
            await producer._commit()
        except BaseException as error:
            self._transactions = None  # a new one ends the transaction, whatever became of it
            with suppress(KwireError):
                await producer._abort_after(error, 5.0)
            with suppress(KwireError):
                await producer._close(1.0)
            raise
        self._count(MarkerType.START, len(values))
        self._counters.commit_time.observe(self.now() - began)
        self._counters.commits += 1
        self._foreign = 0
        return await self._stored(response)

    async def _commit(self, positions: dict[TopicPartition, Offset]) -> None:
        began = self.now()
        try:
            await self._records._commit(positions)
        except KwireError:
            self._counters.commit_failures += 1
            raise
        self._counters.commit_time.observe(self.now() - began)
        self._counters.commits += 1
        self._foreign = 0

    async def _rewind(self) -> None:
        """Go back to where the last read began, of partitions that are still assigned.

        The last transaction may have been committed without a response: then its messages are marked, and their leases
        may even be over. So a new producer ends it, and the group's position decides.
        """
        assigned = set(self._records.assignment())
        targets = {key: offset for key, offset in self._again.items() if key in assigned}
        if self._options.transactional and targets:
            await self._transactional_producer()
            committed = await self._records._committed(list(targets))
            for key, position in committed.items():
                if position is not None:
                    targets[key] = max(targets[key], position.offset)
        for key, offset in targets.items():
            with suppress(KwireError):  # it is no longer assigned
                self._records.seek(*key, offset)
        self._again.clear()

    async def _transactional_producer(self) -> ProducerMethods:
        """Return the producer of transactions; a new one has ended the last transaction of the one before."""
        if self._transactions is None:
            self._transactional_id = self._transactional_id or f"{self._group}-{self.new_id()}"
            producer = self._service.new_producer(transactional_id=self._transactional_id, linger_ms=0)
            try:
                await producer._init_transactions()
            except BaseException:
                with suppress(KwireError):
                    await producer._close(1.0)
                raise
            self._transactions = producer
        return self._transactions

    async def _held(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Return the messages to hand out: the others wait for their time, or their time is over."""
        kept = set()
        for one in [one for one in deliveries if not one.is_plain]:
            envelope, now_ms = one.envelope, max(one.record.timestamp_ms, one.lease.appended_ms)
            if envelope.delay:
                self._counters.delayed += 1
                kept.add(one)
            elif envelope.expires_in and now_ms >= envelope.first_at + envelope.expires_in:
                kept.add(one)
                await self.expire(one)
            elif envelope.expires_in:
                envelope.expires_at = self.now() + (envelope.first_at + envelope.expires_in - now_ms) / 1000
        held = [one for one in deliveries if one not in kept] if kept else list(deliveries)
        if self._options.keep_alive:
            self._keep_alives.add(held)
        return held

    # -- markers

    def _marker_keys(self, count: int) -> list[bytes] | None:
        return [self._queue] * count if self._options.is_go else None

    def _count(self, kind: MarkerType, count: int = 1) -> None:
        sent = self._counters.markers_sent
        name = kind.name.lower()
        sent[name] = sent.get(name, 0) + count

    def _send_markers(self, values: Sequence[bytes], partitions: Sequence[int]) -> BulkResponse:
        return self._markers.send_many(
            self._options.marker_topic, values, self._marker_keys(len(values)), partitions=partitions
        )

    def _send(self, delivery: Delivery, marker: Marker) -> BulkResponse:
        self._count(MarkerType(marker.type))
        return self._send_markers(
            [encode_marker(marker, self._options.marker_format)], [delivery.lease.marker_partition]
        )

    def _settle(self, delivery: Delivery, marker: Marker) -> None:
        """Have the last marker of a message sent, together with those of others."""
        self._last_markers.append((marker, delivery))
        self._send_soon()

    def _send_soon(self) -> None:
        if not self._is_sending:
            self._is_sending = True
            self._records_runtime.dispatch(self._send_last_markers)

    def _send_last_markers(self) -> None:
        """Send the last markers of the messages that were settled meanwhile; on the callback thread, or in `flush`."""
        with self._sending_lock:
            self._is_sending = False  # before they are taken: who appends later calls again
            acked = [self._acked.popleft() for _ in range(len(self._acked))]
            last = [self._last_markers.popleft() for _ in range(len(self._last_markers))]
            if not acked and not last:
                return
            deliveries, values = self._ends(acked)
            deliveries += [delivery for _, delivery in last]
            values += [encode_marker(marker, self._options.marker_format) for marker, _ in last]
            if acked:
                self._count(MarkerType.END, len(acked))
            for kind, count in Counter(marker.type for marker, _ in last).items():
                self._count(MarkerType(kind), count)
            try:
                response = self._send_markers(values, [one.lease.marker_partition for one in deliveries])
            except KwireError as error:
                self._failed(deliveries, error)
                return

        def stored(response: BulkResponse) -> None:
            for index, error in response.errors:
                self._failed([deliveries[index]], error)

        response.add_done_callback(stored)

    def _ends(self, acked: list[Delivery]) -> tuple[list[Delivery], list[bytes]]:
        """Return these deliveries by topic, and their ENDs in the same order."""
        if self._options.is_go:
            ends = [encode_marker(Marker(MarkerType.END, one.identity), "kafka-mq-v1") for one in acked]
            return acked, ends
        topic_ids = {lease.topic_id for lease in set(map(_LEASE, acked))}
        deliveries: list[Delivery] = []
        values: list[bytes] = []
        for topic_id in topic_ids:
            some = acked if len(topic_ids) == 1 else [one for one in acked if one.lease.topic_id == topic_id]
            deliveries += some
            values += encode_ends(list(map(_RECORD, some)), _topic_id_bytes(topic_id))
        return deliveries, values

    def _failed(self, deliveries: Sequence[Delivery], error: KwireError) -> None:
        self._counters.marker_failures += len(deliveries)
        for delivery in deliveries:
            _log.warning(
                "queue %s: a marker was not stored, so that message %s is delivered again: %s",
                self._group, delivery.envelope.id, error,
            )  # fmt: skip

    async def _stored(self, response: BulkResponse) -> BulkResult:
        """Wait for these markers. Raises the error of the first that failed, once all have a result."""
        if not response.done():
            signal = self._waiter.signal()
            response.add_done_callback(lambda _: signal.set())
            await signal.wait()
        result = response.settled()
        if result.failures:
            self._counters.marker_failures += result.failures
            raise result.errors[0][1]
        return result

    async def _delivered(self, message: ProducedMessage) -> None:
        (response,) = await self._service.deliver([message])
        await self._service.stored(response)

    def _send_keep_alives(self, deliveries: Sequence[Delivery]) -> None:
        """Send a keep-alive for each that is still in progress, within its time; on the callback thread."""
        now, limit = self.now(), self._options.max_processing_ms / 1000
        alive, taken_back = [], []
        for one in deliveries:
            if one.is_settled or now > one.lease.deadline:
                continue
            since = one.lease.leased_at if one.handed_out_at is None else one.handed_out_at
            if now - since <= limit:
                alive.append(one)
            elif one.handed_out_at is None:
                if self._take_back(one):
                    taken_back.append(one)
                else:
                    alive.append(one)
            else:  # its lease ends, while the lease of its neighbours goes on
                one.lease = one.lease.copy()
        if taken_back:
            self._give_back(taken_back)
        if not alive:
            return
        format = self._options.marker_format
        values = [
            encode_marker(Marker(MarkerType.KEEP_ALIVE, one.identity, one.lease.timeout_ms), format) for one in alive
        ]
        self._count(MarkerType.KEEP_ALIVE, len(alive))
        try:
            response = self._send_markers(values, [one.lease.marker_partition for one in alive])
        except KwireError as error:
            self._counters.marker_failures += len(alive)
            _log.warning("queue %s: %d keep-alives were not sent: %s", self._group, len(alive), error)
        else:
            response.add_done_callback(partial(self._extended, alive, now))
        self._keep_alives.add(alive)

    def _give_back(self, deliveries: Sequence[Delivery]) -> None:
        """Give back messages that nobody has got; they do not count as delivered."""
        _log.warning(
            "queue %s: %d messages waited in the buffer for longer than max_processing_ms, and go back: does a handler "
            "hang?", self._group, len(deliveries),
        )  # fmt: skip
        for one in deliveries:
            one.is_settled = True
            self._settle(one, Marker(MarkerType.RELEASE, one.identity, is_uncounted=True))
        self._counters.released += len(deliveries)

    def _extended(self, deliveries: Sequence[Delivery], since: float, response: BulkResponse) -> None:
        failed = {index for index, _ in response.errors}
        self._counters.marker_failures += len(failed)
        now = self.now()
        # A lease goes on if all keep-alives of its messages were stored.
        for lease in set(map(_LEASE, deliveries)) - {deliveries[index].lease for index in failed}:
            # One that was stored after the deadline may have come too late for the tracker.
            if now <= lease.deadline:
                lease.deadline = max(lease.deadline, since + lease.timeout_ms / 1000)

    # -- settling

    def _end_lease(self, delivery: Delivery, now: float) -> None:
        """Stop the keep-alives. Raises LeaseLostError if the deadline is over: the message is another's."""
        delivery.is_settled = True
        if now > delivery.lease.deadline:
            self._counters.lease_lost += 1
            remedy = "process it in less time than redelivery_timeout_ms, extend it, or raise max_processing_ms"
            raise self._lease_lost(delivery, remedy)

    def _lease_lost(self, delivery: Delivery, remedy: str) -> LeaseLostError:
        return LeaseLostError(
            f"the lease of message {delivery.envelope.id} is over: it is delivered again",
            remedy=remedy, topic=self._options.message_topic, partition=delivery.identity.partition,
            offset=delivery.identity.offset,
        )  # fmt: skip

    def ack(self, delivery: Delivery, now: float) -> None:
        if now > delivery.lease.deadline:
            self._end_lease(delivery, now)
        delivery.is_settled = True
        self._acked.append(delivery)
        if not self._is_sending:
            self._send_soon()

    def ack_many(self, deliveries: Sequence[Delivery], now: float) -> dict[Delivery, KwireError]:
        if any(now > lease.deadline for lease in set(map(_LEASE, deliveries))):
            return super().ack_many(deliveries, now)
        for delivery in deliveries:
            delivery.is_settled = True
        self._acked.extend(deliveries)
        self._send_soon()
        return {}

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        if self._options.dead_letters and self.now() <= delivery.lease.deadline:
            place = (self._options.message_topic, delivery.identity.partition, delivery.identity.offset)
            headers = dead_letter_headers(delivery.headers, reason, place, delivery.deliveries_made)
            dead = ProducedMessage(self._options.dead_letters, delivery.payload, self._queue, headers)
            await self._delivered(dead)
        self._end_lease(delivery, self.now())
        self._counters.dead_lettered += 1
        self._settle(delivery, Marker(MarkerType.END, delivery.identity))

    async def expire(self, delivery: Delivery) -> None:
        try:
            await self.dead_letter(delivery, "expired")
        except KwireError as error:
            delivery.is_settled = True  # no keep-alive goes out any more: the tracker will see to it
            _log.warning("queue %s: an expired message is no dead letter yet: %s", self._group, error)
        self._counters.expired += 1

    def _kept_ms(self, delivery: Delivery) -> int:
        """Return for how long the markers topic still keeps the START of a message."""
        retention_ms = self._topics.marker_retention_ms
        if retention_ms < 0:
            return TIME_MAX_MS
        return max(0, retention_ms - ceil((self.now() - delivery.lease.leased_at) * 1000))

    def _check_time(self, delivery: Delivery, ms: int) -> None:
        """Raise ValueError for a time after which no tracker may know the message any more."""
        kept_ms = self._kept_ms(delivery)
        if ms > kept_ms:
            raise ValueError(
                f"{ms} ms are longer than the markers topic keeps message {delivery.envelope.id} ({kept_ms} ms more): "
                "give a shorter time, or raise retention.ms of the markers topic"
            )

    async def release(self, delivery: Delivery, delay_ms: int | None, *, is_counted: bool) -> None:
        if delay_ms is None:
            delay_ms = min(self._options.backoff(delivery.envelope.deliveries + 1), self._kept_ms(delivery))
        else:
            self._check_time(delivery, delay_ms)
        self._end_lease(delivery, self.now())
        marker = Marker(MarkerType.RELEASE, delivery.identity, delay_ms, is_uncounted=not is_counted)
        self._settle(delivery, marker)
        self._counters.released += 1

    async def extend(self, delivery: Delivery, timeout_ms: int) -> None:
        now = self.now()
        self._check_lease(delivery)
        self._check_time(delivery, timeout_ms)
        timeout_ms = max(timeout_ms, ceil((delivery.lease.deadline - now) * 1000))  # it never gets shorter
        await self._stored(self._send(delivery, Marker(MarkerType.KEEP_ALIVE, delivery.identity, timeout_ms)))
        self._check_lease(delivery)  # what is stored after the deadline may come too late for the tracker
        lease = delivery.lease.copy()
        lease.deadline, lease.timeout_ms = now + timeout_ms / 1000, max(lease.timeout_ms, timeout_ms)
        delivery.lease = lease
        self._counters.extended += 1

    def _check_lease(self, delivery: Delivery) -> None:
        if self.now() > delivery.lease.deadline:
            raise self._lease_lost(delivery, "extend it earlier, or raise redelivery_timeout_ms")

    # -- the end

    async def flush(self, timeout: float | None) -> None:
        self._send_last_markers()
        signal, core = self._waiter.signal(), self._markers._core
        if core.is_started:
            core.flush(signal.set)
            if not await signal.wait(timeout):
                raise await self._waiter.on_loop_or_after(core.runtime, partial(core.timeout_error, "flush()", timeout))

    async def close(self, timeout: float | None) -> None:
        self._keep_alives.stop()
        try:
            await self.flush(timeout)
        except KwireError as error:
            _log.warning("queue %s: markers were not stored: %s", self._group, error)
        finally:
            if self._transactions is not None:
                await self._transactions._close(timeout)
            await self._records._close(timeout)


def _rising(records: list[ConsumerRecord]) -> Iterator[list[ConsumerRecord]]:
    """Yield the records in runs with rising offsets: where they begin anew, another topic of that name begins."""
    offsets = list(map(_OFFSET, records))
    if all(map(lt, offsets, itertools.islice(offsets, 1, None))):
        yield records
        return
    falls = [at for at in range(1, len(offsets)) if offsets[at] <= offsets[at - 1]]
    for first, after in itertools.pairwise([0, *falls, len(records)]):
        yield records[first:after]


def _ignore(partitions: object) -> None:
    pass


class KeepAlives:
    """A state machine of the loop that says when keep-alives are due, a third of the timeout apart.

    `send` gets the deliveries that are due, on the callback thread, and adds those again that go on. Settled ones are
    forgotten then, or once they are most of all.
    """

    def __init__(self, runtime: LoopThread, send: Callable[[Sequence[Delivery]], object]) -> None:
        self._runtime = runtime
        self._send = send
        self._lock = threading.Lock()
        self._heap: list[tuple[float, int, list[Delivery]]] = []
        self._held = 0
        self._held_max = _SWEEP_MIN
        self._numbers = itertools.count()
        self._is_stopped = False

    def add(self, deliveries: Sequence[Delivery]) -> None:
        """Have a keep-alive sent for each of these after a third of its timeout."""
        timeouts = {lease.timeout_ms for lease in set(map(_LEASE, deliveries))}
        by_timeout: dict[int, list[Delivery]] = {}
        for timeout_ms in timeouts:
            same = (
                [one for one in deliveries if one.lease.timeout_ms == timeout_ms] if len(timeouts) > 1 else deliveries
            )
            by_timeout[timeout_ms] = list(same)
        now = self._runtime.clock.now()
        with self._lock:
            first = self._heap[0][0] if self._heap else inf
            for timeout_ms, some in by_timeout.items():
                heappush(self._heap, (now + timeout_ms / 3000, next(self._numbers), some))
            self._held += len(deliveries)
            if self._held > self._held_max:
                self._sweep()
            is_first = bool(self._heap) and self._heap[0][0] < first
        if is_first:
            self._runtime.wakeup()

    def _sweep(self) -> None:
        """Forget what is settled: it would keep its payload in memory until its time."""
        kept = [(due, number, [one for one in some if not one.is_settled]) for due, number, some in self._heap]
        self._heap = [entry for entry in kept if entry[2]]
        heapify(self._heap)
        self._held = sum(len(some) for _, _, some in self._heap)
        self._held_max = 2 * self._held + _SWEEP_MIN

    def stop(self) -> None:
        """Send no more."""
        with self._lock:
            self._is_stopped = True
            self._heap.clear()

    def turn(self, now: float, view: ClusterView) -> Iterable[PendingRequest]:
        due: list[Delivery] = []
        with self._lock:
            while self._heap and self._heap[0][0] <= now:
                some = heappop(self._heap)[2]
                self._held -= len(some)
                due += (one for one in some if not one.is_settled)
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


__all__ = ["KeepAlives", "TrackerBackend"]
