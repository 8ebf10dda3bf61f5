"""Where share groups start: describe, alter and delete; the configs of groups; dead letters (KIP-1191)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kwire.errors import BrokerError, ErrorCode
from kwire.protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from kwire.protocol.messages.delete_groups import DeleteGroupsRequest
from kwire.protocol.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from kwire.protocol.messages.describe_configs import DescribeConfigsRequest
from kwire.protocol.messages.describe_share_group_offsets import DescribeShareGroupOffsetsRequest
from kwire.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from tests.broker.share_client import ACCEPT, REJECT, RELEASE, ShareMember, append
from tests.broker.virtual_cluster import VirtualCluster

GROUP = 32
DLQ = "dlq.g"
DLQ_TOPIC = "errors.deadletterqueue.topic.name"


def make_cluster(**options: Any) -> VirtualCluster:
    cluster = VirtualCluster(1, **options)
    cluster.state.create_topic("t", 1)
    cluster.state.group_configs.alter("g", {"share.auto.offset.reset": "earliest"})
    append(cluster, "t", [b"v%d" % i for i in range(10)])
    return cluster


def describe(cluster: VirtualCluster, *partitions: int, group: str = "g") -> list[tuple[int, int, int]]:
    """Return (partition, start, lag) of the named partitions, of all without names."""
    named = DescribeShareGroupOffsetsRequest.Group.Topic(topic_name="t", partitions=list(partitions))
    requested = DescribeShareGroupOffsetsRequest.Group(group_id=group, topics=[named] if partitions else None)
    (found,) = cluster.request(1, DescribeShareGroupOffsetsRequest(groups=[requested])).groups
    assert found.error_code == ErrorCode.NONE
    return [(p.partition_index, p.start_offset, p.lag) for topic in found.topics for p in topic.partitions]


def alter(cluster: VirtualCluster, offset: int, *, topic: str = "t", partition: int = 0) -> tuple[int, list[int]]:
    part = AlterShareGroupOffsetsRequest.Topic.Partition(partition_index=partition, start_offset=offset)
    named = AlterShareGroupOffsetsRequest.Topic(topic_name=topic, partitions=[part])
    response = cluster.request(1, AlterShareGroupOffsetsRequest(group_id="g", topics=[named]))
    return response.error_code, [p.error_code for t in response.responses for p in t.partitions]


def delete(cluster: VirtualCluster, topic: str = "t") -> tuple[int, list[int]]:
    named = DeleteShareGroupOffsetsRequest.Topic(topic_name=topic)
    response = cluster.request(1, DeleteShareGroupOffsetsRequest(group_id="g", topics=[named]))
    return response.error_code, [t.error_code for t in response.responses]


def read_and_leave(cluster: VirtualCluster, *acks: tuple[int, int, Sequence[int]]) -> None:
    member = ShareMember(cluster)
    member.heartbeat("t")
    member.acquire()
    assert member.acknowledge(*acks) == ErrorCode.NONE
    member.fetch(epoch=-1)
    member.heartbeat(epoch=-1)


class TestOffsets:
    def test_a_group_that_has_not_read(self) -> None:
        cluster = make_cluster()
        assert describe(cluster, 0) == [(0, -1, -1)]
        assert describe(cluster) == []
        ShareMember(cluster).heartbeat("t")
        assert describe(cluster) == [(0, -1, -1)]

    def test_the_lag_counts_what_is_not_done(self) -> None:
        cluster = make_cluster()
        member = ShareMember(cluster)
        member.acquire()
        assert describe(cluster) == [(0, 0, 10)]
        member.acknowledge((3, 5, [ACCEPT]))
        assert describe(cluster) == [(0, 0, 7)]

    def test_the_start_is_saved_with_the_next_change(self) -> None:
        """As in Kafka, which saves the change before it moves the start."""
        cluster = make_cluster()
        member = ShareMember(cluster)
        member.acquire()
        member.acknowledge((0, 4, [ACCEPT]))
        assert describe(cluster) == [(0, 0, 5)]
        member.acknowledge((5, 5, [ACCEPT]))
        assert describe(cluster) == [(0, 5, 4)]

    def test_alter(self) -> None:
        cluster = make_cluster()
        read_and_leave(cluster, (0, 9, [ACCEPT]))
        assert alter(cluster, 3) == (ErrorCode.NONE, [ErrorCode.NONE])
        assert describe(cluster) == [(0, 3, 7)]
        assert ShareMember(cluster).acquire() == [(3, 9, 1)]

    def test_alter_reaches_the_leader(self) -> None:
        """Kafka 4.3.1 goes on from the leader's cache."""
        cluster = make_cluster()
        member = ShareMember(cluster)
        member.acquire()
        member.acknowledge((0, 5, [ACCEPT]))
        alter(cluster, 3)
        assert member.acquire() == [(3, 9, 1)]

    def test_alter_creates_a_group(self) -> None:
        cluster = make_cluster()
        assert alter(cluster, 8) == (ErrorCode.NONE, [ErrorCode.NONE])
        assert ShareMember(cluster).acquire() == [(8, 9, 1)]

    def test_delete_makes_the_group_start_anew(self) -> None:
        cluster = make_cluster()
        read_and_leave(cluster, (0, 9, [ACCEPT]))
        assert delete(cluster) == (ErrorCode.NONE, [ErrorCode.NONE])
        assert describe(cluster, 0) == [(0, -1, -1)]
        assert ShareMember(cluster).acquire() == [(0, 9, 1)]

    def test_deleting_the_group_forgets_what_it_has_read(self) -> None:
        cluster = make_cluster()
        read_and_leave(cluster, (0, 9, [ACCEPT]))
        assert cluster.request(1, DeleteGroupsRequest(groups_names=["g"])).results[0].error_code == ErrorCode.NONE
        assert describe(cluster) == []
        assert ShareMember(cluster).acquire() == [(0, 9, 1)]

    def test_a_group_with_members_stays_as_it_is(self) -> None:
        cluster = make_cluster()
        ShareMember(cluster).heartbeat("t")
        assert alter(cluster, 3) == (ErrorCode.NON_EMPTY_GROUP, [])
        assert delete(cluster) == (ErrorCode.NON_EMPTY_GROUP, [])

    def test_what_does_not_exist(self) -> None:
        cluster = make_cluster()
        assert delete(cluster) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
        unknown = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert alter(cluster, 3, topic="x") == (ErrorCode.NONE, unknown)
        assert alter(cluster, 3, partition=5) == (ErrorCode.NONE, unknown)
        assert delete(cluster, "x") == (ErrorCode.NONE, unknown)
        assert describe(cluster, 7) == [(7, -1, -1)]

    def test_a_deleted_topic_is_forgotten(self) -> None:
        cluster = make_cluster()
        read_and_leave(cluster, (0, 9, [ACCEPT]))
        cluster.state.delete_topic(cluster.state.topics["t"], cluster.now)
        assert describe(cluster) == []


