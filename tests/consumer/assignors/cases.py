"""Random groups for the assignors, and the judgement of an assignment against Kafka's own and against the rules.

A case is what `AssignorOracle.java` reads. A history is a group that changes: members join and leave, subscriptions,
topics and racks change, members come back with claims of an older generation, or claim what another has. Each step's
owned partitions are the result of the step before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from kwire.consumer.assignors import (
    ASSIGNORS,
    MemberAssignment,
    MemberSubscription,
    assignment_bytes,
    parse_assignment,
    parse_subscription,
    subscription_bytes,
)
from kwire.consumer.assignors.sticky import Claim, assign_sticky, owners_of, without_transfers
from kwire.consumer.assignors.user_data import (
    cooperative_user_data,
    parse_cooperative_user_data,
    parse_sticky_user_data,
    sticky_user_data,
)

TopicPartition = tuple[str, int]
Assigned = Mapping[str, Collection[TopicPartition]]
RACKS = ("r1", "r2", "r3")
ROUNDS_MAX = 6


@dataclass
class Case:
    """A group at one moment, and the assignor to use."""

    assignor: str
    topics: dict[str, list[list[str]]]
    members: dict[str, MemberSubscription]

    def to_json(self) -> dict[str, Any]:
        return {
            "assignor": self.assignor,
            "topics": self.topics,
            "members": {
                member: {
                    "topics": [*subscription.topics],
                    "instance": subscription.instance_id,
                    "rack": subscription.rack,
                    "owned": [[*partition] for partition in subscription.owned],
                    "generation": subscription.generation,
                    "userData": None if subscription.user_data is None else subscription.user_data.hex(),
                }
                for member, subscription in self.members.items()
            },
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Case:
        members = {
            member: MemberSubscription(
                tuple(each["topics"]),
                owned=tuple((topic, index) for topic, index in each.get("owned", ())),
                generation=each.get("generation", -1),
                rack=each.get("rack"),
                user_data=None if each.get("userData") is None else bytes.fromhex(each["userData"]),
                instance_id=each.get("instance"),
            )
            for member, each in data["members"].items()
        }
        return cls(data["assignor"], data["topics"], members)

    @property
    def claims(self) -> dict[str, Claim]:
        if self.assignor == "sticky":
            return {member: parse_sticky_user_data(each.user_data) for member, each in self.members.items()}
        return {member: (each.owned, each.generation) for member, each in self.members.items()}

    @property
    def subscribed(self) -> dict[str, set[str]]:
        """The existing topics of each member."""
        return {
            member: {topic for topic in each.topics if self.topics.get(topic)} for member, each in self.members.items()
        }


class History:
    """A group that changes at random."""

    def __init__(self, random: Random, assignor: str) -> None:
        self._random = random
        self._assignor = assignor
        self._generation = 0
        self._alike = random.random() < 0.6  # all members subscribe to all topics
        self._has_racks = random.random() < 0.4
        self._topics: dict[str, list[list[str]]] = {}
        self._members: dict[str, MemberSubscription] = {}
        self._joined = 0
        equal = random.randint(0, 9)
        for number in range(random.randint(1, 8)):
            size = equal if random.random() < 0.4 else random.randint(0, 12)
            self._topics[f"t{number}"] = [self._replicas() for _ in range(size)]
        for _ in range(random.choice((1, 2, 3, random.randint(1, 12), random.randint(1, 30)))):
            self._join()

    def cases(self, steps: int) -> Iterator[Case]:
        for _ in range(steps):
            case = Case(
                self._assignor, {**self._topics}, {member: self._members[member] for member in self._shuffled()}
            )
            yield case
            self._take(assigned_by(case))
            for _ in range(self._random.choice((0, 1, 1, 1, 2, 5))):
                self._change()

    def _shuffled(self) -> list[str]:
        return self._random.sample(sorted(self._members), len(self._members))

    def _replicas(self) -> list[str]:
        return self._random.sample(RACKS, self._random.randint(1, 3)) if self._has_racks else []

    def _subscription(self) -> tuple[str, ...]:
        names = [*self._topics, "nowhere"]
        if self._alike:
            return tuple(names)
        return tuple(self._random.sample(names, self._random.randint(1, len(names))))

    def _join(self) -> None:
        self._joined += 1
        rack = self._random.choice((*RACKS, *RACKS, None)) if self._has_racks else None
        # Ids of different lengths and letters, so that the order of a HashMap is not that of the joins.
        member = f"{self._random.choice('bcdaz')}{self._joined}-{self._random.getrandbits(20):x}"
        instance = f"i{self._random.randint(0, 9)}{self._joined}" if self._random.random() < 0.2 else None
        user_data = cooperative_user_data(-1) if self._assignor == "cooperative-sticky" else None
        self._members[member] = MemberSubscription(
            self._subscription(), rack=rack, instance_id=instance, user_data=user_data
        )

    def _take(self, assigned: Assigned) -> None:
        """Let the members own what they were assigned."""
        self._generation += 1
        for member, partitions in assigned.items():
            if self._random.random() > 0.03:  # else it missed this assignment, and keeps the claims it has
                self._claim(member, partitions, self._generation)

    def _claim(self, member: str, partitions: Collection[TopicPartition], generation: int) -> None:
        old = self._members[member]
        owned: Sequence[TopicPartition] = ()
        user_data = None
        if self._assignor == "sticky":
            user_data = sticky_user_data(sorted(partitions), generation)
        elif self._assignor == "cooperative-sticky":
            owned, user_data = tuple(sorted(partitions)), cooperative_user_data(generation)
        else:
            generation = -1
        self._members[member] = MemberSubscription(old.topics, owned, generation, old.rack, user_data, old.instance_id)

    def _change(self) -> None:
        random = self._random
        kind = random.random()
        members = sorted(self._members)
        if kind < 0.3 or not members:
            self._join()
        elif kind < 0.6:
            if len(members) > 1:
                del self._members[random.choice(members)]
        elif kind < 0.7:
            topic = random.choice(sorted(self._topics))
            self._topics[topic] = [*self._topics[topic], *(self._replicas() for _ in range(random.randint(1, 4)))]
        elif kind < 0.75:
            self._topics[random.choice(sorted(self._topics))] = []
        elif kind < 0.85:
            member = random.choice(members)
            old = self._members[member]
            self._members[member] = MemberSubscription(
                self._subscription(), old.owned, old.generation, old.rack, old.user_data, old.instance_id
            )
        elif kind < 0.92:  # a member that was away: its claims are of an older generation
            member, other = random.choice(members), random.choice(members)
            self._claim(member, self._claims_of(other), max(self._generation - random.randint(0, 2), 0))
        else:  # two members claim the same
            member, other = random.choice(members), random.choice(members)
            self._claim(member, {*self._claims_of(member), *self._claims_of(other)}, self._generation)

    def _claims_of(self, member: str) -> Sequence[TopicPartition]:
        subscription = self._members[member]
        if self._assignor == "sticky":
            return parse_sticky_user_data(subscription.user_data)[0]
        return subscription.owned


def random_cases(seed: int, assignor: str, count: int) -> Iterator[Case]:
    """Return cases of histories of 1 to 30 steps; the same for the same seed."""
    random = Random(f"{seed} {assignor}")
    while count > 0:
        steps = min(random.randint(1, 30), count)
        yield from History(random, assignor).cases(steps)
        count -= steps


def assigned_by(case: Case) -> dict[str, Collection[TopicPartition]]:
    """Return our assignment."""
    return {
        member: given.partitions if isinstance(given, MemberAssignment) else list(given)
        for member, given in ASSIGNORS[case.assignor]().assign(case.topics, case.members).items()
    }


# What is compared with Kafka's.


@dataclass
class Tally:
    """What was judged: cases, by the way in which they were."""

    exact: int = 0
    by_rules: int = 0
    moved: int = 0
    moved_by_kafka: int = 0
    moved_one_more: int = 0  # cases in which ours moves one partition more than Kafka's
    failed_in_kafka: int = 0
    invalid_in_kafka: int = 0  # Kafka 4.4 may leave a partition with a member that no longer subscribes to its topic
    wrong: list[str] = field(default_factory=list)

    def judge(self, case: Case, kafkas: Mapping[str, Any]) -> None:
        """Compare an assignment and all bytes with Kafka's; note what is wrong."""
        if "error" in kafkas:  # as for claims of partitions that no longer exist
            self.failed_in_kafka += 1
            self.wrong += broken_rules(case)
            return
        kafka = {member: [(t, p) for t, p in given] for member, given in kafkas["assignment"].items()}
        self.wrong += wrong_bytes(case, kafkas, kafka)
        if case.assignor in ("range", "roundrobin"):
            self.exact += 1
            if difference(assigned_by(case), kafka):
                self.wrong.append(f"Kafka differs: {difference(assigned_by(case), kafka)}")
            return
        self.wrong += broken_rules(case)
        if is_determined(case):
            self.exact += 1
            ours = sticky_in_java_order(case)
            if difference(ours, kafka):
                self.wrong.append(f"Kafka differs: {difference(ours, kafka)}")
            return
        self.by_rules += 1
        if case.assignor == "sticky" and invalid(case, kafka):
            self.invalid_in_kafka += 1
        elif compares_moves(case):
            owners = owners_of(case.topics, case.subscribed, case.claims)
            moved, moved_by_kafka = moves(owners, assigned_by(case)), moves(owners, kafka)
            self.moved += moved
            self.moved_by_kafka += moved_by_kafka
            score, kafkas_score = load_score(assigned_by(case)), load_score(kafka)
            if score > kafkas_score:
                self.wrong.append(f"Kafka balances better: {kafkas_score}, here {score}")
            if score == kafkas_score and moved == moved_by_kafka + 1:
                self.moved_one_more += 1
            elif score == kafkas_score and moved > moved_by_kafka:
                self.wrong.append(f"{moved} partitions moved, with Kafka {moved_by_kafka}")


