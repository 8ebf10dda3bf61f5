"""The assignors of consumer groups: vectors of Kafka's tests, properties, and Kafka's own classes on random groups."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from uuid import UUID

import pytest
from brokers.jars import fetch_jars

from kwire.broker.assignors import ASSIGNORS, MemberSpec, Targets, range_assignor, uniform
from kwire.broker.current_assignment import NO_PARTITIONS, Partitions
from tests.java_program import JavaProgram

T1, T2, T3 = (UUID(int=number) for number in (11, 12, 13))

Members = dict[str, MemberSpec]


def spec(
    *topics: UUID, assigned: Mapping[UUID, Sequence[int]] | None = None, instance: str | None = None
) -> MemberSpec:
    return MemberSpec(frozenset(topics), parts(assigned or {}), instance)


def parts(by_topic: Mapping[UUID, Sequence[int]]) -> Partitions:
    return frozenset((topic, number) for topic, numbers in by_topic.items() for number in numbers)


# From Kafka's RangeAssignorTest.


def test_range_of_equal_subscriptions() -> None:
    members = {"A": spec(T1, T3), "B": spec(T1, T3)}
    assert range_assignor(members, {T1: 3, T3: 2}) == {
        "A": parts({T1: [0, 1], T3: [0]}),
        "B": parts({T1: [2], T3: [1]}),
    }


def test_range_of_different_subscriptions() -> None:
    members = {"A": spec(T1, T2), "B": spec(T3), "C": spec(T2, T3)}
    assert range_assignor(members, {T1: 3, T2: 3, T3: 2}) == {
        "A": parts({T1: [0, 1, 2], T2: [0, 1]}),
        "B": parts({T3: [0]}),
        "C": parts({T2: [2], T3: [1]}),
    }


def test_range_with_more_members_than_partitions() -> None:
    members = {name: spec(T1) for name in "ABC"}
    assert range_assignor(members, {T1: 2}) == {"A": parts({T1: [0]}), "B": parts({T1: [1]}), "C": NO_PARTITIONS}


def test_range_takes_static_members_first_in_the_order_of_their_instances() -> None:
    members = {"A": spec(T1, instance="z"), "B": spec(T1), "C": spec(T1, instance="a")}
    assert range_assignor(members, {T1: 3}) == {
        "C": parts({T1: [0]}),
        "A": parts({T1: [1]}),
        "B": parts({T1: [2]}),
    }


# From UniformHomogeneousAssignmentBuilderTest and UniformHeterogeneousAssignmentBuilderTest.


def test_uniform_keeps_a_balanced_assignment() -> None:
    members = {
        "A": spec(T1, T2, assigned={T1: [0, 1], T2: [0]}),
        "B": spec(T1, T2, assigned={T1: [2], T2: [1, 2]}),
    }
    assert uniform(members, {T1: 3, T2: 3}) == {id: member.assigned for id, member in members.items()}


def test_uniform_leaves_the_larger_quota_with_the_member_that_has_it() -> None:
    members = {"A": spec(T1, assigned={T1: [0]}), "B": spec(T1, assigned={T1: [1, 2]})}
    assert uniform(members, {T1: 3}) == {id: member.assigned for id, member in members.items()}


def test_uniform_moves_only_what_a_new_member_needs() -> None:
    members = {
        "A": spec(T1, T2, assigned={T1: [0, 2], T2: [0]}),
        "B": spec(T1, T2, assigned={T1: [1], T2: [1, 2]}),
        "C": spec(T1, T2),
    }
    targets = uniform(members, {T1: 3, T2: 3})
    assert [len(targets[id]) for id in "ABC"] == [2, 2, 2]
    assert targets["A"] < members["A"].assigned
    assert targets["B"] < members["B"].assigned


def test_uniform_takes_topics_away_that_a_member_no_longer_subscribes_to() -> None:
    members = {"A": spec(T2, assigned={T1: [0, 1], T2: [0]}), "B": spec(T2, assigned={T1: [2], T2: [1]})}
    targets = uniform(members, {T2: 2})
    assert targets == {"A": parts({T2: [0]}), "B": parts({T2: [1]})}


def test_uniform_of_different_subscriptions_balances_over_all_topics() -> None:
    members = {"A": spec(T3), "B": spec(T1, T2, T3), "C": spec(T1, T2)}
    targets = uniform(members, {T1: 3, T2: 3, T3: 2})
    assert targets["A"] == parts({T3: [0, 1]})
    assert sorted(len(targets[id]) for id in "BC") == [3, 3]


def test_uniform_of_different_subscriptions_moves_from_the_most_loaded_member() -> None:
    members = {"A": spec(T1, assigned={T1: [0, 1, 2, 3]}), "B": spec(T1, T2, assigned={T2: [0]})}
    targets = uniform(members, {T1: 4, T2: 1})
    assert (len(targets["A"]), len(targets["B"])) == (3, 2)
    assert targets["A"] < members["A"].assigned


@pytest.mark.parametrize("name", ASSIGNORS)
def test_nobody_and_nothing(name: str) -> None:
    assert ASSIGNORS[name]({}, {}) == {}
    assert ASSIGNORS[name]({"A": spec()}, {}) == {"A": NO_PARTITIONS}


# Random groups.


def random_group(random: Random) -> tuple[Members, dict[UUID, int]]:
    """Return members that had a target for other subscriptions or partitions, and the partitions of today."""
    topics = [UUID(int=100 + number) for number in range(random.randint(1, 5))]
    counts = {topic: random.randint(1, 8) for topic in topics}
    is_homogeneous = random.random() < 0.5
    common = frozenset(random.sample(topics, random.randint(1, len(topics))))
    names = [f"m{number}" for number in range(random.randint(1, 6))]
    before = ASSIGNORS["uniform"](
        {name: spec(*random.sample(topics, random.randint(1, len(topics)))) for name in names[: random.randint(0, 6)]},
        {topic: random.randint(1, count) for topic, count in counts.items()},
    ) if random.random() < 0.8 else {}  # fmt: skip
    members = {}
    for name in names:
        subscribed = common if is_homogeneous else frozenset(random.sample(topics, random.randint(1, len(topics))))
        instance = f"i{random.randint(0, 9)}{name}" if random.random() < 0.2 else None
        members[name] = MemberSpec(subscribed, before.get(name, NO_PARTITIONS), instance)
    return members, counts


def moved(members: Members, targets: Targets) -> int:
    """Return how many partitions a member loses although it subscribes to their topics."""
    return sum(
        part[0] in member.topics and part not in targets[id]
        for id, member in members.items()
        for part in member.assigned
    )


def unevenness(targets: Targets) -> int:
    return sum(len(assigned) ** 2 for assigned in targets.values())


def check_valid(members: Members, counts: Mapping[UUID, int], targets: Targets) -> None:
    """Check that each partition has one owner, who subscribes to its topic."""
    owners = Counter(part for assigned in targets.values() for part in assigned)
    subscribed = {topic for member in members.values() for topic in member.topics}
    assert owners == Counter((topic, number) for topic in subscribed for number in range(counts[topic]))
    assert all(part[0] in members[id].topics for id, assigned in targets.items() for part in assigned)


@pytest.mark.parametrize("name", ASSIGNORS)
def test_each_partition_has_one_owner_who_subscribes(name: str) -> None:
    random = Random(1)
    for _ in range(1000):
        members, counts = random_group(random)
        check_valid(members, counts, ASSIGNORS[name](members, counts))


def test_uniform_is_balanced_and_changes_nothing_the_second_time() -> None:
    random = Random(2)
    for _ in range(1000):
        members, counts = random_group(random)
        targets = uniform(members, counts)
        for topic in {topic for member in members.values() for topic in member.topics}:
            loads = {id: len(targets[id]) for id, member in members.items() if topic in member.topics}
            for id, load in loads.items():
                gives = any(part[0] == topic for part in targets[id])
                assert not gives or load - min(loads.values()) <= 1
        again = {id: MemberSpec(member.topics, targets[id], member.instance_id) for id, member in members.items()}
        assert uniform(again, counts) == targets


# Kafka's classes.


def kafka_id(id: UUID) -> str:
    return base64.urlsafe_b64encode(id.bytes).decode().rstrip("=")


@pytest.fixture(scope="module")
def oracle() -> Iterator[JavaProgram]:
    """Return Kafka 4.3.1's assignors in a Java program."""
    program = JavaProgram(fetch_jars("kafka", "4.3.1"), Path(__file__).with_name("AssignorOracle.java"))
    yield program
    program.close()


