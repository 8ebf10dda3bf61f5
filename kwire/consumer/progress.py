"""Which records of a partition are processed, where they are processed in parallel and end in any order.

The offset to commit is the first that is not complete: everything before it is. What is complete above it can be
remembered in the commit's metadata, so that it is not processed again after a restart.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Protocol

from kwire.consumer.record import ConsumerRecord


class Progress(Protocol):
    """What a `ShardQueue` needs of a partition."""

    def begin(self, records: Sequence[ConsumerRecord]) -> Sequence[ConsumerRecord]:
        """Note that records will be processed; return them without those that need not be."""
        ...

    def complete(self, offset: int) -> None:
        """Note that a record was processed."""
        ...


class NoProgress:
    """For records that are acknowledged one by one, such as those of share groups: nothing is committed."""

    __slots__ = ()

    def begin(self, records: Sequence[ConsumerRecord]) -> Sequence[ConsumerRecord]:
        return records

    def complete(self, offset: int) -> None:
        """Do nothing."""


class PartitionProgress:
    """The complete offsets of one partition. Offsets are started in ascending order and completed in any order.

    `base` is where processing begins: the committed offset, or the position without one. `remembered` has ranges of
    offsets from `base` up that were complete when it was committed, in ascending order.
    """

    __slots__ = ("_begun", "_complete", "_remembered", "next_offset")

    def __init__(self, base: int, remembered: Iterable[range] = ()) -> None:
        self.next_offset = base  # everything before it was started, or is not in the log
        self._remembered = deque(one for one in remembered if one.stop > base)
        self._begun: deque[int] = deque()  # from the first incomplete one up
        self._complete: set[int] = set()  # of them

    def begin(self, records: Sequence[ConsumerRecord]) -> Sequence[ConsumerRecord]:
        """Note that records will be processed; return them without those that were, before a restart."""
        assert records[0].offset >= self.next_offset, "offsets are started in ascending order"
        self.next_offset = records[-1].offset + 1
        if self._remembered:
            records = [record for record in records if not self._is_remembered(record.offset)]
        self._begun.extend(record.offset for record in records)
        return records

    def _is_remembered(self, offset: int) -> bool:
        remembered = self._remembered
        while remembered and remembered[0].stop <= offset:
            remembered.popleft()
        return bool(remembered) and offset in remembered[0]

    def read_to(self, position: int) -> None:
        """Note that the log has no further records before `position`, such as compacted or aborted ones."""
        if position > self.next_offset:
            self.next_offset = position

    def complete(self, offset: int) -> None:
        """Note that a record was processed."""
        begun, complete = self._begun, self._complete
        if begun[0] != offset:
            complete.add(offset)
            return
        begun.popleft()
        while begun and begun[0] in complete:
            complete.discard(begun.popleft())

    @property
    def base(self) -> int:
        """Return the offset to commit: everything before it is complete."""
        return self._begun[0] if self._begun else self.next_offset

    @property
    def ahead(self) -> int:
        """Return how many offsets lie between `base` and the next one to begin."""
        return self.next_offset - self._begun[0] if self._begun else 0

    @property
    def incomplete(self) -> int:
        """Return how many records were started and are not complete."""
        return len(self._begun) - len(self._complete)

    def complete_ranges(self) -> list[range]:
        """Return the ranges of complete offsets above `base`, in ascending order, for the commit's metadata.

        Offsets that the log lacks count as complete.
        """
        ranges: list[range] = []
        start = self.base
        for offset in self._begun:
            if offset not in self._complete:
                if offset > start:
                    ranges.append(range(start, offset))
                start = offset + 1
        if self.next_offset > start:
            ranges.append(range(start, self.next_offset))
        for one in self._remembered:
            start = max(one.start, self.next_offset)
            if start >= one.stop:
                continue
            if ranges and ranges[-1].stop == start:
                ranges[-1] = range(ranges[-1].start, one.stop)
            elif start > self.base:
                ranges.append(range(start, one.stop))
        return ranges
