"""The simulated network: connections between clients and brokers, and the selector that uses them.

    Pipe               one direction of a connection: bytes in order, each with its time of arrival
    End, Connection    two pipes and the two ends that a selector sees
    Network            listeners, open connections, and the faults that hit them
    SimulatedSelector  the interface of `KafkaSelector` on this network

A pipe can delay bytes, split them, deliver them slowly, hold them, end after any byte, or lose all of them silently. It
never reorders them. Frames are read by the same `FrameReader`, and reconnects wait for the same back-off, as on real
sockets. All random numbers come from one generator, so that a seed repeats a run.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from itertools import count
from random import Random
from typing import Any

from kwire.cluster import ClientConfig
from kwire.errors import ConnectError, DisconnectedError, NodeError
from kwire.net import Disconnection, Node, Receive, Sent
from kwire.net.backoff import Backoff, ReconnectBackoff
from kwire.net.timers import Timer
from kwire.simulation.world import Trace, World, WouldSleepError
from kwire.wire.frame import MAX_FRAME_BYTES, SIZE, BytesLike, Frame, FrameReader


class PipeEvent(Enum):
    """What travels in a pipe apart from bytes."""

    OPEN = auto()  # to the end that connects: the other end has accepted
    END = auto()


Piece = bytes | PipeEvent


@dataclass(frozen=True, slots=True)
class LinkProfile:
    """The latency of a pipe in seconds (base, exponential jitter, rare spikes), and how often bytes arrive split."""

    base: float = 0.001
    jitter: float = 0.002
    spike_chance: float = 0.01
    spike_max: float = 0.3
    split_chance: float = 0.03

    def delay(self, random: Random) -> float:
        delay = self.base + random.expovariate(1 / self.jitter)
        if random.random() < self.spike_chance:
            delay += random.uniform(0, self.spike_max)
        return delay


class Pipe:
    """Call `arrive` with each piece that comes out, and `cut` once `cut_after` more bytes were written."""

    def __init__(
        self,
        world: World,
        random: Random,
        link: LinkProfile,
        arrive: Callable[[Piece], None],
        cut: Callable[[], None],
    ) -> None:
        self.cut_after: int | None = None
        self.trickle: tuple[int, float, float] | None = None  # bytes, seconds between them, end time
        self._world = world
        self._random = random
        self._link = link
        self._arrive = arrive
        self._cut = cut
        self._queue: deque[tuple[float, Piece]] = deque()
        self._last_at = 0.0
        self._held_until = 0.0
        self._is_paused = False
        self._is_ended = False
        self._is_silent = False
        self._timer: Timer | None = None

    @property
    def is_silent(self) -> bool:
        return self._is_silent

    def write(self, data: bytes) -> None:
        if self._is_ended:
            return
        is_cut = self.cut_after is not None and self.cut_after <= len(data)
        if self.cut_after is not None:
            passing, self.cut_after = data[: self.cut_after], self.cut_after - len(data)
            data = passing
        for piece in self._pieces(data):
            self._put(piece)
        if is_cut:
            self.cut_after = None
            self._cut()

    def open(self) -> None:
        self._put(PipeEvent.OPEN)

    def end(self, *, keeps: bool) -> None:
        """End the pipe. With `keeps` the bytes under way still arrive; without it they are lost, as after a reset."""
        if not self._is_ended:
            if not keeps:
                self._queue = deque(entry for entry in self._queue if entry[1] is PipeEvent.OPEN)
            self._is_ended = True
            self._put(PipeEvent.END)

    def discard(self) -> None:
        """Drop all bytes: the receiving end is closed."""
        self._is_ended = True
        self._queue.clear()

    def silence(self) -> None:
        """Lose all present and future bytes without notice."""
        self._is_silent = True
        self._queue.clear()

    def hold(self, until: float) -> None:
        """Deliver nothing before `until`, then everything."""
        self._held_until = max(self._held_until, until)
        self._schedule()

    def release(self) -> None:
        self._held_until = 0.0
        self.trickle = None
        self._schedule()

    def pause(self, is_paused: bool) -> None:
        """Stop or resume delivery: the receiving end has stopped or resumed reading."""
        self._is_paused = is_paused
        self._schedule()

    def _pieces(self, data: bytes) -> list[bytes]:
        if not data:
            return []
        if self.trickle is not None and self._world.now() < self.trickle[2]:
            size = self.trickle[0]
            return [data[start : start + size] for start in range(0, len(data), size)]
        if len(data) > 1 and self._random.random() < self._link.split_chance:
            middle = self._random.randrange(1, len(data))
            return [data[:middle], data[middle:]]
        return [data]

    def _put(self, piece: Piece) -> None:
        if self._is_silent:
            return
        now = self._world.now()
        arrives = max(now + self._link.delay(self._random), self._last_at)
        if self.trickle is not None and now < self.trickle[2] and self._queue:
            arrives = max(arrives, self._last_at + self.trickle[1])
        self._last_at = arrives
        self._queue.append((arrives, piece))
        self._schedule()

    def _schedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._queue and not self._is_paused:
            self._timer = self._world.at(max(self._queue[0][0], self._held_until), self._deliver)

    def _deliver(self, now: float) -> None:
        self._timer = None
        if self._queue:
            self._arrive(self._queue.popleft()[1])
        if self._timer is None:
            self._schedule()


Address = tuple[str, int]

# How often bytes under way still arrive after the connection has ended.
_SURVIVAL = 0.75


class End:
    """One end of a connection, as a selector sees a socket. `out` leads to the other end, `into` comes from it."""

    def __init__(self, selector: SimulatedSelector, node: Any, connection: Connection, *, is_accepted: bool) -> None:
        self.selector = selector
        self.node = node
        self.connection = connection
        self.is_accepted = is_accepted
        self.is_open = is_accepted  # bytes can be written
        self.is_closed = False
        self.reader = FrameReader(selector.max_frame_bytes, reuse_buffers=True)
        self.last_active = 0.0
        self.out: Pipe
        self.into: Pipe

    def write(self, data: bytes) -> None:
        self.last_active = self.connection.net.world.now()
        self.out.write(data)

    def close(self) -> None:
        """Close this end. The other end is notified; bytes under way to it may still arrive."""
        if not self.is_closed:
            self.is_closed = True
            self.into.discard()
            self.out.end(keeps=self.connection.survives())
            self.connection.closed()

    def arrived(self, piece: Piece) -> None:
        net = self.connection.net
        now = net.world.now()
        if isinstance(piece, PipeEvent):
            net.trace.note(now, f"{self.connection} {piece.name} at {self.selector.name}")
            if piece is PipeEvent.OPEN:
                self.is_open = True
                self.selector.opened(self)
            else:
                self._ended(self._cut())
            return
        net.trace.note(now, f"{self.connection} bytes at {self.selector.name}", piece)
        self.last_active = now
        try:
            frames = self.reader.feed(piece)
        except NodeError as error:
            self._ended(error)
            return
        if frames and self.other.is_closed:
            net.seen["frames from a closed end"] += len(frames)
        self.selector.received(self, frames)

    @property
    def other(self) -> End:
        return self.connection.broker if self is self.connection.client else self.connection.client

    def _ended(self, cause: NodeError) -> None:
        self.is_closed = True
        self.into.discard()
        self.out.end(keeps=False)
        self.connection.closed()
        self.selector.ended(self, cause)

    def _cut(self) -> DisconnectedError:
        reason = "the peer closed the connection"
        progress = self.reader.progress
        if progress is not None:
            self.connection.net.seen["connections cut inside a frame"] += 1
            reason = f"{reason} in the middle of a frame, {progress[0]:,} of {progress[1]:,} bytes in"
        return DisconnectedError(reason, broker=f"{self.node} at {self.connection}")


class Connection:
    """A connection from a client to a broker's address."""

    def __init__(
        self, net: Network, number: int, client: tuple[SimulatedSelector, Any], broker: tuple[SimulatedSelector, Any],
        address: Address, link: LinkProfile, random: Random,
    ) -> None:  # fmt: skip
        self.net = net
        self.number = number
        self.address = address
        self._random = random
        self.client = End(*client, self, is_accepted=False)
        self.broker = End(*broker, self, is_accepted=True)
        up = Pipe(net.world, random, link, self.broker.arrived, self.lose)
        down = Pipe(net.world, random, link, self.client.arrived, self.lose)
        self.client.out = self.broker.into = up
        self.broker.out = self.client.into = down
        down.open()

    def __str__(self) -> str:
        return f"#{self.number} {self.client.selector.name}-{self.address[0]}"

    @property
    def is_over(self) -> bool:
        return self.client.is_closed and self.broker.is_closed

    def pipe(self, *, to_broker: bool) -> Pipe:
        return self.client.out if to_broker else self.broker.out

    def lose(self) -> None:
        """Break the connection between its ends; each end notices by itself."""
        self.client.out.end(keeps=self.survives())
        self.broker.out.end(keeps=self.survives())

    def silence(self) -> None:
        """Keep both ends open, but deliver nothing any more."""
        self.client.out.silence()
        self.broker.out.silence()

    def survives(self) -> bool:
        return self._random.random() < _SURVIVAL

    def closed(self) -> None:
        if self.is_over:
            self.net.forget(self)


