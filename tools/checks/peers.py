"""Let other clients produce, consume and copy in transactions on three brokers, and count what arrived.

tools/peers [--tap] [--records N] [--brokers embedded|VERSION] [--list] [CASE...]

The brokers and each client are processes of their own. With --tap the clients work through a `kwire tap -o` of each
case, whose capture has to be readable to its end. What the topics of a case hold is then read without the tap: each
record has to be there once. The exit code is 1 if a record is lost or doubled, or if a client failed.

Cases of franz-go are its own test suite's, out of Go's module cache, which judge for themselves. In those named -chaos
that suite ends its own connections while it works.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from brokers.cluster import NEWEST, KafkaCluster
from brokers.commands import Commands
from brokers.jars import fetch_jars
from brokers.java import java_command
from rich.console import Console

import kwire
from checks.tap_cost import TapProcess, cpu_seconds
from kwire.capture import read_exchanges
from kwire.errors import counted

_PARTITIONS = 6
_SECONDS_MAX = 1_200
_TOOLS = "org.apache.kafka.tools."
# Run in a process, as a user's program would be.
_LIBRDKAFKA = """
import sys, json, confluent_kafka
bootstrap, topic, copy, protocol, count = *sys.argv[1:5], int(sys.argv[5])
is_transactional = bool(copy)
producer = confluent_kafka.Producer({
    "bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "queue.buffering.max.messages": 200_000,
    **({"transactional.id": topic} if is_transactional else {}),
})
if is_transactional:
    producer.init_transactions(60)

def send(name, value):
    while True:
        try:
            return producer.produce(name, value, value[-2:])
        except BufferError:
            producer.poll(0.1)

for start in range(0, count, 10_000):
    if is_transactional:
        producer.begin_transaction()
    for number in range(start, min(start + 10_000, count)):
        send(topic, b"%d" % number)
        producer.poll(0)
    if is_transactional:
        producer.commit_transaction(60)
assert producer.flush(120) == 0
consumer = confluent_kafka.Consumer({
    "bootstrap.servers": bootstrap, "group.id": topic, "group.protocol": protocol, "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
})
consumer.subscribe([topic])
found = {}
while sum(found.values()) < count:
    records = consumer.consume(5_000, 60)
    assert records, f"{sum(found.values())} of {count} records after a minute without one"
    if is_transactional:
        producer.begin_transaction()
    for record in records:
        assert record.error() is None, record.error()
        found[record.value()] = found.get(record.value(), 0) + 1
        if is_transactional:
            send(copy, record.value())
    if is_transactional:
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), 60)
        producer.commit_transaction(60)
    else:
        consumer.commit(asynchronous=False)
consumer.close()
assert len(found) == count and set(found.values()) == {1}, f"{len(found)} values, {max(found.values())} times at most"
"""


class World(NamedTuple):
    """The brokers without the tap, how many records a case has, Java's tools, and a folder for files."""

    bootstrap: str
    records: int
    jars: Path
    folder: Path
    suite: Path | None

    def java(self, name: str, *arguments: str) -> list[str]:
        log4j = self.folder / "log4j.properties"
        Commands.write_log4j(log4j)
        return java_command(self.jars, _TOOLS + name, arguments, heap_mb=512, log4j=log4j, is_brief=False)

    def run(self, command: list[str], **environment: str) -> str:
        """Run a client to its end and return its output. Raises AssertionError if it failed or hung."""
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_SECONDS_MAX, env={**os.environ, **environment},
                cwd=self.folder, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as late:
            raise AssertionError(f"not done within {_SECONDS_MAX} s: {_tail(late.stdout)}") from late
        assert done.returncode == 0, f"exit code {done.returncode}: {_tail(done.stdout)} {_tail(done.stderr)}"
        return done.stdout


def _tail(text: str | bytes | None) -> str:
    whole = text.decode(errors="replace") if isinstance(text, bytes) else text or ""
    # franz-go ends with a line for each topic that it keeps, after those that say what failed.
    return "\n".join(line for line in whole.splitlines() if "NOT DELETING" not in line)[-1_000:]


Case = Callable[[World, str, str], list[str]]


# -- cases: (world, bootstrap, name of a topic that exists) -> the topics that must hold each record once


