"""Idle topics: the producer forgets them, and its metadata requests never create one again."""

from __future__ import annotations

import gc
import weakref

import pytest

from kwire import Producer
from kwire.broker import Cluster
from kwire.cluster.metadata import NO_ID
from kwire.errors import BrokerError, ErrorCode
from kwire.producer import sender as sender_module
from kwire.producer.futures import ProduceResponse
from kwire.protocol import ApiKey
from tests.cluster.snapshots import metadata
from tests.producer.fakes import Bench

IDLE = 300.0


def delivered(bench: Bench, value: bytes = b"a", topic: str = "t", partition: int | None = None) -> ProduceResponse:
    response = bench.send(value, topic, partition=partition)
    (sent,) = bench.turn()
    sent.respond(bench.now)
    return response


def test_metadata_of_an_idle_topic_is_no_longer_requested() -> None:
    bench = Bench({"t": [(1, 0)], "u": [(1, 0)]}, metadata_max_idle_ms=300_000)
    delivered(bench)
    bench.turn(IDLE - 1)
    delivered(bench, topic="u")
    assert set(bench.sender.topics()) == {"t", "u"}
    bench.turn(2.0)
    assert set(bench.sender.topics()) == {"u"}


def test_a_forgotten_topic_leaves_nothing_behind_but_its_sequences() -> None:
    bench = Bench({"t": [(1, 0)] * 3})
    delivered(bench, partition=2)
    topic = weakref.ref(bench.sender._topics["t"])
    bench.turn(IDLE + 1)
    gc.collect()
    assert topic() is None
    bench.send(b"b", partition=2)
    (sent,) = bench.turn()
    assert sent.batches()["t", 2].base_sequence == 1, "brokers refuse any other under the same producer id"


def test_a_topic_with_waiting_records_is_kept() -> None:
    bench = Bench({"t": [(-1, 0)]}, delivery_timeout_ms=2_000_000)
    response = bench.send(b"a")
    bench.turn()
    bench.turn(IDLE + 1)
    assert set(bench.sender.topics()) == {"t"}
    bench.know({"t": [(1, 1)]})
    (sent,) = bench.turn()
    sent.respond(bench.now)
    assert response.result(0).offset == 100


def test_many_forgotten_topics_cost_a_producer_id_and_no_memory() -> None:
    names = [f"t{number}" for number in range(sender_module._FORGOTTEN_MAX + 1)]
    bench = Bench({name: [(1, 0)] for name in names})
    for name in names:
        bench.send(b"a", name)
    while requests := bench.turn():
        for sent in requests:
            sent.respond(bench.now)
    bench.turn(IDLE + 1)
    assert bench.identities == 1
    bench.send(b"b", names[0])
    (sent,) = bench.turn()
    assert bench.identities == 2
    assert sent.batches()[names[0], 0].base_sequence == 0
    assert not bench.sender._sequences


def test_a_topic_may_be_created_for_its_first_record_and_never_again() -> None:
    bench = Bench()
    bench.send(b"a", "new")
    bench.turn()
    assert bench.view.creatable == ["new"]
    bench.know({"new": [(1, 0)]})
    bench.turn()[0].respond(bench.now)
    bench.view.creatable.clear()
    gone = metadata(errors={"new": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}, ids={"new": NO_ID})
    bench.view.snapshot = bench.view.snapshot.updated(gone, bench.now)
    bench.turn()
    bench.send(b"b", "new")
    bench.turn()
    assert bench.view.creatable == []


def test_metadata_of_a_deleted_topic_is_requested_only_while_records_wait_for_it() -> None:
    bench = Bench({"t": [(1, 0)]}, unknown_topic_timeout_ms=5_000)
    delivered(bench)
    bench.view.snapshot = bench.view.snapshot.updated(
        metadata(errors={"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}), bench.now
    )
    bench.turn()
    assert set(bench.sender.topics()) == set()
    response = bench.send(b"b")
    bench.turn()
    assert set(bench.sender.topics()) == {"t"}
    bench.turn(5.0)
    assert response.exception(0) is not None
    bench.turn()
    assert set(bench.sender.topics()) == set()


def test_a_refresh_does_not_create_a_deleted_topic_again() -> None:
    with (
        Cluster(1) as cluster,
        Producer(cluster.bootstrap, metadata_max_age_ms=50, unknown_topic_timeout_ms=300) as producer,
    ):
        producer.send("t", b"a").result(10)
        cluster.delete_topic("t")
        producer.send("other", b"a").result(10)  # makes the client request metadata
        with pytest.raises(BrokerError):
            producer.send("t", b"b").result(10)  # seen before: only a producer that never saw it creates it
        assert cluster.call(lambda state, now: set(state.topics)) == {"other"}


def test_metadata_of_a_topic_that_never_exists_is_requested_while_its_records_wait() -> None:
    with (
        Cluster(1, auto_create_topics=False) as cluster,
        Producer(
            cluster.bootstrap, unknown_topic_timeout_ms=100, retry_backoff_ms=5, retry_backoff_ms_max=5
        ) as producer,
    ):
        with pytest.raises(BrokerError):
            producer.send("t", b"a").result(10)
        cluster.create_topic("here")
        producer.send("here", b"a").result(10)
        before = cluster.requests()[ApiKey.METADATA]
        for _ in range(20):
            producer.send("here", b"a").result(10)
        assert cluster.requests()[ApiKey.METADATA] <= before + 1