def difference(ours: Assigned, kafka: Assigned) -> str:
    """Return who has what only here or only there; "" if the assignments are equal."""
    parts = []
    for member in sorted({*ours, *kafka}):
        here, there = set(ours.get(member, ())), set(kafka.get(member, ()))
        if here != there:
            parts.append(f"{member}: only here {sorted(here - there)}, only there {sorted(there - here)}")
    return "; ".join(parts)


def wrong_bytes(case: Case, kafkas: Mapping[str, Any], assigned: Mapping[str, Sequence[TopicPartition]]) -> list[str]:
    wrong = []
    for member, subscription in case.members.items():
        theirs = bytes.fromhex(kafkas["subscriptionBytes"][member])
        read = parse_subscription(theirs, subscription.instance_id)
        if subscription_bytes(subscription) != theirs or subscription_bytes(read) != theirs:
            wrong.append(f"the subscription of {member} is {theirs.hex()} in Kafka")
        theirs = bytes.fromhex(kafkas["assignmentBytes"][member])
        given = MemberAssignment(tuple(assigned[member]))
        # Kafka's bytes have the partitions of a topic together.
        if assignment_bytes(given) != theirs or set(parse_assignment(theirs).partitions) != set(given.partitions):
            wrong.append(f"the assignment of {member} is {theirs.hex()} in Kafka")
        theirs_next = kafkas["nextUserData"][member]
        mine = ASSIGNORS[case.assignor]()
        mine.on_assignment(given, 7)
        ours_next = mine.user_data(subscription.topics)
        if case.assignor == "sticky":  # Kafka's order of topics is a HashMap's
            claim = parse_sticky_user_data(ours_next), parse_sticky_user_data(bytes.fromhex(theirs_next))
            if (set(claim[0][0]), claim[0][1], len(ours_next or b"")) != (
                set(claim[1][0]), claim[1][1], len(theirs_next) // 2,
            ):  # fmt: skip
                wrong.append(f"the user data of {member} is {theirs_next} in Kafka")
        elif (None if ours_next is None else ours_next.hex()) != theirs_next:
            wrong.append(f"the user data of {member} is {theirs_next} in Kafka")
        elif ours_next is not None and parse_cooperative_user_data(ours_next) != 7:
            wrong.append(f"the user data {theirs_next} is not read as generation 7")
    return wrong


