"""A client process in a simulated world: the event loop and the producer's sender, as `kwire.Producer` joins them.

A client process in a simulated world: the event loop and the producer's sender, as `kwire.Producer` joins them.

Owns what the face of the producer owns on real threads, which cannot be here: making records, and asking for flushes.
Everything below it is the code that users run.

A reader with read_committed in a simulated world: the consumer's fetcher and inbox, as `kwire.Consumer` joins them.

Owns what the face of the consumer owns on real threads, which cannot be here: taking records out as soon as there are
any, without those of aborted transactions.

Programs that write in transactions: one transactional id, and the instances that have it, one after another.

Owns what such a program does: begin, send, commit or abort; abort when it is told to; begin anew as another instance
when it is told that this one cannot go on. Now and then two are alive at once, because one was thought dead. It judges
nothing: what it was told goes into the history.
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
from kwire.producer.buffer_pool import BufferPool, PendingRecord, make_door
from kwire.producer.futures import ProduceResponse
from kwire.producer.options import ProducerSettings
from kwire.producer.producer_request import DeliveryOptions
from kwire.producer.sender import Sender
from kwire.producer.topic import TopicQueue
from kwire.producer.transaction import Transaction
from kwire.records import decode_batches, record_bytes_max
from kwire.simulation.conduct import Conduct, WatchedSender
from kwire.simulation.history import History, ReadCopy, RecordId, Sent, Transacted
from kwire.simulation.network import Net, SimulatedSelector
from kwire.simulation.schedule import Transact
from kwire.simulation.world import Loop, World

_PARTITIONS_MAX = 16  # of a topic in any plan


class SimulatedProducer:
    """`sender` is the class to use: a test may have one that is broken. `machine` is what the network knows it as, by
    default its name. `first_sequence` is where every partition's sequences begin, as of a producer that sent so much.
    `keeps_identity`: every broker gives producer ids.
    """

    def __init__(
        self,
        net: Net,
        name: str,
        history: History,
        random: Random,
        config: ClientConfig,
        settings: ProducerSettings,
        sender: type[Sender] = Sender,
        machine: str | None = None,
        first_sequence: int = 0,
        keeps_identity: bool = True,
    ) -> None:
        self.name = name
        self.settings = settings
        self.config = config
        self._world = net.world
        self._trace = net.trace
        self._history = history
        self._numbers: dict[str, int] = {}
        self.loop = Loop(net.world, name, self._turn)
        selector = SimulatedSelector.of(net, machine or name, random, config, ring=self.loop.ring)
        self.event_loop = EventLoop(config, selector, net.world, random)  # type: ignore[arg-type]
        wakeup = self.event_loop.wakeup
        self.intake = BufferPool(make_door(settings, _run_here, wakeup), "raise", 0.0, wakeup)
        self.sender = (_starting_at(sender, first_sequence) if first_sequence else sender)(
            settings,
            self.intake,
            backoff=Backoff(config.retry_backoff_ms, config.retry_backoff_ms_max),
            request_timeout_ms=config.request_timeout_ms,
            random=random,
        )
        self.conduct = Conduct(name, settings, net.world.now, first_sequence, keeps_identity=keeps_identity)
        self.event_loop.add(WatchedSender(self.sender, self.conduct), "produce")
        self.loop.ring()
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
        """Hand over the next record for a topic; None when there is no room, or the producer is closed."""
        number = self._numbers.get(topic, 0)
        id = RecordId(self.name, topic, number)
        value = id.value(size)
        record = (self._world.time_ms(), key, value, ())
        terms = None
        if timeout is not None:
            terms = DeliveryOptions(self.settings.required_acks, timeout, self._world.now() + timeout)
        try:
            response = self.intake.put(PendingRecord(topic, partition, record, record_bytes_max(key, value, ()), terms))
        except (BufferFullError, ClosedError):
            self._history.refused += 1
            return None
        self._numbers[topic] = number + 1
        sent = Sent(id, self._world.now(), partition, key, timeout)
        self._history.hand_over(sent)
        response.add_done_callback(partial(self._resolved, id))
        return sent

    def flush(self) -> None:
        self._history.flushes_asked += 1

        def act() -> None:
            self.sender.flush(done, self._world.now())

        def done() -> None:
            self._history.flushes_done += 1

        if self.is_closed:
            done()
        else:
            self.event_loop.post(act)

    def close(self) -> None:
        """At once, whatever is under way."""
        if not self.is_closed:
            self.is_closed = True
            self.loop.stop()
            self.event_loop.close(ClosedError("the client was closed"))

    def _resolved(self, id: RecordId, response: ProduceResponse) -> None:
        now = self._world.now()
        self._trace.note(now, f"{id.producer}/{id.topic}/{id.number} resolved: {response!r}")
        self._history.resolved(id, response, now)


def _starting_at(sender: type[Sender], first_sequence: int) -> type[Sender]:
    """The sender of a producer that has sent so many records to every partition already."""

    class OldSender(sender):  # type: ignore[valid-type, misc]
        _has_identity = False

        def _new_topic(self, name: str) -> TopicQueue:
            topic: TopicQueue = super()._new_topic(name)
            _age(topic)
            return topic

        def _restart(self) -> None:
            super()._restart()
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
    """A partition: where it stands, and what came before."""

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.position = 0
        self.records: list[tuple[int, bytes | None]] = []

    def take(self, chunk: CompletedFetch) -> None:
        assert chunk.offset == self.position, "a fetch that does not follow on from what was read"
        filter = BatchFilter(chunk.aborted)
        for batch in decode_batches(chunk.data):
            # A batch is sent whole though the fetch asked for an offset in its middle.
            if not filter.hides(batch):
                self.records += [(one.offset, one.value) for one in batch.records() if one.offset >= self.position]
            self.position = max(self.position, batch.next_offset)


class SimulatedReader:
    """Reads these partitions from their beginning. `errors` are those that ended a partition."""

    def __init__(
        self,
        net: Net,
        name: str,
        random: Random,
        config: ClientConfig,
        options: ConsumerOptions,
        places: Collection[tuple[str, int]],
    ) -> None:
        self.name = name
        self.errors: list[KwireError] = []
        self.loop = Loop(net.world, name, self._turn)
        selector = SimulatedSelector.of(net, name, random, config, ring=self.loop.ring)
        self._event_loop = EventLoop(config, selector, net.world, random)  # type: ignore[arg-type]
        self._inbox = FetchBuffer(max_bytes=options.max_buffered_bytes, wake_loop=self._event_loop.wakeup)
        backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_ms_max)
        lookup = OffsetFetcher(
            is_committed_only=options.is_committed_only,
            unknown_topic_timeout_ms=options.unknown_topic_timeout_ms,
            backoff=backoff,
            random=random,
        )
        fetcher = Fetcher(
            options,
            self._inbox,
            lookup,
            backoff=backoff,
            random=random,
            request_timeout_ms=config.request_timeout_ms,
            max_frame_bytes=config.max_frame_bytes,
            replica_max_age_ms=config.metadata_max_age_ms,
        )
        self._readings = {number: _Reading(*place) for number, place in enumerate(places, start=1)}
        fetcher.assign([Start(one.topic, one.partition, number, 0) for number, one in self._readings.items()])
        self._event_loop.add(fetcher, "fetch")
        self.loop.ring()

    def positions(self) -> dict[tuple[str, int], int]:
        """Behind the last record that was taken, or hidden."""
        return {(one.topic, one.partition): one.position for one in self._readings.values()}

    def copies(self) -> list[ReadCopy]:
        return [ReadCopy(self.name, one.topic, one.partition, tuple(one.records)) for one in self._readings.values()]

    def close(self) -> None:
        self.loop.stop()
        self._event_loop.close(ClosedError("the reader was closed"))

    def _turn(self) -> None:
        self._event_loop.turn()
        for item in self._inbox.take():
            if isinstance(item, CompletedFetch):
                self._readings[item.assignment_epoch].take(item)
                self._inbox.release(item)
            elif isinstance(item, PartitionFailed):
                self.errors.append(item.error)


# Before an instance that died is followed by another.
_PAUSE = 0.1


class Job:
    """`make(name)` makes a producer with the job's transactional id."""

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
        self.rouse()

    def rival(self) -> None:
        """Somebody believes that the instance is dead."""
        self._begin()

    def kill(self) -> None:
        """The newest instance that is alive dies in the middle of what it does."""
        for one in reversed(self.instances):
            if one.is_alive:
                one.die()
                return

    def close(self) -> None:
        self._is_closed = True
        for one in self.instances:
            one.die()

    def died(self) -> None:
        """An instance has; if it was the last one, another takes its place."""
        if not self._is_closed and not any(one.is_alive for one in self.instances):
            self.world.at(self.world.now() + _PAUSE, self._replace)

    def _replace(self, now: float) -> None:
        if not self._is_closed and not any(one.is_alive for one in self.instances):
            self._begin()

    def _begin(self) -> None:
        self.instances.append(Instance(self, self._make(f"{self.name}.{len(self.instances)}")))
        self.rouse()

    def rouse(self) -> None:
        for one in reversed(self.instances):
            one.rouse()


