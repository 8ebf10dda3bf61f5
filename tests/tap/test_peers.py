"""Other clients through the tap: librdkafka's groups of both protocols and its transactions; tshark reads the file."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kwire.broker import Cluster
from kwire.capture import read_exchanges
from kwire.tap import Tap

confluent_kafka = pytest.importorskip("confluent_kafka")

NUMBER = 3_000


def produced(bootstrap: str, **options: Any) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, **options})
    is_transactional = "transactional.id" in options
    if is_transactional:
        producer.init_transactions(20)
    for start in range(0, NUMBER, 500):
        if is_transactional:
            producer.begin_transaction()
        for index in range(start, start + 500):
            producer.produce("t", str(index).encode(), str(index % 11).encode())
        if is_transactional:
            producer.commit_transaction(20)
    assert producer.flush(20) == 0


def consumed(bootstrap: str, **options: Any) -> Counter[bytes]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest", **options}
    )
    consumer.subscribe(["t"])
    found: Counter[bytes] = Counter()
    while found.total() < NUMBER:
        records = consumer.consume(500, 20)
        assert records, f"{found.total()} of {NUMBER}"
        for record in records:
            assert record.error() is None, record.error()
            found[record.value()] += 1
    consumer.close()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("transactional", [False, True])
def test_librdkafka(tmp_path: Path, protocol: str, transactional: bool) -> None:
    path = tmp_path / "t.pcapng"
    with Cluster(3, topics={"t": 6}) as cluster:
        with Tap(cluster.bootstrap.split(",")[0], record=path) as tap:
            produced(tap.address, **({"transactional.id": "x"} if transactional else {}))
            found = consumed(tap.address, **{"group.protocol": protocol})
        assert not cluster.failures
    assert found == Counter(str(index).encode() for index in range(NUMBER))
    exchanges = list(read_exchanges(path))
    names = {one.api_name for one in exchanges}
    assert ("ConsumerGroupHeartbeat" in names) is (protocol == "consumer")
    assert ("EndTxn" in names) is transactional
    assert {one.software.partition(" ")[0] for one in exchanges} == {"confluent-kafka-python"}
    if shutil.which("tshark"):
        assert not tcp_problems(path)


def tcp_problems(path: Path) -> str:
    """Return the packets of which tshark says that bytes before them are lost, repeated or out of order."""
    command = ["tshark", "-r", str(path), "-Y", "tcp.analysis.flags"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
