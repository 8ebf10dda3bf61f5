"""Records that wait to be processed in parallel, in the order that must be kept: by key, by partition, or none.

A shard is a unit of order, as in Confluent's Parallel Consumer: the records of one key of one partition, of one
partition, or one record. Its records are processed one after the other, retries included. Shards take turns, partition
by partition, so that a partition with many records does not starve the others.

    add      waiting -> ready       the shard has records and none of them is running; with `batch_wait` a shard with
                                    fewer records than a batch waits for more, for that long
    take     ready -> running       a worker gets the first record, or the first ones
    succeed  running -> ready       with its next records, or the shard ends
    retry    running -> backing off until the time of the retry; the rest of the shard waits

Every method may be called from any thread; time is an argument.
"""

from __future__ import annotations

import heapq
import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Literal

from kwire.consumer.arguments import TopicPartition
from kwire.consumer.progress import Progress
from kwire.consumer.record import ConsumerRecord

Order = Literal["key", "partition", "none"]


class Shard:
    """Records of one partition that are processed one after the other. `key` is None for a record without order."""

    __slots__ = ("due", "key", "partition", "ready_at", "records")

    def __init__(self, key: Hashable, partition: WorkPartition, record: ConsumerRecord) -> None:
        self.key = key
        self.partition = partition
        self.records: tuple[ConsumerRecord] | deque[ConsumerRecord] = (record,)  # most shards never have another
        self.due: deque[float] | None = None  # with a batch_wait: until when each record may wait for others
        self.ready_at: float | None = None  # while the shard waits for a batch: the time of its first record

    def append(self, record: ConsumerRecord) -> None:
        if isinstance(self.records, tuple):
            self.records = deque(self.records)
        self.records.append(record)

    def drop(self, count: int) -> bool:
        """Remove the first records; return whether there are more."""
        records = self.records
        if isinstance(records, tuple):
            return False
        for _ in range(count):
            records.popleft()
            if self.due is not None:
                self.due.popleft()
        return bool(records)


@dataclass(slots=True, eq=False)
class Work:
    """Records for one call of the user's function: the first ones of their shards."""

    partition: WorkPartition
    shards: Sequence[Shard]
    records: Sequence[ConsumerRecord]
    attempt: int = 1


@dataclass(slots=True, eq=False)
class WorkPartition:
    """A partition whose records are processed. After a rebalance a new object takes its place."""

    key: TopicPartition
    progress: Progress
    shards: dict[Hashable, Shard] = field(default_factory=dict)  # with records, by key
    ready: deque[Shard] = field(default_factory=deque)
    unordered: Shard | None = None  # records without order that wait for a batch
    waiting: int = 0  # records that no worker has
    running: set[Work] = field(default_factory=set)
    is_stopped: bool = False  # no new work; running calls still count
    is_dropped: bool = False  # nor do they


