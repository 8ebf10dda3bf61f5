"""Log compaction on the embedded broker and on Kafka: the same batches to both, compacted by their own cleaners.

A topic is cleaned when its min.cleanable.dirty.ratio falls from 1 to 0, so both clean the same batches in one round.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from brokers.cluster import KafkaCluster

from kwire.broker import Cluster
from kwire.broker.log_cleaner import delete_horizon_ms
from kwire.protocol.messages.fetch import FetchRequest
from kwire.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kwire.protocol.messages.produce import ProduceRequest
from kwire.records import Batch, Compression, decode_batches, encode_batch
from tests.broker.comparison import NOW_MS, Side
from tests.broker.test_transactions_like_kafka import initialized
from tests.broker.transactions import CONCURRENT, Topic, Tx
from tests.waiting import wait_for, wait_until

pytestmark = pytest.mark.live

BACKOFF = {"log.cleaner.backoff.ms": "50", "group.initial.rebalance.delay.ms": "0"}
TOPIC, SET = 2, 0


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Side, Side]]:
    """Return Kafka and the embedded broker, which look for logs to clean 20 times a second."""
    with KafkaCluster("4.3.1", settings=BACKOFF) as real, Cluster(1, version="4.3", cleaner_backoff_ms=50) as embedded:
        host, port = real.bootstrap.split(":")
        sides = Side(host, int(port)), Side(*embedded.brokers[1])
        yield sides
        for side in sides:
            side.client.close()
        assert not embedded.failures


def new_topic(side: Side, **configs: str) -> Topic:
    fixed = {"cleanup.policy": "compact", "internal.segment.bytes": "130", "min.cleanable.dirty.ratio": "1.0"}
    return Topic(*side.topic(1, {**fixed, **{name.replace("_", "."): value for name, value in configs.items()}}))


def set_ratio(side: Side, topic: Topic, ratio: str) -> None:
    config = IncrementalAlterConfigsRequest.Resource.Config(
        name="min.cleanable.dirty.ratio", config_operation=SET, value=ratio
    )
    resource = IncrementalAlterConfigsRequest.Resource(resource_type=TOPIC, resource_name=topic.name, configs=[config])
    (result,) = side.request(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)).responses
    assert result.error_code == 0, result


def fetch(side: Side, topic: Topic, offset: int) -> list[Batch]:
    data = FetchRequest.Topic.Partition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, topics=[FetchRequest.Topic(topic=topic.name, topic_id=topic.id, partitions=[data])]
    )
    (found,) = side.request(request, 12).responses[0].partitions
    assert found.error_code == 0
    return list(decode_batches(found.records or b""))


def contents(side: Side, topic: Topic) -> list[Any]:
    """Return the batches of the log; of the delete horizon only whether there is one."""
    batches: list[Batch] = []
    offset = 0
    while found := fetch(side, topic, offset):  # Kafka returns what is in one segment
        batches += found
        offset = batches[-1].next_offset
    return [
        (
            batch.base_offset, batch.last_offset, batch.base_sequence, batch.producer_epoch, batch.is_transactional,
            batch.is_control, int(batch.compression) if batch.count else None,
            batch.max_timestamp_ms if not batch.is_control else None,  # a marker has the time of its broker
            delete_horizon_ms(batch.raw) is not None,
            [(row[0], row[1] if not batch.is_control else None, row[2], row[3]) for row in batch.rows()],
        )
        for batch in batches
    ]  # fmt: skip


def produce(
    side: Side, topic: Topic, *records: tuple[str, str | None], transactional_id: str | None = None, **fields: Any
) -> None:
    rows = [
        (NOW_MS + index, key.encode(), None if value is None else value.encode(), ())
        for index, (key, value) in enumerate(records)
    ]
    data = ProduceRequest.Topic.Partition(index=0, records=encode_batch(rows, **fields))
    topic_data = ProduceRequest.Topic(name=topic.name, topic_id=topic.id, partition_data=[data])
    request = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=1000, topic_data=[topic_data])
    (result,) = side.request(request, 12).responses[0].partition_responses
    assert result.error_code == 0, result


def cleaned(pair: tuple[Side, Side], topics: tuple[Topic, Topic]) -> list[Any]:
    """Let both clean once and return what is left in both; that must be the same."""
    before = contents(pair[1], topics[1])
    for side, topic in zip(pair, topics, strict=True):
        set_ratio(side, topic, "0.0")
    ours = wait_for(lambda: contents(pair[1], topics[1]), lambda found: found != before)
    theirs: list[Any] = []

    def is_equal() -> bool:
        theirs[:] = contents(pair[0], topics[0])
        return theirs == ours

    try:
        wait_until(is_equal)
    except AssertionError:
        assert theirs == ours  # shows how they differ
    for side, topic in zip(pair, topics, strict=True):
        set_ratio(side, topic, "1.0")
    return ours


def test_records_and_tombstones(pair: tuple[Side, Side]) -> None:
    topics = []
    for side in pair:
        side.case = "compaction-records"
        topic = new_topic(side, delete_retention_ms="0")
        topics.append(topic)
        produce(side, topic, ("a", "1"), ("b", "1"), ("a", "2"), compression=Compression.GZIP)
        produce(side, topic, ("c", "1"), ("a", None), ("d", "1"))
        produce(side, topic, ("b", "2"))
        produce(side, topic, ("b", "3"))
        produce(side, topic, ("c", "2"), producer_id=900, producer_epoch=0, base_sequence=0)
        produce(side, topic, ("c", "3"), producer_id=900, producer_epoch=0, base_sequence=1)
        produce(side, topic, ("d", None))
        produce(side, topic, ("end", "1"))
    both = (topics[0], topics[1])
    first = cleaned(pair, both)
    assert any(batch[8] for batch in first)
    for side, topic in zip(pair, topics, strict=True):
        produce(side, topic, ("b", "4"))
        produce(side, topic, ("c", "4"))
        produce(side, topic, ("end", "2"))
    second = cleaned(pair, both)
    assert not any(row[3] is None for batch in second for row in batch[9])
    for side, topic in zip(pair, topics, strict=True):
        produce(side, topic, ("b", "5"))
    cleaned(pair, both)


def transaction(side: Side, tx: Tx, topic: Topic, *records: tuple[str, str | None], commit: bool) -> None:
    """Write each record as a batch of its own, in one transaction."""
    assert wait_for(lambda: tx.add((topic.name, 0)), lambda found: found != [CONCURRENT]) == [0]
    for key, value in records:
        at = (topic.name, 0, tx.epoch)
        produce(
            side, topic, (key, value), producer_id=tx.pid, producer_epoch=tx.epoch,
            base_sequence=tx.sequences.get(at, 0), is_transactional=True, transactional_id=tx.id,
        )  # fmt: skip
        tx.sequences[at] = tx.sequences.get(at, 0) + 1
    assert tx.end(commit)[0] == 0
    wait_for(lambda: contents(side, topic), lambda found: found[-1][5])  # Kafka writes the marker after its response


def aborted(side: Side, topic: Topic) -> set[int]:
    """Return the first offsets of the aborted transactions that responses to a read_committed fetch name."""
    told: set[int] = set()
    offset = 0
    while True:  # Kafka returns what is in one segment
        data = FetchRequest.Topic.Partition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, isolation_level=1,
            topics=[FetchRequest.Topic(topic=topic.name, topic_id=topic.id, partitions=[data])],
        )  # fmt: skip
        (found,) = side.request(request, 12).responses[0].partitions
        batches = list(decode_batches(found.records or b""))
        if not batches:
            return told
        told.update(one.first_offset for one in found.aborted_transactions or ())
        offset = batches[-1].next_offset


def test_transactions_and_their_markers(pair: tuple[Side, Side]) -> None:
    """What was aborted goes at once and shadows nothing; a marker goes when its transaction has no records, later."""
    topics, producers = [], []
    for side in pair:
        side.case = "compaction-transactions"
        topic = new_topic(side, delete_retention_ms="0")
        topics.append(topic)
        one, two = initialized(side, "one"), initialized(side, "two")
        producers.append((one, two))
        transaction(side, one, topic, ("a", "1"), ("b", "1"), commit=True)
        transaction(side, one, topic, ("a", "aborted"), ("b", None), commit=False)
        transaction(side, two, topic, ("c", "1"), commit=True)
        transaction(side, one, topic, ("b", "2"), commit=True)
        transaction(side, two, topic, ("d", "aborted"), commit=False)
        transaction(side, two, topic, ("c", "2"), ("e", None), commit=True)
        produce(side, topic, ("end", "1"))
    both = (topics[0], topics[1])
    first = cleaned(pair, both)
    values = {(row[2], row[3]) for batch in first if not batch[5] for row in batch[9]}
    assert values == {(b"a", b"1"), (b"b", b"2"), (b"c", b"2"), (b"e", None), (b"end", b"1")}
    assert aborted(pair[1], topics[1]) == aborted(pair[0], topics[0])
    for side, topic, (one, two) in zip(pair, topics, producers, strict=True):
        transaction(side, one, topic, ("a", "2"), commit=True)
        transaction(side, two, topic, ("f", "1"), commit=True)
        produce(side, topic, ("end", "2"))
    second = cleaned(pair, both)
    assert aborted(pair[1], topics[1]) == aborted(pair[0], topics[0])
    for side, topic, (one, _) in zip(pair, topics, producers, strict=True):
        transaction(side, one, topic, ("c", "aborted"), commit=False)
        produce(side, topic, ("end", "3"))
    third = cleaned(pair, both)
    assert aborted(pair[1], topics[1]) == aborted(pair[0], topics[0])
    markers = [{batch[0] for batch in batches if batch[5]} for batches in (second, third)]
    assert markers[0] - markers[1]  # some have gone
    assert markers[0] & markers[1]
