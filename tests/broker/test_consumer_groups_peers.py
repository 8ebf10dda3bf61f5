"""Other clients' consumers with group.protocol=consumer on the embedded cluster: Java's and librdkafka's."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from brokers.jars import fetch_jars
from brokers.java import program_command

from kwire import Producer
from kwire.broker import Cluster
from tests.broker.conftest import StartCluster
from tests.broker.peers import PATIENCE_SECONDS

PARTITIONS, RECORDS = 4, 400


def filled(start: StartCluster, **options: Any) -> Cluster:
    """Start a cluster with records in the topic t. Members hear from their coordinator often."""
    cluster = start(3, topics={"t": PARTITIONS}, consumer_group_heartbeat_interval_ms=200, **options)
    with Producer(cluster.bootstrap) as producer:
        for number in range(RECORDS):
            producer.send("t", b"%d" % number, partition=number % PARTITIONS)
        producer.flush()
    return cluster


@pytest.mark.live
@pytest.mark.parametrize("version", ["4.0", "4.3", None])
def test_java_members_of_both_protocols_share_a_group(start: StartCluster, version: str | None) -> None:
    """One member after another: alone, with a pattern, static and back, a classic one; then down and up again."""
    cluster = filled(start, version=version, consumer_group_session_timeout_ms=3000)
    program = Path(__file__).with_name("ConsumerGroups.java")
    command = program_command(fetch_jars("kafka-clients", "4.4.0"), program, cluster.bootstrap, str(RECORDS))
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    *steps, events = ran.stdout.splitlines()
    assert steps == [
        "alone 4", "pattern 2 2", "static 2 2", "classic joins 2 1 1", "downgraded 4", "again 0", "upgraded 2 2",
        "alone 4",
    ]  # fmt: skip
    assert events.startswith("assigned 4, revoked 2")


def test_librdkafka_members_share_a_group_and_commit(start: StartCluster) -> None:
    cluster = filled(start)
    seen: list[bytes] = []
    owned: dict[int, int] = {}
    is_done = threading.Event()

    def consume(number: int, topics: list[str]) -> None:
        consumer = confluent_kafka.Consumer({
            "bootstrap.servers": cluster.bootstrap, "group.id": "g", "group.protocol": "consumer",
            "auto.offset.reset": "earliest", "log_level": 0,
        })  # fmt: skip
        consumer.subscribe(topics)
        while not is_done.is_set():
            for message in consumer.consume(100, 0.05):
                assert message.error() is None
                seen.append(message.value() or b"")
            owned[number] = len(consumer.assignment())
        consumer.close()

    members = [threading.Thread(target=consume, args=(n, topics)) for n, topics in enumerate([["t"], ["t"], ["^t$"]])]
    for member in members:
        member.start()
    waited = threading.Event()
    shares: list[int] = []
    for _ in range(int(PATIENCE_SECONDS / 0.05)):
        shares = sorted(owned.copy().values())  # not after is_done: a member that leaves gives its own to the rest
        if shares == [1, 1, 2] and len(set(seen)) == RECORDS:
            break
        waited.wait(0.05)
    is_done.set()
    for member in members:
        member.join()
    assert shares == [1, 1, 2]
    assert set(seen) == {b"%d" % number for number in range(RECORDS)}
    assert sum(cluster.committed("g").values()) == RECORDS
