"""The producer's own options, checked when it is created."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from kwire.arguments import takes
from kwire.cluster.config import INT32_MAX, MS, ClientKwargs
from kwire.errors import ConfigurationError
from kwire.option_checks import Choice, Flag, Text, Where, Whole, check_values, option
from kwire.producer.futures import CallbackExecutor
from kwire.producer.interceptors import ProducerInterceptor, is_producer_interceptors
from kwire.producer.partitioner import Partitioner, routing
from kwire.producer.serializers import Serializer
from kwire.records import Compression
from kwire.records.compression import compress

WhenFull = Literal["block", "raise"]
Acks = Literal["all", -1, 0, 1]
CompressionName = Literal["none", "gzip", "snappy", "lz4", "zstd"]
ALL_IN_SYNC = -1  # acks="all" on the wire

# Brokers remember a producer's last five batches to detect duplicates, so no more may be in flight (Kafka's
# ProducerStateEntry.NUM_BATCHES_TO_RETAIN).
IDEMPOTENT_WINDOW = 5

_REQUEST_BYTES_MAX = 4_194_304  # a request costs a turn of the loop, whatever its size
_RECORD_BYTES_MAX = 1_048_576  # about the brokers' default of message.max.bytes

_COMPRESSION = Where(
    '"none", "gzip", "snappy", "lz4" or "zstd"',
    lambda value: (
        value is None
        or isinstance(value, Compression)
        or (isinstance(value, str) and value.upper() in Compression.__members__)
    ),
)
_LEVEL = Where("a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool))
_EXECUTOR = Where(
    "a concurrent.futures.Executor or a function",
    lambda value: value is None or isinstance(value, Executor) or callable(value),
)
_PARTITIONER = Where(
    "a name or a function of a message and a topic", lambda value: isinstance(value, str) or takes(value, 2)
)
_SERIALIZER = Where("a function of two arguments, a topic and data", lambda value: takes(value, 2))
_INTERCEPTORS = Where("a list of kwire.ProducerInterceptor", is_producer_interceptors)


class ProducerKwargs(ClientKwargs, total=False):
    """The keywords of a producer: those of `ProducerSettings` and of `ClientConfig`."""

    acks: Acks
    idempotence: bool | None
    ordered: bool
    linger_ms: int
    batch_bytes: int
    max_request_bytes: int | None
    compression: CompressionName | Compression | None
    compression_level: int | None
    partitioner: str | Partitioner
    partitioner_ignore_keys: bool
    single_broker_switch_ms: int
    key_serializer: Serializer | None
    value_serializer: Serializer | None
    interceptors: Sequence[ProducerInterceptor]
    max_buffered_bytes: int
    when_full: WhenFull
    max_block_ms: int
    delivery_timeout_ms: int
    retries: int | None
    unknown_topic_timeout_ms: int
    metadata_max_idle_ms: int
    transactional_id: str | None
    transaction_timeout_ms: int
    telemetry: bool
    callback_executor: CallbackExecutor | None


@dataclass(frozen=True)
class ProducerSettings:
    """The options of a producer beyond those of every client; `kwire.option_checks` says how an option is declared."""

    acks: Acks = option(
        "all", Choice("all", -1, 0, 1), 'whose acknowledgement a record waits for: "all" in-sync replicas, 1: the '
        "leader alone, 0: none"
    )  # fmt: skip
    idempotence: bool | None = option(
        None, Flag(), "no duplicates: None wherever brokers (0.11 and later) and acks allow it; True insists on it, "
        "False forgoes it"
    )  # fmt: skip
    ordered: bool = option(True, Flag(), "False lets batches of a partition overtake each other after a failure")
    linger_ms: int = option(5, Whole(0), "how long a record may wait for others to share its batch", unit=MS)
    batch_bytes: int = option(
        1_000_000, Whole(1), "a partition's batch is closed at about this size after compression; before "
        "compression it may have as much as a request", unit="bytes"
    )  # fmt: skip
    max_request_bytes: int | None = option(
        None, Whole(1), "a request is closed at this size in bytes, and a larger record refused; None: 4 MiB, and "
        "1 MiB for a record, the default limit of brokers (message.max.bytes)", unit="bytes"
    )  # fmt: skip
    compression: CompressionName | Compression | None = option(
        "none", _COMPRESSION, '"none", "gzip", "snappy", "lz4" or "zstd"; zstd is the package kwire[zstd]'
    )
    compression_level: int | None = option(None, _LEVEL, "the codec's own level; None: its default")
    partitioner: str | Partitioner = option(
        "murmur2", _PARTITIONER, '"murmur2" (Java\'s hash of the key), "crc32" (librdkafka\'s), "round_robin", '
        '"sticky", "single_broker", a pair such as "crc32+sticky", or a function of a `Message` and a `Topic`: see '
        "`kwire.producer.partitioner`"
    )  # fmt: skip
    partitioner_ignore_keys: bool = option(
        False, Flag(), "True spreads records with a key by batches, as those without: keys choose no partition"
    )
    single_broker_switch_ms: int = option(
        30_000, Whole(1), 'how long the partitioner "single_broker" keeps to a broker', unit=MS
    )
    key_serializer: Serializer | None = option(
        None, _SERIALIZER, "converts a key that is not None to bytes or str: a function of topic and key, called "
        "on the thread that sends; see `kwire.producer.serializers`"
    )  # fmt: skip
    value_serializer: Serializer | None = option(None, _SERIALIZER, "the same for values")
    interceptors: Sequence[ProducerInterceptor] = option(
        (), _INTERCEPTORS, "see, and may change, each record, and learn what became of it: instances of subclasses of "
        "`kwire.ProducerInterceptor`, called in this order"
    )  # fmt: skip
    max_buffered_bytes: int = option(
        33_554_432, Whole(1), "the bound on records that are not yet delivered; see when_full. A topic may hold at "
        "most 16 times what is free: one alone 94 %, and none stops the others", unit="bytes"
    )  # fmt: skip
    when_full: WhenFull = option(
        "block", Choice("block", "raise"), 'what `send` does when the memory is full: "block" for max_block_ms, or '
        '"raise" BufferFullError at once'
    )  # fmt: skip
    max_block_ms: int = option(
        60_000,
        Whole(0),
        "how long `send` waits for memory, or for the metadata that a partitioner of your own needs",
        unit=MS,
    )
    delivery_timeout_ms: int = option(
        120_000, Whole(1), "the time limit of a record from `send` on, retries included; then it fails", unit=MS
    )
    retries: int | None = option(
        None, Whole(0), "how often a batch is sent again before it fails; None: as often as "
        "delivery_timeout_ms allows. Waiting for an earlier batch and being split are no retries"
    )  # fmt: skip
    unknown_topic_timeout_ms: int = option(
        10_000, Whole(0), "how long brokers may say that they do not know the topic, which may just be being created",
        unit=MS
    )  # fmt: skip
    metadata_max_idle_ms: int = option(
        300_000, Whole(1), "a topic that got no record for this long is forgotten: its metadata is refreshed no more",
        unit=MS
    )  # fmt: skip
    transactional_id: str | None = option(
        None, Text(), "makes the producer transactional: `begin`, `send`, `send_offsets`, `commit` or `abort`"
    )
    transaction_timeout_ms: int = option(
        60_000, Whole(1, INT32_MAX), "brokers abort a transaction that takes longer", unit=MS
    )
    telemetry: bool = option(True, Flag(), "push metrics to brokers that subscribe to those of this client (KIP-714)")
    callback_executor: CallbackExecutor | None = option(
        None, _EXECUTOR, "what runs callbacks: a concurrent.futures.Executor, whose threads may change their order, or "
        "a function that gets each call to make; None: one thread of the producer's. `close` does not wait for it. "
        "Not for asyncio, where callbacks run in the loop"
    )  # fmt: skip

    def __post_init__(self) -> None:
        check_values(self)
        if self.idempotence and self.required_acks != -1:
            raise ConfigurationError("idempotence needs acks='all'", remedy="leave out one of the two")
        if self.idempotence and not self.ordered:
            raise ConfigurationError(
                "an idempotent producer keeps order", remedy="leave out idempotence or ordered=False"
            )
        if self.transactional_id is not None and not self.wants_idempotence:
            raise ConfigurationError("a transaction needs acks='all' and idempotence", remedy="leave those options out")
        routing(self.partitioner)
        object.__setattr__(self, "compression", Compression.of(self.compression))
        # Fail here, not at the first record, if the codec's package is missing or the level is invalid.
        compress(self.codec, b"", self.compression_level)

    @property
    def request_bytes_max(self) -> int:
        """Return the size, in bytes, at which a request of several batches is closed."""
        return _REQUEST_BYTES_MAX if self.max_request_bytes is None else self.max_request_bytes

    @property
    def record_bytes_max(self) -> int:
        """Return the size, in bytes, of the largest record that is accepted."""
        return _RECORD_BYTES_MAX if self.max_request_bytes is None else self.max_request_bytes

    @property
    def required_acks(self) -> int:
        return ALL_IN_SYNC if self.acks == "all" else self.acks

    @property
    def wants_idempotence(self) -> bool:
        """Return whether idempotence is set or the default; the sender checks whether the brokers support it."""
        if self.idempotence is None:
            return self.required_acks == -1 and self.ordered
        return self.idempotence

    @cached_property
    def codec(self) -> Compression:
        assert isinstance(self.compression, Compression)
        return self.compression
