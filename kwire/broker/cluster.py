"""The embedded cluster on its own thread, with the controls that a test needs; `serve` runs one until it is stopped.

Each control runs between two turns of the loop, so that it never sees a request half done.
"""

from __future__ import annotations

import os
import signal
import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import FrameType
from typing import Any, Self, TypeVar, Unpack

from kwire.broker.cluster_state import ClusterState, Node
from kwire.broker.data_directory import SAVE_INTERVAL_MS, DataDirectory
from kwire.broker.diagnostics import Oddity
from kwire.broker.faults import SESSION_APIS, Effect, Fault, FaultKwargs, make_fault
from kwire.broker.handlers.handler import no_partitions
from kwire.broker.handlers.table import HANDLERS
from kwire.broker.listeners import Listener, check_listeners, security_protocol
from kwire.broker.options import ClusterKwargs, make_options
from kwire.broker.request_log import RequestRecord
from kwire.broker.server import Server
from kwire.broker.telemetry import Push
from kwire.errors import ClosedError, ConfigurationError
from kwire.net import Clock, KafkaSelector, SystemClock, Tls, show_address
from kwire.protocol import ApiKey, api
from kwire.protocol.releases import RELEASES, release_versions
from kwire.records import Batch, Record, decode_batches
from kwire.session import SaslServer
from kwire.session.handshake import OWN_APIS

T = TypeVar("T")
_PORT_MAX = 65_535
_running: weakref.WeakSet[Cluster] = weakref.WeakSet()


def _forked() -> None:
    for cluster in list(_running):
        cluster._forked()


os.register_at_fork(after_in_child=_forked)


@dataclass(frozen=True, slots=True)
class LogSnapshot:
    """A partition's log at one moment. `raw_batches` are whole v2 batches as Fetch sends them."""

    start_offset: int
    end_offset: int
    high_watermark: int
    last_stable_offset: int
    raw_batches: tuple[memoryview, ...]

    def batches(self) -> Iterator[Batch]:
        """Decode the batches, control batches included."""
        for raw in self.raw_batches:
            yield from decode_batches(raw)

    def records(self) -> list[Record]:
        """Return all records, those of aborted transactions included, without markers."""
        return [
            record
            for batch in self.batches()
            if not batch.is_control
            for record in batch.records()
            if record.offset >= self.start_offset
        ]


