"""`kwire.ShareConsumer` and `kwire.aio.ShareConsumer` as their users see them, on the embedded broker."""

from __future__ import annotations

import asyncio
import inspect
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import kwire
from kwire import aio
from kwire.broker import Cluster
from kwire.errors import (
    ClosedError,
    ConfigurationError,
    KwireError,
    UnsupportedVersionError,
    WakeupError,
)
from kwire.protocol import ApiKey

FAST = {"retry_backoff_ms": 10, "reconnect_backoff_ms": 10}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=1, topics={"t": 2}, share_heartbeat_interval_ms=100) as cluster:
        yield cluster


def opened(cluster: Cluster, **options: Any) -> kwire.ShareConsumer:
    """Return a member that has its first session, so that the group begins at the present end."""
    consumer = kwire.ShareConsumer(cluster.bootstrap, **{"group": "g", **FAST, **options})
    consumer.subscribe(["t"])
    while not consumer.metrics().fetches:
        consumer.poll(timeout=0.05)
    consumer.poll(timeout=0.2)
    return consumer


def produce(cluster: Cluster, *values: str) -> None:
    with kwire.Producer(cluster.bootstrap) as producer:
        producer.send_many("t", list(values)).result(timeout=10)


def test_twenty_lines(cluster: Cluster) -> None:
    with opened(cluster) as consumer:
        produce(cluster, "a", "b", "c")
        seen = []
        for record in consumer:
            with record:
                seen.append(record.value)
            if len(seen) == 3:
                break
        assert set(consumer.commit().values()) == {None}
        assert sorted(value or b"" for value in seen) == [b"a", b"b", b"c"]
        assert consumer.acquisition_lock_ms == 30_000
    with opened(cluster) as after:
        assert after.poll(timeout=0.3) == []


def test_a_record_is_a_consumer_record_and_pickles_as_one(cluster: Cluster) -> None:
    with opened(cluster) as consumer:
        produce(cluster, "a")
        (record,) = consumer.poll(timeout=10)
        copy = pickle.loads(pickle.dumps(record))
        assert type(copy) is kwire.ConsumerRecord
        assert copy == record
        assert isinstance(record, kwire.ShareRecord)
        record.accept()


def test_wakeup_ends_a_poll_of_another_thread(cluster: Cluster) -> None:
    with opened(cluster) as consumer:
        timer = threading.Timer(0.1, consumer.wakeup)
        timer.start()
        with pytest.raises(WakeupError):
            consumer.poll(timeout=30)
        timer.join()
        assert consumer.poll(timeout=0.1) == []


def test_close_ends_an_iteration_of_another_thread(cluster: Cluster) -> None:
    consumer = opened(cluster)
    seen: list[Any] = []
    thread = threading.Thread(target=lambda: seen.append(list(consumer)))
    thread.start()
    consumer.close()
    thread.join(10)
    assert seen == [[]]
    with pytest.raises(ClosedError):
        consumer.poll()
    consumer.close()


