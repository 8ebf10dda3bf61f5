"""Processes of queues in a simulated world: the real service, consumers and trackers, and the user code around them.

A process has one `Service`, as a user's process has. A producer sends messages; a consumer has a number of workers that
receive, work, and settle; a tracker redelivers. What the user code sees is noted in the history.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, cast

from kwire.aio.queue import Consumer, Message, Producer
from kwire.cluster import ClientConfig, Cluster, LoopThread, PendingRequest
from kwire.cluster.waiting import awaited
from kwire.consumer import ConsumerRecord
from kwire.consumer.group_client import GroupClient
from kwire.errors import ClosedError, KwireError, LeaseLostError, SettledError
from kwire.producer import Producer as RecordProducer
from kwire.queue.backend import Backend, may_pass
from kwire.queue.metrics import ConsumerCounters
from kwire.queue.service import ServiceClient
from kwire.queue.tracker import TrackerClient
from kwire.queue.tracker_backend import TrackerBackend
from kwire.simulation.members import MemberPlan, Orders
from kwire.simulation.network import Network
from kwire.simulation.program import Program, SimulatedThread, SimulatedWaiter, Watch, sleep
from kwire.simulation.queue_history import Behaviour, QueueHistory
from kwire.simulation.world import SpinningError

if TYPE_CHECKING:
    from kwire.simulation.members import Member

QUEUE = "jobs"

# Seconds after which a process must have closed; the service gets as much time as it has by default.
_CLOSE_SECONDS = 30.0
# So many neighbours share a partition of the markers topic: few, since a queue has few messages here.
_RUN = 3
# How often a producer asks the brokers for a message that it could not send.
_PAUSE_SECONDS = 0.1
# More polls in a row at one virtual time than records could explain.
_POLLS_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueMemberPlan(MemberPlan):
    """A process: "producer", "consumer" or "tracker". `settings` are options of its service.

    record_consumer  options of its consumers of records
    work             seconds for a message: shortest and longest
    sends            of a producer: how many messages, and how they are to be handled
    """

    role: str
    record_consumer: Mapping[str, Any]
    workers: int = 1
    sends: Sequence[tuple[float, Behaviour, int | None]] = ()  # seconds before it, what becomes of it, its size


# -- the clients of a process


class QueueThread(SimulatedThread):
    """The loop of one client of a process."""

    def start(self) -> None:
        self.check_usable()
        if not self.is_running:
            self.is_running = True
            self.loop.wake()

    def request_future(self, *args: Any, **options: Any) -> Any:
        return LoopThread.request_future(cast("LoopThread", self), *args, **options)

    def enqueue(self, pending: PendingRequest) -> None:
        self.call_soon(self.event_loop.client.enqueue, pending)


class Connections(Cluster):
    """What a process has for a `kwire.Cluster`: each client gets a loop in the simulated world."""

    def __init__(
        self, net: Network, name: str, random: Random, bootstrap: Sequence[str], config: Mapping[str, Any], watch: Watch
    ) -> None:
        self.net = net
        self.random = random
        self.threads: list[QueueThread] = []
        self._name = name
        self._config = ClientConfig(list(bootstrap), client_id=name, **config)
        self._watch = watch

    @property
    def bootstrap(self) -> str:
        return ",".join(self._config.bootstrap)

    def _open_thread(self, options: Mapping[str, Any], role: str) -> LoopThread:
        config = replace(self._config, **options)
        thread = QueueThread(self.net, self._name, self.new_random(), config, self._watch)
        self.threads.append(thread)
        return cast(LoopThread, thread)

    def new_random(self) -> Random:
        return Random(self.random.getrandbits(64))


class SimulatedRecordProducer(RecordProducer):
    """The producer of records, whose methods with an underscore wait in the world."""

    def __init__(self, connections: Connections, **options: Any) -> None:
        self._waiter = SimulatedWaiter(connections.net.world)  # of this world
        super().__init__(connections, telemetry=False, **options)
        self._core.sender._random.seed(connections.random.getrandbits(64))

    def close(self, timeout: float | None = None) -> None:
        """End at once: the caller has waited for its results."""
        self.end()

    def end(self) -> None:
        self._core.stop_accepting()
        self._core.runtime.close()


class SimulatedRecordConsumer(GroupClient):
    """The consumer of records of a process."""

    _name = "kwire.Consumer"
    _polls = 0
    _polled_at = -1.0

    def __init__(self, connections: Connections, **options: Any) -> None:
        self._waiter = SimulatedWaiter(connections.net.world)
        self._connections = connections
        self._set_up(connections, {**options, "telemetry": False})

    def _new_random(self) -> Random:
        return self._connections.new_random()

    async def _poll(self, max_records: int | None = None, timeout: float | None = 1.0) -> list[ConsumerRecord]:
        """Return what the consumer returns. Raises SpinningError for a program that polls without end at one time."""
        now = self._connections.net.world.now()
        self._polls = self._polls + 1 if now == self._polled_at else 1
        self._polled_at = now
        if self._polls > _POLLS_MAX:
            raise SpinningError(f"{_POLLS_MAX:,} polls at {now:.3f} s")
        return await super()._poll(max_records, timeout)

    def _free_memory(self) -> None:
        """Do nothing: no other thread reads."""

    def _check_callbacks(self, listener: object) -> None:
        """Do nothing: the programs of this world may have coroutine functions."""


class SimulatedTracker(TrackerClient):
    """The tracker of a process."""

    run = awaited(TrackerClient._run)

    def _callback(self, function: Any) -> Any:
        return function


class SimulatedService(ServiceClient[Producer, Consumer]):
    """The service of a process."""

    _name = "kwire.queue.Service"
    _producer = Producer
    _consumer = Consumer

    def __init__(
        self, connections: Connections, record_consumer: Mapping[str, Any], options: Mapping[str, Any]
    ) -> None:
        self.waiter = SimulatedWaiter(connections.net.world)  # type: ignore[misc]  # of this world
        self._connections = connections
        self._record_consumer = record_consumer
        self.record_producers: list[SimulatedRecordProducer] = []
        self._set_up(connections, dict(options))
        self.markers = self.new_producer(linger_ms=1, when_full="raise")

    def new_producer(self, **options: Any) -> SimulatedRecordProducer:
        producer = SimulatedRecordProducer(self._connections, **options)
        self.record_producers.append(producer)
        return producer

    def new_consumer(self, **options: Any) -> GroupClient:
        return SimulatedRecordConsumer(self._connections, **{**self._record_consumer, **options})

    async def new_backend(self, queue: str, counters: ConsumerCounters) -> Backend:
        backend = await super().new_backend(queue, counters)
        if isinstance(backend, TrackerBackend):
            backend.new_id, backend.run = self._new_id, _RUN
        return backend

    def _new_id(self) -> str:
        return f"{self._connections.random.getrandbits(64):x}"

    close = awaited(ServiceClient[Producer, Consumer]._close)


# -- the processes


class QueueProcess(ABC):
    """One run of a user's program."""

    def __init__(self, member: Member, name: str, random: Random) -> None:
        assert isinstance(member.plan, QueueMemberPlan)
        self.name = name
        self.orders = Orders()
        self.is_alive = True
        self.is_closing = False
        self.member = member
        self.plan = member.plan
        self.world = member.net.world
        self.history = cast(QueueHistory, member.history)
        self._random = random
        self.connections = Connections(
            member.net, name, Random(random.getrandbits(64)), member.bootstrap, self.plan.config, member.watch(name)
        )
        self.service = SimulatedService(self.connections, self.plan.record_consumer, self.plan.settings)
        self.programs = [Program(self.world, main, self._ended) for main in self._mains()]

    @abstractmethod
    def _mains(self) -> list[Coroutine[Any, Any, None]]:
        """Return what the process runs, side by side."""

    # -- what is done to it

    def kill(self, *, is_silent: bool) -> None:
        self._end("killed")
        for program in self.programs:
            program.kill()
        for thread in self.connections.threads:
            thread.kill(is_silent=is_silent)

    def freeze(self, seconds: float) -> None:
        self.history.add(self.world.now(), "frozen", self.name)
        self._freeze(True)
        self.world.at(self.world.now() + seconds, lambda now: self._freeze(False))

    def _freeze(self, is_frozen: bool) -> None:
        for program in self.programs:
            program.freeze(is_frozen)
        for thread in self.connections.threads:
            thread.loop.freeze(is_frozen)

    def discard(self) -> None:
        """Free everything, after the end of the world."""
        for program in self.programs:
            program.discard()
        for producer in self.service.record_producers:
            producer.end()
        for thread in self.connections.threads:
            thread.discard()

    # -- the end

    def _note(self, kind: str, id: str = "", place: tuple[int, int] = (-1, -1), deliveries: int = 0) -> None:
        now = self.world.now()
        self.member.net.trace.note(now, f"{self.name} {kind} {id} {place[0]}:{place[1]} {deliveries}")
        self.history.add(now, kind, self.name, id, place, deliveries)

    def _end(self, kind: str) -> None:
        if self.is_alive:
            self.is_alive = False
            self._note(kind)

    def _ended(self, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, KwireError):
            raise error
        if error is not None:
            self._note(f"failed: {type(error).__name__}: {error}")
            if not self._is_excused(error):
                self._unexpected(error)
        if error is not None or all(program.is_over for program in self.programs):
            self._end("ended")
            for program in self.programs:
                program.kill()
            for thread in self.connections.threads:
                thread.close()
            self.member.ended()

    def _unexpected(self, error: KwireError) -> None:
        self.history.unexpected.append(f"{self.name} at {self.world.now():.3f} s: {type(error).__name__}: {error}")

    def _is_excused(self, error: KwireError) -> bool:
        """Return whether a program may end with this error, which it can retry or a fault has caused."""
        if may_pass(error):
            return True
        cause: BaseException | None = error
        while cause is not None:
            if getattr(cause, "code", None) in self.history.refusals:
                return True
            cause = cause.__cause__
        return False

    async def _close(self) -> None:
        began = self.world.now()
        self._note("closing")
        await self.service.close(timeout=_CLOSE_SECONDS)
        if self.world.now() > began + 2 * _CLOSE_SECONDS + 1.0:
            self.history.unexpected.append(f"{self.name}: close() took {self.world.now() - began:.1f} s")