class TestConfigs:
    def change(self, cluster: VirtualCluster, name: str, value: str | None) -> int:
        config = IncrementalAlterConfigsRequest.Resource.Config(
            name=name, config_operation=1 if value is None else 0, value=value
        )
        resource = IncrementalAlterConfigsRequest.Resource(resource_type=GROUP, resource_name="g", configs=[config])
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        code: int = cluster.request(1, request).responses[0].error_code
        return code

    def shown(self, cluster: VirtualCluster) -> dict[str, tuple[str | None, int]]:
        resource = DescribeConfigsRequest.Resource(resource_type=GROUP, resource_name="g", configuration_keys=None)
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=False, include_documentation=False)
        configs = cluster.request(1, request).results[0].configs
        return {config.name: (config.value, config.config_source) for config in configs}

    def test_a_config_is_the_groups_own_until_it_is_deleted(self) -> None:
        cluster = make_cluster()
        assert self.shown(cluster)["share.record.lock.duration.ms"] == ("30000", 5)
        assert self.change(cluster, "share.record.lock.duration.ms", "20000") == ErrorCode.NONE
        assert self.shown(cluster)["share.record.lock.duration.ms"] == ("20000", 8)
        assert self.shown(cluster)["share.auto.offset.reset"] == ("earliest", 8)
        member = ShareMember(cluster)
        assert member.fetch().acquisition_lock_timeout_ms == 20_000
        cluster.advance(20)
        assert member.acquire() == [(0, 9, 2)]
        assert self.change(cluster, "share.record.lock.duration.ms", None) == ErrorCode.NONE
        assert self.shown(cluster)["share.record.lock.duration.ms"] == ("30000", 5)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("share.auto.offset.reset", "never"), ("share.auto.offset.reset", "by_duration:1h"),
            ("share.auto.offset.reset", "by_duration:P"), ("share.isolation.level", "x"),
            ("share.record.lock.duration.ms", "14999"), ("share.record.lock.duration.ms", "60001"),
            ("share.delivery.count.limit", "1"), ("share.delivery.count.limit", "11"),
            ("share.partition.max.record.locks", "99"), ("share.session.timeout.ms", "44999"),
            ("share.heartbeat.interval.ms", "x"), ("share.renew.acknowledge.enable", "x"), ("nothing", "1"),
        ],
    )  # fmt: skip
    def test_invalid_values(self, name: str, value: str) -> None:
        assert self.change(make_cluster(), name, value) == ErrorCode.INVALID_CONFIG

    @pytest.mark.parametrize(
        ("version", "absent"),
        [
            ("4.2", {"share.delivery.count.limit", DLQ_TOPIC}),
            ("4.3", {DLQ_TOPIC}), ("4.4", set()), (None, set()),
        ],
    )  # fmt: skip
    def test_configs_by_release(self, version: str | None, absent: set[str]) -> None:
        names = {"share.delivery.count.limit", DLQ_TOPIC}
        cluster = make_cluster(version=version)
        assert names - self.shown(cluster).keys() == absent