class Cluster:
    """Brokers 1 to `brokers` on loopback. They listen from construction until `close`.

    `kwire.Cluster` is something else: the connections that several clients share.

    >>> with Cluster(brokers=3) as cluster:
    ...     cluster.create_topic("orders", partitions=2)
    ...     cluster.stop(cluster.leader("orders", 0))
    ...     # point any Kafka client at cluster.bootstrap
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        host: str = "127.0.0.1",
        listen_host: str | None = None,
        ports: Sequence[int] | None = None,
        racks: Sequence[str] | None = None,
        tls: Tls | None = None,
        sasl: SaslServer | Mapping[str, str] | None = None,
        listeners: Mapping[str, Listener] | None = None,
        topics: Mapping[str, int] | None = None,
        api_versions: Mapping[ApiKey, range] | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        clock: Clock | None = None,
        **options: Unpack[ClusterKwargs],
    ) -> None:
        """Start the brokers.

        host          the advertised address; the brokers also listen on it, unless `listen_host` is given
        ports         ports of brokers 1, 2, ...; by default any free ones
        sasl          users and passwords, for PLAIN and SCRAM; a `SaslServer` for the other mechanisms too
        listeners     further listeners by name, each with its addresses, TLS and SASL
        topics        topics to create at once: {name: partitions}
        api_versions  narrower versions than the brokers support; `version` narrows them to those of a Kafka release
        data_dir      a directory that keeps topics, records and committed offsets, in Kafka's format; None: in memory
        clock         the time of the brokers; one that a test puts forward counts from the next `call` on
        options       the fields of `Options`

        Raises ConfigurationError, or ConnectError for a port in use.
        """
        if not isinstance(brokers, int) or isinstance(brokers, bool) or brokers < 1:
            raise ConfigurationError(f"brokers is {brokers!r}", remedy="give how many, from 1 on")
        parsed = make_options(options)
        _check_arguments(brokers, ports, racks, topics)
        self._main = security_protocol(has_tls=tls is not None, has_sasl=sasl is not None)
        check_listeners(listeners or {}, self._main, brokers, has_users=sasl is not None)
        self._narrowed = dict(api_versions or {})
        apis = served_versions(self._narrowed, release=parsed.version)
        self._clock = clock or SystemClock()
        origin = (self._clock.now(), self._clock.time_ms())
        nodes = [Node(id, host, 0, rack=racks[id - 1] if racks else None) for id in range(1, brokers + 1)]
        server = _sasl(sasl, self._clock)
        self._state = ClusterState(parsed, nodes, origin=origin, sasl=server)
        self._selector = KafkaSelector(
            clock=self._clock, max_frame_bytes=parsed.max_frame_bytes, idle_timeout_ms=parsed.idle_timeout_ms
        )
        self._server = Server(self._state, self._selector, self._clock, apis=apis, tls=tls, sasl=server)
        self._listen_host = listen_host or host
        self._host = host
        self._extra = dict(listeners or {})
        self._extra_ports: dict[tuple[int, str], int] = {}  # where brokers listen
        self._calls: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()  # of _calls and _is_closed, so that close() leaves no call behind
        self._is_closed = False
        self._why_closed = "the cluster is closed"
        self._directory: DataDirectory | None = None
        try:
            if data_dir is not None:
                self._directory = DataDirectory(data_dir)
                self._directory.load(self._state, self._clock.now())
                self._state.schedule(SAVE_INTERVAL_MS, lambda now: self._save())
            for node, port in zip(nodes, [*(ports or ()), *[0] * brokers], strict=False):
                self._server.listen(node.id, self._listen_host, port)
                self._listen_too(node)
            for name, partitions in (topics or {}).items():
                if self._directory is None or name not in self._state.topics:
                    self._state.create_topic(name, partitions)
        except Exception:
            if self._directory is not None:
                self._directory.release()
            self._server.close()
            raise
        self._thread = threading.Thread(target=self._run, name="kwire-broker", daemon=True)
        _running.add(self)
        self._thread.start()

    def __repr__(self) -> str:
        state = ", closed" if self._is_closed else ""
        return f"<kwire.broker.Cluster at {self.bootstrap}{state}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the brokers and join the thread. Further calls do nothing.

        On the cluster's own thread, such as in a listener of requests, the brokers stop after this returns.
        """
        with self._lock:
            if self._is_closed and not self._thread.is_alive():
                return
            self._is_closed = True
        self._selector.wakeup()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    # State.

    @property
    def bootstrap(self) -> str:
        """Return the addresses of all brokers, stopped ones included: "host:port,host:port"."""
        return ",".join(show_address(node.host, node.port) for node in self._state.nodes.values())

    def bootstrap_of(self, listener: str) -> str:
        """Return the addresses that clients of a listener receive. Raises ConfigurationError if there is none."""
        self._check_listener(listener)
        nodes = self.call(lambda state, now: state.nodes_seen_by(listener))
        return ",".join(show_address(node.host, node.port) for node in nodes)

    @property
    def brokers(self) -> Mapping[int, tuple[str, int]]:
        """Return the address of each broker by its id."""
        return {node.id: (node.host, node.port) for node in self._state.nodes.values()}

    @property
    def failures(self) -> Sequence[BaseException]:
        """Return the errors that the brokers met: bugs of theirs, and what functions of the test raised there.

        Each was logged. One in a request closed its connection; one in the loop ended the cluster.
        """
        return tuple(self._server.failures)

    @property
    def oddities(self) -> tuple[Oddity, ...]:
        """Return what clients did wrong and brokers tolerate, each kind once: bytes after the end of a request."""
        return self.call(lambda state, now: tuple(state.oddities))

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the leader, -1 if there is none. Raises BrokerError if the partition does not exist."""
        return self.call(lambda state, now: state.partition(topic, partition).leader)

    def coordinator(self, key: str) -> int:
        """Return the coordinator of a group or a transactional id."""
        return self.call(lambda state, now: state.coordinator_of(key))

    def log(self, topic: str, partition: int = 0) -> LogSnapshot:
        """Return a snapshot of a partition's log."""

        def snapshot(state: ClusterState, now: float) -> LogSnapshot:
            log = state.partition(topic, partition).log
            raw = tuple(stored.data for stored in log)
            return LogSnapshot(log.start_offset, log.end_offset, log.high_watermark, log.last_stable_offset, raw)

        return self.call(snapshot)

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """Return the committed offsets of a group by (topic, partition)."""
        return self.call(
            lambda state, now: {partition: committed.offset for partition, committed in state.offsets.of(group).items()}
        )

    def requests(self) -> Counter[ApiKey]:
        """Return how many requests of each API all brokers have handled."""
        return self.call(lambda state, now: Counter(state.requests))

    def request_log(
        self, *, api: ApiKey | None = None, client_id: str | None = None, node: int | None = None
    ) -> list[RequestRecord]:
        """Return the last requests, the oldest first: those of an API, a client or a broker, by default all.

        `request_log_size` bounds how many are kept: 1,000 by default. ApiVersions and SASL requests are not among them.
        Raises ConfigurationError for an API or a broker that does not exist.
        """
        if api is not None and not isinstance(api, ApiKey):
            raise ConfigurationError(f"api is {api!r}", remedy="give a kwire.protocol.ApiKey, such as ApiKey.PRODUCE")
        if node is not None:
            self._check_node(node)

        def copy(state: ClusterState, now: float) -> list[RequestRecord]:
            return [
                replace(record)
                for record in state.request_log
                if api in (None, record.api) and client_id in (None, record.client_id) and node in (None, record.node)
            ]

        return self.call(copy)

    def clear_request_log(self) -> None:
        """Forget the requests of `request_log`."""
        self.call(lambda state, now: state.request_log.clear())

    def on_request(self, listener: Callable[[RequestRecord], None] | None) -> None:
        """Call `listener(record)` on the cluster's thread when a request is complete. One listener; None removes it.

        What it raises is logged, and is in `failures`.
        """
        if listener is not None and not callable(listener):
            raise ConfigurationError(f"listener is {listener!r}", remedy="give a function of a RequestRecord, or None")
        guarded = None if listener is None else partial(self._server.call_listener, listener)

        def listen(state: ClusterState, now: float) -> None:
            state.request_log.listener = guarded

        self.call(listen)

    def telemetry(self) -> tuple[Push, ...]:
        """Return the metrics that clients have pushed, at most the last 1,000 (KIP-714).

        They push what an administrator subscribes to: `admin.client_metrics.set("all", ["*"], interval_ms=1000)`.
        """
        return self.call(lambda state, now: tuple(state.telemetry))

    # Controls.

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic. -1 means the default in `Options`. `configs` have Kafka's names. Raises BrokerError."""
        self.call(lambda state, now: state.create_topic(name, partitions, replication_factor, configs))

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records."""
        self.call(lambda state, now: state.delete_topic(state.find_topic(name), now))

    def alter_group(self, group: str, configs: Mapping[str, str | None]) -> None:
        """Replace the configs of a group, which need not exist. `configs` have Kafka's names.

        A share group reads only new records unless its `share.auto.offset.reset` is "earliest". Raises BrokerError.
        """
        self.call(lambda state, now: state.group_configs.alter(group, configs))

    def stop(self, node: int) -> None:
        """Stop a broker: close its sockets, and move its partitions and groups to others."""

        def stop(state: ClusterState, now: float) -> None:
            self._check_node(node)
            self._server.stop_broker(node)
            state.stop_node(node, now)

        self.call(stop)

    def restart(self, node: int) -> None:
        """Start a stopped broker at its old address with its data. It leads only partitions without a leader."""

        def restart(state: ClusterState, now: float) -> None:
            self._check_node(node)
            if not state.nodes[node].is_up:
                self._server.listen(node, self._listen_host, state.nodes[node].port)
                self._listen_too(state.nodes[node])
                state.start_node(node, now)

        self.call(restart)

    def freeze(self, node: int) -> None:
        """Let a broker answer nothing until `thaw`, as a process that is stopped: its connections stay open.

        It keeps its partitions and groups, and requests that have begun go on.
        """
        self._check_node(node)
        self.call(lambda state, now: self._server.freeze(node))

    def thaw(self, node: int) -> None:
        """Let a frozen broker go on: it handles what has come meanwhile."""
        self._check_node(node)
        self.call(lambda state, now: self._server.thaw(node))

    def advertise(self, node: int, host: str, port: int, *, listener: str | None = None) -> None:
        """Let all brokers tell clients of a listener, by default the first, this address of a broker: right or wrong.

        It listens where it did, and `bootstrap` stays.
        """
        self._check_node(node)
        _check_address(host, port)
        name = self._main if listener is None else listener
        self._check_listener(name)
        self.call(lambda state, now: state.nodes[node].advertised.update({name: (host, port)}))

    def serve_as(self, node: int, version: str | None) -> None:
        """Let a broker serve the API versions of another Kafka release from now on, as in a rolling upgrade.

        Its connections are closed; clients find the versions when they connect again. None is the newest. The rules of
        the brokers stay those of the cluster's `version`. Raises ConfigurationError for an unknown release.
        """
        self._check_node(node)
        if version is not None and version not in RELEASES:
            raise ConfigurationError(
                f"version is {version!r}", remedy=f"give a release such as {RELEASES[-1]}, or None"
            )
        apis = served_versions(self._narrowed, release=version)
        self.call(lambda state, now: self._server.serve_as(node, apis))

    def tell_leader(
        self, topic: str, partition: int, leader: int | None, *, nodes: Sequence[int] | None = None
    ) -> None:
        """Let the metadata of some brokers, by default all, name another leader: stale metadata.

        None ends that. The leader itself does not change; the one that is named refuses requests, as in Kafka.
        """
        for node in (*(nodes or ()), *(() if leader is None else (leader,))):
            self._check_node(node)

        def tell(state: ClusterState, now: float) -> None:
            state.partition(topic, partition)
            for node in state.nodes if nodes is None else nodes:
                if leader is None:
                    state.told_leaders.pop((node, topic, partition), None)
                else:
                    state.told_leaders[node, topic, partition] = leader

        self.call(tell)

    def move_leader(self, topic: str, partition: int, node: int) -> None:
        """Make another in-sync replica the leader, without loss. Raises BrokerError if `node` is not in the ISR."""
        self.call(lambda state, now: state.partition(topic, partition).move_leader(node, now))

    def compact(self, topic: str, partition: int | None = None) -> None:
        """Compact a partition now, or all of a topic, up to the last stable offset.

        Unlike `cleanup.policy=compact` later, it includes the active segment and ignores lags and the dirty ratio.
        Raises BrokerError.
        """

        def compact(state: ClusterState, now: float) -> None:
            found = state.find_topic(topic)
            chosen = found.partitions if partition is None else [state.partition(topic, partition)]
            for one in chosen:
                one.log.compact(state.wall_ms(now))

        self.call(compact)

    def add_fault(self, effect: Effect, **match: Unpack[FaultKwargs]) -> Fault:
        """Make requests fail: `match` are the fields of `Fault`, such as `api=ApiKey.PRODUCE, times=3`.

        By default the effect applies to the next matching request only; `times=None` means all of them. Raises
        ConfigurationError for a fault that could never match.
        """
        return self.inject(make_fault(effect, match))

    def inject(self, fault: Fault) -> Fault:
        """Add a fault that was made before, such as those of `kwire broker --faults`. Raises ConfigurationError."""
        if not isinstance(fault, Fault):
            raise ConfigurationError(f"fault is {fault!r}", remedy="give a kwire.broker.Fault, or call add_fault")
        if fault.node is not None:
            self._check_node(fault.node)
        _check_fault(fault)
        return self.call(lambda state, now: state.faults.add(fault))

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Return the faults that are not spent, in the order in which they are tried."""
        return self.call(lambda state, now: tuple(state.faults))

    def remove_fault(self, fault: Fault) -> None:
        """Remove a fault, if it is there."""
        self.call(lambda state, now: state.faults.remove(fault))

    def clear_faults(self) -> None:
        """Remove all faults."""
        self.call(lambda state, now: state.faults.clear())

    def call(self, action: Callable[[ClusterState, float], T]) -> T:
        """Run `action(state, now)` on the cluster's thread, between two turns of its loop, and return its result.

        Raises what `action` raises, and ClosedError after `close`.
        """
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(action(self._state, self._clock.now()))
            except BaseException as error:
                future.set_exception(error)

        if threading.current_thread() is self._thread:
            run()
        else:
            self._post(run)
        return future.result()

    def _post(self, run: Callable[[], None]) -> None:
        with self._lock:
            if self._is_closed:
                raise ClosedError(self._why_closed)
            self._calls.append(run)
        self._selector.wakeup()

    def _listen_too(self, node: Node) -> None:
        """Open a broker's further listeners, at their ports of before if it was stopped."""
        for name, listener in self._extra.items():
            at = node.id, name
            given = listener.ports[node.id - 1] if node.id <= len(listener.ports) else 0
            host = listener.host or self._host
            bind = listener.listen_host or listener.host or self._listen_host
            port = self._server.listen_too(
                node.id, name, bind, self._extra_ports.get(at, given), tls=listener.tls, has_sasl=listener.sasl
            )
            self._extra_ports[at] = port
            told = listener.advertised_ports
            node.advertised.setdefault(name, (host, told[node.id - 1] if node.id <= len(told) else port))

    def _check_listener(self, name: str) -> None:
        if name not in self._extra and name != self._main:
            listed = ", ".join([self._main, *self._extra])
            raise ConfigurationError(f"there is no listener {name}", remedy=f"listeners are {listed}")

    def _check_node(self, node: int) -> None:
        if node not in self._state.nodes:
            raise ConfigurationError(f"there is no broker {node}", remedy=f"brokers are {list(self._state.nodes)}")

    # The thread.

    def _run(self) -> None:
        try:
            while not self._is_closed:
                self._server.turn()
                self._run_calls()
        except BaseException as error:
            with self._lock:  # so that no call waits for this thread
                self._is_closed = True
                self._why_closed = f"the cluster ended with {error!r}"
            self._server.fail(error)
        finally:
            _running.discard(self)
            self._server.close()
            self._run_calls()
            if self._directory is not None:
                self._directory.close(self._state)

    def _forked(self) -> None:
        """Close this process's copies of sockets and files: the brokers run in the parent, and could not close them."""
        self._lock = threading.Lock()  # the parent's may have been held
        self._is_closed = True
        self._why_closed = f"the cluster runs in the process {os.getppid()}, from which this one was forked"
        self._selector.close()
        if self._directory is not None:
            self._directory.release()

    def _save(self) -> None:
        assert self._directory is not None
        self._directory.save(self._state)

    def _run_calls(self) -> None:
        while self._calls:
            self._calls.popleft()()
        self._server.process_ready(self._clock.now())


