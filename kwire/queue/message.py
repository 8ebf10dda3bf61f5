"""A message of a queue under a lease, and what can be done with it."""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from kwire.arguments import wrong_type
from kwire.cluster.waiting import BlockingContext, blocking, run_blocking
from kwire.errors import SettledError
from kwire.option_checks import Whole
from kwire.queue.backend import Delivery
from kwire.queue.markers import Headers
from kwire.queue.options import TIME_MAX_MS

if TYPE_CHECKING:
    from kwire.queue.consumer import QueueConsumerClient


class MessageClient:
    """What both faces of a message share. The methods with an underscore are public under the plain name in each."""

    __slots__ = ("_consumer", "_delivery")

    def __init__(self, consumer: QueueConsumerClient[Any], delivery: Delivery) -> None:
        self._consumer = consumer
        self._delivery = delivery

    @property
    def payload(self) -> bytes | None:
        """Return the payload, as it was sent."""
        return self._delivery.payload

    @property
    def headers(self) -> Headers:
        """Return the headers of the sender: ((name, value), ...)."""
        return self._delivery.envelope.user

    @property
    def id(self) -> str:
        """Return the id given by the sender or made by its producer. It stays the same when the message comes again."""
        return self._delivery.envelope.id

    @property
    def place(self) -> tuple[int, int]:
        """Partition and offset in the queue topic, of this delivery."""
        return self._delivery.record.partition, self._delivery.record.offset

    @property
    def deliveries(self) -> int:
        """Return how often the message has been delivered, this time included; from 1."""
        return self._delivery.envelope.deliveries + 1

    @property
    def first_sent_at_ms(self) -> int:
        """Return when the brokers first stored the message: milliseconds since 1970."""
        return self._delivery.envelope.first_at

    @property
    def lease_seconds(self) -> float:
        """Return how much longer the lease lasts, unless it is extended; negative when it is over."""
        return self._delivery.lease.deadline - self._consumer.now()

    @property
    def is_settled(self) -> bool:
        """Return whether the message was acknowledged, refused or given back."""
        return self._delivery.is_settled

    async def _ack(self) -> None:
        """Take the message off its queue: it is processed.

        Does not wait for the broker: `Consumer.flush` and `close` do. If the marker is lost, the message comes again.
        Raises LeaseLostError if the lease is over, SettledError if the message is settled already.
        """
        self._consumer.acknowledge(self._delivery)

    async def _nack(self, reason: str = "refused") -> None:
        """Refuse the message: it becomes a dead letter with this reason, and is never delivered again.

        Waits until the dead letter is stored; raises its error, and the message is still in progress then.
        """
        if not isinstance(reason, str):
            raise wrong_type("reason", reason, "a str")
        await self._consumer.settle(self, "nack", reason=reason)

    async def _release(self, delay_ms: int | None = 0) -> None:
        """Give the message back: it is delivered again after `delay_ms`; None: after the back-off of the service.

        Raises ValueError for a delay that is longer than the markers topic keeps the message; it is in progress then.
        """
        if delay_ms is not None and not Whole(0, TIME_MAX_MS).accepts(delay_ms):
            raise wrong_type("delay_ms", delay_ms, "milliseconds from 0 up, or None for the back-off")
        await self._consumer.settle(self, "release", delay_ms=delay_ms)

    async def _extend(self, timeout_ms: int | None = None) -> None:
        """Let the lease last for `timeout_ms` from now on, by default the redelivery timeout; wait until it is certain.

        A lease that lasts longer already stays as it is. Raises LeaseLostError if it is over, and ValueError for a time
        that is longer than the markers topic keeps the message.
        """
        if timeout_ms is not None and not Whole(1, TIME_MAX_MS).accepts(timeout_ms):
            raise wrong_type("timeout_ms", timeout_ms, "milliseconds from 1 up, or None for the redelivery timeout")
        await self._consumer.extend(self, timeout_ms)

    async def _leave(self, error: BaseException | None) -> None:
        if self._delivery.is_settled:
            return
        with suppress(SettledError):  # by another thread, just now
            if error is None:
                self._consumer.acknowledge(self._delivery)
            else:
                await self._release(None)

    def __repr__(self) -> str:
        state = "settled" if self._delivery.is_settled else f"leased for {self.lease_seconds:.1f} s"
        return f"<{type(self).__name__} {self.id} of {self._consumer.queue}, delivery {self.deliveries}, {state}>"


class Message(MessageClient, BlockingContext):
    """A message under a lease: nobody else gets it until it is settled, or the lease is over.

    >>> with message:                      # doctest: +SKIP
    ...     send_mail(message.payload)     # leaves normally: ack; raises: release, after the back-off

    ack      it is processed
    nack     it cannot be processed: a dead letter
    release  it is to be delivered again
    extend   it takes longer
    """

    __slots__ = ()

    def ack(self) -> None:
        """Take the message off its queue: it is processed.

        Does not wait for the broker: `Consumer.flush` and `close` do. If the marker is lost, the message comes again.
        Raises LeaseLostError if the lease is over, SettledError if the message is settled already.
        """
        self._consumer.acknowledge(self._delivery)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            run_blocking(self._leave(error))
        elif not self._delivery.is_settled:
            try:
                self._consumer.acknowledge(self._delivery)
            except SettledError:  # by another thread, just now
                return

    nack = blocking(MessageClient._nack)
    release = blocking(MessageClient._release)
    extend = blocking(MessageClient._extend)


__all__ = ["Message", "MessageClient"]
