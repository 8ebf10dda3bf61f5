"""What the processors of consumers and of share consumers have in common: their run, its end, and its options."""

from __future__ import annotations

import inspect
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from operator import attrgetter
from random import Random
from typing import TYPE_CHECKING, Generic, Protocol, TypedDict, TypeVar

from kwire.cluster.thread import LoopThread
from kwire.cluster.waiting import Waiter
from kwire.consumer.arguments import TopicPartition
from kwire.consumer.record import ConsumerRecord
from kwire.consumer.shards import ShardQueue, WorkPartition
from kwire.consumer.workers import Handling, make_workers
from kwire.errors import ClosedError, ConfigurationError, ProcessingError, WakeupError
from kwire.option_checks import Where, Whole, check_names, check_values, option

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_log = logging.getLogger("kwire.consumer")

R = TypeVar("R", bound=ConsumerRecord)

partition_of: Callable[[ConsumerRecord], TopicPartition] = attrgetter("topic", "partition")

# The longest wait while calls run: so paused partitions and acknowledgements are looked after.
POLL_SECONDS = 0.1
# The longest wait in a poll while there is nothing to do.
IDLE_POLL_SECONDS = 1.0
# What waits: this many times what the workers process at once.
WAITING_PER_WORKER = 2

FUNCTION = Where("a function", callable)
SECONDS = Where("seconds", lambda value: isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0)
_EXECUTOR = Where("a concurrent.futures.Executor", lambda value: isinstance(value, Executor))


def always(error: BaseException) -> bool:
    """Return True: the default of `retry_if`."""
    return True


class CallKwargs(TypedDict, total=False):
    """The keywords that `Consumer.process` and `ShareConsumer.process` share."""

    concurrency: int
    retries: int | None
    retry_if: Callable[[BaseException], bool]
    timeout: float | None
    executor: Executor | None
    drain: float


@dataclass(frozen=True)
class CallOptions:
    """The options of calls, the same for every kind of processor."""

    concurrency: int = option(16, Whole(1), "how many calls run at once")
    timeout: float | None = option(
        None, SECONDS, "a call that takes longer, in seconds, has failed; a task is cancelled, a thread goes on to "
        "its end; None: no limit"
    )  # fmt: skip
    executor: Executor | None = option(
        None, _EXECUTOR, "runs the calls, such as a ProcessPoolExecutor; None: threads, or tasks of asyncio for a "
        "coroutine function"
    )  # fmt: skip

    def __post_init__(self) -> None:
        check_values(self)


def check_call(name: str, function: object, options: Mapping[str, object], declaring: type[CallOptions]) -> None:
    """Check the arguments of `process`, whose name is `name`. Raises TypeError or ConfigurationError."""
    if not callable(function):
        raise TypeError(f"function is {function!r:.60}: give a function of a record")
    check_names(name, None, options, declaring)
    if options.get("executor") is not None and inspect.iscoroutinefunction(function):
        raise ConfigurationError("an executor cannot run a coroutine function", remedy="leave the executor out")


def has_processor() -> ConfigurationError:
    return ConfigurationError("this consumer has a processor", remedy="make another consumer")


@dataclass(frozen=True, slots=True)
class ProcessorMetrics:
    """What a processor did and has to do. All count records, but `failed` and `running`, which count calls."""

    processed: int
    failed: int
    dead: int
    waiting: int
    running: int
    paused: tuple[TopicPartition, ...]


class PolledClient(Protocol):
    """What a processor needs of its consumer."""

    _runtime: LoopThread
    _is_stopping: bool

    @property
    def _waiter(self) -> Waiter: ...

    def wakeup(self) -> None: ...

    async def _close(self, timeout: float | None = ...) -> None: ...


