"""What a fetched batch costs does not grow with partitions, each of which has one: lines of code are counted."""

from __future__ import annotations

from kwire.protocol.messages.fetch import FetchResponse
from tests.consumer.world import World, batch
from tests.producer.growth import ROOT, Lines

ROOMS = tuple(f"{ROOT}/kwire/{room}/" for room in ("consumer", "cluster", "protocol", "records"))
GROWTH_MAX = 1.1


def lines_of_a_batch(partitions: int) -> float:
    """From the request to the last record, of the second of a world's fetches."""
    world = World({"t": [(1, 0)] * partitions})
    world.assign(*(("t", partition, 0) for partition in range(partitions)))
    world.turn_one().respond_fetch({("t", partition): batch(0, b"v") for partition in range(partitions)})
    world.read()
    responses = [
        FetchResponse.Topic.Partition(partition_index=partition, error_code=0, high_watermark=2, records=batch(1, b"v"))
        for partition in range(partitions)
    ]
    topic_id = world.view.snapshot.topics["t"].id
    data = FetchResponse(responses=[FetchResponse.Topic(topic_id=topic_id, partitions=responses)]).encode(18)
    with Lines(ROOMS) as lines:
        (call,) = world.fetcher.turn(world.now, world.view)
        call.build(18).encode(18)
        call.on_done(FetchResponse.decode(data, 18), world.now)
        assert len(world.read()) == partitions
    return lines.count / partitions


def test_cost_does_not_grow_with_partitions() -> None:
    assert lines_of_a_batch(1_000) < lines_of_a_batch(10) * GROWTH_MAX < lines_of_a_batch(1) * GROWTH_MAX
