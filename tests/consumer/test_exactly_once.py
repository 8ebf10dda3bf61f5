"""Consume, transform, produce: offsets of batches in transactions, rebalances in between, aborts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import kwire
from kwire import Consumer, Producer
from kwire.broker import Cluster
from kwire.broker.faults import Refuse
from kwire.errors import AbortableError, CommitFailedError, ConfigurationError, ErrorCode
from kwire.protocol import ApiKey
from tests.consumer.embedded import fill, number_of, numbers
from tests.consumer.test_group_client import PATIENCE, owns, read, until


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(
        brokers=1, consumer_group_heartbeat_interval_ms=50, consumer_group_min_heartbeat_interval_ms=50
    ) as running:
        running.create_topic("t", 2)
        running.create_topic("out", 1)
        yield running
        assert not running.failures


def options(protocol: str) -> Any:
    more = {"heartbeat_interval_ms": 50} if protocol == "classic" else {}
    return {"group": "g", "group_protocol": protocol, "commit": "manual", "max_wait_ms": 20, **more}


def written(cluster: Cluster) -> list[int]:
    """Return what a reader of committed records sees in the output."""
    with Consumer(cluster.bootstrap, isolation="read_committed", max_wait_ms=20) as reader:
        reader.assign([("out", 0, 0)])
        end = reader.end_offsets([("out", 0)])["out", 0]
        found: list[int] = []
        while reader.position("out", 0) < end:
            found += [number_of(record) for record in reader.poll(timeout=0.1)]
        return found


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_an_abort_has_the_batch_read_again(cluster: Cluster, protocol: str) -> None:
    fill(cluster, "t", 0, range(300))
    with (
        Producer(cluster.bootstrap, transactional_id="x") as producer,
        Consumer(cluster.bootstrap, **options(protocol)) as consumer,
    ):
        consumer.subscribe(["t"])
        done, attempts = 0, 0
        while done < 300:
            batch = consumer.poll_batch(100, timeout=PATIENCE)
            attempts += 1
            try:
                with producer.transaction():
                    for record in batch:
                        producer.send("out", record.value)
                    producer.send_offsets(batch, group=consumer)
                    if attempts % 2:
                        raise LookupError("mine")
                done += len(batch)
            except LookupError:
                pass
        assert attempts == 6
        assert cluster.committed("g") == {("t", 0): 300}
    assert written(cluster) == list(range(300))


def test_a_batch_whose_transaction_did_not_begin_is_rewound(cluster: Cluster) -> None:
    """An error before send_offsets, which the producer cannot connect with the batch: the program gives it back."""
    fill(cluster, "t", 0, range(300))
    with (
        Producer(cluster.bootstrap, transactional_id="x") as producer,
        Consumer(cluster.bootstrap, **options("classic")) as consumer,
    ):
        consumer.subscribe(["t"])
        done = attempts = 0
        while done < 300:
            batch = consumer.poll_batch(100, timeout=PATIENCE)
            attempts += 1
            try:
                with producer.transaction():
                    if attempts % 2:
                        raise LookupError("mine")
                    for record in batch:
                        producer.send("out", record.value)
                    producer.send_offsets(batch, group=consumer)
                done += len(batch)
            except LookupError:
                batch.rewind()
        assert attempts == 6
        assert cluster.committed("g") == {("t", 0): 300}
    assert written(cluster) == list(range(300))


def accepted_generations(producer: Producer) -> list[int]:
    """Return the generations with which the group g takes offsets from a member that it does not have."""
    accepted = []
    for generation in (-1, 0, 1, 5):
        producer.begin()
        try:
            producer.send_offsets({("t", 0): 1}, kwire.GroupMetadata("g", generation, "gone"))
        except AbortableError:
            producer.abort()
        else:
            producer.commit()
            accepted.append(generation)
    return accepted


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_transaction_whose_partitions_were_taken_away_is_not_committed(cluster: Cluster, protocol: str) -> None:
    for partition in range(2):
        fill(cluster, "t", partition, range(100))
    with (
        Producer(cluster.bootstrap, transactional_id="x") as producer,
        Consumer(cluster.bootstrap, **options(protocol)) as first,
        Consumer(cluster.bootstrap, **options(protocol)) as second,
    ):
        first.subscribe(["t"])
        batch = first.poll_batch(timeout=PATIENCE)
        while len(batch.spans) < 2:
            first.seek_to("earliest")
            batch = first.poll_batch(timeout=PATIENCE)

        def work() -> None:
            with producer.transaction():
                for record in batch:
                    producer.send("out", record.value)
                producer.send_offsets(batch, group=first)
                second.subscribe(["t"])  # not before: the coordinator may refuse offsets during a round
                until(lambda: owns(second, 1)() and owns(first, 1)(), first, second)

        with pytest.raises(AbortableError, match="took away partitions"):
            work()
        again = numbers(read(first, 100))
        (kept,) = first.assignment()
        assert again[kept[1]] == list(range(100))
        assert cluster.committed("g") == {}
    assert written(cluster) == []


def test_a_member_that_was_replaced_cannot_commit_in_a_transaction(cluster: Cluster) -> None:
    fill(cluster, "t", 0, range(100))
    with (
        Producer(cluster.bootstrap, transactional_id="x") as producer,
        Consumer(cluster.bootstrap, max_poll_interval_ms=200, **options("classic")) as consumer,
    ):
        consumer.subscribe(["t"])
        batch = consumer.poll_batch(timeout=PATIENCE)
        stale = consumer.group_metadata()
        until(lambda: consumer.group_metadata() != stale)
        until(lambda: len(consumer.assignment()) == 2, consumer)
        producer.begin()
        with pytest.raises(AbortableError):
            producer.send_offsets(batch.next_offsets(), stale)
        producer.abort()


@pytest.mark.parametrize(
    ("protocol", "api", "code"),
    [
        ("classic", ApiKey.HEARTBEAT, ErrorCode.UNKNOWN_MEMBER_ID),
        ("consumer", ApiKey.CONSUMER_GROUP_HEARTBEAT, ErrorCode.FENCED_MEMBER_EPOCH),
    ],
)
def test_a_lost_member_cannot_commit_offsets_in_a_transaction(
    cluster: Cluster, protocol: str, api: ApiKey, code: ErrorCode
) -> None:
    fill(cluster, "t", 0, range(100))
    with (
        Producer(cluster.bootstrap, transactional_id="x") as producer,
        Consumer(cluster.bootstrap, **options(protocol)) as consumer,
    ):
        consumer.subscribe(["t"], on_lost=lambda partitions: None)
        batch = consumer.poll_batch(timeout=PATIENCE)
        producer.begin()
        cluster.add_fault(Refuse(code), api=api)
        until(lambda: consumer.group_metadata().generation_id == 0)
        with pytest.raises(AbortableError):
            producer.send_offsets(batch.next_offsets(), consumer)
        producer.abort()
    assert cluster.committed("g") == {}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_an_empty_group_takes_offsets_of_a_transaction_from_a_member_that_is_gone(
    cluster: Cluster, protocol: str
) -> None:
    """As Kafka's: so a lost member names the generation 0, which no member has. tests/live asks real brokers."""
    with Consumer(cluster.bootstrap, **options(protocol)) as consumer:
        consumer.subscribe(["t"])
        until(owns(consumer, 2), consumer)
    with Producer(cluster.bootstrap, transactional_id="x") as producer:
        assert accepted_generations(producer) == [-1]
    assert cluster.committed("g") == {("t", 0): 1}


