"""`kwire stats`: a table, JSON, spans of time."""

from __future__ import annotations

import pytest

from kwire.protocol.messages.heartbeat import HeartbeatResponse
from tests.cli.running import run
from tests.lint.test_statistics import BEAT
from tests.lint.traffic import Traffic


@pytest.fixture(scope="module")
def capture() -> bytes:
    traffic = Traffic()
    connection = traffic.connection(0, "billing")
    for number in range(40):
        connection.exchange(1 + number / 10, BEAT, 4, HeartbeatResponse(error_code=27 if number == 7 else 0), ms=2.5)
    return traffic.capture()


def test_a_table(capture: bytes) -> None:
    ran = run("stats", "-", "-f", "table", stdin=capture)
    assert (ran.code, ran.stderr) == (0, "")
    head, row = ran.stdout.splitlines()
    assert head.split()[:2] == ["api", "n"]
    assert row.split()[:3] == ["Heartbeat", "40", "10.3"]
    assert "1 REBALANCE_IN_PROGRESS" in row
    assert "2.50" in row


def test_json_and_spans(capture: bytes) -> None:
    (line,) = run("stats", "-", "--json", "--by", "client", stdin=capture).lines()
    assert (line["client"], line["n"], line["errors"]) == ("billing", 40, {"REBALANCE_IN_PROGRESS": 1})
    assert line["latency_ms"]["max"] == 2.5
    assert [one["n"] for one in run("stats", "-", "--every", "1s", stdin=capture).lines()] == [10, 10, 10, 10]
    assert run("stats", "-", "--every", "1000ms", "-f", "table", stdin=capture).stdout.splitlines()[0] == "08:00:01"
    halves = run("stats", "-", "--every", "500ms", "-f", "table", stdin=capture).stdout.splitlines()[::3]
    assert halves[:3] == ["08:00:01.000", "08:00:01.500", "08:00:02.000"]


def test_one_request_has_no_rate() -> None:
    traffic = Traffic()
    traffic.connection().exchange(0, BEAT, 4, None)
    (line,) = run("stats", "-", stdin=traffic.capture()).lines()
    assert (line["n"], line["unanswered"], line["requests_per_second"]) == (1, 1, None)
    assert "req/s" not in run("stats", "-", "-f", "table", stdin=traffic.capture()).stdout


def test_wrong_input(capture: bytes) -> None:
    assert run("stats", "-", "--every", "soon", stdin=capture).code == 2
    assert run("stats", "-", stdin=b"no capture").code == 4
    assert "no Kafka exchange" in run("stats", "-", stdin=Traffic().capture()).stderr
