"""One direction of a connection: bytes on their way, in order, each stretch with its time of arrival.

One direction of a connection: bytes on their way, in order, each stretch with its time of arrival.

Owns everything that can happen to bytes between two ends: delay, pieces, a trickle, a standstill, an end after any
byte, and silence, in which bytes vanish and neither end hears of it. It never reorders: only connections overtake each
other. It refuses to know what the bytes mean.

A simulated connection: two pipes and the two ends between which they lie.

Owns what a kernel owns of a TCP connection: when an end learns that the other is gone, and what becomes of bytes that
are on their way then. Frames are put together by the same `FrameReader` that real sockets have.

The simulated network: who listens where, who is connected, and what of that a fault may touch.

Owns addresses, dialling and the list of connections. Chance comes from one generator, so that a seed repeats a run.

SimulatedSelector: the face of `KafkaSelector` over the simulated network.

Owns what the real one owns (attempts, back-off, the lists of a poll, idleness), and takes the real one's back-off and
frames, so that only sockets and time are made up. Where the real one would sleep it raises `WouldSleepError`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from itertools import count
from random import Random
from typing import Any, Protocol

from kwire.cluster import ClientConfig
from kwire.errors import ConnectError, DisconnectedError, NodeError
from kwire.net import Disconnection, Node, Receive, Sent
from kwire.net.backoff import Backoff, ReconnectBackoff
from kwire.net.timers import Timer
from kwire.simulation.world import Trace, World, WouldSleepError
from kwire.wire.frame import MAX_FRAME_BYTES, SIZE, BytesLike, Frame, FrameReader


class Mark(Enum):
    """What travels in a pipe besides bytes."""

    OPEN = auto()  # to the end that dialled: the other has accepted
    END = auto()


Piece = bytes | Mark


@dataclass(frozen=True, slots=True)
class Weather:
    """How fast bytes are, in seconds: a base, exponential jitter, now and then a spike; and how often they arrive in
    two pieces."""

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
    """`arrive` is told what comes out; `cut` is called when `cut_after` more bytes have been let in."""

    def __init__(
        self,
        world: World,
        random: Random,
        weather: Weather,
        arrive: Callable[[Piece], None],
        cut: Callable[[], None],
    ) -> None:
        self.cut_after: int | None = None
        self.trickle: tuple[int, float, float] | None = None  # bytes, seconds between them, until when
        self._world = world
        self._random = random
        self._weather = weather
        self._arrive = arrive
        self._cut = cut
        self._way: deque[tuple[float, Piece]] = deque()
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
        self._put(Mark.OPEN)

    def end(self, *, keeps: bool) -> None:
        """No more bytes. `keeps`: those that are on their way arrive; else they are lost, as in a reset."""
        if not self._is_ended:
            if not keeps:
                self._way = deque(entry for entry in self._way if entry[1] is Mark.OPEN)
            self._is_ended = True
            self._put(Mark.END)

    def discard(self) -> None:
        """Nobody listens any more."""
        self._is_ended = True
        self._way.clear()

    def silence(self) -> None:
        """Whatever is or will be in it never arrives."""
        self._is_silent = True
        self._way.clear()

    def hold(self, until: float) -> None:
        """Nothing comes out before `until`; then all does."""
        self._held_until = max(self._held_until, until)
        self._schedule()

    def release(self) -> None:
        self._held_until = 0.0
        self.trickle = None
        self._schedule()

    def pause(self, is_paused: bool) -> None:
        """The end that it leads to does not read, or does again."""
        self._is_paused = is_paused
        self._schedule()

    def _pieces(self, data: bytes) -> list[bytes]:
        if not data:
            return []
        if self.trickle is not None and self._world.now() < self.trickle[2]:
            size = self.trickle[0]
            return [data[start : start + size] for start in range(0, len(data), size)]
        if len(data) > 1 and self._random.random() < self._weather.split_chance:
            middle = self._random.randrange(1, len(data))
            return [data[:middle], data[middle:]]
        return [data]

    def _put(self, piece: Piece) -> None:
        if self._is_silent:
            return
        now = self._world.now()
        arrives = max(now + self._weather.delay(self._random), self._last_at)
        if self.trickle is not None and now < self.trickle[2] and self._way:
            arrives = max(arrives, self._last_at + self.trickle[1])
        self._last_at = arrives
        self._way.append((arrives, piece))
        self._schedule()

    def _schedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._way and not self._is_paused:
            self._timer = self._world.at(max(self._way[0][0], self._held_until), self._deliver)

    def _deliver(self, now: float) -> None:
        self._timer = None
        if self._way:
            self._arrive(self._way.popleft()[1])
        if self._timer is None:
            self._schedule()


Address = tuple[str, int]

# How often bytes outlive the end of the connection that they were written to.
_SURVIVAL = 0.75


class Owner(Protocol):
    """What an end tells: the selector that it belongs to."""

    name: str
    max_frame_bytes: int

    def name_peer(self) -> Any: ...
    def opened(self, end: End) -> None: ...
    def received(self, end: End, frames: list[BytesLike]) -> None: ...
    def ended(self, end: End, cause: NodeError) -> None: ...


class Ground(Protocol):
    """What a connection lies in: the net."""

    world: World
    trace: Trace
    seen: Counter[str]

    def forget(self, connection: Connection) -> None: ...


class End:
    """What a socket is to its selector. `out` leads to the other end."""

    def __init__(self, selector: Owner, node: Any, connection: Connection, *, is_accepted: bool) -> None:
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
        """The owner closes it: the other end will hear of it, and what is on its way to it may still arrive."""
        if not self.is_closed:
            self.is_closed = True
            self.into.discard()
            self.out.end(keeps=self.connection.survives())
            self.connection.closed()

    def arrived(self, piece: Piece) -> None:
        net = self.connection.net
        now = net.world.now()
        if isinstance(piece, Mark):
            net.trace.note(now, f"{self.connection} {piece.name} at {self.selector.name}")
            if piece is Mark.OPEN:
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
            net.seen["frames from an end that was gone"] += len(frames)
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
    """From a client to a broker's address."""

    def __init__(
        self, net: Ground, number: int, client: tuple[Owner, Any], broker: tuple[Owner, Any],
        address: Address, weather: Weather, random: Random,
    ) -> None:  # fmt: skip
        self.net = net
        self.number = number
        self.address = address
        self._random = random
        self.client = End(*client, self, is_accepted=False)
        self.broker = End(*broker, self, is_accepted=True)
        up = Pipe(net.world, random, weather, self.broker.arrived, self.lose)
        down = Pipe(net.world, random, weather, self.client.arrived, self.lose)
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
        """The connection is lost between its ends: each finds out for itself."""
        self.client.out.end(keeps=self.survives())
        self.broker.out.end(keeps=self.survives())

    def silence(self) -> None:
        """It stays open at both ends, and nothing gets through any more."""
        self.client.out.silence()
        self.broker.out.silence()

    def survives(self) -> bool:
        return self._random.random() < _SURVIVAL

    def closed(self) -> None:
        if self.is_over:
            self.net.forget(self)


