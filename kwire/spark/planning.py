"""A subscription and its bounds, turned into offsets of partitions on a given cluster.

All questions go through `Log`, which a Consumer answers, and tests answer from a table. Owns the policy on lost data:
what a read wants and the log no longer has is an error under failOnDataLoss, else it is skipped with a warning.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from kwire.errors import ConfigurationError, ErrorCode, KwireError, broker_error
from kwire.spark.offsets import OffsetRange, ranges
from kwire.spark.options import Bound, Everywhere, Offsets, ReadOptions, Subscription, Time, Times
from kwire.spark.values import EARLIEST, TopicPartition

_log = logging.getLogger("kwire.spark")


class Log(Protocol):
    """The part of `kwire.Consumer` that planning asks."""

    def partitions(self, topic: str) -> Collection[int]: ...
    def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]: ...
    def end_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]: ...
    def offsets_at(self, times: Sequence[tuple[str, int, int]]) -> Mapping[TopicPartition, int | None]: ...


def partitions_of(subscription: Subscription, log: Log, topics: Callable[[], Iterable[str]]) -> list[TopicPartition]:
    """The partitions subscribed to at this moment, sorted. `topics` answers all topic names; a pattern needs them."""
    if subscription.partitions:
        _check_assigned(subscription.partitions, log)
        return sorted(subscription.partitions)
    names: Iterable[str] = subscription.topics
    pattern = subscription.pattern
    if pattern is not None:
        names = [name for name in topics() if pattern.fullmatch(name)]
    return sorted((name, index) for name in names for index in log.partitions(name))


def _check_assigned(assigned: Iterable[TopicPartition], log: Log) -> None:
    known: dict[str, Collection[int]] = {}
    for topic, index in assigned:
        if topic not in known:
            known[topic] = log.partitions(topic)
        if index not in known[topic]:
            raise broker_error(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                "option assign names a partition that does not exist",
                topic=topic,
                partition=index,
                remedy=f"the topic has {len(known[topic])} partitions, numbered from 0",
            )


def resolve(
    bound: Bound, partitions: Sequence[TopicPartition], log: Log, *, is_strict_on_time: bool = False
) -> dict[TopicPartition, int]:
    """The offset that `bound` means in each partition.

    A time after the last record means the end of the partition, or, when strict, is an error.
    """
    place = bound.place
    if not partitions:
        return {}
    if isinstance(place, Everywhere):
        ask = log.beginning_offsets if place.offset == EARLIEST else log.end_offsets
        return dict(ask(partitions))
    if isinstance(place, Offsets):
        _check_complete(bound.option, place.by_partition, partitions)
        offsets = {key: place.by_partition[key] for key in partitions}
        for marker, ask in ((EARLIEST, log.beginning_offsets), (-1, log.end_offsets)):
            marked = [key for key, offset in offsets.items() if offset == marker]
            offsets.update(ask(marked) if marked else {})
        return offsets
    return _resolve_times(bound, place, partitions, log, is_strict_on_time)


def _resolve_times(
    bound: Bound, place: Time | Times, partitions: Sequence[TopicPartition], log: Log, is_strict: bool
) -> dict[TopicPartition, int]:
    if isinstance(place, Times):
        _check_complete(bound.option, place.by_partition, partitions)
        times = {key: place.by_partition[key] for key in partitions}
    else:
        times = dict.fromkeys(partitions, place.timestamp_ms)
    found = log.offsets_at([(topic, index, ms) for (topic, index), ms in times.items()])
    late = [key for key in partitions if found[key] is None]
    if late and is_strict:
        topic, index = late[0]
        raise ConfigurationError(
            f"option {bound.option} gives {topic}-{index} the time {times[late[0]]}, after its last record",
            remedy="give an earlier time, or set startingOffsetsByTimestampStrategy to latest",
        )
    ends = log.end_offsets(late) if late else {}
    return {key: ends[key] if offset is None else offset for key, offset in ((key, found[key]) for key in partitions)}


def _check_complete(option: str, given: Collection[TopicPartition], partitions: Collection[TopicPartition]) -> None:
    missing = [f"{topic}-{index}" for topic, index in partitions if (topic, index) not in given]
    unasked = [f"{topic}-{index}" for topic, index in given if (topic, index) not in partitions]
    if missing or unasked:
        what = f"lacks {', '.join(missing[:5])}" if missing else f"names {', '.join(unasked[:5])}, which is not read"
        raise ConfigurationError(
            f"option {option} {what}", remedy="give each partition that is read: -2 is earliest, -1 latest"
        )


def plan_batch(options: ReadOptions, log: Log, topics: Callable[[], Iterable[str]]) -> list[OffsetRange]:
    """What a batch read reads: a range for each partition that has any."""
    partitions = partitions_of(options.subscription, log, topics)
    if not partitions:
        return []
    start = resolve(options.starting, partitions, log, is_strict_on_time=options.is_strict_on_time)
    end = resolve(options.ending, partitions, log)
    first, last = log.beginning_offsets(partitions), log.end_offsets(partitions)
    for key in partitions:
        if start[key] < first[key]:
            lost(options, key, f"offset {start[key]}, where the read starts, is gone: the log begins at {first[key]}")
            start[key] = first[key]
        if end[key] > last[key]:
            lost(options, key, f"offset {end[key]}, where the read ends, is not there: the log ends at {last[key]}")
            end[key] = last[key]
    return ranges(start, end)


def plan_micro_batch(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], options: ReadOptions, log: Log
) -> list[OffsetRange]:
    """What one micro-batch reads. A partition that is new since the last one is read from its beginning."""
    for key in sorted(start.keys() - end.keys()):
        lost(options, key, f"the partition is gone; offsets from {start[key]} on cannot be read")
    new = sorted(end.keys() - start.keys())
    first = dict(log.beginning_offsets(new)) if new else {}
    for key, offset in first.items():
        if offset > 0:
            lost(options, key, f"the partition is new to this query, but its log begins at {offset} already")
    for key in sorted(start.keys() & end.keys()):
        if start[key] > end[key]:
            lost(options, key, f"the log ended at {start[key]} before, and ends at {end[key]} now")
    return ranges({**start, **first}, end)


def lost(options: ReadOptions, key: TopicPartition, what: str) -> None:
    """Raise, or warn and let the read go on without."""
    if not options.fail_on_data_loss:
        _log.warning("data may be lost: %s [topic %s, partition %d]; the read goes on without", what, *key)
        return
    raise KwireError(
        f"data may be lost: {what}",
        topic=key[0],
        partition=key[1],
        remedy="records expire by retention, and vanish when a topic is deleted; "
        "set failOnDataLoss to false to read on without them",
    )
