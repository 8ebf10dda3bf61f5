"""Partitioners: choose the partition of a record.

    murmur2        hash the key as Java's clients do; without a key: the shortest queue (the default)
    crc32          hash the key as librdkafka does; without a key: the shortest queue
    round_robin    each record to the next partition that has a leader, with or without a key
    sticky         murmur2; without a key: one partition for batch_bytes bytes, then another (KIP-794)
    single_broker  murmur2; without a key: partitions of one broker, of another one after single_broker_switch_ms

`crc32+sticky` combines the hash of one with the rule for records without a key of the other. With
`partitioner_ignore_keys` all records are treated as records without a key (Java's partitioner.ignore.keys). A caller's
own partitioner is any callable of the shape `Partitioner`. All partitioners but the hashes see the leaders, as the
producer-API proposal requires.

A key hashes over all partitions, with or without a leader, so that failures do not change its partition. The
accumulator hashes it on the caller's thread, or the loop's thread does if the partitions were not known then. Records
without a key wait in the topic's undesignated queue; an `UnkeyedPartitioner` chooses a partition for each whole batch
when it is drained, among the leaders that can take one.
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
    """What an `UnkeyedPartitioner` needs to know about the partitions of a topic."""

    def can_take(self, partition: Partition) -> bool:
        """Return whether a batch can be sent to the partition's leader now; opens a connection if it has none."""
        ...

    def queued(self, partition: Partition) -> int:
        """Return the number of batches in the partition's queue."""
        ...

    def is_down(self, node: int) -> bool:
        """Return whether the last connection to a broker failed and no newer one is ready."""
        ...


class UnkeyedPartitioner(Protocol):
    """Choose partitions for batches without a key. One per producer, for the loop's thread; it reads no clock."""

    def choose(
        self, topic: str, partitions: Sequence[Partition], room: PartitionAvailability, size_bytes: int, now: float
    ) -> Partition | None:
        """Return the partition for a topic's next batch; None while no partition can take it."""
        ...

    def forget(self, topic: str) -> None:
        """Drop the state of a topic that has no batches."""
        ...


class ShortestQueue:
    """Choose the shortest queue, so that a slow broker gets less; equal queues take turns."""

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
    """Keep a partition for `switch_bytes` bytes, so that small batches share few requests (KIP-794).

    Switch at once if the partition cannot take the next batch: records without a key need no order, so none waits.
    """

    def __init__(self, switch_bytes: int) -> None:
        self._switch_bytes = switch_bytes
        self._kept: dict[str, tuple[int, int]] = {}  # by topic: the partition, and the bytes sent to it
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
    """Keep one broker, so that a producer needs one connection (from the producer-API proposal).

    Switch after `switch_seconds`, and at once when the broker fails. A topic of which it leads no partition goes to the
    next broker that leads one. The old connection is closed after the client's idle_timeout_ms.
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
        if self._node == NO_NODE:  # random: many producers often start at once
            self._node, self._until = self._random.choice(up), now + self._switch_seconds
        elif now >= self._until or room.is_down(self._node):
            self._node, self._until = _after(self._node, up), now + self._switch_seconds
        node = self._node if self._node in up else _after(self._node, up)
        led = [partition for partition in partitions if partition.leader == node]
        return self._turns.choose(topic, led, room, size_bytes, now)

    def forget(self, topic: str) -> None:
        self._turns.forget(topic)


def _after(node: int, ring: list[int]) -> int:
    """Return the next node in a sorted ring of nodes."""
    return next((other for other in ring if other > node), ring[0])


__all__ = ["Partitioner", "Routing", "crc32_partition", "murmur2_partition", "own_rule", "routing"]

MakeSpread = Callable[
    [Random, int, float], UnkeyedPartitioner
]  # arguments: random, batch_bytes, single_broker_switch_ms in seconds


class Partitioner(Protocol):
    """The caller's own partitioner. Called in `send`, on the caller's thread.

    `message` has its key, value and headers as bytes; `topic` is the newest metadata: each of `topic.partitions` has
    its `index` and its `leader`, -1 while it has none. Return an index, or None to leave the choice to murmur2 and the
    shortest queue. `send` raises what it raises. The first record of a topic waits in `send` for the topic's metadata.
    """

    def __call__(self, message: Message, topic: Topic, /) -> int | None: ...


class Routing(NamedTuple):
    """A partitioner by name. The accumulator implements the hashes.

    `key_hash` "": ignore keys; None: round robin by record, with or without a key.
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
    """Return the routing of records without a partition. Raises ConfigurationError for an unknown name."""
    if not isinstance(choice, str):  # for records where the caller's own partitioner returned None
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
    """Return the caller's own partitioner, None for a name. Raises ConfigurationError for other types."""
    if isinstance(choice, str):
        return None
    if not callable(choice):
        raise ConfigurationError(
            f"partitioner is {type(choice).__name__}", remedy="give a name or a function of a message and a topic"
        )
    return choice
