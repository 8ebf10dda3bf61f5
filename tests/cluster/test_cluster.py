"""`kwire.Cluster`: several clients share the connections, the metadata and the loop, and each ends on its own."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest

import kwire
import kwire.aio
from kwire.broker import Cluster as EmbeddedCluster
from kwire.broker import Delay, Mute
from kwire.cluster import ClusterEvent
from kwire.errors import ClosedError, ConfigurationError, DeliveryError, ErrorCode, RequestTimeoutError, TopicError
from kwire.protocol import ApiKey

PATIENCE = 30.0


@pytest.fixture
def broker() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1, topics={"a": 1, "b": 1}, auto_create_topics=False) as broker:
        yield broker


@pytest.fixture
def cluster(broker: EmbeddedCluster) -> Iterator[kwire.Cluster]:
    with kwire.Cluster(broker.bootstrap) as cluster:
        yield cluster


def connections(cluster: kwire.Cluster) -> int:
    return sum(broker.connections for broker in cluster.metrics().brokers.values())


def asked_versions(caplog: pytest.LogCaptureFixture) -> list[int]:
    """Return the version of each ApiVersions request since the last call, by the client's own log."""
    sent = [re.search(r"^to broker .* ApiVersions v(\d+)", one.getMessage()) for one in caplog.records]
    caplog.clear()
    return [int(found[1]) for found in sent if found]


def test_only_the_first_connection_to_an_address_finds_the_version_of_api_versions(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "kwire.cluster.requests")
    with (
        EmbeddedCluster(brokers=1, topics={"t": 1}, version="4.3") as broker,
        kwire.Cluster(broker.bootstrap) as cluster,
    ):

        def reconnect() -> list[int]:
            """Use connections for all purposes, which a restart ended."""
            with kwire.Producer(cluster) as producer, kwire.Consumer(cluster) as consumer:
                consumer.assign([("t", 0, "earliest")])
                producer.send("t", b"1").result(PATIENCE)
                assert values(consumer, 1)
            return asked_versions(caplog)

        first = reconnect()
        assert first == [5, 4, *[4] * (len(first) - 2)]
        assert len(first) > 3
        broker.serve_as(1, "4.4")  # which closes the connections
        upgraded = reconnect()
        assert (upgraded[0], upgraded[-1]) == (4, 5)
        broker.serve_as(1, "4.3")
        rolled_back = reconnect()
        assert (rolled_back[0], rolled_back[-1]) == (5, 4)


