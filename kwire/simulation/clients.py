"""Clients in a simulated world: a producer, a reader with read_committed, and a transactional job.

On real threads `kwire.Producer` and `kwire.Consumer` make records, flush, and take records out. These classes do it
here; all code below them is the code that users run. A `Job` has one transactional id and runs one instance after
another. An instance aborts when an error says so, and ends when an error says that it cannot continue. Sometimes two
instances are alive at once, because the first was believed dead. The clients write everything into the history.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from concurrent.futures import Future
from functools import partial
from random import Random
from typing import Any

from kwire.cluster import Backoff, ClientConfig, EventLoop
from kwire.consumer.buffer import BatchFilter, CompletedFetch, FetchBuffer, PartitionFailed
from kwire.consumer.fetcher import Fetcher, Start
from kwire.consumer.offsets import OffsetFetcher
from kwire.consumer.options import ConsumerOptions
from kwire.errors import (
    AbortableError,
    BrokerError,
    BufferFullError,
    ClosedError,
    ErrorCode,
    FencedError,
    KwireError,
    TransactionError,
)
from kwire.producer.accumulator import BufferPool, PendingRecord
from kwire.producer.client import make_accumulator
from kwire.producer.futures import ProduceResponse
from kwire.producer.options import ProducerSettings
from kwire.producer.producer_request import DeliveryOptions
from kwire.producer.sender import Sender
from kwire.producer.topic import TopicQueue
from kwire.producer.transaction import Transaction
from kwire.records import decode_batches, record_bytes_max
from kwire.simulation.conduct import Conduct, WatchedSender
from kwire.simulation.history import History, ReadCopy, RecordId, Sent, SentTransaction
from kwire.simulation.network import Network, SimulatedSelector
from kwire.simulation.schedule import Transact
from kwire.simulation.world import Loop, World

_PARTITIONS_MAX = 16  # of a topic in any plan


class SimulatedProducer:
    """A producer on the simulated network.

    `sender` is the sender class; tests pass one with a bug. `network_name` is its name in the network, by default
    `name`. `first_sequence` is the first sequence of every partition. `keeps_producer_id` says that every broker
    supports producer ids.
    """

    def __init__(
        self,
        net: Network,
        name: str,
        history: History,
        random: Random,
        config: ClientConfig,
        settings: ProducerSettings,
        sender: type[Sender] = Sender,
        network_name: str | None = None,
        first_sequence: int = 0,
        keeps_producer_id: bool = True,
    ) -> None:
        self.name = name
        self.settings = settings
        self.config = config
        self._world = net.world
        self._trace = net.trace
        self._history = history
        self._numbers: dict[str, int] = {}
        self.loop = Loop(net.world, name, self._turn)
        selector = SimulatedSelector.of(net, network_name or name, random, config, wake_loop=self.loop.wake)
        self.event_loop = EventLoop(config, selector, net.world, random)  # type: ignore[arg-type]
        wakeup = self.event_loop.wakeup
        self.buffer_pool = BufferPool(make_accumulator(settings, _run_here, wakeup), "raise", 0.0, wakeup)
        self.sender = (_starting_at(sender, first_sequence) if first_sequence else sender)(
            settings,
            self.buffer_pool,
            backoff=Backoff(config.retry_backoff_ms, config.retry_backoff_ms_max),
            request_timeout_ms=config.request_timeout_ms,
            random=random,
        )
        self.conduct = Conduct(name, settings, net.world.now, first_sequence, keeps_producer_id=keeps_producer_id)
        self.event_loop.add(WatchedSender(self.sender, self.conduct), "produce")
        self.loop.wake()
        self.is_closed = False

    def _turn(self) -> None:
        self.event_loop.turn()

    def send(
        self,
        topic: str,
        *,
        partition: int | None = None,
        key: bytes | None = None,
        size: int = 0,
        timeout: float | None = None,
    ) -> Sent | None:
        """Send the next record for a topic. Return None if the buffer is full or the producer is closed."""
        number = self._numbers.get(topic, 0)
        id = RecordId(self.name, topic, number)
        value = id.value(size)
        record = (self._world.time_ms(), key, value, ())
        terms = None
        if timeout is not None:
            terms = DeliveryOptions(self.settings.required_acks, timeout, self._world.now() + timeout)
        try:
            response = self.buffer_pool.append_or_wait(
                PendingRecord(topic, partition, record, record_bytes_max(key, value, ()), terms)
            )
        except (BufferFullError, ClosedError):
            self._history.refused += 1
            return None
        self._numbers[topic] = number + 1
        sent = Sent(id, self._world.now(), partition, key, timeout)
        self._history.add_sent(sent)
        response.add_done_callback(partial(self._resolved, id))
        return sent

    def flush(self) -> None:
        self._history.flushes_requested += 1

        def act() -> None:
            self.sender.flush(done, self._world.now())

        def done() -> None:
            self._history.flushes_done += 1

        if self.is_closed:
            done()
        else:
            self.event_loop.post(act)

    def close(self) -> None:
        """Close at once, whatever is in flight."""
        if not self.is_closed:
            self.is_closed = True
            self.loop.stop()
            self.event_loop.close(ClosedError("the client was closed"))

    def _resolved(self, id: RecordId, response: ProduceResponse) -> None:
        now = self._world.now()
        self._trace.note(now, f"{id.producer}/{id.topic}/{id.number} resolved: {response!r}")
        self._history.resolved(id, response, now)


def _starting_at(sender: type[Sender], first_sequence: int) -> type[Sender]:
    """Return a sender class whose sequences begin at `first_sequence` in every partition."""

    class OldSender(sender):  # type: ignore[valid-type, misc]
        _has_identity = False

        def _new_topic(self, name: str) -> TopicQueue:
            topic: TopicQueue = super()._new_topic(name)
            _age(topic)
            return topic

        def _restart_sequences(self) -> None:
            super()._restart_sequences()
            if not self._has_identity:
                self._has_identity = True
                for topic in self._topics.values():
                    _age(topic)

    def _age(topic: TopicQueue) -> None:
        for index in range(_PARTITIONS_MAX):
            topic.partition(index).next_sequence = first_sequence

    return OldSender


def _run_here(function: Callable[..., object], *args: Any) -> None:
    function(*args)


class _Reading:
    """A partition: its position and the records before it."""

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.position = 0
        self.records: list[tuple[int, bytes | None]] = []

    def take(self, chunk: CompletedFetch) -> None:
        assert chunk.offset == self.position, "a fetch does not continue at the position"
        filter = BatchFilter(chunk.aborted)
        for batch in decode_batches(chunk.data):
            # A broker sends whole batches, also if the fetch offset is in the middle of one.
            if not filter.hides(batch):
                self.records += [(one.offset, one.value) for one in batch.records() if one.offset >= self.position]
            self.position = max(self.position, batch.next_offset)


class SimulatedReader:
    """Read partitions from offset 0. `errors` are the errors that ended a partition."""

    def __init__(
        self,
        net: Network,
        name: str,
        random: Random,
        config: ClientConfig,
        options: ConsumerOptions,
        places: Collection[tuple[str, int]],
    ) -> None:
        self.name = name
        self.errors: list[KwireError] = []
        self.loop = Loop(net.world, name, self._turn)
        selector = SimulatedSelector.of(net, name, random, config, wake_loop=self.loop.wake)
        self._event_loop = EventLoop(config, selector, net.world, random)  # type: ignore[arg-type]
        self._fetch_buffer = FetchBuffer(max_bytes=options.max_buffered_bytes, wake_loop=self._event_loop.wakeup)
        backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_ms_max)
        lookup = OffsetFetcher(
            is_committed_only=options.is_committed_only,
            unknown_topic_timeout_ms=options.unknown_topic_timeout_ms,
            backoff=backoff,
            random=random,
        )
        fetcher = Fetcher(
            options,
            self._fetch_buffer,
            lookup,
            backoff=backoff,
            random=random,
            request_timeout_ms=config.request_timeout_ms,
            max_frame_bytes=config.max_frame_bytes,
            replica_max_age_ms=config.metadata_max_age_ms,
            wall_ms=net.world.time_ms,
        )
        self._readings = {number: _Reading(*place) for number, place in enumerate(places, start=1)}
        fetcher.assign([Start(one.topic, one.partition, number, 0) for number, one in self._readings.items()])
        self._event_loop.add(fetcher, "fetch")
        self.loop.wake()

    def positions(self) -> dict[tuple[str, int], int]:
        """Return the position of each partition: the offset after its last batch."""
        return {(one.topic, one.partition): one.position for one in self._readings.values()}

    def copies(self) -> list[ReadCopy]:
        return [ReadCopy(self.name, one.topic, one.partition, tuple(one.records)) for one in self._readings.values()]

    def close(self) -> None:
        self.loop.stop()
        self._event_loop.close(ClosedError("the reader was closed"))

    def _turn(self) -> None:
        self._event_loop.turn()
        for item in self._fetch_buffer.take():
            if isinstance(item, CompletedFetch):
                self._readings[item.assignment_epoch].take(item)
                self._fetch_buffer.release(item)
            elif isinstance(item, PartitionFailed):
                self.errors.append(item.error)


# Seconds between the end of an instance and the next one.
_PAUSE = 0.1


class Job:
    """A program that writes in transactions. `make(name)` makes a producer with its transactional id."""

    def __init__(self, world: World, history: History, name: str, make: Callable[[str], SimulatedProducer]) -> None:
        self.world = world
        self.history = history
        self.name = name
        self.queue: deque[Transact] = deque()
        self.instances: list[Instance] = []
        self._make = make
        self._is_closed = False
        self._begin()

    @property
    def is_idle(self) -> bool:
        return not self.queue and all(one.is_idle for one in self.instances)

    def add(self, work: Transact) -> None:
        self.queue.append(work)
        self.wake()

    def rival(self) -> None:
        """Start another instance although the present one is alive."""
        self._begin()

    def kill(self) -> None:
        """Kill the newest live instance, whatever it does."""
        for one in reversed(self.instances):
            if one.is_alive:
                one.die()
                return

    def close(self) -> None:
        self._is_closed = True
        for one in self.instances:
            one.die()

    def died(self) -> None:
        """Schedule a new instance if the last live one has ended."""
        if not self._is_closed and not any(one.is_alive for one in self.instances):
            self.world.at(self.world.now() + _PAUSE, self._replace)

    def _replace(self, now: float) -> None:
        if not self._is_closed and not any(one.is_alive for one in self.instances):
            self._begin()

    def _begin(self) -> None:
        self.instances.append(Instance(self, self._make(f"{self.name}.{len(self.instances)}")))
        self.wake()

    def wake(self) -> None:
        for one in reversed(self.instances):
            one.wake()


class Instance:
    """One process of a job. It runs one transaction after another."""

    def __init__(self, job: Job, producer: SimulatedProducer) -> None:
        assert producer.sender.transaction is not None
        self.producer = producer
        self.is_idle = True
        self._job = job
        self._world = job.world
        self._transaction: Transaction = producer.sender.transaction
        self._count = 0
        self._present: SentTransaction

    @property
    def is_alive(self) -> bool:
        return not self.producer.is_closed

    def wake(self) -> None:
        if self.is_idle and self.is_alive and self._job.queue:
            self.is_idle = False
            work = self._job.queue.popleft()
            self._call(self._transaction.init, partial(self._begin, work))

    def die(self) -> None:
        if self.is_alive:
            self.producer.close()
            self.is_idle = True
            self._job.died()

    def _call(self, call: Callable[[Future[None]], None], then: Callable[[], None]) -> None:
        """Run `call` on the event loop, and `then` if it succeeds."""
        future: Future[None] = Future()

        def act() -> None:
            try:
                call(future)
            except KwireError as error:  # `begin` raises
                future.set_exception(error)

        def proceed(now: float) -> None:
            error = future.exception()
            if not self.is_alive:
                return
            if error is None:
                then()
            else:
                self._failed(error)

        # The program is another thread in reality: it continues after the current action.
        future.add_done_callback(lambda _: self._world.at(self._world.now(), proceed))
        self.producer.event_loop.post(act)

    def _failed(self, error: BaseException) -> None:
        self._check_cause(error)
        if isinstance(error, AbortableError):
            self._call(partial(self._end, is_commit=False), self._aborted)
        else:
            self.die()

    def _check_cause(self, error: BaseException) -> None:
        """Record errors that ended a transaction or a producer although waiting or an abort was enough."""
        cause, is_newest = error.__cause__, self is self._job.instances[-1]
        if not isinstance(cause, BrokerError):
            return
        if isinstance(error, TransactionError) and cause.is_retriable:
            self._job.history.gave_up_early.append(f"{self.producer.name}: {cause}")
        is_old_epoch = cause.code == ErrorCode.INVALID_PRODUCER_EPOCH and cause.where.get("api") == "Produce"
        if isinstance(error, FencedError) and is_old_epoch and is_newest:
            self._job.history.gave_up_early.append(f"{self.producer.name} was fenced by nobody: {cause}")

    def _begin(self, work: Transact) -> None:
        def begin(future: Future[None]) -> None:
            self._transaction.begin(self.producer.event_loop.view("produce"))
            future.set_result(None)

        self._call(begin, partial(self._begun, work))

    def _begun(self, work: Transact) -> None:
        self._present = SentTransaction(self.producer.name, self._count)
        self._count += 1
        self._job.history.transactions.append(self._present)
        self._send(work, 0, self._world.now())

    def _send(self, work: Transact, index: int, now: float) -> None:
        if not self.is_alive:
            return
        if index < len(work.sends):
            send = work.sends[index]
            for _ in range(send.count):
                sent = self.producer.send(send.topic, partition=send.partition, key=send.key, size=send.size)
                if sent is not None:
                    self._present.records.append(sent.id)
            self._world.at(now + work.pause, partial(self._send, work, index + 1))
        else:
            self._present.is_commit_requested = work.is_commit
            then = self._committed if work.is_commit else self._aborted
            self._call(partial(self._end, is_commit=work.is_commit), then)

    def _end(self, future: Future[None], *, is_commit: bool) -> None:
        self.producer.sender.end(self._transaction, future, is_commit=is_commit)

    def _committed(self) -> None:
        self._present.is_committed = True
        self._go_on()

    def _aborted(self) -> None:
        self._present.is_aborted = True
        self._go_on()

    def _go_on(self) -> None:
        self.is_idle = True
        self._job.wake()
