"""Options of `format("kwire")` other than `kafka.*`: which topics, from where to where, how much.

Names, defaults and precedence are those of Spark's Kafka connector: one timestamp for all partitions comes before
timestamps by partition, and these come before offsets. `ReadOptions` and `WriteOptions` are created on the driver, so
that a wrong option fails there, and pickled to the tasks. `offsets` turns them into offsets of partitions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from kwire.errors import ConfigurationError
from kwire.option_checks import near_names
from kwire.spark.client_options import PREFIX, consumer_options, producer_options, property_names
from kwire.spark.columns import parse_columns
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

if TYPE_CHECKING:
    from kwire.spark.queue_read import QueueTable
    from kwire.spark.queue_write import QueueTarget

_SUBSCRIPTIONS = ("subscribe", "assign", "subscribePattern")
_QUEUE = {
    "queueBackend": "backend",
    "queueMessageTopic": "message_topic",
    "queueMarkerTopic": "marker_topic",
    "queueDeadLetterTopic": "dead_letter_topic",
}
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
    "columns",
    "queueTable",
    "queue",
    *_QUEUE,
)
_BATCH_READ = ("pushFilters", "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_STREAM_READ = (
    "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxBytesPerTrigger", "maxTriggerDelay", "monitoringGroup"
)  # fmt: skip
_EXACTLY_ONCE = (
    "transactionalIdPrefix",
    "markerTopic",
    "inlineMaxBytes",
    "inlineBatchMaxBytes",
    "onInDoubt",
    "onMissingMarker",
)
_WRITE = ("topic", "queue", *_QUEUE, "delivery", *_EXACTLY_ONCE)
_BATCH_WRITE = ("writeId",)
_RETRIES = "kwire retries until kafka.request.timeout.ms has passed"
_UNSUPPORTED = {
    "groupIdPrefix": "kwire's reads belong to no consumer group; remove it",
    "fetchOffset.numRetries": _RETRIES,
    "fetchOffset.retryIntervalMs": _RETRIES,
    "path": "name topics with the option topic (to write) or subscribe (to read), not in save() or load()",
}
# Spark passes its own query options along with those of the data source.
_QUERY_OPTIONS = ("checkpointLocation", "queryName", "outputMode")


# Defaults of a write exactly once. The first is the brokers' own maximum (transaction.max.timeout.ms).
TRANSACTION_TIMEOUT_MS = 900_000
# Spark hands a result of up to 1 MiB straight to the driver (spark.task.maxDirectResultSize). A larger one costs more
# than a side transaction.
INLINE_BYTES_MAX = 1_000_000
INLINE_BATCH_BYTES_MAX = 64 * 1024 * 1024
# What only a producer has, by keyword; a write exactly once makes its requests itself.
_NOT_EXACTLY_ONCE = {
    "linger_ms": "a task sends full batches, and the rest at its end",
    "max_block_ms": "no row waits for memory",
    "retries": "requests are repeated until kafka.delivery.timeout.ms has passed",
}


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
    max_bytes_per_trigger: int | None
    max_trigger_delay_ms: int
    poll_timeout_ms: int
    columns: tuple[str, ...] | None = None
    pushes_filters: bool = False
    monitoring_group: str | None = None
    table: QueueTable | None = None


OnInDoubt = Literal["fail", "repair", "duplicate", "skip"]


@dataclass(frozen=True, slots=True)
class ExactlyOnce:
    """The options of a write exactly once."""

    prefix: str | None  # of transactional ids, and the name of the marker's group; None: made from the query's id
    marker_key: TopicPartition
    transaction_timeout_ms: int
    inline_bytes_max: int  # of a task
    inline_batch_bytes_max: int  # of a whole batch
    on_in_doubt: OnInDoubt
    accepts_missing_marker: bool

    @property
    def repeats_decided(self) -> bool:
        """Return whether tasks of a decided batch must make its records again, in case some of them are in doubt."""
        return self.on_in_doubt in ("repair", "duplicate")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a write. `client` holds keywords for `kwire.Producer`; `topic`, if given, is for all rows.

    `exactly_once` is None for a write at least once. `write_id` identifies a batch write that may be repeated. With
    `queue`, rows are messages of a queue, and `topic` is where that has them.
    """

    client: Mapping[str, Any]
    topic: str | None
    exactly_once: ExactlyOnce | None = None
    write_id: str | None = None
    checkpoint: str | None = None
    queue: QueueTarget | None = None


