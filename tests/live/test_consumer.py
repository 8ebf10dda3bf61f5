"""What only real brokers can confirm of consumers: the end of fetch sessions, special offsets, quotas."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from brokers.cluster import NEWEST, KafkaCluster

from kwire import Admin, Consumer, NewTopic, Producer
from kwire.cluster import ClientConfig, LoopThread, ToNode
from kwire.consumer import StartOffset
from kwire.errors import UnsupportedVersionError
from kwire.protocol.messages.fetch import FetchRequest, FetchResponse
from tests.consumer.test_exactly_once import accepted_generations
from tests.waiting import wait_until

SLOTS = 8  # since Kafka 3.7 the cache has eight shards, each with its part of the slots
PATIENCE_S = 60
_NOW_MS = int(time.time() * 1000)


@pytest.fixture(scope="module", params=["2.8.2", "3.9.1", NEWEST])
def cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    settings = {
        "max.incremental.fetch.session.cache.slots": str(SLOTS),
        "quota.window.num": "2",  # in the first of ten windows, which is the default, nothing is throttled
        "group.initial.rebalance.delay.ms": "0",
    }
    with KafkaCluster(request.param, settings=settings) as running:
        yield running


def make(cluster: KafkaCluster, topic: str, count: int, *, size: int = 1) -> None:
    with Admin(cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, partitions=1, replication_factor=1)], timeout=60)
    with Producer(cluster.bootstrap, linger_ms=0, batch_bytes=20_000) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number + bytes(size - 1), partition=0, timestamp_ms=_timestamp(number))


def _timestamp(number: int) -> int:
    """Return times that do not rise: the newest is that of record 7."""
    return _NOW_MS + (1_000 if number == 7 else number)


def test_a_closed_consumer_gives_its_fetch_session_back(cluster: KafkaCluster) -> None:
    """KIP-227: without that a broker keeps it for two minutes, and has none for others meanwhile."""
    make(cluster, "sessions", 10)
    for turn in range(2 * SLOTS):
        with Consumer(cluster.bootstrap) as consumer:
            consumer.assign([("sessions", 0, 0)])
            assert len(consumer.poll(timeout=PATIENCE_S)) == 10
            if turn % 2:
                consumer.poll(timeout=0.3)  # then a fetch waits at the broker when the consumer is closed
    # As many others get a session as there are slots, all within the two minutes.
    given: list[int] = []

    def all_are_given() -> bool:
        session = _open_session(cluster, "sessions")
        if session:
            given.append(session)
        return len(given) == SLOTS

    wait_until(all_are_given)


def _open_session(cluster: KafkaCluster, topic: str) -> int:
    """Return the id of a session that nobody ends, or 0 if the broker has no room for it."""
    with closing(LoopThread(ClientConfig(cluster.bootstrap))) as runtime:
        partition = FetchRequest.Topic.Partition(partition=0, fetch_offset=0, partition_max_bytes=1_000)
        opening = FetchRequest(
            max_wait_ms=0, min_bytes=0, session_epoch=0,
            topics=[FetchRequest.Topic(topic=topic, partitions=[partition])],
        )  # fmt: skip
        response: FetchResponse = runtime.request(ToNode(1), FetchRequest, lambda _: opening, at_most=12)
        return response.session_id


def test_special_places_of_a_log(cluster: KafkaCluster) -> None:
    """Each place that a broker can find is where its KIP says; an older broker is named in the error."""
    topic = "places"
    make(cluster, topic, 10)
    version = tuple(int(part) for part in cluster.version.split("."))
    expected: dict[StartOffset, tuple[tuple[int, int], int | None]] = {
        "earliest": ((0, 8), 0),
        "latest": ((0, 8), None),
        "max_timestamp": ((3, 0), 7),  # KIP-734
        "local_earliest": ((3, 4), 0),  # KIP-405: the whole log is local
        "latest_tiered": ((3, 9), 0),  # KIP-1005: nothing is tiered, so the beginning
        "earliest_pending_upload": ((4, 2), 0),  # KIP-1023: likewise
    }
    for where, (since, offset) in expected.items():
        with Consumer(cluster.bootstrap) as consumer:
            consumer.assign([(topic, 0, where)])
            if version < since:
                with pytest.raises(UnsupportedVersionError, match="ListOffsets"):
                    consumer.poll(timeout=PATIENCE_S)
            elif offset is None:
                assert consumer.position(topic, 0, timeout=PATIENCE_S) == 10
            else:
                records = consumer.poll(timeout=PATIENCE_S)
                assert [record.offset for record in records] == list(range(offset, 10)), where


def test_an_empty_group_takes_offsets_of_a_transaction_from_a_member_that_is_gone(cluster: KafkaCluster) -> None:
    """So a lost member names the generation 0, which no member has."""
    make(cluster, "t", 1)
    for protocol in ("classic", "consumer") if cluster.version == NEWEST else ("classic",):
        with Consumer(cluster.bootstrap, group="g", group_protocol=protocol) as consumer:
            consumer.subscribe(["t"])
            wait_until(lambda: consumer.poll(timeout=0.1) or consumer.assignment(), PATIENCE_S)
        with Producer(cluster.bootstrap, transactional_id="x") as producer:
            assert accepted_generations(producer) == ([] if cluster.version == "2.8.2" else [-1])


def test_a_quota_slows_a_member_down_and_costs_it_nothing(cluster: KafkaCluster) -> None:
    """KIP-219: the broker reads nothing from a throttled connection, and the client writes nothing to it.

    The batches are small: a broker never sends one that is larger than the quota of a window.
    """
    topic, client, rate, count = "quota", "slow", 200_000, 1_500
    make(cluster, topic, count, size=1_000)
    with Admin(cluster.bootstrap) as admin:
        admin.quotas.set(client_id=client, consumer_byte_rate=rate)
        wait_until(lambda: any(one.values for one in admin.quotas.get(client_id=client)))
    rebalances: list[object] = []
    with Consumer(
        cluster.bootstrap, client_id=client, group="quota", group_protocol="classic", session_timeout_ms=6_000,
        heartbeat_interval_ms=500, partition_max_bytes=50_000,
    ) as consumer:  # fmt: skip
        consumer.subscribe([topic], on_assigned=rebalances.append, on_lost=rebalances.append)
        offsets: list[int] = []
        began = time.monotonic()
        while len(offsets) < count:
            assert time.monotonic() < began + 2 * PATIENCE_S
            offsets += [record.offset for record in consumer.poll(timeout=1.0)]
        seconds = time.monotonic() - began
        consumer.commit()
    assert offsets == list(range(count))
    assert rebalances == [[(topic, 0)]]
    assert seconds > count * 1_000 / rate / 2, "the broker did throttle it"
