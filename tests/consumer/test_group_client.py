"""Subscribed consumers against the embedded cluster, in both group protocols: gate, callbacks, commits, close."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any

import pytest

import kwire
from kwire import Consumer
from kwire.broker import Cluster, Delay, Mute, Refuse
from kwire.broker.handlers import offset_fetch
from kwire.consumer import ConsumerRecord, TopicPartition
from kwire.consumer.buffer import PositionResolved
from kwire.consumer.group_member import MemberState
from kwire.errors import (
    ClosedError,
    CommitFailedError,
    ConfigurationError,
    ErrorCode,
    GroupError,
    KwireError,
    WakeupError,
)
from kwire.metrics import prometheus_text
from kwire.protocol import ApiKey
from tests.consumer.embedded import START_MS, fill, number_of, numbers

PATIENCE = 20.0
PROTOCOLS = ["classic", "consumer"]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(
        brokers=1, consumer_group_heartbeat_interval_ms=50, consumer_group_min_heartbeat_interval_ms=50
    ) as running:
        running.create_topic("t", 2)
        yield running
        assert not running.failures


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


class Members:
    """Makes the members of one group, and closes them."""

    def __init__(self, cluster: Cluster, protocol: str, stack: ExitStack) -> None:
        self.cluster, self.protocol, self.stack = cluster, protocol, stack

    def make(self, **options: Any) -> Consumer:
        if self.protocol == "classic":
            options = {"heartbeat_interval_ms": 50, **options}
        made: Any = {"group": "g", "group_protocol": self.protocol, "max_wait_ms": 20, **options}
        return self.stack.enter_context(Consumer(self.cluster.bootstrap, **made))


@pytest.fixture
def members(cluster: Cluster, protocol: str) -> Iterator[Members]:
    with ExitStack() as stack:
        yield Members(cluster, protocol, stack)


class Listener:
    """Notes the callbacks; `during` runs in each."""

    def __init__(
        self, during: Callable[[str, Sequence[TopicPartition]], object] = lambda name, partitions: None
    ) -> None:
        self.calls: list[tuple[str, list[TopicPartition]]] = []
        self.during = during

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.calls.append(("assigned", list(partitions)))
        self.during("assigned", partitions)

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.calls.append(("revoked", list(partitions)))
        self.during("revoked", partitions)

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.calls.append(("lost", list(partitions)))
        self.during("lost", partitions)

    def named(self, name: str) -> list[TopicPartition]:
        return [key for called, keys in self.calls if called == name for key in keys]


def until(condition: Callable[[], object], *polled: Consumer) -> list[ConsumerRecord]:
    """Poll the consumers in turn until the condition holds; return the records."""
    records: list[ConsumerRecord] = []
    end = monotonic() + PATIENCE
    while not condition():
        assert monotonic() < end, "it took too long"
        for consumer in polled:
            records += consumer.poll(timeout=0.02)
        if not polled:
            threading.Event().wait(0.005)
    return records


def fill_both(cluster: Cluster, count: int = 1_000) -> None:
    for partition in range(2):
        fill(cluster, "t", partition, range(count))


def read(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    """Poll until at least `count` records came."""
    records: list[ConsumerRecord] = []
    end = monotonic() + PATIENCE
    while len(records) < count:
        assert monotonic() < end, f"only {len(records)} came"
        records += consumer.poll(timeout=0.1)
    return records


def owns(consumer: Consumer, count: int) -> Callable[[], bool]:
    return lambda: len(consumer.assignment()) == count


# -- reading and committing


def metadata_responses(consumer: Consumer) -> int:
    brokers = consumer.metrics().cluster.brokers.values()
    return sum(one.latency["Metadata"].count for one in brokers if "Metadata" in one.latency)


def test_a_partition_that_was_added_is_read_before_metadata_are_old(cluster: Cluster) -> None:
    """The coordinator assigns it to a member whose metadata, shared with another client, lack it."""
    with kwire.Cluster(cluster.bootstrap, metadata_max_age_ms=300_000) as shared:
        other = Consumer(shared, max_wait_ms=20)
        other.assign([("t", 0, 0)])
        until(lambda: metadata_responses(other) >= 2, other)  # a client asks twice at first
        cluster.call(lambda state, now: state.add_partitions(state.topics["t"], 3))
        fill(cluster, "t", 2, [7])
        member = Consumer(shared, group="g", group_protocol="consumer", max_wait_ms=20)
        member.subscribe(["t"])
        assert numbers(member.poll(timeout=PATIENCE)) == {2: [7]}


def test_a_partition_that_is_added_after_it_was_assigned_by_hand_is_read(cluster: Cluster) -> None:
    with Consumer(
        cluster.bootstrap, metadata_max_age_ms=300_000, unknown_topic_timeout_ms=60_000, max_wait_ms=20
    ) as consumer:
        consumer.assign([("t", 0, 0), ("t", 2, 0)])
        until(lambda: metadata_responses(consumer) >= 2, consumer)  # it asks twice at first
        cluster.call(lambda state, now: state.add_partitions(state.topics["t"], 3))
        fill(cluster, "t", 2, [7])
        assert numbers(consumer.poll(timeout=PATIENCE)) == {2: [7]}


def test_s03_what_was_returned_before_the_last_poll_is_committed(cluster: Cluster, members: Members) -> None:
    """Positions that were fetched, or returned and not processed, are never committed (KAFKA-18641)."""
    fill_both(cluster)
    first = members.make(max_poll_records=100)
    first.subscribe(["t"])
    got = first.poll(timeout=PATIENCE)
    processed = numbers(got + first.poll(timeout=PATIENCE))
    in_hand = first.poll(timeout=PATIENCE)
    first.close()
    expected = {partition: max(done) + 1 for partition, done in processed.items()}
    assert {p: o for (_, p), o in cluster.committed("g").items() if o} == expected
    second = members.make()
    second.subscribe(["t"])
    rest = read(second, 1_800)
    again = numbers(rest)
    for record in in_hand:
        assert number_of(record) in again[record.partition]
    for partition, done in processed.items():
        assert again[partition] == list(range(max(done) + 1, 1_000))


@pytest.mark.parametrize("last", [0, 50, 99], ids=lambda number: f"record {number} of a batch of 100")
def test_an_iteration_commits_all_but_the_record_in_hand(cluster: Cluster, members: Members, last: int) -> None:
    fill(cluster, "t", 0, range(100))
    consumer = members.make(commit_interval_ms=20)
    consumer.subscribe(["t"])
    for record in consumer:
        if number_of(record) == last:
            until(lambda: cluster.committed("g").get(("t", 0)) == last)
            break
    consumer.close()
    assert cluster.committed("g")["t", 0] == last


def test_commits_of_records_batches_offsets_and_everything(cluster: Cluster, members: Members) -> None:
    fill_both(cluster, 500)
    consumer = members.make(commit="manual", max_poll_records=50)
    consumer.subscribe(["t"])
    records = consumer.poll(timeout=PATIENCE)
    consumer.commit(records[9])
    key = records[9].topic, records[9].partition
    assert cluster.committed("g")[key] == records[9].offset + 1
    consumer.commit(records)
    assert cluster.committed("g")[key] == 50
    batch = consumer.poll_batch(30, timeout=PATIENCE)
    batch.commit()
    ends = {(span.topic, span.partition): span.end for span in batch.spans}
    assert {k: cluster.committed("g")[k] for k in ends} == ends
    offsets: dict[TopicPartition, kwire.Offset | int] = {("t", 0): 7, ("t", 1): kwire.Offset(8, metadata="mine")}
    consumer.commit(offsets)
    assert cluster.committed("g") == {("t", 0): 7, ("t", 1): 8}
    found = consumer.committed([("t", 0), ("t", 1)])
    assert found["t", 1] is not None
    assert (found["t", 1].offset, found["t", 1].metadata) == (8, "mine")
    consumer.commit()
    assert cluster.committed("g") == {k: o.offset for k, o in consumer.offsets().items()}
    done = threading.Event()
    outcome: list[Any] = []

    def on_done(*args: object) -> None:
        outcome.append(args)
        done.set()

    consumer.commit_async({("t", 0): 9}, on_done=on_done)
    assert done.wait(PATIENCE)
    assert outcome == [({("t", 0): kwire.Offset(9)}, None)]
    assert cluster.committed("g")["t", 0] == 9
    with pytest.raises(TypeError, match="is not a record"):
        consumer.commit([1])  # type: ignore[list-item]


def test_only_marked_records_are_committed(cluster: Cluster, members: Members) -> None:
    fill(cluster, "t", 0, range(100))
    consumer = members.make(commit="marks", commit_interval_ms=20)
    consumer.subscribe(["t"])
    records = consumer.poll(timeout=PATIENCE)
    consumer.poll(timeout=0.05)
    assert consumer.offsets() == {}
    consumer.mark(records[10])
    until(lambda: cluster.committed("g").get(("t", 0)) == 11)
    consumer.mark(records[5])  # earlier: changes nothing
    consumer.mark(records[11:20])
    consumer.close()
    assert cluster.committed("g") == {("t", 0): 20}


@pytest.mark.parametrize("commit", ["marks", "auto"])
def test_a_log_that_begins_anew_is_committed_from_its_own_records(
    cluster: Cluster, members: Members, commit: str
) -> None:
    """What was marked, iterated over or committed of the old log would skip records of the new one."""
    fill(cluster, "t", 0, range(100))
    consumer = members.make(commit=commit, commit_interval_ms=20, metadata_max_age_ms=50, on_out_of_range="earliest")
    consumer.subscribe(["t"])
    for record in consumer:
        if commit == "marks":
            consumer.mark(record)
        if number_of(record) == 99:
            break
    until(lambda: cluster.committed("g").get(("t", 0), 0) >= 99)
    cluster.delete_topic("t")
    cluster.create_topic("t", 2)
    until(lambda: ("t", 0) in consumer.assignment() and consumer.position("t", 0) == 0, consumer)
    fill(cluster, "t", 0, range(200, 240))
    new = consumer.poll(20, timeout=PATIENCE)
    assert [record.offset for record in new] == list(range(20))
    if commit == "marks":
        consumer.mark(new)
    else:
        assert {offset.offset for offset in consumer._processed_offsets().values()} <= {0}
        assert consumer.poll(1, timeout=PATIENCE)
    until(lambda: cluster.committed("g").get(("t", 0)) == 20)
    if commit == "marks":
        consumer.commit()
        assert cluster.committed("g")["t", 0] == 20


def test_records_in_hand_of_a_log_that_is_no_more_are_not_processed_in_the_new_one(cluster: Cluster) -> None:
    fill(cluster, "t", 0, range(10))
    with Consumer(cluster.bootstrap, group="g") as consumer:
        consumer.assign([("t", 0, 0)])
        read(consumer, 10)
        buffer = consumer._buffers["t", 0]
        buffer.leader_epoch = 7
        buffer.put(PositionResolved(buffer.assignment_epoch, 4))
        assert not buffer.has_next()
        assert consumer.offsets() == {("t", 0): kwire.Offset(4)}
        consumer._mark_in_hand()
        assert consumer._processed_offsets() == {("t", 0): kwire.Offset(4)}


def test_a_mark_of_an_earlier_ownership_moves_nothing_back(cluster: Cluster, members: Members) -> None:
    """A slow thread marks its record after another member has processed on, and the partition has come back."""
    fill(cluster, "t", 0, range(100))
    first = members.make(commit="marks", commit_interval_ms=20, max_poll_records=10, max_poll_interval_ms=300)
    first.subscribe(["t"])
    old = read(first, 10)
    until(lambda: first.member.state is MemberState.STALE)
    second = members.make(commit="marks")
    second.subscribe(["t"])
    second.mark(read(second, 100)[:90])
    second.close()
    until(lambda: ("t", 0) in first.assignment() and first.position("t", 0) >= 90, first)
    first.mark(old)
    assert first.offsets() == {}
    first.seek("t", 0, 95)
    new = read(first, 5)
    first.mark(old)
    assert first.offsets() == {}
    first.mark(new[1])
    until(lambda: cluster.committed("g")["t", 0] == 97)


def test_a_mark_beyond_what_a_new_log_has_handed_out_is_of_the_old_one(cluster: Cluster) -> None:
    fill(cluster, "t", 0, range(100))
    with Consumer(cluster.bootstrap, group="g", commit="marks") as consumer:
        consumer.assign([("t", 0, 0)])
        old = read(consumer, 100)
        consumer.seek("t", 0, 0)
        new = consumer.poll(10, timeout=PATIENCE)
        consumer.mark(old[50])
        assert consumer.offsets() == {}
        consumer.pause()  # what is in hand counts while nothing is read
        consumer._fetch_from(consumer._buffers["t", 0], 10)
        consumer.mark(new[4])
        assert consumer.offsets()["t", 0].offset == 5


def test_the_leader_epoch_of_a_commit_is_that_of_the_record_before(cluster: Cluster) -> None:
    """A poll took from two fetches of a partition, which two leaders wrote; else its next owner finds a truncation."""
    fill(cluster, "t", 0, range(2))
    with Consumer(cluster.bootstrap, group="g", commit="marks") as consumer:
        consumer.assign([("t", 0, 0)])
        records = read(consumer, 2)
        buffer = consumer._buffers["t", 0]
        consumer._in_hand[:] = [(buffer, 0, 3), (buffer, 1, 4)]
        consumer.mark(records[0])
        assert consumer.offsets() == {("t", 0): kwire.Offset(1, 3)}
        consumer.mark(records)
        assert consumer.offsets() == {("t", 0): kwire.Offset(2, 4)}


def test_a_consumer_that_assigns_may_commit_to_a_group(cluster: Cluster) -> None:
    fill(cluster, "t", 0, range(100))
    with Consumer(cluster.bootstrap, group="g") as consumer:
        consumer.assign([("t", 0, 0)])
        consumer.commit(consumer.poll(timeout=PATIENCE)[:30])
        assert consumer.committed() == {("t", 0): kwire.Offset(30, 0)}
        with pytest.raises(ConfigurationError, match="has partitions by assign"):
            consumer.subscribe(["t"])


@pytest.mark.parametrize("commit", ["auto", "marks"])
def test_what_was_processed_of_assigned_partitions_is_committed(cluster: Cluster, commit: Any) -> None:
    """Every interval, and before other partitions or none are assigned."""
    fill_both(cluster, 100)
    consumer = Consumer(cluster.bootstrap, group="g", commit=commit, commit_interval_ms=20, max_wait_ms=20)

    def process(partition: int, count: int) -> None:
        done = consumer.poll(count, timeout=PATIENCE)
        assert {one.partition for one in done} == {partition}
        if commit == "marks":
            consumer.mark(done)
        else:
            consumer.poll(1, timeout=0)

    with consumer:
        consumer.assign([("t", 0, 0)])
        process(0, 10)
        until(lambda: cluster.committed("g").get(("t", 0)) == 10)
    consumer = Consumer(cluster.bootstrap, group="h", commit=commit, commit_interval_ms=60_000, max_wait_ms=20)
    with consumer:
        consumer.assign([("t", 0, 0)])
        process(0, 20)
        consumer.assign([("t", 1, 0)])
        process(1, 30)
        consumer.unsubscribe()
        assert cluster.committed("h") == {("t", 0): 20, ("t", 1): 30}
        consumer.assign([("t", 0, 50)])
        process(0, 10)
        consumer.assign([])
    assert cluster.committed("h") == {("t", 0): 60, ("t", 1): 30}


def test_partitions_that_are_assigned_after_a_subscription_are_committed(cluster: Cluster, members: Members) -> None:
    fill_both(cluster, 100)
    consumer = members.make(commit="manual")
    consumer.subscribe(["t"])
    of_member = read(consumer, 1)
    consumer.unsubscribe()
    with pytest.raises(CommitFailedError):
        consumer.commit(of_member)
    consumer.assign([("t", 0, 0)])
    consumer.commit(read(consumer, 10)[9])
    assert cluster.committed("g")["t", 0] == 10
    assert consumer.committed([("t", 0)])["t", 0] is not None
    assert consumer.group_metadata() == kwire.GroupMetadata("g")
    consumer.unsubscribe()
    consumer.subscribe(["t"])
    until(owns(consumer, 2), consumer)
    with pytest.raises(CommitFailedError):
        consumer.commit({("u", 0): 1})
    consumer.commit({("t", 0): 20})
    assert cluster.committed("g")["t", 0] == 20


def test_a_consumer_without_a_group_says_so(cluster: Cluster) -> None:
    with Consumer(cluster.bootstrap) as consumer:
        for call in (consumer.commit, consumer.group_metadata, lambda: consumer.subscribe(["t"])):
            with pytest.raises(ConfigurationError, match="has no group"):
                call()
    with Consumer(cluster.bootstrap, commit="marks") as consumer, pytest.raises(ConfigurationError, match="no group"):
        consumer.mark({("t", 0): 1})


def test_a_topic_that_does_not_exist_is_named(cluster: Cluster, members: Members) -> None:
    consumer = members.make()
    consumer.subscribe(["t", "tt"])
    until(lambda: "topic" in waits(consumer) and consumer.assignment() != [], consumer)
    assert "'tt' cannot be read: UNKNOWN_TOPIC_OR_PARTITION" in str(consumer.explain())
    cluster.create_topic("tt")
    until(lambda: "topic" not in waits(consumer), consumer)


def test_wrong_offsets_and_partitions_say_what_to_give(cluster: Cluster, members: Members) -> None:
    consumer = members.make()
    consumer.subscribe(["t"])
    wrong: Any = {"t": 5}
    with pytest.raises(TypeError, match=r"give \(topic, partition\)"):
        consumer.commit(wrong)
    with pytest.raises(ConfigurationError, match="the group assigns partitions while the program polls"):
        consumer.seek("t", 99, 0)


# -- the gate and the callbacks


@pytest.mark.parametrize("way", ["poll", "iteration"])
def test_s02_partitions_are_taken_away_at_the_next_call_and_after_the_commit(
    cluster: Cluster, members: Members, way: str
) -> None:
    """Nothing of a revoked partition is returned after the commit (KAFKA-14196, KAFKA-16460)."""
    fill_both(cluster, 3_000)

    def end_iteration(name: str, partitions: object) -> None:
        if name == "revoked":
            for partition in range(2):
                fill(cluster, "t", partition, [3_000])

    listener = Listener(end_iteration)
    first, second = members.make(max_poll_records=50), members.make()
    first.subscribe(["t"], listener=listener)
    held = first.poll(timeout=PATIENCE) if way == "poll" else [next(first)]
    second.subscribe(["t"])
    until(lambda: first.rebalance_pending, second)
    assert listener.calls == [("assigned", [("t", 0), ("t", 1)])]
    assert second.assignment() == []
    seen: list[ConsumerRecord] = []
    while "revoked" not in [name for name, _ in listener.calls]:
        seen += first.poll(timeout=0.05) if way == "poll" else [next(first)]
    taken: list[ConsumerRecord] = []
    while not taken:
        seen += first.poll(timeout=0.02)
        taken += second.poll(timeout=0.02)
    moved = second.assignment()
    assert len(moved) == 1
    begins = min(number_of(record) for record in taken)
    of_first = [number_of(one) for one in held + seen if (one.topic, one.partition) == moved[0]]
    assert begins == (max(of_first) + 1 if of_first else 0)


def test_s37_the_old_owner_keeps_its_pause_flags_and_all_flow_after_resume(cluster: Cluster, members: Members) -> None:
    """spring-kafka 4687, 4708."""
    fill_both(cluster)
    first, second = members.make(), members.make()
    first.subscribe(["t"])
    until(owns(first, 2), first)
    first.pause()
    second.subscribe(["t"])
    until(lambda: owns(first, 1)() and owns(second, 1)(), first, second)
    assert first.paused() == first.assignment()
    assert second.paused() == []
    fill_both(cluster, 10)
    first.resume()
    first.resume()
    assert read(first, 1)


@pytest.mark.parametrize("asks_position", [False, True])
def test_what_on_assigned_pauses_is_not_fetched(cluster: Cluster, members: Members, asks_position: bool) -> None:
    fill_both(cluster, 10)

    def pause(name: str, partitions: Sequence[TopicPartition]) -> None:
        if name == "assigned":
            consumer.pause(partitions)
            for key in partitions if asks_position else ():
                assert consumer.position(*key) == 0

    consumer = members.make()
    consumer.subscribe(["t"], listener=Listener(pause))
    until(owns(consumer, 2), consumer)
    assert consumer.position("t", 0) == consumer.position("t", 1) == 0
    assert waits(consumer) == {"paused"}
    assert consumer.poll(timeout=0.05) == []
    consumer.resume()
    assert len(read(consumer, 20)) == 20


def test_s32_resuming_what_is_not_paused_changes_no_position(cluster: Cluster, members: Members) -> None:
    """librdkafka 4636."""
    fill(cluster, "t", 0, range(100))
    consumer = members.make(max_poll_records=10)
    consumer.subscribe(["t"])
    got = read(consumer, 10)
    for _ in range(2):
        consumer.resume()
        assert consumer.position("t", 0) == len(got)
    assert numbers(got + read(consumer, 100 - len(got))) == {0: list(range(100))}


def test_s04_a_pause_between_the_response_and_the_poll_leaves_no_gap(cluster: Cluster, members: Members) -> None:
    """kafka-python 2555: what was fetched and dropped moved the position."""
    fill(cluster, "t", 0, range(100))
    consumer = members.make(max_poll_records=10)
    consumer.subscribe(["t"])
    got = read(consumer, 10)
    consumer.pause()
    assert consumer.poll(timeout=0.05) == []
    consumer.commit()
    assert cluster.committed("g")["t", 0] == len(got)
    consumer.resume()
    assert numbers(got + read(consumer, 100 - len(got))) == {0: list(range(100))}


@pytest.mark.parametrize("raised", [ValueError("mine"), KeyboardInterrupt()])
def test_s06_a_callback_that_raises_stops_nothing(cluster: Cluster, members: Members, raised: BaseException) -> None:
    fill_both(cluster, 100)

    def fail(name: str, partitions: object) -> None:
        raise raised

    consumer = members.make()
    consumer.subscribe(["t"], on_assigned=lambda partitions: fail("", partitions))
    with pytest.raises(type(raised)) as caught:
        until(lambda: False, consumer)
    assert caught.value is raised
    got = read(consumer, 200)
    assert numbers(got) == {0: list(range(100)), 1: list(range(100))}


def test_what_callbacks_may_and_may_not_call(cluster: Cluster, members: Members) -> None:
    fill_both(cluster, 200)
    refused: list[str] = []
    committed: list[object] = []

    def during(name: str, partitions: Sequence[TopicPartition]) -> None:
        for call in (consumer.poll, consumer.close, lambda: consumer.subscribe(["x"]), lambda: next(consumer)):
            with pytest.raises(GroupError, match=f"was called in on_{name}"):
                call()
            refused.append(name)
        assert set(partitions) <= set(consumer.assignment())
        if name == "assigned":
            consumer.seek("t", 0, 150)
            assert consumer.position("t", 0) == 150
            assert consumer.position("t", 1, PATIENCE) == 0
        else:
            consumer.commit({("t", 1): 17})
            committed.append(consumer.committed([("t", 1)]))

    consumer = members.make()
    consumer.subscribe(["t"], listener=Listener(during))
    got = read(consumer, 250)
    assert numbers(got)[0] == list(range(150, 200))
    consumer.close()
    assert refused == ["assigned"] * 4 + ["revoked"] * 4
    assert committed == [{("t", 1): kwire.Offset(17)}]


@pytest.mark.parametrize("mode", ["auto", "manual"])
def test_s07_a_member_that_does_not_poll_leaves_and_joins_again(cluster: Cluster, members: Members, mode: str) -> None:
    fill_both(cluster, 100)
    listener = Listener()
    consumer = members.make(max_poll_interval_ms=300, commit=mode, max_poll_records=10)
    consumer.subscribe(["t"], listener=listener)
    records = consumer.poll(timeout=PATIENCE)
    until(lambda: consumer.member.state is MemberState.STALE)
    assert "lost" not in [name for name, _ in listener.calls]
    with pytest.raises(CommitFailedError):
        consumer.commit(records)
    read(consumer, 200)
    assert listener.calls == [
        ("assigned", [("t", 0), ("t", 1)]), ("lost", [("t", 0), ("t", 1)]), ("assigned", [("t", 0), ("t", 1)])
    ]  # fmt: skip


def test_s39_waiting_in_a_poll_is_no_silence(cluster: Cluster, members: Members) -> None:
    listener = Listener()
    consumer = members.make(max_poll_interval_ms=200)
    consumer.subscribe(["t"], listener=listener)
    assert consumer.poll(timeout=1.0) == []
    assert consumer.member.state is MemberState.STABLE
    assert [name for name, _ in listener.calls] == ["assigned"]


def test_s40_a_consumer_that_assigns_need_not_poll(cluster: Cluster) -> None:
    """confluent-kafka-dotnet 1220: a consumer without a membership has no poll interval either."""
    fill(cluster, "t", 0, range(10))
    with Consumer(cluster.bootstrap, group="g", max_poll_interval_ms=1) as consumer:
        consumer.assign([("t", 0, 0)])
        assert numbers(read(consumer, 10)) == {0: list(range(10))}
        ended = monotonic()
        until(lambda: monotonic() > ended + 0.1)  # a hundred intervals
        consumer.commit()
        fill(cluster, "t", 0, range(10, 20))
        assert numbers(read(consumer, 10)) == {0: list(range(10, 20))}
        assert cluster.committed("g")["t", 0] == 10
        of_members = {ApiKey.JOIN_GROUP, ApiKey.HEARTBEAT, ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.LEAVE_GROUP}
        assert of_members.isdisjoint(cluster.requests())


def test_a_slow_iteration_goes_on_beyond_the_poll_interval(cluster: Cluster, members: Members) -> None:
    fill(cluster, "t", 0, range(40))
    consumer, listener = members.make(max_poll_interval_ms=800), Listener()  # less than the 40 records take
    consumer.subscribe(["t"], listener=listener)
    begun = monotonic()
    for record in consumer:
        due = begun + number_of(record) * 0.03
        until(lambda due=due: monotonic() > due)  # type: ignore[misc]
        if number_of(record) == 39:
            break
    assert [name for name, _ in listener.calls] == ["assigned"]


def test_s44_commits_in_on_lost_fail_without_a_request(cluster: Cluster, members: Members) -> None:
    fill_both(cluster, 100)
    outcome: list[BaseException] = []

    def lost(partitions: Sequence[TopicPartition]) -> None:
        before = cluster.requests()[ApiKey.OFFSET_COMMIT]
        with pytest.raises(CommitFailedError) as caught:
            consumer.commit({partitions[0]: 1})
        outcome.append(caught.value)
        assert cluster.requests()[ApiKey.OFFSET_COMMIT] == before

    consumer = members.make(max_poll_interval_ms=200, commit="manual")
    consumer.subscribe(["t"], on_lost=lost)
    consumer.poll(timeout=PATIENCE)
    until(lambda: consumer.member.state is MemberState.STALE)
    until(lambda: outcome, consumer)


def test_without_a_listener_and_with_nothing_in_hand_partitions_go_at_once(cluster: Cluster, members: Members) -> None:
    fill(cluster, "t", 0, range(10))
    first, second = members.make(max_poll_records=5), members.make()
    first.subscribe(["t"])
    while not first.poll(timeout=0.1):
        pass
    second.subscribe(["t"])
    held = first.assignment()
    # The first polls no more: one of its partitions is in hand, and at most the other can be taken away.
    until(lambda: second.assignment() or first.rebalance_pending, second)
    if not second.assignment():  # the one in hand is to go
        until(lambda: second.assignment(), first, second)
    assert len(held) == 2


def test_allow_rebalance_opens_the_gate(cluster: Cluster, members: Members) -> None:
    fill_both(cluster)
    first, second = members.make(commit="manual"), members.make()
    first.subscribe(["t"])
    first.poll(timeout=PATIENCE)
    second.subscribe(["t"])
    until(lambda: first.rebalance_pending, second)
    assert second.assignment() == []

    def joined() -> bool:
        first.allow_rebalance()
        return len(second.assignment()) == 1

    until(joined, second)


def test_callbacks_in_the_background_need_no_poll(cluster: Cluster, members: Members) -> None:
    fill_both(cluster)
    listener = Listener()
    first, second = members.make(callbacks="background"), members.make()
    first.subscribe(["t"], listener=listener)
    first.poll(timeout=PATIENCE)
    second.subscribe(["t"])
    until(owns(second, 1), second)
    assert len(listener.named("revoked")) == 1


def test_on_rebalance_pending_is_called_while_the_gate_is_closed(cluster: Cluster, members: Members) -> None:
    fill_both(cluster)
    pending = threading.Event()
    first, second = members.make(), members.make()
    first.subscribe(["t"], on_revoked=lambda _: None, on_rebalance_pending=lambda _: pending.set())
    first.poll(timeout=PATIENCE)
    second.subscribe(["t"])
    until(pending.is_set, second)


# -- seeking, waking


def test_seek_to_times_and_ends(cluster: Cluster, members: Members) -> None:
    fill_both(cluster, 100)
    consumer = members.make()
    consumer.subscribe(
        ["t"], on_assigned=lambda _: consumer.seek_to(datetime.fromtimestamp(START_MS / 1000 + 0.09, UTC))
    )
    got = read(consumer, 20)
    assert numbers(got) == {0: list(range(90, 100)), 1: list(range(90, 100))}
    consumer.seek_to("earliest", [("t", 1)])
    assert consumer.position("t", 1) == 0
    consumer.seek_to(timedelta(days=-100_000 / 10))
    consumer.seek_to("latest")
    assert [consumer.position("t", partition) for partition in range(2)] == [100, 100]
    with pytest.raises(ConfigurationError, match="has no time zone"):
        consumer.seek_to(datetime(2026, 1, 1))


def test_wakeup_ends_a_poll_once(cluster: Cluster, members: Members) -> None:
    consumer = members.make()
    consumer.subscribe(["t"])
    threading.Timer(0.05, consumer.wakeup).start()
    with pytest.raises(WakeupError):
        consumer.poll(timeout=PATIENCE)
    assert consumer.poll(timeout=0.01) == []
    consumer.wakeup()
    with pytest.raises(WakeupError):
        next(consumer)


# -- the end


@pytest.mark.parametrize("state", ["joining", "member", "in hand"])
def test_s31_closing_ends_in_time_with_a_silent_coordinator(cluster: Cluster, members: Members, state: str) -> None:
    fill_both(cluster, 100)
    listener = Listener()
    consumer = members.make()
    if state == "joining":
        cluster.add_fault(Mute(), times=None)
    consumer.subscribe(["t"], listener=listener)
    if state == "joining":
        consumer.poll(timeout=0.2)
    else:
        until(owns(consumer, 2), consumer)
        if state == "in hand":
            fill_both(cluster, 100)
            read(consumer, 1)
        cluster.add_fault(Mute(), times=None)
    begun = monotonic()
    consumer.close(timeout=0.5)
    assert monotonic() - begun < 2.5
    cluster.clear_faults()
    assigned = listener.named("assigned")
    assert sorted(listener.named("lost") + listener.named("revoked")) == sorted(assigned)


def test_two_threads_that_read_at_once_are_told_what_to_do(cluster: Cluster, members: Members) -> None:
    """With commit="auto" each would count the other's records as processed. One after the other they may."""
    consumer = members.make()
    consumer.subscribe(["t"])
    until(owns(consumer, 2), consumer)
    reading = threading.Thread(target=suppressed(lambda: consumer.poll(timeout=PATIENCE)))
    reading.start()
    until(lambda: consumer._read_by == reading.ident)
    for read_too in (lambda: consumer.poll(timeout=0.0), lambda: next(iter(consumer))):
        with pytest.raises(GroupError, match=r'while another thread or task reads.*commit="marks"'):
            read_too()
    consumer.wakeup()
    reading.join(PATIENCE)
    fill_both(cluster, 10)
    assert consumer.poll(timeout=PATIENCE)


