"""`kwire.Cluster`: one event loop, one set of connections and one view of the metadata, for several clients.

kafka4net's `Cluster` is shared in the same way by its producers and consumers. Each client keeps its own options, state
machines and callback thread (`SharedLoopThread`); `LoopClient` is its part in the loop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from kwire.arguments import check_timeout
from kwire.cluster.config import ClientConfig, ClientKwargs, client_config
from kwire.cluster.metrics import ClusterMetrics
from kwire.cluster.thread import LoopThread
from kwire.cluster.unpicklable import Unpicklable
from kwire.errors import ClosedError, ConfigurationError
from kwire.option_checks import documents_options, translate_bootstrap

if TYPE_CHECKING:
    from kwire.cluster.events import ClusterEvent

T = TypeVar("T")

# The options that a client on a cluster may have of its own; the others belong to the connections and the metadata.
OWN_OPTIONS = frozenset(
    {"allow_auto_create_topics", "request_timeout_ms", "retry_backoff_ms", "retry_backoff_ms_max"}
)  # fmt: skip

# How long, in seconds, `close` waits for deliveries: by default, and after a block that raised.
CLOSE_SECONDS = 30.0
RAISED_SECONDS = 1.0


@documents_options(ClientConfig)
class Cluster(Unpicklable):
    """A Kafka cluster whose connections, metadata and event loop several clients share.

    >>> with kwire.Cluster("localhost:9092") as cluster:              # doctest: +SKIP
    ...     with kwire.Producer(cluster) as producer, kwire.Consumer(cluster) as consumer:
    ...         ...

    Give it to `kwire.Producer`, `kwire.Consumer`, `kwire.Admin` and `kwire.aio.Producer` in place of a bootstrap
    address. It is no broker: `kwire.broker.Cluster` is the embedded cluster, whose `bootstrap` any client takes.

    Options are those of every client, and are given here. A client on a cluster may override
    allow_auto_create_topics, request_timeout_ms, retry_backoff_ms and retry_backoff_ms_max, and it has its own options,
    such as linger_ms; ConfigurationError for any other. `kwire.Consumer` creates no topics unless its own options say
    so.

    Producers share one connection per broker, with max_in_flight requests in flight for all of them together; each
    consumer has its own, since a fetch waits at the broker. Callbacks of each client run on a thread of its own. The
    broker metrics of a client are those of the whole cluster.

    Closing a client leaves the cluster and the other clients as they are. No broker is contacted before a client is
    used. A forked child cannot use it. Safe to use from many threads.
    """

    @translate_bootstrap("kwire.Cluster")
    def __init__(self, bootstrap: str | Sequence[str], **options: Unpack[ClientKwargs]) -> None:
        config = client_config(bootstrap, options, client="kwire.Cluster")
        self._thread = HostLoopThread(config, name=f"{config.client_id} cluster")

    @property
    def bootstrap(self) -> str:
        """Return the addresses that were given, as "host:port,host:port"."""
        return ",".join(self._thread.config.bootstrap)

    def metrics(self) -> ClusterMetrics:
        """Return what was counted about the brokers, for all clients together."""
        return self._thread.on_loop_or_after(self._thread.metrics)

    def on_cluster_event(self, callback: Callable[[ClusterEvent], object]) -> Callable[[], None]:
        """Call `callback(event)` on a callback thread for each event of `kwire.cluster.events` from now on.

        Return a function that ends it. What `callback` raises is logged.
        """
        return self._thread.on_cluster_event(callback)

    def close(self, timeout: float | None = CLOSE_SECONDS) -> None:
        """Close the clients that are still open, the newest first, then the connections and the thread.

        Producers deliver the records that they have, for at most `timeout` seconds in all (None: without a limit) and
        5 s while no broker has ever responded; those that remain fail, and an error in the log names them. A second
        call does nothing.
        """
        check_timeout(timeout)
        if self._thread.is_forked:
            return
        clock = self._thread.clock
        deadline = None if timeout is None else clock.now() + timeout
        for client in self._thread.clients():
            client.close_with_cluster(None if deadline is None else max(0.0, deadline - clock.now()))
        self._thread.close()

    def _open_thread(self, options: Mapping[str, Any], role: str) -> LoopThread:
        """Return the loop thread of a new client on this cluster; a simulation has its own."""
        host = self._thread
        return SharedLoopThread(host, replace(host.config, **options), name=f"{host.config.client_id} {role}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close; after a block that raised, wait at most 1 s for deliveries."""
        self.close(CLOSE_SECONDS if error is None else RAISED_SECONDS)

    def __repr__(self) -> str:
        state = ", closed" if self._thread.is_closed else ""
        count = len(self._thread.clients())
        return f"<kwire.Cluster {self._thread.config.client_id!r} of {self.bootstrap}, clients: {count}{state}>"


