"""Offsets: their form in Spark's checkpoint, ranges and splits, and which offsets a batch or micro-batch reads.

The length of a range is an upper bound of its records: compaction and transaction markers leave gaps. Brokers are
queried through `OffsetReader`, the part of `kwire.Consumer` that is needed here.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

from kwire.errors import ConfigurationError, ErrorCode, KwireError, broker_error, counted
from kwire.spark.option_parsers import EARLIEST, LATEST, TopicPartition
from kwire.spark.options import (
    Bound,
    EarliestOrLatest,
    OffsetsByPartition,
    ReadOptions,
    Subscription,
    Timestamp,
    TimestampsByPartition,
)

# A stream's progress in Spark's checkpoint, in the form of Spark's Kafka connector: {"topic": {"0": 123}}.
Checkpoint = dict[str, dict[str, int]]


class OffsetRange(NamedTuple):
    """Offsets of one partition, from `start` to `end` exclusive."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return max(0, self.end - self.start)


def to_checkpoint(offsets: Mapping[TopicPartition, int]) -> Checkpoint:
    """Return `offsets` in the form of a checkpoint, sorted, so that equal offsets are equal texts."""
    checkpoint: Checkpoint = {}
    for (topic, partition), offset in sorted(offsets.items()):
        checkpoint.setdefault(topic, {})[str(partition)] = offset
    return checkpoint


