"""`Service`: the queues on one pair of topics, and the clients that they share."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any, ClassVar, Self, Unpack

from kwire.arguments import wrong_type
from kwire.cluster import ClientConfig, Cluster, LoopThread, open_loop_thread
from kwire.cluster.waiting import BLOCKING, Waiter, blocking, run_blocking
from kwire.consumer import Consumer as RecordConsumer
from kwire.consumer.group_client import GroupClient
from kwire.errors import ClosedError
from kwire.net import Clock
from kwire.options import check_names, documents_options, translate_bootstrap
from kwire.producer import Message as ProducedMessage
from kwire.producer import Producer as RecordProducer
from kwire.producer import ProduceResponse
from kwire.producer.methods import ProducerMethods
from kwire.queue.backend import Backend
from kwire.queue.consumer import Consumer, QueueConsumerClient
from kwire.queue.metrics import ConsumerCounters
from kwire.queue.options import QueueKwargs, QueueOptions
from kwire.queue.producer import Producer, QueueProducerClient
from kwire.queue.topics import QueueTopics
from kwire.queue.tracker import Tracker
from kwire.queue.tracker_backend import TrackerBackend

_OPEN_SECONDS = 30.0
_MARKERS_LINGER_MS = 1


class ServiceClient:
    """What both faces of the service share. No broker is contacted before the first message."""

    waiter: ClassVar[Waiter]
    _name: ClassVar[str]

    def _set_up(self, bootstrap: str | Sequence[str] | Cluster, options: dict[str, Any]) -> None:
        check_names(self._name, bootstrap, options, QueueOptions, ClientConfig)
        own = {name: options.pop(name) for name in list(options) if name in QueueOptions.option_names()}
        self.options = QueueOptions(**own)
        self._is_own = not isinstance(bootstrap, Cluster)
        self._cluster = bootstrap if isinstance(bootstrap, Cluster) else Cluster(bootstrap, **options)
        self._client_options = {} if self._is_own else options
        self._runtime: LoopThread = open_loop_thread(self._name, self._cluster, self._client_options, "queues")
        # One for the markers of all consumers, for threads also in asyncio: it never waits for memory.
        self.markers = RecordProducer(
            self._cluster, linger_ms=_MARKERS_LINGER_MS, when_full="raise", **self._client_options
        )
        self._messages = self.new_producer(partitioner_ignore_keys=True)
        self._lock = threading.Lock()
        self._topics: QueueTopics | None = None
        self._members: dict[QueueConsumerClient | QueueProducerClient, None] = {}
        self._is_closed = False

    @property
    def clock(self) -> Clock:
        return self._runtime.clock

    def new_producer(self, **options: Any) -> ProducerMethods:
        """Return a producer of the service's face on its connections."""
        raise NotImplementedError

    def new_consumer(self, **options: Any) -> GroupClient:
        """Return a consumer of the service's face on its connections."""
        raise NotImplementedError

    async def new_backend(self, queue: str, counters: ConsumerCounters) -> Backend:
        """Return what a consumer of the queue takes messages from."""
        return TrackerBackend(self, queue, await self.topics(), counters)

    async def deliver(self, message: ProducedMessage) -> ProduceResponse:
        """Send a record by the producer of all queues."""
        (response,) = await self._messages._send_all([message])
        return response

    async def flush_messages(self, timeout: float | None) -> None:
        await self._messages._flush(timeout)

    async def topics(self) -> QueueTopics:
        """Return what is known of the topics; create or check them the first time."""
        if self._topics is None:
            if self._is_closed:
                raise ClosedError("the service is closed")
            self._topics = await QueueTopics.open(self.options, self._runtime, self.waiter, _OPEN_SECONDS)
        return self._topics

    def _added(self, member: QueueConsumerClient | QueueProducerClient) -> None:
        with self._lock:
            if self._is_closed:
                raise ClosedError("the service is closed")
            self._members[member] = None

    def forget(self, member: QueueConsumerClient | QueueProducerClient) -> None:
        """Close this member no more: it is closed."""
        with self._lock:
            self._members.pop(member, None)

    async def _close(self, timeout: float | None = 30.0) -> None:
        """Close the consumers and producers of all queues, which give back and deliver what they have.

        A second call does nothing.
        """
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            members = list(self._members)
        for member in reversed(members):
            await member._close(timeout)
        await self._messages._close(timeout)
        self.markers.close(timeout)
        self._runtime.close(1.0)
        if self._is_own:
            self._cluster.close(1.0)

    def __repr__(self) -> str:
        topics = f"{self.options.message_topic} and {self.options.marker_topic}"
        return f"<{self._name} of {self._cluster.bootstrap} on {topics}{', closed' if self._is_closed else ''}>"


def checked_name(queue: object) -> str:
    """Return the name of a queue. Raises TypeError or ValueError."""
    if not isinstance(queue, str):
        raise wrong_type("queue", queue, "the name of the queue")
    if not queue:
        raise ValueError("the name of a queue must not be empty")
    return queue


class Queue:
    """A queue of a service: a name. To make one costs nothing, and creates nothing at the brokers."""

    def __init__(self, service: Service, name: str) -> None:
        self._service = service
        self.name = name

    def producer(self) -> Producer:
        """Return a producer of this queue."""
        producer = Producer(self._service, self.name)
        self._service._added(producer)
        return producer

    def consumer(self) -> Consumer:
        """Return a consumer of this queue. The consumers of a queue, in any process, share its messages."""
        consumer = Consumer(self._service, self.name)
        self._service._added(consumer)
        return consumer

    def __repr__(self) -> str:
        return f"<kwire.queue.Queue {self.name!r}>"


@documents_options(QueueOptions, ClientConfig)
class Service(ServiceClient):
    """Message queues on Kafka: any number of them, by name, on two topics.

    >>> with kwire.queue.Service("localhost:9092") as service:         # doctest: +SKIP
    ...     queue = service.queue("emails")
    ...     queue.producer().send(b"hello").result()
    ...     message = queue.consumer().receive(timeout=10)
    ...     message.ack()

    Messages are acknowledged one by one, in any order. One that is not acknowledged, because its consumer died, comes
    again: a `Tracker` must run somewhere, as `kwire queue tracker` or in a thread.
    """

    waiter = BLOCKING
    _name = "kwire.queue.Service"

    @translate_bootstrap("kwire.queue.Service")
    def __init__(self, bootstrap: str | Sequence[str] | Cluster, **options: Unpack[QueueKwargs]) -> None:
        self._set_up(bootstrap, dict(options))

    def queue(self, name: str) -> Queue:
        """Return the queue of this name. Contacts no broker."""
        return Queue(self, checked_name(name))

    get_or_create_queue = queue

    def tracker(self) -> Tracker:
        """Return a redelivery tracker of these queues. Some process must run one; several share the work."""
        return Tracker(self)

    def new_producer(self, **options: Any) -> RecordProducer:
        return RecordProducer(self._cluster, **self._client_options, **options)

    def new_consumer(self, **options: Any) -> RecordConsumer:
        return RecordConsumer(self._cluster, **self._client_options, **options)

    close = blocking(ServiceClient._close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        run_blocking(self._close())
