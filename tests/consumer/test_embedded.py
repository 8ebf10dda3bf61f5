"""The consumer against the embedded cluster, over real sockets and threads."""

from __future__ import annotations

import itertools
import os
import random
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from kwire import AtTimestamp, Consumer, Sasl
from kwire.broker import Cluster, Cut, Delay, Disconnect, Refuse
from kwire.broker.cluster_state import ClusterState
from kwire.cluster.waiting import run_blocking
from kwire.consumer import ConsumerRecord
from kwire.consumer.options import ConsumerKwargs, OnOutOfRange
from kwire.errors import (
    AuthenticationError,
    BrokerError,
    ClosedError,
    ConfigurationError,
    CorruptRecordsError,
    ErrorCode,
    KwireError,
    NotKafkaError,
    RequestTimeoutError,
    TopicError,
    UnsupportedVersionError,
)
from kwire.protocol import ApiKey
from kwire.records import encode_batch
from tests.consumer.embedded import START_MS, append, end_transaction, fill, number_of, numbers, read, transaction


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, default_partitions=1) as running:
        yield running
        assert not running.failures


@pytest.fixture
def consumer(cluster: Cluster) -> Iterator[Consumer]:
    with Consumer(cluster.bootstrap) as running:
        yield running


def make(cluster: Cluster, topic: str = "t", partitions: int = 1, count: int = 1_000, **options: Any) -> None:
    cluster.create_topic(topic, partitions)
    for partition in range(partitions):
        fill(cluster, topic, partition, range(count), **options)


# -- records


class Interrupts:
    """Does what `step` does, the first time with an interrupt right behind it."""

    def __init__(self, step: Callable[..., Any]) -> None:
        self.step = step
        self.is_first = True

    def __call__(self, *args: Any) -> Any:
        result = self.step(*args)
        if self.is_first and result:
            self.is_first = False
            raise KeyboardInterrupt
        return result


