"""The cost of a metadata refresh per partition does not grow with the number of partitions or topics.

The longest time for which a refresh blocks the loop does not grow at all. The tests count executed lines and garbage
collections."""

from __future__ import annotations

import gc
from collections.abc import Callable
from random import Random
from uuid import UUID

import pytest

from kwire.cluster import Backoff
from kwire.cluster.metadata import MetadataUpdater
from kwire.protocol.messages.metadata import MetadataResponse
from tests.producer.growth import Lines

GROWTH_MAX = 1.1


def response(topics: int, partitions: int) -> bytes:
    broker, topic = MetadataResponse.Broker, MetadataResponse.Topic
    return MetadataResponse(
        brokers=[broker(node_id=node, host="h", port=9092, rack=None) for node in range(3)],
        controller_id=0,
        topics=[
            topic(error_code=0, name=f"t{number}", topic_id=UUID(int=number + 1), is_internal=False, partitions=[
                topic.Partition(
                    error_code=0, partition_index=index, leader_id=index % 3, leader_epoch=5, replica_nodes=[0, 1, 2],
                    isr_nodes=[0, 1, 2], offline_replicas=[],
                )
                for index in range(partitions)
            ])
            for number in range(topics)
        ],
    ).encode(12)  # fmt: skip


class Refreshes:
    """Applies responses. Of the last one: the executed lines per partition, and those of the longest step."""

    def __init__(self, topics: int, partitions: int) -> None:
        self._data, self._count = response(topics, partitions), topics * partitions
        self.updater = MetadataUpdater(max_age_ms=1, backoff=Backoff(100, 1_000), random=Random(1))
        self.updater.set_topics({f"t{number}" for number in range(topics)})
        self.of_a_partition = self.longest = 0.0

    def start(self) -> MetadataResponse:
        self.updater.start()
        return MetadataResponse.decode(self._data, 12)

    def apply(self, received: MetadataResponse, now: float) -> list[int]:
        """Return the number of executed lines of each step."""
        steps: list[int] = []
        is_done = False
        while not is_done:
            with Lines() as lines:
                is_done = self.updater.continue_update() if steps else self.updater.handle_response(received, now)
            steps.append(lines.count)
        assert sum(len(topic.partitions) for topic in self.updater.snapshot.topics.values()) == self._count
        return steps

    def learn(self) -> None:
        """Apply the response once without counting, so that a refresh finds everything known."""
        received = self.start()
        is_done = self.updater.handle_response(received, 1.0)
        while not is_done:
            is_done = self.updater.continue_update()

    def refresh(self, now: float) -> None:
        with Lines() as decoding:
            received = self.start()
        steps = self.apply(received, now)
        self.of_a_partition = (decoding.count + sum(steps)) / max(1, self._count)
        self.longest = max(steps)


def refreshed(topics: int, partitions: int) -> Refreshes:
    """Return a refresh that finds everything known."""
    refreshes = Refreshes(topics, partitions)
    refreshes.learn()
    refreshes.refresh(2.0)
    return refreshes


@pytest.mark.slow
@pytest.mark.parametrize(("few", "many"), [((1, 2_000), (1, 10_000)), ((20, 100), (100, 100))])
def test_cost_of_a_refresh_is_in_proportion(few: tuple[int, int], many: tuple[int, int]) -> None:
    small, large = refreshed(*few), refreshed(*many)
    assert large.of_a_partition < small.of_a_partition * GROWTH_MAX


@pytest.mark.slow
@pytest.mark.parametrize(
    ("few", "many"), [((60, 100), (240, 100)), ((3_000, 1), (12_000, 1)), ((1, 6_000), (1, 24_000))]
)
def test_the_longest_step_grows_neither_with_topics_nor_with_partitions(
    few: tuple[int, int], many: tuple[int, int]
) -> None:
    assert refreshed(*many).longest < refreshed(*few).longest * GROWTH_MAX


def collections(action: Callable[[], object]) -> int:
    """Return the number of garbage collections during the action, after one just before it."""
    seen: list[str] = []
    gc.collect()
    gc.callbacks.append(look := lambda phase, info: seen.append(phase))
    try:
        action()
    finally:
        gc.callbacks.remove(look)
    return len(seen) // 2


@pytest.mark.slow
def test_the_collector_has_little_to_do() -> None:
    """The collector runs after a number of new objects, and over all objects after some time."""
    refreshes = Refreshes(200, 100)
    gc.collect()
    before = len(gc.get_objects())
    received = refreshes.start()
    assert collections(lambda: refreshes.apply(received, 1.0)) == 0
    assert len(gc.get_objects()) - before < 1.1 * 20_000, "a partition is one object, with lists that it shares"
    assert collections(lambda: [[] for _ in range(5_000)]) > 0
