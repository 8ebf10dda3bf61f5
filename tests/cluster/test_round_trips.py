"""What a request and its answer cost: Python functions called, of the loop and of the selector. No clock has a say.

The bounds are what was measured, and a quarter more. Acknowledged latency is the sum of these calls, the producer's own
and the broker's time.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from kwire.cluster import ToNode
from kwire.protocol import Request, Response
from kwire.protocol.messages.init_producer_id import InitProducerIdResponse
from kwire.protocol.messages.metadata import MetadataResponse
from tests.cluster.calls import Calls
from tests.cluster.fake_net import Host, Net
from tests.cluster.snapshots import metadata
from tests.cluster.test_loop import Watcher, World, build_id
from tests.net.harness import framed, joined, read_frame

LOOP_CALLS_MAX = 61
IDLE_CALLS_MAX = 8
SELECTOR_CALLS_MAX = 24


def calls_of_a_request(world: World) -> Calls:
    """In a client that has one machine and is connected to all brokers."""
    world.net.loop.add(Watcher("t"))
    for node in (*world.hosts, 1):
        outcome = world.call(ToNode(node))
        world.net.run(partial(bool, outcome))
    with Calls("cluster", "session", "protocol") as calls:
        outcome = world.call(ToNode(1))
        world.net.run(partial(bool, outcome))
    assert isinstance(outcome[0], InitProducerIdResponse)
    return calls


def test_calls_of_a_request_and_its_answer_in_the_loop() -> None:
    calls = calls_of_a_request(World())
    assert calls.count <= LOOP_CALLS_MAX, calls.by_name.most_common(20)


def test_calls_of_a_turn_in_which_nothing_happens() -> None:
    world = World()
    calls_of_a_request(world)
    world.net.rest(1.0)
    with Calls("cluster", "session", "protocol") as calls:
        world.net.loop.turn(1.0)
    assert calls.count <= IDLE_CALLS_MAX, calls.by_name.most_common(20)


class LargeWorld(World):
    """As many brokers as asked for, all of them connected."""

    def __init__(self, brokers: int) -> None:
        super().__init__()
        nodes = range(1, brokers + 1)
        self.hosts = {node: Host(self.handle) for node in nodes}
        self.net = Net({(f"host-{node}", 9092): host for node, host in self.hosts.items()}, bootstrap="host-1:9092")

    def handle(self, request: Request[Any]) -> Response | None:
        response = super().handle(request)
        return metadata(self.leaders, brokers=tuple(self.hosts)) if isinstance(response, MetadataResponse) else response


def test_connections_that_have_nothing_to_say_cost_nothing() -> None:
    few, many = calls_of_a_request(LargeWorld(3)), calls_of_a_request(LargeWorld(60))
    assert many.count == few.count


@pytest.mark.parametrize("size", [100, 5_000])
def test_calls_of_a_frame_and_its_answer_in_the_selector(size: int) -> None:
    with joined() as (driver, peer):
        for _ in range(2):  # the first answer is the first word of the peer
            with Calls("net") as calls:
                driver.selector.poll([(1, [b"head", bytes(size)])], 0, until_sent=False)
                assert read_frame(peer) == b"head" + bytes(size)
                peer.sendall(framed(b"answer"))
                assert driver.selector.poll([], 10, until_sent=False)
    assert calls.count <= SELECTOR_CALLS_MAX, calls.by_name.most_common(20)


def test_what_is_counted() -> None:
    with Calls("cluster") as calls:
        build_id(1)
        ToNode(1)
    assert calls.count == 0
    with Calls("cluster") as calls:
        World().net.loop.is_ready(0)
    assert calls.by_name["EventLoop.is_ready"] == 1
