"""What a fetched batch costs does not grow with partitions, idle ones or busy ones: lines of code are counted."""

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


def lines_of_a_hot_batch(idle_partitions: int) -> int:
    """From the request to the posted records, within a session, of the only partition that returns records."""
    world = World({"t": [(1, 0)] * (1 + idle_partitions)})
    world.assign(*(("t", partition, 0) for partition in range(1 + idle_partitions)))
    world.turn_one().respond_fetch(session_id=9)
    topic_id = world.view.snapshot.topics["t"].id
    counts = []
    for offset in range(2):  # the first is still busy with the full response
        hot = FetchResponse.Topic.Partition(
            partition_index=0, error_code=0, high_watermark=9, records=batch(offset, b"v")
        )
        response = FetchResponse(session_id=9, responses=[FetchResponse.Topic(topic_id=topic_id, partitions=[hot])])
        data = response.encode(18)
        with Lines(ROOMS) as lines:
            (call,) = world.fetcher.turn(world.now, world.view)
            call.build(18).encode(18)
            call.on_done(FetchResponse.decode(data, 18), world.now)
            posted = world.posted()
        assert len(posted) == 1
        counts.append(lines.count)
    return counts[-1]


def test_f14_idle_partitions_do_not_slow_a_hot_one_down() -> None:
    assert lines_of_a_hot_batch(5_000) < lines_of_a_hot_batch(0) * GROWTH_MAX


def test_cost_does_not_grow_with_partitions() -> None:
    assert lines_of_a_batch(1_000) < lines_of_a_batch(10) * GROWTH_MAX < lines_of_a_batch(1) * GROWTH_MAX
