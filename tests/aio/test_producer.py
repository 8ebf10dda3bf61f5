"""The asyncio face on the embedded cluster: what it shares with the face for threads, and how it waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

import kwire.aio
from kwire.broker import Cluster, Delay, Mute
from kwire.cluster import Topic
from kwire.errors import (
    BufferFullError,
    ClosedError,
    ConfigurationError,
    DeliveryError,
    RecordTooLargeError,
    RequestTimeoutError,
)
from kwire.producer import BulkResponse, Message, ProduceResponse, ProducerRequest, RecordMetadata
from kwire.protocol import ApiKey

PARTITIONS = 4
PATIENCE = 30


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2) as one:
        one.create_topic("t", partitions=PARTITIONS)
        yield one
        assert one.failures == ()


def run(main: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(main, PATIENCE), debug=True)


def values(cluster: Cluster, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in cluster.log("t", partition).records()]


def slow(cluster: Cluster, ms: int = 100) -> None:
    cluster.add_fault(Delay(ms=ms), api=ApiKey.PRODUCE, times=None)


def test_send_and_await(cluster: Cluster) -> None:
    async def main() -> None:
        async with kwire.aio.Producer(cluster.bootstrap) as producer:
            response = await producer.send("t", "text", key="k", headers={"h": "x"}, partition=0, timestamp_ms=5)
            assert await response == RecordMetadata("t", 0, 0, 5)
            assert (await producer.send_and_wait("t", b"second", partition=0)).offset == 1
            assert producer.partitions("t") == PARTITIONS
            assert producer.buffered_bytes == 0

    run(main())
    record = cluster.log("t", 0).records()[0]
    assert (record.key, record.value, record.headers) == (b"k", b"text", (("h", b"x"),))


def test_many_tasks_send_and_each_has_its_order(cluster: Cluster) -> None:
    async def task(producer: kwire.aio.Producer, number: int) -> list[RecordMetadata]:
        responses = [await producer.send("t", b"%d %d" % (number, n), partition=0) for n in range(200)]
        return [await response for response in responses]

    async def main() -> None:
        async with kwire.aio.Producer(cluster.bootstrap, max_buffered_bytes=5_000) as producer:
            places = await asyncio.gather(*(task(producer, number) for number in range(10)))
        assert all(sorted(place, key=lambda one: one.offset) == place for place in places)

    run(main())
    by_task: dict[bytes, list[int]] = {}
    for value in values(cluster):
        number, n = (value or b"").split()
        by_task.setdefault(number, []).append(int(n))
    assert by_task == {b"%d" % number: list(range(200)) for number in range(10)}


def test_several_messages_and_requests(cluster: Cluster) -> None:
    async def main() -> None:
        async with kwire.aio.Producer(cluster.bootstrap, max_request_bytes=1_000) as producer:
            first, large, last = await producer.send_all(
                [Message("t", b"a", partition=0), Message("t", b"x" * 2_000), Message("t", b"b", partition=0)]
            )
            assert [(await first).offset, (await last).offset] == [0, 1]
            assert isinstance(large.exception(0), RecordTooLargeError)
            request = ProducerRequest().add_message("t", value=b"c", partition=0).timeout(10.0).await_committed()
            (response,) = await producer.send(request)
            assert (await response).offset == 2

    run(main())


@pytest.mark.parametrize("before", [0, 1], ids=["the first record", "one that the accumulator appends at once"])
@pytest.mark.parametrize("comes_later", [False, True])
def test_callbacks_run_in_the_loop(cluster: Cluster, before: int, comes_later: bool) -> None:
    async def main() -> None:
        seen: list[tuple[ProduceResponse, threading.Thread]] = []
        done = asyncio.Event()

        def callback(response: ProduceResponse) -> None:
            seen.append((response, threading.current_thread()))
            done.set()

        async with kwire.aio.Producer(cluster.bootstrap) as producer:
            for _ in range(before):
                await producer.send_and_wait("t", b"first")
            response = await producer.send("t", b"x", on_delivery=None if comes_later else callback)
            if comes_later:
                response.add_done_callback(callback)
            await done.wait()
        assert seen == [(response, threading.main_thread())]

    run(main())


def test_callbacks_run_in_the_loop_that_sent_whichever_sent_first(cluster: Cluster) -> None:
    producer = kwire.aio.Producer(cluster.bootstrap)
    seen: list[asyncio.AbstractEventLoop] = []

    async def use() -> bool:
        done = asyncio.Event()
        for number in range(2):
            await producer.send("t", b"%d" % number, on_delivery=lambda _: seen.append(asyncio.get_running_loop()))
        (await producer.send("t", b"last")).add_done_callback(lambda _: done.set())
        await producer.flush()
        await done.wait()
        return seen == [asyncio.get_running_loop()] * 2

    for _ in range(2):
        seen.clear()
        assert asyncio.run(use())
    asyncio.run(producer.close())


def test_a_small_record_passes_by_none_that_waits(cluster: Cluster) -> None:
    slow(cluster)

    async def main() -> None:
        async with kwire.aio.Producer(cluster.bootstrap, max_buffered_bytes=1_000, linger_ms=0) as producer:
            await producer.send("t", b"first" * 120, partition=0)
            large = asyncio.create_task(producer.send("t", b"large" * 120, partition=0))
            await asyncio.sleep(0)  # it waits for memory now
            small = asyncio.create_task(producer.send("t", b"small", partition=0))
            await (await large)
            await (await small)

    run(main())
    assert [(value or b"")[:5] for value in values(cluster)] == [b"first", b"large", b"small"]


def test_no_thread_but_the_loops_own(cluster: Cluster) -> None:
    before = {thread.name for thread in threading.enumerate()}

    async def main() -> set[str]:
        async with kwire.aio.Producer(cluster.bootstrap, client_id="me", max_buffered_bytes=2_000) as producer:
            await asyncio.gather(*(producer.send_and_wait("t", b"x" * 500) for _ in range(100)))
            await producer.flush()
            return {thread.name for thread in threading.enumerate()} - before

    assert run(main()) == {"me producer loop"}
    assert {thread.name for thread in threading.enumerate()} == before, "close has ended it"


def test_one_producer_in_several_loops_in_turn(cluster: Cluster) -> None:
    producer = kwire.aio.Producer(cluster.bootstrap)

    async def use() -> int:
        return (await producer.send_and_wait("t", b"x", partition=0)).offset

    assert [asyncio.run(use()) for _ in range(3)] == [0, 1, 2]
    asyncio.run(producer.close())


# -- memory


def test_send_waits_for_room_and_others_go_on(cluster: Cluster) -> None:
    slow(cluster)

    async def main() -> None:
        async with kwire.aio.Producer(cluster.bootstrap, max_buffered_bytes=1_000) as producer:
            first = await producer.send("t", b"x" * 900)
            waiting = asyncio.create_task(producer.send("t", b"y" * 900))
            turns = 0
            while not waiting.done():
                turns += 1
                await asyncio.sleep(0)
            # Room is made before the loop learns of the delivery, so the log is asked.
            assert any(values(cluster, partition) for partition in range(PARTITIONS)), "the first is not stored"
            assert turns > 10, "and held up nobody"
            await first
            await (await waiting)

    run(main())


def test_no_room_raises_after_its_time_or_at_once(cluster: Cluster) -> None:
    slow(cluster, 300)

    async def main(**options: Any) -> None:
        async with kwire.aio.Producer(cluster.bootstrap, max_buffered_bytes=1_000, **options) as producer:
            first = await producer.send("t", b"x" * 900)
            with pytest.raises(BufferFullError, match="buffered bytes are waiting"):
                await producer.send("t", b"y" * 900)
            refused = ProducerRequest().add_message("t", value=b"z" * 900).timeout(0.05)
            (response,) = await producer.send(refused)
            assert isinstance(response.exception(0), BufferFullError)
            await first

    run(main(when_full="raise"))
    run(main(max_block_ms=50))


def test_a_cancelled_send_takes_its_record_back(cluster: Cluster) -> None:
    slow(cluster)

    async def main() -> None:
        async with kwire.aio.Producer(cluster.bootstrap, max_buffered_bytes=1_000) as producer:
            await producer.send("t", b"0" * 900, partition=0)
            sends = [asyncio.create_task(producer.send("t", b"%d" % n * 900, partition=0)) for n in range(1, 4)]
            await asyncio.sleep(0)
            sends[1].cancel()
            done = await asyncio.gather(*sends, return_exceptions=True)
            assert isinstance(done[1], asyncio.CancelledError)
            for response in (done[0], done[2]):
                assert isinstance(response, ProduceResponse)
                await response
            await producer.flush()
            assert producer.buffered_bytes == 0

    run(main())
    assert [(value or b"")[:1] for value in values(cluster)] == [b"0", b"1", b"3"]


def test_cancelling_one_task_that_awaits_a_response_leaves_the_others(cluster: Cluster) -> None:
    slow(cluster, 50)

    async def main() -> None:
        async with kwire.aio.Producer(cluster.bootstrap) as producer:
            response = await producer.send("t", b"x", partition=0)

            async def wait() -> RecordMetadata:
                return await response

            left, stays = asyncio.create_task(wait()), asyncio.create_task(wait())
            both = asyncio.create_task(producer.send_and_wait("t", b"y", partition=0))
            await asyncio.sleep(0)
            left.cancel()
            both.cancel()
            assert (await stays).offset == 0
            assert left.cancelled()

    run(main())
    assert values(cluster) == [b"x", b"y"], "what was handed over goes"


def test_a_task_that_only_sends_yields_to_others(cluster: Cluster) -> None:
    async def main() -> None:
        async with kwire.aio.Producer(cluster.bootstrap) as producer:
            turns = 0

            async def count() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            counting = asyncio.create_task(count())
            for _ in range(1_000):
                await producer.send("t", b"x")
            counting.cancel()
            assert turns >= 9

    run(main())


# -- ends


def test_flush_and_close(cluster: Cluster) -> None:
    async def main() -> None:
        producer = kwire.aio.Producer(cluster.bootstrap, linger_ms=60_000)
        await producer.flush()
        response = await producer.send("t", b"x")
        await producer.flush(PATIENCE)
        assert response.done()
        last = await producer.send("t", b"y")
        await producer.close()
        await producer.close()
        assert last.result(0).offset >= 0
        with pytest.raises(ClosedError):
            await producer.send("t", b"z")
        with pytest.raises(ClosedError):
            await producer.send_all([Message("t", b"z")])
        await kwire.aio.Producer("nobody:1").close()

    run(main())


def test_what_cannot_be_delivered_ends_with_close(cluster: Cluster) -> None:
    cluster.add_fault(Mute(), api=ApiKey.PRODUCE, times=None)

    async def main() -> None:
        producer = kwire.aio.Producer(cluster.bootstrap, max_buffered_bytes=100)
        out = await producer.send("t", b"x")
        waits = asyncio.create_task(producer.send("t", b"y" * 100))
        with pytest.raises(RequestTimeoutError, match=r"the delivery of records: 1 of topic t"):
            await producer.flush(0.1)
        await producer.close(timeout=0.1)
        with pytest.raises(DeliveryError):
            await out
        with pytest.raises(ClosedError):
            await waits

    run(main())


def test_a_cancelled_close_ends_the_thread_all_the_same(cluster: Cluster) -> None:
    cluster.add_fault(Mute(), api=ApiKey.PRODUCE, times=None)
    before = threading.active_count()

    async def main() -> None:
        producer = kwire.aio.Producer(cluster.bootstrap)
        response = await producer.send("t", b"x")
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert isinstance(response.exception(0), DeliveryError | ClosedError), "sent by then, or not"

    run(main())
    assert threading.active_count() == before


def test_a_loop_that_ended_before_the_response(cluster: Cluster) -> None:
    slow(cluster)
    called = threading.Event()

    async def main(producer: kwire.aio.Producer) -> ProduceResponse:
        return await producer.send("t", b"x", on_delivery=lambda _: called.set())

    producer = kwire.aio.Producer(cluster.bootstrap)
    response = asyncio.run(main(producer))
    assert response.result(PATIENCE).offset == 0, "a response can be waited for without a loop"
    assert called.wait(PATIENCE), "its callback ran on the callback thread"
    asyncio.run(producer.close())


# -- the rest


def test_an_own_partitioner_is_called_in_the_loop(cluster: Cluster) -> None:
    threads: list[threading.Thread] = []

    def rule(message: Message, topic: Topic) -> int:
        threads.append(threading.current_thread())
        return len(topic.partitions) - 1

    async def main() -> None:
        async with kwire.aio.Producer(cluster.bootstrap, partitioner=rule, max_block_ms=5_000) as producer:
            assert (await producer.send_and_wait("t", b"x")).partition == PARTITIONS - 1
            (response,) = await producer.send_all([Message("t", b"x")])
            assert (await response).partition == PARTITIONS - 1
        assert threads == [threading.main_thread()] * 2

    run(main())


def test_an_own_partitioner_waits_for_the_topic_for_so_long() -> None:
    async def main(bootstrap: str) -> None:
        options: dict[str, Any] = {"partitioner": lambda message, topic: 0, "max_block_ms": 50}
        async with kwire.aio.Producer(bootstrap, **options) as producer:
            with pytest.raises(RequestTimeoutError, match="partitions are not known"):
                await producer.send("nowhere", b"x")

    with Cluster(brokers=1, auto_create_topics=False) as cluster:
        run(main(cluster.bootstrap))


def test_an_abort_that_fails_does_not_hide_the_error_of_the_block(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kwire.producer.methods._ABORT_SECONDS", 0.1)

    async def fail(producer: kwire.aio.Producer) -> None:
        async with producer.transaction():
            await producer.send_and_wait("t", b"x")
            raise LookupError("mine")

    async def main() -> None:
        async with kwire.aio.Producer(cluster.bootstrap, transactional_id="id", request_timeout_ms=500) as producer:
            cluster.add_fault(Mute(), api=ApiKey.END_TXN, times=None)
            with pytest.raises(LookupError, match="mine"):
                await fail(producer)
            cluster.clear_faults()

    run(main())
    assert "the transaction that raised LookupError is not aborted" in caplog.text


def test_a_wait_that_looks_like_milliseconds_is_warned_about(cluster: Cluster) -> None:
    async def main() -> None:
        async with kwire.aio.Producer(cluster.bootstrap, transactional_id="id") as producer:
            with pytest.warns(UserWarning, match="a timeout of 10000: these are seconds") as flushed:
                await producer.flush(10_000)
            with pytest.warns(UserWarning, match="these are seconds") as begun:
                await producer.begin(10_000)
            assert {one.filename for one in (*flushed, *begun)} == {__file__}
            with pytest.raises(TypeError, match="timeout is '1'"):
                await producer.flush("1")  # type: ignore[arg-type]

    run(main())


def test_arguments_and_options_are_those_of_the_other_face(cluster: Cluster) -> None:
    async def main() -> None:
        async with kwire.aio.Producer(cluster.bootstrap) as producer:
            with pytest.raises(TypeError, match="value"):
                await producer.send("t", 5)  # type: ignore[call-overload]
            with pytest.raises(ConfigurationError, match="transactional_id"):
                await producer.begin()

    run(main())
    with pytest.raises(ConfigurationError):
        kwire.aio.Producer("host", lingerms=5)  # type: ignore[call-arg]


def test_many_at_once(cluster: Cluster) -> None:
    async def main() -> None:
        threads: list[object] = []
        sent = [b"%d" % number for number in range(500)]
        async with kwire.aio.Producer(cluster.bootstrap, max_buffered_bytes=2_000) as producer:
            response, other = await asyncio.gather(
                producer.send_many("t", sent, partitions=0), producer.send_many("t", [b"x" * 3_000], partitions=1)
            )
            called = asyncio.Event()

            def note(one: BulkResponse) -> None:
                threads.append(threading.current_thread())
                called.set()

            response.add_done_callback(note)
            assert list((await response).offsets) == list(range(500))
            assert (await other)[0].partition == 1
            await called.wait()
            pa = pytest.importorskip("pyarrow")
            rows = await (await producer.send_arrow("t", pa.table({"value": ["a", None]})))
            assert len(rows) == 2
            assert len(await (await producer.send_lines("t", b"a\nb\nc"))) == 3
            with pytest.raises(ValueError, match="keys has 1"):
                await producer.send_many("t", sent, keys=[b"k"])
        assert threads == [threading.current_thread()]

    run(main())
    assert values(cluster)[:500] == [b"%d" % number for number in range(500)]


def test_many_that_find_no_room(cluster: Cluster) -> None:
    cluster.add_fault(Mute(), api=ApiKey.PRODUCE, times=None)

    async def main() -> None:
        options: dict[str, Any] = {"max_buffered_bytes": 1_000, "max_block_ms": 50, "request_timeout_ms": 300}
        async with kwire.aio.Producer(cluster.bootstrap, delivery_timeout_ms=500, **options) as producer:
            response = await producer.send_many("t", [bytes(400)] * 5, partitions=0)
            assert [type(error) for _, error in response.errors] == [BufferFullError] * 3
            with pytest.raises(BufferFullError):
                await producer.send_many("t", [bytes(400)])
            waiting = asyncio.create_task(producer.send_many("t", [bytes(400)]))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            with pytest.raises(DeliveryError):
                await response

    run(main())
