"""Daemon threads for calls that block and cannot be interrupted: name servers, token servers, functions of the user's.

A call that does not return must not hold up the end of the process, as the threads of an executor would.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

# Further calls wait in a queue: a cluster of a thousand names must not start a thousand threads.
MAX_THREADS = 8


class DaemonThreads:
    """Runs calls, which must not raise, on `MAX_THREADS` daemon threads at most; a thread ends when no call waits."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._waiting: deque[Callable[[], object]] = deque()
        self._threads = 0

    def submit(self, call: Callable[[], object]) -> None:
        """Run a call, or let it wait for a thread. Raises RuntimeError if the system has none left to give."""
        with self._lock:
            self._waiting.append(call)
            if self._threads >= MAX_THREADS:
                return
            self._threads += 1
        try:
            threading.Thread(target=self._run, name=self._name, daemon=True).start()
        except RuntimeError:
            with self._lock:
                self._threads -= 1
                if self._threads or call not in self._waiting:
                    return  # another thread takes it
                self._waiting.remove(call)
            raise

    def clear(self) -> None:
        """Drop the calls that wait."""
        with self._lock:
            self._waiting.clear()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._threads -= 1
                    return
                call = self._waiting.popleft()
            call()