class ProducerProcess(QueueProcess):
    """Sends its messages, each once; a later process of the member goes on."""

    def _mains(self) -> list[Coroutine[Any, Any, None]]:
        return [self._send()]

    async def _send(self) -> None:
        producer = Producer(self.service, QUEUE)
        number = self.history.next_number(self.member.name)
        for pause, behaviour, size in self.plan.sends[number:]:
            await sleep(self.world, pause)
            id = f"{self.member.name}-{self.history.next_number(self.member.name)}"
            payload = self.history.sending(self.world.now(), self.name, id, behaviour, size)
            options = dict(behaviour.options)
            while not self.orders.close:
                try:
                    response = await producer._send(payload, {"n": id.encode()}, message_id=id, **options)
                    break
                except KwireError as error:  # nothing was sent
                    self._note(f"not sent: {error}", id)
                    await sleep(self.world, _PAUSE_SECONDS)
            else:
                return
            response.add_done_callback(partial(self._sent, id))
        await producer._flush(60.0)
        while not self.orders.close:
            await sleep(self.world, 0.5)
        await self._close()

    def _sent(self, id: str, response: Any) -> None:
        if not self.is_alive:
            return
        sent = self.history.sent[id]
        sent.is_resolved = True
        if response.exception() is None:
            self._note("stored", id, (response.result().partition, response.result().offset))
            sent.is_stored = True
        else:
            self._note("not stored", id)


