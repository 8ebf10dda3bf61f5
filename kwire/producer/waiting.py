"""How a thread, or a task of asyncio, waits for an outcome that the loop's thread will tell.

`tell(action)` is the response's own: it has `action` run where the outcome is told, or answers False where it is told
already.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import warnings
from collections.abc import Callable, Generator

from kwire.arguments import check_timeout
from kwire.cluster.mailbox import mailbox_of

# Seconds. Whoever gives more may have thought of milliseconds, as in Java's and librdkafka's clients.
_LONG = 3_600.0

Tell = Callable[[Callable[[], object]], bool]


def warn_of_milliseconds(timeout: float) -> None:
    """Warn the caller of kwire, however deep in it this is."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("kwire."):
        frame, level = frame.f_back, level + 1
    warnings.warn(f"a timeout of {timeout!r}: these are seconds, not milliseconds", stacklevel=level)


def wait_for(tell: Tell, timeout: float | None) -> bool:
    """Wait for at most `timeout` seconds; False when it took longer."""
    check_timeout(timeout)
    if timeout is not None and timeout > _LONG:
        warn_of_milliseconds(timeout)
    # A lock that is released once is an event, without an event's own lock and queue of waiters. And an interrupt at
    # the wrong moment leaves an event locked for good: the loop's thread, which is to set it, would wait for that.
    told = threading.Lock()
    told.acquire()
    return not tell(told.release) or told.acquire(timeout=-1 if timeout is None else max(0, timeout))


def awaiting(tell: Tell) -> Generator[object, None, None]:
    """For `__await__`: wait in the asyncio loop that runs, whichever it is."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    mailbox = mailbox_of(loop)

    def resolve() -> None:
        if not future.done():  # the awaiting task may have been cancelled
            future.set_result(None)

    if tell(lambda: mailbox.post(resolve)):
        yield from future
