"""Every option and limit of the embedded cluster, and of a topic in it.

`Options` corresponds to server.properties, `TopicSettings` to a topic's configs. Names of topic configs are Kafka's.
Unknown configs are rejected, as in Kafka. Configs of disks and replication traffic are stored and shown, but have no
effect: there are neither.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, TypedDict

from kwire.errors import BrokerError, ConfigurationError, ErrorCode, broker_error
from kwire.option_checks import did_you_mean
from kwire.protocol.releases import RELEASES

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1
TRANSACTION_VERSIONS = range(3)
SHARE_VERSIONS = range(3)
GROUP_VERSIONS = range(2)
MIGRATION_POLICIES = ("bidirectional", "upgrade", "downgrade", "disabled")


class FirstSequence(Enum):
    """Which first sequence a partition accepts from an idempotent producer that it does not know.

    ANY: brokers 2.5 to 4.4. The second of two requests in flight can be appended before the first, which is then out of
    order for ever (KAFKA-15591).
    ZERO_IN_NEW_LOG: brokers since 4.5. A log that never had a record accepts only 0.
    """

    ANY = "any"
    ZERO_IN_NEW_LOG = "zero_in_new_log"


class ClusterKwargs(TypedDict, total=False):
    """The keywords of `Options`, for the constructor of `Cluster`."""

    cluster_id: str
    version: str | None
    seed: int | None
    auto_create_topics: bool
    default_partitions: int
    default_replication_factor: int
    min_insync_replicas: int
    max_partitions: int
    max_message_bytes: int
    topic_configs: Mapping[str, str]
    storage_bytes_max: int
    retention_check_ms: int
    cleaner_backoff_ms: int
    replication_ms: int
    first_sequence: FirstSequence
    producer_id_expiration_ms: int
    max_producers_per_partition: int
    transaction_version: int
    max_transaction_timeout_ms: int
    transaction_marker_ms: int
    verify_transactional_writes: bool
    max_transactional_ids: int
    transactional_id_expiration_ms: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    fetch_session_slots: int
    fetch_quota_bytes_per_second: int
    replica_selector: str
    group_initial_rebalance_delay_ms: int
    group_min_session_timeout_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    max_groups: int
    new_member_join_timeout_ms: int
    group_version: int
    consumer_group_session_timeout_ms: int
    consumer_group_min_session_timeout_ms: int
    consumer_group_max_session_timeout_ms: int
    consumer_group_heartbeat_interval_ms: int
    consumer_group_min_heartbeat_interval_ms: int
    consumer_group_max_heartbeat_interval_ms: int
    consumer_group_assignment_interval_ms: int
    consumer_group_max_size: int
    consumer_group_migration_policy: str
    offset_metadata_max_bytes: int
    offsets_retention_ms: int
    offsets_retention_check_ms: int
    max_offsets_per_group: int
    streams_session_timeout_ms: int
    streams_heartbeat_interval_ms: int
    streams_standby_replicas: int
    streams_group_max_size: int
    share_version: int
    share_session_timeout_ms: int
    share_heartbeat_interval_ms: int
    share_group_max_size: int
    share_max_sessions: int
    share_record_lock_ms: int
    share_min_record_lock_ms: int
    share_max_record_lock_ms: int
    share_delivery_count_limit: int
    share_max_record_locks: int
    dead_letter_auto_create: bool
    dead_letter_prefix: str
    authorizer: bool
    super_users: str
    allow_everyone_if_no_acl_found: bool
    max_frame_bytes: int
    max_connections: int
    max_queued_requests: int
    idle_timeout_ms: int
    request_log_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Times are in milliseconds, sizes in bytes; the defaults are Kafka's unless a comment says otherwise."""

    cluster_id: str = "kwire-embedded-cluster"
    # The Kafka release that the brokers imitate: "4.0". Its API versions are served, and its rules hold where releases
    # differ. None: the newest rules, and every API version that kwire knows, also those that Kafka 4 no longer serves.
    version: str | None = None
    seed: int | None = None  # of random ids (topics, members); None: different ones in each cluster

    # Topics.
    auto_create_topics: bool = True
    default_partitions: int = 1
    default_replication_factor: int = 3  # at most the number of brokers
    min_insync_replicas: int = 1
    max_partitions: int = 10_000  # in the cluster
    max_message_bytes: int = 1_048_588  # of one record batch as it is sent
    topic_configs: Mapping[str, str] = field(default_factory=dict)  # defaults of all topics

    # Storage. Memory is small, so a full cluster rejects records instead of deleting older ones.
    storage_bytes_max: int = 1 << 30
    retention_check_ms: int = 300_000
    cleaner_backoff_ms: int = 15_000  # how often logs are compacted that need it
    replication_ms: int = 0  # how long replication takes; above 0 only in simulations

    # Producers.
    first_sequence: FirstSequence = FirstSequence.ANY
    producer_id_expiration_ms: int = 86_400_000
    max_producers_per_partition: int = 10_000  # the longest idle one is removed first

    # Transactions. transaction_version is the feature level that selects the clients' protocol: 2 is KIP-890, 0 means
    # not
    # finalized. As in Kafka it does not change the served API versions; `api_versions` of `Cluster` does.
    transaction_version: int = 2
    max_transaction_timeout_ms: int = 900_000
    transaction_marker_ms: int = 0  # delay between the decision and the markers
    verify_transactional_writes: bool = True  # of the older protocol: check that partitions were added
    max_transactional_ids: int = 10_000
    transactional_id_expiration_ms: int = 604_800_000

    # Fetches.
    fetch_max_bytes: int = 57_671_680
    fetch_max_wait_ms: int = 600_000  # the upper limit of max_wait_ms
    fetch_session_slots: int = 1_000  # of each broker (KIP-227); 0: no sessions
    fetch_quota_bytes_per_second: int = 0  # of each client id (KIP-124); 0: no quota
    replica_selector: str = ""  # "rack": clients read from a replica in their rack (KIP-392)

    # Groups. Kafka's initial delay is 3 s; a test cluster does not wait for members that start later.
    group_initial_rebalance_delay_ms: int = 0
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 10_000
    max_groups: int = 10_000
    new_member_join_timeout_ms: int = 300_000
    # Consumer groups (KIP-848): group.consumer.*. The feature level 0 turns them off. Kafka's assignment interval (4.3,
    # KIP-1263) is 1 s; a test cluster assigns at once.
    group_version: int = 1
    consumer_group_session_timeout_ms: int = 45_000
    consumer_group_min_session_timeout_ms: int = 45_000
    consumer_group_max_session_timeout_ms: int = 60_000
    consumer_group_heartbeat_interval_ms: int = 5_000
    consumer_group_min_heartbeat_interval_ms: int = 5_000
    consumer_group_max_heartbeat_interval_ms: int = 15_000
    consumer_group_assignment_interval_ms: int = 0
    consumer_group_max_size: int = INT_MAX
    consumer_group_migration_policy: str = "bidirectional"  # or "upgrade", "downgrade", "disabled"
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 604_800_000
    offsets_retention_check_ms: int = 600_000
    max_offsets_per_group: int = 100_000

    # Groups of Kafka Streams. A group's own configs replace the first three.
    streams_session_timeout_ms: int = 45_000
    streams_heartbeat_interval_ms: int = 5_000
    streams_standby_replicas: int = 0
    streams_group_max_size: int = 2_147_483_647

    # Share groups. share_version is a feature level: 0 no share groups, 1 share groups, 2 dead letter queues, too
    # (KIP-1191, Kafka 4.4). A group's own configs replace those that exist under the same name.
    share_version: int = 2
    share_session_timeout_ms: int = 45_000
    share_heartbeat_interval_ms: int = 5_000
    share_group_max_size: int = 200
    share_max_sessions: int = 2_000  # of one broker
    share_record_lock_ms: int = 30_000
    share_min_record_lock_ms: int = 15_000  # of a group's config
    share_max_record_lock_ms: int = 60_000
    share_delivery_count_limit: int = 5
    share_max_record_locks: int = 2_000  # of one partition
    dead_letter_auto_create: bool = False
    dead_letter_prefix: str = "dlq."  # of topics that are created automatically

    # Access rules (ACLs). Without an authorizer everybody may do everything.
    authorizer: bool = False
    super_users: str = ""  # as in Kafka: "User:admin;User:ANONYMOUS"
    allow_everyone_if_no_acl_found: bool = False

    # Connections.
    max_frame_bytes: int = 104_857_600
    max_connections: int = 10_000
    max_queued_requests: int = 10_000  # of one connection, behind the current one
    idle_timeout_ms: int = 600_000
    request_log_size: int = 1_000  # of all brokers together; 0: none

    def __post_init__(self) -> None:
        for item in fields(self):
            _check_option(item.name, getattr(self, item.name), item.default)
        if self.default_partitions < 1 or self.default_replication_factor < 1:
            raise ConfigurationError("default_partitions and default_replication_factor must be at least 1")
        if self.transaction_version not in TRANSACTION_VERSIONS:
            raise ConfigurationError(f"transaction_version is {self.transaction_version}, must be 0, 1 or 2")
        if self.share_version not in SHARE_VERSIONS:
            raise ConfigurationError(f"share_version is {self.share_version}, must be 0, 1 or 2")
        if self.version is not None and self.version not in RELEASES:
            raise ConfigurationError(
                f"version is {self.version!r}", remedy=f"give a release such as {RELEASES[-1]}, or None"
            )
        if self.group_version not in GROUP_VERSIONS:
            raise ConfigurationError(f"group_version is {self.group_version}, must be 0 or 1")
        if self.consumer_group_migration_policy not in MIGRATION_POLICIES:
            why = f"consumer_group_migration_policy is {self.consumer_group_migration_policy!r}"
            raise ConfigurationError(why, remedy=f"give one of {', '.join(MIGRATION_POLICIES)}")
        if self.replica_selector not in ("", "rack"):
            raise ConfigurationError(f"replica_selector is {self.replica_selector!r}", remedy='give "rack" or ""')
        try:
            TopicSettings.parse(self, {})
        except BrokerError as error:
            raise ConfigurationError(f"topic_configs: {error.message}") from None

    @property
    def has_consumer_groups(self) -> bool:
        """Return whether the consumer protocol (KIP-848) is on, as in Kafka since 4.0."""
        return self.group_version > 0 and self.is_at_least("4.0")

    @property
    def has_streams_groups(self) -> bool:
        """Return whether groups of Kafka Streams (KIP-1071) exist, as in Kafka since 4.2."""
        return self.is_at_least("4.2")

    @property
    def share_level(self) -> int:
        """Return the level of share.version that holds: `share_version`, as far as the release knows it.

        Share groups exist since 4.2 (earlier releases had them as a preview, off by default), dead letter queues since
        4.4.
        """
        known = 2 if self.is_at_least("4.4") else 1 if self.is_at_least("4.2") else 0
        return min(self.share_version, known)

    def is_at_least(self, release: str) -> bool:
        """Return whether the rules of this release hold: the brokers are of it or of a later one."""
        return self.version is None or RELEASES.index(self.version) >= RELEASES.index(release)


