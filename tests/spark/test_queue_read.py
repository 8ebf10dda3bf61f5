"""Dead letters and markers as tables: every column, notes of a redrive, other queues, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.types import IntegerType, StringType, StructType

from kwire import Producer
from kwire.broker import Cluster
from kwire.errors import ConfigurationError
from kwire.queue import Service
from kwire.records import encode_batch
from kwire.spark import KwireDataSource
from kwire.spark.queue_read import TABLES, QueueTable
from tests.consumer.embedded import START_MS, append


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster with two dead letters: one of the queue jobs, which was sent back, and one of the queue other."""
    with Cluster(brokers=1) as cluster:
        with Service(cluster.bootstrap, partitions=1) as service:
            for queue, payload in (("jobs", b"bad"), ("other", b"worse")):
                with service.queue(queue).producer() as producer:
                    producer.send(payload, [("color", b"red")], message_id=f"{queue}-1").result(timeout=30.0)
                with service.queue(queue).consumer() as consumer:
                    message = consumer.receive(timeout=30.0)
                    assert message is not None
                    message.nack("no such job")
            assert service.redrive("jobs") == 1
        yield cluster


def read(cluster: Cluster, columns: StructType | None = None, **own: str) -> list[dict[str, Any]]:
    source = KwireDataSource({"kafka.bootstrap.servers": cluster.bootstrap, **own})
    reader = source.reader(columns or source.schema())
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def test_dead_letters(cluster: Cluster) -> None:
    rows = read(cluster, queueTable="deadLetters")
    assert [(row["queue"], row["redriven"]) for row in rows] == [("jobs", None), ("other", None), ("jobs", 0)]
    jobs, _, note = rows
    assert (jobs["id"], jobs["value"], jobs["reason"], jobs["deliveries"]) == ("jobs-1", b"bad", "no such job", 1)
    assert jobs["headers"] == [{"key": "color", "value": b"red"}]
    assert jobs["source"] == "messages:0:0"
    assert jobs["firstSentAt"] <= jobs["deadSince"]
    assert (jobs["partition"], jobs["offset"]) == (0, 0)
    assert note["id"] is None


def test_a_time_that_spark_cannot_hold_is_null() -> None:
    with Cluster(brokers=1, topics={"messages-dead-letters": 1}) as own, Producer(own.bootstrap) as producer:
        headers = [("kwire-mq-first-at", b"9" * 18)]
        producer.send("messages-dead-letters", b"bad", key=b"jobs", headers=headers).result(30)
        (row,) = read(own, queueTable="deadLetters")
    assert (row["value"], row["firstSentAt"]) == (b"bad", None)


def test_only_some_columns_of_one_queue(cluster: Cluster) -> None:
    columns = StructType().add("reason", StringType()).add("queue", StringType())
    found = read(cluster, columns, queueTable="deadletters", queue="other")
    assert found == [{"reason": "no such job", "queue": "other"}]
    assert read(cluster, queueTable="deadLetters", queue="none") == []


def test_markers(cluster: Cluster) -> None:
    rows = read(cluster, queueTable="markers")
    starts = [row for row in rows if row["type"] == "START"]
    assert {(row["queue"], row["value"]) for row in starts} == {("jobs", b"bad"), ("other", b"worse")}
    assert all(row["messageTopicId"] and row["redeliverAfterMs"] > 0 for row in starts)
    ends = {(row["messagePartition"], row["messageOffset"]) for row in rows if row["type"] == "END"}
    assert ends == {(row["messagePartition"], row["messageOffset"]) for row in starts} == {(0, 0), (0, 1)}
    assert all(row["error"] is None for row in rows)


def test_what_is_no_marker_has_an_error(cluster: Cluster) -> None:
    cluster.create_topic("odd", 1)
    append(cluster, "odd", 0, encode_batch([(START_MS, None, b"\xff", ())]))
    (row,) = read(cluster, queueTable="markers", queueMarkerTopic="odd")
    assert (row["type"], row["offset"]) == (None, 0)
    assert row["error"]


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"queueTable": "letters"}, "option queueTable is 'letters': give one of deadLetters, markers"),
        ({"queue": "jobs"}, "option queue is for writes, and for tables of queues: give queueTable"),
        ({"queueTable": "markers", "subscribe": "t"}, "options queueTable and subscribe contradict each other"),
        ({"queueTable": "markers", "queueBackend": "share"}, "share groups have no markers"),
        ({"queueTable": "deadLetters", "queueDeadLetterTopic": ""}, "these queues drop dead letters"),
    ],
)
def test_wrong_options(own: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        KwireDataSource({"kafka.bootstrap.servers": "b:1", **own}).schema()


def test_a_wrong_column() -> None:
    source = KwireDataSource({"kafka.bootstrap.servers": "b:1", "queueTable": "deadLetters"})
    with pytest.raises(ConfigurationError, match="has no column reason int: its columns are queue string, id string"):
        source.streamReader(StructType().add("reason", IntegerType()))
    assert all(QueueTable(name, "t", None).schema.fields for name in TABLES)


def test_only_committed_redrives_are_read() -> None:
    source = KwireDataSource({"kafka.bootstrap.servers": "b:1", "queueTable": "deadLetters"})
    assert source.reader(source.schema())._options.client["isolation"] == "read_committed"