def test_threads_that_mark_may_read_at_once(cluster: Cluster, members: Members) -> None:
    consumer = members.make(commit="marks")
    consumer.subscribe(["t"])
    until(owns(consumer, 2), consumer)
    threads = [threading.Thread(target=suppressed(lambda: consumer.poll(timeout=PATIENCE))) for _ in range(2)]
    for thread in threads:
        thread.start()
    fill_both(cluster, 10)
    until(lambda: len(consumer.poll(timeout=0.05)) == 0)
    while any(thread.is_alive() for thread in threads):
        consumer.wakeup()
        threads[0].join(0.1)
        threads[1].join(0.1)


def suppressed(act: Callable[[], object]) -> Callable[[], None]:
    """Return a function that ends quietly when `wakeup` ends it."""

    def run() -> None:
        with suppress(WakeupError):
            act()

    return run


def test_s45_telemetry_does_not_hold_up_close(cluster: Cluster, members: Members) -> None:
    """S45 (KIP-714): no broker answers anything, telemetry included, from when the consumer has read."""
    fill_both(cluster, 10)
    consumer = members.make()
    consumer.subscribe(["t"])
    read(consumer, 20)
    cluster.add_fault(Mute(), times=None)
    begun = monotonic()
    consumer.close(timeout=0.5)
    assert monotonic() - begun < 1.5
    cluster.clear_faults()