def _check_option(name: str, value: object, default: object) -> None:
    """Raise ConfigurationError for a value of another kind than the default's, or below 0."""
    if name == "version":
        good, remedy = value is None or isinstance(value, str), "give a release such as 4.3, or None"
    elif default is None:
        good, remedy = value is None or isinstance(value, int), "give a whole number or None"
    elif isinstance(default, bool):
        good, remedy = isinstance(value, bool), "give True or False"
    elif isinstance(default, int):
        good, remedy = isinstance(value, int) and not isinstance(value, bool) and value >= 0, "give a number from 0 on"
    elif isinstance(default, str | FirstSequence):
        kind = type(default)
        good, remedy = isinstance(value, kind), f"give a {kind.__name__}"
    else:
        good, remedy = isinstance(value, Mapping), "give topic configs by name"
    if not good:
        raise ConfigurationError(f"{name} is {value!r}", remedy=remedy)


def make_options(given: Mapping[str, Any]) -> Options:
    """Return the `Options` of a cluster's keyword arguments. Raises ConfigurationError, for an unknown one too."""
    names = [item.name for item in fields(Options)]
    for name in given:
        if name not in names:
            listed = "the options are those of kwire.broker.Options and the arguments of kwire.broker.Cluster"
            hint = did_you_mean(name, names)
            raise ConfigurationError(f"unknown option {name}", remedy=f"{hint} {listed}" if hint else listed)
    return Options(**given)


