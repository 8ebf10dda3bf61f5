"""The producer's close: it refuses records, drains, ends soon without brokers, and reports what was lost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import kwire
import kwire.aio
from kwire.broker import Cluster, Delay, Mute
from kwire.errors import AbortableError, ClosedError, DeliveryError, KwireError, UndeliveredError
from kwire.producer import Message, ProduceResponse
from kwire.producer.client import CLOSE_SECONDS, RAISED_SECONDS, UNREACHED_SECONDS
from kwire.producer.explain import Hold
from kwire.producer.transaction import TransactionState
from kwire.protocol import ApiKey
from tests.waiting import wait_until

PATIENCE = 30
NOBODY = "localhost:1"
SOON = 4.0  # seconds; all that is not soon takes five at least


def run(main: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(main, PATIENCE))


def start(function: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


def mute(cluster: Cluster) -> None:
    """Let no record be acknowledged from now on."""
    cluster.add_fault(Mute(), api=ApiKey.PRODUCE, times=None)


def ending(cluster: Cluster) -> str:
    """Return how the last transaction of the transactional id "x" ended."""
    transaction = cluster.call(lambda state, now: state.transactions.get("x"))
    assert transaction is not None
    return transaction.state.value


# -- no more records


def test_records_taken_while_another_thread_closes_are_delivered(cluster: Cluster) -> None:
    producer = kwire.Producer(cluster.bootstrap)
    producer.send("t", b"first").result(PATIENCE)
    cluster.add_fault(Delay(ms=50), api=ApiKey.PRODUCE, times=None)
    taken: list[ProduceResponse] = []
    has_begun = threading.Event()

    def send() -> None:
        try:
            while True:
                taken.append(producer.send("t", bytes(100)))
                has_begun.set()
        except ClosedError:
            pass

    senders = [start(send) for _ in range(2)]
    assert has_begun.wait(PATIENCE)
    producer.close(PATIENCE)
    for sender in senders:
        sender.join(PATIENCE)
    assert [response.exception(0) for response in taken if response.exception(0) is not None] == []


def send_one(producer: kwire.Producer) -> object:
    return producer.send("t", b"late")


def send_with_headers(producer: kwire.Producer) -> object:
    return producer.send("t", b"late", headers=[("h", bytearray(b"v"))])


def send_all(producer: kwire.Producer) -> object:
    return producer.send_all([Message("t", b"late")])


def send_many(producer: kwire.Producer) -> object:
    return producer.send_many("t", [b"late"])


@pytest.mark.parametrize("send", [send_one, send_with_headers, send_all, send_many])
def test_send_raises_as_soon_as_close_drains(cluster: Cluster, send: Callable[[kwire.Producer], object]) -> None:
    producer = kwire.Producer(cluster.bootstrap)
    producer.send("t", b"first").result(PATIENCE)
    mute(cluster)
    response = producer.send("t", b"never acknowledged")
    closer = start(lambda: producer.close(PATIENCE))

    def is_refused() -> bool:
        try:
            send(producer)
        except ClosedError:
            return True
        return False

    wait_until(is_refused)
    assert closer.is_alive(), "refused only after the drain"
    producer.close(0)
    closer.join(SOON)
    assert not closer.is_alive()
    assert isinstance(response.exception(0), DeliveryError)


def test_a_sender_that_waits_for_memory_fails_as_soon_as_close_drains(cluster: Cluster) -> None:
    producer = kwire.Producer(cluster.bootstrap, max_buffered_bytes=2_000, when_full="block")
    producer.send("t", b"first").result(PATIENCE)
    mute(cluster)
    producer.send("t", bytes(1_500))
    found: list[Exception] = []

    def send() -> None:
        try:
            producer.send("t", bytes(1_500))
        except Exception as error:
            found.append(error)

    sender = start(send)
    wait_until(lambda: any(reason.hold is Hold.MEMORY for reason in producer.explain("t").reasons))
    closer = start(lambda: producer.close(PATIENCE))
    sender.join(PATIENCE)
    assert [type(error) for error in found] == [ClosedError]
    assert closer.is_alive(), "the error comes before the end of the drain"
    producer.close(0)
    closer.join(SOON)
    assert not closer.is_alive()


def test_a_producer_that_was_closed_unused_accepts_no_records() -> None:
    producer = kwire.Producer(NOBODY)
    producer.close()
    with pytest.raises(ClosedError):
        producer.send("t", b"")


def test_records_taken_while_another_task_closes_are_delivered(cluster: Cluster) -> None:
    async def main() -> None:
        producer = kwire.aio.Producer(cluster.bootstrap)
        await producer.send_and_wait("t", b"first")
        cluster.add_fault(Delay(ms=50), api=ApiKey.PRODUCE, times=None)
        taken: list[ProduceResponse] = []

        async def send() -> None:
            try:
                while True:
                    taken.append(await producer.send("t", bytes(100)))
            except ClosedError:
                pass

        senders = [asyncio.create_task(send()) for _ in range(2)]
        while not taken:
            await asyncio.sleep(0)
        await producer.close(PATIENCE)
        await asyncio.gather(*senders)
        assert [response.exception(0) for response in taken if response.exception(0) is not None] == []

    run(main())


def test_tasks_are_refused_as_soon_as_close_drains(cluster: Cluster) -> None:
    async def main() -> None:
        producer = kwire.aio.Producer(cluster.bootstrap, max_buffered_bytes=2_000)
        await producer.send_and_wait("t", b"first")
        mute(cluster)
        response = await producer.send("t", bytes(1_500))
        waiting = asyncio.create_task(producer.send("t", bytes(1_500)))
        await asyncio.sleep(0)
        closer = asyncio.create_task(producer.close(PATIENCE))
        with pytest.raises(ClosedError):
            await waiting
        for late in (producer.send("t", b"late"), producer.send_many("t", [b"late"])):
            with pytest.raises(ClosedError):
                await late
        assert not closer.done()
        await producer.close(0)
        await asyncio.wait_for(closer, SOON)
        assert isinstance(response.exception(0), DeliveryError)

    run(main())


def test_a_commit_continues_while_the_producer_drains(cluster: Cluster) -> None:
    producer = kwire.Producer(cluster.bootstrap, transactional_id="x")
    producer.begin()
    producer.send("t", b"v", partition=0)
    cluster.add_fault(Delay(ms=300), api=ApiKey.PRODUCE, times=1)
    committer = start(producer.commit)
    transaction = producer._core.sender.transaction
    wait_until(lambda: transaction is not None and transaction.state is TransactionState.COMMITTING)
    closer = start(producer.close)
    committer.join(PATIENCE)
    closer.join(PATIENCE)
    assert ending(cluster) == "CompleteCommit"
    with pytest.raises(ClosedError):
        producer.send("t", b"late")


@pytest.mark.parametrize("raises", [False, True])
def test_a_block_that_ends_inside_a_transaction_aborts_it_and_warns(
    cluster: Cluster, raises: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def block() -> None:
        with kwire.Producer(cluster.bootstrap, transactional_id="x") as producer:
            producer.begin()
            producer.send("t", b"delivered", partition=0).result(PATIENCE)
            mute(cluster)
            producer.send("t", b"on its way", partition=0)
            cluster.clear_faults()
            if raises:
                raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") if raises else contextlib.nullcontext():
        block()
    (warning,) = [one.getMessage() for one in caplog.records if one.name == "kwire.producer"]
    assert "'x' is closed inside a transaction that was not committed: the transaction is aborted" in warning
    assert ending(cluster) == "CompleteAbort"


def test_an_async_block_that_ends_inside_a_transaction_aborts_it(cluster: Cluster) -> None:
    async def main() -> None:
        async with kwire.aio.Producer(cluster.bootstrap, transactional_id="x") as producer:
            await producer.begin()
            await producer.send_and_wait("t", b"v")

    run(main())
    assert ending(cluster) == "CompleteAbort"


def test_close_waits_for_a_commit_that_is_under_way(cluster: Cluster) -> None:
    producer = kwire.Producer(cluster.bootstrap, transactional_id="x")
    producer.begin()
    producer.send("t", b"v", partition=0).result(PATIENCE)
    ends = cluster.add_fault(Delay(ms=100), api=ApiKey.END_TXN, times=1)
    committer = start(producer.commit)
    wait_until(lambda: ends.hits == 1)
    producer.close()
    committer.join(PATIENCE)
    assert ending(cluster) == "CompleteCommit"


# -- what was lost


def test_a_block_waits_five_seconds_at_its_end_while_no_broker_was_reached() -> None:
    assert (UNREACHED_SECONDS, RAISED_SECONDS, CLOSE_SECONDS) == (5.0, 1.0, 30.0)


def test_a_block_that_ends_with_undelivered_records_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kwire.producer.methods.UNREACHED_SECONDS", 0.3)
    began = time.monotonic()

    def block() -> None:
        with kwire.Producer(NOBODY) as producer:
            producer.send("t", b"1")
            producer.send("t", b"2")
            producer.send_many("u", [b"3"] * 5)

    with pytest.raises(UndeliveredError) as caught:
        block()
    assert 0.3 <= time.monotonic() - began < SOON
    error = caught.value
    assert isinstance(error, DeliveryError)
    assert error.records == {"t": 2, "u": 5}
    assert not error.possibly_persisted
    assert str(error).startswith("7 records were not delivered, and nobody looked at the responses: 2 of t, 5 of u")
    assert "localhost:1" in str(error)
    assert error.__cause__ is not None


def test_an_async_block_that_ends_with_undelivered_records_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kwire.producer.methods.UNREACHED_SECONDS", 0.3)
    began = time.monotonic()

    async def main() -> None:
        async with kwire.aio.Producer(NOBODY) as producer:
            await producer.send("t", b"1")
            await producer.send_many("u", [b"3"] * 5)

    with pytest.raises(UndeliveredError) as caught:
        run(main())
    assert 0.3 <= time.monotonic() - began < SOON
    assert caught.value.records == {"t": 1, "u": 5}


def test_records_that_failed_before_the_end_count(cluster: Cluster) -> None:
    def block() -> None:
        with kwire.Producer(cluster.bootstrap, max_request_bytes=1_000) as producer:
            producer.send_all([Message("t", bytes(989)), Message("t", b"fine")])

    with pytest.raises(UndeliveredError, match=r"^1 record was not delivered, .*: 1 of t; the first cause: .*1025"):
        block()


def look_at_result(response: ProduceResponse) -> None:
    with pytest.raises(KwireError):
        response.result(PATIENCE)


LOOKS: list[Callable[[ProduceResponse], object]] = [
    look_at_result,
    lambda response: response.exception(PATIENCE),
    lambda response: response.add_done_callback(lambda _: None),
]


@pytest.mark.parametrize("look", LOOKS, ids=["result", "exception", "callback"])
def test_failures_that_the_caller_has_seen_do_not_count(
    cluster: Cluster, look: Callable[[ProduceResponse], object]
) -> None:
    with kwire.Producer(cluster.bootstrap, max_request_bytes=1_000) as producer:
        response = producer.send_all([Message("t", bytes(2_000))])[0]
        look(response)
    assert response.exception(0) is not None  # and yet the block ended without UndeliveredError


def test_a_record_with_a_callback_does_not_count_nor_twice() -> None:
    looked: list[object] = []

    def block() -> None:
        with kwire.Producer(NOBODY, delivery_timeout_ms=100) as producer:
            report: Callable[[ProduceResponse], object] = lambda one: looked.append(one.exception())  # noqa: E731
            responses = [producer.send("t", b"", on_delivery=report) for _ in range(3)]
            responses[0].exception(PATIENCE)
            responses[0].exception(PATIENCE)
            producer.send("t", b"")

    with pytest.raises(UndeliveredError) as caught:
        block()
    assert caught.value.records == {"t": 1}
    assert len(looked) == 3


@pytest.mark.parametrize("look", ["settled", "exception", "errors", "add_done_callback"])
def test_failures_of_send_many_that_the_caller_has_seen_do_not_count(look: str) -> None:
    with kwire.Producer(NOBODY, delivery_timeout_ms=100) as producer:
        response = producer.send_many("t", [b""] * 5)
        if look == "errors":
            producer.flush(PATIENCE)
            assert len(response.errors) == 5
        elif look == "add_done_callback":
            response.add_done_callback(lambda _: None)
        else:
            getattr(response, look)(PATIENCE)


def test_printing_a_response_is_no_look() -> None:
    def block() -> None:
        with kwire.Producer(NOBODY, delivery_timeout_ms=100) as producer:
            response = producer.send("t", b"")
            producer.flush(PATIENCE)
            assert "failed with" in repr(response)

    with pytest.raises(UndeliveredError):
        block()


def test_an_awaited_failure_does_not_count() -> None:
    async def main() -> None:
        async with kwire.aio.Producer(NOBODY, delivery_timeout_ms=100) as producer:
            with pytest.raises(DeliveryError):
                await producer.send_and_wait("t", b"")

    run(main())


@pytest.mark.parametrize("look", ["result", "exception"])
def test_a_wait_that_was_too_short_is_no_look(look: str) -> None:
    def block() -> None:
        with kwire.Producer(NOBODY, delivery_timeout_ms=200) as producer:
            response = producer.send("t", b"")
            with pytest.raises(kwire.RequestTimeoutError, match="it is still being sent"):
                getattr(response, look)(0)
            producer.flush(PATIENCE)

    with pytest.raises(UndeliveredError) as caught:
        block()
    assert caught.value.records == {"t": 1}


def test_a_cancelled_await_is_no_look() -> None:
    async def main() -> None:
        async with kwire.aio.Producer(NOBODY, delivery_timeout_ms=200) as producer:
            response = await producer.send("t", b"")
            waiting = asyncio.ensure_future(response)
            await asyncio.sleep(0)  # it waits from here on
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            await producer.flush(PATIENCE)

    with pytest.raises(UndeliveredError) as caught:
        run(main())
    assert caught.value.records == {"t": 1}


def test_close_logs_the_lost_records_once(caplog: pytest.LogCaptureFixture) -> None:
    with kwire.Producer(NOBODY) as producer:
        producer.send("t", b"")
        producer.close(0.1)
    [record] = [one for one in caplog.records if one.name == "kwire.producer" and one.levelno == logging.ERROR]
    assert "1 record was not delivered" in record.getMessage()
    assert "localhost:1" in record.getMessage()


def test_close_logs_the_lost_records_in_asyncio(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        producer = kwire.aio.Producer(NOBODY)
        await producer.send("t", b"")
        await producer.close(0.1)

    run(main())
    assert "1 record was not delivered" in caplog.text


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt()])
def test_a_block_that_raised_ends_at_once_if_no_broker_responds(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    began = time.monotonic()

    def block() -> None:
        with kwire.Producer(NOBODY) as producer:
            producer.send("t", b"")
            raise error

    with pytest.raises(type(error)) as caught:
        block()
    assert time.monotonic() - began < SOON
    assert caught.value is error
    assert f"closed because of {type(error).__name__}: 1 record was not delivered" in caplog.text


def test_a_block_that_raised_is_left_soon_where_brokers_are_gone(cluster: Cluster) -> None:
    began: list[float] = []

    def block() -> None:
        with kwire.Producer(cluster.bootstrap) as producer:
            producer.send("t", b"").result(PATIENCE)
            mute(cluster)
            producer.send("t", b"")
            began.append(time.monotonic())
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        block()
    assert time.monotonic() - began[0] < SOON


def test_records_sent_before_a_block_raised_are_delivered(cluster: Cluster) -> None:
    responses: list[ProduceResponse] = []

    def block() -> None:
        with kwire.Producer(cluster.bootstrap) as producer:
            producer.send("t", b"first").result(PATIENCE)
            responses.append(producer.send("t", b"last"))
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        block()
    assert responses[0].exception(0) is None


def test_a_cancelled_task_ends_soon(caplog: pytest.LogCaptureFixture) -> None:
    async def work(has_sent: asyncio.Event) -> None:
        async with kwire.aio.Producer(NOBODY) as producer:
            await producer.send("t", b"")
            has_sent.set()
            await asyncio.Event().wait()

    async def main() -> None:
        has_sent = asyncio.Event()
        task = asyncio.create_task(work(has_sent))
        await has_sent.wait()
        task.cancel()
        began = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - began < SOON

    run(main())
    assert "closed because of CancelledError: 1 record was not delivered" in caplog.text


def test_records_of_an_aborted_transaction_do_not_count(cluster: Cluster) -> None:
    with kwire.Producer(cluster.bootstrap, transactional_id="x") as producer:
        producer.begin()
        producer.send("t", b"").result(PATIENCE)
        mute(cluster)
        producer.send("t", b"out")
        cluster.clear_faults()
        producer.abort()


def test_failures_that_commit_raised_do_not_count(cluster: Cluster) -> None:
    with kwire.Producer(cluster.bootstrap, transactional_id="x", unknown_topic_timeout_ms=200) as producer:
        producer.begin()
        producer.send("nowhere", b"", partition=77)
        with pytest.raises(AbortableError):
            producer.commit()
        producer.abort()


# -- what it says of itself


def test_repr_says_which_producer_it_is_and_how_it_is(cluster: Cluster) -> None:
    producer = kwire.Producer("localhost:1,[::1]:2", client_id="me")
    assert repr(producer) == "<kwire.Producer of localhost:1,[::1]:2, client_id 'me', not started>"
    producer.send("t", b"").add_done_callback(lambda _: None)
    assert repr(producer).endswith("client_id 'me', open>")
    producer.close(0)
    assert repr(producer).endswith("client_id 'me', closed>")

    async def main() -> None:
        async with kwire.aio.Producer(cluster.bootstrap, client_id="me") as producer:
            assert repr(producer) == f"<kwire.aio.Producer of {cluster.bootstrap}, client_id 'me', not started>"

    run(main())
