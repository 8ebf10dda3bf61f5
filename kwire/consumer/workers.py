"""What calls the user's function for records: threads, tasks of asyncio, or an executor such as a pool of processes.

Workers take `Work` from a `ShardQueue` and give it back as done, or to be tried again, or end everything. They never
poll and never commit: that is the `Processor`'s part.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any

from kwire.cluster import Backoff
from kwire.consumer.record import ConsumerRecord
from kwire.consumer.shards import ShardQueue, Work
from kwire.errors import ProcessingError

# A worker takes several calls at once while they are this short (seconds): so the queue's lock costs less.
_SHORT_SECONDS = 0.001
_GRAB_MAX = 256


@dataclass(slots=True)
class Counts:
    """What the workers of one processor did, besides what the queue counts. Their lock guards it."""

    failed: int = 0  # calls
    dead: int = 0  # records given to dead_letters


@dataclass(frozen=True, slots=True)
class Handling:
    """What to do with records, and what when that fails: see `Consumer.process`.

    `dead_letters` gets a record and its last error; None: the processor ends with the error.
    """

    function: Callable[[Any], Any]
    batch: int
    retries: int | None
    backoff: Backoff
    retry_if: Callable[[BaseException], bool]
    dead_letters: Callable[[ConsumerRecord, BaseException], Any] | None
    timeout: float | None

    def argument(self, work: Work) -> Any:
        """Return what the function gets: a record, or a list where it processes batches."""
        return work.records[0] if self.batch == 1 else list(work.records)

    def retries_left(self, work: Work, error: BaseException) -> bool:
        return self.retry_if(error) and (self.retries is None or work.attempt <= self.retries)


class Workers(ABC):
    """`concurrency` calls at once. `on_fatal` gets the error that ends the processor; it may be called repeatedly."""

    def __init__(
        self,
        queue: ShardQueue,
        handling: Handling,
        concurrency: int,
        *,
        now: Callable[[], float],
        random: Random,
        on_fatal: Callable[[ProcessingError], object],
        on_idle: Callable[[], object],
    ) -> None:
        self.queue = queue
        self.handling = handling
        self.concurrency = concurrency
        self.counts = Counts()
        self._now = now
        self._random = random
        self._on_fatal = on_fatal
        self._on_idle = on_idle  # a worker found nothing to do
        self._is_stopping = False
        self._lock = threading.Lock()

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def stop(self) -> None:
        """Take no more work. Calls that run go on."""

    def _share(self) -> int:
        """Return how many calls one worker may take, so that the others find some too."""
        return max(1, min(_GRAB_MAX, self.queue.ready_count // (2 * self.concurrency)))

    def _retry(self, work: Work, error: BaseException) -> bool:
        """Note a failed call; return whether it is tried again."""
        with self._lock:
            self.counts.failed += 1
        if not self.handling.retries_left(work, error):
            return False
        self.queue.retry(work, self._now() + self.handling.backoff.seconds(work.attempt, self._random))
        return True

    def _fatal(self, work: Work, error: BaseException, what: str) -> None:
        self.queue.fail(work)
        first = work.records[0]
        fatal = ProcessingError(
            f"{what}: {type(error).__name__}: {error}",
            records=list(work.records),
            topic=first.topic,
            partition=first.partition,
            offset=first.offset,
            remedy="mend the function, or give dead_letters=... to put such records aside",
        )
        fatal.__cause__ = error
        self._on_fatal(fatal)


class ThreadWorkers(Workers):
    """Each worker is a thread. With an executor it submits the call there and waits for the result."""

    def __init__(self, *args: Any, executor: Executor | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self._executor = executor
        handling = self.handling
        self._is_plain = executor is None and handling.timeout is None and handling.batch == 1
        self._threads = [
            threading.Thread(target=self._work, name=f"kwire worker {number}", daemon=True)
            for number in range(self.concurrency)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        with self.queue.has_work:
            self._is_stopping = True
            self.queue.has_work.notify_all()

    def _work(self) -> None:
        most = 1
        while works := self._take(most):
            started = self._now()
            self._run(works, started)
            # Short calls are taken together, long ones one by one.
            is_short = self._now() - started < _SHORT_SECONDS
            most = min(_GRAB_MAX, 2 * most) if is_short else 1

    def _take(self, most: int) -> list[Work]:
        queue, now = self.queue, self._now
        with queue.has_work:
            while not self._is_stopping:
                works = queue.take_locked(now(), min(most, self._share()))
                if works:
                    return works
                self._on_idle()
                retry_at = queue.next_retry()
                queue.has_work.wait(None if retry_at is None else max(0.0, retry_at - now()))
        return []

    def _run(self, works: list[Work], started: float) -> None:
        done: list[Work] = []
        now, is_plain, function = self._now, self._is_plain, self.handling.function
        for number, work in enumerate(works):
            if number and now() - started > _SHORT_SECONDS:
                self.queue.put_back(works[number:])
                break
            try:
                if is_plain:
                    function(work.records[0])
                else:
                    self._call(work)
            except BaseException as error:
                if not self._retry(work, error) and self._put_aside(work, error):
                    done.append(work)
            else:
                done.append(work)
        if done:
            self.queue.succeed(done)

    def _call(self, work: Work) -> None:
        handling, now = self.handling, self._now
        argument = handling.argument(work)
        if self._executor is not None:
            future: Future[Any] = self._executor.submit(handling.function, argument)
            try:
                future.result(handling.timeout)
            except FutureTimeoutError:
                if not future.done():
                    future.cancel()
                raise
            return
        if handling.timeout is None:
            handling.function(argument)
            return
        started = now()
        handling.function(argument)
        if now() - started > handling.timeout:
            raise TimeoutError(f"the call took longer than {handling.timeout} s")

    def _put_aside(self, work: Work, error: BaseException) -> bool:
        """Give records to dead_letters; return whether they are dealt with."""
        dead_letters = self.handling.dead_letters
        if dead_letters is None:
            self._fatal(work, error, "the function raised")
            return False
        try:
            for record in work.records:
                sent = dead_letters(record, error)
                if hasattr(sent, "result"):  # a future, such as a producer's response
                    sent.result()
                with self._lock:
                    self.counts.dead += 1
        except BaseException as failure:
            self._fatal(work, failure, "dead_letters raised")
            return False
        return True


class TaskWorkers(Workers):
    """Each worker is a task of one event loop: the given one, or one in a thread of its own."""

    def __init__(self, *args: Any, loop: asyncio.AbstractEventLoop | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self._loop = loop
        self._thread: threading.Thread | None = None
        self._idle: list[asyncio.Future[None]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._is_wake_posted = False

    def start(self) -> None:
        self.queue.on_ready = self._wake
        if self._loop is not None:
            self._begin()
            return
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name="kwire workers", daemon=True)
        self._thread.start()

    def _run_loop(self) -> None:
        loop = self._loop
        assert loop is not None
        asyncio.set_event_loop(loop)
        self._begin()
        loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    def _begin(self) -> None:
        assert self._loop is not None
        self._tasks = [self._loop.create_task(self._work()) for _ in range(self.concurrency)]

    def stop(self) -> None:
        self._is_stopping = True
        self._wake()

    def _wake(self) -> None:
        """Wake idle tasks; from any thread."""
        if not self._is_wake_posted and self._loop is not None:
            self._is_wake_posted = True
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._wake_idle)

    def _wake_idle(self) -> None:
        self._is_wake_posted = False
        count = len(self._idle) if self._is_stopping else max(1, self.queue.ready_count)
        woken, self._idle = self._idle[:count], self._idle[count:]
        for future in woken:
            if not future.done():
                future.set_result(None)

    async def _work(self) -> None:
        while not self._is_stopping:
            works = self.queue.take(self._now(), 1)
            if works:
                await self._run(works[0])
                continue
            self._on_idle()
            await self._sleep()

    async def _sleep(self) -> None:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._idle.append(future)
        retry_at = self.queue.next_retry()
        if self.queue.ready_count or self._is_stopping:  # it came between `take` and here
            future.set_result(None)
        timeout = None if retry_at is None else max(0.0, retry_at - self._now())
        await asyncio.wait((future,), timeout=timeout)
        if not future.done():
            future.cancel()
        with suppress(ValueError):
            self._idle.remove(future)

    async def _run(self, work: Work) -> None:
        handling = self.handling
        try:
            if handling.timeout is None:
                await handling.function(handling.argument(work))
            else:
                async with asyncio.timeout(handling.timeout):
                    await handling.function(handling.argument(work))
        except asyncio.CancelledError:
            self.queue.put_back([work])
            raise
        except BaseException as error:
            if self._retry(work, error) or not await self._put_aside(work, error):
                return
        self.queue.succeed([work])

    async def _put_aside(self, work: Work, error: BaseException) -> bool:
        dead_letters = self.handling.dead_letters
        if dead_letters is None:
            self._fatal(work, error, "the function raised")
            return False
        try:
            for record in work.records:
                result = dead_letters(record, error)
                if inspect.isawaitable(result):
                    await result
                with self._lock:
                    self.counts.dead += 1
        except BaseException as failure:
            self._fatal(work, failure, "dead_letters raised")
            return False
        return True

    def cancel(self) -> None:
        """Cancel the calls that run; from any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):
                for task in self._tasks:
                    self._loop.call_soon_threadsafe(task.cancel)


def make_workers(
    queue: ShardQueue,
    handling: Handling,
    concurrency: int,
    *,
    executor: Executor | None,
    loop: asyncio.AbstractEventLoop | None,
    **options: Any,
) -> ThreadWorkers | TaskWorkers:
    """Return tasks for a coroutine function, else threads."""
    if inspect.iscoroutinefunction(handling.function) and executor is None:
        return TaskWorkers(queue, handling, concurrency, loop=loop, **options)
    return ThreadWorkers(queue, handling, concurrency, executor=executor, **options)


__all__: Sequence[str] = ["Counts", "Handling", "TaskWorkers", "ThreadWorkers", "Workers", "make_workers"]
