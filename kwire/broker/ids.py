"""Ids that the cluster allocates: topic ids, the random part of member ids, producer ids.

Random ids come from a generator that is passed in, so that a seed repeats a run.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple
from uuid import UUID

from kwire.protocol.json import uuid_text

NO_ID = UUID(int=0)
_METADATA_TOPIC_ID = UUID(int=1)


def make_uuid(random: Random) -> UUID:
    """Return a version 4 UUID that is not reserved, and whose text begins with no dash, as Kafka's Uuid.randomUuid.

    A command would take such a text for an option.
    """
    while uuid_text(made := UUID(int=random.getrandbits(128), version=4)).startswith("-"):
        pass
    assert made not in (NO_ID, _METADATA_TOPIC_ID)
    return made


NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
EPOCH_MAX = 2**15 - 1
# The highest epoch that a client gets. The coordinator fences that client with the next one.
LAST_EPOCH = EPOCH_MAX - 1


class ProducerIdAndEpoch(NamedTuple):
    producer_id: int
    epoch: int


class ProducerIdManager:
    """The next producer id of the cluster."""

    def __init__(self) -> None:
        self._next_id = 0

    @property
    def next_id(self) -> int:
        return self._next_id

    def skip_to(self, next_id: int) -> None:
        """Give out no id below this one."""
        self._next_id = next_id

    def new(self) -> int:
        """Return a producer id that nobody has."""
        made = self._next_id
        self._next_id += 1
        return made