@pytest.mark.parametrize("where", ["_fetch_buffer.take", "_collect", "_next_buffer"])
@pytest.mark.parametrize("way", ["poll", "iteration"])
def test_records_lost_to_an_interrupt_are_read_again(
    cluster: Cluster, consumer: Consumer, way: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(cluster, partitions=2, count=500)
    consumer.assign([("t", 0, 100), ("t", 1, 0)])
    owner, _, name = where.rpartition(".")
    holder: Any = getattr(consumer, owner) if owner else consumer
    interrupts = Interrupts(getattr(holder, name))
    monkeypatch.setattr(holder, name, interrupts)
    records: list[ConsumerRecord] = []
    while len(records) < 900:
        with suppress(KeyboardInterrupt):
            if way == "poll":
                records += consumer.poll(70, 10)
            else:
                records.append(next(consumer))
    assert numbers(records) == {0: list(range(100, 500)), 1: list(range(500))}
    assert interrupts.is_first == (way == "iteration" and where == "_collect")


def test_all_partitions_each_in_order(cluster: Cluster, consumer: Consumer) -> None:
    make(cluster, partitions=8, count=2_500)
    assert consumer.partitions("t") == list(range(8))
    consumer.assign([("t", index, "earliest") for index in range(8)])
    records = read(consumer, 20_000)
    assert numbers(records) == {index: list(range(2_500)) for index in range(8)}
    assert consumer.poll(timeout=0) == []
    assert [consumer.position("t", index) for index in range(8)] == [2_500] * 8
    last = next(record for record in reversed(records) if record.partition == 3)
    assert last == ConsumerRecord("t", 3, 2_499, START_MS + 2_499, 0, b"3", b"2499", (("n", b"2499"),))


def test_a_batch_is_released_after_two_polls_however_often_they_wake_up(
    cluster: Cluster, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Read:
        is_detached = False

        def detach(self) -> None:
            self.is_detached = True

    make(cluster, count=0)
    consumer.assign([("t", 0, "earliest")])
    wakes = 0

    async def wake_at_once(wakeups_seen: int, timeout: float, waiter: object) -> None:
        nonlocal wakes
        wakes += 1

    monkeypatch.setattr(consumer._fetch_buffer, "wait", wake_at_once)
    cursor: Any = Read()
    consumer._retire_reader(cursor)
    assert consumer.poll(timeout=0.01) == []
    assert wakes > 2
    assert not cursor.is_detached
    consumer.poll(timeout=0)
    assert cursor.is_detached


def test_no_fetch_is_made_beyond_the_ends(cluster: Cluster, consumer: Consumer) -> None:
    make(cluster, partitions=2, count=100)
    starts = [("t", 0, 0), ("t", 1, 0)]
    ends = consumer.end_offsets([("t", 0), ("t", 1)])
    consumer.assign(starts, ends=ends)
    assert numbers(read(consumer, 200)) == {0: list(range(100)), 1: list(range(100))}
    # One to each leader, which returns all of its records.
    assert cluster.requests()[ApiKey.FETCH] == len({cluster.leader("t", index) for index in (0, 1)})
    with pytest.raises(ConfigurationError, match="-1 is not an end of t-0: give an offset"):
        consumer.assign(starts, ends={("t", 0): -1})


def test_records_written_while_a_poll_waits(cluster: Cluster, consumer: Consumer) -> None:
    make(cluster, count=0)
    consumer.assign([("t", 0, "latest")])
    assert consumer.position("t", 0) == 0
    got: list[ConsumerRecord] = []
    thread = threading.Thread(target=lambda: got.extend(consumer.poll(timeout=10.0)))
    thread.start()
    fill(cluster, "t", 0, [7])
    thread.join(10.0)
    assert [number_of(record) for record in got] == [7]


def test_iteration_polling_and_seeking_mix(cluster: Cluster) -> None:
    make(cluster, count=1_000, batch_size=70)
    chance = random.Random(11)
    expected = 0
    with Consumer(cluster.bootstrap, max_wait_ms=5) as consumer:
        consumer.assign([("t", 0, 0)])
        for _ in range(300):
            match chance.randrange(3):
                case 0:
                    assert number_of(next(consumer)) == expected
                    expected += 1
                case 1:
                    for record in consumer.poll(chance.randrange(1, 100), timeout=10.0):
                        assert number_of(record) == expected
                        expected += 1
                case _:
                    expected = chance.randrange(900)
                    consumer.seek("t", 0, expected)
            assert consumer.position("t", 0) == expected
            if expected > 900:
                expected = 0
                consumer.seek("t", 0, 0)


def test_an_iteration_reads_batches_of_all_partitions_in_turn(cluster: Cluster) -> None:
    """Small batches are taken together; of those above 1 MB each is a stretch of its own."""
    cluster.create_topic("t", 3)
    for partition, _ in itertools.product(range(3), range(2)):
        append(cluster, "t", partition, encode_batch([(START_MS, None, bytes(400_000), ())] * 3))
    with Consumer(cluster.bootstrap, partition_max_bytes=4_000_000) as consumer:
        consumer.assign([("t", index, 0) for index in range(3)])
        for index in range(3):
            assert consumer.position("t", index) == 0
        first = next(consumer)
        while len(consumer._ready) < 3:  # until something of each partition is here
            run_blocking(consumer._fetch_buffer.wait(consumer._fetch_buffer.wakeups, 10.0))
            consumer._receive()
        runs = [record.partition for record in [first, *(next(consumer) for _ in range(17))]][::3]
        assert sorted(runs[1:4]) == [0, 1, 2]
        assert sorted(runs) == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("earliest", 100),
        ("latest", 1_000),
        (321, 321),
        (AtTimestamp(0), 100),
        (AtTimestamp(START_MS + 555), 555),
        (AtTimestamp(START_MS + 10**9), 1_000),
    ],
)
def test_an_assignment_starts_at_the_given_offset(
    cluster: Cluster, consumer: Consumer, start: Any, expected: int
) -> None:
    make(cluster)
    cluster.call(lambda state, now: state.partition("t", 0).log.delete_before(100))
    consumer.assign([("t", 0, start)])
    assert consumer.position("t", 0) == expected
    fill(cluster, "t", 0, [1_000])
    assert number_of(consumer.poll(1, timeout=10.0)[0]) == expected


