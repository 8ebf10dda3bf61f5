"""`serve`: a cluster that runs until it is told to stop. What the command line calls.

Owns the waiting and the signals. It prints nothing: `on_ready` is given the cluster.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from kwire.broker.cluster import Cluster


def serve(
    *, on_ready: Callable[[Cluster], None] | None = None, stop: threading.Event | None = None, **cluster: Any
) -> None:
    """Run a `Cluster(**cluster)` until `stop` is set or, on the main thread, SIGINT or SIGTERM comes.

    Raises what `Cluster` raises, before `on_ready` was called.
    """
    stop = stop or threading.Event()
    with _signals(stop), Cluster(**cluster) as running:
        if on_ready is not None:
            on_ready(running)
        stop.wait()


@contextmanager
def _signals(stop: threading.Event) -> Iterator[None]:
    """Only the main thread can have signal handlers; elsewhere `stop` is the only way."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ask_to_stop(number: int, frame: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, ask_to_stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
