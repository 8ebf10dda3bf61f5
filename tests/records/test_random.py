"""Round trips of any records; damaged data gives records or CorruptRecordsError, and nothing else."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwire.errors import CorruptRecordsError
from kwire.records import Compression, Record, decode_batches, encode_batch
from kwire.records.rows import NewRecord
from kwire.wire.checksums import crc32c

from .cases import MIXED, WITH_HEADERS

pytestmark = pytest.mark.usefixtures("loops")

contents = st.none() | st.binary(max_size=200) | st.sampled_from([b"", bytes(63), bytes(64), bytes(8191), bytes(8192)])
names = st.text(max_size=10)
timestamps = st.integers(0, 2**61) | st.sampled_from([-1, 0, 63, 64, 8191, 8192])
headers = st.lists(st.tuples(names, contents), max_size=3).map(tuple)
records = st.lists(st.tuples(timestamps, contents, contents, headers), max_size=80)
alike = st.builds(
    lambda keys, size, starts: [
        (start, bytes(keys) if keys else None, bytes([n % 256]) * size, ()) for n, start in enumerate(starts)
    ],
    st.integers(0, 3),
    st.integers(0, 70),
    st.lists(st.integers(1000, 1070), max_size=200).map(sorted) | st.integers(1, 200).map(lambda n: [7] * n),
)
CODECS = {magic: [codec for codec in Compression if magic == 2 or codec is not Compression.ZSTD] for magic in (0, 1, 2)}


def expected(given: Sequence[NewRecord], magic: int, base_offset: int) -> list[Record]:
    return [
        Record(base_offset + index, timestamp if magic else -1, key, value, tuple(headers))
        for index, (timestamp, key, value, headers) in enumerate(given)
    ]


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(data=st.data(), magic=st.sampled_from([0, 1, 2, 2]), base_offset=st.integers(0, 2**62))
def test_round_trip(data: st.DataObject, magic: int, base_offset: int) -> None:
    codec = data.draw(st.sampled_from(CODECS[magic]))
    given = data.draw(records | alike)
    if magic < 2:
        given = [(timestamp, key, value, ()) for timestamp, key, value, _ in given]
    encoded = encode_batch(given, magic=magic, compression=codec, base_offset=base_offset)
    batches = list(decode_batches(encoded))
    assert [record for batch in batches for record in batch.records()] == expected(given, magic, base_offset)
    assert b"".join(batch.raw for batch in batches) == encoded


def batches() -> Iterator[tuple[str, bytes]]:
    for magic, codecs in CODECS.items():
        for codec in codecs:
            given = WITH_HEADERS if magic == 2 else MIXED
            yield f"v{magic}-{codec.name.lower()}", encode_batch(given, magic=magic, compression=codec)
    alike = [(7, None, b"%02d" % n, ()) for n in range(90)]
    yield "alike", encode_batch(alike)


BATCHES = dict(batches())
each_batch = pytest.mark.parametrize("data", BATCHES.values(), ids=BATCHES)


def read(data: bytes, *, check_crc: bool = True) -> int | None:
    """Return the number of records, or None if they are corrupt. Any other exception fails the test."""
    try:
        found = decode_batches(data, check_crc=check_crc, max_decompressed_bytes=1 << 16)
        return sum(len(batch.records()) for batch in found)
    except CorruptRecordsError as error:
        error.where["offset"]  # there always is one
        return None


@each_batch
def test_cut_off_at_every_byte(data: bytes) -> None:
    """Only the whole batches before the cut remain."""
    whole = len(list(decode_batches(data)))
    for size in range(len(data)):
        assert sum(1 for _ in decode_batches(data[:size])) < whole


@each_batch
def test_cut_off_inside(data: bytes) -> None:
    """The last batch made shorter at every byte, and its length with it: never a part of the records for all."""
    raw = list(decode_batches(data))[-1].raw
    for size in range(17, len(raw)):
        shorter = bytearray(raw[:size])
        struct.pack_into(">i", shorter, 8, size - 12)
        assert read(bytes(shorter)) is None
        assert read(bytes(shorter), check_crc=False) is None


@pytest.mark.slow
@each_batch
def test_flipped_bits(data: bytes) -> None:
    """Flip every bit of the first 400 bytes, then every seventh, and read without the checksum.

    The checksum does not cover the first bytes: they are read with it, too. The next test reads the rest with it.
    """
    for at in [*range(min(len(data), 400) * 8), *range(3200, len(data) * 8, 7)]:
        damaged = bytearray(data)
        damaged[at // 8] ^= 1 << at % 8
        read(bytes(damaged), check_crc=False)
        if at < 22 * 8:
            read(bytes(damaged))


@each_batch
def test_flipped_bits_are_seen(data: bytes) -> None:
    """The checksum covers v2 from the attributes on, v0 and v1 from the magic on."""
    (first, *_) = decode_batches(data)
    for at in range((21 if first.magic == 2 else 17) * 8, first.size_bytes * 8, 5):
        damaged = bytearray(first.raw)
        damaged[at // 8] ^= 1 << at % 8
        assert read(bytes(damaged)) is None


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300), st.sampled_from([0, 1, 2]), st.integers(0, 7), st.integers(0, 20))
def test_any_bytes_for_records(body: bytes, magic: int, codec: int, count: int) -> None:
    """Decode any bytes after a valid header and checksum."""
    if magic == 2:
        checked = struct.pack(">hiqqqhii", codec, max(count - 1, 0), 5, 5, -1, -1, -1, count) + body
        data = struct.pack(">qiibI", 0, 9 + len(checked), -1, 2, crc32c(checked)) + checked
    else:
        checked = bytes((magic, codec)) + body
        data = struct.pack(">qiI", 0, 4 + len(checked), zlib.crc32(checked)) + checked
    read(data)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    read(data)
    read(data, check_crc=False)
