"""Counts of brokers: distributions, and what the loop counts over a fake network."""

from __future__ import annotations

from random import Random

import pytest

from kwire.cluster import ToNode
from kwire.cluster.metrics import BOUNDS, Distribution, Histogram
from kwire.errors import DisconnectedError
from kwire.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.cluster.test_loop import Watcher, World


def observed(*seconds: float) -> Distribution:
    histogram = Histogram()
    for one in seconds:
        histogram.observe(one)
    return histogram.distribution()


def test_a_duration_counts_for_the_bound_that_it_does_not_exceed() -> None:
    assert observed(0.0, 0.001, 0.0011, 0.5, 0.50001, 31.0).counts == (2, 1, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1)
    assert len(BOUNDS) == 14


def test_mean_and_count() -> None:
    assert (observed().count, observed().mean) == (0, 0.0)
    two = observed(0.002, 0.004)
    assert two.count == 2
    assert two.mean == pytest.approx(0.003)


@pytest.mark.parametrize(
    ("seconds", "part", "expected"),
    [
        ([], 0.5, 0.0),
        ([0.0001] * 4, 0.5, 0.0005),  # half of the first bucket
        ([0.0001] * 4, 1.0, 0.001),
        ([0.002] * 90 + [0.2] * 10, 0.5, 0.001 + 0.0015 * 50 / 90),
        ([0.002] * 90 + [0.2] * 10, 0.9, 0.0025),
        ([0.002] * 90 + [0.2] * 10, 0.99, 0.1 + 0.15 * 0.9),
        ([100.0], 0.5, 30.0),
    ],
)
def test_quantiles_are_interpolated(seconds: list[float], part: float, expected: float) -> None:
    assert observed(*seconds).quantile(part) == pytest.approx(expected)


def test_the_loop_counts_what_it_says_and_hears() -> None:
    world = World()
    world.net.loop.add(Watcher("t"))
    assert world.net.loop.metrics().brokers == {}
    assert world.net.loop.metrics().metadata_age is None
    outcome = world.call(ToNode(2))
    world.net.run(lambda: outcome)
    metrics = world.net.loop.metrics()
    two = metrics.brokers[2]
    assert (two.address, two.connects, two.losses, two.requests, two.failures) == ("2 at host-2:9092", 1, 0, 1, 0)
    assert (two.is_connected, two.in_flight, two.last_failure) == (True, 0, None)
    assert two.latency["InitProducerId"].count == 1
    assert two.bytes_out > 20
    assert two.bytes_in > 20
    assert metrics.connections == 2, "the bootstrap address is the other"
    assert metrics.brokers[-2].latency["Metadata"].count == 1
    assert metrics.metadata_age is not None
    world.net.clock.advance(5.0)
    later = world.net.loop.metrics().metadata_age
    assert later is not None
    assert later - metrics.metadata_age == pytest.approx(5.0)


def test_the_loop_counts_what_fails() -> None:
    world = World()
    world.net.loop.add(Watcher("t"))
    world.net.run(lambda: world.net.loop.snapshot.topics)
    world.silent.add(InitProducerIdRequest)
    outcome = world.call(ToNode(2))
    world.net.run(lambda: world.hosts[2].received)
    assert world.net.loop.metrics().brokers[2].in_flight == 1
    world.hosts[2].is_up = False
    world.net.run(lambda: outcome)
    two = world.net.loop.metrics().brokers[2]
    assert (two.connects, two.losses, two.requests, two.failures) == (1, 1, 1, 1)
    assert (two.is_connected, two.in_flight) == (False, 0)
    assert isinstance(two.last_failure, DisconnectedError)
    assert "InitProducerId" not in two.latency


def test_many_durations_are_counted_as_one_by_one() -> None:
    random = Random(1)
    for _ in range(200):
        durations = [random.choice([0.0, random.expovariate(100), 1e6, *BOUNDS]) for _ in range(random.randrange(50))]
        one_by_one, at_once = Histogram(), Histogram()
        for seconds in durations:
            one_by_one.observe(seconds)
        at_once.observe_all(durations)
        assert at_once.distribution().counts == one_by_one.distribution().counts
    late = Histogram()
    late.observe_all([-5.0, 0.001, -1.0])  # by clocks that differ
    assert (late.distribution().count, late.distribution().counts[0]) == (3, 3)
    assert late.distribution().mean < 0.001
