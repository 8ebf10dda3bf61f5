"""The user data of the sticky assignors: what a member had, for assignors that cannot rely on the subscription for it.

    sticky              v1: the partitions of the last assignment, and its generation; v0 lacks the generation
    cooperative-sticky  the generation of the last assignment

Bytes that cannot be read mean that the member has nothing, as in Kafka: another client's mistake must not stop a group.
"""

import logging
from collections.abc import Sequence
from struct import Struct as Packer

from kwire.consumer.assignors.assignor import NO_GENERATION, TopicPartition, by_topic
from kwire.errors import DecodeError
from kwire.protocol.diagnose import decode_prefix
from kwire.protocol.fields import int32, string
from kwire.protocol.schema import Message, Struct, since

logger = logging.getLogger("kwire.consumer")

_GENERATION = Packer(">i")


class StickyAssignorUserData(Message, versions=(0, 1), flexible=None):
    """Kafka's STICKY_ASSIGNOR_USER_DATA. The bytes do not say which version they are."""

    class TopicAssignment(Struct):
        topic: string
        partitions: list[int32]

    previous_assignment: list[TopicAssignment]
    generation: int32 = since(1, default=-1)


def sticky_user_data(partitions: Sequence[TopicPartition], generation: int) -> bytes:
    """Return the user data v1 of a member of `sticky` after an assignment."""
    previous = [
        StickyAssignorUserData.TopicAssignment(topic=topic, partitions=indexes)
        for topic, indexes in by_topic(sorted(partitions))
    ]
    return StickyAssignorUserData(previous_assignment=previous, generation=generation).encode(1)


def parse_sticky_user_data(data: bytes | None) -> tuple[list[TopicPartition], int]:
    """Return what a member of `sticky` had and in which generation; nothing for no bytes and for invalid ones."""
    if not data:
        return [], NO_GENERATION
    for version in (1, 0):
        try:
            read: StickyAssignorUserData = decode_prefix(StickyAssignorUserData, data, version)[0]
        except DecodeError as error:
            logger.debug("user data of the sticky assignor is not v%d: %s", version, error)
            continue
        return [(entry.topic, index) for entry in read.previous_assignment for index in entry.partitions], (
            read.generation
        )
    logger.warning("a member's user data for the sticky assignor cannot be read: it counts as having no partition")
    return [], NO_GENERATION


def cooperative_user_data(generation: int) -> bytes:
    """Return the user data of a member of `cooperative-sticky`; the generation is -1 before the first assignment."""
    return _GENERATION.pack(generation)


def parse_cooperative_user_data(data: bytes | None) -> int:
    """Return the generation in which a member of `cooperative-sticky` had its partitions; -1 if it is not known."""
    if data is None or len(data) < _GENERATION.size:
        return NO_GENERATION
    generation: int = _GENERATION.unpack_from(data)[0]
    return generation
