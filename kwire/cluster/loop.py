"""The event loop: one thread, no locks, and each turn in one fixed order.

    1. run what other threads posted                                                  (`post`)
    2. write what the last turn queued, connect, read                                 (`Connections.poll`)
    3. handle responses and lost connections                                          (`_handle`)
    4. request metadata, if partitions are in error, topics are new, or it is old     (`_refresh_metadata`)
    5. probe brokers that failed                                                      (`RecoveryMonitor.probes`)
    6. send requests that waited for a broker or for a back-off                       (`_send_waiting`)
    7. send what the state machines return, retries before new requests               (`_turn_machines`)
    8. request metadata again, for topics that the state machines need since step 7

Kafka's request-pipelining design writes at the end of a turn. Here the next turn writes before it waits: nothing
happens between the two, and one system call serves writes and reads. State machines decide what to send, connections
know how. Sockets, clock and random numbers are arguments, so the same loop runs on a simulated network. User code never
runs here.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Collection, Iterable
from math import inf
from random import Random
from typing import TYPE_CHECKING, Any

from kwire.cluster import logs
from kwire.cluster.config import ClientConfig
from kwire.cluster.connections import Connections, Event, NodeLost, NodeReady
from kwire.cluster.coordinators import Coordinators
from kwire.cluster.metadata import NO_NODE, Broker, CurrentLeader, MetadataStatus, MetadataUpdater, Snapshot
from kwire.cluster.metrics import ClusterMetrics
from kwire.cluster.recovery import Failure, RecoveryMonitor
from kwire.cluster.requests import (
    PendingRequest,
    Purpose,
    Route,
    StateMachine,
    ToAny,
    ToController,
    ToCoordinator,
    ToLeader,
    ToNode,
)
from kwire.errors import (
    BrokerError,
    ClosedError,
    DisconnectedError,
    ErrorCode,
    KwireError,
    NodeError,
    RequestTimeoutError,
    UnsupportedVersionError,
    broker_error,
    timeout_error,
)
from kwire.net import Clock, KafkaSelector, show_address
from kwire.net.backoff import Backoff
from kwire.protocol import Request, Response
from kwire.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kwire.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kwire.session import RequestFailed, ResponseReceived

if TYPE_CHECKING:
    import asyncio

    from kwire.cluster.events import ClusterEvent, Observer
    from kwire.cluster.login import Submit


def _is_fatal(failure: KwireError | None) -> bool:
    """Return whether waiting cannot end this failure."""
    return isinstance(failure, (NodeError, UnsupportedVersionError)) and not failure.is_retriable


def _asks_to_rebootstrap(result: object) -> bool:
    return isinstance(result, BrokerError) and result.code == ErrorCode.REBOOTSTRAP_REQUIRED


# Purposes of requests that wait at the broker. For these, each client on a shared loop has its own connections.
_OWN_PURPOSES = ("fetch", "join")


def _purpose(pending: PendingRequest, client: LoopClient, machine: Purpose) -> Purpose:
    """Return which of a broker's connections a request uses; `machine` is the purpose of its state machine."""
    if pending.connection is not None:
        return client.own.get(pending.connection, pending.connection)
    if isinstance(pending.route, ToCoordinator):
        return "coordinator"
    return machine if isinstance(pending.route, (ToNode, ToLeader)) else "general"


# The pause after going back to the bootstrap addresses, before that may happen again: addresses that brokers advertise
# may lead to another cluster for as long as nobody mends it.
_REBOOTSTRAP_BACKOFF = Backoff(1_000, 60_000)

# While no broker is ready, the next address is tried after this many seconds: one that drops packets must not delay the
# others.
_NEXT_BROKER_SECONDS = 0.5


