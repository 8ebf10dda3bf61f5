"""What a consumer of a queue needs from the place where its messages are: the interface of a backend.

`tracker_backend` has messages on a topic and what is in progress on another, for a redelivery tracker. `share_backend`
has a share group, in which the brokers know what is in progress. `consumer` does what both need: the buffer, the
bounds, the order of closing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from kwire.queue.envelope import Envelope
from kwire.queue.markers import Headers, Identity


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """Where the messages of a queue are, as a producer must know it."""

    topic: str
    partitions: int
    message_bytes_max: int  # of payload and headers
    delay_ms_max: int  # -1: no limit; 0: the backend has neither delays nor timeouts of single messages


@dataclass(slots=True, eq=False)
class Delivery:
    """A message under a lease. Times are seconds of the clock of the consumer's loop, unless their name says ms."""

    payload: bytes | None
    headers: Headers  # of the record, ours included
    envelope: Envelope
    identity: Identity
    timestamp_ms: int
    timeout_ms: int
    deadline: float  # until then nobody else gets it
    marker_partition: int
    handed_out_at: float | None = None
    is_settled: bool = False
    waited_ms: int = 0  # from the append of the message to its lease
    leased_at: float = 0.0

    @property
    def lasts_until(self) -> float:
        """When the lease ends, unless it is extended."""
        return self.deadline


class Backend(ABC):
    """Takes messages under a lease and settles them. `fetch` is called by one thread or task at a time."""

    has_delay: ClassVar[bool]  # whether `release` can put a message off

    @abstractmethod
    async def fetch(self, limit: int, timeout: float) -> Sequence[Delivery]:
        """Return at most `limit` messages, each under a lease that lives on by itself; none after `timeout` seconds.

        Raises KwireError. Then nothing was taken, and the next call reads the same again.
        """

    @abstractmethod
    def ack(self, delivery: Delivery) -> None:
        """End the lease: the message is processed. Does not wait for the broker."""

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
    def now(self) -> float:
        """Return the time of the leases' clock."""

    @abstractmethod
    async def flush(self, timeout: float | None) -> None:
        """Wait until what `ack` and `release` sent is stored."""

    @abstractmethod
    async def close(self, timeout: float | None) -> None:
        """End the reading and the leases; what is in progress then comes again."""
