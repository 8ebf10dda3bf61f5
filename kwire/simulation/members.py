"""Members of a group in a simulated world: the real consumer, and the user code around it.

A `Member` is a place in the group, such as a pod: it has one process after another, and a static member's processes
have the same instance id. A process polls, works on each record, commits in its way, and notes in the history what it
sees. It can be told to be slow, to raise in callbacks, to pause, to seek, to close, and it can be frozen or killed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

from kwire.cluster import ClientConfig, PendingRequest
from kwire.cluster.waiting import awaited
from kwire.consumer.group_client import GroupClient
from kwire.consumer.record import ConsumerRecord
from kwire.errors import (
    CommitError,
    CommitFailedError,
    ConfigurationError,
    KwireError,
    NodeError,
    RebalanceInProgressError,
    RequestTimeoutError,
)
from kwire.simulation.group_history import GroupHistory, MemberEvent, MemberEventKind, TopicPartition
from kwire.simulation.member_conduct import MemberConduct
from kwire.simulation.network import Network
from kwire.simulation.program import Program, SimulatedThread, SimulatedWaiter, Watch, sleep

# Seconds between the end of a process and the next one, if nothing else was said.
_RESTART_SECONDS = 0.5
# Seconds after which a process must have closed; the consumer gets as much time as it has by default.
_CLOSE_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPlan:
    """A member of a group. `settings` are options of the consumer, `config` those of all clients.

    commits    "auto", "marks", "manual" after each poll, or "async", which does not wait
    work       seconds for a record: shortest and longest
    poll       seconds that a poll may take
    producer   options of its producer, if it copies what it reads in transactions
    rolls      further options of its processes, one after the other and again from the first: a rolling upgrade
    """

    name: str
    settings: Mapping[str, Any]
    config: Mapping[str, Any]
    commits: str = "auto"
    work: tuple[float, float] = (0.0, 0.01)
    poll: float = 0.5
    starts_at: float = 0.0
    producer: Mapping[str, Any] = field(default_factory=dict)
    rolls: Sequence[Mapping[str, Any]] = ()

    def settings_of(self, number: int) -> Mapping[str, Any]:
        """Return the consumer's options in the process with this number."""
        return {**self.settings, **self.rolls[number % len(self.rolls)]} if self.rolls else self.settings


class CallbackFailedError(Exception):
    """What user code raises in a callback, because the plan says so."""


class SimulatedConsumer(GroupClient):
    """The consumer of a program in the simulated world."""

    _name = "kwire.Consumer"

    def __init__(
        self, net: Network, name: str, random: Random, config: Mapping[str, Any], settings: Mapping[str, Any],
        bootstrap: Sequence[str], watch: Watch,
    ) -> None:  # fmt: skip
        self._waiter = SimulatedWaiter(net.world)  # of this world, not of the class
        self._net, self._client_name, self._random, self._watch = net, name, random, watch
        self.thread: SimulatedThread
        self._set_up(list(bootstrap), {**config, **settings, "telemetry": False})
        self.thread.client = self  # a world depends on its seed, not on when the garbage collector runs

    subscribe = awaited(GroupClient._subscribe)
    unsubscribe = awaited(GroupClient._unsubscribe)
    poll = awaited(GroupClient._poll)
    poll_batch = awaited(GroupClient._poll_batch)
    position = awaited(GroupClient._position)
    commit = awaited(GroupClient._commit)
    committed = awaited(GroupClient._committed)
    allow_rebalance = awaited(GroupClient._allow_rebalance)
    close = awaited(GroupClient._close)

    def _open_loop(self, bootstrap: Any, options: Mapping[str, Any]) -> Any:
        config = ClientConfig(bootstrap, **{**options, "client_id": self._client_name})
        self.thread = SimulatedThread(self._net, self._client_name, self._new_random(), config, self._watch)
        return self.thread

    def _new_random(self) -> Random:
        return Random(self._random.getrandbits(64))

    def _free_memory(self) -> None:
        """Do nothing: no other thread reads."""