class ConsumerProcess(QueueProcess):
    """Receives, works on each message for a while, and settles it as its sender wants."""

    def _mains(self) -> list[Coroutine[Any, Any, None]]:
        self._consumer = Consumer(self.service, QUEUE)
        self._consumer._waiter = SimulatedWaiter(self.world)  # type: ignore[misc, assignment]
        self.service._added(self._consumer)
        self._working = self.plan.workers
        return [self._work() for _ in range(self.plan.workers)]

    async def _work(self) -> None:
        while not self.orders.close and not self.is_closing:
            try:
                message = await self._consumer.receive(self.plan.poll)
            except ClosedError:
                return
            except KwireError as error:
                self._note(f"not received: {type(error).__name__}: {error}")
                if not self._is_excused(error):  # `handle` would end
                    self._unexpected(error)
                await sleep(self.world, _PAUSE_SECONDS)
                continue
            if message is not None:
                await self._handle(message)
        if not self.is_closing:  # the first worker that ends closes, whatever the others have
            self.is_closing = True
            await self._close()

    async def _handle(self, message: Message) -> None:
        id, deliveries = message.id, message.deliveries
        self._note("handed", id, message.place, deliveries)
        self.history.check(self.name, message.id, message.payload, message.headers, self.world.now())
        behaviour = self.history.behaviour(id)
        seconds = self._random.uniform(*self.plan.work) + self.orders.slow_seconds
        self.orders.slow_seconds = 0.0
        if behaviour.kind == "slow" or (behaviour.kind == "hang" and deliveries == 1):
            seconds += behaviour.seconds
        if seconds:
            await sleep(self.world, seconds)
        is_first = deliveries == 1 and not self.history.is_calm
        kind, settle = "acked", message.ack
        try:
            if behaviour.kind == "poison":
                kind = "released"
                await message.release(None)
            elif behaviour.kind == "nack":
                kind = "nacked"
                await message.nack("refused")
            elif behaviour.kind == "release" and is_first:
                kind = "released"
                await message.release(self._random.choice((0, 500)))
            else:
                if behaviour.kind == "extend" and is_first:
                    await message.extend()
                    await sleep(self.world, seconds)
                await settle()
        except (LeaseLostError, SettledError, ClosedError) as error:
            kind = f"lost: {type(error).__name__}"
        except KwireError as error:
            kind = f"unsure: {type(error).__name__}: {error}"
        self._note(kind, id, message.place, deliveries)


