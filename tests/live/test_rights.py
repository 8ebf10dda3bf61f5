"""Rights on real brokers: what a refused call raises, and the order of records while rights come and go."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from brokers.cluster import NEWEST, KafkaCluster
from brokers.configuration import USERS

from kwire import Admin, Consumer, Sasl
from kwire.errors import UnsupportedVersionError
from tests.live.backends import create_topic
from tests.rights import VERBS, check_order, refusal, send_while_rights_come_and_go

ALICE = Sasl("SCRAM-SHA-256", "alice", USERS["alice"])


@pytest.fixture(scope="module", params=[NEWEST, "3.9.1"])
def kafka(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "delegation.token.secret.key": "not a secret",
    }
    with KafkaCluster(request.param, sasl=True, settings=settings) as cluster:
        create_topic(cluster.bootstrap, "t")
        yield cluster


@pytest.fixture
def admin(kafka: KafkaCluster) -> Iterator[Admin]:
    with Admin(kafka.bootstrap) as running:
        yield running


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_says_who_may_not_do_what_with_what(kafka: KafkaCluster, verb: str) -> None:
    call, resource, operation = VERBS[verb]
    with Admin(kafka.addresses("sasl"), sasl=ALICE) as alice:
        try:
            error = refusal(lambda: call(alice))
        except UnsupportedVersionError:
            pytest.skip("the broker lacks this verb")
    assert (error.principal, error.operation) == ("User:alice", operation)
    assert error.resource == resource or (resource is None and error.resource)


@pytest.mark.parametrize("max_in_flight", [1, 5])
def test_rights_that_come_and_go_leave_the_records_in_order(
    kafka: KafkaCluster, admin: Admin, max_in_flight: int
) -> None:
    topic = f"order-{max_in_flight}"
    admin.topics.create(topic, partitions=1)
    sent = send_while_rights_come_and_go(kafka.addresses("sasl"), ALICE, admin, topic, max_in_flight)
    stored: list[int] = []
    with Consumer(kafka.bootstrap) as consumer:
        end = consumer.end_offsets([(topic, 0)])[topic, 0]
        consumer.assign([(topic, 0, "earliest")])
        while consumer.position(topic, 0, 30) < end:
            stored += [int(record.value or b"-1") for record in consumer.poll(timeout=5)]
    check_order(sent, topic, stored)
