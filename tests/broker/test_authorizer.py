"""The rules of access: which of them count, and how Kafka's Admin and clients meet them on the embedded broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kwire import Admin, Consumer, Producer, Sasl
from kwire.admin import Acl as AdminAcl
from kwire.broker.authorizer import Access, Acl, AclFilter, Authorizer, Operation, PatternType, Permission, ResourceType
from kwire.errors import AuthorizationError, BrokerError, ErrorCode
from tests.broker.conftest import StartCluster

ALICE, HOST = "User:alice", "10.0.0.1"
USERS = {"admin": "admin's", "alice": "alice's"}


def rule(
    operation: Operation,
    name: str = "tea",
    *,
    permission: Permission = Permission.ALLOW,
    pattern: PatternType = PatternType.LITERAL,
    type: ResourceType = ResourceType.TOPIC,
    principal: str = ALICE,
    host: str = "*",
) -> Acl:
    return Acl(type, name, pattern, principal, host, operation, permission)


@pytest.fixture
def allowed() -> Callable[..., bool]:
    def check(*rules: Acl, operation: Operation = Operation.READ, topic: str = "tea", **options: object) -> bool:
        authorizer = Authorizer(is_enabled=True, **options)  # type: ignore[arg-type]
        for one in rules:
            authorizer.add(one)
        return Access(authorizer, ALICE, HOST).allows(operation, ResourceType.TOPIC, topic)

    return check


def test_nothing_is_allowed_without_a_rule(allowed: Callable[..., bool]) -> None:
    assert not allowed()
    assert allowed(allow_without_acl=True)
    assert not allowed(rule(Operation.READ, principal="User:bob"), allow_without_acl=True)
    assert allowed(super_users="User:admin; User:alice")


@pytest.mark.parametrize(
    ("one", "is_allowed"),
    [
        (rule(Operation.READ), True),
        (rule(Operation.ALL), True),
        (rule(Operation.WRITE), False),
        (rule(Operation.READ, "*"), True),
        (rule(Operation.READ, "other"), False),
        (rule(Operation.READ, "t", pattern=PatternType.PREFIXED), True),
        (rule(Operation.READ, "teas", pattern=PatternType.PREFIXED), False),
        (rule(Operation.READ, principal="User:*"), True),
        (rule(Operation.READ, host=HOST), True),
        (rule(Operation.READ, host="10.0.0.2"), False),
        (rule(Operation.READ, type=ResourceType.GROUP), False),
    ],
)
def test_what_a_rule_covers(allowed: Callable[..., bool], one: Acl, is_allowed: bool) -> None:
    assert allowed(one) is is_allowed


@pytest.mark.parametrize(
    ("given", "wanted", "is_allowed"),
    [
        (Operation.READ, Operation.DESCRIBE, True),
        (Operation.WRITE, Operation.DESCRIBE, True),
        (Operation.DELETE, Operation.DESCRIBE, True),
        (Operation.ALTER, Operation.DESCRIBE, True),
        (Operation.CREATE, Operation.DESCRIBE, False),
        (Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS, True),
        (Operation.ALTER_CONFIGS, Operation.DESCRIBE, False),
        (Operation.DESCRIBE, Operation.READ, False),
    ],
)
def test_operations_that_others_imply(
    allowed: Callable[..., bool], given: Operation, wanted: Operation, is_allowed: bool
) -> None:
    assert allowed(rule(given), operation=wanted) is is_allowed


def test_a_rule_that_denies_wins(allowed: Callable[..., bool]) -> None:
    deny = Permission.DENY
    assert not allowed(rule(Operation.READ), rule(Operation.READ, "*", permission=deny))
    assert not allowed(rule(Operation.READ), rule(Operation.ALL, "t", permission=deny, pattern=PatternType.PREFIXED))
    # To deny reading does not deny describing, which other rules may imply.
    reading = rule(Operation.READ, permission=deny)
    assert allowed(rule(Operation.WRITE), reading, operation=Operation.DESCRIBE)


def test_writing_to_any_topic() -> None:
    authorizer = Authorizer(is_enabled=True)
    access = Access(authorizer, ALICE, HOST)
    assert not access.allows_any(Operation.WRITE, ResourceType.TOPIC)
    authorizer.add(rule(Operation.WRITE, "orders"))
    assert access.allows_any(Operation.WRITE, ResourceType.TOPIC)
    authorizer.add(rule(Operation.WRITE, "ord", permission=Permission.DENY, pattern=PatternType.PREFIXED))
    assert not access.allows_any(Operation.WRITE, ResourceType.TOPIC)


def test_what_a_filter_means() -> None:
    authorizer = Authorizer(is_enabled=True)
    rules = [
        rule(Operation.READ, "t"),
        rule(Operation.READ, "*"),
        rule(Operation.READ, "o", pattern=PatternType.PREFIXED),
    ]
    for one in rules:
        authorizer.add(one)

    def find(name: str | None, pattern: PatternType) -> list[str]:
        wanted = AclFilter(ResourceType.ANY, name, pattern, None, None, Operation.ANY, Permission.ANY)
        return [acl.name for acl in authorizer.find(wanted)]

    assert find("orders", PatternType.MATCH) == ["*", "o"]
    assert find("t", PatternType.MATCH) == ["t", "*"]
    assert find("o", PatternType.ANY) == ["o"]
    assert find("o", PatternType.LITERAL) == []
    assert find(None, PatternType.LITERAL) == ["t", "*"]


@pytest.mark.parametrize(
    "bad",
    [
        rule(Operation.READ, ""),
        rule(Operation.ANY),
        rule(Operation.READ, pattern=PatternType.MATCH),
        rule(Operation.READ, permission=Permission.ANY),
        rule(Operation.READ, principal="alice"),
        rule(Operation.READ, "not-the-cluster", type=ResourceType.CLUSTER),
        rule(Operation.READ, type=ResourceType.ANY),
    ],
)
def test_rules_that_kafka_refuses(bad: Acl) -> None:
    with pytest.raises(BrokerError) as caught:
        Authorizer(is_enabled=True).add(bad)
    assert caught.value.code == ErrorCode.INVALID_REQUEST


def test_without_an_authorizer_there_are_no_rules(start: StartCluster) -> None:
    cluster = start(1, topics={"t": 1})
    with Admin(cluster.bootstrap) as admin, pytest.raises(BrokerError) as caught:
        admin.acls.find()
    assert caught.value.code == ErrorCode.SECURITY_DISABLED
    assert caught.value.broker_message == "No Authorizer is configured on the broker"


def test_rights_are_taken_away_and_given_back_in_mid_stream(start: StartCluster) -> None:
    cluster = start(3, topics={"t": 1}, sasl=USERS, authorizer=True, super_users="User:admin")
    alice = Sasl("SCRAM-SHA-256", "alice", USERS["alice"])
    with (
        Admin(cluster.bootstrap, sasl=Sasl("PLAIN", "admin", USERS["admin"])) as admin,
        Producer(cluster.bootstrap, sasl=alice) as producer,
    ):
        right = AdminAcl.allow(ALICE, "all").on(topic="t")
        group = AdminAcl.allow(ALICE, "read").on(group="g")
        admin.acls.add([right, group])
        assert producer.send("t", b"1").result(10).offset == 0
        admin.acls.remove(right)
        with pytest.raises(AuthorizationError):
            producer.send("t", b"refused").result(10)
        admin.acls.add(right)
        assert producer.send("t", b"2").result(10).offset == 1
        with Consumer(cluster.bootstrap, group="g", sasl=alice, on_no_offset="earliest") as consumer:
            consumer.subscribe(["t"])
            values: list[bytes | None] = []
            while len(values) < 2:
                values += [record.value for record in consumer.poll(10)]
            assert values == [b"1", b"2"]
        with Consumer(cluster.bootstrap, group="other", sasl=alice) as consumer:
            consumer.subscribe(["t"])
            with pytest.raises(AuthorizationError, match="group other"):
                consumer.poll(10)
    assert [record.value for record in cluster.log("t").records()] == [b"1", b"2"]
