"""`kafka.*` options, which Spark's users know from Java's clients, translated to the keywords of kwire's clients.

Owns one table a role: the Java property, our keyword and how the value is read. A property in no table is refused with
the reason where we know it, else with the names that come closest: an option that is silently ignored is worse than an
error. Option names are matched in lower case, as Spark delivers them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

from kwire.errors import ConfigurationError
from kwire.spark import security
from kwire.spark.values import flag, one_of, whole

PREFIX = "kafka."

# What a client is called in the brokers' logs and quotas, unless kafka.client.id says otherwise.
CLIENT_ID = "kwire-spark"


class _Property(NamedTuple):
    keyword: str
    read: Callable[[str, str], object]


def _text(name: str, value: str) -> str:
    return value


def _number(least: int) -> Callable[[str, str], int]:
    return lambda name, value: whole(name, value, least=least)


def _acks(name: str, value: str) -> int | str:
    meant = one_of(name, value, {"all": "all", "-1": "all", "1": "1", "0": "0"})
    return meant if meant == "all" else int(meant)


def _compression(name: str, value: str) -> str:
    return one_of(name, value, ("none", "gzip", "snappy", "lz4", "zstd"))


def _isolation(name: str, value: str) -> str:
    return one_of(name, value, ("read_uncommitted", "read_committed"))


_CLIENT = {
    "client.id": _Property("client_id", _text),
    "request.timeout.ms": _Property("request_timeout_ms", _number(1)),
    "socket.connection.setup.timeout.ms": _Property("connect_timeout_ms", _number(1)),
    "connections.max.idle.ms": _Property("idle_timeout_ms", _number(1)),
    "metadata.max.age.ms": _Property("metadata_max_age_ms", _number(1)),
    "retry.backoff.ms": _Property("retry_backoff_ms", _number(1)),
    "retry.backoff.max.ms": _Property("retry_backoff_ms_max", _number(1)),
    "reconnect.backoff.ms": _Property("reconnect_backoff_ms", _number(1)),
    "reconnect.backoff.max.ms": _Property("reconnect_backoff_ms_max", _number(1)),
    "allow.auto.create.topics": _Property("allow_auto_create_topics", flag),
}
_PRODUCER = {
    "acks": _Property("acks", _acks),
    "batch.size": _Property("batch_bytes", _number(1)),
    "buffer.memory": _Property("max_buffered_bytes", _number(1)),
    "compression.type": _Property("compression", _compression),
    "delivery.timeout.ms": _Property("delivery_timeout_ms", _number(1)),
    "enable.idempotence": _Property("idempotence", flag),
    "linger.ms": _Property("linger_ms", _number(0)),
    "max.block.ms": _Property("max_block_ms", _number(0)),
    "max.in.flight.requests.per.connection": _Property("max_in_flight", _number(1)),
    "max.request.size": _Property("max_request_bytes", _number(1)),
    "retries": _Property("retries", _number(0)),
}
_CONSUMER = {
    "isolation.level": _Property("isolation", _isolation),
    "check.crcs": _Property("check_crc", flag),
    "client.rack": _Property("rack", _text),
    "fetch.max.bytes": _Property("max_bytes", _number(1)),
    "fetch.max.wait.ms": _Property("max_wait_ms", _number(0)),
    "fetch.min.bytes": _Property("min_bytes", _number(0)),
    "max.partition.fetch.bytes": _Property("partition_max_bytes", _number(1)),
}

_NO_GROUP = "kwire's reads belong to no consumer group; remove it"
_BYTES = "records are bytes here; convert columns with CAST or from_json"
_REFUSED = {
    "auto.offset.reset": "use startingOffsets",
    "enable.auto.commit": "Spark keeps the offsets in its checkpoint",
    "default.api.timeout.ms": "give kafka.request.timeout.ms",
    "group.id": _NO_GROUP,
    "group.instance.id": _NO_GROUP,
    "heartbeat.interval.ms": _NO_GROUP,
    "interceptor.classes": "kwire runs no Java classes",
    "key.deserializer": _BYTES,
    "key.serializer": _BYTES,
    "max.poll.interval.ms": _NO_GROUP,
    "max.poll.records": "maxOffsetsPerTrigger bounds a micro-batch, maxRecordsPerPartition a task; remove it",
    "metric.reporters": "kwire runs no Java classes",
    "partition.assignment.strategy": _NO_GROUP,
    "partitioner.class": "give a partition column to choose the partition",
    "receive.buffer.bytes": "kwire leaves it to the system; remove it",
    "send.buffer.bytes": "kwire leaves it to the system; remove it",
    "session.timeout.ms": _NO_GROUP,
    "transactional.id": "writes are at least once; they cannot take part in a transaction",
    "value.deserializer": _BYTES,
    "value.serializer": _BYTES,
    **security.REFUSED,
}


def property_names() -> dict[str, str]:
    """Of each keyword of a client that has a property, without the prefix."""
    return {option.keyword: name for name, option in (_CLIENT | _PRODUCER | _CONSUMER).items()}


def producer_options(options: Mapping[str, str]) -> dict[str, Any]:
    """Keywords for `kwire.Producer`, `bootstrap` included."""
    return _translate(options, _CLIENT | _PRODUCER, _CONSUMER, "reading")


def consumer_options(options: Mapping[str, str]) -> dict[str, Any]:
    """Keywords for `kwire.Consumer`, `bootstrap` included.

    Java's consumer lets any of its size limits stand alone; ours wants partition <= answer <= buffer. So limits that
    are not given move out of the way of those that are.
    """
    from kwire.consumer import ConsumerOptions  # only a read needs it

    keywords = _translate(options, _CLIENT | _CONSUMER, _PRODUCER, "writing")
    partition_bytes = keywords.get("partition_max_bytes", ConsumerOptions.partition_max_bytes)
    answer_bytes = keywords.get("max_bytes", ConsumerOptions.max_bytes)
    if "partition_max_bytes" in keywords and partition_bytes > answer_bytes:
        keywords["max_bytes"] = answer_bytes = partition_bytes
    elif partition_bytes > answer_bytes:
        keywords["partition_max_bytes"] = answer_bytes
    if answer_bytes > ConsumerOptions.max_buffered_bytes:
        keywords["max_buffered_bytes"] = answer_bytes
    return keywords


def admin_options(consumer: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords of a Consumer that an Admin takes as well."""
    from kwire.consumer import ConsumerOptions

    own = ConsumerOptions.option_names()
    return {keyword: value for keyword, value in consumer.items() if keyword not in own}


