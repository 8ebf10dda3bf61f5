"""What a client without a right raises, and what its order is when rights come and go."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kwire import Admin, Consumer, Producer, Sasl, aio
from kwire.admin import Acl
from kwire.broker import Cluster
from kwire.errors import AuthorizationError, KwireError
from kwire.producer import ProduceResponse
from tests.waiting import wait_until

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


# Each verb that needs a right, as alice: what is refused, and the operation.
VERBS: dict[str, tuple[Callable[[Admin], Any], str | None, str]] = {
    "topics.create": (lambda a: a.topics.create("new"), "topic new", "create"),
    "topics.delete": (lambda a: a.topics.delete(["t"]).check(), "topic t", "delete"),
    "topics.describe": (lambda a: a.topics.describe("t"), "topic t", "describe"),
    "topics.add_partitions": (lambda a: a.topics.add_partitions("t", 5), "topic t", "alter"),
    "configs.get": (lambda a: a.configs.get(topic="t"), "topic t", "describe_configs"),
    "configs.get of a broker": (lambda a: a.configs.get(broker=1), "cluster", "describe_configs"),
    "configs.set": (lambda a: a.configs.set({"retention.ms": 5}, topic="t"), "topic t", "alter_configs"),
    "configs.set of a broker": (
        lambda a: a.configs.set({"log.cleaner.threads": 2}, broker=1), "cluster", "alter_configs",
    ),
    "configs.resources": (lambda a: a.configs.resources(), "cluster", "describe_configs"),
    "records.delete": (lambda a: a.records.delete({("t", 0): 0}).check(), "topic t", "describe"),
    "offsets.list": (lambda a: a.offsets.list([("t", 0)], "latest"), "topic t", "describe"),
    "groups.describe": (lambda a: a.groups.describe("g"), "group g", "describe"),
    "groups.offsets": (lambda a: a.groups.offsets("g"), "group g", "describe"),
    "groups.set_offsets": (lambda a: a.groups.set_offsets("g", {("t", 0): 0}).check(), "group g", "describe"),
    "groups.delete": (lambda a: a.groups.delete(["g"]).check(), "group g", "describe"),
    "partitions.reassign": (lambda a: a.partitions.reassign({("t", 0): [1]}).check(), "cluster", "alter"),
    "partitions.reassignments": (lambda a: a.partitions.reassignments(), "cluster", "describe"),
    "partitions.elect": (lambda a: a.partitions.elect("preferred", [("t", 0)]).check(), "cluster", "alter"),
    "log_dirs.describe": (lambda a: a.log_dirs.describe(), "cluster", "describe"),
    "transactions.describe": (lambda a: a.transactions.describe("x"), None, "describe"),
    "transactions.producers": (lambda a: a.transactions.producers("t", 0), "topic t", "describe"),
    "transactions.fence": (lambda a: a.transactions.fence(["x"]).check(), None, "describe"),
    "acls.find": (lambda a: a.acls.find(), "cluster", "describe"),
    "acls.add": (lambda a: a.acls.add(Acl.allow("User:a", "read").on(topic="t")), "cluster", "alter"),
    "quotas.get": (lambda a: a.quotas.get(), "cluster", "describe_configs"),
    "quotas.set": (lambda a: a.quotas.set(user="a", producer_byte_rate=1.0), "cluster", "alter_configs"),
    "users.list": (lambda a: a.users.list(), "cluster", "describe"),
    "users.set_scram": (lambda a: a.users.set_scram("a", "b"), "cluster", "alter"),
    "tokens.create": (lambda a: a.tokens.create(owner="User:bob"), None, "create_tokens"),
    "cluster.set_feature": (lambda a: a.cluster.set_feature("group.version", 1), "cluster", "alter"),
    "cluster.quorum": (lambda a: a.cluster.quorum(), "cluster", "describe"),
    "cluster.unregister_broker": (lambda a: a.cluster.unregister_broker(9), "cluster", "alter"),
}  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_says_who_may_not_do_what_with_what(cluster: Cluster, verb: str) -> None:
    call, resource, operation = VERBS[verb]
    with Admin(cluster.bootstrap, sasl=EVE, request_timeout_ms=10_000) as alice:
        error = refusal(lambda: call(alice))
    assert (error.principal, error.operation) == ("User:alice", operation)
    assert error.resource == resource or (resource is None and error.resource)
    assert "as User:alice" in str(error)
    assert f"operation {operation}" in str(error)


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


def refusal(call: Callable[[], object]) -> AuthorizationError:
    with pytest.raises((KwireError, ExceptionGroup)) as caught:
        call()
    error: BaseException | None = caught.value
    while error is not None and not isinstance(error, AuthorizationError):
        error = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error.__cause__
    assert error is not None, repr(caught.value)
    return error


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
    """Each record is acknowledged once and in order, or refused and not in the log."""
    topic = f"order-{max_in_flight}"
    admin.topics.create(topic, partitions=1)
    admin.acls.add(Acl.allow("User:alice", "describe").on(topic=topic))
    writing = Acl.allow("User:alice", "write").on(topic=topic)
    sent: list[ProduceResponse] = []
    numbers = itertools.count()

    def send(producer: Producer) -> ProduceResponse:
        sent.append(producer.send(topic, str(next(numbers)).encode(), partition=0))
        return sent[-1]

    with Producer(cluster.bootstrap, sasl=EVE, max_in_flight=max_in_flight, linger_ms=0, batch_bytes=200) as producer:
        for _ in range(5):
            admin.acls.add(writing)
            wait_until(lambda: send(producer).exception(10) is None)
            burst = [send(producer) for _ in range(40)]  # in flight when the right goes
            admin.acls.remove(writing)
            wait_until(lambda: send(producer).exception(10) is not None)
            assert all(isinstance(one.exception(10), KwireError | None) for one in burst)
        assert producer.flush(10) is None
    acknowledged = [number for number, one in enumerate(sent) if one.exception(10) is None]
    refused = [one.exception(0) for one in sent if one.exception(0) is not None]
    assert [int(record.value or b"-1") for record in cluster.log(topic).records()] == acknowledged
    offsets = [sent[number].result(0).offset for number in acknowledged]
    assert offsets == list(range(len(acknowledged)))
    assert refused
    # Whoever may write to no topic at all gets no producer id either.
    assert {(error.principal, error.resource, error.operation) for error in map(authorization, refused)} <= {
        ("User:alice", f"topic {topic}", "write"), ("User:alice", "cluster", "idempotent_write"),
    }  # fmt: skip


def authorization(error: BaseException | None) -> AuthorizationError:
    while error is not None and not isinstance(error, AuthorizationError):
        error = error.__cause__
    assert error is not None
    return error