class Instance:
    """A process of the job. It does one transaction after another, each as soon as the one before has ended."""

    def __init__(self, job: Job, producer: SimulatedProducer) -> None:
        assert producer.sender.transaction is not None
        self.producer = producer
        self.is_idle = True
        self._job = job
        self._world = job.world
        self._transaction: Transaction = producer.sender.transaction
        self._count = 0
        self._present: Transacted

    @property
    def is_alive(self) -> bool:
        return not self.producer.is_closed

    def rouse(self) -> None:
        if self.is_idle and self.is_alive and self._job.queue:
            self.is_idle = False
            work = self._job.queue.popleft()
            self._ask(self._transaction.init, partial(self._begin, work))

    def die(self) -> None:
        if self.is_alive:
            self.producer.close()
            self.is_idle = True
            self._job.died()

    def _ask(self, ask: Callable[[Future[None]], None], then: Callable[[], None]) -> None:
        """`then` is what comes next when all is well."""
        future: Future[None] = Future()

        def act() -> None:
            try:
                ask(future)
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

        # The program is another thread: it goes on after what is under way.
        future.add_done_callback(lambda _: self._world.at(self._world.now(), proceed))
        self.producer.event_loop.post(act)

    def _failed(self, error: BaseException) -> None:
        self._look_at_cause(error)
        if isinstance(error, AbortableError):
            self._ask(partial(self._end, is_commit=False), self._aborted)
        else:
            self.die()

    def _look_at_cause(self, error: BaseException) -> None:
        """Note what should not have ended a transaction, or a producer: waiting, or an abort, would have cured it."""
        cause, is_newest = error.__cause__, self is self._job.instances[-1]
        if not isinstance(cause, BrokerError):
            return
        if isinstance(error, TransactionError) and cause.is_retriable:
            self._job.history.gave_way.append(f"{self.producer.name}: {cause}")
        is_old_epoch = cause.code == ErrorCode.INVALID_PRODUCER_EPOCH and cause.where.get("api") == "Produce"
        if isinstance(error, FencedError) and is_old_epoch and is_newest:
            self._job.history.gave_way.append(f"{self.producer.name} was fenced by nobody: {cause}")

    def _begin(self, work: Transact) -> None:
        def begin(future: Future[None]) -> None:
            self._transaction.begin(self.producer.event_loop.view("produce"))
            future.set_result(None)

        self._ask(begin, partial(self._begun, work))

    def _begun(self, work: Transact) -> None:
        self._present = Transacted(self.producer.name, self._count)
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
            self._present.is_commit_asked = work.is_commit
            then = self._committed if work.is_commit else self._aborted
            self._ask(partial(self._end, is_commit=work.is_commit), then)

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
        self._job.rouse()
