"""Where user code runs: the callback thread, and asyncio loops.

Where user code runs: a thread of its own, so that slow callbacks stall neither heartbeats nor sends.

kafka4net hands results to the application's SynchronizationContext for the same reason. Callbacks run one at a time, in
the order in which they were handed over. An exception in one is logged and harms nothing else.

The way from our threads into asyncio loops: many calls, one wake-up.

`call_soon_threadsafe` takes a lock and writes to a pipe each time. A batch of a thousand records that are each awaited
would do so a thousand times, on the event loop's thread, while brokers wait. A mailbox wakes its loop once for all that
is posted before the loop looks.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

_log = logging.getLogger("kwire.callbacks")


class CallbackThread:
    """A thread that starts with the first callback and ends with `close`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: SimpleQueue[tuple[Callable[..., object], tuple[Any, ...]] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.RLock()  # a finalizer may run anywhere, and may add a callback
        self._is_closed = False

    def submit(self, function: Callable[..., object], *args: Any) -> None:
        """Hand over a call. After `close` it runs at once, on the caller's thread: late, but not lost."""
        with self._lock:
            if not self._is_closed:
                self._queue.put((function, args))
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                    self._thread.start()
                return
        run_guarded(function, *args)  # without the lock: it may hand over more

    def close(self, timeout: float | None) -> None:
        """Run what was handed over, then end; waits at most `timeout` seconds."""
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
    """Call user code whose exception is nobody's to handle: it is logged."""
    try:
        function(*args)
    except Exception:
        _log.exception("a callback raised")


class AsyncioBridge:
    """Of one asyncio loop; `asyncio_bridge` finds it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)  # its mailbox must not keep it
        self._calls: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._is_woken = False

    def post(self, function: Callable[..., object], *args: Any) -> bool:
        """Have `function(*args)` run in the loop, after what was posted before; from any thread.

        False when the loop is closed: then it never runs, and no task is left there to miss it. What it raises is
        logged.
        """
        loop = self._loop()
        if loop is None or loop.is_closed():
            self._calls.clear()
            return False
        self._calls.append((function, args))
        # The loop clears the mark before it empties the box. So if the mark is seen here, what was just put in is found
        # by the emptying that is still to come; two threads that both see none wake the loop once too often.
        if not self._is_woken:
            self._is_woken = True
            try:
                loop.call_soon_threadsafe(self._empty)
            except RuntimeError:  # closed since
                return False
        return True

    def _empty(self) -> None:
        self._is_woken = False
        for _ in range(len(self._calls)):  # what is posted meanwhile has its own wake-up: other tasks get their turn
            function, args = self._calls.popleft()
            run_guarded(function, *args)


_lock = threading.Lock()
_mailboxes: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncioBridge] = weakref.WeakKeyDictionary()


def asyncio_bridge(loop: asyncio.AbstractEventLoop) -> AsyncioBridge:
    mailbox = _mailboxes.get(loop)
    if mailbox is None:
        with _lock:
            mailbox = _mailboxes.setdefault(loop, AsyncioBridge(loop))
    return mailbox