def test_unsubscribe_gives_everything_back(cluster: Cluster, members: Members) -> None:
    fill_both(cluster, 100)
    listener = Listener()
    consumer = members.make()
    consumer.subscribe(["t"], listener=listener)
    until(owns(consumer, 2), consumer)
    consumer.unsubscribe()
    assert (consumer.assignment(), consumer.subscription()) == ([], None)
    assert sorted(listener.named("revoked")) == [("t", 0), ("t", 1)]
    consumer.subscribe(["t"])
    until(owns(consumer, 2), consumer)


@pytest.mark.slow
def test_s41_threads_that_commit_seek_and_pause_while_the_group_rebalances(cluster: Cluster, members: Members) -> None:
    """kafka-python 1461, 1522, 1623: also while a callback runs, and when the consumer is closed."""
    fill_both(cluster, 500)
    consumer, other = members.make(), members.make()
    stop, failures = threading.Event(), []
    counts: Counter[Callable[[], object]] = Counter()  # each thread has a key of its own

    def let_others_act(name: str, partitions: Sequence[TopicPartition]) -> None:
        before = +counts
        if threads:
            until(lambda: all(counts[act] > before[act] for act in acts if act is not poll))

    threads: list[threading.Thread] = []
    listener = Listener(let_others_act)
    consumer.subscribe(["t"], listener=listener)
    until(owns(consumer, 2), consumer)

    def again(act: Callable[[], object]) -> None:
        while not stop.is_set():
            try:
                with suppress(KwireError):
                    act()
                counts[act] += 1
            except BaseException as error:
                failures.append(error)
                return

    def pause_and_resume() -> None:
        consumer.pause()
        consumer.resume()

    is_settled = threading.Event()
    following: dict[int, int] = {}  # the next number of each partition, once the group has settled
    polls_with_records, polls_before_seek = 0, 0

    def seek() -> None:
        nonlocal polls_before_seek
        if polls_with_records > polls_before_seek:  # else no poll would ever get a record
            polls_before_seek = polls_with_records
            consumer.seek_to("earliest")

    def poll() -> None:
        nonlocal polls_with_records
        is_checked = is_settled.is_set()
        records = consumer.poll(max_records=50, timeout=0.01)
        polls_with_records += bool(records)
        for record in records if is_checked else ():
            number = number_of(record)
            assert number in (0, following.get(record.partition, number)), "neither from a seek nor in order"
            following[record.partition] = number + 1

    acts: list[Callable[[], object]] = [lambda: consumer.commit(timeout=0.2), seek, pause_and_resume, poll]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads += [threading.Thread(target=again, args=(act,)) for act in acts]
        for thread in threads:
            thread.start()
        other.subscribe(["t"])
        until(owns(other, 1), other)
        other.unsubscribe()
        until(owns(consumer, 2))
        is_settled.set()
        until(lambda: failures or (counts.total() >= 10_000 and polls_with_records >= 50))
        consumer.close(timeout=5.0)
        stop.set()
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
    finally:
        stop.set()
        sys.setswitchinterval(interval)
    assert failures == []
    assert {"assigned", "revoked"} <= {name for name, _ in listener.calls}