def from_checkpoint(checkpoint: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    try:
        return {
            (topic, int(partition)): int(offset)
            for topic, numbers in sorted(checkpoint.items())
            for partition, offset in sorted(numbers.items(), key=lambda item: int(item[0]))
        }
    except (AttributeError, TypeError, ValueError):
        raise ConfigurationError(
            f"the checkpoint's offsets are not kwire's: {checkpoint!r}"[:300],
            remedy='they look like {"topic": {"0": 123}}; start the query with its own checkpointLocation',
        ) from None


def ranges(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> list[OffsetRange]:
    """Return the ranges of partitions that are in both mappings, without empty ranges."""
    found = (OffsetRange(*key, start[key], end[key]) for key in sorted(start.keys() & end.keys()))
    return [offset_range for offset_range in found if offset_range.size]


def split(
    offset_ranges: Iterable[OffsetRange], *, min_splits: int | None = None, max_records: int | None = None
) -> list[OffsetRange]:
    """Split ranges into at least `min_splits` splits of at most `max_records` offsets. A task reads one split.

    Without either argument, each range is one split. As in Spark's connector, a range gets its share of `min_splits`,
    rounded, and at least one split, so that there may be more of them; where rounding leaves too few, the range whose
    splits are largest gets one more. A split holds at least one offset, so few offsets may give fewer splits than
    `min_splits`. The splits of a range differ by at most one offset.
    """
    nonempty = [offset_range for offset_range in offset_ranges if offset_range.size]
    counts = [-(-offset_range.size // max_records) if max_records else 1 for offset_range in nonempty]
    sizes = [offset_range.size for offset_range in nonempty]
    wanted = min(min_splits or 0, sum(sizes))
    if wanted > sum(counts):
        shares = [int(size * wanted / sum(sizes) + 0.5) for size in sizes]
        counts = [max(count, share) for count, share in zip(counts, shares, strict=True)]
        counts = _add_splits(sizes, counts, max(0, wanted - sum(counts)))
    return [
        part
        for offset_range, count in zip(nonempty, counts, strict=True)
        for part in _split_evenly(offset_range, count)
    ]


def _add_splits(sizes: list[int], counts: list[int], missing: int) -> list[int]:
    """Return `counts` with `missing` more splits, each given to the range whose splits are largest at that moment."""
    counts = list(counts)
    largest_first = [(-size / count, index) for index, (size, count) in enumerate(zip(sizes, counts, strict=True))]
    heapq.heapify(largest_first)
    for _ in range(missing):
        _, index = largest_first[0]
        counts[index] += 1
        heapq.heapreplace(largest_first, (-sizes[index] / counts[index], index))
    return counts


def _split_evenly(offset_range: OffsetRange, count: int) -> list[OffsetRange]:
    bounds = [offset_range.start + offset_range.size * index // count for index in range(count + 1)]
    return [offset_range._replace(start=start, end=end) for start, end in pairwise(bounds)]


def rate_limit(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], rows_max: int
) -> dict[TopicPartition, int]:
    """Return the end of a micro-batch of at most `rows_max` offsets, shared in proportion to the partitions' lag.

    Shares are rounded down. The remainder is given out one by one, largest lag first, so the sum is exact. A partition
    with a small lag gets its share when the others have caught up.
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


def byte_limit(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    bytes_max: int,
    sizes: Mapping[TopicPartition, float],
) -> dict[TopicPartition, int]:
    """Return the end of a micro-batch of about `bytes_max` bytes, shared in proportion to the partitions' lag.

    `sizes` are the bytes that an offset stands for. There is always an offset, however large its record.
    """
    lags = {key: max(0, end[key] - start[key]) for key in end if key in start}
    total = sum(count * sizes.get(key, 0) for key, count in lags.items())
    if total <= bytes_max:
        return dict(end)
    shares = {key: int(count * bytes_max / total) if sizes.get(key, 0) else count for key, count in lags.items()}
    if not any(shares.values()):
        shares[max(lags, key=lambda key: (lags[key], key))] = 1
    return {key: start[key] + shares[key] if lags.get(key) else offset for key, offset in end.items()}


def lag(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> int:
    """Return the number of offsets from `start` to `end`, over all partitions in both."""
    return sum(max(0, end[key] - start[key]) for key in end if key in start)


_log = logging.getLogger("kwire.spark")


class OffsetReader(Protocol):
    """The part of `kwire.Consumer` that says which offsets exist."""

    def partitions(self, topic: str) -> Collection[int]: ...
    def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]: ...
    def end_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]: ...
    def offsets_at(self, times: Sequence[tuple[str, int, int]]) -> Mapping[TopicPartition, int | None]: ...


def partitions_of(
    subscription: Subscription, offset_reader: OffsetReader, topics: Callable[[], Iterable[str]]
) -> list[TopicPartition]:
    """Return the subscribed partitions, sorted. `topics` returns all topic names; only a pattern calls it."""
    if subscription.partitions:
        _check_assigned(subscription.partitions, offset_reader)
        return sorted(subscription.partitions)
    names: Iterable[str] = subscription.topics
    pattern = subscription.pattern
    if pattern is not None:
        names = [name for name in topics() if pattern.fullmatch(name)]
    return sorted((name, index) for name in names for index in offset_reader.partitions(name))


def _check_assigned(assigned: Iterable[TopicPartition], offset_reader: OffsetReader) -> None:
    known: dict[str, Collection[int]] = {}
    for topic, index in assigned:
        if topic not in known:
            known[topic] = offset_reader.partitions(topic)
        if index not in known[topic]:
            raise broker_error(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                "option assign names a partition that does not exist",
                topic=topic,
                partition=index,
                remedy=f"the topic has {counted(len(known[topic]), 'partition')}, numbered from 0",
            )


def resolve(
    bound: Bound, partitions: Sequence[TopicPartition], offset_reader: OffsetReader, *, is_strict_on_time: bool = False
) -> dict[TopicPartition, int]:
    """Return the offset that `bound` means in each partition.

    A time after the last record means the end of the partition, or raises if `is_strict_on_time`.
    """
    position = bound.position
    if not partitions:
        return {}
    if isinstance(position, EarliestOrLatest):
        fetch_offsets = offset_reader.beginning_offsets if position.offset == EARLIEST else offset_reader.end_offsets
        return dict(fetch_offsets(partitions))
    if isinstance(position, OffsetsByPartition):
        _check_complete(bound.option, position.by_partition, partitions)
        offsets = {key: position.by_partition[key] for key in partitions}
        for marker, fetch_offsets in ((EARLIEST, offset_reader.beginning_offsets), (LATEST, offset_reader.end_offsets)):
            marked = [key for key, offset in offsets.items() if offset == marker]
            offsets.update(fetch_offsets(marked) if marked else {})
        return offsets
    return _resolve_timestamps(bound, position, partitions, offset_reader, is_strict_on_time)


def _resolve_timestamps(
    bound: Bound,
    position: Timestamp | TimestampsByPartition,
    partitions: Sequence[TopicPartition],
    offset_reader: OffsetReader,
    is_strict: bool,
) -> dict[TopicPartition, int]:
    if isinstance(position, TimestampsByPartition):
        _check_complete(bound.option, position.by_partition, partitions)
        times = {key: position.by_partition[key] for key in partitions}
    else:
        times = dict.fromkeys(partitions, position.timestamp_ms)
    found = offset_reader.offsets_at([(topic, index, ms) for (topic, index), ms in times.items()])
    late = [key for key in partitions if found[key] is None]
    if late and is_strict:
        topic, index = late[0]
        raise ConfigurationError(
            f"option {bound.option} gives {topic}-{index} the time {times[late[0]]}, after its last record",
            remedy="give an earlier time, or set startingOffsetsByTimestampStrategy to latest",
        )
    ends = offset_reader.end_offsets(late) if late else {}
    return {key: ends[key] if offset is None else offset for key, offset in ((key, found[key]) for key in partitions)}


def _check_complete(option: str, given: Collection[TopicPartition], partitions: Collection[TopicPartition]) -> None:
    missing = [f"{topic}-{index}" for topic, index in partitions if (topic, index) not in given]
    extra = [f"{topic}-{index}" for topic, index in given if (topic, index) not in partitions]
    if missing or extra:
        what = f"lacks {', '.join(missing[:5])}" if missing else f"names {', '.join(extra[:5])}, which is not read"
        raise ConfigurationError(
            f"option {option} {what}", remedy="give each partition that is read: -2 is earliest, -1 latest"
        )


def plan_batch(
    options: ReadOptions, offset_reader: OffsetReader, topics: Callable[[], Iterable[str]]
) -> list[OffsetRange]:
    """Return the ranges of a batch read, without partitions that have nothing to read."""
    partitions = partitions_of(options.subscription, offset_reader, topics)
    if not partitions:
        return []
    start = resolve(options.starting, partitions, offset_reader, is_strict_on_time=options.is_strict_on_time)
    end = resolve(options.ending, partitions, offset_reader)
    first, last = offset_reader.beginning_offsets(partitions), offset_reader.end_offsets(partitions)
    check_start(options, start, last)
    for key in partitions:
        if end[key] < start[key] <= last[key] and is_given(options.starting, key):
            raise ConfigurationError(
                f"option {options.starting.option} starts {key[0]}-{key[1]} at offset {start[key]}, after its end: "
                f"{options.ending.option} ends it at {end[key]}",
                remedy="start at or before the end",
            )
        if start[key] < first[key]:
            report_data_loss(
                options, key, f"offset {start[key]}, where the read starts, is deleted: the log begins at {first[key]}"
            )
            start[key] = first[key]
        if end[key] > last[key]:
            report_data_loss(
                options, key, f"offset {end[key]}, where the read ends, does not exist: the log ends at {last[key]}"
            )
            end[key] = last[key]
    return ranges(start, end)


def is_given(bound: Bound, key: TopicPartition) -> bool:
    """Return whether the user has given an offset or a time for the partition, and not earliest or latest."""
    position = bound.position
    if isinstance(position, OffsetsByPartition):
        return position.by_partition.get(key, LATEST) >= 0
    return isinstance(position, (Timestamp, TimestampsByPartition))


def check_start(options: ReadOptions, start: Mapping[TopicPartition, int], last: Mapping[TopicPartition, int]) -> None:
    """Report a starting offset beyond the end of its log: a wrong option, or a log that lost its records."""
    for key, offset in start.items():
        if offset > last[key]:
            report_data_loss(
                options, key, f"offset {offset}, where the read starts, does not exist: the log ends at {last[key]}"
            )


def plan_micro_batch(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    options: ReadOptions,
    offset_reader: OffsetReader,
) -> list[OffsetRange]:
    """Return the ranges of a micro-batch. A partition that is new since the previous one is read from its beginning."""
    for key in sorted(start.keys() - end.keys()):
        report_data_loss(options, key, f"the partition no longer exists; offsets from {start[key]} on cannot be read")
    new = sorted(end.keys() - start.keys())
    first = dict(offset_reader.beginning_offsets(new)) if new else {}
    for key, offset in first.items():
        if offset > 0:
            report_data_loss(
                options, key, f"the partition is new to this query, but its log already begins at {offset}"
            )
    for key in sorted(start.keys() & end.keys()):
        if start[key] > end[key]:
            report_data_loss(options, key, f"the log ended at {start[key]} earlier and now ends at {end[key]}")
    return ranges({**start, **first}, end)


def report_data_loss(options: ReadOptions, key: TopicPartition, what: str) -> None:
    """Raise under failOnDataLoss, else log a warning; the read then continues without the lost records."""
    if not options.fail_on_data_loss:
        _log.warning("data may be lost: %s [topic %s, partition %d]; the read continues without it", what, *key)
        return
    raise KwireError(
        f"data may be lost: {what}",
        topic=key[0],
        partition=key[1],
        remedy="records are deleted by retention and with their topic; "
        "set failOnDataLoss to false to continue without them",
    )
