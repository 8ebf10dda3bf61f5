"""ShareFetch, ShareAcknowledge and share sessions on virtual time.

Names that begin with h and a number are scenarios of share consumers, seen from the broker.
"""

from __future__ import annotations

from typing import Any

import pytest

from kwire.broker import Fault, Refuse
from kwire.errors import ErrorCode
from kwire.protocol import ApiKey
from kwire.records import decode_batches
from tests.broker.share_client import ACCEPT, REJECT, RELEASE, RENEW, ShareMember, acquired, append, results
from tests.broker.virtual_cluster import VirtualCluster

LOCK_SECONDS = 30


def make_cluster(brokers: int = 1, partitions: int = 1, **options: Any) -> VirtualCluster:
    cluster = VirtualCluster(brokers, **options)
    cluster.state.create_topic("t", partitions)
    cluster.state.group_configs.alter("g", {"share.auto.offset.reset": "earliest"})
    return cluster


@pytest.fixture
def cluster() -> VirtualCluster:
    """A broker with the topic t and 10 records in one batch."""
    made = make_cluster()
    append(made, "t", [b"%d" % i for i in range(10)])
    return made


def test_records_are_acquired_accepted_and_gone(cluster: VirtualCluster) -> None:
    member = ShareMember(cluster)
    (result,) = results(member.fetch())
    (batch,) = decode_batches(result.records)
    assert [record.value for record in batch.records()] == [b"%d" % i for i in range(10)]
    assert acquired(member.fetch()) == []
    assert member.acknowledge((0, 9, [ACCEPT])) == ErrorCode.NONE
    cluster.advance(2 * LOCK_SECONDS)
    assert member.acquire() == []


def test_two_members_never_hold_the_same_record(cluster: VirtualCluster) -> None:
    one, two = ShareMember(cluster, "one"), ShareMember(cluster, "two")
    assert one.acquire(max_records=4, share_acquire_mode=1) == [(0, 3, 1)]
    assert two.acquire(max_records=4, share_acquire_mode=1) == [(4, 7, 1)]
    assert two.acknowledge((0, 0, [ACCEPT])) == ErrorCode.INVALID_RECORD_STATE


def test_a_fetch_waits_until_records_are_released(cluster: VirtualCluster) -> None:
    one, two = ShareMember(cluster, "one"), ShareMember(cluster, "two")
    one.fetch()
    waiting = two.send_fetch(max_wait_ms=5000)
    assert waiting.is_pending
    one.acknowledge((3, 5, [RELEASE]))
    assert acquired(waiting.response) == [(3, 5, 2)]


def test_a_fetch_waits_until_a_lock_expires(cluster: VirtualCluster) -> None:
    one, two = ShareMember(cluster, "one"), ShareMember(cluster, "two")
    one.fetch()
    waiting = two.send_fetch(max_wait_ms=60_000)
    cluster.advance(LOCK_SECONDS - 1)
    assert waiting.is_pending
    cluster.advance(1)
    assert acquired(waiting.response) == [(0, 9, 2)]
    assert one.acknowledge((0, 9, [ACCEPT])) == ErrorCode.INVALID_RECORD_STATE


def test_a_fetch_waits_until_records_are_appended(cluster: VirtualCluster) -> None:
    member = ShareMember(cluster)
    member.fetch()
    waiting = member.send_fetch(max_wait_ms=5000)
    append(cluster, "t", [b"new"])
    assert acquired(waiting.response) == [(10, 10, 1)]


def test_a_fetch_ends_empty_when_its_time_is_up(cluster: VirtualCluster) -> None:
    member = ShareMember(cluster)
    member.fetch()
    waiting = member.send_fetch(max_wait_ms=5000)
    cluster.advance(5)
    assert acquired(waiting.response) == []


def test_a_renewed_lock_lasts_longer(cluster: VirtualCluster) -> None:
    member = ShareMember(cluster)
    member.fetch()
    cluster.advance(LOCK_SECONDS - 1)
    assert member.acknowledge((0, 9, [RENEW])) == ErrorCode.INVALID_REQUEST
    assert member.acknowledge((0, 9, [RENEW]), renews=True) == ErrorCode.NONE
    cluster.advance(LOCK_SECONDS - 1)
    assert member.acknowledge((0, 9, [ACCEPT])) == ErrorCode.NONE


