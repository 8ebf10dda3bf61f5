"""Records that wait to be processed in parallel, in the order that must be kept: by key, by partition, or none.

A shard is a unit of order, as in Confluent's Parallel Consumer: the records of one key of one partition, of one
partition, or one record. Its records are processed one after the other, retries included. Shards take turns, partition
by partition, so that a partition with many records does not starve the others.

    add      waiting -> ready       the shard has records and none of them is running
    take     ready -> running       a worker gets the first record, or the first ones
    succeed  running -> ready       with its next records, or the shard ends
    retry    running -> backing off until the time of the retry; the rest of the shard waits

Every method may be called from any thread; time is an argument.
"""

from __future__ import annotations

import heapq
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Literal

from kwire.consumer.arguments import TopicPartition
from kwire.consumer.progress import Progress
from kwire.consumer.record import ConsumerRecord

Order = Literal["key", "partition", "none"]


class Shard:
    """Records of one partition that are processed one after the other. `key` is None for a record without order."""

    __slots__ = ("key", "partition", "records")

    def __init__(self, key: Hashable, partition: WorkPartition, records: deque[ConsumerRecord]) -> None:
        self.key = key
        self.partition = partition
        self.records = records


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
    waiting: int = 0  # records that no worker has
    running: set[Work] = field(default_factory=set)
    is_stopped: bool = False  # no new work; running calls still count
    is_dropped: bool = False  # nor do they


class ShardQueue:
    """The shards of all partitions. `batch` is how many records a worker gets at most for one call."""

    def __init__(self, order: Order, *, batch: int = 1) -> None:
        self._order = order
        self._batch = batch
        self._lock = threading.Lock()
        self.has_work = threading.Condition(self._lock)  # notified when shards become ready
        self._partitions: dict[TopicPartition, WorkPartition] = {}
        self._rotation: deque[WorkPartition] = deque()  # those with ready shards, in turn; each once
        self._backing_off: list[tuple[float, int, Work]] = []  # a heap by time
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
        self._backing_off = [entry for entry in self._backing_off if entry[2].partition is not partition]
        heapq.heapify(self._backing_off)
        for identity in [one for one, shard in self._blocked.items() if shard.partition is partition]:
            del self._blocked[identity]

    def get(self, key: TopicPartition) -> WorkPartition | None:
        return self._partitions.get(key)

    def partitions(self) -> list[WorkPartition]:
        with self._lock:
            return list(self._partitions.values())

    # -- records

    def add(self, key: TopicPartition, records: Iterable[ConsumerRecord]) -> None:
        """Add records of a partition, in the order of their offsets. Those that are complete already are left out."""
        with self._lock:
            partition = self._partitions.get(key)
            if partition is None or partition.is_stopped:
                return
            before = self.ready_count
            begin, order = partition.progress.begin, self._order
            for record in records:
                if not begin(record.offset):
                    continue
                partition.waiting += 1
                shard_key: Hashable = None
                if order == "key":
                    shard_key = record.key
                elif order == "partition":
                    shard_key = True
                if shard_key is None:
                    self._make_ready(Shard(None, partition, deque((record,))))
                    continue
                shard = partition.shards.get(shard_key)
                if shard is not None:
                    shard.records.append(record)
                    continue
                shard = partition.shards[shard_key] = Shard(shard_key, partition, deque((record,)))
                if self._abandoned and (key, shard_key) in self._abandoned:
                    self._blocked[key, shard_key] = shard
                else:
                    self._make_ready(shard)
            self._notify(self.ready_count - before)

    def _notify(self, count: int) -> None:
        if count > 0:
            self.has_work.notify(count)
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
        heap = self._backing_off
        while heap and heap[0][0] <= now and len(works) < most:
            work = heapq.heappop(heap)[2]
            self._start(work)
            works.append(work)
        rotation = self._rotation
        while rotation and len(works) < most:
            partition = rotation.popleft()
            work = self._next(partition)
            if partition.ready:
                rotation.append(partition)
            self._start(work)
            works.append(work)
        return works

    def _start(self, work: Work) -> None:
        work.partition.running.add(work)
        work.partition.waiting -= len(work.records)
        self.running_count += 1

    def _next(self, partition: WorkPartition) -> Work:
        ready = partition.ready
        shard = ready.popleft()
        self.ready_count -= 1
        if self._batch == 1:
            return Work(partition, (shard,), (shard.records[0],))
        if shard.key is not None:
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
                        records = shard.records
                        for _ in work.records:
                            records.popleft()
                        if not records:
                            del partition.shards[shard.key]
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
            heapq.heappush(self._backing_off, (at, next(self._numbers), work))
            self._notify(1)
            return True

    def fail(self, work: Work) -> None:
        """Note that a call has failed for good: its records stay incomplete."""
        with self._lock:
            self._end(work)

    def put_back(self, works: Sequence[Work]) -> None:
        """Return work that a worker took and did not begin."""
        with self._lock:
            for work in works:
                if self._end(work) and not work.partition.is_stopped:
                    work.partition.waiting += len(work.records)
                    heapq.heappush(self._backing_off, (float("-inf"), next(self._numbers), work))

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

    def next_retry(self) -> float | None:
        """Return the time of the next retry. Without the lock of `has_work` it is approximate."""
        return self._backing_off[0][0] if self._backing_off else None
