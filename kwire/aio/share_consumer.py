"""`kwire.aio.ShareConsumer`: the share consumer for asyncio, over the same client as `kwire.ShareConsumer`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

from kwire.cluster import Cluster
from kwire.cluster.waiting import AWAITING, awaited
from kwire.options import translate_bootstrap
from kwire.share.client import ShareConsumerClient
from kwire.share.options import ShareConsumerKwargs
from kwire.share.processor import ParallelShareProcessor, ShareProcessorKwargs, make_share_processor
from kwire.share.record import ShareRecord

# An iteration that has records does not wait: it lets other tasks run after this many.
_RECORDS_PER_TURN = 1_000


class ShareProcessor(ParallelShareProcessor):
    """Processes the records of a `kwire.aio.ShareConsumer` in parallel: see `ShareConsumer.process`."""

    run = awaited(ParallelShareProcessor._run)


class ShareConsumer(ShareConsumerClient):
    """Reads topics as a member of a share group, in tasks of asyncio.

    >>> async with kwire.aio.ShareConsumer("localhost:9092", group="emails") as consumer:   # doctest: +SKIP
    ...     await consumer.subscribe(["emails"])
    ...     async for record in consumer:
    ...         with record:                       # leaves normally: accept; raises: release
    ...             await send_mail(record.value)

    The methods and options are those of `kwire.ShareConsumer`; those that wait are awaited, and `on_acknowledged` may
    be a coroutine function. A task may be cancelled in any of them: no record is lost. The consumer belongs to no event
    loop.

    Options, with their defaults.

    bootstrap                "host:port,host:port" of any brokers of the cluster, a list of such, or a `kwire.Cluster`
    group                    [None] the share group; required
    acknowledgement_mode     ["explicit"] "explicit": each record is acknowledged by itself; "implicit": the next poll
                             accepts all records of the last one
    acquire_mode             ["batch_optimized"] "batch_optimized" acquires whole batches, and so more than
                             max_poll_records; "record_limit" never more (Kafka 4.2)
    renew                    [False] renew the locks of records that are being processed, up to max_processing_ms (Kafka
                             4.2)
    max_processing_ms        [300_000 ms] with renew, the longest time that a record may take
    max_poll_records         [500 records] the limit of one poll
    max_poll_interval_ms     [300_000 ms] without a poll for longer than this, the consumer leaves the group until the
                             next one
    max_wait_ms              [500 ms] how long a broker may wait for min_bytes
    min_bytes                [1 bytes] a broker waits for this many bytes, up to max_wait_ms
    max_bytes                [16_777_216 bytes] the limit of one fetch from one broker
    rack                     [""] the rack, for the assignment
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

    `poll` and iteration raise errors that waiting does not end, each once; a group that refuses this member raises at
    every poll. Retriable errors are not raised. No broker is contacted before `subscribe`.
    """

    _waiter = AWAITING
    _name = "kwire.aio.ShareConsumer"

    @translate_bootstrap("kwire.aio.ShareConsumer")
    def __init__(self, bootstrap: str | Sequence[str] | Cluster, **options: Unpack[ShareConsumerKwargs]) -> None:
        self._set_up(bootstrap, options)

    subscribe = ShareConsumerClient._subscribe
    unsubscribe = ShareConsumerClient._unsubscribe
    poll = ShareConsumerClient._poll
    commit = ShareConsumerClient._commit
    metrics = ShareConsumerClient._metrics
    explain = ShareConsumerClient._explain
    close = ShareConsumerClient._close

    def process(self, function: Callable[[Any], Any], **options: Unpack[ShareProcessorKwargs]) -> ShareProcessor:
        """Process the records of the subscription by `function`, in parallel.

        Tasks of the running loop call a coroutine function, threads a plain one.
        A record is accepted when `function` has returned, and released when it raised, so that the group delivers it
        again; rejected when its retries are used up. There is no order. `run` polls until `stop`; nothing else may poll
        meanwhile. Options: see `ShareProcessorOptions`. With renew=True locks are kept while calls run.

        >>> processor = consumer.process(handle, concurrency=64)      # doctest: +SKIP
        >>> await processor.run()                                           # doctest: +SKIP
        """
        return make_share_processor(ShareProcessor, self, function, options, asyncio.get_running_loop())

    async def __aiter__(self) -> AsyncIterator[ShareRecord]:
        """Iterate over the records until the consumer is closed."""
        count = 0
        while True:
            record = self._next_iterated()
            if record is not None:
                yield record
                count += 1
                if count % _RECORDS_PER_TURN == 0:
                    await self._waiter.yield_now()
            elif not await self._fill_iteration():
                return

    async def __anext__(self) -> ShareRecord:
        async for record in self:
            return record
        raise StopAsyncIteration

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
