"""What a consumer of a queue needs from the place where its messages are: the interface of a backend.

`tracker_backend` has messages on a topic and what is in progress on another, for a redelivery tracker. `share_backend`
has a share group, in which the brokers know what is in progress. `consumer` does what both need: the buffer, the
bounds, the order of closing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from kwire.consumer import ConsumerRecord
from kwire.errors import AbortableError, DeliveryError, KwireError
from kwire.queue.envelope import Envelope
from kwire.queue.markers import FIRST_AT, ID, Headers, Identity
from kwire.share import ShareRecord
from kwire.wire.accel import made_anew, speedups

Record = ConsumerRecord | ShareRecord
T = TypeVar("T")
D = TypeVar("D", bound="Delivery")


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """Where the messages of a queue are, as a producer must know it."""

    topic: str
    partitions: int
    message_bytes_max: int  # of payload and headers
    delay_ms_max: int  # -1: no limit; 0: the backend has neither delays nor timeouts of single messages


class Lease:
    """What messages share that were marked together, until one of them gets a lease of its own.

    Times are seconds of the clock of the consumer's loop, unless their name says ms.

    deadline          until then nobody else gets the messages
    appended_ms       when the lease began, by the broker's clock
    marker_partition  where the markers of these messages go
    """

    __slots__ = ("appended_ms", "deadline", "leased_at", "marker_partition", "timeout_ms", "topic_id")

    def __init__(
        self, topic_id: UUID, timeout_ms: int, deadline: float, leased_at: float, marker_partition: int,
        appended_ms: int = 0,
    ) -> None:  # fmt: skip
        self.topic_id = topic_id
        self.timeout_ms = timeout_ms
        self.deadline = deadline
        self.leased_at = leased_at
        self.marker_partition = marker_partition
        self.appended_ms = appended_ms

    def copy(self) -> Lease:
        """Return a lease for one message alone: its deadline no longer moves with that of the others."""
        return Lease(
            self.topic_id, self.timeout_ms, self.deadline, self.leased_at, self.marker_partition, self.appended_ms
        )


class DeliveryFields:
    """The fields of a message under a lease."""

    __slots__ = ("_envelope", "handed_out_at", "is_let_go", "is_settled", "lease", "record")

    record: Record
    lease: Lease
    _envelope: Envelope | None
    handed_out_at: float | None
    is_settled: bool
    is_let_go: bool


if not TYPE_CHECKING and speedups is not None:
    DeliveryFields = speedups.DeliveryFields


def delivery_class(written: type[T]) -> type[T]:
    """Decorate a subclass of DeliveryFields without slots: with C, rebuild it without a garbage collector header."""
    return written if speedups is None else made_anew(speedups.delivery_class, written)


@delivery_class
class Delivery(DeliveryFields):
    """A message under a lease.

    There is one for each message: what only few messages need is read from the record when it is asked for.

    record            of the queue topic
    lease             which it may share with others
    envelope          what the headers say; given by a backend that has read them already
    handed_out_at     seconds of the clock of the consumer's loop; None: it is in the buffer
    is_let_go         its lease is over: the consumer counts it no more as in progress
    """

    __slots__ = ()

    def __init__(self, record: Record, lease: Lease, envelope: Envelope | None = None) -> None:
        self.record = record
        self.lease = lease
        self._envelope = envelope
        self.handed_out_at = None
        self.is_settled = False
        self.is_let_go = False

    @property
    def payload(self) -> bytes | None:
        return self.record.value

    @property
    def identity(self) -> Identity:
        return Identity(self.lease.topic_id, self.record.partition, self.record.offset)

    @property
    def envelope(self) -> Envelope:
        """Return what the headers say, and for a message of another program what they would say."""
        if self._envelope is None:
            self._envelope = record_envelope(self.record)
        return self._envelope

    @property
    def is_plain(self) -> bool:
        """Return whether nobody has read the headers: a first delivery, without delay, expiry or own timeout."""
        return self._envelope is None

    def has_expired(self, now: float) -> bool:
        """Return whether the message is not to be handed out any more. Do not ask plain ones: it reads the headers."""
        return self.envelope.expires_at <= now

    @property
    def deliveries_made(self) -> int:
        """Return how often the message was delivered, with this delivery once it is handed out."""
        return self.envelope.deliveries + (self.handed_out_at is not None)

    @property
    def headers(self) -> Headers:
        """Return the headers of the record, and those of kwire's headers that a redelivery needs."""
        headers, names = self.record.headers, {name for name, _ in self.record.headers}
        if FIRST_AT not in names and self.record.timestamp_ms > 0:
            headers = (*headers, (FIRST_AT, b"%d" % self.record.timestamp_ms))
        return headers if ID in names else (*headers, (ID, self.envelope.id.encode()))