def test_two_members_get_all_records_between_them(cluster: Cluster) -> None:
    consumers = [opened(cluster) for _ in range(2)]
    produce(cluster, *map(str, range(500)))
    got: list[bytes] = []
    lock = threading.Lock()

    def work(consumer: kwire.ShareConsumer) -> None:
        while len(got) < 500:
            records = consumer.poll(timeout=0.1)
            consumer.acknowledge(records)
            with lock:
                got.extend(record.value or b"" for record in records)

    threads = [threading.Thread(target=work, args=(consumer,)) for consumer in consumers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    for consumer in consumers:
        consumer.close()
    assert sorted(map(int, got)) == list(range(500))


def test_clients_on_one_cluster_end_with_it(cluster: Cluster) -> None:
    with kwire.Cluster(cluster.bootstrap) as shared:
        consumer = kwire.ShareConsumer(shared, group="g")
        consumer.subscribe(["t"])
        consumer.poll(timeout=0.2)
        member = consumer.member_id
    with pytest.raises(ClosedError):
        consumer.poll()
    with kwire.Admin(cluster.bootstrap) as admin:
        assert member not in {one.id for one in admin.groups.describe("g").members}


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"version": "4.0"}, "needs Kafka|they need Kafka 4.2"),
        ({"version": "3.9"}, "they need Kafka 4.2"),
        ({"share_version": 0}, "share.version"),
    ],
)
def test_brokers_without_share_groups_are_named(options: dict[str, Any], error: str) -> None:
    with (
        Cluster(brokers=1, topics={"t": 1}, **options) as cluster,
        kwire.ShareConsumer(cluster.bootstrap, group="g") as consumer,
    ):
        consumer.subscribe(["t"])
        with pytest.raises(UnsupportedVersionError, match=error) as caught:
            consumer.poll(timeout=10)
        assert caught.value.where["group"] == "g"
        with pytest.raises(UnsupportedVersionError):
            consumer.poll(timeout=10)


def test_record_limit_and_renew_need_kafka_4_2() -> None:
    only_v1 = {ApiKey.SHARE_FETCH: range(1, 2), ApiKey.SHARE_ACKNOWLEDGE: range(1, 2)}
    with Cluster(brokers=1, topics={"t": 1}, api_versions=only_v1) as cluster:
        with kwire.ShareConsumer(cluster.bootstrap, group="g", acquire_mode="record_limit") as consumer:
            consumer.subscribe(["t"])
            with pytest.raises(UnsupportedVersionError, match="record_limit"):
                next(consumer)
        with opened(cluster) as consumer:
            produce(cluster, "a")
            (record,) = consumer.poll(timeout=10)
            with pytest.raises(UnsupportedVersionError, match="cannot renew"):
                record.renew()
            record.accept()


def test_no_broker_is_an_error_in_time() -> None:
    with kwire.ShareConsumer("127.0.0.1:1", group="g", **FAST) as consumer:  # type: ignore[arg-type]
        consumer.subscribe(["t"])
        with pytest.raises(KwireError, match=r"127\.0\.0\.1:1"):
            consumer.poll(timeout=20)
        assert "no broker has been reached" in str(consumer.explain())


def test_wrong_calls_are_refused_before_anything_is_sent(cluster: Cluster) -> None:
    with pytest.raises(ConfigurationError, match="name the share group"):
        kwire.ShareConsumer(cluster.bootstrap)
    with pytest.raises(ConfigurationError, match="acknowledgement_mode"):
        kwire.ShareConsumer(cluster.bootstrap, group="g", acknowledgement_mode="manual")  # type: ignore[arg-type]
    with kwire.ShareConsumer(cluster.bootstrap, group="g") as consumer:
        with pytest.raises(ConfigurationError, match="nothing is subscribed"):
            consumer.poll()
        with pytest.raises(TypeError, match="list of names"):
            consumer.subscribe("t")
        with pytest.raises(ConfigurationError, match="no topics"):
            consumer.subscribe([])
        with pytest.raises(AttributeError, match="no positions"):
            consumer.seek  # type: ignore[attr-defined]  # noqa: B018
        consumer.subscribe(["t"])
        with pytest.raises(TypeError, match="max_records"):
            consumer.poll(1.0)  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="type is"):
            consumer.acknowledge([], "done")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="not a ShareRecord"):
            consumer.acknowledge([object()])  # type: ignore[list-item]
        wrong: list[Any] = [5, {"t": [1]}, {("t", 0): 5}, {("t", 0): "5"}]
        for what, name in zip(
            wrong, ("what is 5", "a key of what is 't'", "what.* is 5", "what.* is '5'"), strict=True
        ):
            with pytest.raises(TypeError, match=name):
                consumer.acknowledge(what)
        with pytest.raises(KwireError, match="no record with this offset is in hand"):
            consumer.acknowledge({("t", 0): [5]})


