"""Real clients against the embedded cluster: what each writes is in the log, what is in the log each reads, groups, and
a broker that goes away under a producer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from itertools import islice
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import confluent_kafka.admin
import pytest

from kwire.broker import Cluster
from kwire.records import Compression, decode_batches, encode_batch
from tests.broker.conftest import StartCluster
from tests.broker.peers import (
    PATIENCE_SECONDS,
    POLL_SECONDS,
    AioKafka,
    Confluent,
    Console,
    FranzGo,
    Item,
    KafkaJs,
    KafkaPython,
    Kcat,
    kafka,
    leaks,
    run,
)
from tests.broker.test_cluster import certificates

PEERS = [
    Confluent, KafkaPython, AioKafka, Kcat,
    *(pytest.param(one, marks=pytest.mark.live) for one in (Console, FranzGo, KafkaJs)),
]  # fmt: skip
OLD_KAFKAS = ["0.11.0.3", "1.1.1", "2.8.2"]

WRITTEN_MS = 1_700_000_000_000
ITEMS: list[Item] = [
    (b"key", b"value", (("h", b"1"), ("h", None), ("empty", b""))),
    (None, b"no key", ()),
    (b"no value", None, ()),
    (b"", b"", ()),
    *((b"k%d" % n, b"v%d" % n * 50, (("n", b"%d" % n),)) for n in range(50)),
]
LINES: list[Item] = [(b"k%d" % n, b"v%d" % n * 50, ()) for n in range(50)]


def items_for(peer: Any) -> list[Item]:
    """Return the records that the peer can express."""
    if not peer.has_headers:
        return LINES
    if peer.has_null_headers:
        return ITEMS
    return [(key, value, tuple(h for h in headers if h[1] is not None)) for key, value, headers in ITEMS]


def stored(cluster: Cluster, topic: str, partition: int = 0) -> list[Item]:
    return [(r.key, r.value, tuple(r.headers)) for r in cluster.log(topic, partition).records()]


def fill(cluster: Cluster, topic: str, items: Sequence[Item], codec: Compression, partition: int = 0) -> None:
    """Return the records in the log, read without a client."""
    batch = encode_batch([(WRITTEN_MS, key, value, headers) for key, value, headers in items], compression=codec)

    def append(state: Any, now: float) -> None:
        found = state.partition(topic, partition)
        found.append(list(decode_batches(batch)), all_replicas=True, now=now, wall_ms=state.wall_ms(now))

    cluster.call(append)


@pytest.mark.parametrize("make", PEERS)
def test_records_written_by_a_peer_are_in_the_log(cluster: Cluster, make: Callable[[], Any]) -> None:
    peer = make()
    items = items_for(peer)
    codecs = [(codec, True) for codec in peer.codecs] if make is not Console else [("zstd", True)]
    for codec, idempotent in [*codecs, ("none", False)]:
        cluster.delete_topic("t")
        cluster.create_topic("t", 1)
        peer.write(cluster.bootstrap, "t", items, codec=codec, idempotent=idempotent)
        assert stored(cluster, "t") == items, codec
        batches = list(cluster.log("t").batches())
        assert any(batch.compression == Compression.of(codec) for batch in batches)
        assert all((batch.producer_id >= 0) is idempotent for batch in batches)


@pytest.mark.parametrize("make", PEERS)
def test_a_peer_reads_the_records_in_the_log(cluster: Cluster, make: Callable[[], Any]) -> None:
    peer = make()
    items = ITEMS if peer.has_headers else LINES
    for codec in peer.codecs:
        fill(cluster, "t", items, Compression.of(codec))
    times = len(peer.codecs)
    assert peer.read(cluster.bootstrap, "t", len(items) * times) == items * times


@pytest.mark.live
@pytest.mark.parametrize("version", OLD_KAFKAS)
def test_old_console_tools_write_and_read(start: StartCluster, version: str) -> None:
    cluster = start(1, topics={"t": 1})
    console = Console(version)
    console.write(cluster.bootstrap, "t", LINES, codec="gzip", idempotent=False)
    assert stored(cluster, "t") == LINES
    assert console.read(cluster.bootstrap, "t", len(LINES)) == LINES


@pytest.mark.live
def test_kafka_0_8_writes_message_sets_and_reads_them(start: StartCluster) -> None:
    cluster = start(1, topics={"t": 1})
    console = Console("0.8.2.2")
    console.write(cluster.bootstrap, "t", LINES, codec="gzip", idempotent=False)
    assert stored(cluster, "t") == LINES
    output = run(
        [
            *console.java, "kafka.tools.SimpleConsumerShell", "--broker-list", cluster.bootstrap, "--topic", "t",
            "--partition", "0", "--offset", "-2", "--no-wait-at-logend", "--clientId", "shell",
        ]
    )  # fmt: skip
    assert output.encode().split()[: len(LINES)] == [value for _, value, _ in LINES]


class TestGroups:
    """Two members share three partitions; one leaves, the other gets all; commits are stored."""

    def test_confluent(self, cluster: Cluster) -> None:
        peer = Confluent()
        first, second = (peer.consumer(cluster.bootstrap, group_id="g") for _ in range(2))
        first.subscribe(["t"])
        self.until(lambda: len(first.assignment()) == 3, first.poll)
        second.subscribe(["t"])
        self.until(lambda: bool(first.assignment()) and bool(second.assignment()), first.poll, second.poll)
        parts = [{p.partition for p in consumer.assignment()} for consumer in (first, second)]
        self.check_parts(parts)
        self.fill_all(cluster)
        seen: list[Any] = []

        def consume(consumer: Any) -> Callable[[float], None]:
            return lambda seconds: seen.extend(m for m in consumer.consume(10, seconds) if m.error() is None)

        self.until(lambda: len(seen) == 3 * len(LINES), consume(first), consume(second))
        for consumer in (first, second):
            consumer.commit(asynchronous=False)
        self.check_committed(cluster)
        second.close()
        self.until(lambda: len(first.assignment()) == 3, first.poll)
        first.close()

    @leaks()
    def test_kafka_python(self, cluster: Cluster) -> None:
        """A poll that times out while the group rebalances loses the assignment, so polls wait for records."""
        self.fill_all(cluster)
        with ExitStack() as stack:

            def member() -> Any:
                consumer = kafka.KafkaConsumer(
                    "t", bootstrap_servers=cluster.bootstrap, group_id="g", auto_offset_reset="earliest",
                    enable_auto_commit=False, session_timeout_ms=6000, heartbeat_interval_ms=100,
                )  # fmt: skip
                return stack.enter_context(closing(consumer))

            def poll(consumer: Any) -> None:
                assert consumer.poll(1000 * PATIENCE_SECONDS), "no record came"

            first = member()
            poll(first)
            assert len(first.assignment()) == 3
            second = member()

            def join() -> None:
                poll(second)
                self.fill_all(cluster)

            with ThreadPoolExecutor(1) as executor:
                joined = executor.submit(join)
                while len(first.assignment()) == 3:
                    poll(first)
                joined.result()
            both = first, second
            self.check_parts([{p.partition for p in consumer.assignment()} for consumer in both])

            def are_all_read() -> bool:
                positions: list[int] = [one.position(p) for one in both for p in one.assignment()]
                return sum(positions) == 6 * len(LINES)

            self.until(are_all_read, *(lambda seconds, one=one: one.poll(1000 * seconds) for one in both))
            for consumer in both:
                consumer.commit()
            self.check_committed(cluster, 2 * len(LINES))
            self.fill_all(cluster)
            second.close()
            while len(first.assignment()) < 3:
                poll(first)

    def test_aiokafka(self, cluster: Cluster) -> None:
        async def main() -> None:
            def member() -> Any:
                return aiokafka.AIOKafkaConsumer(
                    "t", bootstrap_servers=cluster.bootstrap, group_id="g", auto_offset_reset="earliest",
                    enable_auto_commit=False, session_timeout_ms=6000, heartbeat_interval_ms=100,
                )  # fmt: skip

            first, second = member(), member()
            await first.start()
            assert len(first.assignment()) == 3
            await second.start()
            seen: list[Any] = []

            async def poll_until(happened: Callable[[], bool], *consumers: Any) -> None:
                while not happened():
                    for consumer in consumers:
                        batch = await consumer.getmany(timeout_ms=100)
                        seen.extend(record for records in batch.values() for record in records)

            both = first, second
            await poll_until(lambda: len(first.assignment()) < 3 and bool(second.assignment()), *both)
            self.check_parts([{p.partition for p in consumer.assignment()} for consumer in both])
            self.fill_all(cluster)
            await poll_until(lambda: len(seen) == 3 * len(LINES), *both)
            for consumer in both:
                await consumer.commit()
            self.check_committed(cluster)
            await second.stop()
            await poll_until(lambda: len(first.assignment()) == 3, first)
            await first.stop()

        asyncio.run(asyncio.wait_for(main(), PATIENCE_SECONDS))

    def test_kcat(self, cluster: Cluster) -> None:
        Kcat()
        self.fill_all(cluster)
        count = 3 * len(LINES)
        options = ["-X", "auto.offset.reset=earliest", "-c", str(count), "-q"]
        output = run(["kcat", "-b", cluster.bootstrap, *options, "-G", "g", "t"])
        assert sorted(output.encode().split()) == sorted([value or b"" for _, value, _ in LINES] * 3)
        self.check_committed(cluster)

    @pytest.mark.live
    def test_console(self, cluster: Cluster) -> None:
        console = Console()
        self.fill_all(cluster)
        found = console.read(cluster.bootstrap, "t", 3 * len(LINES), "--group", "g")
        assert sorted(found) == sorted(LINES * 3)
        self.check_committed(cluster)

    def until(self, happened: Callable[[], bool], *polls: Callable[[float], object]) -> None:
        for _ in range(int(PATIENCE_SECONDS / POLL_SECONDS)):
            for poll in polls:
                poll(POLL_SECONDS / len(polls))
                if happened():
                    return
        raise AssertionError("it did not happen")

    def check_parts(self, parts: list[set[int]]) -> None:
        assert parts[0] | parts[1] == {0, 1, 2}
        assert not parts[0] & parts[1]
        assert all(parts)

    def fill_all(self, cluster: Cluster) -> None:
        for partition in range(3):
            fill(cluster, "t", LINES, Compression.NONE, partition)

    def check_committed(self, cluster: Cluster, offset: int = len(LINES)) -> None:
        assert cluster.committed("g") == {("t", partition): offset for partition in range(3)}


def test_no_record_is_lost_or_reordered_while_brokers_restart(start: StartCluster) -> None:
    """All 3 brokers restart in turn under an idempotent producer with five requests in flight."""
    cluster = start(3, topics={"t": 6})
    producer = Confluent().producer(
        cluster.bootstrap, retry_backoff_ms=20, reconnect_backoff_ms=10, reconnect_backoff_max_ms=50,
        batch_num_messages=20, socket_connection_setup_timeout_ms=1000,
    )  # fmt: skip
    errors: list[Any] = []
    count = 6_000
    for n in range(count):
        producer.produce("t", b"%d" % n, partition=n % 6, on_delivery=lambda error, _: errors.append(error))
        producer.poll(0)
        if n % 1000 == 300:
            cluster.stop(1 + n // 1000 % 3)
        if n % 1000 == 800:
            # Some records were acknowledged while the broker was stopped.
            producer.poll(POLL_SECONDS / 5)
            cluster.restart(1 + n // 1000 % 3)
    assert producer.flush(PATIENCE_SECONDS) == 0
    assert errors == [None] * count
    for partition in range(6):
        values = [int(value or b"") for _, value, _ in stored(cluster, "t", partition)]
        assert values == list(range(partition, count, 6))


class TestAdministration:
    def test_confluent(self, cluster: Cluster) -> None:
        nouns: Any = confluent_kafka.admin
        admin = nouns.AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        new = nouns.NewTopic("new", 2, 3, config={"retention.ms": "1000"})
        admin.create_topics([new])["new"].result(PATIENCE_SECONDS)
        assert len(admin.list_topics("new", PATIENCE_SECONDS).topics["new"].partitions) == 2
        assert len(admin.describe_cluster().result(PATIENCE_SECONDS).nodes) == 3
        admin.delete_topics(["new"])["new"].result(PATIENCE_SECONDS)
        fill(cluster, "t", LINES, Compression.NONE)
        gone = admin.delete_records([confluent_kafka.TopicPartition("t", 0, 10)])
        assert [future.result(PATIENCE_SECONDS).low_watermark for future in gone.values()] == [10]
        admin.create_partitions([nouns.NewPartitions("t", 5)])["t"].result(PATIENCE_SECONDS)
        offsets = admin.list_offsets({confluent_kafka.TopicPartition("t", 0): nouns.OffsetSpec.latest()})
        assert [future.result(PATIENCE_SECONDS).offset for future in offsets.values()] == [len(LINES)]

    def test_confluent_requests_all_topics(self, cluster: Cluster) -> None:
        """librdkafka writes 3 bytes after the last field of a Metadata request for all topics; Kafka ignores them."""
        nouns: Any = confluent_kafka.admin
        admin = nouns.AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        assert set(admin.list_topics(timeout=PATIENCE_SECONDS).topics) == {"t"}

    def test_confluent_subscribes_by_a_pattern(self, start: StartCluster) -> None:
        cluster = start(1, topics={"x-one": 1, "x-two": 1, "other": 1})
        for topic in ("x-one", "x-two", "other"):
            fill(cluster, topic, LINES, Compression.NONE)
        consumer = Confluent().consumer(cluster.bootstrap, group_id="g")
        consumer.subscribe(["^x.*"])
        seen: list[Any] = []
        TestGroups().until(
            lambda: len(seen) == 2 * len(LINES),
            lambda seconds: seen.extend(m.topic() for m in consumer.consume(100, seconds) if m.error() is None),
        )
        consumer.close()
        assert set(seen) == {"x-one", "x-two"}

    def test_confluent_reports_that_consumer_groups_are_off(self, start: StartCluster) -> None:
        """librdkafka reports a fatal error at once instead of waiting silently."""
        cluster = start(1, topics={"t": 1}, group_version=0)
        options = {"bootstrap.servers": cluster.bootstrap, "group.id": "g", "log_level": 0}
        consumer: Any = confluent_kafka.Consumer({**options, "group.protocol": "consumer"})
        consumer.subscribe(["t"])
        errors: list[Any] = []

        def poll(seconds: float) -> None:
            try:
                polled = consumer.poll(seconds)
                messages = polled if isinstance(polled, list) else [polled]
                errors.extend(message.error() for message in messages if message is not None)
            except confluent_kafka.KafkaException as error:
                errors.append(error.args[0])

        TestGroups().until(lambda: bool(errors), poll)
        assert "API version not supported" in errors[0].str()
        consumer.close()

    def test_confluent_on_configs_and_groups(self, cluster: Cluster) -> None:
        nouns: Any = confluent_kafka.admin
        admin = nouns.AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        change = nouns.ConfigEntry("retention.ms", "5", incremental_operation=nouns.AlterConfigOpType.SET)
        topic = nouns.ConfigResource("topic", "t", incremental_configs=[change])
        admin.incremental_alter_configs([topic])[topic].result(PATIENCE_SECONDS)
        shown = admin.describe_configs([topic])[topic].result(PATIENCE_SECONDS)
        assert (shown["retention.ms"].value, shown["segment.ms"].value) == ("5", "604800000")
        consumer = Confluent().consumer(cluster.bootstrap, group_id="g")
        consumer.subscribe(["t"])
        TestGroups().until(lambda: len(consumer.assignment()) == 3, consumer.poll)
        listed = admin.list_consumer_groups().result(PATIENCE_SECONDS).valid
        assert [(group.group_id, group.state.name) for group in listed] == [("g", "STABLE")]
        described = admin.describe_consumer_groups(["g"])["g"].result(PATIENCE_SECONDS)
        assert [len(member.assignment.topic_partitions) for member in described.members] == [3]
        consumer.close()
        admin.delete_consumer_groups(["g"])["g"].result(PATIENCE_SECONDS)
        assert admin.list_consumer_groups().result(PATIENCE_SECONDS).valid == []

    @leaks()
    def test_kafka_python(self, cluster: Cluster) -> None:
        admin = kafka.KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
        admin.create_topics([kafka.admin.NewTopic("new", 2, 3)])
        assert set(admin.list_topics()) == {"t", "new"}
        assert len(admin.describe_cluster()["brokers"]) == 3
        admin.delete_topics(["new"])
        assert set(admin.list_topics()) == {"t"}
        admin.close()

    def test_kcat(self, cluster: Cluster) -> None:
        Kcat()
        fill(cluster, "t", LINES, Compression.NONE)
        assert 'topic "t" with 3 partitions' in run(["kcat", "-b", cluster.bootstrap, "-L"])
        queries = [option for partition in ("t:0:-1", "t:0:-2", f"t:0:{WRITTEN_MS}") for option in ("-t", partition)]
        found = [run(["kcat", "-b", cluster.bootstrap, "-Q", *queries[n : n + 2]]).split()[-1] for n in (0, 2, 4)]
        assert found == [str(len(LINES)), "0", "0"]


class TestSecurity:
    @pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
    @leaks()
    def test_tls_and_sasl(self, start: StartCluster, tmp_path: Path, mechanism: str) -> None:
        listener, trust = certificates(tmp_path)
        cluster = start(1, tls=listener, sasl={"alice": "secret"}, topics={"t": 1})
        assert trust.ca_file is not None
        producer = Confluent().producer(
            cluster.bootstrap, security_protocol="SASL_SSL", ssl_ca_location=trust.ca_file, sasl_mechanism=mechanism,
            sasl_username="alice", sasl_password="secret",
        )  # fmt: skip
        producer.produce("t", b"over TLS")
        assert producer.flush(PATIENCE_SECONDS) == 0
        options = {
            "bootstrap_servers": cluster.bootstrap, "security_protocol": "SASL_SSL", "ssl_cafile": trust.ca_file,
            "sasl_mechanism": mechanism, "sasl_plain_username": "alice", "sasl_plain_password": "secret",
        }  # fmt: skip
        read: list[bytes] = []
        # On a busy machine kafka-python 3.0.12 once waited for ever, without a request; open, it leaks sockets then.
        for _ in range(3):
            consumer = kafka.KafkaConsumer("t", auto_offset_reset="earliest", consumer_timeout_ms=20_000, **options)
            with closing(consumer):
                read = [record.value for record in islice(consumer, 1)]
            if read:
                break
        assert read == [b"over TLS"]
