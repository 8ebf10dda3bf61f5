"""Many records in one call of the accumulator, in Python and in C."""

from __future__ import annotations

import gc
import struct
from array import array
from random import Random
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwire.producer.accumulator import BytesCells, ManyColumns, RecordAccumulator, all_bytes, count_of, split_lines
from kwire.producer.bulk import Bulk, Slice
from tests.producer.test_accumulator import IMPLEMENTATIONS, NOW, Accumulators, _leaks, collect_soon, values
from tests.wire.speedups import CAN_COMPILE, needs_c, python, speedups


@pytest.fixture(params=IMPLEMENTATIONS)
def made(request: pytest.FixtureRequest) -> Any:
    return python if request.param == "python" else speedups()


def buffers(cells: list[bytes | None], *, is_wide: bool, skipped: int) -> BytesCells:
    """Return items in Arrow's layout, after `skipped` items to ignore."""
    whole = [b"not meant"] * skipped + cells
    validity = bytearray(len(whole) // 8 + 1)
    ends = [0]
    for at, cell in enumerate(whole):
        validity[at >> 3] |= (cell is not None) << (at & 7)
        ends.append(ends[-1] + len(cell or b""))
    packed = struct.pack(f"={len(ends)}{'q' if is_wide else 'i'}", *ends)
    has_none = None in cells
    return bytes(validity) if has_none else None, packed, b"".join(cell or b"" for cell in whole), is_wide, skipped


def columns(values: BytesCells, keys: BytesCells = None, **others: Any) -> ManyColumns:
    return ManyColumns(values, keys, others.get("headers"), others.get("timestamps", NOW), others.get("partitions"))


CELLS = st.lists(st.none() | st.binary(max_size=40), min_size=1, max_size=60)


@st.composite
def many(draw: st.DrawFn) -> tuple[int, ManyColumns]:
    cells = draw(CELLS)
    count = len(cells)

    def each(item: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(item, min_size=count, max_size=count))

    def formed(cells: list[bytes | None]) -> BytesCells:
        if draw(st.booleans()):
            return cells
        return buffers(cells, is_wide=draw(st.booleans()), skipped=draw(st.integers(0, 20)))

    keys = formed(each(st.none() | st.sampled_from([b"", b"a", b"bc", b"def"]))) if draw(st.booleans()) else None
    pairs = st.lists(
        st.tuples(st.text(max_size=3) | st.just("n\udcff"), st.none() | st.binary(max_size=3)), max_size=2
    ).map(tuple)
    headers = each(pairs) if draw(st.booleans()) else None
    timestamps = array("q", each(st.integers(0, 2**63 - 1))) if draw(st.booleans()) else NOW
    partitions: Any = draw(st.none() | st.integers(0, 65_535))
    if draw(st.booleans()):
        partitions = array("i", each(st.sampled_from([-1, 0, 1, 3, 65_535])))
    return count, ManyColumns(formed(cells), keys, headers, timestamps, partitions)


def outcome(made: Any, given: ManyColumns, count: int, options: dict[str, Any], partitions: int) -> Any:
    """Return the visible state of an accumulator after it appended many records, until memory was full."""
    accumulators = Accumulators(made, **options)
    accumulators.know(count=partitions)
    accumulators.accumulator.append("t", None, NOW, None, b"", (), 40, None)
    after, too_large, stretches, order = accumulators.accumulator.append_many("t", given, 0, count)
    builders = accumulators.accumulator.take()
    names = {builder: number for number, builder in enumerate(builders)}
    seen = [
        (
            builder.topic,
            builder.partition,
            builder.is_closed,
            builder.size_bytes,
            builder.buffered_bytes,
            len(builder),
            builder.has_headers,
        )
        for builder in builders
    ]
    for builder in builders:
        builder.close()
    where = [(names[builder], first, length) for builder, first, length in stretches]
    order = None if order is None else list(memoryview(order).cast("I"))
    rows = [builder.rows() for builder in builders]
    bodies = [(bytes(builder.body()), bytes(builder.batch(0, 1, 2, 3))) for builder in builders]
    return after, too_large, where, order, seen, rows, bodies, accumulators.wakes, accumulators.accumulator.used_bytes


@pytest.mark.slow
@needs_c
@settings(max_examples=200, deadline=None)
@given(
    many(),
    st.sampled_from([0, 1, 4]),
    st.fixed_dictionaries(
        {
            "bytes_max": st.sampled_from([1 << 20, 600]), "record_bytes_max": st.sampled_from([10_000, 60]),
            "batch_bytes": st.sampled_from([1_000, 200]), "key_hash": st.sampled_from(["murmur2", "crc32", None]),
        }
    ),
)  # fmt: skip
def test_c_does_what_python_does(given: tuple[int, ManyColumns], partitions: int, options: dict[str, Any]) -> None:
    count, sent = given
    assert outcome(speedups(), sent, count, options, partitions) == outcome(python, sent, count, options, partitions)


_COUNT = 20_000
_SIZES = [0, 5, 62, 63, 64, 130, 8_200]  # on both sides of each step in a length's varint size
_LONG: dict[str, tuple[ManyColumns, dict[str, Any]]] = {
    "one after the other": (columns([b"%d" % at for at in range(_COUNT)]), {}),
    "with keys": (columns([b"v"] * _COUNT, [b"%d" % (at % 97) for at in range(_COUNT)]), {}),
    "turns": (columns([b"v"] * _COUNT), {"key_hash": None}),
    "a partition for each": (columns([b"v"] * _COUNT, partitions=array("i", [at % 5 - 1 for at in range(_COUNT)])), {}),
    "one partition": (columns([b"v"] * _COUNT, partitions=3), {}),
    "some nulls": (columns([None if at % 3 else bytes(at % 70) for at in range(_COUNT)]), {}),
    "sizes": (columns([bytes(_SIZES[at % 7]) for at in range(_COUNT // 10)]), {}),
    "some with headers": (columns([b"v"] * 999, headers=[(("h", b"1"),) if at % 3 else () for at in range(999)]), {}),
    "time goes on": (columns([b"v"] * 999, timestamps=array("q", [NOW + at // 9 % 4 for at in range(999)])), {}),
    "no room in the middle": (columns([b"v"] * _COUNT), {"bytes_max": 300_000}),
    "no room, with keys": (columns([b"v"] * 999, [b"%d" % (at % 9) for at in range(999)]), {"bytes_max": 9_999}),
    "too large in the middle": (columns([bytes(at // 100) for at in range(_COUNT)]), {"record_bytes_max": 150}),
    "nothing fits": (columns([bytes(300)] * 99), {"batch_bytes": 200}),
    "the last fills it": (columns([b"v"] * 99), {"batch_bytes": 61 + 40 + 37 * 30}),
    "large runs": (columns([bytes(at % 150) for at in range(_COUNT)]), {"batch_bytes": 1_000_000}),
    "large runs that are not summed": (columns([b"v"] * _COUNT), {"batch_bytes": 1_000_000, "sums": False}),
    "large runs, with keys": (
        columns([b"v"] * _COUNT, [b"%d" % (at % 97) for at in range(_COUNT)]),
        {"batch_bytes": 1_000_000},
    ),
    "the beginning of time": (columns([b"v"] * 99, timestamps=array("q", [at // 9 for at in range(99)])), {}),
}


@pytest.mark.slow
@needs_c
@pytest.mark.parametrize("partitions", [0, 1, 4])
@pytest.mark.parametrize("case", _LONG)
def test_c_does_what_python_does_with_thousands(case: str, partitions: int) -> None:
    given, options = _LONG[case]
    assert isinstance(given.values, list)
    cells, options = given.values, {"bytes_max": 1 << 30, "record_bytes_max": 1 << 20, "batch_bytes": 30_000} | options
    expected = outcome(python, given, len(cells), options, partitions)
    assert outcome(speedups(), given, len(cells), options, partitions) == expected
    buffered = given._replace(values=buffers(cells, is_wide=False, skipped=3))
    assert outcome(speedups(), buffered, len(cells), options, partitions) == expected


@needs_c
@pytest.mark.parametrize(("partitions", "batch_bytes"), [(array("i", [1, 1, 2, 1] * 50), 3_000), (2, 30_000)])
def test_other_threads_send_into_the_same_builders_meanwhile(partitions: Any, batch_bytes: int) -> None:
    """For terms, C calls Python, which may send to the same builder between two records of the call."""

    def seen(made: Any) -> Any:
        sent: list[int] = []

        def may_share(_: object, __: object) -> bool:
            sent.append(accumulators.accumulator.append("t", 1, NOW, None, b"between", (), 43, None)[1])
            return True

        accumulators = Accumulators(made, batch_bytes=batch_bytes, may_share=may_share)
        accumulators.know()
        accumulators.accumulator.append("t", 2, NOW, None, b"first", (), 41, "terms")
        given = columns([b"%d" % at for at in range(200)], partitions=partitions)
        after, _, stretches, order = accumulators.accumulator.append_many("t", given, 0, 200)
        builders = accumulators.accumulator.take()
        rows = [values(builder) for builder in builders]
        return (
            after,
            [(builders.index(builder), *where) for builder, *where in stretches],
            order,
            sent,
            rows,
            accumulators.accumulator.used_bytes,
        )

    assert seen(speedups()) == seen(python)


def test_partitions_that_no_topic_has(made: Any) -> None:
    accumulators = Accumulators(made)
    accumulators.know()
    given = columns([b"a", b"b", b"c"], partitions=array("i", [65_536, 2**31 - 1, 65_536]))
    _, _, stretches, order = accumulators.accumulator.append_many("t", given, 0, 3)
    at = range(3) if order is None else memoryview(order).cast("I")
    assert [stretches[where][0].partition for where in at] == [65_536, 2**31 - 1, 65_536]


def test_a_finalizer_that_sends_during_append_many(made: Any) -> None:
    accumulators, theirs = Accumulators(made, batch_bytes=600), b"from a finalizer"
    accumulators.know()
    where: list[Any] = []

    def send() -> None:
        for _ in range(6):
            accumulators.accumulator.send("t", theirs)

    threshold = gc.get_threshold()
    try:
        for number in range(400):
            cells: list[bytes | None] = [b"%d" % (number * 9 + at) for at in range(9)]
            kept: list[list[int]] = [[] for _ in range(100)]  # otherwise the memory of freed lists is reused
            collect_soon(send, number % 20)
            where += accumulators.accumulator.append_many("t", columns(cells), 0, 9)[2]
            assert not any(kept)
    finally:
        gc.set_threshold(*threshold)
    found: list[bytes | None] = []
    for builder in accumulators.accumulator.take():
        assert builder.buffered_bytes == sum(36 + len(value or b"") for value in values(builder))
        assert builder.size_bytes <= 600
        found += [value for value in values(builder) if value != theirs]
    assert found == [b"%d" % number for number in range(9 * 400)]
    assert found == [value for builder, first, count in where for value in values(builder)[first : first + count]]


@pytest.mark.parametrize("function", [all_bytes, *([speedups().all_bytes] if CAN_COMPILE else [])])
def test_nothing_but_bytes(function: Any) -> None:
    items: list[Any]
    for items in ([], [b"a"], [None, b"", b"a"]):
        assert function(items) is True
    for items in (["a"], [b"a", bytearray(b"b")], [5, None]):
        assert function(items) is False


@pytest.mark.parametrize("function", [split_lines, *([speedups().split_lines] if CAN_COMPILE else [])])
def test_lines_are_the_parts_between_delimiters(function: Any) -> None:
    chance = Random(7)
    for delimiter in (b"\n", b"--", b"aab"):
        for size in range(60):
            data = bytes(chance.choice(b"ab\n-") for _ in range(size))
            expected = data.split(delimiter)
            expected = expected if expected[-1] else expected[:-1]
            column = function(data, delimiter)
            assert count_of(column) == len(expected)
            rows = ManyColumns(column, None, None, 0, None).rows(0, len(expected))
            assert [value for _, _, value, _, _ in rows] == expected
    assert count_of(function(memoryview(bytearray(b"a b")), b" ")) == 2
    with pytest.raises(ValueError, match="empty separator"):
        function(b"a", b"")


@pytest.mark.parametrize("partitions", [0, 1, 4])
def test_each_record_is_at_its_reported_position(made: Any, partitions: int) -> None:
    accumulators = Accumulators(made, batch_bytes=300)
    accumulators.know(count=partitions)
    cells: list[bytes | None] = [b"%d" % number for number in range(200)]
    keys: list[bytes | None] = [b"k%d" % (number % 7) if number % 3 else None for number in range(200)]
    after, too_large, stretches, order = accumulators.accumulator.append_many("t", columns(cells, keys), 20, 200)
    assert (after, too_large) == (200, 0)
    at = memoryview(order).cast("I") if order is not None else [
        number for number, (_, _, length) in enumerate(stretches) for _ in range(length)
    ]  # fmt: skip
    numbers = [first for _, first, _ in stretches]
    for builder, _, _ in stretches:
        builder.close()
    for index in range(180):
        builder = stretches[at[index]][0]
        assert builder.rows()[numbers[at[index]]][2] == cells[20 + index]
        numbers[at[index]] += 1


def test_memory_is_bounded_but_a_single_record_is_accepted(made: Any) -> None:
    accumulators = Accumulators(made, bytes_max=100)
    accumulators.know()
    given = columns([bytes(200), b"", b""])
    assert accumulators.accumulator.append_many("t", given, 0, 3)[:2] == (1, 0), "nothing else is there"
    assert accumulators.accumulator.append_many("t", given, 1, 3) == (1, 0, [], None)
    accumulators.accumulator.release("t", 236)
    assert accumulators.accumulator.append_many("t", given, 1, 3)[:2] == (3, 0)
    assert accumulators.accumulator.append_many("t", given, 3, 3) == (3, 0, [], None)


@pytest.mark.parametrize("bytes_max", [4_000, 40_000])
def test_records_are_offered_a_few_times_each_however_little_memory_is_free(made: Any, bytes_max: int) -> None:
    """`append_many` reads the headers of all that it is offered."""
    count, offered, appended = 20_000, 0, 0
    accumulators = Accumulators(made, bytes_max=bytes_max)
    accumulators.know()
    accumulator = accumulators.accumulator

    class Counting:
        def append_many(self, topic: str, columns: ManyColumns, start: int, end: int) -> Any:
            nonlocal offered, appended
            response = accumulator.append_many(topic, columns, start, end)
            offered += end - start
            appended += response[0] - start
            return response

    bulk = Bulk("t", [Slice(columns([b""] * count), count)], lambda *_: None)
    while bulk.append_to(cast("RecordAccumulator", Counting())) is None:
        assert accumulator.held("t")
        accumulator.release("t", accumulator.held("t"))
    assert (bulk.left, appended) == (0, count)
    assert offered < 5 * count


def test_a_record_that_is_too_large_ends_append_many(made: Any) -> None:
    accumulators = Accumulators(made, record_bytes_max=100)
    accumulators.know()
    given = columns([b"", bytes(65), b""])
    assert accumulators.accumulator.append_many("t", given, 0, 3)[:2] == (1, 101)
    assert accumulators.accumulator.append_many("t", given, 1, 3) == (1, 101, [], None)


def test_outcomes_of_a_range(made: Any) -> None:
    accumulators, error = Accumulators(made), ValueError("no")
    accumulators.know()
    accumulators.accumulator.append_many("t", columns([b"v"] * 10, partitions=1), 0, 10)
    (builder,) = accumulators.accumulator.take()
    builder.close()
    assert builder.outcomes(0, 10) == []
    builder.resolve(6, 10, -1, -1, error)
    builder.resolve(1, 4, 50, 99, None)
    assert builder.outcomes(0, 10) == [(1, 4, 1, 50, 99, None), (6, 10, 1, -1, -1, error)]
    assert builder.outcomes(2, 7) == [(2, 4, 1, 51, 99, None), (6, 7, 1, -1, -1, error)]
    assert builder.outcomes(4, 6) == builder.outcomes(3, 3) == []


def test_outcomes_of_routed_records(made: Any) -> None:
    accumulators = Accumulators(made)
    keys: list[bytes | None] = [b"a", b"a", b"c", b"a", b"a"]
    accumulators.accumulator.append_many("t", columns([b"v"] * 5, keys), 0, 5)
    (waiting,) = accumulators.accumulator.take()
    accumulators.know(waiting=[waiting])
    offsets = {}
    for builder in accumulators.accumulator.take():
        builder.close()
        builder.resolve(0, len(builder), 100 * builder.partition, NOW, None)
        offsets[builder.partition] = len(builder)
    a, b = (python.murmur2_partition(key, 4) for key in (b"a", b"c"))
    assert waiting.outcomes(1, 5) == [
        (1, 2, a, 100 * a + 1, NOW, None), (2, 3, b, 100 * b, NOW, None), (3, 5, a, 100 * a + 2, NOW, None),
    ]  # fmt: skip


BROKEN: list[tuple[BytesCells, str]] = [
    ((None, struct.pack("=2i", 0, 5), b"1234", False, 0), "outside|ends"),
    ((None, struct.pack("=2i", 3, 1), b"1234", False, 0), "outside|ends"),
    ((None, struct.pack("=2i", -1, 1), b"1234", False, 0), "outside|ends"),
]


def test_null_items_may_have_invalid_bounds(made: Any) -> None:
    accumulators = Accumulators(made)
    accumulators.know()
    given = columns((b"\x05", struct.pack("=4i", 0, 2, 1, 3), b"abc", False, 0))
    accumulators.accumulator.append_many("t", given, 0, 3)
    (builder,) = accumulators.accumulator.take()
    assert values(builder) == [b"ab", None, b"bc"]


@pytest.mark.parametrize(("cells", "message"), BROKEN)
def test_broken_buffers(made: Any, cells: BytesCells, message: str) -> None:
    accumulators = Accumulators(made)
    accumulators.know()
    with pytest.raises(ValueError, match=message):
        accumulators.accumulator.append_many("t", columns(cells), 0, 1)
    assert (accumulators.accumulator.used_bytes, accumulators.accumulator.take()) == (0, [])


@needs_c
@pytest.mark.parametrize(
    "given",
    [
        columns([5]),  # type: ignore[list-item]
        columns([]),
        columns((None, b"", b"", False, 0)),
        columns((b"", bytes(8), b"", False, 0)),
        columns((None, bytes(8), b"", False, -1)),
        columns((None, bytes(8), b"", False, 1 << 62)),
        columns([b"v"], timestamps=array("q")),
        columns([b"v"], partitions=array("i")),
        columns([b"v"], partitions=-2),
        columns([b"v"], partitions=1 << 31),
        columns([b"v"], headers=[[]]),
        columns([b"v"], headers=[(("a", 5),)]),
        columns([b"v"], headers=[]),
        (),
    ],
)
def test_c_rejects_invalid_columns(given: Any) -> None:
    accumulators = Accumulators(speedups())
    accumulators.know()
    with pytest.raises((ValueError, TypeError, IndexError)):
        accumulators.accumulator.append_many("t", given, 0, 1)
    assert (accumulators.accumulator.used_bytes, accumulators.accumulator.take()) == (0, [])


@needs_c
def test_nothing_leaks() -> None:
    cells: list[bytes | None] = [b"%d" % number for number in range(40)]
    given = columns(cells, buffers(cells, is_wide=True, skipped=3), partitions=array("i", [-1, 0, 1, 2] * 10))

    def once() -> None:
        accumulators = Accumulators(speedups(), batch_bytes=300)
        accumulators.know()
        _, _, stretches, _ = accumulators.accumulator.append_many("t", given, 0, 40)
        for builder in accumulators.accumulator.take():
            values(builder)
            builder.resolve(0, len(builder), 5, 6, ValueError("no"))
            builder.drop(len(builder))
        for builder, first, length in stretches:
            builder.outcomes(first, first + length)
        with pytest.raises(ValueError, match="outside"):
            accumulators.accumulator.append_many("t", columns(BROKEN[0][0]), 0, 1)

    _leaks(once)