def test_a_rejected_record_never_comes_again(cluster: VirtualCluster) -> None:
    member = ShareMember(cluster)
    member.fetch()
    member.acknowledge((0, 9, [RELEASE] * 4 + [REJECT] * 6))
    assert member.acquire() == [(0, 3, 2)]


class TestSessions:
    def test_epochs_rise_with_each_request(self, cluster: VirtualCluster) -> None:
        member = ShareMember(cluster)
        assert member.fetch(epoch=0).error_code == ErrorCode.NONE
        assert member.fetch(epoch=1).error_code == ErrorCode.NONE
        assert member.acknowledge((0, 0, [ACCEPT]), epoch=2) == ErrorCode.NONE
        assert member.fetch(epoch=2).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        assert member.fetch(epoch=3).error_code == ErrorCode.NONE

    def test_epochs_wrap_to_1(self, cluster: VirtualCluster) -> None:
        member = ShareMember(cluster)
        member.fetch()
        (key,) = cluster.state.share_partitions.sessions.of_node(1)
        cluster.state.share_partitions.sessions.find(key, 1).epoch = 2**31 - 1
        assert member.fetch(epoch=2**31 - 1).error_code == ErrorCode.NONE
        assert member.fetch(epoch=1).error_code == ErrorCode.NONE

    def test_requests_without_a_session(self, cluster: VirtualCluster) -> None:
        member = ShareMember(cluster)
        assert member.fetch(epoch=1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
        assert member.fetch(epoch=-1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
        assert member.acknowledge((0, 0, [ACCEPT]), epoch=1) == ErrorCode.SHARE_SESSION_NOT_FOUND
        assert member.acknowledge((0, 0, [ACCEPT]), epoch=0) == ErrorCode.INVALID_SHARE_SESSION_EPOCH

    def test_a_broker_has_only_so_many_sessions(self) -> None:
        cluster = make_cluster(share_max_sessions=2)
        members = [ShareMember(cluster, f"m{i}") for i in range(3)]
        codes = [member.fetch().error_code for member in members]
        assert codes == [0, 0, ErrorCode.SHARE_SESSION_LIMIT_REACHED]
        members[0].session_epoch = 0
        assert members[0].fetch().error_code == ErrorCode.NONE  # in place of its own
        members[0].fetch(epoch=-1)
        members[2].session_epoch = 0
        assert members[2].fetch().error_code == ErrorCode.NONE

    def test_a_response_names_a_partition_without_news_only_once(self, cluster: VirtualCluster) -> None:
        member = ShareMember(cluster)
        assert len(results(member.fetch())) == 1
        assert results(member.fetch()) == []
        assert len(results(member.fetch(acks=[(0, 0, [ACCEPT])]))) == 1

    def test_a_forgotten_partition_is_not_read(self, cluster: VirtualCluster) -> None:
        member = ShareMember(cluster)
        member.fetch(max_records=0)
        assert results(member.fetch(partition=None, forget=[0])) == []

    def test_a_request_without_partitions_reads_those_of_the_session(self, cluster: VirtualCluster) -> None:
        member = ShareMember(cluster)
        member.fetch(max_records=0)
        assert member.acquire(partition=None) == [(0, 9, 1)]  # type: ignore[arg-type]

    def test_closing_applies_the_last_acknowledgements_and_releases_the_rest(self, cluster: VirtualCluster) -> None:
        one, two = ShareMember(cluster, "one"), ShareMember(cluster, "two")
        one.fetch()
        (result,) = results(one.fetch(acks=[(0, 3, [ACCEPT])], epoch=-1))
        assert (result.acknowledge_error_code, result.acquired_records) == (0, [])
        assert two.acquire() == [(4, 9, 2)]

    def test_h03_acknowledge_may_close_the_session(self, cluster: VirtualCluster) -> None:
        one, two = ShareMember(cluster, "one"), ShareMember(cluster, "two")
        one.fetch()
        assert one.acknowledge((0, 3, [ACCEPT]), epoch=-1) == ErrorCode.NONE
        assert two.acquire() == [(4, 9, 2)]

    def test_a_session_ends_with_its_connection(self, cluster: VirtualCluster) -> None:
        one, two = ShareMember(cluster, "one", connection=1), ShareMember(cluster, "two", connection=2)
        one.fetch()
        waiting = two.send_fetch(max_wait_ms=1000)
        cluster.state.share_partitions.connection_closed(1, cluster.now)
        assert acquired(waiting.response) == [(0, 9, 2)]
        assert one.fetch().error_code == ErrorCode.SHARE_SESSION_NOT_FOUND

    def test_a_member_that_leaves_the_group_releases_its_records(self, cluster: VirtualCluster) -> None:
        one, two = ShareMember(cluster, "one"), ShareMember(cluster, "two")
        one.heartbeat("t")
        two.heartbeat("t")
        one.fetch()
        one.heartbeat(epoch=-1)
        assert two.acquire() == [(0, 9, 2)]

    def test_h02_acknowledgements_cannot_open_a_session(self, cluster: VirtualCluster) -> None:
        member = ShareMember(cluster)
        member.fetch()
        assert member.fetch(acks=[(0, 9, [ACCEPT])], epoch=0).error_code == ErrorCode.INVALID_REQUEST
        assert member.acknowledge((0, 9, [ACCEPT])) == ErrorCode.NONE  # the session is still there

    def test_a_dead_connection_acquires_nothing(self, cluster: VirtualCluster) -> None:
        one, two = ShareMember(cluster, "one"), ShareMember(cluster, "two", connection=2)
        one.fetch()
        waiting = two.send_fetch(max_wait_ms=5000)
        waiting.cancel()
        one.acknowledge((0, 9, [RELEASE]))
        assert one.acquire() == [(0, 9, 2)]


class TestLimits:
    def test_a_renewal_fetches_nothing(self, cluster: VirtualCluster) -> None:
        member = ShareMember(cluster)
        member.fetch(max_records=4, share_acquire_mode=1)
        nothing: Any = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0, "batch_size": 0}
        response = member.fetch(acks=[(0, 3, [RENEW])], is_renew_ack=True)
        assert response.error_code == ErrorCode.INVALID_REQUEST
        member.session_epoch -= 1
        (result,) = results(member.fetch(acks=[(0, 3, [RENEW])], is_renew_ack=True, **nothing))
        assert (result.acknowledge_error_code, result.acquired_records) == (0, [])

    def test_a_group_can_forbid_renewal(self, cluster: VirtualCluster) -> None:
        configs = {"share.auto.offset.reset": "earliest", "share.renew.acknowledge.enable": "false"}
        cluster.state.group_configs.alter("g", configs)
        member = ShareMember(cluster)
        member.fetch()
        assert member.acknowledge((0, 9, [RENEW]), renews=True) == ErrorCode.INVALID_REQUEST

    def test_a_request_for_no_records_waits(self, cluster: VirtualCluster) -> None:
        member = ShareMember(cluster)
        waiting = member.send_fetch(max_records=0, max_wait_ms=1000)
        assert waiting.is_pending
        cluster.advance(1)
        assert results(waiting.response) == []

    def test_bytes_are_shared_by_the_partitions(self) -> None:
        cluster = make_cluster(partitions=2)
        for partition in (0, 1):
            for _ in range(3):
                append(cluster, "t", [bytes(1000)], partition)
        member = ShareMember(cluster)
        member.fetch(max_records=0)
        member.fetch(partition=1, max_records=0)
        response = member.fetch(partition=None, max_bytes=2500)
        assert sorted(acquired(response)) == [(0, 1, 1), (0, 1, 1)]

    def test_h04_partitions_take_turns(self) -> None:
        cluster = make_cluster(partitions=2)
        for partition in (0, 1):
            append(cluster, "t", [b"x"] * 50, partition)
        member = ShareMember(cluster)
        member.fetch(max_records=0)
        member.fetch(partition=1, max_records=0)
        first = [
            next(result.partition_index for result in results(response) if result.acquired_records)
            for response in (member.fetch(partition=None, max_records=5, share_acquire_mode=1) for _ in range(4))
        ]
        assert sorted(first) == [0, 0, 1, 1]

    def test_min_bytes(self, cluster: VirtualCluster) -> None:
        member = ShareMember(cluster)
        waiting = member.send_fetch(min_bytes=5000, max_wait_ms=5000)
        assert waiting.is_pending
        append(cluster, "t", [bytes(6000)])
        assert acquired(waiting.response) == [(0, 10, 1)]

    def test_versions_before_limits(self, cluster: VirtualCluster) -> None:
        member = ShareMember(cluster)
        assert member.acquire(version=1, max_records=3) == [(0, 9, 1)]


class TestErrors:
    @pytest.mark.parametrize("options", [{"share_version": 0}, {"version": "4.1"}])
    def test_share_groups_can_be_off(self, options: dict[str, Any]) -> None:
        member = ShareMember(make_cluster(**options))
        assert member.fetch(version=1).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert member.acknowledge((0, 0, [ACCEPT]), epoch=1, version=1) == ErrorCode.UNSUPPORTED_VERSION

    def test_unknown_topics_and_partitions(self, cluster: VirtualCluster) -> None:
        member = ShareMember(cluster)
        (result,) = results(member.fetch(partition=5, node=1))
        assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    @pytest.mark.parametrize("member", ["", "m" * 37])
    def test_invalid_member_ids(self, cluster: VirtualCluster, member: str) -> None:
        assert ShareMember(cluster, member).fetch().error_code == ErrorCode.INVALID_REQUEST
        assert ShareMember(cluster, member).acknowledge((0, 0, [ACCEPT])) == ErrorCode.INVALID_REQUEST

    def test_another_broker_names_the_leader(self) -> None:
        cluster = make_cluster(2)
        other = 3 - cluster.leader("t")
        response = ShareMember(cluster).fetch(node=other)
        (result,) = results(response)
        assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert result.current_leader.leader_id == cluster.leader("t")
        assert [node.node_id for node in response.node_endpoints] == [cluster.leader("t")]

    def test_h07_a_topic_that_is_deleted_and_created_anew(self, cluster: VirtualCluster) -> None:
        member = ShareMember(cluster)
        member.fetch()
        waiting = member.send_fetch(max_wait_ms=5000)
        cluster.state.delete_topic(cluster.state.topics["t"], cluster.now)
        (result,) = results(waiting.response)
        assert result.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        cluster.state.create_topic("t", 1)
        append(cluster, "t", [b"x"])
        assert [part for part in acquired(member.fetch()) if part] == [(0, 0, 1)]

    def test_faults_reach_partitions(self, cluster: VirtualCluster) -> None:
        member = ShareMember(cluster)
        member.fetch(max_records=0)
        fault = Fault(effect=Refuse(ErrorCode.KAFKA_STORAGE_ERROR), api=ApiKey.SHARE_FETCH, topic="t")
        cluster.state.faults.add(fault)
        (result,) = results(member.fetch(partition=None))  # the session has the partition
        assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR


class TestLeaders:
    def test_h05_a_new_leader_gives_out_what_was_locked(self) -> None:
        cluster = make_cluster(3)
        append(cluster, "t", [b"x"] * 10)
        member = ShareMember(cluster)
        assert member.acquire() == [(0, 9, 1)]
        member.acknowledge((0, 3, [ACCEPT]), (5, 5, [RELEASE]))
        former = cluster.leader("t")
        cluster.state.partition("t", 0).move_leader(next(n for n in (1, 2, 3) if n != former), cluster.now)
        assert member.acknowledge((4, 9, [ACCEPT]), node=former) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        member.session_epoch = 0
        # Acquisitions were not saved: only the released record has a delivery count.
        assert member.acquire() == [(4, 4, 1), (5, 5, 2), (6, 9, 1)]

    def test_a_waiting_fetch_hears_of_the_new_leader(self) -> None:
        cluster = make_cluster(2)
        member = ShareMember(cluster)
        former = cluster.leader("t")
        waiting = member.send_fetch(max_wait_ms=5000)
        cluster.state.partition("t", 0).move_leader(3 - former, cluster.now)
        (result,) = results(waiting.response)
        assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_locks_of_a_former_leader_do_not_expire_at_the_new_one(self) -> None:
        cluster = make_cluster(2)
        append(cluster, "t", [b"x"] * 4)
        one, two = ShareMember(cluster, "one"), ShareMember(cluster, "two")
        one.acquire()
        cluster.advance(LOCK_SECONDS - 1)
        cluster.state.partition("t", 0).move_leader(3 - cluster.leader("t"), cluster.now)
        assert two.acquire() == [(0, 3, 1)]
        cluster.advance(LOCK_SECONDS - 1)
        assert two.acknowledge((0, 3, [ACCEPT])) == ErrorCode.NONE

    def test_a_stopped_broker_forgets_its_sessions(self) -> None:
        cluster = make_cluster(2)
        member = ShareMember(cluster)
        member.fetch()
        node = cluster.leader("t")
        cluster.state.stop_node(node, cluster.now)
        cluster.state.start_node(node, cluster.now)
        assert member.fetch(node=node).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


class TestStarts:
    @pytest.mark.parametrize(
        ("reset", "first"), [("latest", 10), ("earliest", 0), ("by_duration:PT1M", 0), ("by_duration:PT0S", 10)]
    )
    def test_where_a_group_starts(self, cluster: VirtualCluster, reset: str, first: int) -> None:
        cluster.state.group_configs.alter("g", {"share.auto.offset.reset": reset})
        cluster.advance(1)
        member = ShareMember(cluster)
        member.fetch(max_records=0)
        found = member.acquire()
        append(cluster, "t", [b"new"])
        assert [*found, *member.acquire()][0][0] == first

    def test_deleted_records_are_skipped(self, cluster: VirtualCluster) -> None:
        append(cluster, "t", [b"x"] * 5)
        member = ShareMember(cluster)
        member.acquire(max_records=10)
        member.acknowledge((0, 9, [RELEASE]))
        cluster.state.partition("t", 0).log.delete_before(7)
        assert member.acquire() == [(7, 9, 2), (10, 14, 1)]


class TestIsolation:
    def test_h10_read_committed(self) -> None:
        cluster = make_cluster()
        configs = {"share.auto.offset.reset": "earliest", "share.isolation.level": "read_committed"}
        cluster.state.group_configs.alter("g", configs)
        partition = cluster.state.partition("t", 0)
        for sequence, kind in ((0, "commit"), (2, "abort")):
            mine = {"producer_id": 1, "producer_epoch": 0, "base_sequence": sequence}
            append(cluster, "t", [b"a", b"b"], **mine, is_transactional=True)
            partition.append_marker(
                kind, producer_id=1, producer_epoch=0, coordinator_epoch=0, now=cluster.now, wall_ms=0
            )
        append(cluster, "t", [b"open"], producer_id=2, producer_epoch=0, base_sequence=0, is_transactional=True)
        member = ShareMember(cluster)
        assert member.acquire() == [(0, 2, 1), (5, 5, 1)]  # with the markers, which are gaps for the member
        assert member.acknowledge((0, 2, [ACCEPT, ACCEPT, 0]), (5, 5, [0])) == ErrorCode.NONE
        waiting = member.send_fetch(max_wait_ms=5000)
        partition.append_marker(
            "commit", producer_id=2, producer_epoch=0, coordinator_epoch=0, now=cluster.now, wall_ms=0
        )
        assert acquired(waiting.response) == [(6, 7, 1)]


class TestManyMembers:
    def test_h09_fifty_consumers_on_one_partition(self) -> None:
        cluster = make_cluster()
        for _ in range(40):
            append(cluster, "t", [b"x"] * 25)
        members = [ShareMember(cluster, f"m{i}", connection=i) for i in range(50)]
        accepted: list[int] = []
        shares = dict.fromkeys(range(50), 0)
        while len(accepted) < 1000:
            for number, member in enumerate(members):
                for first, last, _ in member.acquire(max_records=10, share_acquire_mode=1):
                    assert member.acknowledge((first, last, [ACCEPT])) == ErrorCode.NONE
                    accepted += range(first, last + 1)
                    shares[number] += last - first + 1
        assert sorted(accepted) == list(range(1000))
        assert min(shares.values()) > 0

    def test_h08_a_record_that_is_never_acknowledged(self, cluster: VirtualCluster) -> None:
        member = ShareMember(cluster)
        counts = []
        while found := member.acquire(max_wait_ms=0):
            counts.append(found[0])
            cluster.advance(LOCK_SECONDS)
        assert [count for first, _, count in counts if first == 0] == [1, 2, 3, 4, 5]
        cluster.advance(LOCK_SECONDS)
        append(cluster, "t", [b"new"])
        assert member.acquire() == [(10, 10, 1)]