def is_determined(case: Case) -> bool:
    """Whether Kafka's sticky result depends on nothing but the case: subscriptions are equal, claims not too strange.

    Kafka counts claims of partitions that do not exist, if the topic does. Where an older generation's claim is doubled
    and a newer one exists, Kafka's result depends on the order of a HashMap.
    """
    first = set(next(iter(case.members.values())).topics)
    if any(set(each.topics) != first for each in case.members.values()):
        return False
    claimed: dict[TopicPartition, list[int]] = {}
    for partitions, generation in case.claims.values():
        for topic, index in set(partitions):
            if case.topics.get(topic) and index >= len(case.topics[topic]):
                return False
            claimed.setdefault((topic, index), []).append(generation)
    return all(
        len(set(generations)) == len(generations) or generations.count(max(generations)) > 1
        for generations in claimed.values()
    )


def compares_moves(case: Case) -> bool:
    """Whether Kafka's general algorithm has the same claims to follow, and returns all that it assigned.

    With racks it moves some for their sake. Cooperative, the partitions that move are left out.
    """
    if racks_of(case) or case.assignor != "sticky":
        return False
    claimed = [partition for partitions, _ in case.claims.values() for partition in set(partitions)]
    return len(set(claimed)) == len(claimed)


def java_order(members: Collection[str]) -> list[str]:
    """Return the keys of a Java HashMap in its order, after they were added in this one."""
    size = 16
    while len(members) > size * 3 // 4:
        size *= 2
    buckets: dict[int, list[str]] = {}
    for member in members:
        code = 0
        for unit in memoryview(member.encode("utf-16-le")).cast("H"):
            code = (31 * code + unit) & 0xFFFFFFFF
        buckets.setdefault((code ^ code >> 16) & (size - 1), []).append(member)
    return [member for bucket in sorted(buckets) for member in buckets[bucket]]


