"""What calls the user's function for records: threads, an executor such as a pool of processes, or tasks of asyncio.

Workers take `Work` from a `ShardQueue` and give it back as done, or to be tried again, or end everything. They never
poll and never commit: that is the `Processor`'s part.
"""

from __future__ import annotations

import inspect
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from kwire.cluster import Backoff
from kwire.cluster.waiting import run_blocking
from kwire.consumer.shards import ShardQueue, Work
from kwire.errors import ProcessingError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

# A worker takes several calls at once while they are this short (seconds): so the queue's lock costs less.
_SHORT_SECONDS = 0.001
_GRAB_MAX = 256
# After this time (seconds) others may take what a worker has not begun: one of its calls was not short.
_HELD_SECONDS = 0.005
# Calls as short as this (seconds) wait for nothing but the interpreter: more threads would only compete for it.
_BRISK_SECONDS = 0.000_02


@dataclass(slots=True)
class Counts:
    """What the workers of one processor did, besides what the queue counts. Their lock guards it."""

    failed: int = 0  # calls
    dead: int = 0  # records given to dead_letters


@dataclass(frozen=True, slots=True)
class Handling:
    """What to do with records, and what when that fails: see `Consumer.process`.

    `dead_letters` gets a record and its last error; None: the processor ends with the error. A record that `is_lost`
    is left out. `on_success` gets a record whose call returned; when it raises, the call has failed.
    """

    function: Callable[[Any], Any]
    batch: int
    retries: int | None
    backoff: Backoff
    retry_if: Callable[[BaseException], bool]
    dead_letters: Callable[[Any, BaseException], Any] | None
    timeout: float | None
    is_lost: Callable[[Any], bool] | None = None
    on_success: Callable[[Any], object] | None = None

    @property
    def is_plain(self) -> bool:
        """Return whether a call is the function's, of one record, and nothing else."""
        return self.batch == 1 and self.timeout is None and self.is_lost is None and self.on_success is None

    def is_left_out(self, work: Work) -> bool:
        is_lost = self.is_lost
        return is_lost is not None and all(is_lost(record) for record in work.records)

    def succeeded(self, work: Work) -> None:
        if self.on_success is not None:
            for record in work.records:
                self.on_success(record)

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

    @abstractmethod
    def empty_hands(self, seconds: float = 0.0) -> None:
        """Report what is done, and let any worker take what has not begun, of what was taken so many seconds ago."""

    @abstractmethod
    def cancel(self) -> None:
        """Cancel the calls that run, from any thread: those of tasks."""

    @abstractmethod
    async def _settled(self, sent: Any) -> None:
        """Wait for what `dead_letters` returned, if it is something to wait for."""

    async def _is_dealt_with(self, work: Work, error: BaseException) -> bool:
        """Have a failed call tried again, or give its records to dead_letters; return whether these took them."""
        handling = self.handling
        with self._lock:
            self.counts.failed += 1
        try:
            if handling.retries_left(work, error):
                self.queue.retry(work, self._now() + handling.backoff.seconds(work.attempt, self._random))
                return False
            if handling.dead_letters is None:
                self._fatal(work, error, "the function raised", "mend it, or give dead_letters=... for such records")
                return False
            for record in work.records:
                await self._settled(handling.dead_letters(record, error))
                with self._lock:
                    self.counts.dead += 1
        except BaseException as failure:
            self._fatal(work, failure, "retry_if or dead_letters raised", "mend it")
            return False
        return True

    def _fatal(self, work: Work, error: BaseException, what: str, remedy: str) -> None:
        self.queue.fail(work)
        first = work.records[0]
        fatal = ProcessingError(
            f"{what}: {type(error).__name__}: {error}",
            records=list(work.records),
            topic=first.topic,
            partition=first.partition,
            offset=first.offset,
            remedy=remedy,
        )
        fatal.__cause__ = error
        self._on_fatal(fatal)


@dataclass(slots=True, eq=False)
class _Hand:
    """What a thread has taken at once. Another thread may empty it under the queue's lock."""

    since: float
    works: deque[Work]  # not begun
    done: deque[Work] = field(default_factory=deque)  # and not reported
    is_brisk: bool = False  # its calls were as short as _BRISK_SECONDS


def _emptied(works: deque[Work]) -> list[Work]:
    """Remove and return works, while another thread may add or remove some."""
    found: list[Work] = []
    with suppress(IndexError):
        while True:
            found.append(works.popleft())
    return found


