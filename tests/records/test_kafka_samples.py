"""Bytes written by Kafka's own classes, recorded in samples/: kwire reads them, and writes the same bytes."""

from __future__ import annotations

import pytest

from kwire.records import (
    Compression,
    ControlRecord,
    convert,
    decode_batches,
    encode_batch,
    encode_control_batch,
)
from kwire.records.compression import decompress
from kwire.wire.checksums import murmur2

from .cases import APPENDED, CASES, NOON, Case, seen
from .record_samples import MURMUR2_KEYS, samples

pytestmark = pytest.mark.usefixtures("loops")

SAMPLES = samples()
by_name = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def encoded(case: Case) -> bytes:
    return encode_batch(
        case.for_encoder(),
        magic=case.magic,
        compression=case.codec,
        base_offset=case.base_offset,
        timestamp_type=case.timestamp_type,
        **case.fields,
    )


@by_name
def test_read(case: Case) -> None:
    batches = list(decode_batches(bytes.fromhex(SAMPLES[case.name])))
    assert seen(batches) == case.expected()
    expected = case.expected()
    assert sum(batch.count for batch in batches) == len(expected)
    assert (batches[0].base_offset, batches[-1].last_offset) == (expected[0].offset, expected[-1].offset)
    assert {batch.magic for batch in batches} == {case.magic}
    assert {batch.compression for batch in batches} == {case.codec}
    assert {batch.timestamp_type for batch in batches} == {case.timestamp_type if case.magic else -1}
    assert max(batch.max_timestamp_ms for batch in batches) == max(record.timestamp_ms for record in expected)


@by_name
def test_written_the_same(case: Case) -> None:
    """Return the batch; if compressed, return its decompressed content, since versions of codecs differ."""
    ours, kafkas = encoded(case), bytes.fromhex(SAMPLES[case.name])
    if case.codec is Compression.NONE and case.timestamp_type == 0:
        assert ours == kafkas
        return
    mine, theirs = list(decode_batches(ours)), list(decode_batches(kafkas))
    assert seen(mine) == seen(theirs)
    for one, other in zip(mine, theirs, strict=True):
        for name in (name for name in type(one).__slots__ if name != "raw" and not name.startswith("_")):
            assert getattr(one, name) == getattr(other, name), name
        if case.magic == 2 and case.timestamp_type == 0:
            assert decompress(case.codec, one.raw[61:]) == decompress(case.codec, other.raw[61:])


def test_idempotent_fields() -> None:
    (batch,) = decode_batches(bytes.fromhex(SAMPLES["v2-none-create-mixed-transactional"]))
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (1 << 40, 7, 2**31 - 2)
    assert batch.last_sequence == 3  # of six records, the third wraps to 0
    assert batch.is_transactional
    assert not batch.is_control


@pytest.mark.parametrize("kind", ["commit", "abort"])
def test_markers(kind: str) -> None:
    kafkas = bytes.fromhex(SAMPLES[f"marker-{kind}"])
    (batch,) = decode_batches(kafkas)
    assert batch.control() == ControlRecord(kind, 0, 9)
    assert (batch.is_control, batch.is_transactional, batch.base_offset) == (True, True, 123)
    ours = encode_control_batch(
        kind, base_offset=123, producer_id=1 << 33, producer_epoch=5, coordinator_epoch=9, timestamp_ms=NOON
    )
    assert ours == kafkas


@pytest.mark.parametrize("key", MURMUR2_KEYS, ids=bytes.hex)
def test_murmur2(key: bytes) -> None:
    assert murmur2(key) == int(SAMPLES[f"murmur2-{key.hex()}"])


CONVERSIONS = [
    (case, magic) for case in CASES for magic in (0, 1, 2) if magic == 2 or case.codec is not Compression.ZSTD
]


@pytest.mark.slow
@pytest.mark.parametrize(("case", "magic"), CONVERSIONS, ids=lambda part: part.name if isinstance(part, Case) else None)
def test_converted(case: Case, magic: int) -> None:
    records = seen(decode_batches(convert(bytes.fromhex(SAMPLES[case.name]), magic)))
    expected = case.expected()
    if magic == 0:
        expected = [record._replace(timestamp_ms=-1) for record in expected]
    if magic < 2:
        expected = [record._replace(headers=()) for record in expected]
    assert records == expected


def test_the_append_time_is_not_in_the_records() -> None:
    """The case is meaningful: the records themselves have other timestamps."""
    assert all(record[0] != APPENDED for case in CASES for record in case.new_records)