@pytest.mark.parametrize(
    ("protocol", "api", "code"),
    [
        ("classic", ApiKey.HEARTBEAT, ErrorCode.ILLEGAL_GENERATION),
        ("consumer", ApiKey.CONSUMER_GROUP_HEARTBEAT, ErrorCode.FENCED_MEMBER_EPOCH),
    ],
)
def test_a_member_that_is_back_cannot_commit_what_it_read_before_it_was_lost(
    cluster: Cluster, protocol: str, api: ApiKey, code: ErrorCode
) -> None:
    """Without callbacks it joins again and gets its partitions without a poll; others may have had them meanwhile."""
    for partition in range(2):
        fill(cluster, "t", partition, range(100))
    with (
        Producer(cluster.bootstrap, transactional_id="x") as producer,
        Consumer(cluster.bootstrap, **options(protocol)) as consumer,
    ):
        consumer.subscribe(["t"])
        records = consumer.poll(timeout=PATIENCE)
        offsets = {(record.topic, record.partition): record.offset + 1 for record in records}
        assert offsets
        before = consumer.metrics().partitions_assigned
        cluster.add_fault(Refuse(code), api=api)
        until(lambda: consumer.metrics().partitions_assigned == before + 2)
        assert consumer.member.epoch > 0
        producer.begin()
        with pytest.raises(AbortableError):
            producer.send_offsets(offsets, consumer)
        producer.abort()
        with pytest.raises(CommitFailedError, match="taken away since the program polled"):
            consumer.commit(records)
        with pytest.raises(CommitFailedError):
            consumer.commit(offsets)
        assert cluster.committed("g") == {}
        again = consumer.poll(timeout=PATIENCE)
        with producer.transaction():
            producer.send_offsets({(again[-1].topic, again[-1].partition): again[-1].offset + 1}, consumer)
    assert cluster.committed("g")


def test_what_can_be_sent_as_offsets(cluster: Cluster) -> None:
    with Producer(cluster.bootstrap, transactional_id="x") as producer, Consumer(cluster.bootstrap) as consumer:
        producer.begin()
        with pytest.raises(TypeError, match="give a consumer, its group_metadata"):
            producer.send_offsets({("t", 0): 1}, group=5)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="or a batch of poll_batch"):
            producer.send_offsets([1], group="g")  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="has no group"):
            producer.send_offsets({("t", 0): 1}, group=consumer)
        producer.send_offsets({("t", 0): 1}, group=kwire.GroupMetadata("g"))
        producer.commit()
        assert cluster.committed("g") == {("t", 0): 1}
