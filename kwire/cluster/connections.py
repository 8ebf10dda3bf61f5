"""Connections to brokers: a `Session` for each, joined to the `KafkaSelector`, and the handshake that a broker needs.

Brokers of the metadata have their ids (0 and up). Bootstrap addresses are nodes from -2 down (-1 is no node), because
nobody knows yet which broker has that address.

A broker has up to one connection for each `Purpose`, because it handles the requests of a connection one after the
other: a slow request for one purpose must not delay another. A connection is opened when it is first needed, and closed
when it was not used for `idle_timeout_ms`. Bootstrap addresses have connections for general purposes only; while one of
them is open, metadata and coordinators need no other connection.
"""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache, partial
from math import inf
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from kwire.cluster import logs
from kwire.cluster.config import ClientConfig
from kwire.cluster.metadata import NO_NODE, Broker, Snapshot
from kwire.cluster.metrics import BrokerCounters, BrokerMetrics, broker_metrics
from kwire.cluster.requests import Purpose
from kwire.errors import DisconnectedError, KwireError
from kwire.net import Clock, KafkaSelector, show_address
from kwire.net.threads import DaemonThreads
from kwire.protocol import Request
from kwire.protocol.messages.metadata import MetadataRequest
from kwire.session import ConnectionBroken, ConnectionClosed, HandshakeDone, RequestFailed, ResponseReceived, Session
from kwire.session.handshake import ANYONE
from kwire.session.sasl.exchange import Deferred
from kwire.session.versions import BROKERS_BEFORE_API_VERSIONS

if TYPE_CHECKING:
    from kwire.cluster.login import SharedLogin, Submit

Address = tuple[str, int]

_FAILURES_BEFORE_PROBE = 2
# Authentications with a shorter lifetime cost more than they secure.
_LIFETIME_MS_MIN = 10_000


@lru_cache(maxsize=4_096)  # each request remembers its broker for a later error
def _node_at(node: int, host: str, port: int) -> str:
    return f"{node} at {show_address(host, port)}" if node >= 0 else show_address(host, port)


class HandshakeMode(Enum):
    API_VERSIONS = auto()
    PROBE = auto()
    OLD = auto()


class _Stage(Enum):
    UNKNOWN = auto()
    SUSPECTED = auto()
    OLD = auto()


class _AddressState:
    """What the handshakes with one address showed: by address, because a bootstrap node and a broker may share it."""

    __slots__ = ("api_versions", "failures", "stage")

    def __init__(self) -> None:
        self.api_versions: int | None = None  # the highest version of ApiVersions that both sides have
        self.failures = 0  # of handshakes with ApiVersions, in a row
        self.stage = _Stage.UNKNOWN


class VersionProbes:
    """Which handshake each broker needs: with ApiVersions, or without it (brokers before 0.10).

    A broker before 0.10 closes the connection when it gets a request that it does not know. A newer broker that is
    being stopped, or a load balancer before one that is starting, closes it too. A client that took such a broker for
    an old one would send record formats without sequences, and could duplicate records. So a probe must prove it:

        UNKNOWN    -- two handshakes in a row fail  --> a probe: a connection without ApiVersions, with one request
        UNKNOWN    -- the probe gets a response     --> SUSPECTED: one more handshake with ApiVersions
        SUSPECTED  -- the handshake fails           --> OLD: no ApiVersions, until such a connection gets no response
        SUSPECTED  -- the handshake succeeds        --> UNKNOWN; and so is OLD when a connection gets no response

    Once any broker has responded to ApiVersions the cluster is modern, and no other broker is taken for old.

    ApiVersions has versions too. A broker that refused the highest one is next asked in the highest that it has; when
    it is upgraded its response says so, and after a handshake that fails nothing is known of it.
    """

    def __init__(self) -> None:
        self._states: dict[Address, _AddressState] = {}
        self._is_cluster_modern = False

    def next(self, address: Address) -> HandshakeMode:
        """Return the handshake of the next connection to this address."""
        state = self._state(address)
        if state.stage is _Stage.OLD:
            return HandshakeMode.OLD
        if state.stage is _Stage.UNKNOWN and state.failures >= _FAILURES_BEFORE_PROBE and not self._is_cluster_modern:
            return HandshakeMode.PROBE
        return HandshakeMode.API_VERSIONS

    def api_versions(self, address: Address) -> int | None:
        """Return the version of ApiVersions to begin with, or None for the highest."""
        return self._state(address).api_versions

    def succeeded(self, address: Address, handshake: HandshakeMode, api_versions: int | None = None) -> None:
        """Note that a connection with this handshake got a response; `api_versions` is as `Session.api_versions`."""
        state = self._state(address)
        if handshake is HandshakeMode.API_VERSIONS:
            state.failures, state.stage = 0, _Stage.UNKNOWN
            state.api_versions = api_versions
            self._is_cluster_modern = True
        elif handshake is HandshakeMode.PROBE:
            state.failures, state.stage = 0, _Stage.SUSPECTED

    def failed(self, address: Address, handshake: HandshakeMode) -> None:
        """Note that the broker closed a connection with this handshake before any response."""
        state = self._state(address)
        state.api_versions = None
        if handshake is not HandshakeMode.API_VERSIONS:
            state.failures, state.stage = 0, _Stage.UNKNOWN
        elif state.stage is _Stage.SUSPECTED:
            state.stage = _Stage.OLD
        else:
            state.failures += 1

    def _state(self, address: Address) -> _AddressState:
        state = self._states.get(address)
        if state is None:
            state = self._states[address] = _AddressState()
        return state