def librdkafka(protocol: str, *, is_transactional: bool) -> Case:
    def case(world: World, bootstrap: str, topic: str) -> list[str]:
        topics = [topic, f"{topic}-copy"] if is_transactional else [topic]
        copy = topics[1] if is_transactional else ""
        world.run([sys.executable, "-c", _LIBRDKAFKA, bootstrap, topic, copy, protocol, str(world.records)])
        return topics

    return case


def java_verifiable(protocol: str) -> Case:
    def case(world: World, bootstrap: str, topic: str) -> list[str]:
        _produce_by_java(world, bootstrap, topic)
        arguments = ["--bootstrap-server", bootstrap, "--topic", topic, "--group-id", topic]
        limit = ["--max-messages", str(world.records), "--group-protocol", protocol, "--reset-policy", "earliest"]
        seen: dict[int, int] = {}
        consumed = 0
        for event in _events(world.run(world.java("VerifiableConsumer", *arguments, *limit))):
            if event["name"] == "records_consumed":
                consumed += event["count"]
                for part in event["partitions"]:
                    assert part["minOffset"] == seen.get(part["partition"], 0), f"a gap or a double before {part}"
                    seen[part["partition"]] = part["maxOffset"] + 1
        assert consumed == world.records, f"{consumed} records consumed of {world.records}"
        return [topic]

    return case


def java_transactions(world: World, bootstrap: str, topic: str) -> list[str]:
    _produce_by_java(world, bootstrap, topic)
    copy = f"{topic}-copy"
    world.run(
        world.java(
            "TransactionalMessageCopier", "--broker-list", bootstrap, "--input-topic", topic, "--output-topic", copy,
            "--input-partition", "-1", "--transaction-size", "5000", "--transactional-id", topic, "--consumer-group",
            topic, "--group-mode", "--use-group-metadata", "--max-messages", str(world.records),
        )
    )  # fmt: skip
    return [topic, copy]


def _produce_by_java(world: World, bootstrap: str, topic: str) -> None:
    arguments = ["--bootstrap-server", bootstrap, "--topic", topic, "--acks", "-1"]
    output = world.run(world.java("VerifiableProducer", *arguments, "--max-messages", str(world.records)))
    sent = Counter(event["name"] for event in _events(output))
    assert sent["producer_send_success"] == world.records, f"acknowledged: {sent}"


def _events(output: str) -> Iterator[dict]:  # type: ignore[type-arg]
    return (json.loads(line) for line in output.splitlines() if line.startswith("{"))


def franz_go(pattern: str, *, skips: str = "", **environment: str) -> Case:
    def case(world: World, bootstrap: str, topic: str) -> list[str]:
        assert world.suite is not None
        command = [str(world.suite), "-test.run", pattern, "-test.timeout", f"{_SECONDS_MAX}s"]
        command += ["-test.skip", skips] if skips else []
        output = world.run(
            command, KGO_SEEDS=bootstrap, KGO_TEST_RF="1", KGO_TEST_RECORDS=str(world.records), KGO_LOG_LEVEL="none",
            **environment,
        )  # fmt: skip
        assert "\nPASS" in f"\n{output}", _tail(output)
        assert "no tests to run" not in output, output
        return []

    return case


CASES: dict[str, Case] = {
    "librdkafka-classic": librdkafka("classic", is_transactional=False),
    "librdkafka-848": librdkafka("consumer", is_transactional=False),
    "librdkafka-transactions": librdkafka("classic", is_transactional=True),
    "librdkafka-transactions-848": librdkafka("consumer", is_transactional=True),
    "java-classic": java_verifiable("classic"),
    "java-848": java_verifiable("consumer"),
    "java-transactions": java_transactions,
    "franz-go-groups": franz_go("^TestGroupETL$"),
    "franz-go-transactions": franz_go("^TestTxnEtl$"),
    "franz-go-share": franz_go("^TestShareGroupETL$"),
    # Kafka refuses the repeated join of a static member of KIP-848 whose connection broke: UNRELEASED_INSTANCE_ID.
    "franz-go-groups-chaos": franz_go("^TestGroupETL$", skips="TestGroupETL/sticky/848/static", KGO_TEST_CHAOS="1"),
    "franz-go-transactions-chaos": franz_go("^TestTxnEtl$", KGO_TEST_CHAOS="1"),
    "franz-go-share-chaos": franz_go("^TestShareGroupETL$", KGO_TEST_CHAOS="1"),
}


