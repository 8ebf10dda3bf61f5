"""`consumer.process(function)`: records processed in parallel, in order by key or partition, and committed in order.

    polling thread or task   Processor.run: polls, adds records to the ShardQueue, pauses partitions that have enough,
                             and takes part in rebalances
    workers                  threads, tasks or processes: call the function (`workers`)
    loop thread              commits: the consumer takes `Processor.processed` in place of what was polled

The model is Confluent's Parallel Consumer for Java. Commits remember in its format (`offset_map`) which records above
the committed offset were processed.
"""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

from kwire.cluster import Backoff
from kwire.cluster.config import INT32_MAX, MS
from kwire.cluster.waiting import blocking
from kwire.consumer.arguments import TopicPartition
from kwire.consumer.dead_letters import DeadLetterTopic
from kwire.consumer.offset_map import UnreadableOffsetMap, decode_offset_map, encode_offset_map
from kwire.consumer.offsets import Offset
from kwire.consumer.parallel import (
    FUNCTION,
    IDLE_POLL_SECONDS,
    POLL_SECONDS,
    SECONDS,
    WAITING_PER_WORKER,
    CallKwargs,
    CallOptions,
    ParallelCalls,
    ProcessorMetrics,
    always,
    check_call,
    has_processor,
    partition_of,
)
from kwire.consumer.progress import PartitionProgress
from kwire.consumer.rebalance import RebalanceStep
from kwire.consumer.record import ConsumerRecord
from kwire.consumer.shards import Order, ShardQueue, WorkPartition
from kwire.consumer.workers import Handling
from kwire.errors import ConfigurationError, KwireError
from kwire.option_checks import Choice, Flag, Where, Whole, option

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from kwire.consumer.group_client import GroupClient

_log = logging.getLogger("kwire.consumer")

P = TypeVar("P", bound="ParallelProcessor")

_POLL_RECORDS = 2_000
# Brokers refuse longer metadata by default (offset.metadata.max.bytes); above the share no more records are taken.
_METADATA_MAX = 4_096
_METADATA_SHARE = 0.75
# What waits per partition at least, for few workers.
_WAITING_MIN = 100


class ProcessorKwargs(CallKwargs, total=False):
    """The keywords of `Consumer.process`."""

    order: Order
    batch: int
    batch_wait_ms: int
    backoff: Backoff
    dead_letters: Callable[[ConsumerRecord, BaseException], Any] | None
    max_ahead: int
    remember_gaps: bool


_BACKOFF = Where("a kwire.Backoff", lambda value: isinstance(value, Backoff))


@dataclass(frozen=True)
class ProcessorOptions(CallOptions):
    """The options of `Consumer.process`."""

    order: Order = option(
        "key", Choice("key", "partition", "none"), "which records are processed one after the other: those of a key in "
        "a partition, those of a partition, or none; records without a key have no order"
    )  # fmt: skip
    batch: int = option(
        1, Whole(1), "above 1 the function gets a list of at most this many records, of one key or partition where "
        "these have an order"
    )  # fmt: skip
    batch_wait_ms: int = option(
        0, Whole(0, INT32_MAX), "how long a record may wait until there are enough for a full batch; 0: the function "
        "gets what there is", unit=MS
    )  # fmt: skip
    retries: int | None = option(None, Whole(0), "how often a record is tried again; None: until it succeeds")
    backoff: Backoff = option(Backoff(1_000, 60_000), _BACKOFF, "the pauses before retries; they double")
    retry_if: Callable[[BaseException], bool] = option(
        always, FUNCTION, "a function of the error; False: no retry can mend it"
    )
    dead_letters: Callable[[ConsumerRecord, BaseException], Any] | None = option(
        None, FUNCTION, "gets a record whose retries are used up, and its error: see `to_topic`; None: `run` raises "
        "ProcessingError"
    )  # fmt: skip
    max_ahead: int = option(
        10_000, Whole(1), "how many offsets of a partition may be taken beyond the first that is not complete"
    )
    remember_gaps: bool = option(
        True, Flag(), "commit which records above the committed offset are complete, so that they do not run again "
        "after a restart"
    )  # fmt: skip
    drain: float = option(
        10.0, SECONDS, "how long, in seconds, a rebalance and the end wait for calls that run; half of the poll "
        "interval at most"
    )  # fmt: skip


