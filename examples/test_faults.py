"""Test an application against a cluster that fails on purpose.

Each test has its own cluster, which starts in milliseconds. A fault matches requests by API, broker, client, topic and
partition, and applies to `times` of them.

    pytest examples/test_faults.py
"""

from collections.abc import Iterator

import pytest

import kwire
from kwire.broker import Cluster, Delay, Disconnect, Refuse
from kwire.errors import ErrorCode, KwireError
from kwire.protocol import ApiKey


def pay(producer: kwire.Producer, amount: int) -> str:
    """The application: it must say honestly whether the payment is recorded."""
    try:
        place = producer.send("payments", str(amount)).result(timeout=5)
    except KwireError:
        return "unknown"
    return f"recorded at {place.offset}"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, topics={"payments": 1}) as cluster:
        yield cluster


@pytest.fixture
def producer(cluster: Cluster) -> Iterator[kwire.Producer]:
    with kwire.Producer(cluster.bootstrap, request_timeout_ms=500, delivery_timeout_ms=1_000) as producer:
        yield producer


def test_a_leader_that_moves_is_followed(cluster: Cluster, producer: kwire.Producer) -> None:
    cluster.add_fault(Refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER), api=ApiKey.PRODUCE, times=2)
    assert pay(producer, 10) == "recorded at 0"


def test_a_lost_acknowledgement_does_not_double_a_payment(cluster: Cluster, producer: kwire.Producer) -> None:
    fault = cluster.add_fault(Disconnect(applied=True), api=ApiKey.PRODUCE, times=1)
    assert pay(producer, 10) == "recorded at 0"
    assert fault.hits == 1
    assert [record.value for record in cluster.log("payments").records()] == [b"10"]


def test_a_broker_that_never_responds_is_not_a_success(cluster: Cluster, producer: kwire.Producer) -> None:
    cluster.add_fault(Delay(60_000), api=ApiKey.PRODUCE, times=None)
    assert pay(producer, 10) == "unknown"


def test_a_broker_that_stops_is_replaced(cluster: Cluster, producer: kwire.Producer) -> None:
    assert pay(producer, 10) == "recorded at 0"
    cluster.stop(cluster.leader("payments"))
    assert pay(producer, 20) == "recorded at 1"
