"""Interceptors of producers: every way to send, every result, and nothing that they raise matters."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

import kwire
import kwire.aio
from kwire.broker import Cluster, Mute, Refuse
from kwire.errors import ConfigurationError, ErrorCode, KwireError, RecordTooLargeError, UndeliveredError
from kwire.producer import Message, ProducerRequest, RecordMetadata
from kwire.protocol import ApiKey
from tests.producer.conftest import PARTITIONS

PATIENCE = 30


class Recorder(kwire.ProducerInterceptor):
    """Adds a letter to each value, and keeps each result it learns."""

    def __init__(self, letter: str = "a") -> None:
        self.letter = letter
        self.results: list[tuple[RecordMetadata, KwireError | None]] = []
        self.threads: set[str] = set()
        self.closes = 0
        self.told_after_close = 0

    def on_send(self, message: Message) -> Message:
        value = message.value if isinstance(message.value, str) else bytes(message.value or b"").decode()
        return message._replace(value=value + self.letter)

    def on_acknowledgement(self, metadata: RecordMetadata, error: KwireError | None) -> None:
        self.told_after_close += self.closes
        self.threads.add(threading.current_thread().name)
        self.results.append((metadata, error))

    def close(self) -> None:
        self.closes += 1


def values(cluster: Cluster) -> list[bytes | None]:
    records = [record for index in range(PARTITIONS) for record in cluster.log("t", index).records()]
    return sorted((record.value for record in records), key=str)


def offsets(cluster: Cluster) -> set[tuple[int, int]]:
    return {(index, record.offset) for index in range(PARTITIONS) for record in cluster.log("t", index).records()}


def test_every_way_to_send_goes_through_them_in_order(cluster: Cluster) -> None:
    first, second = Recorder("a"), Recorder("b")
    with kwire.Producer(cluster.bootstrap, interceptors=[first, second]) as producer:
        response = producer.send("t", "0", key="k", headers={"h": b"1"}, partition=2)
        producer.send_all([Message("t", "1"), Message("t", "2", partition=0)])
        producer.send(ProducerRequest().add_message("t", None, "3"))
        producer.send_many("t", ["4", "5"], headers={"h": b"2"}, timestamps_ms=[1_000, None], partitions=[1, None])
        assert response.result(PATIENCE).partition == 2
    assert values(cluster) == [b"%dab" % n for n in range(6)]
    for one in (first, second):
        assert {(metadata.partition, metadata.offset) for metadata, _ in one.results} == offsets(cluster)
        assert len(one.results) == 6
        assert {error for _, error in one.results} == {None}
        assert (one.closes, one.told_after_close) == (1, 0)
    (record,) = (record for record in cluster.log("t", 1).records() if record.value == b"4ab")
    assert (record.timestamp_ms, record.headers) == (1_000, (("h", b"2"),))


def test_send_arrow_goes_through_them(cluster: Cluster) -> None:
    pa = pytest.importorskip("pyarrow")
    recorder = Recorder()
    with kwire.Producer(cluster.bootstrap, interceptors=[recorder]) as producer:
        producer.send_arrow("t", pa.table({"value": pa.array([b"0", b"1"], pa.binary())})).result(PATIENCE)
    assert values(cluster) == [b"0a", b"1a"]
    assert len(recorder.results) == 2


def test_asyncio(cluster: Cluster) -> None:
    recorder = Recorder()

    async def main() -> None:
        async with kwire.aio.Producer(cluster.bootstrap, interceptors=[recorder]) as producer:
            await producer.send_and_wait("t", "0")
            await producer.send("t", "1", headers={"h": b"1"})
            await producer.send_all([Message("t", "2")])
            await producer.send(ProducerRequest().add_message("t", None, "3"))
            await (await producer.send_many("t", ["4", "5"]))
            with pytest.raises(RecordTooLargeError):
                await producer.send("t", "x" * 2_000_000)

    asyncio.run(main())
    assert values(cluster) == [b"%da" % n for n in range(6)]
    assert len(recorder.results) == 7
    assert recorder.threads == {threading.main_thread().name}
    assert (recorder.closes, recorder.told_after_close) == (1, 0)


def test_they_see_what_serializers_get_and_choose_key_and_topic(cluster: Cluster) -> None:
    cluster.create_topic("other")
    seen: list[Any] = []

    class Rerouting(kwire.ProducerInterceptor):
        def on_send(self, message: Message) -> Message:
            seen.append(message.value)
            return message._replace(topic="other")

    def as_text(topic: str, value: Any) -> str:
        return f"{topic}: {value}"

    with kwire.Producer(cluster.bootstrap, interceptors=[Rerouting()], value_serializer=as_text) as producer:
        producer.send("t", 7).result(PATIENCE)  # type: ignore[call-overload]
    assert seen == [7]
    assert [record.value for record in cluster.log("other", 0).records()] == [b"other: 7"]


def test_records_that_fail_and_records_that_are_refused(cluster: Cluster) -> None:
    recorder = Recorder()
    cluster.add_fault(Refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED), api=ApiKey.PRODUCE, times=None)
    producer = kwire.Producer(cluster.bootstrap, interceptors=[recorder], max_request_bytes=1_000)
    responses = [producer.send("t", "0", partition=1), producer.send("t", "1", partition=1)]
    with pytest.raises(RecordTooLargeError):
        producer.send("t", "x" * 2_000, partition=3)
    many = producer.send_many("t", ["y" * 2_000, "2"])
    producer.close()
    assert all(response.exception(PATIENCE) for response in responses)
    assert many.errors[0][0] == 0
    told = {(type(error).__name__, metadata.partition) for metadata, error in recorder.results}
    assert len(recorder.results) == 5
    assert ("RecordTooLargeError", 3) in told
    assert ("RecordTooLargeError", -1) in told
    assert ("AuthorizationError", 1) in told
    assert all(metadata.offset == -1 for metadata, _ in recorder.results)


def test_failures_that_only_an_interceptor_saw_are_still_reported(cluster: Cluster) -> None:
    recorder = Recorder()
    cluster.add_fault(Refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED), api=ApiKey.PRODUCE, times=None)
    wanted = pytest.raises(UndeliveredError, match="1 record was not delivered")
    with wanted, kwire.Producer(cluster.bootstrap, interceptors=[recorder]) as producer:
        producer.send("t", "0")
    assert len(recorder.results) == 1


def raising(method: str, what: Callable[..., Any]) -> kwire.ProducerInterceptor:
    made: kwire.ProducerInterceptor = type("Bad", (kwire.ProducerInterceptor,), {method: what})()
    return made


def _fail(*_: object) -> Any:
    raise ValueError("a defect of the interceptor")


@pytest.mark.parametrize(
    "bad",
    [raising("on_send", _fail), raising("on_send", lambda *_: None), raising("on_acknowledgement", _fail),
     raising("close", _fail)],
)  # fmt: skip
def test_what_they_raise_is_logged_and_changes_nothing(
    cluster: Cluster, bad: kwire.ProducerInterceptor, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder()
    with kwire.Producer(cluster.bootstrap, interceptors=[bad, recorder]) as producer:
        producer.send("t", "0").result(PATIENCE)
        producer.send_many("t", ["1"]).result(PATIENCE)
    assert values(cluster) == [b"0a", b"1a"]
    assert len(recorder.results) == 2
    assert recorder.closes == 1
    logged = [one for one in caplog.records if one.name == "kwire.interceptors"]
    assert logged
    assert all(one.levelno == logging.ERROR and "Bad" in one.getMessage() for one in logged)


def test_a_callback_runs_after_the_interceptor(cluster: Cluster) -> None:
    order: list[str] = []

    class Noting(kwire.ProducerInterceptor):
        def on_acknowledgement(self, metadata: RecordMetadata, error: KwireError | None) -> None:
            order.append("interceptor")

    with kwire.Producer(cluster.bootstrap, interceptors=[Noting()]) as producer:
        producer.send("t", "0", on_delivery=lambda _: order.append("callback")).result(PATIENCE)
    assert order == ["interceptor", "callback"]


def test_they_share_a_cluster_and_end_with_it(cluster: Cluster) -> None:
    recorder = Recorder()
    with kwire.Cluster(cluster.bootstrap) as shared:
        producer = kwire.Producer(shared, interceptors=[recorder])
        producer.send("t", "0").result(PATIENCE)
    assert recorder.closes == 1
    producer.close()
    assert (recorder.closes, len(recorder.results), recorder.told_after_close) == (1, 1, 0)


def test_what_is_told_last_is_told_before_the_end(cluster: Cluster) -> None:
    """Records that no broker took fail in `close`."""
    recorder = Recorder()
    cluster.add_fault(Mute(), api=ApiKey.PRODUCE, times=None)
    producer = kwire.Producer(cluster.bootstrap, interceptors=[recorder])
    producer.send("t", "0", partition=0)
    producer.close(0.5)
    assert [type(error).__name__ for _, error in recorder.results] == ["DeliveryError"]
    assert (recorder.closes, recorder.told_after_close) == (1, 0)


def test_without_them_send_is_the_accumulators_own(cluster: Cluster) -> None:
    class OnlyClose(kwire.ProducerInterceptor): ...

    with kwire.Producer(cluster.bootstrap) as plain:
        assert plain.send == plain._core.buffer_pool.accumulator.send
        assert plain._core.callbacks.on_resolved is None
    with kwire.Producer(cluster.bootstrap, interceptors=[OnlyClose()]) as other:
        assert other._core.callbacks.on_resolved is None


@pytest.mark.parametrize("wrong", ["x", [object()], Recorder(), None])
def test_what_is_no_list_of_interceptors(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"interceptors is .*give a list of kwire\.ProducerInterceptor"):
        kwire.Producer("localhost:9092", interceptors=wrong)
