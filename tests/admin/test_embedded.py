"""The admin client with the embedded cluster, over real sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kwire import Admin, Consumer, NewTopic, Offset
from kwire.admin import CreatedTopic
from kwire.broker import Answer, Cluster, Delay
from kwire.errors import (
    BrokerError,
    ClosedError,
    ConfigurationError,
    ConnectError,
    ErrorCode,
    RequestTimeoutError,
    TopicError,
    UnsupportedVersionError,
)
from kwire.protocol import ApiKey
from kwire.protocol.messages.create_topics import CreateTopicsResponse


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3) as running:
        yield running


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[Admin]:
    with Admin(cluster.bootstrap) as running:
        yield running


def test_topics_are_created_and_deleted(admin: Admin) -> None:
    made = admin.create_topics([NewTopic("one", 3, 2), NewTopic("two", assignments={0: [2, 1], 1: [3, 2]})])
    assert {name: (topic.partitions, topic.replication_factor) for name, topic in made.items()} == {
        "one": (3, 2),
        "two": (2, 2),
    }
    known = admin.metadata(["one", "two", "three"])
    assert known.topics["one"].id == made["one"].id
    assert [partition.replicas for partition in known.topics["two"].partitions] == [(2, 1), (3, 2)]
    assert known.topics["three"].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert {"one", "two"} <= set(admin.metadata().topics)
    assert "three" not in admin.metadata().topics, "the Metadata request did not create it"
    assert admin.delete_topics(["one", "two"]) == {"one": None, "two": None}
    assert not {"one", "two"} & set(admin.metadata().topics)


def test_errors_are_raised_when_every_result_is_known(admin: Admin) -> None:
    admin.create_topics([NewTopic("there")])
    with pytest.raises(BrokerError) as caught:
        admin.create_topics([NewTopic("there"), NewTopic("new"), NewTopic("not/valid")])
    assert caught.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert "not/valid" in caught.value.__notes__[0]
    results = admin.create_topics([NewTopic("there"), NewTopic("newer")], raise_errors=False)
    assert isinstance(results["there"], BrokerError)
    assert isinstance(results["newer"], CreatedTopic)
    with pytest.raises(TopicError):
        admin.delete_topics(["never"])
    admin.delete_topics(["there", "new", "newer"])


@pytest.mark.parametrize("call", ["offsets", "lag", "reset"])
def test_brokers_that_cannot_list_what_a_group_has_committed(call: str) -> None:
    with Cluster(brokers=1, topics={"t": 1}, version="0.10.1") as old, Admin(old.bootstrap) as admin:
        with Consumer(old.bootstrap, group="g") as consumer:
            consumer.assign([("t", 0, 0)])
            consumer.commit({("t", 0): 0})
            assert consumer.committed([("t", 0)]) == {("t", 0): Offset(0)}
        calls: dict[str, Callable[[], object]] = {
            "offsets": lambda: admin.groups.offsets("g"),
            "lag": lambda: admin.groups.lag("g"),
            "reset": lambda: admin.groups.reset("g", to="earliest"),
        }
        with pytest.raises(UnsupportedVersionError, match=r"before Kafka 0\.10\.2 .*use Consumer\.committed"):
            calls[call]()


def test_validate_only_creates_nothing(admin: Admin) -> None:
    admin.create_topics([NewTopic("checked", 2)], validate_only=True)
    assert "checked" not in admin.metadata().topics


def test_describe_cluster(admin: Admin, cluster: Cluster) -> None:
    description = admin.describe_cluster()
    assert [broker.id for broker in description.brokers] == [1, 2, 3]
    assert ",".join(f"{broker.host}:{broker.port}" for broker in description.brokers) == cluster.bootstrap
    assert description.controller in description.brokers


def test_brokers_before_describe_cluster() -> None:
    old = {ApiKey.METADATA: range(2, 3), ApiKey.CREATE_TOPICS: range(2), ApiKey.DELETE_TOPICS: range(1)}
    old[ApiKey.DESCRIBE_CLUSTER] = range(0)
    with Cluster(brokers=1, api_versions=old) as cluster, Admin(cluster.bootstrap) as admin:
        assert [broker.id for broker in admin.describe_cluster().brokers] == [1]
        assert admin.create_topics([NewTopic("t", 2, 1)])["t"] == CreatedTopic("t", None, -1, -1)
        assert len(admin.metadata().topics["t"].partitions) == 2
        admin.delete_topics(["t"])


def test_wrong_arguments_are_refused(admin: Admin) -> None:
    with pytest.raises(ConfigurationError):
        admin.create_topics([NewTopic("a"), NewTopic("a")])
    with pytest.raises(ConfigurationError):
        admin.delete_topics("abc")
    with pytest.raises(ConfigurationError):
        Admin("localhost:9092", isolation="read_committed")  # type: ignore[call-arg]


def test_an_unreachable_cluster_is_a_timeout() -> None:
    with Cluster(brokers=1) as cluster:
        bootstrap = cluster.bootstrap
    with Admin(bootstrap) as admin:
        for call in (admin.describe_cluster, lambda timeout: admin.create_topics([NewTopic("a")], timeout)):
            with pytest.raises(RequestTimeoutError) as caught:
                call(timeout=0.5)
            assert isinstance(caught.value.__cause__, ConnectError)


def test_calls_after_close_raise_closed_error(cluster: Cluster) -> None:
    admin = Admin(cluster.bootstrap)
    admin.describe_cluster()
    admin.close()
    admin.close()
    with pytest.raises(ClosedError):
        admin.describe_cluster()
    with pytest.raises(ClosedError):
        admin.create_topics([NewTopic("a")])


def test_a_topic_can_be_used_when_create_returns(cluster: Cluster, admin: Admin) -> None:
    made = admin.topics.create("ready", partitions=3, replication_factor=2, configs={"retention.ms": "5"})
    assert (made.partitions, made.replication_factor) == (3, 2)
    for broker in cluster.bootstrap.split(","):
        with Admin(broker) as other:
            assert other.cluster.explain() == []
            assert len(other.metadata(["ready"]).topics["ready"].partitions) == 3
    described = admin.topics.describe("ready")
    assert [(one.index, len(one.replicas), one.isr == one.replicas) for one in described.partitions] == [
        (0, 2, True), (1, 2, True), (2, 2, True),
    ]  # fmt: skip
    admin.topics.add_partitions("ready", 5)
    assert len(admin.topics.describe("ready").partitions) == 5
    with pytest.raises(BrokerError) as caught:
        admin.topics.add_partitions("ready", 4)
    assert caught.value.code == ErrorCode.INVALID_PARTITIONS
    assert (admin.topics.exists("ready"), admin.topics.exists("never")) == (True, False)
    assert "ready" in admin.topics.list()
    admin.topics.delete("ready")


def test_several_topics_have_a_result_each(admin: Admin) -> None:
    results = admin.topics.create_many([NewTopic("first"), NewTopic("not/valid")])
    assert list(results.ok) == ["first"]
    with pytest.raises(BrokerError):
        results["not/valid"]
    described = admin.topics.describe_many(["first", "never"])
    assert (list(described.ok), list(described.errors)) == (["first"], ["never"])
    admin.topics.delete(["first"])


def test_a_topic_that_is_throttled_to_the_end_hides_no_other(cluster: Cluster, admin: Admin) -> None:
    def throttle(_: object, response: CreateTopicsResponse) -> CreateTopicsResponse:
        for topic in response.topics:
            if topic.name == "throttled":
                topic.error_code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        return response

    admin.topics.list()  # it is connected, so that the time is for the topics
    cluster.add_fault(Answer(throttle), api=ApiKey.CREATE_TOPICS, times=None)
    cluster.add_fault(Delay(500), api=ApiKey.METADATA, times=None)
    try:
        results = admin.topics.create_many([NewTopic("calm"), NewTopic("throttled"), NewTopic("a b")], timeout=1.0)
    finally:
        cluster.clear_faults()
    assert results["calm"].partitions > 0
    assert {name: type(error) for name, error in results.errors.items()} == {
        "throttled": RequestTimeoutError, "a b": TopicError,
    }  # fmt: skip


def test_features_of_the_cluster(admin: Admin) -> None:
    feature = admin.cluster.features()["transaction.version"]
    assert feature.supported is None or feature.supported[0] <= feature.level <= feature.supported[1]
    assert feature.level == 2


def test_a_topic_that_gets_no_leader_is_created_and_the_wait_raises() -> None:
    with Cluster(brokers=2) as cluster, Admin(cluster.bootstrap) as admin:
        cluster.stop(2)
        with pytest.raises(RequestTimeoutError) as caught:
            admin.topics.create_many([NewTopic("unled", assignments={0: [2]})], timeout=0.5)
        assert "was created" in caught.value.__notes__[0]
        assert "LEADER_NOT_AVAILABLE" in str(caught.value)
        assert admin.topics.exists("unled")
