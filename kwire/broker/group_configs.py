"""The configs of groups: dynamic settings of one group, by Kafka's names (Kafka's GroupConfigManager).

A group has configs whether it exists or not. A config that was not set has the broker's value, from `Options`.
share.assignment.interval.ms, streams.assignment.interval.ms and streams.initial.rebalance.delay.ms are stored and
shown, but have no effect.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kwire.broker.options import Options
from kwire.errors import BrokerError, ErrorCode, broker_error

EARLIEST, LATEST, BY_DURATION = "earliest", "latest", "by_duration"
READ_COMMITTED = "read_committed"

_DURATION = re.compile(
    r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,9})?)S)?)?", re.IGNORECASE
)  # ISO 8601, as java.time.Duration reads it
_ASSIGNMENT_INTERVAL = "consumer.assignment.interval.ms"
_MAX_ASSIGNMENT_INTERVAL_MS = 15_000
_DLQ_TOPIC, _DLQ_COPY = "errors.deadletterqueue.topic.name", "errors.deadletterqueue.copy.record.enable"
_DEAD_LETTERS = frozenset({_DLQ_TOPIC, _DLQ_COPY})


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The configs of a group that change what the brokers do. Times in milliseconds."""

    configs: Mapping[str, str]  # those that were set
    consumer_session_timeout_ms: int
    consumer_heartbeat_interval_ms: int
    consumer_assignment_interval_ms: int
    share_session_timeout_ms: int
    share_heartbeat_interval_ms: int
    share_record_lock_ms: int
    share_delivery_count_limit: int
    share_max_record_locks: int
    share_offset_reset: str  # earliest, latest or by_duration
    share_offset_reset_age_ms: int  # of by_duration
    share_read_committed: bool
    share_renew_enabled: bool
    streams_session_timeout_ms: int
    streams_heartbeat_interval_ms: int
    streams_standby_replicas: int
    dead_letter_topic: str  # "" is none
    dead_letter_copies_record: bool

    @classmethod
    def parse(cls, options: Options, configs: Mapping[str, str | None]) -> GroupSettings:
        """Parse a group's configs. Raises INVALID_CONFIG."""
        known = default_configs(options)
        chosen: dict[str, str] = {}
        for name, value in configs.items():
            if name not in known:
                raise broker_error(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {name}")
            if value is None:
                raise broker_error(ErrorCode.INVALID_CONFIG, f"Null value not supported for group config: {name}")
            chosen[name] = value
        values = {**_configs(options), **chosen}
        session_ms = _number(
            values, "consumer.session.timeout.ms",
            min(options.consumer_group_min_session_timeout_ms, options.consumer_group_session_timeout_ms),
            max(options.consumer_group_max_session_timeout_ms, options.consumer_group_session_timeout_ms),
        )  # fmt: skip
        heartbeat_ms = _number(
            values, "consumer.heartbeat.interval.ms",
            min(options.consumer_group_min_heartbeat_interval_ms, options.consumer_group_heartbeat_interval_ms),
            max(options.consumer_group_max_heartbeat_interval_ms, options.consumer_group_heartbeat_interval_ms),
        )  # fmt: skip
        if session_ms <= heartbeat_ms:
            why = "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms"
            raise broker_error(ErrorCode.INVALID_CONFIG, why)
        reset, age_ms = _offset_reset(values["share.auto.offset.reset"])
        return cls(
            configs=chosen,
            consumer_session_timeout_ms=session_ms,
            consumer_heartbeat_interval_ms=heartbeat_ms,
            consumer_assignment_interval_ms=_number(
                values, _ASSIGNMENT_INTERVAL, 0, _MAX_ASSIGNMENT_INTERVAL_MS
            ),
            share_session_timeout_ms=_number(
                values, "share.session.timeout.ms", min(45_000, options.share_session_timeout_ms), 60_000
            ),
            share_heartbeat_interval_ms=_number(
                values, "share.heartbeat.interval.ms", min(5_000, options.share_heartbeat_interval_ms), 15_000
            ),
            share_record_lock_ms=_number(
                values, "share.record.lock.duration.ms", options.share_min_record_lock_ms,
                options.share_max_record_lock_ms,
            ),
            share_delivery_count_limit=_number(values, "share.delivery.count.limit", 2, 10),
            share_max_record_locks=_number(values, "share.partition.max.record.locks", 100, 4_000),
            share_offset_reset=reset,
            share_offset_reset_age_ms=age_ms,
            share_read_committed=_one_of(values, "share.isolation.level", (READ_COMMITTED, "read_uncommitted"))
            == READ_COMMITTED,
            share_renew_enabled=_one_of(values, "share.renew.acknowledge.enable", ("true", "false")) == "true",
            streams_session_timeout_ms=_number(
                values, "streams.session.timeout.ms", min(45_000, options.streams_session_timeout_ms), 60_000
            ),
            streams_heartbeat_interval_ms=_number(
                values, "streams.heartbeat.interval.ms", min(5_000, options.streams_heartbeat_interval_ms), 15_000
            ),
            streams_standby_replicas=_number(
                values, "streams.num.standby.replicas", 0, max(2, options.streams_standby_replicas)
            ),
            dead_letter_topic=values[_DLQ_TOPIC],
            dead_letter_copies_record=_one_of(values, _DLQ_COPY, ("true", "false")) == "true",
        )  # fmt: skip

    def shown(self, options: Options) -> dict[str, str]:
        """Return every config with its effective value, as DescribeConfigs returns them."""
        return dict(sorted({**default_configs(options), **self.configs}.items()))


# Configs that came after 4.0: KIP-1071, KIP-1240, KIP-1263 and KIP-1191.
_SINCE = {
    _ASSIGNMENT_INTERVAL: "4.3",
    "share.assignment.interval.ms": "4.3",
    "share.delivery.count.limit": "4.3",
    "share.partition.max.record.locks": "4.3",
    "share.renew.acknowledge.enable": "4.3",
    "streams.assignment.interval.ms": "4.3",
    "streams.heartbeat.interval.ms": "4.2",
    "streams.initial.rebalance.delay.ms": "4.2",
    "streams.num.standby.replicas": "4.2",
    "streams.session.timeout.ms": "4.2",
    _DLQ_TOPIC: "4.4",
    _DLQ_COPY: "4.4",
}


def default_configs(options: Options) -> dict[str, str]:
    """Return the configs that groups of this Kafka release have, with the broker's values."""
    return {
        name: value
        for name, value in _configs(options).items()
        if options.is_at_least(_SINCE.get(name, "4.0")) and (options.share_level >= 2 or name not in _DEAD_LETTERS)
    }


def _configs(options: Options) -> dict[str, str]:
    """Return the configs that groups of the newest release have, with the broker's values."""
    return {
        # Before KIP-1263 each change was assigned at once.
        _ASSIGNMENT_INTERVAL: str(options.consumer_group_assignment_interval_ms) if options.is_at_least("4.3") else "0",
        "consumer.heartbeat.interval.ms": str(options.consumer_group_heartbeat_interval_ms),
        "consumer.session.timeout.ms": str(options.consumer_group_session_timeout_ms),
        "share.assignment.interval.ms": "1000",
        "share.auto.offset.reset": LATEST,
        "share.delivery.count.limit": str(options.share_delivery_count_limit),
        "share.heartbeat.interval.ms": str(options.share_heartbeat_interval_ms),
        "share.isolation.level": "read_uncommitted",
        "share.partition.max.record.locks": str(options.share_max_record_locks),
        "share.record.lock.duration.ms": str(options.share_record_lock_ms),
        "share.renew.acknowledge.enable": "true",
        "share.session.timeout.ms": str(options.share_session_timeout_ms),
        "streams.assignment.interval.ms": "1000",
        "streams.heartbeat.interval.ms": str(options.streams_heartbeat_interval_ms),
        "streams.initial.rebalance.delay.ms": "3000",
        "streams.num.standby.replicas": str(options.streams_standby_replicas),
        "streams.session.timeout.ms": str(options.streams_session_timeout_ms),
        _DLQ_TOPIC: "",
        _DLQ_COPY: "false",
    }


class GroupConfigs:
    """The configs of all groups."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._defaults = GroupSettings.parse(options, {})
        self._settings: dict[str, GroupSettings] = {}

    def of(self, group: str) -> GroupSettings:
        """Return the settings of a group, which need not exist."""
        return self._settings.get(group, self._defaults)

    def names(self) -> list[str]:
        """Return the groups that have configs."""
        return list(self._settings)

    def alter(self, group: str, configs: Mapping[str, str | None], *, validate_only: bool = False) -> None:
        """Replace the configs of a group. Raises INVALID_CONFIG, and INVALID_REQUEST without a group."""
        if not group:
            raise broker_error(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
        settings = GroupSettings.parse(self._options, configs)
        if validate_only:
            return
        if settings.configs:
            self._settings[group] = settings
        else:
            self._settings.pop(group, None)


def _invalid(name: str, value: str) -> BrokerError:
    return broker_error(ErrorCode.INVALID_CONFIG, f"Invalid value {value} for configuration {name}")


def _number(values: Mapping[str, str], name: str, least: int, most: int) -> int:
    try:
        number = int(values[name])
    except ValueError:
        raise _invalid(name, values[name]) from None
    if not least <= number <= most:
        raise broker_error(ErrorCode.INVALID_CONFIG, f"{name} is {number}, must be from {least} to {most}")
    return number


def _one_of(values: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    if values[name].lower() not in allowed:
        raise _invalid(name, values[name])
    return values[name].lower()


def _offset_reset(value: str) -> tuple[str, int]:
    """Return the strategy and, for by_duration, the age in milliseconds."""
    name = "share.auto.offset.reset"
    strategy, _, duration = value.partition(":")
    if strategy.lower() in (EARLIEST, LATEST) and not duration:
        return strategy.lower(), 0
    matched = _DURATION.fullmatch(duration)
    if strategy.lower() != BY_DURATION or matched is None or not any(matched.groups()):
        raise _invalid(name, value)
    days, hours, minutes, seconds = (float(part or 0) for part in matched.groups())
    return BY_DURATION, int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)
