"""Unit tests of Kafka's assignors, under Kafka's names in Python's spelling.

From RangeAssignorTest, RoundRobinAssignorTest, AbstractStickyAssignorTest, StickyAssignorTest and
CooperativeStickyAssignorTest of Kafka 4. Left out: tests with one member or one topic, which the recorded cases have
by the hundred; the combinations of racks that make no difference; KIP-54's examples in prose, which only check the
rules that `broken_rules` checks for each random case; the time limits, which test_growth.py has; and tests of
subscriptions of version 0 to the cooperative assignor, which Kafka leaves out, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from random import Random

import pytest

from kwire.consumer.assignors import ASSIGNORS, MemberSubscription, parse_subscription, subscription_bytes
from kwire.consumer.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from kwire.consumer.assignors.user_data import StickyAssignorUserData, sticky_user_data
from tests.consumer.assignors.cases import Case, TopicPartition, assigned_by, broken_rules, unbalanced

GENERATION = 1


def shown(partitions: Collection[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{index}" for topic, index in sorted(partitions))


def placed(sizes: Mapping[str, int], replication: int = 0, racks: int = 1) -> dict[str, list[list[str]]]:
    """Topics whose partitions have replicas in successive racks: of partition 0 in rack 0, 1, ..."""
    topics: dict[str, list[list[str]]] = {}
    following = 0
    for topic, size in sizes.items():
        topics[topic] = [
            [f"rack{(following + index + replica) % racks}" for replica in range(replication)] for index in range(size)
        ]
        following += size
    return topics


def owning(assignor: str, topics: Sequence[str], partitions: Collection[TopicPartition] = ()) -> MemberSubscription:
    """A member that has had an assignment in GENERATION."""
    if assignor == "sticky":
        return MemberSubscription(topics, user_data=sticky_user_data([*partitions], GENERATION))
    return MemberSubscription(topics, tuple(partitions), GENERATION)


# RangeAssignorTest

SIX = {"t1": 6, "t2": 7, "t3": 2}
FIVE = {"t1": 5, "t2": 5, "t3": 5}
EVERY = ("t1", "t2", "t3")
RANGES: dict[str, list[tuple[dict[str, int], tuple[str, ...], int, int, str]]] = {
    "rack_aware_assignment_with_uniform_subscription": [
        (SIX, EVERY, 0, 1, "t1-0, t1-1, t2-0, t2-1, t2-2, t3-0; t1-2, t1-3, t2-3, t2-4, t3-1; t1-4, t1-5, t2-5, t2-6"),
        (SIX, EVERY, 1, 3, "t1-0, t1-3, t2-0, t2-3, t2-6; t1-1, t1-4, t2-1, t2-4, t3-0; t1-2, t1-5, t2-2, t2-5, t3-1"),
        (SIX, EVERY, 2, 3, "t1-0, t1-2, t2-0, t2-2, t2-3, t3-1; t1-1, t1-3, t2-1, t2-4, t3-0; t1-4, t1-5, t2-5, t2-6"),
        (SIX, EVERY, 3, 3, "t1-0, t1-1, t2-0, t2-1, t2-2, t3-0; t1-2, t1-3, t2-3, t2-4, t3-1; t1-4, t1-5, t2-5, t2-6"),
    ],
    "rack_aware_assignment_with_non_equal_subscription": [
        (SIX, ("t1", "t3"), 1, 3,
         "t1-0, t1-3, t2-0, t2-2, t2-3, t2-6; t1-1, t1-4, t2-1, t2-4, t2-5, t3-0; t1-2, t1-5, t3-1"),
        (SIX, ("t1", "t3"), 2, 3,
         "t1-0, t1-2, t2-0, t2-2, t2-3, t2-5, t3-1; t1-1, t1-3, t2-1, t2-4, t2-6, t3-0; t1-4, t1-5"),
    ],
    "rack_aware_assignment_with_uniform_partitions": [
        (FIVE, EVERY, number, 3,
         "t1-0, t1-1, t2-0, t2-1, t3-0, t3-1; t1-2, t1-3, t2-2, t2-3, t3-2, t3-3; t1-4, t2-4, t3-4")
        for number in (1, 2)
    ],
    "rack_aware_assignment_with_uniform_partitions_non_equal_subscription": [
        (FIVE, ("t1", "t3"), 1, 3,
         "t1-0, t1-1, t2-0, t2-1, t2-4, t3-0, t3-1; t1-2, t1-3, t2-2, t2-3, t3-2, t3-3; t1-4, t3-4"),
        (FIVE, ("t1", "t3"), 2, 3,
         "t1-2, t2-0, t2-1, t2-3, t3-2; t1-0, t1-3, t2-2, t2-4, t3-0, t3-3; t1-1, t1-4, t3-1, t3-4"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", RANGES)
def test_range(name: str) -> None:
    for sizes, topics_of_last, replication, racks, expected in RANGES[name]:
        members = {
            f"consumer{number}": MemberSubscription(topics, rack=f"rack{number}")
            for number, topics in enumerate((EVERY, EVERY, topics_of_last))
        }
        assigned = assigned_by(Case("range", placed(sizes, replication, racks), members))
        assert "; ".join(map(shown, assigned.values())) == expected, (name, replication)


def test_one_static_consumer_and_one_dynamic_consumer_two_topics_six_partitions() -> None:
    members = {
        "consumer-b": MemberSubscription(("topic1", "topic2"), instance_id="instance1"),
        "consumer-a": MemberSubscription(("topic1", "topic2")),
    }
    assigned = assigned_by(Case("range", placed({"topic1": 3, "topic2": 3}), members))
    assert shown(assigned["consumer-b"]) == "topic1-0, topic1-1, topic2-0, topic2-1"


def test_static_member_range_assignment_persistent_after_member_id_changes() -> None:
    racks = placed({"topic1": 5}, 2, 3)["topic1"]
    topics = {"topic1": racks, "topic2": racks}
    static = [MemberSubscription((*topics,), rack=f"rack{n}", instance_id=f"instance{n}") for n in range(3)]
    before = assigned_by(Case("range", topics, dict(zip(("c1", "c2", "c3"), static, strict=True))))
    assert [shown(partitions) for partitions in before.values()] == [
        "topic1-0, topic1-2, topic2-0, topic2-2",
        "topic1-1, topic1-3, topic2-1, topic2-3",
        "topic1-4, topic2-4",
    ]
    after = assigned_by(Case("range", topics, dict(zip(("c1", "c5", "c4"), static, strict=True))))
    assert [*after.values()] == [*before.values()]


# RoundRobinAssignorTest


def test_static_member_round_robin_assignment_persistent() -> None:
    topics = placed({"topic1": 5, "topic2": 4})
    static = {f"consumer{n}": MemberSubscription((*topics,), instance_id=f"instance{n}") for n in (1, 2, 3)}
    before = assigned_by(Case("roundrobin", topics, {**static, "consumer4": MemberSubscription((*topics,))}))
    assert shown(before["consumer1"]) == "topic1-0, topic1-4, topic2-3"
    assert shown(before["consumer4"]) == "topic1-3, topic2-2"
    after = assigned_by(Case("roundrobin", topics, {**static, "consumer5": MemberSubscription((*topics,))}))
    assert [*after.values()] == [*before.values()]


# AbstractStickyAssignorTest, for both assignors

both = pytest.mark.parametrize("assignor", ["sticky", "cooperative-sticky"])


@both
def test_add_remove_two_consumers_two_topics(assignor: str) -> None:
    topics = placed({"topic1": 3, "topic2": 4})
    names = (*topics,)
    first = assigned_by(Case(assignor, topics, {name: MemberSubscription(names) for name in ("c1", "c2")}))
    assert shown(first["c1"]) == "topic1-0, topic1-2, topic2-1, topic2-3"
    assert shown(first["c2"]) == "topic1-1, topic2-0, topic2-2"
    joined = {member: owning(assignor, names, first.get(member, ())) for member in ("c1", "c2", "c3", "c4")}
    second = assigned_by(Case(assignor, topics, joined))
    assert shown(second["c1"]) == "topic1-0, topic2-1"
    assert shown(second["c2"]) == "topic1-1, topic2-0"
    if assignor == "cooperative-sticky":  # what the others still have comes in the next round
        assert (second["c3"], second["c4"]) == ([], [])
        second = assigned_by(Case(assignor, topics, {m: owning(assignor, names, second[m]) for m in second}))
    assert shown(second["c3"]) == "topic1-2, topic2-3"
    assert shown(second["c4"]) == "topic2-2"
    third = assigned_by(Case(assignor, topics, {m: owning(assignor, names, second[m]) for m in ("c3", "c4")}))
    assert shown(third["c3"]) == "topic1-0, topic1-2, topic2-1, topic2-3"
    assert shown(third["c4"]) == "topic1-1, topic2-0, topic2-2"


@both
def test_poor_round_robin_assignment_scenario(assignor: str) -> None:
    topics = placed({"topic1": 2, "topic2": 1, "topic3": 2, "topic4": 1, "topic5": 2})
    some = ("topic1", "topic3", "topic5")
    members = {f"consumer{n}": MemberSubscription((*topics,) if n in (1, 4) else some) for n in (1, 2, 3, 4)}
    case = Case(assignor, topics, members)
    assert broken_rules(case) == []
    assert {len(partitions) for partitions in assigned_by(case).values()} == {2}


@both
def test_reassignment_after_one_consumer_leaves(assignor: str) -> None:
    topics = placed({f"topic{n:02}": n for n in range(1, 20)})
    subscribed = {f"consumer{n:02}": tuple(f"topic{m:02}" for m in range(1, n + 1)) for n in range(1, 20)}
    first = assigned_by(Case(assignor, topics, {m: MemberSubscription(names) for m, names in subscribed.items()}))
    assert unbalanced({member: set(names) for member, names in subscribed.items()}, first) == []
    left = {m: owning(assignor, names, first[m]) for m, names in subscribed.items() if m != "consumer10"}
    case = Case(assignor, topics, left)
    assert broken_rules(case) == []
    assert sum(len(set(first[m]) - set(assigned_by(case)[m])) for m in left) <= 1


@both
def test_add_remove_topic_two_consumers(assignor: str) -> None:
    one, two = placed({"topic": 3}), placed({"topic": 3, "topic2": 3})
    first = assigned_by(Case(assignor, one, {m: MemberSubscription(("topic",)) for m in ("c1", "c2")}))
    case = Case(assignor, two, {m: owning(assignor, (*two,), first[m]) for m in first})
    second = assigned_by(case)
    assert [len(second[m]) for m in second] == [3, 3]
    assert all(set(first[m]) <= set(second[m]) for m in first)
    only = {"topic2": two["topic2"]}
    third = assigned_by(Case(assignor, only, {m: owning(assignor, ("topic2",), second[m]) for m in second}))
    assert sorted(len(third[m]) for m in third) == [1, 2]
    assert all(set(third[m]) <= set(second[m]) for m in third)


@both
def test_reassignment_with_random_subscriptions_and_changes(assignor: str) -> None:
    random = Random(3)
    for _ in range(20):
        topics = placed({f"t{n}": random.randint(1, 10) for n in range(random.randint(10, 20))})
        pick = {
            f"c{n}": tuple(random.sample(sorted(topics), random.randint(1, 10))) for n in range(random.randint(10, 30))
        }
        fresh = Case(assignor, topics, {member: MemberSubscription(names) for member, names in pick.items()})
        assert broken_rules(fresh) == []
        had = assigned_by(fresh)
        for member in random.sample(sorted(pick), 5):
            pick[member] = tuple(random.sample(sorted(topics), random.randint(1, 10)))
        assert broken_rules(Case(assignor, topics, {m: owning(assignor, pick[m], had[m]) for m in pick})) == []


@both
def test_large_assignment_with_multiple_consumers_leaving_and_random_subscription(assignor: str) -> None:
    random = Random(4)
    topics = placed({f"t{n}": random.randint(1, 10) for n in range(40)})
    pick = {f"c{n}": tuple(random.sample(sorted(topics), random.randint(1, 20))) for n in range(100)}
    had = assigned_by(Case(assignor, topics, {member: MemberSubscription(names) for member, names in pick.items()}))
    stay = random.sample(sorted(pick), 50)
    assert broken_rules(Case(assignor, topics, {m: owning(assignor, pick[m], had[m]) for m in stay})) == []


@both
def test_reassigning_partitions_when_a_topic_is_deleted(assignor: str) -> None:
    """Kafka's testStickiness after deletion, testAssignmentUpdatedForDeletedTopic, testNoExceptionThrown...."""
    names = ("topic1", "topic2")
    members = {"c1": owning(assignor, names, [("topic1", 0), ("topic2", 0)])}
    assert shown(assigned_by(Case(assignor, placed({"topic1": 1}), members))["c1"]) == "topic1-0"
    assert assigned_by(Case(assignor, {}, members)) == {"c1": []}