def test_s17_heartbeats_go_on_while_records_are_processed(cluster: Cluster, members: Members) -> None:
    """aiokafka 678, kafka-python 1896, 2070."""
    fill_both(cluster, 100)
    consumer = members.make()
    consumer.subscribe(["t"])
    until(lambda: consumer.poll(timeout=0.1))
    api = ApiKey.HEARTBEAT if members.protocol == "classic" else ApiKey.CONSUMER_GROUP_HEARTBEAT
    before = cluster.requests()[api]
    until(lambda: consumer.position("t", 0) >= 0 and cluster.requests()[api] > before + 5)


def test_s01_slow_commits_before_a_rebalance_return_nothing_of_what_goes(cluster: Cluster, members: Members) -> None:
    """KAFKA-14196, with a commit that takes its time."""
    fill_both(cluster, 3_000)
    first, second = members.make(max_poll_records=20), members.make()
    first.subscribe(["t"], on_revoked=lambda _: None)
    until(owns(first, 2), first)
    cluster.add_fault(Delay(300), api=ApiKey.OFFSET_COMMIT, times=1)
    second.subscribe(["t"])
    got: list[ConsumerRecord] = []
    while not owns(first, 1)():
        got += first.poll(timeout=0.01)
        second.poll(timeout=0.01)
    (gone,) = {0, 1} - {partition for _, partition in first.assignment()}
    committed = cluster.committed("g").get(("t", gone), 0)
    handed = [number_of(record) for record in got if record.partition == gone]
    assert committed >= (max(handed) + 1 if handed else 0)


