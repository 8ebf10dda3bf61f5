"""What a client without a right raises, and its order when rights come and go: for embedded and for real brokers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest

from kwire import Admin, NewTopic, Producer, Sasl
from kwire.admin import Acl
from kwire.errors import AuthorizationError, KwireError, UnsupportedVersionError
from kwire.producer import ProduceResponse
from tests.waiting import wait_until

_ID = UUID(int=9)

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
    "offsets.list": (lambda a: a.offsets.list([("t", 0)], "latest").check(), "topic t", "describe"),
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
    "cluster.unregister_controller": (lambda a: a.cluster.unregister_controller(9), "cluster", "alter"),
    "cluster.add_voter": (lambda a: a.cluster.add_voter(9, _ID, {"CONTROLLER": ("h", 1)}), "cluster", "alter"),
    "cluster.remove_voter": (lambda a: a.cluster.remove_voter(9, _ID), "cluster", "alter"),
    "topics.create_many": (lambda a: a.topics.create_many([NewTopic("new")]).check(), "topic new", "create"),
    "topics.describe_many": (lambda a: a.topics.describe_many(["t"]).check(), "topic t", "describe"),
    "create_topics": (lambda a: a.create_topics([NewTopic("new")]), "topic new", "create"),
    "delete_topics": (lambda a: a.delete_topics(["t"]), "topic t", "delete"),
    "configs.append": (
        lambda a: a.configs.append({"cleanup.policy": "compact"}, topic="t"), "topic t", "alter_configs",
    ),
    "configs.subtract": (
        lambda a: a.configs.subtract({"cleanup.policy": "delete"}, topic="t"), "topic t", "alter_configs",
    ),
    "configs.reset": (lambda a: a.configs.reset(["retention.ms"], topic="t"), "topic t", "alter_configs"),
    "configs.set_many": (
        lambda a: a.configs.set_many({("topic", "t"): {"retention.ms": 5}}).check(), "topic t", "alter_configs",
    ),
    "client_metrics.get": (lambda a: a.client_metrics.get("m"), "cluster", "describe_configs"),
    "client_metrics.list": (lambda a: a.client_metrics.list(), "cluster", "describe_configs"),
    "client_metrics.set": (lambda a: a.client_metrics.set("m", ["*"]), "cluster", "alter_configs"),
    "client_metrics.delete": (lambda a: a.client_metrics.delete("m"), "cluster", "alter_configs"),
    "records.delete_before": (
        lambda a: a.records.delete_before("t", datetime.now()).check(), "topic t", "describe",
    ),
    "groups.describe_many": (lambda a: a.groups.describe_many(["g"]).check(), "group g", "describe"),
    "groups.lag": (lambda a: a.groups.lag("g"), "group g", "describe"),
    "groups.lag_many": (lambda a: a.groups.lag_many(["g"]).check(), "group g", "describe"),
    "groups.reset": (lambda a: a.groups.reset("g", "latest"), "group g", "describe"),
    "groups.delete_offsets": (lambda a: a.groups.delete_offsets("g", [("t", 0)]).check(), "group g", "describe"),
    "groups.remove_members": (lambda a: a.groups.remove_members("g", every=True).check(), "group g", "describe"),
    "partitions.cancel": (lambda a: a.partitions.cancel([("t", 0)]).check(), "cluster", "alter"),
    "log_dirs.move": (lambda a: a.log_dirs.move(1, {("t", 0): "/d"}).check(), "cluster", "alter"),
    "transactions.describe_many": (lambda a: a.transactions.describe_many(["x"]).check(), None, "describe"),
    "transactions.terminate": (lambda a: a.transactions.terminate("x"), None, "describe"),
    "transactions.hanging": (lambda a: a.transactions.hanging(topics=["t"]), "topic t", "describe"),
    "acls.remove": (lambda a: a.acls.remove(Acl.allow("User:a", "read").on(topic="t")), "cluster", "alter"),
    "users.delete_scram": (lambda a: a.users.delete_scram("a"), "cluster", "alter"),
}  # fmt: skip
# What brokers refuse to nobody: the verb's result has only what the caller may see, or is about the caller.
FOR_ALL = {
    "cluster.describe", "cluster.explain", "cluster.features", "cluster.metadata", "describe_cluster", "groups.list",
    "metadata", "tokens.expire", "tokens.list", "tokens.renew", "topics.exists", "topics.list", "transactions.list",
}  # fmt: skip
# A producer is found by `transactions.producers` first, which is refused.
BEHIND_ANOTHER = {"transactions.abort"}


def refusal(call: Callable[[], object]) -> AuthorizationError:
    """Return the AuthorizationError that a call raises, or that caused its error. UnsupportedVersionError is raised."""
    with pytest.raises((KwireError, ExceptionGroup)) as caught:
        call()
    if isinstance(caught.value, UnsupportedVersionError):
        raise caught.value
    error: BaseException | None = caught.value
    while error is not None and not isinstance(error, AuthorizationError):
        error = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error.__cause__
    assert error is not None, repr(caught.value)
    return error


def authorization(error: BaseException | None) -> AuthorizationError:
    while error is not None and not isinstance(error, AuthorizationError):
        error = error.__cause__
    assert error is not None
    return error


def send_while_rights_come_and_go(
    bootstrap: str, sasl: Sasl, admin: Admin, topic: str, max_in_flight: int
) -> list[ProduceResponse]:
    """Send numbers as alice, whose right to write is taken away five times; return the responses in order."""
    describing = Acl.allow("User:alice", "describe").on(topic=topic)
    admin.acls.add(describing)
    wait_until(lambda: describing in admin.acls.find())  # Kafka's brokers learn of it a moment later
    writing = Acl.allow("User:alice", "write").on(topic=topic)
    sent: list[ProduceResponse] = []
    numbers = itertools.count()

    def send(producer: Producer) -> ProduceResponse:
        sent.append(producer.send(topic, str(next(numbers)).encode(), partition=0))
        return sent[-1]

    with Producer(bootstrap, sasl=sasl, max_in_flight=max_in_flight, linger_ms=0, batch_bytes=200) as producer:
        for _ in range(5):
            admin.acls.add(writing)
            wait_until(lambda: send(producer).exception(30) is None)
            burst = [send(producer) for _ in range(40)]  # in flight when the right goes
            admin.acls.remove(writing)
            wait_until(lambda: send(producer).exception(30) is not None)
            assert all(isinstance(one.exception(30), KwireError | None) for one in burst)
        producer.flush(30)
    return sent


def check_order(sent: list[ProduceResponse], topic: str, stored: list[int], first: int = 0) -> None:
    """Each record was acknowledged once and in order, or refused and is not in the log. `stored` is read from it."""
    acknowledged = [number for number, one in enumerate(sent) if one.exception(0) is None]
    refused = [one.exception(0) for one in sent if one.exception(0) is not None]
    assert stored == acknowledged
    offsets = [sent[number].result(0).offset for number in acknowledged]
    assert offsets == list(range(first, first + len(acknowledged)))
    assert refused
    # Whoever may write to no topic at all gets no producer id either.
    assert {(error.principal, error.resource, error.operation) for error in map(authorization, refused)} <= {
        ("User:alice", f"topic {topic}", "write"), ("User:alice", "cluster", "idempotent_write"),
    }  # fmt: skip
