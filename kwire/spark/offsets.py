"""Arithmetic on offsets: their form in Spark's checkpoint, ranges, portions of ranges, the limit of a micro-batch.

Pure functions; nothing here knows a broker or Spark. A range's length is an upper bound of its records: compaction and
transaction markers leave gaps.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple

from kwire.errors import ConfigurationError
from kwire.spark.values import TopicPartition

# What Spark keeps of a stream's progress, in the same form as its own Kafka connector: {"topic": {"0": 123}}.
Checkpoint = dict[str, dict[str, int]]


class OffsetRange(NamedTuple):
    """The offsets of one partition from `start` up to and without `end`."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return max(0, self.end - self.start)


def to_checkpoint(offsets: Mapping[TopicPartition, int]) -> Checkpoint:
    """In sorted order, so that equal offsets are equal texts."""
    shape: Checkpoint = {}
    for (topic, partition), offset in sorted(offsets.items()):
        shape.setdefault(topic, {})[str(partition)] = offset
    return shape


def from_checkpoint(shape: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    try:
        return {
            (topic, int(partition)): int(offset)
            for topic, numbers in sorted(shape.items())
            for partition, offset in sorted(numbers.items(), key=lambda item: int(item[0]))
        }
    except (AttributeError, TypeError, ValueError):
        raise ConfigurationError(
            f"the checkpoint's offsets are not kwire's: {shape!r}"[:300],
            remedy='they look like {"topic": {"0": 123}}; start the query with its own checkpointLocation',
        ) from None


def ranges(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> list[OffsetRange]:
    """The ranges of the partitions in both; empty ones are left out."""
    found = (OffsetRange(*key, start[key], end[key]) for key in sorted(start.keys() & end.keys()))
    return [offset_range for offset_range in found if offset_range.size]


def split(
    whole: Iterable[OffsetRange], *, at_least: int | None = None, records_max: int | None = None
) -> list[OffsetRange]:
    """Cut ranges into portions of at most `records_max` offsets, and into at least `at_least` portions.

    Without either a range is one portion, read by one task. The portions asked for go where most offsets are, one after
    another to the range whose portions are largest; a portion holds at least one offset, so a few records may make
    fewer portions than asked for. The portions of a range differ by one offset at most.
    """
    todo = [offset_range for offset_range in whole if offset_range.size]
    counts = [-(-offset_range.size // records_max) if records_max else 1 for offset_range in todo]
    wanted = min(at_least or 0, sum(offset_range.size for offset_range in todo))
    missing = wanted - sum(counts)
    if missing > 0:
        counts = _spread([offset_range.size for offset_range in todo], counts, missing)
    return [portion for offset_range, count in zip(todo, counts, strict=True) for portion in _cut(offset_range, count)]


def _spread(sizes: list[int], counts: list[int], missing: int) -> list[int]:
    """Give `missing` more portions away, each to the range with the largest portions (no portion gets empty)."""
    counts = list(counts)
    largest_first = [(-size / count, index) for index, (size, count) in enumerate(zip(sizes, counts, strict=True))]
    heapq.heapify(largest_first)
    for _ in range(missing):
        _, index = largest_first[0]
        counts[index] += 1
        heapq.heapreplace(largest_first, (-sizes[index] / counts[index], index))
    return counts


def _cut(offset_range: OffsetRange, count: int) -> list[OffsetRange]:
    borders = [offset_range.start + offset_range.size * cut // count for cut in range(count + 1)]
    return [offset_range._replace(start=start, end=end) for start, end in pairwise(borders)]


def limited(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], rows_max: int
) -> dict[TopicPartition, int]:
    """The end of a micro-batch of at most `rows_max` offsets, shared among partitions in proportion to their lag.

    Shares are rounded down, and what that leaves is given out one by one, longest lag first: the sum is exact, and a
    partition with a short lag is not starved for ever, since its turn comes when the others have caught up.
    """
    lags = {key: max(0, end[key] - start[key]) for key in end if key in start}
    total = sum(lags.values())
    if total <= rows_max:
        return dict(end)
    shares = {key: lag * rows_max // total for key, lag in lags.items()}
    left = rows_max - sum(shares.values())
    for key in sorted(lags, key=lambda key: (shares[key] - lags[key], key)):
        if left and shares[key] < lags[key]:
            shares[key] += 1
            left -= 1
    return {key: start[key] + shares[key] if lags.get(key) else offset for key, offset in end.items()}


def lag(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> int:
    """Offsets between two places, over all partitions that both know."""
    return sum(max(0, end[key] - start[key]) for key in end if key in start)
