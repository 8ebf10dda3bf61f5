"""The sticky assignment when members subscribe to different topics.

The result is balanced as well as subscriptions allow: no chain of members, each of which gives the next a partition,
leads from a member to one with two partitions fewer. Among such results it is one that moves little: partitions without
an owner move first, and in the end a partition that moved goes home if its owner can give another for it.

Kafka's general algorithm tries one partition after the other, without chains; it balances less and moves more. Here
whole topics are levelled, because only owners prefer some partitions of a topic to others: the fullest
member with a partition of the topic gives one to the emptiest subscriber, until they differ by one at most. Few chains
remain after that.

The second round of a cooperative rebalance moves nothing else: its partitions without an owner fit where the first
round meant them to be, and no assignment is more balanced than that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace

from kwire.consumer.assignors.assignor import TopicPartition, TopicRacks, uses_racks


def assign_general(
    topics: TopicRacks,
    subscribed: Mapping[str, Collection[str]],
    owned: Mapping[str, Sequence[TopicPartition]],
    racks: Mapping[str, str | None],
) -> dict[str, list[TopicPartition]]:
    """Return the partitions of each member, sorted.

    `subscribed` has the existing topics of all members, `owned` what each has had, only of these topics; each partition
    in it has one owner. `racks` is the rack of each member; it decides between members with equally many partitions.
    """
    general = _General(topics, subscribed, owned)
    known = {rack for rack in racks.values() if rack is not None}
    by_rack = uses_racks(known, (each for partitions in topics.values() for each in partitions))
    general.assign_unowned(racks if by_rack else {})
    general.level(settled=False)
    general.shift_in_chains(settled=False)
    # Each turn lowers the sum of the squares of the loads, or leaves it and brings a partition home: there is an end.
    while general.level(settled=True) or general.shift_in_chains(settled=True) or general.bring_home():
        pass
    return general.result()


class _Pile:
    """A member's partitions of one topic, by what a move would mean."""

    __slots__ = ("displaced", "settled", "unowned")

    def __init__(self) -> None:
        self.settled: list[int] = []  # the member is their owner
        self.unowned: list[int] = []
        self.displaced: list[int] = []  # another member is their owner

    def can_give(self, settled: bool) -> bool:
        return bool(self.unowned or self.displaced or (settled and self.settled))


