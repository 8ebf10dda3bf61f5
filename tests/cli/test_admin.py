"""The commands over the nouns of `kwire.Admin`, on the embedded cluster. tests/live/test_admin.py has real brokers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kwire import Producer
from kwire.broker import Cluster
from tests.cli.running import Ran, run


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, topics={"orders": 2}, auto_create_topics=False) as running:
        yield running


def on(cluster: Cluster, *args: str) -> Ran:
    return run(*args, env={"KWIRE_BOOTSTRAP": cluster.bootstrap})


def test_the_life_of_a_topic(cluster: Cluster) -> None:
    checked = on(cluster, "topics", "create", "life", "--partitions", "2", "--dry-run")
    assert (checked.code, checked.lines()[0]["dry_run"]) == (0, True)
    assert on(cluster, "topics", "describe", "life").code == 1
    made = on(cluster, "topics", "create", "life", "--partitions", "2", "--config", "retention.ms=5000")
    assert made.lines() == [{"topic": "life", "partitions": 2, "replication_factor": 3, "dry_run": False}]
    assert on(cluster, "topics", "add-partitions", "life", "3").code == 0
    described = on(cluster, "topics", "describe", "life").lines()
    assert [one["partition"] for one in described] == [0, 1, 2]
    assert "life" in on(cluster, "topics", "list", "-f", "table").stdout
    assert on(cluster, "topics", "delete", "life", "--dry-run").lines() == [
        {"topic": "life", "deleted": False, "dry_run": True}
    ]
    deleted = on(cluster, "topics", "delete", "life", "never")
    assert (deleted.code, [one["topic"] for one in deleted.lines()]) == (1, ["life"])
    assert "topic never" in deleted.stderr


def test_configs(cluster: Cluster) -> None:
    assert on(cluster, "configs", "set", "--topic", "orders", "retention.ms=5000").code == 0
    assert on(cluster, "configs", "append", "--topic", "orders", "cleanup.policy=compact").code == 0
    changed = on(cluster, "configs", "get", "--topic", "orders").lines()
    assert {one["config"]: one["value"] for one in changed} == {
        "retention.ms": "5000", "cleanup.policy": "delete,compact",
    }  # fmt: skip
    assert on(cluster, "configs", "reset", "--topic", "orders", "retention.ms", "cleanup.policy").code == 0
    assert on(cluster, "configs", "get", "--topic", "orders").lines() == []
    assert len(on(cluster, "configs", "get", "--topic", "orders", "--all").lines()) > 10
    refused = on(cluster, "configs", "set", "--topic", "orders", "retention.ms=soon", "--dry-run")
    assert (refused.code, "INVALID_CONFIG" in refused.stderr) == (1, True)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["configs", "get"], "name one resource"),
        (["configs", "get", "--topic", "a", "--group", "b"], "name one resource"),
        (["configs", "set", "--topic", "a", "retention.ms"], "write NAME=VALUE"),
        (["configs", "get", "--broker", "one"], "give the id of a broker"),
        (["acls", "add", "--operation", "read", "--resource", "topic"], "give --allow PRINCIPAL or --deny"),
        (["acls", "add", "--allow", "User:a", "--operation", "read", "--resource", "topic"], "give --name"),
        (["partitions", "reassign", "orders=1"], "write TOPIC:NUMBER"),
        (["partitions", "delete-records", "orders:0=all"], "give an offset, or end"),
        (["quotas", "set", "--user", "a", "producer_byte_rate=much"], "give a number, or none"),
    ],
)
def test_wrong_arguments_name_the_remedy(cluster: Cluster, args: list[str], said: str) -> None:
    ran = on(cluster, *args)
    assert ran.code == 2
    assert said in ran.stderr


def test_records_are_deleted(cluster: Cluster) -> None:
    with Producer(cluster.bootstrap) as producer:
        for _ in range(4):
            producer.send("orders", b"x", partition=1).result(10)
    assert on(cluster, "partitions", "delete-records", "orders:1=3").lines() == [
        {"topic": "orders", "partition": 1, "log_start": 3}
    ]
    assert on(cluster, "partitions", "delete-records", "orders:1=end").lines()[0]["log_start"] == 4
    refused = on(cluster, "partitions", "delete-records", "orders:1=99")
    assert (refused.code, "OFFSET_OUT_OF_RANGE" in refused.stderr) == (1, True)


def test_transactions(cluster: Cluster) -> None:
    with Producer(cluster.bootstrap, transactional_id="shop") as producer:
        producer.begin()
        producer.send("orders", b"x", partition=0).result(10)
        (listed,) = on(cluster, "transactions", "list", "--state", "Ongoing").lines()
        assert listed["id"] == "shop"
        (described,) = on(cluster, "transactions", "describe", "shop").lines()
        assert described["partitions"] == ["orders:0"]
        assert on(cluster, "transactions", "hanging", "--older-than", "0").code == 0
        number = str(listed["producer_id"])
        (aborted,) = on(cluster, "transactions", "abort", "orders", "0", "--producer-id", number, "--dry-run").lines()
        assert (aborted["start"], aborted["dry_run"]) == (0, True)
        (fenced,) = on(cluster, "transactions", "fence", "shop").lines()
        assert (fenced["producer_id"], fenced["epoch"]) > (listed["producer_id"], described["epoch"])
        producer.close(0)
    assert on(cluster, "transactions", "abort", "orders", "0", "--producer-id", number).code == 2
    assert on(cluster, "transactions", "describe", "never").code == 1


def test_the_cluster(cluster: Cluster) -> None:
    assert [one["broker"] for one in on(cluster, "cluster", "describe").lines()] == [1, 2, 3]
    assert on(cluster, "cluster", "explain").code == 0
    assert {one["feature"] for one in on(cluster, "cluster", "features").lines()} >= {"transaction.version"}
    cluster.stop(3)
    try:
        ran = on(cluster, "cluster", "explain")
        assert (ran.code, bool(ran.lines())) == (1, True)
    finally:
        cluster.restart(3)
