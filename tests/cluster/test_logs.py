"""Test what a client logs about its brokers: outages at growing intervals, connections, requests."""

from __future__ import annotations

import logging
import re
from functools import partial

import pytest

from kwire.cluster import ToAny, ToNode
from kwire.errors import AuthenticationError
from tests.cluster.test_loop import World


def lines(caplog: pytest.LogCaptureFixture, level: int, name: str = "kwire.cluster") -> list[str]:
    return [one.getMessage() for one in caplog.records if (one.levelno, one.name) == (level, name)]


def test_an_outage_is_one_warning_then_further_ones_at_growing_intervals(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kwire")
    world = World(bootstrap="host-1:9092,host-2:9092")
    for host in world.hosts.values():
        host.is_up = False
    outcome = world.call(ToAny(), timeout_ms=600_000)
    world.net.run(lambda: lines(caplog, logging.WARNING))
    assert lines(caplog, logging.WARNING)[0].startswith(
        "no broker can be reached; tried host-1:9092, host-2:9092; the last failure: refused [broker host-"
    )
    world.net.rest(9)
    assert len(lines(caplog, logging.WARNING)) == 1
    for _ in range(19):
        world.net.rest(9)
    ages = [int(age) for text in lines(caplog, logging.WARNING) for age in re.findall(r"reached for (\d+) s;", text)]
    assert ages == pytest.approx([10, 30, 70, 150], abs=2)
    assert lines(caplog, logging.INFO) == []
    for host in world.hosts.values():
        host.is_up = True
    world.net.run(lambda: outcome)
    backs = [text for text in lines(caplog, logging.INFO) if "reached again" in text]
    assert len(backs) == 1
    assert re.fullmatch(r"broker host-[12]:9092 can be reached again, after 18\d\.\d s without any", backs[0])
    assert len(lines(caplog, logging.WARNING)) == 5


def test_connections_that_end_at_the_first_request_are_one_outage(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kwire")
    world = World()
    world.hosts[1].closes_on_requests = True
    for _ in range(90):
        world.call(ToAny())
        world.net.rest(1)
    assert world.hosts[1].connections > 20
    ages = [int(age) for text in outages(caplog) for age in re.findall(r"reached for (\d+) s;", text)]
    assert ages == pytest.approx([10, 30, 70], abs=3)
    assert not [text for text in lines(caplog, logging.INFO) if "reached again" in text]
    world.hosts[1].closes_on_requests = False
    outcome = world.call(ToAny())
    world.net.run(lambda: outcome)
    assert len([text for text in lines(caplog, logging.INFO) if "reached again" in text]) == 1


def test_the_next_outage_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    for _ in range(2):
        caplog.clear()
        for host in world.hosts.values():
            host.is_up = False
        outcome = world.call(ToAny(), timeout_ms=60_000)
        world.net.run(lambda: outages(caplog), seconds=3)
        assert len(outages(caplog)) == 1
        for host in world.hosts.values():
            host.is_up = True
        world.net.run(partial(len, outcome))


def outages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for text in lines(caplog, logging.WARNING) if "no broker can be reached" in text]


def test_one_of_two_addresses_is_no_outage(caplog: pytest.LogCaptureFixture) -> None:
    world = World(bootstrap="gone:1,host-2:9092")
    outcome = world.call(ToAny())
    world.net.run(lambda: outcome)
    world.net.rest(20)
    assert lines(caplog, logging.WARNING) == []


def test_a_refused_password_is_a_warning_too(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.hosts[1].refuses = AuthenticationError("wrong password", remedy="check it")
    outcome = world.call(ToAny())
    world.net.run(lambda: outcome)
    assert lines(caplog, logging.WARNING) == [
        "no broker can be reached; tried host-1:9092; the last failure: wrong password: check it"
    ]


def test_connections_opened_and_closed_and_why(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kwire")
    world = World()
    outcome = world.call(ToNode(2))
    world.net.run(lambda: outcome)
    assert lines(caplog, logging.INFO) == ["connected to broker host-1:9092", "connected to broker 2 at host-2:9092"]
    caplog.clear()
    world.hosts[2].is_up = False
    world.net.run(lambda: lines(caplog, logging.WARNING))
    assert lines(caplog, logging.INFO) == [
        "the connection to broker 2 at host-2:9092 is closed: the peer reset the connection"
    ]
    assert lines(caplog, logging.WARNING) == ["broker 2 at host-2:9092 failed: the peer reset the connection"]


def test_each_request_and_response_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "kwire")
    world = World()
    outcome = world.call(ToNode(1))
    world.net.run(lambda: outcome)
    assert any(
        re.fullmatch(r"broker host-1:9092 offers Produce 0-12, Metadata 0-12, .*", text)
        for text in lines(caplog, logging.DEBUG)
    )
    traffic = lines(caplog, logging.DEBUG, "kwire.cluster.requests")
    for broker, request in [
        ("host-1:9092", r"ApiVersions v\d+ \(correlation id 0\)"),
        ("host-1:9092", r"Metadata v12 \(correlation id 1\)"),
        ("1 at host-1:9092", r"InitProducerId v4 \(correlation id 1\)"),
    ]:
        sent = [text for text in traffic if re.fullmatch(rf"to broker {broker}: {request}, \d+ bytes", text)]
        got = [
            text
            for text in traffic
            if re.fullmatch(rf"from broker {broker}: response to {request}, \d+ bytes, \d+\.\d ms", text)
        ]
        assert (len(sent), len(got)) == (1, 1), traffic


def test_nothing_is_computed_for_requests_that_are_not_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "kwire")
    monkeypatch.setattr("kwire.session.Session.unsent_requests", None)
    monkeypatch.setattr("kwire.session.Session.oldest_request", None)
    world = World()
    outcome = world.call(ToNode(1))
    world.net.run(lambda: outcome)
    assert not isinstance(outcome[0], Exception)
