"""Test that no record is lost, duplicated or out of order while one of three real brokers stops and starts again."""

from __future__ import annotations

from collections import defaultdict

import pytest
from brokers.cluster import KafkaCluster

from kwire import Admin, Consumer, NewTopic, Producer, ProduceResponse

PARTITIONS = 6
RECORDS = 30_000


@pytest.mark.timeout(240)
@pytest.mark.parametrize("graceful", [True, False], ids=["stopped", "killed"])
def test_broker_that_stops_and_starts_again(three_brokers: KafkaCluster, graceful: bool) -> None:
    cluster = three_brokers
    topic = f"failover-{graceful}"
    with Admin(cluster.bootstrap) as admin:
        # Two replicas are enough for an acknowledgement, so the topic stays writable while one broker is down.
        configs = {"min.insync.replicas": "2"}
        admin.create_topics([NewTopic(topic, partitions=PARTITIONS, replication_factor=3, configs=configs)])
    sent: list[tuple[int, ProduceResponse]] = []
    with Producer(cluster.bootstrap, delivery_timeout_ms=100_000, linger_ms=2) as producer:
        for number in range(RECORDS):
            sent.append((number % PARTITIONS, producer.send(topic, b"%d" % number, partition=number % PARTITIONS)))
            if number == RECORDS // 3:
                cluster.stop_node(2, graceful=graceful)
            if number == 2 * RECORDS // 3:
                cluster.start_node(2)
        producer.flush(timeout=100)
    expected: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
    for number, (partition, response) in enumerate(sent):
        expected[partition].append((response.result(timeout=0).offset, b"%d" % number))
    received: dict[int, list[tuple[int, bytes | None]]] = defaultdict(list)
    with Consumer(cluster.bootstrap) as consumer:
        consumer.assign([(topic, partition, "earliest") for partition in range(PARTITIONS)])
        while sum(len(records) for records in received.values()) < RECORDS:
            polled = consumer.poll(max_records=10_000, timeout=30)
            assert polled, "nothing for 30 s"
            for record in polled:
                received[record.partition].append((record.offset, record.value))
        ends = consumer.end_offsets([(topic, partition) for partition in range(PARTITIONS)])
    # No offset occurs twice, so no record does. The response to a duplicate batch has no offset.
    assert {partition: [value for _, value in records] for partition, records in received.items()} == {
        partition: [value for _, value in records] for partition, records in expected.items()
    }
    assert set(ends.values()) == {RECORDS // PARTITIONS}
    known = {(partition, *pair) for partition, pairs in expected.items() for pair in pairs if pair[0] >= 0}
    assert known <= {(partition, *pair) for partition, pairs in received.items() for pair in pairs}
