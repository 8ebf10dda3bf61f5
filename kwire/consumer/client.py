"""What `kwire.Consumer` and `kwire.aio.Consumer` share: all but the way in which they wait.

Public methods here never wait. Those that wait are coroutines with a leading underscore, over the `Waiter` of the face
(`kwire.cluster.waiting`), and each face gives them their public names.

The `Fetcher` on the loop thread fetches ahead into the `FetchBuffer`. The consumer sorts the fetches into a
`PartitionBuffer` per assigned partition and decodes them on the caller's thread. One lock guards those buffers. The
loop thread never takes it, and nobody waits while holding it. Commands go to the loop under that lock, so they arrive
in order.
"""

from __future__ import annotations

import itertools
import threading
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn, TypeVar

from kwire.arguments import check_timeout, no_attribute
from kwire.cluster import Backoff, ClientConfig, Cluster, StateMachine, open_loop_thread
from kwire.cluster.dropped import Remains, weakly
from kwire.cluster.telemetry import ClientTelemetry, Reading, TelemetryMethods
from kwire.cluster.waiting import Waiter
from kwire.consumer.arguments import (
    ELSEWHERE,
    TopicPartition,
    check_count,
    checked_ends,
    checked_partition,
    checked_partitions,
    checked_starts,
    checked_times,
    no_offset,
)
from kwire.consumer.buffer import ClientError, CompletedFetch, FetchBuffer, PartitionBuffer
from kwire.consumer.columns import PolledBatch, check_columns, check_pyarrow
from kwire.consumer.fetcher import Fetcher, Start
from kwire.consumer.interceptors import ConsumerInterceptors
from kwire.consumer.offsets import (
    NO_OFFSET,
    AtTimestamp,
    FetchStart,
    FoundOffset,
    OffsetFetcher,
    OffsetsQuery,
    PartitionsQuery,
    SpecialOffset,
    StartOffset,
    is_start_offset,
    known_offset,
)
from kwire.consumer.options import CLIENT_DEFAULTS, ConsumerOptions
from kwire.consumer.rebalance import RebalanceStep
from kwire.consumer.record import ConsumerRecord
from kwire.errors import ClosedError, ConfigurationError, KwireError, RequestTimeoutError, WakeupError
from kwire.option_checks import check_names
from kwire.protocol.messages.list_offsets import EARLIEST, LATEST

if TYPE_CHECKING:
    import pyarrow as pa

    from kwire.cluster import ClusterEvent
    from kwire.cluster.thread import LoopThread
    from kwire.consumer.commits import CommitManager
    from kwire.records.reader import RecordReader, RecordSlice

# A poll ends after this many bytes, decompressed: so its records are still in the processor's cache when they are read,
# and the next poll can reuse the memory.
_POLL_BYTES = 4 * 1024 * 1024
# The longest wait in seconds without a check: a missed wake-up would cause a delay, not a hang.
_WAIT_MAX = 1.0
# How long a task keeps the thread that it shares with others, if it never has to wait.
_TURN_SECONDS = 0.005
# A buffer that records were taken from, with the position before, and the leader epoch of the records.
SeekTarget = datetime | timedelta | Literal["earliest", "latest"]
HandedOut = tuple[PartitionBuffer, int, int | None]
# Seconds that a query may take beyond its timeout: the loop thread always gives a result.
GRACE_SECONDS = 5.0

T = TypeVar("T")


