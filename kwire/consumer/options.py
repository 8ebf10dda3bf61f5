"""What a consumer may be told, beyond what every client is told. Frozen and picklable, as `ClientConfig` is."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from kwire.errors import ConfigurationError

_CHOICES = {
    "isolation": ("read_uncommitted", "read_committed"),
    "on_out_of_range": ("error", "earliest", "latest"),
}


@dataclass(frozen=True)
class ConsumerOptions:
    """How to fetch. Sizes are bytes of records as they are stored: compressed.

    isolation           "read_committed" hides the records of aborted transactions, and waits at those of open ones
    on_out_of_range     when the log does not (or no longer) have the position: "error", or go to "earliest" or "latest"
    max_wait_ms         how long a broker may wait for min_bytes to gather; also how late a seek may take effect
    max_bytes           of one fetch from one broker
    partition_max_bytes of one partition in one fetch
    max_buffered_bytes  fetched, or being fetched, and not yet read; what paused partitions hold is not counted
                        The smallest of the limits counts. A single batch that is larger than they are still arrives.
    unknown_topic_timeout_ms  how long brokers may say that they do not know a topic, which may be about to be created
    rack                read from a replica of the same rack, where the brokers are set up for it (KIP-392)
    check_crc           whether to verify the batches' checksums
    """

    isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    on_out_of_range: Literal["error", "earliest", "latest"] = "error"
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 16 * 1024 * 1024
    partition_max_bytes: int = 1024 * 1024
    max_buffered_bytes: int = 64 * 1024 * 1024
    unknown_topic_timeout_ms: int = 5_000
    rack: str = ""
    check_crc: bool = True

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                wrong = getattr(self, name)
                raise ConfigurationError(f"{name} is {wrong!r}", remedy=f"choose one of {', '.join(choices)}")
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _INT32_MAX:
                remedy = f"give a whole number from {least} to {_INT32_MAX}"
                raise ConfigurationError(f"{name} is {value!r}", remedy=remedy)
        if not isinstance(self.rack, str):
            raise ConfigurationError(f"rack is {self.rack!r}", remedy="give the rack's name")

    @property
    def is_committed_only(self) -> bool:
        return self.isolation == "read_committed"

    @classmethod
    def option_names(cls) -> frozenset[str]:
        return frozenset(field.name for field in fields(cls))


_LEAST = {
    "max_wait_ms": 0,
    "min_bytes": 0,
    "max_bytes": 1,
    "partition_max_bytes": 1,
    "max_buffered_bytes": 1,
    "unknown_topic_timeout_ms": 0,
}
_INT32_MAX = 2**31 - 1