@dataclass(slots=True)
class Orders:
    """What user code does next, because a disturbance says so."""

    slow_seconds: float = 0.0  # the next record takes so much longer
    raises: int = 0  # this many callbacks raise
    pause_until: float | None = None  # all partitions are paused until then
    seek: bool = False  # go back a little
    close: bool = False
    leave: bool | None = None
    positions: bool = False


class Member:
    """A place in the group, with one process after another."""

    def __init__(
        self, net: Network, plan: MemberPlan, history: GroupHistory, topics: Sequence[str], bootstrap: Sequence[str],
        seed: str, watch: Any, make: type[Process], *, is_undisturbed: bool = False,
    ) -> None:  # fmt: skip
        self.name = plan.name
        self.plan = plan
        self.net = net
        self.history = history
        self.topics = list(topics)
        self.bootstrap = bootstrap
        self.watch = watch  # makes what sees the requests of a process, by its name; not used by `Process`
        self.is_undisturbed = is_undisturbed  # nothing holds up its requests
        self.processes: list[Process] = []
        self.is_over = False
        self._seed = seed
        self._make = make

    @property
    def process(self) -> Process | None:
        """Return the process that runs, or None."""
        return self.processes[-1] if self.processes and self.processes[-1].is_alive else None

    def start(self, now: float = 0.0) -> None:
        if self.process is None and not self.is_over:
            name = f"{self.name}.{len(self.processes)}"
            self.processes.append(self._make(self, name, Random(f"{self._seed} {name}")))

    def restart_after(self, seconds: float) -> None:
        self.net.world.at(self.net.world.now() + seconds, self.start)

    def kill(self, *, is_silent: bool) -> bool:
        if self.process is None:
            return False
        self.process.kill(is_silent=is_silent)
        return True

    def ended(self) -> None:
        """A process ended by itself."""
        if not self.is_over:
            self.restart_after(_RESTART_SECONDS)