@both
def test_reassignment_when_the_topic_has_fewer_partitions_than_claimed(assignor: str) -> None:
    """Here Kafka 4.4 fails with "No more unfilled consumers to be assigned": a topic made again was smaller."""
    members = {m: owning(assignor, ("t",), [("t", n + 4)]) for n, m in enumerate(("c1", "c2"))}
    assert assigned_by(Case(assignor, placed({"t": 2}), members)) == {"c1": [("t", 0)], "c2": [("t", 1)]}


@both
def test_assignment_with_conflicting_previous_generations(assignor: str) -> None:
    def member(partitions: Sequence[int], generation: int) -> MemberSubscription:
        owned = [("t", index) for index in partitions]
        if assignor == "sticky":
            return MemberSubscription(("t",), user_data=sticky_user_data(owned, generation))
        return MemberSubscription(("t",), tuple(owned), generation)

    members = {"c1": member([0, 1, 4], 1), "c2": member([0, 2, 3], 1), "c3": member([3, 4, 5], 2)}
    case = Case(assignor, placed({"t": 6}), members)
    assert broken_rules(case) == []
    assigned = assigned_by(case)
    # Both claim 0 in the same generation. 3 and 4 are c3's, of the newer one; it has to give one up.
    assert ("t", 1) in assigned["c1"]
    assert ("t", 2) in assigned["c2"]
    assert shown(assigned["c3"]) == "t-3, t-4"