def _translate(
    options: Mapping[str, str], table: Mapping[str, _Property], others: Mapping[str, _Property], others_are_for: str
) -> dict[str, Any]:
    properties = {
        name.lower().removeprefix(PREFIX): value for name, value in options.items() if name.lower().startswith(PREFIX)
    }
    bootstrap = properties.pop("bootstrap.servers", "").strip()
    if not bootstrap:
        raise ConfigurationError("option kafka.bootstrap.servers is missing", remedy='give "host:port" of a broker')
    keywords: dict[str, Any] = {"bootstrap": bootstrap, "client_id": CLIENT_ID}
    for name, value in properties.items():
        if name in table:
            keywords[table[name].keyword] = table[name].read(PREFIX + name, value)
        elif name not in security.PROPERTIES:
            raise _refusal(name, table, others, others_are_for)
    tls, sasl = security.tls_and_sasl(properties)
    return keywords | ({"tls": tls} if tls else {}) | ({"sasl": sasl} if sasl else {})


def _refusal(
    name: str, table: Mapping[str, _Property], others: Mapping[str, _Property], others_are_for: str
) -> ConfigurationError:
    if name in _REFUSED:
        return ConfigurationError(f"option kafka.{name} is not supported", remedy=_REFUSED[name])
    if name in others:
        return ConfigurationError(f"option kafka.{name} is for {others_are_for}", remedy="remove it here")
    known = sorted({"bootstrap.servers", *table, *security.PROPERTIES})
    near = get_close_matches(name, known, n=3) or known
    return ConfigurationError(
        f"option kafka.{name} is not supported", remedy=f"alternatives: {', '.join(PREFIX + n for n in near)}"
    )
