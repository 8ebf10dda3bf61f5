"""Wait for what another thread or process does, where nothing announces it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import TypeVar

PATIENCE_SECONDS = 30.0
# The pauses grow: a loop without them takes the processor from what it waits for.
_FIRST_PAUSE, _LONGEST_PAUSE, _GROWTH = 0.002, 0.02, 1.5

T = TypeVar("T")


def wait_until(is_so: Callable[[], object], patience: float = PATIENCE_SECONDS) -> None:
    """Return when `is_so()` is true; fail after `patience` seconds."""
    wait_for(is_so, bool, patience)


def wait_for(find: Callable[[], T], is_expected: Callable[[T], object], patience: float = PATIENCE_SECONDS) -> T:
    """Return what `find` returns when that is as expected; fail after `patience` seconds."""
    end = monotonic() + patience
    pause = _FIRST_PAUSE
    is_over = threading.Event()
    while not is_expected(found := find()):
        assert monotonic() < end, f"it did not happen in time; last: {found!r}"
        is_over.wait(pause)
        pause = min(pause * _GROWTH, _LONGEST_PAUSE)
    return found
