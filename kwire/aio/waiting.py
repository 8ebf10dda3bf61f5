"""How a task waits for the loop thread of a client: by a future of its own loop, resolved through the bridge.

A task may be cancelled at any time. The work on the other thread goes on, and its outcome is dropped.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import TypeVar

from kwire.cluster.callbacks import AsyncioBridge, asyncio_bridge
from kwire.errors import RequestTimeoutError

T = TypeVar("T")


class Signal:
    """An event that is set once, from any thread, and awaited by one task. Create it in the loop of that task."""

    __slots__ = ("_error", "_future", "_is_set", "_mailbox")

    def __init__(self, bridge: AsyncioBridge | None = None) -> None:
        self._mailbox = bridge or asyncio_bridge(asyncio.get_running_loop())
        self._is_set = False
        self._error: BaseException | None = None
        self._future: asyncio.Future[None] | None = None  # only if the task has to wait

    def set(self, error: BaseException | None = None) -> None:
        """Set the event, or make `wait` raise `error`."""
        self._mailbox.post(self._resolve, error)

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until set, for at most `timeout` seconds; False when it took longer. Raises the error of `set`."""
        if not self._is_set:
            self._future = asyncio.get_running_loop().create_future()
            await asyncio.wait((self._future,), timeout=timeout)
        if self._error is not None:
            raise self._error
        return self._is_set

    def _resolve(self, error: BaseException | None) -> None:
        self._is_set, self._error = True, error
        if self._future is not None and not self._future.done():
            self._future.set_result(None)


async def result_of(future: Future[T], timeout: float | None = None) -> T:
    """Return the result of a `future` of a client's loop thread; RequestTimeoutError after `timeout` seconds."""
    signal = Signal()
    future.add_done_callback(lambda _: signal.set())
    if not await signal.wait(timeout):
        raise RequestTimeoutError(
            f"the client's own thread did not respond within {timeout} s",
            remedy="it is blocked: look for code that keeps the interpreter busy, and read the log",
        )
    return future.result()
