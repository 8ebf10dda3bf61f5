"""Sticky assignments of members with different subscriptions, and rules about racks and claims, in small groups."""

from __future__ import annotations

from collections.abc import Mapping

from kwire.consumer.assignors import MemberSubscription, RangeAssignor, TopicRacks
from kwire.consumer.assignors.constrained import assign_constrained
from kwire.consumer.assignors.general import assign_general
from tests.consumer.assignors.cases import TopicPartition, moves


def sizes(**topics: int) -> dict[str, list[tuple[()]]]:
    return {topic: [()] * size for topic, size in topics.items()}


def partitions(**topics: list[int]) -> list[TopicPartition]:
    return [(topic, index) for topic, indexes in topics.items() for index in indexes]


def owners(owned: Mapping[str, list[TopicPartition]]) -> dict[TopicPartition, str]:
    return {partition: member for member, had in owned.items() for partition in had}


def test_partitions_move_in_chains() -> None:
    """c1 cannot give to c3, but c2 can take from c1 and give to c3; Kafka's algorithm leaves 4, 3 and 2."""
    owned = {"c1": partitions(a=[0, 1, 2, 3]), "c2": partitions(b=[0, 1, 2]), "c3": partitions(b=[3, 4])}
    subscribed = {"c1": {"a"}, "c2": {"a", "b"}, "c3": {"b"}}
    assigned = assign_general(sizes(a=4, b=5), subscribed, owned, {})
    assert [len(assigned[member]) for member in assigned] == [3, 3, 3]
    assert moves(owners(owned), assigned) == 2


def test_new_partitions_move_rather_than_old_ones() -> None:
    """The greedy first step gives a new partition to the wrong member; no old one may move because of it."""
    owned = {"c1": [], "c2": partitions(a=[0, 1]), "c3": partitions(b=[0, 1])}
    subscribed = {"c1": {"a", "c"}, "c2": {"a", "c"}, "c3": {"b"}}
    assigned = assign_general(sizes(a=2, b=2, c=2), subscribed, owned, {})
    assert moves(owners(owned), assigned) == 0
    assert assigned["c1"] == partitions(c=[0, 1])


def test_a_partition_goes_home_in_exchange_for_a_new_one() -> None:
    owned = {"b": [], "z": partitions(t6=[1, 2, 3]), "a": partitions(t5=[0, 1], t6=[0])}
    subscribed = {"b": {"t0", "t5", "t6"}, "z": {"t0", "t3", "t5", "t6"}, "a": {"t0", "t5", "t6"}}
    assigned = assign_general(sizes(t0=1, t3=1, t5=2, t6=4), subscribed, owned, {})
    assert sorted(len(assigned[member]) for member in assigned) == [2, 3, 3]
    assert moves(owners(owned), assigned) == 1


def test_racks_decide_between_equals() -> None:
    topics: TopicRacks = {"a": [("r2",), ("r1",), ("r2",)], "b": [()]}
    subscribed = {"c1": {"a"}, "c2": {"a"}, "c3": {"a", "b"}}
    assigned = assign_general(topics, subscribed, {}, {"c1": "r1", "c2": "r2", "c3": None})
    assert assigned["c1"] == partitions(a=[1])
    assert ("a", 0) in assigned["c2"]
    assert {len(given) for given in assigned.values()} <= {1, 2}


def test_constrained_prefers_racks_but_not_to_balance() -> None:
    topics = {"a": [("r1",)] * 3 + [("r2",)]}
    assigned = assign_constrained(topics, {"c1": [], "c2": []}, {"c1": "r1", "c2": "r2"})
    assert assigned == {"c1": partitions(a=[0, 1]), "c2": partitions(a=[3, 2])}


def test_an_owner_in_another_rack_loses_its_partition() -> None:
    """As in Kafka: what a member owns without a replica in its rack goes to one that is near (KIP-881)."""
    topics = {"a": [("r1",), ("r2",)]}
    owned = {"c1": partitions(a=[1]), "c2": partitions(a=[0])}
    assert assign_constrained(topics, owned, {"c1": "r1", "c2": "r2"}) == {
        "c1": partitions(a=[0]),
        "c2": partitions(a=[1]),
    }


def test_racks_that_all_partitions_share_make_no_difference() -> None:
    members = {"c1": MemberSubscription(("a",), rack="elsewhere"), "c2": MemberSubscription(("a",), rack="r1")}
    assigned = RangeAssignor().assign({"a": [("r1", "r2")] * 4}, members)
    assert assigned == {"c1": partitions(a=[0, 1]), "c2": partitions(a=[2, 3])}
    some = RangeAssignor().assign({"a": [("r1", "r2")] * 3 + [("r2",)]}, members)
    assert some == {"c1": partitions(a=[2, 3]), "c2": partitions(a=[0, 1])}
