"""Readers, slices and columns: the rules of the specification, and C compared with it in values and errors."""

from __future__ import annotations

import gc
import random
import sys
import threading
import tracemalloc
from array import array
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwire.protocol.headers import decode_request, decode_response
from kwire.protocol.messages.fetch import FetchRequest
from kwire.records import decode_batches, encode_batch, v2
from kwire.records.rows import NewRecord
from tests.wire.speedups import accelerated, needs_c, python, run_in_new_process, speedups

from .test_record_loops import LISTS, NOON
from .test_speedups import outcome, record_of, records

IMPLEMENTATIONS = ["python", pytest.param("c", marks=needs_c)]
FIXTURES = Path(__file__).parents[2] / "fixtures"
FIELDS = ("topic", "partition", "offset", "timestamp_ms", "timestamp_type", "key", "value", "headers")


@cache
def wire(name: str) -> Any:
    """Return the implementation, with a record class derived from its fields."""
    loops = accelerated() if name == "c" else python
    body = {"__slots__": (), "__doc__": "A kind.", "size": lambda self: len(self.value)}
    written = type("Kind", (loops.RecordFields,), body)
    return SimpleNamespace(loops=loops, written=written, kind=loops.record_class(written))


def open_over(
    name: str, given: list[NewRecord], *, position: int = 100, deltas: list[int] | None = None,
    stamp: int | None = None, data: bytes | None = None,
) -> Any:  # fmt: skip
    """Return a reader of these records. `data` has them encoded, if the caller needs more than one reader."""
    if data is None:
        data = python.encode_records(given, NOON, deltas)
    last = max(deltas) if deltas else len(given)
    where = wire(name).kind, "t", 3, 1, position, max(position, 101 + last)
    return wire(name).loops.open_reader(*where, memoryview(data), 0, len(given), 100, NOON, last, stamp)


def seen(record: Any) -> tuple[object, ...]:
    return tuple(getattr(record, field) for field in FIELDS)


@pytest.mark.slow
@pytest.mark.parametrize("name", IMPLEMENTATIONS)
@pytest.mark.parametrize("given", LISTS.values(), ids=LISTS)
def test_all_ways_to_iterate_return_the_same_records(name: str, given: list[NewRecord]) -> None:
    expected = [("t", 3, 100 + n, when, 1, key, value, headers) for n, (when, key, value, headers) in enumerate(given)]
    assert [seen(record) for record in open_over(name, given)] == expected
    cursor, found, positions = open_over(name, given), [], []
    while len(cursor):
        piece = cursor.cut(7)
        assert [row[0] for row in piece.rows()] == [record.offset for record in piece.records()]
        found += [seen(record) for record in piece.records()]
        positions.append(cursor.position)
    assert found == expected
    assert positions == [*range(107, 100 + len(given), 7), *([101 + len(given)] if given else [])]
    assert len(cursor.cut(5)) == 0


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_the_position_moves_with_the_records_returned(name: str) -> None:
    given: list[NewRecord] = [(NOON, None, b"v", ())] * 4
    cursor = open_over(name, given, deltas=[0, 2, 5, 9])
    assert (cursor.position, cursor.last_offset, len(cursor)) == (100, None, 4)
    positions = []
    for record in cursor:
        assert cursor.last_offset == record.offset
        positions.append(cursor.position)
    assert positions == [101, 103, 106, 110]
    assert cursor.last_offset == 109
    cursor = open_over(name, given, deltas=[0, 2, 5, 9])
    next(cursor)
    assert cursor.stop() == 101
    assert (list(cursor), len(cursor), cursor.last_offset) == ([], 0, 100)
    cursor = open_over(name, given, deltas=[0, 2, 5, 9])
    cursor.cut(3)
    assert cursor.last_offset == 105


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
@pytest.mark.parametrize("steps", [[4], [9], [0, 4], [1, 3], [2, 2, 5], [3, 0, 1]])
def test_the_last_offset_after_all_were_cut_off(name: str, steps: list[int]) -> None:
    given: list[NewRecord] = [(NOON, None, b"v", ())] * 4
    offsets, cursor = [100, 102, 105, 109], open_over(name, given, deltas=[0, 2, 5, 9])
    pieces = [cursor.cut(step) for step in steps]
    assert (cursor.last_offset, len(cursor)) == (109, 0)
    assert [row[0] for piece in pieces for row in piece.rows()] == offsets
    cursor = open_over(name, given, deltas=[0, 2, 5, 9])
    for step in steps:
        cursor.cut(step)
        returned = 4 - len(cursor)
        assert cursor.last_offset == (offsets[returned - 1] if returned else None)
    cursor = open_over(name, given, deltas=[0, 2, 5, 9])
    next(cursor)
    cursor.cut(9)
    assert (cursor.stop(), cursor.last_offset) == (110, 109)


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
@pytest.mark.parametrize(
    "lent",
    [lambda data: data, memoryview, lambda data: memoryview(data).toreadonly()],
    ids=["the memory", "a view", "a view that cannot write"],
)
def test_memory_that_is_written_to_later(name: str, lent: Callable[[bytearray], Any]) -> None:
    """The C reader does not check again what it has checked once, so it leaves such memory to Python, which copies."""
    given: list[NewRecord] = [(NOON, b"k", b"value", (("h", b"x"),))] * 1000
    data = bytearray(python.encode_records(given, NOON))
    where = wire(name).kind, "t", 3, 1, 100, 1100
    cursor = wire(name).loops.open_reader(*where, lent(data), 0, len(given), 100, NOON, len(given), None)
    data[:] = b"\xff" * len(data)
    assert [seen(record)[2:7] for record in cursor] == [(100 + n, NOON, 1, b"k", b"value") for n in range(1000)]