def test_no_record_comes_between_the_callbacks_of_a_cooperative_round(cluster: Cluster) -> None:
    """As with Java's consumer, though the commit of on_revoked takes its time and another partition has records."""
    fill_both(cluster, 3_000)
    events: list[str] = []

    def on_revoked(partitions: Sequence[TopicPartition]) -> None:
        events.append("revoked")
        first.commit_async(dict.fromkeys(partitions, 1))

    with ExitStack() as stack:
        members = Members(cluster, "classic", stack)
        first, second = members.make(max_poll_records=20, commit="manual"), members.make()
        first.subscribe(["t"], on_assigned=lambda _: events.append("assigned"), on_revoked=on_revoked)
        until(owns(first, 2), first)
        cluster.add_fault(Delay(300), api=ApiKey.OFFSET_COMMIT, times=1)
        second.subscribe(["t"])
        end = monotonic() + PATIENCE
        while events.count("assigned") < 2:
            assert monotonic() < end, events
            if first.poll(timeout=0.01) and "revoked" in events:
                events.append("records")
            second.poll(timeout=0.01)
    assert events[:3] == ["assigned", "revoked", "assigned"]


def test_a_member_whose_leave_is_lost_on_a_silent_connection_comes_back_at_once(
    cluster: Cluster, members: Members
) -> None:
    """The leave goes out on a second connection; else the group would wait for the old member's session, 45 s."""
    fill_both(cluster, 10)
    consumer = members.make()
    cluster.add_fault(Mute(), api=ApiKey.OFFSET_FETCH, times=1)
    consumer.subscribe(["t"])
    until(owns(consumer, 2), consumer)
    until(lambda: cluster.requests()[ApiKey.OFFSET_FETCH], consumer)
    consumer.unsubscribe()
    consumer.subscribe(["t"])
    assert read(consumer, 20)


