"""kafkatest's TruncationTest: a group's member consumes on after an election that lost records."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from brokers.cluster import KafkaCluster

from kwire import Admin, NewTopic
from tests.live.system.services import VerifiableConsumer, VerifiableProducer

Run = Callable[[Any], Any]
LEADER, FOLLOWER = 2, 3


@pytest.mark.timeout(600)
def test_offset_truncate(brokers: KafkaCluster, run: Run, protocol: str) -> None:
    topic = f"truncated-{protocol}"
    with Admin(brokers.bootstrap) as admin:
        configs = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
        admin.create_topics([NewTopic(topic, assignments={0: [LEADER, FOLLOWER]}, configs=configs)], timeout=60)
    producer = run(VerifiableProducer(brokers, topic, throughput=50))
    producer.start()
    producer.await_produced_messages(50)
    consumer = run(VerifiableConsumer(brokers, topic, topic, 1, protocol=protocol, verify_offsets=False))
    consumer.start()
    consumer.await_all_members()
    consumer.await_consumed_messages(10)
    brokers.stop_node(FOLLOWER, graceful=False)
    consumer.await_consumed_messages(50)  # the follower will not have these
    before = consumer.global_position[topic, 0]
    brokers.stop_node(LEADER, graceful=False)
    try:
        brokers.start_node(FOLLOWER)
        seen = consumer.total_consumed()
        consumer.wait_until(
            lambda: consumer.total_consumed() > seen and consumer.global_position[topic, 0] >= before, "the new log"
        )
    finally:
        brokers.start_node(LEADER)
    starts = [start for start, _ in consumer.consumed[topic, 0]]
    assert starts.count(0) == 1, "the reader must not begin again"
    spans = consumer.consumed[topic, 0]
    assert any(start < stop for (_, stop), (start, _) in pairwise(spans)), "it must go back to where the logs part"
    consumer.stop_all()
    producer.stop_all()