def ask(oracle: JavaProgram, name: str, groups: Sequence[tuple[Members, dict[UUID, int]]]) -> Iterator[Targets]:
    questions = [
        json.dumps({
            "assignor": name, "counts": {kafka_id(topic): count for topic, count in counts.items()},
            "members": {
                id: {
                    "topics": [kafka_id(topic) for topic in member.topics],
                    "assigned": [[kafka_id(topic), number] for topic, number in sorted(member.assigned)],
                    "instance": member.instance_id,
                }
                for id, member in members.items()
            },
        })
        for members, counts in groups
    ]  # fmt: skip
    for (_, counts), line in zip(groups, oracle.ask(questions), strict=True):
        ids = {kafka_id(topic): topic for topic in counts}
        yield {
            id: frozenset((ids[topic], number) for topic, number in assigned)
            for id, assigned in json.loads(line).items()
        }


def valid_before(members: Members, counts: Mapping[UUID, int]) -> Members:
    """Return members without partitions that no longer exist: Kafka's assignors never see such."""
    return {
        id: MemberSpec(
            member.topics, frozenset(part for part in member.assigned if part[1] < counts[part[0]]), member.instance_id
        )
        for id, member in members.items()
    }


@pytest.mark.live
def test_range_equals_kafkas(oracle: JavaProgram) -> None:
    random = Random(3)
    groups = [random_group(random) for _ in range(10_000)]
    for (members, counts), theirs in zip(groups, ask(oracle, "range", groups), strict=True):
        assert range_assignor(members, counts) == theirs


@pytest.mark.live
def test_uniform_is_as_even_as_kafkas_and_moves_no_more(oracle: JavaProgram) -> None:
    random = Random(4)
    groups = [random_group(random) for _ in range(10_000)]
    groups = [(valid_before(members, counts), counts) for members, counts in groups]
    moves, their_moves = 0, 0
    for (members, counts), theirs in zip(groups, ask(oracle, "uniform", groups), strict=True):
        ours = uniform(members, counts)
        check_valid(members, counts, theirs)
        if len({member.topics for member in members.values()}) == 1:
            assert unevenness(ours) == unevenness(theirs)
            assert moved(members, ours) <= moved(members, theirs)
        else:
            moves, their_moves = moves + unevenness(ours), their_moves + unevenness(theirs)
    assert moves <= their_moves * 1.001
