"""The connections of a tap: each of a client has one to a broker, and frames pass from one to the other.

Frames pass as they are, but for responses that name brokers, and for what chaos rules ask for. Responses keep their
order on a connection. A side that reads slowly stops the reading of the other. When one side ends, the other gets what
was received before, and ends then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from math import inf

from kwire.capture import CapturedConnection, CapturedFrame
from kwire.capture.frames import FRAME_SIZE_MAX, is_request
from kwire.errors import ConfigurationError, DecodeError, KwireError, NotKafkaError, TlsError
from kwire.net import Clock, KafkaSelector, Tls
from kwire.net.selector import Disconnection, Node
from kwire.protocol import ApiKey, api
from kwire.protocol.headers import decode_response, encode_response
from kwire.session import ConnectionBroken, Event, Sasl, Session
from kwire.tap.addresses import Frame, may_name_brokers, request_key, rewritten, version_of_response
from kwire.tap.chaos import NOTHING, Chaos, Disturbance
from kwire.tap.recorder import Recorder
from kwire.wire.varint import decode_uvarint

# Reading stops while the other side has so many bytes to take, until half of them are gone.
_QUEUED_BYTES_MAX = 16 * 1024 * 1024
_CLOSE_TIMEOUT_SECONDS = 5.0
_IN_FLIGHT_MAX = 100_000
_CLIENT_ID_AT = 8
_PRODUCE_WITH_TRANSACTION, _PRODUCE_FLEXIBLE = 3, 9
# The brokers end idle connections.
_IDLE_MS = 7 * 86_400_000

Address = tuple[str, int]


@dataclass(slots=True)
class _Request:
    """What a request says of its response."""

    key: int
    version: int
    correlation_id: int
    captured: CapturedFrame | None = None
    is_token: bool = False
    disturbance: Disturbance = NOTHING


@dataclass(eq=False, slots=True)
class _Link:
    """A client's connection and the one to its broker."""

    client: Node
    broker: Node
    connection: CapturedConnection
    address: Address  # of the broker
    session: Session | None = None  # while the tap authenticates
    waiting: list[Frame] = field(default_factory=list)  # requests until then
    in_flight: deque[_Request] = field(default_factory=deque)
    late: deque[tuple[float, Frame]] = field(default_factory=deque)  # delayed responses: when, frame
    paused: set[Node] = field(default_factory=set)
    requests: int = 0
    is_dialed: bool = False
    sends_tokens: bool = False
    is_ending: bool = False

    def other(self, node: Node) -> Node:
        return self.broker if node == self.client else self.client


