"""What each error of a broker means for a share consumer (3.3 to 3.5 of KIP-932's rules), on virtual time."""

from __future__ import annotations

import pytest

from kwire.broker.faults import Delay, Disconnect, Fault, Refuse
from kwire.errors import BrokerError, ErrorCode, KwireError
from kwire.protocol import ApiKey
from kwire.protocol.messages.share_fetch import ShareFetchRequest
from kwire.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.share.virtual import VirtualCluster


@pytest.mark.parametrize(
    "code",
    [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS],
)
def test_a_coordinator_that_moves_or_loads_gets_the_request_again(code: ErrorCode) -> None:
    with VirtualCluster().running() as cluster:
        cluster.produce(b"a")
        cluster.state.faults.add(Fault(effect=Refuse(code), api=ApiKey.SHARE_GROUP_HEARTBEAT, times=3))
        consumer = cluster.consumer()
        (record,) = consumer.poll(timeout=5)
        record.accept()
        assert consumer.metrics().rejoins == 0
        assert len(cluster.of_kind(ShareGroupHeartbeatRequest)) == 4


def test_the_membership_outlives_a_lost_connection_and_sends_everything_again() -> None:
    with VirtualCluster().running() as cluster:
        consumer = cluster.consumer()
        consumer.poll(timeout=1)
        cluster.state.faults.add(Fault(effect=Disconnect(), api=ApiKey.SHARE_GROUP_HEARTBEAT, times=1))
        cluster.sleep(7)
        after = cluster.of_kind(ShareGroupHeartbeatRequest)[2:]
        assert [(beat.member_epoch, beat.subscribed_topic_names) for beat in after] == [(1, ["t"])]
        assert consumer.metrics().state == "stable"


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH])
def test_a_fenced_member_joins_at_once(code: ErrorCode) -> None:
    with VirtualCluster().running() as cluster:
        consumer = cluster.consumer()
        consumer.poll(timeout=1)
        cluster.state.faults.add(Fault(effect=Refuse(code), api=ApiKey.SHARE_GROUP_HEARTBEAT, times=1))
        cluster.sleep(4.5)
        beats = [(at, beat.member_epoch) for at, _, beat in cluster.requests
                 if isinstance(beat, ShareGroupHeartbeatRequest)]  # fmt: skip
        assert [epoch for _, epoch in beats] == [0, 1, 0]
        assert beats[2][0] - beats[1][0] < 0.1, "without backoff"


def test_an_unauthorized_topic_is_raised_and_the_member_stays() -> None:
    with VirtualCluster().running() as cluster:
        cluster.produce(b"a")
        cluster.state.faults.add(
            Fault(effect=Refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED), api=ApiKey.SHARE_GROUP_HEARTBEAT, times=1)
        )
        consumer = cluster.consumer()
        with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
            consumer.poll(timeout=5)
        (record,) = consumer.poll(timeout=5)
        record.accept()


@pytest.mark.parametrize(
    ("code", "is_raised"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, False),
        (ErrorCode.FENCED_LEADER_EPOCH, False),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
        (ErrorCode.UNKNOWN_TOPIC_ID, False),
        (ErrorCode.INCONSISTENT_TOPIC_ID, False),
        (ErrorCode.KAFKA_STORAGE_ERROR, False),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, True),
        (ErrorCode.CORRUPT_MESSAGE, True),
        (ErrorCode.UNKNOWN_SERVER_ERROR, True),
    ],
)
def test_errors_of_a_partition(code: ErrorCode, is_raised: bool) -> None:
    """Metadata cures some, with a backoff; the rest is raised once. The records come as soon as the error ends."""
    with VirtualCluster().running() as cluster:
        cluster.produce(b"a")
        fault = cluster.state.faults.add(Fault(effect=Refuse(code), api=ApiKey.SHARE_FETCH, topic="t", times=None))
        consumer = cluster.consumer()
        if is_raised:
            with pytest.raises(KwireError, match=code.name) as caught:
                consumer.poll(timeout=5)
            assert caught.value.where["topic"] == "t"
            assert caught.value.where["partition"] == 0
        assert consumer.poll(timeout=5) == []
        assert len(cluster.of_kind(ShareFetchRequest)) < 25, "with backoff"
        cluster.state.faults.remove(fault)
        (record,) = consumer.poll(timeout=3)
        record.accept()


@pytest.mark.parametrize(
    "code",
    [ErrorCode.INVALID_RECORD_STATE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_STATE_EPOCH],
)
def test_acknowledgements_that_do_not_count_are_not_sent_again(code: ErrorCode) -> None:
    with VirtualCluster().running() as cluster:
        cluster.produce(b"a")
        consumer = cluster.consumer()
        (record,) = consumer.poll(timeout=5)
        record.accept()
        cluster.state.faults.add(Fault(effect=Refuse(code), api=ApiKey.SHARE_ACKNOWLEDGE, topic="t", times=None))
        (error,) = consumer.commit(timeout=20).values()
        assert isinstance(error, BrokerError)
        assert error.code == code
        assert error.where["topic"] == "t"
        assert consumer.metrics().acknowledge_requests == 1
        assert consumer.metrics().failed_acknowledgements == 1


def test_an_error_for_the_whole_request_counts_for_the_epoch() -> None:
    """Only an error about the session opens a new one: the broker has counted the others."""
    with VirtualCluster().running() as cluster:
        cluster.produce(b"a")
        consumer = cluster.consumer()
        (record,) = consumer.poll(timeout=5)
        record.renew()
        cluster.state.faults.add(
            Fault(effect=Refuse(ErrorCode.UNKNOWN_SERVER_ERROR, applied=True), api=ApiKey.SHARE_FETCH)
        )
        with pytest.raises(BrokerError, match="UNKNOWN_SERVER_ERROR"):
            consumer.poll(timeout=5)
        consumer.poll(timeout=2)
        epochs = [request.share_session_epoch for _, _, request in cluster.requests
                  if not isinstance(request, ShareGroupHeartbeatRequest)]  # fmt: skip
        assert epochs == list(range(len(epochs)))
        record.accept()


def test_a_commit_that_gets_no_response_says_so_in_time() -> None:
    with VirtualCluster().running() as cluster:
        cluster.produce(b"a")
        consumer = cluster.consumer()
        (record,) = consumer.poll(timeout=5)
        cluster.state.faults.add(Fault(effect=Delay(ms=10_000), api=ApiKey.SHARE_ACKNOWLEDGE))
        record.accept()
        start = cluster.world.now()
        (error,) = consumer.commit(timeout=2).values()
        assert error is not None
        assert error.is_retriable
        assert cluster.world.now() - start < 2.1
        before = consumer.metrics()
        cluster.sleep(10)
        assert consumer.commit() == {}
        assert (before.accepted, consumer.metrics().accepted) == (0, 1), "it went on all the same"
