"""How a task waits for what happens on a client's own thread: by a future of its loop, resolved through the bridge.

A task may be cancelled at any time: what happens on the other thread goes on, and finds nobody to tell.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import TypeVar

from kwire.cluster.callbacks import AsyncioBridge, asyncio_bridge
from kwire.errors import RequestTimeoutError

T = TypeVar("T")


class Signal:
    """Something that is told once, from any thread, and awaited by one task. Made in the loop of that task."""

    __slots__ = ("_error", "_future", "_is_told", "_mailbox")

    def __init__(self, bridge: AsyncioBridge | None = None) -> None:
        self._mailbox = bridge or asyncio_bridge(asyncio.get_running_loop())
        self._is_told = False
        self._error: BaseException | None = None
        self._future: asyncio.Future[None] | None = None  # only for who has to wait

    def tell(self, error: BaseException | None = None) -> None:
        """Come to pass, or fail with `error`."""
        self._mailbox.post(self._resolve, error)

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until told, for at most `timeout` seconds; False when it took longer. Raises the error told."""
        if not self._is_told:
            self._future = asyncio.get_running_loop().create_future()
            await asyncio.wait((self._future,), timeout=timeout)
        if self._error is not None:
            raise self._error
        return self._is_told

    def _resolve(self, error: BaseException | None) -> None:
        self._is_told, self._error = True, error
        if self._future is not None and not self._future.done():
            self._future.set_result(None)


async def result_of(future: Future[T], timeout: float | None = None) -> T:
    """What a client's thread puts into `future`; RequestTimeoutError after `timeout` seconds."""
    signal = Signal()
    future.add_done_callback(lambda _: signal.tell())
    if not await signal.wait(timeout):
        raise RequestTimeoutError(
            f"the client's own thread did not answer within {timeout} s",
            remedy="it is held up: look for what keeps the interpreter busy, and in the log",
        )
    return future.result()
