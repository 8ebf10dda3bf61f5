"""The record loops in Python: round trips, and detection of invalid data."""

from __future__ import annotations

import random

import pytest

from kwire.errors import CorruptRecordsError
from kwire.records.rows import NewRecord, Row
from tests.wire.speedups import needs_c, python, speedups

NOON = 1_700_000_000_000


def alike(count: int, size: int, key: bytes | None = None, step: float = 0) -> list[NewRecord]:
    return [(NOON + int(step * n), key, b"%d" % (n % 10) * size, ()) for n in range(count)]


LISTS: dict[str, list[NewRecord]] = {
    "none": [],
    "one": alike(1, 10),
    "same size": alike(300, 10),
    "up to the second byte of the offset": alike(64, 10),
    "one beyond": alike(65, 10),
    "up to the third byte of the offset": alike(8192, 1),
    "beyond": alike(8400, 1),
    "far beyond": alike(40_000, 1),
    "... at two times": alike(20_000, 1, step=0.00006),
    "beyond, of two sizes": [*alike(8500, 1), *alike(8500, 2)],
    "beyond, with keys": alike(17_000, 1, key=b"key"),
    "empty values": alike(100, 0),
    "values with a length of two bytes": alike(200, 64),
    "length of the record grows with the offset": alike(200, 57),
    "time goes on": alike(300, 10, step=0.3),
    "... to two bytes": alike(300, 10, step=1.3),
    "... and back": alike(300, 10, step=-0.3),
    "each record another time, two bytes": alike(300, 10, step=70),
    "keys": alike(300, 10, key=b"key"),
    "null values": [(NOON, b"k%d" % (n % 10), None, ()) for n in range(100)],
    "nothing at all": [(NOON, None, None, ())] * 100,
    "one has a header": [*alike(50, 10), (NOON, None, b"0" * 10, (("h", b""),)), *alike(50, 10)],
    "all have headers": [(NOON, None, b"v", (("h", b"%d" % (n % 7)), ("n", None))) for n in range(100)],
    "one has a key": [*alike(50, 10), (NOON, b"key", b"0" * 10, ()), *alike(50, 10)],
    "one is null": [*alike(50, 10), (NOON, None, None, ()), *alike(50, 10)],
    "one is longer": [*alike(50, 10), (NOON, None, b"0" * 11, ()), *alike(50, 10)],
    "a key takes from its value": [(NOON, b"k" * (n % 2), b"v" * (2 - n % 2), ()) for n in range(100)],
    "sizes at random": [(NOON, None, bytes(random.Random(n).randrange(3)), ()) for n in range(500)],
}


encode_records, decode_records = python.encode_records, python.decode_records


@pytest.mark.slow
@pytest.mark.parametrize("timestamp", [None, 77])
@pytest.mark.parametrize("records", LISTS.values(), ids=LISTS)
def test_encoded_records_are_decoded(records: list[NewRecord], timestamp: int | None) -> None:
    encoded = encode_records(records, NOON)
    assert encoded == encode_records(records, NOON, range(len(records)))
    rows = decode_records(encoded, 0, len(records), 500, NOON, len(records), timestamp)
    assert [row[0] for row in rows] == [*range(500, 500 + len(records))]
    assert [row[2:] for row in rows] == [record[1:] for record in records]
    assert [row[1] for row in rows] == [record[0] if timestamp is None else timestamp for record in records]


@needs_c
@pytest.mark.parametrize("size", [3, 60])
@pytest.mark.parametrize("key", [None, b"", b"key"])
def test_any_byte_changed(size: int, key: bytes | None) -> None:
    """With one byte changed, C decodes the same records, or leaves the error to Python."""
    encoded = encode_records(alike(70, size, key), NOON)
    for at in range(0, len(encoded), 3):
        damaged = bytearray(encoded)
        damaged[at] ^= 1 << at % 8
        expected: list[Row] | None
        try:
            expected = decode_records(bytes(damaged), 0, 70, 500, NOON, 70, None)
        except CorruptRecordsError:
            expected = None
        assert speedups().decode_records(bytes(damaged), 0, 70, 500, NOON, 70, None) == expected, at


def test_offset_deltas_with_gaps() -> None:
    records = alike(40, 5)
    deltas = [3 * n + 2 for n in range(40)]
    encoded = encode_records(records, NOON, deltas)
    rows = decode_records(encoded, 0, 40, 1000, NOON, 200, None)
    assert [row[0] for row in rows] == [1000 + delta for delta in deltas]
    with pytest.raises(CorruptRecordsError, match="offset delta 119 where 0 to 118 can be"):
        decode_records(encoded, 0, 40, 1000, NOON, 118, None)


def test_last_delta_that_lies_in_a_run() -> None:
    encoded = encode_records(alike(60, 5), NOON)
    with pytest.raises(CorruptRecordsError, match="offset delta 51 where 0 to 50 can be"):
        decode_records(encoded, 0, 60, 0, NOON, 50, None)
