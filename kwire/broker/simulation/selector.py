"""SimulatedSelector: the face of `KafkaSelector` over the simulated network.

Owns what the real one owns (attempts, back-off, the lists of a poll, idleness), and takes the real one's back-off and
frames, so that only sockets and time are made up. Where the real one would sleep it raises `WouldSleepError`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from random import Random

from kwire.broker.simulation.connection import Address, Connection, End
from kwire.broker.simulation.net import Net
from kwire.broker.simulation.world import WouldSleepError
from kwire.cluster import ClientConfig
from kwire.errors import ConnectError, DisconnectedError, NodeError
from kwire.net import Disconnection, Node, Receive, Sent
from kwire.net.backoff import Backoff, ReconnectBackoff
from kwire.net.timers import Timer
from kwire.wire.frame import MAX_FRAME_BYTES, SIZE, BytesLike, Frame


class _Dial:
    """An attempt to connect. `connection` is there once the other side has accepted."""

    def __init__(self, node: Node, address: Address) -> None:
        self.node = node
        self.address = address
        self.frames: list[Frame] = []
        self.connection: Connection | None = None
        self.timer: Timer | None = None
        self.is_over = False


class SimulatedSelector:
    """`ring` is called when there is something to tell to a poll that would have slept."""

    def __init__(
        self,
        net: Net,
        name: str,
        random: Random,
        *,
        ring: Callable[[], None],
        max_frame_bytes: int = MAX_FRAME_BYTES,
        connect_timeout_ms: float = 10_000,
        idle_timeout_ms: float = 540_000,
        reconnect_backoff_ms: float = 50,
        reconnect_backoff_ms_max: float = 1_000,
    ) -> None:
        self.name = name
        self.max_frame_bytes = max_frame_bytes
        self._net = net
        self._world = net.world
        self._random = random
        self._ring = ring
        self._connect_timeout = connect_timeout_ms / 1000
        self._idle_timeout = idle_timeout_ms / 1000
        self._backoff = Backoff(reconnect_backoff_ms, reconnect_backoff_ms_max)
        self._backoffs: dict[Node, ReconnectBackoff] = {}
        self._dials: dict[Node, _Dial] = {}
        self._ends: dict[Node, End] = {}
        self._addresses: dict[Address, None] = {}
        self._peers = count(1)
        self._is_woken = False
        self._alarm: Timer | None = None
        self._is_closed = False
        self._coming = _Results()
        self._told = _Results()

    @classmethod
    def of(
        cls, net: Net, name: str, random: Random, config: ClientConfig, *, ring: Callable[[], None]
    ) -> SimulatedSelector:
        """A client's, with its limits and times."""
        return cls(
            net,
            name,
            random,
            ring=ring,
            max_frame_bytes=config.max_frame_bytes,
            connect_timeout_ms=config.connect_timeout_ms,
            idle_timeout_ms=config.idle_timeout_ms,
            reconnect_backoff_ms=config.reconnect_backoff_ms,
            reconnect_backoff_ms_max=config.reconnect_backoff_ms_max,
        )

    # The lists of the last poll.

    @property
    def connected(self) -> list[Node]:
        return self._told.connected

    @property
    def disconnected(self) -> list[Disconnection]:
        return self._told.disconnected

    @property
    def completed_sends(self) -> list[Sent]:
        return self._told.completed_sends

    @property
    def completed_receives(self) -> list[Receive]:
        return self._told.completed_receives

    @property
    def accepted(self) -> list[Node]:
        return self._told.accepted

    @property
    def rejected(self) -> list[Disconnection]:
        return []

    # What the owner asks for.

    def connect(self, node: Node, host: str, port: int, *, tls: object = None) -> None:
        if node in self._dials or node in self._ends:
            raise ValueError(f"node {node} is connected, or connecting, already")
        assert not tls, "there is no TLS in the simulated network"
        dial = self._dials[node] = _Dial(node, (host, port))
        dial.timer = self._world.at(self.next_attempt_at(node), partial(self._dial, dial))

    def disconnect(self, node: Node, *, failed: bool = False) -> None:
        if node in self._dials:
            self._give_up(node)
        elif node in self._ends:
            end = self._ends.pop(node)
            end.close()
            self._coming.forget(node)
            failed = failed and not end.is_accepted
        else:
            return
        if failed:
            self._backoff_of(node).failed(self._world.now())

    def listen(self, host: str, port: int, *, tls: object = None) -> Address:
        assert port, "the simulated network gives no ports away"
        self._net.listen((host, port), self)
        self._addresses[(host, port)] = None
        return host, port

    def stop_listening(self, address: Address) -> None:
        self._net.stop_listening(address)
        del self._addresses[address]

    def send_raw(self, node: Node, data: bytes) -> None:
        self._end(node).write(data)

    def pause(self, node: Node) -> None:
        self._end(node).into.pause(True)

    def resume(self, node: Node) -> None:
        self._end(node).into.pause(False)

    def wakeup(self) -> None:
        self._is_woken = True
        self._ring()

    def close(self) -> None:
        self._is_closed = True
        for node in [*self._dials, *self._ends]:
            self.disconnect(node)
        for address in list(self._addresses):
            self.stop_listening(address)
        self._set_alarm(None)

    # What the owner may ask.

    @property
    def nodes(self) -> list[Node]:
        return [*self._dials, *self._ends]

    def is_connected(self, node: Node) -> bool:
        return node in self._ends

    def next_attempt_at(self, node: Node) -> float:
        backoff = self._backoffs.get(node)
        return backoff.ready_at if backoff is not None else 0.0

    def bytes_queued(self, node: Node) -> int:
        """The simulated kernel takes all at once."""
        return 0

    def peername(self, node: Node) -> Address:
        end = self._end(node)
        return end.connection.address if not end.is_accepted else (end.other.selector.name, end.connection.number)

    def sockname(self, node: Node) -> Address:
        end = self._end(node)
        return end.connection.address if end.is_accepted else (self.name, end.connection.number)

    # The poll.

    def poll(
        self, sends: Iterable[tuple[Node, Frame]] = (), timeout: float | None = None, *, until_sent: bool = True
    ) -> list[Receive]:
        assert not self._is_closed
        self._told, self._coming = self._coming, _Results()
        self._send(sends)
        is_due = self._alarm is not None and not self._alarm.is_pending
        self._set_alarm(None)
        has_news = bool(self._told) or (until_sent and bool(self._told.completed_sends))
        if not (has_news or self._is_woken or is_due or timeout == 0):
            if timeout is not None:
                self._set_alarm(self._world.now() + timeout)
            raise WouldSleepError
        self._is_woken = False
        return self._told.completed_receives

    def _send(self, sends: Iterable[tuple[Node, Frame]]) -> None:
        """All frames of a node share one write."""
        by_end: dict[End, list[bytes]] = {}
        lost: dict[Node, int] = {}
        for node, frame in sends:
            if node in self._ends:
                by_end.setdefault(self._ends[node], []).append(_encoded(frame))
                self._told.completed_sends.append(Sent(node, frame))
            elif node in self._dials:
                self._dials[node].frames.append(frame)
            else:
                lost[node] = lost.get(node, 0) + 1
        for end, frames in by_end.items():
            end.write(b"".join(frames))
        for node, unsent in lost.items():
            cause = DisconnectedError("there is no connection", broker=str(node))
            self._told.disconnected.append(Disconnection(node, cause, unsent))

    def _set_alarm(self, when: float | None) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = None if when is None else self._world.at(when, lambda _: self._ring())

    # What the network tells.

    def name_peer(self) -> str:
        return f"peer-{next(self._peers)}"

    def opened(self, end: End) -> None:
        """A connection was accepted here, or the one that was dialled from here is open."""
        end.last_active = self._world.now()
        self._ends[end.node] = end
        if end.is_accepted:
            self._coming.accepted.append(end.node)
        else:
            dial = self._dials.pop(end.node)
            dial.is_over = True
            if dial.timer is not None:
                dial.timer.cancel()
            self._coming.connected.append(end.node)
            if dial.frames:
                end.write(b"".join(_encoded(frame) for frame in dial.frames))
                self._coming.completed_sends += [Sent(end.node, frame) for frame in dial.frames]
        self._world.at(end.last_active + self._idle_timeout, partial(self._look_if_idle, end))
        self._ring()

    def received(self, end: End, frames: list[BytesLike]) -> None:
        if not frames:
            return
        if end.node in self._backoffs and end.reader.frames_read == len(frames):
            self._backoffs[end.node].recovered(self._world.now())
        self._coming.completed_receives += [Receive(end.node, frame) for frame in frames]
        self._ring()

    def ended(self, end: End, cause: NodeError) -> None:
        if self._ends.get(end.node) is not end:  # it was never open, or given up
            if end.node in self._dials and self._dials[end.node].connection is end.connection:
                self._fail(end.node, cause)
            return
        del self._ends[end.node]
        if not end.is_accepted:
            self._backoff_of(end.node).failed(self._world.now())
        self._coming.disconnected.append(Disconnection(end.node, cause))
        self._ring()

    # Dialling.

    def _dial(self, dial: _Dial, now: float) -> None:
        """The back-off is over."""

        def connected(connection: Connection) -> None:
            dial.connection = connection
            if dial.is_over:  # given up while the packet was on its way
                connection.client.close()

        def refused() -> None:
            if not dial.is_over:
                self._fail(dial.node, ConnectError("cannot connect (refused)", broker=self._broker(dial)))

        def late(now: float) -> None:
            self._fail(dial.node, ConnectError("cannot connect (timed out)", broker=self._broker(dial)))

        dial.timer = self._world.at(now + self._connect_timeout, late)
        self._net.dial(self, dial.node, dial.address, connected, refused)

    def _fail(self, node: Node, cause: NodeError) -> None:
        unsent = len(self._dials[node].frames)
        self._give_up(node)
        self._backoff_of(node).failed(self._world.now())
        self._coming.disconnected.append(Disconnection(node, cause, unsent))
        self._ring()

    def _give_up(self, node: Node) -> None:
        dial = self._dials.pop(node)
        dial.is_over = True
        if dial.timer is not None:
            dial.timer.cancel()
        if dial.connection is not None:
            dial.connection.client.close()

    @staticmethod
    def _broker(dial: _Dial) -> str:
        return f"{dial.node} at {dial.address[0]}:{dial.address[1]}"

    def _look_if_idle(self, end: End, now: float) -> None:
        if self._ends.get(end.node) is not end:
            return
        idle_at = end.last_active + self._idle_timeout
        if now < idle_at:
            self._world.at(idle_at, partial(self._look_if_idle, end))
            return
        self._net.seen["connections closed for idleness"] += 1
        del self._ends[end.node]
        end.close()
        cause = DisconnectedError(f"closed here, unused for {self._idle_timeout:g} s", broker=str(end.node))
        self._coming.disconnected.append(Disconnection(end.node, cause, is_idle=True))
        self._ring()

    def _backoff_of(self, node: Node) -> ReconnectBackoff:
        if node not in self._backoffs:
            self._backoffs[node] = ReconnectBackoff(self._backoff, self._random)
        return self._backoffs[node]

    def _end(self, node: Node) -> End:
        if node not in self._ends:
            raise ValueError(f"node {node} is not connected")
        return self._ends[node]


class _Results:
    """What one poll tells."""

    def __init__(self) -> None:
        self.connected: list[Node] = []
        self.disconnected: list[Disconnection] = []
        self.completed_sends: list[Sent] = []
        self.completed_receives: list[Receive] = []
        self.accepted: list[Node] = []

    def forget(self, node: Node) -> None:
        """The owner has closed it: no list is to tell of it."""
        self.connected = [one for one in self.connected if one != node]
        self.accepted = [one for one in self.accepted if one != node]
        self.disconnected = [one for one in self.disconnected if one.node != node]
        self.completed_receives = [one for one in self.completed_receives if one.node != node]

    def __bool__(self) -> bool:
        """Whether a poll has something to tell besides the sends."""
        return bool(self.completed_receives or self.connected or self.disconnected or self.accepted)


def _encoded(frame: Frame) -> bytes:
    body = bytes(frame) if isinstance(frame, bytes | bytearray | memoryview) else b"".join(frame)
    return SIZE.pack(len(body)) + body
