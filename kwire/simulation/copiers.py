"""Members of a group that copy records from topic to topic in transactions: the real consumer and the real producer.

Each process polls, sends a copy of each record, makes the offsets a part of the transaction, and commits. Sometimes a
transaction holds several polls, so that a rebalance may come in between, and sometimes the program changes its mind. An
error aborts the transaction; one that no abort mends ends the process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from random import Random
from typing import TYPE_CHECKING, Any

from kwire.cluster import ClientConfig, LoopThread
from kwire.cluster.waiting import awaited
from kwire.consumer.columns import PolledBatch
from kwire.errors import (
    CommitFailedError,
    FatalError,
    FencedError,
    KwireError,
    NodeError,
    RequestTimeoutError,
    TransactionError,
)
from kwire.producer.accumulator import Append
from kwire.producer.client import ProducerClient
from kwire.producer.futures import MakeResponse, ProduceResponse
from kwire.producer.methods import ProducerMethods, T
from kwire.producer.producer_request import DeliveryOptions
from kwire.protocol import Response
from kwire.protocol.messages.init_producer_id import InitProducerIdRequest
from kwire.simulation.conduct import Conduct
from kwire.simulation.group_history import MemberEventKind, TopicPartition
from kwire.simulation.members import CallbackFailedError, Process
from kwire.simulation.network import Network
from kwire.simulation.program import SimulatedThread, SimulatedWaiter, sleep

if TYPE_CHECKING:
    from kwire.cluster import PendingRequest
    from kwire.simulation.members import Member

OUTPUT = "out"
OUTPUT_PARTITIONS = 2
# How long a step of a transaction may take, in seconds.
_STEP_SECONDS = 30.0
_CLOSE_SECONDS = 30.0


class MindChangedError(Exception):
    """What user code raises in a transaction to have it aborted."""


class _Client(ProducerClient):
    """The producer's parts, with a loop that runs in the world."""

    def __init__(self, net: Network, name: str, random: Random, options: Mapping[str, Any], bootstrap: Any) -> None:
        self._net, self._client_name, self._random = net, name, random
        self.thread: SimulatedThread
        self._conduct: Conduct | None = None
        # A broker may apply an InitProducerId later that had no response: then it fences this producer, as Java's.
        self.has_unanswered_init = False
        super().__init__("kwire.Producer", bootstrap, {**options, "client_id": name, "telemetry": False}, _declined)
        self.conduct = self._conduct = Conduct(name, self.settings, net.world.now)

    def _open_loop(self, bootstrap: Any, options: Mapping[str, Any]) -> LoopThread:
        config = ClientConfig(bootstrap, **options)
        name = f"{self._client_name} producer"
        self.thread = SimulatedThread(self._net, name, self._new_random(), config, self._watch)
        return self.thread  # type: ignore[return-value]  # what it needs of one

    def _new_random(self) -> Random:
        return Random(self._random.getrandbits(64))

    def _watch(self, call: PendingRequest, now: float) -> PendingRequest:
        if call.api is InitProducerIdRequest:
            call.on_done = partial(self._note_init, call.on_done)
        return call if self._conduct is None else self._conduct.watch(call, self.thread.view_for("produce"))

    def _note_init(
        self,
        on_done: Callable[[Response | KwireError | None, float], None],
        result: Response | KwireError | None,
        now: float,
    ) -> None:
        self.has_unanswered_init |= isinstance(result, KwireError)
        on_done(result, now)


class TransactionalProducer(ProducerMethods):
    """The producer of a program in the simulated world."""

    def __init__(self, net: Network, name: str, random: Random, options: Mapping[str, Any], bootstrap: Any) -> None:
        self._waiter = SimulatedWaiter(net.world)  # of this world, not of the class
        self._core: _Client = _Client(net, name, random, options, bootstrap)

    @property
    def thread(self) -> SimulatedThread:
        return self._core.thread

    @property
    def conduct(self) -> Conduct:
        return self._core.conduct

    @property
    def has_unanswered_init(self) -> bool:
        return self._core.has_unanswered_init

    def send(self, topic: str, value: bytes, partition: int) -> ProduceResponse:
        """Append a record; raise BufferFullError, never wait for memory."""
        return self._core.append_or_wait(self._core.pending_record(topic, value, None, None, partition, None))

    begin = awaited(ProducerMethods._begin)
    send_offsets = awaited(ProducerMethods._send_offsets)
    commit = awaited(ProducerMethods._commit)
    abort = awaited(ProducerMethods._abort)
    abort_after = awaited(ProducerMethods._abort_after)
    close = awaited(ProducerMethods._close)

    def discard(self) -> None:
        """Let nothing deliver what it has when the interpreter ends."""
        self._core.stop_accepting()

    async def _append(self, append: Append[T], terms: DeliveryOptions | None = None) -> T:
        return self._core.append_or_wait(append)

    def _response_maker(self) -> MakeResponse:
        return ProduceResponse

    def _bulk_dispatch(self) -> None:
        return None