@needs_c
def test_consecutive_batches_in_memory_that_is_written_to_are_left_to_python() -> None:
    batch = encode_batch([(NOON, None, b"v", ())])
    pooled, place = speedups().alloc_pooled(100_000)  # as the frames of an event loop
    place[: len(batch)] = batch
    assert not isinstance(pooled, bytes)
    for data, is_read in (
        (batch, True),
        (memoryview(batch)[:], True),
        (memoryview(pooled)[: len(batch)], True),
        (bytearray(batch), False),
        (memoryview(bytearray(batch)).toreadonly()[:], False),
        (memoryview(array("B", batch)).toreadonly(), False),
        (place[: len(batch)].toreadonly(), False),  # memory without an owner
    ):
        found = speedups().open_batches(wire("c").kind, "t", 3, 0, data, 0, True, 1)
        assert (found is not None) is is_read


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_a_reader_that_stopped_before_its_first_record_returned_none(name: str) -> None:
    cursor = open_over(name, [(NOON, None, b"v", ())] * 2)
    assert (cursor.stop(), cursor.last_offset, len(cursor)) == (100, None, 0)


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
@pytest.mark.parametrize(
    ("deltas", "position", "expected"),
    [
        ([0, 2, 5], 100, [100, 102, 105]),
        ([0, 2, 5], 101, [102, 105]),
        ([0, 2, 5], 105, [105]),
        ([0, 2, 5], 106, []),
        ([5, 0, 6, 2], 103, [105, 100, 106, 102]),  # a batch that begins at or after the position is read whole
        ([0, 5, 1, 6], 103, [105, 106]),
    ],
)
def test_records_before_the_position_are_left_out(
    name: str, deltas: list[int], position: int, expected: list[int]
) -> None:
    given: list[NewRecord] = [(NOON, None, b"v", ())] * len(deltas)
    cursor = open_over(name, given, deltas=deltas, position=position)
    assert cursor.position == (position if expected else max(position, 101 + max(deltas)))
    assert [record.offset for record in cursor] == expected


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_fields_can_be_set(name: str) -> None:
    record = next(open_over(name, [(NOON, b"k", b"v", ())]))
    record.value, record.offset = ["decoded"], "elsewhere"
    assert seen(record) == ("t", 3, "elsewhere", NOON, 1, b"k", ["decoded"], ())
    empty = wire(name).kind()
    with pytest.raises(AttributeError):
        _ = empty.value
    empty.value = b"x"
    assert empty.value == b"x"
    with pytest.raises(AttributeError):
        _ = empty.key
    with pytest.raises(AttributeError):
        record.other = 1


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_the_class_of_records_has_what_was_written(name: str) -> None:
    written, kind = wire(name).written, wire(name).kind
    for what in ("__name__", "__qualname__", "__module__", "__doc__", "__slots__", "size"):
        assert getattr(kind, what) == getattr(written, what)
    assert kind.__bases__ == written.__bases__
    assert not hasattr(kind(), "__dict__")

    class Derived(wire(name).kind):  # type: ignore[misc]
        pass

    derived = Derived()
    derived.note = derived.value = b"v"
    assert (derived.note, derived.value, type(derived).__doc__) == (b"v", b"v", None)


@needs_c
def test_the_garbage_collector_does_not_track_records() -> None:
    assert not gc.is_tracked(next(open_over("c", [(NOON, b"k", b"v", ())])))