class Proxy:
    """All connections of a tap, used from one thread: `turn` until `close`.

    Raises ConnectError if it cannot listen, ConfigurationError for `sasl` that takes time, such as tokens.
    """

    def __init__(
        self,
        bootstrap: list[Address],
        recorder: Recorder,
        clock: Clock,
        *,
        listen: Address = ("127.0.0.1", 0),
        advertise: str | None = None,
        tls: Tls | bool | None = None,
        sasl: Sasl | None = None,
        tls_in: Tls | None = None,
        chaos: Chaos | None = None,
        on_remark: Callable[[str], object] = lambda text: None,
        tick_seconds: float = inf,
        on_tick: Callable[[int], object] = lambda at_ns: None,
    ) -> None:
        if sasl is not None:
            try:
                sasl.exchange("")
            except ConfigurationError:
                raise ConfigurationError(
                    f"a tap cannot log in with {sasl.identity}: it has no thread that may wait for it",
                    remedy="give a user name and a password, or let the clients log in through the tap",
                ) from None
        self._recorder = recorder
        self._clock = clock
        self._bootstrap = bootstrap
        self._listen_host = listen[0]
        self._advertise = advertise or listen[0]
        self._sasl = sasl
        self._tls_in = tls_in
        self._chaos = chaos
        self._on_remark = on_remark
        self._tick_seconds = tick_seconds
        self._on_tick = on_tick
        self._next_tick = clock.now() if tick_seconds < inf else inf  # the first one says when the tap starts
        self._selector = KafkaSelector(
            clock=clock, tls=tls, reuse_buffers=True, idle_timeout_ms=_IDLE_MS, max_frame_bytes=FRAME_SIZE_MAX,
            reconnect_backoff_ms=0, reconnect_backoff_ms_max=0,
        )  # fmt: skip
        self._wall_ns = int(datetime.now(UTC).timestamp() * 1e9) - int(clock.now() * 1e9)
        self._links: dict[Node, _Link] = {}
        self._sends: list[tuple[Node, Frame]] = []
        self._closing: dict[Node, float] = {}
        self._numbers = count(1)
        self._written_to: set[Node] = set()  # in this turn
        self._paused: set[_Link] = set()
        self._late: set[_Link] = set()  # with responses that wait for their time
        self._brokers: dict[int, Address | None] = {}  # port of a listener -> its broker; None: the bootstrap brokers
        self._listeners: dict[Address, Address] = {}  # broker -> where the tap listens for it
        try:
            first = self._selector.listen(*listen, tls=tls_in)
        except KwireError:
            self._selector.close()
            raise
        self.address: Address = (self._advertise, first[1])
        self._brokers[first[1]] = None
        if len(bootstrap) == 1:
            self._listeners[bootstrap[0]] = self.address
        self._next_bootstrap = 0

    @property
    def brokers(self) -> dict[Address, Address]:
        """Return where the tap listens for each broker that it knows."""
        return dict(self._listeners)

    def wakeup(self) -> None:
        self._selector.wakeup()

    @property
    def has_clients(self) -> bool:
        """Return whether a client is connected, or what it sent is still to be passed on; for any thread."""
        return bool(self._links)

    def close(self) -> None:
        """End all connections, and report the requests that still wait for a response as unanswered."""
        try:
            for link in sorted(set(self._links.values()), key=lambda link: link.connection.number):
                if not link.is_ending:
                    self._finish(link, by_client=False)
        finally:
            self._selector.close()
            self._recorder.close()

    def turn(self, timeout: float | None = None) -> None:
        """Move frames for at most `timeout` seconds (None: until something happens)."""
        sends, self._sends = self._sends, []
        self._written_to = {node for node, _ in sends}
        self._selector.poll(sends, self._wait(timeout), until_sent=False)
        for node in self._selector.accepted:
            self._accept(node)
        for node in self._selector.connected:
            self._connected(node)
        for node, frame in self._selector.completed_receives:
            link = self._links.get(node)
            if link is not None:
                if node == link.client:
                    self._request(link, frame)
                else:
                    self._response(link, frame)
        for one in self._selector.disconnected:
            self._disconnected(one)
        self._release_late()
        self._apply_backpressure()
        self._close_finished()
        # What was received is on its way before it is decoded and written.
        if self._recorder.has_work and not self._sends:
            self._recorder.work()
        self._tick()

    def _tick(self) -> None:
        now = self._clock.now()
        if now >= self._next_tick:  # those that were missed, as while the machine slept, are left out
            self._next_tick = now + self._tick_seconds - (now - self._next_tick) % self._tick_seconds
            self._on_tick(self._now_ns())

    def _wait(self, timeout: float | None) -> float | None:
        if self._recorder.has_work:
            return 0.0
        now = self._clock.now()
        until = [self._next_tick, *self._closing.values(), *(link.late[0][0] for link in self._late if link.late)]
        if self._closing or self._paused:
            until.append(now + 0.01)
        until = [at for at in until if at < inf]
        earliest = max(0.0, min(until) - now) if until else None
        return earliest if timeout is None else timeout if earliest is None else min(timeout, earliest)

    def _now_ns(self) -> int:
        return self._wall_ns + int(self._clock.now() * 1e9)

    # Connections

    def _accept(self, node: Node) -> None:
        try:
            port, client = self._selector.sockname(node)[1], self._selector.peername(node)
        except (OSError, ValueError):  # it closed within the same poll
            return
        broker = self._brokers[port]
        if broker is None:
            broker = self._bootstrap[self._next_bootstrap % len(self._bootstrap)]
            self._next_bootstrap += 1
        number = next(self._numbers)
        ends = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in (client, broker)]
        link = _Link(node, ("broker", number), CapturedConnection(number, ends[0], ends[1]), broker)
        if self._sasl is not None:
            link.session = Session.client(ends[1], sasl=self._sasl)
        self._links[node] = self._links[link.broker] = link
        self._recorder.opened(link.connection, client, broker)

    def _connected(self, node: Node) -> None:
        link = self._links.get(node)
        if link is not None and node == link.broker and link.session is not None:
            self._advance_session(link, link.session.start(self._clock.now()))

    def _advance_session(self, link: _Link, events: Iterable[Event]) -> None:
        """Go on with the tap's own handshake; afterwards send what has waited."""
        session = link.session
        assert session is not None
        self._sends += [(link.broker, b"".join(bytes(part) for part in parts)) for parts in session.frames()]
        for event in events:
            if isinstance(event, ConnectionBroken):
                self._remark(link, event.error, "the tap could not authenticate: ")
                self._end(link, link.client, self._clock.now())
                return
        if session.is_ready and not session.has_frames:
            link.session = None
            self._sends += [(link.broker, frame) for frame in link.waiting]
            link.waiting.clear()

    def _disconnected(self, one: Disconnection) -> None:
        link = self._links.get(one.node)
        if link is None:
            return
        by_client = one.node == link.client
        if (not by_client and one.unsent and not link.is_ending) or isinstance(one.cause, TlsError | NotKafkaError):
            self._remark(link, one.cause, "from the client: " if by_client else "")
        self._links.pop(one.node)
        if link.is_ending:
            return
        self._finish(link, by_client=by_client)
        if not by_client:
            self._sends += [(link.client, frame) for at, frame in link.late if at < inf]
        link.late.clear()
        self._closing[link.other(one.node)] = self._clock.now() + _CLOSE_TIMEOUT_SECONDS

    def _remark(self, link: _Link, error: KwireError, what: str = "") -> None:
        self._on_remark(f"{link.connection}: {what}{error.text(without=('broker',))}")

    def _finish(self, link: _Link, *, by_client: bool) -> None:
        """Tell the recorder that a connection has ended, and which requests got no response."""
        link.is_ending = True
        for request in link.in_flight:
            if request.captured is not None:
                self._recorder.unanswered(request.captured)
        self._recorder.closed(link.connection, self._now_ns(), by_client=by_client)

    def _end(self, link: _Link, first: Node, now: float) -> None:
        """End both sides of a connection, as a chaos rule or a failed authentication asks for."""
        self._finish(link, by_client=False)
        for node in (first, link.other(first)):
            self._closing[node] = now + _CLOSE_TIMEOUT_SECONDS

    def _close_finished(self) -> None:
        if not self._closing:
            return
        now = self._clock.now()
        unsent = {node for node, _ in self._sends}
        for node, until in list(self._closing.items()):
            if now >= until or (node not in unsent and not self._selector.bytes_queued(node)):
                self._selector.disconnect(node)
                del self._closing[node]
                self._links.pop(node, None)

    def _apply_backpressure(self) -> None:
        """Stop reading from a side while the other has too much to take."""
        nodes = self._written_to | {link.other(node) for link in self._paused for node in link.paused}
        for node in nodes:
            link = self._links.get(node)
            if link is None or link.is_ending:
                continue
            other = link.other(node)
            if not self._selector.is_connected(other):
                continue
            queued = self._selector.bytes_queued(node)
            if other not in link.paused and queued > _QUEUED_BYTES_MAX:
                self._selector.pause(other)
                link.paused.add(other)
                self._paused.add(link)
            elif other in link.paused and queued <= _QUEUED_BYTES_MAX // 2:
                self._selector.resume(other)
                link.paused.discard(other)
        self._paused = {link for link in self._paused if link.paused and not link.is_ending}

    # Frames

    def _request(self, link: _Link, frame: Frame) -> None:
        if link.is_ending:
            return
        # Only now, so that the tap has seen what the client asked of a broker that is down.
        if not link.is_dialed:
            link.is_dialed = True
            self._selector.connect(link.broker, *link.address)
        link.requests += 1
        found = request_key(frame)
        is_token = link.sends_tokens and not is_request(len(frame).to_bytes(4, "big") + bytes(frame[:300]))
        link.sends_tokens &= is_token
        key, version, correlation_id = (-1, -1, 0) if is_token or found is None else found
        request = _Request(key, version, correlation_id, is_token=is_token)
        if key == ApiKey.SASL_HANDSHAKE and version == 0:
            link.sends_tokens = True
        has_response = key != ApiKey.PRODUCE or _expects_response(frame, version)
        if self._recorder.is_needed:
            request.captured = CapturedFrame(
                link.connection, "request", api(key) if key >= 0 else None, version, bytes(frame), 0, 0,
                self._now_ns(), is_token=is_token, request=link.requests, expects_response=has_response,
            )  # fmt: skip
            self._recorder.add(request.captured)
        if self._chaos is not None and key >= 0:
            request.disturbance = self._chaos.decide(key, _client_id(frame))
            if request.disturbance.disconnect == "before":
                self._end(link, link.client, self._clock.now())
                return
        if has_response:
            link.in_flight.append(request)
            if len(link.in_flight) > _IN_FLIGHT_MAX:
                link.in_flight.popleft()
        if link.session is not None:
            link.waiting.append(bytes(frame))
        else:
            self._sends.append((link.broker, frame))

    def _response(self, link: _Link, frame: Frame) -> None:
        if link.is_ending:
            return
        if link.session is not None:
            self._advance_session(link, link.session.receive(bytes(frame), self._clock.now()))
            return
        request = self._request_of(link, frame)
        if request is None:
            self._sends.append((link.client, frame))
            return
        version = version_of_response(request.key, request.version, frame)
        passed = frame
        try:
            if request.key >= 0 and may_name_brokers(request.key, version):
                passed = rewritten(frame, request.key, version, self._translate) or frame
            if request.disturbance.throttle_ms:
                passed = _throttled(passed, request.key, version, request.disturbance.throttle_ms)
        except KwireError as error:
            # The client would bypass the tap by addresses that the tap could not replace.
            name = api(request.key).name
            self._on_remark(f"{link.connection}: the {name} v{version} response cannot be read: {error}; closed")
            self._end(link, link.client, self._clock.now())
            return
        if request.captured is not None:
            at_ns = self._now_ns()
            response = CapturedFrame(
                link.connection, "response", request.captured.api, version, bytes(frame), 0, 0, at_ns,
                latency_ns=at_ns - request.captured.at_ns, is_token=request.is_token, request=request.captured.request,
            )  # fmt: skip
            self._recorder.add(response, request.captured)
        self._pass_on(link, passed, request.disturbance)

    def _pass_on(self, link: _Link, frame: Frame, disturbance: Disturbance) -> None:
        if disturbance.disconnect == "after":
            self._end(link, link.client, self._clock.now())
        elif disturbance.mute:
            link.late.append((inf, bytes(frame)))  # and so do those behind it
            self._late.add(link)
        elif disturbance.delay or link.late:
            at = self._clock.now() + disturbance.delay
            link.late.append((max(at, link.late[-1][0]) if link.late else at, bytes(frame)))
            self._late.add(link)
        else:
            self._sends.append((link.client, frame))

    def _release_late(self) -> None:
        now = self._clock.now()
        for link in list(self._late):
            while link.late and link.late[0][0] <= now:
                self._sends.append((link.client, link.late.popleft()[1]))
            if not link.late:
                self._late.discard(link)

    def _request_of(self, link: _Link, frame: Frame) -> _Request | None:
        """Return the request of a response, which comes in order."""
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        for index, request in enumerate(link.in_flight):
            if request.is_token or request.key < 0 or request.correlation_id == correlation_id:
                for _ in range(index):
                    link.in_flight.popleft()
                return link.in_flight.popleft()
        return None

    def _translate(self, host: str, port: int) -> Address:
        """Return where the tap listens for a broker; begin to listen there the first time."""
        address = self._listeners.get((host, port))
        if address is None:
            listener = self._selector.listen(self._listen_host, 0, tls=self._tls_in)
            address = self._listeners[host, port] = (self._advertise, listener[1])
            self._brokers[listener[1]] = (host, port)
            self._on_remark(f"listening on {address[0]}:{address[1]} for {host}:{port}")
        return address


