"""The logs of a real broker that has coordinated groups and a transaction: we read them as kafka-dump-log does."""
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from brokers.cluster import KafkaCluster
from confluent_kafka import Consumer, Producer

from kwire.protocol import Message
from kwire.protocol.internal_topics import (
    InternalRecord,
    decode_control_record,
    decode_internal_record,
    encode_internal_record,
)
from kwire.protocol.messages.classic_group_records import GroupMetadataValue
from kwire.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_versioned,
)
from kwire.records import decode_batches
from tests.conformance import oracle

pytestmark = pytest.mark.live

DECODERS = {
    "__cluster_metadata": "--cluster-metadata-decoder",
    "__consumer_offsets": "--offsets-decoder",
    "__share_group_state": "--share-group-state-decoder",
    "__transaction_state": "--transaction-log-decoder",
}
# A line of a record ends with its key and payload, or with the kind and value of a control record.
LINE = re.compile(
    r"\| offset: (?P<offset>\d+) .*? headerKeys: \[\] "
    r"(?:(?:key: (?P<key>\{.*\}) )?payload: (?P<payload>.*)|(?P<control>\w+): (?P<value>\{.*\}))"
)

SETTINGS = {
    "group.share.enable": "true",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.share.heartbeat.interval.ms": "5000",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    oracle.needed("java")
    oracle.needed("mvn")
    with KafkaCluster(settings=SETTINGS) as cluster:
        cluster.commands.create_topic("t")
        produce_in_a_transaction(cluster.bootstrap)
        consume(cluster.bootstrap, {"group.id": "of-old", "group.protocol": "classic"})
        consume(cluster.bootstrap, {"group.id": "of-new", "group.protocol": "consumer"})
        share(cluster)
        yield cluster


def produce_in_a_transaction(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "tx", "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(10):
        producer.produce("t", b"%d" % number)
    producer.commit_transaction(30)


def consume(bootstrap: str, group: Mapping[str, str]) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest", "log_level": 0, **group})
    consumer.subscribe(["t"])
    try:
        assert len(consumer.consume(10, 30)) == 10
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()


def share(cluster: KafkaCluster) -> None:
    group = ["--bootstrap-server", cluster.bootstrap, "--group", "of-sharers"]
    earliest = ["--alter", "--entity-type", "groups", "--entity-name", "of-sharers",
                "--add-config", "share.auto.offset.reset=earliest"]  # fmt: skip
    cluster.run("kafka.admin.ConfigCommand", [*group[:2], *earliest])
    reader = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
    read = cluster.run(reader, [*group, "--topic", "t", "--max-messages", "10", "--timeout-ms", "30000"])
    assert len(read.split()) == 10


@pytest.mark.parametrize("topic", DECODERS)
def test_every_record_reads_as_kafkas_own_tool_reads_it(topic: str, cluster: KafkaCluster) -> None:
    log = cluster.directory / "node-1" / "data" / f"{topic}-0" / "00000000000000000000.log"
    dump = cluster.run("org.apache.kafka.tools.DumpLogSegments", [DECODERS[topic], "--files", str(log)]).decode()
    theirs = dict(read_lines(dump))
    ours = dict(read_log(topic, log))
    # The log grew between the two readings.
    both = [offset for offset in sorted(theirs) if offset in ours]
    assert len(both) >= 2
    assert [ours[offset] for offset in both] == [theirs[offset] for offset in both]
    print(f"{topic}: {len(both)} records")


def read_lines(dump: str) -> Iterator[tuple[int, Any]]:
    for line in dump.splitlines():
        if line.startswith("| offset"):
            found = LINE.fullmatch(line)
            assert found, line
            control, key = found["control"], found["key"]
            if control:
                yield int(found["offset"]), (control, json.loads(found["value"]))
            else:
                payload = None if found["payload"] == "<DELETE>" else json.loads(found["payload"])
                yield int(found["offset"]), (json.loads(key) if key else None, payload)


def read_log(topic: str, log: Path) -> Iterator[tuple[int, Any]]:
    for batch in decode_batches(log.read_bytes()):
        for record in batch.records():
            if batch.is_control:
                assert record.key is not None
                yield record.offset, as_kafka_dumps_control(decode_control_record(record.key, record.value))
                continue
            read = decode_internal_record(topic, record.key, record.value)
            assert encode_internal_record(read) == (record.key, record.value)
            yield record.offset, as_kafka_dumps(read)


def as_kafka_dumps_control(record: InternalRecord) -> Any:
    assert record.value is not None
    return type(record.value).__name__.removesuffix("Message"), record.value.to_json(record.version)


def as_kafka_dumps(record: InternalRecord) -> Any:
    value = None if record.value is None else record.value.to_json(record.version)
    if record.key is None:
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(record.value).__name__).upper()
        return None, {"type": name, "version": record.version, "data": value}
    if value and isinstance(record.value, GroupMetadataValue):
        for member, shown in zip(record.value.members, value["members"], strict=True):
            shown["subscription"] = versioned_json(ConsumerProtocolSubscription, member.subscription)
            shown["assignment"] = versioned_json(ConsumerProtocolAssignment, member.assignment)
    key = {"type": str(record.key.API_KEY), "data": record.key.to_json(0)}
    return key, None if value is None else {"version": str(record.version), "data": value}


def versioned_json(cls: type[Message], data: bytes) -> Any:
    """What members said to each other, which the tool of Kafka shows too."""
    version, message = decode_versioned(cls, data)
    return message.to_json(version)
