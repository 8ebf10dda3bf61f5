"""What a consumer of a queue needs from the place where its messages are: the interface of a backend.

`tracker_backend` has messages on a topic and what is in progress on another, for a redelivery tracker. `share_backend`
has a share group, in which the brokers know what is in progress. `consumer` does what both need: the buffer, the
bounds, the order of closing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from kwire.consumer import ConsumerRecord
from kwire.queue.envelope import Envelope
from kwire.queue.markers import FIRST_AT, ID, Headers, Identity
from kwire.share import ShareRecord

Record = ConsumerRecord | ShareRecord


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """Where the messages of a queue are, as a producer must know it."""

    topic: str
    partitions: int
    message_bytes_max: int  # of payload and headers
    delay_ms_max: int  # -1: no limit; 0: the backend has neither delays nor timeouts of single messages


class Delivery:
    """A message under a lease. Times are seconds of the clock of the consumer's loop, unless their name says ms.

    There is one for each message: what only few messages need is read from the record when it is asked for.

    record            of the queue topic
    envelope          what the headers say; given by a backend that has read them already
    appended_ms       when the lease began, by the broker's clock
    deadline          until then nobody else gets the message
    handed_out_at     None: it is in the buffer
    is_let_go         its lease is over: the consumer counts it no more as in progress
    """

    __slots__ = (
        "_envelope", "appended_ms", "deadline", "handed_out_at", "is_let_go", "is_settled", "leased_at",
        "marker_partition", "record", "timeout_ms", "topic_id",
    )  # fmt: skip

    def __init__(
        self, record: Record, topic_id: UUID, timeout_ms: int, deadline: float, leased_at: float,
        marker_partition: int, envelope: Envelope | None = None,
    ) -> None:  # fmt: skip
        self.record = record
        self.topic_id = topic_id
        self.timeout_ms = timeout_ms
        self.deadline = deadline
        self.leased_at = leased_at
        self.marker_partition = marker_partition
        self._envelope = envelope
        self.appended_ms = record.timestamp_ms
        self.handed_out_at: float | None = None
        self.is_settled = False
        self.is_let_go = False

    @property
    def payload(self) -> bytes | None:
        return self.record.value

    @property
    def identity(self) -> Identity:
        return Identity(self.topic_id, self.record.partition, self.record.offset)

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

    @property
    def headers(self) -> Headers:
        """Return the headers of the record, and of ours those that a redelivery needs."""
        headers, names = self.record.headers, {name for name, _ in self.record.headers}
        if FIRST_AT not in names and self.record.timestamp_ms > 0:
            headers = (*headers, (FIRST_AT, b"%d" % self.record.timestamp_ms))
        return headers if ID in names else (*headers, (ID, self.envelope.id.encode()))

    @property
    def waited_ms(self) -> int:
        """Return how long the message waited for its lease."""
        return max(0, self.appended_ms - self.record.timestamp_ms)

    @property
    def lasts_until(self) -> float:
        """Return when the lease ends, unless it is extended."""
        return self.deadline


def record_envelope(record: Record) -> Envelope:
    """Return the envelope of a record, with the time of its first sending and an id in any case."""
    envelope = Envelope.read(record.headers)
    envelope.first_at = envelope.first_at or max(0, record.timestamp_ms)
    if not envelope.id:  # sent by another program
        envelope.id = f"{record.topic}-{record.partition}-{record.offset}"
    return envelope


class Backend(ABC):
    """Takes messages under a lease and settles them. `fetch` is called by one thread or task at a time."""

    has_delay: ClassVar[bool]  # whether `release` can put a message off
    now: Callable[[], float]  # the time of the leases' clock; no method, since it is read for each message

    @abstractmethod
    async def fetch(self, limit: int, timeout: float) -> Sequence[Delivery]:
        """Return at most `limit` messages, each under a lease that lives on by itself; none after `timeout` seconds.

        Raises KwireError. Then nothing was taken, and the next call reads the same again.
        """

    @abstractmethod
    def ack(self, delivery: Delivery, now: float) -> None:
        """End the lease: the message is processed. Does not wait for the broker. `now` is that of `now()`."""

    @abstractmethod
    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        """End the lease once the message is a dead letter, or at once where these are dropped."""

    @abstractmethod
    async def release(self, delivery: Delivery, delay_ms: int, *, is_counted: bool) -> None:
        """Give the message back, to be delivered again after a time. Does not wait for the broker."""

    @abstractmethod
    async def extend(self, delivery: Delivery, timeout_ms: int) -> None:
        """Let the lease last for this time from now on; return once that is certain."""

    @abstractmethod
    async def flush(self, timeout: float | None) -> None:
        """Wait until what `ack` and `release` sent is stored."""

    @abstractmethod
    async def close(self, timeout: float | None) -> None:
        """End the reading and the leases; what is in progress then comes again."""
