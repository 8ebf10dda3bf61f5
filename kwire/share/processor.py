"""`ShareConsumer.process(function)`: the records of a share group processed in parallel.

There is no order to keep and no offset to commit: a record whose function returned is accepted, one whose function
raised is released, so that the group delivers it again to any member, and rejected when its deliveries are used up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

from kwire.cluster import Backoff
from kwire.cluster.waiting import blocking
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
from kwire.consumer.progress import NoProgress
from kwire.consumer.shards import ShardQueue
from kwire.consumer.workers import Handling
from kwire.errors import ConfigurationError, LockLostError
from kwire.option_checks import Whole, option
from kwire.share.record import ShareRecord

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from kwire.share.client import ShareConsumerClient

P = TypeVar("P", bound="ParallelShareProcessor")


class ShareProcessorKwargs(CallKwargs, total=False):
    """The keywords of `ShareConsumer.process`."""


@dataclass(frozen=True)
class ShareProcessorOptions(CallOptions):
    """The options of `ShareConsumer.process`."""

    retries: int | None = option(
        None, Whole(0), "how often a record is delivered again after a failure; then it is rejected; None: up to the "
        "group's own limit of deliveries"
    )  # fmt: skip
    retry_if: Callable[[BaseException], bool] = option(
        always, FUNCTION, "a function of the error; False: the record is rejected at once"
    )
    drain: float = option(10.0, SECONDS, "how long, in seconds, the end waits for calls that run")


class ParallelShareProcessor(ParallelCalls[ShareRecord]):
    """What both faces of a processor share. `run` polls; every other method may be called from any thread."""

    def __init__(
        self,
        consumer: ShareConsumerClient,
        function: Callable[[Any], Any],
        options: ShareProcessorOptions,
        loop: AbstractEventLoop | None,
    ) -> None:
        self._consumer = consumer
        self._options = options
        self._waiting_max = WAITING_PER_WORKER * options.concurrency
        self._accepted = self._rejected = 0
        self._lock = threading.Lock()  # guards the counts
        # Retries of the workers would keep a record here; the group may give it to any member.
        handling = Handling(
            function, 1, 0, Backoff(1, 1), always, self._give_back, options.timeout,
            is_lost=lambda record: record.is_lost, on_success=self._accept,
        )  # fmt: skip
        super().__init__(consumer, ShardQueue("none"), handling, options, drain=options.drain, loop=loop)

    # -- any thread

    def metrics(self) -> ProcessorMetrics:
        """Return what was done, and what waits; `dead` counts rejected records."""
        return replace(super().metrics(), processed=self._accepted, dead=self._rejected)

    def _accept(self, record: ShareRecord) -> None:
        record.accept()
        with self._lock:
            self._accepted += 1

    def _give_back(self, record: ShareRecord, error: BaseException) -> None:
        """Release a record whose call failed, or reject it, on the thread of a worker."""
        if not isinstance(error, Exception):
            raise error  # such as SystemExit: it says nothing about the record
        if record.is_lost:
            return  # it waited or took too long, and the group delivers it again: at least once
        options = self._options
        is_retried = options.retry_if(error) and (options.retries is None or record.delivery_count <= options.retries)
        try:
            if is_retried:
                record.release()
            else:
                record.reject()
                with self._lock:
                    self._rejected += 1
        except LockLostError:
            return

    # -- the polling thread or task

    async def _poll(self) -> Sequence[ShareRecord]:
        free = self._waiting_max - self._outstanding()
        if free <= 0:
            await self._wait_while(self._is_busy, POLL_SECONDS)
            return ()
        return await self._consumer._poll(free, POLL_SECONDS if self._outstanding() else IDLE_POLL_SECONDS)

    def _outstanding(self) -> int:
        return self._queue.ready_count + self._queue.running_count

    def _is_busy(self) -> bool:
        return self._outstanding() >= self._waiting_max and not self._is_stopping

    def _add(self, records: Sequence[ShareRecord]) -> None:
        for key, group in groupby(records, key=partition_of):
            if self._queue.get(key) is None:
                self._queue.add_partition(key, NoProgress())
            self._queue.add(key, list(group))

    async def _end(self) -> None:
        self._consumer._is_processed_in_parallel = False
        await super()._end()


def make_share_processor(
    kind: type[P],
    consumer: ShareConsumerClient,
    function: Callable[[Any], Any],
    options: ShareProcessorKwargs,
    loop: AbstractEventLoop | None,
) -> P:
    """Return a share consumer's processor. Raises ConfigurationError for wrong options, or for a second processor."""
    check_call("ShareConsumer.process", function, options, ShareProcessorOptions)
    if not consumer._options.is_explicit:
        raise ConfigurationError(
            'a processor acknowledges each record, and this consumer has acknowledgement_mode="implicit"',
            remedy="leave acknowledgement_mode out",
        )
    if consumer._is_processed_in_parallel:
        raise has_processor()
    processor = kind(consumer, function, ShareProcessorOptions(**options), loop)
    consumer._is_processed_in_parallel = True
    return processor


class ShareProcessor(ParallelShareProcessor):
    """Processes the records of a `kwire.ShareConsumer` in parallel: see `ShareConsumer.process`."""

    run = blocking(ParallelShareProcessor._run)
