"""Counts of exchanges: keys, sizes, errors, quantiles, spans of time."""

from __future__ import annotations

import pytest

from kwire.errors import ErrorCode
from kwire.lint import spans
from kwire.lint.histogram import Histogram
from kwire.lint.statistics import KEYS_MAX, OTHERS, Statistics
from kwire.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kwire.protocol.messages.produce import ProduceRequest, ProduceResponse
from kwire.records import Compression, encode_batch
from tests.lint.traffic import Traffic

BEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def produce(records: int, compression: Compression = Compression.NONE, *topics: str) -> ProduceRequest:
    batch = encode_batch([(0, None, b"x" * 100, ()) for _ in range(records)], compression=compression)
    part = ProduceRequest.Topic.Partition(index=0, records=batch)
    return ProduceRequest(
        acks=-1, timeout_ms=1000,
        topic_data=[ProduceRequest.Topic(name=name, partition_data=[part]) for name in topics or ("orders",)],
    )  # fmt: skip


def produced(code: int = 0, *topics: str) -> ProduceResponse:
    part = ProduceResponse.Topic.Partition(index=0, error_code=code, base_offset=0)
    return ProduceResponse(
        responses=[ProduceResponse.Topic(name=name, partition_responses=[part]) for name in topics or ("orders",)]
    )


@pytest.fixture
def traffic() -> Traffic:
    traffic = Traffic()
    one, two = traffic.connection(0, "billing"), traffic.connection(0, "audit", node=2)
    for number in range(100):
        one.exchange(1 + number / 10, BEAT, 4, HeartbeatResponse(error_code=0), ms=1 + number)
    two.exchange(2, produce(10, Compression.GZIP), 9, produced())
    two.exchange(3, produce(20), 8, produced(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    two.exchange(4, BEAT, 4, None)
    return traffic


def test_by_api(traffic: Traffic) -> None:
    (found,) = spans(traffic.exchanges(), "api")
    beat, produce = found.sorted_rows()
    assert (beat.key, beat.n, beat.unanswered, beat.versions) == ("Heartbeat", 101, 1, {4})
    assert beat.latency.quantile(0.5) == pytest.approx(50, rel=0.03)
    assert beat.latency.quantile(0.95) == pytest.approx(95, rel=0.03)
    assert beat.latency.max == pytest.approx(100)
    assert (produce.key, produce.records, produce.records_a_request) == ("Produce", 30, 15)
    assert produce.errors == {"NOT_LEADER_OR_FOLLOWER": 1}
    assert produce.versions == {8, 9}
    assert produce.compression is not None
    assert produce.compression > 5
    assert found.seconds == pytest.approx(9.9)


@pytest.mark.parametrize(
    ("by", "keys"),
    [
        ("client", ["billing", "audit"]),
        ("topic", ["orders"]),
        ("broker", ["10.0.1.1:9092", "10.0.1.2:9092"]),
        ("connection", ["10.0.0.7:40000 > 10.0.1.1:9092", "10.0.0.7:40001 > 10.0.1.2:9092"]),
    ],
)
def test_by_the_others(traffic: Traffic, by: object, keys: list[str]) -> None:
    (found,) = spans(traffic.exchanges(), by)  # type: ignore[arg-type]
    assert [row.key for row in found.sorted_rows()] == keys
    assert sum(row.errors.total() for row in found.sorted_rows()) == 1


def test_an_error_belongs_to_its_topic() -> None:
    traffic = Traffic()
    response = produced(0, "good", "bad")
    response.responses[1].partition_responses = [
        ProduceResponse.Topic.Partition(index=0, error_code=ErrorCode.MESSAGE_TOO_LARGE, base_offset=-1)
    ]
    traffic.connection().exchange(1, produce(1, Compression.NONE, "good", "bad"), 9, response)
    (found,) = spans(traffic.exchanges(), "topic")
    assert {row.key: dict(row.errors) for row in found.sorted_rows()} == {"good": {}, "bad": {"MESSAGE_TOO_LARGE": 1}}


def test_spans_of_time(traffic: Traffic) -> None:
    found = list(spans(traffic.exchanges(), "api", 5.0))
    assert [sum(row.n for row in one.rows.values()) for one in found] == [52, 51]
    assert found[1].begin_ns - found[0].begin_ns == pytest.approx(5e9, abs=2e8)


def test_keys_have_a_bound(traffic: Traffic) -> None:
    statistics = Statistics("client")
    (exchange, *_) = traffic.exchanges()
    for number in range(KEYS_MAX + 5):
        exchange.client_id = str(number)
        statistics.add(exchange)
    assert len(statistics.rows) == KEYS_MAX + 1
    assert statistics.rows[OTHERS].n == 5


def test_a_histogram_is_small_and_near() -> None:
    histogram = Histogram()
    for number in range(1, 100_001):
        histogram.add(number / 100)
    assert len(histogram._counts) < 400
    for share in (0.01, 0.5, 0.95, 0.99):
        assert histogram.quantile(share) == pytest.approx(share * 1000, rel=0.021)
    assert histogram.quantile(1) == histogram.max == 1000
    assert Histogram().quantile(0.5) == 0
