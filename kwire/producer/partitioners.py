"""Which partition a record goes to: by its key, by turns, by a caller's own rule; and the names of these choices.

A key hashes over all partitions, led or not: where it goes must not depend on failures. The thread that sends hashes
it, in the door; the loop's thread does where the partitions were not known then. Records without a key wait in their
topic's undesignated queue and are given a partition by whole batches, when they are drained; that is `spreads`.

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

from collections.abc import Callable
from random import Random
from typing import NamedTuple, Protocol

from kwire.cluster import Topic
from kwire.errors import ConfigurationError
from kwire.producer.message import Message
from kwire.producer.spreads import ShortestQueue, SingleBroker, Spread, Sticky
from kwire.wire.accel import crc32_partition, murmur2_partition

__all__ = ["Partitioner", "Routing", "crc32_partition", "murmur2_partition", "own_rule", "routing"]

MakeSpread = Callable[[Random, int, float], Spread]  # the producer's randomness, batch_bytes, single_broker's seconds


class Partitioner(Protocol):
    """A caller's own rule. It runs in `send`, on the thread that called it, never on the event loop.

    `message` has its key, value and headers as bytes; `topic` is the newest metadata: each of `topic.partitions` has
    its `index` and its `leader`, -1 while it has none. Answer an index, or None to leave the choice to murmur2 and the
    spread. What it raises, `send` raises. The first record of a topic waits in `send` for the topic's metadata.
    """

    def __call__(self, message: Message, topic: Topic, /) -> int | None: ...


class Routing(NamedTuple):
    """A choice by name. The door has the hashes.

    `key_hash` "": keys count for nothing; None: records take turns, keys notwithstanding.
    """

    key_hash: str | None
    spread: MakeSpread


def _shortest_queue(random: Random, batch_bytes: int, switch_seconds: float) -> Spread:
    return ShortestQueue()


def _sticky(random: Random, batch_bytes: int, switch_seconds: float) -> Spread:
    return Sticky(batch_bytes)


def _single_broker(random: Random, batch_bytes: int, switch_seconds: float) -> Spread:
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
