"""The calls of processors: what is counted, tried again and put aside."""

from __future__ import annotations

import threading
from contextlib import suppress
from random import Random
from typing import Any

from kwire.cluster import Backoff
from kwire.consumer.progress import NoProgress
from kwire.consumer.record import ConsumerRecord
from kwire.consumer.shards import ShardQueue
from kwire.consumer.workers import Handling, ThreadWorkers
from tests.consumer.test_shards import T, records

TOGETHER_SECONDS = 0.2


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
