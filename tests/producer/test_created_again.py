"""A topic that is deleted and created again, and one that gets more partitions, while a producer writes to it.

What is not delivered yet goes to the topic that has the name now: callers name topics, and a topic is emptied that way.
A record that may have been stored in the old topic goes too, since nothing is there any more that it would double.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

import kwire
from kwire.broker import Cluster, Delay, Disconnect, FirstSequence
from kwire.broker.faults import Effect
from kwire.errors import BrokerError, DeliveryError, DisconnectedError, ErrorCode, TopicError
from kwire.producer.partitioner import murmur2_partition
from kwire.protocol import ApiKey
from kwire.protocol.messages.produce import ProduceRequest
from tests.cluster.snapshots import metadata
from tests.producer.fakes import Bench, Sent

A, B = UUID(int=1), UUID(int=2)
CUT = DisconnectedError("the connection broke")
GONE = ErrorCode.UNKNOWN_TOPIC_ID
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
PATIENCE = 30


def named(bench: Bench, topic_id: UUID, leader: tuple[int, int] = (1, 0), partitions: int = 1) -> None:
    response = metadata({"t": [leader] * partitions}, ids={"t": topic_id})
    bench.view.snapshot = bench.view.snapshot.updated(response, bench.now)


def bench_with(topic_id: UUID = A, *, version: int = 13, leader: tuple[int, int] = (1, 0)) -> Bench:
    """Return a bench with an open window and next sequence 1."""
    bench = Bench(batch_bytes=100)
    bench.view.versions[ProduceRequest] = version
    named(bench, topic_id, leader)
    bench.send(b"first", partition=0)
    bench.turn()[0].respond(bench.now)
    return bench


def first_sequences(sent: list[Sent]) -> list[int]:
    return [batch.base_sequence for one in sent for batch in one.batches().values()]


@pytest.mark.parametrize("version", [12, 13], ids=["by name", "by id"])
@pytest.mark.parametrize("leader", [(1, 0), (2, 0)], ids=["same leader and epoch", "another leader, lower epoch"])
def test_sequences_restart_for_an_idle_partition(version: int, leader: tuple[int, int]) -> None:
    bench = bench_with(version=version, leader=(1, 0) if leader == (1, 0) else (1, 9))
    named(bench, B, leader)
    for value in (b"a", b"b"):
        bench.send(value, partition=0)
    (sent,) = bench.turn()
    assert (sent.node, first_sequences([sent])) == (leader[0], [0])
    sent.respond(bench.now)
    assert first_sequences(bench.turn()) == [1]
    assert bench.identities == 1


def test_batches_that_the_old_topic_refused_go_to_the_new_one_in_order() -> None:
    bench = bench_with()
    responses = [bench.send(value, partition=0) for value in (b"a", b"b", b"c")]
    sent = bench.turn()
    assert first_sequences(sent) == [1, 2, 3]
    sent[0].respond(bench.now, GONE)
    named(bench, B)
    assert bench.turn(1.0) == [], "first every request in flight gets its response"
    for one in sent[1:]:
        one.respond(bench.now, GONE)
    again: list[Sent] = []
    while not all(response.done() for response in responses):
        for one in bench.turn(1.0):
            one.respond(bench.now)
            again.append(one)
    assert [(topic.topic_id, *one.values().values()) for one in again for topic in one.request.topic_data] == [
        (B, [b"a"]), (B, [b"b"]), (B, [b"c"])
    ]  # fmt: skip
    assert first_sequences(again) == [0, 1, 2]
    assert bench.identities == 1


def test_batches_that_may_be_in_the_old_topic_go_to_the_new_one() -> None:
    bench = bench_with()
    response = bench.send(b"a", partition=0)
    bench.turn()[0].fail(bench.now, CUT)
    named(bench, B)
    (again,) = bench.turn(1.0)
    assert first_sequences([again]) == [0]
    again.respond(bench.now)
    assert response.exception(0) is None


def test_a_batch_sent_by_name_may_be_in_the_new_topic_and_keeps_its_sequence() -> None:
    """The new topic detects the duplicate there; the batch keeps its place before later ones."""
    bench = bench_with(version=12)
    maybe = bench.send(b"a", partition=0)
    bench.turn()[0].fail(bench.now, CUT)
    behind = bench.send(b"b", partition=0)
    named(bench, B)
    (again,) = bench.turn(1.0)
    assert first_sequences([again]) == [1]
    again.respond(bench.now, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert maybe.exception(0) is None
    (last,) = bench.turn()
    assert first_sequences([last]) == [2]
    last.respond(bench.now)
    assert behind.exception(0) is None


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
def test_batches_sent_by_name_that_are_in_no_log_go_to_the_new_topic_in_order(code: ErrorCode) -> None:
    """A response without an offset proves it: the new topic has its own sequences, and no batch fails."""
    bench = bench_with(version=12)
    responses = [bench.send(value, partition=0) for value in (b"a", b"b", b"c")]
    for one in bench.turn():
        one.respond(bench.now, code)
    named(bench, B)
    again: list[Sent] = []
    while not all(response.done() for response in responses):
        for one in bench.turn(1.0):
            one.respond(bench.now)
            again.append(one)
    assert [value for one in again for value in one.values().values()] == [[b"a"], [b"b"], [b"c"]]
    assert (first_sequences(again), bench.identities) == ([0, 1, 2], 1)
    assert [response.exception(0) for response in responses] == [None] * 3


def test_batches_sent_by_name_go_to_the_new_topic_before_metadata_has_it() -> None:
    """It refuses the old sequences; a new producer id is safe, since the batches are in no log."""
    bench = bench_with(version=12)
    responses = [bench.send(value, partition=0) for value in (b"a", b"b")]
    for one in bench.turn():
        one.respond(bench.now, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    named(bench, A, (2, 1))
    (refused,) = bench.turn(1.0)
    assert (refused.node, first_sequences([refused])) == (2, [1])
    refused.respond(bench.now, OUT_OF_ORDER)
    named(bench, B, (2, 0))
    again: list[Sent] = []
    while not all(response.done() for response in responses):
        for one in bench.turn(1.0):
            one.respond(bench.now)
            again.append(one)
    assert first_sequences(again) == [0, 1]
    assert [response.exception(0) for response in responses] == [None] * 2


def test_a_batch_the_old_leader_may_have_appended_keeps_its_sequence() -> None:
    bench = bench_with(version=12)
    bench.send(b"a", partition=0)
    bench.turn()[0].respond(bench.now, ErrorCode.NOT_LEADER_OR_FOLLOWER, was_appended=True)
    named(bench, B)
    assert first_sequences(bench.turn(1.0)) == [1]


def test_a_batch_sent_by_name_that_the_new_topic_refuses_is_possibly_persisted() -> None:
    bench = bench_with(version=12)
    maybe = bench.send(b"a", partition=0)
    bench.turn()[0].fail(bench.now, CUT)
    named(bench, B)
    bench.turn(1.0)[0].respond(bench.now, OUT_OF_ORDER)
    error = maybe.exception(0)
    assert isinstance(error, DeliveryError)
    assert error.possibly_persisted


def test_a_new_producer_id_does_not_wait_for_batches_of_the_old_topic() -> None:
    bench = bench_with()
    open_, refused = bench.send(b"a", partition=0), bench.send(b"b", partition=0)
    first, second = bench.turn()
    first.fail(bench.now, CUT)
    second.respond(bench.now, ErrorCode.INVALID_RECORD)
    named(bench, B)
    (again,) = bench.turn(1.0)
    assert (bench.identities, first_sequences([again])) == (2, [0])
    again.respond(bench.now)
    assert open_.exception(0) is None
    assert isinstance(refused.exception(0), BrokerError)


def test_batches_of_a_topic_that_stays_deleted_fail() -> None:
    bench = bench_with()
    response = bench.send(b"a", partition=0)
    bench.turn()[0].respond(bench.now, GONE)
    assert bench.view.refreshes
    bench.know({}, errors={"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
    bench.turn()
    assert not response.done()
    bench.turn(10.0)
    assert isinstance(response.exception(0), TopicError)
    assert bench.buffer_pool.used_bytes == 0


def test_keyed_records_hash_over_partitions_that_were_added() -> None:
    bench = Bench({"t": [(1, 0)] * 2})
    keys = [b"%d" % number for number in range(20)]
    for count in (2, 5):
        bench.know({"t": [(1, 0)] * count})
        bench.turn()  # passes the partitions to the accumulator
        for key in keys:
            bench.send(key, key=key)
        sent = bench.turn()
        values = [(place, value) for one in sent for place, batch in one.values().items() for value in batch]
        for one in sent:
            one.respond(bench.now)
        assert sorted(values) == sorted((("t", murmur2_partition(key, count)), key) for key in keys)


# -- the embedded cluster

EFFECTS: list[Effect | None] = [
    None,
    Delay(ms=100),
    Delay(ms=100, applied=True),
    Disconnect(),
    Disconnect(applied=True),
]


@pytest.mark.slow
@pytest.mark.parametrize("first_sequence", list(FirstSequence), ids=lambda value: value.name)
@pytest.mark.parametrize("effect", EFFECTS, ids=str)
@pytest.mark.parametrize("produce", [12, 13], ids=["by name", "by id"])
@pytest.mark.parametrize("batch_bytes", [150, 890], ids=["small batches", "few batches"])
def test_nothing_hangs_and_what_is_acknowledged_afterwards_is_there_once(
    effect: Effect | None, produce: int, first_sequence: FirstSequence, batch_bytes: int
) -> None:
    options: dict[str, Any] = {"first_sequence": first_sequence, "api_versions": {ApiKey.PRODUCE: range(produce + 1)}}
    with Cluster(brokers=3, auto_create_topics=False, **options) as cluster:
        cluster.create_topic("t", partitions=1)
        for node in (1, 2, 3, 1, 2, 3):
            if cluster.leader("t") != node:
                cluster.move_leader("t", 0, node)
        with kwire.Producer(
            cluster.bootstrap, linger_ms=0, batch_bytes=batch_bytes, retry_backoff_ms=10, request_timeout_ms=1_000
        ) as producer:
            for n in range(20):
                producer.send("t", b"old %d" % n, partition=0).result(PATIENCE)
            if effect is not None:
                cluster.add_fault(effect, api=ApiKey.PRODUCE, times=2)
            between = [producer.send("t", b"%03d" % n, partition=0) for n in range(100)]
            cluster.delete_topic("t")
            cluster.create_topic("t", partitions=1)
            after = [producer.send("t", b"%03d" % n, partition=0) for n in range(100, 200)]
            producer.flush(PATIENCE)
            errors = [response.exception(0) for response in between + after]
            assert all(isinstance(error, DeliveryError) and error.possibly_persisted for error in errors if error)
            if produce >= 13:
                assert errors == [None] * 200
            elif batch_bytes == 150 or not isinstance(
                effect, Disconnect
            ):  # else batches without a response may be among them
                assert errors[100:] == [None] * 100
        values = [record.value or b"" for record in cluster.log("t").records()]
        assert values == sorted(set(values)), "in order, once"
        delivered = {b"%03d" % n for n in range(100, 200) if errors[n] is None}
        assert delivered <= set(values)
        for n, response in enumerate(after, 100):
            if errors[n] is None:
                offset = response.result(0).offset
                assert offset < 0 or values[offset] == b"%03d" % n
        assert cluster.failures == ()


@pytest.mark.slow
def test_partitions_that_are_added_are_used() -> None:
    with Cluster(brokers=1, topics={"t": 1}) as cluster:
        with kwire.Producer(cluster.bootstrap, metadata_max_age_ms=50, linger_ms=0) as producer:
            assert producer.send("t", b"", key=b"k").result(PATIENCE).partition == 0
            cluster.call(lambda state, now: state.add_partitions(state.find_topic("t"), 40))
            expected = murmur2_partition(b"k", 40)
            partitions = [producer.send("t", b"", key=b"k").result(PATIENCE).partition for _ in range(2_000)]
            while partitions[-1] == 0:
                partitions.append(producer.send("t", b"", key=b"k").result(PATIENCE).partition)
        assert expected != 0
        assert set(partitions) <= {0, expected}
        assert partitions == sorted(partitions), "each is written under the old count or the new one, the old one first"
