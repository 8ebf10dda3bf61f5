"""Share consumers that are independent of kwire: Java's, and librdkafka's by confluent-kafka."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from brokers.jars import fetch_jars
from brokers.java import program_command

from kwire.broker import Cluster
from tests.broker.conftest import StartCluster
from tests.broker.peers import PATIENCE_SECONDS, Confluent, run

COUNT = 300


def from_the_start(cluster: Cluster, group: str = "g", **configs: str) -> None:
    cluster.alter_group(group, {"share.auto.offset.reset": "earliest", **configs})


def fill(cluster: Cluster, partitions: int = 1) -> set[bytes]:
    """Produce COUNT records, evenly to the partitions: a share group has no start in a partition without a read."""
    producer = Confluent().producer(cluster.bootstrap)
    values = [b"v%d" % n for n in range(COUNT)]
    for n, value in enumerate(values):
        producer.produce("t", value, partition=n % partitions)
    assert producer.flush(PATIENCE_SECONDS) == 0
    return set(values)


def share_consumer(cluster: Cluster, group: str = "g", **options: Any) -> Any:
    quiet = {"bootstrap.servers": cluster.bootstrap, "group.id": group, "log_level": 0}
    module: Any = confluent_kafka
    return module.ShareConsumer({**quiet, **{name.replace("_", "."): value for name, value in options.items()}})


@pytest.mark.live
def test_java(start: StartCluster) -> None:
    cluster = start(3, topics={"t": 3})
    jars = fetch_jars("kafka-clients", "4.4.0")
    source = Path(__file__).with_name("ShareConsumers.java")
    lines = run(program_command(jars, source, cluster.bootstrap)).splitlines()
    assert lines == [
        "implicit 60 of 60",
        "partitions 3 lag 0",
        "explicit accepted 48 rejected 12 again 12 within the limit true",
        "group Stable members 1",
        "renewed true failed false",
        "altered 0@15 records 5",
        "groups 0",
    ]


def test_confluent_accepts_everything_once(start: StartCluster) -> None:
    cluster = start(3, topics={"t": 3})
    values = fill(cluster, 3)
    from_the_start(cluster)
    consumer = share_consumer(cluster)
    consumer.subscribe(["t"])
    seen: list[bytes] = []
    while len(seen) < COUNT:
        polled = consumer.poll(PATIENCE_SECONDS)
        assert polled, f"only {len(seen)} of {COUNT}"
        seen += [message.value() for message in polled if message.error() is None]
        # Of acknowledgements that go with a fetch, librdkafka (a preview) drops those of a session that it lost.
        assert not any(consumer.commit_sync().values())
    consumer.close()
    assert sorted(seen) == sorted(values)
    lags = cluster.call(
        lambda state, now: [
            state.partition("t", key.partition).log.end_offset - saved.start_offset - saved.delivery_complete_count
            for key in state.share_states.of_group("g")
            if (saved := state.share_states.get(key)) is not None
        ]
    )
    assert lags == [0, 0, 0]


def test_confluent_goes_on_where_a_former_leader_was(start: StartCluster) -> None:
    """Records that were accepted do not come again after the leader has stopped."""
    cluster = start(3, topics={"t": 1})
    fill(cluster)
    from_the_start(cluster)
    consumer = share_consumer(cluster)
    consumer.subscribe(["t"])
    seen: list[int] = []
    while len(seen) < COUNT:
        polled = consumer.poll(PATIENCE_SECONDS)
        assert polled, f"only {len(seen)} of {COUNT}"
        seen += [message.offset() for message in polled if message.error() is None]
    assert not any(consumer.commit_sync().values())
    cluster.stop(cluster.leader("t"))
    fill(cluster)
    more: list[int] = []
    while len(more) < COUNT:
        polled = consumer.poll(PATIENCE_SECONDS)
        assert polled, f"only {len(more)} of {COUNT}"
        more += [message.offset() for message in polled if message.error() is None]
    consumer.close()
    assert sorted(more) == list(range(COUNT, 2 * COUNT))
