"""kafkatest's TransactionsTest and GroupModeTransactionsTest: copies in transactions, exactly once and in order.

Copiers or brokers are restarted while the copies are made, and a reader of committed records follows them.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from brokers.cluster import KafkaCluster

from kwire import Consumer
from tests.live.system.conftest import make_topic
from tests.live.system.services import PATIENCE_S, Copier, VerifiableProducer, keep_logs

Run = Callable[[Any], Any]
pytestmark = pytest.mark.timeout(600)
PARTITIONS = 2
RECORDS = 3_000
# Without keys one batch has all records, and one partition.
KEYS = 10


@pytest.mark.parametrize("is_group", [True, False], ids=["group", "assigned"])
@pytest.mark.parametrize("target", ["clients", "brokers"])
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "hard"])
def test_transactions(
    brokers: KafkaCluster, run: Run, tmp_path: Path, is_group: bool, target: str, clean: bool
) -> None:
    source, copy = (make_topic(brokers, name, PARTITIONS) for name in ("source", "copy"))
    producer = run(VerifiableProducer(brokers, source, throughput=-1, max_messages=RECORDS, keys=KEYS))
    producer.start()
    producer.await_produced_messages(RECORDS)
    copiers = [run(make_copier(brokers, source, copy, number, is_group)) for number in range(PARTITIONS)]
    for copier in copiers:
        copier.start()
    if target == "brokers":
        for node in brokers.node_ids:
            brokers.stop_node(node, graceful=clean)
            brokers.start_node(node)
    else:
        for copier in copiers:
            copier.wait_until(
                lambda copier=copier: copier.last.get("consumed", 0) > 0 or copier.is_done, "some records copied"
            )
            copier.restart(clean=clean)
    for copier in copiers:
        copier.wait_until(lambda copier=copier: copier.is_done, "all was copied")
    expected = values(brokers, source)
    assert all(expected.values()), "a partition is empty"
    differences = compared(expected, values(brokers, copy))
    if differences:
        keep_logs(brokers, [source, copy, "__consumer_offsets", "__transaction_state"], tmp_path)
        (tmp_path / "copiers.json").write_text(json.dumps([copier.events for copier in copiers], indent=1))
    assert not differences, f"all records are in {tmp_path}"


def compared(source: dict[int, list[int]], copy: dict[int, list[int]]) -> list[str]:
    """Return what is not equal, for each partition that differs."""
    texts = []
    for number, expected in source.items():
        found = copy[number]
        if found != expected:
            at = next((at for at, pair in enumerate(zip(expected, found, strict=False)) if pair[0] != pair[1]), -1)
            more, less = Counter(found) - Counter(expected), Counter(expected) - Counter(found)
            texts.append(
                f"partition {number}: {len(found)} of {len(expected)} records, first difference at {at}; too many: "
                f"{list(more)[:20]}, missing: {list(less)[:20]}"
            )
    return texts


def make_copier(brokers: KafkaCluster, source: str, copy: str, number: int, is_group: bool) -> Copier:
    mode = ["--group-mode", "--use-group-metadata"] if is_group else []
    return Copier(
        brokers, "--input-topic", source, "--input-partition", str(number), "--output-topic", copy, "--consumer-group",
        source, "--transaction-size", "50", "--transaction-timeout", "20000", "--transactional-id",
        f"{source}-{number}", "--enable-random-aborts", *mode,
    )  # fmt: skip


def values(brokers: KafkaCluster, topic: str) -> dict[int, list[int]]:
    """Return the committed values by partition, in their order, up to the ends of the log.

    A coordinator writes the markers after it has answered the producer: they are waited for.
    """
    keys = [(topic, number) for number in range(PARTITIONS)]
    found: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
    with Consumer(brokers.bootstrap) as consumer:
        ends = consumer.end_offsets(keys)
    give_up_at = time.monotonic() + PATIENCE_S
    with Consumer(brokers.bootstrap, isolation="read_committed") as consumer:
        consumer.assign([(*key, "earliest") for key in keys])
        while any(consumer.position(*key) < end for key, end in ends.items()) and time.monotonic() < give_up_at:
            for record in consumer.poll(max_records=10_000, timeout=1):
                found[record.partition].append(int(record.value or b""))
    return found
