"""The commands over the nouns of `kwire.Admin`, on the embedded cluster. tests/live/test_admin.py has real brokers."""

from __future__ import annotations

import importlib
import json
import re
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from kwire import Admin, Consumer, Producer, Sasl
from kwire.broker import Cluster
from kwire.cli.app import COMMANDS
from tests.cli.running import Ran, run
from tests.waiting import wait_until

# The verbs whose command has another name, or whose job another command does too.
COMMANDS_OF_VERBS = {
    ("acls", "find"): "list",
    ("client_metrics", "get"): "list",
    ("cluster", "metadata"): None,  # `kwire metadata`
    ("configs", "set_many"): "set",
    ("groups", "describe_many"): "describe",
    ("groups", "lag_many"): "lag",
    ("groups", "offsets"): "lag",
    ("groups", "set_offsets"): "reset",
    ("topics", "create_many"): "create",
    ("topics", "describe_many"): "describe",
    ("topics", "exists"): "describe",
    ("transactions", "describe_many"): "describe",
    ("users", "delete_scram"): "delete",
    ("users", "set_scram"): "set",
}
READING = {
    "describe", "describe_many", "exists", "explain", "features", "find", "get", "hanging", "lag", "lag_many", "list",
    "metadata", "offsets", "producers", "quorum", "reassignments", "resources",
}  # fmt: skip


def commands(noun: str) -> dict[str, click.Command]:
    group = importlib.import_module(f"kwire.cli.{noun}").command
    assert isinstance(group, click.Group)
    return dict(group.commands)


def test_each_verb_of_each_noun_has_a_command_and_each_change_a_dry_run() -> None:
    with Admin("127.0.0.1:1") as admin:
        nouns = {name: noun for name, noun in vars(admin).items() if not name.startswith("_")}
        verbs = [(name, verb) for name, noun in nouns.items() for verb in dir(noun) if not verb.startswith("_")]
    assert len(nouns) == 14
    for noun, verb in verbs:
        assert noun.replace("_", "-") in COMMANDS
        name = COMMANDS_OF_VERBS.get((noun, verb), verb.replace("_", "-"))
        if name is None:
            continue
        options = {option for parameter in commands(noun)[name].params for option in parameter.opts}
        assert "--format" in options, (noun, verb)
        assert ("--dry-run" in options) is (verb not in READING or name == "reset"), (noun, verb)


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
        (["records", "delete", "orders:0=all"], "give an offset, or end"),
        (["records", "delete", f"orders:0={2**63}"], "give an offset, or end"),
        (["records", "delete", f"orders:0={'9' * 5000}"], "give an offset, or end"),
        (["quotas", "set", "--user", "a", "producer_byte_rate=much"], "give a number, or none"),
        (["users", "set", "alice"], "there is no terminal to ask for the password: set KWIRE_NEW_PASSWORD (not empty)"),
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
    assert on(cluster, "records", "delete", "orders:1=3", "--dry-run").lines() == [
        {"topic": "orders", "partition": 1, "log_start": 3, "gone": 3, "dry_run": True}
    ]
    assert offsets(cluster, "earliest") == {0: 0, 1: 0}
    assert on(cluster, "records", "delete", "orders:1=3").lines() == [
        {"topic": "orders", "partition": 1, "log_start": 3, "dry_run": False}
    ]
    assert on(cluster, "records", "delete", "orders:1=end").lines()[0]["log_start"] == 4
    assert offsets(cluster, "earliest") == offsets(cluster, "latest") == {0: 0, 1: 4}
    refused = on(cluster, "records", "delete", "orders:1=99")
    assert (refused.code, "OFFSET_OUT_OF_RANGE" in refused.stderr) == (1, True)
    refused = on(cluster, "records", "delete", "orders:1=99", "--dry-run")
    assert (refused.code, "the log ends at 4" in refused.stderr) == (2, True)


def offsets(cluster: Cluster, at: str) -> dict[int, int]:
    rows = on(cluster, "offsets", "list", "orders", "--at", at).lines()
    return {one["partition"]: one["offset"] for one in rows}


