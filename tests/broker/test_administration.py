"""The administrators' APIs in every version, on virtual time. test_like_kafka compares them with Kafka."""

from __future__ import annotations

from typing import Any

import pytest

from kwire.errors import BrokerError, ErrorCode
from kwire.protocol.messages.alter_configs import AlterConfigsRequest
from kwire.protocol.messages.consumer_protocol import ConsumerProtocolSubscription, encode_versioned
from kwire.protocol.messages.create_partitions import CreatePartitionsRequest
from kwire.protocol.messages.delete_groups import DeleteGroupsRequest
from kwire.protocol.messages.delete_records import DeleteRecordsRequest
from kwire.protocol.messages.describe_configs import DescribeConfigsRequest
from kwire.protocol.messages.describe_groups import DescribeGroupsRequest
from kwire.protocol.messages.describe_producers import DescribeProducersRequest
from kwire.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kwire.protocol.messages.list_groups import ListGroupsRequest
from kwire.protocol.messages.offset_delete import OffsetDeleteRequest
from kwire.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from tests.broker.bench import GOOD, Bench
from tests.broker.test_groups import GROUP, Members

SET, DELETE, APPEND, SUBTRACT = range(4)


@pytest.mark.parametrize("version", OffsetForLeaderEpochRequest.VERSIONS)
def test_offset_for_leader_epoch_returns_the_end_of_an_epoch(version: int) -> None:
    bench = Bench()
    bench.produce(GOOD)
    bench.topic.partitions[0].move_leader(bench.follower, 0.0)
    bench.produce(GOOD)
    found = []
    for epoch, current in [(0, -1), (1, -1), (2, -1), (0, 0)]:
        requested = OffsetForLeaderEpochRequest.Topic.Partition(
            partition=0, current_leader_epoch=current, leader_epoch=epoch
        )
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderEpochRequest.Topic(topic="t", partitions=[requested])]
        )
        found.append(bench.request(bench.leader("t"), request, version).topics[0].partitions[0])
    assert [result.end_offset for result in found[:3]] == [2, 4, -1]
    if version >= 1:
        assert [result.leader_epoch for result in found[:3]] == [0, 1, -1]
    assert found[3].error_code == (ErrorCode.FENCED_LEADER_EPOCH if version >= 2 else ErrorCode.NONE)


@pytest.mark.parametrize("version", DeleteRecordsRequest.VERSIONS)
@pytest.mark.parametrize(("offset", "error", "start"), [(1, 0, 1), (-1, 0, 2), (3, ErrorCode.OFFSET_OUT_OF_RANGE, -1)])
def test_delete_records_moves_the_start(version: int, offset: int, error: int, start: int) -> None:
    bench = Bench()
    bench.produce(GOOD)
    requested = DeleteRecordsRequest.Topic.Partition(partition_index=0, offset=offset)
    topics = [DeleteRecordsRequest.Topic(name="t", partitions=[requested])]
    request = DeleteRecordsRequest(topics=topics, timeout_ms=1)
    (result,) = bench.request(bench.leader("t"), request, version).topics[0].partitions
    assert (result.error_code, result.low_watermark) == (error, start)


