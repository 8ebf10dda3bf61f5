"""A program of Kafka Streams with `group.protocol=streams` on the embedded broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from brokers.jars import fetch_jars
from brokers.java import program_command

from tests.broker.conftest import StartCluster
from tests.broker.peers import run

pytestmark = pytest.mark.live


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_a_count_goes_on_while_instances_come_and_go(start: StartCluster, guarantee: str) -> None:
    cluster = start(3, topics={"t": 3, "counts": 3}, version="4.3", streams_heartbeat_interval_ms=200)
    jars = fetch_jars("kafka-streams", "4.3.1")
    source = Path(__file__).with_name("StreamsProgram.java")
    lines = run(program_command(jars, source, cluster.bootstrap, guarantee)).splitlines()

    def counts(each: int) -> str:
        return "counts {" + ", ".join(f"word{word}={each}" for word in range(6)) + "}"

    assert lines == [
        counts(10), "tasks 6 of 1", "shared by 2", counts(20), "left 1", counts(30), "deleted"
    ]  # fmt: skip
