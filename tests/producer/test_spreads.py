"""Partitions of batches without a key: tables of partitions, their availability, and the choices in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

import pytest

from kwire.cluster import Partition
from kwire.producer.partitioner import ShortestQueue, SingleBroker, Sticky, UnkeyedPartitioner


def partitions(*leaders: int) -> list[Partition]:
    return [Partition(index, leader, 0, (), (), (), 0) for index, leader in enumerate(leaders)]


class Switches:
    """A `PartitionAvailability`: each partition with a leader can take a batch, unless a test says otherwise."""

    def __init__(
        self, *, full: Iterable[int] = (), queued: dict[int, int] | None = None, down: Iterable[int] = ()
    ) -> None:
        self.full = set(full)
        self.queues = queued or {}
        self.down = set(down)
        self.checked: set[int] = set()  # the leaders to which the sender would connect

    def can_take(self, partition: Partition) -> bool:
        self.checked.add(partition.leader)
        return partition.leader >= 0 and partition.leader not in self.down and partition.index not in self.full

    def queued(self, partition: Partition) -> int:
        return self.queues.get(partition.index, 0)

    def is_down(self, node: int) -> bool:
        return node in self.down


def choices(
    spread: UnkeyedPartitioner,
    among: list[Partition],
    room: Switches,
    count: int,
    *,
    size_bytes: int = 100,
    now: float = 0.0,
) -> list[int | None]:
    chosen = [spread.choose("t", among, room, size_bytes, now) for _ in range(count)]
    return [None if partition is None else partition.index for partition in chosen]


@pytest.mark.parametrize(
    ("leaders", "room", "expected"),
    [
        ((1, 1, 1), Switches(), [0, 1, 2, 0, 1]),
        ((1, -1, 2), Switches(), [0, 2, 0, 2, 0]),
        ((1, 2, 3), Switches(down=[2]), [0, 2, 0, 2, 0]),
        ((1, 1, 1), Switches(full=[0]), [1, 2, 1, 2, 1]),
        ((1, 1, 1), Switches(queued={0: 2, 1: 1, 2: 3}), [1, 1, 1, 1, 1]),
        ((1, 1, 1), Switches(queued={0: 1, 1: 1, 2: 1}), [0, 1, 2, 0, 1]),
        ((-1, -1), Switches(), [None] * 5),
        ((), Switches(), [None] * 5),
    ],
)
def test_shortest_queue(leaders: tuple[int, ...], room: Switches, expected: list[int | None]) -> None:
    assert choices(ShortestQueue(), partitions(*leaders), room, 5) == expected


def test_topics_take_their_turns_apart() -> None:
    spread, among, room = ShortestQueue(), partitions(1, 1), Switches()
    order = [spread.choose(topic, among, room, 1, 0.0) for topic in ("a", "b", "a", "b")]
    assert [one and one.index for one in order] == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("size_bytes", "expected"),
    [
        (100, [0, 0, 0, 1, 1, 1]),  # 300 bytes reach the 250 that a partition gets
        (250, [0, 1, 2, 0, 1, 2]),
        (125, [0, 0, 1, 1, 2, 2]),
    ],
)
def test_sticky_changes_after_its_bytes(size_bytes: int, expected: list[int]) -> None:
    assert choices(Sticky(250), partitions(1, 2, 3), Switches(), 6, size_bytes=size_bytes) == expected


def test_sticky_leaves_a_partition_that_cannot_take_more() -> None:
    spread, among, room = Sticky(1_000), partitions(1, 2, 3), Switches()
    assert choices(spread, among, room, 2) == [0, 0]
    room.down.add(1)
    assert choices(spread, among, room, 2) == [1, 1]
    room.full.add(1)
    assert choices(spread, among, room, 2) == [2, 2]
    assert choices(spread, among, Switches(down=[1, 2, 3]), 1) == [None]
    assert choices(spread, among[:1], Switches(), 1) == [0], "a topic created again may have fewer partitions"


def first_node(spread: UnkeyedPartitioner, among: list[Partition], room: Switches, now: float) -> int | None:
    chosen = spread.choose("t", among, room, 1, now)
    return None if chosen is None else chosen.leader


def test_single_broker_keeps_to_one_and_changes_after_thirty_seconds() -> None:
    among = partitions(1, 2, 3, 1, 2, 3)
    for seed in range(5):
        spread, room = SingleBroker(Random(seed), 30.0), Switches()
        nodes = [first_node(spread, among, room, now) for now in (0.0, 1.0, 29.9, 30.0, 59.9, 60.0, 90.0)]
        first = nodes[0] or 0
        second, third = first % 3 + 1, (first + 1) % 3 + 1
        assert nodes == [first] * 3 + [second] * 2 + [third, first]
    fresh = SingleBroker(Random(1), 30.0)
    assert {fresh.choose("t", among, Switches(), 1, 0.0).index % 3 for _ in range(4)} != {0, 1, 2}  # type: ignore[union-attr]


def test_producers_begin_with_different_brokers() -> None:
    among = partitions(1, 2, 3)
    assert {first_node(SingleBroker(Random(seed), 30.0), among, Switches(), 0.0) for seed in range(20)} == {1, 2, 3}


def test_single_broker_opens_no_other_connection() -> None:
    spread, among, room = SingleBroker(Random(1), 30.0), partitions(1, 2, 3, 1, 2, 3), Switches()
    assert len({*choices(spread, among, room, 5)}) == 2
    assert len(room.checked) == 1


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda room: room.down.add(2), 3),  # failed: switch at once
        (lambda room: room.down.update((2, 3)), 1),
        (lambda room: room.down.update((1, 2, 3)), None),
        (lambda room: room.full.update((1, 4)), None),  # busy: wait
    ],
)
def test_single_broker_switches_from_a_failed_broker_but_waits_for_a_busy_one(
    change: Callable[[Switches], None], expected: int | None
) -> None:
    spread, room, among = SingleBroker(Random(0), 30.0), Switches(down=[1, 3]), partitions(1, 2, 3, 1, 2, 3)
    assert first_node(spread, among, room, 0.0) == 2
    room.down.clear()
    change(room)
    assert first_node(spread, among, room, 1.0) == expected


def test_single_broker_sends_a_topic_elsewhere_where_it_leads_none_of_it() -> None:
    spread, room = SingleBroker(Random(0), 30.0), Switches(down=[1, 3])
    assert first_node(spread, partitions(1, 2, 3), room, 0.0) == 2
    room.down.clear()
    elsewhere = spread.choose("other", partitions(1, 3), room, 1, 1.0)
    assert elsewhere is not None
    assert elsewhere.leader == 3
    assert first_node(spread, partitions(1, 2, 3), room, 2.0) == 2, "the broker of the moment stays"
