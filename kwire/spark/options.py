"""The options of `format("kwire")` that are not the Kafka client's: which topics, from where to where, how much.

They are those of Spark's own Kafka connector, with its names, defaults and precedence (a timestamp for all partitions
before timestamps by partition before offsets). Owns `ReadOptions` and `WriteOptions`, which are made on the driver, so
that a wrong option fails there, and pickle. Refuses to talk to brokers: `planning` makes partitions of subscriptions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from kwire.errors import ConfigurationError
from kwire.spark import values
from kwire.spark.client_options import PREFIX, consumer_options, producer_options
from kwire.spark.values import EARLIEST, LATEST, TopicPartition

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
_RETRIES = "kwire asks again until kafka.request.timeout.ms has passed"
_REFUSED = {
    "groupIdPrefix": "kwire's reads belong to no consumer group; remove it",
    "fetchOffset.numRetries": _RETRIES,
    "fetchOffset.retryIntervalMs": _RETRIES,
    "path": "name topics with the option topic (to write) or subscribe (to read), not in save() or load()",
}
# Spark puts its own options of a query among ours.
_SPARKS_OWN = ("checkpointLocation", "queryName", "outputMode")


@dataclass(frozen=True, slots=True)
class Everywhere:
    """The same place in every partition: EARLIEST or LATEST."""

    offset: int


@dataclass(frozen=True, slots=True)
class Offsets:
    """An offset for each partition, which may be EARLIEST or LATEST."""

    by_partition: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Time:
    """The first record of each partition that is not older, milliseconds since 1970."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Times:
    """As `Time`, for each partition by itself."""

    by_partition: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Bound:
    """Where a read starts or ends, and the option that said so, to be named when it cannot be met."""

    option: str
    place: Everywhere | Offsets | Time | Times


@dataclass(frozen=True, slots=True)
class Subscription:
    """Exactly one of the three: topics, partitions, or a pattern of topic names."""

    topics: tuple[str, ...] = ()
    partitions: tuple[TopicPartition, ...] = ()
    pattern: re.Pattern[str] | None = None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a batch read or a streaming read was asked to do. `client` are keywords for `kwire.Consumer`."""

    client: Mapping[str, Any]
    subscription: Subscription
    starting: Bound
    ending: Bound
    is_strict_on_time: bool  # a starting time later than the last record is an error, else the end of the partition
    fail_on_data_loss: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    poll_timeout_ms: int


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What a write was asked to do. `client` are keywords for `kwire.Producer`; `topic` is for all rows, or None."""

    client: Mapping[str, Any]
    topic: str | None


def read_options(options: Mapping[str, str], *, is_stream: bool) -> ReadOptions:
    extra, action = (_STREAM_READ, "a streaming read") if is_stream else (_BATCH_READ, "a batch read")
    own = _own(options, (*_READ, *extra), action)
    starting = _bound(own, "starting", default=LATEST if is_stream else EARLIEST)
    ending = _bound(own, "ending", default=LATEST)
    if not is_stream:
        _refuse_place(starting, LATEST, "a batch read cannot start at the latest offset")
    _refuse_place(ending, EARLIEST, "a batch read cannot end at the earliest offset")
    strategy = values.one_of(
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
        fail_on_data_loss=values.flag("failOnDataLoss", own.get("failOnDataLoss", "true")),
        min_partitions=_maybe_whole(own, "minPartitions"),
        max_records_per_partition=_maybe_whole(own, "maxRecordsPerPartition"),
        max_offsets_per_trigger=_maybe_whole(own, "maxOffsetsPerTrigger"),
        min_offsets_per_trigger=_maybe_whole(own, "minOffsetsPerTrigger"),
        max_trigger_delay_ms=values.duration_ms("maxTriggerDelay", own.get("maxTriggerDelay", "15m")),
        poll_timeout_ms=_maybe_whole(own, "kafkaConsumer.pollTimeoutMs") or 120_000,
    )


def write_options(options: Mapping[str, str]) -> WriteOptions:
    own = _own(options, _WRITE, "a write")
    topic = own.get("topic")
    if topic is not None and not topic.strip():
        raise ConfigurationError(
            "option topic is empty", remedy="name a topic, or leave it out and give a topic column"
        )
    return WriteOptions(client=producer_options(options), topic=topic)


def check_read_options(options: Mapping[str, str]) -> None:
    """Refuse what neither kind of read takes: a read's schema is asked for before it is known whether it is a stream.

    Of a stream, Spark would tell in a thread of the query, and end its report with an error of its own.
    """
    refusals = []
    for is_stream in (False, True):
        try:
            read_options(options, is_stream=is_stream)
            return
        except ConfigurationError as error:
            refusals.append(error)
    raise refusals[0]


def includes_headers(options: Mapping[str, str]) -> bool:
    """Whether the default schema has the headers column. Asked before it is known whether the read is a stream."""
    text = {name.lower(): value for name, value in options.items()}.get("includeheaders", "false")
    return values.flag("includeHeaders", text)


def _own(options: Mapping[str, str], allowed: tuple[str, ...], action: str) -> dict[str, str]:
    """The options that are ours, under their proper names; any that does not belong to `action` is refused."""
    everything = (*_READ, *_BATCH_READ, *_STREAM_READ, *_WRITE)
    proper = {name.lower(): name for name in (*everything, *_REFUSED)}
    sparks = {name.lower() for name in _SPARKS_OWN}
    found: dict[str, str] = {}
    for given, value in options.items():
        if given.lower().startswith(PREFIX) or given.lower() in sparks:
            continue
        name = proper.get(given.lower(), given)
        if name in _REFUSED:
            raise ConfigurationError(f"option {name} is not supported", remedy=_REFUSED[name])
        if name in allowed:
            found[name] = value
        elif name in everything:
            raise ConfigurationError(
                f"option {name} is not for {action}", remedy=f"here there are {', '.join(allowed)}"
            )
        else:
            near = [proper[match] for match in get_close_matches(given.lower(), [n.lower() for n in allowed], n=3)]
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
        return Subscription(topics=values.names(name, own[name]))
    if name == "assign":
        return Subscription(partitions=values.topic_partitions(name, own[name]))
    return Subscription(pattern=values.pattern(name, own[name]))


def _bound(own: Mapping[str, str], which: str, *, default: int) -> Bound:
    """The first of the three ways to say where, in Spark's order of precedence."""
    time, times, offsets = f"{which}Timestamp", f"{which}OffsetsByTimestamp", f"{which}Offsets"
    if time in own:
        return Bound(time, Time(values.whole(time, own[time], least=0)))
    if times in own:
        return Bound(times, Times(values.numbers_by_partition(times, own[times], least=0)))
    text = own.get(offsets, "latest" if default == LATEST else "earliest").strip()
    if text.lower() in ("earliest", "latest"):
        return Bound(offsets, Everywhere(EARLIEST if text.lower() == "earliest" else LATEST))
    return Bound(offsets, Offsets(values.numbers_by_partition(offsets, text, least=EARLIEST)))


def _refuse_place(bound: Bound, offset: int, message: str) -> None:
    place = bound.place
    is_used = (isinstance(place, Everywhere) and place.offset == offset) or (
        isinstance(place, Offsets) and offset in place.by_partition.values()
    )
    if is_used:
        raise ConfigurationError(
            f"option {bound.option}: {message}", remedy="choose another place, or a streaming read"
        )


def _maybe_whole(own: Mapping[str, str], name: str) -> int | None:
    return values.whole(name, own[name]) if name in own else None
