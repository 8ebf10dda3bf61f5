"""The options of a share consumer, beside those of every client.

What the group decides is no option here: where a new group starts (share.auto.offset.reset), how long a lock lasts
(share.record.lock.duration.ms) and the isolation (share.isolation.level) are configs of the group at the broker.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from kwire.cluster.config import INT32_MAX, MS, ClientKwargs
from kwire.errors import ConfigurationError
from kwire.option_checks import Choice, Flag, Text, Where, Whole, check_values, option

AcknowledgementMode = Literal["explicit", "implicit"]
AcquireMode = Literal["batch_optimized", "record_limit"]
ACQUIRE_MODES: dict[AcquireMode, int] = {"batch_optimized": 0, "record_limit": 1}

# Options of every client that have another default here: a share consumer creates no topics.
CLIENT_DEFAULTS: ClientKwargs = {"allow_auto_create_topics": False}


def _is_interval(value: object) -> bool:
    return value is None or Whole(1, INT32_MAX).accepts(value)


class ShareConsumerKwargs(ClientKwargs, total=False):
    """The keywords of a share consumer: those of `ShareConsumerOptions` and of `ClientConfig`."""

    group: str | None
    acknowledgement_mode: AcknowledgementMode
    acquire_mode: AcquireMode
    renew: bool
    max_processing_ms: int
    max_poll_records: int
    max_poll_interval_ms: int | None
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    rack: str
    telemetry: bool
    check_crc: bool


@dataclass(frozen=True)
class ShareConsumerOptions:
    """How to acquire and acknowledge records."""

    group: str | None = option(None, Text(), "the share group; required")
    acknowledgement_mode: AcknowledgementMode = option(
        "explicit", Choice("explicit", "implicit"), '"explicit": each record is acknowledged by itself; "implicit": '
        "the next poll accepts all records of the last one"
    )  # fmt: skip
    acquire_mode: AcquireMode = option(
        "batch_optimized", Choice("batch_optimized", "record_limit"), '"batch_optimized" acquires whole batches, and '
        'so more than max_poll_records; "record_limit" never more (Kafka 4.2)'
    )  # fmt: skip
    renew: bool = option(
        False, Flag(), "renew the locks of records that are being processed, up to max_processing_ms (Kafka 4.2)"
    )
    max_processing_ms: int = option(300_000, Whole(1), "with renew, the longest time that a record may take", unit=MS)
    max_poll_records: int = option(500, Whole(1, INT32_MAX), "the limit of one poll", unit="records")
    max_poll_interval_ms: int | None = option(
        300_000, Where("a whole number of milliseconds from 1 up, or None for no limit", _is_interval), "without a "
        "poll for longer than this, the consumer leaves the group until the next one; None: it never does", unit=MS
    )  # fmt: skip
    max_wait_ms: int = option(500, Whole(0, INT32_MAX), "how long a broker may wait for min_bytes", unit=MS)
    min_bytes: int = option(
        1, Whole(0, INT32_MAX), "a broker waits for this many bytes, up to max_wait_ms", unit="bytes"
    )
    max_bytes: int = option(
        16 * 1024 * 1024, Whole(1, INT32_MAX), "the limit of one fetch from one broker", unit="bytes"
    )
    rack: str = option("", Text(may_be_empty=True), "the rack, for the assignment")
    telemetry: bool = option(True, Flag(), "push metrics to brokers that subscribe to those of this client (KIP-714)")
    check_crc: bool = option(True, Flag(), "whether to verify the checksums of batches")

    def __post_init__(self) -> None:
        check_values(self)
        if self.group is None:
            raise ConfigurationError("group is missing", remedy='name the share group: group="emails"')

    @property
    def group_id(self) -> str:
        assert self.group is not None
        return self.group

    @property
    def is_explicit(self) -> bool:
        return self.acknowledgement_mode == "explicit"

    @classmethod
    def option_names(cls) -> frozenset[str]:
        return frozenset(field.name for field in fields(cls))
