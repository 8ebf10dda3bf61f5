"""The way from our threads into asyncio loops: many calls, one wake-up.

`call_soon_threadsafe` takes a lock and writes to a pipe each time. A batch of a thousand records that are each awaited
would do so a thousand times, on the event loop's thread, while brokers wait. A mailbox wakes its loop once for all that
is posted before the loop looks.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from kwire.cluster.dispatcher import run_guarded


class Mailbox:
    """Of one asyncio loop; `mailbox_of` finds it."""

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
_mailboxes: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Mailbox] = weakref.WeakKeyDictionary()


def mailbox_of(loop: asyncio.AbstractEventLoop) -> Mailbox:
    mailbox = _mailboxes.get(loop)
    if mailbox is None:
        with _lock:
            mailbox = _mailboxes.setdefault(loop, Mailbox(loop))
    return mailbox
