"""Share consumers and the embedded brokers in one thread, on virtual time and a simulated network.

The consumers are the real ones, down to the event loop. Only the selector is simulated, and the waiter: to wait is to
let the world run. `VirtualCluster.requests` has every share request that a broker got, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from random import Random
from typing import Any
from unittest.mock import patch

from kwire.broker.request_context import Completion, Reply, RequestContext
from kwire.cluster import ClientConfig, ClusterMetrics, EventLoop, StateMachine
from kwire.cluster.waiting import BlockingWaiter, Signal, blocking, run_blocking
from kwire.errors import ClosedError
from kwire.protocol import Request
from kwire.protocol.messages.produce import ProduceRequest
from kwire.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from kwire.protocol.messages.share_fetch import ShareFetchRequest
from kwire.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from kwire.records import encode_batch
from kwire.share.client import ShareConsumerClient
from kwire.share.record import ShareRecord
from kwire.simulation.cluster import SimulatedCluster
from kwire.simulation.history import History
from kwire.simulation.network import LinkProfile, Network, SimulatedSelector
from kwire.simulation.world import Loop, Trace, World

_SHARE_REQUESTS = (ShareFetchRequest, ShareAcknowledgeRequest, ShareGroupHeartbeatRequest)
_LATENCY = LinkProfile(base=0.001, jitter=1e-9, spike_chance=0, split_chance=0)


class VirtualSignal(Signal):
    def __init__(self, world: World) -> None:
        self._world = world
        self._is_set = False
        self._error: BaseException | None = None

    def set(self, error: BaseException | None = None) -> None:
        self._is_set, self._error = True, error

    async def wait(self, timeout: float | None = None) -> bool:
        until = float("inf") if timeout is None else self._world.now() + timeout
        self._world.run(until, is_over=lambda: self._is_set)
        if self._error is not None:
            raise self._error
        return self._is_set


class VirtualWaiter(BlockingWaiter):
    """Lets the world run instead of blocking."""

    def __init__(self, world: World) -> None:
        self._world = world

    def signal(self) -> Signal:
        return VirtualSignal(self._world)


class VirtualThread:
    """What `LoopThread` is to a client, without a thread."""

    is_forked = False
    has_system_clock = False

    def __init__(self, net: Network, name: str, config: ClientConfig) -> None:
        self.config = config
        self.clock = net.world
        self.is_closed = False
        self.is_running = False
        self.loop = Loop(net.world, name, lambda: self.event_loop.turn())
        selector = SimulatedSelector.of(net, name, Random(name), config, wake_loop=self.loop.wake)
        self.event_loop = EventLoop(config, selector, net.world, Random(name))  # type: ignore[arg-type]

    def add(self, machine: StateMachine, purpose: str = "general") -> None:
        self.is_running = True
        self.call_soon(self.event_loop.client.add, machine, purpose)

    def call_soon(self, function: Callable[..., object], *args: Any) -> None:
        self.check_usable()
        self.event_loop.post(lambda: function(*args))
        self.loop.wake()

    def view_for(self, purpose: str) -> Any:
        return self.event_loop.view(purpose)

    def metrics(self) -> ClusterMetrics:
        return self.event_loop.metrics()

    def check_usable(self) -> None:
        if self.is_closed:
            raise ClosedError("the client is closed")

    def deliver_before_end(self, deliver: Callable[[float | None], object]) -> None:
        pass

    def close(self, timeout: float | None = None) -> None:
        self.is_closed = True
        self.loop.stop()
        self.event_loop.close(ClosedError("the client was closed"))


class VirtualShareConsumer(ShareConsumerClient):
    _name = "kwire.ShareConsumer"

    def __init__(self, cluster: VirtualCluster, name: str, **options: Any) -> None:
        self._waiter = VirtualWaiter(cluster.world)

        def open_thread(client: str, bootstrap: Any, shared: Mapping[str, Any], role: str) -> VirtualThread:
            self.thread = VirtualThread(cluster.net, name, ClientConfig(bootstrap, client_id=name, **shared))
            return self.thread

        with patch("kwire.share.client.open_loop_thread", open_thread):
            self._set_up(cluster.bootstrap, {"group": "g", "telemetry": False, **options})

    subscribe = blocking(ShareConsumerClient._subscribe)
    unsubscribe = blocking(ShareConsumerClient._unsubscribe)
    poll = blocking(ShareConsumerClient._poll)
    commit = blocking(ShareConsumerClient._commit)
    metrics = blocking(ShareConsumerClient._metrics)
    explain = blocking(ShareConsumerClient._explain)
    close = blocking(ShareConsumerClient._close)

    def __iter__(self) -> Iterator[ShareRecord]:
        while True:
            record = self._next_iterated()
            if record is not None:
                yield record
            elif not run_blocking(self._fill_iteration()):
                return

    def crash(self) -> None:
        """End without a word: the connections stay open."""
        self.thread.loop.stop()


class VirtualCluster(SimulatedCluster):
    """Brokers with one topic "t"; the group starts at the earliest offset. `running` closes the consumers."""

    def __init__(
        self, *, brokers: int = 1, partitions: int = 1, topics: Mapping[str, int] | None = None, **options: Any
    ):
        world = World(time_ms=1_700_000_000_000)
        random = Random(1)
        net = Network(world, random, Trace(), _LATENCY)
        super().__init__(net, History(), random, brokers=brokers, **{"default_replication_factor": brokers, **options})
        self.net = net
        self.requests: list[tuple[float, int, Any]] = []
        self.consumers: list[VirtualShareConsumer] = []
        for node, broker in self.brokers.items():
            broker.handle = self._recorded(node, broker.handle)  # type: ignore[method-assign, assignment]
        for name, count in (topics or {"t": partitions}).items():
            self.create_topic(name, count)
        self.alter_group("g", {"share.auto.offset.reset": "earliest"})

    def _recorded(
        self, node: int, handle: Callable[[RequestContext, float], None]
    ) -> Callable[[RequestContext, float], None]:
        def recorded(context: RequestContext, now: float) -> None:
            if isinstance(context.request, _SHARE_REQUESTS):
                self.requests.append((now, node, context.request))
            handle(context, now)

        return recorded

    def of_kind(self, kind: type[Request[Any]]) -> list[Any]:
        return [request for _, _, request in self.requests if isinstance(request, kind)]

    def alter_group(self, group: str, configs: Mapping[str, str]) -> None:
        self.state.group_configs.alter(group, dict(configs))

    def consumer(self, name: str = "c", *, topics: tuple[str, ...] = ("t",), **options: Any) -> VirtualShareConsumer:
        on_acknowledged = options.pop("on_acknowledged", None)
        consumer = VirtualShareConsumer(self, name, **options)
        self.consumers.append(consumer)
        consumer.subscribe(topics, on_acknowledged=on_acknowledged)
        return consumer

    def sleep(self, seconds: float) -> None:
        """Let time pass, as a caller does who works on a record."""
        self.world.run(self.world.now() + seconds)

    def produce(self, *values: bytes, topic: str = "t", partition: int = 0, data: bytes | None = None) -> None:
        """Append one batch of values, or bytes of a batch."""
        batch = encode_batch([(self.world.time_ms(), None, value, ()) for value in values]) if data is None else data
        partition_data = ProduceRequest.Topic.Partition(index=partition, records=batch)
        request = ProduceRequest(
            acks=1, timeout_ms=1000,
            topic_data=[ProduceRequest.Topic(name=topic, partition_data=[partition_data])],
        )  # fmt: skip
        outcomes: list[Completion] = []
        context = RequestContext(request, 9, client_id="test", client_host="", on_complete=outcomes.append)
        leader = self.leaders(topic)[partition]
        self.brokers[leader].handle(context, self.world.now())
        self._settle()
        (outcome,) = outcomes
        assert isinstance(outcome, Reply), outcome
        (response,) = outcome.response.responses[0].partition_responses  # type: ignore[attr-defined]
        assert not response.error_code, response

    @contextmanager
    def running(self) -> Iterator[VirtualCluster]:
        try:
            yield self
        finally:
            self.close_all()

    def close_all(self) -> None:
        for consumer in self.consumers:
            consumer.close(timeout=5)
