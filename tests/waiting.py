"""Wait for what another thread or process does, where nothing announces it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic

PATIENCE_SECONDS = 30.0


def wait_until(is_so: Callable[[], object], patience: float = PATIENCE_SECONDS) -> None:
    """Return when `is_so()` is true; fail after `patience` seconds."""
    end = monotonic() + patience
    pause = threading.Event()
    while not is_so():
        assert monotonic() < end, "it did not happen in time"
        pause.wait(0.002)
