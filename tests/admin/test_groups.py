"""`Admin.groups` and `kwire groups` with librdkafka's members, on the embedded broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import confluent_kafka
import pytest

from kwire import Admin, Producer, ShareConsumer
from kwire.admin import NewTopic
from kwire.admin.groups import Group, GroupListing, Move
from kwire.broker import Cluster, Delay
from kwire.consumer.offsets import Ago, Offset
from kwire.errors import BrokerError, ConfigurationError, ErrorCode, RequestTimeoutError
from kwire.protocol import ApiKey
from tests.cli.running import Ran, run

PATIENCE_SECONDS = 20.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, topics={"orders": 3}) as running:
        with Producer(running.bootstrap) as producer:
            for partition in range(3):
                for number in range(10):
                    producer.send("orders", b"x", partition=partition, timestamp_ms=1_000_000 + number)
            producer.flush()
        yield running


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[Admin]:
    with Admin(cluster.bootstrap) as running:
        yield running


def member(cluster: Cluster, group: str, **options: Any) -> confluent_kafka.Consumer:
    """Return a consumer of `orders` that has its assignment."""
    settings = {
        "bootstrap.servers": cluster.bootstrap, "group.id": group, "auto.offset.reset": "earliest",
        "enable.auto.commit": False, "client.id": "billing-app", "log_level": 0, **options,
    }  # fmt: skip
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe(["orders"])
    assert consumer.consume(1, PATIENCE_SECONDS), "the member got no record"
    return consumer


def commit(cluster: Cluster, group: str, offset: int = 4) -> None:
    """Commit this offset for each partition, and leave the group."""
    consumer = member(cluster, group)
    offsets = [confluent_kafka.TopicPartition("orders", partition, offset) for partition in range(3)]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()


def code_of(error: object) -> int:
    assert isinstance(error, BrokerError)
    return error.code


def test_a_group_with_a_member_is_listed_and_described(cluster: Cluster, admin: Admin) -> None:
    consumer = member(cluster, "described", **{"partition.assignment.strategy": "range"})
    try:
        listed = {one.id: one for one in admin.groups.list()}
        assert listed["described"] == GroupListing(
            "described", "classic", "Stable", "consumer", listed["described"].coordinator
        )
        assert admin.groups.list(states=["Empty"], types=["classic"]) == []
        group = admin.groups.describe("described")
        assert (group.type, group.state, group.assignor) == ("classic", "Stable", "range")
        (one,) = group.members
        assert (one.client_id, one.topics) == ("billing-app", ("orders",))
        assert one.assignment == (("orders", 0), ("orders", 1), ("orders", 2))
        assert group.owner(("orders", 1)) is one
        assert group.owner(("orders", 9)) is None
    finally:
        consumer.close()


def test_a_group_that_does_not_exist_is_an_error_that_names_it(admin: Admin) -> None:
    with pytest.raises(BrokerError, match="group nowhere") as caught:
        admin.groups.describe("nowhere")
    assert caught.value.code == ErrorCode.GROUP_ID_NOT_FOUND


def test_results_of_several_groups_raise_only_what_is_read(cluster: Cluster, admin: Admin) -> None:
    commit(cluster, "one-of-two")
    results = admin.groups.describe_many(["one-of-two", "nowhere"])
    assert isinstance(results["one-of-two"], Group)
    assert list(results) == ["one-of-two", "nowhere"]
    assert code_of(results.errors["nowhere"]) == ErrorCode.GROUP_ID_NOT_FOUND
    with pytest.raises(BrokerError, match="nowhere"):
        results["nowhere"]
    with pytest.raises(BrokerError, match="nowhere"):
        results.check()


def test_lag_counts_from_what_is_committed(cluster: Cluster, admin: Admin) -> None:
    commit(cluster, "behind", 4)
    lag = admin.groups.lag("behind")
    assert (lag.total, [(one.partition, one.committed, one.end, one.records) for one in lag.by_partition]) == (
        18,
        [(0, 4, 10, 6), (1, 4, 10, 6), (2, 4, 10, 6)],
    )
    assert admin.groups.lag_many(["behind", "nowhere"]).ok.keys() == {"behind"}


def test_a_coordinator_that_is_silent_takes_no_time_from_the_groups_of_another() -> None:
    """A classic group is found after three requests, a share group after two, here in more than half of the time."""
    with Cluster(2, topics={"paid": 1}) as running, Admin(running.bootstrap) as admin:
        for number in range(20):
            admin.groups.set_offsets(f"g{number}", {("paid", 0): 0}).check()
        with ExitStack() as stack:
            for number in range(6):
                consumer = stack.enter_context(ShareConsumer(running.bootstrap, group=f"s{number}"))
                consumer.subscribe(["paid"])
                consumer.poll(timeout=0.1)
            leader = running.leader("paid", 0)
            listed = admin.groups.list()
            silent = next(one.id for one in listed if one.coordinator != leader)
            names = [silent, *(one.id for one in listed if one.coordinator == leader)]
            types = {one.id: one.type for one in listed}
            admin.groups.describe_many(names).check()  # the coordinators are known
            running.freeze(3 - leader)
            try:
                described = admin.groups.describe_many(names, timeout=3.0)
                running.add_fault(Delay(2_200), api=ApiKey.DESCRIBE_GROUPS)
                lags = admin.groups.lag_many(names, timeout=4.0)
            finally:
                running.thaw(3 - leader)
    assert {name: one.type for name, one in described.ok.items()} == {name: types[name] for name in names[1:]}
    assert {"classic", "share"} <= {one.type for one in described.ok.values()}
    assert isinstance(described.errors[silent], RequestTimeoutError)
    assert list(lags.ok) == names[1:]
    assert not any(one.errors for one in lags.ok.values())
    assert isinstance(lags.errors[silent], RequestTimeoutError)


@pytest.fixture(scope="module")
def half_down() -> Iterator[tuple[Cluster, tuple[str, str]]]:
    """Yield a cluster with a broker down, the leader of ("paid", 1), and two groups whose coordinator is up.

    The first has committed an offset in both partitions, the second only where there is a leader.
    """
    with Cluster(2, auto_create_topics=False) as running, Admin(running.bootstrap) as admin:
        admin.topics.create_many([NewTopic("paid", assignments={0: [1], 1: [2]})]).check()
        with Producer(running.bootstrap) as producer:
            for number in range(20):
                producer.send("paid", b"x", partition=number % 2)
            producer.flush()
        names = [f"g{number}" for number in range(20)]
        for name in names:
            admin.groups.set_offsets(name, {("paid", 0): 4}).check()
        first, second, *_ = (one.id for one in admin.groups.list() if one.coordinator == 1)
        admin.groups.set_offsets(first, {("paid", 1): 4}).check()
        running.stop(2)
        yield running, (first, second)


def test_the_lag_of_a_partition_without_a_leader_is_its_error(half_down: tuple[Cluster, tuple[str, str]]) -> None:
    running, (group, _) = half_down
    with Admin(running.bootstrap) as admin:
        lag = admin.groups.lag(group, timeout=2.0)
        assert [(one.partition, one.committed, one.end, one.records) for one in lag.by_partition] == [
            (0, 4, 10, 6), (1, 4, None, None),
        ]  # fmt: skip
        assert lag.total == 6
        assert lag.by_partition[0].error is None
        assert list(lag.errors) == [("paid", 1)]
        assert isinstance(lag.errors["paid", 1], RequestTimeoutError)
        with pytest.raises(RequestTimeoutError, match="paid"):
            admin.groups.reset(group, "earliest", timeout=1.0)


def test_a_group_with_a_partition_without_a_leader_takes_no_time_from_others(
    half_down: tuple[Cluster, tuple[str, str]],
) -> None:
    running, (first, second) = half_down
    with Admin(running.bootstrap) as admin:
        running.add_fault(Delay(20), api=ApiKey.LIST_OFFSETS, times=None)
        try:
            found = admin.groups.lag_many([first, "nowhere", second], timeout=2.0)
        finally:
            running.clear_faults()
        assert list(found) == [first, "nowhere", second]
        assert [(one.partition, one.records) for one in found[second].by_partition] == [(0, 6)]
        assert list(found[first].errors) == [("paid", 1)]
        assert code_of(found.errors["nowhere"]) == ErrorCode.GROUP_ID_NOT_FOUND


def test_the_command_shows_the_lag_of_the_partitions_that_have_a_leader(
    half_down: tuple[Cluster, tuple[str, str]],
) -> None:
    running, (group, _) = half_down
    ran = run_on(running, "lag", group, "--timeout", "2")
    assert ran.code == 1
    assert [(line["lag"], "in time" in (line.get("error") or "")) for line in ran.lines()] == [
        (6, False), (None, True), (6, False),
    ]  # fmt: skip
    table = run_on(running, "lag", group, "--timeout", "2", "-f", "table")
    assert "not known" in table.stdout
    assert "paid" in table.stderr


def test_a_partition_without_a_commit_has_no_lag_and_names_its_member(cluster: Cluster, admin: Admin) -> None:
    consumer = member(cluster, "fresh")
    try:
        lag = admin.groups.lag("fresh")
        assert lag.total == 0
        assert [(one.committed, one.records) for one in lag.by_partition] == [(None, None)] * 3
        assert {one.member.client_id for one in lag.by_partition if one.member} == {"billing-app"}
    finally:
        consumer.close()


@pytest.mark.parametrize(
    ("to", "after"),
    [
        ("earliest", 0),
        ("latest", 10),
        ("current", 4),
        (7, 7),
        (99, 10),
        (datetime.fromtimestamp(1000.003, UTC), 3),
        (timedelta(hours=1), 10),
        (Ago(days=365 * 57), 0),
    ],
)
def test_reset_sets_what_is_committed(cluster: Cluster, admin: Admin, to: Any, after: int) -> None:
    admin.groups.set_offsets("to-reset", {("orders", 0): 4}).check()
    planned = admin.groups.reset("to-reset", to, dry_run=True)
    assert planned == [Move("orders", 0, 4, after)]
    assert admin.groups.offsets("to-reset") == {("orders", 0): Offset(4)}, "a dry run changes nothing"
    assert admin.groups.reset("to-reset", to) == planned
    assert admin.groups.offsets("to-reset") == {("orders", 0): Offset(after)}


def test_reset_moves_by_records_and_stays_inside_the_log(admin: Admin) -> None:
    admin.groups.set_offsets("shifted", {("orders", 0): 4, ("orders", 1): 2}).check()
    assert [one.after for one in admin.groups.reset("shifted", by=-3, dry_run=True)] == [1, 0]
    assert [one.after for one in admin.groups.reset("shifted", by=7, dry_run=True)] == [10, 9]


def test_reset_of_named_topics_covers_partitions_without_a_commit(admin: Admin) -> None:
    assert admin.groups.reset("new-group", "latest", topics=["orders"]) == [
        Move("orders", partition, None, 10) for partition in range(3)
    ]
    assert set(admin.groups.offsets("new-group")) == {("orders", partition) for partition in range(3)}


def test_a_group_with_members_is_neither_reset_nor_deleted(cluster: Cluster, admin: Admin) -> None:
    consumer = member(cluster, "busy")
    try:
        with pytest.raises(BrokerError, match="billing-app") as caught:
            admin.groups.reset("busy", "earliest", topics=["orders"])
        assert caught.value.code == ErrorCode.NON_EMPTY_GROUP
        with pytest.raises(BrokerError) as caught:
            admin.groups.delete("busy")
        assert caught.value.code == ErrorCode.NON_EMPTY_GROUP
        results = admin.groups.set_offsets("busy", {("orders", 0): 1})
        assert code_of(results.errors["orders", 0]) == ErrorCode.NON_EMPTY_GROUP
    finally:
        consumer.close()


def test_offsets_and_groups_are_deleted(cluster: Cluster, admin: Admin) -> None:
    commit(cluster, "to-delete")
    admin.groups.delete_offsets("to-delete", [("orders", 0)]).check()
    assert set(admin.groups.offsets("to-delete")) == {("orders", 1), ("orders", 2)}
    results = admin.groups.delete(["to-delete", "nowhere"])
    assert set(results.ok) == {"to-delete"}
    assert "to-delete" not in {one.id for one in admin.groups.list()}


def test_a_static_member_is_removed_by_its_instance_id(cluster: Cluster, admin: Admin) -> None:
    consumer = member(cluster, "static", **{"group.instance.id": "worker-1"})
    try:
        assert set(admin.groups.remove_members("static", instance_ids=["worker-1"]).check()) == {"worker-1"}
        errors = admin.groups.remove_members("static", instance_ids=["worker-2"]).errors
        assert code_of(errors["worker-2"]) == ErrorCode.UNKNOWN_MEMBER_ID
    finally:
        consumer.close()


def test_wrong_arguments_are_refused_before_anything_is_sent(admin: Admin) -> None:
    with pytest.raises(ConfigurationError, match="give to"):
        admin.groups.reset("g")
    with pytest.raises(ConfigurationError, match="earliest"):
        admin.groups.reset("g", "yesterday", topics=["orders"])  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="by=-1 goes back"):
        admin.groups.reset("g", -1, topics=["orders"])
    with pytest.raises(ConfigurationError, match="types=\\['share'\\]"):
        admin.groups.list(types="share")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="groups contains"):
        admin.groups.describe_many([""])
    with pytest.raises(ConfigurationError, match="every=True"):
        admin.groups.remove_members("g")


# -- the command


def run_on(cluster: Cluster, *args: str) -> Ran:
    return run("groups", *args, env={"KWIRE_BOOTSTRAP": cluster.bootstrap})


def test_the_command_lists_describes_and_shows_lag(cluster: Cluster) -> None:
    commit(cluster, "cli", 8)
    assert {"cli"} <= {line["group"] for line in run_on(cluster, "list", "--type", "classic").lines()}
    described = run_on(cluster, "describe", "cli", "nowhere")
    assert (described.code, [line["state"] for line in described.lines()]) == (1, ["Empty"])
    assert "nowhere" in described.stderr
    lag = run_on(cluster, "lag", "cli")
    assert lag.lines()[-1] == {"kind": "group", "group": "cli", "lag": 6}
    assert "6 records behind" in run_on(cluster, "lag", "cli", "-f", "table").stdout


def test_the_command_resets_only_without_dry_run(cluster: Cluster, admin: Admin) -> None:
    commit(cluster, "cli-reset", 8)
    ran = run_on(cluster, "reset", "cli-reset", "--to", "earliest", "--topic", "orders", "--dry-run")
    assert (ran.code, [line["after"] for line in ran.lines()]) == (0, [0, 0, 0])
    assert admin.groups.offsets("cli-reset")["orders", 0].offset == 8
    assert run_on(cluster, "reset", "cli-reset", "--by", "-2").code == 0
    assert admin.groups.offsets("cli-reset")["orders", 0].offset == 6
    assert run_on(cluster, "reset", "cli-reset", "--to", "-1h").code == 0, "a duration is no option"
    assert admin.groups.offsets("cli-reset")["orders", 0].offset == 10
    wrong = run_on(cluster, "reset", "cli-reset", "--to", "tomorrow")
    assert (wrong.code, "2026-11-01" in wrong.stderr) == (2, True)


def test_the_command_deletes_only_without_dry_run(cluster: Cluster, admin: Admin) -> None:
    commit(cluster, "cli-delete")
    dry = run_on(cluster, "delete", "cli-delete", "--dry-run")
    assert json.loads(dry.stdout) == {"group": "cli-delete", "deleted": False, "dry_run": True}
    assert run_on(cluster, "delete", "cli-delete").code == 0
    assert run_on(cluster, "delete", "cli-delete").code == 1
