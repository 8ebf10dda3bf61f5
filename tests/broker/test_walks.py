"""Programs by Sarama, kafka-go and @platformatic/kafka print the same on the embedded broker as on a real one.

A walk takes a client's whole range: administration, every codec, offsets, groups, transactions.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker.conftest import StartCluster
from tests.broker.peers import built_go, installed, run

pytestmark = pytest.mark.live

WALKS = Path(__file__).parent / "walks"
Steps = list[tuple[str, object]]


def steps(output: str) -> Steps:
    return [tuple(json.loads(line)) for line in output.splitlines()]


def by_sarama(bootstrap: str) -> Steps:
    return steps(run([built_go(WALKS / "sarama", "sarama-walk"), bootstrap]))


def by_kafka_go(bootstrap: str) -> Steps:
    return steps(run([built_go(WALKS / "kafkago", "kafkago-walk"), bootstrap]))


def by_platformatic(bootstrap: str) -> Steps:
    source = WALKS / "platformatic"
    modules = installed(source, "@platformatic/kafka")
    return steps(run(["node", str(source / "walk.mjs"), bootstrap], NODE_PATH=str(modules)))


@pytest.mark.parametrize("walk", [by_sarama, by_kafka_go, by_platformatic])
def test_a_walk_is_the_same_on_a_real_broker(
    start: StartCluster, real_kafka: tuple[str, int], walk: Callable[[str], Steps]
) -> None:
    embedded = walk(start(1, version="4.3", auto_create_topics=True).bootstrap)
    assert len(embedded) > 40
    assert embedded == walk("{}:{}".format(*real_kafka))
