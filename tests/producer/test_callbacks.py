"""Callbacks: their thread, the memory bound of waiting callbacks, and invalid callbacks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import Queue
from typing import Any

import pytest

import kwire
import kwire.aio
from kwire.broker import Cluster
from kwire.errors import BufferFullError, ConfigurationError
from kwire.producer import ProduceResponse

PATIENCE = 30
BYTES_MAX = 10_000


class Gate:
    """A callback that blocks until `open`, and then may call a function."""

    def __init__(self, then: Any = lambda: None) -> None:
        self._then = then
        self._go = threading.Event()
        self.entered = threading.Event()
        self.found: list[Any] = []

    def __call__(self, response: ProduceResponse) -> None:
        self.entered.set()
        assert self._go.wait(PATIENCE)
        try:
            self.found.append(self._then())
        except Exception as error:
            self.found.append(error)

    def open(self) -> None:
        self._go.set()


def fill(producer: kwire.Producer, gate: Gate, calls: list[ProduceResponse]) -> int:
    """Send until the buffer is full, waiting for each delivery; return the number of value bytes sent."""
    producer.send("t", b"first", on_delivery=gate).result(PATIENCE)
    assert gate.entered.wait(PATIENCE)
    for number in range(1_000):
        try:
            producer.send("t", bytes(1_000), on_delivery=calls.append)
        except BufferFullError:
            return number * 1_000
        producer.flush(PATIENCE)
    return 1_000_000


def settle(response: ProduceResponse) -> None:
    """Wait until all dispatched callbacks have run."""
    ran = threading.Event()
    response.add_done_callback(lambda _: ran.set())
    assert ran.wait(PATIENCE)


def test_records_that_wait_for_a_blocking_callback_are_bounded(cluster: Cluster) -> None:
    gate, calls = Gate(), list[ProduceResponse]()
    with kwire.Producer(cluster.bootstrap, max_buffered_bytes=BYTES_MAX, when_full="raise") as producer:
        went_in = fill(producer, gate, calls)
        assert BYTES_MAX <= went_in <= 2 * BYTES_MAX
        assert calls == []
        gate.open()
        settle(producer.send_all([kwire.Message("t", b"")])[0])
        assert producer.buffered_bytes == 0
        assert len(calls) == went_in / 1_000
        assert producer.send("t", b"again").result(PATIENCE).topic == "t"


def test_a_callback_may_send_when_the_bound_is_reached(cluster: Cluster) -> None:
    with kwire.Producer(cluster.bootstrap, max_buffered_bytes=BYTES_MAX, when_full="raise") as producer:
        gate = Gate(lambda: producer.send("t", b"by a callback"))
        fill(producer, gate, [])
        gate.open()
        settle(producer.send_all([kwire.Message("t", b"")])[0])
        (sent,) = gate.found
        assert isinstance(sent, ProduceResponse)
        assert sent.result(PATIENCE).topic == "t"
        settle(sent)
        assert producer.buffered_bytes == 0


def test_records_of_send_many_count_as_well(cluster: Cluster) -> None:
    gate = Gate()
    with kwire.Producer(cluster.bootstrap, max_buffered_bytes=BYTES_MAX) as producer:
        response = producer.send("t", b"first", on_delivery=gate)
        response.result(PATIENCE)
        producer.send_many("t", [b"x"] * 2_000).result(PATIENCE)
        assert producer.buffered_bytes == 0  # no record waits for a callback
        gate.open()


def test_an_executor_of_the_callers_own_runs_callbacks(cluster: Cluster) -> None:
    ran: Queue[str] = Queue()

    def note(_: object) -> None:
        ran.put(threading.current_thread().name)

    with (
        ThreadPoolExecutor(1, thread_name_prefix="mine") as executor,
        kwire.Producer(cluster.bootstrap, callback_executor=executor) as producer,
    ):
        response = producer.send("t", b"v", on_delivery=note)
        response.result(PATIENCE)
        response.add_done_callback(note)
        producer.send_many("t", [b"v"]).add_done_callback(note)
        assert {ran.get(timeout=PATIENCE)[:4] for _ in range(3)} == {"mine"}


def test_a_function_of_the_callers_own_runs_callbacks(cluster: Cluster) -> None:
    calls: Queue[Callable[[], object]] = Queue()
    ran: list[ProduceResponse] = []
    with kwire.Producer(cluster.bootstrap, callback_executor=calls.put, max_buffered_bytes=BYTES_MAX) as producer:
        response = producer.send("t", b"v", on_delivery=ran.append)
        response.result(PATIENCE)
        call = calls.get(timeout=PATIENCE)
        assert ran == []
        call()
        assert ran == [response]


def test_callbacks_that_an_executor_refuses_still_run(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    ran = threading.Event()
    with kwire.Producer(cluster.bootstrap, callback_executor=executor) as producer:
        producer.send("t", b"v", on_delivery=lambda _: ran.set())
        assert ran.wait(PATIENCE)
    assert "callback_executor refused callbacks" in caplog.text


def test_callbacks_that_an_executor_cancels_release_their_memory(cluster: Cluster) -> None:
    gate, executor = Gate(), ThreadPoolExecutor(1)
    with kwire.Producer(
        cluster.bootstrap, callback_executor=executor, max_buffered_bytes=BYTES_MAX, when_full="raise"
    ) as producer:
        fill(producer, gate, [])
        executor.shutdown(wait=False, cancel_futures=True)
        gate.open()
        settle(producer.send_all([kwire.Message("t", b"")])[0])
        assert producer.buffered_bytes == 0


def test_an_invalid_callback_executor_is_refused() -> None:
    no_executor: Any = 5
    with pytest.raises(ConfigurationError, match="callback_executor"):
        kwire.Producer("localhost:1", callback_executor=no_executor)
    with pytest.raises(ConfigurationError, match=r"not for kwire.aio.Producer: its callbacks run in the asyncio loop"):
        kwire.aio.Producer("localhost:1", callback_executor=print)


@pytest.mark.parametrize("value", [b"v", "text", bytearray(b"v")])
def test_a_callback_that_is_not_callable_is_refused_by_send(cluster: Cluster, value: Any) -> None:
    not_callable: Any = 5
    with kwire.Producer(cluster.bootstrap) as producer:
        for _ in range(2):  # before and after the topic is known
            with pytest.raises(TypeError, match="the callback is 5"):
                producer.send("t", value, on_delivery=not_callable)
            producer.send("t", value).result(PATIENCE)
    assert sum(len(cluster.log("t", partition).records()) for partition in range(4)) == 2


def test_a_callback_that_is_not_callable_is_refused_by_send_in_asyncio(cluster: Cluster) -> None:
    not_callable: Any = 5

    async def main() -> None:
        async with kwire.aio.Producer(cluster.bootstrap) as producer:
            for _ in range(2):
                with pytest.raises(TypeError, match="the callback is 5"):
                    await producer.send("t", b"v", on_delivery=not_callable)
                await producer.send_and_wait("t", b"v")

    asyncio.run(main())
    assert sum(len(cluster.log("t", partition).records()) for partition in range(4)) == 2
