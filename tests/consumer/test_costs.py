"""What a fetch and its answer cost: Python functions called, from the request to the last record. No clock has a say.

The bounds are what was measured.
"""

from __future__ import annotations

import pytest

from kwire.consumer.inbox import Chunk
from kwire.protocol.messages.fetch import FetchRequest, FetchResponse
from kwire.wire.accel import IMPLEMENTATION
from tests.cluster.calls import Calls
from tests.consumer.world import World, batch

FETCH_CALLS_MAX = 28
PARTITION_CALLS_MAX = 15


def calls_of_a_fetch(partitions: int) -> Calls:
    """The second of a world's fetches: by then, every place is known."""
    world = World({"t": [(1, 0)] * partitions})
    world.assign(*[("t", partition, 0) for partition in range(partitions)])
    world.turn_one().answer({("t", partition): batch(0, b"v") for partition in range(partitions)})
    world.read()
    topic_id = world.view.snapshot.topics["t"].id
    answers = [
        FetchResponse.Topic.Partition(partition_index=partition, error_code=0, high_watermark=2, records=batch(1, b"v"))
        for partition in range(partitions)
    ]
    response = FetchResponse(responses=[FetchResponse.Topic(topic_id=topic_id, partitions=answers)])
    lanes = world.lanes
    with Calls("consumer", "protocol", "records") as calls:
        (call,) = world.fetcher.turn(world.now, world.view)
        call.build(18).encode(18)
        call.on_done(response, world.now)
        for item in world.inbox.take():
            assert isinstance(item, Chunk)
            lanes[item.generation].put(item)
        for lane in lanes.values():
            assert lane.has_next()
            assert lane.cursor is not None
            lane.cursor.take(1)
            assert not lane.has_next()
    assert call.api is FetchRequest
    assert all(lane.position == 2 for lane in lanes.values())
    return calls


@pytest.mark.skipif(IMPLEMENTATION != "c", reason="batches are opened in Python")
def test_calls_of_a_fetch() -> None:
    few, many = calls_of_a_fetch(1), calls_of_a_fetch(9)
    of_a_partition = (many.count - few.count) / 8
    assert of_a_partition <= PARTITION_CALLS_MAX, (many.by_name - few.by_name).most_common(30)
    assert few.count - of_a_partition <= FETCH_CALLS_MAX, few.by_name.most_common(30)
