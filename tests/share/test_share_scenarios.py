"""The scenarios H01 to H12: what went wrong in other share consumers. On virtual time, against the embedded broker."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest

from kwire.broker.faults import Delay, Disconnect, Fault, Mute, Refuse
from kwire.errors import (
    AcknowledgeError,
    BrokerError,
    DisconnectedError,
    ErrorCode,
    KwireError,
    LockLostError,
)
from kwire.protocol import ApiKey
from kwire.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from kwire.protocol.messages.share_fetch import ShareFetchRequest
from kwire.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from kwire.records import decode_batches, encode_batch
from kwire.records.v2 import encode_v2
from tests.share.virtual import VirtualCluster

LOCK_SECONDS = 30


class Results:
    """Collects what `on_acknowledged` gets: offset -> errors, in order."""

    def __init__(self) -> None:
        self.by_offset: dict[tuple[str, int, int], list[KwireError | None]] = {}

    def __call__(self, offsets: Any, error: KwireError | None) -> None:
        for (topic, partition), each in offsets.items():
            for offset in each:
                self.by_offset.setdefault((topic, partition, offset), []).append(error)

    def codes(self) -> set[int | str]:
        return {
            error.code if isinstance(error, BrokerError) else type(error).__name__
            for errors in self.by_offset.values()
            for error in errors
            if error is not None
        }


def numbers(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


def sent_types(cluster: VirtualCluster) -> dict[int, list[int]]:
    """Return the types of acknowledgement that were sent for each offset, in order."""
    sent: dict[int, list[int]] = {}
    for _, _, request in cluster.requests:
        if not isinstance(request, ShareFetchRequest | ShareAcknowledgeRequest):
            continue
        for topic in request.topics:
            for partition in topic.partitions:
                for batch in partition.acknowledgement_batches:
                    count = batch.last_offset - batch.first_offset + 1
                    types = batch.acknowledge_types
                    for index, offset in enumerate(range(batch.first_offset, batch.last_offset + 1)):
                        sent.setdefault(offset, []).append(types[0] if len(types) < count else types[index])
    return sent


def test_h01_acknowledgements_during_a_fetch_go_out_with_the_next_request() -> None:
    """KAFKA-18016: none is lost and none is sent twice, whatever is in flight when it is made."""
    results = Results()
    with VirtualCluster().running() as cluster:
        cluster.produce(*numbers(10))
        consumer = cluster.consumer(on_acknowledged=results)
        first = consumer.poll(timeout=5)
        for record in first[:5]:
            record.accept()
        for record in first[5:]:
            record.renew()  # kept in hand
        assert consumer.poll(timeout=1) == []
        consumer.thread.call_soon(consumer._fetcher.fetch, 10, float("inf"), consumer._buffer.taken)
        cluster.sleep(0.05)
        flying = len(cluster.requests)
        assert isinstance(cluster.requests[-1][2], ShareFetchRequest), "a fetch waits at the broker"
        for record in first[5:]:
            record.accept()
        consumer.commit_async()
        cluster.sleep(0.1)
        assert len(cluster.requests) == flying, "nothing joins a request in flight"
        assert set(consumer.commit(timeout=2).values()) <= {None}
        cluster.sleep(1)
        consumer.poll(timeout=0)
    finals = {offset: [type for type in types if type != 4] for offset, types in sent_types(cluster).items()}
    assert finals == {offset: [1] for offset in range(10)}
    assert results.codes() == set()
    assert {offset for _, _, offset in results.by_offset} == set(range(10))


def test_h02_acknowledgements_that_wait_for_a_new_session_fail_and_their_records_come_again() -> None:
    """KAFKA-19485: the opening request of a session carries none; the callback says so."""
    results = Results()
    with VirtualCluster().running() as cluster:
        cluster.produce(*numbers(3))
        consumer = cluster.consumer(on_acknowledged=results)
        first = consumer.poll(timeout=5)
        assert [record.delivery_count for record in first] == [1, 1, 1]
        cluster.state.faults.add(_fault(Refuse(ErrorCode.SHARE_SESSION_NOT_FOUND), ApiKey.SHARE_ACKNOWLEDGE, times=1))
        first[0].accept()
        (error,) = consumer.commit(timeout=5).values()
        assert isinstance(error, BrokerError)
        assert error.code == ErrorCode.SHARE_SESSION_NOT_FOUND
        for record in first[1:]:
            record.accept()
        again: list[Any] = []
        while len(again) < 3:
            records = consumer.poll(timeout=60)
            again += records
            for record in records:
                record.accept()
        consumer.commit()
    opening = [request for request in cluster.of_kind(ShareFetchRequest) if request.share_session_epoch == 0]
    assert len(opening) == 2
    assert all(not p.acknowledgement_batches for request in opening for t in request.topics for p in t.partitions)
    assert results.codes() == {ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH}
    assert sorted((record.offset, record.delivery_count) for record in again) == [(0, 2), (1, 2), (2, 2)]


def _fault(effect: Any, api: ApiKey, **match: Any) -> Fault:
    return Fault(effect=effect, api=api, **match)


def test_h03_close_sends_acknowledgements_then_ends_the_session_then_leaves() -> None:
    """KAFKA-18164, KAFKA-18618: with a slow coordinator, too. What was not acknowledged is released."""
    results = Results()
    with VirtualCluster().running() as cluster:
        cluster.produce(*numbers(4))
        consumer = cluster.consumer(on_acknowledged=results)
        records = consumer.poll(timeout=5)
        records[0].accept()
        records[1].reject()
        cluster.state.faults.add(_fault(Delay(ms=3_000), ApiKey.SHARE_GROUP_HEARTBEAT, times=None))
        before = len(cluster.requests)
        consumer.close(timeout=20)
        closing = [request for _, _, request in cluster.requests[before:]]
        assert [type(request) for request in closing] == [ShareAcknowledgeRequest, ShareGroupHeartbeatRequest]
        assert closing[0].share_session_epoch == -1
        assert closing[1].member_epoch == -1
        assert sent_types(cluster) == {0: [1], 1: [3], 2: [2], 3: [2]}
        assert results.codes() == set()
        other = cluster.consumer("other")
        assert [(record.offset, record.delivery_count) for record in other.poll(timeout=5)] == [(2, 2), (3, 2)]
        other.acknowledge({("t", 0): [2, 3]})


@pytest.mark.parametrize("api", [ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.SHARE_ACKNOWLEDGE])
def test_h03_close_ends_in_time_with_a_silent_broker(api: ApiKey) -> None:
    with VirtualCluster().running() as cluster:
        cluster.produce(*numbers(4))
        consumer = cluster.consumer()
        for record in consumer.poll(timeout=5):
            record.accept()
        cluster.state.faults.add(_fault(Mute(), api, times=None))
        start = cluster.world.now()
        consumer.close(timeout=4)
        assert cluster.world.now() - start <= 4 + 1
        left = cluster.requests[-1][2]
        assert isinstance(left, ShareGroupHeartbeatRequest)
        assert left.member_epoch == -1, "the leave is sent in any case"


def test_h04_a_renewal_extends_the_lock_and_the_record_is_not_delivered_twice() -> None:
    """KAFKA-20330: renewals go by ShareAcknowledge with IsRenewAck; a fetch with limits would acquire."""
    with VirtualCluster().running() as cluster:
        cluster.produce(*numbers(2))
        consumer = cluster.consumer()
        records = consumer.poll(timeout=5)
        deadline = records[0].lock_deadline
        for _ in range(3):
            cluster.sleep(20)
            for record in records:
                record.renew()
            assert consumer.commit() == {("t", 0): None}
        assert records[0].lock_deadline > deadline + 55
        assert not records[0].is_lost
        assert consumer.poll(timeout=1) == [], "renewed records stay with their owner"
        for record in records:
            record.accept()
        assert consumer.commit() == {("t", 0): None}
        renewals = [request for request in cluster.of_kind(ShareAcknowledgeRequest) if request.is_renew_ack]
        assert len(renewals) == 3
        assert not any(request.is_renew_ack for request in cluster.of_kind(ShareFetchRequest))


def test_h04_in_record_limit_every_broker_has_its_turn() -> None:
    """KAFKA-20736: no poll gets more than its maximum, and brokers without records do not starve the others."""
    with VirtualCluster(brokers=3, partitions=3).running() as cluster:
        for partition, node in enumerate((1, 2, 3)):
            cluster.state.find_topic("t").partitions[partition].move_leader(node, cluster.world.now())
        cluster._settle()
        for partition in (1, 2):  # the broker of partition 0 has nothing
            for number in range(40):
                cluster.produce(b"%d" % number, partition=partition)
        consumer = cluster.consumer(acquire_mode="record_limit", max_poll_records=7)
        polls: list[list[Any]] = []
        while sum(len(records) for records in polls) < 80:
            records = consumer.poll(timeout=5)
            assert len(records) <= 7
            cluster.sleep(0.1)
            assert consumer.metrics().acquired_records == sum(len(records) for records in polls) + len(records)
            consumer._receive()
            assert not consumer._unread, "nothing is acquired beyond the demand"
            polls.append(records)
            consumer.acknowledge(records)
        partitions = [record.partition for records in polls[:4] for record in records]
        assert set(partitions) == {1, 2}, "both within the first polls"
        assert all(request.share_acquire_mode == 1 for request in cluster.of_kind(ShareFetchRequest))


@pytest.mark.parametrize("is_known", [False, True])
def test_h05_after_a_leader_change_acknowledgements_fail_and_the_records_come_again(is_known: bool) -> None:
    """The old leader refuses them, or the consumer itself, once it knows of the new one."""
    results = Results()
    with VirtualCluster(brokers=2).running() as cluster:
        cluster.produce(*numbers(100))
        consumer = cluster.consumer(on_acknowledged=results, metadata_max_age_ms=1_000 if is_known else 300_000)
        records = consumer.poll(timeout=5)
        assert len(records) == 100
        cluster.move_leader("t", 0)
        cluster.sleep(3)
        consumer.acknowledge(records)
        (error,) = consumer.commit(timeout=5).values()
        assert isinstance(error, BrokerError)
        assert error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert bool(sent_types(cluster)) is not is_known
        assert {len(errors) for errors in results.by_offset.values()} == {1}, "each once"
        assert len(results.by_offset) == 100
        again = consumer.poll(timeout=60)
        # Brokers save no acquisitions: the new leader counts from what was saved, which is no delivery.
        assert [(record.offset, record.delivery_count) for record in again] == [(offset, 1) for offset in range(100)]
        consumer.acknowledge(again)
        assert consumer.commit() == {("t", 0): None}


def test_h06_a_partition_that_is_taken_away_is_acknowledged_then_forgotten() -> None:
    with VirtualCluster(topics={"t": 1, "u": 1}).running() as cluster:
        cluster.produce(*numbers(3))
        cluster.produce(*numbers(3), topic="u")
        consumer = cluster.consumer(topics=("t", "u"))
        records = consumer.poll(timeout=5)
        while len(records) < 6:
            consumer.acknowledge([record for record in records if record.topic == "t"], "renew")
            consumer.acknowledge([record for record in records if record.topic == "u"])
            records += consumer.poll(timeout=5)
        mine = [record for record in records if record.topic == "u"]
        consumer.acknowledge([record for record in records if record.topic == "t"])
        consumer.subscribe(["t"])
        cluster.sleep(6)
        if any(record._acquired.holds(record.offset) for record in mine):
            consumer.acknowledge([record for record in mine if record._acquired.holds(record.offset)])
        before = len(cluster.requests)
        assert consumer.poll(timeout=2) == []
        assert consumer.poll(timeout=2) == []
        after = [request for _, _, request in cluster.requests[before:] if isinstance(request, ShareFetchRequest)]
        forgotten = [topic.topic_id for request in after for topic in request.forgotten_topics_data]
        assert forgotten == [cluster.state.find_topic("u").id], "once"
        (node,) = consumer._fetcher._nodes.values()
        assert {key.topic_id for key in node.session.partitions} == {cluster.state.find_topic("t").id}
        assert consumer.metrics().failed_acknowledgements == 0


def test_h07_a_topic_that_was_created_again_is_forgotten_and_added_in_one_request() -> None:
    with VirtualCluster().running() as cluster:
        cluster.produce(*numbers(3))
        consumer = cluster.consumer(metadata_max_age_ms=1_000)
        old = cluster.state.find_topic("t").id
        consumer.acknowledge(consumer.poll(timeout=5))
        consumer.commit()
        cluster.delete_topic("t")
        cluster.create_topic("t", 1)
        cluster.produce(*numbers(2, start=50))
        new = cluster.state.find_topic("t").id
        records: list[Any] = []
        while not records:
            records = consumer.poll(timeout=30)
        assert [record.value for record in records] == numbers(2, start=50)
        consumer.acknowledge(records)
        assert consumer.commit() == {("t", 0): None}
    change = [request for request in cluster.of_kind(ShareFetchRequest) if request.forgotten_topics_data]
    assert [topic.topic_id for topic in change[0].forgotten_topics_data] == [old]
    assert [topic.topic_id for topic in change[0].topics] == [new]


def test_h08_a_renewed_record_is_delivered_once_however_long_it_takes() -> None:
    with VirtualCluster().running() as cluster:
        cluster.produce(b"slow")
        consumer = cluster.consumer(renew=True)
        other = cluster.consumer("other")
        other.poll(timeout=0)
        (record,) = consumer.poll(timeout=5) or other.poll(timeout=5)
        owner, idle = (consumer, other) if record._acquired in consumer._held else (other, consumer)
        if owner is other:
            pytest.fail("the first consumer polls first")
        with record:
            for _ in range(9):
                cluster.sleep(LOCK_SECONDS / 3)
                assert idle.poll(timeout=0.1) == []
        assert owner.commit() == {("t", 0): None}
        assert idle.poll(timeout=LOCK_SECONDS * 2) == []
        assert record.delivery_count == 1


@pytest.mark.parametrize("dead_letters", [False, True])
def test_h08_a_record_that_always_takes_too_long_is_rejected_at_the_limit(dead_letters: bool) -> None:
    with VirtualCluster().running() as cluster:
        if dead_letters:
            cluster.create_topic("dlq.g", 1, {"errors.deadletterqueue.group.enable": "true"})
            configs = {"errors.deadletterqueue.topic.name": "dlq.g", "share.auto.offset.reset": "earliest"}
            cluster.alter_group("g", configs)
        results = Results()
        cluster.produce(b"slow")
        consumer = cluster.consumer(on_acknowledged=results)
        counts = []
        for _ in range(5):
            (record,) = consumer.poll(timeout=LOCK_SECONDS)
            counts.append(record.delivery_count)
            with record:
                cluster.sleep(LOCK_SECONDS + 5)
        assert counts == [1, 2, 3, 4, 5]
        assert consumer.poll(timeout=LOCK_SECONDS * 2) == [], "the limit is 5"
        assert results.codes() == {"LockLostError"}
        if dead_letters:
            assert cluster.state.find_topic("dlq.g").partitions[0].log.end_offset == 1


def test_h09_fifty_consumers_share_one_partition() -> None:
    """All get records, and what is accepted is what was produced."""
    with VirtualCluster().running() as cluster:
        consumers = [cluster.consumer(f"c{number}", acquire_mode="record_limit", max_poll_records=4)
                     for number in range(50)]  # fmt: skip
        for consumer in consumers:
            consumer.poll(timeout=0)
        cluster.sleep(12)
        for start in range(0, 1_000, 10):
            cluster.produce(*numbers(10, start))
        accepted: list[bytes | None] = []
        got = dict.fromkeys(range(50), 0)
        for _ in range(1_000):
            if len(accepted) == 1_000:
                break
            for number, consumer in enumerate(consumers):
                records = consumer.poll(timeout=0.01)
                got[number] += len(records)
                consumer.acknowledge(records)
                if records and set(consumer.commit().values()) == {None}:
                    accepted += [record.value for record in records]
        assert sorted(accepted, key=lambda value: int(value or b"")) == numbers(1_000)
        assert min(got.values()) > 0


def test_h10_gaps_and_markers_are_acknowledged_and_the_window_moves() -> None:
    """Offsets that compaction removed, and control batches, have no record: the consumer acknowledges them itself."""
    with VirtualCluster(share_max_record_locks=100).running() as cluster:
        rows = [(1, None, b"kept", ())] * 3
        log = cluster.state.find_topic("t").partitions[0].log
        next_offset = 0
        for _ in range(30):  # 10 offsets each, of which 3 have a record, then a marker
            compacted = encode_v2(rows, offset_deltas=[0, 4, 7], last_delta=9)
            _append_raw(cluster, compacted)
            _append_marker(cluster)
            next_offset += 11
        assert log.end_offset == next_offset
        consumer = cluster.consumer()
        offsets: list[int] = []
        while len(offsets) < 90:
            records = consumer.poll(timeout=10)
            assert records, "it stalls"
            offsets += [record.offset for record in records]
            consumer.acknowledge(records)
        assert consumer.poll(timeout=1) == []
        consumer.commit()
        assert offsets == [base * 11 + delta for base in range(30) for delta in (0, 4, 7)]
        sent = sent_types(cluster)
        assert {types[0] for offset, types in sent.items() if offset not in set(offsets)} == {0}
        assert set(sent) == set(range(next_offset))
        assert {len(types) for types in sent.values()} == {1}


def _append_raw(cluster: VirtualCluster, data: bytes) -> None:
    """Append a batch as it is, as compaction leaves it."""
    partition = cluster.state.find_topic("t").partitions[0]
    partition.append(list(decode_batches(data)), all_replicas=False, now=cluster.world.now(), wall_ms=1)
    cluster._settle()


def _append_marker(cluster: VirtualCluster) -> None:
    partition = cluster.state.find_topic("t").partitions[0]
    partition.append_marker(
        "commit", producer_id=7, producer_epoch=0, coordinator_epoch=0, now=cluster.world.now(), wall_ms=1
    )


def test_h11_a_broker_without_room_for_a_session_gets_the_next_request_after_backoff() -> None:
    with VirtualCluster().running() as cluster:
        cluster.produce(*numbers(3))
        fault = cluster.state.faults.add(
            _fault(Refuse(ErrorCode.SHARE_SESSION_LIMIT_REACHED), ApiKey.SHARE_FETCH, times=None)
        )
        consumer = cluster.consumer()
        assert consumer.poll(timeout=5) == []
        refused = cluster.of_kind(ShareFetchRequest)
        assert 5 <= len(refused) <= 15, "100 ms doubling to 1 s"
        assert {request.share_session_epoch for request in refused} == {0}
        cluster.state.faults.remove(fault)
        records = consumer.poll(timeout=2)
        assert [record.value for record in records] == numbers(3)
        consumer.acknowledge(records)


# -- beyond the table


def test_a_lost_connection_voids_the_locks() -> None:
    results = Results()
    with VirtualCluster().running() as cluster:
        cluster.produce(*numbers(2))
        consumer = cluster.consumer(on_acknowledged=results)
        records = consumer.poll(timeout=5)
        cluster.state.faults.add(_fault(Disconnect(), ApiKey.SHARE_ACKNOWLEDGE, times=1))
        records[0].accept()
        (error,) = consumer.commit(timeout=5).values()
        assert isinstance(error, DisconnectedError)
        assert records[1].is_lost
        with pytest.raises(LockLostError, match="the group delivers it again"):
            records[1].accept()
        again: list[Any] = []
        while len(again) < 2:
            again += consumer.poll(timeout=60)
            consumer.acknowledge([record for record in again if record._acquired.holds(record.offset)])
        assert {record.delivery_count for record in again} == {2}


def test_a_record_that_comes_again_is_lost_though_its_lock_seems_to_last() -> None:
    """The response of the first delivery took 20 s: the broker's lock began before the consumer's."""
    with VirtualCluster().running() as cluster:
        cluster.produce(*numbers(2))
        consumer = cluster.consumer()
        consumer._is_processed_in_parallel = True  # as in a processor and a queue: polls go on with records in hand
        cluster.state.faults.add(_fault(Delay(ms=20_000, applied=True), ApiKey.SHARE_FETCH, times=None))
        first, other = consumer.poll(timeout=40)
        cluster.state.faults.clear()
        assert not first.is_lost
        other.accept()
        (again,) = consumer.poll(timeout=20)
        assert (again.offset, again.delivery_count) == (first.offset, 2)
        with pytest.raises(LockLostError, match="the group delivers it again"):
            first.accept()
        again.accept()
        assert consumer.commit() == {("t", 0): None}


def test_unacknowledged_records_are_an_error_of_the_next_poll_only() -> None:
    with VirtualCluster().running() as cluster:
        cluster.produce(*numbers(3))
        consumer = cluster.consumer()
        records = consumer.poll(timeout=5)
        records[1].accept()
        with pytest.raises(AcknowledgeError, match=r"2 records of the last poll are not acknowledged .*offset 0"):
            consumer.poll()
        consumer.acknowledge({("t", 0): [0, 2]}, "release")
        assert [record.offset for record in consumer.poll(timeout=5)] == [0, 2]
        consumer.acknowledge({("t", 0): [0, 2]}, "reject")
        assert consumer.commit() == {("t", 0): None}
        assert consumer.metrics().released == 2


def test_an_exception_in_a_block_releases_and_in_or_reject_rejects() -> None:
    with VirtualCluster().running() as cluster:
        cluster.produce(*numbers(3))
        consumer = cluster.consumer()
        one, two, three = consumer.poll(timeout=5)
        with pytest.raises(ValueError, match="broken"), one:
            raise ValueError("broken")
        with pytest.raises(ValueError, match="broken"), two.or_reject():
            raise ValueError("broken")
        with pytest.raises(KeyboardInterrupt), three.or_reject():
            raise KeyboardInterrupt
        consumer.commit()
        assert sent_types(cluster) == {0: [2], 1: [3], 2: [2]}


def test_implicit_mode_accepts_with_the_next_poll_and_releases_at_close() -> None:
    with VirtualCluster().running() as cluster:
        for start in range(0, 6, 2):
            cluster.produce(*numbers(2, start))
        consumer = cluster.consumer(acknowledgement_mode="implicit", max_poll_records=2)
        first = consumer.poll(timeout=5)
        assert [record.offset for record in first] == [0, 1]
        with pytest.raises(AcknowledgeError, match="acknowledgement_mode is implicit"):
            first[0].accept()
        second = consumer.poll(timeout=5)
        assert consumer.commit() == {("t", 0): None}
        third = consumer.poll(timeout=5)
        assert [record.offset for record in second + third] == [2, 3, 4, 5]
        consumer.close()
        assert sent_types(cluster) == {0: [1], 1: [1], 2: [1], 3: [1], 4: [2], 5: [2]}


def test_the_iteration_hands_out_one_record_at_a_time() -> None:
    with VirtualCluster().running() as cluster:
        cluster.produce(*numbers(5))
        consumer = cluster.consumer()
        for record in consumer:
            with record:
                pass
            if record.offset == 1:
                break
        assert consumer.metrics().polled_records == 2
        rest = consumer.poll(timeout=5)
        assert [record.offset for record in rest] == [2, 3, 4], "what the iteration had read is not lost"
        consumer.acknowledge(rest)


def test_what_was_chosen_is_sent_before_the_lock_ends() -> None:
    """A slow loop over a poll: the first records were accepted long before the next poll."""
    with VirtualCluster().running() as cluster:
        cluster.produce(*numbers(2))
        consumer = cluster.consumer()
        one, two = consumer.poll(timeout=5)
        one.accept()
        cluster.sleep(LOCK_SECONDS - 1)
        assert sent_types(cluster) == {0: [1]}
        with pytest.raises(AcknowledgeError, match="was sent"):
            one.release()
        two.accept()
        assert consumer.commit() == {("t", 0): None}


def test_a_consumer_that_does_not_poll_leaves_and_joins_again_with_the_next_poll() -> None:
    with VirtualCluster().running() as cluster:
        consumer = cluster.consumer(max_poll_interval_ms=10_000)
        consumer.poll(timeout=1)
        cluster.sleep(15)
        assert consumer.metrics().state == "stale"
        assert [request.member_epoch for request in cluster.of_kind(ShareGroupHeartbeatRequest)][-1] == -1
        assert "poll again" in str(consumer.explain())
        cluster.produce(*numbers(1))
        (record,) = consumer.poll(timeout=10)
        record.accept()
        assert consumer.metrics().state == "stable"


def test_without_a_poll_interval_a_consumer_that_does_not_poll_stays() -> None:
    with VirtualCluster().running() as cluster:
        consumer = cluster.consumer(max_poll_interval_ms=None)
        consumer.poll(timeout=1)
        cluster.sleep(1_000)
        assert consumer.metrics().state == "stable"


def test_a_fenced_member_joins_again_with_the_same_id_and_its_records_are_lost() -> None:
    with VirtualCluster().running() as cluster:
        cluster.produce(*numbers(2))
        consumer = cluster.consumer()
        records = consumer.poll(timeout=5)
        cluster.state.faults.add(_fault(Refuse(ErrorCode.FENCED_MEMBER_EPOCH), ApiKey.SHARE_GROUP_HEARTBEAT, times=1))
        cluster.sleep(6)
        assert all(record.is_lost for record in records)
        joins = [request for request in cluster.of_kind(ShareGroupHeartbeatRequest) if request.member_epoch == 0]
        assert len(joins) == 2
        assert joins[0].member_id == joins[1].member_id
        assert joins[1].subscribed_topic_names == ["t"]
        assert consumer.metrics().rejoins == 1


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "grant the operation Read on the group"),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, "group.share.max.size"),
        (ErrorCode.UNSUPPORTED_VERSION, "Kafka 4.2"),
        (ErrorCode.INVALID_REQUEST, "INVALID_REQUEST"),
    ],
)
def test_a_group_that_refuses_the_member_is_an_error_of_every_poll(code: ErrorCode, remedy: str) -> None:
    with VirtualCluster().running() as cluster:
        cluster.state.faults.add(_fault(Refuse(code), ApiKey.SHARE_GROUP_HEARTBEAT, times=None))
        consumer = cluster.consumer()
        for _ in range(2):
            with pytest.raises(KwireError, match=remedy) as caught:
                consumer.poll(timeout=5)
            assert caught.value.where["group"] == "g"
        assert "refuses this member" in str(consumer.explain())
        start = cluster.world.now()
        consumer.close(timeout=5)
        assert cluster.world.now() == start, "there is nothing to leave"


def test_a_damaged_batch_is_released_first_and_rejected_when_it_comes_again() -> None:
    with VirtualCluster().running() as cluster:
        cluster.produce(*numbers(2))
        cluster.produce(*[b"x" * 50] * 3)
        cluster.produce(b"after")
        stored = list(cluster.state.find_topic("t").partitions[0].log)[1].data.obj
        assert isinstance(stored, bytearray)
        stored[-5] ^= 0xFF
        consumer = cluster.consumer()
        got = []
        error = None
        for _ in range(6):
            try:
                records = consumer.poll(timeout=1)
            except KwireError as raised:
                error = raised
                continue
            got += [record.value for record in records]
            consumer.acknowledge(records)
        consumer.commit()
        assert got == [b"0", b"1", b"after"]
        assert error is not None
        assert "were rejected" in str(error)
        assert error.where["offset"] == 2
        assert {offset: types for offset, types in sent_types(cluster).items() if 2 <= offset <= 4} == {
            offset: [2, 3] for offset in (2, 3, 4)
        }
        assert consumer.metrics().rejected == 3


def test_an_expired_record_that_was_not_handed_out_is_not_returned() -> None:
    with VirtualCluster().running() as cluster:
        cluster.produce(*numbers(10))
        consumer = cluster.consumer(max_poll_records=5)
        first = consumer.poll(timeout=5)
        consumer.acknowledge(first)
        cluster.sleep(LOCK_SECONDS + 1)
        second = consumer.poll(timeout=5)
        assert [(record.offset, record.delivery_count) for record in second] == [(offset, 2) for offset in range(5, 10)]
        assert consumer.metrics().expired_records == 5
        consumer.acknowledge(second)


def test_errors_of_retriable_acknowledgements_are_tried_again() -> None:
    with VirtualCluster().running() as cluster:
        cluster.produce(*numbers(1))
        consumer = cluster.consumer()
        (record,) = consumer.poll(timeout=5)
        record.accept()
        cluster.state.faults.add(
            _fault(Refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE), ApiKey.SHARE_ACKNOWLEDGE, times=2, topic="t")
        )
        assert consumer.commit(timeout=10) == {("t", 0): None}
        assert sent_types(cluster) == {0: [1, 1, 1]}


def test_a_callback_that_raises_is_raised_after_the_others_and_loses_no_record() -> None:
    seen = []

    def callback(offsets: Any, error: KwireError | None) -> None:
        seen.append(offsets)
        raise ValueError("the caller's own fault")

    with VirtualCluster(partitions=2).running() as cluster:
        cluster.produce(*numbers(1))
        cluster.produce(*numbers(1), partition=1)
        consumer = cluster.consumer(on_acknowledged=callback)
        records: list[Any] = []
        while len(records) < 2:
            consumer.acknowledge(records, "renew")
            try:
                records += consumer.poll(timeout=5)
            except ValueError:
                continue
        seen.clear()
        consumer.acknowledge(records)
        cluster.produce(*numbers(1))
        with pytest.raises(ValueError, match="own fault"):
            consumer.commit()
        assert len(seen) == 2
        consumer._on_acknowledged = None
        (record,) = consumer.poll(timeout=5)
        record.accept()


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_the_isolation_is_the_groups(isolation: str) -> None:
    """Aborted records are records, or gaps that the broker skips; either way the window moves on."""
    with VirtualCluster().running() as cluster:
        cluster.alter_group("g", {"share.auto.offset.reset": "earliest", "share.isolation.level": isolation})
        partition = cluster.state.find_topic("t").partitions[0]
        for number, kind in enumerate(["commit", "abort", "commit"]):
            batch = encode_batch(
                [(1, None, b"%d" % number, ())], producer_id=7, producer_epoch=0, base_sequence=number,
                is_transactional=True,
            )  # fmt: skip
            _append_raw(cluster, batch)
            partition.append_marker(
                kind, producer_id=7, producer_epoch=0, coordinator_epoch=0, now=cluster.world.now(), wall_ms=1
            )
        cluster._settle()
        consumer = cluster.consumer()
        got: list[bytes | None] = []
        for _ in range(3):
            records = consumer.poll(timeout=1)
            got += [record.value for record in records]
            consumer.acknowledge(records)
        assert got == ([b"0", b"1", b"2"] if isolation == "read_uncommitted" else [b"0", b"2"])
        assert consumer.metrics().failed_acknowledgements == 0
        assert consumer.metrics().expired_records == 0


def test_an_interrupted_poll_loses_nothing_and_the_next_one_goes_on() -> None:
    with VirtualCluster().running() as cluster:
        consumer = cluster.consumer()
        consumer.poll(timeout=1)
        waiter = consumer._waiter
        with patch.object(waiter, "signal", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
            consumer.poll(timeout=5)
        cluster.produce(b"a")
        cluster.sleep(1)
        (record,) = consumer.poll(timeout=5)
        assert record.delivery_count == 1
        record.accept()
        assert not consumer._poll_timer.is_polling, "the poll interval counts again"


def test_a_slow_program_gets_nothing_ahead_and_a_prompt_one_does() -> None:
    """A lock that ticks while the caller works costs a delivery, and another member could have had the record."""
    with VirtualCluster().running() as cluster:
        for number in range(6):
            cluster.produce(b"%d" % number)
        consumer = cluster.consumer(max_poll_records=1)
        for pause, ahead in ((2.0, 0), (2.0, 0), (0.0, 0), (0.0, 1)):
            (record,) = consumer.poll(timeout=5)
            record.accept()
            cluster.sleep(0.1)
            metrics = consumer.metrics()
            assert metrics.acquired_records - metrics.polled_records == ahead
            cluster.sleep(pause)