class TestDeadLetters:
    def make(self, *, copies: bool = False, enabled: bool = True, **options: Any) -> VirtualCluster:
        cluster = make_cluster(**options)
        configs = {
            "share.auto.offset.reset": "earliest",
            "errors.deadletterqueue.topic.name": DLQ,
            "errors.deadletterqueue.copy.record.enable": str(copies).lower(),
        }
        cluster.state.group_configs.alter("g", configs)
        if enabled:
            cluster.state.create_topic(DLQ, 1, configs={"errors.deadletterqueue.group.enable": "true"})
        return cluster

    def letters(self, cluster: VirtualCluster) -> list[tuple[bytes | None, dict[str, bytes | None]]]:
        log = cluster.state.partition(DLQ, 0).log
        return [(record.value, dict(record.headers)) for stored in log for record in stored.batch().records()]

    def test_h08_a_rejected_record(self) -> None:
        cluster = self.make(copies=True)
        member = ShareMember(cluster)
        member.acquire()
        member.acknowledge((0, 9, [ACCEPT] * 4 + [REJECT] + [ACCEPT] * 5))
        ((value, headers),) = self.letters(cluster)
        assert value == b"v4"
        assert headers == {
            "__dlq.errors.topic": b"t",
            "__dlq.errors.partition": b"0",
            "__dlq.errors.offset": b"4",
            "__dlq.errors.group": b"g",
            "__dlq.errors.delivery.count": b"1",
            "__dlq.errors.message": b"Offset rejected by client.",
        }

    def test_h08_a_record_that_was_delivered_too_often(self) -> None:
        cluster = self.make()
        member = ShareMember(cluster)
        for _ in range(4):
            (found,) = member.acquire(max_records=1, share_acquire_mode=1)
            member.acknowledge((found[0], found[1], [RELEASE]))
        assert self.letters(cluster) == []
        member.acquire(max_records=1, share_acquire_mode=1)
        cluster.advance(30)
        ((value, headers),) = self.letters(cluster)
        assert value is None
        assert headers["__dlq.errors.delivery.count"] == b"5"
        assert headers["__dlq.errors.message"] == b"Offset delivery count exceeded the threshold."

    def test_a_topic_is_created_where_the_cluster_allows_it(self) -> None:
        cluster = self.make(enabled=False, dead_letter_auto_create=True)
        member = ShareMember(cluster)
        member.acquire()
        member.acknowledge((0, 9, [REJECT]))
        assert len(self.letters(cluster)) == 10

    def test_a_topic_that_was_not_made_for_it_gets_nothing(self, caplog: pytest.LogCaptureFixture) -> None:
        cluster = self.make(enabled=False)
        cluster.state.create_topic(DLQ, 1)
        member = ShareMember(cluster)
        member.acquire()
        assert member.acknowledge((0, 9, [REJECT])) == ErrorCode.NONE
        assert self.letters(cluster) == []
        assert "errors.deadletterqueue.group.enable" in caplog.text

    def test_a_name_without_the_prefix_gets_nothing(self) -> None:
        cluster = self.make(dead_letter_prefix="dead-")
        member = ShareMember(cluster)
        member.acquire()
        member.acknowledge((0, 9, [REJECT]))
        assert self.letters(cluster) == []

    def test_letters_fit_into_the_topic(self) -> None:
        cluster = self.make(enabled=False)
        configs = {"errors.deadletterqueue.group.enable": "true", "max.message.bytes": "600"}
        cluster.state.create_topic(DLQ, 1, configs=configs)
        member = ShareMember(cluster)
        member.acquire()
        member.acknowledge((0, 9, [REJECT]))
        assert len(self.letters(cluster)) == 10
        assert all(len(stored.data) <= 600 for stored in cluster.state.partition(DLQ, 0).log)

    def test_before_4_4_there_are_none(self) -> None:
        cluster = make_cluster(version="4.3")
        with pytest.raises(BrokerError):
            cluster.state.group_configs.alter("g", {"errors.deadletterqueue.topic.name": DLQ})
