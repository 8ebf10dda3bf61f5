"""Provide a network in memory for the event loop: hosts that respond, reject or stay silent, on a virtual clock.

`FakeSelector` has the methods of `KafkaSelector` that the cluster room uses. The peers are `Session.broker`s, so the
bytes are Kafka's; only sockets and time are simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from kwire.cluster import ClientConfig, EventLoop
from kwire.errors import ConnectError, DisconnectedError, NodeError
from kwire.net import Disconnection, Receive, VirtualClock
from kwire.protocol import Request, Response
from kwire.session import ConnectionBroken, RequestReceived, SaslServer, Session

Handler = Callable[[Request[Any]], Response | None]
Address = tuple[str, int]

BACKOFF = 0.05

APIS = {0: range(0, 13), 3: range(0, 13), 10: range(0, 5), 22: range(0, 5)}


@dataclass
class Host:
    """Simulate a broker process. `handler` returns None to stay silent."""

    handler: Handler
    apis: Mapping[int, range] = field(default_factory=lambda: APIS)
    identity: tuple[str | None, int] = (None, -1)  # of its cluster and itself (KIP-1242)
    is_up: bool = True
    refuses: NodeError | None = None  # the cause of the end of its connections
    sasl: SaslServer | None = None
    swallows_packets: bool = False
    closes_on_api_versions: bool = False
    closes_on_requests: bool = False  # as a listener that requires SASL does
    received: list[Request[Any]] = field(default_factory=list)
    connections: int = 0
    cut_short: int = 0  # by closes_on_api_versions

    def names(self) -> list[str]:
        return [type(request).__name__.removesuffix("Request") for request in self.received]


@dataclass
class _Connection:
    host: Host
    session: Session


class FakeSelector:
    def __init__(self, clock: VirtualClock, hosts: dict[Address, Host]) -> None:
        self.clock = clock
        self.hosts = hosts
        self.connected: list[Any] = []
        self.disconnected: list[Disconnection] = []
        self.is_closed = False
        self._wanted: dict[Any, Address] = {}
        self._not_before: dict[Any, float] = {}  # a constant back-off
        self._open: dict[Any, _Connection] = {}

    def connect(self, node: Any, host: str, port: int, *, tls: object = None) -> None:
        assert node not in self._wanted, "connected already"
        assert node not in self._open, "connected already"
        self._wanted[node] = (host, port)

    def disconnect(self, node: Any, *, failed: bool = False) -> None:
        self._wanted.pop(node, None)
        self._open.pop(node, None)

    def wakeup(self) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True

    def poll(
        self, sends: Sequence[tuple[Any, Any]], timeout: float | None, *, until_sent: bool = True
    ) -> list[Receive]:
        assert not until_sent, "a frame that was sent is no reason for a turn"
        self.connected, self.disconnected = [], []
        receives: list[Receive] = []
        for node, (host, port) in list(self._wanted.items()):
            there = self.hosts.get((host, port))
            if self._not_before.get(node, 0.0) <= self.clock.now() and not (there and there.swallows_packets):
                self._dial(node, there)
        for node in [node for node, connection in self._open.items() if not connection.host.is_up]:
            self._lose(node, DisconnectedError("the peer reset the connection", broker=str(node)))
        for node, pieces in sends:
            if node in self._open:
                receives += self._deliver(node, b"".join(pieces))
        if not (receives or self.connected or self.disconnected):
            assert timeout is not None, "the loop would sleep for ever"
            pauses = [self._not_before.get(node, 0.0) - self.clock.now() for node in self._wanted]
            self.clock.advance(min([timeout, *(pause for pause in pauses if pause > 0)]))
        for lost in self.disconnected:
            self._not_before[lost.node] = self.clock.now() + BACKOFF
        return receives

    def _dial(self, node: Any, host: Host | None) -> None:
        del self._wanted[node]
        if host is None or not host.is_up:
            self.disconnected.append(Disconnection(node, ConnectError("refused", broker=str(node))))
        elif host.refuses is not None:
            self.disconnected.append(Disconnection(node, host.refuses))
        else:
            host.connections += 1
            session = Session.broker(apis=host.apis, identity=host.identity, sasl=host.sasl)
            self._open[node] = _Connection(host, session)
            self.connected.append(node)

    def _lose(self, node: Any, cause: NodeError) -> None:
        self._open.pop(node, None)
        self.disconnected.append(Disconnection(node, cause))

    def _deliver(self, node: Any, frame: bytes) -> list[Receive]:
        connection = self._open[node]
        if connection.host.closes_on_api_versions and frame[:2] == b"\x00\x12":
            connection.host.cut_short += 1
            self._lose(node, DisconnectedError("the peer closed the connection", broker=str(node)))
            return []
        for event in connection.session.receive(frame, self.clock.now()):
            if isinstance(event, ConnectionBroken):
                self._lose(node, DisconnectedError("the peer closed the connection", broker=str(node)))
                return []
            assert isinstance(event, RequestReceived)
            connection.host.received.append(event.request)
            if connection.host.closes_on_requests:
                self._lose(node, DisconnectedError("the peer closed the connection", broker=str(node)))
                return []
            response = connection.host.handler(event.request)
            if response is not None:
                connection.session.respond(event.tag, response)
        return [Receive(node, b"".join(pieces)) for pieces in connection.session.frames()]


class Net:
    """Hold a loop, its clock and its hosts. `run` turns the loop until a condition holds or virtual time is up."""

    def __init__(self, hosts: dict[Address, Host], **options: Any) -> None:
        self.clock: VirtualClock = options.pop("clock", None) or VirtualClock()
        self.hosts = hosts
        bootstrap = options.pop("bootstrap", [f"{host}:{port}" for host, port in hosts])
        self.config = ClientConfig(bootstrap, **options)
        self.selector = FakeSelector(self.clock, hosts)
        self.loop = EventLoop(self.config, self.selector, self.clock, Random(1))  # type: ignore[arg-type]

    def run(self, until: Callable[[], object], seconds: float = 60.0) -> None:
        end = self.clock.now() + seconds
        for _ in range(10_000):
            if until():
                return
            assert self.clock.now() < end, f"not within {seconds} s"
            self.loop.turn(1.0)
        raise AssertionError("the loop spins")

    def rest(self, seconds: float) -> int:
        """Let time pass; return the number of turns of the loop."""
        end = self.clock.now() + seconds
        turns = 0
        while self.clock.now() < end:
            self.loop.turn(end - self.clock.now())
            turns += 1
            assert turns < 1_000, "the loop spins"
        return turns