def _check_fault(fault: Fault) -> None:
    """Raise ConfigurationError for a fault of an API that the brokers lack, or whose requests they do not search."""
    key = fault.api
    if key is None or key in SESSION_APIS:
        return
    if key not in HANDLERS:
        raise ConfigurationError(f"a fault: the brokers have no {key.name}", remedy="name an API that clients use")
    if fault.names_partition and HANDLERS[key].named_partitions is no_partitions:
        why = f"a fault: topic and partition do not select requests of {key.name}"
        raise ConfigurationError(why, remedy="use when, a function of the request")


def _check_address(host: str, port: int) -> None:
    if not isinstance(host, str) or not host:
        raise ConfigurationError(f"host is {host!r}", remedy="give a name or an address as str")
    if not isinstance(port, int) or isinstance(port, bool) or not 0 <= port <= _PORT_MAX:
        raise ConfigurationError(f"port is {port!r}", remedy=f"give a port from 0 to {_PORT_MAX}")


def _check_arguments(
    brokers: int, ports: Sequence[int] | None, racks: Sequence[str] | None, topics: Mapping[str, int] | None
) -> None:
    if ports is not None and not isinstance(ports, Sequence):
        raise ConfigurationError(f"ports is {ports!r}", remedy="give a list with the port of each broker")
    for port in ports or ():
        if not isinstance(port, int) or isinstance(port, bool) or not 0 <= port <= _PORT_MAX:
            raise ConfigurationError(f"ports has {port!r}", remedy=f"a port is 0 (any free one) to {_PORT_MAX}")
    if ports is not None and len(ports) > brokers:
        raise ConfigurationError(f"ports are {list(ports)}, with {brokers} brokers", remedy="give one for each broker")
    if racks is not None and (isinstance(racks, str) or len(racks) != brokers):
        raise ConfigurationError(f"racks is {racks!r}, with {brokers} brokers", remedy="give one for each broker")
    if topics is None:
        return
    if not isinstance(topics, Mapping):
        raise ConfigurationError(f"topics is {topics!r}", remedy='give names and partitions: {"orders": 3}')
    for name, partitions in topics.items():
        if not isinstance(name, str) or not isinstance(partitions, int) or isinstance(partitions, bool):
            raise ConfigurationError(f"topics has {name!r}: {partitions!r}", remedy='write it as {"orders": 3}')