def test_offset_queries_of_many_partitions(cluster: Cluster, consumer: Consumer) -> None:
    make(cluster, partitions=5, count=100)
    cluster.call(lambda state, now: state.partition("t", 4).log.delete_before(30))
    places = [("t", index) for index in range(5)]
    assert list(consumer.beginning_offsets(places).values()) == [0, 0, 0, 0, 30]
    assert list(consumer.end_offsets(places).values()) == [100] * 5
    times = [("t", 0, START_MS + 17), ("t", 1, START_MS + 100), ("t", 4, 0)]
    assert consumer.offsets_at(times) == {("t", 0): 17, ("t", 1): None, ("t", 4): 30}
    assert consumer.end_offsets([]) == {}


SPECIAL: list[tuple[Any, str, str, int]] = [
    ("max_timestamp", "2.8", "3.0", 99),
    ("local_earliest", "3.4", "3.5", 30),
    ("latest_tiered", "3.8", "3.9", 30),
    ("earliest_pending_upload", "4.1", "4.2", 30),
]


@pytest.mark.parametrize(("place", "old", "new", "offset"), SPECIAL, ids=[name for name, *_ in SPECIAL])
def test_special_places_of_a_log_and_brokers_that_cannot_find_them(place: Any, old: str, new: str, offset: int) -> None:
    """The embedded broker tiers nothing: such a log has no last record there, and reading begins at its beginning."""
    for version in (old, new):
        with Cluster(brokers=1, topics={"t": 1}, version=version) as cluster, Consumer(cluster.bootstrap) as consumer:
            fill(cluster, "t", 0, range(100))
            cluster.call(lambda state, now: state.partition("t", 0).log.delete_before(30))
            consumer.assign([("t", 0, place)])
            if version == old:
                with pytest.raises(UnsupportedVersionError, match=f"{place}.*Kafka {new}"):
                    consumer.poll(timeout=10)
                with pytest.raises(UnsupportedVersionError, match=place):
                    consumer.offsets_at([("t", 0, place)])
                consumer.seek("t", 0, 50)
                assert consumer.poll(1, timeout=10)[0].offset == 50
                continue
            assert consumer.poll(1, timeout=10)[0].offset == offset
            found = consumer.offsets_at([("t", 0, place)])
            assert found == {("t", 0): None if "tiered" in place or "upload" in place else offset}
            consumer.seek("t", 0, place)
            assert consumer.poll(1, timeout=10)[0].offset == offset


VERSIONS: list[dict[ApiKey, range]] = [
    *({ApiKey.FETCH: range(version, version + 1)} for version in (4, 7, 9, 11, 12, 13, 16, 18)),
    *({ApiKey.LIST_OFFSETS: range(version, version + 1)} for version in (1, 2, 4, 6, 10)),
]


@pytest.mark.parametrize("versions", VERSIONS, ids=str)
def test_every_fetch_version_reads_all_records(versions: dict[ApiKey, range]) -> None:
    with Cluster(brokers=2, api_versions=versions) as cluster, Consumer(cluster.bootstrap) as consumer:
        make(cluster, partitions=2, count=300)
        consumer.assign([("t", 0, "earliest"), ("t", 1, 10)])
        assert numbers(read(consumer, 590)) == {0: list(range(300)), 1: list(range(10, 300))}


@pytest.mark.parametrize("bound", [{"partition_max_bytes": 1_000}, {"max_bytes": 1_000, "partition_max_bytes": 500}])
def test_a_record_larger_than_every_limit_arrives(cluster: Cluster, bound: ConsumerKwargs) -> None:
    bound = {**bound, "max_buffered_bytes": 2_000_000}
    make(cluster, count=3, padding=300_000, batch_size=1)
    with Consumer(cluster.bootstrap, **bound) as consumer:
        consumer.assign([("t", 0, 0)])
        records = read(consumer, 3)
        assert [len(record.value or b"") for record in records] == [300_001] * 3


def test_little_memory_still_reads_everything(cluster: Cluster) -> None:
    make(cluster, partitions=6, count=2_000, batch_size=50)
    options: ConsumerKwargs = {"partition_max_bytes": 3_000, "max_bytes": 6_000, "max_buffered_bytes": 9_000}
    with Consumer(cluster.bootstrap, **options) as consumer:
        consumer.assign([("t", index, 0) for index in range(6)])
        assert numbers(read(consumer, 12_000, max_records=37)) == {index: list(range(2_000)) for index in range(6)}