def read_options(options: Mapping[str, str], *, is_stream: bool) -> ReadOptions:
    extra, action = (_STREAM_READ, "a streaming read") if is_stream else (_BATCH_READ, "a batch read")
    own = _own_options(options, (*_READ, *extra), action)
    table = queue_table(options)
    client = consumer_options(options)
    if table is not None:
        client.setdefault("isolation", "read_committed")  # a redrive is a transaction
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
        client=client,
        subscription=_subscription(own) if table is None else Subscription(topics=(table.topic,)),
        starting=starting,
        ending=ending,
        is_strict_on_time=strategy == "error",
        fail_on_data_loss=parse_bool("failOnDataLoss", own.get("failOnDataLoss", "true")),
        min_partitions=_optional_int(own, "minPartitions"),
        max_records_per_partition=_optional_int(own, "maxRecordsPerPartition"),
        max_offsets_per_trigger=_optional_int(own, "maxOffsetsPerTrigger"),
        min_offsets_per_trigger=_optional_int(own, "minOffsetsPerTrigger"),
        max_bytes_per_trigger=_optional_int(own, "maxBytesPerTrigger"),
        max_trigger_delay_ms=parse_duration_ms("maxTriggerDelay", own.get("maxTriggerDelay", "15m")),
        poll_timeout_ms=_optional_int(own, "kafkaConsumer.pollTimeoutMs") or 120_000,
        columns=chosen_columns(options),
        pushes_filters=parse_bool("pushFilters", own.get("pushFilters", "false")),
        monitoring_group=_group(own),
        table=table,
    )


def write_options(options: Mapping[str, str], *, is_stream: bool = False) -> WriteOptions:
    allowed = _WRITE if is_stream else (*_WRITE, *_BATCH_WRITE)
    own = _own_options(options, allowed, "a streaming write" if is_stream else "a batch write")
    topic = own.get("topic")
    if topic is not None and not topic.strip():
        raise ConfigurationError(
            "option topic is empty", remedy="name a topic, or leave it out and give a topic column"
        )
    client = producer_options(options)
    queue = _queue(own)
    if queue is not None:
        from kwire.spark.queue_write import topic_of_queue  # only a write to a queue needs it

        topic = topic_of_queue(queue)
    delivery = parse_choice("delivery", own.get("delivery", "at-least-once"), ("at-least-once", "exactly-once"))
    if delivery == "at-least-once":
        given = [name for name in (*_EXACTLY_ONCE, *_BATCH_WRITE) if name in own]
        given += ["kafka.transaction.timeout.ms"] if "transaction_timeout_ms" in client else []
        if given:
            raise ConfigurationError(
                f"option {given[0]} is for writes exactly once", remedy="set delivery to exactly-once, or remove it"
            )
        return WriteOptions(client, topic, queue=queue)
    given_names = {name.lower(): value for name, value in options.items()}
    return WriteOptions(
        client,
        topic,
        _exactly_once(own, client, topic),
        own.get("writeId"),
        given_names.get("checkpointlocation"),
        queue,
    )


