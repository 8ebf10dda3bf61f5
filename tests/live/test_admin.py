"""Every verb of `kwire.Admin` on real brokers and on the embedded one, compared with what Kafka's own tools print."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from brokers.cluster import NEWEST, KafkaCluster
from brokers.configuration import USERS

from kwire import Admin, Consumer, Producer, Sasl
from kwire.admin import Acl, AclFilter, Group, StreamsTasks
from kwire.broker import Cluster, Listener
from kwire.cluster import ToCoordinator
from kwire.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    ErrorCode,
    FencedError,
    UnsupportedVersionError,
)
from kwire.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from tests.admin.verbs import verbs_of
from tests.live.admin_cases import CASES, NOT_IN_2_8, NOT_IN_4_3, Place
from tests.live.kafka_tools import KafkaTools, kafka_tools
from tests.waiting import wait_for

_VERSIONS = ("2.8.2", NEWEST)
with Admin("localhost:1") as _nobody:
    _VERBS = verbs_of(_nobody)


@pytest.fixture(scope="module")
def _kafka_named() -> Iterator[Callable[[str], KafkaCluster]]:
    """Start a cluster at its first use; it runs until the last test."""
    with ExitStack() as running:
        yield cache(lambda version: running.enter_context(_cluster(version)))


def _cluster(version: str) -> KafkaCluster:
    is_kraft = version == NEWEST
    authorizer = (
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        if is_kraft
        else "kafka.security.authorizer.AclAuthorizer"
    )
    settings = {
        "authorizer.class.name": authorizer,
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "true",
        "delegation.token.secret.key" if is_kraft else "delegation.token.master.key": "not a secret",
        "password.encoder.secret": "not a secret",
    }
    if is_kraft:
        del settings["password.encoder.secret"]
    return KafkaCluster(version, nodes=2, sasl=True, log_dirs=2, settings=settings)


@pytest.fixture(params=_VERSIONS)
def kafka(request: pytest.FixtureRequest, _kafka_named: Callable[[str], KafkaCluster]) -> KafkaCluster:
    return _kafka_named(request.param)


@pytest.fixture(scope="module")
def tools() -> Iterator[KafkaTools]:
    with kafka_tools() as running:
        yield running


@pytest.fixture(scope="module")
def embedded() -> Iterator[Cluster]:
    options: dict[str, Any] = {
        "version": "4.3", "sasl": USERS, "authorizer": True, "super_users": "User:ANONYMOUS",
        "allow_everyone_if_no_acl_found": True,
    }  # fmt: skip
    with Cluster(2, listeners={"INSIDE": Listener()}, **options) as running:
        yield running
        assert not running.failures


@pytest.fixture(params=["embedded", *_VERSIONS])
def place(request: pytest.FixtureRequest, tools: KafkaTools, tmp_path: Path) -> Iterator[Place]:
    """Return each cluster in turn, with a topic for this test."""
    verb = request.node.callspec.params["verb"]
    topic = f"{verb.replace('.', '-').replace('_', '-')}-{request.param.replace('.', '-')}"
    if request.param == "embedded":
        cluster: Cluster = request.getfixturevalue("embedded")
        addresses = cluster.bootstrap_of("INSIDE"), cluster.bootstrap
        log_dirs: tuple[str, ...] = ("/tmp/kraft-combined-logs",)
        hold = partial(_without_a_broker, cluster)
    else:
        kafka: KafkaCluster = request.getfixturevalue("_kafka_named")(request.param)
        addresses = kafka.bootstrap, kafka.addresses("sasl")
        log_dirs = tuple(map(str, kafka.log_dirs(1)))
        hold = partial(_throttled, kafka.bootstrap)
    with Admin(addresses[0]) as running:
        running.topics.create(topic, partitions=2, replication_factor=1, timeout=60)
        yield Place(request.param, *addresses, running, tools, tmp_path, log_dirs, hold, topic)
        for name in running.topics.list():
            if name.startswith(topic):
                running.topics.delete(name)


@contextmanager
def _throttled(bootstrap: str, topic: str) -> Iterator[None]:
    """Let followers of a topic fetch a byte a second."""
    rate = "follower.replication.throttled.rate"
    with Admin(bootstrap) as admin:
        admin.configs.set({"follower.replication.throttled.replicas": "*"}, topic=topic)
        for node in (1, 2):
            admin.configs.set({rate: 1}, broker=node)
        yield
        for node in (1, 2):
            admin.configs.reset([rate], broker=node)


@contextmanager
def _without_a_broker(cluster: Cluster, topic: str) -> Iterator[None]:
    """Stop the broker that does not have the first partition of a topic."""
    node = 3 - (cluster.leader(topic, 0) or 0)
    cluster.stop(node)
    yield
    cluster.restart(node)


@pytest.fixture
def admin(kafka: KafkaCluster) -> Iterator[Admin]:
    with Admin(kafka.bootstrap) as running:
        yield running


@pytest.fixture
def topic(admin: Admin, request: pytest.FixtureRequest) -> Iterator[str]:
    name = request.node.originalname.removeprefix("test_").replace("_", "-")[:60]
    admin.topics.create(name, partitions=2, replication_factor=1, timeout=60)
    yield name
    if admin.topics.exists(name):
        admin.topics.delete(name)


def is_new(kafka: KafkaCluster) -> bool:
    return kafka.version == NEWEST


def tool(kafka: KafkaCluster, name: str, *arguments: str) -> str:
    """Return what one of Kafka's tools prints."""
    classes = {
        "topics": "org.apache.kafka.tools.TopicCommand" if is_new(kafka) else "kafka.admin.TopicCommand",
        "configs": "kafka.admin.ConfigCommand",
        "acls": "kafka.admin.AclCommand",
        "streams-groups": "org.apache.kafka.tools.streams.StreamsGroupCommand",
        "transactions": "org.apache.kafka.tools.TransactionsCommand",
    }
    if is_new(kafka):
        classes["acls"] = "org.apache.kafka.tools.AclCommand"
    return kafka.run(classes[name], ["--bootstrap-server", kafka.bootstrap, *arguments]).decode()