def test_explain_names_a_topic_that_does_not_exist(cluster: Cluster) -> None:
    with kwire.ShareConsumer(cluster.bootstrap, group="g", **FAST) as consumer:  # type: ignore[arg-type]
        consumer.subscribe(["absent"])
        assert consumer.poll(timeout=0.5) == []
        assert "there is no topic 'absent'" in str(consumer.explain())


def test_unsubscribe_releases_what_was_not_polled(cluster: Cluster) -> None:
    with opened(cluster, max_poll_records=2) as consumer, opened(cluster) as other:
        other.unsubscribe()
        produce(cluster, *map(str, range(10)))
        records = consumer.poll(timeout=10)
        consumer.acknowledge(records)
        consumer.unsubscribe()
        other.subscribe(["t"])
        got = len(records)
        while got < 10:
            rest = other.poll(timeout=10)
            other.acknowledge(rest)
            got += len(rest)
        with pytest.raises(ConfigurationError, match="nothing is subscribed"):
            consumer.poll()


# -- asyncio


def test_the_face_for_asyncio(cluster: Cluster) -> None:
    results: list[Any] = []

    async def on_acknowledged(offsets: Any, error: KwireError | None) -> None:
        await asyncio.sleep(0)
        results.append((offsets, error))

    async def main() -> list[bytes | None]:
        async with aio.ShareConsumer(cluster.bootstrap, group="g") as consumer:
            await consumer.subscribe(["t"], on_acknowledged=on_acknowledged)
            while not (await consumer.metrics()).fetches:
                await consumer.poll(timeout=0.05)
            await consumer.poll(timeout=0.2)
            produce(cluster, *map(str, range(20)))
            seen = []
            async for record in consumer:
                with record:
                    seen.append(record.value)
                if len(seen) == 20:
                    break
            assert set((await consumer.commit()).values()) == {None}
            return seen

    assert sorted(asyncio.run(main()), key=lambda value: int(value or b"")) == [b"%d" % n for n in range(20)]
    assert sum(len(offsets) for found, error in results for offsets in found.values() if error is None) == 20


def test_a_cancelled_poll_loses_no_record(cluster: Cluster) -> None:
    async def main() -> int:
        async with aio.ShareConsumer(cluster.bootstrap, group="g") as consumer:
            await consumer.subscribe(["t"])
            while not (await consumer.metrics()).fetches:
                await consumer.poll(timeout=0.05)
            await consumer.poll(timeout=0.2)
            poll = asyncio.create_task(consumer.poll(timeout=30))
            await asyncio.sleep(0)
            await asyncio.to_thread(produce, cluster, "a", "b")
            poll.cancel()
            await asyncio.gather(poll, return_exceptions=True)
            got = 0 if poll.cancelled() else len(poll.result())
            while got < 2:
                records = await consumer.poll(timeout=5)
                assert all(record.delivery_count == 1 for record in records)
                consumer.acknowledge(records)
                got += len(records)
            return got

    assert asyncio.run(main()) == 2


def test_the_methods_that_wait_are_coroutines_in_both_faces_of_asyncio() -> None:
    for face in (aio.Consumer, aio.ShareConsumer):
        for name in ("subscribe", "unsubscribe", "poll", "commit", "metrics", "explain", "close"):
            method = getattr(face, name)
            assert inspect.iscoroutinefunction(method), name
            assert method.__name__ == name


def test_both_faces_have_the_same_methods() -> None:
    own = {"__iter__", "__next__", "__enter__", "__exit__", "__aiter__", "__anext__", "__aenter__", "__aexit__"}
    sync = {name for name in dir(kwire.ShareConsumer) if not name.startswith("_")}
    assert sync == {name for name in dir(aio.ShareConsumer) if not name.startswith("_")}
    assert {name for name in own if hasattr(kwire.ShareConsumer, name)} == {
        "__iter__", "__next__", "__enter__", "__exit__",
    }  # fmt: skip