class ConsumerClient(TelemetryMethods):
    """The methods of both faces. `_waiter` is how the face waits, or the thread that ends the consumer's cluster."""

    _waiter: Waiter
    _name: ClassVar[str]  # of the face, for errors
    _reading: RecordReader | None  # the iteration's reader, which it uses without the lock

    @abstractmethod
    def _free_memory(self) -> None:
        """Note that this consumer reads no more. With C, the last one frees the memory pooled for records."""

    @abstractmethod
    def telemetry_readings(self) -> Iterable[Reading]: ...

    @abstractmethod
    def telemetry_resource(self) -> Mapping[str, str]: ...

    def _set_up(self, bootstrap: str | Sequence[str] | Cluster, options: Mapping[str, Any]) -> None:
        check_names(self._name, bootstrap, options, ConsumerOptions, ClientConfig)
        shared: dict[str, Any] = {**CLIENT_DEFAULTS, **options}
        own = {name: shared.pop(name) for name in list(shared) if name in ConsumerOptions.option_names()}
        self._options = ConsumerOptions(**own)
        self._runtime = self._open_loop(bootstrap, shared)
        self._config = config = self._runtime.config
        self._fetch_buffer = FetchBuffer(max_bytes=self._options.max_buffered_bytes, wake_loop=self._runtime.wakeup)
        self._remains = Remains(self, self._name, self._runtime, "without a commit of what was processed")
        self._commits = self._set_up_group()
        self._interceptors: ConsumerInterceptors | None = None
        if self._options.interceptors:
            self._interceptors = ConsumerInterceptors(self._options.interceptors, self._runtime.dispatch)
            if self._commits is not None:
                self._commits.on_stored = self._interceptors.committed
        self._fetcher = Fetcher(
            self._options,
            self._fetch_buffer,
            self._new_offset_fetcher(),
            backoff=Backoff(config.retry_backoff_ms, config.retry_backoff_ms_max),
            random=self._new_random(),
            request_timeout_ms=config.request_timeout_ms,
            max_frame_bytes=config.max_frame_bytes,
            replica_max_age_ms=config.metadata_max_age_ms,
            wall_ms=self._runtime.clock.time_ms,
            committed=self._commits,
        )
        self._client_telemetry = ClientTelemetry(self, self._runtime, is_on=self._options.telemetry)
        self._lock = threading.RLock()
        self._shared_at = 0.0  # when this task last let others run
        self._buffers: dict[TopicPartition, PartitionBuffer] = {}
        self._buffer_by_epoch: dict[int, PartitionBuffer] = {}
        self._ready: deque[PartitionBuffer] = deque()  # buffers to read, in turn; each at most once
        self._reading = None
        self._finished: list[RecordReader] = []  # read to the end since the last poll ...
        self._finished_before: list[RecordReader] = []  # ... and before it
        self._assignment_epochs = itertools.count(1)
        self._client_errors: deque[KwireError] = deque()
        self._is_assigned = False
        self._is_started = False
        self._is_closed = False
        self._is_woken = False
        # What was returned since the program last polled, with the position before and the leader epoch.
        self._in_hand: list[HandedOut] = []

    def _open_loop(self, bootstrap: str | Sequence[str] | Cluster, options: Mapping[str, Any]) -> LoopThread:
        return open_loop_thread(self._name, bootstrap, options, "consumer")

    def _new_random(self) -> Random:
        """Return a source of jitter and ids; a simulation has its own."""
        return Random()

    def __repr__(self) -> str:
        config, state = self._config, ", closed" if self._is_closed else ""
        reads = f"partitions assigned: {len(self._buffers)}"
        return f"<{self._name} {config.client_id!r} of {','.join(config.bootstrap)}, {reads}{state}>"

    # -- assignment

    def assign(
        self, partitions: Iterable[tuple[str, int, StartOffset]], *, ends: Mapping[TopicPartition, int] | None = None
    ) -> None:
        """Read these partitions and no others, each from the given offset on.

        An offset is a number, "earliest", "latest", `AtTimestamp(ms)`, `Ago(hours=1)` or an `Offset`; or a place that
        only newer brokers find: "max_timestamp" (the record with the newest timestamp, Kafka 3.0), "local_earliest"
        (3.5), "latest_tiered" (3.9; without one the beginning) or "earliest_pending_upload" (4.2; likewise), else
        `poll` raises UnsupportedVersionError. Drops the old assignment and everything that was fetched for it. Raises
        ConfigurationError; `poll` raises the error of a topic that does not exist.

        `ends` maps partitions to offsets, such as those of `end_offsets`, from which on nothing is fetched. The last
        fetch of a partition may bring records beyond its end; `poll` returns them. An iteration does not end there, but
        waits: poll while `position` is below an end.
        """
        wanted = checked_starts(partitions)
        ends = checked_ends(ends or {})
        with self._lock:
            self._check_usable()
            self._check_not_subscribed()
            self._start()
            self._begin_own_assignment()
            for buffer in self._buffers.values():
                self._drop(buffer)
            self._in_hand.clear()
            self._buffers = {key: self._new_buffer(key, start) for key, start in wanted.items()}
            self._ready.clear()
            self._reading = None
            starts = [
                Start(*key, self._buffers[key].assignment_epoch, start, end=ends.get(key))
                for key, start in wanted.items()
            ]
            self._is_assigned = True
            self._runtime.call_soon(self._fetcher.assign, starts)

    def _start(self) -> None:
        """Have the loop run the state machines, at the first use."""
        if not self._is_started:
            self._is_started = True
            if self._interceptors is not None:
                with suppress(RuntimeError):  # of asyncio, `assign` may be called where no event loop runs
                    self._interceptors.dispatch = self._waiter.dispatcher(self._runtime)
            self._runtime.add(self._fetcher, "fetch")
            if self._commits is not None:
                self._runtime.add(self._commits)
            self._client_telemetry.start()

    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions, in the order of `assign`."""
        with self._lock:
            return list(self._buffers)

    def seek(self, topic: str, partition: int, offset: StartOffset) -> None:
        """Continue to read an assigned partition from `offset`, as in `assign`; also after an error of the partition.

        Records that were fetched before are not returned. Takes effect within max_wait_ms.
        """
        if not is_start_offset(offset):
            raise no_offset(offset)
        with self._lock:
            self._check_usable()
            buffer = self._assigned(topic, partition)
            self._in_hand = [one for one in self._in_hand if one[0] is not buffer]
            buffer.forget_progress()
            self._fetch_from(buffer, offset)

    def seek_to(self, where: SeekTarget, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Continue to read partitions (None: all assigned) from a time or an end of their logs.

        A datetime with a time zone; a timedelta back from now, such as timedelta(hours=-2); "earliest" or "latest". A
        log without a record that young continues at its end. In on_assigned it wins over committed offsets.
        """
        start: StartOffset
        if isinstance(where, timedelta):
            ago = abs(where) // timedelta(milliseconds=1)
            start = AtTimestamp(max(0, self._runtime.clock.time_ms() - ago))
        elif isinstance(where, datetime):
            if where.tzinfo is None:
                raise ConfigurationError(f"{where!r} has no time zone", remedy="give one, such as datetime.UTC")
            start = AtTimestamp(max(0, int(where.timestamp() * 1000)))
        elif where in ("earliest", "latest"):
            start = where
        else:
            raise TypeError(f'where is {where!r:.60}: give a datetime, a timedelta, "earliest" or "latest"')
        keys = self.assignment() if partitions is None else checked_partitions(partitions)
        for key in keys:
            self.seek(*key, start)

    def _fetch_from(self, buffer: PartitionBuffer, offset: StartOffset) -> None:
        """Drop what was fetched of a partition, and fetch it from `offset`. The caller holds the lock."""
        self._fetch_buffer.pause(buffer.assignment_epoch, False)
        del self._buffer_by_epoch[buffer.assignment_epoch]
        assignment_epoch = next(self._assignment_epochs)
        buffer.restart(assignment_epoch, known_offset(offset))
        self._buffer_by_epoch[assignment_epoch] = buffer
        self._fetch_buffer.pause(assignment_epoch, buffer.is_paused)
        self._reading = None
        self._begin_fetching(Start(buffer.topic, buffer.partition, assignment_epoch, offset, buffer.is_paused))

    def _begin_fetching(self, start: Start) -> None:
        """Have the loop fetch an assigned partition from another position. The caller holds the lock."""
        self._runtime.call_soon(self._fetcher.seek, start)

    def _position_of(self, key: TopicPartition) -> int | None:
        """Return the offset of the next record of an assigned partition, if it is known."""
        with self._lock:
            buffer = self._buffers.get(key)
            return None if buffer is None else buffer.position

    def pause(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Return no records of these partitions (None: of all assigned) until `resume`. Their positions stay."""
        self._set_paused(partitions, True)

    def resume(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Return records of these partitions (None: of all assigned) again."""
        self._set_paused(partitions, False)
        self._fetch_buffer.wake_all()

    def paused(self) -> list[TopicPartition]:
        """Return the assigned partitions that are paused."""
        with self._lock:
            return [key for key, buffer in self._buffers.items() if buffer.is_paused]

    async def _position(self, topic: str, partition: int, timeout: float | None = None) -> int:
        """Return the offset of the next record of a partition.

        After `assign` or `seek` to "earliest", "latest" or a timestamp it must be found first. RequestTimeoutError
        after `timeout` seconds, by default request_timeout_ms.
        """
        deadline = self._runtime.clock.now() + self._timeout(timeout)
        while True:
            wakeups = self._fetch_buffer.wakeups
            with self._lock:
                self._check_usable()
                self._receive()
                buffer = self._assigned(topic, partition)
                self._begin_pending((topic, partition))
                if buffer.position is not None:
                    return buffer.position
                if buffer.error is not None:
                    self._raise_error_of(buffer)
                if self._client_errors:
                    raise self._client_errors.popleft()
            remaining = deadline - self._runtime.clock.now()
            if remaining <= 0:
                raise RequestTimeoutError("the position was not found in time", topic=topic, partition=partition)
            await self._fetch_buffer.wait(wakeups, min(remaining, _WAIT_MAX), self._waiter)

    # -- reading

    async def _poll(self, max_records: int | None = None, timeout: float | None = 1.0) -> list[ConsumerRecord]:
        """Return the next records, at most `max_records` (by default max_poll_records), in order within each partition.

        Returns as soon as there are records, or an empty list after `timeout` seconds (None: no limit). Raises the
        typed error of a partition once, or a connection error when no broker can be reached; see the class.
        """
        records: list[ConsumerRecord] = []

        def gather(reader: RecordReader, count: int) -> int:
            nonlocal records
            taken: list[ConsumerRecord] = reader.take(count)
            records = records + taken if records else taken
            return len(taken)

        taken_from = await self._gather(max_records, timeout, gather)
        if self._interceptors is not None and records:
            try:
                records = self._interceptors.on_consume(records)
            except BaseException:  # the program is interrupted before it has the records
                self._rewind(taken_from)
                raise
        return records

    async def _poll_batch(self, max_records: int = 100_000, timeout: float | None = 1.0) -> PolledBatch:
        """Return the next records as `poll` does, without making an object for each.

        The fast way to `to_arrow`, or to columns of offsets, timestamps, keys and values. Ends with the batch that
        makes 4 MB full; empty after `timeout` seconds.
        """
        pieces: list[RecordSlice] = []
        if self._interceptors is not None:
            self._interceptors.check_records("poll_batch()")

        def gather(reader: RecordReader, count: int) -> int:
            piece = reader.cut(count)
            if len(piece):
                pieces.append(piece)
            return len(piece)

        taken_from = await self._gather(max_records, timeout, gather)
        return self._new_batch(pieces, taken_from)

    @abstractmethod
    def _new_batch(self, pieces: list[RecordSlice], taken_from: list[HandedOut]) -> PolledBatch:
        """Return a batch of the face, with the `commit` of the face."""

    async def _poll_arrow(
        self,
        max_records: int = 100_000,
        timeout: float | None = 1.0,
        *,
        include_headers: bool = False,
        columns: Collection[str] | None = None,
    ) -> pa.RecordBatch:
        """Return `poll_batch` as a pyarrow.RecordBatch, without rows after `timeout` seconds.

        See `PolledBatch.to_arrow`, also for `columns`. Raises ConfigurationError, before anything is read, if pyarrow
        is not installed or a column has another name.
        """
        check_pyarrow()
        check_columns(columns)
        batch = await self._poll_batch(max_records, timeout)
        return batch.to_arrow(include_headers=include_headers, columns=columns)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise no_attribute(self, name, ELSEWHERE)

    async def _next_reader(self) -> RecordReader | None:
        """Return the next reader of the iteration; wait for it. None once the consumer is closed."""
        failure: BaseException | None = None
        try:
            self._begin_read("an iteration")
            try:
                while True:
                    wakeups = self._fetch_buffer.wakeups
                    step = None
                    with self._lock:
                        if self._is_closed or self._is_stopping:
                            return None
                        self._check_readable()
                        self._receive()
                        step = self._next_step()
                        buffer = self._next_buffer() if step is None else None
                        if buffer is not None:
                            self._ready.rotate(-1)  # the next batch is another partition's
                            assert buffer.reader is not None
                            self._hand_out(self._in_hand, buffer, buffer.reader)
                            return buffer.reader
                    if step is not None:
                        failure = await self._run_step(step)
                        if failure is not None:
                            break
                    else:
                        await self._fetch_buffer.wait(wakeups, _WAIT_MAX, self._waiter)
            finally:
                self._end_read(is_iteration=True)
        except BaseException as error:
            if not isinstance(error, (KwireError, *self._waiter.cancellations)):
                self._rewind(())
            raise
        raise failure

    async def _gather(
        self, max_records: int | None, timeout: float | None, gather: Callable[[RecordReader, int], int]
    ) -> list[HandedOut]:
        """Call `gather(reader, count)`, which takes up to `count` records and returns how many, until it is enough.

        Return from which buffers records were taken.
        """
        if max_records is None:
            max_records = self._options.max_poll_records
        check_count(max_records)
        check_timeout(timeout)
        clock = self._runtime.clock
        deadline = None if timeout is None else clock.now() + timeout
        taken_from: list[HandedOut] = []
        failure: BaseException | None = None
        if self._waiter.shares_thread:
            await self._share_thread()
        try:
            self._begin_read("poll()")
            try:
                while True:
                    wakeups = self._fetch_buffer.wakeups
                    has_found = False
                    with self._lock:
                        self._check_readable()
                        self._receive()
                        step = self._next_step()
                        if step is None:
                            has_found = self._collect(max_records, gather, taken_from)
                    if has_found:
                        return taken_from
                    if step is not None:
                        failure = await self._run_step(step)
                        if failure is not None:
                            break
                        continue
                    wait = _WAIT_MAX if deadline is None else min(_WAIT_MAX, deadline - clock.now())
                    if wait <= 0 or self._is_stopping:
                        return taken_from
                    await self._fetch_buffer.wait(wakeups, wait, self._waiter)
            finally:
                self._in_hand += taken_from
                self._end_read(is_iteration=False)
        except BaseException as error:
            # A task is cancelled only where it waits: it has no records then.
            if not isinstance(error, (KwireError, *self._waiter.cancellations)):
                self._rewind(taken_from)
            raise
        raise failure  # of a callback: not this call's, so nothing is rewound

    # -- for groups: a consumer without one has no steps, and nothing is processed

    _is_leaving = False  # the group: callbacks may still use the consumer, which is closed to others
    _is_stopping = False  # iterations end, and polls return at once

    def _set_up_group(self) -> CommitManager | None:
        """Set up what a member of a group has, and return its commits."""
        return None

    def _how_to_assign(self) -> str:
        """Return what to do where a partition is not assigned."""
        return "name it in assign() first"

    def _check_not_subscribed(self) -> None:
        """Raise ConfigurationError where the group assigns partitions."""

    def _begin_own_assignment(self) -> None:
        """Commit what was processed before, and from now on for no member. The caller holds the lock."""

    def _begin_pending(self, key: TopicPartition) -> None:
        """Begin to fetch a partition that on_assigned has just got."""

    def _begin_read(self, what: str) -> None:
        """Note that the program polls: it has processed the records that it got before."""
        self._release_old_batches()

    def _end_read(self, *, is_iteration: bool) -> None:
        """Note that the program gets records, or none."""

    def _take_step(self, step: RebalanceStep) -> None:
        """Take a step of a rebalance from the loop thread. The caller holds the lock."""

    def _next_step(self) -> RebalanceStep | None:
        """Return the step to run now. The caller holds the lock."""
        return None

    async def _run_step(self, step: RebalanceStep) -> BaseException | None:
        """Run a step, with the user's callback; return what that raised."""
        return None

    def _rewind(self, taken_from: Iterable[HandedOut]) -> None:
        """Seek back after an interrupt between two steps, so that records which the caller never got are read again.

        `taken_from` has the buffers with their positions before records were taken. Everything else is fetched again,
        because it may not have reached its buffer.
        """
        with suppress(KwireError), self._lock:
            before = {buffer: position for buffer, position, _ in reversed([*taken_from])}  # the first of each
            for buffer in list(self._buffers.values()):
                position = before.get(buffer, buffer.position)
                if position is not None and not buffer.is_revoking:
                    self._fetch_from(buffer, position)

    # -- metadata and offsets

    async def _partitions(self, topic: str, timeout: float | None = None) -> list[int]:
        """Return the partitions of a topic. Raises TopicError if it does not exist."""
        self._check_usable()
        checked_partition(topic, 0)
        seconds = self._timeout(timeout)
        query = PartitionsQuery(topic, timeout=seconds, unknown_topic_timeout_ms=self._options.unknown_topic_timeout_ms)
        count: int = await self._run(query, query.future, seconds)
        return list(range(count))

    async def _beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each log."""
        found = await self._find_offsets(dict.fromkeys(checked_partitions(partitions), EARLIEST), timeout)
        return {key: one.offset for key, one in found.items()}

    async def _end_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each log; with read_committed after the last stable record."""
        found = await self._find_offsets(dict.fromkeys(checked_partitions(partitions), LATEST), timeout)
        return {key: one.offset for key, one in found.items()}

    async def _offsets_at(
        self, times: Iterable[tuple[str, int, int | SpecialOffset]], timeout: float | None = None
    ) -> dict[TopicPartition, int | None]:
        """Return the first offset written at or after each (topic, partition, milliseconds since 1970), or None.

        In place of the time, the name of a place: "max_timestamp" (brokers from 3.0), "local_earliest" (3.5),
        "latest_tiered" (3.9) or "earliest_pending_upload" (4.2). UnsupportedVersionError from older brokers.
        """
        found = await self._find_offsets(checked_times(times), timeout)
        return {key: None if one.offset == NO_OFFSET else one.offset for key, one in found.items()}

    # -- events and the end

    def wakeup(self) -> None:
        """End a poll or an iteration that another thread or task is in, or the next one, with WakeupError.

        A signal handler may call it.
        """
        self._is_woken = True
        self._wake_polls()

    def _wake_polls(self) -> None:
        """Have polls and iterations look again. Signal handlers call it."""
        self._reading = None
        with suppress(ClosedError):
            if self._is_started:
                self._runtime.call_soon(self._fetch_buffer.wake_all)  # its lock may be held where the signal came in

    def on_cluster_event(self, callback: Callable[[ClusterEvent], object]) -> Callable[[], None]:
        """Call `callback(event)` on the callback thread for each event of `kwire.cluster.events` from now on.

        Events are brokers that appear, fail and disappear, partitions that lose their leader, and changed metadata.
        Exceptions of `callback` are logged. Returns a function that ends the calls; a call that is running then may end
        after it.
        """
        return self._runtime.on_cluster_event(callback)

    # -- buffers; the caller holds the lock

    def _new_buffer(self, key: TopicPartition, start: FetchStart) -> PartitionBuffer:
        buffer = PartitionBuffer(
            *key,
            next(self._assignment_epochs),
            known_offset(start),
            check_crc=self._options.check_crc,
            decompressed_max=self._options.max_decompressed_bytes,
            release=self._fetch_buffer.release,
            retire=weakly(self._retire_reader, None),
        )
        self._buffer_by_epoch[buffer.assignment_epoch] = buffer
        return buffer

    def _drop(self, buffer: PartitionBuffer) -> None:
        buffer.clear()
        self._fetch_buffer.pause(buffer.assignment_epoch, False)
        del self._buffer_by_epoch[buffer.assignment_epoch]

    def _assigned(self, topic: str, partition: int) -> PartitionBuffer:
        buffer = self._buffers.get(checked_partition(topic, partition))
        if buffer is None:
            raise ConfigurationError(f"{topic}-{partition} is not assigned", remedy=self._how_to_assign())
        return buffer

    def _set_paused(self, partitions: Iterable[TopicPartition] | None, is_paused: bool) -> None:
        with self._lock:
            self._check_usable()
            keys = list(self._buffers) if partitions is None else checked_partitions(partitions)
            for buffer in [self._assigned(*key) for key in keys]:
                buffer.is_paused = is_paused
                self._reading = None
                self._fetch_buffer.pause(buffer.assignment_epoch, is_paused)
                if not is_paused:
                    self._mark_ready(buffer)
            self._runtime.call_soon(self._fetcher.set_paused, keys, is_paused)
            if is_paused:
                self._bound_paused_data()

    def _bound_paused_data(self) -> None:
        """Drop what paused partitions hold, in the order of assignment, until it is within `max_buffered_bytes`.

        They are fetched again from their positions once they are resumed.
        """
        for buffer in list(self._buffers.values()):
            if not self._fetch_buffer.exceeds_paused_bytes():
                return
            position = buffer.position
            if buffer.is_paused and position is not None and buffer.error is None:
                self._fetch_from(buffer, position)

    def _mark_ready(self, buffer: PartitionBuffer) -> None:
        if not buffer.is_ready:
            buffer.is_ready = True
            self._ready.append(buffer)

    def _receive(self) -> None:
        """Sort what the loop has posted into the buffers of its epochs."""
        for item in self._fetch_buffer.take():
            if isinstance(item, ClientError):
                self._client_errors.append(item.error)
                continue
            if isinstance(item, RebalanceStep):
                self._take_step(item)
                continue
            buffer = self._buffer_by_epoch.get(item.assignment_epoch)
            if buffer is not None:
                buffer.put(item)
                self._mark_ready(buffer)
                if buffer.is_paused and self._fetch_buffer.exceeds_paused_bytes():
                    self._bound_paused_data()
            elif isinstance(item, CompletedFetch):
                self._fetch_buffer.release(item)  # its epoch is over

    def _next_buffer(self) -> PartitionBuffer | None:
        """Return the first buffer that has records; it stays at the head of the queue. Raises an error before them."""
        if self._client_errors:
            raise self._client_errors.popleft()
        while self._ready:
            buffer = self._ready[0]
            if not buffer.is_paused and not buffer.is_revoking and buffer.has_next():
                return buffer
            self._ready.popleft()
            buffer.is_ready = False
            if buffer.error is not None and not (buffer.is_paused or buffer.is_revoking or buffer.is_error_raised):
                self._raise_error_of(buffer)
        return None

    def _collect(
        self,
        max_records: int,
        gather: Callable[[RecordReader, int], int],
        taken_from: list[HandedOut],
    ) -> bool:
        """Call `gather` for buffers in turn; return False if none has records."""
        left, left_bytes = max_records, _POLL_BYTES
        while left == max_records:  # an iteration of another thread, without the lock, may have taken the last records
            buffer = self._next_buffer()
            if buffer is None:
                return False
            assert buffer.reader is not None
            left_bytes -= buffer.reader.size_bytes
            self._hand_out(taken_from, buffer, buffer.reader)
            left -= gather(buffer.reader, left)
        while left > 0 and left_bytes > 0 and self._ready:
            # An error after these records waits for the next poll.
            buffer = self._ready[0]
            if buffer.is_paused or buffer.is_revoking or not buffer.has_next():
                if buffer.error is not None and not (buffer.is_paused or buffer.is_revoking or buffer.is_error_raised):
                    return True
                self._ready.popleft()
                buffer.is_ready = False
            else:
                assert buffer.reader is not None
                left_bytes -= buffer.reader.size_bytes
                self._hand_out(taken_from, buffer, buffer.reader)
                left -= gather(buffer.reader, left)
        self._ready.rotate(-1)  # the next poll begins with another partition
        return True

    def _hand_out(self, to: list[HandedOut], buffer: PartitionBuffer, reader: RecordReader) -> None:
        """Note, before records are taken, that they are about to be in the program's hands."""
        position = reader.position
        if buffer.first is None:
            buffer.first = position
        if buffer.processed is None and self._options.commit != "marks":
            buffer.processed = position
        to.append((buffer, position, buffer.leader_epoch))

    def _retire_reader(self, reader: RecordReader) -> None:
        self._finished.append(reader)

    def _release_old_batches(self) -> None:
        """Detach old records from their batches: those that the caller has kept for more than two polls.

        Once per poll, however often the poll wakes up while it waits.
        """
        with self._lock:
            old, self._finished_before, self._finished = self._finished_before, self._finished, []
            for reader in old:
                reader.detach()

    def _raise_error_of(self, buffer: PartitionBuffer) -> NoReturn:
        assert buffer.error is not None
        buffer.is_error_raised = True
        # The loop may still fetch the partition, if the error was found here, in its records.
        self._runtime.call_soon(self._fetcher.mark_failed, buffer.topic, buffer.partition, buffer.assignment_epoch)
        raise buffer.error

    # -- checks

    def _check_usable(self) -> None:
        if self._is_closed and not self._is_leaving:
            raise ClosedError("the consumer is closed")
        if self._fetch_buffer.end is not None:
            raise self._fetch_buffer.end
        self._runtime.check_usable()

    def _check_readable(self) -> None:
        self._check_usable()
        if self._is_closed:
            raise ClosedError("the consumer is closed")
        if self._is_woken:
            self._is_woken = False
            raise WakeupError("wakeup() was called")
        if not self._is_assigned:
            raise ConfigurationError(
                "nothing is assigned",
                remedy="call subscribe() or assign() before reading",
            )

    def _timeout(self, timeout: float | None) -> float:
        check_timeout(timeout, none="wait for request_timeout_ms")
        return self._config.request_timeout_ms / 1000 if timeout is None else timeout

    def _new_offset_fetcher(self) -> OffsetFetcher:
        return OffsetFetcher(
            is_committed_only=self._options.is_committed_only,
            unknown_topic_timeout_ms=self._options.unknown_topic_timeout_ms,
            backoff=Backoff(self._config.retry_backoff_ms, self._config.retry_backoff_ms_max),
            random=self._new_random(),
        )

    async def _find_offsets(
        self, timestamps: Mapping[TopicPartition, int], timeout: float | None
    ) -> Mapping[TopicPartition, FoundOffset]:
        self._check_usable()
        seconds = self._timeout(timeout)
        offset_fetcher = self._new_offset_fetcher()
        query = OffsetsQuery(offset_fetcher, timestamps, seconds)
        return await self._run(offset_fetcher, query.future, seconds)

    async def _share_thread(self) -> None:
        """Let other tasks run, if they could not for a while."""
        if self._waiter.shares_thread:
            now = self._runtime.clock.now()
            if now - self._shared_at > _TURN_SECONDS:
                await self._waiter.yield_now()
                self._shared_at = self._runtime.clock.now()

    async def _run(self, machine: StateMachine, future: Future[T], seconds: float) -> T:
        """Run a state machine on the loop until it resolves `future`, which it does within `seconds`."""
        self._runtime.add(machine)
        try:
            return await self._waiter.result_of(future, seconds + GRACE_SECONDS)
        finally:
            with suppress(ClosedError):
                self._runtime.remove(machine)
