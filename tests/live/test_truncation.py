"""An unclean leader election on real brokers: a reader of lost records learns at which offset the logs part (F05)."""

from __future__ import annotations

import pytest
from brokers.cluster import NEWEST, KafkaCluster

from kwire import Admin, Consumer, LogTruncationError, NewTopic, Producer

LEADER, FOLLOWER, THIRD = 2, 3, 1


@pytest.mark.timeout(240)
@pytest.mark.parametrize("version", ["2.8.2", NEWEST])
def test_f05_a_reader_of_records_that_an_election_lost_gets_the_divergent_offset(version: str) -> None:
    with KafkaCluster(version=version, nodes=3) as cluster, Consumer(cluster.bootstrap) as consumer:
        with Admin(cluster.bootstrap) as admin:
            configs = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
            admin.create_topics([NewTopic("t", assignments={0: [LEADER, FOLLOWER]}, configs=configs)])
        write(cluster, range(50))
        cluster.stop_node(FOLLOWER, graceful=False)
        write(cluster, range(50, 100))
        consumer.assign([("t", 0, 0)])
        assert values(consumer, 100) == list(range(100))
        cluster.stop_node(LEADER, graceful=False)
        cluster.start_node(FOLLOWER)
        write(cluster, range(1_000, 1_050))
        with pytest.raises(LogTruncationError) as caught:
            values(consumer, 1)
        assert caught.value.divergent_offset == 50
        consumer.seek("t", 0, 50)
        assert values(consumer, 50) == list(range(1_000, 1_050))


def write(cluster: KafkaCluster, numbers: range) -> None:
    with Producer(cluster.bootstrap, delivery_timeout_ms=100_000, linger_ms=0) as producer:
        for number in numbers:
            producer.send("t", b"%d" % number, partition=0)
        producer.flush(timeout=100)


def values(consumer: Consumer, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        polled = consumer.poll(timeout=90.0)
        assert polled, "nothing for 90 s"
        found += [int(record.value or b"") for record in polled]
    return found