# -- running


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--brokers", default="embedded", help="embedded, or a version of Kafka; default: embedded")
    parser.add_argument("--tap", action="store_true", help="let the clients work through `kwire tap -o`")
    parser.add_argument("--list", action="store_true", help="print the cases")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="default: all")
    given = parser.parse_args(argv)
    if given.list:
        print("\n".join(CASES))
        return 0
    wrong = [name for name in given.cases if name not in CASES]
    if wrong:
        parser.error(f"no case {wrong[0]}; there are {', '.join(CASES)}")
    chosen = given.cases or list(CASES)
    out = Console(soft_wrap=True, highlight=False)
    failed = 0
    with tempfile.TemporaryDirectory() as name, _brokers(given.brokers) as bootstrap:
        suite = _franz_go_suite(Path(name)) if any(case.startswith("franz-go") for case in chosen) else None
        world = World(bootstrap, given.records, fetch_jars("kafka", NEWEST), Path(name), suite)
        for case in chosen:
            begin = time.perf_counter()
            try:
                text = _run_tapped(case, world) if given.tap else _run(case, world, world.bootstrap)
            except AssertionError as error:
                failed += 1
                text = f"FAILED: {error}"
            seconds = time.perf_counter() - begin
            out.print(f"{case}, {given.records:,} records, {given.brokers} brokers: {text} [{seconds:.0f} s]")
    return 1 if failed else 0


def _run(case: str, world: World, bootstrap: str) -> str:
    topic = f"{case}-{os.urandom(3).hex()}"
    topics = [kwire.NewTopic(one, partitions=_PARTITIONS, replication_factor=1) for one in (topic, f"{topic}-copy")]
    with kwire.Admin(world.bootstrap) as admin:
        admin.create_topics(topics, timeout=60)
    checked = CASES[case](world, bootstrap, topic)
    for name in checked:
        check_topic(world.bootstrap, name, world.records)
    return f"nothing lost, nothing doubled in {counted(len(checked), 'topic') if checked else 'its own topics'}"


def _run_tapped(case: str, world: World) -> str:
    capture = world.folder / f"{case}.pcapng"
    tap = TapProcess(world.bootstrap, "-o", str(capture))
    try:
        text = _run(case, world, tap.address)
        cpu = cpu_seconds(tap.process.pid)
    finally:
        tap.close()
    exchanges, size = sum(1 for _ in read_exchanges(capture)), capture.stat().st_size
    capture.unlink()
    return f"{text}; the tap used {cpu:.1f} s of CPU and recorded {exchanges:,} exchanges ({size / 1e6:.0f} MB)"


def check_topic(bootstrap: str, topic: str, records: int) -> None:
    """Raise AssertionError unless the topic holds each record once. They are the numbers from 0 on."""
    found = bytearray(records)
    with kwire.Consumer(bootstrap, isolation="read_committed") as consumer:
        ends = consumer.end_offsets([(topic, partition) for partition in range(_PARTITIONS)])
        consumer.assign([(topic, partition, "earliest") for partition in range(_PARTITIONS)])
        while any(consumer.position(*one) < end for one, end in ends.items()):
            for record in consumer.poll(timeout=1):
                found[int(record.value or b"")] += 1
    lost, doubled = found.count(0), sum(number > 1 for number in found)
    assert not lost + doubled, f"{topic}: {lost} records lost, {doubled} doubled"


@contextlib.contextmanager
def _brokers(version: str) -> Iterator[str]:
    """Run three brokers, and yield an address of one."""
    if version != "embedded":
        with KafkaCluster(version, nodes=3) as cluster:
            yield cluster.bootstrap.split(",")[0]
        return
    command = [sys.executable, "-m", "kwire", "broker", "--brokers", "3", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["bootstrap"].split(",")[0]
    finally:
        process.terminate()
        process.wait()


def _franz_go_suite(folder: Path) -> Path:
    """Build franz-go's own tests of its client."""
    program = folder / "kgo.test"
    source = Path(__file__).parents[2] / "tests" / "franzgo"
    command = ["go", "test", "-c", "-o", str(program), "github.com/twmb/franz-go/pkg/kgo"]
    subprocess.run(command, cwd=source, check=True)
    return program
