"""The producer's own options, checked once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kwire.errors import ConfigurationError
from kwire.producer.partitioners import Partitioner, own_rule, routing
from kwire.records import Compression

WhenFull = Literal["block", "raise"]
Acks = Literal["all", -1, 0, 1]
ALL_IN_SYNC = -1  # acks="all" on the wire

# Brokers keep the last five batches of a producer to recognise duplicates, so no more may be out (Kafka's
# ProducerStateEntry.NUM_BATCHES_TO_RETAIN).
IDEMPOTENT_WINDOW = 5

_REQUEST_BYTES_MAX = 4_194_304  # a request is a turn of the loop, whatever it carries: many batches make it cheap
_RECORD_BYTES_MAX = 1_048_576  # brokers take hardly more unless they are told to (message.max.bytes)


@dataclass(frozen=True)
class ProducerSettings:
    """See `kwire.Producer` for what each option means.

    `idempotence` None: wherever the brokers can and acks allow it.
    """

    acks: Acks = "all"
    idempotence: bool | None = None
    ordered: bool = True
    linger_ms: int = 5
    batch_bytes: int = 1_000_000
    max_request_bytes: int | None = None
    compression: str | Compression = Compression.NONE
    compression_level: int | None = None
    partitioner: str | Partitioner = "murmur2"
    max_buffered_bytes: int = 33_554_432
    when_full: WhenFull = "block"
    max_block_ms: int = 60_000
    delivery_timeout_ms: int = 120_000
    retries: int | None = None
    unknown_topic_timeout_ms: int = 10_000
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000

    def __post_init__(self) -> None:
        if self.acks not in ("all", -1, 0, 1) or isinstance(self.acks, bool):
            raise ConfigurationError(f"acks is {self.acks!r}", remedy='give "all", 1 or 0')
        if self.idempotence and self.required_acks != -1:
            raise ConfigurationError("idempotence needs acks='all'", remedy="leave out one of the two")
        if self.idempotence and not self.ordered:
            raise ConfigurationError(
                "an idempotent producer keeps order", remedy="leave out idempotence or ordered=False"
            )
        if self.transactional_id is not None and not self.wants_idempotence:
            raise ConfigurationError("a transaction needs acks='all' and idempotence", remedy="leave those options out")
        if self.transactional_id == "":
            raise ConfigurationError("transactional_id is empty", remedy="give a name of this producer's own")
        if self.when_full not in ("block", "raise"):
            raise ConfigurationError(f"when_full is {self.when_full!r}", remedy='give "block" or "raise"')
        for name in (
            "batch_bytes",
            "max_request_bytes",
            "max_buffered_bytes",
            "delivery_timeout_ms",
            "transaction_timeout_ms",
        ):
            given = getattr(self, name)
            if given is not None and given < 1:
                raise ConfigurationError(f"{name} is {given}", remedy="give a number above 0")
        for name in ("linger_ms", "max_block_ms", "unknown_topic_timeout_ms"):
            if getattr(self, name) < 0:
                raise ConfigurationError(f"{name} is {getattr(self, name)}", remedy="give a number from 0 up")
        if self.retries is not None and (isinstance(self.retries, bool) or self.retries < 0):
            raise ConfigurationError(f"retries is {self.retries!r}", remedy="give a number from 0 up, or None")
        if isinstance(self.compression, str):
            object.__setattr__(self, "compression", Compression.of(self.compression))
        own_rule(self.partitioner)
        routing(self.partitioner)

    @property
    def request_bytes_max(self) -> int:
        """At which size a request of several batches is closed."""
        return _REQUEST_BYTES_MAX if self.max_request_bytes is None else self.max_request_bytes

    @property
    def record_bytes_max(self) -> int:
        """A larger record is refused."""
        return _RECORD_BYTES_MAX if self.max_request_bytes is None else self.max_request_bytes

    @property
    def required_acks(self) -> int:
        return ALL_IN_SYNC if self.acks == "all" else self.acks

    @property
    def wants_idempotence(self) -> bool:
        """Asked for, or by default; whether the brokers can is for the sender to find out."""
        if self.idempotence is None:
            return self.required_acks == -1 and self.ordered
        return self.idempotence

    @property
    def codec(self) -> Compression:
        assert isinstance(self.compression, Compression)
        return self.compression
