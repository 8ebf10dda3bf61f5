"""Members of kwire, of Java and of librdkafka in one group, and groups that change their protocol or assignor.

consumer_protocol_migration_test.py and consumer_rolling_upgrade_test.py of kafkatest, with other clients beside kwire:
what one member's client writes, another's leader or the coordinator must understand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from brokers.cluster import NEWEST, KafkaCluster

from kwire import Consumer
from tests.live.system.conftest import make_topic
from tests.live.system.handlers import TopicPartition
from tests.live.system.services import CLASSIC, CONSUMER, VerifiableConsumer, VerifiableProducer

Run = Callable[[Any], Any]
pytestmark = pytest.mark.timeout(600)
PARTITIONS = 6
CLIENTS = [
    ("kwire", "java", "confluent"),
    ("java", "kwire", "confluent"),
    ("confluent", "kwire", "kwire"),
    ("franz", "kwire", "java"),
    ("kwire", "franz", "confluent"),
]
# Protocol and assignor; and on which version CI runs them.
WAYS = {(CLASSIC, "RangeAssignor"): "3.9.1", (CLASSIC, "CooperativeStickyAssignor"): NEWEST, (CONSUMER, ""): NEWEST}


@pytest.fixture
def topic(brokers: KafkaCluster, request: pytest.FixtureRequest) -> str:
    return make_topic(brokers, request.node.name.partition("[")[0], PARTITIONS)


def ends(brokers: KafkaCluster, topic: str) -> dict[TopicPartition, int]:
    with Consumer(brokers.bootstrap) as consumer:
        return consumer.end_offsets([(topic, number) for number in range(PARTITIONS)])


def settle(consumer: VerifiableConsumer) -> None:
    """Wait until all members have joined, every partition has one owner, and records arrive."""
    consumer.await_all_members()
    consumer.await_valid_assignment(PARTITIONS)
    consumer.await_consumed_messages()


def restart_each(consumer: VerifiableConsumer) -> None:
    """Restart the members one after the other, with the options that the service has by now."""
    for node in range(consumer.members):
        consumer.kill_node(node, clean=True)
        consumer.start_node(node)
        settle(consumer)


def finish(brokers: KafkaCluster, consumer: VerifiableConsumer, producer: VerifiableProducer) -> None:
    """End the producer; the group must consume all that is there, then end well."""
    producer.stop_all()
    assert producer.not_acked == []
    found = ends(brokers, consumer.topic)
    assert sum(found.values()) >= len(producer.acked)
    consumer.await_caught_up(found)
    consumer.stop_all()
    consumer.assert_nothing_lost(found)


@pytest.mark.parametrize(
    ("protocol", "assignor", "clients"),
    [
        pytest.param(
            *way,
            clients,
            marks=pytest.mark.short(version) if clients is CLIENTS[0] else (),
            id="-".join([*way, *clients]),
        )
        for way, version in WAYS.items()
        for clients in CLIENTS
    ],
    indirect=["protocol"],
)
def test_members_of_several_clients(
    brokers: KafkaCluster, run: Run, topic: str, protocol: str, clients: tuple[str, ...], assignor: str
) -> None:
    consumer = run(VerifiableConsumer(brokers, topic, topic, 3, protocol=protocol, clients=clients, assignor=assignor))
    producer = run(VerifiableProducer(brokers, topic))
    producer.start()
    for node in range(3):  # the first leads a classic group
        consumer.start_node(node)
        consumer.await_members(node + 1)
        consumer.await_valid_assignment(PARTITIONS)
    settle(consumer)
    consumer.kill_node(0, clean=True)
    consumer.await_valid_assignment(PARTITIONS)
    consumer.kill_node(1, clean=False)
    consumer.await_valid_assignment(PARTITIONS)
    finish(brokers, consumer, producer)


@pytest.mark.parametrize("before", ["java", "confluent", "franz"])
def test_members_roll_from_another_client_to_kwire_and_back(
    brokers: KafkaCluster, run: Run, topic: str, protocol: str, before: str
) -> None:
    consumer = run(VerifiableConsumer(brokers, topic, topic, 3, protocol=protocol, clients=[before]))
    producer = run(VerifiableProducer(brokers, topic))
    producer.start()
    consumer.start()
    settle(consumer)
    for client in ("kwire", before):
        consumer.clients = [client]
        restart_each(consumer)
    finish(brokers, consumer, producer)


@pytest.mark.parametrize("protocol", [CONSUMER], indirect=True)
@pytest.mark.parametrize("static", [True, False], ids=["static", "dynamic"])
@pytest.mark.parametrize("assignor", ["RangeAssignor", "CooperativeStickyAssignor"])
@pytest.mark.parametrize("clients", [("kwire",), ("java", "kwire", "kwire")], ids=["kwire", "mixed"])
def test_consumer_rolling_migration(
    brokers: KafkaCluster, run: Run, topic: str, protocol: str, static: bool, assignor: str, clients: tuple[str, ...]
) -> None:
    """Members of a classic group become members by KIP-848, one after the other, and classic ones again."""
    consumer = run(VerifiableConsumer(brokers, topic, topic, 3, clients=clients, static=static, assignor=assignor))
    producer = run(VerifiableProducer(brokers, topic))
    producer.start()
    consumer.start()
    settle(consumer)
    for following in (protocol, CLASSIC):
        consumer.protocol = following
        restart_each(consumer)
    finish(brokers, consumer, producer)


@pytest.mark.parametrize("protocol", [CONSUMER], indirect=True)
def test_consumer_offline_migration(brokers: KafkaCluster, run: Run, topic: str, protocol: str) -> None:
    consumer = run(VerifiableConsumer(brokers, topic, topic, 3))
    producer = run(VerifiableProducer(brokers, topic))
    producer.start()
    for following in (CLASSIC, protocol, CLASSIC):
        if consumer.processes:
            consumer.stop_all()
        consumer.protocol = following
        consumer.start()
        settle(consumer)
    finish(brokers, consumer, producer)


def test_rolling_upgrade_of_the_assignor(brokers: KafkaCluster, run: Run) -> None:
    """Members that prefer another assignor use it once all of them have it."""
    topic = make_topic(brokers, "upgrade", 4)
    consumer = run(VerifiableConsumer(brokers, topic, topic, 2))
    in_ranges, in_turn = [[0, 1], [2, 3]], [[0, 2], [1, 3]]

    def await_assignment(expected: list[list[int]]) -> None:
        consumer.wait_until(
            lambda: sorted(sorted(n for _, n in one.assignment) for one in consumer.handlers.values()) == expected,
            f"partitions {expected}",
        )

    consumer.start()
    await_assignment(in_ranges)
    steps = [("RoundRobinAssignor,RangeAssignor", [in_ranges, in_turn]), ("RoundRobinAssignor", [in_turn, in_turn])]
    for assignors, expected in steps:
        consumer.assignor = assignors
        for node in range(2):
            consumer.kill_node(node, clean=True)
            consumer.start_node(node)
            consumer.await_all_members()
            await_assignment(expected[node])
    consumer.stop_all()
