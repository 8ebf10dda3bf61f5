"""Where a producer's callbacks run, and the memory bound of records whose callbacks wait.

By default callbacks run on the callback thread, one at a time. Records whose callbacks wait use memory, which a
callback that blocks would let grow without bound. So the first max_buffered_bytes of such records are free; the bytes
above them count against max_buffered_bytes, and `send` blocks or raises BufferFullError when that is reached.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from functools import partial
from typing import Any

from kwire.producer.batch_builder import Dispatch
from kwire.producer.failures import Failures

_log = logging.getLogger("kwire.callbacks")

CallbackExecutor = Executor | Callable[[Callable[[], object]], object]


class _Here(threading.local):
    is_running = False  # whether this thread is running callbacks of the producer


class _Job:
    """Dispatched callbacks that have not run yet, and the topic and size of their records."""

    __slots__ = ("is_charged", "size_bytes", "topic")

    def __init__(self, topic: str, size_bytes: int) -> None:
        self.topic = topic
        self.size_bytes = size_bytes
        self.is_charged = False  # whether it counts against max_buffered_bytes


class Callbacks:
    """The callbacks of one producer: the `dispatch` of its batches. All methods may be called from any thread."""

    def __init__(
        self, dispatch: Dispatch, bytes_max: int | None = None, executor: CallbackExecutor | None = None
    ) -> None:
        """`dispatch` passes a call to the callback thread, or to asyncio; `bytes_max` None: no bound.

        An `executor` gets the calls from that thread, so an executor that blocks does not block the loop.
        """
        self.failures = Failures()
        self._dispatch = dispatch
        self._bytes_max = bytes_max
        self._executor = executor
        self._release: Callable[[Mapping[str, int]], object] | None = None
        self._lock = threading.RLock()  # reentrant: a finalizer may run here and call `send`
        self._here = _Here()
        self._jobs: dict[_Job, None] = {}
        self._free_bytes = 0  # of jobs that are not charged
        self._sending = 0  # callbacks that are in `send`: they must not wait for their own memory

    def bind(self, release: Callable[[Mapping[str, int]], object]) -> None:
        """Set `release`, which returns memory to the pool, in bytes by topic; negative numbers reserve it."""
        self._release = release

    def __call__(self, function: Callable[..., object], *args: Any) -> None:
        """Dispatch `function(*args)`, which must not raise."""
        self.run("", 0, function, *args)

    def run(self, topic: str, size_bytes: int, function: Callable[..., object], *args: Any) -> None:
        """Dispatch callbacks of records of that topic and size; `function` must not raise."""
        if self._bytes_max is None:
            self._dispatch(function, *args)
            return
        job = _Job(topic, size_bytes)
        self._add(job)
        if self._executor is None:
            self._dispatch(self._run, job, function, *args)
        else:
            self._dispatch(self._hand_on, job, partial(self._run, job, function, *args))

    @property
    def is_running_here(self) -> bool:
        """Whether this thread is running callbacks of this producer."""
        return self._here.is_running

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Charge no waiting callbacks while a callback is in `send`, which may block until there is memory."""
        with self._lock:
            self._sending += 1
            for job in self._jobs:
                if job.is_charged:
                    self._charge(job, is_charged=False)
        try:
            yield
        finally:
            with self._lock:
                self._sending -= 1
                for job in reversed(self._jobs):
                    self._settle(job)

    def _run(self, job: _Job, function: Callable[..., object], *args: Any) -> None:
        self._here.is_running = True
        try:
            function(*args)
        finally:
            self._here.is_running = False
            self._remove(job)

    def _hand_on(self, job: _Job, run: Callable[[], object]) -> None:
        """Submit callbacks to the caller's executor; run them here if it refuses them."""
        assert self._executor is not None
        try:
            if isinstance(self._executor, Executor):
                self._executor.submit(run).add_done_callback(partial(self._handed_on, job))
            else:
                self._executor(run)
        except Exception as error:  # "cannot schedule new futures after shutdown", "Event loop is closed"
            _log.error("callback_executor refused callbacks, which run on the callback thread instead: %s", error)
            run()

    def _handed_on(self, job: _Job, future: Future[Any]) -> None:
        if future.cancelled():
            _log.error("callback_executor cancelled callbacks of topic %s: they do not run", job.topic)
            self._remove(job)

    def _add(self, job: _Job) -> None:
        with self._lock:
            self._jobs[job] = None
            self._free_bytes += job.size_bytes
            self._settle(job)

    def _remove(self, job: _Job) -> None:
        with self._lock:
            if job.is_charged:
                self._charge(job, is_charged=False)
            del self._jobs[job]
            self._free_bytes -= job.size_bytes

    def _settle(self, job: _Job) -> None:
        """Charge a job if the free bytes exceed their bound."""
        is_over = self._bytes_max is not None and self._free_bytes > self._bytes_max
        if is_over and job.size_bytes and not (job.is_charged or self._sending):
            self._charge(job, is_charged=True)

    def _charge(self, job: _Job, *, is_charged: bool) -> None:
        """Charge or free a job. The lock is held, so that no memory is released before it was reserved."""
        size_bytes = -job.size_bytes if is_charged else job.size_bytes
        job.is_charged = is_charged
        self._free_bytes += size_bytes
        if self._release is not None:
            self._release({job.topic: size_bytes})
