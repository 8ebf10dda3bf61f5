"""Where user code runs: a thread of its own, so that slow callbacks stall neither heartbeats nor sends.

kafka4net hands results to the application's SynchronizationContext for the same reason. Callbacks run one at a time, in
the order in which they were handed over. An exception in one is logged and harms nothing else.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

_log = logging.getLogger("kwire.callbacks")


class Dispatcher:
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
