"""Other clients' transactional producers on the embedded cluster: commit, abort, offsets, fencing.

Each does the same steps with the transactional id tx: commit, abort and commit a transaction with a record in each of
three partitions and an offset of the group g; leave one open; then a second producer with the id takes over, and the
first one must learn that it is fenced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka.errors
import pytest
from brokers.jars import fetch_jars
from brokers.java import program_command

from kwire.broker import Cluster
from kwire.protocol import ApiKey
from tests.broker.conftest import StartCluster
from tests.broker.peers import PATIENCE_SECONDS, Confluent, kafka, leaks, run

PARTITIONS = 3
STEPS = ("commit", "abort", "commit")
COMMITTED = ["commit{}", "commit{}", "successor{}"]


def by_confluent(bootstrap: str) -> bool:
    """Return whether the first producer was fenced."""

    def make() -> confluent_kafka.Producer:
        producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": "tx", "log_level": 0})
        producer.init_transactions(PATIENCE_SECONDS)
        return producer

    def write(producer: confluent_kafka.Producer, value: str) -> None:
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce("t", f"{value}{partition}", partition=partition)

    one = make()
    reader = Confluent().consumer(bootstrap, group_id="g")
    for step in STEPS:
        write(one, step)
        offset = confluent_kafka.TopicPartition("in", 0, 7 if step == "commit" else 9)
        one.send_offsets_to_transaction([offset], reader.consumer_group_metadata(), PATIENCE_SECONDS)
        if step == "commit":
            one.commit_transaction(PATIENCE_SECONDS)
        else:
            one.flush(PATIENCE_SECONDS)
            one.abort_transaction(PATIENCE_SECONDS)
    reader.close()
    write(one, "zombie")
    one.flush(PATIENCE_SECONDS)
    two = make()
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        one.commit_transaction(PATIENCE_SECONDS)
    write(two, "successor")
    two.commit_transaction(PATIENCE_SECONDS)
    return bool(raised.value.args[0].fatal())


@leaks()
def by_kafka_python(bootstrap: str) -> bool:
    def make() -> kafka.KafkaProducer:
        producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id="tx", retry_backoff_ms=10)
        producer.init_transactions()
        return producer

    def write(producer: kafka.KafkaProducer, value: str) -> None:
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.send("t", f"{value}{partition}".encode(), partition=partition)

    one = make()
    for step in STEPS:
        write(one, step)
        offset = kafka.OffsetAndMetadata(7 if step == "commit" else 9, "", -1)
        one.send_offsets_to_transaction({kafka.TopicPartition("in", 0): offset}, "g")
        one.flush(PATIENCE_SECONDS)
        if step == "commit":
            one.commit_transaction()
        else:
            one.abort_transaction()
    write(one, "zombie")
    one.flush(PATIENCE_SECONDS)
    two = make()
    with pytest.raises(kafka.errors.KafkaError) as raised:
        one.commit_transaction()
    one.close(0)
    write(two, "successor")
    two.commit_transaction()
    two.close()
    fenced = (kafka.errors.ProducerFencedError, kafka.errors.InvalidProducerEpochError)
    return isinstance(raised.value, fenced)


def by_aiokafka(bootstrap: str) -> bool:
    async def make() -> aiokafka.AIOKafkaProducer:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="tx", retry_backoff_ms=10)
        await producer.start()
        return producer

    async def write(producer: aiokafka.AIOKafkaProducer, value: str) -> None:
        await producer.begin_transaction()
        for partition in range(PARTITIONS):
            await producer.send_and_wait("t", f"{value}{partition}".encode(), partition=partition)

    async def main() -> bool:
        one = await make()
        for step in STEPS:
            await write(one, step)
            offset = 7 if step == "commit" else 9
            await one.send_offsets_to_transaction({aiokafka.TopicPartition("in", 0): offset}, "g")
            await (one.commit_transaction() if step == "commit" else one.abort_transaction())
        await write(one, "zombie")
        two = await make()
        with pytest.raises(aiokafka.errors.KafkaError) as raised:
            await one.commit_transaction()
        await write(two, "successor")
        await two.commit_transaction()
        await two.stop()
        await one.stop()
        return isinstance(raised.value, aiokafka.errors.ProducerFenced)

    return asyncio.run(asyncio.wait_for(main(), PATIENCE_SECONDS))


def by_java(bootstrap: str) -> bool:
    jars = fetch_jars("kafka-clients", "4.4.0")
    source = Path(__file__).with_name("Transactions.java")
    raised, *seen = run(program_command(jars, source, bootstrap, "tx")).splitlines()
    assert seen == [value.format(0) for value in COMMITTED]
    return raised == "fenced"


PEERS = [
    by_confluent, by_kafka_python, by_aiokafka, pytest.param(by_java, marks=pytest.mark.live),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("version", "marker_ms"), [(1, 10), (2, 0)])
@pytest.mark.parametrize("job", PEERS)
def test_commit_abort_offsets_and_fencing(
    start: StartCluster, job: Callable[[str], bool], version: int, marker_ms: int
) -> None:
    cluster = start(3, topics={"t": PARTITIONS, "in": 1}, transaction_version=version, transaction_marker_ms=marker_ms)
    assert job(cluster.bootstrap) is True
    assert read_committed(cluster) == [value.format(0) for value in COMMITTED]
    assert cluster.committed("g") == {("in", 0): 7}
    # Java's producer follows the feature level; the others always use the older protocol.
    requests = cluster.requests()
    assert (requests[ApiKey.ADD_PARTITIONS_TO_TXN] == 0) is (job is by_java and version == 2)


def read_committed(cluster: Cluster) -> list[str]:
    """Return the values in t-0 that librdkafka reads; it filters by Fetch's list of aborted transactions."""
    consumer = Confluent().consumer(cluster.bootstrap, isolation_level="read_committed", enable_partition_eof=True)
    consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
    values: list[str] = []
    is_at_end = False
    while not (is_at_end and len(values) >= len(COMMITTED)):
        message = consumer.poll(PATIENCE_SECONDS)
        assert message is not None, values
        error = message.error()
        is_at_end = error is not None and error.code() == confluent_kafka.KafkaError._PARTITION_EOF
        if error is None:
            values.append((message.value() or b"").decode())
    consumer.close()
    return values
