"""Kafka's own command line tools on the embedded broker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kwire import Admin, Producer, ShareConsumer
from kwire.admin import Acl, AclFilter
from kwire.broker import Cluster
from tests.live.kafka_tools import kafka_tools
from tests.waiting import wait_until

Run = Callable[..., str]
_SETTINGS = {"authorizer": True, "super_users": "User:ANONYMOUS"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, version="4.3", topics={"t": 3}, **_SETTINGS) as running:  # type: ignore[arg-type]
        with Producer(running.bootstrap, transactional_id="tx") as producer:
            producer.begin()
            producer.send("t", b"one", partition=0).result(10)
            producer.commit()
        with Admin(running.bootstrap) as admin:
            admin.groups.set_offsets("g", {("t", 0): 1})
            admin.acls.add(Acl.allow("User:alice", "read").on(topic="t"))
        running.alter_group("sg", {"share.auto.offset.reset": "earliest"})
        yield running
        assert not running.failures


@pytest.fixture(scope="module")
def run(cluster: Cluster) -> Iterator[Run]:
    """Run a tool, and return what it prints. A tool that fails is an error."""
    with kafka_tools() as tools:
        yield lambda tool, *arguments: tools.run(tool, cluster.bootstrap, *arguments)


# The tool, its arguments, and what it must print.
_COMMANDS: list[tuple[str, list[str], str]] = [
    ("topics", ["--describe", "--topic", "t"], "PartitionCount: 3"),
    ("configs", ["--describe", "--entity-type", "brokers", "--entity-name", "1", "--all"],
     "log.cleaner.backoff.ms=15000"),
    ("configs", ["--alter", "--entity-type", "brokers", "--entity-default", "--add-config",
                                   "log.cleaner.backoff.ms=16000"], "Completed updating default config for brokers"),
    ("configs", ["--alter", "--entity-type", "users", "--entity-name", "carol", "--add-config",
                                   "SCRAM-SHA-256=[iterations=8192,password=hers]"],
     "Completed updating config for user carol"),
    ("configs", ["--alter", "--entity-type", "users", "--entity-name", "carol", "--add-config",
                                   "producer_byte_rate=1000"], "Completed updating config for user carol"),
    ("configs", ["--describe", "--entity-type", "groups", "--entity-name", "sg"],
     "share.auto.offset.reset=earliest"),
    ("configs", ["--describe", "--entity-type", "broker-loggers", "--entity-name", "1"], "root=INFO"),
    ("acls", ["--list"], "principal=User:alice, host=*, operation=READ, permissionType=ALLOW"),
    ("consumer-groups", ["--describe", "--group", "g"], "g               t"),
    ("share-groups", ["--list"], ""),
    ("transactions", ["list"], "tx"),
    ("transactions", ["find-hanging", "--broker-id", "1"], "Topic"),
    ("log-dirs", ["--describe", "--broker-list", "1"], '"logDir"'),
    ("metadata-quorum", ["describe", "--status"], "LeaderId:               1"),
    ("metadata-quorum", ["describe", "--replication"], "Leader"),
    ("leader-election", ["--election-type", "preferred", "--all-topic-partitions"], ""),
    ("features", ["describe"], "metadata.version"),
    ("client-metrics", ["--alter", "--name", "m", "--metrics", "org.apache.", "--interval", "1000"],
     "Altered client metrics config for m"),
    ("client-metrics", ["--describe", "--name", "m"], "interval.ms=1000"),
    ("groups", ["--list"], "g"),
]  # fmt: skip


@pytest.mark.parametrize(("tool", "arguments", "expected"), _COMMANDS, ids=lambda value: str(value)[:70])
def test_a_tool_works(run: Run, tool: str, arguments: list[str], expected: str) -> None:
    printed = run(tool, *arguments)
    assert expected in printed, printed


def test_partitions_are_reassigned(run: Run, cluster: Cluster, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [3, 2]}]}))
    run("reassign-partitions", "--execute", "--reassignment-json-file", str(plan))
    printed = run("reassign-partitions", "--verify", "--reassignment-json-file", str(plan))
    assert "Reassignment of partition t-0 is completed." in printed
    assert cluster.leader("t", 0) == 3


def test_topics_and_records_change(run: Run, cluster: Cluster, tmp_path: Path) -> None:
    with Admin(cluster.bootstrap) as admin:
        run("topics", "--create", "--topic", "new", "--partitions", "2", "--config", "retention.ms=5000")
        assert len(admin.topics.describe("new").partitions) == 2
        run("topics", "--alter", "--topic", "new", "--partitions", "3")
        assert len(admin.topics.describe("new").partitions) == 3
        entity = ["--entity-type", "topics", "--entity-name", "new"]
        run("configs", "--alter", *entity, "--add-config", "retention.ms=6000")
        assert admin.configs.get(topic="new")["retention.ms"].value == "6000"
        run("configs", "--alter", *entity, "--delete-config", "retention.ms")
        assert admin.configs.get(topic="new")["retention.ms"].value != "6000"
        with Producer(cluster.bootstrap) as producer:
            producer.send_many("new", [b"x"] * 5, partitions=0).result(10)
        assert "new:0:5" in run("get-offsets", "--topic-partitions", "new:0")
        plan = tmp_path / "records.json"
        plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "new", "partition": 0, "offset": 3}]}))
        assert "low_watermark: 3" in run("delete-records", "--offset-json-file", str(plan))
        assert "new:0:3" in run("get-offsets", "--topic-partitions", "new:0", "--time", "earliest")
        run("topics", "--delete", "--topic", "new")
        assert not admin.topics.exists("new")


def test_rights_change(run: Run, cluster: Cluster) -> None:
    rule = ["--allow-principal", "User:bob", "--operation", "Write", "--topic", "t"]
    with Admin(cluster.bootstrap) as admin:
        run("acls", "--add", *rule)
        bobs = AclFilter(principal="User:bob")
        assert admin.acls.find(bobs) == [Acl.allow("User:bob", "write").on(topic="t")]
        run("acls", "--remove", "--force", *rule)
        assert admin.acls.find(bobs) == []


def test_groups_change(run: Run, cluster: Cluster) -> None:
    tool = "consumer-groups"
    with Admin(cluster.bootstrap) as admin:
        admin.groups.set_offsets("mine", {("t", 0): 1})
        printed = run(tool, "--reset-offsets", "--group", "mine", "--topic", "t:0", "--to-earliest", "--execute")
        assert "t" in printed
        assert admin.groups.offsets("mine")["t", 0].offset == 0
        run(tool, "--delete-offsets", "--group", "mine", "--topic", "t:0")
        assert admin.groups.offsets("mine") == {}
        admin.groups.set_offsets("mine", {("t", 0): 1})
        run(tool, "--delete", "--group", "mine")
        assert "mine" not in [one.id for one in admin.groups.list()]


def test_share_groups(run: Run, cluster: Cluster) -> None:
    tool = "share-groups"
    with Admin(cluster.bootstrap) as admin, ShareConsumer(cluster.bootstrap, group="sg") as consumer:
        consumer.subscribe(["t"])
        wait_until(lambda: consumer.poll(timeout=1))
        assert "sg" in run(tool, "--list")
        described = run(tool, "--describe", "--group", "sg", "--members")
        assert "sg" in described
        assert "t:" in described
        consumer.close()
        assert "sg" in run(tool, "--describe", "--group", "sg", "--offsets")
        run(tool, "--reset-offsets", "--group", "sg", "--topic", "t", "--to-latest", "--execute")
        assert admin.groups.offsets("sg")["t", 0].offset == admin.offsets.list([("t", 0)], "latest")["t", 0].offset
        run(tool, "--delete-offsets", "--group", "sg", "--topic", "t")
        run(tool, "--delete", "--group", "sg")
        assert "sg" not in [one.id for one in admin.groups.list()]


def test_a_transaction_is_ended_by_force(run: Run, cluster: Cluster) -> None:
    with Producer(cluster.bootstrap, transactional_id="open") as producer, Admin(cluster.bootstrap) as admin:
        producer.begin()
        producer.send("t", b"x", partition=1).result(10)
        assert "Ongoing" in run("transactions", "describe", "--transactional-id", "open")
        run("transactions", "forceTerminateTransaction", "--transactionalId", "open")
        wait_until(lambda: admin.transactions.describe("open").started_at is None)
        producer.close(0)
