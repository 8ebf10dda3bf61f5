"""Queues for asyncio: `kwire.queue.aio.Service`, over the same cores as `kwire.queue.Service`.

    async with kwire.queue.aio.Service("localhost:9092") as service:
        queue = service.queue("emails")
        await (await queue.producer().send(b"hello"))
        async for message in queue.consumer():
            async with message:
                ...

The tracker has a thread of its own in any case: `kwire.queue.Service(...).tracker()`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

from kwire import aio
from kwire.cluster import ClientConfig, Cluster
from kwire.cluster.waiting import AWAITING, awaited
from kwire.options import documents_options, translate_bootstrap
from kwire.queue.consumer import QueueConsumerClient
from kwire.queue.message import MessageClient
from kwire.queue.options import QueueKwargs, QueueOptions
from kwire.queue.producer import QueueProducerClient
from kwire.queue.service import ServiceClient, checked_name

_ITERATION_SECONDS = 0.5


class Message(MessageClient):
    """A message under a lease, as `kwire.queue.Message`: `async with message:` acknowledges it, or gives it back."""

    __slots__ = ()

    ack = awaited(MessageClient._ack)
    nack = awaited(MessageClient._nack)
    release = awaited(MessageClient._release)
    extend = awaited(MessageClient._extend)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._leave(error)


class Consumer(QueueConsumerClient):
    """Receives the messages of a queue, as `kwire.queue.Consumer`. Any number of tasks may share it."""

    _waiter = AWAITING
    _message = Message

    async def receive(self, timeout: float | None = 1.0) -> Message | None:
        """Return the next message, or None after `timeout` seconds (None: no limit)."""
        message = await self._receive_one(timeout)
        assert message is None or isinstance(message, Message)
        return message

    flush = awaited(QueueConsumerClient._flush)
    close = awaited(QueueConsumerClient._close)

    async def __aiter__(self) -> AsyncIterator[Message]:
        while not self._is_stopped:
            message = await self.receive(_ITERATION_SECONDS)
            if message is not None:
                yield message

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._close()


class Producer(QueueProducerClient):
    """Puts messages into a queue, as `kwire.queue.Producer`."""

    send = awaited(QueueProducerClient._send)
    flush = awaited(QueueProducerClient._flush)
    close = awaited(QueueProducerClient._close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._close()


class Queue:
    """A queue of a service: a name."""

    def __init__(self, service: Service, name: str) -> None:
        self._service = service
        self.name = name

    def producer(self) -> Producer:
        """Return a producer of this queue."""
        producer = Producer(self._service, self.name)
        self._service._added(producer)
        return producer

    def consumer(self) -> Consumer:
        """Return a consumer of this queue."""
        consumer = Consumer(self._service, self.name)
        self._service._added(consumer)
        return consumer

    def __repr__(self) -> str:
        return f"<kwire.queue.aio.Queue {self.name!r}>"


@documents_options(QueueOptions, ClientConfig)
class Service(ServiceClient):
    """Message queues on Kafka for asyncio: `kwire.queue.Service`, awaited."""

    waiter = AWAITING
    _name = "kwire.queue.aio.Service"

    @translate_bootstrap("kwire.queue.aio.Service")
    def __init__(self, bootstrap: str | Sequence[str] | Cluster, **options: Unpack[QueueKwargs]) -> None:
        self._set_up(bootstrap, dict(options))

    def queue(self, name: str) -> Queue:
        """Return the queue of this name. Contacts no broker."""
        return Queue(self, checked_name(name))

    def new_producer(self, **options: Any) -> aio.Producer:
        return aio.Producer(self._cluster, **self._client_options, **options)

    def new_consumer(self, **options: Any) -> aio.Consumer:
        return aio.Consumer(self._cluster, **self._client_options, **options)

    close = awaited(ServiceClient._close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._close()
