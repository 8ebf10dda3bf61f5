"""Programs by Sarama, kafka-go and @platformatic/kafka print the same on the embedded broker as on a real one.

A walk takes a client's whole range: administration, every codec, offsets, groups, transactions.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker.conftest import StartCluster
from tests.broker.peers import built_go, installed

# The first run builds the programs from their sources.
pytestmark = [pytest.mark.live, pytest.mark.timeout(400)]

WALKS = Path(__file__).parent / "walks"
SECONDS_MAX = 120.0
Steps = list[tuple[str, object]]


def steps(*command: str, **environment: str) -> Steps:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False, env={**os.environ, **environment}
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


def by_sarama(bootstrap: str) -> Steps:
    return steps(built_go(WALKS / "sarama", "sarama-walk"), bootstrap)


def by_kafka_go(bootstrap: str) -> Steps:
    return steps(built_go(WALKS / "kafkago", "kafkago-walk"), bootstrap)


def by_platformatic(bootstrap: str) -> Steps:
    source = WALKS / "platformatic"
    modules = installed(source, "@platformatic/kafka")
    return steps("node", str(source / "walk.mjs"), bootstrap, NODE_PATH=str(modules))


@pytest.mark.parametrize("walk", [by_sarama, by_kafka_go, by_platformatic])
def test_a_walk_is_the_same_on_a_real_broker(
    start: StartCluster, real_kafka: tuple[str, int], walk: Callable[[str], Steps]
) -> None:
    embedded = walk(start(1, version="4.3", auto_create_topics=True).bootstrap)
    assert len(embedded) > 40
    assert embedded == walk("{}:{}".format(*real_kafka))
