"""Quotas of clients: which limit counts, and how the brokers hold clients to it."""

from __future__ import annotations

import pytest

from kwire.broker.quotas import CLIENT_ID, IP, USER, ClientQuota, Entity, EntityFilter, Quotas, entity_of
from kwire.errors import BrokerError, ErrorCode
from kwire.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from kwire.protocol.messages.create_topics import CreateTopicsRequest
from kwire.protocol.messages.describe_client_quotas import DEFAULT, EXACT, SPECIFIED, DescribeClientQuotasRequest
from tests.broker.virtual_cluster import VirtualCluster


def entity(**parts: str | None) -> Entity:
    return entity_of([(name.replace("_", "-"), value) for name, value in parts.items()])


def quotas(*limits: tuple[Entity, float]) -> Quotas:
    made = Quotas(0)
    for who, rate in limits:
        made.alter(who, {"producer_byte_rate": rate}, validate_only=False)
    return made


def test_the_most_exact_limit_counts() -> None:
    """The order is that of Kafka's ClientQuotaManager."""
    order = [
        entity(user="alice", client_id="etl"),
        entity(user="alice", client_id=None),
        entity(user="alice"),
        entity(user=None, client_id="etl"),
        entity(user=None, client_id=None),
        entity(user=None),
        entity(client_id="etl"),
        entity(client_id=None),
    ]
    for first in range(len(order)):
        made = quotas(*((who, 1.0 + index) for index, who in enumerate(order) if index >= first))
        found = made.producer("User:alice", "etl")
        assert found is not None
        assert found.bytes_per_second == 1.0 + first
    assert quotas((entity(user="bob"), 5.0)).producer("User:alice", "etl") is None


def test_what_is_counted_together() -> None:
    made = quotas((entity(user=None), 5.0), (entity(client_id=None), 5.0))
    assert made.producer("User:alice", "a") is made.producer("User:alice", "b")
    assert made.producer("User:alice", "a") is not made.producer("User:bob", "a")


def test_a_client_waits_until_its_rate_is_the_limit_again() -> None:
    quota = ClientQuota(1_000)
    assert quota.record_ms(10_000, 0.0) == 0
    assert quota.record_ms(5_000, 0.0) == 5_000
    assert quota.record_ms(0, 11.0) == 0


@pytest.mark.parametrize(
    ("who", "key", "value"),
    [
        (entity(), "producer_byte_rate", 1.0),
        (entity(shoe="x"), "producer_byte_rate", 1.0),
        (entity(user=""), "producer_byte_rate", 1.0),
        (entity(user="a", ip="10.0.0.1"), "connection_creation_rate", 1.0),
        (entity(ip="10.0.0.1"), "producer_byte_rate", 1.0),
        (entity(user="a"), "connection_creation_rate", 1.0),
        (entity(user="a"), "colour", 1.0),
        (entity(user="a"), "producer_byte_rate", -1.0),
        (entity(user="a"), "consumer_byte_rate", 1.5),
        (entity(user="a"), "producer_byte_rate", 2.0**63),
        (entity(user="a"), "producer_byte_rate", float("inf")),
        (entity(ip="not an address"), "connection_creation_rate", 1.0),
    ],
)
def test_limits_that_kafka_refuses(who: Entity, key: str, value: float) -> None:
    with pytest.raises(BrokerError) as caught:
        Quotas(0).alter(who, {key: value}, validate_only=True)
    assert caught.value.code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("who", "key", "value"),
    [
        (entity(user="a"), "request_percentage", 1.5),
        (entity(user="a"), "controller_mutation_rate", 0.5),
        (entity(ip="::1"), "connection_creation_rate", 1.0),
        (entity(ip=None), "connection_creation_rate", 1.0),
    ],
)
def test_limits_that_kafka_takes(who: Entity, key: str, value: float) -> None:
    made = Quotas(0)
    made.alter(who, {key: value}, validate_only=False)
    assert made.has_limits


