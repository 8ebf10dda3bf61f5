"""A client process in a simulated world: the event loop and the producer's sender, as `kwire.Producer` joins them.

Owns what the face of the producer owns on real threads, which cannot be here: making records, and asking for flushes.
Everything below it is the code that users run.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from kwire.broker.simulation.conduct import Conduct, WatchedSender
from kwire.broker.simulation.history import History, RecordId, Sent
from kwire.broker.simulation.net import Net
from kwire.broker.simulation.selector import SimulatedSelector
from kwire.broker.simulation.world import Loop
from kwire.cluster import Backoff, ClientConfig, EventLoop
from kwire.errors import BufferFullError, ClosedError
from kwire.producer.buffer_pool import BufferPool, PendingRecord, make_door
from kwire.producer.futures import ProduceResponse
from kwire.producer.options import ProducerSettings
from kwire.producer.producer_request import DeliveryOptions
from kwire.producer.sender import Sender
from kwire.producer.topic import TopicQueue
from kwire.records import record_bytes_max

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
