"""Rows as messages: what consumers of the queue receive, ids that repeat with a task, and what is refused."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, LongType, Row, StringType, StructType

from kwire.broker import Cluster
from kwire.errors import ConfigurationError
from kwire.producer.accumulator import murmur2_partition
from kwire.queue import Service
from kwire.queue.backend import QueuePlace
from kwire.queue.envelope import Envelope
from kwire.spark import KwireDataSource
from kwire.spark.columns import HEADERS
from kwire.spark.options import write_options
from kwire.spark.queue_write import QueueTarget, messages, topic_of_queue
from kwire.spark.sink import SinkColumns
from tests.waiting import wait_until

SCHEMA = (
    StructType()
    .add("value", StringType())
    .add("id", StringType())
    .add("headers", HEADERS)
    .add("delay_ms", LongType())
    .add("expires_in_ms", LongType())
)
PLACE = QueuePlace("messages", 12, 1_000, 60_000)
WHERE = {"kafka.bootstrap.servers": "b:1", "queue": "orders"}
HEADER = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def table(*rows: tuple[Any, ...]) -> pa.RecordBatch:
    types = [pa.string(), pa.string(), HEADER, pa.int64(), pa.int64()]
    columns = zip(*rows, strict=True)
    arrays = [pa.array(list(cells), kind) for cells, kind in zip(columns, types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=SCHEMA.names)


def written(
    *tables: pa.RecordBatch, writing: str = "w/0", place: QueuePlace = PLACE
) -> list[tuple[bytes | None, Envelope, int]]:
    columns = SinkColumns.from_schema(SCHEMA, "messages", is_queue=True)
    made = messages(
        map(columns.convert_batch, tables), QueueTarget("orders", {}, place), writing, "DataFrame partition 0"
    )
    found = []
    for batch in made:
        assert batch.topics == "messages"
        for row in batch.records.to_pylist():
            assert row["key"] == b"orders"
            pairs = tuple((pair["key"], pair["value"]) for pair in row["headers"])
            found.append((row["value"], Envelope.read(pairs), row["partition"]))
    return found


ROWS = table(("a", None, None, None, None), ("a", None, None, None, None), (None, "", [], 0, 0))


def test_every_column_is_in_the_envelope() -> None:
    ((value, envelope, partition),) = written(table(("v", "one", [{"key": "h", "value": b"1"}], 500, 7_000)))
    assert value == b"v"
    assert envelope == Envelope("one", delay=500, expires_in=7_000, user=(("h", b"1"),))
    assert partition == murmur2_partition(b"one", 12)  # where the consumer is that knows the id


def test_a_repeated_task_repeats_ids_and_places() -> None:
    first = written(ROWS, ROWS)
    assert first == written(ROWS, ROWS) == written(pa.Table.from_batches([ROWS, ROWS]).combine_chunks().to_batches()[0])
    ids = {envelope.id for _, envelope, _ in first}
    assert len(ids) == 6
    assert all(len(one) == 32 for one in ids)
    assert ids.isdisjoint(envelope.id for _, envelope, _ in written(ROWS, ROWS, writing="w/1"))


def test_another_payload_in_the_same_place_has_another_id() -> None:
    """Otherwise a consumer would take it for the message of the first attempt, and drop it."""
    (_, one, _), (_, other, _) = (written(table((text, *[None] * 4)))[0] for text in ("a", "b"))
    assert one.id != other.id


@pytest.mark.parametrize(
    ("row", "place", "message"),
    [
        (("v", None, [{"key": "kwire-mq-id", "value": b""}], None, None), PLACE, "has the header kwire-mq-id"),
        (("v", None, [{"key": None, "value": b""}], None, None), PLACE, "has a header without a key"),
        (("v", None, None, -1, None), PLACE, "has a negative time"),
        (("v", None, None, 60_001, None), PLACE, "has a delay of 60001 ms, and the markers topic keeps"),
        (("v", None, None, 1, None), QueuePlace("messages", 1, 1_000, 0), "has a delay, which share groups lack"),
        (("v" * 1_000, None, None, None, None), PLACE, "is a message of 1,14. bytes with its headers; .* take 1,000"),
    ],
)
def test_a_row_that_is_no_message(row: tuple[Any, ...], place: QueuePlace, message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"row 4 of DataFrame partition 0 .* {message}"):
        written(ROWS, table(ROWS_FINE, row), place=place)


ROWS_FINE = ("fine", None, None, None, None)


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"topic": "t"}, "options queue and topic contradict each other"),
        ({"queue": " "}, "option queue is empty"),
        ({"queueBackend": "auto"}, "option queueBackend is 'auto': give one of tracker, share"),
        ({"queueMessageTopic": "t", "queueMarkerTopic": "t"}, "message_topic and marker_topic are both 't'"),
    ],
)
def test_wrong_options(own: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        write_options(WHERE | own)
    with pytest.raises(ConfigurationError, match="option queueBackend is for writes to a queue"):
        write_options({"kafka.bootstrap.servers": "b:1", "queueBackend": "share"})


def test_the_topic_is_that_of_the_queue() -> None:
    assert write_options(WHERE).topic == "messages"
    once = write_options(WHERE | {"queueMessageTopic": "m", "delivery": "exactly-once"}).exactly_once
    assert once is not None
    assert once.marker_key == ("m", 0)
    assert topic_of_queue(QueueTarget("orders", {"backend": "share"})) == "messages-orders"


def test_a_queue_has_columns_of_its_own() -> None:
    for name in ("key", "topic", "partition", "timestamp", "offset"):
        schema = StructType().add("value", BinaryType()).add(name, StringType())
        with pytest.raises(ConfigurationError, match=f"a write to a queue has no column {name}.*value, headers, id"):
            SinkColumns.from_schema(schema, "messages", is_queue=True)
    with pytest.raises(ConfigurationError, match="a write has no column id"):
        SinkColumns.from_schema(SCHEMA, "messages")


def test_rows_of_spark_4_0() -> None:
    columns = SinkColumns.from_schema(SCHEMA, "messages", is_queue=True)
    batch = columns.convert_rows([Row(value="a", id="i", headers=[("h", b"1")], delay_ms=5, expires_in_ms=None)])
    made = list(messages([batch], QueueTarget("orders", {}, PLACE), "w", "DataFrame partition 0"))
    assert made[0].records.column("headers").to_pylist()[0][0] == {"key": "h", "value": b"1"}


def test_consumers_receive_what_a_task_wrote() -> None:
    rows = [(f"m{number}", f"id-{number}" if number % 2 else None, None, None, None) for number in range(10)]
    with Cluster(brokers=1) as cluster:
        given = {"kafka.bootstrap.servers": cluster.bootstrap, "queue": "orders"}
        writer = pickle.loads(pickle.dumps(KwireDataSource(given).writer(SCHEMA, False)))

        def batches() -> Iterator[pa.RecordBatch]:
            yield table(*rows[:3])
            yield table(*rows[3:])

        for _ in range(2):  # the second time as a repeated task
            assert writer.write(batches()).rows == 10
        with (
            Service(cluster.bootstrap, dedup_window_ms=60_000) as service,
            service.queue("orders").consumer() as consumer,
        ):
            received: dict[str, bytes | None] = {}

            def drained() -> bool:
                message = consumer.receive(timeout=0.1)
                if message is not None:
                    assert message.id not in received, "a repeated message"
                    received[message.id] = message.payload
                    message.ack()
                return len(received) == consumer.metrics().deduplicated == 10

            wait_until(drained)
    assert sorted(filter(None, received.values())) == [b"m%d" % number for number in range(10)]
