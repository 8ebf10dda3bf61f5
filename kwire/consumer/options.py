"""The options of a consumer beyond those of every client. Frozen and picklable, as `ClientConfig` is."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from kwire.cluster.config import INT32_MAX, MS, ClientKwargs
from kwire.options import Choice, Flag, Text, Whole, check_values, option

Isolation = Literal["read_uncommitted", "read_committed"]
OnOutOfRange = Literal["error", "earliest", "latest"]

# A consumer does not create the topics that it asks for, unless it is given the option.
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

    The smallest of the size limits counts; a single batch that is larger than they are still arrives.
    """

    isolation: Isolation = option(
        "read_uncommitted", Choice("read_uncommitted", "read_committed"), '"read_committed" hides the records of '
        "aborted transactions, and waits at those of open ones"
    )  # fmt: skip
    on_out_of_range: OnOutOfRange = option(
        "error", Choice("error", "earliest", "latest"), 'when the log does not, or no longer, have the position: '
        '"error", or go to "earliest" or "latest"'
    )  # fmt: skip
    max_wait_ms: int = option(
        500, Whole(0, INT32_MAX), "how long a broker may wait for min_bytes to gather; also how late a seek may take "
        "effect", unit=MS
    )  # fmt: skip
    min_bytes: int = option(1, Whole(0, INT32_MAX), "a broker waits for so much, up to max_wait_ms", unit="bytes")
    max_bytes: int = option(16 * 1024 * 1024, Whole(1, INT32_MAX), "of one fetch from one broker", unit="bytes")
    partition_max_bytes: int = option(1024 * 1024, Whole(1, INT32_MAX), "of one partition in one fetch", unit="bytes")
    max_buffered_bytes: int = option(
        64 * 1024 * 1024, Whole(1, INT32_MAX), "fetched, or being fetched, and not yet read; what paused partitions "
        "hold is not counted", unit="bytes"
    )  # fmt: skip
    unknown_topic_timeout_ms: int = option(
        5_000, Whole(0, INT32_MAX), "how long brokers may say that they do not know a topic, which may be about to be "
        "created", unit=MS
    )  # fmt: skip
    rack: str = option(
        "", Text(may_be_empty=True), "read from a replica of the same rack, where brokers are set up for it (KIP-392)"
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