@pytest.mark.parametrize("verb", _VERBS)
def test_each_verb_does_what_kafkas_tools_print(place: Place, verb: str) -> None:
    """A verb without a live case fails here."""
    lacking = NOT_IN_4_3 if place.has_kraft else NOT_IN_2_8
    if verb in lacking:
        with pytest.raises(UnsupportedVersionError) as refused:
            CASES[verb](place)
        assert refused.value.remedy
    else:
        CASES[verb](place)


def test_no_case_is_of_a_verb_that_does_not_exist() -> None:
    assert CASES.keys() == set(_VERBS)


def test_configs(kafka: KafkaCluster, admin: Admin, topic: str) -> None:
    admin.configs.set({"retention.ms": 3_600_000, "segment.ms": 50_000}, topic=topic)
    admin.configs.append({"cleanup.policy": "compact"}, topic=topic)
    admin.configs.reset(["segment.ms"], topic=topic)
    # A broker learns of the changes one after the other: the last is the one to wait for.
    found = wait_for(lambda: admin.configs.get(topic=topic), lambda entries: entries["segment.ms"].is_default)
    assert (found["retention.ms"].value, found["retention.ms"].source) == ("3600000", "topic")
    assert found["cleanup.policy"].value == "delete,compact"
    printed = wait_for(
        lambda: tool(kafka, "configs", "--describe", "--entity-type", "topics", "--entity-name", topic),
        lambda text: "segment.ms" not in text,
    )
    assert "retention.ms=3600000" in printed
    node = min(admin.cluster.describe().brokers).id
    assert "log.dirs" in admin.configs.get(broker=node, documentation=True)
    admin.configs.set({"log.cleaner.backoff.ms": 16_000}, broker="")
    try:
        assert (
            wait_for(
                lambda: admin.configs.get(["log.cleaner.backoff.ms"], broker=node)["log.cleaner.backoff.ms"],
                lambda entry: entry.value == "16000",
            ).source
            == "cluster"
        )
    finally:
        admin.configs.reset(["log.cleaner.backoff.ms"], broker="")
    for logger in list(admin.configs.get(broker_logger=node))[:1]:  # there are none without log4j's configuration
        admin.configs.set({logger: "ERROR"}, broker_logger=node)
        assert admin.configs.get([logger], broker_logger=node)[logger].value == "ERROR"
    with pytest.raises(BrokerError) as caught:
        admin.configs.set({"retention.ms": "soon"}, topic=topic)
    assert caught.value.code == ErrorCode.INVALID_CONFIG if is_new(kafka) else ErrorCode.INVALID_REQUEST