class TrackerProcess(QueueProcess):
    """Runs a tracker."""

    def _mains(self) -> list[Coroutine[Any, Any, None]]:
        self.tracker = SimulatedTracker(self.service)
        return [self._run(), self._wait()]

    async def _run(self) -> None:
        await self.tracker.run()
        await self._close()

    async def _wait(self) -> None:
        while not self.orders.close and not self.tracker._is_stopping:
            await sleep(self.world, 0.1)
        self.tracker.stop()


PROCESSES: Mapping[str, type[QueueProcess]] = {
    "producer": ProducerProcess,
    "consumer": ConsumerProcess,
    "tracker": TrackerProcess,
}


async def read_all(connections: Connections, ends: Mapping[tuple[str, int], int]) -> list[Any]:
    """Return all committed records of these partitions."""
    reader = SimulatedRecordConsumer(connections, isolation="read_committed", max_wait_ms=50)
    reader.assign([(topic, partition, "earliest") for topic, partition in ends])
    records: list[Any] = []
    while True:
        got = await reader._poll(10_000, 1.0)
        records += got
        positions = {key: await reader._position(*key, 5.0) for key in ends}
        if all(positions[key] >= end for key, end in ends.items()):
            await reader._close(5.0)
            return records


__all__ = [
    "PROCESSES",
    "QUEUE",
    "Connections",
    "ConsumerProcess",
    "QueueMemberPlan",
    "QueueProcess",
    "TrackerProcess",
    "read_all",
]