def test_records_before_a_time_are_deleted(cluster: Cluster) -> None:
    assert on(cluster, "topics", "create", "old", "--partitions", "1").code == 0
    with Producer(cluster.bootstrap) as producer:
        for number in range(3):
            producer.send("old", b"x", timestamp_ms=1_600_000_000_000 + number * 3_600_000).result(10)
    at = "2020-09-13T13:00"  # between the first and the second
    assert on(cluster, "offsets", "list", "old:0", "--at", at).lines()[0]["offset"] == 1
    (planned,) = on(cluster, "records", "delete-before", "old", at, "--dry-run").lines()
    assert (planned["gone"], planned["dry_run"]) == (1, True)
    (done,) = on(cluster, "records", "delete-before", "old", at).lines()
    assert (done["log_start"], done["dry_run"]) == (1, False)
    assert on(cluster, "records", "delete-before", "old", "-1d").lines()[0]["log_start"] == 3
    refused = on(cluster, "records", "delete-before", "old", "yesterday")
    assert (refused.code, "give a time" in refused.stderr) == (2, True)


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
        (planned,) = on(cluster, "transactions", "terminate", "shop", "--dry-run").lines()
        assert planned == {**described, "dry_run": True}
        assert on(cluster, "transactions", "describe", "shop").lines() == [described]
        (ended,) = on(cluster, "transactions", "terminate", "shop").lines()
        assert ended == {**described, "dry_run": False}
        (after,) = on(cluster, "transactions", "describe", "shop").lines()
        assert (after["started_at"], after["partitions"]) == (None, [])
        (fenced,) = on(cluster, "transactions", "fence", "shop").lines()
        assert (fenced["producer_id"], fenced["epoch"]) > (listed["producer_id"], described["epoch"])
        producer.close(0)
    assert on(cluster, "transactions", "abort", "orders", "0", "--producer-id", number).code == 2
    assert on(cluster, "transactions", "describe", "never").code == 1
    assert on(cluster, "transactions", "terminate", "never").code == 1
    assert len(on(cluster, "transactions", "list").lines()) == 1  # it did not create the id


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


def test_partitions(cluster: Cluster) -> None:
    assert on(cluster, "topics", "create", "moving", "--partitions", "2", "--replication-factor", "1").code == 0
    before = [one["replicas"] for one in on(cluster, "topics", "describe", "moving").lines()]
    other = before[0][0] % 3 + 1
    planned = on(cluster, "partitions", "reassign", f"moving:0={other}", "--dry-run").lines()
    assert planned == [{"topic": "moving", "partition": 0, "from": before[0], "replicas": [other], "dry_run": True}]
    assert [one["replicas"] for one in on(cluster, "topics", "describe", "moving").lines()] == before
    refused = on(cluster, "partitions", "reassign", "moving:0=9", "--dry-run")
    assert (refused.code, "no broker 9" in refused.stderr) == (2, True)
    assert on(cluster, "partitions", "reassign", f"moving:0={other}").lines()[0]["dry_run"] is False
    assert on(cluster, "partitions", "cancel", "moving:1", "--dry-run").lines() == []
    assert on(cluster, "partitions", "elect", "preferred", "moving:1", "--dry-run").lines() == [
        {"topic": "moving", "partition": 1, "changed": False, "dry_run": True}
    ]


def test_log_dirs(cluster: Cluster) -> None:
    found = on(cluster, "log-dirs", "describe", "--topic", "orders", "--broker", "1").lines()
    assert [one["partition"] for one in found] == [0, 1]
    refused = on(cluster, "log-dirs", "move", "1", "orders:0=/nowhere", "--dry-run")
    assert (refused.code, "has no directory /nowhere" in refused.stderr) == (2, True)
    (planned,) = on(cluster, "log-dirs", "move", "1", f"orders:0={found[0]['path']}", "--dry-run").lines()
    assert (planned["partition"], planned["dry_run"]) == (0, True)