class ClusterView:
    """The cluster as one client's state machines with the same purpose see it.

    `snapshot` is an attribute, since state machines read it many times in a turn.
    """

    def __init__(self, client: LoopClient, loop: EventLoop, connections: Connections, purpose: Purpose) -> None:
        self.client = client
        self.purpose: Purpose = purpose
        self.snapshot = loop.snapshot
        self._loop = loop
        self._connections = connections
        self._ready = connections.ready[purpose]

    @property
    def connection_error(self) -> KwireError | None:
        failures = self._connections.last_failure
        if not failures or self._connections.has_responsive:
            return None
        return failures[next(reversed(failures))]

    @property
    def has_fatal_error(self) -> bool:
        if self._ready or self._connections.has_ready:
            return False
        failures = self._connections.last_failure
        return all(_is_fatal(failures.get(node)) for node in self._connections.addresses)

    def is_ready(self, node: int) -> bool:
        return node in self._ready or (not self.client.has_left and self._loop.is_ready(node, self.purpose))

    def capacity(self, node: int) -> int:
        return self._loop.config.max_in_flight - self._ready[node].in_flight

    def version(self, node: int, api: type[Request[Any]], at_most: int | None = None) -> int:
        return self._ready[node].version(api, at_most)

    def supports(self, node: int, api: type[Request[Any]]) -> bool:
        try:
            self.version(node, api)
        except UnsupportedVersionError:
            return False
        return True

    def failure(self, node: int) -> KwireError | None:
        return None if node in self._ready else self._connections.last_failure.get(node)

    def feature(self, name: str) -> int:
        return self._connections.feature(name)

    def forget_coordinator(self, route: ToCoordinator) -> None:
        self._loop.forget_coordinator(route)

    def withdraw(self, pending: PendingRequest) -> bool:
        return self._loop.withdraw(pending)

    def describe(self, node: int) -> str:
        return self._connections.describe(node)

    def unreachable_since(self, node: int) -> Failure | None:
        return self._loop.unreachable_since(node)

    def metadata_status(self) -> MetadataStatus:
        return self._loop.metadata_status()

    def request_metadata(self, reason: str) -> None:
        self._loop.request_metadata(reason)

    def allow_topic_creation(self, topic: str) -> None:
        if self.client.config.allow_auto_create_topics:
            self._loop.allow_topic_creation(topic)

    def update_leaders(self, hints: Iterable[CurrentLeader], endpoints: Iterable[Broker]) -> frozenset[tuple[str, int]]:
        return self._loop.update_leaders(hints, endpoints)


class LoopClient:
    """One client of an event loop: its options, its state machines, its requests. For the loop's thread.

    Clients that share a loop share its metadata and its connections, except those to fetch and to join groups: such
    a request waits at the broker, which reads no further request of that connection meanwhile. `number`
    distinguishes them.
    """

    def __init__(self, loop: EventLoop, connections: Connections, config: ClientConfig, number: int = 1) -> None:
        self.config = config
        self.own = {purpose: purpose if number == 1 else f"{purpose} {number}" for purpose in _OWN_PURPOSES}
        self.has_left = False
        self._loop = loop
        self._connections = connections
        self._views: dict[Purpose, ClusterView] = {}

    def view(self, purpose: Purpose) -> ClusterView:
        """Return the cluster as this client's state machines with this purpose see it."""
        view = self._views.get(purpose)
        if view is None:
            own = self.own.get(purpose, purpose)
            view = self._views[purpose] = ClusterView(self, self._loop, self._connections, own)
        return view

    def set_snapshot(self, snapshot: Snapshot) -> None:
        """Set the snapshot that the views have."""
        for view in self._views.values():
            view.snapshot = snapshot

    def add(self, machine: StateMachine, purpose: Purpose = "general") -> None:
        """Let a state machine take part. What it sends to nodes and leaders uses their connections for `purpose`."""
        if self.has_left:
            machine.closed(ClosedError("the client is closed"))
        else:
            self._loop.add_with(machine, self.view(purpose))

    def enqueue(self, pending: PendingRequest) -> None:
        """Queue a request that belongs to no state machine, for this turn or the next."""
        self._loop.enqueue_for(pending, self)

    def leave(self, error: KwireError) -> None:
        """Resolve what this client waits for, with `error`, and remove its state machines. The loop goes on."""
        if not self.has_left:
            self.has_left = True
            self._loop.remove_client(self, error)


