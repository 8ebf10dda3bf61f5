"""ListOffsets, Metadata, leadership and the small APIs, in every version, on virtual time."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kwire.broker.handlers.table import HANDLERS
from kwire.errors import BrokerError, ErrorCode, TopicError
from kwire.protocol import ApiKey
from kwire.protocol.messages.create_topics import CreateTopicsRequest
from kwire.protocol.messages.delete_topics import DeleteTopicsRequest
from kwire.protocol.messages.describe_cluster import DescribeClusterRequest
from kwire.protocol.messages.find_coordinator import FindCoordinatorRequest
from kwire.protocol.messages.init_producer_id import InitProducerIdRequest
from kwire.protocol.messages.list_offsets import ListOffsetsRequest
from kwire.protocol.messages.metadata import MetadataRequest
from tests.broker.bench import GOOD, NOBODY, Bench, batch, transactional
from tests.broker.virtual_cluster import WALL_MS, VirtualCluster


class TestListOffsets:
    def query(
        self, bench: Bench, timestamp: int, version: int = 11, *, committed: bool = False, epoch: int = -1
    ) -> Any:
        requested = ListOffsetsRequest.Topic.Partition(
            partition_index=0, timestamp=timestamp, current_leader_epoch=epoch,
            max_num_offsets=9 if version == 0 else 1,
        )  # fmt: skip
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(committed),
            topics=[ListOffsetsRequest.Topic(name="t", partitions=[requested])],
        )
        return bench.request(bench.leader("t"), request, version).topics[0].partitions[0]

    def filled(self) -> Bench:
        bench = Bench(verify_transactional_writes=False)
        for n in range(4):
            bench.produce(batch(b"v", time_ms=WALL_MS + n * 10))
        bench.topic.partitions[0].log.delete_before(1)
        return bench

    @pytest.mark.parametrize("version", range(1, 12))
    @pytest.mark.parametrize(
        ("timestamp", "offset", "found_ms"),
        [(-1, 4, -1), (-2, 1, -1), (-3, 3, WALL_MS + 30), (-4, 1, -1), (-5, -1, -1), (WALL_MS, 1, WALL_MS + 10),
         (WALL_MS + 11, 2, WALL_MS + 20), (WALL_MS + 31, -1, -1)],
    )  # fmt: skip
    def test_offsets_by_time_and_special_timestamps(
        self, version: int, timestamp: int, offset: int, found_ms: int
    ) -> None:
        found = self.query(self.filled(), timestamp, version)
        if version < {-3: 7, -4: 8, -5: 9}.get(timestamp, 0):
            assert (found.error_code, found.offset) == (ErrorCode.UNSUPPORTED_VERSION, -1)
        else:
            assert (found.error_code, found.offset, found.timestamp) == (0, offset, found_ms)

    def test_an_empty_log_begins_in_the_epoch_of_its_leader(self) -> None:
        bench = Bench()
        assert self.query(bench, -2).leader_epoch == self.query(bench, -1).leader_epoch == 0

    def test_a_partition_requested_twice_is_an_error(self) -> None:
        bench = self.filled()
        requested = [ListOffsetsRequest.Topic.Partition(partition_index=0, timestamp=time) for time in (-1, -2)]
        topics = [ListOffsetsRequest.Topic(name="t", partitions=[one]) for one in requested]
        response = bench.request(bench.leader("t"), ListOffsetsRequest(replica_id=-1, topics=topics), 9)
        assert [[one.error_code for one in topic.partitions] for topic in response.topics] == [
            [ErrorCode.INVALID_REQUEST]
        ]

    @pytest.mark.parametrize(("timestamp", "offsets"), [(-1, [4, 1]), (-2, [1])])
    def test_v0_lists_segment_starts(self, timestamp: int, offsets: list[int]) -> None:
        assert self.query(self.filled(), timestamp, 0).old_style_offsets == offsets

    def test_read_committed_ends_at_the_last_stable_offset(self) -> None:
        bench = self.filled()
        bench.produce(transactional(b"open", 2), 11, transaction="tx")
        assert self.query(bench, -1).offset == 5
        assert self.query(bench, -1, committed=True).offset == 4

    @pytest.mark.parametrize(
        ("epoch", "error"), [(0, ErrorCode.FENCED_LEADER_EPOCH), (1, 0), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)]
    )
    def test_results_carry_leader_epochs(self, epoch: int, error: int) -> None:
        bench = self.filled()
        bench.topic.partitions[0].move_leader(bench.follower, 0.0)
        found = self.query(bench, -1, epoch=epoch)
        assert (found.error_code, found.leader_epoch) == (error, 1 if not error else -1)


class TestMetadata:
    def query(self, bench: VirtualCluster, topics: list[str] | None, version: int = 13, **more: Any) -> Any:
        named = None if topics is None else [MetadataRequest.Topic(name=name) for name in topics]
        return bench.request(1, MetadataRequest(topics=named, **more), version)

    @pytest.mark.parametrize("version", MetadataRequest.VERSIONS)
    def test_every_version_works(self, version: int) -> None:
        bench = Bench(partitions=2)
        response = self.query(bench, ["t"], version)
        addresses = [(b.node_id, b.host, b.port) for b in response.brokers]
        assert addresses == [(n, f"broker-{n}", 9092) for n in (1, 2, 3)]
        (topic,) = response.topics
        assert (topic.error_code, topic.name) == (0, "t")
        assert [p.leader_id for p in topic.partitions] == [p.leader for p in bench.topic.partitions]
        assert sorted(topic.partitions[0].isr_nodes) == [1, 2, 3]
        assert topic.topic_id == (bench.topic.id if version >= 10 else UUID(int=0))
        assert response.controller_id == (1 if version >= 1 else -1)

    @pytest.mark.parametrize(
        ("topics", "version", "count"), [([], 0, 1), ([], 1, 0), (None, 1, 1), (None, 13, 1), ([], 13, 0)]
    )
    def test_null_and_empty_topics_mean_all_or_none(self, topics: list[str] | None, version: int, count: int) -> None:
        assert len(self.query(Bench(), topics, version).topics) == count

    def test_topics_are_found_by_id(self) -> None:
        bench = Bench()
        requested = [MetadataRequest.Topic(name=None, topic_id=id) for id in (bench.topic.id, NOBODY)]
        found = bench.request(1, MetadataRequest(topics=requested)).topics
        assert [(t.name, t.error_code) for t in found] == [("t", 0), (None, ErrorCode.UNKNOWN_TOPIC_ID)]

    @pytest.mark.parametrize(
        ("version", "client_allows", "cluster_allows", "made"),
        [(3, True, True, True), (4, True, True, True), (4, False, True, False), (13, True, False, False)],
    )
    def test_missing_topics_are_created_if_allowed(
        self, version: int, client_allows: bool, cluster_allows: bool, made: bool
    ) -> None:
        bench = VirtualCluster(auto_create_topics=cluster_allows, default_partitions=2)
        (topic,) = self.query(bench, ["new"], version, allow_auto_topic_creation=client_allows).topics
        assert topic.error_code == (0 if made else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert len(topic.partitions) == (2 if made else 0)
        assert ("new" in bench.state.topics) is made

    def test_an_invalid_topic_name_is_an_error(self) -> None:
        (topic,) = self.query(VirtualCluster(), ["no/slash"]).topics
        assert topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION

    def test_no_topic_is_created_whose_name_collides(self) -> None:
        bench = VirtualCluster()
        bench.state.create_topic("a.b", 1)
        (topic,) = self.query(bench, ["a_b"]).topics
        assert (topic.name, topic.error_code) == ("a_b", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)  # as in Kafka
        assert "a_b" not in bench.state.topics

    def test_each_topic_is_returned_once_and_names_beside_ids_are_ignored(self) -> None:
        bench = Bench()
        bench.state.create_topic("u", 1)
        assert [topic.name for topic in self.query(bench, ["t", "u", "t"]).topics] == ["t", "u"]
        id = bench.topic.id
        requested = [MetadataRequest.Topic(topic_id=id, name=None), MetadataRequest.Topic(name="u")] * 2
        found = bench.request(1, MetadataRequest(topics=requested), 12).topics
        assert [topic.name for topic in found] == ["t"]

    @pytest.mark.parametrize("version", [10, 11])
    def test_ids_are_refused_before_v12(self, version: int) -> None:
        requested = [MetadataRequest.Topic(topic_id=NOBODY, name=None)]
        (topic,) = Bench().request(1, MetadataRequest(topics=requested), version).topics
        assert (topic.error_code, topic.name) == (ErrorCode.INVALID_REQUEST, "")

    def test_stopped_brokers_are_offline_replicas(self) -> None:
        bench = Bench()
        bench.state.create_topic("single", 1, assignments={0: [2]})
        bench.state.stop_node(2, 0.0)
        response = self.query(bench, ["t", "single"])
        assert [broker.node_id for broker in response.brokers] == [1, 3]
        replicated, single = (topic.partitions[0] for topic in response.topics)
        assert (replicated.error_code, replicated.offline_replicas) == (0, [2])
        assert (single.error_code, single.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)

    def test_authorized_operations_are_returned_on_request(self) -> None:
        response = self.query(Bench(), ["t"], 8, include_topic_authorized_operations=True)
        assert response.topics[0].topic_authorized_operations == 3576
        assert response.cluster_authorized_operations == -(2**31)


class TestLeadership:
    def test_leaders_move_when_brokers_stop_and_on_request(self) -> None:
        bench = Bench()
        partition = bench.topic.partitions[0]
        first, second, third = partition.replicas
        assert (partition.leader, partition.leader_epoch) == (first, 0)
        bench.state.stop_node(first, 0.0)
        assert (partition.leader, partition.leader_epoch, partition.isr) == (second, 1, [second, third])
        bench.state.start_node(first, 0.0)
        assert (partition.leader, partition.leader_epoch, partition.isr) == (second, 1, [second, third, first])
        partition.move_leader(first, 0.0)
        assert (partition.leader, partition.leader_epoch) == (first, 2)

    def test_the_last_in_sync_replica_restarts_as_leader_with_its_data(self) -> None:
        bench = Bench()
        partition = bench.topic.partitions[0]
        bench.produce(GOOD)
        first, second, third = partition.replicas
        for id in (first, second, third):
            bench.state.stop_node(id, 0.0)
        assert (partition.leader, partition.isr) == (-1, [third])
        bench.state.start_node(first, 0.0)  # it missed no record, but the cluster cannot know this
        assert partition.leader == -1
        bench.state.start_node(third, 0.0)
        assert (partition.leader, partition.isr) == (
            third,
            [third, first],
        )  # a follower joins the ISR when there is a leader
        assert bench.values(bench.fetch().records) == [b"v", b"w"]

    def test_an_unclean_election_loses_records_that_were_not_replicated(self) -> None:
        bench = Bench(configs={"unclean.leader.election.enable": "true"}, replication_ms=1_000)
        partition = bench.topic.partitions[0]
        first, second, third = partition.replicas
        for id in (second, third):
            bench.state.stop_node(id, 0.0)
        bench.state.start_node(second, 0.0)
        bench.state.stop_node(first, 0.0)
        assert partition.leader == second

    def test_a_broker_that_is_not_in_sync_cannot_be_leader(self) -> None:
        bench = Bench()
        bench.state.stop_node(bench.follower, 0.0)
        down = next(id for id, node in bench.state.nodes.items() if not node.is_up)
        with pytest.raises(BrokerError):
            bench.topic.partitions[0].move_leader(down, 0.0)


class TestTopics:
    def create(self, bench: VirtualCluster, version: int = 7, *, validate_only: bool = False, **topic: Any) -> Any:
        requested = {"name": "new", "num_partitions": 2, "replication_factor": 3, **topic}
        request = CreateTopicsRequest(topics=[CreateTopicsRequest.Topic(**requested)], validate_only=validate_only)
        return bench.request(1, request, version).topics[0]

    @pytest.mark.parametrize("version", CreateTopicsRequest.VERSIONS)
    def test_every_version_works(self, version: int) -> None:
        bench = VirtualCluster()
        result = self.create(bench, version)
        assert result.error_code == 0
        assert len(bench.state.topics["new"].partitions) == 2
        if version >= 5:
            assert (result.num_partitions, result.replication_factor) == (2, 3)
            assert {c.name: c.value for c in result.configs}["retention.ms"] == "604800000"

    @pytest.mark.parametrize(("first", "second"), [("a.b", "a_b"), ("a_b", "a.b"), ("a.b_c", "a_b.c")])
    def test_names_that_metrics_cannot_tell_apart_collide(self, first: str, second: str) -> None:
        bench = VirtualCluster()
        assert self.create(bench, name=first).error_code == 0
        for validate_only in (True, False):
            result = self.create(bench, name=second, validate_only=validate_only)
            assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
            assert f"Topic '{second}' collides with existing topic: {first}" in result.error_message
        assert self.create(bench, name=first).error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        with pytest.raises(TopicError, match="collides"):
            bench.state.create_topic(second, 1)
        bench.state.delete_topic(bench.state.topics[first], 0.0)
        assert self.create(bench, name=second).error_code == 0

    @pytest.mark.parametrize(
        ("topic", "error"),
        [
            ({"name": "t"}, ErrorCode.TOPIC_ALREADY_EXISTS),
            ({"name": ""}, ErrorCode.INVALID_TOPIC_EXCEPTION),
            ({"name": ".."}, ErrorCode.INVALID_TOPIC_EXCEPTION),
            ({"name": "__cluster_metadata"}, ErrorCode.INVALID_REQUEST),
            ({"name": "x" * 250}, ErrorCode.INVALID_TOPIC_EXCEPTION),
            ({"num_partitions": 0}, ErrorCode.INVALID_PARTITIONS),
            ({"num_partitions": 1_000_000}, ErrorCode.POLICY_VIOLATION),
            ({"replication_factor": 4}, ErrorCode.INVALID_REPLICATION_FACTOR),
            ({"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
            ({"configs": [("no.such", "1")]}, ErrorCode.INVALID_CONFIG),
            ({"configs": [("retention.ms", "soon")]}, ErrorCode.INVALID_CONFIG),
            ({"configs": [("cleanup.policy", "burn")]}, ErrorCode.INVALID_CONFIG),
            ({"configs": [("retention.ms", "5")]}, ErrorCode.NONE),
            ({"assignments": [(0, [1])]}, ErrorCode.INVALID_REQUEST),
            ({"assignments": [(1, [1])], "num_partitions": -1, "replication_factor": -1},
             ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            ({"assignments": [(0, [9])], "num_partitions": -1, "replication_factor": -1},
             ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            ({"assignments": [(0, [1]), (1, [1, 2])], "num_partitions": -1, "replication_factor": -1},
             ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            ({"assignments": [(0, [3, 1]), (1, [2, 3])], "num_partitions": -1, "replication_factor": -1},
             ErrorCode.NONE),
        ],
    )  # fmt: skip
    def test_each_creation_has_its_error(self, topic: dict[str, Any], error: ErrorCode) -> None:
        bench = Bench()
        if "configs" in topic:
            configs = [CreateTopicsRequest.Topic.Config(name=name, value=value) for name, value in topic["configs"]]
            topic = {**topic, "configs": configs}
        if "assignments" in topic:
            assignments = [
                CreateTopicsRequest.Topic.Assignment(partition_index=index, broker_ids=ids)
                for index, ids in topic["assignments"]
            ]
            topic = {**topic, "assignments": assignments}
        assert self.create(bench, **topic).error_code == error

    def test_validate_only_creates_nothing(self) -> None:
        bench = VirtualCluster()
        assert self.create(bench, validate_only=True).error_code == 0
        assert not bench.state.topics

    def test_a_topic_named_twice_is_an_error(self) -> None:
        topic = CreateTopicsRequest.Topic(name="x", num_partitions=1, replication_factor=1)
        bench = VirtualCluster()
        results = bench.request(1, CreateTopicsRequest(topics=[topic, topic])).topics
        assert [result.error_code for result in results] == [ErrorCode.INVALID_REQUEST]
        assert not bench.state.topics

    @pytest.mark.parametrize("version", DeleteTopicsRequest.VERSIONS)
    def test_topics_are_deleted_by_name_or_id(self, version: int) -> None:
        bench = Bench()
        bench.produce(GOOD)
        if version >= 6:
            topics = [DeleteTopicsRequest.Topic(name=name) for name in ("t", "nowhere")]
            topics += [DeleteTopicsRequest.Topic(topic_id=NOBODY)]
            request = DeleteTopicsRequest(topics=topics, timeout_ms=1)
        else:
            request = DeleteTopicsRequest(topic_names=["t", "nowhere"], timeout_ms=1)
        codes = [result.error_code for result in bench.request(1, request, version).responses]
        unknown = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] + [ErrorCode.UNKNOWN_TOPIC_ID] * (version >= 6)
        assert codes == [0, *unknown]
        assert not bench.state.topics
        assert bench.state.storage.used_bytes == 0

    def test_a_topic_that_is_deleted_twice_stays(self) -> None:
        bench = Bench()
        by_name, by_id = DeleteTopicsRequest.Topic(name="t"), DeleteTopicsRequest.Topic(topic_id=bench.topic.id)
        both, neither = DeleteTopicsRequest.Topic(name="t", topic_id=bench.topic.id), DeleteTopicsRequest.Topic()
        for topics in ([by_name, by_name], [by_id, by_id], [by_name, by_id], [both], [neither]):
            request = DeleteTopicsRequest(topics=topics, timeout_ms=1)
            assert [one.error_code for one in bench.request(1, request).responses] == [ErrorCode.INVALID_REQUEST]
        request = DeleteTopicsRequest(topic_names=["t", "t"], timeout_ms=1)
        assert [one.error_code for one in bench.request(1, request, 5).responses] == [ErrorCode.INVALID_REQUEST]
        assert "t" in bench.state.topics


class TestSmallApis:
    @pytest.mark.parametrize("version", FindCoordinatorRequest.VERSIONS)
    def test_find_coordinator_in_every_version(self, version: int) -> None:
        bench = VirtualCluster()
        if version >= 4:
            request = FindCoordinatorRequest(key_type=0, coordinator_keys=["a", "b", "c"])
            found = bench.request(1, request, version).coordinators
            assert [(c.key, c.node_id, c.error_code) for c in found] == [
                (key, bench.coordinator(key), 0) for key in ("a", "b", "c")
            ]
        else:
            response = bench.request(1, FindCoordinatorRequest(key="a"), version)
            assert (response.node_id, response.host, response.error_code) == (
                bench.coordinator("a"), f"broker-{bench.coordinator('a')}", 0,
            )  # fmt: skip

    def test_coordinators_are_spread_and_move_when_a_broker_stops(self) -> None:
        bench = VirtualCluster()
        keys = [f"group-{n}" for n in range(50)]
        before = {key: bench.coordinator(key) for key in keys}
        assert set(before.values()) == {1, 2, 3}
        bench.state.stop_node(2, 0.0)
        after = {key: bench.coordinator(key) for key in keys}
        assert all(after[key] == before[key] for key in keys if before[key] != 2)
        assert set(after.values()) == {1, 3}

    def test_share_partitions_have_a_coordinator(self) -> None:
        keys = ["g:AAAAAAAAAAAAAAAAAAAAAg:0", "g", "g::0", "g:AAAAAAAAAAAAAAAAAAAAAg:x", "g:no id:0"]
        request = FindCoordinatorRequest(key_type=2, coordinator_keys=keys)
        codes = [found.error_code for found in VirtualCluster().request(1, request).coordinators]
        assert codes == [ErrorCode.NONE, *[ErrorCode.INVALID_REQUEST] * 4]
        before = VirtualCluster().request(1, request, 5).coordinators
        assert [found.error_code for found in before] == [ErrorCode.INVALID_REQUEST] * 5

    @pytest.mark.parametrize("version", InitProducerIdRequest.VERSIONS)
    def test_init_producer_id_in_every_version(self, version: int) -> None:
        bench = VirtualCluster()
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000)
        found = [bench.request(node, request, version) for node in (1, 2, 2)]
        assert [(f.error_code, f.producer_id, f.producer_epoch) for f in found] == [(0, 0, 0), (0, 1, 0), (0, 2, 0)]

    def test_a_transactional_id_keeps_its_producer_id_and_fences(self) -> None:
        bench = VirtualCluster()
        node = bench.coordinator("tx")

        def init(producer_id: int = -1, epoch: int = -1, timeout_ms: int = 1_000) -> tuple[int, int, int]:
            request = InitProducerIdRequest(
                transactional_id="tx", transaction_timeout_ms=timeout_ms, producer_id=producer_id, producer_epoch=epoch
            )
            found = bench.request(node, request)
            return found.error_code, found.producer_id, found.producer_epoch

        assert init() == (0, 0, 0)
        assert init() == (0, 0, 1)
        assert init(0, 1) == (0, 0, 2)
        assert init(0, 1) == (0, 0, 2)  # a retry gets the same response
        assert init(0, 0) == (ErrorCode.PRODUCER_FENCED, -1, -1)
        assert init(timeout_ms=0) == (ErrorCode.INVALID_TRANSACTION_TIMEOUT, -1, -1)
        other = next(id for id in bench.brokers if id != node)
        request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1_000)
        assert bench.request(other, request).error_code == ErrorCode.NOT_COORDINATOR

    @pytest.mark.parametrize("version", DescribeClusterRequest.VERSIONS)
    def test_describe_cluster_in_every_version(self, version: int) -> None:
        bench = VirtualCluster()
        bench.state.stop_node(1, 0.0)
        request = DescribeClusterRequest(
            include_cluster_authorized_operations=True, include_fenced_brokers=version >= 2
        )
        found = bench.request(2, request, version)
        assert (found.cluster_id, found.controller_id) == (bench.options.cluster_id, 2)
        assert [b.broker_id for b in found.brokers] == ([1, 2, 3] if version >= 2 else [2, 3])
        assert found.cluster_authorized_operations > 0

    @pytest.mark.parametrize(
        ("endpoint_type", "error"),
        [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
    )
    def test_only_brokers_are_endpoints(self, endpoint_type: int, error: ErrorCode) -> None:
        request = DescribeClusterRequest(endpoint_type=endpoint_type)
        assert VirtualCluster().request(1, request).error_code == error


EXAMPLES = {
    ApiKey.PRODUCE: Bench().produce_request(GOOD),
    ApiKey.FETCH: Bench().fetch_request(),
}


@pytest.mark.parametrize("key", HANDLERS, ids=lambda key: key.name)
def test_every_api_has_an_error_response_in_every_version(key: ApiKey) -> None:
    """An error response must be encodable in each version, because faults use it."""
    handler = HANDLERS[key]
    request_class = handler.request
    for version in request_class.VERSIONS:
        request = EXAMPLES.get(key) or request_class(**required(request_class))
        decoded = request_class.decode(request.encode(version), version)
        response = handler.error_response(decoded, ErrorCode.UNKNOWN_SERVER_ERROR, version)
        assert type(response).decode(response.encode(version), version) is not None


def required(cls: Any) -> dict[str, Any]:
    """Return a value for every field that has no default."""
    values: dict[str, Any] = {}
    for field in cls.FIELDS:
        if repr(field.default) == "REQUIRED":
            values[field.name] = {"string": "x", "bytes": b"", "uuid": NOBODY}.get(
                getattr(field.type, "name", ""), [] if type(field.type).__name__ == "Array" else 0
            )
    return values
