"""Interceptors of consumers: every way to read records, every commit, and nothing that they raise matters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

import kwire
import kwire.aio
from kwire.broker import Cluster
from kwire.consumer import ConsumerRecord, Offset, TopicPartition
from kwire.errors import ConfigurationError
from tests.consumer.embedded import fill, number_of
from tests.waiting import wait_until


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=1, topics={"t": 1}) as running:
        fill(running, "t", 0, range(300))
        yield running
        assert not running.failures


class Even(kwire.ConsumerInterceptor):
    """Lets only even numbers through, and notes the rest."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.committed: list[dict[TopicPartition, Offset]] = []
        self.closes = 0
        self.told_after_close = 0

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        self.seen += map(number_of, records)
        return [record for record in records if number_of(record) % 2 == 0]

    def on_commit(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        self.told_after_close += self.closes
        self.committed.append(dict(offsets))

    def close(self) -> None:
        self.closes += 1


EVEN = list(range(0, 300, 2))


def read_all(consumer: kwire.Consumer) -> list[int]:
    """Poll until the end of the topic; a poll whose records are all left out returns none."""
    found: list[int] = []
    while not consumer.assignment() or consumer.position("t", 0, 30) < 300:
        found += map(number_of, consumer.poll(50, timeout=1))
    return found


def test_polls(cluster: Cluster) -> None:
    even = Even()
    with kwire.Consumer(cluster.bootstrap, interceptors=[even]) as consumer:
        consumer.assign([("t", 0, "earliest")])
        assert read_all(consumer) == EVEN
        assert consumer.position("t", 0) == 300
    assert even.seen == list(range(300))
    assert even.closes == 1


def test_an_iteration(cluster: Cluster) -> None:
    even = Even()
    with kwire.Consumer(cluster.bootstrap, interceptors=[even]) as consumer:
        consumer.assign([("t", 0, "earliest")])
        found: list[int] = []
        for record in consumer:
            found.append(number_of(record))
            if len(found) == 50:
                break
        assert consumer.position("t", 0) == 99  # no record was read ahead
        consumer.seek("t", 0, 200)
        for record in consumer:
            found.append(number_of(record))
            if len(found) == 100:
                break
    assert found == [*EVEN[:50], *range(200, 300, 2)]
    assert even.seen == [*range(99), *range(200, 299)]


def test_asyncio(cluster: Cluster) -> None:
    even = Even()

    async def main() -> None:
        async with kwire.aio.Consumer(cluster.bootstrap, group="g", interceptors=[even]) as consumer:
            await consumer.subscribe(["t"])
            found: list[int] = []
            async for record in consumer:
                found.append(number_of(record))
                if len(found) == 150:
                    break
            assert found == EVEN
            await consumer.commit()
            with pytest.raises(ConfigurationError, match="anext"):
                await anext(consumer)
            with pytest.raises(ConfigurationError, match="poll_batch"):
                await consumer.poll_batch()

    asyncio.run(main())
    assert even.committed[-1] == {("t", 0): Offset(299, even.committed[-1]["t", 0].leader_epoch)}
    assert (even.closes, even.told_after_close) == (1, 0)


def test_workers_of_process(cluster: Cluster) -> None:
    even = Even()
    done: list[int] = []
    consumer = kwire.Consumer(cluster.bootstrap, group="g", commit="marks", interceptors=[even])
    consumer.subscribe(["t"])

    def work(record: ConsumerRecord) -> None:
        done.append(number_of(record))
        if len(done) == 150:
            processor.stop()

    processor = consumer.process(work)
    processor.run()
    assert sorted(done) == EVEN
    assert even.committed[-1]["t", 0].offset in (299, 300)  # the last record that is left out, or not
    assert even.closes == 1


@pytest.mark.parametrize("how", ["commit", "commit_async", "auto", "revoke"])
def test_every_commit_is_told(cluster: Cluster, how: str) -> None:
    even = Even()
    mode: Any = "auto" if how in ("auto", "revoke") else "manual"
    interval = 10 if how == "auto" else 3_600_000
    options: dict[str, Any] = {"commit": mode, "commit_interval_ms": interval, "interceptors": [even]}
    with kwire.Consumer(cluster.bootstrap, group="g", **options) as consumer:
        consumer.subscribe(["t"])
        assert len(read_all(consumer)) == 150
        if how == "commit":
            consumer.commit()
        elif how == "commit_async":
            consumer.commit_async()
        elif how == "revoke":
            consumer.poll(timeout=0)  # so that they count as processed
            consumer.unsubscribe()
        else:
            consumer.poll(timeout=0)
        wait_until(lambda: even.committed and even.committed[-1]["t", 0].offset == 300)
    assert (even.closes, even.told_after_close) == (1, 0)


def test_what_makes_no_records_is_refused(cluster: Cluster) -> None:
    class Committed(kwire.ConsumerInterceptor):
        def on_commit(self, offsets: Mapping[TopicPartition, Offset]) -> None: ...

    with kwire.Consumer(cluster.bootstrap, interceptors=[Even()]) as consumer:
        consumer.assign([("t", 0, "earliest")])
        reads: list[Callable[[], object]] = [consumer.poll_batch, lambda: next(consumer)]
        for call in reads:
            with pytest.raises(ConfigurationError, match="records that no interceptor has seen"):
                call()
    with kwire.Consumer(cluster.bootstrap, interceptors=[Committed()]) as consumer:
        consumer.assign([("t", 0, "earliest")])
        assert len(consumer.poll_batch(timeout=30)) == 300
        consumer.seek("t", 0, 0)
        assert number_of(next(consumer)) == 0


def bad(method: str, what: Callable[..., Any]) -> kwire.ConsumerInterceptor:
    made: kwire.ConsumerInterceptor = type("Bad", (kwire.ConsumerInterceptor,), {method: what})()
    return made


def _fail(*_: object) -> Any:
    raise ValueError("a defect of the interceptor")


@pytest.mark.parametrize(
    "one",
    [bad("on_consume", _fail), bad("on_consume", lambda *_: None), bad("on_commit", _fail), bad("close", _fail)],
)
def test_what_they_raise_is_logged_and_changes_nothing(
    cluster: Cluster, one: kwire.ConsumerInterceptor, caplog: pytest.LogCaptureFixture
) -> None:
    even = Even()
    with kwire.Consumer(cluster.bootstrap, group="g", commit="manual", interceptors=[one, even]) as consumer:
        consumer.subscribe(["t"])
        assert read_all(consumer) == EVEN
        consumer.commit()
    assert even.committed[-1]["t", 0].offset == 300
    assert even.closes == 1
    assert [record for record in caplog.records if record.name == "kwire.interceptors" and "Bad" in record.message]


def test_an_interrupt_in_an_interceptor_loses_no_record(cluster: Cluster) -> None:
    calls: list[int] = []

    class Interrupted(kwire.ConsumerInterceptor):
        def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
            calls.append(len(records))
            if len(calls) == 1:
                raise KeyboardInterrupt
            return records

    with kwire.Consumer(cluster.bootstrap, interceptors=[Interrupted()]) as consumer:
        consumer.assign([("t", 0, "earliest")])
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(timeout=30)
        assert read_all(consumer) == list(range(300))


@pytest.mark.parametrize("wrong", ["x", [object()], Even(), None])
def test_what_is_no_list_of_interceptors(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"interceptors is .*give a list of kwire\.ConsumerInterceptor"):
        kwire.Consumer("localhost:9092", interceptors=wrong)