@both
def test_owned_partitions_are_invalidated_for_consumer_with_stale_generation(assignor: str) -> None:
    topics = placed({"topic": 3, "topic2": 3})
    names = (*topics,)
    owned = [("topic", 0), ("topic2", 1), ("topic", 1)]
    newer = {"sticky": MemberSubscription(names, user_data=sticky_user_data(owned, 1))}
    stale = {"sticky": MemberSubscription(names, user_data=sticky_user_data(owned, 0))}
    members = {
        "c1": newer.get(assignor, MemberSubscription(names, tuple(owned), 1)),
        "c2": stale.get(assignor, MemberSubscription(names, tuple(owned), 0)),
    }
    assigned = assigned_by(Case(assignor, topics, members))
    assert set(assigned["c1"]) == set(owned)
    assert shown(assigned["c2"]) == "topic-2, topic2-0, topic2-2"


@both
@pytest.mark.parametrize("partitions", [3, 4])
def test_all_consumers_have_owned_partition_invalidated_when_claimed_in_same_generation(
    assignor: str, partitions: int
) -> None:
    members = {
        "c1": owning(assignor, ("topic",), [("topic", 0), ("topic", 1)]),
        "c2": owning(assignor, ("topic",), [("topic", 0), ("topic", 2)]),
        "c3": owning(assignor, ("topic",)),
    }
    assigned = assigned_by(Case(assignor, placed({"topic": partitions}), members))
    assert shown(assigned["c1"]) == ("topic-1" if partitions == 3 else "topic-1, topic-3")
    assert shown(assigned["c2"]) == "topic-2"
    # Cooperative: two have partition 0, so nobody gets it before both have given it up.
    assert shown(assigned["c3"]) == ("topic-0" if assignor == "sticky" else "")


