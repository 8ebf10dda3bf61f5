"""Queues for asyncio: `kwire.aio.queue.Service`, over the same cores as `kwire.queue.Service`.

    async with kwire.aio.queue.Service("localhost:9092") as service:
        queue = service.queue("emails")
        await (await queue.producer().send(b"hello"))
        async for message in queue.consumer():
            async with message:
                ...

The tracker has a thread of its own in any case: `kwire.queue.Service(...).tracker()`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Unpack

from kwire import aio
from kwire.cluster import ClientConfig, Cluster
from kwire.cluster.asyncio_waiting import AWAITING
from kwire.cluster.waiting import AwaitedContext, awaited
from kwire.option_checks import documents_options, translate_bootstrap
from kwire.queue.consumer import LOOK_SECONDS, QueueConsumerClient
from kwire.queue.message import MessageClient
from kwire.queue.options import QueueKwargs, QueueOptions
from kwire.queue.producer import QueueProducerClient
from kwire.queue.service import ServiceClient


class Message(MessageClient, AwaitedContext):
    """A message under a lease, as `kwire.queue.Message`: `async with message:` acknowledges it, or gives it back."""

    __slots__ = ()

    ack = awaited(MessageClient._ack)
    nack = awaited(MessageClient._nack)
    release = awaited(MessageClient._release)
    extend = awaited(MessageClient._extend)


class Consumer(QueueConsumerClient[Message], AwaitedContext):
    """Receives the messages of a queue, as `kwire.queue.Consumer`. Any number of tasks may share it."""

    _waiter = AWAITING
    _message = Message

    receive = awaited(QueueConsumerClient[Message]._receive)
    receive_many = awaited(QueueConsumerClient[Message]._receive_many)
    ack_many = awaited(QueueConsumerClient[Message]._ack_many)
    flush = awaited(QueueConsumerClient[Message]._flush)
    close = awaited(QueueConsumerClient[Message]._close)

    async def handle(
        self, function: Callable[[Message], Any], workers: int = 1, *, timeout: float | None = 30.0
    ) -> None:
        """Call `function(message)`, which may be a coroutine function, in so many tasks, until `stop`.

        A message whose call returns is acknowledged, unless the function settled it. One whose call raises is given
        back after the back-off, and the exception is logged; after max_deliveries it is a dead letter.

        After `stop`, or when this task is cancelled, no further message is handled, and the calls that run have
        `timeout` seconds (None: no limit) to end; then they are cancelled, and their messages given back. Raises the
        error that ended the reading, and a SystemExit, CancelledError or the like of the function.
        """
        self._begin_handling(function, workers, timeout)
        tasks = {asyncio.ensure_future(self._run(function, workers > 1)) for _ in range(workers)}
        running = tasks
        try:
            while running and not self._is_stopped:
                _, running = await asyncio.wait(running, timeout=LOOK_SECONDS)
        finally:
            self.stop()
            if running:
                _, running = await asyncio.wait(running, timeout=timeout)
            for task in running:
                task.cancel()
            if running:
                await asyncio.wait(running)
        self._end_handling(0, timeout)

    async def _run(self, function: Callable[[Message], Any], has_others: bool) -> None:
        """Do what a task of `handle` does, and keep what ends it: nobody else would see it."""
        try:
            await self._work(function, has_others)
        except asyncio.CancelledError as error:
            if not self._is_stopped:  # of the function: `handle` cancels only after it has stopped
                self._fail(error)
            raise
        except BaseException as error:
            self._fail(error)

    async def __aiter__(self) -> AsyncIterator[Message]:
        while not self._is_stopped:
            message = await self.receive(LOOK_SECONDS)
            if message is not None:
                yield message


class Producer(QueueProducerClient, AwaitedContext):
    """Puts messages into a queue, as `kwire.queue.Producer`."""

    send = awaited(QueueProducerClient._send)
    send_many = awaited(QueueProducerClient._send_many)
    flush = awaited(QueueProducerClient._flush)
    close = awaited(QueueProducerClient._close)


@documents_options(QueueOptions, ClientConfig)
class Service(ServiceClient[Producer, Consumer], AwaitedContext):
    """Message queues on Kafka for asyncio: `kwire.queue.Service`, awaited."""

    waiter = AWAITING
    _name = "kwire.aio.queue.Service"
    _producer = Producer
    _consumer = Consumer
    _new_producer = aio.Producer
    _new_consumer = aio.Consumer
    _new_share_consumer = aio.ShareConsumer

    @translate_bootstrap("kwire.aio.queue.Service")
    def __init__(self, bootstrap: str | Sequence[str] | Cluster, **options: Unpack[QueueKwargs]) -> None:
        self._set_up(bootstrap, dict(options))

    dead_letters = awaited(ServiceClient[Producer, Consumer]._dead_letters)
    redrive = awaited(ServiceClient[Producer, Consumer]._redrive)
    peek = awaited(ServiceClient[Producer, Consumer]._peek)
    stats = awaited(ServiceClient[Producer, Consumer]._stats)
    explain = awaited(ServiceClient[Producer, Consumer]._explain)
    close = awaited(ServiceClient[Producer, Consumer]._close)


__all__ = ["Consumer", "Message", "Producer", "Service"]