class ThreadWorkers(Workers):
    """Each worker is a thread. With an executor it submits the call there and waits for the result.

    While one thread's calls are brisk, the others wait, and one of them watches it: if it is not back in time, because
    a call waits for something after all, all take part again.
    """

    def __init__(self, *args: Any, executor: Executor | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self._executor = executor
        self._is_plain = executor is None and self.handling.is_plain
        self._hands: dict[int, _Hand] = {}  # by thread, of more than one call
        self._brisk: _Hand | None = None  # of the thread that works alone
        self._wakes_at: float | None = None  # when an idle thread looks again; one is enough
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
        self.empty_hands()

    def _work(self) -> None:
        most, hand, me = 1, _Hand(0.0, deque()), threading.get_ident()
        while (taken := self._take(most, hand, me)) is not None:
            hand, count = taken, len(taken.works)
            first_seconds = self._run(hand)
            seconds = self._now() - hand.since
            hand.is_brisk = self._is_plain and first_seconds < _BRISK_SECONDS and seconds < count * _BRISK_SECONDS
            # Short calls are taken together, long ones one by one.
            is_short = seconds < _SHORT_SECONDS
            most = min(_GRAB_MAX, 2 * most) if is_short else max(1, most // 4)

    def _take(self, most: int, before: _Hand, me: int) -> _Hand | None:
        """Report what is done, and take more, by one turn of the lock; None at the end."""
        queue, now = self.queue, self._now
        with queue.has_work:
            self._hands.pop(me, None)
            other = None if self._brisk is before else self._brisk
            is_brisk = before.is_brisk and other is None
            self._set_brisk(before if is_brisk else other)
            queue.succeed_locked(_emptied(before.done))
            while not self._is_stopping:
                if is_brisk or self._brisk is None:
                    works = queue.take_locked(now(), most)
                    if works:
                        hand = _Hand(now(), deque(works))
                        if len(works) > 1 or is_brisk:
                            self._hands[me] = hand
                        if is_brisk:
                            self._set_brisk(hand)
                        look = self._next_look()
                        if look is not None and (self._wakes_at is None or self._wakes_at > look):
                            queue.has_work.notify()  # another thread looks when time has passed
                        return hand
                    if is_brisk:
                        is_brisk = False
                        self._set_brisk(None)
                    self._on_idle()
                self._wait_locked()
        return None

    def _set_brisk(self, hand: _Hand | None) -> None:
        """Let one thread work alone, or, with None, all."""
        self._brisk = hand
        self.queue.wakes_workers = hand is None

    def _wait_locked(self) -> None:
        """Wait for work, or until there is something to look at, unless another thread does.

        Does not wait if there is work now, because a hand that was overdue has been emptied.
        """
        queue, now = self.queue, self._now()
        self._empty_older_locked(now, _HELD_SECONDS)
        if self._brisk is None and queue.is_ready(now):
            return
        due = self._next_look()
        if due is None or (self._wakes_at is not None and self._wakes_at <= due):
            queue.has_work.wait()
            return
        self._wakes_at = due
        queue.has_work.wait(max(0.0, due - self._now()))
        if self._wakes_at == due:
            self._wakes_at = None

    def _next_look(self) -> float | None:
        """Return when an idle thread must look again: when a hand that others wait for is overdue, or work is due.

        A thread that works alone takes what is due.
        """
        brisk = self._brisk
        times = [hand.since + _HELD_SECONDS for hand in self._hands.values() if hand.works or hand is brisk]
        if brisk is None and (due := self.queue.next_due()) is not None:
            times.append(due)
        return min(times, default=None)

    def empty_hands(self, seconds: float = 0.0) -> None:
        now = self._now()
        with self.queue.has_work:
            self._empty_older_locked(now, seconds)

    def _empty_older_locked(self, now: float, seconds: float) -> None:
        for hand in self._hands.values():
            if hand.since + seconds <= now:
                self._empty_locked(hand)

    def _empty_locked(self, hand: _Hand) -> None:
        """Report what a worker has done, and let others take what it has not begun."""
        if self._brisk is hand:
            self._set_brisk(None)
        self.queue.succeed_locked(_emptied(hand.done))
        self.queue.put_back_locked(_emptied(hand.works))

    def _run(self, hand: _Hand) -> float:
        """Run calls until they have taken long, or another thread has taken the rest. Return the first's seconds."""
        works, done, until = hand.works, hand.done, hand.since + _SHORT_SECONDS
        now, is_plain, function = self._now, self._is_plain, self.handling.function
        begin, first_seconds = now(), -1.0
        while works:
            try:
                work = works.popleft()
            except IndexError:  # another thread has taken the last
                break
            try:
                if is_plain:
                    function(work.records[0])
                else:
                    self._call(work)
            except BaseException as error:
                if run_blocking(self._is_dealt_with(work, error)):
                    done.append(work)
            else:
                done.append(work)
            at = now()
            if first_seconds < 0:
                first_seconds = at - begin
            if works and at > until:
                self.queue.put_back(_emptied(works))
        return max(0.0, first_seconds)

    def _call(self, work: Work) -> None:
        handling = self.handling
        if handling.is_left_out(work):
            return
        argument, timeout = handling.argument(work), handling.timeout
        if self._executor is not None:
            self._submit(self._executor, argument)
        else:
            started = self._now()
            handling.function(argument)
            if timeout is not None and self._now() - started > timeout:
                raise TimeoutError(f"the call took longer than {timeout} s")
        handling.succeeded(work)

    def _submit(self, executor: Executor, argument: Any) -> None:
        future: Future[Any] = executor.submit(self.handling.function, argument)
        try:
            future.result(self.handling.timeout)
        except FutureTimeoutError:
            if not future.done():
                future.cancel()
            raise

    def cancel(self) -> None:
        """Do nothing: a thread runs to its end."""

    async def _settled(self, sent: Any) -> None:
        if hasattr(sent, "result"):  # a future, such as a producer's response
            sent.result()


def make_workers(
    queue: ShardQueue,
    handling: Handling,
    concurrency: int,
    *,
    executor: Executor | None,
    loop: AbstractEventLoop | None,
    **options: Any,
) -> Workers:
    """Return tasks for a coroutine function, else threads."""
    if inspect.iscoroutinefunction(handling.function) and executor is None:
        from kwire.consumer.task_workers import TaskWorkers  # imported late: asyncio takes long to import

        return TaskWorkers(queue, handling, concurrency, loop=loop, **options)
    return ThreadWorkers(queue, handling, concurrency, executor=executor, **options)


__all__: Sequence[str] = ["Counts", "Handling", "ThreadWorkers", "Workers", "make_workers"]
