"""What a client without a right raises, and what its order is when rights come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from kwire import Admin, Consumer, Producer, Sasl, aio
from kwire.admin import Acl
from kwire.broker import Cluster
from kwire.errors import AuthorizationError, UnsupportedVersionError
from tests.admin.verbs import verbs_of
from tests.rights import BEHIND_ANOTHER, FOR_ALL, VERBS, check_order, refusal, send_while_rights_come_and_go

USERS = {"admin": "his", "alice": "hers"}
EVE = Sasl("SCRAM-SHA-256", "alice", "hers")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, topics={"t": 1}, sasl=USERS, authorizer=True, super_users="User:admin") as running:
        yield running
        assert not running.failures


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[Admin]:
    with Admin(cluster.bootstrap, sasl=Sasl("PLAIN", "admin", "his")) as running:
        yield running


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_says_who_may_not_do_what_with_what(cluster: Cluster, verb: str) -> None:
    call, resource, operation = VERBS[verb]
    with Admin(cluster.bootstrap, sasl=EVE, request_timeout_ms=10_000) as alice:
        try:
            error = refusal(lambda: call(alice))
        except UnsupportedVersionError:
            assert verb == "cluster.unregister_controller"  # of Kafka 4.4
            return
    assert (error.principal, error.operation) == ("User:alice", operation)
    assert error.resource == resource or (resource is None and error.resource)
    assert "as User:alice" in str(error)
    assert f"operation {operation}" in str(error)


def test_each_verb_of_the_admin_is_tried_without_rights(admin: Admin) -> None:
    tried = {verb.partition(" of ")[0] for verb in VERBS}
    assert not tried & FOR_ALL
    assert tried | FOR_ALL | BEHIND_ANOTHER == set(verbs_of(admin))


def test_asyncio_says_it_too(cluster: Cluster) -> None:
    async def main() -> None:
        async with aio.Admin(cluster.bootstrap, sasl=EVE) as alice:
            for call, resource, operation in (
                (alice.acls.find, "cluster", "describe"), (alice.log_dirs.describe, "cluster", "describe"),
            ):  # fmt: skip
                with pytest.raises(AuthorizationError) as caught:
                    await call()
                error = caught.value
                assert (error.principal, error.resource, error.operation) == ("User:alice", resource, operation)

    asyncio.run(main())


def test_clients_say_it_too(cluster: Cluster, admin: Admin) -> None:
    def produce() -> None:
        with Producer(cluster.bootstrap, sasl=EVE) as producer:
            producer.send("t", b"x").result(10)

    def join() -> None:
        with Consumer(cluster.bootstrap, group="g", sasl=EVE) as consumer:
            consumer.subscribe(["t"])
            consumer.poll(10)

    def transact() -> None:
        with Producer(cluster.bootstrap, sasl=EVE, transactional_id="x") as producer:
            producer.begin(10)

    def fetch() -> None:
        with Consumer(cluster.bootstrap, sasl=EVE) as consumer:
            consumer.assign([("t", 0, 0)])
            consumer.poll(10)

    named = [(one.principal, one.resource, one.operation) for one in map(refusal, (produce, join))]
    assert named == [("User:alice", "topic t", "describe"), ("User:alice", "group g", "describe")]
    assert refusal(transact).operation == "describe"
    rights = [Acl.allow("User:alice", "describe").on(topic="t"), Acl.allow("User:alice", "describe").on(group="g")]
    admin.acls.add(rights)
    try:
        named = [(one.principal, one.resource, one.operation) for one in map(refusal, (produce, join, fetch))]
    finally:
        for right in rights:
            admin.acls.remove(right)
    # Whoever may write to no topic at all gets no producer id.
    assert named == [
        ("User:alice", "cluster", "idempotent_write"),
        ("User:alice", "group g", "read"),
        ("User:alice", "topic t", "read"),
    ]


@pytest.mark.parametrize("max_in_flight", [1, 5])
def test_rights_that_come_and_go_leave_the_records_in_order(cluster: Cluster, admin: Admin, max_in_flight: int) -> None:
    topic = f"order-{max_in_flight}"
    admin.topics.create(topic, partitions=1)
    sent = send_while_rights_come_and_go(cluster.bootstrap, EVE, admin, topic, max_in_flight)
    check_order(sent, topic, [int(record.value or b"-1") for record in cluster.log(topic).records()])
