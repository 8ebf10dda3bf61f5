"""Which partitions a turn looks at: what was changed, woke, or lingers no longer, and nothing else."""

from __future__ import annotations

import math

from kwire.producer.batch import ProducerBatch
from kwire.producer.batch_builder import BatchBuilder
from kwire.producer.partition import PartitionQueue
from kwire.producer.ready import ReadyQueue
from kwire.producer.splitting import BatchSizeEstimator
from kwire.producer.topic import SlowStart

LINGER = 5.0


def queue_with(created_at: float = 0.0, deadline: float = 100.0) -> PartitionQueue:
    """A partition with an open batch."""
    run = BatchBuilder("topic", 0, 1_000)
    run.append(0, None, b"v", (), 10)
    queue = PartitionQueue("topic", 0, 5, limit=BatchSizeEstimator(1_000), slow_start=SlowStart())
    queue.add(ProducerBatch(run, created_at, deadline))
    return queue


def agenda_of(*queues: PartitionQueue) -> ReadyQueue:
    """In which all of these were looked at and put aside to linger."""
    agenda = ReadyQueue(LINGER)
    for queue in queues:
        agenda.add(queue)
    assert list(agenda.pop_ready(0.0)) == list(queues)
    for queue in queues:
        agenda.park_until_linger(queue, queue.queued[0])
    return agenda


def test_what_was_stirred_is_looked_at_once() -> None:
    first, second = queue_with(), queue_with()
    agenda = agenda_of(first, second)
    agenda.mark_ready(second)
    agenda.mark_ready(second)
    assert list(agenda.pop_ready(1.0)) == [second]
    assert list(agenda.pop_ready(1.0)) == []
    agenda.mark_all_ready()
    assert list(agenda.pop_ready(1.0)) == [first, second]


def test_a_batch_lingers_until_its_time_is_over() -> None:
    early, late = queue_with(0.0), queue_with(2.0)
    agenda = agenda_of(late, early)
    assert agenda.is_waiting
    for now, due in ((4.9, []), (5.0, [early]), (6.9, []), (7.0, [late]), (50.0, [])):
        assert list(agenda.pop_ready(now)) == due
    assert not agenda.is_waiting


def test_a_batch_that_is_full_lingers_no_longer() -> None:
    full, open_one = queue_with(), queue_with()
    agenda = agenda_of(full, open_one)
    full.queued[0].run.close()
    assert agenda.is_due(full.queued[0], 1.0)
    assert not agenda.is_due(open_one.queued[0], 1.0)
    assert list(agenda.pop_ready(1.0)) == [full]


def test_nothing_lingers_while_senders_wait_for_memory() -> None:
    queue = queue_with()
    agenda = agenda_of(queue)
    agenda.lingers = False
    assert agenda.is_due(queue.queued[0], 1.0)
    assert list(agenda.pop_ready(1.0)) == [queue]


def test_of_two_times_to_wake_the_earlier_counts() -> None:
    queue = queue_with()
    agenda = agenda_of(queue)  # until 5
    agenda.wake_at(queue, 3.0)
    agenda.wake_at(queue, 4.0)
    assert agenda.deadlines()[0] == 3.0
    assert list(agenda.pop_ready(3.0)) == [queue]
    assert list(agenda.pop_ready(5.0)) == [], "what was put aside again before this has its own time"
    assert agenda.deadlines()[0] == math.inf


def test_deadlines() -> None:
    queue = queue_with(deadline=60.0)
    agenda = agenda_of(queue, queue_with(deadline=50.0))
    assert agenda.deadlines() == (5.0, 50.0, math.inf)
    agenda.park(queue)
    assert agenda.deadlines() == (5.0, 50.0, 5.0)
    agenda.clear()
    assert agenda.deadlines() == (math.inf, math.inf, math.inf)