Touch = Callable[[Connection], None]


class Net:
    """`seen` counts what happened to bytes and connections, so that an idle simulation is noticed."""

    def __init__(self, world: World, random: Random, trace: Trace, weather: Weather | None = None) -> None:
        self.world = world
        self.trace = trace
        self.seen: Counter[str] = Counter()
        self.connections: dict[Connection, None] = {}  # an ordered set
        self._random = random
        self._weather = weather or Weather()
        self._listeners: dict[Address, Owner] = {}
        self._numbers = count(1)
        self._refused_until: dict[Address, float] = {}
        self._swallowed_until: dict[Address, float] = {}
        self._armed: list[tuple[str | None, Address, Touch]] = []
        self._lasting: list[tuple[float, str | None, Address, Touch]] = []

    # Listening and dialling.

    def listen(self, address: Address, selector: Owner) -> None:
        assert address not in self._listeners, f"{address} is taken"
        self._listeners[address] = selector

    def stop_listening(self, address: Address) -> None:
        del self._listeners[address]

    def dial(self, selector: Owner, node: Any, address: Address, connected: Touch, refused: Callable[[], None]) -> None:
        """Tells one of the two, later; neither, when the packets are swallowed."""
        now = self.world.now()
        if now < self._swallowed_until.get(address, 0.0):
            self.seen["dials swallowed"] += 1
            return

        def arrive(now: float) -> None:
            listener = self._listeners.get(address)
            if listener is None or now < self._refused_until.get(address, 0.0):
                self.seen["dials refused"] += 1
                self.world.at(now + self._weather.delay(self._random), lambda _: refused())
                return
            accepted = listener, listener.name_peer()
            connection = Connection(
                self, next(self._numbers), (selector, node), accepted, address, self._weather, self._random
            )
            self.seen["connections"] += 1
            self.connections[connection] = None
            self.trace.note(now, f"{connection} is accepted")
            listener.opened(connection.broker)
            connected(connection)
            self._touch(connection)

        self.world.at(now + self._weather.delay(self._random), arrive)

    def forget(self, connection: Connection) -> None:
        self.connections.pop(connection, None)

    # What faults do.

    def between(self, client: str | None, address: Address) -> Iterator[Connection]:
        """The connections of a client (None: of all) to an address that both ends have open, newest first."""
        for connection in reversed(list(self.connections)):
            if _concerns(connection, client, address) and not (
                connection.client.is_closed or connection.broker.is_closed
            ):
                yield connection

    def touch(self, client: str | None, address: Address, touch: Touch) -> None:
        """Do something to the newest such connection; to the next one that is made when there is none."""
        connection = next(self.between(client, address), None)
        if connection is not None:
            touch(connection)
        else:
            self._armed.append((client, address, touch))

    def touch_all(self, client: str | None, address: Address, touch: Touch, until: float) -> None:
        """Do something to all such connections, and to those that are made before `until`."""
        for connection in self.between(client, address):
            touch(connection)
        self._lasting.append((until, client, address, touch))

    def refuse(self, address: Address, until: float) -> None:
        self._refused_until[address] = until

    def swallow(self, address: Address, until: float) -> None:
        self._swallowed_until[address] = until

    def heal(self) -> None:
        """All faults are over. Connections that were silenced stay dead: nobody mends those but who gives them up."""
        self._armed.clear()
        self._lasting.clear()
        self._refused_until.clear()
        self._swallowed_until.clear()
        for connection in self.connections:
            for to_broker in (True, False):
                pipe = connection.pipe(to_broker=to_broker)
                pipe.cut_after = None
                pipe.release()

    def _touch(self, connection: Connection) -> None:
        now = self.world.now()
        self._lasting = [entry for entry in self._lasting if entry[0] > now]
        for _, client, address, touch in self._lasting:
            if _concerns(connection, client, address):
                touch(connection)
        for armed in self._armed:
            if _concerns(connection, armed[0], armed[1]):
                self._armed.remove(armed)
                armed[2](connection)
                break


def _concerns(connection: Connection, client: str | None, address: Address) -> bool:
    return connection.address == address and client in (None, connection.client.selector.name)


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