def served_versions(narrowed: Mapping[ApiKey, range], *, release: str | None = None) -> dict[int, range]:
    """Return the versions to offer: all supported ones within `narrowed`. An empty range removes an API.

    With a release, only the versions that its brokers have.
    """
    served: dict[int, range] = {}
    history = None if release is None else release_versions(release, has_zookeeper=False)
    handled = {**OWN_APIS, **{key: HANDLERS[key].request.VERSIONS for key in HANDLERS}}
    for key, wanted in narrowed.items():
        if not isinstance(key, ApiKey) or not isinstance(wanted, range):
            raise ConfigurationError(
                f"api_versions has {key!r}: {wanted!r}", remedy="write it as {ApiKey.PRODUCE: range(3, 10)}"
            )
        if wanted and not _common(api(int(key)).versions, wanted):
            has = api(int(key)).versions
            why = f"api_versions has versions {wanted.start} to {wanted.stop - 1} of {key.name}"
            raise ConfigurationError(
                why, remedy=f"it has {has.start} to {has.stop - 1}; an empty range removes the API"
            )
    for key, wanted in [*handled.items(), *narrowed.items()]:
        has = api(int(key)).versions
        if history is not None:
            wanted = _common(wanted, history.get(int(key), range(0)))
        served[int(key)] = _common(has, wanted)
    return served


