"""The producer of a queue, for both faces: a message becomes a record of the queue topic."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from kwire.arguments import is_int, wrong_type
from kwire.cluster.waiting import blocking, run_blocking
from kwire.errors import ClosedError, MessageTooLargeError
from kwire.producer import Message as ProducedMessage
from kwire.producer import ProduceResponse
from kwire.producer.message import Data, Headers, to_bytes, to_headers
from kwire.queue.envelope import PREFIX, Envelope, new_id
from kwire.queue.markers import overhead
from kwire.queue.metrics import ProducerCounters

if TYPE_CHECKING:
    from kwire.queue.service import ServiceClient


class QueueProducerClient:
    """What both faces of the producer share. All producers of a service use its one idempotent producer."""

    def __init__(self, service: ServiceClient, queue: str) -> None:
        self.queue = queue
        self._service = service
        self._key = queue.encode()
        self._counters = ProducerCounters()
        self._is_closed = False

    async def _send(
        self,
        payload: Data,
        headers: Headers = None,
        *,
        delay_ms: int = 0,
        expires_in_ms: int | None = None,
        message_id: str | None = None,
        redelivery_timeout_ms: int | None = None,
    ) -> ProduceResponse:
        """Put a message into the queue; return the future of its record, which says when it is stored.

        delay_ms               it is delivered no earlier than after this time
        expires_in_ms          after this time it is no longer delivered, and becomes a dead letter
        message_id             its id, which redeliveries keep; by default one is made
        redelivery_timeout_ms  its own, instead of the service's

        Raises MessageTooLargeError for what the markers topic could not hold, TypeError or ValueError for wrong
        arguments, and what `kwire.Producer.send` raises.
        """
        if self._is_closed:
            raise ClosedError(f"the producer of queue {self.queue} is closed")
        value, pairs = to_bytes(payload, "payload"), to_headers(headers)
        for name, _ in pairs:
            if name.startswith(PREFIX):
                raise ValueError(f"the header {name} is one of the queue's own: choose another name")
        for what, number in (
            ("delay_ms", delay_ms),
            ("expires_in_ms", expires_in_ms),
            ("redelivery_timeout_ms", redelivery_timeout_ms),
        ):
            if number is not None and (not is_int(number) or number < (what != "delay_ms")):
                raise wrong_type(what, number, "whole milliseconds")
        if message_id is not None and (not isinstance(message_id, str) or not message_id):
            raise wrong_type("message_id", message_id, "a str that is not empty, or None to have one made")
        topics = await self._service.topics()
        longest = max(delay_ms, redelivery_timeout_ms or 0)
        if 0 <= topics.marker_retention_ms < longest:
            raise ValueError(
                f"{longest} ms are longer than the markers topic keeps its records ({topics.marker_retention_ms} ms)"
            )
        envelope = Envelope(
            message_id or new_id(),
            delay=delay_ms,
            expires_in=expires_in_ms or 0,
            timeout=redelivery_timeout_ms or 0,
            user=pairs,
        )
        own = envelope.headers()
        size = len(value or b"") + overhead(own) + len(self._key)
        if size > topics.message_bytes_max:
            raise MessageTooLargeError(
                f"a message of {size} bytes with its headers; the topics take {topics.message_bytes_max}",
                remedy="raise max.message.bytes of the queue topic, the markers topic and the dead letter topic, or "
                "send a reference to data that is elsewhere",
            )
        response = await self._service.deliver(
            ProducedMessage(self._service.options.message_topic, value, self._key, own)
        )
        response.add_done_callback(self._count)
        return response

    def _count(self, response: ProduceResponse) -> None:
        if response.exception() is None:
            self._counters.sent += 1
        else:
            self._counters.failed += 1

    def metrics(self) -> ProducerCounters:
        """Return what was counted: a copy of now."""
        return ProducerCounters(self._counters.sent, self._counters.failed)

    async def _flush(self, timeout: float | None = 30.0) -> None:
        """Wait until every message that was sent has a result."""
        await self._service.flush_messages(timeout)

    async def _close(self, timeout: float | None = 30.0) -> None:
        """Wait likewise, and take no more messages."""
        if not self._is_closed:
            self._is_closed = True
            self._service.forget(self)
            await self._flush(timeout)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of queue {self.queue!r}{', closed' if self._is_closed else ''}>"


class Producer(QueueProducerClient):
    """Puts messages into a queue; safe to use from many threads.

    >>> with queue.producer() as producer:         # doctest: +SKIP
    ...     producer.send(b"hello").result()
    """

    send = blocking(QueueProducerClient._send)
    flush = blocking(QueueProducerClient._flush)
    close = blocking(QueueProducerClient._close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        run_blocking(self._close())
