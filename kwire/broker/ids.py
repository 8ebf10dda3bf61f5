"""Ids that the cluster makes up: topic ids, member ids, producer ids.

Ids that the cluster makes up: topic ids and the random part of member ids.

Owns where their randomness comes from: a generator that is handed in, so that a seed repeats a run. Topic ids are
`uuid.UUID`, as on the wire; Kafka's two reserved ones are never made.

Producer ids: who is told apart from whom, cluster-wide.

Owns the next id, and the epoch's limits. Which transactional id has which producer id is known in `transactions`.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple
from uuid import UUID

NO_ID = UUID(int=0)
_METADATA_TOPIC_ID = UUID(int=1)


def make_uuid(random: Random) -> UUID:
    """A version 4 UUID."""
    made = UUID(int=random.getrandbits(128), version=4)
    assert made not in (NO_ID, _METADATA_TOPIC_ID)
    return made


NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
EPOCH_MAX = 2**15 - 1
# The highest epoch that a client is ever given: one more is the coordinator's own, to fence that client with.
LAST_EPOCH = EPOCH_MAX - 1


class ProducerIdAndEpoch(NamedTuple):
    producer_id: int
    epoch: int


class ProducerIdManager:
    def __init__(self) -> None:
        self._next_id = 0

    def new(self) -> int:
        made = self._next_id
        self._next_id += 1
        return made
