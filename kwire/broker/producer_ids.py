"""Producer ids: who is told apart from whom, cluster-wide.

Owns the next id, and the epoch's limits. Which transactional id has which producer id is known in `transactions`.
"""
from __future__ import annotations

from typing import NamedTuple

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
EPOCH_MAX = 2**15 - 1
# The highest epoch that a client is ever given: one more is the coordinator's own, to fence that client with.
LAST_EPOCH = EPOCH_MAX - 1


class Identity(NamedTuple):
    producer_id: int
    epoch: int


class ProducerIds:
    def __init__(self) -> None:
        self._next_id = 0

    def new(self) -> int:
        made = self._next_id
        self._next_id += 1
        return made
