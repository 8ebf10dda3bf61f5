"""Constants and tables that the config APIs share: resource types, config types, config sources.

DescribeConfigs, IncrementalAlterConfigs and CreateTopics use them. The configs of a broker are its `Options` under
their names in server.properties. They are read-only.
"""

from __future__ import annotations

from collections.abc import Mapping

from kwire.broker.options import Options

# Resource types.
TOPIC, BROKER, GROUP = 2, 4, 32

# Config sources.
TOPIC_CONFIG, STATIC_BROKER_CONFIG, DEFAULT_CONFIG, GROUP_CONFIG = 1, 4, 5, 8

# Config types (KIP-569).
BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = 1, 2, 3, 5, 6, 7

_INTS = frozenset({
    "compression.gzip.level", "compression.lz4.level", "compression.zstd.level", "index.interval.bytes",
    "max.message.bytes", "min.insync.replicas", "segment.bytes", "segment.index.bytes",
    # Of groups.
    "consumer.assignment.interval.ms", "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms",
    "share.assignment.interval.ms", "share.delivery.count.limit",
    "share.heartbeat.interval.ms", "share.partition.max.record.locks", "share.record.lock.duration.ms",
    "share.session.timeout.ms",
})  # fmt: skip
LISTS = frozenset({
    "cleanup.policy", "follower.replication.throttled.replicas", "leader.replication.throttled.replicas",
})  # fmt: skip


def config_type(name: str, value: str) -> int:
    """Return the config type of a topic config, derived from its name or the form of its value."""
    if name in LISTS:
        return LIST
    if name in _INTS:
        return INT
    if value in ("true", "false"):
        return BOOLEAN
    if value.lstrip("-").isdigit():
        return LONG
    return DOUBLE if name.endswith(".ratio") else STRING


def broker_configs(options: Options, id: int) -> Mapping[str, str]:
    """Return the options that have a name in server.properties, by that name."""
    return {
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
        "message.max.bytes": str(options.max_message_bytes),
        "min.insync.replicas": str(options.min_insync_replicas),
        "num.partitions": str(options.default_partitions),
        "offsets.retention.minutes": str(options.offsets_retention_ms // 60_000),
        "transaction.max.timeout.ms": str(options.max_transaction_timeout_ms),
    }
