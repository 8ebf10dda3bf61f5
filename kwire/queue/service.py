"""`Service`: the queues on one pair of topics, or on share groups, and the clients that they share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Generic, TypeVar, Unpack

from kwire.arguments import wrong_type
from kwire.cluster import ClientConfig, Cluster, LoopThread, open_loop_thread
from kwire.cluster.waiting import BLOCKING, BlockingContext, Waiter, blocking
from kwire.consumer import Consumer as RecordConsumer
from kwire.consumer.group_client import GroupClient
from kwire.errors import ClosedError, ConfigurationError
from kwire.net import Clock
from kwire.option_checks import check_names, documents_options, translate_bootstrap
from kwire.producer import Message as ProducedMessage
from kwire.producer import Producer as RecordProducer
from kwire.producer import ProduceResponse
from kwire.producer.methods import ProducerMethods
from kwire.queue.backend import Backend, QueuePlace
from kwire.queue.browser import Browser, DeadLetter, MessageState, QueueStats, WaitingMessage, check_limit
from kwire.queue.consumer import Consumer, QueueConsumerClient
from kwire.queue.metrics import ConsumerCounters, ProducerCounters, ServiceMetrics
from kwire.queue.options import QueueKwargs, QueueOptions
from kwire.queue.producer import Producer, QueueProducerClient
from kwire.queue.share_backend import ShareBackend
from kwire.queue.share_setup import ShareQueues, choose_backend, topic_of
from kwire.queue.topics import QueueTopics, TopicSetup
from kwire.queue.tracker import Tracker
from kwire.queue.tracker_backend import TrackerBackend
from kwire.share import ShareConsumer
from kwire.share.client import ShareConsumerClient

P = TypeVar("P", bound=QueueProducerClient)
C = TypeVar("C", bound=QueueConsumerClient[Any])

_MARKERS_LINGER_MS = 1


class Queue(Generic[P, C]):
    """A queue of a service: a name. To make one costs nothing, and creates nothing at the brokers."""

    def __init__(self, service: ServiceClient[P, C], name: str) -> None:
        self._service = service
        self.name = name

    def producer(self) -> P:
        """Return a producer of this queue."""
        return self._service._producer(self._service, self.name)

    def consumer(self) -> C:
        """Return a consumer of this queue. The consumers of a queue, in any process, share its messages."""
        consumer = self._service._consumer(self._service, self.name)
        self._service._added(consumer)
        return consumer

    def __repr__(self) -> str:
        return f"<Queue {self.name!r} of {self._service!r}>"


class ServiceClient(Generic[P, C]):
    """What both faces of the service share. No broker is contacted before the first message.

    A face says how it waits, and which clients it has: `_producer` and `_consumer` of queues, `_new_...` of records.
    """

    waiter: ClassVar[Waiter]
    _name: ClassVar[str]
    _producer: type[P]
    _consumer: type[C]
    _new_producer: ClassVar[Callable[..., ProducerMethods]]
    _new_consumer: ClassVar[Callable[..., GroupClient]]
    _new_share_consumer: ClassVar[Callable[..., ShareConsumerClient]]

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
        self._share_queues: ShareQueues | None = None
        self._consumers: dict[QueueConsumerClient[Any], None] = {}
        self._counted = ServiceMetrics()  # by producers, and by consumers that are closed
        self._is_closed = False

    @property
    def clock(self) -> Clock:
        return self._runtime.clock

    @property
    def runtime(self) -> LoopThread:
        return self._runtime

    @property
    def client_id(self) -> str:
        return self._runtime.config.client_id

    @property
    def is_forked(self) -> bool:
        """Return whether this process is a forked child, and the service belongs to its parent."""
        return self._runtime.is_forked

    def check_usable(self) -> None:
        """Raise ClosedError in a forked child: its messages are the parent's."""
        self._runtime.check_usable()

    def queue(self, name: str) -> Queue[P, C]:
        """Return the queue of this name. Contacts no broker."""
        return Queue(self, checked_name(name))

    get_or_create_queue = queue

    def new_producer(self, **options: Any) -> ProducerMethods:
        """Return a producer of the service's face on its connections."""
        return type(self)._new_producer(self._cluster, **self._client_options, **options)

    def new_consumer(self, **options: Any) -> GroupClient:
        """Return a consumer of the service's face on its connections."""
        return type(self)._new_consumer(self._cluster, **self._client_options, **options)

    def new_share_consumer(self, **options: Any) -> ShareConsumerClient:
        """Return a share consumer of the service's face on its connections."""
        return type(self)._new_share_consumer(self._cluster, **self._client_options, **options)

    # -- the backend

    async def _share(self) -> ShareQueues | None:
        """Return the queues on share groups; None where a tracker has them. Asks the cluster once, with "auto"."""
        if self.options.backend == "auto":
            self.options = replace(self.options, backend=await choose_backend(self.setup(), self.options))
        if self.options.backend == "tracker":
            return None
        if self._share_queues is None:
            self._share_queues = ShareQueues(self.options)
        return self._share_queues

    def setup(self) -> TopicSetup:
        """Return a `TopicSetup` that asks the cluster until its deadline."""
        if self._is_closed:
            raise ClosedError("the service is closed")
        deadline = self.clock.now() + self.options.setup_timeout_ms / 1000
        return TopicSetup(self.options, self._runtime, self.waiter, deadline)

    async def resolve(self) -> None:
        """Set the backend in the options, and so the names of topics; ask the cluster once."""
        await self._share()

    async def topic_of(self, queue: str) -> str:
        """Return the name of the topic that has the messages of a queue. It need not exist."""
        share = await self._share()
        return self.options.message_topic if share is None else topic_of(self.options, queue)

    async def new_backend(self, queue: str, counters: ConsumerCounters) -> Backend:
        """Return what a consumer of the queue takes messages from."""
        share = await self._share()
        if share is None:
            return TrackerBackend(self, queue, await self.topics(), counters)
        place = await share.place(self.setup(), queue)
        await share.prepare_group(self.setup(), queue)
        return ShareBackend(self, queue, place, counters)

    async def place(self, queue: str) -> QueuePlace:
        """Return where the messages of a queue are; create or check the topics the first time."""
        share = await self._share()
        if share is not None:
            return share.known.get(queue) or await share.place(self.setup(), queue)
        topics = await self.topics()
        return QueuePlace(
            self.options.message_topic, topics.message_partitions, topics.message_bytes_max, topics.marker_retention_ms
        )

    async def deliver(self, messages: Sequence[ProducedMessage]) -> list[ProduceResponse]:
        """Send records by the producer of all queues."""
        return await self._messages._send_all(messages)

    async def settled(self, response: ProduceResponse) -> None:
        """Wait until a record has a result."""
        if not response.done():
            signal = self.waiter.signal()
            response.add_done_callback(lambda _: signal.set())
            await signal.wait()

    async def stored(self, response: ProduceResponse) -> None:
        """Wait until a record is stored. Raises its error."""
        await self.settled(response)
        response.result()

    async def flush_messages(self, timeout: float | None) -> None:
        await self._messages._flush(timeout)

    async def topics(self) -> QueueTopics:
        """Return what is known of the topics; create or check them the first time."""
        if await self._share() is not None:
            raise ConfigurationError(
                "these queues are on share groups, and need no tracker",
                remedy='run none; trackers are for backend="tracker"',
            )
        if self._topics is None:
            self._topics = await QueueTopics.open(self.options, self.setup())
        return self._topics

    # -- looking in

    async def _dead_letters(self, queue: str | None = None, *, limit: int | None = None) -> list[DeadLetter]:
        """Return dead letters (of one queue, or of all) that were not sent back. Reads the whole dead letter topic."""
        check_limit("limit", limit)
        return await Browser(self).dead_letters(None if queue is None else checked_name(queue), limit)

    async def _redrive(
        self, queue: str | None = None, *, ids: Collection[str] | None = None, limit: int | None = None
    ) -> int:
        """Send dead letters (of one queue, or of all; with these ids, or any) back to their queues; return how many.

        They count as not delivered, keep id, headers and the time of their first sending, and do not expire. Each goes
        back exactly once, also when this is interrupted or runs twice at once: then the later one goes on.
        """
        check_limit("limit", limit)
        if ids is not None and (
            isinstance(ids, str) or not isinstance(ids, Collection) or not all(isinstance(one, str) for one in ids)
        ):
            raise wrong_type("ids", ids, "a collection of ids, each a str")
        return await Browser(self).redrive(None if queue is None else checked_name(queue), ids, limit)

    async def _peek(self, queue: str, count: int = 10) -> list[WaitingMessage]:
        """Return the first messages of a queue that no consumer has taken. They stay there."""
        check_limit("count", count)
        return await Browser(self).peek(checked_name(queue), count)

    async def _stats(self, queue: str) -> QueueStats:
        """Return how many messages of a queue wait, are in progress, and are dead letters. Reads the topics."""
        return await Browser(self).stats(checked_name(queue))

    async def _explain(self, id: str) -> MessageState:
        """Return where the message with this id is, since when, and until when. Reads the topics."""
        return await Browser(self).explain(id)

    # -- producers and consumers

    def producer_counters(self, queue: str) -> ProducerCounters:
        """Return what counts the messages of all producers of a queue."""
        with self._lock:
            if self._is_closed:
                raise ClosedError("the service is closed")
            return self._counted.of(queue).producers

    def _added(self, consumer: QueueConsumerClient[Any]) -> None:
        with self._lock:
            if self._is_closed:
                raise ClosedError("the service is closed")
            self._consumers[consumer] = None

    def forget(self, consumer: QueueConsumerClient[Any]) -> None:
        """Forget a consumer that is closed, and keep its counts."""
        counted = consumer.metrics()
        counted.in_progress = counted.buffered = 0
        counted.oldest_in_progress_seconds = 0.0
        with self._lock:
            if consumer in self._consumers:
                del self._consumers[consumer]
                self._counted.add(consumer.queue, counted)

    def metrics(self) -> ServiceMetrics:
        """Return what producers and consumers have counted, by queue: a copy of now."""
        with self._lock:
            found, consumers = self._counted.copy(), list(self._consumers)
        for consumer in consumers:
            found.add(consumer.queue, consumer.metrics())
        return found

    collect_metrics = metrics  # as exporters call it

    async def _close(self, timeout: float | None = 30.0) -> None:
        """Close the consumers of all queues, which give back what they have, and deliver what producers sent.

        A second call does nothing.
        """
        if self.is_forked:
            self._is_closed = True
            return
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            consumers = list(self._consumers)
        for consumer in reversed(consumers):
            await consumer._close(timeout)
        await self._messages._close(timeout)
        self.markers.close(timeout)
        self._runtime.close(1.0)
        if self._is_own:
            self._cluster.close(1.0)

    async def _leave(self, error: BaseException | None) -> None:
        await self._close()

    def __repr__(self) -> str:
        topics = f"{self.options.message_topic} and {self.options.marker_topic}"
        return f"<{self._name} of {self._cluster.bootstrap} on {topics}{', closed' if self._is_closed else ''}>"


