"""Where user code runs: on the callback thread, and in asyncio loops.

The callback thread keeps slow callbacks away from the event loop's thread; kafka4net uses the SynchronizationContext of
the application for this. `AsyncioBridge` moves many calls into an asyncio loop with one wake-up.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

_log = logging.getLogger("kwire.callbacks")


class CallbackThread:
    """A thread for callbacks, which starts with the first one and ends with `close`.

    Callbacks run one at a time, in the order of `submit`. An exception in one is logged; the next one runs.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: SimpleQueue[tuple[Callable[..., object], tuple[Any, ...]] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.RLock()  # a finalizer may run anywhere and may submit a callback
        self._is_closed = False

    def submit(self, function: Callable[..., object], *args: Any) -> None:
        """Run a call on the thread. After `close` it runs at once, on the caller's thread."""
        with self._lock:
            if not self._is_closed:
                self._queue.put((function, args))
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                    self._thread.start()
                return
        run_guarded(function, *args)  # without the lock: it may submit more

    def close(self, timeout: float | None) -> None:
        """Run the calls that were submitted, then end; wait at most `timeout` seconds."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._queue.put(None)
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)

    def _run(self) -> None:
        while (job := self._queue.get()) is not None:
            function, args = job
            run_guarded(function, *args)


def run_guarded(function: Callable[..., object], *args: Any) -> None:
    """Call user code, and log its exception."""
    try:
        function(*args)
    except Exception:
        _log.exception("a callback raised")


class AsyncioBridge:
    """The way into one asyncio loop from other threads; `asyncio_bridge` returns it.

    `call_soon_threadsafe` takes a lock and writes to a pipe. For a batch of a thousand awaited records that would
    happen a thousand times on the event loop's thread. The bridge wakes the asyncio loop once for all calls posted
    before it runs.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)  # the bridge must not keep it alive
        self._calls: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._is_woken = False

    def post(self, function: Callable[..., object], *args: Any) -> bool:
        """Run `function(*args)` in the asyncio loop, after the calls posted before; from any thread.

        Return False when the loop is closed: the function then never runs. Its exception is logged.
        """
        loop = self._loop()
        if loop is None or loop.is_closed():
            self._calls.clear()
            return False
        self._calls.append((function, args))
        # `_empty` clears the flag before it reads the calls. So if the flag is set here, `_empty` will still find the
        # call. Two threads that both find it cleared wake the loop once too often, which does no harm.
        if not self._is_woken:
            self._is_woken = True
            try:
                loop.call_soon_threadsafe(self._empty)
            except RuntimeError:  # closed since
                return False
        return True

    def _empty(self) -> None:
        self._is_woken = False
        for _ in range(len(self._calls)):  # later calls have their own wake-up, so that other tasks run between
            function, args = self._calls.popleft()
            run_guarded(function, *args)


_lock = threading.Lock()
_bridges: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncioBridge] = weakref.WeakKeyDictionary()


def asyncio_bridge(loop: asyncio.AbstractEventLoop) -> AsyncioBridge:
    """Return the bridge of an asyncio loop; there is one for each."""
    bridge = _bridges.get(loop)
    if bridge is None:
        with _lock:
            bridge = _bridges.setdefault(loop, AsyncioBridge(loop))
    return bridge