@pytest.mark.parametrize("muted", [ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH])
def test_close_leaves_within_its_time_though_the_connection_is_silent(
    cluster: Cluster, members: Members, muted: ApiKey
) -> None:
    fill_both(cluster, 10)
    cluster.add_fault(Mute(), api=muted, times=1)
    first, second = members.make(max_poll_records=3), members.make()
    first.subscribe(["t"])
    if muted is ApiKey.OFFSET_COMMIT:
        read(first, 3)
        first.poll(timeout=0.1)
    else:
        until(lambda: cluster.requests()[muted], first)
    begun = monotonic()
    first.close(timeout=6.0)
    assert monotonic() - begun < 7.0
    second.subscribe(["t"])
    assert len(read(second, 20)) == 20


_COORDINATED = (
    ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP, ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.FIND_COORDINATOR,
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "state", ["joining", "syncing", "in hand", "revoking", "committed offsets", "fenced", "stale", "assigning"]
)
def test_s31_close_returns_in_every_state_with_a_silent_coordinator(
    cluster: Cluster, members: Members, state: str
) -> None:
    """librdkafka 4528, confluent-kafka-python 1667."""
    fill_both(cluster, 100)
    listener = Listener()
    consumer = members.make(max_poll_records=5, max_poll_interval_ms=300 if state == "stale" else 60_000)
    first = {
        "joining": ApiKey.JOIN_GROUP if members.protocol == "classic" else ApiKey.CONSUMER_GROUP_HEARTBEAT,
        "syncing": ApiKey.SYNC_GROUP if members.protocol == "classic" else ApiKey.CONSUMER_GROUP_HEARTBEAT,
        "committed offsets": ApiKey.OFFSET_FETCH,
    }.get(state)
    if first is not None:
        cluster.add_fault(Mute(), api=first, times=None)
    if state == "assigning":
        listener.during = lambda name, partitions: silence()

    def silence() -> None:
        for api in _COORDINATED:
            cluster.add_fault(Mute(), api=api, times=None)

    consumer.subscribe(["t"], listener=listener)
    if first is not None:
        until(lambda: cluster.requests()[first], consumer)
    elif state == "assigning":
        until(lambda: listener.calls, consumer)
    else:
        read(consumer, 5)
    if state == "revoking":
        other = members.make()
        other.subscribe(["t"])
        until(lambda: consumer.rebalance_pending, other)
        silence()
        consumer.poll(timeout=0.05)  # its commit gets no response
        with suppress(KwireError):
            other.close(timeout=0.1)
    elif state == "stale":
        until(lambda: consumer.member.state is MemberState.STALE)
    elif state == "fenced":
        code = ErrorCode.UNKNOWN_MEMBER_ID
        api = ApiKey.HEARTBEAT if members.protocol == "classic" else ApiKey.CONSUMER_GROUP_HEARTBEAT
        cluster.add_fault(Refuse(code), api=api, times=1)
        until(lambda: consumer.member.epoch <= 0)
    silence()
    begun = monotonic()
    consumer.close(timeout=1.5)
    assert monotonic() - begun < 2.5
    given = listener.named("assigned")
    assert sorted(given) == sorted(listener.named("revoked") + listener.named("lost"))
    cluster.clear_faults()


def test_fence_on_session_loss_gives_everything_up_without_a_word_of_the_coordinator() -> None:
    with Cluster(brokers=1, topics={"t": 1}, group_min_session_timeout_ms=100) as cluster:
        cluster.add_fault(Mute(), api=ApiKey.HEARTBEAT, times=None)
        with Consumer(
            cluster.bootstrap, group="g", session_timeout_ms=600, heartbeat_interval_ms=100, fence_on_session_loss=True
        ) as consumer:
            listener = Listener()
            consumer.subscribe(["t"], listener=listener)
            until(lambda: listener.named("lost"), consumer)
            assert listener.named("lost") == [("t", 0)]


async def _coroutine(partitions: object) -> None:
    """Stands for a callback of an asyncio program."""


@pytest.mark.parametrize("name", ["on_assigned", "on_revoked", "on_lost"])
def test_a_coroutine_function_that_no_event_loop_would_run_is_refused(name: str) -> None:
    callback: Any = {name: _coroutine}
    with (
        Consumer("localhost:1", group="g") as consumer,
        pytest.raises(ConfigurationError, match=f"{name} is a coroutine"),
    ):
        consumer.subscribe(["t"], **callback)

    async def main() -> None:
        async with kwire.aio.Consumer("localhost:1", group="g", callbacks="background") as consumer:
            with pytest.raises(ConfigurationError, match='callbacks="background"'):
                await consumer.subscribe(["t"], **callback)

    asyncio.run(main())


def test_s21_no_reset_while_the_committed_offset_has_no_response(cluster: Cluster, members: Members) -> None:
    """kafka-python 2629: a timeout was taken for a missing offset, and the reset policy applied."""
    fill_both(cluster, 100)
    with Consumer(cluster.bootstrap, group="g") as other:
        other.commit({("t", 0): 90, ("t", 1): 90})
    cluster.add_fault(Mute(), api=ApiKey.OFFSET_FETCH, times=None)
    consumer = members.make(request_timeout_ms=300, on_no_offset="latest")
    consumer.subscribe(["t"])
    until(lambda: cluster.requests()[ApiKey.OFFSET_FETCH] >= 3, consumer)
    assert ApiKey.LIST_OFFSETS not in cluster.requests()
    cluster.clear_faults()
    assert numbers(read(consumer, 20)) == {0: list(range(90, 100)), 1: list(range(90, 100))}
    assert ApiKey.LIST_OFFSETS not in cluster.requests()


