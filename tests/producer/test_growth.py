"""The cost of a record, in lines of code, does not grow with partitions, earlier records or waiting records.

The bounds are ratios of counts that are the same on every machine. The same runs with queues that look at everything
they hold at every turn must exceed them, or the check would see nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kwire.cluster import ClusterView, PendingRequest
from kwire.producer import topic
from kwire.producer.partition import PartitionQueue
from kwire.producer.sender import Sender
from tests.producer.fakes import Bench
from tests.producer.growth import Growth, Lines

# Of 500 partitions' batches more are not full, and a record costs little beside its batch: that alone is 1.3.
GROWTH_MAX = 1.35


def growth_with_records(sender: type[Sender] = Sender, *, partitions: int = 1, at_once: bool = True) -> float:
    """Return the cost of each of 6,000 records divided by that of each of 500."""
    few = Growth(partitions, sender).lines(500, at_once=at_once)
    return Growth(partitions, sender).lines(6_000, at_once=at_once) / few


def growth_with_partitions(sender: type[Sender] = Sender, *, at_once: bool = False) -> float:
    """Return the cost of a record with 500 partitions divided by that with ten."""
    few = Growth(10, sender).lines(3_000, at_once=at_once)
    return Growth(500, sender).lines(3_000, at_once=at_once) / few


@pytest.mark.slow
@pytest.mark.parametrize(("partitions", "at_once"), [(1, True), (10, True), (10, False)])
def test_cost_does_not_grow_with_records(partitions: int, at_once: bool) -> None:
    assert growth_with_records(partitions=partitions, at_once=at_once) < GROWTH_MAX


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [True, False])
def test_cost_does_not_grow_with_partitions(at_once: bool) -> None:
    assert growth_with_partitions(at_once=at_once) < GROWTH_MAX


@pytest.mark.slow
def test_cost_does_not_grow_with_partitions_of_which_a_request_carries_few() -> None:
    few = Growth(10, max_request_bytes=4_000).lines(3_000, at_once=True)
    assert Growth(500, max_request_bytes=4_000).lines(6_000, at_once=True) < few * GROWTH_MAX


def test_cost_does_not_grow_with_topics() -> None:
    """Only one of 300 topics gets records; the others cost nothing."""
    few = Growth(1, topics=10).lines(1_000, at_once=False)
    assert Growth(1, topics=300).lines(1_000, at_once=False) < few * GROWTH_MAX


def lines_of_metadata(topics: int, partitions: int, *, moved: int = 0) -> int:
    """Return the lines of the sender's turn after metadata that moves the leaders of `moved` topics."""

    def leaders(moved: int) -> dict[str, list[tuple[int, int]]]:
        return {f"t{number}": [(1 + (number < moved), 5 + (number < moved))] * partitions for number in range(topics)}

    bench = Bench(leaders(0))
    for number in range(topics):
        bench.send(b"v", f"t{number}")
    while sent := bench.turn():
        for request in sent:
            request.respond(bench.now)
    bench.know(leaders(moved))
    with Lines() as lines:
        bench.turn()
    return lines.count


def test_metadata_costs_little_where_nothing_is_new() -> None:
    assert lines_of_metadata(1, 2_000) < lines_of_metadata(1, 2) * GROWTH_MAX
    few = lines_of_metadata(10, 1)
    assert (lines_of_metadata(1_000, 1) - few) / 990 < 4, "a topic is one look"
    assert (lines_of_metadata(1_000, 1, moved=990) - few) / 990 > 10, "the check sees nothing"


def test_the_names_of_the_topics_are_one_object_while_none_is_new() -> None:
    """So that the loop need not compare them in each turn."""
    bench = Bench()
    bench.send(b"v", "t")
    bench.turn()
    names = bench.sender.topics()
    assert bench.sender.topics() is names == {"t"}
    bench.send(b"v", "u")
    bench.turn()
    assert bench.sender.topics() == {"t", "u"}


class LooksThroughItsQueue(PartitionQueue):
    """A queue that checks all its batches for overdue ones in `blocked_reason`, as every turn once did."""

    def blocked_reason(self, leader: tuple[int, int], now: float) -> str | None:
        overdue = []
        for batch in self.queued:
            if batch.deadline <= now:
                overdue.append(batch)
        assert not overdue
        return super().blocked_reason(leader, now)


class LooksAtEveryPartition(Sender):
    """For batches to close, at every turn."""

    def turn(self, now: float, view: ClusterView) -> list[PendingRequest]:
        for one in self._topics.values():
            for queue in one.partitions.values():
                waiting = queue.waiting()
                is_open = any(not batch.is_closed for batch in waiting)
                if is_open and queue.attempts > 100:
                    queue.narrow_window(1)
        return super().turn(now, view)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("queue", "sender", "growth"),
    [
        (LooksThroughItsQueue, Sender, growth_with_records),
        (PartitionQueue, LooksAtEveryPartition, growth_with_partitions),
    ],
)
def test_growth_is_seen(
    queue: type[PartitionQueue],
    sender: type[Sender],
    growth: Callable[[type[Sender]], float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic, "PartitionQueue", queue)
    assert growth(sender) > GROWTH_MAX
