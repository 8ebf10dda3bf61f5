"""Kafka's own command line tools on the embedded broker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from brokers.cluster import NEWEST
from brokers.configuration import log4j_properties
from brokers.jars import fetch_jars
from brokers.java import java_command
from brokers.process import run_java

from kwire import Admin, Producer
from kwire.admin import Acl
from kwire.broker import Cluster

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
def run(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run a tool by its class, and return what it prints. A tool that fails is an error."""
    jars = fetch_jars("kafka", NEWEST)
    folder = tmp_path_factory.mktemp("tools")
    log4j = folder / "log4j.properties"
    log4j.write_text(log4j_properties())

    def run_one(tool: str, *arguments: str) -> str:
        where = ["--bootstrap-server", cluster.bootstrap]
        name = tool if tool.startswith("kafka.") else f"org.apache.kafka.tools.{tool}"
        command = java_command(jars, name, [*where, *arguments], heap_mb=128, log4j=log4j)
        return run_java(command, timeout_s=60).decode()

    return run_one


# The tool, its arguments, and what it must print.
_COMMANDS: list[tuple[str, list[str], str]] = [
    ("TopicCommand", ["--describe", "--topic", "t"], "PartitionCount: 3"),
    ("kafka.admin.ConfigCommand", ["--describe", "--entity-type", "brokers", "--entity-name", "1", "--all"],
     "log.cleaner.backoff.ms=15000"),
    ("kafka.admin.ConfigCommand", ["--alter", "--entity-type", "brokers", "--entity-default", "--add-config",
                                   "log.cleaner.backoff.ms=16000"], "Completed updating default config for brokers"),
    ("kafka.admin.ConfigCommand", ["--alter", "--entity-type", "users", "--entity-name", "carol", "--add-config",
                                   "SCRAM-SHA-256=[iterations=8192,password=hers]"],
     "Completed updating config for user carol"),
    ("kafka.admin.ConfigCommand", ["--alter", "--entity-type", "users", "--entity-name", "carol", "--add-config",
                                   "producer_byte_rate=1000"], "Completed updating config for user carol"),
    ("kafka.admin.ConfigCommand", ["--describe", "--entity-type", "groups", "--entity-name", "sg"],
     "share.auto.offset.reset=earliest"),
    ("kafka.admin.ConfigCommand", ["--describe", "--entity-type", "broker-loggers", "--entity-name", "1"], "root=INFO"),
    ("AclCommand", ["--list"], "principal=User:alice, host=*, operation=READ, permissionType=ALLOW"),
    ("consumer.group.ConsumerGroupCommand", ["--describe", "--group", "g"], "g               t"),
    ("consumer.group.ShareGroupCommand", ["--list"], ""),
    ("TransactionsCommand", ["list"], "tx"),
    ("TransactionsCommand", ["find-hanging", "--broker-id", "1"], "Topic"),
    ("LogDirsCommand", ["--describe", "--broker-list", "1"], '"logDir"'),
    ("MetadataQuorumCommand", ["describe", "--status"], "LeaderId:               1"),
    ("MetadataQuorumCommand", ["describe", "--replication"], "Leader"),
    ("LeaderElectionCommand", ["--election-type", "preferred", "--all-topic-partitions"], ""),
    ("FeatureCommand", ["describe"], "metadata.version"),
    ("ClientMetricsCommand", ["--alter", "--name", "m", "--metrics", "org.apache.", "--interval", "1000"],
     "Altered client metrics config for m"),
    ("ClientMetricsCommand", ["--describe", "--name", "m"], "interval.ms=1000"),
    ("GroupsCommand", ["--list"], "g"),
]  # fmt: skip


@pytest.mark.parametrize(("tool", "arguments", "expected"), _COMMANDS, ids=lambda value: str(value)[:70])
def test_a_tool_works(run: Run, tool: str, arguments: list[str], expected: str) -> None:
    printed = run(tool, *arguments)
    assert expected in printed, printed


def test_partitions_are_reassigned(run: Run, cluster: Cluster, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [3, 2]}]}))
    run("reassign.ReassignPartitionsCommand", "--execute", "--reassignment-json-file", str(plan))
    printed = run("reassign.ReassignPartitionsCommand", "--verify", "--reassignment-json-file", str(plan))
    assert "Reassignment of partition t-0 is completed." in printed
    assert cluster.leader("t", 0) == 3