class Process:
    """One run of the user's program."""

    def __init__(self, member: Member, name: str, random: Random) -> None:
        self.name = name
        self.orders = Orders()
        self.is_alive = True
        self.member = member
        self.world = member.net.world
        self._handed: dict[TopicPartition, int] = {}  # the next offset, of each partition that is owned
        settings = member.plan.settings_of(len(member.processes))
        self.conduct = MemberConduct(
            name, self.world.now, lambda: self.consumer.thread.snapshot, self._handed,
            interval=settings.get("heartbeat_interval_ms", 3_000) / 1000,
            checks_interval=member.is_undisturbed,
        )  # fmt: skip
        self.consumer = self._new_consumer(
            member.net, name, Random(random.getrandbits(64)), member.plan.config, settings, member.bootstrap,
            self._watch,
        )  # fmt: skip
        self._random = random
        self._plan = member.plan
        self._is_behind = False  # a commit failed, and no later one has succeeded
        self._commits_under_way = 0
        self.program = Program(self.world, self._run(), self._ended)

    def _watch(self, call: PendingRequest, now: float) -> PendingRequest:
        return self.conduct.watch(call)

    def _new_consumer(self, *arguments: Any) -> Any:
        return SimulatedConsumer(*arguments)

    @property
    def threads(self) -> Sequence[SimulatedThread]:
        """Those of its clients."""
        return [self.consumer.thread]

    # -- what is done to it

    def kill(self, *, is_silent: bool) -> None:
        self._end()
        self.program.kill()
        for thread in self.threads:
            thread.kill(is_silent=is_silent)

    def freeze(self, seconds: float) -> None:
        self._freeze(True)
        self.world.at(self.world.now() + seconds, lambda now: self._freeze(False))

    def _freeze(self, is_frozen: bool) -> None:
        self.program.freeze(is_frozen)
        for thread in self.threads:
            thread.loop.freeze(is_frozen)

    def discard(self) -> None:
        """Free what it has, after the end of the world."""
        for thread in self.threads:
            thread.close()
        self.program.discard()

    # -- the program

    async def _run(self) -> None:
        consumer, orders = self.consumer, self.orders
        await consumer.subscribe(self.member.topics, listener=self)
        while not orders.close:
            try:
                records = await consumer.poll(timeout=self._plan.poll)
                await self._process(records)
                await self._commit(records)
                await self._obey()
            except CallbackFailedError:
                continue
            except (CommitError, CommitFailedError, RebalanceInProgressError, RequestTimeoutError):
                continue  # the records are processed again, here or elsewhere
            except NodeError:
                await sleep(self.world, 0.05)
        with suppress(KwireError):
            await consumer.commit(timeout=2.0)  # close() would not count the last records as processed
        began = self.world.now()
        await consumer.close(timeout=_CLOSE_SECONDS, leave=orders.leave)
        if self.world.now() > began + _CLOSE_SECONDS + 1.0:
            self.member.history.unexpected.append(f"{self.name}: close() took {self.world.now() - began:.1f} s")

    async def _process(self, records: Sequence[ConsumerRecord]) -> None:
        for record in records:
            self._note("handed", (record.topic, record.partition), record.offset, record.value)
        for record in records:
            await self._spend_time()
            self._note("processed", (record.topic, record.partition), record.offset)
            if self._plan.commits == "marks":
                self.consumer.mark(record)

    async def _spend_time(self) -> None:
        """Work on a record."""
        seconds = self._random.uniform(*self._plan.work)
        seconds, self.orders.slow_seconds = seconds + self.orders.slow_seconds, 0.0
        if seconds:
            await sleep(self.world, seconds)

    async def _commit(self, records: Sequence[ConsumerRecord]) -> None:
        if not (records or self._is_behind) or self._plan.commits not in ("manual", "async"):
            return
        if self._plan.commits == "manual":
            what = records if records and not self._is_behind and self._random.random() < 0.5 else None
            self._is_behind = True
            await self.consumer.commit(what)
            self._is_behind = False
        else:
            self._is_behind = False
            self._commits_under_way += 1
            self.consumer.commit_async(on_done=self._commit_ended)

    def _commit_ended(self, offsets: object, error: KwireError | None) -> None:
        self._commits_under_way -= 1
        self._is_behind |= error is not None

    async def _obey(self) -> None:
        """Do what disturbances have ordered."""
        consumer, orders, now = self.consumer, self.orders, self.world.now()
        if orders.pause_until is not None:
            if now < orders.pause_until:
                consumer.pause()
            else:
                orders.pause_until = None
                consumer.resume()
        # A commit that was sent before a seek may be stored after it: the checker could not tell it from a wrong one.
        if orders.seek and not self._commits_under_way:
            orders.seek = False
            for topic, partition in consumer.assignment():
                try:
                    position = await consumer.position(topic, partition, timeout=1.0)
                    back = max(0, position - self._random.randint(0, 5))
                    consumer.seek(topic, partition, back)
                except ConfigurationError:  # lost meanwhile
                    continue
                self._note("sought", (topic, partition), back)

    # -- callbacks

    def on_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        self._rebalanced("assigned", partitions)

    def on_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        self._rebalanced("revoked", partitions)

    def on_lost(self, partitions: Iterable[TopicPartition]) -> None:
        self._rebalanced("lost", partitions)

    def _rebalanced(self, kind: MemberEventKind, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._note(kind, partition)
        if self.orders.raises:
            self.orders.raises -= 1
            raise CallbackFailedError

    # -- the end

    def _note(self, kind: MemberEventKind, partition: TopicPartition, offset: int = -1, value: Any = None) -> None:
        now = self.world.now()
        if kind == "handed":
            self._handed[partition] = offset + 1
        elif kind in ("assigned", "revoked", "lost", "sought", "moved"):
            self._handed.pop(partition, None)
        self.member.net.trace.note(now, f"{self.name} {kind} {partition[0]}-{partition[1]} {offset}")
        self.member.history.add(MemberEvent(now, kind, self.name, partition, offset, value))

    def _end(self) -> None:
        if self.is_alive:
            self.is_alive = False
            self._note("ended", ("", -1))

    def _ended(self, error: BaseException | None) -> None:
        self._end()
        if error is not None:
            if not isinstance(error, KwireError):
                raise error
            self.member.history.unexpected.append(f"{self.name}: {type(error).__name__}: {error}")
        for thread in self.threads:
            thread.close()
        self.member.ended()