OLDEST = "0.8.2"


Key = tuple[int, Purpose]  # of a connection; the selector's name for it


class NodeReady(NamedTuple):
    """A connection to the node can be written to."""

    node: int
    purpose: Purpose


class NodeLost(NamedTuple):
    """The connection ended, or could not be made. `is_idle`: this side closed it; that is no failure."""

    node: int
    purpose: Purpose
    cause: KwireError
    is_idle: bool


Event = NodeReady | NodeLost | ResponseReceived | RequestFailed


@dataclass(slots=True, eq=False)
class _Connection:
    session: Session
    counters: BrokerCounters
    is_connected: bool = False
    handshake: HandshakeMode = HandshakeMode.API_VERSIONS
    has_responded: bool = False


class Connections:
    """The connections of one event loop. `poll` moves frames and returns events; `send` queues a request."""

    def __init__(
        self, config: ClientConfig, selector: KafkaSelector, clock: Clock, random: Random, submit: Submit | None = None
    ) -> None:
        """`submit` runs a call that may block, for logins: by default on a daemon thread."""
        self._config = config
        self._selector = selector
        self.login: SharedLogin | None = None
        if config.sasl is not None:
            from kwire.cluster.login import SharedLogin  # only those who log in pay for it

            self.login = SharedLogin(
                config.sasl,
                clock,
                random,
                timeout_ms=config.request_timeout_ms,
                wake=selector.wakeup,
                submit=submit or DaemonThreads("kwire-login").submit,
            )
        self._has_short_sessions = False
        # Messages of handshakes that took time; any thread may add one.
        self._resumed: deque[tuple[Key, _Connection, Deferred, bytes | KwireError | None]] = deque()
        self._clock = clock
        self._random = random
        self._connections: dict[Key, _Connection] = {}
        self._probes = VersionProbes()
        self.addresses: dict[int, tuple[str, int]] = {
            NO_NODE - 1 - place: address for place, address in enumerate(config.addresses)
        }
        # The sessions that take requests. A probe is never among them.
        self.ready: defaultdict[Purpose, dict[int, Session]] = defaultdict(dict)
        self.last_failure: dict[int, KwireError] = {}  # of a node, until it has responded to a request
        self._counters: defaultdict[int, BrokerCounters] = defaultdict(BrokerCounters)
        self._features: dict[str, int] = {}
        self._cluster_id: str | None = None
        self._written: dict[Key, None] = {}  # connections whose sessions may have frames; a dict keeps the order
        self.now = clock.now()  # of the last poll, when the selector had moved what there was
        # No session has a deadline before this time. A request may lower it and a response does not raise it, so that
        # the sessions need not be searched in each turn.
        self.due = inf

    # -- what is known of nodes

    def describe(self, node: int) -> str:
        host, port = self.addresses.get(node, ("unknown", 0))
        return _node_at(node, host, port)

    @property
    def has_ready(self) -> bool:
        """Return whether any broker can take a request now."""
        return any(self.ready.values())

    @property
    def has_responsive(self) -> bool:
        """Return whether any broker that can take a request has responded to one.

        A broker may let everybody connect and then close each connection at its first request.
        """
        return any(
            self._connections[node, purpose].has_responded for purpose, nodes in self.ready.items() for node in nodes
        )

    def is_started(self, node: int, purpose: Purpose) -> bool:
        return (node, purpose) in self._connections

    def has_connection(self, node: int) -> bool:
        """Return whether any connection to the node is ready."""
        return any(node in sessions for sessions in self.ready.values())

    def feature(self, name: str) -> int:
        """Return the level of a feature that a broker named last, or 0."""
        return self._features.get(name, 0)

    # -- making and ending connections

    def update(self, snapshot: Snapshot, now: float) -> list[Event]:
        """Set the brokers' addresses. Requests to a broker that moved or is gone fail."""
        self._cluster_id = snapshot.cluster_id
        new = {broker.id: (broker.host, broker.port) for broker in snapshot.brokers.values()}
        events: list[Event] = []
        for node in [node for node in self.addresses if node >= 0 and self.addresses[node] != new.get(node)]:
            gone = DisconnectedError("the metadata moved or removed this broker", broker=self.describe(node))
            for purpose in [purpose for other, purpose in self._connections if other == node]:
                events += self.stop(node, purpose, gone, now)
            del self.addresses[node]
            self.last_failure.pop(node, None)
        self.addresses.update(new)
        return events

    def add(self, brokers: Iterable[Broker]) -> None:
        """Add the addresses of brokers that are not known yet; the others keep theirs."""
        for broker in brokers:
            self.addresses.setdefault(broker.id, (broker.host, broker.port))

    def start(self, node: int, purpose: Purpose) -> None:
        """Begin to connect, unless the connection exists. The selector waits for the node's back-off to end."""
        key = node, purpose
        if key in self._connections:
            return
        host, port = self.addresses[node]
        handshake = self._probes.next((host, port))
        # As Java's: a client that stays with the brokers it knows could do nothing about a refusal.
        may_go_back = self._config.metadata_recovery_strategy == "rebootstrap"
        is_checked = self._config.metadata_cluster_check and may_go_back and node >= 0
        session = Session.client(
            self.describe(node),
            client_id=self._config.client_id,
            sasl=self.login,
            host=host,
            chance=self._random.random,
            request_timeout_ms=self._config.request_timeout_ms,
            assume=None if handshake is HandshakeMode.API_VERSIONS else BROKERS_BEFORE_API_VERSIONS[OLDEST],
            target=(self._cluster_id, node) if is_checked else ANYONE,
            api_versions=self._probes.api_versions((host, port)),
        )
        self._connections[key] = _Connection(session, self._counters[node], handshake=handshake)
        self._selector.connect(key, host, port, tls=self._config.tls_options)

    def stop(self, node: int, purpose: Purpose, cause: KwireError, now: float) -> list[Event]:
        """Close the connection; the node has not failed."""
        key = node, purpose
        if key not in self._connections:
            return []
        self._selector.disconnect(key)
        return self._ended(key, cause, now, is_idle=True)

    def stop_all(self, now: float, purpose: Purpose | None = None) -> list[Event]:
        """End all connections, or those for one purpose, because the client is closed."""
        events: list[Event] = []
        for node, purpose in [key for key in self._connections if purpose is None or key[1] == purpose]:
            # Not ClosedError, which waiting requests get: a request in flight may have been carried out.
            cut = DisconnectedError("the client was closed", broker=self.describe(node))
            events += self.stop(node, purpose, cut, now)
        return events

    def reset(self, cause: KwireError, now: float) -> list[Event]:
        """End all connections, so that the next ones resolve the bootstrap names anew. No node has failed."""
        return [event for node, purpose in list(self._connections) for event in self.stop(node, purpose, cause, now)]

    # -- moving requests

    def in_flight(self) -> list[tuple[int, Any]]:
        """Return the node and the token of each request that has no response yet, in order per connection."""
        return [
            (node, token)
            for (node, _), connection in self._connections.items()
            for token in connection.session.tokens()
        ]

    def send(
        self,
        node: int,
        purpose: Purpose,
        request: Request[Any],
        now: float,
        *,
        version: int,
        timeout_ms: int,
        token: Any,
        expects_response: bool,
    ) -> None:
        key = node, purpose
        connection = self._connections[key]
        connection.counters.requests += 1
        self._written[key] = None
        self.due = min(self.due, now + timeout_ms / 1000)
        connection.session.send(
            request, now, version=version, timeout_ms=timeout_ms, token=token, expects_response=expects_response
        )
        if connection.session.awaits_renewal:
            self.due = now

    def _frames(self) -> list[tuple[Any, Any]]:
        """Return the frames that the sessions want written, each with its connection."""
        sends: list[tuple[Any, Any]] = []
        is_traced = logs.requests_log.isEnabledFor(logging.DEBUG)
        for key in self._written:
            connection = self._connections.get(key)
            if connection is not None:
                requests = connection.session.unsent_requests() if is_traced else []
                frames = connection.session.frames()
                for frame in frames:
                    sends.append((key, frame))
                    connection.counters.bytes_out += sum(map(len, frame))
                if is_traced:
                    logs.log_sent(self.describe(key[0]), requests, [sum(map(len, frame)) for frame in frames])
        self._written.clear()
        return sends

    def poll(self, timeout: float | None) -> list[Event]:
        """Connect, read and write for at most `timeout` seconds; return what happened.

        A written frame is no event, because it gives the loop nothing to do.
        """
        sends = self._frames() if self._written else ()
        receives = self._selector.poll(sends, timeout, until_sent=False)
        now = self.now = self._clock.now()
        events: list[Event] = []
        for key in self._selector.connected:
            connection = self._connections[key]
            connection.is_connected = True
            connection.counters.connects += 1
            logs.log_opened(self.describe(key[0]))
            started = connection.session.start(now)
            if connection.handshake is HandshakeMode.PROBE and connection.session.is_ready:
                connection.session.send(MetadataRequest(topics=[]), now, version=0)
            self._schedule(key, connection.session)
            events += self._handle(key, started, now)
        is_traced = bool(receives) and logs.requests_log.isEnabledFor(logging.DEBUG)
        for key, frame in receives:
            node, purpose = key
            self._counters[node].bytes_in += len(frame)
            connection_or_none = self._connections.get(key)
            if connection_or_none is not None:  # an earlier frame of the same poll may have broken the session
                if is_traced:
                    logs.log_received(self.describe(node), connection_or_none.session.oldest_request(), len(frame), now)
                received = connection_or_none.session.receive(frame, now)
                if node not in self.ready[purpose] or connection_or_none.session.has_frames:
                    self._schedule(key, connection_or_none.session)
                events += self._handle(key, received, now)
        for lost in self._selector.disconnected:
            if lost.node in self._connections:
                events += self._ended(lost.node, lost.cause, now, is_idle=lost.is_idle)
        if now >= self.due:
            events += self._expired(now)
        if self.login is not None:
            events += self._turn_login(self.login, now)
        return events

    def _turn_login(self, login: SharedLogin, now: float) -> list[Event]:
        """Continue the handshakes for which the login has a message now."""
        login.turn(now)
        events: list[Event] = []
        while self._resumed:
            key, connection, step, result = self._resumed.popleft()
            if self._connections.get(key) is connection:
                received = connection.session.resume(step, result, now)
                self._schedule(key, connection.session)
                events += self._handle(key, received, now)
        self.due = min(self.due, login.deadline())
        return events

    def _resume(self, key: Key, connection: _Connection, step: Deferred, result: bytes | KwireError | None) -> None:
        self._resumed.append((key, connection, step, result))
        self._selector.wakeup()

    def _expired(self, now: float) -> list[Event]:
        events: list[Event] = []
        self.due = inf
        for key, connection in list(self._connections.items()):
            expired = connection.session.expire(now)
            self._schedule(key, connection.session)
            if expired:
                events += self._handle(key, expired, now)
        return events

    def _schedule(self, key: Key, session: Session) -> None:
        """Note that a session may have frames to write and a new deadline, for its handshake or waiting requests."""
        self._written[key] = None
        deadline = session.deadline()
        if deadline is not None and deadline < self.due:
            self.due = deadline

    def metrics(self) -> dict[int, BrokerMetrics]:
        """Return the counts of each broker to which a connection was made or tried."""
        connections: defaultdict[int, list[_Connection]] = defaultdict(list)
        for (node, _), connection in self._connections.items():
            connections[node].append(connection)
        return {
            node: broker_metrics(
                node,
                self.describe(node),
                counters,
                connections=sum(connection.is_connected for connection in connections[node]),
                in_flight=sum(connection.session.in_flight for connection in connections[node]),
                last_failure=self.last_failure.get(node),
            )
            for node, counters in self._counters.items()
        }

    def _handle(self, key: Key, session_events: Iterable[Any], now: float) -> list[Event]:
        node, purpose = key
        connection = self._connections[key]
        events: list[Event] = []
        for event in session_events:
            match event:
                case ResponseReceived():
                    connection.has_responded = True
                    self.last_failure.pop(node, None)
                    connection.counters.latency[type(event.request).__name__].observe(now - event.sent_at)
                    if connection.handshake is HandshakeMode.PROBE:
                        self._probes.succeeded(self.addresses[node], connection.handshake)
                        return events + self.stop(node, purpose, _probe_ended(self.describe(node)), now)
                    events.append(event)
                case RequestFailed():
                    connection.counters.failures += 1
                    events.append(event)
                case ConnectionBroken():
                    self._selector.disconnect(key, failed=True)
                    return events + self._ended(key, event.error, now)
                case Deferred():
                    event.begin(partial(self._resume, key, connection, event))
                case HandshakeDone():
                    self._schedule(key, connection.session)  # the next renewal, also where nothing waits to be sent
                    if 0 < event.session_lifetime_ms < _LIFETIME_MS_MIN and not self._has_short_sessions:
                        self._has_short_sessions = True
                        logs.log_short_session(self.describe(node), event.session_lifetime_ms)
                    logs.log_versions(self.describe(node), event.versions)
        if (
            node not in self.ready[purpose]
            and connection.session.is_ready
            and connection.handshake is not HandshakeMode.PROBE
        ):
            self.ready[purpose][node] = connection.session
            self._features.update(connection.session.features)
            if connection.handshake is HandshakeMode.API_VERSIONS:
                self._probes.succeeded(self.addresses[node], connection.handshake, connection.session.api_versions)
            failure = self.last_failure.get(node)
            if failure is not None and not failure.is_retriable:
                del self.last_failure[node]  # it was refused before, and is accepted now
            events.insert(0, NodeReady(node, purpose))
        return events

    def _ended(self, key: Key, cause: KwireError, now: float, *, is_idle: bool = False) -> list[Event]:
        node, purpose = key
        connection = self._connections.pop(key)
        self.ready[purpose].pop(node, None)
        events: list[Event] = []
        for event in connection.session.closed(cause, now, is_by_peer=not is_idle):
            match event:
                case RequestFailed():
                    connection.counters.failures += 1
                    events.append(event)
                case ConnectionClosed():
                    cause = event.cause  # the session knows more than the socket: a refused password, missing SASL
                    has_died = event.died_during_negotiation
                    if has_died or (
                        not is_idle
                        and connection.handshake is not HandshakeMode.API_VERSIONS
                        and not connection.has_responded
                    ):
                        self._probes.failed(self.addresses[node], connection.handshake)
        cause.where["broker"] = self.describe(node)  # not the number of a bootstrap node, which is private
        logs.log_ended(self.describe(node), cause, was_connected=connection.is_connected, is_failure=not is_idle)
        if not is_idle:
            connection.counters.losses += 1
            self.last_failure.pop(node, None)  # the newest failure stands last
            self.last_failure[node] = cause
        events.append(NodeLost(node, purpose, cause, is_idle))
        return events


def _probe_ended(broker: str) -> DisconnectedError:
    return DisconnectedError(
        "closed here: one more handshake must show whether the broker is older than 0.10", broker=broker
    )