def _common(one: range, other: range) -> range:
    return range(max(one.start, other.start), min(one.stop, other.stop))


def _check_sasl(given: object) -> None:
    if isinstance(given, Mapping):
        if not all(isinstance(one, str) for pair in given.items() for one in pair):
            why = "sasl has a user or a password that is not a str"
            raise ConfigurationError(why, remedy='give {"alice": "secret"}')
    elif not isinstance(given, SaslServer):
        remedy = 'give users and passwords, {"alice": "secret"}, or a kwire.session.SaslServer'
        raise ConfigurationError(f"sasl is a {type(given).__name__}", remedy=remedy)


def _sasl(given: SaslServer | Mapping[str, str] | None, clock: Clock) -> SaslServer | None:
    if given is None:
        return None
    _check_sasl(given)
    server = given if isinstance(given, SaslServer) else SaslServer(given)
    server.unix_time = lambda: clock.time_ms() / 1000
    return server


def serve(
    *, on_ready: Callable[[Cluster], None] | None = None, stop: threading.Event | None = None, **cluster: Any
) -> None:
    """Run a `Cluster(**cluster)` until `stop` is set or, on the main thread, SIGINT or SIGTERM comes.

    `on_ready(cluster)` is called when the brokers listen. Raises what `Cluster` raises.
    """
    stop = stop or threading.Event()
    with _handle_signals(stop), Cluster(**cluster) as running:
        if on_ready is not None:
            on_ready(running)
        stop.wait()


@contextmanager
def _handle_signals(stop: threading.Event) -> Iterator[None]:
    """Set `stop` at SIGINT and SIGTERM. Only the main thread can have signal handlers; others do nothing here."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