class ShardQueue:
    """The shards of all partitions.

    `batch` is how many records a worker gets at most for one call, `batch_wait` how many seconds a record waits for a
    full batch.
    """

    def __init__(self, order: Order, *, batch: int = 1, batch_wait: float = 0.0) -> None:
        self._order = order
        self._batch = batch
        self._batch_wait = batch_wait if batch > 1 else 0.0
        self._lock = threading.Lock()
        self.has_work = threading.Condition(self._lock)  # notified when shards become ready, while `wakes_workers`
        self.wakes_workers = True
        self._partitions: dict[TopicPartition, WorkPartition] = {}
        self._rotation: deque[WorkPartition] = deque()  # those with ready shards, in turn; each once
        # A heap by time: work that backs off, and shards that wait for a batch.
        self._later: list[tuple[float, int, Work | Shard]] = []
        self._numbers = count()
        # Shards of dropped partitions that still run, by partition and key, and what must wait for their end: no key is
        # ever processed by two calls at once.
        self._abandoned: dict[tuple[TopicPartition, Hashable], int] = {}
        self._blocked: dict[tuple[TopicPartition, Hashable], Shard] = {}
        self.on_ready: Callable[[], object] | None = None  # besides `has_work`; any thread calls it
        self.on_ended: Callable[[], object] | None = None  # a call has ended; any thread calls it
        self.processed_count = 0  # records
        self.ready_count = 0
        self.running_count = 0

    # -- partitions

    def add_partition(self, key: TopicPartition, progress: Progress) -> None:
        with self._lock:
            assert key not in self._partitions
            self._partitions[key] = WorkPartition(key, progress)

    def drop_partition(self, key: TopicPartition) -> None:
        """Forget the records of a partition. What runs goes on, and its result is ignored."""
        with self._lock:
            partition = self._partitions.pop(key, None)
            if partition is None:
                return
            self._stop(partition)
            partition.is_dropped = True
            for work in partition.running:
                for shard in work.shards:
                    if shard.key is not None:
                        identity = key, shard.key
                        self._abandoned[identity] = self._abandoned.get(identity, 0) + 1

    def stop_partition(self, key: TopicPartition) -> None:
        """Give out no more work of a partition. Its running calls still count, until `drop_partition`."""
        with self._lock:
            partition = self._partitions.get(key)
            if partition is not None:
                self._stop(partition)

    def _stop(self, partition: WorkPartition) -> None:
        partition.is_stopped = True
        self.ready_count -= len(partition.ready)
        partition.ready.clear()
        partition.waiting = 0
        if partition in self._rotation:
            self._rotation.remove(partition)
        partition.unordered = None
        self._later = [entry for entry in self._later if entry[2].partition is not partition]
        heapq.heapify(self._later)
        for identity in [one for one, shard in self._blocked.items() if shard.partition is partition]:
            del self._blocked[identity]

    def get(self, key: TopicPartition) -> WorkPartition | None:
        return self._partitions.get(key)

    def partitions(self) -> list[WorkPartition]:
        with self._lock:
            return list(self._partitions.values())

    # -- records

    def add(self, key: TopicPartition, records: Sequence[ConsumerRecord], now: float = 0.0) -> None:
        """Add records of a partition, in the order of their offsets. Those that are complete already are left out."""
        batch_wait, due = self._batch_wait, now + self._batch_wait
        with self._lock:
            partition = self._partitions.get(key)
            if partition is None or partition.is_stopped:
                return
            before = self.ready_count
            order = self._order
            records = partition.progress.begin(records)
            partition.waiting += len(records)
            for record in records:
                shard_key: Hashable = None
                if order == "key":
                    shard_key = record.key
                elif order == "partition":
                    shard_key = True
                if shard_key is None and not batch_wait:
                    self._make_ready(Shard(None, partition, record))
                    continue
                shard = partition.unordered if shard_key is None else partition.shards.get(shard_key)
                if shard is not None:
                    shard.append(record)
                    if shard.due is not None:
                        shard.due.append(due)
                        self._gather(shard, is_new=False)
                    continue
                shard = Shard(shard_key, partition, record)
                if batch_wait:
                    shard.due = deque((due,))
                if shard_key is None:
                    partition.unordered = shard
                else:
                    partition.shards[shard_key] = shard
                if self._abandoned and (key, shard_key) in self._abandoned:
                    self._blocked[key, shard_key] = shard
                elif batch_wait:
                    self._gather(shard, is_new=True)
                else:
                    self._make_ready(shard)
            self._notify(self.ready_count - before)

    def _gather(self, shard: Shard, *, is_new: bool) -> None:
        """Let a shard wait for a full batch, unless it has one. Without `is_new` only if it waits already."""
        if len(shard.records) >= self._batch:
            if is_new or shard.ready_at is not None:
                self._gathered(shard)
        elif is_new:
            assert shard.due is not None
            shard.ready_at = shard.due[0]
            heapq.heappush(self._later, (shard.ready_at, next(self._numbers), shard))
            if self._later[0][2] is shard:
                self._notify(1)  # a worker must wake earlier

    def _gathered(self, shard: Shard) -> None:
        shard.ready_at = None
        if shard.key is None:
            shard.partition.unordered = None
        self._make_ready(shard)

    def _notify(self, count: int) -> None:
        """Wake a worker; one that leaves work to others wakes the next."""
        if count > 0:
            if self.wakes_workers:
                self.has_work.notify()
            if self.on_ready is not None:
                self.on_ready()

    def _make_ready(self, shard: Shard) -> None:
        partition = shard.partition
        if not partition.ready:
            self._rotation.append(partition)
        partition.ready.append(shard)
        self.ready_count += 1

    # -- work

    def take(self, now: float, most: int = 1) -> list[Work]:
        """Return work for a worker, at most `most` calls: retries that are due, then records in turn."""
        with self._lock:
            return self.take_locked(now, most)

    def take_locked(self, now: float, most: int = 1) -> list[Work]:
        """As `take`, for a caller that holds the lock of `has_work`."""
        works: list[Work] = []
        heap, has_waited = self._later, False
        while heap and heap[0][0] <= now and len(works) < most:
            at, _, later = heapq.heappop(heap)
            has_waited = True
            if isinstance(later, Work):
                self._start(later)
                works.append(later)
            elif later.ready_at == at:  # else it got its batch meanwhile
                self._gathered(later)
        rotation, is_batch = self._rotation, self._batch > 1
        while rotation and len(works) < most:
            partition = rotation.popleft()
            ready = partition.ready
            if is_batch:
                work = self._next_batch(partition)
            else:
                shard = ready.popleft()
                self.ready_count -= 1
                work = Work(partition, (shard,), (shard.records[0],))
            if ready:
                rotation.append(partition)
            self._start(work)
            works.append(work)
        if rotation or (heap and heap[0][0] <= now):
            if self.wakes_workers:
                self.has_work.notify()
            if has_waited and self.on_ready is not None:
                self.on_ready()
        return works

    def _start(self, work: Work) -> None:
        work.partition.running.add(work)
        work.partition.waiting -= len(work.records)
        self.running_count += 1

    def _next_batch(self, partition: WorkPartition) -> Work:
        ready = partition.ready
        shard = ready.popleft()
        self.ready_count -= 1
        if shard.key is not None or self._batch_wait:
            size = min(self._batch, len(shard.records))
            return Work(partition, (shard,), [shard.records[at] for at in range(size)])
        shards = [shard]
        while len(shards) < self._batch and ready and ready[0].key is None:
            shards.append(ready.popleft())
            self.ready_count -= 1
        return Work(partition, shards, [one.records[0] for one in shards])

    def succeed(self, works: Sequence[Work]) -> None:
        """Note that calls have succeeded, or that their failure was dealt with: their records are complete."""
        with self._lock:
            self.succeed_locked(works)

    def succeed_locked(self, works: Sequence[Work]) -> None:
        """As `succeed`, for a caller that holds the lock of `has_work`."""
        before = self.ready_count
        for work in works:
            partition = work.partition
            if self._end(work):
                complete = partition.progress.complete
                for record in work.records:
                    complete(record.offset)
                self.processed_count += len(work.records)
                shard = work.shards[0]
                if shard.key is not None and not partition.is_stopped:
                    if not shard.drop(len(work.records)):
                        del partition.shards[shard.key]
                    elif self._batch_wait:
                        self._gather(shard, is_new=True)
                    else:
                        self._make_ready(shard)
        self._notify(self.ready_count - before)

    def retry(self, work: Work, at: float) -> bool:
        """Process the records of a failed call again at that time; return False where they are dropped."""
        with self._lock:
            if not self._end(work) or work.partition.is_stopped:
                return False
            work.partition.waiting += len(work.records)
            work.attempt += 1
            heapq.heappush(self._later, (at, next(self._numbers), work))
            self._notify(1)
            return True

    def fail(self, work: Work) -> None:
        """Note that a call has failed for good: its records stay incomplete."""
        with self._lock:
            self._end(work)

    def put_back(self, works: Sequence[Work]) -> None:
        """Return work that a worker took and did not begin."""
        with self._lock:
            self.put_back_locked(works)

    def put_back_locked(self, works: Sequence[Work]) -> None:
        """As `put_back`, for a caller that holds the lock of `has_work`."""
        for work in works:
            if self._end(work) and not work.partition.is_stopped:
                work.partition.waiting += len(work.records)
                heapq.heappush(self._later, (float("-inf"), next(self._numbers), work))
        self._notify(len(works))

    def _end(self, work: Work) -> bool:
        """Note that a call has ended; return whether its result counts."""
        partition = work.partition
        partition.running.discard(work)
        self.running_count -= 1
        if self.on_ended is not None:
            self.on_ended()
        if not partition.is_dropped:
            return True
        for shard in work.shards:
            if shard.key is None:
                continue
            identity = partition.key, shard.key
            left = self._abandoned.get(identity, 0) - 1
            if left > 0:
                self._abandoned[identity] = left
                continue
            self._abandoned.pop(identity, None)
            blocked = self._blocked.pop(identity, None)
            if blocked is not None:
                self._make_ready(blocked)
                self._notify(1)
        return False

    def is_ready(self, now: float) -> bool:
        """Return whether there is work to take. Without the lock of `has_work` it is approximate."""
        due = self.next_due()
        return self.ready_count > 0 or (due is not None and due <= now)

    def next_due(self) -> float | None:
        """Return when work that waits for a time is due next. Without the lock of `has_work` it is approximate."""
        return self._later[0][0] if self._later else None