def test_records_and_offsets(kafka: KafkaCluster, admin: Admin, topic: str) -> None:
    with Producer(kafka.bootstrap) as producer:
        for number in range(20):
            producer.send(topic, str(number).encode(), partition=number % 2).result(10)
    middle = datetime.now() + timedelta(milliseconds=5)
    ends = admin.offsets.list([topic], "latest")
    assert {key: one.offset for key, one in ends.items()} == {(topic, 0): 10, (topic, 1): 10}
    assert admin.records.delete({(topic, 0): 4})[topic, 0] == 4
    assert admin.offsets.list([(topic, 0)], "earliest")[topic, 0].offset == 4
    assert admin.records.delete_before(topic, middle).check() == {(topic, 0): 10, (topic, 1): 10}
    with pytest.raises(BrokerError) as caught:
        admin.records.delete({(topic, 0): 100})[topic, 0]
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_acls(kafka: KafkaCluster, admin: Admin) -> None:
    reading = Acl.allow("User:alice", "read").on(topic="orders-", prefix=True)
    denying = Acl.deny("User:bob", "write", host="10.0.0.1").on(topic="orders-1")
    cluster = Acl.allow("User:alice", "describe").on(cluster=True)
    assert admin.acls.add([reading, denying, cluster]).check() == dict.fromkeys([reading, denying, cluster])
    found = wait_for(lambda: admin.acls.find(), lambda acls: len(acls) == 3)
    assert set(found) == {reading, denying, cluster}
    # Each request may go to the other broker, and that one may learn of the rules later.
    for_one = AclFilter(resource="topic", name="orders-1", pattern="match")
    wait_for(lambda: set(admin.acls.find(for_one)), lambda acls: acls == {reading, denying})
    lines = [
        "resourceType=TOPIC, name=orders-, patternType=PREFIXED",
        "principal=User:bob, host=10.0.0.1, operation=WRITE, permissionType=DENY",
    ]
    wait_for(lambda: tool(kafka, "acls", "--list"), lambda printed: all(line in printed for line in lines))
    assert admin.acls.remove(denying) == [denying]
    assert set(admin.acls.remove([AclFilter(principal="User:alice")])) == {reading, cluster}
    wait_for(lambda: admin.acls.find(), lambda acls: not acls)


def test_a_refused_call_names_what_was_refused(kafka: KafkaCluster, admin: Admin, topic: str) -> None:
    rule = Acl.deny("User:alice", "alter_configs").on(topic=topic)
    admin.acls.add(rule)
    try:
        with Admin(kafka.addresses("sasl"), sasl=Sasl("PLAIN", "alice", USERS["alice"])) as alice:

            def refused() -> BrokerError | None:
                try:
                    alice.configs.set({"retention.ms": 5}, topic=topic)
                except BrokerError as error:
                    return error
                return None

            error = wait_for(refused, lambda found: found is not None)
            assert isinstance(error, AuthorizationError)
            assert error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert f"topic {topic}" in str(error)
    finally:
        admin.acls.remove(rule)


def test_transactions(kafka: KafkaCluster, admin: Admin, topic: str) -> None:
    if not is_new(kafka):
        with pytest.raises(UnsupportedVersionError):
            admin.transactions.list()
        return
    with Producer(kafka.bootstrap, transactional_id="admin-test") as producer:
        producer.begin()
        producer.send(topic, b"in doubt", partition=0).result(10)
        found = admin.transactions.describe("admin-test")
        assert (found.state, found.partitions) == ("Ongoing", ((topic, 0),))
        assert found.started_at is not None
        assert [one.id for one in admin.transactions.list(states=["Ongoing"])] == ["admin-test"]
        assert admin.transactions.list(older_than=timedelta(hours=1)) == []
        (active,) = admin.transactions.producers(topic, 0)
        assert (active.producer_id, active.transaction_start) == (found.producer_id, 0)
        assert admin.transactions.hanging(older_than=timedelta(0), topics=[topic]) == []
        admin.transactions.abort(active)
        consumer = Consumer(kafka.bootstrap, isolation="read_committed", on_no_offset="earliest")
        with consumer:
            consumer.assign([(topic, 0, "earliest")])
            assert consumer.end_offsets([(topic, 0)])[topic, 0] == 2
        planned = admin.transactions.terminate("admin-test", dry_run=True)
        assert planned == admin.transactions.describe("admin-test")
        before = admin.transactions.terminate("admin-test")
        assert (before.state, before.partitions) == ("Ongoing", ((topic, 0),))
        after = wait_for(lambda: admin.transactions.describe("admin-test"), lambda one: one.started_at is None)
        assert after.state in ("CompleteAbort", "Empty")
        assert "Ongoing" not in tool(kafka, "transactions", "list")
        with pytest.raises(BrokerError) as unknown:
            admin.transactions.terminate("never-used")
        assert unknown.value.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        with pytest.raises(FencedError):
            producer.commit(30)
        producer_id, epoch = admin.transactions.fence("admin-test")["admin-test"]
        assert (producer_id, epoch) > (found.producer_id, found.producer_epoch)
        producer.close(0)


