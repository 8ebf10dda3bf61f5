"""Scenarios of fetching that have broken other clients, each named by its number in the project's list."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from typing import Any
from uuid import UUID

import pytest

from kwire import Cluster as ClientCluster
from kwire import Consumer
from kwire.broker import Cluster, Mute, Refuse
from kwire.consumer.buffer import CompletedFetch, PositionResolved
from kwire.consumer.offsets import COMMITTED, Offset
from kwire.errors import (
    AuthorizationError,
    CorruptRecordsError,
    ErrorCode,
    KwireError,
    LogTruncationError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
)
from kwire.protocol import ApiKey
from kwire.protocol.messages.fetch import FetchRequest
from kwire.protocol.messages.list_offsets import EARLIEST
from kwire.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kwire.records import Compression, encode_batch
from kwire.wire.checksums import crc32c
from tests.cluster.snapshots import snapshot
from tests.consumer.embedded import append, fill, numbers, read
from tests.consumer.world import Sent, World, at_epoch, batch
from tests.waiting import wait_until

T0, T1, T2 = ("t", 0), ("t", 1), ("t", 2)
LEADERS = [(1, 7), (1, 7), (2, 7)]


def elect(world: World, leader: int = 1, epoch: int = 8) -> None:
    """Give partition 0 another leader, or the same in another epoch."""
    world.view.snapshot = snapshot({"t": [(leader, epoch), *LEADERS[1:]]})


def world_behind_records(**options: Any) -> World:
    """A world in which offsets 5 to 9 of partition 0 were read, written by leader epoch 7."""
    world = World(**options)
    world.assign(("t", 0, 5))
    world.turn_one().respond_fetch({T0: at_epoch(batch(5, b"a", b"b", b"c", b"d", b"e"), 7)})
    assert world.read() == {T0: [b"a", b"b", b"c", b"d", b"e"]}
    return world


def validation(world: World) -> Sent:
    sent = world.turn_one()
    assert isinstance(sent.request, OffsetForLeaderEpochRequest)
    return sent


# -- truncation (KIP-320)


def test_f01_a_validation_during_a_fetch_in_flight_causes_no_duplicates() -> None:
    world = world_behind_records()
    fetch = world.turn_one()
    elect(world)
    sent = validation(world)
    assert sent.epochs == {T0: (8, 7)}
    fetch.respond_fetch({T0: at_epoch(batch(10, b"f"), 7)})
    assert world.turn() == [], "nothing is fetched during the validation"
    sent.respond_epoch_ends({T0: (7, 10)})
    sent = world.turn_one()
    assert sent.offsets == {T0: 10}
    sent.respond_fetch({T0: at_epoch(batch(10, b"f"), 8)})
    assert world.read() == {T0: [b"f"]}


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH,
                                  ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_NOT_AVAILABLE,
                                  ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])  # fmt: skip
def test_f02_a_validation_that_fails_again_and_again_backs_off_and_then_flows(code: ErrorCode) -> None:
    world = world_behind_records()
    world.turn_one().respond_fetch()
    elect(world)
    sent = validation(world)
    began = world.now
    for _ in range(100):
        sent.respond_epoch_ends(codes={T0: code})
        assert world.turn() == []
        (sent,) = world.until_deadline()
    assert world.now - began > 80, "pauses of up to a second"
    assert world.view.refreshes
    sent.respond_epoch_ends({T0: (7, 10)})
    assert world.turn_one().offsets == {T0: 10}


def test_f03_a_permanent_error_of_a_validation_is_raised_and_never_resets_the_position() -> None:
    world = world_behind_records(on_out_of_range="earliest")
    world.turn_one().respond_fetch()
    elect(world)
    validation(world).respond_epoch_ends(codes={T0: ErrorCode.TOPIC_AUTHORIZATION_FAILED})
    assert world.turn() == []
    world.read()
    assert isinstance(world.failures[1], AuthorizationError)
    assert world.buffers[1].position == 10


def test_f03_an_unknown_error_of_a_validation_is_retried() -> None:
    world = world_behind_records(on_out_of_range="earliest")
    world.turn_one().respond_fetch()
    elect(world)
    validation(world).respond_epoch_ends(codes={T0: ErrorCode.UNKNOWN_SERVER_ERROR})
    (sent,) = world.until_deadline()
    sent.respond_epoch_ends({T0: (7, 10)})
    assert world.turn_one().offsets == {T0: 10}


def test_f04_the_end_of_a_validation_is_followed_by_a_fetch_without_delay() -> None:
    world = world_behind_records()
    world.turn_one().respond_fetch()
    elect(world, leader=3)
    validation(world).respond_epoch_ends({T0: (7, 10)})
    sent = world.turn_one(seconds=0.0)
    assert (sent.node, sent.offsets) == (3, {T0: 10})


def test_f04_a_poll_without_timeout_gets_records_of_the_new_leader() -> None:
    with Cluster(brokers=3, topics={"t": 1}) as cluster, Consumer(cluster.bootstrap) as consumer:
        fill(cluster, "t", 0, range(10))
        consumer.assign([("t", 0, 0)])
        assert len(read(consumer, 10)) == 10
        cluster.add_fault(
            Refuse(ErrorCode.UNKNOWN_LEADER_EPOCH), api=ApiKey.OFFSET_FOR_LEADER_EPOCH, topic="t", times=2
        )
        got: list[Any] = []
        reader = threading.Thread(target=lambda: got.extend(consumer.poll(timeout=None)))
        reader.start()
        cluster.move_leader("t", 0, next(node for node in cluster.brokers if node != cluster.leader("t")))
        fill(cluster, "t", 0, range(10, 12))
        reader.join(30.0)
        assert [record.offset for record in got] == [10, 11]
        assert cluster.requests()[ApiKey.OFFSET_FOR_LEADER_EPOCH] > 2


def unclean(cluster: Cluster) -> None:
    """Let offsets 0 to 99 be read by anyone, and then lose 50 to 99 in an unclean election."""
    fill(cluster, "t", 0, range(50), batch_size=10)
    leader = cluster.leader("t")
    (follower,) = set(cluster.brokers) - {leader}
    cluster.stop(follower)
    fill(cluster, "t", 0, range(50, 100), batch_size=10)


def lose(cluster: Cluster) -> None:
    leader = cluster.leader("t")
    (follower,) = set(cluster.brokers) - {leader}
    cluster.stop(leader)
    cluster.restart(follower)
    fill(cluster, "t", 0, range(1_000, 1_100), batch_size=10)


def unclean_cluster() -> Cluster:
    return Cluster(brokers=2, topics={"t": 1}, topic_configs={"unclean.leader.election.enable": "true"})


def test_f05_an_unclean_election_is_an_error_with_the_offset_at_which_the_logs_part() -> None:
    with unclean_cluster() as cluster, Consumer(cluster.bootstrap) as consumer:
        unclean(cluster)
        consumer.assign([("t", 0, 0)])
        assert len(read(consumer, 100)) == 100
        lose(cluster)
        with pytest.raises(LogTruncationError) as caught:
            consumer.poll(timeout=30.0)
        assert caught.value.divergent_offset == 50
        assert caught.value.where["offset"] == 100
        consumer.seek("t", 0, 50)
        assert numbers(read(consumer, 100)) == {0: list(range(1_000, 1_100))}


@pytest.mark.parametrize("policy", ["earliest", "latest", "nearest"])
def test_f05_with_a_policy_reading_continues_where_the_logs_part(policy: Any) -> None:
    with unclean_cluster() as cluster, Consumer(cluster.bootstrap, on_out_of_range=policy) as consumer:
        unclean(cluster)
        consumer.assign([("t", 0, 0)])
        assert len(read(consumer, 100)) == 100
        lose(cluster)
        assert numbers(read(consumer, 100)) == {0: list(range(1_000, 1_100))}


def test_f05_a_diverging_epoch_in_a_fetch_response_is_truncation() -> None:
    world = world_behind_records()
    sent = world.turn_one()
    assert sent.partitions[T0].last_fetched_epoch == 7
    sent.respond_fetch(diverging={T0: (7, 8)})
    world.read()
    error = world.failures[1]
    assert isinstance(error, LogTruncationError)
    assert error.divergent_offset == 8


@pytest.mark.parametrize("end", [(-1, -1), (7, 8)])
def test_f05_what_a_leader_does_not_know_is_truncation(end: tuple[int, int]) -> None:
    world = world_behind_records()
    world.turn_one().respond_fetch()
    elect(world)
    validation(world).respond_epoch_ends({T0: end})
    world.read()
    error = world.failures[1]
    assert isinstance(error, LogTruncationError)
    assert error.divergent_offset == (8 if end[0] >= 0 else None)


def test_f05_without_any_common_part_the_policy_says_where_to_go() -> None:
    world = world_behind_records(on_out_of_range="earliest")
    world.turn_one().respond_fetch()
    elect(world)
    validation(world).respond_epoch_ends()
    sent = world.turn_one()
    assert sent.timestamps == {T0: EARLIEST}
    sent.respond_offsets({T0: 3})
    assert world.turn_one().partitions[T0].last_fetched_epoch == -1


def test_a_committed_epoch_is_validated_before_the_first_fetch() -> None:
    world = World()
    world.assign(("t", 0, COMMITTED))
    assert world.turn() == []
    world.committed.complete(T0, Offset(10, 6))
    sent = validation(world)
    assert sent.epochs == {T0: (7, 6)}
    sent.respond_epoch_ends({T0: (6, 12)})
    sent = world.turn_one()
    assert (sent.offsets, sent.partitions[T0].last_fetched_epoch) == ({T0: 10}, 6)


def test_a_leader_older_than_the_committed_epoch_is_not_fetched_from() -> None:
    world = World()
    world.assign(("t", 0, Offset(10, 9)))
    assert world.turn() == []
    assert world.view.refreshes
    elect(world, leader=2, epoch=9)
    assert validation(world).epochs == {T0: (9, 9)}


def test_metadata_that_stays_older_than_the_committed_epoch_is_waited_for_in_bounded_time() -> None:
    world = World()
    world.assign(("t", 0, Offset(10, 9)))
    assert world.turn() == []
    (sent,) = world.until_deadline()
    assert world.now == 130.0
    assert sent.epochs == {T0: (7, 9)}


def test_a_broker_that_cannot_validate_is_fetched_from() -> None:
    world = world_behind_records()
    world.turn_one().respond_fetch()
    world.view.versions[OffsetForLeaderEpochRequest] = 2
    elect(world)
    assert world.turn() == []
    assert world.fetcher.deadline() == world.now, "at once"
    assert world.turn_one().offsets == {T0: 10}


def test_a_seek_ends_a_validation() -> None:
    world = world_behind_records()
    world.turn_one().respond_fetch()
    elect(world)
    validating = validation(world)
    world.fetcher.seek(world.start("t", 0, 3))
    sent = world.turn_one()
    assert sent.offsets == {T0: 3}
    validating.respond_epoch_ends({T0: (7, 8)})
    sent.respond_fetch({T0: batch(3, b"x")})
    assert world.read() == {T0: [b"x"]}


def test_a_position_out_of_range_is_validated_first() -> None:
    world = world_behind_records()
    world.turn_one().respond_fetch(codes={T0: ErrorCode.OFFSET_OUT_OF_RANGE})
    sent = validation(world)
    sent.respond_epoch_ends({T0: (7, 8)})
    world.read()
    assert isinstance(world.failures[1], LogTruncationError)


# -- out of range


@pytest.mark.parametrize("policy", ["earliest", "error"])
def test_f06_a_follower_out_of_range_leads_to_one_fetch_of_the_leader(policy: Any) -> None:
    world = World(rack="r1", on_out_of_range=policy)
    world.assign(("t", 0, 5))
    world.turn_one().respond_fetch(preferred=3)
    requests = []
    follower = world.turn_one()
    assert follower.node == 3
    follower.respond_fetch(codes={T0: ErrorCode.OFFSET_OUT_OF_RANGE})
    for _ in range(10):
        sent = world.turn_one()
        requests.append(sent.node)
        if isinstance(sent.request, FetchRequest):
            sent.respond_fetch(codes={T0: ErrorCode.OFFSET_OUT_OF_RANGE})
        else:
            sent.respond_offsets({T0: 8})
            break
    assert requests == [1, 1], "the leader's word counts, and then the policy"


def test_s23_an_error_response_without_a_log_start_leaves_the_position() -> None:
    world = World()
    world.assign(("t", 0, 5))
    world.turn_one().respond_fetch(codes={T0: ErrorCode.NOT_LEADER_OR_FOLLOWER}, high_watermark=-1)
    assert world.turn() == []
    (sent,) = world.until_deadline()
    assert sent.offsets == {T0: 5}
    assert world.fetch_buffer.watermarks == {}


def test_s43_a_policy_that_leads_out_of_range_again_backs_off_and_ends_in_an_error() -> None:
    world = World(on_out_of_range="earliest")
    world.assign(("t", 0, 5))
    began = world.now
    for attempt in range(3):
        sent = world.turn_one() if attempt < 2 else world.until_deadline()[0]
        sent.respond_fetch(codes={T0: ErrorCode.OFFSET_OUT_OF_RANGE})
        if attempt < 2:
            world.turn_one().respond_offsets({T0: 8})
            if attempt:
                assert world.turn() == []
    assert world.turn() == []
    world.read()
    assert isinstance(world.failures[1], OffsetOutOfRangeError)
    assert world.now > began


@pytest.mark.parametrize("policy", ["error", "earliest"])
def test_s49_a_topic_that_was_created_again_has_another_log(policy: Any) -> None:
    with (
        Cluster(topics={"t": 1}) as cluster,
        Consumer(cluster.bootstrap, on_out_of_range=policy, metadata_max_age_ms=100) as consumer,
    ):
        fill(cluster, "t", 0, range(10))
        consumer.assign([("t", 0, 0)])
        assert len(read(consumer, 10)) == 10
        cluster.delete_topic("t")
        cluster.create_topic("t", 1)
        fill(cluster, "t", 0, range(100, 120))
        if policy == "error":
            with pytest.raises(OffsetOutOfRangeError, match="created again"):
                consumer.poll(timeout=30.0)
        else:
            assert numbers(read(consumer, 20)) == {0: list(range(100, 120))}


def test_s49_the_epochs_of_the_old_topic_do_not_count_for_the_new() -> None:
    world = world_behind_records(on_out_of_range="earliest")
    world.turn_one().respond_fetch()
    world.view.snapshot = snapshot({"t": [(1, 0)]}, ids={"t": UUID(int=77)})
    assert world.turn() == []
    assert world.fetcher.deadline() == world.now, "at once"
    sent = world.turn_one()
    assert sent.timestamps == {T0: EARLIEST}
    sent.respond_offsets({T0: 0})
    sent = world.turn_one()
    assert (sent.offsets, sent.partitions[T0].current_leader_epoch) == ({T0: 0}, 0)


def test_s49_in_a_group_a_topic_that_was_created_again_is_read_from_where_on_no_offset_says() -> None:
    world = World(on_no_offset="earliest")
    world.fetcher.add([world.start("t", 0, 5)])
    world.turn_one().respond_fetch()
    world.view.snapshot = snapshot({"t": [(1, 0)]}, ids={"t": UUID(int=77)})
    assert world.turn() == []
    sent = world.turn_one()
    assert sent.timestamps == {T0: EARLIEST}
    sent.respond_offsets({T0: 0})
    assert world.turn_one().offsets == {T0: 0}
    assert world.failures == {}


@pytest.mark.parametrize("start", [5, "latest"])
def test_in_a_group_an_unknown_topic_is_waited_for(start: Any) -> None:
    world = World(unknown_topic_timeout_ms=1_000)
    world.fetcher.add([world.start("t", 0, start)])
    for _ in range(10):
        for sent in world.turn(1.0):
            if isinstance(sent.request, FetchRequest):
                sent.respond_fetch(codes={T0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
            else:
                sent.respond_offsets({}, codes={T0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
    assert world.read() == {}
    assert world.failures == {}
    assert world.turn(2.0), "it sends another request"


# -- buffers


def test_f07_partitions_paused_and_resumed_in_turn_fetch_no_byte_twice() -> None:
    world = World({"t": [(1, 7)] * 16})
    world.assign(*(("t", index, 0) for index in range(16)))
    served = {("t", index): 0 for index in range(16)}
    read: dict[tuple[str, int], list[bytes | None]] = {}
    for turn in range(48):
        world.fetcher.set_paused(list(served), True)
        world.fetcher.set_paused([("t", turn % 16)], False)
        sent = world.turn_one()
        wanted = {key: served[key] for key in sent.offsets}
        assert sent.offsets == wanted, "each fetch continues where the last one ended"
        sent.respond_fetch({key: batch(offset, b"%d" % offset) for key, offset in wanted.items()})
        for key in wanted:
            served[key] += 1
    for key, values in world.read().items():
        read[key] = values
    assert read == {key: [b"%d" % offset for offset in range(count)] for key, count in served.items()}


def test_s32_resuming_twice_leaves_the_position() -> None:
    with Cluster(topics={"t": 1}) as cluster, Consumer(cluster.bootstrap) as consumer:
        fill(cluster, "t", 0, range(100), batch_size=7)
        consumer.assign([("t", 0, 0)])
        first = consumer.poll(max_records=30, timeout=10.0)
        consumer.resume([("t", 0)])
        consumer.resume([("t", 0)])
        assert consumer.position("t", 0) == len(first)
        assert [one.offset for one in read(consumer, 100 - len(first))] == list(range(len(first), 100))


def test_paused_data_beyond_the_limit_is_dropped_and_fetched_again() -> None:
    with (
        Cluster(brokers=1, topics={"t": 8}) as cluster,
        Consumer(cluster.bootstrap, max_buffered_bytes=200_000, partition_max_bytes=50_000) as consumer,
    ):
        for partition in range(8):
            fill(cluster, "t", partition, range(1_000), padding=50)
        consumer.assign([("t", partition, 0) for partition in range(8)])
        halves = [[("t", partition) for partition in range(first, 8, 2)] for first in (0, 1)]
        got = read(consumer, 1)
        for turn in range(20):
            consumer.pause(halves[turn % 2])
            got += consumer.poll(max_records=50, timeout=10.0)
            consumer.pause(halves[1 - turn % 2])
            consumer.resume(halves[1 - turn % 2])
            consumer.resume(halves[turn % 2])
        got += read(consumer, 8_000 - len(got))
        assert numbers(got) == {partition: list(range(1_000)) for partition in range(8)}


def test_f08_compacted_last_offsets_leave_no_lag() -> None:
    data = bytearray(at_epoch(batch(5, b"a", b"b"), 7))
    data[23:27] = (9).to_bytes(4, "big")  # the last offset delta stays when the last records are compacted away
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    world = World()
    world.assign(("t", 0, 5))
    world.turn_one().respond_fetch({T0: bytes(data)}, high_watermark=15)
    assert world.turn_one().offsets == {T0: 15}
    assert world.read() == {T0: [b"a", b"b"]}
    assert world.buffers[1].position == 15 == world.fetch_buffer.watermarks[1].high_watermark


def test_f09_a_batch_above_every_limit_arrives_whole() -> None:
    with (
        Cluster(topics={"t": 1}) as cluster,
        Consumer(cluster.bootstrap, max_bytes=100, partition_max_bytes=50, max_buffered_bytes=100) as consumer,
    ):
        fill(cluster, "t", 0, range(10), batch_size=5, padding=1_000)
        consumer.assign([("t", 0, 0)])
        assert numbers(read(consumer, 10)) == {0: list(range(10))}


def test_f10_before_kip_74_the_limit_grows_to_the_batch_or_the_error_has_its_size() -> None:
    for size, limit in [(5_000, 100 * 1024 * 1024), (2 * 1024 * 1024, 1024 * 1024)]:
        world = World(partition_max_bytes=1_000, max_frame_bytes=limit)
        world.view.versions[FetchRequest] = 2
        world.assign(("t", 0, 0))
        data = batch(0, b"v" * size, magic=1)
        values: list[bytes | None] = []
        for _ in range(20):
            sent = next(iter(world.turn()), None)
            if sent is None:
                break
            sent.respond_fetch({T0: data[: sent.partitions[T0].partition_max_bytes]})
            values = world.read().get(T0, [])
            if values:
                break
        if size < limit:
            assert (world.failures, values) == ({}, [b"v" * size])
        else:
            error = world.failures[1]
            assert isinstance(error, RecordTooLargeError)
            assert f"{len(data)} bytes" in str(error)


@pytest.mark.parametrize("records", [b"", None])
def test_f11_a_response_without_records_leaves_the_position(records: Any) -> None:
    world = World()
    world.assign(("t", 0, 5))
    for _ in range(3):
        sent = world.turn_one()
        assert sent.offsets == {T0: 5}
        sent.respond_fetch({T0: records})
    assert world.read() == {}
    assert world.failures == {}


def test_f12_records_before_the_position_are_skipped() -> None:
    world = World()
    world.assign(("t", 0, 7))
    world.turn_one().respond_fetch({T0: batch(5, b"a", b"b", b"c", b"d")})
    assert world.read() == {T0: [b"c", b"d"]}
    assert world.turn_one().offsets == {T0: 9}


def test_f13_a_throttled_client_sends_the_next_fetch_after_the_throttle_time() -> None:
    world = World()
    world.assign(("t", 0, 5), ("t", 2, 5))
    first, other = world.turn()
    first.respond_fetch(throttle_time_ms=700)
    assert world.turn(0.5) == []
    (again,) = world.until_deadline()
    assert (again.node, world.now) == (1, 100.7)
    other.respond_fetch()
    assert world.turn_one().node == 2, "another broker throttles for itself"


def test_f13_reading_under_a_quota_brings_every_record_at_its_rate() -> None:
    with (
        Cluster(brokers=1, topics={"t": 1}, fetch_quota_bytes_per_second=20_000) as cluster,
        Consumer(cluster.bootstrap, partition_max_bytes=100_000, max_wait_ms=10) as consumer,
    ):
        fill(cluster, "t", 0, range(300), batch_size=100, padding=800)
        consumer.assign([("t", 0, 0)])
        assert numbers(read(consumer, 200, max_records=200)) == {0: list(range(200))}
        before = cluster.requests()[ApiKey.FETCH]
        assert consumer.poll(timeout=0.5) == []
        assert cluster.requests()[ApiKey.FETCH] - before <= 1, "it waits as long as the response said"


def test_f14_one_hot_partition_among_5_000_costs_requests_that_name_it_alone() -> None:
    world = World({"t": [(1, 7)] * 5_000})
    world.assign(*(("t", index, 0) for index in range(5_000)))
    full = world.turn_one()
    assert len(full.partitions) == 5_000
    full.respond_fetch({T0: batch(0, b"x")}, session_id=9)
    for offset in range(1, 20):
        sent = world.turn_one()
        assert sent.offsets == {T0: offset}
        assert len(sent.request.encode(18)) < 120
        sent.respond_fetch({T0: batch(offset, b"x")}, session_id=9)
    assert len(world.read()[T0]) == 20


def test_f15_a_step_of_the_wall_clock_changes_nothing() -> None:
    world = World()
    world.wall_offset_ms = -3_600_000
    world.assign(("t", 0, 5))
    world.turn_one().respond_fetch(codes={T0: ErrorCode.LEADER_NOT_AVAILABLE})
    world.wall_offset_ms = 3_600_000
    assert world.turn() == []
    (sent,) = world.until_deadline()
    assert world.now < 100.2
    sent.respond_fetch({T0: batch(5, b"a")})
    assert world.read() == {T0: [b"a"]}


# -- sessions and memory


def test_an_idle_poll_of_1_000_partitions_takes_about_60_bytes() -> None:
    """All fields of an empty incremental request have a fixed size, so every client's takes as many bytes."""
    world = World({"t": [(1, 7)] * 1_000})
    world.assign(*(("t", index, 0) for index in range(1_000)))
    full = world.turn_one()
    full.respond_fetch(session_id=9)
    idle = world.turn_one()
    assert len(full.request.encode(18)) > 30_000
    assert (idle.offsets, idle.request.session_id, idle.request.session_epoch) == ({}, 9, 1)
    assert len(idle.request.encode(18)) == 25, "without the header, which has the client id"


