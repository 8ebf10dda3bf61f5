"""`kwire.aio.Consumer`: the consumer for asyncio, over the same `GroupClient` as `kwire.Consumer`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import islice
from types import TracebackType
from typing import Any, NoReturn, Self, Unpack

from kwire.cluster import Cluster
from kwire.cluster.waiting import AWAITING, awaited
from kwire.consumer import columns
from kwire.consumer.group_client import GroupClient
from kwire.consumer.options import ConsumerKwargs
from kwire.consumer.processor import ParallelProcessor, ProcessorKwargs, make_processor
from kwire.consumer.record import ConsumerRecord
from kwire.options import translate_bootstrap
from kwire.records.reader import RecordIterator

# An iteration that has records does not wait: it lets other tasks run after this many.
_RECORDS_PER_TURN = 1_000


class _PooledMemory(RecordIterator):
    """The consumer's part in the memory pooled for records; it is no `RecordIterator` itself."""

    def end(self) -> None:
        self._end()

    def _next_cursor(self) -> NoReturn:
        raise StopIteration


class PolledBatch(columns.PolledBatch):
    """The records of one `poll_batch`; `commit` is awaited."""

    __slots__ = ()

    commit = columns.PolledBatch._commit  # type: ignore[assignment]  # a coroutine


class Processor(ParallelProcessor):
    """Processes the records of a `kwire.aio.Consumer` in parallel: see `Consumer.process`."""

    run = awaited(ParallelProcessor._run)


