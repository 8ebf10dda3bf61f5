"""The configs of all kinds of resources: read them, and replace those that were set (Kafka's ConfigRepository).

Topics and groups have settings of their own (`options`, `group_configs`). What is here is dynamic configs of brokers,
levels of loggers, and subscriptions to client metrics. Names and types of dynamic configs of brokers are checked; they
change nothing, as a cluster's `Options` are fixed. The configs of a broker come from a table that a real one printed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kwire.broker.broker_config_table import BROKER_CONFIGS
from kwire.broker.options import Options
from kwire.errors import BrokerError, ErrorCode, broker_error

if TYPE_CHECKING:
    from kwire.broker.cluster_state import ClusterState

# Resource types.
TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
RESOURCE_TYPES = (TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP)

# Config sources.
(
    TOPIC_CONFIG, DYNAMIC_BROKER_CONFIG, DYNAMIC_DEFAULT_CONFIG, STATIC_BROKER_CONFIG, DEFAULT_CONFIG, LOGGER_CONFIG,
    CLIENT_METRICS_CONFIG, GROUP_CONFIG,
) = range(1, 9)  # fmt: skip

# Config types (KIP-569).
_UNKNOWN_TYPE = 0
BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, CLASS, PASSWORD = range(1, 10)

_INTS = frozenset({
    "compression.gzip.level", "compression.lz4.level", "compression.zstd.level", "index.interval.bytes",
    "max.message.bytes", "min.insync.replicas", "segment.bytes", "segment.index.bytes",
    # Of groups.
    "consumer.assignment.interval.ms", "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms",
    "share.assignment.interval.ms", "share.delivery.count.limit",
    "share.heartbeat.interval.ms", "share.partition.max.record.locks", "share.record.lock.duration.ms",
    "share.session.timeout.ms",
    # Of client metrics.
    "interval.ms",
})  # fmt: skip
_LISTS = frozenset({
    "cleanup.policy", "follower.replication.throttled.replicas", "leader.replication.throttled.replicas",
    "metrics", "match",
})  # fmt: skip
_LEVELS = ("FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE")
_ROOT_LOGGER = "root"
# The loggers of Kafka's own log4j2.yaml.
_LOGGERS: Mapping[str, str] = {
    _ROOT_LOGGER: "INFO", "kafka": "INFO", "kafka.authorizer.logger": "INFO", "kafka.network.RequestChannel$": "WARN",
    "kafka.request.logger": "WARN", "org.apache.kafka": "INFO", "org.apache.kafka.controller": "INFO",
    "org.apache.kafka.storage.internals.log.LogCleaner": "INFO", "state.change.logger": "INFO",
}  # fmt: skip
_METRICS_DEFAULTS: Mapping[str, str] = {"interval.ms": "300000", "match": "", "metrics": ""}
_METRICS_INTERVALS = range(100, 3_600_001)
_MATCHES = frozenset({
    "client_instance_id", "client_id", "client_software_name", "client_software_version", "client_source_address",
    "client_source_port",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """One line of the table: what a real broker says about a config."""

    name: str
    type: int
    is_read_only: bool
    is_sensitive: bool
    default: str | None


def _table() -> Iterator[BrokerConfig]:
    for line in BROKER_CONFIGS.strip().splitlines():
        name, kind, *rest = line.split(" ", 2)
        default = rest[0].replace("\\n", "\n") if rest else ""
        yield BrokerConfig(name, int(kind[0]), "r" in kind, "s" in kind, None if default == "-" else default)


TABLE: Mapping[str, BrokerConfig] = {config.name: config for config in _table()}


@dataclass(frozen=True, slots=True)
class Entry:
    """A config as DescribeConfigs returns it. `synonyms` are the values by source, the one that counts first."""

    name: str
    value: str | None
    source: int
    type: int
    is_read_only: bool = False
    is_sensitive: bool = False
    synonyms: Sequence[tuple[str | None, int]] = ()


def config_type(name: str, value: str) -> int:
    """Return the config type of a topic's or group's config, derived from its name or the form of its value."""
    if name in _LISTS:
        return LIST
    if name in _INTS:
        return INT
    if value in ("true", "false"):
        return BOOLEAN
    if value.lstrip("-").isdigit():
        return LONG
    return DOUBLE if name.endswith(".ratio") else STRING


def is_list(resource_type: int, name: str) -> bool:
    """Return whether values can be appended to a config and subtracted from it."""
    return name in TABLE and TABLE[name].type == LIST if resource_type == BROKER else name in _LISTS


class Configs:
    """The configs of a cluster."""

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster
        self._brokers: dict[str, dict[str, str]] = {}  # by id; "" is the default of all brokers
        self._loggers: dict[int, dict[str, str]] = {id: dict(_LOGGERS) for id in cluster.nodes}
        self._client_metrics: dict[str, dict[str, str]] = {}

    def has_type(self, resource_type: int) -> bool:
        """Return whether resources of this type have configs: subscriptions to metrics do since Kafka 3.7."""
        if resource_type == CLIENT_METRICS:
            return self._cluster.options.is_at_least("3.7")
        return resource_type in RESOURCE_TYPES

    @property
    def client_metrics(self) -> Mapping[str, Mapping[str, str]]:
        """Return the subscriptions by name, each with all its configs."""
        return {name: {**_METRICS_DEFAULTS, **configs} for name, configs in self._client_metrics.items()}

    def names(self, resource_type: int) -> list[str]:
        """Return the resources of a type that have configs."""
        if resource_type == TOPIC:
            return list(self._cluster.topics)
        if resource_type in (BROKER, LOGGER):
            return [str(id) for id in self._cluster.nodes]
        if resource_type == CLIENT_METRICS:
            return list(self._client_metrics)
        return self._cluster.group_configs.names()

    def describe(self, resource_type: int, name: str, node: int) -> list[Entry]:
        """Return the configs of a resource as the broker `node` knows them. Raises BrokerError."""
        options = self._cluster.options
        if resource_type == TOPIC:
            settings = self._cluster.find_topic(name).settings
            return _entries(settings.shown(options), settings.configs, TOPIC_CONFIG)
        if resource_type == GROUP:
            if not name:
                raise broker_error(ErrorCode.INVALID_REQUEST, "Group name must not be empty.")
            group = self._cluster.group_configs.of(name)
            return _entries(group.shown(options), group.configs, GROUP_CONFIG)
        if resource_type == CLIENT_METRICS:
            if not name:
                raise _invalid_request("Client metrics subscription name must not be empty")
            found = self._client_metrics.get(name, {})
            return _entries({**_METRICS_DEFAULTS, **found}, found, CLIENT_METRICS_CONFIG)
        if resource_type == BROKER and not name:
            defaults = self._brokers.get("", {})
            return [self._broker_entry(TABLE[key], {key: value}, {}, None) for key, value in sorted(defaults.items())]
        self._check_node(name, node)
        if resource_type == LOGGER:
            return [
                Entry(key, level, LOGGER_CONFIG, _UNKNOWN_TYPE) for key, level in sorted(self._loggers[node].items())
            ]
        static = _static_configs(options, node)
        return [
            self._broker_entry(config, self._brokers.get("", {}), self._brokers.get(name, {}), static.get(config.name))
            for config in TABLE.values()
        ]

    @staticmethod
    def _broker_entry(
        config: BrokerConfig, defaults: Mapping[str, str], own: Mapping[str, str], static: str | None
    ) -> Entry:
        synonyms: list[tuple[str | None, int]] = []
        if config.name in own:
            synonyms.append((own[config.name], DYNAMIC_BROKER_CONFIG))
        if config.name in defaults:
            synonyms.append((defaults[config.name], DYNAMIC_DEFAULT_CONFIG))
        if static is not None and static != config.default:
            synonyms.append((static, STATIC_BROKER_CONFIG))
        if config.default is not None:
            synonyms.append((config.default, DEFAULT_CONFIG))
        value, source = synonyms[0] if synonyms else (None, DEFAULT_CONFIG)
        if config.is_sensitive:
            value = None
            synonyms = [(None, source) for _, source in synonyms]
        return Entry(config.name, value, source, config.type, config.is_read_only, config.is_sensitive, tuple(synonyms))

    def set_values(self, resource_type: int, name: str, node: int) -> Mapping[str, str]:
        """Return the configs that were set for a resource. Raises BrokerError."""
        if resource_type == TOPIC:
            return self._cluster.find_topic(name).settings.configs
        if resource_type == GROUP:
            return self._cluster.group_configs.of(name).configs
        if resource_type == CLIENT_METRICS:
            return self._client_metrics.get(name, {})
        if resource_type == BROKER and not name:
            return self._brokers.get("", {})
        self._check_node(name, node)
        return self._loggers[node] if resource_type == LOGGER else self._brokers.get(name, {})

    def replace(
        self, resource_type: int, name: str, node: int, values: Mapping[str, str | None], *, validate_only: bool
    ) -> None:
        """Set these configs of a resource and no others. Raises BrokerError, and changes nothing then."""
        if resource_type == TOPIC:
            self._cluster.alter_topic(self._cluster.find_topic(name), values, validate_only=validate_only)
            return
        if resource_type == GROUP:
            self._cluster.group_configs.alter(name, values, validate_only=validate_only)
            return
        checked = _without_null(values)
        if resource_type == CLIENT_METRICS:
            _check_metrics(name, checked)
            stored: dict[str, dict[str, str]] = self._client_metrics
        elif resource_type == LOGGER:
            self._check_node(name, node)
            _check_levels(checked)
            if not validate_only:
                self._loggers[node] = {**_LOGGERS, **checked}
            return
        else:
            if name:
                self._check_node(name, node)
            _check_broker_configs(checked, self._brokers.get(name, {}), is_default=not name)
            stored = self._brokers
        if validate_only:
            return
        if checked:
            stored[name] = checked
        else:
            stored.pop(name, None)

    @staticmethod
    def _check_node(name: str, node: int) -> None:
        if not name.isdigit():
            raise _invalid_request(f"Broker id must be an integer, but it is: {name}")
        if int(name) != node:
            raise _invalid_request(f"Unexpected broker id, expected {node} or empty string, but received {name}")


def _entries(shown: Mapping[str, str], chosen: Mapping[str, str], source: int) -> list[Entry]:
    entries = []
    for name, value in shown.items():
        found = source if name in chosen else DEFAULT_CONFIG
        entries.append(Entry(name, value, found, config_type(name, value), synonyms=((value, found),)))
    return entries


def _without_null(values: Mapping[str, str | None]) -> dict[str, str]:
    for name, value in values.items():
        if value is None:
            raise _invalid_request(f"Null value not supported for config {name}")
    return {name: value for name, value in values.items() if value is not None}


def _check_metrics(name: str, values: Mapping[str, str]) -> None:
    if not name:
        raise _invalid_request("Subscription name can't be empty")
    for key, value in values.items():
        if key not in _METRICS_DEFAULTS:
            raise _invalid_request(f"Unknown client metrics configuration: {key}")
        if key == "interval.ms" and (not value.isdigit() or int(value) not in _METRICS_INTERVALS):
            raise _invalid_request(
                f"Invalid value {value} for interval.ms, interval must be between 100 and 3600000 ms"
            )
        if key == "match":
            parse_match(value)


def parse_match(text: str) -> dict[str, re.Pattern[str]]:
    """Return the patterns of a subscription by what they match. Raises INVALID_CONFIG."""
    patterns = {}
    for part in filter(None, text.split(",")):
        name, equals, pattern = part.partition("=")
        if not equals or name.strip() not in _MATCHES:
            raise broker_error(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {part}")
        try:
            patterns[name.strip()] = re.compile(pattern.strip())
        except re.error:
            raise broker_error(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {part}") from None
    return patterns


def _check_levels(values: Mapping[str, str]) -> None:
    for name, level in values.items():
        if name not in _LOGGERS:
            raise broker_error(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
        if level not in _LEVELS:
            why = f"Cannot set the log level of {name} to {level} as it is not a supported log level. "
            raise broker_error(ErrorCode.INVALID_CONFIG, f"{why}Valid log levels are {', '.join(_LEVELS)}")


def _check_broker_configs(values: Mapping[str, str], before: Mapping[str, str], *, is_default: bool) -> None:
    for name, value in values.items():
        if before.get(name) == value:
            continue
        config = TABLE.get(name)
        if config is None or config.is_read_only:
            raise _invalid_request(f"Cannot update these configs dynamically: Set({name})")
        if is_default and config.is_sensitive:
            raise _invalid_request(f"These security configs can be dynamically updated only per broker: Set({name})")
        check = _CHECKS.get(config.type)
        try:
            is_valid = check is None or check(value)
        except ValueError:
            is_valid = False
        if not is_valid:
            raise _invalid_request(f"Invalid value {value} for configuration {name}")


def _is_boolean(value: str) -> bool:
    return value.lower() in ("true", "false")


def _is_integer(value: str) -> bool:
    return "_" not in value and isinstance(int(value), int)


def _is_double(value: str) -> bool:
    return isinstance(float(value), float)


_CHECKS: Mapping[int, Callable[[str], bool]] = {
    BOOLEAN: _is_boolean, INT: _is_integer, SHORT: _is_integer, LONG: _is_integer, DOUBLE: _is_double,
}  # fmt: skip


def _invalid_request(why: str) -> BrokerError:
    return broker_error(ErrorCode.INVALID_REQUEST, why)


def _static_configs(options: Options, id: int) -> Mapping[str, str]:
    """Return the options that have a name in server.properties, by that name."""
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer" if options.authorizer else ""
    return {
        "authorizer.class.name": authorizer,
        "auto.create.topics.enable": str(options.auto_create_topics).lower(),
        "broker.id": str(id),
        "connections.max.idle.ms": str(options.idle_timeout_ms),
        "default.replication.factor": str(options.default_replication_factor),
        "group.consumer.heartbeat.interval.ms": str(options.consumer_group_heartbeat_interval_ms),
        "group.consumer.max.heartbeat.interval.ms": str(options.consumer_group_max_heartbeat_interval_ms),
        "group.consumer.max.session.timeout.ms": str(options.consumer_group_max_session_timeout_ms),
        "group.consumer.max.size": str(options.consumer_group_max_size),
        "group.consumer.migration.policy": options.consumer_group_migration_policy,
        "group.consumer.min.heartbeat.interval.ms": str(options.consumer_group_min_heartbeat_interval_ms),
        "group.consumer.min.session.timeout.ms": str(options.consumer_group_min_session_timeout_ms),
        "group.consumer.session.timeout.ms": str(options.consumer_group_session_timeout_ms),
        "group.initial.rebalance.delay.ms": str(options.group_initial_rebalance_delay_ms),
        "group.max.session.timeout.ms": str(options.group_max_session_timeout_ms),
        "group.max.size": str(options.group_max_size),
        "group.min.session.timeout.ms": str(options.group_min_session_timeout_ms),
        "group.share.delivery.count.limit": str(options.share_delivery_count_limit),
        "group.share.heartbeat.interval.ms": str(options.share_heartbeat_interval_ms),
        "group.share.max.share.sessions": str(options.share_max_sessions),
        "group.share.max.size": str(options.share_group_max_size),
        "group.share.partition.max.record.locks": str(options.share_max_record_locks),
        "group.share.record.lock.duration.ms": str(options.share_record_lock_ms),
        "group.share.session.timeout.ms": str(options.share_session_timeout_ms),
        "group.streams.heartbeat.interval.ms": str(options.streams_heartbeat_interval_ms),
        "group.streams.max.size": str(options.streams_group_max_size),
        "group.streams.num.standby.replicas": str(options.streams_standby_replicas),
        "group.streams.session.timeout.ms": str(options.streams_session_timeout_ms),
        "message.max.bytes": str(options.max_message_bytes),
        "min.insync.replicas": str(options.min_insync_replicas),
        "node.id": str(id),
        "num.partitions": str(options.default_partitions),
        "offsets.retention.minutes": str(options.offsets_retention_ms // 60_000),
        "transaction.max.timeout.ms": str(options.max_transaction_timeout_ms),
    }