def values(consumer: kwire.Consumer, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    while len(found) < count:
        found += [record.value for record in consumer.poll(timeout=PATIENCE)]
    return found


def test_clients_share_their_connections_and_consumers_only_those_that_do_not_wait(
    broker: EmbeddedCluster, cluster: kwire.Cluster
) -> None:
    with kwire.Producer(cluster) as one, kwire.Producer(cluster) as two, kwire.Admin(cluster) as admin:
        one.send("a", b"1").result(PATIENCE)
        assert connections(cluster) == 2  # for metadata, and to produce
        two.send("b", b"2").result(PATIENCE)
        assert admin.metadata(["a"]).topics["a"].partitions
        assert connections(cluster) == 2
        with kwire.Consumer(cluster) as first, kwire.Consumer(cluster) as second:
            first.assign([("a", 0, "earliest")])
            second.assign([("b", 0, "earliest")])
            assert (values(first, 1), values(second, 1)) == ([b"1"], [b"2"])
            assert connections(cluster) == 4
        assert connections(cluster) == 2, "a consumer that is closed takes its connection with it"


def test_a_consumer_that_waits_for_records_does_not_hold_up_another(cluster: kwire.Cluster) -> None:
    with kwire.Consumer(cluster, max_wait_ms=600_000, request_timeout_ms=900_000) as waiting:
        waiting.assign([("a", 0, "latest")])
        assert waiting.poll(timeout=0.1) == []
        with kwire.Producer(cluster) as producer, kwire.Consumer(cluster) as reading:
            producer.send("b", b"x").result(PATIENCE)
            reading.assign([("b", 0, "earliest")])
            assert values(reading, 1) == [b"x"]
            producer.send("a", b"y").result(PATIENCE)
        assert values(waiting, 1) == [b"y"]


def test_a_client_that_closes_with_requests_in_flight_leaves_the_others_alone(
    broker: EmbeddedCluster, cluster: kwire.Cluster
) -> None:
    with kwire.Producer(cluster) as leaving, kwire.Producer(cluster, linger_ms=0) as staying:
        staying.send("b", b"0").result(PATIENCE)
        broker.add_fault(Delay(1_000), api=ApiKey.PRODUCE, topic="a")
        response = leaving.send("a", b"late")
        with pytest.raises(RequestTimeoutError):
            leaving.flush(0.3)
        others = [staying.send("b", b"%d" % number) for number in range(1, 20)]
        leaving.close(timeout=0)
        error = response.exception(0)
        assert isinstance(error, DeliveryError)
        assert error.possibly_persisted
        assert [other.result(PATIENCE).offset for other in others] == list(range(1, 20))
        with pytest.raises(ClosedError, match="is closed"):
            leaving.send("a", b"")
    assert [record.value for record in broker.log("a").records()] == [b"late"]
    assert [record.value for record in broker.log("b").records()] == [b"%d" % number for number in range(20)]


def test_a_callback_that_blocks_or_raises_is_its_clients_own_affair(
    cluster: kwire.Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    release, called = threading.Event(), threading.Event()

    def block(response: object) -> None:
        release.wait(PATIENCE)
        raise RuntimeError("the callback failed")

    with kwire.Producer(cluster) as one, kwire.Producer(cluster) as two:
        one.send("a", b"1", on_delivery=block).result(PATIENCE)
        two.send("a", b"2", on_delivery=lambda response: called.set())
        assert called.wait(PATIENCE)
        release.set()
        one.close()
        assert two.send("a", b"3").result(PATIENCE).offset == 2
    assert "the callback failed" in caplog.text


def test_each_client_and_the_cluster_get_events(cluster: kwire.Cluster) -> None:
    heard: dict[str, list[ClusterEvent]] = {"cluster": [], "one": [], "two": []}
    is_complete = threading.Event()

    def listener(name: str) -> Callable[[ClusterEvent], object]:
        def hear(event: ClusterEvent) -> None:
            heard[name].append(event)
            if all(heard.values()):
                is_complete.set()

        return hear

    with kwire.Producer(cluster) as one, kwire.Admin(cluster) as two:
        one.on_cluster_event(listener("one"))
        two.on_cluster_event(listener("two"))
        cluster.on_cluster_event(listener("cluster"))
        two.metadata(["a"])
        one.send("a", b"x").result(PATIENCE)
        assert is_complete.wait(PATIENCE)


def test_a_transaction_and_its_consumer_on_one_cluster(cluster: kwire.Cluster) -> None:
    with (
        kwire.Producer(cluster, transactional_id="t") as producer,
        kwire.Consumer(cluster, isolation="read_committed") as consumer,
    ):
        with producer.transaction():
            producer.send("a", b"committed")
        consumer.assign([("a", 0, "earliest")])
        assert values(consumer, 1) == [b"committed"]


def test_asyncio_producers_share_a_cluster_with_others(cluster: kwire.Cluster) -> None:
    async def main() -> list[int]:
        async with kwire.aio.Producer(cluster) as one, kwire.aio.Producer(cluster) as two:
            return [(await (await each.send("a", b"x"))).offset for each in (one, two)]

    with kwire.Producer(cluster) as producer:
        assert asyncio.run(main()) == [0, 1]
        assert producer.send("a", b"y").result(PATIENCE).offset == 2


# -- options


@pytest.mark.parametrize("client", [kwire.Producer, kwire.aio.Producer, kwire.Consumer, kwire.Admin])
def test_an_option_of_the_connections_is_refused_on_a_client(cluster: kwire.Cluster, client: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        client(cluster, idle_timeout_ms=5, client_id="mine")
    assert str(caught.value) == (
        f"client_id, idle_timeout_ms cannot be set on a kwire.{'aio.' if 'aio' in client.__module__ else ''}"
        f"{client.__name__} that shares a kwire.Cluster: give it to kwire.Cluster(...), or give this client a "
        "bootstrap address of its own"
    )


def test_an_unknown_option_is_refused(broker: EmbeddedCluster, cluster: kwire.Cluster) -> None:
    with pytest.raises(ConfigurationError, match="unknown option lingr_ms"):
        kwire.Producer(cluster, lingr_ms=5)  # type: ignore[call-arg]
    with pytest.raises(ConfigurationError, match=r"linger_ms is an option of kwire\.Producer"):
        kwire.Cluster(broker.bootstrap, linger_ms=5)  # type: ignore[call-arg]


def test_each_client_has_its_own_request_timeout(broker: EmbeddedCluster) -> None:
    broker.add_fault(Mute(), api=ApiKey.CREATE_TOPICS)
    with (
        kwire.Cluster(broker.bootstrap, request_timeout_ms=60_000) as cluster,
        kwire.Admin(cluster, request_timeout_ms=300) as admin,
        pytest.raises(RequestTimeoutError),
    ):
        admin.create_topics([kwire.NewTopic("c", partitions=1)])


def test_each_client_says_whether_brokers_may_create_topics() -> None:
    with (
        EmbeddedCluster(brokers=1, auto_create_topics=True) as broker,
        kwire.Cluster(broker.bootstrap) as cluster,
        kwire.Producer(cluster, allow_auto_create_topics=False, unknown_topic_timeout_ms=300) as careful,
        kwire.Producer(cluster) as other,
    ):
        error = careful.send("wanted", b"x").exception(PATIENCE)
        assert isinstance(error, TopicError)
        assert error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert other.send("wanted", b"x").result(PATIENCE).offset == 0


def test_the_embedded_cluster_is_refused_by_name(broker: EmbeddedCluster) -> None:
    with pytest.raises(ConfigurationError, match=r"embedded kwire\.broker\.Cluster: give its `bootstrap`"):
        kwire.Producer(broker)  # type: ignore[arg-type]


# -- the end


def test_close_delivers_what_open_producers_have(broker: EmbeddedCluster) -> None:
    cluster = kwire.Cluster(broker.bootstrap)
    producer, consumer = kwire.Producer(cluster, linger_ms=60_000), kwire.Consumer(cluster)
    consumer.assign([("a", 0, "earliest")])
    response = producer.send("a", b"x")
    cluster.close()
    assert response.result(0).offset == 0
    for use in (
        lambda: producer.send("a", b"y"),
        lambda: consumer.poll(timeout=1),
        lambda: kwire.Admin(cluster),
        lambda: kwire.Producer(cluster),
    ):
        with pytest.raises(ClosedError):
            use()
    producer.close()
    consumer.close()
    cluster.close()
    assert repr(cluster) == f"<kwire.Cluster 'kwire' of {broker.bootstrap}, clients: 0, closed>"


def test_close_fails_what_is_not_delivered_in_time_and_logs_it(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    broker.add_fault(Mute(), api=ApiKey.PRODUCE, times=None)
    cluster = kwire.Cluster(broker.bootstrap)
    response = kwire.Producer(cluster).send("a", b"x")
    with caplog.at_level(logging.ERROR):
        cluster.close(timeout=0.5)
    assert isinstance(response.exception(0), DeliveryError)
    assert "the kwire.Cluster was closed before the producer before all is delivered" in caplog.text


def test_a_cluster_without_clients_closes(broker: EmbeddedCluster) -> None:
    with kwire.Cluster(broker.bootstrap) as cluster, kwire.Producer(cluster):
        assert cluster.metrics().brokers == {}
    with kwire.Cluster(broker.bootstrap) as cluster:
        kwire.Producer(cluster).close()


def test_a_forked_child_can_use_neither_the_cluster_nor_its_clients(
    broker: EmbeddedCluster, cluster: kwire.Cluster
) -> None:
    def child(results: Any) -> None:
        for use in (lambda: producer.send("a", b"x"), lambda: kwire.Producer(cluster), lambda: cluster.close()):
            try:
                results.put(str(use()))
            except ClosedError as error:
                results.put(str(error))
        producer.close()

    with kwire.Producer(cluster) as producer:
        producer.send("a", b"x").result(PATIENCE)
        context = multiprocessing.get_context("fork")
        results = context.Queue()
        process = context.Process(target=child, args=(results,))
        process.start()
        seen = [results.get(timeout=PATIENCE) for _ in range(3)]
        process.join(PATIENCE)
        assert process.exitcode == 0
        assert "this kwire.Cluster was made in another process" in seen[0]
        assert "this kwire.Cluster was made in another process" in seen[1]
        assert seen[2] == "None"
        assert producer.send("a", b"y").result(PATIENCE).offset == 1


def test_the_interpreter_ends_though_nobody_closed(broker: EmbeddedCluster) -> None:
    source = f"""
import kwire
cluster = kwire.Cluster({broker.bootstrap!r})
one, two, consumer = kwire.Producer(cluster, linger_ms=60_000), kwire.Producer(cluster), kwire.Consumer(cluster)
one.send("a", b"x")
two.send("b", b"y")
consumer.assign([("a", 0, "earliest")])
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("", "")
    assert [record.value for topic in "ab" for record in broker.log(topic).records()] == [b"x", b"y"]


def test_close_has_group_consumers_commit_and_leave(broker: EmbeddedCluster) -> None:
    cluster = kwire.Cluster(broker.bootstrap)
    with kwire.Producer(broker.bootstrap) as producer:
        for number in range(10):
            producer.send("a", b"%d" % number)
    calls: list[str] = []
    protocols: tuple[Literal["classic", "consumer"], ...] = ("classic", "consumer")
    consumers = []  # one that nobody refers to leaves at once
    for protocol in protocols:
        consumer = kwire.Consumer(cluster, group=protocol, group_protocol=protocol, max_poll_records=4)
        consumers.append(consumer)
        consumer.subscribe(["a"], on_revoked=lambda _: calls.append("revoked"))
        while not consumer.poll(timeout=PATIENCE):
            pass
        while not consumer.poll(timeout=PATIENCE):  # the first four are processed now
            pass
    cluster.close()
    assert calls == ["revoked", "revoked"]
    requests = broker.requests()
    assert requests[ApiKey.LEAVE_GROUP] == 1
    for protocol in protocols:
        assert broker.committed(protocol) == {("a", 0): 4}
        with kwire.Consumer(broker.bootstrap, group=protocol, group_protocol=protocol) as successor:
            successor.subscribe(["a"])  # it would wait for the end of a session of 45 s
            assert values(successor, 6) == [b"%d" % number for number in range(4, 10)]


def test_close_has_asyncio_consumers_leave(broker: EmbeddedCluster) -> None:
    cluster = kwire.Cluster(broker.bootstrap)

    async def main() -> None:
        consumer = kwire.aio.Consumer(cluster, group="g", group_protocol="classic")
        await consumer.subscribe(["a"])
        await consumer.poll(timeout=1.0)
        await asyncio.to_thread(cluster.close)
        with pytest.raises(ClosedError):
            await consumer.poll()
        await consumer.close()

    asyncio.run(main())
    assert broker.requests()[ApiKey.LEAVE_GROUP] == 1


@pytest.mark.parametrize("client", ["{0!r}", "kwire.Cluster({0!r})"])
def test_a_consumer_that_nobody_closed_leaves_at_exit_and_commits_nothing(broker: EmbeddedCluster, client: str) -> None:
    with kwire.Producer(broker.bootstrap) as producer:
        producer.send("a", b"1").result(PATIENCE)
    source = f"""
import kwire
consumer = kwire.Consumer({client.format(broker.bootstrap)}, group="g", group_protocol="classic")
consumer.subscribe(["a"], on_revoked=print)
while not consumer.poll(timeout=1): pass
consumer.poll(timeout=0)
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("", "")
    assert broker.requests()[ApiKey.LEAVE_GROUP] == 1
    assert broker.committed("g") == {}