@needs_c
@pytest.mark.parametrize("kind", ["written", "kind", "derived"])
def test_a_record_in_reused_memory_has_no_old_fields(kind: str) -> None:
    both = wire("c")
    kinds = {"written": both.written, "kind": both.kind, "derived": type("Derived", (both.kind,), {})}
    given: list[NewRecord] = [(NOON + n, b"k%d" % n, b"v%d" % n, (("h", b"%d" % n),)) for n in range(500)]
    data = python.encode_records(given, NOON)
    cursor = both.loops.open_reader(kinds[kind], "t", 0, 0, 0, 500, data, 0, 500, 0, NOON, 500, None)
    chance = random.Random(7)
    kept = []
    for n, record in enumerate(cursor):
        if n == 250:
            cursor.detach()
        assert seen(record) == ("t", 0, n, NOON + n, 0, *given[n][1:])
        match chance.randrange(4):
            case 0:
                record.value = "set"
            case 1:
                kept.append(record)
            case 2 if kept:
                kept.pop(chance.randrange(len(kept)))
    del cursor, record
    assert [seen(record)[5:] for record in kept] == [given[record.offset][1:] for record in kept]


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_concurrent_readers_get_each_record_once(name: str) -> None:
    given: list[NewRecord] = [(NOON, None, b"%d" % n, ()) for n in range(4_000)]
    cursor, found = open_over(name, given), [[] for _ in range(4)]  # type: list[Any], list[list[int]]

    def read(into: list[int]) -> None:
        for record in cursor:
            into.append(int(record.value))

    threads = [threading.Thread(target=read, args=(into,)) for into in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
    assert sorted(number for into in found for number in into) == list(range(4_000))
    assert all(into == sorted(into) for into in found)


@pytest.mark.slow
@needs_c
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_c_returns_what_the_specification_returns(data: st.DataObject) -> None:
    given = data.draw(records.filter(lambda found: all(0 <= record[0] < 1 << 60 for record in found)))
    encoded = bytearray(python.encode_records(given, 0))
    for _ in range(data.draw(st.integers(0, 3))):
        if encoded:
            encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    count = max(0, len(given) + data.draw(st.sampled_from([0, 0, 0, 0, -1, 1])))
    position = data.draw(st.integers(0, 12))
    numbers = 0, count, 5, NOON, max(0, count - data.draw(st.integers(0, 2))), data.draw(st.sampled_from([None, 7]))

    def walk(name: str) -> object:
        return outcome(lambda: walked(name, bytes(encoded), position, numbers))

    assert walk("c") == walk("python")


def walked(name: str, data: bytes, position: int, numbers: tuple[Any, ...]) -> object:
    both = wire(name)
    cursor = both.loops.open_reader(both.kind, "t\N{SNOWMAN}", 3, 0, position, 77, data, *numbers)
    positions = [cursor.position]
    first = cursor.cut(2)
    positions.append(cursor.position)
    rest = [seen(record) for record in cursor]
    pieces = [first, both.loops.open_reader(both.kind, "u", 4, 1, position, 77, data, *numbers).cut(1_000)]
    columns = [both.loops.columns(pieces, has_headers) for has_headers in (False, True)]
    return positions, [seen(record) for record in first.records()], first.rows(), rest, cursor.position, columns


@pytest.mark.slow
@needs_c
@pytest.mark.parametrize("given", LISTS.values(), ids=LISTS)
def test_columns_of_lists(given: list[NewRecord]) -> None:
    for has_headers in (False, True):
        c, python = (
            wire(name).loops.columns([open_over(name, given).cut(9_000)], has_headers) for name in ("c", "python")
        )
        assert in_bytes(c) == python


def in_bytes(columns: Any) -> Any:
    """In C the large columns are only views of bytes."""
    return tuple(
        in_bytes(one) if isinstance(one, tuple) else one if one is None or isinstance(one, int) else bytes(one)
        for one in columns
    )


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_columns(name: str) -> None:
    given: list[NewRecord] = [
        (NOON, b"k", None, ()),
        (NOON + 1, None, b"", (("a", b"1"), ("b", None))),
        (NOON + 2, b"key", b"value", (("\udcff", b""),)),
    ]
    rows, topic, partition, offset, timestamp, kind, key, value, headers = wire(name).loops.columns(
        [open_over(name, given).cut(9)], True
    )

    def numbers(data: bytes, letter: str = "i") -> list[int]:
        return array(letter, data).tolist()

    assert (rows, topic[0], numbers(topic[1]), topic[2]) == (3, None, [0, 1, 2, 3], b"ttt")
    assert (numbers(partition), numbers(offset, "q"), numbers(kind)) == ([3] * 3, [100, 101, 102], [1] * 3)
    assert numbers(timestamp, "q") == [NOON, NOON + 1, NOON + 2]
    assert (key[0], numbers(key[1]), key[2]) == (b"\x05", [0, 1, 1, 4], b"kkey")
    assert (value[0], numbers(value[1]), value[2]) == (b"\x06", [0, 0, 0, 5], b"value")
    validity, ends, names, contents = headers
    assert (validity, numbers(ends)) == (b"\x06", [0, 0, 2, 3])
    assert (numbers(names[1]), names[2]) == ([0, 1, 2, 5], "ab\ufffd".encode())
    assert (contents[0], numbers(contents[1]), contents[2]) == (b"\x05", [0, 1, 1, 1], b"1")


@pytest.mark.slow
@pytest.mark.parametrize("name", IMPLEMENTATIONS)
@pytest.mark.parametrize("given", LISTS.values(), ids=LISTS)
def test_some_columns(name: str, given: list[NewRecord]) -> None:
    """Every choice of columns: what is asked for is as among all, and the rest is None."""
    data = python.encode_records(given, NOON)
    every = python.columns([open_over("python", given, data=data).cut(9_000)], True)
    names = [*python.COLUMN_BITS, "headers"]
    for chosen in [{one} for one in names] + [set(names) - {one} for one in names] + [set(), {"offset", "value"}]:
        made = wire(name).loops.some_columns([open_over(name, given, data=data).cut(9_000)], chosen)
        rows, *rest = in_bytes(made)
        assert rows == every[0]
        assert rest == [one if which in chosen else None for which, one in zip(names, every[1:], strict=True)]


@needs_c
def test_pieces_of_both_kinds_make_one_table() -> None:
    given: list[NewRecord] = [(NOON, b"k", b"v", ())] * 3
    pieces = [open_over("c", given).cut(2), open_over("python", given).cut(2)]
    assert accelerated().columns(pieces, True) == python.columns(pieces, True)


@needs_c
def test_memory_of_large_columns_is_not_reused_while_a_view_exists() -> None:
    """The next table reuses the memory, but not while a view of it exists."""
    lists: list[list[NewRecord]] = [
        [*[(NOON, None, b"%d" % n * 500, ())] * 400, *[(NOON, b"k" * n, None, ())] * (20 + n)] for n in range(8)
    ]
    expected = [python.columns([open_over("python", given).cut(9_000)], False) for given in lists]
    kept: dict[int, tuple[int, memoryview]] = {}
    chance = random.Random(3)
    for _ in range(60):
        n = chance.randrange(len(lists))
        made = accelerated().columns([open_over("c", lists[n]).cut(9_000)], False)
        assert bytes(made[7][2]) == expected[n][7][2]
        assert memoryview(made[7][2]).readonly
        kept[chance.randrange(6)] = n, memoryview(made[7][2])
        for number, view in kept.values():
            assert view == expected[number][7][2]


def check_memory_of_records() -> None:
    def traced() -> int:
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    first, last = speedups().RecordIterator(), speedups().RecordIterator()
    for _ in range(3):
        blocks = [speedups().alloc_pooled(5_000_000) for _ in range(8)]
        assert traced() > 40_000_000
        del blocks
        assert 25_000_000 < traced() < 34_000_000
    first._end()
    first._end()
    del first
    assert traced() > 25_000_000
    del last
    assert traced() < 1_000_000


@pytest.mark.slow
@needs_c
def test_memory_of_records_is_reused_until_the_last_iterator_ends() -> None:
    run_in_new_process(check_memory_of_records)


RECORDED = sorted([*FIXTURES.glob("*/produce_v*_request.bin"), *FIXTURES.glob("*/fetch_v*_response.bin")])


@needs_c
@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_decode_recorded_batches_of_real_brokers_and_producers(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sets = list(record_sets(path))
    seen_by = {}
    for name in ("python", "c"):
        monkeypatch.setattr(v2, "open_reader", wire(name).loops.open_reader)
        cursors = [batch.cursor(wire(name).kind, "t", 0, 0) for data in sets for batch in decode_batches(data)]
        columns = wire(name).loops.columns([cursor.cut(2) for cursor in cursors], True)
        seen_by[name] = columns, [seen(record) for cursor in cursors for record in cursor]
    assert seen_by["c"] == seen_by["python"]


def record_sets(path: Path) -> Iterator[memoryview]:
    """Return the records of all partitions in a recorded frame."""
    if path.stem.endswith("request"):
        request: Any = decode_request(path.read_bytes())[1]
        found = [one.records for topic in request.topic_data for one in topic.partition_data]
    else:
        version = int(path.stem.split("_")[1].removeprefix("v"))
        response: Any = decode_response(path.read_bytes(), FetchRequest, version)[1]
        found = [one.records for topic in response.responses for one in topic.partitions]
    return (memoryview(data) for data in found if data)


def damaged() -> Iterator[bytes]:
    good = python.encode_records([(NOON, b"key", b"value", (("name", b"content"), ("null", None)))] * 3, NOON)
    for size in range(len(good)):
        yield good[:size] + bytes(len(good) - size)
    yield record_of(0, 0, -1, 0x7FFFFFFF, b"xx") + good


@needs_c
def test_nothing_leaks() -> None:
    given: list[NewRecord] = [(NOON, b"key", b"value", (("name", b"content"), ("null", None)))] * 20
    kind = wire("c").kind

    def work() -> None:
        cursor = open_over("c", given)
        piece = cursor.cut(10)
        kept = [*piece.records(), *cursor, *piece.records()]
        kept[0].value = b"set"
        wholes = [seen(record) for record in kept[::2]]
        cursor.detach()
        assert [seen(record) for record in kept[::2]] == wholes
        for record in open_over("c", given):  # each reuses the memory of the record before the last one
            record.value = record.key
        speedups().columns([piece], True)
        for wanted in (0, 1, 12, 32, 64):
            speedups().columns([piece], wanted == 12, wanted)
        with pytest.raises(TypeError):
            speedups().columns([piece], True, "value")
        piece.rows()
        for data in damaged():
            speedups().open_reader(kind, "t", 0, 0, 0, 9, data, 0, 3, 0, NOON, 3, None)
        for odd in ((), (kind,), (int, "t", 0, 0, 0, 9, b"", 0, 0, 0, 0, 0, None)):
            assert speedups().open_reader(*odd) is None

    def counts() -> tuple[int, int, int]:
        gc.collect()
        return sys.getallocatedblocks(), sys.getrefcount(None), sys.getrefcount(kind)

    growths = []
    for _ in range(4):
        before = counts()
        for _ in range(100):
            work()
        growths.append([after - one for after, one in zip(counts(), before, strict=True)])
    # Caches fill in some rounds, and other threads come and go; a leak grows by a hundred or more in each.
    blocks, of_none, of_kind = zip(*growths, strict=True)
    assert min(blocks) < 50, growths
    assert min(map(abs, of_none)) < 50, growths
    assert of_kind == (0,) * len(growths)


@needs_c
def test_detached_records_release_their_batch() -> None:
    """After `detach`, live records have their own bytes, and the batch's buffer is released."""
    given: list[NewRecord] = [(NOON, b"k%d" % n, b"v%d" % n, (("h", b"%d" % n),)) for n in range(100)]
    data = python.encode_records(given, NOON)
    both, references = wire("c"), sys.getrefcount(data)
    cursor = both.loops.open_reader(both.kind, "t", 0, 0, 0, 100, data, 0, 100, 0, NOON, 100, None)
    chance = random.Random(5)
    kept = [record for record in cursor if chance.random() < 0.2]
    chance.shuffle(kept)
    del kept[::3]
    assert sys.getrefcount(data) > references
    cursor.detach()
    del cursor
    assert sys.getrefcount(data) == references
    del data
    for record in kept:
        number = b"%d" % record.offset
        assert (record.key, record.value, record.headers) == (b"k" + number, b"v" + number, (("h", number),))


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_an_iterator_continues_after_an_error_and_from_a_set_position(name: str) -> None:
    class Stream(wire(name).loops.RecordIterator):  # type: ignore[misc]
        def __init__(self, *groups: object) -> None:
            self.groups = list(groups)

        def _next_cursor(self) -> object:
            if not self.groups:
                raise StopIteration
            group = self.groups.pop(0)
            if isinstance(group, Exception):
                raise group
            return group

    stream = Stream(iter([1, 2]), iter([]), ValueError("once"), iter([3, 4]), iter([5]))
    assert iter(stream) is stream
    assert [next(stream), next(stream)] == [1, 2]
    with pytest.raises(ValueError, match="once"):
        next(stream)
    assert next(stream) == 3
    stream._reading = None
    assert list(stream) == [5]
