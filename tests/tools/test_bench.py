"""Test that every contestant of tools/bench completes its task on a real broker, with few records."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.main import main
from brokers.cluster import KafkaCluster

pytestmark = pytest.mark.live
FEW = ["--records", "2000", "--warmup", "500", "--rounds", "1", "--partitions", "2"]
FEW_MESSAGES = ["--records", "500", "--warmup", "100"]
# With fewer records the cost of Java is smaller than the variation of a JVM's start.
ENOUGH_FOR_JAVA = ["--records", "1000000", "--warmup", "1000", "--rounds", "1", "--only", "java"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster(settings={"auto.create.topics.enable": "false"}) as running:
        yield running


@pytest.mark.parametrize(
    "arguments",
    [
        ["produce", *FEW, "--compression", "lz4", "--only", "kwire,confluent,aio,kafka-python"],
        ["produce", *ENOUGH_FOR_JAVA],
        ["produce", *FEW, "--keys", "100", "--only", "kwire c,confluent,aio,kafka-python"],
        ["consume", *FEW, "--compression", "lz4", "--only", "kwire,confluent,aio,kafka-python"],
        ["consume", *ENOUGH_FOR_JAVA],
        ["bulk", "--consume", *FEW, "--only", "kwire,confluent"],
        ["groups", "--parts", "consume,share", *FEW[:2], "--rounds", "1", "--only", "kwire,confluent,aio"],
        ["queue", *FEW_MESSAGES, "--rounds", "1", "--sizes", "256", "--senders", "5", "--only", "queue,plain"],
        ["latency", "--records", "10", "--rounds", "1"],
        ["memory", *FEW],
        ["codecs", "--rounds", "1", "--bytes", "1000"],
    ],
    ids=[
        "produce",
        "produce-java",
        "keys",
        "consume",
        "consume-java",
        "bulk-consume",
        "groups",
        "queue",
        "latency",
        "memory",
        "codecs",
    ],
)
def test_bench(arguments: list[str], cluster: KafkaCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if arguments[0] not in ("memory", "codecs"):  # one stops its broker for a while, the other has none
        arguments = [*arguments, "--bootstrap", cluster.bootstrap]
    files = tmp_path / "found.json", tmp_path / "found.svg"
    plots = [] if arguments[0] in ("groups", "queue") else ["--svg", str(files[1])]
    code = main([*arguments, "--json", str(files[0]), *plots])
    printed = capsys.readouterr().out
    assert code == 0, printed
    found = json.loads(files[0].read_text())
    for case in found["cases"]:
        for samples in case["samples"].values():
            assert [sample["failure"] for sample in samples] == [None]
    if not plots:
        return
    bars = sum(len(case["samples"]) for case in found["cases"])
    assert files[1].read_text().count("<rect") == bars + 1  # and the background
