"""ShareFetch, ShareAcknowledge and share sessions on virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from kwire.errors import ErrorCode
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
