"""The pytest fixture `kafka_cluster`, available wherever kwire is installed: a Kafka cluster for each test.

    @pytest.mark.kafka_cluster(brokers=3, topics={"orders": 4})
    def test_orders(kafka_cluster):
        ...  # any Kafka client, at kafka_cluster.bootstrap

It imports nothing else of kwire until a test uses the fixture, because pytest loads every installed plugin.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kwire.broker import Cluster

_MARKER = (
    "kafka_cluster(brokers=1, topics=None, ...): keyword arguments of kwire.broker.Cluster for the fixture "
    "kafka_cluster; the nearest marker wins"
)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Run a `kwire.broker.Cluster` for one test, of one broker unless a marker `kafka_cluster` sets `brokers`.

    The test also fails if a broker had a bug, or a function of the test raised within it: its result proves nothing.
    """
    from kwire.broker import Cluster

    with Cluster(**_options(request.node)) as cluster:
        yield cluster
        failures = cluster.failures
    if failures:
        pytest.fail(f"the embedded brokers failed: {', '.join(map(repr, failures))}; see the log", pytrace=False)


def _options(node: pytest.Item) -> dict[str, Any]:
    options: dict[str, Any] = {"brokers": 1}
    for marker in reversed(list(node.iter_markers("kafka_cluster"))):  # nearest last
        if marker.args:
            raise pytest.UsageError(f"kafka_cluster takes keyword arguments only, not {marker.args[0]!r}")
        options.update(marker.kwargs)
    return options
