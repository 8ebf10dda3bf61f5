"""One session per broker connection, and how each broker wants the handshake.

How to greet each broker: with ApiVersions, or, before 0.10, without. Learnt from how its connections end.

A broker before 0.10 closes the connection on a request that it does not know. So does, for other reasons, a newer one
that is being stopped, or a balancer in front of one that is still starting; and whoever takes such a broker for an old
one sends it record formats without sequences from then on, and duplicates with them. Hence the proof:

    UNKNOWN    -- greetings end twice in a row --> a probe: a connection without ApiVersions that asks one question
    UNKNOWN    -- the probe is answered         --> SUSPECTED: it is greeted with ApiVersions once more
    SUSPECTED  -- that ends again               --> OLD: greeted without, until such a connection ends unanswered
    SUSPECTED  -- that is answered              --> UNKNOWN; and so is OLD when nothing is answered any more

Once any broker has answered ApiVersions the cluster is not from before 0.10, and no further one is taken for old.
It makes no connection; `connections` asks it and tells it.

One `Session` per broker connection, joined to the `KafkaSelector`: frames become events.

It owns the addresses and the sessions; how each broker wants to be greeted is in `greetings`. It refuses to decide what
is sent where.

Brokers of the metadata have their ids (0 and up); bootstrap addresses are nodes of their own from -2 down (-1 is
no node), since nobody knows yet which broker answers there.

A broker has up to one connection for each `Purpose`, since it answers the requests of a connection one after the other:
a slow answer to one purpose must not hold up another. Each is opened when it is needed first and closed when nobody
used it for `idle_timeout_ms`. Bootstrap addresses have connections for general purposes only; while one of those is
open, metadata and lookups need no other.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from math import inf
from random import Random
from typing import Any

from kwire.cluster import logs
from kwire.cluster.config import ClientConfig
from kwire.cluster.metadata import NO_NODE, Broker, Snapshot
from kwire.cluster.metrics import BrokerCounters, BrokerMetrics, broker_metrics
from kwire.cluster.requests import Purpose
from kwire.errors import DisconnectedError, KwireError
from kwire.net import Clock, KafkaSelector, show_address
from kwire.protocol import Request
from kwire.protocol.messages.metadata import MetadataRequest
from kwire.session import ConnectionBroken, ConnectionClosed, HandshakeDone, RequestFailed, ResponseReceived, Session
from kwire.session.versions import BROKERS_BEFORE_API_VERSIONS

Address = tuple[str, int]

_ENDS_BEFORE_A_PROBE = 2


class HandshakeMode(Enum):
    API_VERSIONS = auto()
    PROBE = auto()
    OLD = auto()


class _Stage(Enum):
    UNKNOWN = auto()
    SUSPECTED = auto()
    OLD = auto()


class _Known:
    """Of one address: what the bootstrap connection learnt holds for the broker that it led to."""

    __slots__ = ("ends", "stage")

    def __init__(self) -> None:
        self.ends = 0  # in a row, of greetings with ApiVersions
        self.stage = _Stage.UNKNOWN


class VersionProbes:
    def __init__(self) -> None:
        self._known: dict[Address, _Known] = {}
        self._is_cluster_modern = False

    def next(self, address: Address) -> HandshakeMode:
        """How to begin the next connection to this address."""
        known = self._of(address)
        if known.stage is _Stage.OLD:
            return HandshakeMode.OLD
        if known.stage is _Stage.UNKNOWN and known.ends >= _ENDS_BEFORE_A_PROBE and not self._is_cluster_modern:
            return HandshakeMode.PROBE
        return HandshakeMode.API_VERSIONS

    def answered(self, address: Address, greeting: HandshakeMode) -> None:
        """A connection that began like this has got an answer."""
        known = self._of(address)
        if greeting is HandshakeMode.API_VERSIONS:
            known.ends, known.stage = 0, _Stage.UNKNOWN
            self._is_cluster_modern = True
        elif greeting is HandshakeMode.PROBE:
            known.ends, known.stage = 0, _Stage.SUSPECTED

    def ended(self, address: Address, greeting: HandshakeMode) -> None:
        """A connection that began like this was closed by the other end before it had answered anything."""
        known = self._of(address)
        if greeting is not HandshakeMode.API_VERSIONS:
            known.ends, known.stage = 0, _Stage.UNKNOWN
        elif known.stage is _Stage.SUSPECTED:
            known.stage = _Stage.OLD
        else:
            known.ends += 1

    def _of(self, address: Address) -> _Known:
        known = self._known.get(address)
        if known is None:
            known = self._known[address] = _Known()
        return known


OLDEST = "0.8.2"


Key = tuple[int, Purpose]  # of a connection; the selector's name for it


@dataclass(slots=True)
class NodeReady:
    """A connection to the node can be written to."""

    node: int
    purpose: Purpose


@dataclass(slots=True)
class NodeLost:
    """The connection ended or could not be made. `is_idle`: we closed it ourselves because nobody used it."""

    node: int
    purpose: Purpose
    cause: KwireError
    is_idle: bool


# What became of a request is told as the session tells it.
Event = NodeReady | NodeLost | ResponseReceived | RequestFailed


@dataclass(slots=True)
class _Link:
    session: Session
    traffic: BrokerCounters
    is_connected: bool = False
    greeting: HandshakeMode = HandshakeMode.API_VERSIONS
    has_answered: bool = False


class Connections:
    """`poll` moves frames and answers events; the rest asks about nodes or queues requests to them."""

    def __init__(self, config: ClientConfig, selector: KafkaSelector, clock: Clock, random: Random) -> None:
        self._config = config
        self._selector = selector
        self._clock = clock
        self._random = random
        self._links: dict[Key, _Link] = {}
        self._greetings = VersionProbes()
        self.addresses: dict[int, tuple[str, int]] = {
            NO_NODE - 1 - place: address for place, address in enumerate(config.addresses)
        }
        # What requests are sent on. Never a probe, which is for `greetings` to learn from and carries nobody's.
        self.ready: defaultdict[Purpose, dict[int, Session]] = defaultdict(dict)
        self.last_failure: dict[int, KwireError] = {}  # of a node, until a connection to it is ready
        self._traffic: defaultdict[int, BrokerCounters] = defaultdict(BrokerCounters)
        self._features: dict[str, int] = {}
        self._written: dict[Key, None] = {}  # connections whose sessions may have frames; a dict keeps the order
        self.now = clock.now()  # of the last poll, when the selector had moved what there was
        # When `poll` is to be called though nothing happens: no session has a deadline before this. A request pulls it
        # forward, and its answer does not put it back: so the sessions are looked through when this time has come, and
        # not in each turn, and may then have nothing to tell.
        self.due = inf

    # -- what is known of nodes

    def describe(self, node: int) -> str:
        host, port = self.addresses.get(node, ("unknown", 0))
        return f"{node} at {show_address(host, port)}" if node >= 0 else show_address(host, port)

    @property
    def has_ready(self) -> bool:
        """Whether any request could be sent to anybody now."""
        return any(self.ready.values())

    def is_started(self, node: int, purpose: Purpose) -> bool:
        return (node, purpose) in self._links

    def is_reached(self, node: int) -> bool:
        """Whether a connection to the node is ready, for whatever purpose."""
        return any(node in sessions for sessions in self.ready.values())

    def feature(self, name: str) -> int:
        """The level of a feature as a broker told it last; 0 if none did."""
        return self._features.get(name, 0)

    # -- making and ending connections

    def update(self, snapshot: Snapshot, now: float) -> list[Event]:
        """Take the brokers' addresses; one that moved or went loses its connections (its requests fail)."""
        new = {broker.id: (broker.host, broker.port) for broker in snapshot.brokers.values()}
        events: list[Event] = []
        for node in [node for node in self.addresses if node >= 0 and self.addresses[node] != new.get(node)]:
            gone = DisconnectedError("the metadata moved or removed this broker", broker=self.describe(node))
            for purpose in [purpose for other, purpose in self._links if other == node]:
                events += self.stop(node, purpose, gone, now)
            del self.addresses[node]
            self.last_failure.pop(node, None)
        self.addresses.update(new)
        return events

    def add(self, brokers: Iterable[Broker]) -> None:
        """Take the addresses of brokers that are not known yet; the others keep theirs."""
        for broker in brokers:
            self.addresses.setdefault(broker.id, (broker.host, broker.port))

    def start(self, node: int, purpose: Purpose) -> None:
        """Begin to connect, unless that is done or under way. The selector waits out the connection's back-off."""
        key = node, purpose
        if key in self._links:
            return
        host, port = self.addresses[node]
        greeting = self._greetings.next((host, port))
        session = Session.client(
            self.describe(node),
            client_id=self._config.client_id,
            sasl=self._config.sasl,
            request_timeout_ms=self._config.request_timeout_ms,
            assume=None if greeting is HandshakeMode.API_VERSIONS else BROKERS_BEFORE_API_VERSIONS[OLDEST],
        )
        self._links[key] = _Link(session, self._traffic[node], greeting=greeting)
        self._selector.connect(key, host, port, tls=self._config.tls_options)

    def stop(self, node: int, purpose: Purpose, cause: KwireError, now: float) -> list[Event]:
        """End the connection from our side; no failure of the node's."""
        key = node, purpose
        if key not in self._links:
            return []
        self._selector.disconnect(key)
        return self._ended(key, cause, now, is_idle=True)

    def stop_all(self, now: float, purpose: Purpose | None = None) -> list[Event]:
        """End all connections, or those for one purpose, because the client is closed."""
        events: list[Event] = []
        for node, purpose in [key for key in self._links if purpose is None or key[1] == purpose]:
            # What is in flight may have been carried out, unlike what was still waiting: hence another error.
            cut = DisconnectedError("the client was closed", broker=self.describe(node))
            events += self.stop(node, purpose, cut, now)
        return events

    # -- moving requests

    def in_flight(self) -> list[tuple[int, Any]]:
        """Return the node and the token of each request that has no response yet, in order per connection."""
        return [(node, token) for (node, _), link in self._links.items() for token in link.session.tokens()]

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
        has_answer: bool,
    ) -> None:
        key = node, purpose
        link = self._links[key]
        link.traffic.requests += 1
        self._written[key] = None
        self.due = min(self.due, now + timeout_ms / 1000)
        link.session.send(
            request, now, version=version, timeout_ms=timeout_ms, token=token, expects_response=has_answer
        )

    def _frames(self) -> list[tuple[Any, Any]]:
        """Take what the sessions want written."""
        sends: list[tuple[Any, Any]] = []
        is_traced = logs.requests_log.isEnabledFor(logging.DEBUG)
        for key in self._written:
            link = self._links.get(key)
            if link is not None:
                requests = link.session.outgoing() if is_traced else []
                frames = link.session.frames()
                for frame in frames:
                    sends.append((key, frame))
                    link.traffic.bytes_out += sum(map(len, frame))
                if is_traced:
                    logs.log_sent(self.describe(key[0]), requests, [sum(map(len, frame)) for frame in frames])
        self._written.clear()
        return sends

    def poll(self, timeout: float | None) -> list[Event]:
        """One selector turn: new connections, reads, writes; then every session's share of the outcome.

        That frames were written is no event: it would make a turn of the loop that has nothing to do.
        """
        sends = self._frames() if self._written else ()
        receives = self._selector.poll(sends, timeout, until_sent=False)
        now = self.now = self._clock.now()
        events: list[Event] = []
        for key in self._selector.connected:
            link = self._links[key]
            link.is_connected = True
            link.traffic.connects += 1
            logs.log_opened(self.describe(key[0]))
            link.session.start(now)
            if link.greeting is HandshakeMode.PROBE and link.session.is_ready:
                link.session.send(MetadataRequest(topics=[]), now, version=0)
            self._moved(key, link.session)
            events += self._translated(key, (), now)
        is_traced = bool(receives) and logs.requests_log.isEnabledFor(logging.DEBUG)
        for key, frame in receives:
            node, purpose = key
            self._traffic[node].bytes_in += len(frame)
            link_or_none = self._links.get(key)
            if link_or_none is not None:  # an earlier frame of the same poll may have broken the session
                if is_traced:
                    logs.log_received(self.describe(node), link_or_none.session.awaited(), len(frame), now)
                told = link_or_none.session.receive(frame, now)
                if node not in self.ready[purpose] or link_or_none.session.has_frames:
                    self._moved(key, link_or_none.session)
                events += self._translated(key, told, now)
        for lost in self._selector.disconnected:
            if lost.node in self._links:
                events += self._ended(lost.node, lost.cause, now, is_idle=lost.is_idle)
        if now >= self.due:
            events += self._expired(now)
        return events

    def _expired(self, now: float) -> list[Event]:
        events: list[Event] = []
        self.due = inf
        for key, link in list(self._links.items()):
            expired = link.session.expire(now)
            self._moved(key, link.session)
            if expired:
                events += self._translated(key, expired, now)
        return events

    def _moved(self, key: Key, session: Session) -> None:
        """A session may have new frames and new deadlines by itself: of its greeting, or of what waited in it."""
        self._written[key] = None
        deadline = session.deadline()
        if deadline is not None and deadline < self.due:
            self.due = deadline

    def metrics(self) -> dict[int, BrokerMetrics]:
        """Of every broker that was spoken to or tried."""
        links: defaultdict[int, list[_Link]] = defaultdict(list)
        for (node, _), link in self._links.items():
            links[node].append(link)
        return {
            node: broker_metrics(
                node,
                self.describe(node),
                traffic,
                connections=sum(link.is_connected for link in links[node]),
                in_flight=sum(link.session.in_flight for link in links[node]),
                last_failure=self.last_failure.get(node),
            )
            for node, traffic in self._traffic.items()
        }

    def _translated(self, key: Key, session_events: Iterable[Any], now: float) -> list[Event]:
        node, purpose = key
        link = self._links[key]
        events: list[Event] = []
        for event in session_events:
            match event:
                case ResponseReceived():
                    link.has_answered = True
                    link.traffic.latency[type(event.request).__name__].observe(now - event.sent_at)
                    if link.greeting is HandshakeMode.PROBE:
                        self._greetings.answered(self.addresses[node], link.greeting)
                        return events + self.stop(node, purpose, _proven(self.describe(node)), now)
                    events.append(event)
                case RequestFailed():
                    link.traffic.failures += 1
                    events.append(event)
                case ConnectionBroken():
                    self._selector.disconnect(key, failed=True)
                    return events + self._ended(key, event.error, now)
                case HandshakeDone():
                    logs.log_versions(self.describe(node), event.versions)
        if node not in self.ready[purpose] and link.session.is_ready and link.greeting is not HandshakeMode.PROBE:
            self.ready[purpose][node] = link.session
            self._features.update(link.session.features)
            if link.greeting is HandshakeMode.API_VERSIONS:
                self._greetings.answered(self.addresses[node], link.greeting)
            self.last_failure.pop(node, None)
            events.insert(0, NodeReady(node, purpose))
        return events

    def _ended(self, key: Key, cause: KwireError, now: float, *, is_idle: bool = False) -> list[Event]:
        node, purpose = key
        link = self._links.pop(key)
        self.ready[purpose].pop(node, None)
        events: list[Event] = []
        for event in link.session.closed(cause, now):
            match event:
                case RequestFailed():
                    link.traffic.failures += 1
                    events.append(event)
                case ConnectionClosed():
                    cause = event.cause  # the session may know better than the socket: a refused password, SASL wanted
                    has_died = event.died_during_negotiation
                    if has_died or (link.greeting is not HandshakeMode.API_VERSIONS and not link.has_answered):
                        self._greetings.ended(self.addresses[node], link.greeting)
        cause.where["broker"] = self.describe(node)  # our number for a bootstrap address means nothing to anybody
        logs.log_ended(self.describe(node), cause, was_connected=link.is_connected, is_failure=not is_idle)
        if not is_idle:
            link.traffic.losses += 1
            self.last_failure.pop(node, None)  # the newest failure stands last
            self.last_failure[node] = cause
        events.append(NodeLost(node, purpose, cause, is_idle))
        return events


def _proven(broker: str) -> DisconnectedError:
    return DisconnectedError("closed here: it is greeted once more before it is taken for an old broker", broker=broker)
