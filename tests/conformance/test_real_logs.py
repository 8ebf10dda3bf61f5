"""The logs of a real broker that has coordinated groups and a transaction: we read them as kafka-dump-log does."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from random import Random
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
from tests.cli.running import run
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
        fill_segments(cluster)
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


def fill_segments(cluster: KafkaCluster) -> None:
    """Several segments with their indexes and snapshots of producers, and transactions that were aborted."""
    cluster.commands.create_topic("rolled", configs={"segment.bytes": str(1 << 20), "index.interval.bytes": "1000"})
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "rolling", "log_level": 0,
                         "compression.type": "lz4", "batch.size": 20_000})  # fmt: skip
    producer.init_transactions(30)
    for turn in range(4):
        producer.begin_transaction()
        for number in range(1500):
            producer.produce("rolled", Random(number).randbytes(500), b"%d" % number)
            producer.poll(0)
        producer.flush(30)  # or there may be nothing yet to abort
        producer.abort_transaction(30) if turn % 2 else producer.commit_transaction(30)


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
    # The log has grown since the first read.
    both = [offset for offset in sorted(theirs) if offset in ours]
    assert len(both) >= 2
    assert [ours[offset] for offset in both] == [theirs[offset] for offset in both]
    print(f"{topic}: {len(both)} records")


FIELDS = {
    # Kafka's names and ours, by the kind of file.
    ".log": {"baseOffset": "base_offset", "lastOffset": "last_offset", "count": "count", "position": "position",
             "baseSequence": "base_sequence", "producerId": "producer_id", "producerEpoch": "producer_epoch",
             "partitionLeaderEpoch": "partition_leader_epoch", "isTransactional": "is_transactional",
             "isControl": "is_control", "size": "size_bytes", "magic": "magic", "compresscodec": "compression",
             "isvalid": "is_valid", "CreateTime": "max_timestamp_ms"},
    ".index": {"offset": "offset", "position": "position"},
    ".timeindex": {"timestamp": "timestamp_ms", "offset": "offset"},
    ".txnindex": {"producerId": "producer_id", "firstOffset": "first_offset", "lastOffset": "last_offset",
                  "lastStableOffset": "last_stable_offset"},
    ".snapshot": {"producerId": "producer_id", "producerEpoch": "producer_epoch", "lastTimestamp": "timestamp_ms",
                  "coordinatorEpoch": "coordinator_epoch"},
}  # fmt: skip


@pytest.mark.parametrize("suffix", FIELDS)
def test_dump_log_shows_what_kafkas_own_tool_shows(suffix: str, cluster: KafkaCluster) -> None:
    """`kwire dump-log`, entry by entry, for every file of the kind that is not empty and is no longer written."""
    data = cluster.directory / "node-1" / "data"
    files = sorted(data.glob(f"rolled-0/*{suffix}"))[: -1 if suffix != ".snapshot" else None]
    entries = 0
    for file in files:
        ran = run("dump-log", "--deep", str(file))
        assert ran.code == 0, ran.stdout
        ours = [line for line in ran.lines() if line["kind"] not in ("end", "unused")]
        dump = cluster.run("org.apache.kafka.tools.DumpLogSegments", ["--files", str(file)]).decode()
        assert "Mismatches" not in dump
        theirs = [dict(re.findall(r"(\w+): (\S+)", line)) for line in dump.splitlines()[1:]]
        theirs = [one for one in theirs if set(FIELDS[suffix]) <= set(one)]
        assert [as_words(one, FIELDS[suffix].values()) for one in ours] == [
            [one[name] for name in FIELDS[suffix]] for one in theirs
        ]
        entries += len(ours)
    assert entries >= {".txnindex": 1, ".snapshot": 2}.get(suffix, 10)
    print(f"{suffix}: {entries} entries of {len(files)} files")


def as_words(line: dict[str, Any], names: Iterable[str]) -> list[str]:
    """Return fields as Java prints them."""
    return [str(value).lower() if isinstance(value := line[name], bool) else str(value) for name in names]


def test_dump_log_finds_nothing_wrong_with_all_that_a_broker_wrote(cluster: KafkaCluster) -> None:
    cluster.stop_node(1)
    try:
        ran = run("dump-log", "--print-data", str(cluster.directory / "node-1" / "data"))
    finally:
        cluster.start_node(1)
    assert ran.code == 0, [line for line in ran.lines() if line["kind"] == "problem"]
    lines = ran.lines()
    # Records of every one of Kafka's own topics are read, and all of its kinds of file are there.
    assert {line.get("type") for line in lines if line["kind"] == "end"} == {
        "log", "index", "timeindex", "txnindex", "producers", "text"
    }  # fmt: skip
    read = {line["key"]["type"] for line in lines if isinstance(line.get("key"), dict) and "type" in line["key"]}
    assert {"OffsetCommit", "GroupMetadata", "TransactionLog", "ShareSnapshot"} <= read
    said = [line["value"] for line in lines if isinstance(line.get("value"), dict)]
    values = {value["type"] for value in said if "type" in value}
    assert {"TopicRecord", "PartitionRecord", "RegisterBrokerRecord"} <= values
    print(ran.stderr.strip())


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
    """Return the group protocol's metadata as JSON; Kafka's tool shows it too."""
    version, message = decode_versioned(cls, data)
    return message.to_json(version)
