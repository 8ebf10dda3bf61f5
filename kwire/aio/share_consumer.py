"""`kwire.aio.ShareConsumer`: the share consumer for asyncio, over the same client as `kwire.ShareConsumer`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

from kwire.cluster import ClientConfig, Cluster
from kwire.cluster.asyncio_waiting import AWAITING
from kwire.cluster.waiting import awaited
from kwire.option_checks import documents_keywords, documents_options, translate_bootstrap
from kwire.share.client import ShareConsumerClient
from kwire.share.options import CLIENT_DEFAULTS, ShareConsumerKwargs, ShareConsumerOptions
from kwire.share.processor import (
    ParallelShareProcessor,
    ShareProcessorKwargs,
    ShareProcessorOptions,
    make_share_processor,
)
from kwire.share.record import ShareRecord

# An iteration that has records does not wait: it lets other tasks run after this many.
_RECORDS_PER_TURN = 1_000


class ShareProcessor(ParallelShareProcessor):
    """Processes the records of a `kwire.aio.ShareConsumer` in parallel: see `ShareConsumer.process`."""

    run = awaited(ParallelShareProcessor._run)


@documents_options(ShareConsumerOptions, ClientConfig, defaults=CLIENT_DEFAULTS)
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

    The options used most: group, acknowledgement_mode, renew, max_poll_records, tls and sasl.
    `help(kwire.aio.ShareConsumer)` and the page "Options" of the documentation have all of them, with defaults and
    units.

    `poll` and iteration raise errors that waiting does not end, each once; a group that refuses this member raises at
    every poll. Retriable errors are not raised. No broker is contacted before `subscribe`.
    """

    _waiter = AWAITING
    _name = "kwire.aio.ShareConsumer"

    @translate_bootstrap("kwire.aio.ShareConsumer")
    def __init__(self, bootstrap: str | Sequence[str] | Cluster, **options: Unpack[ShareConsumerKwargs]) -> None:
        self._set_up(bootstrap, options)

    subscribe = awaited(ShareConsumerClient._subscribe)
    unsubscribe = awaited(ShareConsumerClient._unsubscribe)
    poll = awaited(ShareConsumerClient._poll)
    commit = awaited(ShareConsumerClient._commit)
    metrics = awaited(ShareConsumerClient._metrics)
    client_instance_id = awaited(ShareConsumerClient._client_instance_id)
    explain = awaited(ShareConsumerClient._explain)
    close = awaited(ShareConsumerClient._close)

    @documents_keywords(ShareProcessorOptions)
    def process(self, function: Callable[[Any], Any], **options: Unpack[ShareProcessorKwargs]) -> ShareProcessor:
        """Process the records of the subscription by `function`, in parallel.

        Tasks of the running loop call a coroutine function, threads a plain one.
        A record is accepted when `function` has returned, and released when it raised, so that the group delivers it
        again; rejected when its retries are used up. There is no order. `run` polls until `stop`; nothing else may poll
        meanwhile. With renew=True locks are kept while calls run.

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
