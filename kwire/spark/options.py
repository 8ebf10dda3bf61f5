"""Options of `format("kwire")` other than `kafka.*`: which topics, from where to where, how much.

Names, defaults and precedence are those of Spark's Kafka connector: one timestamp for all partitions comes before
timestamps by partition, and these come before offsets. `ReadOptions` and `WriteOptions` are created on the driver, so
that a wrong option fails there, and pickled to the tasks. `offsets` turns them into offsets of partitions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kwire.errors import ConfigurationError
from kwire.options import near_names
from kwire.spark.client_options import PREFIX, consumer_options, producer_options
from kwire.spark.option_parsers import (
    EARLIEST,
    LATEST,
    TopicPartition,
    parse_bool,
    parse_choice,
    parse_duration_ms,
    parse_int,
    parse_numbers_by_partition,
    parse_partitions,
    parse_pattern,
    parse_topics,
)

_SUBSCRIPTIONS = ("subscribe", "assign", "subscribePattern")
_READ = (
    *_SUBSCRIPTIONS,
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "includeHeaders",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "kafkaConsumer.pollTimeoutMs",
)
_BATCH_READ = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_STREAM_READ = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_WRITE = ("topic",)
_RETRIES = "kwire retries until kafka.request.timeout.ms has passed"
_UNSUPPORTED = {
    "groupIdPrefix": "kwire's reads belong to no consumer group; remove it",
    "fetchOffset.numRetries": _RETRIES,
    "fetchOffset.retryIntervalMs": _RETRIES,
    "path": "name topics with the option topic (to write) or subscribe (to read), not in save() or load()",
}
# Spark passes its own query options along with those of the data source.
_QUERY_OPTIONS = ("checkpointLocation", "queryName", "outputMode")


@dataclass(frozen=True, slots=True)
class EarliestOrLatest:
    """The EARLIEST or the LATEST offset of every partition."""

    offset: int


@dataclass(frozen=True, slots=True)
class OffsetsByPartition:
    """An offset for each partition; it may be EARLIEST or LATEST."""

    by_partition: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Timestamp:
    """In each partition, the first record at or after this time, in milliseconds since 1970."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class TimestampsByPartition:
    """As `Timestamp`, with a time for each partition."""

    by_partition: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Bound:
    """Where a read starts or ends, and the option that says so, for errors."""

    option: str
    position: EarliestOrLatest | OffsetsByPartition | Timestamp | TimestampsByPartition


@dataclass(frozen=True, slots=True)
class Subscription:
    """Exactly one of: topics, partitions, a pattern of topic names."""

    topics: tuple[str, ...] = ()
    partitions: tuple[TopicPartition, ...] = ()
    pattern: re.Pattern[str] | None = None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a batch or streaming read. `client` holds keywords for `kwire.Consumer`."""

    client: Mapping[str, Any]
    subscription: Subscription
    starting: Bound
    ending: Bound
    is_strict_on_time: bool  # whether a starting time after the last record is an error, or means the end
    fail_on_data_loss: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    poll_timeout_ms: int


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a write. `client` holds keywords for `kwire.Producer`; `topic`, if given, is for all rows."""

    client: Mapping[str, Any]
    topic: str | None


def read_options(options: Mapping[str, str], *, is_stream: bool) -> ReadOptions:
    extra, action = (_STREAM_READ, "a streaming read") if is_stream else (_BATCH_READ, "a batch read")
    own = _own_options(options, (*_READ, *extra), action)
    starting = _bound(own, "starting", default=LATEST if is_stream else EARLIEST)
    ending = _bound(own, "ending", default=LATEST)
    if not is_stream:
        _reject_position(starting, LATEST, "a batch read cannot start at the latest offset")
    _reject_position(ending, EARLIEST, "a batch read cannot end at the earliest offset")
    strategy = parse_choice(
        "startingOffsetsByTimestampStrategy",
        own.get("startingOffsetsByTimestampStrategy", "error"),
        ("error", "latest"),
    )
    return ReadOptions(
        client=consumer_options(options),
        subscription=_subscription(own),
        starting=starting,
        ending=ending,
        is_strict_on_time=strategy == "error",
        fail_on_data_loss=parse_bool("failOnDataLoss", own.get("failOnDataLoss", "true")),
        min_partitions=_optional_int(own, "minPartitions"),
        max_records_per_partition=_optional_int(own, "maxRecordsPerPartition"),
        max_offsets_per_trigger=_optional_int(own, "maxOffsetsPerTrigger"),
        min_offsets_per_trigger=_optional_int(own, "minOffsetsPerTrigger"),
        max_trigger_delay_ms=parse_duration_ms("maxTriggerDelay", own.get("maxTriggerDelay", "15m")),
        poll_timeout_ms=_optional_int(own, "kafkaConsumer.pollTimeoutMs") or 120_000,
    )


