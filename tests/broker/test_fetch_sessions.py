"""Fetch sessions of the broker (KIP-227), its replica selector (KIP-392) and its fetch quota (KIP-124)."""

from __future__ import annotations

from typing import Any

import pytest

from kwire.broker.fetch_sessions import FetchSessionCache
from kwire.errors import ErrorCode
from kwire.protocol.messages.fetch import FetchRequest, FetchResponse
from tests.broker.bench import GOOD, Bench

Requested = FetchRequest.Topic.Partition


class Client:
    """A client with a session of topic t at the leader of partition 0."""

    def __init__(self, bench: Bench, version: int = 18) -> None:
        self.bench = bench
        self.version = version
        self.id = 0
        self.epoch = 0

    def fetch(self, offsets: dict[int, int], *, forgotten: list[int] | None = None, **more: Any) -> FetchResponse:
        """Send a request that adds or alters these partitions."""
        named: dict[str, Any] = {"topic": "t", "topic_id": self.bench.topic.id}
        request = FetchRequest(
            max_wait_ms=0, min_bytes=1, session_id=self.id, session_epoch=self.epoch, **more,
            topics=[
                FetchRequest.Topic(
                    **named,
                    partitions=[
                        Requested(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
                        for index, offset in offsets.items()
                    ],
                )
            ] if offsets else [],
            forgotten_topics_data=[FetchRequest.ForgottenTopic(**named, partitions=forgotten)] if forgotten else [],
        )  # fmt: skip
        response = self.bench.request(self.bench.leader("t"), request, self.version)
        if not response.error_code:
            self.id, self.epoch = response.session_id, self.epoch + 1
        return response


def returned(response: FetchResponse) -> list[int]:
    return [one.partition_index for topic in response.responses for one in topic.partitions]


def bench_on_one_broker(partitions: int = 3, **options: Any) -> Bench:
    return Bench(partitions, brokers=1, **options)


@pytest.mark.parametrize("version", [7, 12, 13, 18])
def test_a_session_returns_only_news_and_moves_those_partitions_to_the_back(version: int) -> None:
    client = Client(bench := bench_on_one_broker(), version)
    assert returned(client.fetch({0: 0, 1: 0, 2: 0})) == [0, 1, 2], "a full response has all"
    assert client.id > 0
    assert returned(client.fetch({})) == []
    bench.produce(GOOD, partition=0)
    bench.produce(GOOD, partition=2)
    assert returned(client.fetch({})) == [0, 2]
    assert returned(client.fetch({})) == [0, 2], "whose offsets have not moved"
    assert returned(client.fetch({0: 2, 2: 2})) == []
    bench.produce(GOOD, partition=0)
    bench.produce(GOOD, partition=1)
    assert returned(client.fetch({})) == [1, 0], "0 was served before"


def test_an_error_is_returned_until_it_is_over_and_its_end_is_news() -> None:
    client = Client(bench_on_one_broker())
    client.fetch({0: 0, 1: 0, 2: 9})
    assert returned(client.fetch({})) == [2]
    assert returned(client.fetch({})) == [2]
    assert returned(client.fetch({2: 0})) == [2]
    assert returned(client.fetch({})) == []


def test_forgotten_partitions_are_not_returned() -> None:
    client = Client(bench := bench_on_one_broker())
    client.fetch({0: 0, 1: 0})
    bench.produce(GOOD, partition=0)
    bench.produce(GOOD, partition=1)
    assert returned(client.fetch({}, forgotten=[0])) == [1]
    session_id = client.id
    assert returned(client.fetch({}, forgotten=[1])) == []
    assert client.id == 0, "a session without partitions ends"
    client.id, client.epoch = session_id, 3
    assert client.fetch({0: 0}).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("id_change", "epoch_change", "version", "error"),
    [
        (1, 0, 18, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (0, 1, 18, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (0, -1, 18, ErrorCode.NONE),  # epoch 0: full
        (0, 0, 12, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
        (0, 0, 13, ErrorCode.NONE),
    ],
)
def test_session_errors(id_change: int, epoch_change: int, version: int, error: ErrorCode) -> None:
    client = Client(bench_on_one_broker())
    client.fetch({0: 0})
    client.id, client.epoch, client.version = client.id + id_change, client.epoch + epoch_change, version
    assert client.fetch({0: 0}).error_code == error


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_full_or_final_request_ends_the_session_that_it_names(epoch: int) -> None:
    client = Client(bench := bench_on_one_broker())
    client.fetch({0: 0})
    first, client.epoch = client.id, epoch
    assert returned(client.fetch({0: 0})) == [0]
    sessions = bench.state.fetch_sessions[1].sessions
    assert first not in sessions
    assert len(sessions) == epoch + 1
    assert client.id != first


def test_a_restarted_broker_has_forgotten_its_sessions() -> None:
    client = Client(bench := bench_on_one_broker())
    client.fetch({0: 0})
    bench.state.stop_node(1, bench.now)
    bench.state.start_node(1, bench.now)
    assert client.fetch({}).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


class TestSlots:
    """The rules of Kafka's FetchSessionCache."""

    def sessions(self, bench: Bench) -> FetchSessionCache:
        return bench.state.fetch_sessions[1]

    def test_without_a_slot_there_is_no_session(self) -> None:
        bench = bench_on_one_broker(fetch_session_slots=1)
        first, second = Client(bench), Client(bench)
        first.fetch({0: 0})
        second.fetch({0: 0, 1: 0})
        assert (first.id > 0, second.id) == (True, 0)
        assert Client(bench_on_one_broker(fetch_session_slots=0)).fetch({0: 0}).session_id == 0

    def test_an_idle_session_can_be_evicted_after_two_minutes(self) -> None:
        bench = bench_on_one_broker(fetch_session_slots=1)
        first, second = Client(bench), Client(bench)
        first.fetch({0: 0, 1: 0})
        bench.advance(121)
        second.fetch({0: 0})
        assert second.id > 0
        assert first.fetch({}).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    @pytest.mark.parametrize(("size", "has_slot"), [(1, False), (2, True)])
    def test_an_old_session_in_use_is_evicted_for_one_that_is_not_smaller(self, size: int, has_slot: bool) -> None:
        bench = bench_on_one_broker(fetch_session_slots=2)
        large, small, new = Client(bench), Client(bench), Client(bench)
        large.fetch({0: 0, 1: 0, 2: 0})
        small.fetch({0: 0, 1: 0})
        for _ in range(2):
            bench.advance(100)
            large.fetch({})
            small.fetch({})
        new.fetch(dict.fromkeys(range(size), 0))
        assert (new.id > 0) is has_slot
        assert large.fetch({}).error_code == ErrorCode.NONE
        assert self.sessions(bench).evicted == has_slot


class TestReplicaSelector:
    def bench(self) -> Bench:
        bench = Bench(replica_selector="rack")
        for id, node in bench.state.nodes.items():
            node.rack = f"r{id}"
        bench.produce(GOOD)
        return bench

    def test_the_leader_names_the_replica_in_the_clients_rack(self) -> None:
        bench = self.bench()
        request = bench.fetch_request(epoch=0)
        request.rack_id = f"r{bench.follower}"
        result = bench.request(bench.leader("t"), request).responses[0].partitions[0]
        assert (result.preferred_read_replica, result.records) == (bench.follower, b"")
        result = bench.request(bench.follower, request).responses[0].partitions[0]
        assert (result.preferred_read_replica, bench.values(result.records)) == (-1, [b"v", b"w"])

    @pytest.mark.parametrize("rack", ["", "r9", "leader"])
    def test_the_leader_serves_all_others(self, rack: str) -> None:
        bench = self.bench()
        request = bench.fetch_request()
        request.rack_id = f"r{bench.leader('t')}" if rack == "leader" else rack
        result = bench.request(bench.leader("t"), request).responses[0].partitions[0]
        assert (result.preferred_read_replica, bench.values(result.records)) == (-1, [b"v", b"w"])

    def test_a_follower_that_is_down_is_not_named(self) -> None:
        bench = self.bench()
        request = bench.fetch_request()
        request.rack_id = f"r{bench.follower}"
        bench.state.stop_node(bench.follower, bench.now)
        assert bench.request(bench.leader("t"), request).responses[0].partitions[0].preferred_read_replica == -1

    @pytest.mark.parametrize(("version", "error"), [(10, ErrorCode.NOT_LEADER_OR_FOLLOWER), (11, ErrorCode.NONE)])
    def test_followers_serve_clients_since_v11(self, version: int, error: ErrorCode) -> None:
        bench = self.bench()
        assert bench.fetch(0, version, node=bench.follower).error_code == error


class TestQuota:
    def test_a_client_over_its_quota_waits_until_its_rate_has_fallen(self) -> None:
        bench = bench_on_one_broker(fetch_quota_bytes_per_second=2 * len(GOOD) // 10)
        for _ in range(4):
            bench.produce(GOOD)
        client = Client(bench)
        assert returned(client.fetch({0: 0})) == [0], "after ten idle seconds a large batch passes once"
        response = client.fetch({0: 2})
        assert (returned(response), response.session_id) == ([], client.id)
        assert 9_000 < response.throttle_time_ms <= 10_000
        early = bench.send(1, bench.fetch_request(2))
        assert early.is_pending, "the broker does not even look at it (KIP-219)"
        bench.advance(response.throttle_time_ms / 1000)
        assert bench.values(early.response.responses[0].partitions[0].records) == [b"v", b"w"] * 3

    def test_other_clients_are_not_throttled(self) -> None:
        bench = bench_on_one_broker(fetch_quota_bytes_per_second=1)
        bench.produce(GOOD)
        throttled = [
            bench.request(1, bench.fetch_request(0), client_id=name).throttle_time_ms > 0 for name in ("a", "a", "b")
        ]
        assert throttled == [False, True, False]


class TestUncleanElection:
    def test_what_was_written_since_the_new_leader_left_is_lost(self) -> None:
        bench = Bench(brokers=2, configs={"unclean.leader.election.enable": "true"})
        bench.produce(GOOD)
        old, new = bench.leader("t"), bench.follower
        bench.state.stop_node(new, bench.now)
        bench.produce(GOOD)
        bench.state.stop_node(old, bench.now)
        bench.state.start_node(new, bench.now)
        assert (bench.leader("t"), bench.topic.partitions[0].log.end_offset) == (new, 2)
        result = bench.fetch(4, last_epoch=0)
        assert (result.diverging_epoch.epoch, result.diverging_epoch.end_offset) == (0, 2)

    def test_a_clean_topic_waits_for_its_last_leader(self) -> None:
        bench = Bench(brokers=2)
        old, new = bench.leader("t"), bench.follower
        bench.state.stop_node(new, bench.now)
        bench.state.stop_node(old, bench.now)
        bench.state.start_node(new, bench.now)
        assert bench.leader("t") == -1
