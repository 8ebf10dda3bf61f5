"""Which partition a record goes to.

Where batches without a key go: chosen when they are drained, knowing the leaders and which of them can take one.

    ShortestQueue  the partition with the shortest queue; equals take turns
    Sticky         one partition for a batch's worth of bytes, then the one with the shortest queue (KIP-794)
    SingleBroker   only partitions that one broker leads, and after some time another broker

A spread belongs to one producer and is the loop's: it touches no clock, and never waits for a dead leader. Those that
keep a partition or a broker do so for small batches too, so that few requests carry much.

Which partition a record goes to: by its key, by turns, by a caller's own rule; and the names of these choices.

A key hashes over all partitions, led or not: its partition must not depend on failures. The caller's thread hashes it,
in the accumulator; the loop thread does if the partitions were not known then. Records without a key wait in the
topic's undesignated queue; whole batches get a partition when they are drained, from an `UnkeyedPartitioner`.

    murmur2        by key as Java's clients do; no key: spread         (the default)
    crc32          by key as librdkafka does; no key: spread
    round_robin    every record to the next partition that has a leader, with or without a key
    sticky         murmur2, and records without a key stay on a partition for a batch's worth of bytes (KIP-794)
    single_broker  murmur2, and records without a key all go to one broker, another one every single_broker_switch_ms

`crc32+sticky` is the key's rule of one and the other's rule for records without. With `partitioner_ignore_keys` all
records are spread by batches as those without a key are (Java's partitioner.ignore.keys). A caller's own rule is any
callable of the shape `Partitioner`. The producer-API proposal asked for partitioners that see the leaders: all but the
hashes do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from random import Random
from typing import NamedTuple, Protocol

from kwire.cluster import Partition, Topic
from kwire.cluster.metadata import NO_NODE
from kwire.errors import ConfigurationError
from kwire.producer.accumulator import crc32_partition, murmur2_partition
from kwire.producer.message import Message


class PartitionAvailability(Protocol):
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


class UnkeyedPartitioner(Protocol):
    def choose(
        self, topic: str, partitions: Sequence[Partition], room: PartitionAvailability, size_bytes: int, now: float
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
        self, topic: str, partitions: Sequence[Partition], room: PartitionAvailability, size_bytes: int, now: float
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
        self, topic: str, partitions: Sequence[Partition], room: PartitionAvailability, size_bytes: int, now: float
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
        self, topic: str, partitions: Sequence[Partition], room: PartitionAvailability, size_bytes: int, now: float
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


__all__ = ["Partitioner", "Routing", "crc32_partition", "murmur2_partition", "own_rule", "routing"]

MakeSpread = Callable[
    [Random, int, float], UnkeyedPartitioner
]  # the producer's randomness, batch_bytes, single_broker's seconds


class Partitioner(Protocol):
    """A caller's own rule. It runs in `send`, on the thread that called it, never on the event loop.

    `message` has its key, value and headers as bytes; `topic` is the newest metadata: each of `topic.partitions` has
    its `index` and its `leader`, -1 while it has none. Answer an index, or None to leave the choice to murmur2 and the
    spread. What it raises, `send` raises. The first record of a topic waits in `send` for the topic's metadata.
    """

    def __call__(self, message: Message, topic: Topic, /) -> int | None: ...


class Routing(NamedTuple):
    """A choice by name. The accumulator has the hashes.

    `key_hash` "": keys count for nothing; None: records take turns, keys notwithstanding.
    """

    key_hash: str | None
    spread: MakeSpread


def _shortest_queue(random: Random, batch_bytes: int, switch_seconds: float) -> UnkeyedPartitioner:
    return ShortestQueue()


def _sticky(random: Random, batch_bytes: int, switch_seconds: float) -> UnkeyedPartitioner:
    return Sticky(batch_bytes)


def _single_broker(random: Random, batch_bytes: int, switch_seconds: float) -> UnkeyedPartitioner:
    return SingleBroker(random, switch_seconds)


_HASHES = ("murmur2", "crc32")
_SPREADS: dict[str, MakeSpread] = {"sticky": _sticky, "single_broker": _single_broker}


def routing(choice: str | Partitioner, *, ignore_keys: bool = False) -> Routing:
    """Return what happens to records that have no partition. ConfigurationError for a name that is none."""
    if not isinstance(choice, str):  # a caller's own rule was asked before; this is for where it returned None
        return Routing("" if ignore_keys else "murmur2", _shortest_queue)
    if choice == "round_robin":
        return Routing(None, _shortest_queue)
    hash_name, plus, spread_name = choice.partition("+")
    if not plus and hash_name in _SPREADS:
        hash_name, spread_name = "murmur2", hash_name
    if hash_name not in _HASHES or (spread_name not in _SPREADS and (plus or spread_name)):
        raise ConfigurationError(
            f"there is no partitioner {choice!r}",
            remedy=f"choose one of {', '.join((*_HASHES, 'round_robin', *_SPREADS))}, a pair such as crc32+sticky, "
            "or give a function of a message and a topic",
        )
    return Routing("" if ignore_keys else hash_name, _SPREADS.get(spread_name, _shortest_queue))


def own_rule(choice: str | Partitioner) -> Partitioner | None:
    """The caller's own rule, if the choice is one."""
    if isinstance(choice, str):
        return None
    if not callable(choice):
        raise ConfigurationError(
            f"partitioner is {type(choice).__name__}", remedy="give a name or a function of a message and a topic"
        )
    return choice
