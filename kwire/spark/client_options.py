"""`kafka.*` options, translated to keywords of kwire's clients, `Tls` and `Sasl` included.

Spark users know these options from Java's clients. A table per client maps each property to kwire's keyword and the
parser of its value. A property in no table raises an error with the reason or similar names: no option is ignored.
Spark delivers option names in lower case.

Security properties are those of `kwire.cluster.security_properties`. TLS files are opened where records are read and
written, so they must exist on every executor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kwire.cluster.security_properties import PEM_REMEDY, SECURITY_PROPERTIES, tls_and_sasl
from kwire.errors import ConfigurationError
from kwire.option_checks import near_names
from kwire.spark.option_parsers import parse_bool, parse_choice, parse_int

PREFIX = "kafka."

# The client id in brokers' logs and quotas, unless kafka.client.id is given.
CLIENT_ID = "kwire-spark"


class _Property(NamedTuple):
    keyword: str
    parse: Callable[[str, str], object]


def _parse_text(name: str, value: str) -> str:
    return value


def _parse_number(minimum: int) -> Callable[[str, str], int]:
    return lambda name, value: parse_int(name, value, minimum=minimum)


def _parse_acks(name: str, value: str) -> int | str:
    acks = parse_choice(name, value, {"all": "all", "-1": "all", "1": "1", "0": "0"})
    return acks if acks == "all" else int(acks)


def _parse_compression(name: str, value: str) -> str:
    return parse_choice(name, value, ("none", "gzip", "snappy", "lz4", "zstd"))


def _parse_isolation(name: str, value: str) -> str:
    return parse_choice(name, value, ("read_uncommitted", "read_committed"))


_CLIENT = {
    "client.id": _Property("client_id", _parse_text),
    "request.timeout.ms": _Property("request_timeout_ms", _parse_number(1)),
    "socket.connection.setup.timeout.ms": _Property("connect_timeout_ms", _parse_number(1)),
    "connections.max.idle.ms": _Property("idle_timeout_ms", _parse_number(1)),
    "metadata.max.age.ms": _Property("metadata_max_age_ms", _parse_number(1)),
    "retry.backoff.ms": _Property("retry_backoff_ms", _parse_number(1)),
    "retry.backoff.max.ms": _Property("retry_backoff_ms_max", _parse_number(1)),
    "reconnect.backoff.ms": _Property("reconnect_backoff_ms", _parse_number(1)),
    "reconnect.backoff.max.ms": _Property("reconnect_backoff_ms_max", _parse_number(1)),
    "allow.auto.create.topics": _Property("allow_auto_create_topics", parse_bool),
}
_PRODUCER = {
    "acks": _Property("acks", _parse_acks),
    "batch.size": _Property("batch_bytes", _parse_number(1)),
    "buffer.memory": _Property("max_buffered_bytes", _parse_number(1)),
    "compression.type": _Property("compression", _parse_compression),
    "delivery.timeout.ms": _Property("delivery_timeout_ms", _parse_number(1)),
    "enable.idempotence": _Property("idempotence", parse_bool),
    "linger.ms": _Property("linger_ms", _parse_number(0)),
    "max.block.ms": _Property("max_block_ms", _parse_number(0)),
    "max.in.flight.requests.per.connection": _Property("max_in_flight", _parse_number(1)),
    "max.request.size": _Property("max_request_bytes", _parse_number(1)),
    "retries": _Property("retries", _parse_number(0)),
    "transaction.timeout.ms": _Property("transaction_timeout_ms", _parse_number(1)),
}
_CONSUMER = {
    "isolation.level": _Property("isolation", _parse_isolation),
    "check.crcs": _Property("check_crc", parse_bool),
    "client.rack": _Property("rack", _parse_text),
    "fetch.max.bytes": _Property("max_bytes", _parse_number(1)),
    "fetch.max.wait.ms": _Property("max_wait_ms", _parse_number(0)),
    "fetch.min.bytes": _Property("min_bytes", _parse_number(0)),
    "max.partition.fetch.bytes": _Property("partition_max_bytes", _parse_number(1)),
}

_IN_A_FILE = "put the PEM into a file that every executor can read, and name the file in kafka.{}"
_LOGIN = "kwire logs in by itself; give kafka.sasl.mechanism and kafka.sasl.jaas.config"
UNSUPPORTED_SECURITY = {
    "ssl.truststore.certificates": _IN_A_FILE.format("ssl.truststore.location"),
    "ssl.keystore.certificate.chain": _IN_A_FILE.format("ssl.keystore.location"),
    "ssl.keystore.key": _IN_A_FILE.format("ssl.keystore.location"),
    "ssl.truststore.password": "a PEM file has none; " + PEM_REMEDY,
    "ssl.keystore.password": "a PEM file has none, its key's is kafka.ssl.key.password; " + PEM_REMEDY,
    "sasl.login.class": _LOGIN,
    "sasl.client.callback.handler.class": _LOGIN,
}

_NO_GROUP = "kwire's reads belong to no consumer group; remove it"
_BYTES = "records are bytes here; convert columns with CAST or from_json"
_UNSUPPORTED = {
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
    "transactional.id": "set delivery to exactly-once, and give transactionalIdPrefix if the ids matter",
    "value.deserializer": _BYTES,
    "value.serializer": _BYTES,
    **UNSUPPORTED_SECURITY,
}


def property_names() -> dict[str, str]:
    """Return the Java property, without prefix, of each client keyword that has one."""
    return {option.keyword: name for name, option in (_CLIENT | _PRODUCER | _CONSUMER).items()}


def producer_options(options: Mapping[str, str]) -> dict[str, Any]:
    """Return keywords for `kwire.Producer`, with `bootstrap`."""
    return _translate(options, _CLIENT | _PRODUCER, _CONSUMER, "reading")


def consumer_options(options: Mapping[str, str]) -> dict[str, Any]:
    """Return keywords for `kwire.Consumer`, with `bootstrap`.

    kwire requires partition_max_bytes <= max_bytes <= max_buffered_bytes; Java's consumer has no such rule. So the
    limits that are not given are adapted to those that are.
    """
    from kwire.consumer import ConsumerOptions  # only a read needs it

    keywords = _translate(options, _CLIENT | _CONSUMER, _PRODUCER, "writing")
    partition_bytes = keywords.get("partition_max_bytes", ConsumerOptions.partition_max_bytes)
    response_bytes = keywords.get("max_bytes", ConsumerOptions.max_bytes)
    if "partition_max_bytes" in keywords and partition_bytes > response_bytes:
        keywords["max_bytes"] = response_bytes = partition_bytes
    elif partition_bytes > response_bytes:
        keywords["partition_max_bytes"] = response_bytes
    if response_bytes > ConsumerOptions.max_buffered_bytes:
        keywords["max_buffered_bytes"] = response_bytes
    return keywords


def admin_options(consumer: Mapping[str, Any]) -> dict[str, Any]:
    """Return those keywords of a Consumer that an Admin also accepts."""
    from kwire.consumer import ConsumerOptions

    own = ConsumerOptions.option_names()
    return {keyword: value for keyword, value in consumer.items() if keyword not in own}


def _translate(
    options: Mapping[str, str], table: Mapping[str, _Property], others: Mapping[str, _Property], others_purpose: str
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
            keywords[table[name].keyword] = table[name].parse(PREFIX + name, value)
        elif name not in SECURITY_PROPERTIES:
            raise _unsupported_error(name, table, others, others_purpose)
    tls, sasl = tls_and_sasl(properties, PREFIX)
    return keywords | ({"tls": tls} if tls else {}) | ({"sasl": sasl} if sasl else {})


def _unsupported_error(
    name: str, table: Mapping[str, _Property], others: Mapping[str, _Property], others_purpose: str
) -> ConfigurationError:
    if name in _UNSUPPORTED:
        return ConfigurationError(f"option kafka.{name} is not supported", remedy=_UNSUPPORTED[name])
    if name in others:
        return ConfigurationError(f"option kafka.{name} is for {others_purpose}", remedy="remove it here")
    known = sorted({"bootstrap.servers", *table, *SECURITY_PROPERTIES})
    near = near_names(name, known, max_names=3) or known
    return ConfigurationError(
        f"option kafka.{name} is not supported", remedy=f"alternatives: {', '.join(PREFIX + n for n in near)}"
    )
