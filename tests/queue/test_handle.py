"""`handle`: workers, their end by stop and by signals, and forks (Q75)."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import textwrap
import threading
from collections import Counter

import pytest

from kwire.aio import queue as aio
from kwire.broker import Disconnect, Refuse
from kwire.errors import ClosedError, ErrorCode, KwireError
from kwire.protocol import ApiKey
from kwire.queue import Message
from tests.queue.worlds import World, begun, put, take

_HEAD = """
import os, sys, threading
import kwire
from kwire.queue import Service

service = Service(sys.argv[1], redelivery_timeout_ms=60_000, partitions=3, backend=sys.argv[2])
consumer = service.queue("jobs").consumer()
"""


def program(world: World, body: str) -> subprocess.Popen[str]:
    """Start a process with a consumer of the queue jobs."""
    source = _HEAD + textwrap.dedent(body)
    return subprocess.Popen(
        [sys.executable, "-c", source, world.cluster.bootstrap, world.backend],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def line(process: subprocess.Popen[str]) -> str:
    """Return the next line that the process prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_four_workers_handle_each_message_once_and_a_failed_one_again(either: World) -> None:
    service = either.service(redelivery_timeout_ms=60_000)
    either.redeliverer(service)
    put(service, "jobs", *(b"%d" % number for number in range(100)))
    consumer = service.queue("jobs").consumer()
    got: Counter[bytes | None] = Counter()
    lock = threading.Lock()
    four = threading.Barrier(4)
    first = threading.local()

    def handle(message: Message) -> None:
        if not hasattr(first, "waited"):
            first.waited = True
            four.wait(30)  # each worker's first call goes on only when all four workers have one
        with lock:
            got[message.payload] += 1
            if sum(got.values()) == 101:
                consumer.stop()
        if message.payload == b"7" and message.deliveries == 1:
            raise ValueError("not now")

    consumer.handle(handle, workers=4)
    assert got == Counter({**dict.fromkeys((b"%d" % number for number in range(100)), 1), b"7": 2})
    assert consumer.receive(0.3) is None


@pytest.mark.parametrize("is_transactional", [False, True])
@pytest.mark.parametrize(
    "code", [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID]
)
def test_handle_goes_on_after_a_rebalance_that_refuses_its_commit(
    world: World, is_transactional: bool, code: ErrorCode
) -> None:
    service = world.service(transactional=is_transactional, redelivery_timeout_ms=60_000)
    consumer = begun(world, service)
    put(service, "jobs", b"hi")
    api = ApiKey.TXN_OFFSET_COMMIT if is_transactional else ApiKey.OFFSET_COMMIT
    world.cluster.add_fault(Refuse(code), api=api, times=1)
    got: list[bytes | None] = []

    def handle(message: Message) -> None:
        got.append(message.payload)
        consumer.stop()

    consumer.handle(handle)
    assert got == [b"hi"]
    assert consumer.metrics().resets == 1


@pytest.mark.parametrize("is_transactional", [False, True])
def test_handle_goes_on_after_a_marker_that_may_be_in_the_log(world: World, is_transactional: bool) -> None:
    """The producer must not send it again; the consumer reads the message again, and marks it again."""
    service = world.service(transactional=is_transactional, redelivery_timeout_ms=60_000)
    put(service, "jobs", b"hi")
    consumer = service.queue("jobs").consumer()
    for effect in (Disconnect(applied=True), Refuse(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)):
        world.cluster.add_fault(effect, api=ApiKey.PRODUCE, topic="markers", times=1)
    got: list[bytes | None] = []

    def handle(message: Message) -> None:
        got.append(message.payload)
        consumer.stop()

    consumer.handle(handle)
    assert got == [b"hi"]
    assert consumer.metrics().resets == 1


def test_handle_ends_with_the_error_that_ended_the_reading(world: World) -> None:
    service = world.service()
    put(service, "jobs", b"hi")
    consumer = service.queue("jobs").consumer()
    world.cluster.add_fault(Refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED), api=ApiKey.PRODUCE, topic="markers")
    with pytest.raises(KwireError, match="TOPIC_AUTHORIZATION_FAILED"):
        consumer.handle(print, workers=2)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_handle_raises_what_a_function_ends_its_worker_with(world: World, raised: BaseException, workers: int) -> None:
    """SystemExit ends a thread silently: `handle` must not return as if it was stopped."""
    service = world.service(redelivery_timeout_ms=60_000)
    put(service, "jobs", b"hi")
    consumer = service.queue("jobs").consumer()

    def handle(message: Message) -> None:
        raise raised

    with pytest.raises(type(raised)):
        consumer.handle(handle, workers=workers)
    assert consumer.metrics().in_progress == 0  # its message was given back
    assert consumer.receive(0.1) is None  # and the consumer goes on


