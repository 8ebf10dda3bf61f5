"""C compared with its specification: the same values, and the specification's errors for what C declines."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwire.errors import KwireError
from kwire.records.rows import NewRecord
from kwire.wire.varint import encode_varint
from tests.wire.speedups import accelerated, needs_c, python, speedups

from .test_record_loops import LISTS, NOON

pytestmark = needs_c

contents = st.none() | st.binary(max_size=100) | st.sampled_from([bytes(63), bytes(64), bytes(8191), bytes(8192)])
names = st.text(max_size=10) | st.sampled_from(["\udcff", "\N{SNOWMAN}"])
headers = st.lists(st.tuples(names, contents), max_size=3).map(tuple)
numbers = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 63, 64, 8191, 8192, 2**62, -(2**62)])
records = st.lists(st.tuples(st.integers(0, 200) | numbers, contents, contents, headers), max_size=20)


def outcome(call: Callable[..., Any], *arguments: object) -> object:
    """Return the value, or the error with its text and location."""
    try:
        return call(*arguments)
    except KwireError as error:
        return type(error), str(error), error.where
    except (TypeError, ValueError, OverflowError) as error:
        return type(error)


@settings(max_examples=150, deadline=None)
@given(records, st.integers(0, 100) | numbers)
def test_encode(given: list[NewRecord], base_timestamp: int) -> None:
    assert outcome(accelerated().encode_records, given, base_timestamp) == outcome(
        python.encode_records, given, base_timestamp
    )


@pytest.mark.slow
@pytest.mark.parametrize("given", LISTS.values(), ids=LISTS)
def test_encode_and_decode_lists(given: list[NewRecord]) -> None:
    encoded = speedups().encode_records(given, NOON)
    assert encoded == python.encode_records(given, NOON)
    for timestamp in (None, 5, 1 << 70):
        arguments = 0, len(given), 1 << 40, NOON, len(given), timestamp
        assert speedups().decode_records(encoded, *arguments) == python.decode_records(encoded, *arguments)


# Records and lists with other than the exact types are left to the specification.
ODD: dict[str, object] = {
    "a tuple of records": ((0, None, b"", ()),),
    "a record as a list": [[0, None, b"", ()]],
    "three fields": [(0, None, b"")],
    "five fields": [(0, None, b"", (), None)],
    "bytearray": [(0, bytearray(b"key"), bytearray(b"value"), ())],
    "memoryview": [(0, None, memoryview(b"value"), ())],
    "a list of headers": [(0, None, b"", [("h", b"v")])],
    "a header as a list": [(0, None, b"", (["h", b"v"],))],
    "a header of bytearray": [(0, None, b"", (("h", bytearray(b"v")),))],
    "a header of three": [(0, None, b"", (("h", b"v", b""),))],
    "a header named by bytes": [(0, None, b"", ((b"h", b"v"),))],
    "a header with a lone surrogate": [(0, None, b"", (("\ud800", b"v"),))],
    "a header that was no UTF-8": [(0, None, b"", (("\udcff", b"v"),))],
    "headers None": [(0, None, b"", None)],
    "True for a timestamp": [(True, None, b"", ())],
    "a float for a timestamp": [(0.5, None, b"", ())],
    "a timestamp beyond 64 bits": [(1 << 64, None, b"", ())],
    "a timestamp delta of 64 bits": [(-(1 << 63), None, b"", ())],
    "a timestamp near the end": [((1 << 62) + 1, None, b"", ())],
    "str": [(0, None, "value", ())],
    "a number": [(0, None, 5, ())],
    "None": [None],
    "not a list": 5,
}


@pytest.mark.parametrize("given", ODD.values(), ids=ODD)
def test_encode_leaves_the_odd(given: object) -> None:
    assert speedups().encode_records(given, 0) is None
    assert outcome(accelerated().encode_records, given, 0) == outcome(python.encode_records, given, 0)


@pytest.mark.parametrize("arguments", [(), ([],), ([], 0, 0), ([], "0"), ([], 1 << 64), ([], True)])
def test_encode_leaves_odd_arguments(arguments: tuple[object, ...]) -> None:
    assert speedups().encode_records(*arguments) is None


def test_encode_with_offset_deltas() -> None:
    given: list[NewRecord] = [(0, None, b"a", ()), (0, None, b"b", ())]
    assert accelerated().encode_records(given, 0, [0, 7]) == python.encode_records(given, 0, [0, 7])


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.data())
def test_decode_damaged(data: st.DataObject) -> None:
    given = data.draw(records.filter(lambda found: all(0 <= record[0] < 1 << 60 for record in found)))
    encoded = bytearray(python.encode_records(given, 0))
    for _ in range(data.draw(st.integers(0, 3))):
        if encoded:
            encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.sampled_from([len(encoded)] * 5 + list(range(len(encoded)))))
    count = max(0, len(given) + data.draw(st.sampled_from([0, 0, 0, 0, -1, 1])))
    arguments = bytes(encoded[:cut]), 0, count, 5, NOON, max(0, count - data.draw(st.integers(0, 2))), None
    assert outcome(accelerated().decode_records, *arguments) == outcome(python.decode_records, *arguments)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60), st.integers(0, 4), numbers, numbers, st.integers(-1, 5), st.none() | numbers)
def test_decode_any_bytes(
    data: bytes, count: int, base_offset: int, base_timestamp: int, last_delta: int, timestamp: int | None
) -> None:
    arguments = data, 0, count, base_offset, base_timestamp, last_delta, timestamp
    assert outcome(accelerated().decode_records, *arguments) == outcome(python.decode_records, *arguments)


def record_of(*parts: bytes | int) -> bytes:
    body = b"\0" + b"".join(part if isinstance(part, bytes) else encode_varint(part) for part in parts)
    return encode_varint(len(body)) + body


@pytest.mark.parametrize(
    ("base_offset", "base_timestamp", "after"),
    [(2**63 - 1, 0, 0), (0, 2**63 - 1, 1), (0, -(2**63), -1), (-(2**63), 2**63 - 1, -(2**63)), (1 << 64, 0, 0)],
)
def test_decode_beyond_64_bits(base_offset: int, base_timestamp: int, after: int) -> None:
    data = record_of(after, 0, -1, -1, b"\0") + record_of(after, 1, -1, -1, b"\0")
    arguments = data, 0, 2, base_offset, base_timestamp, 1, None
    assert accelerated().decode_records(*arguments) == python.decode_records(*arguments)


@pytest.mark.parametrize(
    "arguments",
    [(), (bytearray(8), 0, 1, 0, 0, 0, None), (b"", 1, 0, 0, 0, 0, None), (b"", -1, 0, 0, 0, 0, None),
     (b"", 0, -1, 0, 0, 0, None), (b"", 0, 1 << 64, 0, 0, 0, None), (b"", 0, 0, 0, 0, None, None)],
)  # fmt: skip
def test_decode_leaves_odd_arguments(arguments: tuple[object, ...]) -> None:
    assert speedups().decode_records(*arguments) is None


def test_nothing_leaks() -> None:
    """Repeat valid data, data damaged at every byte and declined records: memory and references stay constant."""
    given: list[NewRecord] = [(NOON, b"key", b"value", (("name", b"content"), ("null", None)))] * 20
    encoded = python.encode_records(given, NOON)
    arguments = 0, 20, 0, NOON, 20, None

    def work() -> None:
        speedups().encode_records(given, NOON)
        speedups().decode_records(encoded, *arguments)
        for odd in ODD.values():
            speedups().encode_records(odd, 0)
        for size in range(len(encoded)):
            speedups().decode_records(encoded[:size] + bytes(len(encoded) - size), *arguments)

    def blocks() -> int:
        gc.collect()
        return sys.getallocatedblocks()

    for _ in range(3):
        work()
    before, name, references = blocks(), given[0][3][0][0], sys.getrefcount(None)
    name_references = sys.getrefcount(name)
    for _ in range(20):
        work()
    assert blocks() - before < 50
    assert abs(sys.getrefcount(None) - references) < 50
    assert sys.getrefcount(name) == name_references


def test_memory_is_bounded_by_the_data() -> None:
    """False counts and lengths cause no allocation of their size."""
    lies = [
        record_of(0, 0, -1, 0x7FFFFFFF, b"xx"),
        record_of(0, 0, -1, -1, encode_varint(0x7FFFFFFF), b"xx"),
        record_of(0, 0, -1, -1, 1, encode_varint(0x7FFFFFFF)),
        encode_varint(1 << 40) + bytes(20),
    ]
    speedups()  # it may have to be compiled first
    tracemalloc.start()
    try:
        for lie in lies:
            for count in (1, len(lie) // 7):
                assert speedups().decode_records(lie, 0, count, 0, 0, 0, None) is None
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
