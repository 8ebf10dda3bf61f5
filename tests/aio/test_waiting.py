"""Signals from other threads, and the mailbox that they come through."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future

import pytest

from kwire.cluster.asyncio_waiting import AWAITING
from kwire.cluster.asyncio_waiting import AsyncioSignal as Signal
from kwire.cluster.callbacks import asyncio_bridge
from kwire.errors import RequestTimeoutError

PATIENCE = 30


def in_thread(function: object, *args: object) -> None:
    thread = threading.Thread(target=function, args=args)  # type: ignore[arg-type]
    thread.start()
    thread.join(PATIENCE)


def test_a_signal_is_set_before_or_while_it_is_awaited() -> None:
    async def main() -> None:
        before = Signal()
        in_thread(before.set)
        assert await before.wait(PATIENCE)
        meanwhile = Signal()
        threading.Thread(target=meanwhile.set).start()
        assert await meanwhile.wait(PATIENCE)
        assert await meanwhile.wait(0)
        failed = Signal()
        in_thread(failed.set, LookupError("mine"))
        with pytest.raises(LookupError, match="mine"):
            await failed.wait(PATIENCE)

    asyncio.run(main())


def test_a_signal_that_is_set_late_or_without_a_waiter() -> None:
    async def main() -> Signal:
        late, left = Signal(), Signal()
        assert not await late.wait(0.001)
        task = asyncio.create_task(left.wait())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for signal in (late, left):
            in_thread(signal.set)
        assert await late.wait(PATIENCE)
        return left

    asyncio.run(main()).set()  # the loop is closed


def test_the_result_of_a_future_of_another_thread() -> None:
    async def main() -> None:
        done: Future[int] = Future()
        threading.Thread(target=done.set_result, args=(5,)).start()
        assert await AWAITING.result_of(done, PATIENCE) == 5
        failed: Future[int] = Future()
        failed.set_exception(LookupError("mine"))
        with pytest.raises(LookupError):
            await AWAITING.result_of(failed)
        with pytest.raises(RequestTimeoutError):
            await AWAITING.result_of(Future(), 0.001)

    asyncio.run(main())


def test_a_mailbox_wakes_its_loop_once_for_many_calls_and_keeps_their_order() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        box = asyncio_bridge(loop)
        assert asyncio_bridge(loop) is box
        wakes: list[object] = []
        call_soon = loop.call_soon_threadsafe
        loop.call_soon_threadsafe = lambda *args: (wakes.append(args), call_soon(*args))[1]  # type: ignore[method-assign, func-returns-value]
        seen: list[int] = []
        last = Signal(box)

        def post() -> None:
            for number in range(100):
                box.post(seen.append, number)
            box.post(seen.append)  # raises: logged, and harms nothing else
            last.set()

        in_thread(post)
        assert await last.wait(PATIENCE)
        assert seen == list(range(100))
        assert len(wakes) == 1

    asyncio.run(main())


def test_a_mailbox_of_a_closed_loop_takes_nothing() -> None:
    loop = asyncio.new_event_loop()
    box = asyncio_bridge(loop)
    loop.close()
    assert not box.post(print)
    del loop
    assert not box.post(print)
