"""The calls of processors: what is counted, tried again and put aside."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from kwire.cluster import Backoff
from kwire.consumer.progress import NoProgress, PartitionProgress
from kwire.consumer.record import ConsumerRecord
from kwire.consumer.shards import ShardQueue
from kwire.consumer.workers import Handling, ThreadWorkers, _Hand
from tests.consumer.test_shards import T, records
from tests.waiting import wait_until

TOGETHER_SECONDS = 0.2
PATIENCE_SECONDS = 10.0


def handling_of(function: Any, **options: Any) -> Handling:
    chosen: dict[str, Any] = {
        "batch": 1, "retries": 0, "backoff": Backoff(1, 1), "retry_if": lambda error: True,
        "dead_letters": lambda record, error: None, "timeout": None,
    }  # fmt: skip
    return Handling(function, **(chosen | options))


class Meeting:
    """A number that shows when two threads add to it at once: each of them waits for another one."""

    def __init__(self, value: int, meeting: threading.Barrier) -> None:
        self.value = value
        self._meeting = meeting

    def __add__(self, other: int) -> Meeting:
        with suppress(threading.BrokenBarrierError):
            self._meeting.wait(TOGETHER_SECONDS)
        return Meeting(self.value + other, self._meeting)


def test_calls_that_fail_at_the_same_time_are_all_counted() -> None:
    queue = ShardQueue("none")
    queue.add_partition(T, NoProgress())
    begun, ended = threading.Barrier(2), threading.Semaphore(0)

    def fail(record: ConsumerRecord) -> None:
        begun.wait()
        raise ValueError

    workers = ThreadWorkers(
        queue, handling_of(fail), 2, now=lambda: 0.0, random=Random(1), on_fatal=print, on_idle=ended.release
    )
    counts: Any = workers.counts
    counts.failed = Meeting(0, threading.Barrier(2))
    queue.add(T, records(None, None))
    queue.on_ended = ended.release
    workers.start()
    while queue.processed_count < 2:
        ended.acquire()
    workers.stop()
    assert counts.failed.value == 2


def test_a_long_call_does_not_hold_up_what_its_worker_took_with_it() -> None:
    queue = ShardQueue("none")
    queue.add_partition(T, NoProgress())
    lock, others = threading.Lock(), threading.Event()
    seen: list[int] = []
    in_time: list[bool] = []

    def work(record: ConsumerRecord) -> None:
        if record.offset == 150:
            in_time.append(others.wait(PATIENCE_SECONDS))
            return
        with lock:
            seen.append(record.offset)
            if len(seen) == 299:
                others.set()

    workers = ThreadWorkers(
        queue, handling_of(work), 2, now=time.monotonic, random=Random(1), on_fatal=print, on_idle=lambda: None
    )
    ended = threading.Semaphore(0)
    queue.on_ended = ended.release
    queue.add(T, records(*[None] * 300))
    workers.start()
    while queue.processed_count < 300:
        assert ended.acquire(timeout=2 * PATIENCE_SECONDS)
        workers.empty_hands()
    workers.stop()
    assert in_time == [True]


def test_what_is_done_is_reported_while_the_next_call_runs() -> None:
    queue = ShardQueue("none")
    progress = PartitionProgress(0)
    queue.add_partition(T, progress)
    started, release = threading.Event(), threading.Event()

    def work(record: ConsumerRecord) -> None:
        if record.offset == 5:  # the third of four that the worker took at once
            started.set()
            release.wait(PATIENCE_SECONDS)

    workers = ThreadWorkers(
        queue, handling_of(work), 1, now=lambda: 0.0, random=Random(1), on_fatal=print, on_idle=lambda: None
    )
    queue.add(T, records(*[None] * 7))
    workers.start()
    assert started.wait(PATIENCE_SECONDS)
    workers.empty_hands()
    assert progress.base == 5
    assert queue.running_count == 1, "others may take what it has not begun"
    release.set()
    workers.stop()


def test_brisk_calls_are_left_to_one_thread() -> None:
    queue = ShardQueue("none")
    queue.add_partition(T, NoProgress())
    by_thread: Counter[int] = Counter()
    ended = threading.Semaphore(0)
    workers = ThreadWorkers(
        queue, handling_of(lambda record: by_thread.update((threading.get_ident(),))), 4,
        now=lambda: 0.0, random=Random(1), on_fatal=print, on_idle=ended.release,
    )  # fmt: skip
    queue.add(T, records(*[None] * 20_000))
    workers.start()
    while queue.processed_count < 20_000:
        assert ended.acquire(timeout=PATIENCE_SECONDS)
    workers.stop()
    assert by_thread.total() == 20_000
    assert max(by_thread.values()) > 19_900, "the others only begin"


def test_calls_that_wait_after_brisk_ones_get_all_threads() -> None:
    queue = ShardQueue("none")
    queue.add_partition(T, NoProgress())
    meeting = threading.Barrier(3)
    met: list[bool] = []
    ended = threading.Semaphore(0)

    def work(record: ConsumerRecord) -> None:
        if record.offset in (5_000, 5_001, 5_002):
            with suppress(threading.BrokenBarrierError):
                meeting.wait(PATIENCE_SECONDS)
                met.append(True)

    workers = ThreadWorkers(
        queue, handling_of(work), 3, now=time.monotonic, random=Random(1), on_fatal=print, on_idle=ended.release
    )
    queue.add(T, records(*[None] * 10_000))
    workers.start()
    while queue.processed_count < 10_000:
        assert ended.acquire(timeout=2 * PATIENCE_SECONDS)
    workers.stop()
    assert met == [True] * 3


class Waits:
    """A function of records, one call of which waits until a later record is processed. Its clock stands but for that.

    `waits_in` looks at the hand that the call's thread has: the call that waits is the first for which it is true.
    """

    def __init__(self, queue: ShardQueue, waits_in: Callable[[_Hand], bool], **options: Any) -> None:
        self.now, self.waiting, self.is_later_in_time = 0.0, -1, False
        self._waits_in, self._later, self._ended = waits_in, threading.Event(), threading.Semaphore(0)
        self._queue = queue
        self.workers = ThreadWorkers(
            queue, handling_of(self._work, **options), 2, now=lambda: self.now, random=Random(1), on_fatal=print,
            on_idle=lambda: None,
        )  # fmt: skip
        queue.on_ended = self._ended.release

    def _work(self, record: ConsumerRecord) -> None:
        if record.offset == 0:
            raise ValueError
        hand = self.workers._hands.get(threading.get_ident())
        if self.waiting >= 0:
            if record.offset > self.waiting:
                self._later.set()
        elif hand is not None and self._waits_in(hand):
            self.waiting = record.offset
            self.now += 1.0
            self.is_later_in_time = self._later.wait(PATIENCE_SECONDS)

    def process(self, count: int) -> None:
        """Begin with the record that fails. When both threads wait, add the others."""
        queue = self._queue
        queue.add(T, records(None))
        self.workers.start()
        waiting: Any = queue.has_work
        wait_until(lambda: self.workers.counts.failed == 1 and len(waiting._waiters) == 2)
        queue.add(T, records(*[None] * (count - 1), start=1))
        while queue.processed_count < count:
            assert self._ended.acquire(timeout=2 * PATIENCE_SECONDS)
            if self.is_later_in_time:
                self.now = 100.0  # for the retry
                with queue.has_work:
                    queue.has_work.notify_all()
        self.workers.stop()


def test_what_came_while_one_thread_worked_alone_is_taken_when_its_last_call_waits() -> None:
    """Nothing of its hand is left for another, so that only the end of its being alone wakes one."""
    queue = ShardQueue("none")
    queue.add_partition(T, NoProgress())
    waits = Waits(queue, lambda hand: hand is waits.workers._brisk and not hand.works)
    waits.process(1_000)
    assert waits.is_later_in_time


def test_what_a_worker_did_not_begin_is_taken_although_a_retry_is_due_much_later() -> None:
    queue = ShardQueue("none")
    queue.add_partition(T, NoProgress())
    waits = Waits(queue, lambda hand: len(hand.works) > 2, retries=1, backoff=Backoff(50_000, 50_000))
    waits.process(1_000)
    assert waits.is_later_in_time
    assert waits.workers.counts.failed == 2


class Watched(threading.Condition):
    """A condition that counts how often a thread is woken."""

    woken = 0

    def notify(self, n: int = 1) -> None:
        self.woken += 1


def idle_workers(count: int) -> tuple[Any, Watched, Callable[..., _Hand]]:
    """Return workers that do not run, their condition, and what takes so many records as one of their threads."""
    queue = ShardQueue("none")
    queue.add_partition(T, NoProgress())
    queue.has_work = watched = Watched(queue._lock)
    workers = ThreadWorkers(
        queue, handling_of(print), 2, now=lambda: 0.0, random=Random(1), on_fatal=print, on_idle=lambda: None
    )
    queue.add(T, records(*[None] * count))

    def take(most: int, *, is_brisk: bool = False) -> _Hand:
        watched.woken = 0
        hand = workers._take(most, _Hand(0.0, deque(), is_brisk=is_brisk), threading.get_ident())
        assert hand is not None
        return hand

    return workers, watched, take


@pytest.mark.parametrize(("others_look", "woken"), [(None, 1), (50.0, 1), (0.001, 0)])
@pytest.mark.parametrize("is_brisk", [False, True])
def test_another_thread_watches_who_took_all(others_look: float | None, woken: int, is_brisk: bool) -> None:
    workers, watched, take = idle_workers(3)
    workers._wakes_at = others_look
    take(3, is_brisk=is_brisk)
    assert watched.woken == woken


def test_an_idle_thread_looks_when_there_is_something_to_see() -> None:
    workers, _, take = idle_workers(3)
    hand = take(2)
    overdue = workers._next_look()
    assert 0 < overdue < 0.1
    workers.empty_hands()
    assert workers._next_look() == float("-inf"), "what it did not begin can be taken"
    alone = take(3, is_brisk=True)
    assert len(alone.works) == 3
    failed = alone.works.popleft()
    workers.queue.retry(failed, 0.0)
    assert workers._next_look() == overdue, "who works alone takes the retry, too"
    alone.works.clear()  # begun
    assert workers._next_look() == overdue, "it keeps the others from what comes"
    workers.empty_hands()
    assert workers._next_look() == 0.0, "now another thread takes the retry"
    workers.queue.take(0.0)
    assert workers._next_look() is None, "nobody waits for a call that has begun"
    assert not hand.works