class ParallelProcessor(ParallelCalls[ConsumerRecord]):
    """What both faces of a processor share. `run` polls; every other method may be called from any thread."""

    def __init__(
        self,
        consumer: GroupClient,
        function: Callable[[Any], Any],
        options: ProcessorOptions,
        loop: AbstractEventLoop | None,
    ) -> None:
        self._consumer = consumer
        self._options = options
        self._lock = threading.Lock()  # guards what `processed` reads on the loop thread; taken before the queue's
        self._remembered: dict[TopicPartition, Offset] = {}  # committed, of partitions without records yet
        self._progress: dict[TopicPartition, PartitionProgress] = {}
        self._committed: dict[TopicPartition, Offset] = {}
        self._is_starved = False
        self._waiting_max = max(_WAITING_MIN, WAITING_PER_WORKER * options.concurrency * options.batch)
        self._paused: set[TopicPartition] = set()
        self._full_metadata: set[TopicPartition] = set()
        if isinstance(options.dead_letters, DeadLetterTopic):
            options.dead_letters.open(consumer._config, consumer._options.group or "")
        handling = Handling(
            function, options.batch, options.retries, options.backoff, options.retry_if,
            options.dead_letters, options.timeout,
        )  # fmt: skip
        queue = ShardQueue(options.order, batch=options.batch, batch_wait=options.batch_wait_ms / 1000)
        super().__init__(consumer, queue, handling, options, drain=options.drain, loop=loop, on_idle=self._starved)

    # -- any thread

    def metrics(self) -> ProcessorMetrics:
        """Return what was done, and what waits."""
        return replace(super().metrics(), paused=tuple(sorted(self._paused)))

    def _starved(self) -> None:
        """Have the polling thread resume partitions: a worker has nothing to do."""
        if not self._is_starved:
            self._is_starved = True
            if self._paused:
                self._wake()

    # -- the polling thread or task

    async def _begin_run(self) -> None:
        """Remember what was committed of partitions that were assigned before `process` was called."""
        partitions = self._consumer.assignment()
        if partitions:
            await self._remember(partitions)

    async def _poll(self) -> Sequence[ConsumerRecord]:
        return await self._consumer._poll(
            _POLL_RECORDS, POLL_SECONDS if self._paused or self._queue.running_count else IDLE_POLL_SECONDS
        )

    def _add(self, records: Sequence[ConsumerRecord]) -> None:
        for key, group in groupby(records, key=partition_of):
            of_partition = list(group)
            known = self._queue.get(key)
            if known is not None and of_partition[0].offset < self._progress[key].next_offset:
                self.dropped([key])  # the program has sought back
                known = None
            if known is None:
                self._begin(key, of_partition[0].offset)
            with self._lock:
                self._queue.add(key, of_partition, self._clock.now())
        self._read_to_positions()
        self._pause_and_resume()

    def _begin(self, key: TopicPartition, first: int) -> None:
        """Begin with a partition at its first record, after what the last commit remembered."""
        with self._lock:
            committed = self._remembered.pop(key, None)
            base = first
            ranges: Sequence[range] = ()
            if committed is not None and committed.metadata and committed.offset <= first:
                found = decode_offset_map(committed.offset, committed.metadata)
                if isinstance(found, UnreadableOffsetMap):
                    _log.warning("%s-%d: %s; records from offset %d are processed", *key, found.reason, first)
                else:
                    base, ranges = committed.offset, found
            progress = self._progress[key] = PartitionProgress(base, ranges)
            self._queue.add_partition(key, progress)

    def _read_to_positions(self) -> None:
        """Count what the log lacks between the last record and the position as complete."""
        for partition in self._queue.partitions():
            position = self._consumer._position_of(partition.key)
            if position is not None:
                with self._lock:
                    self._progress[partition.key].read_to(position)

    def _pause_and_resume(self) -> None:
        """Let partitions with enough waiting records wait, each for itself."""
        if self._is_starved:
            self._is_starved = False
            if self._paused:
                self._waiting_max = min(2 * self._waiting_max, self._options.max_ahead)
        full, free = [], []
        for partition in self._queue.partitions():
            is_paused = partition.key in self._paused
            if not is_paused and self._is_full(partition, self._waiting_max):
                full.append(partition.key)
            elif is_paused and not self._is_full(partition, self._waiting_max // 2):
                free.append(partition.key)
        owned = set(self._consumer.assignment())
        if full:
            self._paused.update(full)
            self._consumer.pause([key for key in full if key in owned])
        if free:
            self._paused.difference_update(free)
            self._consumer.resume([key for key in free if key in owned])

    def _is_full(self, partition: WorkPartition, waiting_max: int) -> bool:
        with self._queue.has_work:
            ahead = self._progress[partition.key].ahead
        return (
            partition.waiting >= max(1, waiting_max)
            or ahead >= self._options.max_ahead
            or partition.key in self._full_metadata
        )

    # -- commits: for the consumer, also on the loop thread

    def to_commit(self) -> dict[TopicPartition, Offset]:
        """Return what was processed since it was last committed: offsets, with what is complete above as metadata."""
        committed = self._committed
        return {key: offset for key, offset in self.processed().items() if committed.get(key) != offset}

    def committed(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Take note of what the coordinator has."""
        self._committed.update(offsets)

    def processed(self) -> dict[TopicPartition, Offset]:
        """Return up to where each partition is processed."""
        found: dict[TopicPartition, Offset] = {}
        for partition in self._queue.partitions():
            # Workers complete records under the lock of the queue.
            with self._lock, self._queue.has_work:
                progress = self._progress.get(partition.key)
                if progress is None:  # dropped just now
                    continue
                base = progress.base
                ranges = progress.complete_ranges() if self._options.remember_gaps else []
            found[partition.key] = Offset(base, None, self._metadata(partition.key, base, ranges))
        return found

    def _metadata(self, key: TopicPartition, base: int, ranges: Sequence[range]) -> str:
        if not ranges:
            self._full_metadata.discard(key)
            return ""
        encoded = encode_offset_map(base, ranges)
        if len(encoded) > _METADATA_SHARE * _METADATA_MAX:
            self._full_metadata.add(key)
        else:
            self._full_metadata.discard(key)
        return encoded if len(encoded) <= _METADATA_MAX else ""

    # -- rebalances: for the consumer, in the polling thread or task

    async def take_step(self, step: RebalanceStep) -> None:
        """Take part in a rebalance, after the user's callback."""
        if step.kind == "prepare":
            await self._revoking(step.partitions)
        elif step.kind == "assign" and step.partitions:
            await self._remember(step.partitions)

    async def _remember(self, partitions: Collection[TopicPartition]) -> None:
        """Look up which records above the committed offsets are complete, before any of them is polled."""
        if not self._options.remember_gaps:
            return
        try:
            committed = await self._consumer._committed(partitions)
        except KwireError as error:
            _log.warning("what was processed above the committed offsets is not known, and runs again: %s", error)
            return
        positions = {key: self._consumer._position_of(key) for key in committed}
        with self._lock:
            for key, offset in committed.items():
                # A program that has sought to another offset wants all records from there.
                if offset is not None and positions[key] in (None, offset.offset):
                    self._remembered[key] = offset

    async def _revoking(self, partitions: Sequence[TopicPartition]) -> None:
        """Begin no more work of partitions, and wait for calls that run, for the drain time at most."""
        for key in partitions:
            self._queue.stop_partition(key)
        if self._is_stopping:
            return  # `_finish` has waited
        interval_ms = self._consumer._options.max_poll_interval_ms
        half = float("inf") if interval_ms is None else interval_ms / 2000
        wanted = [partition for key in partitions if (partition := self._queue.get(key)) is not None]
        await self._drained(wanted, lambda: min(half, self._options.drain))

    def dropped(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions. Calls that still run are abandoned: their results are ignored."""
        for key in partitions:
            self._queue.drop_partition(key)
            self._paused.discard(key)
            self._full_metadata.discard(key)
            with self._lock:
                self._remembered.pop(key, None)
                self._committed.pop(key, None)
                self._progress.pop(key, None)

    async def _end(self) -> None:
        try:
            await super()._end()
        finally:
            if isinstance(self._options.dead_letters, DeadLetterTopic):
                self._options.dead_letters.close()


def make_processor(
    kind: type[P],
    consumer: GroupClient,
    function: Callable[[Any], Any],
    options: ProcessorKwargs,
    loop: AbstractEventLoop | None,
) -> P:
    """Return a consumer's processor. Raises ConfigurationError for a consumer without a group, or that has one."""
    check_call("Consumer.process", function, options, ProcessorOptions)
    if inspect.iscoroutinefunction(options.get("dead_letters")) and not inspect.iscoroutinefunction(function):
        raise ConfigurationError("threads cannot wait for dead_letters, a coroutine function",
                                 remedy="give a plain one, or process by a coroutine function")  # fmt: skip
    commit = consumer._options.commit
    if consumer._options.group is None:
        raise ConfigurationError("this consumer has no group", remedy='Consumer(bootstrap, group="billing")')
    if commit == "manual":
        raise ConfigurationError('a processor commits by itself, and this consumer has commit="manual"',
                                 remedy='give commit="marks"')  # fmt: skip
    if consumer._processor is not None:
        raise has_processor()
    processor = kind(consumer, function, ProcessorOptions(**options), loop)
    consumer._processor = processor
    return processor


class Processor(ParallelProcessor):
    """Processes the records of a `kwire.Consumer` in parallel: see `Consumer.process`."""

    run = blocking(ParallelProcessor._run)
