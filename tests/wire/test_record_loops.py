"""The record loops in Python: the ways for records that are alike answer what the general ones do."""

from __future__ import annotations

import random
from typing import Any, cast

import pytest

from kwire.errors import CorruptRecordsError
from kwire.records.rows import NewRecord, Row
from tests.wire.speedups import python

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


ENCODER, DECODER = python.module("kwire.records.encoder"), python.module("kwire.records.decoder")
encode_records, decode_records = ENCODER.encode_records, DECODER.decode_records


def one_by_one(data: bytes, count: int, timestamp: int | None) -> list[Row]:
    rows: list[Row] = []
    assert DECODER._decode_each(rows, data, 0, count, (500, NOON, count, timestamp)) == len(data)
    return rows


def at_once(data: bytes, count: int, timestamp: int | None) -> list[Row]:
    rows: list[Row] = decode_records(data, 0, count, 500, NOON, count, timestamp)
    return rows


@pytest.mark.parametrize("timestamp", [None, 77])
@pytest.mark.parametrize("records", LISTS.values(), ids=LISTS)
def test_the_ways_agree(records: list[NewRecord], timestamp: int | None) -> None:
    encoded = encode_records(records, NOON)
    assert encoded == encode_records(records, NOON, range(len(records)))  # deltas given: the general way
    rows = at_once(encoded, len(records), timestamp)
    assert rows == one_by_one(encoded, len(records), timestamp)
    if timestamp is None:
        assert [row[1:] for row in rows] == records


def test_the_ways_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quick way that is never taken would agree too."""
    single: list[int] = []
    each = DECODER._decode_each

    def counted(rows: list[Row], data: bytes, pos: int, count: int, origin: Any) -> int:
        single.append(count)
        return cast("int", each(rows, data, pos, count, origin))

    monkeypatch.setattr(DECODER, "_decode_each", counted)
    decode_records(encode_records(LISTS["same size"], NOON), 0, 300, 0, NOON, 299, None)
    assert sum(single) <= 4
    ways: list[str] = []
    for way in ("_encode_alike", "_encode_unlike", "_encode_each"):
        taken = getattr(ENCODER, way)

        def noted(*args: Any, way: str = way, taken: Any = taken) -> Any:
            ways.append(way)
            return taken(*args)

        monkeypatch.setattr(ENCODER, way, noted)
    expected = {
        "same size": "_encode_alike", "one is longer": "_encode_unlike", "keys": "_encode_unlike",
        "one has a key": "_encode_unlike", "one is null": "_encode_unlike",
        "each record another time, two bytes": "_encode_each",
    }  # fmt: skip
    for name in expected:
        encode_records(LISTS[name], NOON)
    assert ways == list(expected.values())


@pytest.mark.parametrize("size", [3, 60])
@pytest.mark.parametrize("key", [None, b"", b"key"])
def test_any_byte_changed(size: int, key: bytes | None) -> None:
    """Among records that are alike, one byte that is not: the same answer as one by one."""
    encoded = encode_records(alike(70, size, key), NOON)
    for at in range(0, len(encoded), 3):
        damaged = bytearray(encoded)
        damaged[at] ^= 1 << at % 8
        outcomes: list[list[Row] | None] = []
        for decode in (at_once, one_by_one):
            try:
                outcomes.append(decode(bytes(damaged), 70, None))
            except (CorruptRecordsError, AssertionError):
                outcomes.append(None)
        assert outcomes[0] == outcomes[1], at


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