class ParallelCalls(ABC, Generic[R]):
    """Calls for polled records, at the same time. `run` polls; every other method may be called from any thread."""

    def __init__(
        self,
        consumer: PolledClient,
        queue: ShardQueue,
        handling: Handling,
        options: CallOptions,
        *,
        drain: float,
        loop: AbstractEventLoop | None,
        on_idle: Callable[[], object] = lambda: None,
    ) -> None:
        self._polled = consumer
        self._clock = consumer._runtime.clock
        self._queue = queue
        self._is_stopping = False
        self._stop_drain = drain
        self._error: ProcessingError | None = None
        self._error_lock = threading.Lock()
        self._has_run = False
        self._workers = make_workers(
            queue, handling, options.concurrency, executor=options.executor, loop=loop, now=self._clock.now,
            random=Random(), on_fatal=self._fail, on_idle=on_idle,
        )  # fmt: skip

    # -- any thread

    def stop(self, drain: float | None = None) -> None:
        """Have `run` return: no new work, and at most `drain` seconds for calls that run.

        Then what they completed is committed or acknowledged, what did not end is left to the group, and the consumer
        leaves it. Safe in a signal handler. A later call with another time changes it.
        """
        if drain is not None:
            self._stop_drain = drain
        self._is_stopping = True
        self._wake()

    def metrics(self) -> ProcessorMetrics:
        """Return what was done, and what waits."""
        counts = self._workers.counts
        return ProcessorMetrics(
            processed=self._queue.processed_count,
            failed=counts.failed,
            dead=counts.dead,
            waiting=sum(partition.waiting for partition in self._queue.partitions()),
            running=self._queue.running_count,
            paused=(),
        )

    def _wake(self) -> None:
        try:
            self._polled.wakeup()
        except ClosedError:
            return

    def _fail(self, error: ProcessingError) -> None:
        """End the run by the first error that nothing mends."""
        with self._error_lock:
            is_first = self._error is None
            if is_first:
                self._error = error
        if is_first:
            self.stop()

    # -- the polling thread or task

    @abstractmethod
    async def _poll(self) -> Sequence[R]:
        """Return records to process. May raise WakeupError, and may return none after a while."""

    @abstractmethod
    def _add(self, records: Sequence[R]) -> None:
        """Give records to the workers; called after every poll."""

    async def _run(self) -> None:
        """Process records until `stop`, a signal within `with kwire.stop_on_signals():`, or an error.

        ProcessingError is raised for an error that no retry mends and nothing takes.

        Then calls that run end, what they completed is committed or acknowledged, and the consumer leaves its group and
        is closed.
        """
        if self._has_run:
            raise ConfigurationError("a processor runs once", remedy="make another one with consumer.process()")
        self._has_run = True
        self._workers.start()
        try:
            await self._begin_run()
            while not (self._is_stopping or self._polled._is_stopping):
                try:
                    records: Sequence[R] = await self._poll()
                except WakeupError:
                    records = ()
                self._add(records)
                self._workers.empty_hands(POLL_SECONDS)
        finally:
            self._is_stopping = True
            self._workers.stop()
            await self._finish()
        if self._error is not None:
            raise self._error

    async def _begin_run(self) -> None:
        """Prepare for the first poll; most processors need nothing."""

    async def _finish(self) -> None:
        partitions = self._queue.partitions()
        for partition in partitions:
            self._queue.stop_partition(partition.key)
        try:
            if not await self._drained(partitions, lambda: self._stop_drain):
                _log.warning("the processor stops while %d calls still run", self._queue.running_count)
                self._workers.cancel()
        finally:
            await self._end()

    async def _end(self) -> None:
        """Commit or acknowledge what is processed, and leave the group."""
        await self._polled._close()

    async def _drained(self, partitions: Iterable[WorkPartition], seconds: Callable[[], float]) -> bool:
        """Wait until no call of these partitions runs; return whether that was in time, which may change meanwhile."""
        begun, wanted = self._clock.now(), list(partitions)
        self._workers.empty_hands()

        def is_running() -> bool:
            return any(partition.running for partition in wanted)

        while is_running():
            left = begun + seconds() - self._clock.now()
            if left <= 0:
                return False
            await self._wait_while(is_running, min(left, POLL_SECONDS))
        return True

    async def _wait_while(self, condition: Callable[[], bool], seconds: float) -> None:
        """Wait for the end of a call, if a condition holds that such an end may change; at most so many seconds."""
        signal = self._polled._waiter.signal()
        self._queue.on_ended = signal.set
        try:
            if condition():
                await signal.wait(seconds)
        finally:
            self._queue.on_ended = None
