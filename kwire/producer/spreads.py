"""Where batches without a key go: chosen when they are drained, knowing the leaders and which of them can take one.

    ShortestQueue  the partition with the shortest queue; equals take turns
    Sticky         one partition for a batch's worth of bytes, then the one with the shortest queue (KIP-794)
    SingleBroker   only partitions that one broker leads, and after some time another broker

A spread belongs to one producer and is the loop's: it touches no clock, and never waits for a dead leader. Those that
keep a partition or a broker do so for small batches too, so that few requests carry much.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from random import Random
from typing import Protocol

from kwire.cluster import Partition
from kwire.cluster.snapshot import NO_NODE


class Room(Protocol):
    """What a spread may ask about the partitions of a topic."""

    def can_take(self, partition: Partition) -> bool:
        """Whether a batch could be sent to the partition's leader right now; begins to connect where there is none."""
        ...

    def queued(self, partition: Partition) -> int:
        """How many batches wait for the partition."""
        ...

    def is_down(self, node: int) -> bool:
        """Whether the last connection to a broker failed, and no newer one is ready."""
        ...


class Spread(Protocol):
    def choose(
        self, topic: str, partitions: Sequence[Partition], room: Room, size_bytes: int, now: float
    ) -> Partition | None:
        """The partition for a topic's next batch; None while none can take it."""
        ...

    def forget(self, topic: str) -> None:
        """Drop what is remembered of a topic that has no batches."""
        ...


class ShortestQueue:
    """Evens out what partitions hold; so a slow broker gets less. Among equals by turns, by whole batches."""

    def __init__(self) -> None:
        self._turns: dict[str, int] = {}

    def choose(
        self, topic: str, partitions: Sequence[Partition], room: Room, size_bytes: int, now: float
    ) -> Partition | None:
        best: Partition | None = None
        shortest = 0
        first = turn = self._turns.get(topic, 0) % max(1, len(partitions))
        for place in chain(range(first, len(partitions)), range(first)):
            queued = room.queued(partitions[place])
            if (best is None or queued < shortest) and room.can_take(partitions[place]):
                best, shortest, turn = partitions[place], queued, place + 1
                if not queued:
                    break
        self._turns[topic] = turn
        return best

    def forget(self, topic: str) -> None:
        self._turns.pop(topic, None)


class Sticky:
    """A partition is kept until `switch_bytes` went to it, also by batches that a short linger closed early.

    A partition that cannot take the next batch is left at once: staying would trade order that nobody asked for
    against delay.
    """

    def __init__(self, switch_bytes: int) -> None:
        self._switch_bytes = switch_bytes
        self._kept: dict[str, tuple[int, int]] = {}  # by topic: the partition, and the bytes that it was given
        self._next = ShortestQueue()

    def choose(
        self, topic: str, partitions: Sequence[Partition], room: Room, size_bytes: int, now: float
    ) -> Partition | None:
        index, given = self._kept.get(topic, (-1, 0))
        if 0 <= index < len(partitions) and given < self._switch_bytes and room.can_take(partitions[index]):
            chosen: Partition | None = partitions[index]
        else:
            chosen, given = self._next.choose(topic, partitions, room, size_bytes, now), 0
        if chosen is not None:
            self._kept[topic] = chosen.index, given + size_bytes
        return chosen

    def forget(self, topic: str) -> None:
        self._kept.pop(topic, None)
        self._next.forget(topic)


class SingleBroker:
    """All to one broker, so that a producer needs one connection (the producer-API proposal's wish).

    The broker is left after `switch_seconds`, at once when it fails, and for a topic of which it leads nothing: that
    topic goes to the next broker that leads some of it. A connection that is no longer used is closed after the
    client's idle_timeout_ms.
    """

    def __init__(self, random: Random, switch_seconds: float) -> None:
        self._random = random
        self._switch_seconds = switch_seconds
        self._node = NO_NODE
        self._until = 0.0
        self._turns = ShortestQueue()

    def choose(
        self, topic: str, partitions: Sequence[Partition], room: Room, size_bytes: int, now: float
    ) -> Partition | None:
        leaders = sorted({partition.leader for partition in partitions if partition.leader != NO_NODE})
        up = [node for node in leaders if not room.is_down(node)]
        if not up:
            return None
        if self._node == NO_NODE:  # by chance: many producers are often started at once
            self._node, self._until = self._random.choice(up), now + self._switch_seconds
        elif now >= self._until or room.is_down(self._node):
            self._node, self._until = _after(self._node, up), now + self._switch_seconds
        node = self._node if self._node in up else _after(self._node, up)
        led = [partition for partition in partitions if partition.leader == node]
        return self._turns.choose(topic, led, room, size_bytes, now)

    def forget(self, topic: str) -> None:
        self._turns.forget(topic)


def _after(node: int, ring: list[int]) -> int:
    """The next node in a ring of nodes, which are sorted."""
    return next((other for other in ring if other > node), ring[0])