def _expects_response(frame: Frame, version: int) -> bool:
    """Return False for a Produce with acks 0: the two bytes behind the transactional id, which is behind the header."""
    try:
        pos = _CLIENT_ID_AT + 2 + max(0, int.from_bytes(frame[_CLIENT_ID_AT : _CLIENT_ID_AT + 2], "big", signed=True))
        if version >= _PRODUCE_FLEXIBLE:
            tags, pos = decode_uvarint(frame, pos)
            length, pos = decode_uvarint(frame, pos)
            if tags:  # none are defined
                return True
            pos += max(0, length - 1)
        elif version >= _PRODUCE_WITH_TRANSACTION:
            pos += 2 + max(0, int.from_bytes(frame[pos : pos + 2], "big", signed=True))
    except DecodeError:
        return True
    return bytes(frame[pos : pos + 2]) != b"\0\0"


def _client_id(frame: Frame) -> str | None:
    begin = _CLIENT_ID_AT + 2
    size = int.from_bytes(frame[_CLIENT_ID_AT:begin], "big", signed=True)
    return bytes(frame[begin : begin + size]).decode(errors="replace") if size >= 0 else None


def _throttled(frame: Frame, key: int, version: int, throttle_ms: int) -> Frame:
    """Return the response with a throttle time, if it has such a field."""
    correlation_id, response = decode_response(frame, api(key).request, version)
    if not hasattr(response, "throttle_time_ms"):
        return frame
    response.throttle_time_ms = throttle_ms
    return b"".join(encode_response(response, version, correlation_id))
