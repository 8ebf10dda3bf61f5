"""Members of a share group in a simulated world: the real share consumer, and the user code around it.

Each process polls, works on each record, and accepts, releases or rejects it. It notes what it got, and what the
consumer said about its acknowledgements.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from kwire.cluster import ClientConfig
from kwire.cluster.waiting import awaited
from kwire.errors import AcknowledgeError, KwireError, NodeError, RequestTimeoutError
from kwire.share.client import ShareConsumerClient
from kwire.share.record import ShareRecord
from kwire.simulation.group_history import MemberEventKind, TopicPartition
from kwire.simulation.members import Process
from kwire.simulation.network import Network
from kwire.simulation.program import SimulatedThread, SimulatedWaiter, Watch, sleep

if TYPE_CHECKING:
    from kwire.simulation.members import Member

_CLOSE_SECONDS = 30.0
# From this delivery on a record is accepted, before the broker gives it up.
_ACCEPTED_FROM = 3


class SimulatedShareConsumer(ShareConsumerClient):
    """The share consumer of a program in the simulated world."""

    _name = "kwire.ShareConsumer"

    def __init__(
        self, net: Network, name: str, random: Random, config: Mapping[str, Any], settings: Mapping[str, Any],
        bootstrap: Sequence[str], watch: Watch,
    ) -> None:  # fmt: skip
        self._waiter = SimulatedWaiter(net.world)
        self._net, self._client_name, self._random, self._watch = net, name, random, watch
        self.thread: SimulatedThread
        self._set_up(list(bootstrap), {**config, **settings, "telemetry": False})

    subscribe = awaited(ShareConsumerClient._subscribe)
    poll = awaited(ShareConsumerClient._poll)
    commit = awaited(ShareConsumerClient._commit)
    close = awaited(ShareConsumerClient._close)

    def _open_loop(self, bootstrap: Any, options: Mapping[str, Any]) -> Any:
        config = ClientConfig(bootstrap, **{**options, "client_id": self._client_name})
        self.thread = SimulatedThread(self._net, self._client_name, self._new_random(), config, self._watch)
        return self.thread

    def _new_random(self) -> Random:
        return Random(self._random.getrandbits(64))


class ShareProcess(Process):
    """One run of a program that reads by a share group."""

    def __init__(self, member: Member, name: str, random: Random) -> None:
        # What was chosen for each record, in order, and not yet answered.
        self._chosen: defaultdict[tuple[TopicPartition, int], deque[MemberEventKind]] = defaultdict(deque)
        super().__init__(member, name, random)

    def _new_consumer(self, *arguments: Any) -> Any:
        return SimulatedShareConsumer(*arguments)

    def kill(self, *, is_silent: bool) -> None:
        """End without a word: acknowledgements that are on their way count, and nobody learns it."""
        for (partition, offset), chosen in self._chosen.items():
            if chosen:
                self._note("unsure", partition, offset)
        super().kill(is_silent=is_silent)

    async def _run(self) -> None:
        consumer, orders = self.consumer, self.orders
        await consumer.subscribe(self.member.topics, on_acknowledged=self._acknowledged)
        while not orders.close:
            try:
                records = await consumer.poll(timeout=self._plan.poll)
                for record in records:
                    self._note("handed", (record.topic, record.partition), record.offset, record.value)
                for record in records:
                    await self._work(record)
                if records and self._random.random() < 0.3:
                    await consumer.commit(timeout=1.0)
            except RequestTimeoutError:
                continue
            except NodeError:
                await sleep(self.world, 0.05)
        began = self.world.now()
        self._note("closing", ("", -1))
        await consumer.close(timeout=_CLOSE_SECONDS)
        if self.world.now() > began + _CLOSE_SECONDS + 1.0:
            self.member.history.unexpected.append(f"{self.name}: close() took {self.world.now() - began:.1f} s")

    async def _work(self, record: ShareRecord) -> None:
        await self._spend_time()
        key = (record.topic, record.partition), record.offset
        kind: MemberEventKind = "accepted"
        try:
            if record.delivery_count < _ACCEPTED_FROM:
                kind = self._random.choice(("accepted",) * 8 + ("released", "rejected"))
            self._chosen[key].append(kind)
            {"accepted": record.accept, "released": record.release, "rejected": record.reject}[kind]()
            self._note("chosen", *key)
        except AcknowledgeError:  # the lock has ended
            self._chosen[key].pop()
            self._note("unsure", *key)

    def _acknowledged(self, offsets: Mapping[TopicPartition, Sequence[int]], error: KwireError | None) -> None:
        for partition, numbers in offsets.items():
            for offset in numbers:
                chosen = self._chosen[partition, offset]
                if chosen:
                    kind = chosen.popleft()
                    self._note(kind if error is None else "unsure", partition, offset)
