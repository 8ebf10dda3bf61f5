"""The partitions that a turn examines: those that changed, whose timer expired, or that lingered."""

from __future__ import annotations

import math

from kwire.producer.batch import ProducerBatch
from kwire.producer.batch_builder import BatchBuilder
from kwire.producer.partition import PartitionQueue, ReadyQueue
from kwire.producer.splitting import BatchSizeEstimator
from kwire.producer.topic import SlowStart

LINGER = 5.0


def queue_with(created_at: float = 0.0, deadline: float = 100.0) -> PartitionQueue:
    """Return a partition with an open batch."""
    run = BatchBuilder("topic", 0, 1_000)
    run.append(0, None, b"v", (), 10)
    queue = PartitionQueue("topic", 0, 5, limit=BatchSizeEstimator(1_000), slow_start=SlowStart())
    queue.add(ProducerBatch(run, created_at, deadline))
    return queue


def ready_queue_of(*queues: PartitionQueue) -> ReadyQueue:
    """Return a queue in which all of these were examined and parked to linger."""
    ready = ReadyQueue(LINGER)
    for queue in queues:
        ready.add(queue)
    assert list(ready.pop_ready(0.0)) == list(queues)
    for queue in queues:
        ready.park_until_linger(queue, queue.queued[0])
    return ready


def test_a_partition_marked_ready_twice_is_examined_once() -> None:
    first, second = queue_with(), queue_with()
    ready = ready_queue_of(first, second)
    ready.mark_ready(second)
    ready.mark_ready(second)
    assert list(ready.pop_ready(1.0)) == [second]
    assert list(ready.pop_ready(1.0)) == []
    ready.mark_all_ready()
    assert list(ready.pop_ready(1.0)) == [first, second]


def test_a_batch_lingers_until_its_time_is_over() -> None:
    early, late = queue_with(0.0), queue_with(2.0)
    ready = ready_queue_of(late, early)
    assert ready.is_waiting
    for now, due in ((4.9, []), (5.0, [early]), (6.9, []), (7.0, [late]), (50.0, [])):
        assert list(ready.pop_ready(now)) == due
    assert not ready.is_waiting


def test_a_batch_that_is_full_lingers_no_longer() -> None:
    full, open_one = queue_with(), queue_with()
    ready = ready_queue_of(full, open_one)
    full.queued[0].builder.close()
    assert ready.is_due(full.queued[0], 1.0)
    assert not ready.is_due(open_one.queued[0], 1.0)
    assert list(ready.pop_ready(1.0)) == [full]


def test_nothing_lingers_while_senders_wait_for_memory() -> None:
    queue = queue_with()
    ready = ready_queue_of(queue)
    ready.lingers = False
    assert ready.is_due(queue.queued[0], 1.0)
    assert list(ready.pop_ready(1.0)) == [queue]


def test_of_two_times_to_wake_the_earlier_counts() -> None:
    queue = queue_with()
    ready = ready_queue_of(queue)  # until 5
    ready.wake_at(queue, 3.0)
    ready.wake_at(queue, 4.0)
    assert ready.deadlines()[0] == 3.0
    assert list(ready.pop_ready(3.0)) == [queue]
    assert list(ready.pop_ready(5.0)) == [], "an earlier timer replaced this one"
    assert ready.deadlines()[0] == math.inf


def test_deadlines() -> None:
    queue = queue_with(deadline=60.0)
    ready = ready_queue_of(queue, queue_with(deadline=50.0))
    assert ready.deadlines() == (5.0, 50.0, math.inf)
    ready.park(queue)
    assert ready.deadlines() == (5.0, 50.0, 5.0)
    ready.clear()
    assert ready.deadlines() == (math.inf, math.inf, math.inf)
