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
_stops: list[threading.Event] = []
consumers: WeakSet[Stoppable] = WeakSet()


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """Within the block, SIGTERM and SIGINT set the event and end all consumers' iterations; polls return at once.

    A second signal acts as it did before the block: the first Ctrl-C ends the work, the second interrupts it. For the
    main thread, as all handlers of signals.

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
        for consumer in list(consumers):
            consumer.stop()

    for number in _SIGNALS:
        before[number] = signal.signal(number, handle)
    try:
        yield stop
    finally:
        restore()
        if stop.is_set():
            for consumer in list(consumers):
                consumer.stop(False)
