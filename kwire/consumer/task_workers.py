"""Tasks of one event loop that call the user's coroutine function for records.

A file of its own, so that a consumer imports asyncio only for such a function: that takes an eighth longer.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from kwire.consumer.shards import Work
from kwire.consumer.workers import Workers


class TaskWorkers(Workers):
    """Each worker is a task of one event loop: the given one, or one in a thread of its own."""

    def __init__(self, *args: Any, loop: asyncio.AbstractEventLoop | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self._loop = loop
        self._thread: threading.Thread | None = None
        self._idle: list[asyncio.Future[None]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._is_wake_posted = False

    def start(self) -> None:
        self.queue.on_ready = self._wake
        self.queue.wakes_workers = False  # no thread waits for `has_work`
        if self._loop is not None:
            self._begin()
            return
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name="kwire workers", daemon=True)
        self._thread.start()

    def _run_loop(self) -> None:
        loop = self._loop
        assert loop is not None
        asyncio.set_event_loop(loop)
        self._begin()
        loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    def _begin(self) -> None:
        assert self._loop is not None
        self._tasks = [self._loop.create_task(self._work()) for _ in range(self.concurrency)]

    def stop(self) -> None:
        self._is_stopping = True
        self._wake()

    def _wake(self) -> None:
        """Wake idle tasks; from any thread."""
        if not self._is_wake_posted and self._loop is not None:
            self._is_wake_posted = True
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._wake_idle)

    def _wake_idle(self) -> None:
        self._is_wake_posted = False
        count = len(self._idle) if self._is_stopping else max(1, self.queue.ready_count)
        woken, self._idle = self._idle[:count], self._idle[count:]
        for future in woken:
            if not future.done():
                future.set_result(None)

    async def _work(self) -> None:
        while not self._is_stopping:
            works = self.queue.take(self._now(), 1)
            if works:
                await self._run(works[0])
                continue
            self._on_idle()
            await self._sleep()

    async def _sleep(self) -> None:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._idle.append(future)
        retry_at = self.queue.next_due()
        if self.queue.ready_count or self._is_stopping:  # it came between `take` and here
            future.set_result(None)
        timeout = None if retry_at is None else max(0.0, retry_at - self._now())
        await asyncio.wait((future,), timeout=timeout)
        if not future.done():
            future.cancel()
        with suppress(ValueError):
            self._idle.remove(future)

    async def _run(self, work: Work) -> None:
        handling = self.handling
        try:
            if not handling.is_left_out(work):
                if handling.timeout is None:
                    await handling.function(handling.argument(work))
                else:
                    async with asyncio.timeout(handling.timeout):
                        await handling.function(handling.argument(work))
                handling.succeeded(work)
        except asyncio.CancelledError:
            self.queue.put_back([work])
            raise
        except BaseException as error:
            if not await self._is_dealt_with(work, error):
                return
        self.queue.succeed([work])

    async def _settled(self, sent: Any) -> None:
        if isinstance(sent, Future):
            await asyncio.wrap_future(sent)
        elif inspect.isawaitable(sent):
            await sent

    def empty_hands(self, seconds: float = 0.0) -> None:
        """Do nothing: a task takes one call, and reports it."""

    def cancel(self) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):
                for task in self._tasks:
                    self._loop.call_soon_threadsafe(task.cancel)