def new_deliveries(kind: type[D], records: Sequence[Record], lease: Lease) -> list[D]:
    """Return a delivery of each of these records, under this lease. `records` is a list."""
    return [kind(record, lease) for record in records]


if not TYPE_CHECKING and speedups is not None:
    new_deliveries = speedups.new_deliveries


def record_envelope(record: Record) -> Envelope:
    """Return the envelope of a record, with the time of its first sending and an id in any case."""
    envelope = Envelope.read(record.headers)
    envelope.first_at = envelope.first_at or max(0, record.timestamp_ms)
    if not envelope.id:  # sent by another program
        envelope.id = f"{record.topic}-{record.partition}-{record.offset}"
    return envelope


def may_pass(error: KwireError) -> bool:
    """Return whether a later attempt may succeed.

    It may if a marker was not delivered: its message is read and marked again, and a marker that is in the
    log twice does no harm. A transaction that was aborted is tried again if its cause may pass.
    """
    if isinstance(error, AbortableError) and isinstance(error.__cause__, KwireError):
        return may_pass(error.__cause__)
    return error.is_retriable or isinstance(error, DeliveryError)


class Backend(ABC):
    """Takes messages under a lease and settles them. `fetch` is called by one thread or task at a time."""

    now: Callable[[], float]  # the time of the leases' clock; no method, since it is read for each message

    @abstractmethod
    def watch(self, progress: Callable[[], object], take_back: Callable[[Delivery], bool]) -> None:
        """Learn how to see that the program hangs, and how to take a message out of the consumer's buffer.

        `progress` returns something that changes while the program receives and settles messages. `take_back` returns
        False if the program has got the message meanwhile.
        """

    @abstractmethod
    async def fetch(self, limit: int, timeout: float) -> Sequence[Delivery]:
        """Return at most `limit` messages, each under a lease that lives on by itself; none after `timeout` seconds.

        Raises KwireError. Then nothing was taken, and the next call reads the same again.
        """

    @abstractmethod
    def ack(self, delivery: Delivery, now: float) -> None:
        """End the lease: the message is processed. Does not wait for the broker. `now` is that of `now()`."""

    def ack_many(self, deliveries: Sequence[Delivery], now: float) -> dict[Delivery, KwireError]:
        """End these leases, as `ack` does; return the error of each message that could not be acknowledged."""
        failed: dict[Delivery, KwireError] = {}
        for delivery in deliveries:
            try:
                self.ack(delivery, now)
            except KwireError as error:
                failed[delivery] = error
        return failed

    @abstractmethod
    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        """End the lease once the message is a dead letter, or at once where dead letters are dropped."""

    @abstractmethod
    async def expire(self, delivery: Delivery) -> None:
        """Make a message that has expired a dead letter, or let its lease end. Raises no KwireError."""

    @abstractmethod
    async def release(self, delivery: Delivery, delay_ms: int | None, *, is_counted: bool) -> None:
        """Give the message back, to be delivered again after a time; None: the back-off. Does not wait for the broker.

        Raises ValueError or ConfigurationError for a time that the backend does not have.
        """

    @abstractmethod
    async def extend(self, delivery: Delivery, timeout_ms: int) -> None:
        """Let the lease last for this time from now on, or longer; return once that is certain."""

    @abstractmethod
    async def flush(self, timeout: float | None) -> None:
        """Wait until what `ack` and `release` sent is stored. Raises RequestTimeoutError, or why it is not stored."""

    @abstractmethod
    async def close(self, timeout: float | None) -> None:
        """End the reading and the leases; messages in progress then come again."""
