"""Three real brokers per version, and services that end with the test.

Kafka's system tests take long: only those that are marked `short` run, some with one version only (`short("4.3.1")`),
unless KWIRE_SYSTEM_TESTS is "all", as `tools/system` sets it. Those with an older version then have one broker.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, TypeVar

import pytest
from brokers.cluster import NEWEST, KafkaCluster

from kwire import Admin, NewTopic
from tests.live.system.services import CLASSIC, CONSUMER, Service

S = TypeVar("S", bound=Service)
VERSIONS = ("3.9.1", NEWEST)
_ARE_ALL = os.environ.get("KWIRE_SYSTEM_TESTS") == "all"
SETTINGS = {
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "1",
    "auto.create.topics.enable": "false",
}
# Sessions of KIP-848 and of share groups are the broker's: as short as those of the classic members here.
SETTINGS_848 = {
    "group.consumer.min.session.timeout.ms": "5000",
    "group.consumer.session.timeout.ms": "10000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.migration.policy": "bidirectional",
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    unwanted = {item for item in items if "/live/system/" in str(item.path) and not _is_wanted(item)}
    config.hook.pytest_deselected(items=list(unwanted))
    items[:] = [item for item in items if item not in unwanted]


def _is_wanted(item: pytest.Item) -> bool:
    params: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
    if params.get("protocol") == CONSUMER and not has_new_groups(params["brokers"]):
        return False  # a preview there
    if _ARE_ALL:
        return True
    short = item.get_closest_marker("short")
    return short is not None and params["brokers"] in (short.args or VERSIONS)


def has_new_groups(version: str) -> bool:
    return version.startswith("4.")


@pytest.fixture(scope="package", params=VERSIONS)
def brokers(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    settings = SETTINGS | (SETTINGS_848 if has_new_groups(request.param) else {})
    nodes = 3 if _ARE_ALL or request.param == NEWEST else 1
    with KafkaCluster(request.param, nodes=nodes, settings=settings) as cluster:
        yield cluster


@pytest.fixture(params=[CLASSIC, CONSUMER])
def protocol(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def topic(brokers: KafkaCluster, request: pytest.FixtureRequest) -> str:
    """Create a topic of one partition, or as many as the test asks for, named after the test."""
    return make_topic(brokers, request.node.name, getattr(request, "param", 1))


def make_topic(cluster: KafkaCluster, test: str, partitions: int) -> str:
    name = f"{''.join(char if char.isalnum() else '-' for char in test)}-{partitions}-{os.urandom(3).hex()}"
    with Admin(cluster.bootstrap) as admin:
        copies, configs = len(cluster.node_ids), {"min.insync.replicas": "1"}
        new = NewTopic(name, partitions=partitions, replication_factor=copies, configs=configs)
        admin.create_topics([new], timeout=60)
    return name


@pytest.fixture
def run() -> Iterator[Callable[[S], S]]:
    """Return a function that registers a service: whatever happens, its processes are gone after the test."""
    with ExitStack() as services:

        def register(service: S) -> S:
            services.callback(service.kill)
            return service

        yield register
