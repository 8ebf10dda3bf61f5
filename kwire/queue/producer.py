"""The producer of a queue, for both faces: a message becomes a record of the queue topic."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from kwire.arguments import wrong_type
from kwire.cluster.waiting import BlockingContext, blocking
from kwire.errors import ClosedError, ConfigurationError, MessageTooLargeError
from kwire.option_checks import Whole
from kwire.producer import Message as ProducedMessage
from kwire.producer import ProduceResponse
from kwire.producer.accumulator import murmur2_partition
from kwire.producer.message import Data, Headers, to_bytes, to_headers
from kwire.queue.backend import QueuePlace
from kwire.queue.envelope import Envelope, new_id
from kwire.queue.markers import PREFIX, overhead
from kwire.queue.metrics import ProducerCounters
from kwire.queue.options import TIME_MAX_MS

if TYPE_CHECKING:
    from kwire.queue.service import ServiceClient


class SendOptions(TypedDict, total=False):
    """What `send` and `send_many` may say of a message."""

    delay_ms: int
    deliver_at_ms: int | None
    expires_in_ms: int | None
    expires_at_ms: int | None
    redelivery_timeout_ms: int | None


class QueueProducerClient:
    """What both faces of the producer share. All producers of a service use its one idempotent producer.

    The service does not know them, so that one that is dropped is gone: programs may make one for each message.
    """

    def __init__(self, service: ServiceClient[Any, Any], queue: str) -> None:
        self.queue = queue
        self._service = service
        self._key = queue.encode()
        self._counters = ProducerCounters()
        self._counters_of_queue = service.producer_counters(queue)
        self._is_closed = False

    async def _send(
        self, payload: Data, headers: Headers = None, *, message_id: str | None = None, **options: Unpack[SendOptions]
    ) -> ProduceResponse:
        """Put a message into the queue; return the future of its record, which says when it is stored.

        message_id             its id, which redeliveries keep; by default one is made. Messages with the same id are
                               delivered once where the consumers have a dedup_window_ms
        delay_ms               it is delivered no earlier than after this time
        deliver_at_ms          the same as a time: milliseconds since 1970, by this machine's clock
        expires_in_ms          after this time it is no longer delivered, and becomes a dead letter
        expires_at_ms          the same as a time
        redelivery_timeout_ms  its own, instead of the service's

        Raises MessageTooLargeError for what the topics could not hold, ConfigurationError for what the backend does
        not have, TypeError or ValueError for wrong arguments, and what `kwire.Producer.send` raises.
        """
        (response,) = await self._send_messages([(payload, headers, message_id)], options)
        return response

    async def _send_many(
        self, payloads: Iterable[Data], headers: Headers = None, **options: Unpack[SendOptions]
    ) -> list[ProduceResponse]:
        """Put several messages into the queue, with the same headers and options; return a future for each.

        Raises what `send` raises; then none is sent.
        """
        return await self._send_messages([(payload, headers, None) for payload in payloads], options)

    async def _send_messages(
        self, messages: Iterable[tuple[Data, Headers, str | None]], options: SendOptions
    ) -> list[ProduceResponse]:
        self._service.check_usable()
        if self._is_closed:
            raise ClosedError(f"the producer of queue {self.queue} is closed")
        envelope = self._envelope(options)
        place = await self._service.place(self.queue)
        _check_times(envelope, place)
        records = [self._record(place, envelope, *message) for message in messages]
        now = self._service.clock.now()
        responses = await self._service.deliver(records)
        for response in responses:
            response.add_done_callback(partial(self._count, now))
        return responses

    def _envelope(self, options: SendOptions) -> Envelope:
        """Return what the options say, without id and headers. Raises TypeError or ValueError."""
        unknown = [name for name in options if name not in SendOptions.__annotations__]
        if unknown:
            raise TypeError(f"send has no option {unknown[0]}: it has {', '.join(SendOptions.__annotations__)}")
        for name, number in options.items():
            if number is not None and not Whole(int(name != "delay_ms"), TIME_MAX_MS).accepts(number):
                raise wrong_type(name, number, "whole milliseconds")
        return Envelope(
            delay=self._one_of(options, "delay_ms", "deliver_at_ms"),
            expires_in=self._one_of(options, "expires_in_ms", "expires_at_ms"),
            timeout=options.get("redelivery_timeout_ms") or 0,
        )

    def _one_of(self, options: SendOptions, duration: str, time: str) -> int:
        """Return the given duration, or the one that ends at the given time."""
        after, at = options.get(duration), options.get(time)
        assert after is None or isinstance(after, int)
        if not isinstance(at, int):
            return after or 0
        if after:
            raise ValueError(f"{duration} and {time} are two ways to say the same: give one")
        remaining = at - self._service.clock.time_ms()
        return max(1, remaining) if duration == "expires_in_ms" else max(0, remaining)

    def _record(
        self, place: QueuePlace, options: Envelope, payload: Data, headers: Headers, message_id: str | None
    ) -> ProducedMessage:
        value, pairs = to_bytes(payload, "payload"), to_headers(headers)
        for name, _ in pairs:
            if name.startswith(PREFIX):
                raise ValueError(f"the header {name} is one of the queue's own: choose another name")
        if message_id is not None and (not isinstance(message_id, str) or not message_id):
            raise wrong_type("message_id", message_id, "a str that is not empty, or None to have one made")
        own = Envelope(
            message_id or new_id(),
            delay=options.delay, expires_in=options.expires_in, timeout=options.timeout, user=pairs,
        ).headers()  # fmt: skip
        size = len(value or b"") + overhead(own) + len(self._key)
        if size > place.message_bytes_max:
            raise MessageTooLargeError(
                f"a message of {size} bytes with its headers; the topics take {place.message_bytes_max}",
                remedy="raise max.message.bytes of the queue topic, the markers topic and the dead letter topic, or "
                "send a reference to data that is elsewhere",
            )
        # The same id goes to the same partition, and so to the consumer that knows it.
        partition = None if message_id is None else murmur2_partition(message_id.encode(), place.partitions)
        return ProducedMessage(place.topic, value, self._key, own, partition)

    def _count(self, since: float, response: ProduceResponse) -> None:
        for counters in (self._counters, self._counters_of_queue):
            if response.exception() is None:
                counters.sent += 1
                counters.send_time.observe(max(0.0, self._service.clock.now() - since))
            else:
                counters.failed += 1

    def metrics(self) -> ProducerCounters:
        """Return what was counted: a copy of now."""
        return self._counters.copy()

    async def _flush(self, timeout: float | None = 30.0) -> None:
        """Wait until every message that was sent has a result."""
        await self._service.flush_messages(timeout)

    async def _close(self, timeout: float | None = 30.0) -> None:
        """Wait likewise, and take no more messages."""
        if not self._is_closed:
            self._is_closed = True
            if not self._service.is_forked:
                await self._flush(timeout)

    async def _leave(self, error: BaseException | None) -> None:
        await self._close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of queue {self.queue!r}{', closed' if self._is_closed else ''}>"


def _check_times(envelope: Envelope, place: QueuePlace) -> None:
    longest = max(envelope.delay, envelope.timeout)
    if longest and place.delay_ms_max == 0:
        raise ConfigurationError(
            "share groups have neither delays nor timeouts of single messages",
            remedy='use a service with backend="tracker" for these queues',
        )
    if 0 <= place.delay_ms_max < longest:
        raise ValueError(f"{longest} ms are longer than the markers topic keeps its records ({place.delay_ms_max} ms)")


class Producer(QueueProducerClient, BlockingContext):
    """Puts messages into a queue; safe to use from many threads.

    >>> with queue.producer() as producer:         # doctest: +SKIP
    ...     producer.send(b"hello").result()
    """

    send = blocking(QueueProducerClient._send)
    send_many = blocking(QueueProducerClient._send_many)
    flush = blocking(QueueProducerClient._flush)
    close = blocking(QueueProducerClient._close)


__all__ = ["Producer", "QueueProducerClient", "SendOptions"]
