"""What a refresh of the metadata costs a partition grows neither with partitions nor with topics: lines are counted."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest

from kwire.cluster import Backoff
from kwire.cluster.metadata import MetadataUpdater
from kwire.protocol.messages.metadata import MetadataResponse
from tests.producer.growth import Lines

GROWTH_MAX = 1.1
LINES_MAX = 16  # for a partition: decoding it, making its entry, seeing whether it has a leader


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


def lines_of_a_partition(topics: int, partitions: int) -> float:
    """Of a second refresh, which finds all of it known."""
    updater = MetadataUpdater(max_age_ms=1, backoff=Backoff(100, 1_000), random=Random(1), allow_auto_create=False)
    updater.want({f"t{number}" for number in range(topics)})
    data = response(topics, partitions)
    for now in (1.0, 2.0):
        updater.start()
        with Lines() as lines:
            updater.answered(MetadataResponse.decode(data, 12), now)
    assert sum(len(topic.partitions) for topic in updater.snapshot.topics.values()) == topics * partitions
    return lines.count / (topics * partitions)


@pytest.mark.parametrize(("few", "many"), [((1, 2_000), (1, 20_000)), ((20, 100), (200, 100))])
def test_cost_of_a_refresh_is_in_proportion(few: tuple[int, int], many: tuple[int, int]) -> None:
    assert lines_of_a_partition(*few) < LINES_MAX
    assert lines_of_a_partition(*many) < lines_of_a_partition(*few) * GROWTH_MAX
