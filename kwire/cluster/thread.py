"""The thread of an event loop, and the calls into it from other threads.

Producers, consumers, admin clients and the command line use it. It also has the thread for user callbacks and the check
for forks: a child process has the parent's sockets but not its thread, so every use there raises ClosedError.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from kwire.arguments import check_timeout
from kwire.cluster.callbacks import CallbackThread
from kwire.cluster.config import ClientConfig
from kwire.cluster.loop import EventLoop, LoopClient
from kwire.cluster.metadata import Snapshot
from kwire.cluster.metrics import ClusterMetrics
from kwire.cluster.requests import ClusterView, PendingRequest, Purpose, Route, StateMachine, ToCoordinator
from kwire.errors import ClosedError, KwireError, RequestTimeoutError, acting_principal
from kwire.net import Clock, KafkaSelector, SystemClock
from kwire.protocol import Request, Response
from kwire.wire import accel

if TYPE_CHECKING:
    from kwire.cluster.events import ClusterEvent

_log = logging.getLogger("kwire.cluster")

R = TypeVar("R", bound=Response)
T = TypeVar("T")

# The number of forks that led to this process. `os.getpid` would be a system call for every record.
_forks = 0


_runtimes: weakref.WeakSet[LoopThread] = weakref.WeakSet()


def _forked() -> None:
    global _forks
    _forks += 1
    for runtime in list(_runtimes):
        runtime.forked()


os.register_at_fork(after_in_child=_forked)

# How many seconds `request` waits beyond the timeout of the loop, which always gives a result.
_GRACE = 5.0


class LoopThread:
    """One thread, one event loop. `start` is called by the first use; `close` ends it.

    All methods may be called from any thread, but not from a forked child (ClosedError).
    """

    def __init__(self, config: ClientConfig, *, name: str = "kwire", clock: Clock | None = None) -> None:
        accel.warn_if_slow()
        clock, random = clock or SystemClock(), Random()
        loop = EventLoop(config, _selector(config, clock, random), clock, random)
        thread = threading.Thread(target=self._run, name=f"{name} loop", daemon=True)
        self._set_up(config, clock, loop, loop.client, thread, name)

    def _set_up(
        self, config: ClientConfig, clock: Clock, loop: EventLoop, client: LoopClient, thread: threading.Thread,
        name: str,
    ) -> None:  # fmt: skip
        self.config = config
        self.clock = clock
        self._loop = loop
        self._client = client
        self._thread = thread
        self.wakeup = loop.wakeup
        self._callbacks = CallbackThread(f"{name} callbacks")
        self.dispatch = self._callbacks.submit  # runs user code on the callback thread
        # Guards the attributes below, and posting: an action is posted before `close`, or refused. It is re-entrant
        # because a finalizer may run anywhere and may post.
        self._lock = threading.RLock()
        self._is_started = False
        self._is_closing = False
        self._has_ended = False
        self._on_end: list[Callable[[], object]] = []
        self._listeners: dict[object, Callable[[ClusterEvent], object]] = {}
        self._forks = _forks
        self._on_fork: list[Callable[[], object]] = []
        # A daemon thread may stop anywhere when the interpreter exits; this ends it properly before that.
        self._finalizer = weakref.finalize(self, _close_at_exit, weakref.ref(self))

    # -- for state machines and clients

    @property
    def snapshot(self) -> Snapshot:
        """Return the newest metadata, which is immutable. Any thread may read it."""
        return self._loop.snapshot

    def metrics(self) -> ClusterMetrics:
        """Return the counts about brokers. Call it on the loop's thread, or when the loop does not run."""
        return self._loop.metrics()

    def coordinator_error(self, route: ToCoordinator) -> KwireError | None:
        """Return why a coordinator is not known, or None if it is. Call it on the loop's thread."""
        return self._loop.coordinator_error(route)

    @property
    def view(self) -> ClusterView:
        """Return the cluster as state machines with general purposes see it; for the loop's thread only."""
        return self._client.view("general")

    def view_for(self, purpose: Purpose) -> ClusterView:
        """Return the cluster as state machines with this purpose see it; for the loop's thread only."""
        return self._client.view(purpose)

    def start(self) -> None:
        self.check_usable()
        with self._lock:
            if not self._is_started and not self._is_closing:
                if self.config.sasl is not None:
                    self._find_asyncio_loop()
                self._begin()
                self._is_started = True

    def _find_asyncio_loop(self) -> None:
        """Let the coroutine functions of a login run in the caller's event loop, if it has one."""
        import asyncio  # which a program of threads need not load

        with suppress(RuntimeError):  # there is none: this is no asyncio program
            self._loop.run_coroutines_in(asyncio.get_running_loop())

    def _begin(self) -> None:
        self._thread.start()

    def add(self, machine: StateMachine, purpose: Purpose = "general") -> None:
        self.start()
        self.call_soon(self._client.add, machine, purpose)

    def remove(self, machine: StateMachine) -> None:
        self.call_soon(self._loop.remove, machine)

    def call_soon(self, function: Callable[..., object], *args: Any) -> None:
        """Run a function on the loop's thread in its next turn. User code belongs to `dispatch`.

        Raises ClosedError once `close` was called. A function that was posted before always runs.
        """
        self.check_usable()  # before the lock: in a forked child a thread of the parent may hold it
        with self._lock:
            self.check_usable()
            self._post(lambda: function(*args))

    def _post(self, action: Callable[[], object]) -> None:
        self._loop.post(action)

    def run(self, function: Callable[[], T], timeout: float | None = None) -> T:
        """Run a function on the loop's thread, and return or raise what it does."""
        assert not self.is_loop_thread(), "the loop would wait for itself"
        self.start()
        future: Future[T] = Future()

        def callback() -> None:
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)

        self.call_soon(callback)
        return self.wait(future, timeout)

    def on_cluster_event(self, callback: Callable[[ClusterEvent], object]) -> Callable[[], None]:
        """Call `callback(event)` on the callback thread for each event from now on; return what ends that."""
        listeners = self._listeners
        key = object()

        def call(event: ClusterEvent) -> None:
            if key in listeners:  # it may have been removed since the event
                callback(event)

        def unsubscribe() -> None:
            with self._lock:
                listeners.pop(key, None)

        self.check_usable()
        with self._lock:
            listeners[key] = call
            self._observe()
        return unsubscribe

    def _observe(self) -> None:
        self._loop.observe(self._dispatch_event)

    def _dispatch_event(self, event: ClusterEvent) -> None:
        with self._lock:
            listeners = list(self._listeners.values())
        for call in listeners:
            self.dispatch(call, event)

    def is_loop_thread(self) -> bool:
        return threading.current_thread() is self._thread

    @property
    def is_forked(self) -> bool:
        """Return whether this is a forked child, and the client its parent's."""
        return self._forks != _forks

    @property
    def is_closed(self) -> bool:
        """Return whether `close` was called, or the loop broke."""
        return self._is_closing

    @property
    def has_system_clock(self) -> bool:
        """Return whether the clock is that of the system."""
        return isinstance(self.clock, SystemClock)

    @property
    def is_running(self) -> bool:
        with self._lock:
            return self._is_started and not self._has_ended

    def on_loop_or_after(self, function: Callable[[], T], timeout: float | None = None) -> T:
        """Run a function on the loop's thread, or on this one when the loop is not started or has ended."""
        if self.is_running:
            try:
                return self.run(function, timeout)
            except ClosedError:  # the loop ends now
                self._join(timeout)
        return function()

    def _join(self, timeout: float | None) -> None:
        """Wait until all that waited is resolved."""
        self._thread.join(timeout)

    def on_fork(self, callback: Callable[[], object]) -> None:
        """Call `callback` in each forked child, where this thread does not run. It must neither raise nor wait.

        It is for callers that cannot afford `check_usable` in each call.
        """
        self._on_fork.append(callback)
        _runtimes.add(self)

    def forked(self) -> None:
        for callback in self._on_fork:
            callback()

    # -- one request

    def request(
        self,
        route: Route,
        api: type[Request[R]],
        build: Callable[[int], Request[R]],
        timeout: float | None = None,
        *,
        at_most: int | None = None,
        may_retry: bool = True,
    ) -> R:
        """Send one request and return its response. The caller checks the error codes in it.

        `timeout` is seconds, by default the client's request_timeout_ms. Raises NodeError, UnsupportedVersionError or
        RequestTimeoutError.
        """
        assert not self.is_loop_thread(), "the loop would wait for itself"
        timeout = self.config.request_timeout_ms / 1000 if timeout is None else timeout
        future = self.request_future(route, api, build, timeout, at_most=at_most, may_retry=may_retry)
        return self.wait(future, timeout + _GRACE)

    def request_future(
        self,
        route: Route,
        api: type[Request[R]],
        build: Callable[[int], Request[R]],
        timeout: float,
        *,
        at_most: int | None = None,
        may_retry: bool = True,
    ) -> Future[R]:
        """Send one request; the future gets its response, or the error that `request` raises, in `timeout` seconds."""
        self.start()
        future: Future[R] = Future()

        def done(result: Response | KwireError | None, now: float) -> None:
            if isinstance(result, KwireError):
                future.set_exception(result)
            else:
                future.set_result(result)  # type: ignore[arg-type]  # the session decoded it as api.RESPONSE

        timeout_ms = max(1, int(timeout * 1000))
        pending = PendingRequest(route, api, build, done, timeout_ms=timeout_ms, at_most=at_most, may_retry=may_retry)
        self.enqueue(pending)
        return future

    def enqueue(self, pending: PendingRequest) -> None:
        """Queue a request; its `on_done` runs on the loop's thread."""
        self.call_soon(self._client.enqueue, pending)

    def describe(self, node: int) -> str:
        return self._loop.describe(node)

    def version(self, node: int, api: type[Request[Any]]) -> int:
        """Return the version that a request to a connected node would have."""
        return self.run(lambda: self.view.version(node, api), _GRACE)

    # -- the end

    def close(self, timeout: float | None = 10.0) -> None:
        """End the loop: what waits fails with ClosedError, and callbacks run. A second call does nothing."""
        if self._forks != _forks:
            return  # the loop is the parent's
        with self._lock:
            is_first, self._is_closing = not self._is_closing, True
            is_started = self._is_started
        if is_first:
            self._finalizer.detach()
            self._end(is_started)
        if is_started and not self.is_loop_thread():
            self._join(timeout)
        self._callbacks.close(timeout)

    def _end(self, is_started: bool) -> None:
        if is_started:
            self._loop.wakeup()
        else:
            self._loop.close(ClosedError("the client was closed"))

    def deliver_before_end(self, deliver: Callable[[float | None], object]) -> None:
        """Have `deliver(timeout)` called when what ends is not this client but the `kwire.Cluster` that it shares."""

    def when_ended(self, callback: Callable[[], object]) -> None:
        """Call `callback` on the loop's thread when the loop has ended, or at once where it does not run.

        It is for callers that cannot wait in `close`. `callback` must not raise.
        """
        with self._lock:
            if self._is_started and not self._has_ended and self._forks == _forks:
                self._on_end.append(callback)
                return
        callback()

    def check_usable(self) -> None:
        if self._forks != _forks:
            raise ClosedError(
                "this client was made in another process",
                remedy="make a new client after the fork: share configurations, not connections",
            )
        if self._is_closing:
            raise ClosedError("the client is closed", remedy="make another one, or close it later")

    def run_until_done(self, machine: StateMachine, future: Future[T], timeout: float) -> T:
        """Run a state machine on the loop until it resolves `future`, which it does within `timeout` seconds."""
        self.add(machine)
        try:
            return self.wait(future, timeout + _GRACE)
        finally:
            with suppress(ClosedError):
                self.remove(machine)

    def wait(self, future: Future[T], timeout: float | None) -> T:
        """Return the result of `future`, or raise RequestTimeoutError after `timeout` seconds."""
        check_timeout(timeout)
        try:
            return future.result(timeout)
        except FutureTimeoutError as error:
            if isinstance(error, KwireError):  # the result of the future, not the end of the wait
                raise
            raise RequestTimeoutError(
                f"the client's own thread did not respond within {timeout} s",
                remedy="it is blocked: look for code that keeps the interpreter busy, and read the log",
            ) from error

    def _run(self) -> None:
        error = ClosedError("the client was closed")
        acting_principal.set(self.config.principal)
        try:
            while not self._is_closing:
                self._loop.turn()
        except BaseException as cause:
            _log.exception("the event loop broke; every waiting call fails")
            error = ClosedError(
                f"the event loop broke: {type(cause).__name__}: {cause}",
                remedy="this is a defect of kwire: please report it with the traceback in the log",
            )
            error.__cause__ = cause
        finally:
            with self._lock:
                self._is_closing = True
            self._loop.close(error)
            self._ended()

    def _ended(self) -> None:
        with self._lock:
            self._has_ended = True
            callbacks, self._on_end = self._on_end, []
        for callback in callbacks:
            callback()


def _selector(config: ClientConfig, clock: Clock, random: Random) -> KafkaSelector:
    return KafkaSelector(
        clock=clock,
        random=random,
        max_frame_bytes=config.max_frame_bytes,
        reuse_buffers=True,
        tls=config.tls_options,
        connect_timeout_ms=config.connect_timeout_ms,
        idle_timeout_ms=config.idle_timeout_ms,
        reconnect_backoff_ms=config.reconnect_backoff_ms,
        reconnect_backoff_ms_max=config.reconnect_backoff_ms_max,
    )


def _close_at_exit(reference: weakref.ref[LoopThread]) -> None:
    runtime = reference()
    if runtime is not None:
        runtime.close(timeout=1.0)