def test_client_metrics(cluster: Cluster) -> None:
    args = ["client-metrics", "set", "lags", "org.apache.kafka.consumer.", "--interval-ms", "60000"]
    assert on(cluster, *args, "--dry-run").lines()[0]["dry_run"] is True
    assert on(cluster, "client-metrics", "list").lines() == []
    assert on(cluster, *args, "--match", "client_id=etl-.*").code == 0
    assert on(cluster, "client-metrics", "list").lines() == [
        {"name": "lags", "metrics": ["org.apache.kafka.consumer."], "interval_ms": 60_000,
         "match": {"client_id": "etl-.*"}}
    ]  # fmt: skip
    assert on(cluster, "client-metrics", "delete", "lags", "--dry-run").lines()[0]["deleted"] is False
    assert len(on(cluster, "client-metrics", "list").lines()) == 1
    assert on(cluster, "client-metrics", "delete", "lags").code == 0
    assert on(cluster, "client-metrics", "list").lines() == []


@pytest.mark.parametrize(
    "args",
    [
        ["groups", "describe", "g"], ["groups", "lag", "g", "h"], ["groups", "delete", "g", "h"],
        ["transactions", "describe", "x", "y"], ["records", "delete", "t:0=1", "u:0=1"],
    ],
)  # fmt: skip
def test_without_a_broker_commands_about_several_things_exit_as_the_others(args: list[str]) -> None:
    """The errors of all things are one error, which is printed once."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        bootstrap = f"127.0.0.1:{closed.getsockname()[1]}"
    ran = run(*args, "-b", bootstrap, "--timeout", "0.5")
    assert ran.code == 3
    assert ran.stderr.count("kwire: no broker could be reached in time\n  at:  ") == 1
    assert "nothing listens there: check the port and that the broker runs" in ran.stderr


def test_one_silent_broker_is_not_that_no_broker_was_reached() -> None:
    """What the others did is shown, and each error names what it is about."""
    with Cluster(2, topics={"a": 2}) as running, Admin(running.bootstrap) as admin:
        silent, loud = sorted(range(2), key=lambda index: running.leader("a", index) == 1)
        for number in range(20):
            admin.groups.set_offsets(f"g{number}", {("a", 0): 0}).check()
        groups = {one.coordinator: one.id for one in admin.groups.list()}
        running.freeze(2)
        try:
            for args, named in (
                (("records", "delete", f"a:{loud}=0", f"a:{silent}=0"), f"topic a, partition {silent}"),
                (("offsets", "list", f"a:{loud}", f"a:{silent}"), f"topic a, partition {silent}"),
                (("groups", "lag", groups[1], groups[2]), f"group {groups[2]}"),
                (("groups", "describe", groups[1], groups[2]), f"group {groups[2]}"),
                (("groups", "describe", groups[2]), f"group {groups[2]}"),
            ):
                ran = run(*args, "-b", running.bootstrap.split(",")[0], "--timeout", "1")
                assert (ran.code, bool(ran.lines())) == (1, len(args) > 3), ran.stderr
                assert re.search(rf", {named}\b", ran.stderr)
        finally:
            running.thaw(2)


def test_users_and_quotas(cluster: Cluster) -> None:
    password = {"KWIRE_BOOTSTRAP": cluster.bootstrap, "KWIRE_NEW_PASSWORD": "hers"}
    planned = run("users", "set", "carol", "--dry-run", env=password)
    assert (planned.lines()[0]["dry_run"], on(cluster, "users", "list", "carol").code) == (True, 1)
    assert run("users", "set", "carol", env=password).lines()[0]["user"] == "carol"
    assert on(cluster, "users", "delete", "carol", "--dry-run").lines()[0]["deleted"] is False
    assert on(cluster, "users", "delete", "carol", "--mechanism", "SCRAM-SHA-256", "--dry-run").code == 2
    assert on(cluster, "users", "delete", "carol").lines()[0]["deleted"] is True
    assert on(cluster, "quotas", "set", "--user", "carol", "producer_byte_rate=1000", "--dry-run").lines() == [
        {"entity": {"user": "carol"}, "limits": {"producer_byte_rate": 1000.0}, "dry_run": True}
    ]
    assert on(cluster, "quotas", "get").lines() == []


def test_members_and_offsets_of_a_group(cluster: Cluster) -> None:
    static = Consumer(
        cluster.bootstrap, group="billing", group_instance_id="one", group_protocol="classic", commit="manual"
    )
    with static as consumer:
        consumer.subscribe(["orders"])
        wait_until(lambda: consumer.poll(timeout=0.1) or consumer.assignment())
        consumer.commit({("orders", 0): 0})
    # A static member stays in the group after close. One that still runs would join again at its next heartbeat.
    planned = on(cluster, "groups", "remove-members", "billing", "--all", "--dry-run").lines()
    assert planned == [{"group": "billing", "member": "one", "removed": False, "dry_run": True}]
    refused = on(cluster, "groups", "remove-members", "billing", "--instance-id", "two", "--dry-run")
    assert (refused.code, "no member two" in refused.stderr) == (2, True)
    assert on(cluster, "groups", "remove-members", "billing", "--instance-id", "one").lines()[0]["removed"] is True
    (planned,) = on(cluster, "groups", "delete-offsets", "billing", "orders:0", "orders:1", "--dry-run").lines()
    assert (planned["partition"], planned["deleted"]) == (0, False)
    assert on(cluster, "groups", "delete-offsets", "billing", "orders:0").lines()[0]["deleted"] is True
    assert on(cluster, "groups", "delete-offsets", "billing", "orders:0", "--dry-run").lines() == []


def test_producers_and_fencing(cluster: Cluster) -> None:
    with Producer(cluster.bootstrap, transactional_id="till") as producer:
        producer.begin()
        producer.send("orders", b"x", partition=0).result(10)
        known = on(cluster, "transactions", "producers", "orders:0").lines()
        (shown,) = [one for one in known if one["start"] is not None]
        (planned,) = on(cluster, "transactions", "fence", "till", "--dry-run").lines()
        assert (planned["producer_id"], planned["epoch"]) == (shown["producer_id"], shown["epoch"])
        producer.commit()


def test_members_of_the_cluster(cluster: Cluster) -> None:
    refused = on(cluster, "cluster", "unregister-broker", "1", "--dry-run")
    assert (refused.code, "is running" in refused.stderr) == (2, True)
    level = str(on(cluster, "cluster", "features").lines()[0]["level"])
    feature = on(cluster, "cluster", "features").lines()[0]["feature"]
    (planned,) = on(cluster, "cluster", "set-feature", feature, level, "--dry-run").lines()
    assert planned["dry_run"] is True


def test_the_password_of_a_token_goes_into_a_file_only(tmp_path: Path) -> None:
    with Cluster(1, sasl={"alice": "hers"}) as secured:
        env = {"KWIRE_BOOTSTRAP": secured.bootstrap, "KWIRE_USERNAME": "alice", "KWIRE_PASSWORD": "hers"}
        path = tmp_path / "token.json"
        args = ["tokens", "create", "--save", str(path), "--lifetime", "2h", "--renewer", "User:bob"]
        assert run(*args, "--dry-run", env=env).lines()[0]["dry_run"] is True
        assert not path.exists()
        made = run(*args, env=env)
        saved = json.loads(path.read_text())
        (row,) = made.lines()
        assert (row["id"], row["owner"], row["renewers"]) == (saved["token_id"], "User:alice", ["User:bob"])
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        again = run(*args, env=env)
        assert (again.code, "the file exists" in again.stderr) == (2, True)
        with Admin(secured.bootstrap, sasl=Sasl.delegation_token(saved["token_id"], saved["password"])) as by_token:
            assert by_token.cluster.describe().brokers
        listed = run("tokens", "list", env=env)
        renewed = run("tokens", "renew", row["id"], "--by", "1h", env=env)
        planned = run("tokens", "expire", row["id"], "--dry-run", env=env)
        assert (renewed.lines()[0]["id"], planned.lines()[0]["dry_run"]) == (row["id"], True)
        assert renewed.lines()[0]["expires_at"] <= row["lives_until"]
        assert len(listed.lines()) == len(run("tokens", "list", env=env).lines()) == 1
        ended = run("tokens", "expire", row["id"], env=env)
        assert run("tokens", "list", env=env).lines() == []
        assert run("tokens", "renew", row["id"], env=env).code == 2
        for ran in (made, again, listed, renewed, planned, ended):
            assert saved["password"] not in ran.stdout + ran.stderr
        refused = run("tokens", "create", "--save", str(tmp_path / "t"), "--owner", "nobody", env=env)
        assert (refused.code, list(tmp_path.iterdir())) == (2, [path])