@pytest.mark.parametrize("version", CreatePartitionsRequest.VERSIONS)
@pytest.mark.parametrize("validate_only", [False, True])
def test_create_partitions_adds_partitions(version: int, validate_only: bool) -> None:
    bench = Bench(partitions=2)
    bench.state.create_topic("u", 2)
    topics = [
        CreatePartitionsRequest.Topic(name=name, count=count, assignments=None)
        for name, count in [("t", 5), ("u", 1), ("nowhere", 5)]
    ]
    request = CreatePartitionsRequest(topics=topics, timeout_ms=1, validate_only=validate_only)
    codes = [result.error_code for result in bench.request(1, request, version).results]
    assert codes == [0, ErrorCode.INVALID_PARTITIONS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert len(bench.topic.partitions) == (2 if validate_only else 5)
    assert {partition.leader for partition in bench.topic.partitions} <= {1, 2, 3}


def test_a_topic_named_twice_gets_no_partitions() -> None:
    bench = Bench(partitions=2)
    topics = [CreatePartitionsRequest.Topic(name="t", count=count, assignments=None) for count in (3, 4)]
    request = CreatePartitionsRequest(topics=topics, timeout_ms=1, validate_only=False)
    assert [one.error_code for one in bench.request(1, request).results] == [ErrorCode.INVALID_REQUEST]
    assert len(bench.topic.partitions) == 2


@pytest.mark.parametrize("assigned", [[], [[1]], [[1], [2], [3]]])
def test_create_partitions_needs_one_assignment_per_partition(assigned: list[list[int]]) -> None:
    """An empty list has too few assignments, as in Kafka; null lets the broker choose."""
    bench = Bench(partitions=2)
    assignments = [CreatePartitionsRequest.Topic.Assignment(broker_ids=ids) for ids in assigned]
    topic = CreatePartitionsRequest.Topic(name="t", count=4, assignments=assignments)
    (result,) = bench.request(1, CreatePartitionsRequest(topics=[topic], timeout_ms=1, validate_only=False)).results
    assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert len(bench.topic.partitions) == 2


@pytest.mark.parametrize("factor", [1, 2])
def test_every_replica_describes_the_producers_of_a_partition(factor: int) -> None:
    bench = Bench()
    bench.state.create_topic("u", 1, factor)
    partition = bench.state.partition("u", 0)
    requested = DescribeProducersRequest(topics=[DescribeProducersRequest.Topic(name="u", partition_indexes=[0])])
    for id in bench.brokers:
        (result,) = bench.request(id, requested).topics[0].partitions
        is_replica = id in partition.replicas
        assert result.error_code == (ErrorCode.NONE if is_replica else ErrorCode.NOT_LEADER_OR_FOLLOWER)


class TestConfigs:
    def shown(self, bench: Bench, version: int = 4, type: int = 2, name: str = "t") -> Any:
        requested = DescribeConfigsRequest.Resource(resource_type=type, resource_name=name, configuration_keys=None)
        request = DescribeConfigsRequest(resources=[requested], include_synonyms=version >= 1)
        (result,) = bench.request(1, request, version).results
        return result

    @pytest.mark.parametrize("version", DescribeConfigsRequest.VERSIONS)
    def test_topic_configs_are_described(self, version: int) -> None:
        bench = Bench(configs={"retention.ms": "5"})
        configs = {config.name: config for config in self.shown(bench, version).configs}
        assert (configs["retention.ms"].value, configs["segment.ms"].value) == ("5", "604800000")
        if version == 0:
            assert (configs["retention.ms"].is_default, configs["segment.ms"].is_default) == (False, True)
        else:
            assert (configs["retention.ms"].config_source, configs["segment.ms"].config_source) == (1, 5)

    def test_broker_configs_are_described(self) -> None:
        bench = Bench(default_partitions=7)
        configs = {config.name: config.value for config in self.shown(bench, type=4, name="1").configs}
        assert configs["num.partitions"] == "7"
        assert self.shown(bench, type=4, name="2").error_code == ErrorCode.INVALID_REQUEST

    @pytest.mark.parametrize("version", IncrementalAlterConfigsRequest.VERSIONS)
    @pytest.mark.parametrize(
        ("change", "error", "shown"),
        [
            (("max.message.bytes", SET, "10"), 0, "10"),
            (("retention.ms", DELETE, None), 0, "604800000"),
            (("cleanup.policy", APPEND, "compact"), 0, "delete,compact"),
            (("cleanup.policy", APPEND, "delete"), 0, "delete"),
            (("cleanup.policy", SUBTRACT, "delete"), 0, ""),
            (("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG, "5"),
            (("retention.ms", SET, "x"), ErrorCode.INVALID_CONFIG, "5"),
            (("retention.ms", SET, None), ErrorCode.INVALID_REQUEST, "5"),
        ],
    )
    def test_alterations_are_validated(
        self, version: int, change: tuple[str, int, str | None], error: int, shown: str
    ) -> None:
        bench = Bench(configs={"retention.ms": "5"})
        name, operation, value = change
        config = IncrementalAlterConfigsRequest.Resource.Config(name=name, config_operation=operation, value=value)
        requested = IncrementalAlterConfigsRequest.Resource(resource_type=2, resource_name="t", configs=[config])
        request = IncrementalAlterConfigsRequest(resources=[requested], validate_only=False)
        (result,) = bench.request(1, request, version).responses
        assert result.error_code == error
        assert {config.name: config.value for config in self.shown(bench).configs}[name] == shown

    @pytest.mark.parametrize("api", [IncrementalAlterConfigsRequest, AlterConfigsRequest])
    def test_a_resource_named_twice_is_not_altered(self, api: Any) -> None:
        bench = Bench(configs={"retention.ms": "5"})
        extra = {"config_operation": SET} if api is IncrementalAlterConfigsRequest else {}
        resources = [
            api.Resource(
                resource_type=2, resource_name="t", configs=[api.Resource.Config(name="retention.ms", value=v, **extra)]
            )
            for v in ("6", "7")
        ]
        results = bench.request(1, api(resources=resources, validate_only=False)).responses
        assert [result.error_code for result in results] == [ErrorCode.INVALID_REQUEST] * 2
        assert {config.name: config.value for config in self.shown(bench).configs}["retention.ms"] == "5"

    @pytest.mark.parametrize(
        ("name", "values", "error"),
        [
            ("", ["1"], ErrorCode.INVALID_REQUEST),
            ("no/slash", ["1"], ErrorCode.INVALID_TOPIC_EXCEPTION),
            ("nowhere", ["1"], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("t", [None], ErrorCode.INVALID_REQUEST),
            ("t", ["1", "2"], ErrorCode.INVALID_REQUEST),
            ("t", ["1_000"], ErrorCode.INVALID_CONFIG),
        ],
    )
    def test_what_alter_configs_refuses(self, name: str, values: list[str | None], error: ErrorCode) -> None:
        configs = [AlterConfigsRequest.Resource.Config(name="retention.ms", value=value) for value in values]
        resource = AlterConfigsRequest.Resource(resource_type=2, resource_name=name, configs=configs)
        request = AlterConfigsRequest(resources=[resource], validate_only=False)
        (result,) = Bench().request(1, request).responses
        assert result.error_code == error

    @pytest.mark.parametrize(
        ("name", "good", "bad"),
        [
            ("compression.gzip.level", ["-1", "1", "9"], ["0", "10", "-2"]),
            ("compression.lz4.level", ["1", "17"], ["0", "18"]),
            ("compression.zstd.level", ["-131072", "22"], ["-131073", "23"]),
            ("flush.messages", ["1"], ["0", "x"]),
            ("flush.ms", ["0"], ["-1"]),
            ("index.interval.bytes", ["0"], ["-1"]),
            ("segment.index.bytes", ["4"], ["3"]),
            ("segment.jitter.ms", ["0"], ["-1"]),
            ("file.delete.delay.ms", ["0"], ["-1"]),
            ("local.retention.ms", ["-2"], ["-3"]),
            ("local.retention.bytes", ["-2"], ["-3"]),
            ("retention.bytes", ["-2", "0"], ["1.5"]),
            ("preallocate", ["true", "FALSE"], ["maybe", ""]),
            ("remote.storage.enable", ["false"], ["true", "maybe"]),
            ("unclean.leader.election.enable", ["TRUE"], ["yes"]),
            ("leader.replication.throttled.replicas", ["*", "", "0:1,1:2"], ["x", "0:1,x"]),
        ],
    )
    def test_values_of_topic_configs_are_kafkas(self, name: str, good: list[str], bad: list[str]) -> None:
        bench = Bench()
        for value in good:
            bench.state.alter_topic(bench.topic, {name: value})
        for value in bad:
            with pytest.raises(BrokerError) as raised:
                bench.state.alter_topic(bench.topic, {name: value})
            assert raised.value.code == ErrorCode.INVALID_CONFIG, value

    def test_alterations_apply_at_once(self) -> None:
        bench = Bench()
        bench.state.alter_topic(bench.topic, {"max.message.bytes": "10"})
        assert bench.produce(GOOD).error_code == ErrorCode.MESSAGE_TOO_LARGE
        bench.state.alter_topic(bench.topic, {"max.message.bytes": "1000"}, validate_only=True)
        assert bench.produce(GOOD).error_code == ErrorCode.MESSAGE_TOO_LARGE


class TestGroups:
    @pytest.mark.parametrize("version", DescribeGroupsRequest.VERSIONS)
    def test_groups_are_described(self, version: int) -> None:
        members = Members()
        members.stable(2)
        request = DescribeGroupsRequest(groups=[GROUP])
        (group,) = members.cluster.request(members.node, request, version).groups
        assert (group.error_code, group.group_state, group.protocol_data) == (0, "Stable", "range")
        assert {(m.client_id, m.client_host, m.member_metadata) for m in group.members} == {("c", "/10.0.0.1", b"sub")}
        assert {m.member_assignment for m in group.members} == {m.member_id.encode() for m in group.members}

    @pytest.mark.parametrize(("version", "error"), [(5, ErrorCode.NONE), (6, ErrorCode.GROUP_ID_NOT_FOUND)])
    def test_a_missing_group_is_dead(self, version: int, error: ErrorCode) -> None:
        members = Members()
        (group,) = members.cluster.request(members.node, DescribeGroupsRequest(groups=[GROUP]), version).groups
        assert (group.group_state, group.error_code) == ("Dead", error)

    @pytest.mark.parametrize("version", ListGroupsRequest.VERSIONS)
    def test_groups_are_listed_by_their_coordinator(self, version: int) -> None:
        members = Members()
        members.stable(1)
        listed = {
            node: [g.group_id for g in members.cluster.request(node, ListGroupsRequest(), version).groups]
            for node in members.cluster.brokers
        }
        assert listed == {node: [GROUP] if node == members.node else [] for node in members.cluster.brokers}

    @pytest.mark.parametrize("version", DeleteGroupsRequest.VERSIONS)
    def test_only_empty_groups_are_deleted(self, version: int) -> None:
        members = Members()
        members.commit(5)
        (leader,) = members.stable(1)
        request = DeleteGroupsRequest(groups_names=[GROUP])

        def delete(node: int) -> int:
            return members.cluster.request(node, request, version).results[0].error_code

        assert delete(members.node) == ErrorCode.NON_EMPTY_GROUP
        members.leave((leader.member_id, None))
        assert delete(members.node % 3 + 1) == ErrorCode.NOT_COORDINATOR
        assert delete(members.node) == ErrorCode.NONE
        assert delete(members.node) == ErrorCode.GROUP_ID_NOT_FOUND
        assert members.committed() == -1

    def test_offsets_of_unsubscribed_topics_can_be_deleted(self) -> None:
        members = Members()
        members.cluster.state.create_topic("other", 1)
        subscription = encode_versioned(ConsumerProtocolSubscription(topics=["other"]), 1)
        joined = members.new(protocols=[("range", subscription)]).response
        members.sync(joined)
        members.commit(5, generation=joined.generation_id, member_id=joined.member_id)
        topics = [
            OffsetDeleteRequest.Topic(name=name, partitions=[OffsetDeleteRequest.Topic.Partition(partition_index=0)])
            for name in ("t", "other", "nowhere")
        ]
        response = members.cluster.request(members.node, OffsetDeleteRequest(group_id=GROUP, topics=topics))
        codes = [topic.partitions[0].error_code for topic in response.topics]
        assert codes == [0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert members.committed() == -1
