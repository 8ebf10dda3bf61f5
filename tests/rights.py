"""What a client without a right raises, and its order when rights come and go: for embedded and for real brokers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from kwire import Admin, Producer, Sasl
from kwire.admin import Acl
from kwire.errors import AuthorizationError, KwireError, UnsupportedVersionError
from kwire.producer import ProduceResponse
from tests.waiting import wait_until

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
    admin.acls.add(Acl.allow("User:alice", "describe").on(topic=topic))
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
