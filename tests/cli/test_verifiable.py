"""The clients of Kafka's system tests: their lines, in order, up to the end by a signal."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kwire import Admin, Consumer, Producer, ShareConsumer
from kwire.broker import Cluster
from kwire.cli.transactional_message_copier import _Copier  # pyright: ignore[reportPrivateUsage]
from kwire.cli.verifiable import assignor_name, client_options
from kwire.consumer import ConsumerOptions, ConsumerRecord
from kwire.errors import ConfigurationError
from kwire.properties.file import parse_properties
from tests.cli.running import run

pytestmark = pytest.mark.programs

KWIRE = [sys.executable, "-c", "from kwire.cli import main; main()"]
SECONDS = 60  # for what takes a moment
Event = dict[str, Any]


class Client:
    """A running client. `until` reads its events."""

    def __init__(self, *args: str) -> None:
        self._process = subprocess.Popen([*KWIRE, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.events: list[Event] = []

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def until(self, is_found: Callable[[Event], bool]) -> Event:
        """Return the first further event that is looked for."""
        while (line := self._lines.get(timeout=SECONDS)) is not None:
            event: Event = json.loads(line)
            self.events.append(event)
            if is_found(event):
                return event
        raise AssertionError(f"not among {self.names()}")

    def until_name(self, name: str) -> Event:
        return self.until(lambda event: event.get("name") == name)

    def send(self, number: int) -> None:
        self._process.send_signal(number)

    def end(self, number: int | None = None) -> int:
        """Send the signal, if one is given; read all events; return the exit code."""
        if number is not None:
            self.send(number)
        while (line := self._lines.get(timeout=SECONDS)) is not None:
            self.events.append(json.loads(line))
        self._lines.put(None)
        return self._process.wait(SECONDS)

    def names(self) -> list[str]:
        return [event.get("name", "") for event in self.events]

    def close(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=SECONDS)
        self._reader.join()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(1, default_partitions=2, default_replication_factor=1) as running:
        yield running


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    cluster.create_topic(name, partitions=2)
    return name


@pytest.fixture
def start(cluster: Cluster) -> Iterator[Callable[..., Client]]:
    with ExitStack() as running:

        def begin(command: str, *args: str) -> Client:
            client = Client(command, "--bootstrap-server", cluster.bootstrap, *args)
            running.callback(client.close)
            return client

        yield begin


def produce(cluster: Cluster, topic: str, count: int) -> None:
    with Producer(cluster.bootstrap) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, key=b"k", partition=number % 2)


def committed(cluster: Cluster, group: str) -> dict[tuple[str, int], int]:
    with Admin(cluster.bootstrap) as admin:
        return {key: offset.offset for key, offset in admin.groups.offsets(group).items()}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_consumer_commits_what_it_reported_then_gives_it_up(
    cluster: Cluster, topic: str, start: Callable[..., Client], protocol: str
) -> None:
    produce(cluster, topic, 10)
    client = start("verifiable-consumer", "--topic", topic, "--group-id", topic, "--group-protocol", protocol)
    seen = 0

    def consumed_all(event: Event) -> bool:
        nonlocal seen
        seen += event["count"] if event["name"] == "records_consumed" else 0
        return seen == 10

    client.until(consumed_all)
    client.until_name("offsets_committed")
    assert client.end(signal.SIGTERM) == 0
    names = client.names()
    assert names[0] == "startup_complete"
    assert names[-2:] == ["partitions_revoked", "shutdown_complete"]
    for index, name in enumerate(names):
        assert name != "records_consumed" or names[index + 1] == "offsets_committed"
    assigned = client.events[names.index("partitions_assigned")]["partitions"]
    assert client.events[-2]["partitions"] == assigned == [{"topic": topic, "partition": n} for n in (0, 1)]
    summaries = [one for event in client.events if event["name"] == "records_consumed" for one in event["partitions"]]
    assert {one["partition"]: one["maxOffset"] for one in summaries} == {0: 4, 1: 4}
    assert all(one["count"] == one["maxOffset"] - one["minOffset"] + 1 for one in summaries)
    commits = [event for event in client.events if event["name"] == "offsets_committed"]
    assert all(event["success"] and "error" not in event for event in commits)
    assert committed(cluster, topic) == {(topic, 0): 5, (topic, 1): 5}
    assert all(event["timestamp"] > 1_600_000_000_000 for event in client.events)


def test_consumer_that_is_killed_says_nothing_and_stays_a_member(
    cluster: Cluster, topic: str, start: Callable[..., Client]
) -> None:
    client = start("verifiable-consumer", "--topic", topic, "--group-id", topic)
    client.until_name("partitions_assigned")
    assert client.end(signal.SIGKILL) == -signal.SIGKILL
    assert client.names()[-1] == "partitions_assigned"
    with Admin(cluster.bootstrap) as admin:
        assert len(admin.groups.describe(topic).members) == 1


def test_consumer_ends_after_max_messages_and_shows_records(
    cluster: Cluster, topic: str, start: Callable[..., Client]
) -> None:
    produce(cluster, topic, 10)
    client = start(
        "verifiable-consumer", "--topic", topic, "--group-id", topic, "--max-messages", "7", "--verbose",
        "--enable-autocommit",
    )  # fmt: skip
    assert client.end() == 0
    assert client.names().count("record_data") == 7
    assert "offsets_committed" not in client.names()
    assert sum(committed(cluster, topic).values()) == 7
    record = next(event for event in client.events if event["name"] == "record_data")
    assert (record["topic"], record["partition"], record["offset"]) == (topic, record["partition"], 0)
    assert (record["key"], record["value"]) == ("k", str(record["partition"]))


def test_consumer_with_nowhere_to_begin_ends_with_an_error(topic: str, start: Callable[..., Client]) -> None:
    client = start("verifiable-consumer", "--topic", topic, "--group-id", topic, "--reset-policy", "none")
    assert client.end() == 1
    assert client.names()[-1] == "shutdown_complete"


def test_fenced_static_consumer_ends(topic: str, start: Callable[..., Client]) -> None:
    arguments = ("verifiable-consumer", "--topic", topic, "--group-id", topic, "--group-instance-id", "one")
    first = start(*arguments)
    first.until_name("partitions_assigned")
    second = start(*arguments)
    assert first.end() == 1
    assert first.names()[-1] == "shutdown_complete"
    second.until_name("partitions_assigned")


def test_producer_reports_each_record(cluster: Cluster, topic: str, start: Callable[..., Client]) -> None:
    client = start(
        "verifiable-producer", "--topic", topic, "--max-messages", "6", "--value-prefix", "3", "--repeating-keys", "4",
        "--message-create-time", "1000",
    )  # fmt: skip
    assert client.end() == 0
    sent = [event for event in client.events if event["name"] == "producer_send_success"]
    assert sorted((event["key"], event["value"]) for event in sent) == sorted(
        (str(number % 4), f"3.{number}") for number in range(6)
    )
    assert {event["topic"] for event in sent} == {topic}
    assert client.names()[0] == "startup_complete"
    assert client.names()[-2:] == ["shutdown_complete", "tool_data"]
    summary = client.events[-1]
    assert (summary["sent"], summary["acked"], summary["target_throughput"]) == (6, 6, -1)
    with Consumer(cluster.bootstrap) as consumer:
        consumer.assign([(topic, 0, "earliest"), (topic, 1, "earliest")])
        records: list[ConsumerRecord] = []
        while len(records) < 6:
            records += consumer.poll()
    assert all(1_000 <= record.timestamp_ms < 1_000 + SECONDS * 1000 for record in records)


def test_producer_stops_at_a_signal_with_all_it_sent_delivered(topic: str, start: Callable[..., Client]) -> None:
    client = start("verifiable-producer", "--topic", topic, "--throughput", "200")
    client.until_name("producer_send_success")
    assert client.end(signal.SIGTERM) == 0
    summary = client.events[-1]
    assert summary["name"] == "tool_data"
    assert summary["sent"] == summary["acked"] == client.names().count("producer_send_success")
    assert summary["avg_throughput"] < 1_000, "without a limit it would be tens of thousands"


def test_producer_reports_failures(cluster: Cluster, topic: str, start: Callable[..., Client], tmp_path: Path) -> None:
    config = tmp_path / "producer.properties"
    config.write_text("batch.size=100\nmax.request.size = 200\ncompression.type=none\n")
    client = start(
        "verifiable-producer", "--topic", topic, "--max-messages", "1", "--value-prefix", "1" * 400,
        "--producer.config", str(config),
    )  # fmt: skip
    assert client.end() == 0
    failure = next(event for event in client.events if event["name"] == "producer_send_error")
    assert failure["value"] == "1" * 400 + ".0"
    assert failure["exception"] == "RecordTooLargeError"
    assert failure["message"]
    assert (client.events[-1]["sent"], client.events[-1]["acked"]) == (1, 0)


@pytest.mark.parametrize("mode", ["auto", "sync", "async"])
def test_share_consumer(cluster: Cluster, topic: str, start: Callable[..., Client], mode: str) -> None:
    produce(cluster, topic, 10)
    client = start(
        "verifiable-share-consumer", "--topic", topic, "--group-id", topic, "--acknowledgement-mode", mode,
        "--offset-reset-strategy", "earliest", "--max-messages", "10",
    )  # fmt: skip
    assert client.end() == 0
    assert client.names()[:2] == ["startup_complete", "offset_reset_strategy_set"]
    assert client.names()[-1] == "shutdown_complete"
    assert client.events[1]["offsetResetStrategy"] == "earliest"
    for name in ("records_consumed", "offsets_acknowledged"):
        found = [event for event in client.events if event["name"] == name]
        assert sum(event["count"] for event in found) == 10
        offsets = [
            (one["partition"], offset) for event in found for one in event["partitions"] for offset in one["offsets"]
        ]
        assert sorted(offsets) == [(partition, offset) for partition in (0, 1) for offset in range(5)]
    assert all(event["success"] for event in client.events if event["name"] == "offsets_acknowledged")


def test_share_consumer_acknowledges_what_it_reported_at_a_signal(
    cluster: Cluster, topic: str, start: Callable[..., Client]
) -> None:
    produce(cluster, topic, 2)
    client = start(
        "verifiable-share-consumer", "--topic", topic, "--group-id", topic, "--offset-reset-strategy", "earliest"
    )
    seen = 0
    while seen < 2:
        seen += client.until_name("records_consumed")["count"]
    # It polls. Stopped now, it gets the signal and two further records in this poll, and its loop ends after it.
    client.send(signal.SIGSTOP)
    produce(cluster, topic, 2)
    client.send(signal.SIGTERM)
    assert client.end(signal.SIGCONT) == 0
    counts: Counter[str] = Counter()
    for event in client.events:
        counts[event["name"]] += event.get("count", 0)
    assert counts["offsets_acknowledged"] == counts["records_consumed"] >= 2
    produce(cluster, topic, 1)
    with ShareConsumer(cluster.bootstrap, group=topic) as consumer:
        consumer.subscribe([topic])
        found: list[int] = []
        while len(found) < 5 - counts["records_consumed"]:
            found += [record.offset for record in consumer.poll(timeout=SECONDS)]
        assert max(found) == 2
        assert len(found) == 5 - counts["records_consumed"]


@pytest.mark.parametrize("is_member", [True, False])
def test_copier_copies_each_record_once_in_spite_of_aborts(
    cluster: Cluster, topic: str, start: Callable[..., Client], is_member: bool
) -> None:
    produce(cluster, topic, 100)
    cluster.create_topic(f"{topic}-copy", partitions=2)
    mode = ["--group-mode", "--use-group-metadata"] if is_member else []
    client = start(
        "transactional-message-copier", "--input-topic", topic, "--input-partition", "0", "--output-topic",
        f"{topic}-copy", "--consumer-group", topic, "--transaction-size", "5", "--transactional-id", topic,
        "--enable-random-aborts", *mode,
    )  # fmt: skip
    assert client.end() == 0
    count = 100 if is_member else 50
    end = client.events[-1]
    assert end["shutdown_complete"] == topic
    assert (end["totalProcessed"], end["consumed"], end["remaining"]) == (count, count, 0)
    stages = {event["stage"] for event in client.events[:-1]}
    assert stages == {"ProcessLoop", *(["RebalanceComplete"] if is_member else [])}
    assert all(event["progress"] == topic for event in client.events[:-1])
    with Consumer(cluster.bootstrap, isolation="read_committed") as consumer:
        consumer.assign([(f"{topic}-copy", 0, "earliest"), (f"{topic}-copy", 1, "earliest")])
        ends = consumer.end_offsets([(f"{topic}-copy", 0), (f"{topic}-copy", 1)])
        values = []
        while any(consumer.position(*key) < end for key, end in ends.items()):
            values += [int(record.value or b"") for record in consumer.poll()]
    assert sorted(values) == list(range(0, 100, 1 if is_member else 2))
    assert committed(cluster, topic)[topic, 0] == 50


def test_copier_counts_all_that_its_member_owns(
    cluster: Cluster, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    produce(cluster, topic, 100)
    with Producer(cluster.bootstrap) as producer, Consumer(cluster.bootstrap, group=topic, commit="manual") as consumer:
        copier = _Copier(producer, consumer, f"{topic}-copy", consumer, topic, has_aborts=False)
        copier.on_assigned([])  # others have to give up partitions first
        consumer.subscribe([topic])
        while len(consumer.assignment()) < 2:
            consumer.poll(timeout=0.1)
        consumer.commit({(topic, 0): 20})
        copier.on_assigned([(topic, 1)])  # a cooperative rebalance names only what is new
    assert [json.loads(line)["remaining"] for line in capsys.readouterr().out.splitlines()] == [None, 80]


# -- property files


def test_properties_are_read_as_java_does() -> None:
    text = "# a\n! b\n\n  key = value \nb:c=d\nspaced out\n=nothing\\tnamed\nlong=1,\\\n   2,\\\n   3\nback=\\\\\n"
    text += "e=\\u00e9\nempty"
    assert parse_properties(text) == {
        "key": "value ", "b": "c=d", "spaced": "out", "": "nothing\tnamed", "long": "1,2,3", "back": "\\", "e": "é",
        "empty": "",
    }  # fmt: skip
    assert parse_properties("a\\ b=c\\=d\\:e\nlast=\\") == {"a b": "c=d:e", "last": ""}


def test_options_by_the_names_of_java(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "client.properties"
    path.write_text(
        "session.timeout.ms=9000\nenable.auto.commit=false\nauto.offset.reset=none\nclient.id=7\ncheck.crcs=false\n"
        "partition.assignment.strategy=org.apache.kafka.clients.consumer.CooperativeStickyAssignor,range\n"
        "key.deserializer=org.apache.Any\nlinger.ms=5\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        'sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";\n'
    )
    options = client_options(str(path), ConsumerOptions.option_names() | {"client_id"})
    sasl = options.pop("sasl")
    assert (sasl.mechanism, sasl.username, sasl.password) == ("PLAIN", "u", "p")
    assert options == {
        "session_timeout_ms": 9000, "commit": "manual", "on_no_offset": "error", "on_out_of_range": "error",
        "client_id": "7", "check_crc": False, "assignors": ["cooperative-sticky", "range"],
    }  # fmt: skip
    assert capsys.readouterr().err == "kwire: linger.ms is ignored: this client has no such option\n"


def test_properties_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_bytes(b"a=\xff")
    with pytest.raises(ConfigurationError, match="not UTF-8"):
        client_options(str(path), [])
    assert client_options(None, []) == {}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("org.apache.kafka.clients.consumer.RangeAssignor", "range"),
        ("org.apache.kafka.clients.consumer.RoundRobinAssignor", "roundrobin"),
        ("StickyAssignor", "sticky"),
        (" cooperative-sticky", "cooperative-sticky"),
    ],
)
def test_assignors_by_class_or_name(text: str, name: str) -> None:
    assert assignor_name(text) == name


def test_usage_errors() -> None:
    assert run("verifiable-consumer", "--topic", "t", "--group-id", "g").code == 2
    ran = run("verifiable-producer", "--bootstrap-server", "h:1", "--topic", "t", "--command-config", "/none")
    assert ran.code == 2
    assert "/none" in ran.stderr