class _General:
    """The state: who has what, and how many."""

    def __init__(
        self,
        topics: TopicRacks,
        subscribed: Mapping[str, Collection[str]],
        owned: Mapping[str, Sequence[TopicPartition]],
    ) -> None:
        self._topics = topics
        self._subscribed = subscribed
        self._owner = {partition: member for member, partitions in owned.items() for partition in partitions}
        self._load = dict.fromkeys(subscribed, 0)
        self._piles: dict[str, dict[str, _Pile]] = {member: {} for member in subscribed}
        self._subscribers: dict[str, list[str]] = {}
        for member in sorted(subscribed):
            for topic in subscribed[member]:
                self._subscribers.setdefault(topic, []).append(member)
        for partition in sorted(self._owner):
            self._put(partition, self._owner[partition])
        # Topics that few can have come first: those members have less to choose from.
        self._order = sorted(self._subscribers, key=lambda topic: (len(self._subscribers[topic]), topic))

    def result(self) -> dict[str, list[TopicPartition]]:
        return {
            member: sorted(
                (topic, index)
                for topic, pile in piles.items()
                for index in (*pile.settled, *pile.unowned, *pile.displaced)
            )
            for member, piles in self._piles.items()
        }

    def _put(self, partition: TopicPartition, member: str) -> None:
        topic, index = partition
        pile = self._piles[member].get(topic)
        if pile is None:
            pile = self._piles[member][topic] = _Pile()
        self._part_of(pile, partition, member).append(index)
        self._load[member] += 1

    def _part_of(self, pile: _Pile, partition: TopicPartition, member: str) -> list[int]:
        owner = self._owner.get(partition)
        return pile.unowned if owner is None else pile.settled if owner == member else pile.displaced

    def assign_unowned(self, racks: Mapping[str, str | None]) -> None:
        """Give each partition without an owner to the subscriber with the fewest, if equal to one in its racks."""
        for topic in self._order:
            unowned = [index for index in range(len(self._topics[topic])) if (topic, index) not in self._owner]
            if not unowned:
                continue
            emptiest: dict[str | None, list[tuple[int, str]]] = {}  # a heap for each rack
            for member in self._subscribers[topic]:
                emptiest.setdefault(racks.get(member), []).append((self._load[member], member))
            for heap in emptiest.values():
                heapify(heap)
            for index in unowned:
                least = min(heap[0][0] for heap in emptiest.values())
                equal = [(rack, heap) for rack, heap in emptiest.items() if heap[0][0] == least]
                near = [heap for rack, heap in equal if rack in self._topics[topic][index]]
                heap = min(near or [heap for _, heap in equal])
                member = heap[0][1]
                self._put((topic, index), member)
                heapreplace(heap, (self._load[member], member))

    def level(self, *, settled: bool) -> bool:
        """Level all topics until nothing is left to level; `settled`: move settled ones, too. Return if any moved."""
        moved = False
        waiting = dict.fromkeys(self._order)
        while waiting:
            topic = next(iter(waiting))
            del waiting[topic]
            changed = self._level_topic(topic, settled)
            moved = moved or bool(changed)
            for member in changed:
                waiting.update(dict.fromkeys(self._subscribed[member]))
        return moved

    def _level_topic(self, topic: str, settled: bool) -> set[str]:
        """Move partitions of a topic from the fullest to the emptiest. Return the members whose load changed."""
        load = self._load
        fullest = [
            (-load[member], member)
            for member in self._subscribers[topic]
            if (pile := self._piles[member].get(topic)) and pile.can_give(settled)
        ]
        changed: set[str] = set()
        if not fullest:
            return changed
        emptiest = [(load[member], member) for member in self._subscribers[topic]]
        heapify(fullest)
        heapify(emptiest)
        while fullest:
            giver, taker = fullest[0][1], emptiest[0][1]
            if load[giver] - load[taker] <= 1:
                break
            pile = self._piles[giver][topic]
            self._move(topic, self._choose(topic, pile, taker), giver, taker)
            changed |= {giver, taker}
            heapreplace(emptiest, (load[taker], taker))
            if pile.can_give(settled):
                heapreplace(fullest, (-load[giver], giver))
            else:
                heappop(fullest)
        return changed

    def shift_in_chains(self, *, settled: bool) -> bool:
        """Level in chains: a full member gives to one that gives to another, and so on. Return if any moved.

        `settled` as in `level`.
        """
        moved = False
        dead: tuple[set[str], set[str]] = set(), set()
        fullest = [(-load, member) for member, load in self._load.items()]
        heapify(fullest)
        while fullest:
            load, member = heappop(fullest)
            if -load != self._load[member]:
                continue  # a newer entry is there, too
            chain = self._chain(member, dead, settled)
            for giver, topic, taker in chain:
                self._move(topic, self._choose(topic, self._piles[giver][topic], taker), giver, taker)
            if chain:
                moved = True
                heappush(fullest, (-self._load[member], member))
                heappush(fullest, (-self._load[chain[0][2]], chain[0][2]))
        return moved

    def _chain(self, source: str, dead: tuple[set[str], set[str]], settled: bool) -> list[tuple[str, str, str]]:
        """Return (giver, topic, taker) from the end to `source`, which has two partitions more than the last taker.

        Without such a chain, return nothing and add the members and topics that were searched to `dead`: what they lead
        to is about as full as `source`, so that searches from members that are no fuller need not enter them.
        """
        dead_members, dead_topics = dead
        came_from: dict[str, tuple[str, str]] = {}
        seen = {source}
        topics: set[str] = set()
        givers = deque([source])
        while givers:
            giver = givers.popleft()
            for topic, pile in self._piles[giver].items():
                if topic in topics or topic in dead_topics or not pile.can_give(settled):
                    continue
                topics.add(topic)
                for taker in self._subscribers[topic]:
                    if taker in seen or taker in dead_members:
                        continue
                    seen.add(taker)
                    came_from[taker] = giver, topic
                    if self._load[source] - self._load[taker] <= 1:
                        givers.append(taker)
                        continue
                    chain = []
                    while taker != source:
                        giver, topic = came_from[taker]
                        chain.append((giver, topic, taker))
                        taker = giver
                    return chain
        dead_members |= seen
        dead_topics |= topics
        return []

    def _choose(self, topic: str, pile: _Pile, taker: str) -> int:
        """Return the partition whose move costs the least: one that comes home, else one that is not at home."""
        for index in pile.displaced:
            if self._owner[topic, index] == taker:
                return index
        return (pile.displaced or pile.unowned or pile.settled)[-1]

    def _move(self, topic: str, index: int, giver: str, taker: str) -> None:
        self._part_of(self._piles[giver][topic], (topic, index), giver).remove(index)
        self._load[giver] -= 1
        self._put((topic, index), taker)

    def bring_home(self) -> bool:
        """Let partitions that moved go back where that keeps the balance. Return if any did.

        Either the owner has fewer partitions than the member that got the partition, or it gives that member another
        one which is not its own.
        """
        came = False
        displaced = [
            (member, topic, index)
            for member, piles in self._piles.items()
            for topic, pile in piles.items()
            for index in pile.displaced
        ]
        for member, topic, index in displaced:
            owner = self._owner[topic, index]
            if index not in self._piles[member][topic].displaced:
                continue  # an earlier exchange brought it home
            if self._load[owner] >= self._load[member]:
                other = self._exchangeable(owner, member)
                if other is None:
                    continue
                self._move(*other, owner, member)
            self._move(topic, index, member, owner)
            came = True
        return came

    def _exchangeable(self, giver: str, taker: str) -> TopicPartition | None:
        """Return a partition that the giver does not own and the taker may have, best one that the taker owns."""
        found: TopicPartition | None = None
        for topic, pile in self._piles[giver].items():
            if topic in self._subscribed[taker]:
                for index in pile.displaced:
                    if self._owner[topic, index] == taker:
                        return topic, index
                if found is None and (pile.displaced or pile.unowned):
                    found = topic, (pile.displaced or pile.unowned)[-1]
        return found