@pytest.mark.parametrize("raised", [SystemExit(3), asyncio.CancelledError()])
def test_handle_raises_what_a_function_ends_its_task_with(world: World, raised: BaseException) -> None:
    async def run() -> None:
        async with aio.Service(world.cluster.bootstrap, partitions=3) as service:
            consumer = service.queue("jobs").consumer()

            async def handle(message: aio.Message) -> None:
                raise raised

            with pytest.raises(type(raised)):
                await consumer.handle(handle, workers=2)
            assert consumer.metrics().in_progress == 0

    put(world.service(), "jobs", b"hi")
    asyncio.run(run())


def test_wrong_arguments(world: World) -> None:
    consumer = world.service().queue("jobs").consumer()
    with pytest.raises(TypeError, match="function"):
        consumer.handle("handle")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="workers"):
        consumer.handle(print, workers=0)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_q75_a_signal_lets_the_running_call_end(either: World, number: signal.Signals) -> None:
    service = either.service(redelivery_timeout_ms=60_000)
    either.redeliverer(service)
    put(service, "jobs", b"1", b"2")
    process = program(
        either,
        """
        go = threading.Event()
        def handle(message):
            print("begun", flush=True)
            go.wait(1)
            print("ended", flush=True)
        with kwire.stop_on_signals():
            consumer.handle(handle)
        service.close()
        print("closed", flush=True)
        """,
    )
    try:
        assert line(process) == "begun"
        process.send_signal(number)
        assert line(process) == "ended"
        assert line(process) == "closed"
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.communicate()
    assert len(take(service.queue("jobs").consumer(), 1)) == 1  # the other one was given back, or never taken


def test_q75_ctrl_c_does_not_wait_for_a_call_that_hangs(world: World) -> None:
    service = world.service(redelivery_timeout_ms=60_000)
    world.tracker(service)
    put(service, "jobs", b"1")
    process = program(
        world,
        """
        def handle(message):
            print("begun", flush=True)
            threading.Event().wait()
        try:
            consumer.handle(handle, timeout=0.2)
        except KeyboardInterrupt:
            service.close()
            print("closed", flush=True)
        """,
    )
    try:
        assert line(process) == "begun"
        process.send_signal(signal.SIGINT)
        assert line(process) == "closed"
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.communicate()
    (message,) = take(service.queue("jobs").consumer(), 1)
    assert message.deliveries == 2


@pytest.mark.slow
def test_q75_a_forked_child_gets_no_messages_of_its_parent_and_closes_at_once(either: World) -> None:
    put(either.service(), "jobs", *(b"%d" % number for number in range(5)))
    process = program(
        either,
        """
        from kwire.errors import ClosedError
        message = consumer.receive(10)
        child = os.fork()
        if not child:
            for call in (lambda: consumer.receive(0), message.ack, lambda: service.queue("jobs").producer().send(b"x")):
                try:
                    call()
                    os._exit(1)
                except ClosedError as error:
                    assert "another process" in str(error)
            consumer.close()
            service.close()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        message.ack()
        service.close()
        print(os.waitstatus_to_exitcode(status), flush=True)
        """,
    )
    output, errors = process.communicate(timeout=40)
    assert output == "0\n", errors


def test_q93_tasks_handle_messages_and_a_cancelled_one_gives_its_message_back(world: World) -> None:
    async def run() -> list[tuple[bytes | None, int]]:
        got: list[tuple[bytes | None, int]] = []
        async with aio.Service(world.cluster.bootstrap, partitions=3, backoff_ms=0) as service:
            consumer = service.queue("jobs").consumer()

            async def handle(message: aio.Message) -> None:
                got.append((message.payload, message.deliveries))
                if len(got) == 1:
                    consumer.stop()
                    await asyncio.Event().wait()
                if len(got) == 3:
                    consumer.stop()

            await consumer.handle(handle, workers=1, timeout=0.1)
            await asyncio.wait_for(consumer.handle(handle, workers=3), 20)
        return got

    service = world.service()
    world.tracker(service)
    put(service, "jobs", b"1", b"2")
    got = asyncio.run(run())
    assert sorted(deliveries for _, deliveries in got) == [1, 1, 2]
    assert {payload for payload, _ in got} == {b"1", b"2"}


def test_a_closed_consumer_ends_handle(world: World) -> None:
    service = world.service()
    consumer = service.queue("jobs").consumer()
    thread = threading.Thread(target=consumer.handle, args=(print,))
    thread.start()
    consumer.close()
    thread.join(20)
    assert not thread.is_alive()
    with pytest.raises(ClosedError):
        consumer.receive(0)
