"""Clusters on real sockets for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from brokers.cluster import KafkaCluster

from kwire.broker import Cluster
from tests.broker.comparison import Side

StartCluster = Callable[..., Cluster]


@pytest.fixture
def start() -> Iterator[StartCluster]:
    """Start clusters, close them after the test, and assert that no broker met a bug."""
    with ExitStack() as stack:
        started: list[Cluster] = []

        def start_one(*args: Any, **options: Any) -> Cluster:
            started.append(stack.enter_context(Cluster(*args, **options)))
            return started[-1]

        yield start_one
    assert [failure for cluster in started for failure in cluster.failures] == []


@pytest.fixture(scope="package")
def real_kafka() -> Iterator[tuple[str, int]]:
    """Return the address of a Kafka 4.3.1 broker with short delays."""
    settings = {
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.assignment.interval.ms": "0",
        "auto.create.topics.enable": "true",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.share.min.record.lock.duration.ms": "1000",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
    }
    with KafkaCluster("4.3.1", settings=settings) as real:
        host, port = real.bootstrap.split(":")
        yield host, int(port)


@pytest.fixture
def cluster(start: StartCluster) -> Cluster:
    """Return three brokers with the topic t of 3 partitions."""
    return start(3, topics={"t": 3})


@pytest.fixture(scope="module")
def sides(real_kafka: tuple[str, int]) -> Iterator[tuple[Side, Side]]:
    with Cluster(1, version="4.3", share_min_record_lock_ms=1000) as embedded:
        pair = Side(*real_kafka), Side(*embedded.brokers[1])
        yield pair
        for side in pair:
            side.client.close()
        assert not embedded.failures
