"""The consumed side of a transaction: batches whose offsets are a part of it, and the consumer that has them.

A transaction must not commit if a rebalance has taken partitions of its batches away since: their new owner processes
the same records. After an abort the consumer must read them again. The model is GroupTransactSession of franz-go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

from kwire.arguments import is_int, wrong_type
from kwire.cluster import GroupMetadata
from kwire.cluster.metadata import is_topic_name
from kwire.errors import AbortableError
from kwire.producer.message import PARTITION_END

TopicPartition = tuple[str, int]

_OFFSET_END = 1 << 63  # of an int64


@runtime_checkable
class ConsumedBatch(Protocol):
    """A batch of a consumer, such as `Consumer.poll_batch` returns."""

    def next_offsets(self) -> Mapping[TopicPartition, int]:
        """Return the offsets of the records after the batch."""
        ...

    def is_owned(self) -> bool:
        """Return whether its consumer still has all of its partitions."""
        ...

    def rewind(self) -> None:
        """Have the consumer read the batch again, as far as it has the partitions."""
        ...


@runtime_checkable
class GroupSource(Protocol):
    """A consumer that knows its group and its member id."""

    def group_metadata(self) -> GroupMetadata: ...


class ConsumedBatches:
    """The batches of the open transaction."""

    def __init__(self) -> None:
        self._batches: list[ConsumedBatch] = []

    def add(self, batch: ConsumedBatch) -> None:
        self._batches.append(batch)

    def check(self) -> None:
        """Raise AbortableError if partitions of a batch were taken away."""
        for batch in self._batches:
            if not batch.is_owned():
                raise AbortableError(
                    "a rebalance took away partitions whose records are a part of this transaction",
                    remedy="abort it: their new owner processes these records",
                )

    def rewind(self) -> None:
        """Have the records read again after an abort. The first batch seeks last, so its offsets hold."""
        while self._batches:
            self._batches.pop().rewind()

    def clear(self) -> None:
        """Forget the batches after a commit."""
        self._batches.clear()


def positions_of(offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return a copy of the offsets. Raises TypeError or ValueError for what no request can carry."""
    positions = {}
    for key, offset in offsets.items():
        if not isinstance(key, tuple) or len(key) != 2 or not isinstance(key[0], str) or not is_int(key[1]):
            raise wrong_type("a key of offsets", key, "(topic, partition), a str and an int")
        topic, partition = key
        if not is_topic_name(topic) or not 0 <= partition < PARTITION_END:
            raise ValueError(f"a key of offsets is {key!r:.60}: give a topic's name and an int from 0 to 2**31 - 1")
        if not is_int(offset):
            raise wrong_type(f"the offset of {topic}-{partition}", offset, "the next offset to read, an int")
        if not 0 <= offset < _OFFSET_END:
            raise ValueError(f"the offset of {topic}-{partition} is {offset}: it must be from 0 to 2**63 - 1")
        positions[topic, int(partition)] = int(offset)
    return positions


def member_of(group: GroupMetadata | GroupSource | str) -> Callable[[], GroupMetadata]:
    """Return what to call for the member when the request is sent. Raises TypeError or ValueError."""
    if isinstance(group, str):
        group = GroupMetadata(group)
    if isinstance(group, GroupMetadata):
        if not is_topic_name(group.group_id):  # the bounds of a group's name are the same
            raise ValueError(f"group is {group.group_id!r:.60}: its name must be text of 1 to 32767 bytes in UTF-8")
        known = group
        return lambda: known
    if not isinstance(group, GroupSource):
        raise TypeError(f"group is {group!r:.60}: give a consumer, its group_metadata(), or the name of a group")
    group.group_metadata()  # raises now, if it has no group
    return group.group_metadata
