"""Share consumers on real brokers: Kafka 4.2, where share groups became stable, to 4.4."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import count, islice

import pytest
from brokers.cluster import KafkaCluster

from kwire import Admin, KwireError, NewTopic, Producer, ShareConsumer, ShareRecord
from kwire.cluster import ClientConfig, LoopThread, ToAny
from kwire.errors import LockLostError
from kwire.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

LOCK_SECONDS = 4
PATIENCE_S = 60
_GROUP_RESOURCE = 32
_numbers = count(1)


@pytest.fixture(scope="module", params=["4.2.0", "4.3.1", "4.4.0"])
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    settings = {
        "group.share.min.record.lock.duration.ms": "1000",
        "group.share.record.lock.duration.ms": str(LOCK_SECONDS * 1000),
        "group.share.heartbeat.interval.ms": "1000",
        "group.share.min.heartbeat.interval.ms": "500",
    }
    with KafkaCluster(request.param, settings=settings) as cluster:
        yield cluster.bootstrap


@pytest.fixture
def topic(bootstrap: str) -> str:
    """Create a topic, and let the group of its name begin at the earliest offset."""
    name = f"share-{next(_numbers)}"
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(name, partitions=3, replication_factor=1)], timeout=30)
    config = IncrementalAlterConfigsRequest.Resource.Config(
        name="share.auto.offset.reset", config_operation=0, value="earliest"
    )
    resource = IncrementalAlterConfigsRequest.Resource(
        resource_type=_GROUP_RESOURCE, resource_name=name, configs=[config]
    )
    with closing(LoopThread(ClientConfig(bootstrap))) as runtime:
        response: IncrementalAlterConfigsResponse = runtime.request(
            ToAny(),
            IncrementalAlterConfigsRequest,
            lambda _: IncrementalAlterConfigsRequest(resources=[resource], validate_only=False),
        )
    assert not response.responses[0].error_code, response
    return name


class _AbortError(Exception):
    pass


def produce(bootstrap: str, topic: str, values: range) -> None:
    with Producer(bootstrap) as producer:
        for value in values:
            producer.send(topic, b"%d" % value, partition=value % 3)


def read(consumer: ShareConsumer, number: int) -> list[ShareRecord]:
    """Accept and return this many records."""
    records: list[ShareRecord] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(records) < number:
        assert time.monotonic() < deadline, f"{len(records)} of {number}: {consumer.explain()}"
        polled = consumer.poll()
        consumer.acknowledge(polled)
        records += polled
    return records


def values(records: list[ShareRecord]) -> list[int]:
    return sorted(int(record.value or b"") for record in records)


def test_accepted_and_rejected_records_are_done_and_released_ones_come_again(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, range(900))
    failed: list[KwireError] = []
    done: set[int] = set()
    with ShareConsumer(bootstrap, group=topic) as consumer:
        consumer.subscribe([topic], on_acknowledged=lambda _, error: failed.append(error) if error else None)
        deadline = time.monotonic() + PATIENCE_S
        while len(done) < 900 and time.monotonic() < deadline:
            for record in consumer.poll():
                number = int(record.value or b"")
                if number % 10 == 7 and record.delivery_count == 1:
                    record.release()
                elif number % 10 == 3:
                    record.reject()
                    done.add(number)
                else:
                    with record:
                        done.add(number)
        assert set(consumer.commit().values()) <= {None}
        metrics = consumer.metrics()
    assert (metrics.accepted, metrics.released, metrics.rejected) == (810, 90, 90)
    assert failed == []
    with ShareConsumer(bootstrap, group=topic) as after:
        after.subscribe([topic])
        produce(bootstrap, topic, range(900, 903))
        assert values(read(after, 3)) == [900, 901, 902]


def test_implicit_mode_and_iteration(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, range(100))
    with ShareConsumer(bootstrap, group=topic, acknowledgement_mode="implicit") as consumer:
        consumer.subscribe([topic])
        got = list(islice(consumer, 100))
        assert values(got) == list(range(100))
        assert set(consumer.commit().values()) == {None}
        assert consumer.metrics().accepted == 100


def test_record_limit_is_exact(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, range(60))
    with ShareConsumer(bootstrap, group=topic, acquire_mode="record_limit", max_poll_records=7) as consumer:
        consumer.subscribe([topic])
        got: list[ShareRecord] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(got) < 60 and time.monotonic() < deadline:
            polled = consumer.poll()
            assert len(polled) <= 7
            consumer.acknowledge(polled)
            got += polled
        assert values(got) == list(range(60))
        assert consumer.metrics().acquired_records == 60


def test_a_renewed_record_is_delivered_once_and_a_forgotten_one_again(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, range(1))
    with ShareConsumer(bootstrap, group=topic, renew=True) as consumer:
        consumer.subscribe([topic])
        record = next(consumer)
        deadline, until = record.lock_deadline, time.monotonic() + 2.5 * LOCK_SECONDS
        with record, ShareConsumer(bootstrap, group=topic) as idle:
            idle.subscribe([topic])
            while time.monotonic() < until:
                assert idle.poll(timeout=0.5) == []
        assert record.lock_deadline > deadline + LOCK_SECONDS
        assert set(consumer.commit().values()) == {None}
    produce(bootstrap, topic, range(1, 2))
    with ShareConsumer(bootstrap, group=topic) as consumer:
        consumer.subscribe([topic])
        record = next(consumer)
        with ShareConsumer(bootstrap, group=topic) as idle:
            idle.subscribe([topic])
            while not record.is_lost:
                assert consumer.explain().state == "stable"
                for again in idle.poll(timeout=0.2):
                    assert again.delivery_count == 2
                    again.release()
        with pytest.raises(LockLostError):
            record.accept()
        (again,) = read(consumer, 1)
        assert again.value == b"1"
        assert again.delivery_count >= 2


def test_markers_and_aborted_records_do_not_stop_the_window(bootstrap: str, topic: str) -> None:
    """The group reads uncommitted: aborted records are records, markers are gaps."""
    with Producer(bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        for number in range(30):
            with suppress(_AbortError), producer.transaction():
                producer.send(topic, b"%d" % number, partition=number % 3)
                if number % 2:
                    raise _AbortError
    with ShareConsumer(bootstrap, group=topic) as consumer:
        consumer.subscribe([topic])
        read(consumer, 15)
        consumer.commit()
        produce(bootstrap, topic, range(100, 103))
        got: list[int] = []
        deadline = time.monotonic() + PATIENCE_S
        while len([number for number in got if number >= 100]) < 3 and time.monotonic() < deadline:
            got += values(read(consumer, 1))
        assert got[-3:] == [100, 101, 102] or {100, 101, 102} <= set(got)
        assert set(consumer.commit().values()) <= {None}
        assert consumer.metrics().gaps > 0


def test_close_is_fast_and_leaves_no_member(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, range(3))
    consumer = ShareConsumer(bootstrap, group=topic)
    consumer.subscribe([topic])
    next(consumer)
    start = time.monotonic()
    consumer.close()
    assert time.monotonic() - start < 3
    with ShareConsumer(bootstrap, group=topic) as other:
        other.subscribe([topic])
        assert values(read(other, 3)) == [0, 1, 2], "what was in hand is released at once, not after the lock"
