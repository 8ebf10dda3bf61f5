"""How far fetched bytes reach: every format, every place where they may be cut."""

from __future__ import annotations

import pytest

from kwire.consumer.fetch_request import BatchBounds, batch_bounds, worth_asking
from kwire.records import Compression, decode_batches, encode_batch

ROW = (1_000, b"k", b"value", ())

SETS = [
    pytest.param(encode_batch([ROW] * 3, base_offset=7), 10, id="v2"),
    pytest.param(encode_batch([ROW] * 3, base_offset=7) + encode_batch([ROW], base_offset=50), 51, id="v2 with a gap"),
    pytest.param(encode_batch([ROW] * 3, base_offset=7, magic=1), 10, id="v1"),
    pytest.param(encode_batch([ROW] * 3, base_offset=7, magic=0), 10, id="v0"),
    pytest.param(encode_batch([ROW] * 3, base_offset=7, magic=1, compression=Compression.GZIP), 10, id="v1 gzip"),
    pytest.param(encode_batch([ROW] * 3, base_offset=7, magic=0, compression=Compression.GZIP), 10, id="v0 gzip"),
    pytest.param(
        encode_batch([ROW], base_offset=1, magic=0) + encode_batch([ROW] * 2, base_offset=2), 4, id="v0, then v2"
    ),
]


@pytest.mark.parametrize(("data", "next_offset"), SETS)
def test_cut_anywhere(data: bytes, next_offset: int) -> None:
    assert batch_bounds(memoryview(data)) == BatchBounds(len(data), next_offset)
    for length in range(len(data)):
        part = memoryview(data)[:length]
        extent = batch_bounds(part)
        batches = list(decode_batches(part))
        assert not extent.is_broken
        assert extent.whole_bytes == sum(batch.size_bytes for batch in batches)
        assert extent.next_offset == (batches[-1].next_offset if batches else -1)
        cut_off = list(decode_batches(data))[len(batches)]
        has_its_size = length - extent.whole_bytes >= 12
        assert extent.needed_bytes == (cut_off.size_bytes if has_its_size else 0)


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 13])
def test_a_size_that_cannot_be(size: int) -> None:
    wrong = bytes(8) + size.to_bytes(4, "big", signed=True) + bytes(30)
    assert batch_bounds(memoryview(wrong)) == BatchBounds(0, -1, 0, is_broken=True)
    whole = encode_batch([ROW], base_offset=7)
    assert batch_bounds(memoryview(whole + wrong)) == BatchBounds(len(whole), 8, 0, is_broken=True)


def test_nothing() -> None:
    assert batch_bounds(memoryview(b"")) == BatchBounds(0, -1)


@pytest.mark.parametrize(
    ("batch_bytes", "asked"),
    [(100, 1_000), (499, 1_000), (334, 688), (501, 532), (800, 850), (1_000, 1_000), (1_001, 1_000)],
)
def test_what_is_worth_asking(batch_bytes: int, asked: int) -> None:
    assert worth_asking(batch_bytes, 1_000) == asked
