"""Test that clients follow a moved leader from the old leader's response alone, on real brokers (KIP-951)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from brokers.cluster import KafkaCluster

from kwire import Admin, Consumer, NewTopic, Producer
from kwire.cluster import ClientConfig, ClientKwargs, LoopThread, ToController
from kwire.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kwire.protocol.messages.elect_leaders import ElectLeadersRequest

PATIENCE_S = 60
# A client that backs off needs longer than AT_ONCE_S.
AT_ONCE_S = 8
FETCH_WAIT_MS = 200
SLOW: ClientKwargs = {"retry_backoff_ms": 20_000, "retry_backoff_ms_max": 20_000, "metadata_max_age_ms": 600_000}


@pytest.fixture
def runtime(three_brokers: KafkaCluster) -> Iterator[LoopThread]:
    with closing(LoopThread(ClientConfig(three_brokers.bootstrap))) as runtime:
        yield runtime


def leader(admin: Admin, topic: str) -> int:
    found = admin.metadata([topic]).partition(topic, 0)
    return -1 if found is None else found.leader


def move(runtime: LoopThread, admin: Admin, topic: str) -> None:
    """Make the next replica the preferred one and then the leader."""
    partition = admin.metadata([topic]).partition(topic, 0)
    assert partition is not None
    replicas = list(partition.replicas)
    at = replicas.index(partition.leader) + 1
    replicas = replicas[at:] + replicas[:at]
    reassigned = AlterPartitionReassignmentsRequest.Topic
    order = reassigned.Partition(partition_index=0, replicas=replicas)
    response = runtime.request(
        ToController(),
        AlterPartitionReassignmentsRequest,
        lambda _: AlterPartitionReassignmentsRequest(
            timeout_ms=PATIENCE_S * 1000, topics=[reassigned(name=topic, partitions=[order])]
        ),
    )
    assert not response.error_code
    elected = ElectLeadersRequest.Topic(topic=topic, partitions=[0])
    deadline = time.monotonic() + PATIENCE_S
    while leader(admin, topic) != replicas[0]:
        assert time.monotonic() < deadline, "the leader stays"
        runtime.request(
            ToController(),
            ElectLeadersRequest,
            lambda _: ElectLeadersRequest(election_type=0, topic_partitions=[elected], timeout_ms=1_000),
        )


@pytest.mark.timeout(120)
def test_producer_and_consumer_follow_a_leader_by_the_old_leaders_response(
    three_brokers: KafkaCluster, runtime: LoopThread, topic_name: str
) -> None:
    bootstrap = three_brokers.bootstrap
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(topic_name, partitions=1, replication_factor=3)])
        with (
            Producer(bootstrap, unknown_topic_timeout_ms=PATIENCE_S * 1000, **SLOW) as producer,
            Consumer(bootstrap, max_wait_ms=FETCH_WAIT_MS, **SLOW) as consumer,
        ):
            values = [b"before", b"moved", b"moved again"]
            for offset, value in enumerate(values):
                if offset:
                    # No fetch waits meanwhile: the old leader would respond to it during the move, before the new
                    # leader knows of its role.
                    consumer.assign([])
                    consumer.poll(timeout=2 * FETCH_WAIT_MS / 1000)
                    move(runtime, admin, topic_name)
                patience = AT_ONCE_S if offset else PATIENCE_S
                assert producer.send(topic_name, value).result(patience).offset == offset
                consumer.assign([(topic_name, 0, offset)])
                assert [record.value for record in consumer.poll(timeout=patience)] == [value]
            metrics = producer.metrics()
    assert metrics.batches_retried == 2, "each time the old leader got the request first"
    assert metrics.records_failed == 0