def write_options(options: Mapping[str, str]) -> WriteOptions:
    own = _own_options(options, _WRITE, "a write")
    topic = own.get("topic")
    if topic is not None and not topic.strip():
        raise ConfigurationError(
            "option topic is empty", remedy="name a topic, or leave it out and give a topic column"
        )
    return WriteOptions(client=producer_options(options), topic=topic)


def check_read_options(options: Mapping[str, str]) -> None:
    """Raise for options that suit neither a batch read nor a streaming read.

    Spark requests the schema before it says which of the two it is. A streaming read would raise later, in a thread of
    the query, where Spark hides the message behind an error of its own.
    """
    errors = []
    for is_stream in (False, True):
        try:
            read_options(options, is_stream=is_stream)
            return
        except ConfigurationError as error:
            errors.append(error)
    raise errors[0]


def includes_headers(options: Mapping[str, str]) -> bool:
    """Return whether the default schema has the headers column, for a batch or a streaming read."""
    text = {name.lower(): value for name, value in options.items()}.get("includeheaders", "false")
    return parse_bool("includeHeaders", text)


def _own_options(options: Mapping[str, str], allowed: tuple[str, ...], action: str) -> dict[str, str]:
    """Return the options of this module, with their documented case. Raise for any that `action` does not have."""
    everything = (*_READ, *_BATCH_READ, *_STREAM_READ, *_WRITE)
    documented = {name.lower(): name for name in (*everything, *_UNSUPPORTED)}
    query_options = {name.lower() for name in _QUERY_OPTIONS}
    found: dict[str, str] = {}
    for given, value in options.items():
        if given.lower().startswith(PREFIX) or given.lower() in query_options:
            continue
        name = documented.get(given.lower(), given)
        if name in _UNSUPPORTED:
            raise ConfigurationError(f"option {name} is not supported", remedy=_UNSUPPORTED[name])
        if name in allowed:
            found[name] = value
        elif name in everything:
            raise ConfigurationError(
                f"option {name} is not for {action}", remedy=f"its options are {', '.join(allowed)}"
            )
        else:
            near = [documented[match] for match in near_names(given.lower(), map(str.lower, allowed), max_names=3)]
            raise ConfigurationError(
                f"option {given} is not supported", remedy=f"alternatives: {', '.join(near or allowed)}, and kafka.*"
            )
    return found


def _subscription(own: Mapping[str, str]) -> Subscription:
    given = [name for name in _SUBSCRIPTIONS if name in own]
    if len(given) != 1:
        what = f"options {' and '.join(given)} contradict each other" if given else "no topic is named"
        raise ConfigurationError(what, remedy=f"give exactly one of {', '.join(_SUBSCRIPTIONS)}")
    name = given[0]
    if name == "subscribe":
        return Subscription(topics=parse_topics(name, own[name]))
    if name == "assign":
        return Subscription(partitions=parse_partitions(name, own[name]))
    return Subscription(pattern=parse_pattern(name, own[name]))


def _bound(own: Mapping[str, str], which: str, *, default: int) -> Bound:
    """Return where a read starts or ends, from the option that comes first in Spark's order of precedence."""
    time, times, offsets = f"{which}Timestamp", f"{which}OffsetsByTimestamp", f"{which}Offsets"
    if time in own:
        return Bound(time, Timestamp(parse_int(time, own[time], minimum=0)))
    if times in own:
        return Bound(times, TimestampsByPartition(parse_numbers_by_partition(times, own[times], minimum=0)))
    text = own.get(offsets, "latest" if default == LATEST else "earliest").strip()
    if text.lower() in ("earliest", "latest"):
        return Bound(offsets, EarliestOrLatest(EARLIEST if text.lower() == "earliest" else LATEST))
    return Bound(offsets, OffsetsByPartition(parse_numbers_by_partition(offsets, text, minimum=EARLIEST)))


def _reject_position(bound: Bound, offset: int, message: str) -> None:
    position = bound.position
    is_used = (isinstance(position, EarliestOrLatest) and position.offset == offset) or (
        isinstance(position, OffsetsByPartition) and offset in position.by_partition.values()
    )
    if is_used:
        raise ConfigurationError(
            f"option {bound.option}: {message}", remedy="choose another offset, or a streaming read"
        )


def _optional_int(own: Mapping[str, str], name: str) -> int | None:
    return parse_int(name, own[name]) if name in own else None