def sticky_in_java_order(case: Case) -> Assigned:
    assigned = assign_sticky(case.topics, case.members, case.claims, order=java_order)
    return without_transfers(assigned, case.claims) if case.assignor == "cooperative-sticky" else assigned


# The rules of sticky assignments.


def load_score(assigned: Assigned) -> int:
    """Return the sum of the squares of the loads: lower is more balanced."""
    return sum(len(partitions) ** 2 for partitions in assigned.values())


def moves(owners: Mapping[TopicPartition, str], assigned: Assigned) -> int:
    """Return how many partitions their owner does not keep."""
    return sum(partition not in assigned[owner] for partition, owner in owners.items())


def broken_rules(case: Case) -> list[str]:
    """Return the rules that our sticky assignment of the case breaks."""
    claims, subscribed = case.claims, case.subscribed
    full = assign_sticky(case.topics, case.members, claims)
    owners = owners_of(case.topics, subscribed, claims)
    wrong = invalid(case, full) + unbalanced(subscribed, full)
    new_owner = {partition: member for member, partitions in full.items() for partition in partitions}
    crossing: dict[tuple[str, str, str], TopicPartition] = {}
    for partition, owner in owners.items():
        if new_owner[partition] != owner:
            crossing[partition[0], owner, new_owner[partition]] = partition
    wrong += [
        f"{crossing[topic, a, b]} went from {a} to {b}, {crossing[topic, b, a]} back"
        for topic, a, b in crossing
        if a < b and (topic, b, a) in crossing and not racks_of(case)
    ]
    again = assign_sticky(case.topics, case.members, {member: (full[member], 1) for member in full})
    if not racks_of(case) and difference(again, full):
        wrong.append(f"assigned again, there are moves: {difference(again, full)}")
    if case.assignor == "cooperative-sticky":
        wrong += broken_cooperation(case, full)
    return wrong


