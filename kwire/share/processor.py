"""`ShareConsumer.process(function)`: the records of a share group processed in parallel.

There is no order to keep and no offset to commit: a record whose function returned is accepted, one whose function
raised is released, so that the group delivers it again to any member, and rejected when its deliveries are used up.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import groupby
from random import Random
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from kwire.cluster import Backoff
from kwire.cluster.waiting import blocking
from kwire.consumer.arguments import TopicPartition
from kwire.consumer.processor import ProcessorMetrics
from kwire.consumer.progress import NoProgress
from kwire.consumer.shards import ShardQueue
from kwire.consumer.workers import Handling, TaskWorkers, make_workers
from kwire.errors import ClosedError, ConfigurationError, LockLostError, ProcessingError, WakeupError
from kwire.options import Where, Whole, check_names, check_values, option
from kwire.share.record import ShareRecord

if TYPE_CHECKING:
    from kwire.share.client import ShareConsumerClient

P = TypeVar("P", bound="ParallelShareProcessor")

# How long a poll waits while workers are busy: so acknowledgements go out.
_POLL_SECONDS = 0.1
_IDLE_POLL_SECONDS = 1.0
# Records acquired ahead of the workers: their locks tick while they wait.
_WAITING_PER_WORKER = 2


class ShareProcessorKwargs(TypedDict, total=False):
    """The keywords of `ShareConsumer.process`."""

    concurrency: int
    retries: int | None
    retry_if: Callable[[BaseException], bool]
    timeout: float | None
    executor: Executor | None
    drain: float


_FUNCTION = Where("a function", callable)
_EXECUTOR = Where("a concurrent.futures.Executor", lambda value: isinstance(value, Executor))
_SECONDS = Where(
    "seconds", lambda value: isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0
)


def _always(error: BaseException) -> bool:
    return True


@dataclass(frozen=True)
class ShareProcessorOptions:
    """The options of `ShareConsumer.process`."""

    concurrency: int = option(16, Whole(1), "how many calls run at once")
    retries: int | None = option(
        None, Whole(0), "how often a record is delivered again after a failure; then it is rejected; None: up to the "
        "group's own limit of deliveries"
    )  # fmt: skip
    retry_if: Callable[[BaseException], bool] = option(
        _always, _FUNCTION, "a function of the error; False: the record is rejected at once"
    )
    timeout: float | None = option(
        None, _SECONDS, "a call that takes longer, in seconds, has failed; a task is cancelled, a thread goes on to "
        "its end; None: no limit"
    )  # fmt: skip
    executor: Executor | None = option(
        None, _EXECUTOR, "runs the calls, such as a ProcessPoolExecutor; None: threads, or tasks of asyncio for a "
        "coroutine function"
    )  # fmt: skip
    drain: float = option(10.0, _SECONDS, "how long, in seconds, the end waits for calls that run")

    def __post_init__(self) -> None:
        check_values(self)


class ParallelShareProcessor:
    """What both faces of a processor share. `run` polls; every other method may be called from any thread."""

    def __init__(
        self,
        consumer: ShareConsumerClient,
        function: Callable[[Any], Any],
        options: ShareProcessorOptions,
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        self._consumer = consumer
        self._function = function
        self._options = options
        self._clock = consumer._runtime.clock
        self._queue = ShardQueue("none")
        self._waiting_max = _WAITING_PER_WORKER * options.concurrency
        self._is_stopping = False
        self._stop_drain: float = options.drain
        self._failed = 0
        self._rejected = 0
        self._has_run = False
        # The workers' own retries would keep a record here; the group may give it to any member.
        call = self._call_later if inspect.iscoroutinefunction(function) else self._call
        handling = Handling(call, 1, 0, Backoff(1, 1), lambda error: False, None, None)
        self._workers = make_workers(
            self._queue, handling, options.concurrency, executor=None, loop=loop, now=self._clock.now,
            random=Random(), on_fatal=self._fatal, on_idle=lambda: None,
        )  # fmt: skip
        self._error: ProcessingError | None = None

    # -- any thread

    def stop(self, drain: float | None = None) -> None:
        """Have `run` return: no new work, at most `drain` seconds for calls that run, and leave the group.

        What did not end is released. Safe in a signal handler.
        """
        if drain is not None:
            self._stop_drain = drain
        self._is_stopping = True
        try:
            self._consumer.wakeup()
        except ClosedError:
            return

    def metrics(self) -> ProcessorMetrics:
        """Return what was done, and what waits; `dead` counts rejected records."""
        return ProcessorMetrics(
            processed=self._queue.processed_count - self._failed,
            failed=self._failed,
            dead=self._rejected,
            waiting=sum(partition.waiting for partition in self._queue.partitions()),
            running=self._queue.running_count,
            paused=(),
        )

    def _fatal(self, error: ProcessingError) -> None:
        if self._error is None:
            self._error = error
            self.stop()

    # -- workers

    def _call(self, record: ShareRecord) -> None:
        if record.is_lost:
            return  # it waited too long, and the group delivers it again
        started = self._clock.now()
        try:
            executor, timeout = self._options.executor, self._options.timeout
            if executor is not None:
                executor.submit(self._function, record).result(timeout)
            else:
                self._function(record)
                if timeout is not None and self._clock.now() - started > timeout:
                    raise TimeoutError(f"the call took longer than {timeout} s")
        except Exception as error:
            self._give_back(record, error)
        else:
            self._accept(record)

    async def _call_later(self, record: ShareRecord) -> None:
        if record.is_lost:
            return
        try:
            async with asyncio.timeout(self._options.timeout):
                await self._function(record)
        except Exception as error:
            self._give_back(record, error)
        else:
            self._accept(record)

    def _accept(self, record: ShareRecord) -> None:
        try:
            record.accept()
        except LockLostError:
            self._failed += 1  # the group delivers it again: at least once

    def _give_back(self, record: ShareRecord, error: Exception) -> None:
        self._failed += 1
        options = self._options
        is_retried = options.retry_if(error) and (options.retries is None or record.delivery_count <= options.retries)
        try:
            if is_retried:
                record.release()
            else:
                self._rejected += 1
                record.reject()
        except LockLostError:
            return  # the group delivers it again

    # -- the polling thread or task

    async def _run(self) -> None:
        """Process records until `stop`; then wait for calls that run, acknowledge, leave the group, and close."""
        if self._has_run:
            raise ConfigurationError("a processor runs once", remedy="make another one with consumer.process()")
        self._has_run = True
        self._workers.start()
        try:
            while not self._is_stopping:
                free = self._waiting_max - self._outstanding()
                if free <= 0:
                    await self._wait_for_a_call(_POLL_SECONDS)
                    continue
                try:
                    seconds = _POLL_SECONDS if self._outstanding() else _IDLE_POLL_SECONDS
                    self._add(await self._consumer._poll(free, seconds))
                except WakeupError:
                    continue
        finally:
            self._is_stopping = True
            await self._finish()
        if self._error is not None:
            raise self._error

    def _outstanding(self) -> int:
        return self._queue.ready_count + self._queue.running_count

    def _add(self, records: list[ShareRecord]) -> None:
        for key, group in groupby(records, key=_partition_of):
            if self._queue.get(key) is None:
                self._queue.add_partition(key, NoProgress())
            self._queue.add(key, group)

    async def _wait_for_a_call(self, seconds: float) -> None:
        signal = self._consumer._waiter.signal()
        self._queue.on_ended = signal.set
        if self._outstanding() >= self._waiting_max or self._is_stopping:
            await signal.wait(seconds)
        self._queue.on_ended = None

    async def _finish(self) -> None:
        for partition in self._queue.partitions():
            self._queue.stop_partition(partition.key)
        self._workers.stop()
        deadline = self._clock.now() + self._stop_drain
        try:
            while self._queue.running_count and self._clock.now() < deadline:
                signal = self._consumer._waiter.signal()
                self._queue.on_ended = signal.set
                if self._queue.running_count:
                    await signal.wait(min(_POLL_SECONDS, max(0.0, deadline - self._clock.now())))
            self._queue.on_ended = None
            if self._queue.running_count and isinstance(self._workers, TaskWorkers):
                self._workers.cancel()
        finally:
            self._consumer._is_processed_in_parallel = False
            await self._consumer._close()


def _partition_of(record: ShareRecord) -> TopicPartition:
    return record.topic, record.partition


def make_share_processor(
    kind: type[P],
    consumer: ShareConsumerClient,
    function: Callable[[Any], Any],
    options: ShareProcessorKwargs,
    loop: asyncio.AbstractEventLoop | None,
) -> P:
    """Return a share consumer's processor. Raises ConfigurationError for wrong options, or for a second processor."""
    if not callable(function):
        raise TypeError(f"function is {function!r:.60}: give a function of a record")
    check_names("ShareConsumer.process", None, options, ShareProcessorOptions)
    if options.get("executor") is not None and inspect.iscoroutinefunction(function):
        raise ConfigurationError("an executor cannot run a coroutine function", remedy="leave the executor out")
    if not consumer._options.is_explicit:
        raise ConfigurationError(
            'a processor acknowledges each record, and this consumer has acknowledgement_mode="implicit"',
            remedy="leave acknowledgement_mode out",
        )
    if consumer._is_processed_in_parallel:
        raise ConfigurationError("this consumer has a processor", remedy="make another consumer")
    processor = kind(consumer, function, ShareProcessorOptions(**options), loop)
    consumer._is_processed_in_parallel = True
    return processor


class ShareProcessor(ParallelShareProcessor):
    """Processes the records of a `kwire.ShareConsumer` in parallel: see `ShareConsumer.process`."""

    run = blocking(ParallelShareProcessor._run)