def test_a_session_error_is_followed_by_a_full_request_at_once() -> None:
    world = World()
    world.assign(("t", 0, 5), ("t", 1, 6))
    world.turn_one().respond_fetch(session_id=9)
    world.turn_one().respond_fetch(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    sent = world.turn_one()
    assert (sent.request.session_id, sent.request.session_epoch, sent.offsets) == (0, 0, {T0: 5, T1: 6})
    sent.respond_fetch(session_id=10)
    world.turn_one().respond_fetch(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    sent = world.turn_one()
    assert (sent.request.session_id, sent.request.session_epoch) == (10, 0), "which ends that session"


def test_a_broker_that_returns_session_errors_to_full_requests_gets_them_with_backoff() -> None:
    world = World()
    world.assign(("t", 0, 5))
    world.turn_one().respond_fetch(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert world.turn() == []
    assert world.until_deadline()[0].offsets == {T0: 5}


def test_a_paused_partition_is_forgotten_in_the_session_and_added_when_resumed() -> None:
    world = World()
    world.assign(("t", 0, 5), ("t", 1, 6))
    world.turn_one().respond_fetch(session_id=9)
    world.fetcher.set_paused([T0], True)
    sent = world.turn_one()
    assert [topic.partitions for topic in sent.request.forgotten_topics_data] == [[0]]
    sent.respond(_nothing(9))
    world.fetcher.set_paused([T0], False)
    assert world.turn_one().offsets == {T0: 5}


def test_a_partition_that_moves_is_forgotten_at_its_old_leader() -> None:
    world = World()
    world.assign(("t", 0, 5), ("t", 1, 6), ("t", 2, 7))
    for sent in world.turn():
        sent.respond_fetch(session_id=9)
    elect(world, leader=2)
    old, new = sorted(world.turn(), key=lambda sent: sent.node)
    assert [topic.partitions for topic in old.request.forgotten_topics_data] == [[0]]
    assert new.offsets == {T0: 5}


def test_closing_ends_each_session_once_and_fetches_no_more() -> None:
    """KIP-227: a broker has room for 1,000 sessions, and keeps one that nobody uses for two minutes."""
    world = World()
    world.assign(("t", 0, 5), ("t", 1, 6), ("t", 2, 7))
    first, second = sorted(world.turn(), key=lambda sent: sent.node)
    first.respond_fetch(session_id=9)
    waiting = world.turn_one()  # it may wait at the broker for long
    second.respond_fetch(session_id=0)  # that broker has no room
    done: list[str] = []
    world.fetcher.end_sessions(lambda: done.append("written"))
    (last,) = world.turn()
    assert (last.node, last.request.session_id, last.request.session_epoch) == (waiting.node, 9, -1)
    assert (last.offsets, last.request.max_wait_ms, done) == ({}, 0, ["written"])
    waiting.respond(_nothing(9))
    last.respond(_nothing(0))
    assert world.turn(1.0) == []


@pytest.mark.parametrize("how", ["assign", "classic", "consumer", "shared"])
def test_a_closed_consumer_leaves_no_session_at_any_broker(how: str) -> None:
    with Cluster(brokers=3, topics={"t": 6}) as cluster, ExitStack() as ending:

        def sessions() -> int:
            counted: int = cluster.call(
                lambda state, now: sum(len(one.sessions) for one in state.fetch_sessions.values())
            )
            return counted

        where = ending.enter_context(ClientCluster(cluster.bootstrap)) if how == "shared" else cluster.bootstrap
        options: Any = {"group_protocol": how} if how in ("classic", "consumer") else {}
        # The buffers are full, so no fetch waits at a broker: the embedded one drops what is behind it.
        with Consumer(where, group="g", partition_max_bytes=100, **options) as consumer:
            for partition in range(6):
                fill(cluster, "t", partition, range(100), batch_size=10)
            if how == "assign":
                consumer.assign([("t", partition, 0) for partition in range(6)])
            else:
                consumer.subscribe(["t"])
            assert len(read(consumer, 1)) == 1
            wait_until(lambda: sessions() == 3)
            wait_until(lambda: not consumer._fetcher._in_flight)
        wait_until(lambda: sessions() == 0)


def test_closing_waits_for_no_broker_that_is_silent() -> None:
    with Cluster(brokers=1, topics={"t": 1}) as cluster:
        consumer = Consumer(cluster.bootstrap)
        fill(cluster, "t", 0, range(10))
        consumer.assign([("t", 0, 0)])
        assert len(read(consumer, 10)) == 10
        cluster.add_fault(Mute(), api=ApiKey.FETCH, times=1_000)
        began = time.monotonic()
        consumer.close()
        assert time.monotonic() - began < 20.0, "close has 30 s, and needs none of them"


def test_a_slow_reader_does_not_churn_the_session() -> None:
    """KAFKA-17182: leaving out and adding again a partition with buffered data evicts small sessions elsewhere."""
    world = World(partition_max_bytes=500, max_bytes=2_000)
    world.assign(("t", 0, 0), ("t", 1, 0))
    world.turn_one().respond_fetch(session_id=9)
    offset = 0
    for _ in range(50):
        for _ in range(2):
            sent = world.turn_one()
            assert sent.request.forgotten_topics_data == []
            data = FetchData(T0, batch(offset, b"v" * 500))
            sent.respond(data.response(world, 9))
            offset += 1
        assert world.turn(0.01) == [], "the reader has enough to do"
        world.read()


def test_a_decompression_bomb_is_an_error_of_its_partition() -> None:
    bomb = encode_batch([(1_000, None, bytes(1_000_000), ())], compression=Compression.GZIP)
    assert len(bomb) < 2_000
    with Cluster(topics={"t": 1}) as cluster, Consumer(cluster.bootstrap, max_decompressed_bytes=100_000) as consumer:
        append(cluster, "t", 0, bomb)
        consumer.assign([("t", 0, 0)])
        with pytest.raises(CorruptRecordsError, match="more than 100000 bytes"):
            consumer.poll(timeout=10.0)
        assert consumer.position("t", 0) == 0


def test_a_fetch_has_what_the_lag_needs() -> None:
    world = World(isolation="read_committed")
    world.assign(("t", 0, 5))
    world.turn_one().respond_fetch({T0: batch(5, b"a")}, high_watermark=20)
    (item,) = world.posted()
    assert isinstance(item, CompletedFetch)
    assert item.watermarks is not None
    assert item.watermarks.high_watermark == 20
    world.turn_one().respond_fetch(high_watermark=30)
    assert world.fetch_buffer.watermarks[1].high_watermark == 30, "also without records"
    world.fetcher.remove([T0])
    assert world.fetch_buffer.watermarks == {}


def test_the_high_watermark_of_a_follower_does_not_lower_the_leaders() -> None:
    world = World(rack="r1")
    world.assign(("t", 0, 5))
    world.turn_one().respond_fetch(high_watermark=20, preferred=3)
    sent = world.turn_one()
    assert sent.node == 3
    sent.respond_fetch(high_watermark=18)
    assert world.fetch_buffer.watermarks[1].high_watermark == 20


def test_a_position_moved_back_is_posted() -> None:
    world = world_behind_records(on_out_of_range="latest")
    world.turn_one().respond_fetch(diverging={T0: (7, 8)})
    (item,) = world.posted()
    assert isinstance(item, PositionResolved)
    assert item.offset == 8
    assert world.turn_one().offsets == {T0: 8}


def test_reading_near_the_clients_rack() -> None:
    with Cluster(brokers=3, racks=["a", "b", "c"], topics={"t": 1}, replica_selector="rack") as cluster:
        leader = cluster.leader("t")
        rack = "abc"[leader % 3]
        with Consumer(cluster.bootstrap, rack=rack) as consumer:
            fill(cluster, "t", 0, range(100))
            consumer.assign([("t", 0, 0)])
            assert numbers(read(consumer, 100)) == {0: list(range(100))}
            near = leader % 3 + 1
            sessions = cluster.call(lambda state, now: len(state.fetch_sessions[near].sessions))
            assert sessions == 1, "the follower served it"
            cluster.stop(near)
            fill(cluster, "t", 0, range(100, 150))
            assert numbers(read(consumer, 50)) == {0: list(range(100, 150))}


def _nothing(session_id: int) -> Any:
    from kwire.protocol.messages.fetch import FetchResponse

    return FetchResponse(session_id=session_id, responses=[])


class FetchData:
    """An incremental response with one partition that the request did not name."""

    def __init__(self, key: tuple[str, int], records: bytes) -> None:
        self._key = key
        self._records = records

    def response(self, world: World, session_id: int) -> Any:
        response = _nothing(session_id)
        topic_id = world.view.snapshot.topics[self._key[0]].id
        partition = type(response).Topic.Partition(
            partition_index=self._key[1], error_code=0, high_watermark=1_000, records=self._records
        )
        response.responses = [type(response).Topic(topic_id=topic_id, partitions=[partition])]
        return response


def test_every_error_names_its_place() -> None:
    world = world_behind_records()
    world.turn_one().respond_fetch(diverging={T0: (7, 8)})
    world.read()
    error: KwireError = world.failures[1]
    assert error.where == {"topic": "t", "partition": 0, "offset": 10}
    assert "offsets 8 to 9, which leader epoch 7 wrote" in str(error)
