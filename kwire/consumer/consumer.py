"""`kwire.Consumer`: the face of the consumer, for any number of threads.

It keeps a `PartitionBuffer` per assigned partition, which is what the users have read; the `Fetcher` on the event
loop is ahead
of it. One lock is around the lanes: users' threads hold it while records are decoded, the loop never takes it. Commands
are handed to the loop under that lock, so that it hears of them in the order in which they happened.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, Unpack

from kwire.cluster import Backoff, ClientConfig, Cluster, ClusterEvent, open_loop_thread
from kwire.consumer.arguments import (
    ELSEWHERE,
    TopicPartition,
    check_count,
    check_timeout,
    checked_ends,
    checked_partition,
    checked_partitions,
    checked_starts,
    checked_times,
    no_offset,
)
from kwire.consumer.buffer import ClientError, CompletedFetch, FetchBuffer, PartitionBuffer
from kwire.consumer.columns import PolledBatch, check_pyarrow
from kwire.consumer.fetcher import Fetcher, Start
from kwire.consumer.offsets import (
    NO_OFFSET,
    FoundOffset,
    OffsetFetcher,
    OffsetsQuery,
    PartitionsQuery,
    StartOffset,
    ask,
    is_start_offset,
)
from kwire.consumer.options import CLIENT_DEFAULTS, ConsumerKwargs, ConsumerOptions
from kwire.consumer.record import ConsumerRecord
from kwire.errors import ClosedError, ConfigurationError, KwireError, RequestTimeoutError
from kwire.options import check_names, translate_bootstrap
from kwire.protocol.messages.list_offsets import EARLIEST, LATEST
from kwire.records.reader import RecordIterator

if TYPE_CHECKING:
    import pyarrow as pa

    from kwire.records.reader import RecordReader, RecordSlice

# Where a poll ends that has gathered so many bytes, decompressed: what is made of them is still in the processor's
# cache when it is looked at, and its memory is that of the poll before.
_POLL_BYTES = 4 * 1024 * 1024
# Sleep no longer than this (seconds) without looking around: a wait that nothing ends would be a defect, not a hang.
_NAP = 1.0


class Consumer(RecordIterator):
    """Reads records of the partitions that it is assigned.

    >>> with kwire.Consumer("localhost:9092") as consumer:            # doctest: +SKIP
    ...     consumer.assign([("greetings", 0, "earliest")])
    ...     for record in consumer:
    ...         print(record.offset, record.value)

    Options, with their defaults; sizes are bytes of records as they are stored, compressed, and the smallest of the
    limits counts, but a single batch that is larger than they are still arrives:

    bootstrap                "host:port,host:port" of any brokers of the cluster, a list of such, or a `kwire.Cluster`
    isolation                ["read_uncommitted"] "read_committed" hides the records of aborted transactions, and waits
                             at those of open ones
    on_out_of_range          ["error"] when the log does not, or no longer, have the position: "error", or go to
                             "earliest" or "latest"
    max_wait_ms              [500 ms] how long a broker may wait for min_bytes to gather; also how late a seek may take
                             effect
    min_bytes                [1 bytes] a broker waits for so much, up to max_wait_ms
    max_bytes                [16_777_216 bytes] of one fetch from one broker
    partition_max_bytes      [1_048_576 bytes] of one partition in one fetch
    max_buffered_bytes       [67_108_864 bytes] fetched, or being fetched, and not yet read; what paused partitions hold
                             is not counted
    unknown_topic_timeout_ms [5_000 ms] how long brokers may say that they do not know a topic, which may be about to be
                             created
    rack                     [""] read from a replica of the same rack, where brokers are set up for it (KIP-392)
    check_crc                [True] whether to verify the checksums of batches

    and those of every client:

    client_id                ["kwire"] the name in the brokers' logs, metrics and quotas
    tls                      [None] True for TLS with the system's certificate authorities, or a `kwire.Tls`
    sasl                     [None] how to log in: `kwire.Sasl("SCRAM-SHA-512", user, password)`
    request_timeout_ms       [30_000 ms] a broker may take this long to answer; then its connection is closed
    connect_timeout_ms       [10_000 ms] a connection may take this long, TLS and SASL included
    idle_timeout_ms          [540_000 ms] an unused connection is closed after this
    metadata_max_age_ms      [300_000 ms] metadata is refreshed after this even if nothing went wrong
    retry_backoff_ms         [100 ms] the first pause before a retry; it doubles up to the maximum, with jitter
                             (KIP-580)
    retry_backoff_ms_max     [1_000 ms] the longest pause before a retry
    reconnect_backoff_ms     [50 ms] the first pause before connecting to a broker again; it doubles likewise
    reconnect_backoff_ms_max [1_000 ms] the longest pause before connecting again
    max_frame_bytes          [104_857_600 bytes] a larger response is refused
    max_in_flight            [5 requests] requests sent on one connection and not yet answered
    allow_auto_create_topics [False] whether brokers may create a topic that a client asks for

    `poll` and iteration raise the error of a partition once, after the records before it; the partition then stands
    still until `seek`, and the others go on. What passes by itself (a leader that moves, a broker that restarts) is no
    error. No broker is contacted before the first use.
    """

    @translate_bootstrap("kwire.Consumer")
    def __init__(self, bootstrap: str | Sequence[str] | Cluster, **options: Unpack[ConsumerKwargs]) -> None:
        check_names("kwire.Consumer", bootstrap, options, ConsumerOptions, ClientConfig)
        shared: dict[str, Any] = {**CLIENT_DEFAULTS, **options}
        own = {name: shared.pop(name) for name in list(shared) if name in ConsumerOptions.option_names()}
        self._options = ConsumerOptions(**own)
        self._runtime = open_loop_thread("kwire.Consumer", bootstrap, shared, "consumer")
        self._config = config = self._runtime.config
        self._inbox = FetchBuffer(max_bytes=self._options.max_buffered_bytes, wake_loop=self._runtime.wakeup)
        self._fetcher = Fetcher(
            self._options,
            self._inbox,
            self._new_lookup(),
            backoff=Backoff(config.retry_backoff_ms, config.retry_backoff_ms_max),
            random=Random(),
            request_timeout_ms=config.request_timeout_ms,
            max_frame_bytes=config.max_frame_bytes,
            replica_max_age_ms=config.metadata_max_age_ms,
        )
        self._lock = threading.RLock()
        self._lanes: dict[TopicPartition, PartitionBuffer] = {}
        self._by_generation: dict[int, PartitionBuffer] = {}
        self._ready: deque[PartitionBuffer] = deque()  # lanes to be looked at, the next first; each at most once
        self._reading = None  # the cursor that the iteration is in, which it uses without the lock
        self._read: list[RecordReader] = []  # read to the end since the last poll ...
        self._read_before: list[RecordReader] = []  # ... and in the one before
        self._generations = itertools.count(1)
        self._troubles: deque[KwireError] = deque()
        self._is_assigned = False
        self._is_closed = False

    def __repr__(self) -> str:
        config, state = self._config, ", closed" if self._is_closed else ""
        reads = f"partitions assigned: {len(self._lanes)}"
        return f"<kwire.Consumer {config.client_id!r} of {','.join(config.bootstrap)}, {reads}{state}>"

    # -- what to read

    def assign(
        self, partitions: Iterable[tuple[str, int, StartOffset]], *, ends: Mapping[TopicPartition, int] | None = None
    ) -> None:
        """Read these partitions and no other, each from the given offset on.

        An offset is a number, "earliest", "latest" or `AtTimestamp(ms)`. Whatever was assigned before is dropped, with
        all that was fetched for it. Raises ConfigurationError; whether the topics exist is for `poll` to find out.

        `ends`, such as `end_offsets` answers, spares fetches to who reads no further: of a partition that is in it
        nothing is fetched from that offset on. Its last fetch may bring records beyond it, which are handed out.
        """
        wanted = checked_starts(partitions)
        ends = checked_ends(ends or {})
        with self._lock:
            self._check_usable()
            for lane in self._lanes.values():
                self._retire(lane)
            self._lanes = {key: self._new_lane(key, start) for key, start in wanted.items()}
            self._ready.clear()
            self._reading = None
            starts = [
                Start(*key, self._lanes[key].generation, start, end=ends.get(key)) for key, start in wanted.items()
            ]
            if not self._is_assigned:
                self._is_assigned = True
                self._runtime.add(self._fetcher, "fetch")
            self._runtime.call_soon(self._fetcher.assign, starts)

    def assignment(self) -> list[TopicPartition]:
        """The assigned partitions, in the order of `assign`."""
        with self._lock:
            return list(self._lanes)

    def seek(self, topic: str, partition: int, offset: StartOffset) -> None:
        """Go on reading an assigned partition from `offset`, as in `assign`; also one that stands still after an error.

        Nothing of the partition that was fetched before will be handed out. Takes effect within max_wait_ms.
        """
        if not is_start_offset(offset):
            raise no_offset(offset)
        with self._lock:
            self._check_usable()
            lane = self._lane(topic, partition)
            self._inbox.pause(lane.generation, False)
            del self._by_generation[lane.generation]
            generation = next(self._generations)
            lane.restart(generation, offset if isinstance(offset, int) else None)
            self._by_generation[generation] = lane
            self._inbox.pause(generation, lane.is_paused)
            self._reading = None
            self._runtime.call_soon(self._fetcher.seek, Start(topic, partition, generation, offset, lane.is_paused))

    def pause(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Hand out no records of these partitions (None: of all assigned) until `resume`. Their positions stay."""
        self._set_paused(partitions, True)

    def resume(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Hand out records of these partitions (None: of all assigned) again."""
        self._set_paused(partitions, False)
        self._inbox.nudge()

    def paused(self) -> list[TopicPartition]:
        with self._lock:
            return [key for key, lane in self._lanes.items() if lane.is_paused]

    def position(self, topic: str, partition: int, timeout: float | None = None) -> int:
        """The offset of the next record to be handed out.

        After `assign` or `seek` to a place that is not a number it has to be asked for, which is waited for at most
        `timeout` seconds, by default request_timeout_ms: RequestTimeoutError.
        """
        deadline = self._runtime.clock.now() + self._timeout(timeout)
        while True:
            nudges = self._inbox.nudges
            with self._lock:
                self._check_usable()
                self._absorb()
                lane = self._lane(topic, partition)
                if lane.position is not None:
                    return lane.position
                if lane.error is not None:
                    self._raise_of(lane)
                if self._troubles:
                    raise self._troubles.popleft()
            remaining = deadline - self._runtime.clock.now()
            if remaining <= 0:
                raise RequestTimeoutError("the position was not found in time", topic=topic, partition=partition)
            self._inbox.wait(nudges, min(remaining, _NAP))

    # -- reading

    def poll(self, max_records: int = 500, timeout: float | None = 1.0) -> list[ConsumerRecord]:
        """The next records, at most `max_records`, in order within each partition; moves the positions behind them.

        Answers as soon as there are any, and an empty list after `timeout` seconds (None: waits without end).
        Raises the typed error of a partition once, or of the connection when no broker can be reached; see the class.
        """
        records: list[ConsumerRecord] = []

        def gather(cursor: RecordReader, count: int) -> int:
            nonlocal records
            taken: list[ConsumerRecord] = cursor.take(count)
            records = records + taken if records else taken
            return len(taken)

        self._poll(max_records, timeout, gather)
        return records

    def poll_batch(self, max_records: int = 100_000, timeout: float | None = 1.0) -> PolledBatch:
        """As `poll`, but no record is made before it is asked for.

        The quick way to `to_arrow`, or to columns of a partition's offsets, times, keys and values. Ends with the batch
        that makes 4 MB full; empty after `timeout` seconds.
        """
        pieces: list[RecordSlice] = []

        def gather(cursor: RecordReader, count: int) -> int:
            piece = cursor.cut(count)
            if len(piece):
                pieces.append(piece)
            return len(piece)

        self._poll(max_records, timeout, gather)
        return PolledBatch(pieces)

    def poll_arrow(
        self, max_records: int = 100_000, timeout: float | None = 1.0, *, include_headers: bool = False
    ) -> pa.RecordBatch:
        """`poll_batch` as a pyarrow.RecordBatch, of no rows after `timeout` seconds: see `PolledBatch.to_arrow`.

        ConfigurationError where pyarrow is not installed, before anything was read.
        """
        check_pyarrow()
        return self.poll_batch(max_records, timeout).to_arrow(include_headers=include_headers)

    if TYPE_CHECKING:

        def __iter__(self) -> Self: ...
        def __next__(self) -> ConsumerRecord: ...

    else:

        def __getattr__(self, name: str) -> NoReturn:
            advice = f": {ELSEWHERE[name]}" if name in ELSEWHERE else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{advice}")

    def _next_cursor(self) -> RecordReader:
        """For the iteration, which waits without end, until another thread closes the consumer."""
        try:
            self._age()
            while True:
                nudges = self._inbox.nudges
                with self._lock:
                    if self._is_closed:
                        raise StopIteration
                    self._check_readable()
                    self._absorb()
                    lane = self._next_lane()
                    if lane is not None:
                        self._ready.rotate(-1)  # the next batch is another partition's
                        assert lane.cursor is not None
                        return lane.cursor
                self._inbox.wait(nudges, _NAP)
        except (KwireError, StopIteration):
            raise
        except BaseException:
            self._take_back(())
            raise

    def _poll(self, max_records: int, timeout: float | None, gather: Callable[[RecordReader, int], int]) -> None:
        """`gather` takes at most so many records of a cursor, and says how many it took."""
        check_count(max_records)
        check_timeout(timeout)
        clock = self._runtime.clock
        deadline = None if timeout is None else clock.now() + timeout
        handed: list[tuple[PartitionBuffer, int]] = []
        try:
            self._age()
            while True:
                nudges = self._inbox.nudges
                with self._lock:
                    self._check_readable()
                    self._absorb()
                    has_found = self._collect(max_records, gather, handed)
                if has_found:
                    return
                nap = _NAP if deadline is None else min(_NAP, deadline - clock.now())
                if nap <= 0:
                    return
                self._inbox.wait(nudges, nap)
        except KwireError:
            raise
        except BaseException:
            self._take_back(handed)
            raise

    def _take_back(self, handed: Iterable[tuple[PartitionBuffer, int]]) -> None:
        """After an interrupt, which may have come between any two steps: what nobody was given is to be read again.

        `handed` are lanes and where they stood before something was taken from them. All else that was fetched is
        fetched again, as it may not have got to its lane.
        """
        with suppress(KwireError), self._lock:
            stood = dict(reversed([*handed]))  # the first of each
            for key, lane in list(self._lanes.items()):
                position = stood.get(lane, lane.position)
                if position is not None:
                    self.seek(*key, position)

    # -- asking

    def partitions(self, topic: str, timeout: float | None = None) -> list[int]:
        """The partitions of a topic. TopicError if there is no such topic."""
        self._check_usable()
        checked_partition(topic, 0)
        seconds = self._timeout(timeout)
        query = PartitionsQuery(topic, timeout=seconds, unknown_topic_timeout_ms=self._options.unknown_topic_timeout_ms)
        return list(range(ask(self._runtime, query, query.future, seconds)))

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset that each log still has."""
        found = self._offsets(dict.fromkeys(checked_partitions(partitions), EARLIEST), timeout)
        return {key: one.offset for key, one in found.items()}

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset that the next record of each log will have; of the next readable one under read_committed."""
        found = self._offsets(dict.fromkeys(checked_partitions(partitions), LATEST), timeout)
        return {key: one.offset for key, one in found.items()}

    def offsets_at(
        self, times: Iterable[tuple[str, int, int]], timeout: float | None = None
    ) -> dict[TopicPartition, int | None]:
        """For each (topic, partition, milliseconds since 1970): the first offset written then or later, or None."""
        found = self._offsets(checked_times(times), timeout)
        return {key: None if one.offset == NO_OFFSET else one.offset for key, one in found.items()}

    # -- the end

    def on_cluster_event(self, callback: Callable[[ClusterEvent], object]) -> Callable[[], None]:
        """Call `callback(event)` on the callback thread for each event of `kwire.cluster.events` from now on.

        Brokers that come, fail and go, partitions that lose their leader, metadata that changed. What `callback` raises
        is logged. Returns a function that ends it; nothing is called after that function has returned, but what is
        running just then.
        """
        return self._runtime.on_cluster_event(callback)

    def close(self, timeout: float | None = 10.0) -> None:
        """End the thread and the connections, waiting at most `timeout` seconds. A second call does nothing.

        Threads that wait in `poll` get ClosedError, and iterations end.
        """
        check_timeout(timeout)
        self._is_closed = True
        self._reading = None
        self._runtime.close(timeout)
        self._inbox.close(ClosedError("the consumer is closed"))
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # -- lanes; under the lock

    def _new_lane(self, key: TopicPartition, start: StartOffset) -> PartitionBuffer:
        lane = PartitionBuffer(
            *key,
            next(self._generations),
            start if isinstance(start, int) else None,
            check_crc=self._options.check_crc,
            release=self._inbox.release,
            retire=self._retire_cursor,
        )
        self._by_generation[lane.generation] = lane
        return lane

    def _retire(self, lane: PartitionBuffer) -> None:
        lane.clear()
        self._inbox.pause(lane.generation, False)
        del self._by_generation[lane.generation]

    def _lane(self, topic: str, partition: int) -> PartitionBuffer:
        lane = self._lanes.get((topic, partition))
        if lane is None:
            raise ConfigurationError(f"{topic}-{partition} is not assigned", remedy="name it in assign() first")
        return lane

    def _set_paused(self, partitions: Iterable[TopicPartition] | None, is_paused: bool) -> None:
        with self._lock:
            self._check_usable()
            keys = list(self._lanes) if partitions is None else checked_partitions(partitions)
            for lane in [self._lane(*key) for key in keys]:
                lane.is_paused = is_paused
                self._reading = None
                self._inbox.pause(lane.generation, is_paused)
                if not is_paused:
                    self._queue(lane)
            self._runtime.call_soon(self._fetcher.set_paused, keys, is_paused)

    def _queue(self, lane: PartitionBuffer) -> None:
        if not lane.is_queued:
            lane.is_queued = True
            self._ready.append(lane)

    def _absorb(self) -> None:
        """Sort what the loop has posted into the lanes."""
        for item in self._inbox.take():
            if isinstance(item, ClientError):
                self._troubles.append(item.error)
                continue
            lane = self._by_generation.get(item.generation)
            if lane is not None:
                lane.put(item)
                self._queue(lane)
            elif isinstance(item, CompletedFetch):
                self._inbox.release(item)  # of a generation that is over

    def _next_lane(self) -> PartitionBuffer | None:
        """The first lane that has records, left at the head of the queue; raises what comes before it."""
        if self._troubles:
            raise self._troubles.popleft()
        while self._ready:
            lane = self._ready[0]
            if not lane.is_paused and lane.has_next():
                return lane
            self._ready.popleft()
            lane.is_queued = False
            if lane.error is not None and not lane.is_paused and not lane.is_told:
                self._raise_of(lane)
        return None

    def _collect(
        self, max_records: int, gather: Callable[[RecordReader, int], int], handed: list[tuple[PartitionBuffer, int]]
    ) -> bool:
        left, left_bytes = max_records, _POLL_BYTES
        while left == max_records:  # another thread's iteration, which needs no lock, may have taken a lane's last
            lane = self._next_lane()
            if lane is None:
                return False
            assert lane.cursor is not None
            left_bytes -= lane.cursor.size_bytes
            handed.append((lane, lane.cursor.position))
            left -= gather(lane.cursor, left)
        while left > 0 and left_bytes > 0 and self._ready:
            # An error further on waits for the next poll: these records come before it.
            lane = self._ready[0]
            if lane.is_paused or not lane.has_next():
                if lane.error is not None and not lane.is_paused and not lane.is_told:
                    return True
                self._ready.popleft()
                lane.is_queued = False
            else:
                assert lane.cursor is not None
                left_bytes -= lane.cursor.size_bytes
                handed.append((lane, lane.cursor.position))
                left -= gather(lane.cursor, left)
        self._ready.rotate(-1)  # the next poll begins with another partition
        return True

    def _retire_cursor(self, cursor: RecordReader) -> None:
        self._read.append(cursor)

    def _age(self) -> None:
        """Let records that outlived the last two polls let go of their batches; few do, so it costs next to nothing.

        Once for each poll, however often the poll wakes up while it waits.
        """
        with self._lock:
            old, self._read_before, self._read = self._read_before, self._read, []
            for cursor in old:
                cursor.detach()

    def _raise_of(self, lane: PartitionBuffer) -> NoReturn:
        assert lane.error is not None
        lane.is_told = True
        # When it was found here, in the records, the loop still fetches what comes behind them.
        self._runtime.call_soon(self._fetcher.park, lane.topic, lane.partition, lane.generation)
        raise lane.error

    # -- the rest

    def _check_usable(self) -> None:
        if self._is_closed:
            raise ClosedError("the consumer is closed")
        if self._inbox.end is not None:
            raise self._inbox.end
        self._runtime.check_usable()

    def _check_readable(self) -> None:
        self._check_usable()
        if not self._is_assigned:
            raise ConfigurationError("nothing is assigned", remedy="call assign() before reading")

    def _timeout(self, timeout: float | None) -> float:
        check_timeout(timeout, absent="wait for request_timeout_ms")
        return self._config.request_timeout_ms / 1000 if timeout is None else timeout

    def _new_lookup(self) -> OffsetFetcher:
        return OffsetFetcher(
            is_committed_only=self._options.is_committed_only,
            unknown_topic_timeout_ms=self._options.unknown_topic_timeout_ms,
            backoff=Backoff(self._config.retry_backoff_ms, self._config.retry_backoff_ms_max),
            random=Random(),
        )

    def _offsets(
        self, timestamps: Mapping[TopicPartition, int], timeout: float | None
    ) -> Mapping[TopicPartition, FoundOffset]:
        self._check_usable()
        seconds = self._timeout(timeout)
        lookup = self._new_lookup()
        query = OffsetsQuery(lookup, timestamps, seconds)
        return ask(self._runtime, lookup, query.future, seconds)
