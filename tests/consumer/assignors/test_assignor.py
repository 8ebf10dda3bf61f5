"""The interface of assignors: lookup by name, the leader's checked call, topics with racks, growth."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from random import Random
from types import MappingProxyType
from typing import Any, ClassVar
from uuid import UUID

import pytest

from kwire.cluster import Broker, Partition, Snapshot, Topic
from kwire.consumer import Assignor, MemberAssignment, MemberSubscription, RebalanceProtocol, TopicRacks
from kwire.consumer.assignors import (
    ASSIGNORS,
    CooperativeStickyAssignor,
    RangeAssignor,
    StickyAssignor,
    common_protocol,
    group_assignment,
    make_assignor,
    make_assignors,
    subscribed_topics,
    topic_racks,
)
from kwire.errors import AssignorError, ConfigurationError
from tests.producer.growth import ROOT, Lines


class Fixed(Assignor):
    """Assign what a test says."""

    name = "fixed"

    def __init__(self, result: Mapping[str, Any]) -> None:
        self.result = result

    def assign(
        self, topics: TopicRacks, members: Mapping[str, MemberSubscription]
    ) -> Mapping[str, MemberAssignment | Iterable[tuple[str, int]]]:
        return self.result


class CooperativeOnly(RangeAssignor):
    name = "mine"
    protocols: ClassVar[Collection[RebalanceProtocol]] = (RebalanceProtocol.COOPERATIVE,)


TOPICS = {"a": [()] * 2}
MEMBERS = {"m1": MemberSubscription(("a",)), "m2": MemberSubscription(("a",)), "m3": MemberSubscription(("b",))}


@pytest.mark.parametrize("name", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_lookup_by_name(name: str) -> None:
    first, second = make_assignor(name), make_assignor(name)
    assert first.name == name
    assert first is not second  # it may keep state, so each consumer has its own
    assert type(first) is ASSIGNORS[name]


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("rang", "range"),
        ("Range", "range"),
        ("round-robin", "roundrobin"),
        ("cooperative_sticky", "cooperative-sticky"),
        ("org.apache.kafka.clients.consumer.CooperativeStickyAssignor", "cooperative-sticky"),
        ("StickyAssignor", "sticky"),
    ],
)
def test_an_unknown_name_has_a_near_miss(wrong: str, meant: str) -> None:
    with pytest.raises(ConfigurationError, match=f"did you mean '{meant}'"):
        make_assignor(wrong)


def test_an_unknown_name_without_a_near_miss() -> None:
    with pytest.raises(ConfigurationError, match="kwire has range, roundrobin, sticky, cooperative-sticky, or give"):
        make_assignor("xyz")
    with pytest.raises(ConfigurationError, match="uniform is an assignor of the broker"):
        make_assignor("uniform")


def test_classes_and_objects() -> None:
    mine = Fixed({})
    assert make_assignors([mine, CooperativeStickyAssignor])[0] is mine
    assert isinstance(make_assignor(CooperativeStickyAssignor), CooperativeStickyAssignor)
    assert [assignor.name for assignor in make_assignors("sticky")] == ["sticky"]


@pytest.mark.parametrize("wrong", [3, None, b"range", object, int])
def test_another_type_is_a_type_error(wrong: Any) -> None:
    with pytest.raises(TypeError, match="assignor"):
        make_assignor(wrong)
    with pytest.raises(TypeError, match="assignor"):
        make_assignors([wrong])


@pytest.mark.parametrize(
    ("choices", "reason"),
    [
        ([], "there is no assignor"),
        (["range", "range"], "range is listed twice"),
        (["range", CooperativeOnly], r"no rebalance protocol in common \(range: EAGER, mine: COOPERATIVE\)"),
    ],
)
def test_a_list_that_no_consumer_can_have(choices: Any, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        make_assignors(choices)


def test_an_assignor_has_a_name() -> None:
    class Nameless(RangeAssignor):
        name = ""

    with pytest.raises(ConfigurationError, match="Nameless has no name"):
        make_assignor(Nameless)


def test_members_are_cooperative_only_if_all_assignors_are() -> None:
    assert common_protocol(make_assignors(["cooperative-sticky"])) is RebalanceProtocol.COOPERATIVE
    assert common_protocol(make_assignors(["range", "cooperative-sticky"])) is RebalanceProtocol.EAGER
    assert common_protocol(make_assignors([CooperativeOnly, "cooperative-sticky"])) is RebalanceProtocol.COOPERATIVE


def test_the_leader_gets_an_assignment_for_each_member() -> None:
    given = {"m1": MemberAssignment((("a", 0),), b"data"), "m2": [("a", 1)]}
    assert group_assignment(Fixed(given), TOPICS, MEMBERS) == {
        "m1": MemberAssignment((("a", 0),), b"data"),
        "m2": MemberAssignment((("a", 1),)),
        "m3": MemberAssignment(),
    }


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ({"m9": [("a", 0)]}, "to 'm9', which is no member"),
        ({"m3": [("a", 0)]}, "a-0 to m3, which does not subscribe to a"),
        ({"m1": [("a", 2)]}, "a-2 to m1, which does not exist"),
        ({"m1": [("a", -1)]}, "a--1 to m1, which does not exist"),
        ({"m3": [("b", 0)]}, "b-0 to m3, which does not exist"),
        ({"m1": [("a", 0)], "m2": [("a", 0)]}, "a-0 to two members, m1 and m2"),
        ({"m1": [("a", 0), ("a", 0)]}, "a partition to m1 twice"),
        ({"m1": ["a"]}, "assigned 'a' to m1"),
        ({"m1": [("a", "0")]}, r"assigned \('a', '0'\) to m1"),
        ({"m1": 3}, "raised TypeError"),
        (None, "raised AttributeError"),
    ],
)
def test_what_no_group_may_have(result: Any, reason: str) -> None:
    with pytest.raises(AssignorError, match=f"the assignor fixed .*{reason}"):
        group_assignment(Fixed(result), TOPICS, MEMBERS)


def test_what_an_assignor_raises_is_the_cause() -> None:
    class Broken(RangeAssignor):
        def assign(self, topics: TopicRacks, members: Mapping[str, MemberSubscription]) -> Any:
            raise KeyError("rack")

    with pytest.raises(AssignorError, match="range raised KeyError: 'rack'") as caught:
        group_assignment(Broken(), TOPICS, MEMBERS)
    assert isinstance(caught.value.__cause__, KeyError)


def test_topics_with_the_racks_of_their_replicas() -> None:
    def partition(index: int, *replicas: int, offline: tuple[int, ...] = ()) -> Partition:
        return Partition(index, replicas[0], 0, replicas, replicas, offline, 0)

    snapshot = Snapshot(
        MappingProxyType({1: Broker(1, "h", 1, "r1"), 2: Broker(2, "h", 2, "r2"), 3: Broker(3, "h", 3)}),
        MappingProxyType(
            {
                "a": Topic("a", UUID(int=1), (partition(0, 1, 2), partition(1, 2, 3, offline=(2,))), False, 0),
                "b": Topic("b", UUID(int=2), (partition(0, 3, 9),), False, 0),
                "empty": Topic("empty", UUID(int=3), (), False, 3),
            }
        ),
    )
    assert topic_racks(snapshot, ["a", "b", "empty", "nowhere"]) == {"a": [{"r1", "r2"}, {"r2"}], "b": [set()]}
    assert subscribed_topics(MEMBERS) == {"a", "b"}


def test_the_user_data_is_that_of_the_last_assignment() -> None:
    sticky, cooperative = StickyAssignor(), CooperativeStickyAssignor()
    for assignor in (sticky, cooperative):
        assignor.on_assignment(MemberAssignment((("a", 0), ("a", 2), ("b", 1))), 7)
    kafkas = "00000002 0001 61 00000002 00000000 00000002 0001 62 00000001 00000001 00000007"
    assert sticky.user_data(["a", "b"]) == bytes.fromhex(kafkas)
    assert cooperative.user_data(["a", "b"]) == b"\x00\x00\x00\x07"
    assert RangeAssignor().user_data(["a"]) is None


# Growth: lines of code that run, which no clock disturbs. tools/assignors prints times.

GROWTH_MAX = 1.3


def lines_of(name: str, scale: int, subscriptions: int) -> int:
    """Of a rebalance after a tenth of the members has joined, with twenty partitions per member."""
    random = Random(1)
    topics = {f"t{number}": [()] * (2 * scale) for number in range(50)}
    kinds = [tuple(topics)] if subscriptions == 1 else [tuple(random.sample(sorted(topics), 15)) for _ in range(10)]
    subscribed = {f"m{random.getrandbits(40):x}": random.choice(kinds) for _ in range(5 * scale)}
    first = [*subscribed.items()][scale // 2 :]
    before = ASSIGNORS[name]().assign(topics, {member: MemberSubscription(names) for member, names in first})
    members = {
        member: MemberSubscription(names, tuple(before.get(member, ())), 1)  # type: ignore[arg-type]
        for member, names in subscribed.items()
    }
    with Lines((f"{ROOT}/kwire/consumer/assignors/",)) as lines:
        ASSIGNORS[name]().assign(topics, members)
    return lines.count


@pytest.mark.slow
@pytest.mark.parametrize("subscriptions", [1, 10])
@pytest.mark.parametrize("name", ["range", "roundrobin", "cooperative-sticky"])
def test_the_cost_of_a_partition_does_not_grow_with_the_group(name: str, subscriptions: int) -> None:
    assert lines_of(name, 40, subscriptions) < 4 * lines_of(name, 10, subscriptions) * GROWTH_MAX