class HostLoopThread(LoopThread):
    """The loop thread of a `Cluster`: it knows the clients that share it."""

    def __init__(self, config: ClientConfig, *, name: str) -> None:
        self._clients: dict[SharedLoopThread, None] = {}
        super().__init__(config, name=name)

    def clients(self) -> list[SharedLoopThread]:
        """Return the clients that were used and not closed, the newest first."""
        with self._lock:
            return list(reversed(self._clients))

    def join(self, client: SharedLoopThread) -> None:
        self.start()
        with self._lock:
            self.check_usable()
            self._clients[client] = None
            client.join_loop()

    def left(self, client: SharedLoopThread) -> None:
        with self._lock:
            self._clients.pop(client, None)

    def observe(self) -> None:
        """Pass events on to the clients, also where nobody listens to the cluster itself."""
        self._observe()

    def check_usable(self) -> None:
        if self.is_forked:
            raise ClosedError(
                "this kwire.Cluster was made in another process",
                remedy="make a new one after the fork: share configurations, not connections",
            )
        if self.is_closed:
            raise ClosedError("the kwire.Cluster is closed", remedy="make another one, or close it after its clients")

    def _dispatch_event(self, event: ClusterEvent) -> None:
        super()._dispatch_event(event)
        for client in self.clients():
            client.dispatch_event(event)

    def _ended(self) -> None:
        super()._ended()
        for client in self.clients():
            client.loop_ended()


class SharedLoopThread(LoopThread):
    """A client's part of the loop thread of a `Cluster`, in place of a loop thread of its own.

    It has its own options, callback thread and end. `close` takes the client out of the loop, which goes on.
    """

    def __init__(self, host: HostLoopThread, config: ClientConfig, *, name: str) -> None:
        host.check_usable()
        self._host = host
        self._left = threading.Event()
        self._deliver: Callable[[float | None], object] | None = None
        loop = host._loop
        self._set_up(config, host.clock, loop, loop.make_client(config), host._thread, name)

    def deliver_before_end(self, deliver: Callable[[float | None], object]) -> None:
        self._deliver = deliver

    def close_with_cluster(self, timeout: float | None) -> None:
        if self._deliver is not None and not self._is_closing:
            self._deliver(timeout)
        self.close()

    def check_usable(self) -> None:
        self._host.check_usable()
        super().check_usable()

    @property
    def is_closed(self) -> bool:
        return self._is_closing or self._host.is_closed

    def on_loop_or_after(self, function: Callable[[], T], timeout: float | None = None) -> T:
        """Run as `run` does, also when this client has left the loop: only the loop's thread may read its state."""
        return self._host.on_loop_or_after(function, timeout)

    def dispatch_event(self, event: ClusterEvent) -> None:
        self._dispatch_event(event)

    def join_loop(self) -> None:
        self._loop.post(lambda: self._loop.join(self._client))

    def loop_ended(self) -> None:
        """Note that the client has left the loop, or that the loop has ended. May be called more than once."""
        with self._lock:
            self._is_closing = True
        self._host.left(self)
        self._left.set()
        self._ended()

    def _begin(self) -> None:
        self._host.join(self)

    def _post(self, action: Callable[[], object]) -> None:
        self._host.call_soon(action)

    def _observe(self) -> None:
        self._host.observe()

    def _join(self, timeout: float | None) -> None:
        self._left.wait(timeout)

    def _end(self, is_started: bool) -> None:
        if not is_started:
            return
        try:
            self._host.call_soon(self._leave)
        except ClosedError:  # the host's end is this client's, too
            return

    def _leave(self) -> None:
        self._client.leave(ClosedError("the client was closed"))
        self.loop_ended()


def open_loop_thread(
    client: str, bootstrap: str | Sequence[str] | Cluster, options: Mapping[str, Any], role: str
) -> LoopThread:
    """Return the loop thread of a new client: one of its own, or its part in a cluster's.

    `client` is the class as users write it, for errors; `options` are those of `ClientConfig`, and `role` is a word for
    the names of threads. Raises ConfigurationError, and ClosedError for a cluster that is closed.
    """
    if not isinstance(bootstrap, Cluster):
        config = ClientConfig(bootstrap, **options)
        return LoopThread(config, name=f"{config.client_id} {role}")
    refused = sorted(options.keys() - OWN_OPTIONS)
    if refused:
        raise ConfigurationError(
            f"{', '.join(refused)} cannot be set on a {client} that shares a kwire.Cluster",
            remedy="give it to kwire.Cluster(...), or give this client a bootstrap address of its own",
        )
    return bootstrap._open_thread(options, role)
