"""The options of a consumer, beside those of every client."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from kwire.cluster.config import INT32_MAX, MS, ClientKwargs
from kwire.consumer.offsets import Ago, AtTimestamp
from kwire.options import Choice, Flag, Text, Where, Whole, check_values, option

Isolation = Literal["read_uncommitted", "read_committed"]
OnNoOffset = Literal["earliest", "latest", "error"] | AtTimestamp | Ago
OnOutOfRange = Literal["error", "earliest", "latest", "nearest"] | AtTimestamp | Ago

# Unlike other clients, a consumer creates no topics by default.
CLIENT_DEFAULTS: ClientKwargs = {"allow_auto_create_topics": False}


def _policy(*words: str) -> Where:
    """Return the kind of an option that takes one of some words, a time or a duration."""
    listed = ", ".join(f'"{word}"' for word in words)

    def test(value: object) -> bool:
        return isinstance(value, (AtTimestamp, Ago)) or (isinstance(value, str) and value in words)

    return Where(f"{listed}, AtTimestamp(ms) or Ago(hours=1)", test)


class ConsumerKwargs(ClientKwargs, total=False):
    """The keywords of a consumer: those of `ConsumerOptions` and of `ClientConfig`."""

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
    check_crc: bool
    max_decompressed_bytes: int


@dataclass(frozen=True)
class ConsumerOptions:
    """How to fetch. Sizes are bytes of records as they are stored: compressed.

    The smallest of the size limits counts; a single batch that exceeds them is still fetched.
    """

    isolation: Isolation = option(
        "read_uncommitted", Choice("read_uncommitted", "read_committed"), '"read_committed" hides the records of '
        "aborted transactions and waits for open ones to end"
    )  # fmt: skip
    on_no_offset: OnNoOffset = option(
        "earliest", _policy("earliest", "latest", "error"), 'where to begin if the group has committed no offset: '
        '"earliest", "latest", AtTimestamp(ms), Ago(hours=1), or "error"'
    )  # fmt: skip
    on_out_of_range: OnOutOfRange = option(
        "error", _policy("error", "earliest", "latest", "nearest"), 'at an offset that the log does not have: "error", '
        'or go to "earliest", "latest", to the "nearest" of the two, AtTimestamp(ms) or Ago(hours=1)'
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
    check_crc: bool = option(True, Flag(), "whether to verify the checksums of batches")
    max_decompressed_bytes: int = option(
        256 * 1024 * 1024, Whole(1, INT32_MAX), "a compressed batch that becomes larger is an error", unit="bytes"
    )  # fmt: skip

    def __post_init__(self) -> None:
        check_values(self)

    @property
    def is_committed_only(self) -> bool:
        return self.isolation == "read_committed"

    @classmethod
    def option_names(cls) -> frozenset[str]:
        return frozenset(field.name for field in fields(cls))