def test_s22_no_reset_for_a_partition_that_the_response_lacks(
    cluster: Cluster, members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    """platformatic/kafka 267."""
    fill_both(cluster, 100)
    with Consumer(cluster.bootstrap, group="g") as other:
        other.commit({("t", 0): 90, ("t", 1): 90})
    lacking: list[int] = []
    find = offset_fetch._group

    def without_partition_1(*args: Any, **options: Any) -> Any:
        group = find(*args, **options)
        if len(lacking) < 3:
            for topic in group.topics:
                lacking.extend(one.partition_index for one in topic.partitions if one.partition_index == 1)
                topic.partitions = [one for one in topic.partitions if one.partition_index != 1]
        return group

    monkeypatch.setattr(offset_fetch, "_group", without_partition_1)
    consumer = members.make(on_no_offset="latest")
    consumer.subscribe(["t"])
    assert numbers(read(consumer, 20)) == {0: list(range(90, 100)), 1: list(range(90, 100))}
    assert lacking == [1, 1, 1]
    assert ApiKey.LIST_OFFSETS not in cluster.requests()


def test_s34_what_an_old_owner_fetched_is_not_handed_out_nor_committed(cluster: Cluster, members: Members) -> None:
    """franz-go 1.21.6, "two owners": fetched data of an older generation must not come back with the new one."""
    fill_both(cluster, 1_000)
    first = members.make(max_poll_records=10, max_poll_interval_ms=300)
    first.subscribe(["t"])
    stale = read(first, 10)  # and much more is buffered
    until(lambda: first.member.state is MemberState.STALE)
    second = members.make()
    second.subscribe(["t"])
    read(second, 2_000)
    second.commit()
    assert cluster.committed("g") == {("t", 0): 1_000, ("t", 1): 1_000}
    with pytest.raises(CommitFailedError):
        first.commit(stale)
    assert first.poll(timeout=0.05) == []  # joins again
    until(lambda: owns(first, 1)() and owns(second, 1)(), first, second)
    fill_both(cluster, 1)  # numbered 0 again, at offset 1,000
    got = read(first, 1)
    assert [record.offset for record in got] == [1_000]
    assert min(cluster.committed("g").values()) == 1_000


def test_s36_a_partition_that_comes_back_has_one_run_at_a_time(cluster: Cluster, members: Members) -> None:
    """kafkajs 1097: after a rebalance two runs of one partition were under way."""
    fill_both(cluster, 200)
    running: dict[int, int] = {0: 0, 1: 0}
    overlaps: list[int] = []
    done: list[tuple[int, int]] = []
    lock = threading.Lock()

    def handle(record: ConsumerRecord) -> None:
        with lock:
            running[record.partition] += 1
            if running[record.partition] > 1:
                overlaps.append(record.partition)
        threading.Event().wait(0.002)
        with lock:
            running[record.partition] -= 1
            done.append((record.partition, record.offset))

    consumer = members.make()
    consumer.subscribe(["t"])
    processor = consumer.process(handle, order="partition", concurrency=4)
    thread = threading.Thread(target=processor.run)
    thread.start()
    for _ in range(3):
        seen = len(done)
        until(lambda seen=seen: len(done) > seen)  # type: ignore[misc]
        other = members.make()
        other.subscribe(["t"])
        until(lambda other=other: owns(consumer, 1)() and owns(other, 1)(), other)  # type: ignore[misc]
        other.close()
        until(owns(consumer, 2))
    processor.stop()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert overlaps == []


@pytest.mark.parametrize("count", [3])
def test_s19_each_broker_restarts_in_turn_the_coordinator_last(protocol: str, count: int) -> None:
    """aiokafka 1154: alive, but stuck after a broker had restarted."""
    with Cluster(
        brokers=count, topics={"t": 10}, consumer_group_heartbeat_interval_ms=50,
        consumer_group_min_heartbeat_interval_ms=50,
    ) as cluster, ExitStack() as stack:  # fmt: skip
        consumer = Members(cluster, protocol, stack).make()
        consumer.subscribe(["t"])
        until(owns(consumer, 10), consumer)
        seen: set[tuple[int, int]] = set()
        coordinator = cluster.coordinator("g")
        others = [node for node in range(1, count + 1) if node != coordinator]
        for number, node in enumerate([*others, coordinator], 1):
            cluster.stop(node)
            consumer.poll(timeout=0.1)
            cluster.restart(node)
            for partition in range(10):
                fill(cluster, "t", partition, [number])
            end = monotonic() + PATIENCE
            while len(seen) < 10 * number:
                assert monotonic() < end, str(consumer.explain())
                seen |= {(one.partition, one.offset) for one in consumer.poll(timeout=0.1)}
            consumer.commit()
        assert {offset for _, offset in seen} == set(range(count))


# -- asyncio


def test_coroutine_functions_as_callbacks_and_a_rebalance_between_tasks(cluster: Cluster, protocol: str) -> None:
    fill_both(cluster, 200)

    async def main() -> None:
        calls: list[str] = []

        async def assigned(partitions: Sequence[TopicPartition]) -> None:
            await asyncio.sleep(0)
            calls.append("assigned")
            with pytest.raises(GroupError):
                await first.poll()

        async def revoked(partitions: Sequence[TopicPartition]) -> None:
            await first.commit()
            calls.append("revoked")

        options: Any = {"group": "g", "group_protocol": protocol, "max_wait_ms": 20}
        if protocol == "classic":
            options["heartbeat_interval_ms"] = 50
        async with kwire.aio.Consumer(cluster.bootstrap, **options) as first:
            await first.subscribe(["t"], on_assigned=assigned, on_revoked=revoked)
            seen = 0
            async for _ in first:
                seen += 1
                if seen == 400:
                    break
            batch = await first.poll_batch(timeout=0.01)
            await batch.commit()
            assert len(first.assignment()) == 2
            async with kwire.aio.Consumer(cluster.bootstrap, **options) as second:
                await second.subscribe(["t"])
                end = monotonic() + PATIENCE
                while not (len(second.assignment()) == 1 == len(first.assignment())):
                    assert monotonic() < end
                    await asyncio.gather(first.poll(timeout=0.02), second.poll(timeout=0.02))
            assert calls[:2] == ["assigned", "revoked"]
            while len(first.assignment()) < 2:  # during the rebalance the commit of on_revoked would raise
                assert monotonic() < end
                await first.poll(timeout=0.02)
        assert calls[-1] == "revoked"
        assert cluster.committed("g") == {("t", 0): 200, ("t", 1): 200}
        with pytest.raises(ClosedError):
            await first.poll()

    asyncio.run(main())


def test_a_poll_that_is_cancelled_lets_its_callback_end(cluster: Cluster, protocol: str) -> None:
    """Else partitions are read though their state was not loaded, or given away though it was not written out."""
    fill_both(cluster, 100)

    async def main() -> None:
        has_begun, may_end, ended = asyncio.Event(), asyncio.Event(), []

        async def assigned(partitions: Sequence[TopicPartition]) -> None:
            has_begun.set()
            await may_end.wait()
            with pytest.raises(GroupError):
                await consumer.poll()
            consumer.seek_to("latest", partitions)
            ended.append("assigned")

        async def revoked(partitions: Sequence[TopicPartition]) -> None:
            has_begun.set()
            await may_end.wait()
            ended.append("revoked")

        async def cancelled(coroutine: Coroutine[Any, Any, object]) -> None:
            has_begun.clear()
            may_end.clear()
            task = asyncio.create_task(coroutine)
            await asyncio.wait_for(has_begun.wait(), PATIENCE)
            task.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not task.done()
            may_end.set()
            with pytest.raises(asyncio.CancelledError):
                await task

        options: Any = {"group": "g", "group_protocol": protocol, "max_wait_ms": 20}
        async with kwire.aio.Consumer(cluster.bootstrap, **options) as consumer:
            await consumer.subscribe(["t"], on_assigned=assigned, on_revoked=revoked)
            await cancelled(consumer.poll(timeout=PATIENCE))
            assert ended == ["assigned"]
            assert (await consumer.metrics()).callbacks_failed == 0
            assert await consumer.position("t", 0) == 100
            await cancelled(consumer.close())
        assert ended == ["assigned", "revoked"]

    asyncio.run(main())


def test_an_unsubscribe_that_is_cancelled_is_done(cluster: Cluster, protocol: str) -> None:
    """Else the consumer has left its group, and does not know: its polls return nothing for ever."""
    fill_both(cluster, 10)

    async def main() -> None:
        options: Any = {"group": "g", "group_protocol": protocol, "max_wait_ms": 20}
        async with kwire.aio.Consumer(cluster.bootstrap, **options) as consumer:
            await consumer.subscribe(["t"])
            assert await consumer.poll(timeout=PATIENCE)
            task = asyncio.create_task(consumer.unsubscribe())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (consumer.subscription(), consumer.assignment()) == (None, [])
            with pytest.raises(ConfigurationError, match="nothing is assigned"):
                await consumer.poll()
            await consumer.subscribe(["t"])
            assert await consumer.poll(timeout=PATIENCE)

    asyncio.run(main())


def test_s16_in_asyncio_a_member_that_does_not_poll_joins_again(cluster: Cluster, protocol: str) -> None:
    fill_both(cluster, 100)

    async def main() -> None:
        options: Any = {"group": "g", "group_protocol": protocol, "max_poll_interval_ms": 200, "max_poll_records": 10}
        async with kwire.aio.Consumer(cluster.bootstrap, **options) as consumer:
            await consumer.subscribe(["t"])
            await consumer.poll(timeout=PATIENCE)
            await asyncio.to_thread(until, lambda: consumer.member.state is MemberState.STALE)
            got: list[ConsumerRecord] = []
            while len(got) < 200:
                polled = await consumer.poll(timeout=PATIENCE)
                assert polled, str(consumer.explain())
                got += polled
            assert len(got) == 200

    asyncio.run(main())


# -- what it knows


def waits(consumer: Consumer) -> set[str]:
    return {reason.wait.value for reason in consumer.explain().reasons}


def test_s19_explain_names_what_a_consumer_waits_for(cluster: Cluster, members: Members) -> None:
    """aiokafka 1154: users probed private fields to find out why a consumer that lives gets nothing."""
    consumer = members.make(isolation="read_committed", request_timeout_ms=500)
    assert waits(consumer) == {"subscription"}
    cluster.add_fault(Mute(), api=ApiKey.OFFSET_FETCH, times=None)
    consumer.subscribe(["t"])
    until(lambda: "committed offset" in waits(consumer), consumer)
    assert "t-0 t-1" in str(consumer.explain())
    cluster.clear_faults()
    until(lambda: waits(consumer) == {"end"}, consumer)
    with kwire.Producer(cluster.bootstrap, transactional_id="x") as producer:
        producer.begin()
        producer.send("t", b"1", partition=0).result(PATIENCE)
        until(lambda: "transaction" in waits(consumer), consumer)
        consumer.pause([("t", 1)])
        until(lambda: waits(consumer) == {"transaction", "paused"}, consumer)
        producer.commit()
    assert read(consumer, 1)
    cluster.stop(1)
    until(lambda: "unreachable" in waits(consumer), consumer)
    cluster.restart(1)
    until(lambda: "unreachable" not in waits(consumer), consumer)


def test_explain_names_an_unknown_coordinator(cluster: Cluster, members: Members) -> None:
    cluster.add_fault(Refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE), api=ApiKey.FIND_COORDINATOR, times=None)
    consumer = members.make()
    consumer.subscribe(["t"])
    until(lambda: "coordinator" in waits(consumer), consumer)
    assert "COORDINATOR_NOT_AVAILABLE" in str(consumer.explain())
    cluster.clear_faults()
    until(lambda: waits(consumer) == {"end"}, consumer)