def _exactly_once(own: Mapping[str, str], client: dict[str, Any], topic: str | None) -> ExactlyOnce:
    if client.get("acks", "all") != "all" or client.get("idempotence") is False:
        raise ConfigurationError(
            "delivery exactly-once needs the acknowledgement of all replicas, and idempotence",
            remedy="remove kafka.acks and kafka.enable.idempotence",
        )
    for keyword, why in _NOT_EXACTLY_ONCE.items():
        if keyword in client:
            raise ConfigurationError(
                f"option {PREFIX}{property_names()[keyword]} has no meaning with delivery exactly-once: {why}",
                remedy="remove it",
            )
    marker_topic = own.get("markerTopic", topic or "").strip()
    if not marker_topic:
        raise ConfigurationError(
            "delivery exactly-once needs a topic for its marker",
            remedy="give the option topic, or, with a topic column, markerTopic: any topic that exists and stays",
        )
    on_in_doubt: Any = parse_choice("onInDoubt", own.get("onInDoubt", "fail"), ("fail", "repair", "duplicate", "skip"))
    on_missing = parse_choice("onMissingMarker", own.get("onMissingMarker", "fail"), ("fail", "assumeNew"))
    return ExactlyOnce(
        prefix=own.get("transactionalIdPrefix") or None,
        marker_key=(marker_topic, 0),
        transaction_timeout_ms=client.get("transaction_timeout_ms", TRANSACTION_TIMEOUT_MS),
        inline_bytes_max=parse_int("inlineMaxBytes", own.get("inlineMaxBytes", str(INLINE_BYTES_MAX)), minimum=0),
        inline_batch_bytes_max=parse_int(
            "inlineBatchMaxBytes", own.get("inlineBatchMaxBytes", str(INLINE_BATCH_BYTES_MAX)), minimum=0
        ),
        on_in_doubt=on_in_doubt,
        accepts_missing_marker=on_missing == "assumeNew",
    )


def _queue(own: Mapping[str, str]) -> QueueTarget | None:
    given = [name for name in _QUEUE if name in own]
    if "queue" not in own:
        if given:
            raise ConfigurationError(f"option {given[0]} is for writes to a queue", remedy="give the option queue")
        return None
    from kwire.spark.queue_write import QueueTarget

    if not own["queue"].strip() or "topic" in own:
        raise ConfigurationError(
            "option queue is empty" if "topic" not in own else "options queue and topic contradict each other",
            remedy="name a queue, or leave the option out",
        )
    return QueueTarget(own["queue"], _queue_service(own))


def _queue_service(own: Mapping[str, str]) -> dict[str, str]:
    """Return the keywords of `QueueOptions` that are given."""
    service = {keyword: own[name] for name, keyword in _QUEUE.items() if name in own}
    if "backend" in service:
        service["backend"] = parse_choice("queueBackend", service["backend"], ("tracker", "share"))
    return service


def queue_table(options: Mapping[str, str]) -> QueueTable | None:
    """Return the table of queues that a read is of, if the option says so."""
    documented = {name.lower(): name for name in ("queueTable", "queue", *_QUEUE)}
    own = {documented[name.lower()]: value for name, value in options.items() if name.lower() in documented}
    if not own:
        return None
    if "queueTable" not in own:
        raise ConfigurationError(
            f"option {next(iter(own))} is for writes, and for tables of queues",
            remedy="give queueTable: deadLetters or markers; messages are received by consumers of the queue",
        )
    given = {name.lower() for name in options}
    wrong = [name for name in (*_SUBSCRIPTIONS, "columns", "includeHeaders") if name.lower() in given]
    if wrong:
        raise ConfigurationError(
            f"options queueTable and {wrong[0]} contradict each other", remedy="leave one of them out"
        )
    from kwire.spark.queue_read import TABLES, table_of  # only a read of such a table needs it

    name: Any = parse_choice("queueTable", own["queueTable"], TABLES)
    return table_of(name, own.get("queue"), _queue_service(own))


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


def chosen_columns(options: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the columns of a read, if the option says which."""
    text = {name.lower(): value for name, value in options.items()}.get("columns")
    return None if text is None else parse_columns("columns", text)


def _group(own: Mapping[str, str]) -> str | None:
    group = own.get("monitoringGroup")
    if group is not None and not group.strip():
        raise ConfigurationError("option monitoringGroup is empty", remedy="name a group that has no members")
    return group


def _own_options(options: Mapping[str, str], allowed: tuple[str, ...], action: str) -> dict[str, str]:
    """Return the options of this module, with their documented case. Raise for any that `action` does not have."""
    everything = (*_READ, *_BATCH_READ, *_STREAM_READ, *_WRITE, *_BATCH_WRITE)
    documented = {name.lower(): name for name in (*everything, *_UNSUPPORTED)}
    query_options = {name.lower() for name in _QUERY_OPTIONS}
    found: dict[str, str] = {}
    if "provider" in options:
        raise ConfigurationError(
            "Spark forgets the options of a table whose source is written in Python",
            remedy="write CREATE TEMPORARY VIEW ... USING kwire OPTIONS (...), or give options to a read",
        )
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
