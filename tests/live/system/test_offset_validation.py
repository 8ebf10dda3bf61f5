"""kafkatest's OffsetValidationTest and AssignmentValidationTest (tests/client/consumer_test.py), with kwire's members.

A producer writes all the time. After each disturbance the group gets together again, and everything is consumed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from brokers.cluster import KafkaCluster

from tests.live.system.conftest import make_topic
from tests.live.system.handlers import ConsumerState
from tests.live.system.services import CLASSIC, VerifiableConsumer, VerifiableProducer

Run = Callable[[Any], Any]
pytestmark = pytest.mark.timeout(600)
MEMBERS = 3


@pytest.fixture
def group(run: Run, brokers: KafkaCluster, topic: str, protocol: str) -> Callable[..., VerifiableConsumer]:
    """Return a function that makes the consumer service."""

    def make(members: int = MEMBERS, **options: Any) -> VerifiableConsumer:
        consumer = VerifiableConsumer(brokers, topic, topic, members, protocol=protocol, **options)
        return run(consumer)  # type: ignore[no-any-return]

    return make


@pytest.fixture
def producer(run: Run, brokers: KafkaCluster, topic: str) -> VerifiableProducer:
    return run(VerifiableProducer(brokers, topic))  # type: ignore[no-any-return]


Group = Callable[..., VerifiableConsumer]


def rolling_bounce_brokers(brokers: KafkaCluster, consumer: VerifiableConsumer) -> None:
    for node in brokers.node_ids:
        brokers.stop_node(node)
        brokers.start_node(node)
        consumer.await_all_members()
        consumer.await_consumed_messages()


def bounce_consumers(consumer: VerifiableConsumer, mode: str, *, keep_alive: int = 0, bounces: int = 2) -> None:
    nodes = range(keep_alive, consumer.members)
    for _ in range(bounces):
        for some in [nodes] if mode == "all" else [[node] for node in nodes]:
            for node in some:
                consumer.kill_node(node, clean=True)
            consumer.wait_until(lambda some=some: len(consumer.dead_nodes()) == len(some), "the members ended")  # type: ignore[misc]
            for node in some:
                consumer.start_node(node)
            consumer.await_all_members()
            consumer.await_consumed_messages()


def stop_and_check(consumer: VerifiableConsumer, topic: str, *, has_commits: bool = True) -> None:
    """Stop the members; with clean ends, nothing was consumed twice and all that was consumed is committed."""
    consumer.stop_all()
    positions = {key: position for key, position in consumer.global_position.items() if key[0] == topic}
    assert sum(positions.values()) == consumer.total_consumed()
    if has_commits:
        assert {key: consumer.global_committed[key] for key in positions} == positions


def test_broker_rolling_bounce(brokers: KafkaCluster, group: Group, producer: VerifiableProducer, topic: str) -> None:
    consumer = group(session_s=30)
    producer.start()
    producer.await_produced_messages()
    consumer.start()
    consumer.await_all_members()
    consumer.await_valid_assignment(1)
    rebalances = consumer.num_rebalances()
    rolling_bounce_brokers(brokers, consumer)
    assert consumer.num_rebalances() == rebalances
    stop_and_check(consumer, topic)


@pytest.mark.parametrize("mode", ["all", "rolling"])
def test_consumer_bounce(group: Group, producer: VerifiableProducer, topic: str, mode: str) -> None:
    consumer = group()
    producer.start()
    producer.await_produced_messages()
    consumer.start()
    consumer.await_all_members()
    bounce_consumers(consumer, mode)
    stop_and_check(consumer, topic)


@pytest.mark.parametrize("protocol", [CLASSIC], indirect=True)
@pytest.mark.parametrize("static", [True, False], ids=["static", "dynamic"])
@pytest.mark.parametrize("mode", ["all", "rolling"])
@pytest.mark.parametrize("topic", [3], indirect=True, ids=["3-partitions"])  # so each member has one to revoke
def test_static_consumer_bounce_with_eager_assignment(
    group: Group, producer: VerifiableProducer, topic: str, static: bool, mode: str
) -> None:
    consumer = group(static=static, session_s=60)
    producer.start()
    producer.await_produced_messages()
    consumer.start()
    consumer.await_all_members()
    consumer.await_valid_assignment(3)
    before = consumer.num_revokes_for_alive()
    bounce_consumers(consumer, mode, keep_alive=1)
    assert (consumer.num_revokes_for_alive() == before) == static
    stop_and_check(consumer, topic)


@pytest.mark.parametrize("mode", ["all", "rolling"])
def test_static_consumer_persisted_after_rejoin(
    brokers: KafkaCluster, group: Group, producer: VerifiableProducer, mode: str
) -> None:
    consumer = group(static=True, session_s=60)
    producer.start()
    producer.await_produced_messages()
    consumer.start()
    consumer.await_all_members()
    bounce_consumers(consumer, mode, bounces=1)
    rolling_bounce_brokers(brokers, consumer)
    consumer.stop_all()


@pytest.mark.parametrize("conflicts", [1, 2])
def test_fencing_static_consumer(group: Group, producer: VerifiableProducer, protocol: str, conflicts: int) -> None:
    consumer, conflicting = group(static=True, session_s=60), group(conflicts, static=True, session_s=60)
    producer.start()
    producer.await_produced_messages()
    consumer.start()
    consumer.await_all_members()
    consumer.await_valid_assignment(1)
    rebalances = consumer.num_rebalances()
    conflicting.start()
    if protocol == CLASSIC:  # the newcomers take over
        conflicting.await_all_members()
        consumer.await_members(MEMBERS - conflicts)
        consumer.wait_until(lambda: len(consumer.dead_nodes()) == conflicts, "the fenced members ended")
    else:  # the members stay, and the newcomers wait until they are gone
        consumer.await_consumed_messages()
        assert consumer.num_rebalances() == rebalances
        assert (len(consumer.joined_nodes()), conflicting.joined_nodes()) == (MEMBERS, [])
        consumer.stop_all()
        conflicting.stop_all()
        conflicting.start()
        conflicting.await_all_members()
    conflicting.stop_all()


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("autocommit", [True, False], ids=["auto", "manual"])
def test_consumer_failure(
    group: Group, producer: VerifiableProducer, topic: str, clean: bool, autocommit: bool
) -> None:
    consumer = group(autocommit=autocommit)
    consumer.start()
    consumer.await_all_members()
    consumer.await_valid_assignment(1)
    owner = consumer.owner((topic, 0))
    assert owner is not None
    producer.start()
    producer.await_produced_messages()
    consumer.kill_node(owner, clean=clean)
    consumer.wait_until(
        lambda: len(consumer.joined_nodes()) == MEMBERS - 1 and consumer.owner((topic, 0)) is not None, "another owner"
    )
    consumer.await_consumed_messages(500)
    if clean:
        stop_and_check(consumer, topic, has_commits=not autocommit)
    else:
        consumer.stop_all()
        assert consumer.global_position[topic, 0] <= consumer.total_consumed()


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
def test_broker_failure(
    brokers: KafkaCluster, group: Group, producer: VerifiableProducer, topic: str, clean: bool
) -> None:
    consumer = group(session_s=30)
    producer.start()
    consumer.start()
    consumer.await_all_members()
    consumer.await_valid_assignment(1)
    consumer.await_consumed_messages()
    rebalances = consumer.num_rebalances()
    brokers.stop_node(1, graceful=clean)
    try:
        consumer.await_consumed_messages(500)
        assert consumer.num_rebalances() == rebalances
        stop_and_check(consumer, topic)
    finally:
        brokers.start_node(1)


@pytest.mark.short
def test_group_consumption(group: Group, producer: VerifiableProducer, topic: str) -> None:
    consumer = group()
    producer.start()
    for node in range(MEMBERS):
        consumer.start_node(node)
        consumer.await_members(node + 1)
        consumer.await_consumed_messages()
    for node in range(MEMBERS):
        consumer.kill_node(node, clean=True)
        if node + 1 < MEMBERS:
            consumer.await_members(MEMBERS - node - 1)
            consumer.await_consumed_messages()
    stop_and_check(consumer, topic)


@pytest.mark.parametrize(
    "assignor", ["RangeAssignor", "RoundRobinAssignor", "StickyAssignor", "CooperativeStickyAssignor"]
)
def test_valid_assignment(brokers: KafkaCluster, run: Run, assignor: str) -> None:
    topic = make_topic(brokers, "valid", 6)
    consumer = run(VerifiableConsumer(brokers, topic, topic, MEMBERS, assignor=assignor))
    for node in range(MEMBERS):
        consumer.start_node(node)
        consumer.await_members(node + 1)
        consumer.await_valid_assignment(6)
    consumer.stop_all()
    assert consumer.nodes_in(ConsumerState.DEAD) == list(range(MEMBERS))
