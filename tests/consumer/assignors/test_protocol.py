"""Subscriptions and assignments as bytes: exact vectors of Kafka 4.4.0, all versions, and invalid bytes."""

from __future__ import annotations

import pytest

from kwire.consumer.assignors import (
    MemberAssignment,
    MemberSubscription,
    assignment_bytes,
    parse_assignment,
    parse_subscription,
    subscription_bytes,
)
from kwire.errors import DecodeError, EncodeError, UnsupportedVersionError

OWNING = MemberSubscription(("a",), owned=tuple(("a", number) for number in range(4)), generation=3)
SUBSCRIPTIONS = [
    (MemberSubscription(("a", "b")), "0003 00000002 0001 61 0001 62 ffffffff 00000000 ffffffff ffff"),
    (MemberSubscription(("a",), rack="r1"), "0003 00000001 0001 61 ffffffff 00000000 ffffffff 0002 7231"),
    (
        OWNING,
        "0003 00000001 0001 61 ffffffff 00000001 0001 61 00000004 00000000 00000001 00000002 00000003 00000003 ffff",
    ),
]
ASSIGNMENTS = [
    (
        MemberAssignment((("a", 0), ("a", 1), ("b", 0), ("b", 1))),
        "0003 00000002 0001 61 00000002 00000000 00000001 0001 62 00000002 00000000 00000001 ffffffff",
    ),
    (
        MemberAssignment((("a", 2), ("b", 2))),
        "0003 00000002 0001 61 00000001 00000002 0001 62 00000001 00000002 ffffffff",
    ),
]


@pytest.mark.parametrize(("subscription", "kafkas"), SUBSCRIPTIONS)
def test_subscription_bytes_are_kafkas(subscription: MemberSubscription, kafkas: str) -> None:
    data = bytes.fromhex(kafkas)
    assert subscription_bytes(subscription) == data
    assert parse_subscription(data) == subscription


@pytest.mark.parametrize(("assignment", "kafkas"), ASSIGNMENTS)
def test_assignment_bytes_are_kafkas(assignment: MemberAssignment, kafkas: str) -> None:
    data = bytes.fromhex(kafkas)
    assert assignment_bytes(assignment) == data
    assert parse_assignment(data) == assignment


def test_a_subscription_is_sorted() -> None:
    """The coordinator compares the bytes of a member that joins again."""
    mixed = MemberSubscription(("b", "a"), owned=(("b", 1), ("a", 2), ("b", 0)))
    parsed = parse_subscription(subscription_bytes(mixed))
    assert parsed.topics == ("a", "b")
    assert parsed.owned == (("a", 2), ("b", 0), ("b", 1))


@pytest.mark.parametrize("version", range(4))
def test_an_older_version_carries_less(version: int) -> None:
    whole = MemberSubscription(("a",), owned=(("a", 0),), generation=3, rack="r1", user_data=b"data")
    parsed = parse_subscription(subscription_bytes(whole, version))
    assert parsed == MemberSubscription(
        ("a",),
        owned=(("a", 0),) if version >= 1 else (),
        generation=3 if version >= 2 else -1,
        rack="r1" if version >= 3 else None,
        user_data=b"data",
    )
    assigned = MemberAssignment((("a", 0),), b"data")
    assert assignment_bytes(assigned, version)[:2] == version.to_bytes(2)
    assert parse_assignment(assignment_bytes(assigned, version)) == assigned


@pytest.mark.parametrize("version", [3, 4, 32767])
def test_what_follows_the_known_fields_is_ignored(version: int) -> None:
    assert parse_subscription(version.to_bytes(2) + subscription_bytes(OWNING)[2:] + b"more") == OWNING
    given = ASSIGNMENTS[0][0]
    assert parse_assignment(version.to_bytes(2) + assignment_bytes(given)[2:] + b"more") == given


def test_the_instance_id_comes_beside_the_bytes() -> None:
    assert parse_subscription(subscription_bytes(OWNING), "i1").instance_id == "i1"


def test_the_empty_assignment_of_a_coordinator() -> None:
    """A leader that leaves a member out makes the coordinator send it no bytes."""
    assert parse_assignment(b"") == MemberAssignment()


@pytest.mark.parametrize("end", range(46))
def test_a_subscription_that_is_cut(end: int) -> None:
    data = subscription_bytes(OWNING)[:end]
    with pytest.raises(DecodeError) as caught:
        parse_subscription(data)
    assert caught.value.where["api"] == "ConsumerProtocolSubscription"
    assert caught.value.where["offset"] <= end  # type: ignore[operator]


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ("ffff", "version"),
        ("0003 7fffffff", "topics"),  # a count that the bytes cannot hold costs no memory
        ("0003 00000000 7fffffff", "user_data"),
        ("0003 00000000 ffffffff 00000001 0001 61 7fffffff", "owned_partitions[0].partitions"),
        ("0003 00000001 0001 ff", "topics[0]"),  # not UTF-8
        ("0003 fffffffe", "topics"),
    ],
)
def test_invalid_subscriptions_name_the_field(data: str, field: str) -> None:
    with pytest.raises(DecodeError) as caught:
        parse_subscription(bytes.fromhex(data))
    assert caught.value.where["path"] == field


def test_a_negative_partition_is_no_assignment() -> None:
    with pytest.raises(DecodeError, match="partition of -1 of topic a"):
        parse_assignment(assignment_bytes(MemberAssignment((("a", -1),))))


def test_what_the_bytes_cannot_hold() -> None:
    with pytest.raises(EncodeError):
        subscription_bytes(MemberSubscription(("a" * 40_000,)))
    with pytest.raises(EncodeError):
        assignment_bytes(MemberAssignment((("a", 2**31),)))
    with pytest.raises(UnsupportedVersionError):
        subscription_bytes(OWNING, 4)