ConnectionAction = Callable[[Connection], None]


class Network:
    """Listeners and connections. `seen` counts events, so that tests notice a simulation in which nothing happens."""

    def __init__(self, world: World, random: Random, trace: Trace, link: LinkProfile | None = None) -> None:
        self.world = world
        self.trace = trace
        self.seen: Counter[str] = Counter()
        self.connections: dict[Connection, None] = {}  # an ordered set
        self._random = random
        self._link = link or LinkProfile()
        self._listeners: dict[Address, SimulatedSelector] = {}
        self._numbers = count(1)
        self._refused_until: dict[Address, float] = {}
        self._swallowed_until: dict[Address, float] = {}
        self._pending: list[tuple[str | None, Address, ConnectionAction]] = []
        self._lasting: list[tuple[float, str | None, Address, ConnectionAction]] = []

    # Listening and dialling.

    def listen(self, address: Address, selector: SimulatedSelector) -> None:
        assert address not in self._listeners, f"{address} is taken"
        self._listeners[address] = selector

    def stop_listening(self, address: Address) -> None:
        del self._listeners[address]

    def dial(
        self,
        selector: SimulatedSelector,
        node: Any,
        address: Address,
        connected: ConnectionAction,
        refused: Callable[[], None],
    ) -> None:
        """Call `connected` or `refused` later; neither if the address swallows packets."""
        now = self.world.now()
        if now < self._swallowed_until.get(address, 0.0):
            self.seen["dials swallowed"] += 1
            return

        def arrive(now: float) -> None:
            listener = self._listeners.get(address)
            if listener is None or now < self._refused_until.get(address, 0.0):
                self.seen["dials refused"] += 1
                self.world.at(now + self._link.delay(self._random), lambda _: refused())
                return
            accepted = listener, listener.name_peer()
            connection = Connection(
                self, next(self._numbers), (selector, node), accepted, address, self._link, self._random
            )
            self.seen["connections"] += 1
            self.connections[connection] = None
            self.trace.note(now, f"{connection} is accepted")
            listener.opened(connection.broker)
            connected(connection)
            self._apply_pending(connection)

        self.world.at(now + self._link.delay(self._random), arrive)

    def forget(self, connection: Connection) -> None:
        self.connections.pop(connection, None)

    # Faults.

    def between(self, client: str | None, address: Address) -> Iterator[Connection]:
        """Yield the connections of a client (None: of any) to an address that are open at both ends, newest first."""
        for connection in reversed(list(self.connections)):
            if _concerns(connection, client, address) and not (
                connection.client.is_closed or connection.broker.is_closed
            ):
                yield connection

    def apply_to_newest(self, client: str | None, address: Address, action: ConnectionAction) -> None:
        """Apply an action to the newest such connection, or else to the next one that is made."""
        connection = next(self.between(client, address), None)
        if connection is not None:
            action(connection)
        else:
            self._pending.append((client, address, action))

    def apply_to_all(self, client: str | None, address: Address, action: ConnectionAction, until: float) -> None:
        """Apply an action to all such connections, and to those that are made before `until`."""
        for connection in self.between(client, address):
            action(connection)
        self._lasting.append((until, client, address, action))

    def refuse(self, address: Address, until: float) -> None:
        self._refused_until[address] = until

    def swallow(self, address: Address, until: float) -> None:
        self._swallowed_until[address] = until

    def heal(self) -> None:
        """End all faults. Silenced connections stay dead until an end closes them."""
        self._pending.clear()
        self._lasting.clear()
        self._refused_until.clear()
        self._swallowed_until.clear()
        for connection in self.connections:
            for to_broker in (True, False):
                pipe = connection.pipe(to_broker=to_broker)
                pipe.cut_after = None
                pipe.release()

    def _apply_pending(self, connection: Connection) -> None:
        now = self.world.now()
        self._lasting = [entry for entry in self._lasting if entry[0] > now]
        for _, client, address, action in self._lasting:
            if _concerns(connection, client, address):
                action(connection)
        for armed in self._pending:
            if _concerns(connection, armed[0], armed[1]):
                self._pending.remove(armed)
                armed[2](connection)
                break