def _declined(*_: object) -> None:
    """Return None, as the slow path of a `send` that nobody calls."""


class CopyProcess(Process):
    """One run of a program that copies in transactions."""

    def __init__(self, member: Member, name: str, random: Random) -> None:
        super().__init__(member, name, random)
        options = dict(member.plan.producer)
        keeps_id = options.pop("keeps_id")
        self.producer = TransactionalProducer(
            member.net, name, Random(random.getrandbits(64)),
            {**member.plan.config, **options, "transactional_id": member.name if keeps_id else name}, member.bootstrap,
        )  # fmt: skip
        self._timeout = options["transaction_timeout_ms"] / 1000
        self._ownerships: dict[TopicPartition, int] = {}  # a number for each ownership of a partition
        self._count = 0
        self._began = inf  # when the newest transaction did

    @property
    def threads(self) -> Sequence[SimulatedThread]:
        return [self.consumer.thread, self.producer.thread]

    def kill(self, *, is_silent: bool) -> None:
        super().kill(is_silent=is_silent)
        self.producer.discard()

    def discard(self) -> None:
        super().discard()
        self.producer.discard()

    def _note(self, kind: MemberEventKind, partition: TopicPartition, offset: int = -1, value: Any = None) -> None:
        if kind == "assigned":
            self._count += 1
            self._ownerships[partition] = self._count
        elif kind in ("revoked", "lost"):
            self._ownerships.pop(partition, None)
        super()._note(kind, partition, offset, value)

    async def _run(self) -> None:
        consumer, orders = self.consumer, self.orders
        await consumer.subscribe(self.member.topics, listener=self)
        while not orders.close:
            try:
                batch = await self._poll()
                if len(batch):
                    await self._copy(batch)
                await self._obey()
            except FatalError:
                break
            except (CallbackFailedError, MindChangedError, TransactionError, CommitFailedError):
                continue
            except (NodeError, RequestTimeoutError):  # of metadata, when all brokers are silent
                await sleep(self.world, 0.05)
        began = self.world.now()
        await self.producer.close(timeout=_CLOSE_SECONDS)
        await consumer.close(timeout=_CLOSE_SECONDS, leave=orders.leave)
        if self.world.now() > began + 2 * _CLOSE_SECONDS + 1.0:
            self.member.history.unexpected.append(f"{self.name}: close() took {self.world.now() - began:.1f} s")

    async def _poll(self) -> PolledBatch:
        batch: PolledBatch = await self.consumer.poll_batch(self._random.choice((1, 5, 100)), timeout=self._plan.poll)
        return batch

    async def _copy(self, batch: PolledBatch) -> None:
        """Copy the batch, and sometimes more, in a transaction, as in a `with` block of `transaction()`."""
        copied: list[tuple[TopicPartition, int, int]] = []
        batches = [batch]
        try:
            await self.producer.begin(_STEP_SECONDS)
            self._began = self.world.now()
            await self._transfer(batch, copied)
            while self._random.random() < 0.25:
                more = await self._poll()
                if len(more):
                    batches.append(more)
                    await self._transfer(more, copied)
            if self._random.random() < 0.1:
                raise MindChangedError
            await self.producer.commit(_STEP_SECONDS)
        except Exception as error:
            self._check_cause(error)
            await self.producer.abort_after(error, _STEP_SECONDS)
            for each in reversed(batches):
                each.rewind()  # begin() may have failed, so that send_offsets() never got it
            for partition, ownership, first in reversed(copied):
                if self._ownerships.get(partition) == ownership:
                    self._note("sought", partition, first)
            raise

    async def _transfer(self, batch: PolledBatch, copied: list[tuple[TopicPartition, int, int]]) -> None:
        for span in batch.spans:
            partition = span.topic, span.partition
            copied.append((partition, self._ownerships.get(partition, 0), span.first))
        records = list(batch)
        for record in records:
            self._note("handed", (record.topic, record.partition), record.offset, record.value)
        for record in records:
            await self._spend_time()
            self.producer.send(
                OUTPUT, copy_of(record.topic, record.partition, record.offset), record.partition % OUTPUT_PARTITIONS
            )
            self._note("processed", (record.topic, record.partition), record.offset)
        await self.producer.send_offsets(batch, self.consumer, _STEP_SECONDS)

    def _check_cause(self, error: Exception) -> None:
        """Note an error that ends the producer, though no timeout, other process or late InitProducerId did."""
        is_early = self.world.now() < self._began + self._timeout
        is_own = isinstance(error, FencedError) and self.producer.has_unanswered_init
        if isinstance(error, FatalError) and is_early and not is_own and self.member.processes[-1] is self:
            self.member.history.unexpected.append(f"{self.name}: {type(error).__name__}: {error}")

    def _ended(self, error: BaseException | None) -> None:
        self.producer.discard()
        super()._ended(error)


def copy_of(topic: str, partition: int, offset: int) -> bytes:
    """Return the value of a record's copy."""
    return f"{topic}-{partition}-{offset}".encode()
