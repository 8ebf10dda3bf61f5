"""poll_batch and poll_arrow with an embedded cluster: the same records as poll, in columns, and the same positions."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from importlib import util
from typing import Any

import pyarrow as pa
import pytest

from kwire import Consumer
from kwire.broker import Cluster
from kwire.consumer import ConsumerRecord, columns
from kwire.consumer.columns import PolledBatch
from kwire.errors import BrokerError, ConfigurationError
from kwire.records import Compression, encode_batch
from tests.consumer.embedded import START_MS, append, end_transaction, fill, number_of, transaction


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=1) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    name: str = request.node.name.replace("[", "-").rstrip("]")
    cluster.create_topic(name, partitions=2)
    return name


def polled(consumer: Consumer, count: int, max_records: int = 1_000) -> list[PolledBatch]:
    batches: list[PolledBatch] = []
    while sum(map(len, batches)) < count:
        batch = consumer.poll_batch(max_records, timeout=10.0)
        assert 0 < len(batch) <= max_records
        batches.append(batch)
    return batches


def test_a_poll_ends_with_the_batch_that_makes_4_mb_full(cluster: Cluster, topic: str) -> None:
    for partition in range(2):
        for _ in range(5):
            append(cluster, topic, partition, encode_batch([(START_MS, None, bytes(1_050_000), ())]))
    with Consumer(cluster.bootstrap, partition_max_bytes=16_000_000) as consumer:  # one response has all records
        consumer.assign([(topic, 0, 0), (topic, 1, 0)])
        assert max(map(len, polled(consumer, 10))) <= 4


def records_in(table: pa.RecordBatch) -> list[ConsumerRecord]:
    return [
        ConsumerRecord(
            row["topic"], row["partition"], row["offset"], int(row["timestamp"].timestamp() * 1_000),
            row["timestamp_type"], row["key"], row["value"],
            tuple((pair["key"], pair["value"]) for pair in row["headers"] or ()),
        )
        for row in table.to_pylist()
    ]  # fmt: skip


@pytest.mark.parametrize("max_records", [1, 7, 1_000])
def test_the_same_records_as_poll(cluster: Cluster, topic: str, max_records: int) -> None:
    for partition in range(2):
        fill(cluster, topic, partition, range(50), batch_size=20)
    rows = [(START_MS, None, None, ()), (START_MS + 1, b"", b"", (("h", None), ("h", b"1")))]
    append(cluster, topic, 0, encode_batch(rows, compression=Compression.LZ4))
    with Consumer(cluster.bootstrap) as consumer:
        consumer.assign([(topic, 0, "earliest"), (topic, 1, "earliest")])
        batches = polled(consumer, 102, max_records)
        assert [consumer.position(topic, partition) for partition in range(2)] == [52, 50]
        consumer.seek(topic, 0, 0)
        consumer.seek(topic, 1, 0)
        single: list[ConsumerRecord] = []
        while len(single) < 102:
            single += consumer.poll(max_records, 10.0)
    found = [record for batch in batches for record in batch]
    in_arrow = [one for batch in batches for one in records_in(batch.to_arrow(include_headers=True))]
    for partition in range(2):
        expected = [record for record in single if record.partition == partition]
        assert [record for record in found if record.partition == partition] == expected
        assert [record for record in in_arrow if record.partition == partition] == expected
        parts = [part for batch in batches for part in batch.partitions() if part.partition == partition]
        assert all(part.topic == topic for part in parts)
        for name, column in (
            ("offset", "offsets"), ("timestamp_ms", "timestamps_ms"), ("timestamp_type", "timestamp_types"),
            ("key", "keys"), ("value", "values"),
        ):  # fmt: skip
            in_columns = [item for part in parts for item in getattr(part, column)]
            assert in_columns == [getattr(record, name) for record in expected]


def test_the_columns_of_arrow(cluster: Cluster, topic: str) -> None:
    fill(cluster, topic, 1, range(3))
    with Consumer(cluster.bootstrap) as consumer:
        consumer.assign([(topic, 1, "earliest")])
        table = consumer.poll_arrow(timeout=10.0)
        empty = consumer.poll_arrow(timeout=0.0)
        consumer.seek(topic, 1, 2)
        with_headers = consumer.poll_arrow(timeout=10.0, include_headers=True)
    assert [(field.name, str(field.type)) for field in table.schema] == [
        ("topic", "string"), ("partition", "int32"), ("offset", "int64"), ("timestamp", "timestamp[ms, tz=UTC]"),
        ("timestamp_type", "int32"), ("key", "binary"), ("value", "binary"),
    ]  # fmt: skip
    table.validate(full=True)
    with_headers.validate(full=True)
    assert table.column("value").to_pylist() == [b"0", b"1", b"2"]
    assert (empty.num_rows, empty.schema) == (0, table.schema)
    assert with_headers.column("headers").to_pylist() == [[{"key": "n", "value": b"2"}]]


def test_some_columns_of_arrow(cluster: Cluster, topic: str) -> None:
    fill(cluster, topic, 0, range(50))
    with Consumer(cluster.bootstrap) as consumer:
        consumer.assign([(topic, 0, 0)])
        table = consumer.poll_arrow(50, timeout=10.0, columns=["value", "offset"])
        consumer.seek(topic, 0, 0)
        every = consumer.poll_arrow(50, timeout=10.0, include_headers=True)
        assert table.equals(every.select(["offset", "value"]))
        consumer.seek(topic, 0, 0)
        assert consumer.poll_batch(50, 10.0).to_arrow(columns=["headers"]).equals(every.select(["headers"]))
        wrong: list[tuple[Any, str]] = [
            (["values"], "no column .values..*did you mean value"), ([], "is empty"), ("key", "is the text .key."),
        ]  # fmt: skip
        for columns, message in wrong:
            with pytest.raises(ConfigurationError, match=f"(?s){message}"):
                consumer.poll_arrow(timeout=0.0, columns=columns)


def test_a_view_of_bytes_is_a_sequence(cluster: Cluster, topic: str) -> None:
    rows = [(START_MS, None, value, ()) for value in (b"a", None, b"ccc")]
    append(cluster, topic, 0, encode_batch(rows))
    with Consumer(cluster.bootstrap) as consumer:
        consumer.assign([(topic, 0, "earliest")])
        (batch,) = polled(consumer, 3)
    (part,) = batch.partitions()
    assert (part.values[-1], part.values[1:], part.values[:1]) == (b"ccc", [None, b"ccc"], [b"a"])
    assert (bytes(part.values.data), list(part.values.ends), part.keys[0]) == (b"accc", [0, 1, 1, 4], None)
    with pytest.raises(IndexError):
        _ = part.values[3]


def test_hidden_records_and_errors_as_with_poll(cluster: Cluster, topic: str) -> None:
    fill(cluster, topic, 0, range(2))
    transaction(cluster, topic, 0, 900, 0, b"7", b"8")
    end_transaction(cluster, topic, 0, 900, "abort")
    fill(cluster, topic, 0, [3])
    with Consumer(cluster.bootstrap, isolation="read_committed") as consumer:
        consumer.assign([(topic, 0, "earliest")])
        assert [number_of(record) for batch in polled(consumer, 3) for record in batch] == [0, 1, 3]
        consumer.seek(topic, 0, 1_000)
        with pytest.raises(BrokerError) as raised:
            consumer.poll_arrow(timeout=10.0)
        assert raised.value.where["offset"] == 1_000
        consumer.seek(topic, 0, 5)
        assert consumer.poll_arrow(timeout=10.0).column("offset").to_pylist() == [5]
        with pytest.raises(ConfigurationError):
            consumer.poll_batch(0)


def test_paused_partitions_are_left_out(cluster: Cluster, topic: str) -> None:
    for partition in range(2):
        fill(cluster, topic, partition, range(10))
    with Consumer(cluster.bootstrap) as consumer:
        consumer.assign([(topic, 0, "earliest"), (topic, 1, "earliest")])
        consumer.pause([(topic, 0)])
        assert {record.partition for batch in polled(consumer, 10) for record in batch} == {1}
        consumer.resume()
        assert {record.partition for batch in polled(consumer, 10) for record in batch} == {0}


def test_without_pyarrow_nothing_is_read(cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str, package: str | None = None) -> Any:
        return None if name == "pyarrow" else util.find_spec(name, package)

    monkeypatch.setattr(columns, "find_spec", find)
    fill(cluster, topic, 0, range(5))
    with Consumer(cluster.bootstrap) as consumer:
        consumer.assign([(topic, 0, "earliest")])
        with pytest.raises(ConfigurationError, match="pyarrow is not installed") as raised:
            consumer.poll_arrow(timeout=10.0)
        assert "kwire[arrow]" in str(raised.value)
        (batch,) = polled(consumer, 5)
        with pytest.raises(ConfigurationError):
            batch.to_arrow()


def test_an_iteration_goes_on_where_seek_and_pause_put_it(cluster: Cluster, topic: str) -> None:
    for partition in range(2):
        fill(cluster, topic, partition, range(50), batch_size=25)
    with Consumer(cluster.bootstrap) as consumer:
        consumer.assign([(topic, 0, "earliest")])
        assert [number_of(next(consumer)) for _ in range(3)] == [0, 1, 2]
        assert consumer.position(topic, 0) == 3
        assert [number_of(record) for record in consumer.poll(2, 10.0)] == [3, 4]
        assert number_of(next(consumer)) == 5
        consumer.seek(topic, 0, 40)
        assert number_of(next(consumer)) == 40
        consumer.assign([(topic, 0, 10), (topic, 1, 20)])
        consumer.pause([(topic, 0)])
        assert [(record.partition, record.offset) for record in (next(consumer), next(consumer))] == [(1, 20), (1, 21)]
        consumer.pause([(topic, 1)])
        consumer.resume([(topic, 0)])
        assert (next(consumer).offset, consumer.position(topic, 1)) == (10, 22)


def test_a_record_that_is_kept_does_not_keep_its_fetch(cluster: Cluster, topic: str) -> None:
    fill(cluster, topic, 0, range(100), batch_size=10)
    with Consumer(cluster.bootstrap) as consumer:
        consumer.assign([(topic, 0, "earliest")])
        kept = consumer.poll(10, 10.0)[3]
        assert len(consumer._finished) + len(consumer._finished_before) <= 2
        polls = 0
        while consumer.position(topic, 0) < 100:
            consumer.poll(10, 10.0)
            polls += 1
        assert polls >= 5
        assert len(consumer._finished) + len(consumer._finished_before) <= 3, "readers do not pile up"
    gc.collect()
    assert (number_of(kept), kept.key, kept.headers) == (3, b"0", (("n", b"3"),))