# -- pausing


def test_paused_partitions_keep_their_position(cluster: Cluster, consumer: Consumer) -> None:
    make(cluster, partitions=2, count=100)
    consumer.assign([("t", 0, 0), ("t", 1, 0)])
    first = read(consumer, 50, max_records=10)
    before = consumer.position("t", 0)
    consumer.pause([("t", 0)])
    assert consumer.paused() == [("t", 0)]
    rest = read(consumer, 200 - 50 - (100 - before))
    assert {record.partition for record in rest} <= {1}
    assert (consumer.position("t", 0), consumer.position("t", 1)) == (before, 100)
    assert consumer.poll(timeout=0) == []
    consumer.resume()
    more = read(consumer, 100 - before)
    assert numbers(first + rest + more) == {0: list(range(100)), 1: list(range(100))}
    with pytest.raises(ConfigurationError):
        consumer.pause([("t", 7)])


def test_a_paused_partition_can_seek(cluster: Cluster, consumer: Consumer) -> None:
    make(cluster, count=100)
    consumer.assign([("t", 0, 0)])
    read(consumer, 10, max_records=10)
    consumer.pause()
    consumer.seek("t", 0, 50)
    assert consumer.poll(timeout=0.05) == []
    consumer.resume()
    assert number_of(consumer.poll(1, timeout=10.0)[0]) == 50


# -- changes of the cluster


def test_records_arrive_while_leaders_move(cluster: Cluster) -> None:
    make(cluster, partitions=3, count=3_000, batch_size=20)
    chance = random.Random(3)
    with Consumer(cluster.bootstrap, partition_max_bytes=5_000, retry_backoff_ms=10) as consumer:
        consumer.assign([("t", index, 0) for index in range(3)])
        records: list[ConsumerRecord] = []
        while len(records) < 9_000:
            got = read(consumer, 300)
            assert got
            records += got
            cluster.move_leader("t", chance.randrange(3), chance.randrange(1, 4))
    assert numbers(records) == {index: list(range(3_000)) for index in range(3)}


def test_records_arrive_after_a_broker_restart(cluster: Cluster) -> None:
    make(cluster, partitions=3, count=2_000, batch_size=20)
    with Consumer(cluster.bootstrap, partition_max_bytes=5_000, retry_backoff_ms=10) as consumer:
        consumer.assign([("t", index, 0) for index in range(3)])
        records = read(consumer, 1_000)
        for node in (1, 2, 3):
            cluster.stop(node)
            records += read(consumer, 1_000)
            cluster.restart(node)
            records += read(consumer, 500)
        records += read(consumer, 6_000 - len(records))
    assert numbers(records) == {index: list(range(2_000)) for index in range(3)}


def test_records_arrive_after_the_only_broker_restarts() -> None:
    with Cluster(brokers=1) as cluster, Consumer(cluster.bootstrap, retry_backoff_ms=10) as consumer:
        make(cluster, count=100)
        consumer.assign([("t", 0, 0)])
        records = read(consumer, 100)
        cluster.stop(1)
        assert consumer.poll(timeout=0.1) == [], "an outage is no error at once"
        cluster.restart(1)
        fill(cluster, "t", 0, range(100, 200))
        records += read(consumer, 100)
        assert numbers(records) == {0: list(range(200))}


FAULTS = [
    Disconnect(),
    Cut(20),
    Cut(2_000),
    Delay(50),
    Refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER),
    Refuse(ErrorCode.FENCED_LEADER_EPOCH),
    Refuse(ErrorCode.UNKNOWN_LEADER_EPOCH),
    Refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    Refuse(ErrorCode.KAFKA_STORAGE_ERROR),
]


@pytest.mark.parametrize("effect", FAULTS, ids=str)
@pytest.mark.parametrize("api", [ApiKey.FETCH, ApiKey.LIST_OFFSETS])
def test_retriable_faults_lose_no_record(cluster: Cluster, effect: Any, api: ApiKey) -> None:
    make(cluster, partitions=2, count=500, batch_size=20)
    with Consumer(cluster.bootstrap, partition_max_bytes=5_000, retry_backoff_ms=5) as consumer:
        cluster.add_fault(effect, api=api, times=2)
        cluster.add_fault(effect, api=api, after=3, times=1)
        consumer.assign([("t", 0, "earliest"), ("t", 1, AtTimestamp(START_MS))])
        assert numbers(read(consumer, 1_000)) == {0: list(range(500)), 1: list(range(500))}


