"""`kwire.aio.Consumer`: the consumer for asyncio, over the same `GroupClient` as `kwire.Consumer`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import islice
from types import TracebackType
from typing import Any, NoReturn, Self, Unpack

from kwire.cluster import ClientConfig, Cluster
from kwire.cluster.asyncio_waiting import AWAITING
from kwire.cluster.waiting import awaited
from kwire.consumer import columns
from kwire.consumer.group_client import GroupClient
from kwire.consumer.interceptors import ConsumerInterceptors
from kwire.consumer.options import CLIENT_DEFAULTS, ConsumerKwargs, ConsumerOptions
from kwire.consumer.processor import ParallelProcessor, ProcessorKwargs, ProcessorOptions, make_processor
from kwire.consumer.record import ConsumerRecord
from kwire.option_checks import documents_keywords, documents_options, translate_bootstrap
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

    commit = awaited(columns.PolledBatch._commit)  # type: ignore[assignment]  # a coroutine


class Processor(ParallelProcessor):
    """Processes the records of a `kwire.aio.Consumer` in parallel: see `Consumer.process`."""

    run = awaited(ParallelProcessor._run)


@documents_options(ConsumerOptions, ClientConfig, defaults=CLIENT_DEFAULTS)
class Consumer(GroupClient):
    """Reads records in tasks of asyncio, as a member of a group or of partitions that you assign.

    >>> async with kwire.aio.Consumer("localhost:9092", group="billing") as consumer:    # doctest: +SKIP
    ...     await consumer.subscribe(["orders"])
    ...     async for record in consumer:  # the earlier records are processed, and are committed
    ...         print(record.topic, record.partition, record.offset, record.key, record.value)

    The methods and options are those of `kwire.Consumer`; those that wait are awaited. A task may be cancelled in any
    of them: no record is lost. The consumer belongs to no event loop.

    The options used most: group, commit, max_poll_records, isolation, on_no_offset, max_buffered_bytes, tls and sasl.
    `help(kwire.aio.Consumer)` and the page "Options" of the documentation have all of them, with defaults and units.

    Sizes are bytes of records as they are stored, compressed. The smallest of the limits counts; a single batch that
    exceeds them is still fetched.

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
    client_instance_id = awaited(GroupClient._client_instance_id)
    commit = awaited(GroupClient._commit)
    committed = awaited(GroupClient._committed)
    close = awaited(GroupClient._close)

    async def poll_batch(self, max_records: int = 100_000, timeout: float | None = 1.0) -> PolledBatch:
        """Return the next records without making an object for each: see `kwire.Consumer.poll_batch`."""
        batch = await self._poll_batch(max_records, timeout)
        assert isinstance(batch, PolledBatch)
        return batch

    @documents_keywords(ProcessorOptions)
    def process(self, function: Callable[[Any], Any], **options: Unpack[ProcessorKwargs]) -> Processor:
        """Process the records of the subscription by `function`, in parallel, and commit them in order.

        Tasks of the running loop call a coroutine function, threads a plain one.
        `Processor.run` polls until `Processor.stop`; nothing else may poll meanwhile. A record counts as processed when
        `function` has returned. Rebalances and the end wait for calls that run.

        >>> processor = consumer.process(handle, order="key", concurrency=64)     # doctest: +SKIP
        >>> await processor.run()                                                       # doctest: +SKIP
        """
        return make_processor(Processor, self, function, options, asyncio.get_running_loop())

    def _free_memory(self) -> None:
        self._pooled.end()

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """Iterate over the records until the consumer is closed."""
        if self._interceptors is not None and self._interceptors.changes_records:
            return self._intercepted(self._interceptors)
        return self._each()

    async def _intercepted(self, interceptors: ConsumerInterceptors) -> AsyncIterator[ConsumerRecord]:
        async for record in self._each():
            for one in interceptors.on_consume([record]):
                yield one

    async def _each(self) -> AsyncIterator[ConsumerRecord]:
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
        if self._interceptors is not None:
            self._interceptors.check_records("anext()")
        async for record in self._each():
            return record
        raise StopAsyncIteration

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