def streams_heartbeat(admin: Admin, group: str, epoch: int, source: str, *, leave: bool = False) -> int:
    """Let a member of Kafka Streams live, or leave; return its epoch. kwire has no Streams client."""
    topology = StreamsGroupHeartbeatRequest.Topology(
        epoch=1,
        subtopologies=[
            StreamsGroupHeartbeatRequest.Topology.Subtopology(
                subtopology_id="0", source_topics=[source], source_topic_regex=[], state_changelog_topics=[],
                repartition_sink_topics=[], repartition_source_topics=[], copartition_groups=[],
            )
        ],
    )  # fmt: skip
    request = StreamsGroupHeartbeatRequest(
        group_id=group, member_id="member-1", member_epoch=-1 if leave else epoch, endpoint_information_epoch=0,
        rebalance_timeout_ms=60_000, topology=topology if not epoch else None, active_tasks=[] if not leave else None,
        standby_tasks=[] if not leave else None, warmup_tasks=[] if not leave else None, process_id="p",
        client_tags=[],
    )  # fmt: skip
    response = admin._runtime.request(ToCoordinator(group), StreamsGroupHeartbeatRequest, lambda version: request)
    assert not response.error_code, response.error_message
    return response.member_epoch


def test_a_group_of_kafka_streams(kafka: KafkaCluster, admin: Admin, topic: str) -> None:
    group = "streams-app"
    with pytest.raises(BrokerError) as unknown:
        admin.groups.describe(group)
    assert unknown.value.code == ErrorCode.GROUP_ID_NOT_FOUND
    if not is_new(kafka):
        return
    epoch = streams_heartbeat(admin, group, 0, topic)

    def lived() -> Group:
        """Return the group after one more heartbeat: only those have the coordinator assign tasks."""
        nonlocal epoch
        epoch = streams_heartbeat(admin, group, epoch, topic)
        return admin.groups.describe(group)

    found = wait_for(
        lived, lambda one: any(member.target_tasks and member.target_tasks.active for member in one.members)
    )
    assert (found.type, found.topology_epoch) == ("streams", 1)
    assert [(one.id, one.source_topics) for one in found.topology] == [("0", (topic,))]
    (member,) = found.members
    assert (member.id, member.topics, member.assignment) == ("member-1", (), ())
    assert member.target_tasks == StreamsTasks(active=(("0", 0), ("0", 1)))
    assert [one.id for one in admin.groups.list(types=["streams"])] == [group]
    assert group in tool(kafka, "streams-groups", "--list")
    assert "member-1" in tool(kafka, "streams-groups", "--describe", "--group", group, "--members")
    streams_heartbeat(admin, group, epoch, topic, leave=True)
    admin.groups.set_offsets(group, {(topic, 0): 0}).check()
    assert {key: one.offset for key, one in admin.groups.offsets(group).items()} == {(topic, 0): 0}
    assert admin.groups.lag(group).total == 0
    admin.groups.delete_offsets(group, [(topic, 0)]).check()
    assert admin.groups.offsets(group) == {}
    admin.groups.delete(group)
    assert admin.groups.list(types=["streams"]) == []


def test_the_cluster(kafka: KafkaCluster, admin: Admin) -> None:
    described = admin.cluster.describe()
    assert (len(described.brokers), described.controller is not None) == (2, True)
    assert wait_for(admin.cluster.explain, lambda found: not [one for one in found if "no leader" in one]) is not None
    if is_new(kafka):
        assert admin.cluster.features()["metadata.version"].level > 0
        quorum = admin.cluster.quorum()
        assert quorum.leader in {one.id for one in quorum.voters}
        admin.cluster.set_feature("share.version", 1, dry_run=True)
        admin.client_metrics.set(
            "etl", ["org.apache.kafka.consumer."], interval_ms=10_000, match={"client_id": "etl-.*"}
        )
        subscription = wait_for(lambda: admin.client_metrics.get("etl"), lambda one: one.interval_ms == 10_000)
        assert (subscription.metrics, subscription.match) == (("org.apache.kafka.consumer.",), {"client_id": "etl-.*"})
        wait_for(admin.client_metrics.list, lambda names: names == ["etl"])
        admin.client_metrics.delete("etl")
        with pytest.raises(BrokerError):
            admin.cluster.unregister_broker(99)
    else:
        with pytest.raises(UnsupportedVersionError):
            admin.cluster.quorum()


def test_a_wrong_password_is_a_typed_error(kafka: KafkaCluster) -> None:
    with (
        Admin(kafka.addresses("sasl"), sasl=Sasl("PLAIN", "alice", "wrong")) as admin,
        pytest.raises(AuthenticationError),
    ):
        admin.topics.list()
