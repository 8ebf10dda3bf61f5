"""Programs that write in transactions: one transactional id, and the instances that have it, one after another.

Owns what such a program does: begin, send, commit or abort; abort when it is told to; begin anew as another instance
when it is told that this one cannot go on. Now and then two are alive at once, because one was thought dead. It judges
nothing: what it was told goes into the history.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from kwire.broker.simulation.history import History, Transacted
from kwire.broker.simulation.producer import SimulatedProducer
from kwire.broker.simulation.schedule import Transact
from kwire.broker.simulation.world import World
from kwire.errors import AbortableError, BrokerError, ErrorCode, FencedError, KwireError, TransactionError
from kwire.producer.transaction import Transaction

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
