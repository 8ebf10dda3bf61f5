"""The options of a consumer, beside those of every client."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal

from kwire.cluster.config import INT32_MAX, MS, ClientKwargs
from kwire.consumer.assignors import AssignorChoice, make_assignors
from kwire.consumer.interceptors import ConsumerInterceptor, is_consumer_interceptors
from kwire.consumer.offsets import Ago, AtTimestamp
from kwire.errors import ConfigurationError
from kwire.option_checks import Choice, Flag, Text, Where, Whole, check_values, option

GroupProtocol = Literal["auto", "classic", "consumer"]
CommitMode = Literal["auto", "marks", "manual"]
CallbacksRun = Literal["poll", "background"]
Isolation = Literal["read_uncommitted", "read_committed"]
OnNoOffset = Literal["earliest", "latest", "error"] | AtTimestamp | Ago
OnOutOfRange = Literal["error", "earliest", "latest", "nearest"] | AtTimestamp | Ago

# The options that only classic groups have, and what new groups have instead.
_CLASSIC_ONLY = {
    "assignors": "the broker assigns; choose among its assignors by remote_assignor",
    "session_timeout_ms": "it is consumer.session.timeout.ms of the group's configuration at the broker",
    "fence_on_session_loss": "only the broker knows the session timeout of such a group",
    "heartbeat_interval_ms": "it is consumer.heartbeat.interval.ms of the group's configuration at the broker",
}
# Unlike other clients, a consumer creates no topics by default.
CLIENT_DEFAULTS: ClientKwargs = {"allow_auto_create_topics": False}


def start_policy(*words: str) -> Where:
    """Return the kind of an option that takes one of some words, a time or a duration."""
    listed = ", ".join(f'"{word}"' for word in words)

    def test(value: object) -> bool:
        return isinstance(value, (AtTimestamp, Ago)) or (isinstance(value, str) and value in words)

    return Where(f"{listed}, AtTimestamp(ms) or Ago(hours=1)", test)


_INSTANCE_ID = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def _is_instance_id(value: object) -> bool:
    return isinstance(value, str) and _INSTANCE_ID.fullmatch(value) is not None and value not in (".", "..")


def _is_interval(value: object) -> bool:
    return value is None or Whole(1, INT32_MAX).accepts(value)


def _is_any(value: object) -> bool:
    return True  # `make_assignors` says what is wrong with it


class ConsumerKwargs(ClientKwargs, total=False):
    """The keywords of a consumer: those of `ConsumerOptions` and of `ClientConfig`."""

    group: str | None
    group_protocol: GroupProtocol
    group_instance_id: str | None
    assignors: AssignorChoice | Sequence[AssignorChoice] | None
    remote_assignor: str | None
    session_timeout_ms: int | None
    heartbeat_interval_ms: int | None
    fence_on_session_loss: bool
    max_poll_interval_ms: int | None
    max_poll_records: int
    commit: CommitMode
    commit_interval_ms: int
    callbacks: CallbacksRun
    interceptors: Sequence[ConsumerInterceptor]
    isolation: Isolation
    on_no_offset: OnNoOffset
    on_out_of_range: OnOutOfRange
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int
    max_buffered_bytes: int
    unknown_topic_timeout_ms: int
    rack: str
    telemetry: bool
    check_crc: bool
    max_decompressed_bytes: int


@dataclass(frozen=True)
class ConsumerOptions:
    """How to fetch, and how to be a member of a group. Sizes are bytes of records as they are stored: compressed.

    The smallest of the size limits counts; a single batch that exceeds them is still fetched. A consumer holds at most
    `max_buffered_bytes`, as much again for paused partitions, and what the batches being read decompress to.
    """

    group: str | None = option(
        None, Text(), "the consumer group to join by `subscribe`, and to commit to"
    )  # fmt: skip
    group_protocol: GroupProtocol = option(
        "auto", Choice("auto", "classic", "consumer"), 'how the group works: "consumer" is the new protocol (KIP-848), '
        '"classic" the older; "auto" is the new one where the brokers have it, unless an option was given that only '
        "classic groups have"
    )  # fmt: skip
    group_instance_id: str | None = option(
        None, Where("1 to 249 characters of a-z, A-Z, 0-9, '.', '_' and '-', but not \".\" or \"..\"", _is_instance_id),
        "makes the member static (KIP-345): a restart within the session timeout causes no rebalance. Unique in the "
        "group"
    )  # fmt: skip
    assignors: AssignorChoice | Sequence[AssignorChoice] | None = option(
        None, Where('names such as ["cooperative-sticky"], or subclasses of Assignor', _is_any), "classic groups only: "
        "how the leader divides partitions, in the order of preference; None: cooperative-sticky"
    )  # fmt: skip
    remote_assignor: str | None = option(
        None, Text(), 'new groups only: the broker\'s assignor, such as "uniform" or "range"; None: its own choice'
    )
    session_timeout_ms: int | None = option(
        None, Whole(1, INT32_MAX), "classic groups only: a member is dropped after this time without a heartbeat; "
        "None: 45 s", unit=MS
    )  # fmt: skip
    heartbeat_interval_ms: int | None = option(
        None, Whole(1, INT32_MAX), "classic groups only: at most a third of the session timeout; None: 3 s", unit=MS
    )
    fence_on_session_loss: bool = option(
        False, Flag(), "classic groups only: whether to give up all partitions after a session timeout without a "
        "response of the coordinator, since others may have them; False: when it says so. For programs that write "
        "elsewhere"
    )  # fmt: skip
    max_poll_interval_ms: int | None = option(
        300_000, Where("a whole number of milliseconds from 1 up, or None for no limit", _is_interval), "a member that "
        "does not poll for this long leaves the group, until it does; None: it never has to", unit=MS
    )  # fmt: skip
    max_poll_records: int = option(500, Whole(1, INT32_MAX), "what `poll` returns at most, unless it is given a number")
    commit: CommitMode = option(
        "auto", Choice("auto", "marks", "manual"), 'what commits: "auto" every record that was returned before the '
        'last poll, "marks" what `mark` was called for, "manual" only `commit`'
    )  # fmt: skip
    commit_interval_ms: int = option(
        5_000, Whole(1, INT32_MAX), 'how often "auto" and "marks" commit; they also do before a rebalance and in '
        "`close`", unit=MS
    )  # fmt: skip
    callbacks: CallbacksRun = option(
        "poll", Choice("poll", "background"), "where rebalance callbacks run: in the call that polls, between two "
        'batches; or "background", on a thread of their own, while records may be in use'
    )  # fmt: skip
    interceptors: Sequence[ConsumerInterceptor] = option(
        (), Where("a list of kwire.ConsumerInterceptor", is_consumer_interceptors), "see, and may change, records "
        "before the program gets them, and learn what was committed: instances of subclasses of "
        "`kwire.ConsumerInterceptor`, called in this order"
    )  # fmt: skip
    isolation: Isolation = option(
        "read_uncommitted", Choice("read_uncommitted", "read_committed"), '"read_committed" hides the records of '
        "aborted transactions and waits for open ones to end"
    )  # fmt: skip
    on_no_offset: OnNoOffset = option(
        "earliest", start_policy("earliest", "latest", "error"), 'where to begin if the group has committed no offset: '
        '"earliest", "latest", AtTimestamp(ms), Ago(hours=1), or "error"'
    )  # fmt: skip
    on_out_of_range: OnOutOfRange = option(
        "error", start_policy("error", "earliest", "latest", "nearest"), 'at an offset that the log does not have: '
        '"error", or go to "earliest", "latest", to the "nearest" of the two, AtTimestamp(ms) or Ago(hours=1)'
    )  # fmt: skip
    max_wait_ms: int = option(
        500, Whole(0, INT32_MAX), "how long a broker may wait for min_bytes; a seek may be that late", unit=MS
    )  # fmt: skip
    min_bytes: int = option(
        1, Whole(0, INT32_MAX), "a broker waits for this many bytes, up to max_wait_ms", unit="bytes"
    )
    max_bytes: int = option(
        16 * 1024 * 1024, Whole(1, INT32_MAX), "the limit of one fetch from one broker", unit="bytes"
    )
    partition_max_bytes: int = option(
        1024 * 1024, Whole(1, INT32_MAX), "the limit of one partition in one fetch", unit="bytes"
    )
    max_buffered_bytes: int = option(
        64 * 1024 * 1024, Whole(1, INT32_MAX), "the limit of what is fetched, or in flight, and not yet read; "
        "without paused partitions", unit="bytes"
    )  # fmt: skip
    unknown_topic_timeout_ms: int = option(
        5_000, Whole(0, INT32_MAX), "how long a topic may be unknown to the brokers before it is an error: it may "
        "just be created", unit=MS
    )  # fmt: skip
    rack: str = option(
        "",
        Text(may_be_empty=True),
        "read from a replica of the same rack, if the brokers are configured for it (KIP-392)",
    )
    telemetry: bool = option(True, Flag(), "push metrics to brokers that subscribe to those of this client (KIP-714)")
    check_crc: bool = option(True, Flag(), "whether to verify the checksums of batches")
    max_decompressed_bytes: int = option(
        256 * 1024 * 1024, Whole(1, INT32_MAX), "a compressed batch that becomes larger is an error", unit="bytes"
    )  # fmt: skip

    def __post_init__(self) -> None:
        check_values(self)
        self._check_group()

    def _check_group(self) -> None:
        """Check options against each other. Raises ConfigurationError."""
        if self.assignors is not None:
            make_assignors(self.assignors)
        if self.group is None:
            return
        classic = self._classic_only()
        if self.group_protocol == "consumer" and classic:
            raise ConfigurationError(
                f"{classic[0]} is an option of classic groups", remedy=f"leave it out: {_CLASSIC_ONLY[classic[0]]}"
            )
        if self.group_protocol == "classic" and self.remote_assignor is not None:
            raise ConfigurationError("a classic group has no remote_assignor", remedy="give assignors")
        session, interval = self.session_timeout_ms or 45_000, self.heartbeat_interval_ms or 3_000
        if interval * 3 > session:
            raise ConfigurationError(
                f"heartbeat_interval_ms is {interval}, more than a third of session_timeout_ms, {session}",
                remedy="so that two heartbeats may fail, lower the interval or raise the timeout",
            )

    @property
    def is_classic_wanted(self) -> bool:
        """Return whether an option was given that only classic groups have."""
        return bool(self._classic_only())

    def _classic_only(self) -> list[str]:
        """Return which options were given that only classic groups have."""
        return [name for name in _CLASSIC_ONLY if getattr(self, name) not in (None, False)]

    @property
    def is_committed_only(self) -> bool:
        return self.isolation == "read_committed"

    @classmethod
    def option_names(cls) -> frozenset[str]:
        return frozenset(field.name for field in fields(cls))