def racks_of(case: Case) -> set[str]:
    return {each.rack for each in case.members.values() if each.rack}


def invalid(case: Case, assigned: Assigned) -> list[str]:
    """Return which partitions are not with one subscriber."""
    given = [(partition, member) for member, partitions in assigned.items() for partition in partitions]
    wrong = [f"{topic}-{index} went to {m}" for (topic, index), m in given if topic not in case.members[m].topics]
    wanted = {
        (topic, index)
        for topics in case.subscribed.values()
        for topic in topics
        for index in range(len(case.topics[topic]))
    }
    if {partition for partition, _ in given} != wanted or len(given) != len(wanted):
        wrong.append(f"{len(given)} partitions of {len(wanted)} are assigned")
    return wrong


def unbalanced(subscribed: Mapping[str, Collection[str]], assigned: Assigned) -> list[str]:
    """Return the pairs of members in which one has two more than the other, which could take one of them."""
    if len(set(map(frozenset, subscribed.values()))) == 1:
        loads = {len(partitions) for partitions in assigned.values()}
        return [f"loads differ by more than one: {loads}"] if max(loads) - min(loads) > 1 else []
    return [
        f"{fuller} has {len(assigned[fuller])}, {emptier} has {len(assigned[emptier])} and could take {topic}"
        for emptier in assigned
        for fuller in assigned
        if len(assigned[emptier]) + 1 < len(assigned[fuller])
        for topic in sorted({topic for topic, _ in assigned[fuller]} & set(subscribed[emptier]))
    ]


def broken_cooperation(case: Case, full: Assigned) -> list[str]:
    """Return what is wrong with the two rounds of a cooperative rebalance."""
    first = assigned_by(case)
    wrong = []
    for member, partitions in first.items():
        for other, (claimed, generation) in case.claims.items():
            mine, newer = case.claims[member]
            for partition in set(partitions) & set(claimed) if other != member else ():
                if partition not in mine or newer <= generation:
                    wrong.append(f"{partition} went to {member} while {other} has it")
        if missing := set(partitions) - set(full[member]):
            wrong.append(f"{member} got {missing}, which the whole assignment does not have")
    if first == full:
        return wrong
    # The others join again with what they have now. With racks a member may have got a partition in another's rack,
    # which the next round corrects.
    held = {
        member: MemberSubscription(each.topics, tuple(first[member]), 99, each.rack, None, each.instance_id)
        for member, each in case.members.items()
    }
    following = Case(case.assignor, case.topics, held)
    second = assigned_by(following)
    if racks_of(case):
        return wrong if rounds_until_complete(following) <= ROUNDS_MAX else [*wrong, "the rebalance does not end"]
    wrong += invalid(case, second)
    wrong += [f"{member} loses in the second round" for member in first if set(first[member]) - set(second[member])]
    return wrong


def rounds_until_complete(case: Case) -> int:
    """Return after how many cooperative rounds nothing is left that waits for its owner; ROUNDS_MAX + 1 at most."""
    for rounds in range(1, ROUNDS_MAX + 1):
        assigned = assigned_by(case)
        if not invalid(case, assigned):
            return rounds
        members = {
            member: MemberSubscription(each.topics, tuple(assigned[member]), 99, each.rack)
            for member, each in case.members.items()
        }
        case = Case(case.assignor, case.topics, members)
    return ROUNDS_MAX + 1
