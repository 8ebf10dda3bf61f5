"""How a task of asyncio waits for a client's loop thread: the counterpart of `BlockingWaiter` in `waiting`."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from kwire.cluster.callbacks import AsyncioBridge, asyncio_bridge
from kwire.cluster.waiting import Signal, Waiter

if TYPE_CHECKING:
    from kwire.cluster.thread import LoopThread

T = TypeVar("T")


class AsyncioSignal(Signal):
    """A signal for a task. Create it in the loop of that task."""

    __slots__ = ("_error", "_future", "_is_set", "_mailbox")

    def __init__(self, bridge: AsyncioBridge | None = None) -> None:
        self._mailbox = bridge or asyncio_bridge(asyncio.get_running_loop())
        self._is_set = False
        self._error: BaseException | None = None
        self._future: asyncio.Future[None] | None = None  # only if the task has to wait

    def set(self, error: BaseException | None = None) -> None:
        self._mailbox.post(self._resolve, error)

    async def wait(self, timeout: float | None = None) -> bool:
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


class AsyncioWaiter(Waiter):
    """Suspends the calling task. It belongs to no event loop: each signal belongs to the one that runs."""

    shares_thread = True
    cancellations = (asyncio.CancelledError,)

    def signal(self) -> Signal:
        return AsyncioSignal()

    async def yield_now(self) -> None:
        await asyncio.sleep(0)

    async def call(self, function: Callable[..., object], *args: object) -> None:
        result = function(*args)
        if inspect.isawaitable(result):
            await result

    async def close(self, runtime: LoopThread, timeout: float | None) -> None:
        try:
            runtime.close(timeout=0)  # begin to
        finally:
            ended = self.signal()
            runtime.when_ended(ended.set)
            if await ended.wait(timeout):
                runtime.close()  # its thread is at its last step

    def caller(self) -> object:
        return asyncio.current_task()

    def dispatcher(self, runtime: LoopThread) -> Callable[..., object]:
        bridge = asyncio_bridge(asyncio.get_running_loop())

        def dispatch(function: Callable[..., object], *args: object) -> None:
            if not bridge.post(function, *args):
                runtime.dispatch(function, *args)

        return dispatch

    async def shielded(self, coroutine: Coroutine[Any, Any, T]) -> T:
        task = asyncio.ensure_future(coroutine)
        cancelled: asyncio.CancelledError | None = None
        while not task.done():
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError as error:
                cancelled = error
        result = task.result()
        if cancelled is not None:
            raise cancelled
        return result


AWAITING = AsyncioWaiter()
