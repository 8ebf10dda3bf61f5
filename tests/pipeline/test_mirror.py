"""What a mirror checks before it begins; that it copies is in test_on_spark."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

import kwire
from kwire.broker import Cluster
from kwire.errors import ConfigurationError
from kwire.pipeline.mirror import MirrorPlan, prepare_topics
from kwire.pipeline.mirror_configs import ConfigChange, own_configs, sync_configs
from kwire.pipeline.mirror_groups import GroupMove, GroupSync, sync_groups
from kwire.pipeline.session import trigger_options
from kwire.pipeline.sides import Cluster as Brokers
from tests.cli.running import run
from tests.pipeline.test_sides import create, send
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def clusters() -> Iterator[tuple[Brokers, Brokers]]:
    with Cluster(brokers=1) as source, Cluster(brokers=1) as target:
        yield Brokers(source.bootstrap), Brokers(target.bootstrap)


def test_topics_are_checked_before_a_mirror_begins(clusters: tuple[Brokers, Brokers]) -> None:
    source, target = clusters
    create(source.bootstrap, "wide", partitions=3)
    plan = MirrorPlan(("wide",))
    with pytest.raises(ConfigurationError, match="the target has no topic wide: create it, or add --create-topics"):
        prepare_topics(plan, source, target, creates=False)
    create(target.bootstrap, "wide", partitions=2)
    with pytest.raises(ConfigurationError, match="wide has 2 partitions on the target, wide 3 on the source"):
        prepare_topics(plan, source, target, creates=True)
    assert prepare_topics(MirrorPlan(("wide",), keeps_partitions=False), source, target, creates=True) == []
    with pytest.raises(ConfigurationError, match="the source has no topic nowhere"):
        prepare_topics(MirrorPlan(("nowhere",)), source, target, creates=True)


def test_topics_are_created_like_those_of_the_source(clusters: tuple[Brokers, Brokers]) -> None:
    source, target = clusters
    create(source.bootstrap, "orders", "payments", partitions=4)
    plan = MirrorPlan(("orders", "payments"), prefix="eu.")
    assert prepare_topics(plan, source, target, creates=True) == ["eu.orders", "eu.payments"]
    assert prepare_topics(plan, source, target, creates=True) == []
    with kwire.Consumer(target.bootstrap) as consumer:
        assert consumer.partitions("eu.orders") == [0, 1, 2, 3]


@pytest.mark.parametrize(("topics", "prefix"), [((), ""), (("a'b",), ""), (("orders",), "x'")])
def test_names_that_no_topic_has(topics: tuple[str, ...], prefix: str) -> None:
    with pytest.raises(ConfigurationError):
        MirrorPlan(topics, prefix)


def set_up(
    clusters: tuple[Brokers, Brokers], topic: str, count: int = 60, partitions: int = 2
) -> tuple[MirrorPlan, str]:
    """Make a topic with records, and its copy with the same ones behind others, so that offsets differ."""
    source, target = clusters
    copy = f"eu.{topic}"
    create(source.bootstrap, topic, partitions=2)
    create(target.bootstrap, copy, partitions=2)
    send(target.bootstrap, copy, [9_000_000, 9_000_001, 9_000_002, 9_000_003])
    for bootstrap, name in ((source.bootstrap, topic), (target.bootstrap, copy)):
        send(bootstrap, name, list(range(60)))
    return MirrorPlan((topic,), "eu."), copy


def commit(cluster: Brokers, group: str, topic: str, *offsets: int) -> None:
    with kwire.Admin(cluster.bootstrap) as admin:
        admin.groups.set_offsets(group, {(topic, number): offset for number, offset in enumerate(offsets)})


def committed(cluster: Brokers, group: str) -> dict[tuple[str, int], int]:
    with kwire.Admin(cluster.bootstrap) as admin:
        return {key: one.offset for key, one in admin.groups.offsets(group).items()}


def values(cluster: Brokers, topic: str, partition: int, offset: int) -> list[bytes | None]:
    """Return what a consumer reads next."""
    with kwire.Consumer(cluster.bootstrap) as consumer:
        end = consumer.end_offsets([(topic, partition)])[topic, partition]
        consumer.assign([(topic, partition, offset)], ends={(topic, partition): end})
        found: list[bytes | None] = []
        while consumer.position(topic, partition) < end:
            found += [record.value for record in consumer.poll(timeout=0.1)]
        return found


def test_a_group_goes_on_at_its_record(clusters: tuple[Brokers, Brokers]) -> None:
    source, target = clusters
    plan, copy = set_up(clusters, "moved")
    commit(source, "moved-billing", "moved", 7, 30)  # in the middle, and behind the last record
    commit(source, "moved-audit", "moved", 0, 0)
    found = sync_groups(plan, source, target, "moved-b.*", dry_run=True)
    assert committed(target, "moved-billing") == {}
    assert sync_groups(plan, source, target, "moved-b.*") == found
    assert found.moves == [
        GroupMove("moved-billing", copy, 0, 7, None, 9),
        GroupMove("moved-billing", copy, 1, 30, None, 32),
    ]
    assert committed(target, "moved-billing") == {(copy, 0): 9, (copy, 1): 32}
    assert values(target, copy, 0, 9) == values(source, "moved", 0, 7)
    assert sync_groups(plan, source, target, "moved-b.*") == GroupSync()  # nothing to do
    assert committed(target, "moved-audit") == {}


def test_no_offset_is_set_back(clusters: tuple[Brokers, Brokers]) -> None:
    source, target = clusters
    plan, copy = set_up(clusters, "ahead")
    commit(source, "ahead-g", "ahead", 7, 7)
    commit(target, "ahead-g", copy, 20, 3)
    moves = sync_groups(plan, source, target, "ahead-g").moves
    assert moves == [GroupMove("ahead-g", copy, 1, 7, 3, 9)]
    assert committed(target, "ahead-g") == {(copy, 0): 20, (copy, 1): 9}


def test_records_that_are_not_mirrored_yet_are_not_skipped(clusters: tuple[Brokers, Brokers]) -> None:
    source, target = clusters
    plan, _ = set_up(clusters, "late")
    send(source.bootstrap, "late", list(range(60, 80)))
    commit(source, "late-g", "late", 35, 40)
    assert [one.after for one in sync_groups(plan, source, target, "late-g").moves] == [32, 32]  # where the copy ends


def test_records_that_the_target_has_deleted(clusters: tuple[Brokers, Brokers]) -> None:
    source, target = clusters
    plan, copy = set_up(clusters, "short")
    with kwire.Admin(target.bootstrap) as admin:
        admin.records.delete({(copy, 0): 20})
    commit(source, "short-g", "short", 5)
    assert [one.after for one in sync_groups(plan, source, target, "short-g").moves] == [20]


def test_a_group_with_members_is_left_alone(clusters: tuple[Brokers, Brokers]) -> None:
    source, target = clusters
    plan, copy = set_up(clusters, "busy")
    commit(source, "busy-g", "busy", 5, 5)
    with kwire.Consumer(target.bootstrap, group="busy-g", on_no_offset="earliest") as consumer:
        consumer.subscribe([copy])
        wait_until(lambda: consumer.poll(timeout=0.1) != [], 30)
        found = sync_groups(plan, source, target, "busy-g")
    assert found == GroupSync([], [("group busy-g", "it has members on the target")])


def test_where_offsets_cannot_be_translated(clusters: tuple[Brokers, Brokers]) -> None:
    source, target = clusters
    plan, copy = set_up(clusters, "stamped")
    with pytest.raises(ConfigurationError, match="records go to other partitions"):
        sync_groups(MirrorPlan(("stamped",), keeps_partitions=False), source, target, ".*")
    with pytest.raises(ConfigurationError, match="is no regular expression"):
        sync_groups(plan, source, target, "(")
    with kwire.Admin(target.bootstrap) as admin:
        admin.configs.set({"message.timestamp.type": "LogAppendTime"}, topic=copy)
    with pytest.raises(ConfigurationError, match=r"eu\.stamped has timestamps of its own on the target"):
        sync_groups(plan, source, target, ".*")


def test_configs_follow_the_source(clusters: tuple[Brokers, Brokers]) -> None:
    source, target = clusters
    create(source.bootstrap, "tuned", partitions=1)
    create(target.bootstrap, "eu.tuned", partitions=1)
    with kwire.Admin(source.bootstrap) as there, kwire.Admin(target.bootstrap) as here:
        there.configs.set(
            {"retention.ms": 60_000, "cleanup.policy": "compact", "min.insync.replicas": 1}, topic="tuned"
        )
        here.configs.set({"retention.ms": 5, "segment.bytes": 20_000_000}, topic="eu.tuned")
        plan = MirrorPlan(("tuned",), "eu.")
        changes = [
            ConfigChange("eu.tuned", "cleanup.policy", None, "compact"),
            ConfigChange("eu.tuned", "retention.ms", "5", "60000"),
            ConfigChange("eu.tuned", "segment.bytes", "20000000", None),
        ]
        assert sync_configs(plan, source, target, dry_run=True) == changes
        assert own_configs(here, "eu.tuned") == {"retention.ms": "5", "segment.bytes": "20000000"}
        assert sync_configs(plan, source, target) == changes
        assert own_configs(here, "eu.tuned") == {"retention.ms": "60000", "cleanup.policy": "compact"}
        assert sync_configs(plan, source, target) == []
        # A topic that the mirror makes has them from the start.
        assert prepare_topics(MirrorPlan(("tuned",), "us."), source, target, creates=True) == ["us.tuned"]
        assert own_configs(here, "us.tuned") == {"retention.ms": "60000", "cleanup.policy": "compact"}


def test_the_command_shows_and_carries(clusters: tuple[Brokers, Brokers]) -> None:
    """Without Spark, which only the records need."""
    source, target = clusters
    _, copy = set_up(clusters, "told")
    commit(source, "told-g", "told", 7)
    with kwire.Admin(source.bootstrap) as there:
        there.configs.set({"retention.ms": 60_000}, topic="told")
    create(source.bootstrap, "untold")
    arguments = [
        "pipeline", "mirror", "-s", source.bootstrap, "-t", target.bootstrap, "--topics", "told,untold", "--prefix",
        "eu.", "--sync-configs", "--groups", "told-.*", "--create-topics",
    ]  # fmt: skip
    shown = run(*arguments, "--dry-run")
    assert shown.code == 0
    assert shown.stderr.splitlines() == [
        "would create topic eu.untold",
        "would be set to 60000: retention.ms of eu.told",
        "group told-g: eu.told-0 would be set to 9 (7 on the source)",
    ]
    assert committed(target, "told-g") == {}
    done = run(*arguments, "--no-records")
    assert done.stderr.splitlines()[-1] == "group told-g: eu.told-0 set to 9 (7 on the source)"
    assert committed(target, "told-g") == {(copy, 0): 9}
    missing = run(*arguments)
    assert missing.code == 2
    assert "--checkpoint is missing" in missing.stderr


def test_what_ends_by_itself_needs_a_new_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    assert trigger_options(None) == {"availableNow": True}
    monkeypatch.setattr("kwire.spark.reader.HAS_ADMISSION_CONTROL", False)
    assert trigger_options({"processingTime": "10 seconds"}) == {"processingTime": "10 seconds"}
    with pytest.raises(ConfigurationError, match=r"needs Spark 4\.2 or later, and this is 4"):
        trigger_options(None)


@pytest.mark.parametrize(
    "command",
    [
        ["replay", "archive", "-t", "127.0.0.1:1", "--topic", "t"],
        ["archive", "-s", "127.0.0.1:1", "--topics", "t", "--to", "archive", "--checkpoint", "state"],
        ["report", "captures", "-o", "report.html", "--spark"],
    ],
    ids=lambda command: command[0],
)
def test_without_pyspark_the_command_says_what_to_install(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pyspark", "pyspark.sql", "pyspark.errors"):
        monkeypatch.setitem(sys.modules, name, None)
    ran = run("pipeline", *command)
    assert ran.code != 0
    assert "needs PySpark 4.0 or later" in ran.stderr
    assert "pip install kwire[spark]" in ran.stderr