def test_explain_of_a_member_without_partitions_and_of_a_closed_gate(cluster: Cluster, members: Members) -> None:
    fill_both(cluster)
    consumers = [members.make(max_poll_records=5), members.make(), members.make()]
    consumers[0].subscribe(["t"], on_revoked=lambda _: None)
    read(consumers[0], 1)
    consumers[1].subscribe(["t"])
    until(lambda: consumers[0].rebalance_pending, consumers[1])
    assert waits(consumers[0]) >= {"rebalance", "buffered"}
    consumers[2].subscribe(["t"])
    until(lambda: any("assignment" in waits(one) for one in consumers), *consumers)


def test_lag_and_metrics(cluster: Cluster, members: Members) -> None:
    fill_both(cluster, 100)
    consumer = members.make(max_poll_records=30)
    consumer.subscribe(["t"])
    got = read(consumer, 30)
    lag = consumer.lag(fresh=True)
    assert sum(one.records for one in lag.values()) == 200 - len(got)
    key = got[0].topic, got[0].partition
    assert lag[key].position + lag[key].records == lag[key].end == 100
    assert (lag[key].seconds or 0) > 86_400  # since START_MS
    read(consumer, 200 - len(got))
    consumer.poll(timeout=0.05)
    assert {one.records for one in consumer.lag().values()} == {0}
    consumer.commit()
    metrics = consumer.metrics()
    assert metrics.records_consumed == 200
    assert (metrics.assigned_partitions, metrics.partitions_assigned, metrics.rebalances) == (2, 2, 1)
    assert metrics.offsets_committed >= 2
    assert metrics.commits_failed == 0
    assert sum(one.records for one in metrics.lag.values()) == 0
    assert consumer.collect_metrics().polls == metrics.polls


def test_metrics_of_the_gate_of_commits_and_of_rebalances(cluster: Cluster, members: Members) -> None:
    fill_both(cluster, 100)
    consumer = members.make()
    consumer.subscribe(["t"])
    assert consumer.metrics().gate_closed_seconds == 0.0
    read(consumer, 1)
    consumer.keep_alive()
    until(lambda: consumer.metrics().gate_closed_seconds > 0.02)
    consumer.commit()
    consumer.allow_rebalance()
    metrics = consumer.metrics()
    assert consumer.metrics().gate_closed_seconds == metrics.gate_closed_seconds
    assert metrics.commit_time.count == 1
    assert metrics.rebalance_time.count == metrics.rebalances == 1
    assert 0.0 < metrics.rebalance_time.mean < PATIENCE
    text = prometheus_text(consumer)
    for name in ("gate_closed_seconds_total", "commit_seconds_count", "rebalance_seconds_count"):
        assert f"kwire_consumer_{name}" in text


def test_a_signal_ends_iterations_and_polls_and_a_second_one_interrupts(cluster: Cluster, members: Members) -> None:
    fill_both(cluster, 10)
    consumer = members.make()
    consumer.subscribe(["t"])
    with kwire.stop_on_signals() as stop:
        timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM))
        for count, _ in enumerate(consumer, 1):
            if count == 20:
                timer.start()
        timer.join()
        assert stop.is_set()
        begun = monotonic()
        assert consumer.poll(timeout=PATIENCE) == []
        assert monotonic() - begun < 5.0
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    fill_both(cluster, 10)
    assert read(consumer, 1)