@pytest.mark.parametrize("repeated", ["an entity", "a limit"])
def test_a_limit_that_is_changed_twice_is_refused(repeated: str) -> None:
    cluster = VirtualCluster(1)
    ops = [AlterClientQuotasRequest.Entry.Op(key="producer_byte_rate", value=v, remove=False) for v in (1.0, 2.0)]
    named = [AlterClientQuotasRequest.Entry.Entity(entity_type=USER, entity_name="a")]
    changes = [[ops[0]], [ops[1]]] if repeated == "an entity" else [ops]
    entries = [AlterClientQuotasRequest.Entry(entity=named, ops=each) for each in changes]
    response = cluster.request(1, AlterClientQuotasRequest(entries=entries, validate_only=False))
    assert [entry.error_code for entry in response.entries] == [ErrorCode.INVALID_REQUEST]
    assert not cluster.state.quotas.has_limits


@pytest.mark.parametrize(
    ("components", "error"),
    [
        ([("user", EXACT, "a"), ("client-id", SPECIFIED, None)], 0),
        ([("user", DEFAULT, None)], 0),
        ([("colour", EXACT, "a")], ErrorCode.UNSUPPORTED_VERSION),
        ([("", EXACT, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", 9, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", DEFAULT, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", SPECIFIED, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, "a"), ("user", EXACT, "b")], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, "a"), ("ip", EXACT, "::1")], ErrorCode.INVALID_REQUEST),
    ],
)
def test_filters_are_checked(components: list[tuple[str, int, str | None]], error: int) -> None:
    listed = [
        DescribeClientQuotasRequest.Component(entity_type=kind, match_type=how, match=what)
        for kind, how, what in components
    ]
    response = VirtualCluster(1).request(1, DescribeClientQuotasRequest(components=listed, strict=False))
    assert (response.error_code, response.entries) == (error, None if error else [])


def test_what_a_filter_finds() -> None:
    made = quotas((entity(user="a", client_id="b"), 1.0), (entity(user="a"), 2.0), (entity(user=None), 3.0))

    def found(*filters: EntityFilter, strict: bool = False) -> list[float]:
        return [limits["producer_byte_rate"] for _, limits in made.find(list(filters), strict=strict)]

    assert found() == [1.0, 2.0, 3.0]
    assert found(EntityFilter(USER, "a")) == [1.0, 2.0]
    assert found(EntityFilter(USER, "a"), strict=True) == [2.0]
    assert found(EntityFilter(USER, None)) == [3.0]
    assert found(EntityFilter(USER, None, takes_all=True), EntityFilter(CLIENT_ID, None, takes_all=True)) == [1.0]
    assert found(EntityFilter(IP, None)) == []


def test_topics_are_created_no_faster_than_the_quota() -> None:
    cluster = VirtualCluster(1)
    part = AlterClientQuotasRequest.Entry.Entity(entity_type="client-id", entity_name="test")
    op = AlterClientQuotasRequest.Entry.Op(key="controller_mutation_rate", value=1.0, remove=False)
    entry = AlterClientQuotasRequest.Entry(entity=[part], ops=[op])
    response = cluster.request(1, AlterClientQuotasRequest(entries=[entry], validate_only=False))
    assert response.entries[0].error_code == 0

    def create(name: str, partitions: int, version: int | None = None) -> tuple[int, int]:
        topic = CreateTopicsRequest.Topic(name=name, num_partitions=partitions, replication_factor=1)
        response = cluster.request(1, CreateTopicsRequest(topics=[topic]), version)
        return response.topics[0].error_code, response.throttle_time_ms

    assert create("a", 15) == (0, 0), "one change may exceed the quota"
    assert create("b", 1) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, 5_000)
    assert create("c", 1, version=5) == (0, 0), "older versions do not know the error"
    cluster.advance(5.0)
    assert create("b", 1) == (0, 0)