class Consumer(GroupClient):
    """Reads records of assigned partitions in tasks of asyncio.

    >>> async with kwire.aio.Consumer("localhost:9092") as consumer:  # doctest: +SKIP
    ...     consumer.assign([("greetings", 0, "earliest")])
    ...     async for record in consumer:
    ...         print(record.offset, record.value)

    The methods and options are those of `kwire.Consumer`; those that wait are awaited. A task may be cancelled in any
    of them: no record is lost. The consumer belongs to no event loop.

    Options, with their defaults. Sizes are bytes of records as they are stored, compressed. The smallest of the limits
    counts; a single batch that exceeds them is still fetched.

    bootstrap                "host:port,host:port" of any brokers of the cluster, a list of such, or a `kwire.Cluster`
    group                    [None] the consumer group to join by `subscribe`, and to commit to
    group_protocol           ["auto"] how the group works: "consumer" is the new protocol (KIP-848), "classic" the
                             older; "auto" is the new one where the brokers have it, unless an option was given that
                             only classic groups have
    group_instance_id        [None] makes the member static (KIP-345): a restart within the session timeout causes no
                             rebalance. Unique in the group
    assignors                [None] classic groups only: how the leader divides partitions, in the order of preference;
                             None: cooperative-sticky
    remote_assignor          [None] new groups only: the broker's assignor, such as "uniform" or "range"; None: its own
                             choice
    session_timeout_ms       [None] classic groups only: a member is dropped after this time without a heartbeat; None:
                             45 s
    heartbeat_interval_ms    [None] classic groups only: at most a third of the session timeout; None: 3 s
    max_poll_interval_ms     [300_000 ms] a member that does not ask for records for this long leaves the group, until
                             it does; None: it never has to
    max_poll_records         [500] what `poll` returns at most, unless it is given a number
    commit                   ["auto"] what commits: "auto" every record that was returned before the last time that the
                             program asked for more, "marks" what `mark` was called for, "manual" only `commit`
    commit_interval_ms       [5_000 ms] how often "auto" and "marks" commit; they also do before a rebalance and in
                             `close`
    callbacks                ["poll"] where rebalance callbacks run: in the call that polls, between two batches; or
                             "background", on a thread of their own, while records may be in use
    isolation                ["read_uncommitted"] "read_committed" hides the records of aborted transactions and waits
                             for open ones to end
    on_no_offset             ["earliest"] where to begin if the group has committed no offset: "earliest", "latest",
                             AtTimestamp(ms), Ago(hours=1), or "error"
    on_out_of_range          ["error"] at an offset that the log does not have: "error", or go to "earliest", "latest",
                             to the "nearest" of the two, AtTimestamp(ms) or Ago(hours=1)
    max_wait_ms              [500 ms] how long a broker may wait for min_bytes; a seek may be that late
    min_bytes                [1 bytes] a broker waits for this many bytes, up to max_wait_ms
    max_bytes                [16_777_216 bytes] the limit of one fetch from one broker
    partition_max_bytes      [1_048_576 bytes] the limit of one partition in one fetch
    max_buffered_bytes       [67_108_864 bytes] the limit of what is fetched, or in flight, and not yet read; without
                             paused partitions
    unknown_topic_timeout_ms [5_000 ms] how long a topic may be unknown to the brokers before it is an error: it may
                             just be created
    rack                     [""] read from a replica of the same rack, if the brokers are configured for it (KIP-392)
    check_crc                [True] whether to verify the checksums of batches
    max_decompressed_bytes   [268_435_456 bytes] a compressed batch that becomes larger is an error

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

    `poll` and iteration raise the error of a partition once, after the records before it. The partition then stops
    until `seek`, and the others continue. Retriable errors (a leader that moves, a broker that restarts) are not
    raised. No broker is contacted before the first use.
    """

    _waiter = AWAITING
    _make_batch = PolledBatch
    _name = "kwire.aio.Consumer"

    @translate_bootstrap("kwire.aio.Consumer")
    def __init__(self, bootstrap: str | Sequence[str] | Cluster, **options: Unpack[ConsumerKwargs]) -> None:
        self._pooled = _PooledMemory()
        self._set_up(bootstrap, options)

    position = awaited(GroupClient._position)
    poll = awaited(GroupClient._poll)
    poll_arrow = awaited(GroupClient._poll_arrow)
    partitions = awaited(GroupClient._partitions)
    beginning_offsets = awaited(GroupClient._beginning_offsets)
    end_offsets = awaited(GroupClient._end_offsets)
    offsets_at = awaited(GroupClient._offsets_at)
    subscribe = awaited(GroupClient._subscribe)
    unsubscribe = awaited(GroupClient._unsubscribe)
    allow_rebalance = awaited(GroupClient._allow_rebalance)
    lag = awaited(GroupClient._lag)
    explain = awaited(GroupClient._explain)
    metrics = awaited(GroupClient._metrics)
    commit = awaited(GroupClient._commit)
    committed = awaited(GroupClient._committed)
    close = awaited(GroupClient._close)

    async def poll_batch(self, max_records: int = 100_000, timeout: float | None = 1.0) -> PolledBatch:
        """Return the next records without making an object for each: see `kwire.Consumer.poll_batch`."""
        batch = await self._poll_batch(max_records, timeout)
        assert isinstance(batch, PolledBatch)
        return batch

    def process(self, function: Callable[[Any], Any], **options: Unpack[ProcessorKwargs]) -> Processor:
        """Process the records of the subscription by `function`, in parallel, and commit them in order.

        Tasks of the running loop call a coroutine function, threads a plain one.
        `Processor.run` polls until `Processor.stop`; nothing else may poll meanwhile. A record counts as processed when
        `function` has returned. Rebalances and the end wait for calls that run. Options: see `ProcessorOptions`.

        >>> processor = consumer.process(handle, order="key", concurrency=64)     # doctest: +SKIP
        >>> await processor.run()                                                       # doctest: +SKIP
        """
        return make_processor(Processor, self, function, options, asyncio.get_running_loop())

    def _free_memory(self) -> None:
        self._pooled.end()

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """Iterate over the records until the consumer is closed."""
        while True:
            reading = self._reading
            if reading is not None:
                for record in islice(reading, _RECORDS_PER_TURN):
                    yield record
                    if self._reading is not reading:  # a seek, a pause, a rebalance
                        break
                await self._share_thread()
                if self._reading is not reading or len(reading):
                    continue
            self._reading = await self._next_reader()
            if self._reading is None:
                return

    async def __anext__(self) -> ConsumerRecord:
        async for record in self:
            return record
        raise StopAsyncIteration

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
