"""The options of a consumer, beside those of every client."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from kwire.cluster.config import INT32_MAX, MS, ClientKwargs
from kwire.options import Choice, Flag, Text, Whole, check_values, option

Isolation = Literal["read_uncommitted", "read_committed"]
OnOutOfRange = Literal["error", "earliest", "latest"]

# Unlike other clients, a consumer creates no topics by default.
CLIENT_DEFAULTS: ClientKwargs = {"allow_auto_create_topics": False}


class ConsumerKwargs(ClientKwargs, total=False):
    """The keywords of a consumer: those of `ConsumerOptions` and of `ClientConfig`."""

    isolation: Isolation
    on_out_of_range: OnOutOfRange
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int
    max_buffered_bytes: int
    unknown_topic_timeout_ms: int
    rack: str
    check_crc: bool


@dataclass(frozen=True)
class ConsumerOptions:
    """How to fetch. Sizes are bytes of records as they are stored: compressed.

    The smallest of the size limits counts; a single batch that exceeds them is still fetched.
    """

    isolation: Isolation = option(
        "read_uncommitted", Choice("read_uncommitted", "read_committed"), '"read_committed" hides the records of '
        "aborted transactions and waits for open ones to end"
    )  # fmt: skip
    on_out_of_range: OnOutOfRange = option(
        "error", Choice("error", "earliest", "latest"), 'at an offset that the log does not have: "error", or go to '
        '"earliest" or "latest"'
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

    def __post_init__(self) -> None:
        check_values(self)

    @property
    def is_committed_only(self) -> bool:
        return self.isolation == "read_committed"

    @classmethod
    def option_names(cls) -> frozenset[str]:
        return frozenset(field.name for field in fields(cls))
