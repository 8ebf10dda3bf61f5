"""Ids that the cluster makes up: topic ids and the random part of member ids.

Owns where their randomness comes from: a generator that is handed in, so that a seed repeats a run. Topic ids are
`uuid.UUID`, as on the wire; Kafka's two reserved ones are never made.
"""
from __future__ import annotations

from random import Random
from uuid import UUID

NO_ID = UUID(int=0)
_METADATA_TOPIC_ID = UUID(int=1)


def make_uuid(random: Random) -> UUID:
    """A version 4 UUID."""
    made = UUID(int=random.getrandbits(128), version=4)
    assert made not in (NO_ID, _METADATA_TOPIC_ID)
    return made