def _concerns(connection: Connection, client: str | None, address: Address) -> bool:
    return connection.address == address and client in (None, connection.client.selector.name)


class _Dial:
    """An attempt to connect. `connection` is set once the other side has accepted."""

    def __init__(self, node: Node, address: Address) -> None:
        self.node = node
        self.address = address
        self.frames: list[Frame] = []
        self.connection: Connection | None = None
        self.timer: Timer | None = None
        self.is_over = False


class SimulatedSelector:
    """`KafkaSelector` on the simulated network. `wake_loop` is called when a poll that would have slept has results."""

    def __init__(
        self,
        net: Network,
        name: str,
        random: Random,
        *,
        wake_loop: Callable[[], None],
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
        self._wake_loop = wake_loop
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
        self._next_results = _Results()
        self._results = _Results()

    @classmethod
    def of(
        cls, net: Network, name: str, random: Random, config: ClientConfig, *, wake_loop: Callable[[], None]
    ) -> SimulatedSelector:
        """Return the selector of a client, with the limits and timeouts of its configuration."""
        return cls(
            net,
            name,
            random,
            wake_loop=wake_loop,
            max_frame_bytes=config.max_frame_bytes,
            connect_timeout_ms=config.connect_timeout_ms,
            idle_timeout_ms=config.idle_timeout_ms,
            reconnect_backoff_ms=config.reconnect_backoff_ms,
            reconnect_backoff_ms_max=config.reconnect_backoff_ms_max,
        )

    # Results of the last poll.

    @property
    def connected(self) -> list[Node]:
        return self._results.connected

    @property
    def disconnected(self) -> list[Disconnection]:
        return self._results.disconnected

    @property
    def completed_sends(self) -> list[Sent]:
        return self._results.completed_sends

    @property
    def completed_receives(self) -> list[Receive]:
        return self._results.completed_receives

    @property
    def accepted(self) -> list[Node]:
        return self._results.accepted

    @property
    def rejected(self) -> list[Disconnection]:
        return []

    # Commands.

    def connect(self, node: Node, host: str, port: int, *, tls: object = None) -> None:
        if node in self._dials or node in self._ends:
            raise ValueError(f"node {node} is connected, or connecting, already")
        assert not tls, "the simulated network has no TLS"
        dial = self._dials[node] = _Dial(node, (host, port))
        dial.timer = self._world.at(self.next_attempt_at(node), partial(self._dial, dial))

    def disconnect(self, node: Node, *, failed: bool = False) -> None:
        if node in self._dials:
            self._cancel(node)
        elif node in self._ends:
            end = self._ends.pop(node)
            end.close()
            self._next_results.forget(node)
            failed = failed and not end.is_accepted
        else:
            return
        if failed:
            self._backoff_of(node).failed(self._world.now())

    def reset(self, node: Node) -> None:
        self.disconnect(node)  # a simulated connection ends in one way only

    def listen(self, host: str, port: int, *, tls: object = None) -> Address:
        assert port, "the simulated network does not choose ports"
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
        self._wake_loop()

    def close(self) -> None:
        self._is_closed = True
        for node in [*self._dials, *self._ends]:
            self.disconnect(node)
        for address in list(self._addresses):
            self.stop_listening(address)
        self._set_alarm(None)

    # State.

    @property
    def nodes(self) -> list[Node]:
        return [*self._dials, *self._ends]

    def is_connected(self, node: Node) -> bool:
        return node in self._ends

    def next_attempt_at(self, node: Node) -> float:
        backoff = self._backoffs.get(node)
        return backoff.ready_at if backoff is not None else 0.0

    def bytes_queued(self, node: Node) -> int:
        """Return 0: the simulated kernel accepts all bytes at once."""
        return 0

    def peer_certificate(self, node: Node) -> None:
        """Return None: nothing is encrypted here."""

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
        self._results, self._next_results = self._next_results, _Results()
        self._send(sends)
        is_due = self._alarm is not None and not self._alarm.is_pending
        self._set_alarm(None)
        has_news = bool(self._results) or (until_sent and bool(self._results.completed_sends))
        if not (has_news or self._is_woken or is_due or timeout == 0):
            if timeout is not None:
                self._set_alarm(self._world.now() + timeout)
            raise WouldSleepError
        self._is_woken = False
        return self._results.completed_receives

    def _send(self, sends: Iterable[tuple[Node, Frame]]) -> None:
        """Write all frames for a node at once."""
        by_end: dict[End, list[bytes]] = {}
        lost: dict[Node, int] = {}
        for node, frame in sends:
            if node in self._ends:
                by_end.setdefault(self._ends[node], []).append(_encoded(frame))
                self._results.completed_sends.append(Sent(node, frame))
            elif node in self._dials:
                self._dials[node].frames.append(frame)
            else:
                lost[node] = lost.get(node, 0) + 1
        for end, frames in by_end.items():
            end.write(b"".join(frames))
        for node, unsent in lost.items():
            cause = DisconnectedError("there is no connection", broker=str(node))
            self._results.disconnected.append(Disconnection(node, cause, unsent))

    def _set_alarm(self, when: float | None) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = None if when is None else self._world.at(when, lambda _: self._wake_loop())

    # Events from the network.

    def name_peer(self) -> str:
        return f"peer-{next(self._peers)}"

    def opened(self, end: End) -> None:
        """Add a connection that was accepted here, or whose other end has accepted."""
        end.last_active = self._world.now()
        self._ends[end.node] = end
        if end.is_accepted:
            self._next_results.accepted.append(end.node)
        else:
            dial = self._dials.pop(end.node)
            dial.is_over = True
            if dial.timer is not None:
                dial.timer.cancel()
            self._next_results.connected.append(end.node)
            if dial.frames:
                end.write(b"".join(_encoded(frame) for frame in dial.frames))
                self._next_results.completed_sends += [Sent(end.node, frame) for frame in dial.frames]
        self._world.at(end.last_active + self._idle_timeout, partial(self._close_if_idle, end))
        self._wake_loop()

    def received(self, end: End, frames: list[BytesLike]) -> None:
        if not frames:
            return
        if end.node in self._backoffs and end.reader.frames_read == len(frames):
            self._backoffs[end.node].recovered(self._world.now())
        self._next_results.completed_receives += [Receive(end.node, frame) for frame in frames]
        self._wake_loop()

    def ended(self, end: End, cause: NodeError) -> None:
        if self._ends.get(end.node) is not end:  # it never opened, or was closed here
            if end.node in self._dials and self._dials[end.node].connection is end.connection:
                self._fail(end.node, cause)
            return
        del self._ends[end.node]
        if not end.is_accepted:
            self._backoff_of(end.node).failed(self._world.now())
        self._next_results.disconnected.append(Disconnection(end.node, cause))
        self._wake_loop()

    # Connecting.

    def _dial(self, dial: _Dial, now: float) -> None:
        """Connect after the back-off."""

        def connected(connection: Connection) -> None:
            dial.connection = connection
            if dial.is_over:  # cancelled while the packet was under way
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
        self._cancel(node)
        self._backoff_of(node).failed(self._world.now())
        self._next_results.disconnected.append(Disconnection(node, cause, unsent))
        self._wake_loop()

    def _cancel(self, node: Node) -> None:
        dial = self._dials.pop(node)
        dial.is_over = True
        if dial.timer is not None:
            dial.timer.cancel()
        if dial.connection is not None:
            dial.connection.client.close()

    @staticmethod
    def _broker(dial: _Dial) -> str:
        return f"{dial.node} at {dial.address[0]}:{dial.address[1]}"

    def _close_if_idle(self, end: End, now: float) -> None:
        if self._ends.get(end.node) is not end:
            return
        idle_at = end.last_active + self._idle_timeout
        if now < idle_at:
            self._world.at(idle_at, partial(self._close_if_idle, end))
            return
        self._net.seen["idle connections closed"] += 1
        del self._ends[end.node]
        end.close()
        cause = DisconnectedError(f"closed here, unused for {self._idle_timeout:g} s", broker=str(end.node))
        self._next_results.disconnected.append(Disconnection(end.node, cause, is_idle=True))
        self._wake_loop()

    def _backoff_of(self, node: Node) -> ReconnectBackoff:
        if node not in self._backoffs:
            self._backoffs[node] = ReconnectBackoff(self._backoff, self._random)
        return self._backoffs[node]

    def _end(self, node: Node) -> End:
        if node not in self._ends:
            raise ValueError(f"node {node} is not connected")
        return self._ends[node]


class _Results:
    """The results of one poll."""

    def __init__(self) -> None:
        self.connected: list[Node] = []
        self.disconnected: list[Disconnection] = []
        self.completed_sends: list[Sent] = []
        self.completed_receives: list[Receive] = []
        self.accepted: list[Node] = []

    def forget(self, node: Node) -> None:
        """Remove a node that was closed here from all results."""
        self.connected = [one for one in self.connected if one != node]
        self.accepted = [one for one in self.accepted if one != node]
        self.disconnected = [one for one in self.disconnected if one.node != node]
        self.completed_receives = [one for one in self.completed_receives if one.node != node]

    def __bool__(self) -> bool:
        """Return whether there are results apart from completed sends."""
        return bool(self.completed_receives or self.connected or self.disconnected or self.accepted)


def _encoded(frame: Frame) -> bytes:
    body = bytes(frame) if isinstance(frame, bytes | bytearray | memoryview) else b"".join(frame)
    return SIZE.pack(len(body)) + body
