"""Ending consumers when the process gets a signal to stop, as from Kubernetes or Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol
from weakref import WeakSet


class Stoppable(Protocol):
    """A consumer, of records or of messages."""

    def stop(self, is_stopping: bool = True) -> None: ...


_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGBREAK") if hasattr(signal, name)]
_blocks: list[threading.Event] = []  # of the blocks that run
_consumers: WeakSet[Stoppable] = WeakSet()


def stop_with_signals(consumer: Stoppable) -> None:
    """Have `stop_on_signals` stop a new consumer: at once, if a block that runs already has its signal."""
    _consumers.add(consumer)
    if any(stop.is_set() for stop in _blocks):
        consumer.stop()


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """Within the block, SIGTERM and SIGINT set the event, and end the work of all consumers, those made later too.

    Iterations, `handle` and the `run` of processors end, and polls return at once. A second signal acts as it did
    before the block: the first Ctrl-C ends the work, the second interrupts it. Only for the main thread, as all signal
    handlers.

    >>> with kwire.stop_on_signals() as stop:                                # doctest: +SKIP
    ...     while not stop.is_set():
    ...         handle(consumer.poll())
    """
    stop = threading.Event()
    before: dict[int, Any] = {}

    def restore() -> None:
        while before:
            signal.signal(*before.popitem())

    def handle(number: int, frame: FrameType | None) -> None:
        restore()
        stop.set()
        _tell_consumers(is_stopping=True)

    _blocks.append(stop)
    try:
        for number in _SIGNALS:
            before[number] = signal.signal(number, handle)
        yield stop
    finally:
        restore()
        _blocks.remove(stop)
        if stop.is_set():
            _tell_consumers(is_stopping=False)


def _tell_consumers(*, is_stopping: bool) -> None:
    while True:  # without a lock, since a signal interrupts a thread anywhere
        try:
            found = list(_consumers)
        except RuntimeError:  # another thread has just made a consumer
            continue
        break
    for consumer in found:
        consumer.stop(is_stopping)