DEAD_LETTERS_ENABLED = "errors.deadletterqueue.group.enable"

# Kafka's topic configs and their defaults (docs: topic configs, 4.3). None: the cluster's own default, see `_defaults`.
TOPIC_CONFIGS: Mapping[str, str | None] = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    DEAD_LETTERS_ENABLED: "false",
    "file.delete.delay.ms": "60000",
    "flush.messages": str(LONG_MAX),
    "flush.ms": str(LONG_MAX),
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": str(LONG_MAX),
    "max.message.bytes": None,
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": str(LONG_MAX),
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": None,
    "preallocate": "false",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}
# Kafka's own tests set this: segments smaller than segment.bytes allows since 4.0 (KIP-1030).
INTERNAL_SEGMENT_BYTES = "internal.segment.bytes"
_SEGMENT_BYTES_MIN, _SEGMENT_BYTES_MIN_BEFORE_4 = 1 << 20, 14
# The least and the largest value of the numbers that change nothing here. Kafka checks them all the same.
_RANGES: Mapping[str, tuple[int, int]] = {
    "compression.gzip.level": (-1, 9),
    "compression.lz4.level": (1, 17),
    "compression.zstd.level": (-131_072, 22),
    "file.delete.delay.ms": (0, LONG_MAX),
    "flush.messages": (1, LONG_MAX),
    "flush.ms": (0, LONG_MAX),
    "index.interval.bytes": (0, INT_MAX),
    "local.retention.bytes": (-2, LONG_MAX),
    "local.retention.ms": (-2, LONG_MAX),
    "segment.index.bytes": (4, INT_MAX),
    "segment.jitter.ms": (0, LONG_MAX),
}
_GZIP_LEVEL = "compression.gzip.level"
_BOOLEANS = ("preallocate", "remote.log.copy.disable", "remote.log.delete.on.disable", "remote.storage.enable")
_THROTTLED = ("follower.replication.throttled.replicas", "leader.replication.throttled.replicas")
_THROTTLED_REPLICAS = re.compile(r"\s*(\*|\d+:\d+(\s*,\s*\d+:\d+)*\s*,*)?\s*")
_WHOLE_NUMBER = re.compile(r"\s*[+-]?\d+\s*")
_TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
_CODECS = ("uncompressed", "gzip", "snappy", "lz4", "zstd", "producer")


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The configs of a topic that change what the broker does. Times in milliseconds, sizes in bytes, -1 no limit."""

    configs: Mapping[str, str]  # those that were set
    max_message_bytes: int
    min_insync_replicas: int
    retention_bytes: int
    retention_ms: int
    timestamp_after_max_ms: int
    timestamp_before_max_ms: int
    log_append_time: bool
    compression: str  # "producer" keeps the producer's choice
    is_compacted: bool
    is_deleted: bool  # "delete" is in cleanup.policy: retention applies
    segment_bytes: int
    segment_ms: int
    delete_retention_ms: int
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    unclean_election: bool
    takes_dead_letters: bool  # of share groups (KIP-1191)

    @classmethod
    def parse(cls, options: Options, configs: Mapping[str, str | None]) -> TopicSettings:
        """Parse a topic's configs. Raises INVALID_CONFIG, also for a config without a value."""
        chosen = dict(options.topic_configs)
        for name, value in configs.items():
            if value is None:
                raise broker_error(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic config: {name}")
            chosen[name] = value
        defaults = _defaults(options)
        for name, value in chosen.items():
            if name not in defaults and name != INTERNAL_SEGMENT_BYTES:
                raise broker_error(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
            if not isinstance(value, str):  # of a test's own call
                raise broker_error(ErrorCode.INVALID_CONFIG, f"{name} is {value!r}: give it as a str")
        values = {DEAD_LETTERS_ENABLED: "false", **defaults, **chosen}
        _check_without_effect(values)
        policies = {policy for policy in values["cleanup.policy"].replace(" ", "").split(",") if policy}
        if policies - {"delete", "compact"}:
            raise _invalid("cleanup.policy", values["cleanup.policy"])
        min_lag_ms = _number(values, "min.compaction.lag.ms", 0, LONG_MAX)
        max_lag_ms = _number(values, "max.compaction.lag.ms", 1, LONG_MAX)
        if min_lag_ms > max_lag_ms:
            why = f"min.compaction.lag.ms ({min_lag_ms}) is greater than max.compaction.lag.ms ({max_lag_ms})"
            raise broker_error(ErrorCode.INVALID_CONFIG, f"conflict topic config setting {why}")
        least_segment = _SEGMENT_BYTES_MIN if options.is_at_least("4.0") else _SEGMENT_BYTES_MIN_BEFORE_4
        segment_bytes = _number(values, "segment.bytes", least_segment, INT_MAX)
        if INTERNAL_SEGMENT_BYTES in values:
            segment_bytes = _number(values, INTERNAL_SEGMENT_BYTES, _SEGMENT_BYTES_MIN_BEFORE_4, INT_MAX)
        segment_ms = _number(values, "segment.ms", 1, LONG_MAX)
        return cls(
            configs=chosen,
            max_message_bytes=_number(values, "max.message.bytes", 0, INT_MAX),
            min_insync_replicas=_number(values, "min.insync.replicas", 1, INT_MAX),
            retention_bytes=max(-1, _number(values, "retention.bytes", -LONG_MAX - 1, LONG_MAX)),
            retention_ms=_number(values, "retention.ms", -1, LONG_MAX),
            timestamp_after_max_ms=_number(values, "message.timestamp.after.max.ms", 0, LONG_MAX),
            timestamp_before_max_ms=_number(values, "message.timestamp.before.max.ms", 0, LONG_MAX),
            log_append_time=_one_of(values, "message.timestamp.type", _TIMESTAMP_TYPES) == "LogAppendTime",
            compression=_one_of(values, "compression.type", _CODECS),
            is_compacted="compact" in policies,
            is_deleted="delete" in policies,
            segment_bytes=segment_bytes,
            segment_ms=min(segment_ms, max_lag_ms) if "compact" in policies else segment_ms,
            delete_retention_ms=_number(values, "delete.retention.ms", 0, LONG_MAX),
            min_cleanable_dirty_ratio=_ratio(values, "min.cleanable.dirty.ratio"),
            min_compaction_lag_ms=min_lag_ms,
            max_compaction_lag_ms=max_lag_ms,
            unclean_election=_boolean(values, "unclean.leader.election.enable"),
            takes_dead_letters=_boolean(values, DEAD_LETTERS_ENABLED),
        )

    def shown(self, options: Options) -> dict[str, str]:
        """Return every config with its effective value, as DescribeConfigs and CreateTopics return them."""
        return dict(sorted({**_defaults(options), **self.configs}.items()))


def _defaults(options: Options) -> dict[str, str]:
    defaults = {name: value for name, value in TOPIC_CONFIGS.items() if value is not None}
    defaults["max.message.bytes"] = str(options.max_message_bytes)
    defaults["min.insync.replicas"] = str(options.min_insync_replicas)
    if options.share_level < 2:
        del defaults[DEAD_LETTERS_ENABLED]
    return defaults


def _invalid(name: str, value: str) -> BrokerError:
    return broker_error(ErrorCode.INVALID_CONFIG, f"Invalid value {value} for configuration {name}")


def _check_without_effect(values: Mapping[str, str]) -> None:
    """Raise INVALID_CONFIG for a value that a broker refuses, of a config that changes nothing here."""
    for name, (least, most) in _RANGES.items():
        _number(values, name, least, most)
    if int(values[_GZIP_LEVEL]) == 0:
        raise _invalid(_GZIP_LEVEL, values[_GZIP_LEVEL])
    for name in _BOOLEANS:
        if _boolean(values, name) and name == "remote.storage.enable":
            why = "Topic cannot be configured with remote log storage."
            raise broker_error(ErrorCode.INVALID_CONFIG, f"Tiered Storage functionality is disabled. {why}")
    for name in _THROTTLED:
        if not _THROTTLED_REPLICAS.fullmatch(values[name]):
            raise _invalid(name, values[name])


def _boolean(values: Mapping[str, str], name: str) -> bool:
    value = values[name].strip().lower()
    if value not in ("true", "false"):
        raise _invalid(name, values[name])
    return value == "true"


def _number(values: Mapping[str, str], name: str, least: int, most: int) -> int:
    if not _WHOLE_NUMBER.fullmatch(values[name]):  # Python's `int` takes underscores, too
        raise _invalid(name, values[name])
    number = int(values[name])
    if not least <= number <= most:
        raise _invalid(name, values[name])
    return number


def _ratio(values: Mapping[str, str], name: str) -> float:
    try:
        ratio = float(values[name])
    except ValueError:
        raise _invalid(name, values[name]) from None
    if not 0 <= ratio <= 1:
        raise _invalid(name, values[name])
    return ratio


def _one_of(values: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    if values[name] not in allowed:
        raise _invalid(name, values[name])
    return values[name]
