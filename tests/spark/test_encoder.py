"""Rows of a task as encoded batches: the records of a producer, whichever transaction they become part of."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kwire.producer.accumulator import murmur2_partition
from kwire.producer.options import ProducerSettings
from kwire.records import decode_batches
from kwire.records.encoder import set_producer_state
from kwire.spark.columns import ARROW_TYPES
from kwire.spark.encoder import BatchEncoder, RowRefusedError
from kwire.spark.transactions import EncodedBatch
from kwire.wire.checksums import crc32c

NOW = 1_800_000_000_000


def records(**columns: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({name: pa.array(cells, ARROW_TYPES[name]) for name, cells in columns.items()})


def encoder(*, now_ms: int = NOW, turn: int = 0, **settings: Any) -> BatchEncoder:
    return BatchEncoder(ProducerSettings(**settings), lambda topic: 3, now_ms=now_ms, turn=turn)


def encoded(one: BatchEncoder, *batches: pa.RecordBatch) -> list[EncodedBatch]:
    found = [full for batch in batches for full in one.append("t", batch)]
    return found + one.finish()


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_records_come_back_with_all_columns(compression: str) -> None:
    numbers = list(range(50))
    rows = records(
        value=[b"v%d" % number if number % 7 else None for number in numbers],
        key=[b"k%d" % number for number in numbers],
        headers=[[{"key": "h", "value": b"%d" % number}] for number in numbers],
    )
    one = encoder(compression=compression)
    found: dict[bytes | None, Any] = {}
    for topic, partition, count, batch in encoded(one, rows):
        data = bytearray(batch)
        set_producer_state(crc32c, data, 4_000, 5, 6)
        (decoded,) = decode_batches(data)
        assert (topic, decoded.count, decoded.is_transactional) == ("t", count, True)
        assert (decoded.producer_id, decoded.producer_epoch, decoded.base_sequence) == (4_000, 5, 6)
        for record in decoded.records():
            assert record.key is not None
            assert murmur2_partition(record.key, 3) == partition
            found[record.key] = (record.value, record.headers, record.timestamp_ms)
    assert found == {
        b"k%d" % number: (b"v%d" % number if number % 7 else None, (("h", b"%d" % number),), NOW) for number in numbers
    }
    assert one.rows == 50


def test_full_batches_are_given_out_while_rows_arrive() -> None:
    one = encoder(batch_bytes=1_000, turn=1)
    first = one.append("t", records(value=[b"x" * 100] * 100))
    assert len(first) > 5
    rest = one.finish()
    assert sum(batch.rows for batch in first + rest) == 100
    assert [batch.partition for batch in first[:4]] == [1, 2, 0, 1], "without a key partitions take turns"
    assert one.finish() == []


def test_more_rows_than_the_buffer_holds_are_encoded_in_parts() -> None:
    one = encoder(max_buffered_bytes=5_000)
    assert sum(batch.rows for batch in encoded(one, records(value=[b"x" * 100] * 500))) == 500


def test_the_digest_depends_on_rows_and_not_on_the_time() -> None:
    rows = records(value=[b"a", b"b"], key=[b"1", None])
    digests = {}
    for name, other, now_ms in (
        ("first", rows, NOW),
        ("later", rows, NOW + 5_000),
        ("value", records(value=[b"a", b"c"], key=[b"1", None]), NOW),
        ("key", records(value=[b"a", b"b"], key=[b"2", None]), NOW),
    ):
        one = encoder(now_ms=now_ms)
        encoded(one, other)
        digests[name] = one.digest
    assert digests["later"] == digests["first"]
    assert len({digests["first"], digests["value"], digests["key"]}) == 3


def test_rows_that_no_partition_takes_are_refused() -> None:
    with pytest.raises(RowRefusedError) as caught:
        encoder().append("t", records(value=[b"a"] * 3, partition=[0, 2, 3]))
    assert caught.value.row == 2
    with pytest.raises(RowRefusedError) as caught:
        encoder(max_request_bytes=1_000).append("t", records(value=[b"a", b"b" * 2_000]))
    assert caught.value.row == 1
    assert "raise kafka.max.request.size" in str(caught.value.error)