# StickyAssignorTest


def test_assignment_with_multiple_generations1() -> None:
    """Schema of the user data before generations: v0 counts as older than any generation."""
    old = StickyAssignorUserData(
        previous_assignment=[StickyAssignorUserData.TopicAssignment(topic="t", partitions=[0, 1, 2])]
    ).encode(0)
    members = {
        "c1": MemberSubscription(("t",), user_data=old),
        "c2": MemberSubscription(("t",), user_data=sticky_user_data([("t", 0), ("t", 1)], 1)),
    }
    assigned = StickyAssignor().assign({"t": [()] * 4}, members)
    assert {member: shown(partitions) for member, partitions in assigned.items()} == {
        "c1": "t-2, t-3",
        "c2": "t-0, t-1",
    }


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x7f\xff\xff\xff", b"\x00\x00\x00\x01\x00\x01\xff\x00\x00\x00\x00"])
def test_user_data_that_cannot_be_read(data: bytes) -> None:
    members = {"c1": MemberSubscription(("t",), user_data=data), "c2": MemberSubscription(("t",))}
    assert StickyAssignor().assign({"t": [()] * 2}, members) == {"c1": [("t", 0)], "c2": [("t", 1)]}


# CooperativeStickyAssignorTest


def test_encode_and_decode_generation() -> None:
    assignor = CooperativeStickyAssignor()
    assert assignor.user_data(["topic"]) == b"\xff\xff\xff\xff"
    assert StickyAssignor().user_data(["topic"]) is None


def test_member_data_with_inconsistent_data() -> None:
    """Without a generation in the subscription, that of the user data counts for its partitions."""
    stale = MemberSubscription(("t",), (("t", 0),), user_data=(1).to_bytes(4))
    newer = MemberSubscription(("t",), (("t", 0), ("t", 1)), user_data=(2).to_bytes(4))
    assert CooperativeStickyAssignor().assign({"t": [()] * 2}, {"c1": stale, "c2": newer})["c2"] == [("t", 0)]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_assignor_with_old_version_subscriptions(version: int) -> None:
    """A member of version 1 has its generation in the user data only, and it survives the bytes."""
    members = {}
    for number, member in enumerate(("c1", "c2", "c3")):
        assignor = CooperativeStickyAssignor()
        from_join = MemberSubscription(
            ("t",), (("t", number),) if number < 2 else (), GENERATION, user_data=assignor.user_data(["t"])
        )
        members[member] = parse_subscription(subscription_bytes(from_join, version))
    assigned = ASSIGNORS["cooperative-sticky"]().assign({"t": [()] * 3}, members)
    assert assigned == {"c1": [("t", 0)], "c2": [("t", 1)], "c3": [("t", 2)]}