# -- errors


def test_an_offset_outside_the_log(cluster: Cluster, consumer: Consumer) -> None:
    make(cluster, partitions=2, count=100)
    cluster.call(lambda state, now: state.partition("t", 0).log.delete_before(40))
    consumer.assign([("t", 0, 10), ("t", 1, 0)])
    records: list[ConsumerRecord] = []
    errors: list[BrokerError] = []
    while len(records) < 100 or not errors:
        try:
            records += consumer.poll(timeout=10.0)
        except BrokerError as error:
            errors.append(error)
    assert [error.code for error in errors] == [ErrorCode.OFFSET_OUT_OF_RANGE], "once"
    assert "the log holds 40 to 99" in str(errors[0])
    assert numbers(records) == {1: list(range(100))}, "the other partition goes on"
    assert consumer.position("t", 0) == 10
    consumer.seek("t", 0, "earliest")
    assert numbers(read(consumer, 60)) == {0: list(range(40, 100))}
    consumer.seek("t", 0, 1_000)
    with pytest.raises(BrokerError):
        consumer.poll(timeout=10.0)


@pytest.mark.parametrize(("policy", "expected"), [("earliest", 40), ("latest", 100)])
def test_a_policy_for_offsets_outside_the_log(cluster: Cluster, policy: OnOutOfRange, expected: int) -> None:
    make(cluster, count=100)
    cluster.call(lambda state, now: state.partition("t", 0).log.delete_before(40))
    with Consumer(cluster.bootstrap, on_out_of_range=policy) as consumer:
        consumer.assign([("t", 0, 10)])
        consumer.poll(timeout=0.2)
        fill(cluster, "t", 0, [100])
        consumer.seek("t", 0, 10)
        if policy == "latest":
            assert consumer.poll(timeout=0.2) == []
            assert consumer.position("t", 0) in (10, 101)
        else:
            assert number_of(consumer.poll(1, timeout=10.0)[0]) == expected


def test_records_corrupted_in_the_log_raise_at_their_offset(cluster: Cluster, consumer: Consumer) -> None:
    make(cluster, count=300, batch_size=100)

    def damage(state: ClusterState, now: float) -> None:
        stored = list(state.partition("t", 0).log)[1]
        state.partition("t", 0).log._batches[1] = stored.__class__(  # the log itself offers no way to break it
            **{name: getattr(stored, name) for name in stored.__slots__} | {"data": memoryview(_flipped(stored.data))}
        )

    cluster.call(damage)
    consumer.assign([("t", 0, 0)])
    assert [number_of(record) for record in read(consumer, 100)] == list(range(100))
    with pytest.raises(CorruptRecordsError) as caught:
        consumer.poll(timeout=10.0)
    assert (caught.value.where["topic"], caught.value.where["partition"], caught.value.where["offset"]) == ("t", 0, 100)
    assert consumer.position("t", 0) == 100
    assert consumer.poll(timeout=0.1) == [], "raised once"
    consumer.seek("t", 0, 200)
    assert [number_of(record) for record in read(consumer, 100)] == list(range(200, 300))


def _flipped(data: memoryview) -> bytes:
    damaged = bytearray(data)
    damaged[-5] ^= 0xFF
    return bytes(damaged)


def test_a_missing_topic_raises_topic_error(cluster: Cluster) -> None:
    with Consumer(cluster.bootstrap, unknown_topic_timeout_ms=300) as consumer:
        consumer.assign([("missing", 0, "earliest"), ("missing", 1, 5)])
        for _ in range(2):
            with pytest.raises(TopicError):
                consumer.poll(timeout=10.0)
        with pytest.raises(TopicError):
            consumer.partitions("missing")
        with pytest.raises(TopicError):
            consumer.end_offsets([("missing", 0)])
        with pytest.raises(TopicError):
            consumer.position("missing", 0)
        assert not cluster.call(lambda state, now: "missing" in state.topics), "looking does not create"