def checked_name(queue: object) -> str:
    """Return the name of a queue. Raises TypeError or ValueError."""
    if not isinstance(queue, str):
        raise wrong_type("queue", queue, "the name of the queue")
    if not queue:
        raise ValueError("the name of a queue must not be empty")
    try:
        queue.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"queue {queue!r} has a lone surrogate, which UTF-8 has not: give a name of whole characters"
        ) from error
    return queue


@documents_options(QueueOptions, ClientConfig)
class Service(ServiceClient[Producer, Consumer], BlockingContext):
    """Message queues on Kafka: any number of them, by name.

    >>> with kwire.queue.Service("localhost:9092") as service:         # doctest: +SKIP
    ...     queue = service.queue("emails")
    ...     queue.producer().send(b"hello").result()
    ...     message = queue.consumer().receive(timeout=10)
    ...     message.ack()

    Messages are acknowledged one by one, in any order. One that is not acknowledged, because its consumer died, comes
    again: with the backend "tracker" a `Tracker` must run somewhere, as `kwire queue tracker` or in a thread; with
    "share" the brokers deliver it again.
    """

    waiter = BLOCKING
    _name = "kwire.queue.Service"
    _producer = Producer
    _consumer = Consumer
    _new_producer = RecordProducer
    _new_consumer = RecordConsumer
    _new_share_consumer = ShareConsumer

    @translate_bootstrap("kwire.queue.Service")
    def __init__(self, bootstrap: str | Sequence[str] | Cluster, **options: Unpack[QueueKwargs]) -> None:
        self._set_up(bootstrap, dict(options))

    def tracker(self) -> Tracker:
        """Return a redelivery tracker of these queues. Some process must run one; several share the work."""
        return Tracker(self)

    dead_letters = blocking(ServiceClient[Producer, Consumer]._dead_letters)
    redrive = blocking(ServiceClient[Producer, Consumer]._redrive)
    peek = blocking(ServiceClient[Producer, Consumer]._peek)
    stats = blocking(ServiceClient[Producer, Consumer]._stats)
    explain = blocking(ServiceClient[Producer, Consumer]._explain)
    close = blocking(ServiceClient[Producer, Consumer]._close)
