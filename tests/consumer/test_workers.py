"""The calls of processors: what is counted, tried again and put aside."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import suppress
from random import Random
from typing import Any

from kwire.cluster import Backoff
from kwire.consumer.progress import NoProgress, PartitionProgress
from kwire.consumer.record import ConsumerRecord
from kwire.consumer.shards import ShardQueue
from kwire.consumer.workers import Handling, ThreadWorkers
from tests.consumer.test_shards import T, records

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
