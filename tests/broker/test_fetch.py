"""Fetch: waiting, errors, limits, isolation."""

from __future__ import annotations

from typing import Any

import pytest

from kwire.errors import ErrorCode
from kwire.records import decode_batches
from tests.broker.bench import GOOD, NOBODY, Bench, transactional
from tests.broker.virtual_cluster import WALL_MS


class TestFetchWaiting:
    def test_a_fetch_waits_for_a_record(self) -> None:
        bench = Bench()
        waiting = bench.fetch_later(max_wait_ms=500)
        bench.advance(0.4)
        assert waiting.is_pending
        bench.produce(GOOD)
        assert bench.values(waiting.response.responses[0].partitions[0].records) == [b"v", b"w"]

    def test_a_fetch_waits_at_most_max_wait_ms(self) -> None:
        bench = Bench()
        waiting = bench.fetch_later(max_wait_ms=500)
        bench.advance(0.6)
        assert waiting.response.responses[0].partitions[0].records == b""
        bench.produce(GOOD)
        assert len(waiting.completions) == 1

    def test_a_fetch_waits_for_min_bytes(self) -> None:
        bench = Bench()
        waiting = bench.fetch_later(max_wait_ms=500, min_bytes=2 * len(GOOD))
        bench.produce(GOOD)
        assert waiting.is_pending
        bench.produce(GOOD)
        assert len(waiting.response.responses[0].partitions[0].records) == 2 * len(GOOD)

    def test_a_fetch_completes_when_the_leader_moves(self) -> None:
        bench = Bench()
        waiting = bench.fetch_later(max_wait_ms=500, epoch=0)
        bench.topic.partitions[0].move_leader(bench.follower, bench.now)
        result = waiting.response.responses[0].partitions[0]
        assert result.error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert result.current_leader.leader_id == bench.leader("t")

    def test_a_fetch_completes_when_the_topic_is_deleted(self) -> None:
        bench = Bench()
        waiting = bench.fetch_later(max_wait_ms=500)
        bench.state.delete_topic(bench.topic, bench.now)
        assert waiting.response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID

    @pytest.mark.parametrize("more", [{"offset": 9}, {"topic_id": NOBODY}, {"epoch": 7}, {"min_bytes": 0}])
    def test_a_fetch_with_an_error_or_min_bytes_0_does_not_wait(self, more: dict[str, Any]) -> None:
        assert not Bench().fetch_later(max_wait_ms=500, **more).is_pending

    def test_the_broker_limits_the_wait(self) -> None:
        bench = Bench(fetch_max_wait_ms=100)
        waiting = bench.fetch_later(max_wait_ms=500_000)
        bench.advance(0.2)
        assert not waiting.is_pending


class TestFetchErrors:
    @pytest.mark.parametrize(
        ("more", "version", "error"),
        [
            ({"topic": "nowhere"}, 12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ({"topic_id": NOBODY}, 13, ErrorCode.UNKNOWN_TOPIC_ID),
            ({"offset": 3}, 13, ErrorCode.OFFSET_OUT_OF_RANGE),
            ({"offset": -1}, 13, ErrorCode.OFFSET_OUT_OF_RANGE),
            ({"epoch": 0}, 13, ErrorCode.FENCED_LEADER_EPOCH),
            ({"epoch": 1}, 13, ErrorCode.NONE),
            ({"epoch": 2}, 13, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ],
    )
    def test_each_error_has_its_code(self, more: dict[str, Any], version: int, error: ErrorCode) -> None:
        bench = Bench()
        bench.produce(GOOD)
        bench.topic.partitions[0].move_leader(bench.follower, 0.0)
        assert bench.fetch(version=version, **more).error_code == error

    def test_truncated_records_yield_a_diverging_epoch(self) -> None:
        bench = Bench(replication_ms=100)
        bench.produce(GOOD, acks=1)
        bench.advance(1)
        bench.produce(GOOD, acks=1)
        bench.state.stop_node(bench.leader("t"), bench.now)  # offsets 2 and 3 of epoch 0 are lost
        bench.produce(GOOD, acks=1)
        bench.advance(1)
        result = bench.fetch(4, last_epoch=0)
        assert (result.diverging_epoch.epoch, result.diverging_epoch.end_offset) == (0, 2)
        assert result.records == b""
        assert bench.values(bench.fetch(2, last_epoch=0).records) == [b"v", b"w"]


class TestFetchLimits:
    def filled(self) -> Bench:
        bench = Bench(partitions=2)
        bench.topic.partitions[1].move_leader(bench.leader("t"), 0.0)
        for partition in (0, 1):
            for _ in range(3):
                bench.produce(GOOD, partition=partition)
        return bench

    @pytest.mark.parametrize(
        ("limit", "max_bytes", "counts"),
        [
            (9, 9, [3, 3]),
            (2, 9, [2, 2]),
            (9, 1, [1, 0]),
            (9, 0.1, [1, 0]),  # KIP-74: the first batch is complete whatever the limits
            (0, 9, [1, 0]),
            (9, 4, [3, 1]),
            (2, 3, [2, 1]),
            (2.5, 9, [2.5, 2.5]),  # a batch that is not the first is cut
            (9, 4.5, [3, 1.5]),
            (9, 3.5, [3, 0]),  # the first batch of a partition is complete or absent
        ],
    )
    def test_limits_apply_to_whole_batches(self, limit: float, max_bytes: float, counts: list[float]) -> None:
        bench = self.filled()
        size = len(GOOD)
        request = bench.fetch_request(partitions=2, limit=int(limit * size), max_bytes=int(max_bytes * size))
        response = bench.request(bench.leader("t"), request)
        found = [len(result.records or b"") for result in response.responses[0].partitions]
        assert found == [int(count * size) for count in counts]

    def test_before_v3_the_last_batch_is_cut(self) -> None:
        bench = self.filled()
        assert len(bench.fetch(0, 2, limit=10).records) == 10
        assert len(bench.fetch(0, 3, limit=10).records) > 10


class TestTransactionsInFetch:
    def test_read_committed_stops_at_open_transactions_and_lists_aborted_ones(self) -> None:
        bench = Bench(verify_transactional_writes=False)
        log = bench.topic.partitions[0].log
        for producer_id, value in [(1, b"aborted"), (2, b"open")]:
            bench.produce(transactional(value, producer_id), 11, transaction=f"tx-{producer_id}")
        assert bench.values(bench.fetch(committed=True).records) == []
        assert bench.values(bench.fetch().records) == [b"aborted", b"open"]
        for kind, producer in [("abort", 1), ("commit", 2)]:
            log.append_marker(
                kind, producer_id=producer, producer_epoch=0, coordinator_epoch=0, leader_epoch=0, now_ms=WALL_MS
            )
            bench.topic.partitions[0].replicate(0.0)
        found = bench.fetch(committed=True)
        assert found.last_stable_offset == 4
        listed = [(aborted.producer_id, aborted.first_offset) for aborted in found.aborted_transactions]
        assert listed == [(1, 0)]
        assert [part.is_control for part in decode_batches(found.records)] == [False, False, True, True]
        assert bench.fetch().aborted_transactions is None
