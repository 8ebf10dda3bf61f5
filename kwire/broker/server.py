"""The brokers on real sockets: one selector for all of them, one `Connection` for each client.

Each turn of the loop passes received frames to the connections, runs the timers, and queues what the connections send.
A server is used from one thread; `Cluster` has that thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf

from kwire.broker.broker import Broker
from kwire.broker.certificate_names import subject_name
from kwire.broker.cluster_state import ClusterState
from kwire.broker.connection import Connection, FrameParts, RawBytes
from kwire.broker.diagnostics import logger
from kwire.broker.handlers.table import HANDLERS
from kwire.broker.listeners import security_protocol
from kwire.broker.request_log import RequestRecord
from kwire.errors import DisconnectedError
from kwire.net import Clock, KafkaSelector, Tls
from kwire.net.selector import Disconnection, Node
from kwire.session import SaslServer

# How long a closing connection may take to write its last bytes.
_CLOSE_TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class _Bound:
    """What connections of one listening socket reach."""

    broker: int
    name: str  # of the listener
    sasl: SaslServer | None


class Server:
    """All brokers of a cluster. `failures` collects bugs of the brokers, and what functions of a test raised: it should
    be empty."""

    def __init__(
        self,
        cluster: ClusterState,
        selector: KafkaSelector,
        clock: Clock,
        *,
        apis: Mapping[int, range],
        apis_of: Mapping[int, Mapping[int, range]] | None = None,
        tls: Tls | None = None,
        sasl: SaslServer | None = None,
    ) -> None:
        self.cluster = cluster
        self.brokers = {id: Broker(id, cluster, HANDLERS) for id in cluster.nodes}
        self.failures: list[BaseException] = []
        self._selector = selector
        self._clock = clock
        self._apis = apis
        self._apis_of = dict(apis_of or {})  # of brokers that serve other versions than the others
        self._tls = tls
        self._sasl = sasl
        self._listeners: dict[tuple[str, int], _Bound] = {}  # by address
        self._main = security_protocol(has_tls=tls is not None, has_sasl=sasl is not None)
        self._connections: dict[Node, Connection] = {}
        self._nodes: dict[Connection, Node] = {}
        self._ready: dict[Connection, None] = {}
        self._paused: dict[Node, None] = {}
        self._frozen: set[int] = set()
        self._closing: dict[Node, float] = {}  # the deadline of each
        self._sends: list[tuple[Node, FrameParts]] = []

    # Brokers.

    def listen(self, id: int, host: str, port: int) -> None:
        """Listen for a broker. Raises ConnectError if the address is not available."""
        address = self._selector.listen(host, port, tls=self._tls)
        self._listeners[address] = _Bound(id, self._main, self._sasl)
        self.cluster.nodes[id].port = address[1]

    def listen_too(self, id: int, name: str, host: str, port: int, *, tls: Tls | None, has_sasl: bool) -> int:
        """Add a listener to a broker. Return its port. Raises ConnectError if the address is not available."""
        address = self._selector.listen(host, port, tls=tls)
        self._listeners[address] = _Bound(id, name, self._sasl if has_sasl else None)
        return address[1]

    def stop_broker(self, id: int) -> None:
        """Close a broker's listener and connections at once, whatever was being written."""
        self._frozen.discard(id)
        for address in [address for address, bound in self._listeners.items() if bound.broker == id]:
            del self._listeners[address]
            self._selector.stop_listening(address)
        for node in [node for node, connection in self._connections.items() if connection.broker.id == id]:
            self._disconnect(node)

    def serve_as(self, id: int, apis: Mapping[int, range]) -> None:
        """Let a broker serve these versions to new connections, and close those that it has."""
        self._apis_of[id] = apis
        for node in [node for node, connection in self._connections.items() if connection.broker.id == id]:
            self._disconnect(node)

    def freeze(self, id: int) -> None:
        """Let a broker do nothing: connections open, and nothing is answered, as of a stopped process."""
        self._frozen.add(id)

    def thaw(self, id: int) -> None:
        """Let a frozen broker go on with what has come meanwhile."""
        self._frozen.discard(id)
        for connection in self._connections.values():
            if connection.broker.id == id:
                self._mark_ready(connection)

    def close(self) -> None:
        """Close all connections and the selector."""
        now = self._clock.now()
        for connection in self._connections.values():
            connection.closed(now)
        self._connections.clear()
        self._selector.close()

    # The loop.

    def turn(self, timeout: float | None = None) -> None:
        """Poll the selector for at most `timeout` seconds (None: no limit), and handle what it reports."""
        sends, self._sends = self._sends, []
        self._selector.poll(sends, self._wait(timeout))
        now = self._clock.now()
        for node in self._selector.accepted:
            self._accept(node)
        for receive in self._selector.completed_receives:
            connection = self._connections.get(receive.node)
            if connection is not None:
                self._run_guarded(connection, partial(connection.receive, receive.frame, now))
        for disconnection in self._selector.rejected:
            _log_disconnection("a rejected connection", disconnection)
        for disconnection in self._selector.disconnected:
            connection = self._connections.get(disconnection.node)
            if connection is not None:
                _log_disconnection(str(connection.client), disconnection)
            self._remove(disconnection.node, now)
        self._run_guarded(None, partial(self.cluster.timers.run, now))
        self.process_ready(now)
        self._close_finished(now)

    def process_ready(self, now: float) -> None:
        """Advance the connections that are ready, because of a frame, a response or a timer."""
        while self._ready:
            ready, self._ready = list(self._ready), {}
            for connection in ready:
                node = self._nodes.get(connection)
                if node is not None:
                    self._run_guarded(connection, partial(self._advance, connection, node, now))

    def _wait(self, timeout: float | None) -> float | None:
        earliest = min([*self._closing.values(), self.cluster.timers.next_at])
        if earliest == inf:
            return timeout
        until = max(0.0, earliest - self._clock.now())
        return until if timeout is None else min(until, timeout)

    def _accept(self, node: Node) -> None:
        try:
            address, client_host = self._selector.sockname(node), self._selector.peername(node)[0]
            certificate = self._selector.peer_certificate(node)
        except (OSError, ValueError):  # it closed within the same poll
            return
        try:
            name = subject_name(certificate) if certificate is not None else None
        except ValueError as error:
            logger.warning("the broker closes a new connection from %s: %s", client_host, error)
            self._selector.disconnect(node)
            return
        bound = self._bound_at(address)
        limit = self.cluster.options.max_connections
        if bound is None or len(self._connections) >= limit:
            if bound is not None:
                logger.warning(
                    "broker %d closes a new connection from %s: max_connections is %d",
                    bound.broker,
                    client_host,
                    limit,
                )
            self._selector.disconnect(node)
            return
        connection = Connection(
            self.brokers[bound.broker],
            apis=self._apis_of.get(bound.broker, self._apis),
            sasl=bound.sasl,
            listener=bound.name,
            client_host=client_host,
            certificate_name=name,
            on_ready=self._mark_ready,
        )
        self._connections[node] = connection
        self._nodes[connection] = node

    def _bound_at(self, address: tuple[str, int]) -> _Bound | None:
        """Return the listener of an accepted connection. One of all addresses (0.0.0.0) is known by its port alone."""
        by_port = (bound for (_, port), bound in self._listeners.items() if port == address[1])
        return self._listeners.get((address[0], address[1])) or next(by_port, None)

    def _mark_ready(self, connection: Connection) -> None:
        self._ready[connection] = None

    def _advance(self, connection: Connection, node: Node, now: float) -> None:
        if connection.broker.id in self._frozen:
            self._apply_backpressure(connection, node)
            return
        for frame in connection.turn(now):
            if isinstance(frame, RawBytes):
                self._send_raw(node, frame.data)
            else:
                self._sends.append((node, frame))
        if connection.is_reset or connection.is_forgotten:
            self._abandon(connection, node, now)
            return
        if connection.is_closing:
            self._closing.setdefault(node, now + _CLOSE_TIMEOUT_SECONDS)
        self._apply_backpressure(connection, node)

    def _abandon(self, connection: Connection, node: Node, now: float) -> None:
        """End a connection at once. The socket of a forgotten one stays open for `idle_timeout_ms`, unread."""
        self._sends = [send for send in self._sends if send[0] != node]
        if connection.is_reset:
            self._selector.reset(node)
        else:
            self._selector.pause(node)
        self._remove(node, now)

    def _send_raw(self, node: Node, data: bytes) -> None:
        """Write raw bytes after the frames that wait for the next poll: the selector queues raw bytes at once."""
        for body in [b"".join(pieces) for other, pieces in self._sends if other == node]:
            self._selector.send_raw(node, len(body).to_bytes(4, "big") + body)
        self._sends = [send for send in self._sends if send[0] != node]
        self._selector.send_raw(node, data)

    def _apply_backpressure(self, connection: Connection, node: Node) -> None:
        """Stop reading from a client with too many queued requests until its queue is half empty."""
        limit = self.cluster.options.max_queued_requests
        if node not in self._paused and connection.queued > limit:
            self._selector.pause(node)
            self._paused[node] = None
        elif node in self._paused and connection.queued <= limit // 2:
            self._selector.resume(node)
            del self._paused[node]

    def _close_finished(self, now: float) -> None:
        unsent = {node for node, _ in self._sends}
        for node, until in list(self._closing.items()):
            if now >= until or (node not in unsent and not self._selector.bytes_queued(node)):
                self._disconnect(node)

    def _disconnect(self, node: Node) -> None:
        self._selector.disconnect(node)
        self._sends = [send for send in self._sends if send[0] != node]
        self._remove(node, self._clock.now())

    def _remove(self, node: Node, now: float) -> None:
        connection = self._connections.pop(node, None)
        self._closing.pop(node, None)
        self._paused.pop(node, None)
        if connection is not None:
            del self._nodes[connection]
            connection.closed(now)

    def _run_guarded(self, connection: Connection | None, action: Callable[[], object]) -> None:
        """Run `action`. A bug of the broker closes the connection that met it, and no other."""
        try:
            action()
        except Exception as error:
            self.fail(error)
            if connection in self._nodes:
                connection.is_closing = True
                self._closing[self._nodes[connection]] = self._clock.now()

    def fail(self, error: BaseException) -> None:
        """Log an error, which is being handled, and keep it for the test."""
        logger.error("the broker failed", exc_info=error)
        self.failures.append(error)

    def call_listener(self, listener: Callable[[RequestRecord], None], record: RequestRecord) -> None:
        """Call a test's listener of requests. What it raises, as `pytest.fail` does, must not stop the brokers."""
        try:
            listener(record)
        except BaseException as error:
            logger.error("the listener of on_request failed", exc_info=error)
            self.failures.append(error)


def _log_disconnection(subject: str, disconnection: Disconnection) -> None:
    """Log the end of a connection: a warning, unless the client just left or was idle."""
    error = disconnection.cause
    if disconnection.is_idle:
        logger.info("%s: closed, as it was idle: %s", subject, error)
    elif isinstance(error, DisconnectedError):
        logger.debug("%s: ended: %s", subject, error)
    else:
        logger.warning("%s: %s; the broker closes the connection", subject, error)