class EventLoop:
    """Joins state machines to connections. Only `post`, `wakeup` and `make_client` may be used on other threads."""

    def __init__(
        self, config: ClientConfig, selector: KafkaSelector, clock: Clock, random: Random, submit: Submit | None = None
    ) -> None:
        self.config = config
        self._selector = selector
        self.wakeup = selector.wakeup  # from any thread
        self._clock = clock
        self._random = random
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_ms_max)
        self._connections = Connections(config, selector, clock, random, submit)
        self._may_rebootstrap = config.metadata_recovery_strategy == "rebootstrap"
        self.describe = self._connections.describe
        self._metadata = MetadataUpdater(
            max_age_ms=config.metadata_max_age_ms,
            backoff=self._backoff,
            random=random,
            rebootstrap_after_ms=config.metadata_recovery_rebootstrap_trigger_ms if self._may_rebootstrap else inf,
        )
        self._rebootstraps = 0  # in a row
        self._rebootstrap_not_before = 0.0
        self.snapshot: Snapshot = self._metadata.snapshot
        # The client that the loop was made for. Further ones take part by `join`.
        self.client = LoopClient(self, self._connections, config)
        self._clients = [self.client]
        self._joined = itertools.count(2)
        self._observer: Observer | None = None
        self._recovery = RecoveryMonitor(self._backoff, random)
        self._coordinators = Coordinators()
        self._outage_log = logs.OutageLog()
        self._machines: list[tuple[StateMachine, ClusterView]] = []
        self._probe_purpose: dict[int, Purpose] = {}  # by node: the connection that probes it
        self._waiting: list[PendingRequest] = []  # for a broker, or for a back-off
        self._throttled_until: dict[tuple[int, Purpose], float] = {}
        self._posted: deque[Callable[[], object]] = deque()
        self._next_broker_at = 0.0
        self._brokers_tried = 0
        self._now = clock.now()
        self._is_closed = False
        self._machines_had_turn = False
        self._needs_turn = True  # something changed since the state machines had their turn: do not block

    # -- from any thread

    def post(self, action: Callable[[], object]) -> None:
        """Run `action` on the loop's thread in its next turn."""
        self._posted.append(action)
        self.wakeup()

    def run_coroutines_in(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let coroutine functions that return tokens or secrets run in the user's event loop."""
        if self._connections.login is not None:
            self._connections.login.asyncio_loop = loop

    # -- what state machines see

    def view(self, purpose: Purpose) -> ClusterView:
        """Return the cluster as the first client's state machines with this purpose see it."""
        return self.client.view(purpose)

    def is_ready(self, node: int, purpose: Purpose) -> bool:
        """Return whether a request can be sent now. If not, connect, unless the recovery monitor probes the node."""
        if node in self._connections.ready[purpose]:
            return True
        if node in self._connections.addresses and node not in self._recovery.failures:
            self._connections.start(node, purpose)
        return False

    def forget_coordinator(self, route: ToCoordinator) -> None:
        self._coordinators.forget(route)

    def withdraw(self, pending: PendingRequest) -> bool:
        """Take back a request that waits, unless it may have been written before."""
        if pending.was_written or pending not in self._waiting:
            return False
        self._waiting.remove(pending)
        return True

    def coordinator_error(self, route: ToCoordinator) -> KwireError | None:
        """Return the last failure of the lookup of a coordinator that is not known; None while it is, or at first."""
        node = self._coordinators.node(route)
        if node is not None and self._may_reach(node):
            return None
        return self._coordinators.failures.get(route)

    def unreachable_since(self, node: int) -> Failure | None:
        return self._recovery.failures.get(node)

    def metadata_status(self) -> MetadataStatus:
        return self._metadata.status

    def request_metadata(self, reason: str) -> None:
        self._metadata.request_refresh(reason)

    def allow_topic_creation(self, topic: str) -> None:
        self._metadata.allow_creation(topic)

    def update_leaders(self, hints: Iterable[CurrentLeader], endpoints: Iterable[Broker]) -> frozenset[tuple[str, int]]:
        news = self._metadata.update_leaders(hints, endpoints)
        self._set_snapshot(self._metadata.snapshot)
        if news:
            self._connections.add(self.snapshot.brokers.values())
            self._needs_turn |= self._machines_had_turn
        return news

    def _set_snapshot(self, snapshot: Snapshot) -> None:
        if self._observer is not None and snapshot is not self.snapshot:
            self._observer.updated(self.snapshot, snapshot)
        self.snapshot = snapshot
        for client in self._clients:
            client.set_snapshot(snapshot)

    def metrics(self) -> ClusterMetrics:
        age = self._clock.now() - self.snapshot.at if self.snapshot.brokers else None
        return ClusterMetrics(self._connections.metrics(), age)

    # -- participants

    def observe(self, callback: Callable[[ClusterEvent], object]) -> None:
        """Call `callback` with each event from now on, in place of an earlier one. It must not be user code."""
        from kwire.cluster.events import Observer  # few programs observe, and to define the events takes 3 ms

        self._observer = Observer(callback)

    def make_client(self, config: ClientConfig) -> LoopClient:
        """Return a further client, for `join`. From any thread."""
        return LoopClient(self, self._connections, config, next(self._joined))

    def join(self, client: LoopClient) -> None:
        """Let a further client take part, until its `leave`."""
        self._clients.append(client)
        client.set_snapshot(self.snapshot)

    def add(self, machine: StateMachine, purpose: Purpose = "general") -> None:
        """Let a state machine of the first client take part: see `LoopClient.add`."""
        self.client.add(machine, purpose)

    def add_with(self, machine: StateMachine, view: ClusterView) -> None:
        if self._is_closed:
            machine.closed(ClosedError("the client is closed"))
        else:
            self._machines.append((machine, view))

    def remove(self, machine: StateMachine) -> None:
        self._machines = [pair for pair in self._machines if pair[0] is not machine]

    def enqueue(self, pending: PendingRequest) -> None:
        """Queue a request of the first client: see `LoopClient.enqueue`."""
        self.enqueue_for(pending, self.client)

    def enqueue_for(self, pending: PendingRequest, client: LoopClient) -> None:
        pending.client = client
        timeout_ms = client.config.request_timeout_ms if pending.timeout_ms is None else pending.timeout_ms
        pending.waiting_since = self._clock.now()
        pending.deadline = pending.waiting_since + timeout_ms / 1000
        pending.purpose = _purpose(pending, client, "general")
        if self._is_closed or client.has_left:
            self._finish(pending, ClosedError("the client is closed"))
        else:
            self._waiting.append(pending)
            self._needs_turn = True

    def remove_client(self, client: LoopClient, error: KwireError) -> None:
        """Resolve everything that one client waits for, as `close` does; other clients keep their connections.

        A request in flight on such a connection keeps its place there: its response is dropped when it comes.
        """
        if self._is_closed:
            return
        self._needs_turn = True
        machines = [machine for machine, view in self._machines if view.client is client]
        self._machines = [pair for pair in self._machines if pair[1].client is not client]
        self._clients = [other for other in self._clients if other is not client]
        waiting = [pending for pending in self._waiting if pending.client is client]
        self._waiting = [pending for pending in self._waiting if pending.client is not client]
        for pending in waiting:
            self._finish(pending, error)
        own = client.own.values()
        for purpose in own:
            for event in self._connections.stop_all(self._now, purpose):
                self._handle(event)
            self._connections.ready.pop(purpose, None)
        self._probe_purpose = {
            node: "general" if purpose in own else purpose for node, purpose in self._probe_purpose.items()
        }
        for node, pending in self._connections.in_flight():
            if isinstance(pending, PendingRequest) and pending.client is client:
                pending.was_written = pending.is_abandoned = True
                pending.on_done(DisconnectedError("the client was closed", broker=self.describe(node)), self._now)
        for machine in machines:
            machine.closed(error)

    # -- the turn

    def turn(self, wait_max: float | None = None) -> None:
        """Make one turn. It waits in the selector until something is due, at most `wait_max` seconds."""
        while self._posted:
            self._posted.popleft()()
            self._needs_turn = True
        events = self._connections.poll(self._poll_timeout(wait_max))
        self._needs_turn = self._machines_had_turn = False
        # The time of the poll: with a later one, something due in between would miss its turn.
        self._now = self._connections.now
        if self._metadata.update_steps is not None and self._metadata.continue_update():
            self._metadata_updated()
        for event in events:
            self._handle(event)
        if self._now >= self._metadata.rebootstrap_at:
            self._end_silence()
        if self._now >= self._metadata.due_at:
            self._metadata.set_topics(self._wanted_topics())
            self._refresh_metadata()
        if self._recovery.failures:
            for node in self._recovery.probes(self._now):
                self._connections.start(node, self._probe_purpose[node])
        if self._waiting:
            self._send_waiting()
        self._turn_machines()
        wanted = self._wanted_topics()
        if wanted is not self._metadata.topics:
            self._metadata.set_topics(wanted)
        if self._now >= self._metadata.due_at:  # for topics that are new since step 7
            self._refresh_metadata()

    def close(self, error: KwireError) -> None:
        """Resolve everything that waits, with `error`, and close the connections. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        waiting, self._waiting = self._waiting, []
        for pending in waiting:
            self._finish(pending, error)
        for event in self._connections.stop_all(self._now):
            if isinstance(event, RequestFailed) and isinstance(event.token, PendingRequest):
                pending = event.token
                if not pending.is_abandoned:
                    pending.was_written = event.was_sent
                    self._finish(pending, event.error)
        for machine, _ in self._machines:
            machine.closed(error)
        self._selector.close()
        while self._posted:  # other threads may wait for these
            self._posted.popleft()()

    def _poll_timeout(self, wait_max: float | None) -> float | None:
        """Return the seconds until the next deadline. A deadline that this turn has met needs an event, not a turn."""
        if self._needs_turn or self._posted or self._metadata.update_steps is not None:
            return 0.0
        if self._connections.due <= self._now:  # a request waits until its connection authenticates again
            return 0.0
        deadlines: list[float | None] = [self._connections.due]
        if self._recovery.failures:
            deadlines.append(self._recovery.deadline())
        for machine, _ in self._machines:
            deadlines.append(machine.deadline())
        for pending in self._waiting:
            deadlines += [pending.deadline, pending.retry_at]
        if self._machines or self._waiting:
            deadlines += [self._metadata.due_at, self._next_broker_at, self._metadata.rebootstrap_at]
        due, now = inf, self._now
        for deadline in deadlines:
            if deadline is not None and now < deadline < due:
                due = deadline
        if due == inf:
            return wait_max
        wait = max(0.0, due - self._clock.now())
        return wait if wait_max is None else min(wait, wait_max)

    def _handle(self, event: Event) -> None:
        match event:
            case ResponseReceived(PendingRequest(is_abandoned=True)) | RequestFailed(PendingRequest(is_abandoned=True)):
                pass
            case ResponseReceived(PendingRequest() as pending, _, response):
                pending.was_written = True
                if self._outage_log.is_open:
                    self._outage_log.reachable(self.describe(pending.node), self._now)
                self._note_throttle(pending, response)
                self._finish(pending, response)
            case RequestFailed(PendingRequest() as pending, _, error, was_sent):
                pending.was_written = was_sent
                self._failed(pending, error)
            case NodeReady(node):
                self._next_broker_at = self._now
                outage = self._recovery.recovered(node)
                if outage is not None:
                    broker = self.snapshot.brokers.get(node)
                    if self._observer is not None and broker is not None:
                        self._observer.recovered(broker, self._now - outage.since)
                    logs.log.info("broker %s is back", self.describe(node))
                    self._metadata.request_refresh(f"broker {node} is back")
            case NodeLost(node, purpose, cause, is_idle):
                self._next_broker_at = self._now
                if not is_idle:
                    self._lost(node, purpose, cause)

    def _lost(self, node: int, purpose: Purpose, cause: KwireError) -> None:
        self._probe_purpose[node] = purpose
        if node >= 0 and node in self._connections.addresses and self._recovery.failed(node, cause, self._now):
            logs.log_failed(self.describe(node), cause)
            broker = self.snapshot.brokers.get(node)
            if self._observer is not None and broker is not None:
                self._observer.failed(broker, cause)
        self._metadata.request_refresh(f"broker {self.describe(node)} was lost")
        if _asks_to_rebootstrap(cause):
            self._rebootstrap(f"broker {self.describe(node)} is not the one that is meant")
        connections = self._connections
        if not connections.has_ready and connections.last_failure.keys() >= connections.addresses.keys():
            addresses = {show_address(*address) for address in connections.addresses.values()}
            self._outage_log.unreachable(addresses, cause, self._now)

    # -- requests

    def _note_throttle(self, pending: PendingRequest, response: Response) -> None:
        """Send no more on this connection for as long as the broker says (KIP-219): it would not read it."""
        throttle_ms: int = getattr(response, "throttle_time_ms", 0)
        if throttle_ms > 0:
            self._throttled_until[pending.node, pending.purpose] = self._now + throttle_ms / 1000

    def _is_throttled(self, pending: PendingRequest, node: int) -> bool:
        """Return whether a request must wait, and have it wait; its time begins after that."""
        until = self._throttled_until.get((node, pending.purpose))
        if until is None:
            return False
        if self._now >= until:
            del self._throttled_until[node, pending.purpose]
            return False
        pending.deadline += until - max(self._now, pending.retry_at)
        pending.retry_at = until
        return True

    def _failed(self, pending: PendingRequest, error: KwireError) -> None:
        is_over = self._now >= pending.deadline or self._is_over(pending)
        if isinstance(error, NodeError) and pending.may_retry and not is_over:
            self._back_off(pending, error, self._now)
            self._waiting.append(pending)
            return
        if isinstance(error, RequestTimeoutError) and pending.last_error is not None:
            # The last of several attempts had only the time that was left.
            error = timeout_error(error.message, pending.last_error, remedy=error.remedy, **error.where)
        self._finish(pending, error)

    def _is_over(self, pending: PendingRequest) -> bool:
        return self._is_closed or (pending.client is not None and pending.client.has_left)

    def _back_off(self, pending: PendingRequest, error: KwireError, now: float) -> None:
        pending.attempts += 1
        pending.last_error = error
        pending.retry_at = now + self._backoff.seconds(pending.attempts, self._random)

    def _finish(self, pending: PendingRequest, result: Response | KwireError | None) -> None:
        if self._machines_had_turn:  # the state machines need another turn for this result
            self._needs_turn = True
        pending.on_done(result, self._now)

    def _send_waiting(self) -> None:
        """Send the waiting requests that can be sent, in order; fail those that are late or cannot be sent."""
        waiting, self._waiting = self._waiting, []
        for pending in waiting:
            if self._now >= pending.deadline:
                self._finish(pending, self._timeout_error(pending))
                continue
            node = self._target(pending.route) if self._now >= pending.retry_at else NO_NODE
            if node != NO_NODE and self.is_ready(node, pending.purpose) and not self._is_throttled(pending, node):
                self._send(pending, node)
                continue
            fatal = self._refusal(pending) or self._fatal_failure(node, pending.purpose)
            if fatal is not None:
                self._finish(pending, fatal)
            else:
                self._waiting.append(pending)

    def _send(self, pending: PendingRequest, node: int) -> None:
        try:
            session = self._connections.ready[pending.purpose][node]
            version = session.version(pending.api, pending.at_most)
            pending.node, pending.broker, pending.version = node, session.peer, version
            request = pending.build(version)
            self._connections.send(
                node,
                pending.purpose,
                request,
                self._now,
                version=version,
                timeout_ms=max(1, int((pending.deadline - self._now) * 1000)),
                token=pending if pending.expects_response else None,
                expects_response=pending.expects_response,
            )
        except KwireError as error:  # no common version, or a value that this version does not have
            api = pending.api.__name__.removesuffix("Request")
            self._finish(pending, error.at(broker=self.describe(node), api=api))
            return
        if not pending.expects_response:
            self._finish(pending, None)

    def _target(self, route: Route) -> int:
        """Return the node of a route, or -1 while there is none."""
        match route:
            case ToNode(node):
                return node if node in self._connections.addresses else NO_NODE
            case ToLeader(topic, partition):
                node = self.snapshot.leader(topic, partition)
                if node == NO_NODE:
                    self._metadata.request_refresh(f"{topic}-{partition} has no known leader")
                return node
            case ToController():
                node = self.snapshot.controller_id
                if node not in self._connections.addresses:
                    self._metadata.request_refresh("the controller is not known")
                    return NO_NODE
                return node
            case ToCoordinator():
                return self._coordinator(route)
            case ToAny():
                return self._any_node()

    def _coordinator(self, route: ToCoordinator) -> int:
        node = self._coordinators.node(route)
        if node is not None and self._may_reach(node):
            return node
        self._coordinators.forget(route)
        if self._coordinators.start(route):

            def done(result: Response | KwireError | None, now: float) -> None:
                if isinstance(result, FindCoordinatorResponse):
                    try:
                        self._coordinators.handle_response(route, result)
                        self._check_coordinator_known(route)
                    except KwireError as error:
                        result = error
                if isinstance(result, KwireError):
                    self._coordinators.failed(route, result)
                    self._coordinator_unknown(route, result, now)

            self.enqueue(
                PendingRequest(
                    ToAny(),
                    FindCoordinatorRequest,
                    lambda version: self._coordinators.request(route, version),
                    done,
                    may_retry=True,
                )
            )
        return NO_NODE

    def _coordinator_unknown(self, route: ToCoordinator, error: KwireError, now: float) -> None:
        """Let the requests for a coordinator wait for the next lookup, or fail them where no lookup can succeed."""
        is_final = isinstance(error, BrokerError) and not error.is_retriable
        for pending in [pending for pending in self._waiting if pending.route == route]:
            if is_final:
                self._waiting.remove(pending)
                self._finish(pending, error)
            else:
                self._back_off(pending, error, now)

    def _may_reach(self, node: int) -> bool:
        """Return whether a broker is in the metadata, and has not failed on all of its connections."""
        connections = self._connections
        return node in connections.addresses and (
            node not in self._recovery.failures or connections.has_connection(node)
        )

    def _check_coordinator_known(self, route: ToCoordinator) -> None:
        """Raise if the coordinator cannot be reached: a broker that restarts may coordinate before it is listed, and
        one that died is still named until the others notice.

        The error causes a back-off before the next lookup.
        """
        node = self._coordinators.node(route)
        if node is not None and not self._may_reach(node):
            self._coordinators.forget(route)
            self._metadata.request_refresh(f"broker {node}, which coordinates {route.key}, is not known")
            what = "cannot be reached" if node in self._connections.addresses else "is not in the metadata"
            raise broker_error(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"broker {node} {what}", api="FindCoordinator", group=route.key
            )

    def _any_node(self) -> int:
        """Return the least loaded node that is ready for general purposes, or -1; then try the next broker.

        Connections for other purposes are not used, though they may be idle: their next request would have to wait.
        The connection to a bootstrap address is, so that most clients need no other one.
        """
        ready = self._connections.ready["general"]
        if ready:
            return min(ready, key=lambda node: (ready[node].in_flight, node < 0))
        if self._now >= self._next_broker_at:
            self._try_next_broker()
        return NO_NODE

    def _try_next_broker(self) -> None:
        """Connect to one more broker: to one that is reachable, to one of the metadata, or to a bootstrap address."""
        connections = self._connections
        is_bootstrap_used = self._may_rebootstrap or not self.snapshot.brokers
        idle = [
            node
            for node in connections.addresses
            if (node >= 0 or is_bootstrap_used) and not connections.is_started(node, "general")
        ]
        if idle:
            reachable = [node for node in idle if connections.has_connection(node)]
            candidates = reachable or sorted(idle, key=lambda node: node < 0)
            connections.start(candidates[self._brokers_tried % len(candidates)], "general")
            self._brokers_tried += 1
        self._next_broker_at = self._now + _NEXT_BROKER_SECONDS

    def _refusal(self, pending: PendingRequest) -> KwireError | None:
        """Return why there is no leader to send a request to, if metadata since then says so: the client has no right.

        Another request would say so by its own error; a leader is not even named.
        """
        route = pending.route
        if not isinstance(route, ToLeader) or self.snapshot.at <= pending.waiting_since:
            return None
        topic = self.snapshot.topics.get(route.topic)
        if topic is None or topic.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return None
        return broker_error(topic.error_code, api="Metadata", topic=route.topic)

    def _fatal_failure(self, node: int, purpose: Purpose) -> KwireError | None:
        """Return the failure that waiting for a node (-1: for any) cannot end, if there is one."""
        if node == NO_NODE:
            view = self.view("general")
            return view.connection_error if view.has_fatal_error else None
        failure = self._connections.last_failure.get(node)
        return failure if _is_fatal(failure) and not self._connections.is_started(node, purpose) else None

    def _timeout_error(self, pending: PendingRequest) -> RequestTimeoutError:
        cause = pending.last_error or self.view("general").connection_error or self._route_failure(pending.route)
        return timeout_error(
            "no response in time" if cause else f"no response in time{self._missing_from_metadata(pending.route)}",
            cause,
            api=pending.api.__name__.removesuffix("Request"),
            remedy="check that the brokers are up and that the addresses they advertise can be reached from here",
        )

    def _route_failure(self, route: Route) -> KwireError | None:
        """Return why the broker of a route cannot be reached, while others can."""
        match route:
            case ToNode(node):
                return self._connections.last_failure.get(node)
            case ToLeader(topic, partition):
                return self._connections.last_failure.get(self.snapshot.leader(topic, partition))
        return None

    def _missing_from_metadata(self, route: Route) -> str:
        """Return what the metadata lacks for a route, as the end of a message, or ""."""
        brokers = self.snapshot.brokers
        match route:
            case ToNode(node) if node not in self._connections.addresses:
                return f": the cluster has no broker {node}, but {', '.join(map(str, sorted(brokers))) or 'none'}"
            case ToLeader(topic, partition) if self.snapshot.partition(topic, partition) is None:
                return f": the cluster has no {topic}-{partition}"
            case ToLeader(topic, partition) if self.snapshot.leader(topic, partition) == NO_NODE:
                return f": {topic}-{partition} has no leader"
            case ToController() if self.snapshot.controller_id not in brokers:
                return ": the cluster has received no controller"
        return ""

    # -- metadata and state machines

    def _wanted_topics(self) -> Collection[str]:
        if len(self._machines) == 1 and not self._waiting:
            return self._machines[0][0].topics()
        wanted: set[str] = set()
        for machine, _ in self._machines:
            wanted.update(machine.topics())
        for pending in self._waiting:
            if isinstance(pending.route, ToLeader):
                wanted.add(pending.route.topic)
        return wanted

    def _refresh_metadata(self) -> None:
        if not self._machines and not self._waiting:  # a client that was not used yet sends nothing
            return
        node = self._any_node()
        if node == NO_NODE:
            self._metadata.attempt(self._now)
            return
        self._metadata.start(node, self._now)

        def done(result: Response | KwireError | None, now: float) -> None:
            self._metadata_done(pending, result, now)

        pending = PendingRequest(ToNode(node), MetadataRequest, self._metadata.request, done)
        pending.deadline = self._now + self.config.request_timeout_ms / 1000
        self._send(pending, node)

    def _metadata_done(self, pending: PendingRequest, result: Response | KwireError | None, now: float) -> None:
        if isinstance(result, MetadataResponse) and result.error_code:
            result = broker_error(result.error_code, broker=pending.broker, api="Metadata", version=pending.version)
        if isinstance(result, MetadataResponse):
            if self._metadata.handle_response(result, now, (pending.broker, pending.version)):
                self._metadata_updated()
            return
        self._metadata.failed(now, result if isinstance(result, KwireError) else None)
        if _asks_to_rebootstrap(result):
            self._rebootstrap(f"broker {pending.broker} asks for it")

    def _end_silence(self) -> None:
        """Begin again if brokers are connected and send no metadata.

        Where none is connected, the bootstrap addresses are tried in turn with the others: to forget those would only
        lose the brokers that come back, if the bootstrap address does not.
        """
        self._metadata.rebootstrap_at = inf
        if self._connections.has_ready:
            after_ms = self.config.metadata_recovery_rebootstrap_trigger_ms
            self._rebootstrap(f"no broker sent metadata for {after_ms / 1000:,.0f} s")

    def _rebootstrap(self, reason: str) -> None:
        """Forget the brokers, and begin again at the bootstrap addresses, resolved anew (KIP-899, KIP-1102)."""
        if not self._may_rebootstrap or self._now < self._rebootstrap_not_before or not self.snapshot.brokers:
            return
        is_first = self._now >= self._rebootstrap_not_before + _REBOOTSTRAP_BACKOFF.max_ms / 1000
        self._rebootstraps = 1 if is_first else self._rebootstraps + 1
        self._rebootstrap_not_before = self._now + _REBOOTSTRAP_BACKOFF.seconds(self._rebootstraps, self._random)
        logs.log_rebootstrap(self.config.bootstrap, reason)
        cause = DisconnectedError(f"closed here, to begin again at the bootstrap addresses: {reason}")
        for event in self._connections.reset(cause, self._now):
            self._handle(event)
        self._metadata.rebootstrap(self._now, reason)
        self._metadata_updated()
        self._coordinators.forget_all()
        self._brokers_tried, self._next_broker_at = 0, self._now

    def _metadata_updated(self) -> None:
        self._set_snapshot(self._metadata.snapshot)
        for event in self._connections.update(self.snapshot, self._now):
            self._handle(event)
        self._recovery.keep(self.snapshot.brokers)

    def _turn_machines(self) -> None:
        self._machines_had_turn = True
        if len(self._clients) > 2:  # clients share: none may be the first in every turn
            self._machines = [*self._machines[1:], *self._machines[:1]]
        for machine, view in self._machines:
            for pending in machine.turn(self._now, view):
                pending.client = client = view.client
                timeout_ms = client.config.request_timeout_ms if pending.timeout_ms is None else pending.timeout_ms
                pending.waiting_since = self._now
                pending.deadline = self._now + timeout_ms / 1000
                pending.purpose = _purpose(pending, client, view.purpose)
                node = self._target(pending.route)
                is_ready = node != NO_NODE and self.is_ready(node, pending.purpose)
                if is_ready and not self._is_throttled(pending, node):
                    self._send(pending, node)
                else:
                    self._waiting.append(pending)
