"""Real clients on embedded brokers: healthy ones are silent at warn and above, and planted faults are found."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import confluent_kafka.admin
import kafka
import pytest

import kwire
from kwire.broker import Cluster
from kwire.lint import Level, LintReport, lint_file
from tests.broker.peers import Console, FranzGo, Item, KafkaJs, leaks
from tests.lint.recorder import Recorder

RECORDS = 2_000
VALUE = b"some value that is not so short, number %d"


@contextmanager
def recording(folder: Path, **options: Any) -> Iterator[tuple[str, Callable[[], LintReport]]]:
    """Yield an address to give to clients, and what lints all that they did."""
    with (
        Cluster(3, topics={"orders": 3}, auto_create_topics=False, **options) as cluster,
        Recorder(cluster) as recorder,
    ):

        def lint() -> LintReport:
            path = folder / "clients.pcap"
            path.write_bytes(recorder.traffic.capture())
            return lint_file(str(path))

        yield recorder.bootstrap, lint


# -- healthy clients


def with_kwire(bootstrap: str) -> None:
    with kwire.Producer(bootstrap, client_id="app", linger_ms=20) as producer:
        for number in range(RECORDS):
            producer.send("orders", VALUE % number)
    with kwire.Consumer(bootstrap, client_id="app", group="g", on_no_offset="earliest") as consumer:
        consumer.subscribe(["orders"])
        count = 0
        while count < RECORDS:
            count += len(consumer.poll(timeout=5))
        consumer.commit()


def with_librdkafka(bootstrap: str) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "enable.idempotence": True, "allow.auto.create.topics": False}
    )
    for number in range(RECORDS):
        producer.produce("orders", VALUE % number)
    assert producer.flush(20) == 0
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    count = 0
    while count < RECORDS:
        count += len(consumer.consume(500, 5))
    consumer.close()


@leaks()
def with_kafka_python(bootstrap: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap.split(","), linger_ms=20)
    for number in range(RECORDS):
        producer.send("orders", VALUE % number)
    producer.flush(20)
    producer.close()
    consumer = kafka.KafkaConsumer(
        "orders", bootstrap_servers=bootstrap.split(","), group_id="g", auto_offset_reset="earliest"
    )
    count = 0
    while count < RECORDS:
        count += sum(map(len, consumer.poll(30_000).values()))
    consumer.commit()
    consumer.close()


def with_aiokafka(bootstrap: str) -> None:
    async def run() -> None:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=20, acks="all") as producer:
            waiting = [await producer.send("orders", VALUE % number) for number in range(RECORDS)]
            await asyncio.gather(*waiting)
        consumer = aiokafka.AIOKafkaConsumer(
            "orders", bootstrap_servers=bootstrap, group_id="g", auto_offset_reset="earliest", session_timeout_ms=45_000
        )
        async with consumer:
            count = 0
            while count < RECORDS:
                count += sum(map(len, (await consumer.getmany(timeout_ms=5_000)).values()))
            await consumer.commit()

    asyncio.run(run())


ITEMS: list[Item] = [(b"%d" % number, VALUE % number, ()) for number in range(RECORDS)]


def with_java(bootstrap: str) -> None:
    console = Console()
    console.write(bootstrap, "orders", ITEMS, codec="zstd", idempotent=True)
    assert len(console.read(bootstrap, "orders", RECORDS, "--group", "g")) == RECORDS


def with_franz_go(bootstrap: str) -> None:
    peer = FranzGo()
    peer.send(bootstrap, "orders", ITEMS, codec="zstd", idempotent=True)
    peer.send(bootstrap, "orders", ITEMS, codec="lz4", idempotent=True, transaction="writer")
    for protocol in ("classic", "consumer"):
        read = peer.receive(bootstrap, "orders", 2 * RECORDS, group=protocol, protocol=protocol)
        assert len(read) == 2 * RECORDS


def with_kafkajs(bootstrap: str) -> None:
    peer = KafkaJs()
    peer.send(bootstrap, "orders", ITEMS, codec="gzip", idempotent=True)
    peer.send(bootstrap, "orders", ITEMS, transaction="writer")
    assert len(peer.receive(bootstrap, "orders", 2 * RECORDS, group="g")) == 2 * RECORDS


CLIENTS = [
    with_kwire, with_librdkafka, with_kafka_python, with_aiokafka,
    *(pytest.param(one, marks=pytest.mark.live) for one in (with_java, with_franz_go, with_kafkajs)),
]  # fmt: skip


@pytest.mark.parametrize("use", CLIENTS)
def test_healthy_clients_are_silent(use: Callable[[str], None], tmp_path: Path) -> None:
    with recording(tmp_path) as (bootstrap, lint):
        use(bootstrap)
        report = lint()
    assert [(one.rule.id, one.subject, one.text) for one in report.at_least(Level.WARN)] == []
    assert report.exchanges > 20


# -- faults of librdkafka's users


def send(bootstrap: str, config: dict[str, Any] | None = None, records: int = 100) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, **(config or {})})
    for _ in range(records):
        producer.produce("orders", b"x" * 1_000)
    producer.flush(10)


def send_without_acks(bootstrap: str) -> None:
    send(bootstrap, {"acks": 0})
    # Without responses flush() ends when the socket has the records. Read them, so that they have passed.
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    consumer.assign([confluent_kafka.TopicPartition("orders", partition, 0) for partition in range(3)])
    assert len(consumer.consume(100, 20)) == 100
    consumer.close()


def send_one_by_one(bootstrap: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for number in range(60):
        producer.produce("orders", b"x", partition=number % 3)
        producer.flush(10)


def read(bootstrap: str, config: dict[str, Any] | None = None, *, commits_each: bool = False) -> None:
    send(bootstrap)
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest", **(config or {})}
    )
    consumer.subscribe(["orders"])
    for _ in range(80):
        message = consumer.poll(5)
        if commits_each and message is not None:
            consumer.commit(message=message, asynchronous=False)
    consumer.close()


def make_a_producer_for_each_record(bootstrap: str) -> None:
    for _ in range(10):
        send(bootstrap, {"enable.idempotence": True}, records=1)


def look_for_an_unknown_topic(bootstrap: str) -> None:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    for _ in range(6):
        admin.list_topics("nosuch", timeout=5)


def list_all_topics(bootstrap: str) -> None:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    for _ in range(8):  # more than the rule wants: the last ones may not be recorded yet
        admin.list_topics(timeout=5)


FAULTS: dict[str, Callable[[str], None]] = {
    "P01": send_without_acks,
    "P02": lambda at: send(at, {"acks": 1}),
    "P03": send_one_by_one,
    "P04": lambda at: send(at, records=500),
    "P05": send,
    "P10": make_a_producer_for_each_record,
    "C01": lambda at: read(at, {"max.partition.fetch.bytes": 10_000}),
    "C06": lambda at: read(at, commits_each=True),
    "G02": lambda at: read(at, {"session.timeout.ms": 6_000}),
    "G04": read,
    "N02": list_all_topics,
    "N03": look_for_an_unknown_topic,
    "V03": list_all_topics,
}


@pytest.mark.slow
@pytest.mark.parametrize("id", list(FAULTS))
def test_faults_of_a_real_client_are_found(id: str, tmp_path: Path) -> None:
    with recording(tmp_path) as (bootstrap, lint):
        FAULTS[id](bootstrap)
        report = lint()
    assert id in {one.rule.id for one in report.findings}


def test_a_password_in_clear(tmp_path: Path) -> None:
    config = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    with recording(tmp_path, sasl={"alice": "secret-word"}) as (bootstrap, lint):
        send(bootstrap, {**config, "sasl.username": "alice", "sasl.password": "secret-word"})
        report = lint()
    assert "S02" in {one.rule.id for one in report.at_least(Level.ERROR)}
    assert "secret-word" not in str(report)