def test_a_topic_created_during_a_poll_is_read(cluster: Cluster, consumer: Consumer) -> None:
    consumer.assign([("late", 0, "earliest")])
    assert consumer.poll(timeout=0.2) == []
    make(cluster, "late", count=10)
    assert numbers(read(consumer, 10)) == {0: list(range(10))}


@pytest.mark.parametrize("method", ["poll", "position", "end_offsets", "partitions"])
def test_an_unreachable_cluster_raises(method: str) -> None:
    with Cluster(brokers=1) as cluster:
        bootstrap = cluster.bootstrap
    with Consumer(bootstrap) as consumer:
        consumer.assign([("t", 0, "latest")])
        calls: dict[str, Callable[[], object]] = {
            "poll": lambda: consumer.poll(timeout=10.0),
            "position": lambda: consumer.position("t", 0, timeout=0.3),
            "end_offsets": lambda: consumer.end_offsets([("t", 0)], timeout=0.3),
            "partitions": lambda: consumer.partitions("t", timeout=0.3),
        }
        with pytest.raises(KwireError) as caught:
            calls[method]()
        assert "refused" in str(caught.value) or isinstance(caught.value, RequestTimeoutError)


# -- transactions


def test_read_committed_returns_committed_records_only(cluster: Cluster) -> None:
    cluster.create_topic("t", 1)
    append(cluster, "t", 0, encode_batch([(START_MS, None, b"plain", ())]))
    transaction(cluster, "t", 0, 1, 0, b"aborted 1", b"aborted 2")
    transaction(cluster, "t", 0, 2, 0, b"kept")
    end_transaction(cluster, "t", 0, 1, "abort")
    end_transaction(cluster, "t", 0, 2, "commit")
    transaction(cluster, "t", 0, 1, 2, b"kept too")
    end_transaction(cluster, "t", 0, 1, "commit")
    transaction(cluster, "t", 0, 2, 1, b"open")
    append(cluster, "t", 0, encode_batch([(START_MS, None, b"behind it", ())]))
    seen = {}
    for isolation in ("read_uncommitted", "read_committed"):
        with Consumer(cluster.bootstrap, isolation=isolation) as consumer:
            end = consumer.end_offsets([("t", 0)])["t", 0]
            consumer.assign([("t", 0, "earliest")])
            values = []
            while consumer.position("t", 0) < end:
                values += [record.value for record in consumer.poll(timeout=10.0)]
            seen[isolation] = (values, end)
    committed = [b"plain", b"kept", b"kept too"]
    everything = [b"plain", b"aborted 1", b"aborted 2", b"kept", b"kept too", b"open", b"behind it"]
    assert seen == {"read_uncommitted": (everything, 10), "read_committed": (committed, 8)}


# -- threads


def test_two_readers_share_the_records(cluster: Cluster, consumer: Consumer) -> None:
    make(cluster, partitions=4, count=2_500)
    consumer.assign([("t", index, 0) for index in range(4)])
    gate = threading.Lock()
    records: list[ConsumerRecord] = []

    def work() -> None:
        while len(records) < 10_000:
            got = consumer.poll(100, timeout=0.05)
            with gate:
                records.extend(got)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
    assert {index: sorted(found) for index, found in numbers(records).items()} == {
        index: list(range(2_500)) for index in range(4)
    }


def test_closing_wakes_a_poll_and_ends_an_iteration(cluster: Cluster) -> None:
    make(cluster, count=10)
    for read_on in ("poll", "iterate"):
        consumer = Consumer(cluster.bootstrap)
        consumer.assign([("t", 0, 0)])
        assert len(read(consumer, 10)) == 10
        outcome: list[object] = []

        def wait(consumer: Consumer = consumer, outcome: list[object] = outcome, read_on: str = read_on) -> None:
            try:
                outcome.append(consumer.poll(timeout=None) if read_on == "poll" else list(consumer))
            except ClosedError as error:
                outcome.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        consumer.close()
        thread.join(10.0)
        assert not thread.is_alive()
        if read_on == "iterate":
            assert outcome == [[]]
        else:
            assert isinstance(outcome[0], ClosedError)


def test_an_assignment_replaces_the_one_before(cluster: Cluster, consumer: Consumer) -> None:
    make(cluster, "a", count=100)
    make(cluster, "b", count=100)
    consumer.assign([("a", 0, 0)])
    assert len(read(consumer, 30, max_records=30)) == 30
    consumer.assign([("b", 0, 90)])
    assert consumer.assignment() == [("b", 0)]
    assert [record.topic for record in read(consumer, 10)] == ["b"] * 10
    consumer.assign([])
    assert consumer.poll(timeout=0) == []
    consumer.assign([("a", 0, 99)])
    assert [number_of(record) for record in read(consumer, 1)] == [99]


def test_buffered_memory_is_released(cluster: Cluster, consumer: Consumer) -> None:
    make(cluster, partitions=2, count=5_000, padding=100)
    consumer.assign([("t", 0, 0), ("t", 1, 0)])
    read(consumer, 1_000)
    consumer.pause([("t", 1)])
    consumer.seek("t", 0, 10)
    read(consumer, 1_000)
    consumer.assign([("t", 1, 0)])
    read(consumer, 5_000)
    consumer.poll(timeout=0)
    assert (consumer._fetch_buffer._bytes, consumer._fetch_buffer._total_bytes) == ({}, 0)


# -- authentication, other servers, interrupts


@pytest.mark.parametrize("method", ["poll", "end_offsets", "partitions", "position"])
def test_a_wrong_password_raises_at_once(method: str) -> None:
    with Cluster(brokers=1, sasl={"user": "right"}) as cluster:
        sasl = Sasl("SCRAM-SHA-256", "user", "wrong")
        with Consumer(cluster.bootstrap, sasl=sasl) as consumer:
            consumer.assign([("t", 0, "latest")])
            calls: dict[str, Callable[[], object]] = {
                "poll": lambda: consumer.poll(timeout=20.0),
                "position": lambda: consumer.position("t", 0, timeout=20.0),
                "end_offsets": lambda: consumer.end_offsets([("t", 0)], timeout=20.0),
                "partitions": lambda: consumer.partitions("t", timeout=20.0),
            }
            with pytest.raises(AuthenticationError):
                calls[method]()


def test_the_right_password_reads() -> None:
    with Cluster(brokers=1, sasl={"user": "right"}) as cluster:
        make(cluster, count=10)
        with Consumer(cluster.bootstrap, sasl=Sasl("SCRAM-SHA-512", "user", "right")) as consumer:
            consumer.assign([("t", 0, "earliest")])
            assert len(read(consumer, 10)) == 10


def test_a_web_server_is_recognised() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client, _ = server.accept()
                    with client:
                        client.recv(1_000)
                        client.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        with Consumer(f"127.0.0.1:{server.getsockname()[1]}") as consumer:
            consumer.assign([("t", 0, "earliest")])
            with pytest.raises(NotKafkaError, match="HTTP"):
                consumer.poll(timeout=20.0)
        server.shutdown(socket.SHUT_RDWR)
        thread.join(10.0)


def test_an_interrupt_ends_a_poll(cluster: Cluster, consumer: Consumer) -> None:
    make(cluster, count=0)
    consumer.assign([("t", 0, 0)])
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.1, signal.pthread_kill, (main, signal.SIGINT))

    def interrupted_poll() -> None:
        timer.start()  # here, so that it does not end another test on a busy host
        consumer.poll(timeout=60.0)

    with pytest.raises(KeyboardInterrupt):
        interrupted_poll()
    timer.join()
    fill(cluster, "t", 0, [7])
    assert len(read(consumer, 1)) == 1


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # from 3.12 on: it is what is tested
def test_a_forked_child_raises_closed_error(cluster: Cluster, consumer: Consumer) -> None:
    make(cluster, count=1_000)
    consumer.assign([("t", 0, 0)])
    consumer.poll(10, timeout=10.0)
    child = os.fork()
    if child == 0:
        # Nothing of pytest may run here: the exit code is the whole report.
        outcome = 1
        try:
            consumer.poll(10, timeout=0)
        except ClosedError:
            consumer.close()
            outcome = 0
        finally:
            os._exit(outcome)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(read(consumer, 990)) == 990
