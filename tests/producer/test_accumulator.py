"""The accumulator, its builders and futures, in Python and in C."""

from __future__ import annotations

import gc
import sys
import threading
import tracemalloc
from array import array
from collections import OrderedDict, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kwire.producer.accumulator import ManyColumns, crc32_partition, murmur2_partition
from kwire.producer.batch_builder import UNDESIGNATED, UNROUTED
from kwire.producer.message import to_bytes, to_headers
from kwire.records import decode_batches
from kwire.records.rows import BATCH_OVERHEAD_BYTES, record_bytes_max
from tests.wire.speedups import CAN_COMPILE, needs_c, python, run_in_new_process, speedups

IMPLEMENTATIONS = ["python", *(["c"] if CAN_COMPILE else [])]
NOW = 1_700_000_000_000


@pytest.fixture(params=IMPLEMENTATIONS)
def made(request: pytest.FixtureRequest) -> Any:
    return python if request.param == "python" else speedups()


class Accumulators:
    """An accumulator, with its wakeups and the calls that it passed to the slow path."""

    def __init__(self, made: Any, **options: Any) -> None:
        self.wakes = 0
        self.referred: list[tuple[Any, ...]] = []
        given: dict[str, Any] = {
            "future_class": made.RecordFuture, "dispatch": None, "batch_bytes": 1_000, "bytes_max": 1 << 20,
            "record_bytes_max": 10_000, "key_hash": "murmur2", "may_share": lambda one, other: one == other,
            "time_ms": lambda: NOW, "wakeup": self._wake, "slow_path": self._slow_path, "by_system": False,
            "sums": True,
        }  # fmt: skip
        self.accumulator = made.RecordAccumulator(**(given | options))
        self.accumulator.is_open = True

    def _wake(self) -> None:
        self.wakes += 1

    def _slow_path(self, *args: Any, **kwargs: Any) -> str:
        self.referred.append((args, kwargs))
        return "referred"

    def know(self, topic: str = "t", count: int = 4, ring: tuple[int, ...] = (), waiting: Any = ()) -> None:
        self.accumulator.route(topic, count, ring or range(count), waiting, False)


def values(builder: Any) -> list[bytes | None]:
    builder.close()
    return [row[2] for row in builder.rows()]


@pytest.mark.parametrize("count", [0, 1, 4, 1_000])
@pytest.mark.parametrize("key", [None, b"", b"key", "text", "\N{SNOWMAN}"])
@pytest.mark.parametrize("key_hash", ["murmur2", "crc32"])
def test_slots_of_records(made: Any, count: int, key: bytes | str | None, key_hash: str) -> None:
    accumulators = Accumulators(made, key_hash=key_hash)
    accumulators.know(count=count)
    future = accumulators.accumulator.send("t", b"v", key)
    (builder,) = accumulators.accumulator.take()
    raw = key.encode() if isinstance(key, str) else key
    choose = murmur2_partition if key_hash == "murmur2" else crc32_partition
    slot = UNDESIGNATED if raw is None else choose(raw, count or 1)
    expected = UNROUTED if not count else 0 if count == 1 else slot
    assert (builder.topic, builder.partition, len(builder), future.done()) == ("t", expected, 1, False)
    builder.close()
    assert builder.rows() == [(NOW, raw, b"v", ())]


def test_turns(made: Any) -> None:
    accumulators = Accumulators(made, key_hash=None)
    accumulators.know(count=4, ring=(0, 2, 3))
    for number in range(5):
        accumulators.accumulator.send("t", b"%d" % number, b"key")
    assert {builder.partition: values(builder) for builder in accumulators.accumulator.take()} == {
        0: [b"0", b"3"],
        2: [b"1", b"4"],
        3: [b"2"],
    }


def test_a_record_has_the_time_of_its_call(made: Any) -> None:
    times = iter([5, 6, 7])
    accumulators = Accumulators(made, time_ms=lambda: next(times))
    accumulators.know()
    accumulators.accumulator.send("t", b"a", partition=0)
    accumulators.accumulator.send("t", b"b", partition=0, timestamp_ms=3)
    accumulators.accumulator.send("t", b"c", partition=0)
    (builder,) = accumulators.accumulator.take()
    builder.close()
    assert [row[0] for row in builder.rows()] == [5, 3, 6]


@needs_c
def test_c_reads_the_system_clock() -> None:
    """test_clock.py tests the time between two reads of the clock."""
    accumulators = Accumulators(speedups(), by_system=True, time_ms=lambda: 5)
    accumulators.know()
    accumulators.accumulator.send("t", b"v", partition=0)
    (builder,) = accumulators.accumulator.take()
    builder.close()
    assert [row[0] for row in builder.rows()] != [5]


OUT_OF_ORDER: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    (("unknown", b"v"), {}),
    ((5, b"v"), {}),
    (("t", b"v", 5), {}),
    (("t", "\udcff"), {}),
    (("t", bytes(10_000)), {}),
    (("t", b"v"), {"headers": (pair for pair in [("a", b"b")])}),
    (("t", b"v"), {"headers": [["a", b"b"]]}),
    (("t", b"v"), {"headers": [("a", b"b", b"c")]}),
    (("t", b"v"), {"headers": {5: b"b"}}),
    (("t", b"v"), {"headers": [("\udcff", b"b")]}),
    (("t", b"v"), {"headers": [("a", "\udcff")]}),
    (("t", b"v"), {"headers": [("a", bytearray(b"b"))]}),
    (("t", b"v"), {"headers": [("a", bytes(10_000))]}),
    (("t", b"v"), {"headers": OrderedDict(a=b"b")}),
    (("t", b"v"), {"headers": 5}),
    (("t", memoryview(b"every second")[::2]), {}),
    (("t", bytearray(10_000)), {}),
    (("t", b"v"), {"partition": -1}),
    (("t", b"v"), {"partition": 1 << 31}),
    (("t", b"v"), {"partition": True}),
    (("t", b"v"), {"timestamp_ms": -1}),
    (("t", b"v"), {"timestamp_ms": 1 << 63}),
    (("t", b"v"), {"timestamp_ms": 0.5}),
]


@pytest.mark.parametrize(("args", "kwargs"), OUT_OF_ORDER, ids=[str(number) for number in range(len(OUT_OF_ORDER))])
def test_unusual_records_take_the_slow_path(made: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    accumulators = Accumulators(made)
    accumulators.know()
    if made is python and args[1:] == ("\udcff",):
        with pytest.raises(UnicodeEncodeError):
            accumulators.accumulator.send(*args)
        return
    assert accumulators.accumulator.send(*args, **kwargs) == "referred"
    assert len(accumulators.referred) == 1
    assert (accumulators.accumulator.used_bytes, accumulators.accumulator.take()) == (0, [])


GIVEN: list[tuple[Any, Any, Any]] = [
    (bytearray(b"value"), bytearray(b"key"), None),
    (memoryview(b"value")[1:4], memoryview(bytearray(b"key")), None),
    (memoryview(array("I", range(9))), "key", None),
    (bytearray(), memoryview(b""), ()),
    (b"value", None, [("name", b"value"), ("none", None), ("text", "\N{SNOWMAN}"), ("name", b"")]),
    (None, None, (("\N{SNOWMAN}", b"v" * 200),)),
    (bytearray(200), "key", {"name": b"value", "": "text"}),
    (b"value", b"key", []),
    (b"value", b"key", {}),
]


@pytest.mark.parametrize("number", range(len(GIVEN)))
def test_headers_and_buffers_make_the_same_record_on_both_paths(made: Any, number: int) -> None:
    """Python passes them to the slow path; C appends them at once."""
    value, key, headers = GIVEN[number]
    accumulators, others = Accumulators(made), Accumulators(python)
    row = to_bytes(value, "value"), to_bytes(key, "key"), to_headers(headers)
    size = record_bytes_max(row[1], row[0], row[2])
    for each in (accumulators, others):
        each.know(count=1)
    others.accumulator.append("t", None, NOW, row[1], row[0], row[2], size, None)
    future = accumulators.accumulator.send("t", value, key, headers)
    if made is python and future == "referred":
        return
    for buffer in (value, key):
        if isinstance(buffer, bytearray):
            buffer += b"nobody holds it any more"
            del buffer[-24:]
    (builder,), (other,) = accumulators.accumulator.take(), others.accumulator.take()
    for each in (builder, other):
        each.close()
    assert builder.rows() == other.rows() == [(NOW, row[1], row[0], row[2])]
    seen = [(one.has_headers, one.size_bytes, one.buffered_bytes) for one in (builder, other)]
    assert seen[0] == seen[1]
    assert (bytes(builder.body()), accumulators.accumulator.used_bytes) == (
        bytes(other.body()),
        others.accumulator.used_bytes,
    )


class Named(str):
    """A name that is no plain str, such as a member of a StrEnum."""


@pytest.mark.parametrize("name", ["name \udcff\udcfe", Named("name"), Named("\udcff")])
@pytest.mark.parametrize("is_bulk", [False, True])
def test_header_names_that_are_no_utf_8_or_no_plain_text(made: Any, name: str, is_bulk: bool) -> None:
    """Those of a consumed record hold such bytes as surrogates; they are sent on as they came."""
    headers = (("a", b"1"), (name, b"2"), (name, None))
    raw = b"name \xff\xfe" if " " in name else name.encode(errors="surrogateescape")
    size = record_bytes_max(None, b"v", headers)
    assert size == record_bytes_max(None, b"v", ()) + sum(10 + len(part) for part in (b"a1", raw + b"2", raw))
    accumulators = Accumulators(made)
    accumulators.know(count=1)
    if is_bulk:
        many = ManyColumns([b"v"] * 3, None, [(), headers, headers], NOW, None)
        assert accumulators.accumulator.append_many("t", many, 1, 3)[0] == 3
        size *= 2
    else:
        accumulators.accumulator.append("t", None, NOW, None, b"v", headers, size, None)
    assert accumulators.accumulator.used_bytes == size
    (builder,) = accumulators.accumulator.take()
    builder.close()
    assert builder.rows() == [(NOW, None, b"v", headers)] * (2 if is_bulk else 1)
    assert bytes(builder.body()).count(bytes([2 * len(raw)]) + raw) == 2 * len(builder)


def test_a_header_name_that_no_bytes_make_is_refused_before_any_record_is_taken() -> None:
    for name in ("\ud800", "\udcff\udfff"):
        with pytest.raises(UnicodeEncodeError):
            to_headers([("a", b""), (name, b"")])


def test_a_full_accumulator_and_a_closed_one_take_the_slow_path(made: Any) -> None:
    accumulators = Accumulators(made, bytes_max=100)
    accumulators.know()
    assert accumulators.accumulator.send("t", bytes(70)) != "referred", "alone, it is let in"
    assert accumulators.accumulator.used_bytes == 106
    assert accumulators.accumulator.send("t", b"") == "referred"
    assert accumulators.accumulator.append("t", None, NOW, None, b"", (), 40, None) is None
    accumulators.accumulator.release("t", 106)
    accumulators.accumulator.is_open = False
    assert accumulators.accumulator.send("t", b"") == "referred"
    assert accumulators.accumulator.append("t", None, NOW, None, b"", (), 40, None) is not None


def test_builders_are_full_by_size_and_stay_open_until_closed(made: Any) -> None:
    accumulators = Accumulators(made, batch_bytes=61 + 2 * 17 + 36 + 10)  # two records, and the upper bound of a third
    accumulators.know()
    for number in range(7):
        accumulators.accumulator.send("t", b"%010d" % number, partition=2)
    first, second, third = accumulators.accumulator.take()
    assert [builder.is_closed for builder in (first, second, third)] == [True, True, False]
    accumulators.accumulator.send("t", b"joins", partition=2)
    assert (len(third), accumulators.accumulator.take()) == (2, [])
    third.close()
    accumulators.accumulator.send("t", b"begins another", partition=2)
    assert [values(builder) for builder in accumulators.accumulator.take()] == [[b"begins another"]]
    assert accumulators.wakes == 2, "one for the first, and one for the last: it was looked twice"


@pytest.mark.parametrize(
    ("way", "given"),
    [
        ("send", ("t", b"v")),
        ("append", ("t", 0, NOW, None, b"v", (), 40, None)),
        ("append_many", ("t", ManyColumns([b"v"], None, None, NOW, None), 0, 1)),
    ],
)
def test_an_interrupt_before_the_wakeup_does_not_leave_the_loop_asleep(made: Any, way: str, given: Any) -> None:
    rings: list[str] = []

    def ring() -> None:
        rings.append("ring")
        if len(rings) == 1:
            raise KeyboardInterrupt

    accumulators = Accumulators(made, wakeup=ring)
    accumulators.know()
    with pytest.raises(KeyboardInterrupt):
        getattr(accumulators.accumulator, way)(*given)
    assert rings == ["ring", "ring"]
    (builder,) = accumulators.accumulator.take()
    assert values(builder) == [b"v"]


@needs_c
def test_a_callback_without_memory_still_wakes_the_loop() -> None:
    memory: Any = pytest.importorskip("_testcapi")
    accumulators = Accumulators(speedups())
    accumulators.know()
    failed = 0
    for number in range(60):
        accumulators.accumulator.take()
        accumulators.wakes = 0
        memory.set_nomemory(number, number + 1)
        try:
            accumulators.accumulator.send("t", b"v", on_delivery=len)
        except MemoryError:
            failed += 1
        finally:
            memory.remove_mem_hooks()
        assert accumulators.wakes == len(accumulators.accumulator.take())
    assert 0 < failed < 60


def test_records_without_a_key_follow_the_current_slot(made: Any) -> None:
    accumulators = Accumulators(made)
    accumulators.know()
    accumulators.accumulator.append("t", None, NOW, None, b"of a request", (), 50, "terms")
    accumulators.accumulator.send("t", b"0")
    for number, count in enumerate((1, 1, 4, 1), 1):
        accumulators.know(count=count)
        accumulators.accumulator.send("t", b"%d" % number)
        accumulators.accumulator.send("t", b"%d" % number, partition=0)
    assert [(builder.partition, builder.terms, values(builder)) for builder in accumulators.accumulator.take()] == [
        (UNDESIGNATED, "terms", [b"of a request"]), (UNDESIGNATED, None, [b"0", b"3"]),
        (0, None, [b"1", b"1", b"2", b"2", b"3", b"4", b"4"]),
    ]  # fmt: skip


def test_terms_keep_records_apart(made: Any) -> None:
    accumulators = Accumulators(made)
    accumulators.know()
    for terms in (None, None, "a", "a", "b", None):
        accumulators.accumulator.append("t", 0, NOW, None, repr(terms).encode(), (), 50, terms)
    assert [(builder.terms, len(builder)) for builder in accumulators.accumulator.take()] == [
        (None, 2),
        ("a", 2),
        ("b", 1),
        (None, 1),
    ]


def test_route_moves_records_in_order_with_their_callbacks_and_waiters(made: Any) -> None:
    accumulators = Accumulators(made, dispatch=None)
    called: list[object] = []
    accumulators.accumulator.append("t", None, NOW, b"k", b"0", (("h", b"x"),), 70, None)
    (taken,) = accumulators.accumulator.take()
    taken.since = 5.0
    futures = [accumulators.accumulator.send("t", b"%d" % number, b"k", timestamp_ms=number, on_delivery=called.append)
              for number in range(1, 4)]  # fmt: skip
    assert taken.add_waiter(1, futures[0], called.append, None)
    assert len(taken) == 4
    accumulators.know(waiting=[taken])
    futures.append(accumulators.accumulator.send("t", b"4", b"k"))
    (builder,) = accumulators.accumulator.take()
    builder.close()
    assert (builder.partition, builder.since, builder.has_headers) == (murmur2_partition(b"k", 4), 5.0, True)
    assert [row[2] for row in builder.rows()] == [b"0", b"1", b"2", b"3", b"4"]
    assert builder.rows()[0] == (NOW, b"k", b"0", (("h", b"x"),))
    assert builder.buffered_bytes == accumulators.accumulator.used_bytes
    reports, late = builder.resolve(0, 5, 100, -1, None)
    assert [(number, future) for number, future, _ in reports.all()] == [
        (1, futures[0]),
        (2, futures[1]),
        (3, futures[2]),
    ]
    assert [one[0] for one in late] == [1]
    assert [future.done() for future in futures] == [True] * 4
    assert taken.outcome(2) == (builder.partition, 102, 2, None)
    assert not taken.add_waiter(0, futures[0], called.append, None)


ONE_OF_TWO = b"1"  # the key's partition of four is 3, of two 1
NOT_KNOWN_YET = [(b"0", None), (b"1", 1), (b"2", 0), (b"3", None), (b"4", 1), (b"5", 700), (b"6", None), (b"7", 1)]
IN_ORDER = {0: [b"2"], 1: [b"0", b"1", b"3", b"4", b"6", b"7"], 700: [b"5"]}


@pytest.mark.parametrize("is_taken", [False, True])
def test_records_by_key_and_by_partition_keep_their_order_until_partitions_are_known(made: Any, is_taken: bool) -> None:
    """A record for a partition that the caller chose does not overtake one that gets this partition by its key."""
    accumulators = Accumulators(made)
    accumulators.know(count=0)
    futures: list[Any] = []
    waiting: list[Any] = []
    for value, partition in NOT_KNOWN_YET:
        futures.append(accumulators.accumulator.send("t", value, ONE_OF_TWO, partition=partition))
        waiting += accumulators.accumulator.take() if is_taken else []
    accumulators.know(count=2, waiting=waiting)
    futures.append(accumulators.accumulator.send("t", b"8", partition=0))
    builders = {builder.partition: builder for builder in accumulators.accumulator.take()}
    assert {partition: values(builder) for partition, builder in builders.items()} == IN_ORDER | {0: [b"2", b"8"]}
    for builder in builders.values():
        builder.resolve(0, len(builder), 10, -1, None)
    partitions = [future._builder.outcome(future._number)[0] for future in futures]
    assert partitions == [1, 1, 0, 1, 1, 700, 1, 1, 0]


@pytest.mark.parametrize("partitions", [1, array("i", [-1, 1, 0, -1, 1, 700, -1, 1])])
def test_many_records_keep_their_order_until_partitions_are_known(made: Any, partitions: Any) -> None:
    accumulators = Accumulators(made)
    accumulators.accumulator.append("t", None, NOW, ONE_OF_TWO, b"before", (), 60, None)
    given = ManyColumns([value for value, _ in NOT_KNOWN_YET], [ONE_OF_TWO] * 8, None, NOW, partitions)
    (after, too_large, placed, order) = accumulators.accumulator.append_many("t", given, 0, 8)
    assert (after, too_large, [one[1:] for one in placed], order) == (8, 0, [(1, 8)], None)
    accumulators.accumulator.append_many("t", ManyColumns([b"after"], None, None, NOW, 1), 0, 1)
    accumulators.know(count=2)
    expected = {1: [b"%d" % number for number in range(8)]} if partitions == 1 else IN_ORDER
    expected = expected | {1: [b"before", *expected[1], b"after"]}
    assert {builder.partition: values(builder) for builder in accumulators.accumulator.take()} == expected


def test_a_forgotten_topic_starts_again_after_its_records_are_taken(made: Any) -> None:
    accumulators = Accumulators(made)
    accumulators.know(count=4)
    accumulators.accumulator.append("t", 3, NOW, None, b"a", (), 10, None)
    (builder,) = accumulators.accumulator.take()
    assert builder.partition == 3
    assert not accumulators.accumulator.forget("t"), "its record is not resolved yet"
    accumulators.accumulator.release("t", 10)
    accumulators.accumulator.set_awaited("t", True)
    assert not accumulators.accumulator.forget("t"), "somebody waits for room"
    accumulators.accumulator.set_awaited("t", False)
    assert accumulators.accumulator.forget("t")
    assert accumulators.accumulator.forget("never seen")
    accumulators.accumulator.append("t", None, NOW, b"key", b"b", (), 10, None)
    (builder,) = accumulators.accumulator.take()
    assert builder.partition == UNROUTED


def test_a_topic_is_not_forgotten_while_a_record_is_appended(made: Any) -> None:
    forgotten: list[bool] = []

    def may_share(one: object, other: object) -> bool:
        forgotten.append(accumulators.accumulator.forget("t"))
        return False

    accumulators = Accumulators(made, may_share=may_share)
    accumulators.know(count=1)
    accumulators.accumulator.append("t", 0, NOW, None, b"a", (), 10, "terms")
    accumulators.accumulator.take()
    builder, number = accumulators.accumulator.append("t", 0, NOW, None, b"b", (), 10, "others")
    assert forgotten
    assert [builder for builder in accumulators.accumulator.take() if builder.partition == 0] == [builder]
    assert (number, len(builder)) == (0, 1)


def test_a_callback_added_right_after_its_record_is_a_delivery_callback(made: Any) -> None:
    accumulators = Accumulators(made)
    accumulators.know()
    first, second, third = [accumulators.accumulator.send("t", b"v") for _ in range(3)]
    (builder,) = accumulators.accumulator.take()
    assert [builder.report(1, second, len), builder.report(2, third, len), builder.report(0, first, len)] == [
        True,
        True,
        False,
    ]
    builder.close()
    reports, _ = builder.resolve(0, 3, 0, -1, None)
    assert [one[:2] for one in reports.all()] == [(1, second), (2, third)]
    assert not builder.report(0, first, len)


def test_a_callback_is_too_late_once_some_callbacks_were_called(made: Any) -> None:
    accumulators = Accumulators(made)
    accumulators.know()
    futures = [accumulators.accumulator.send("t", b"v") for _ in range(4)]
    (builder,) = accumulators.accumulator.take()
    builder.close()
    assert builder.report(2, futures[2], len)
    reports, _ = builder.resolve(2, 3, 0, -1, None)
    assert [one[0] for one in reports.all()] == [2]
    assert [builder.report(number, futures[number], len) for number in (0, 1, 2, 3)] == [False, False, False, True]
    assert [one[0] for one in builder.resolve(0, 2, 0, -1, None)[0] or ()] == []
    reports, _ = builder.resolve(3, 4, 0, -1, None)
    assert [one[0] for one in reports.all()] == [3]


def test_parts_resolve_one_by_one_and_once(made: Any) -> None:
    accumulators, error = Accumulators(made), ValueError("no")
    accumulators.know()
    futures = [
        accumulators.accumulator.send("t", b"v", partition=1, timestamp_ms=number // 2, on_delivery=len)
        for number in range(6)
    ]
    (builder,) = accumulators.accumulator.take()
    with pytest.raises(AssertionError):
        builder.resolve(0, 6, 0, -1, None)
    builder.close()
    reports, late = builder.resolve(2, 4, -1, 99, None)
    assert ([one[0] for one in reports.all()], late) == ([2, 3], None)
    with pytest.raises(AssertionError):
        builder.resolve(3, 5, 0, -1, None)
    assert [future.done() for future in futures] == [False, False, True, True, False, False]
    builder.resolve(4, 6, -1, -1, error)
    builder.resolve(0, 2, 7, -1, None)
    assert [builder.outcome(number) for number in range(6)] == [
        (1, 7, 0, None), (1, 8, 0, None), (1, -1, 99, None), (1, -1, 99, None), (1, -1, 2, error), (1, -1, 2, error),
    ]  # fmt: skip


def test_a_future_returns_its_error(made: Any) -> None:
    """`exception` returns at once for a resolved record, also a routed one; else it waits and checks again."""
    accumulators = Accumulators(made)
    error = RuntimeError("refused")
    waits: list[float | None] = []

    class Waits(made.RecordFuture):  # type: ignore[misc]
        __slots__ = ()

        def _wait(self, timeout: float | None) -> None:
            waits.append(timeout)
            if timeout == 0:
                raise TimeoutError
            self._builder.resolve(0, 2, 7, -1, error)

    accumulators.know(count=0)
    _, routed = accumulators.accumulator.send("t", b"v", b"other key"), accumulators.accumulator.send("t", b"v", b"key")
    accumulators.know(count=4)
    other, builder = accumulators.accumulator.take()
    other.close()
    builder.close()
    builder.resolve(0, 1, 7, -1, error)
    assert (routed.exception(), routed.exception(5), routed.exception(timeout=5)) == (error, error, error)
    builder = made.BatchBuilder("t", 0, 1_000)
    for _ in range(2):
        builder.append(NOW, None, b"v", (), 40)
    builder.close()
    first, second = Waits(builder, 0), Waits(builder, 1)
    with pytest.raises(TimeoutError):
        first.exception(timeout=0)
    with pytest.raises(TypeError):
        first.exception(1, 2)
    assert second.exception(2.5) is error
    assert first.exception() is error
    assert waits == [0, 2.5]
    builder = made.BatchBuilder("t", 0, 1_000)
    builder.append(NOW, None, b"v", (), 40)
    builder.close()
    builder.resolve(0, 1, 7, -1, None)
    assert made.RecordFuture(builder, 0).exception() is None


@needs_c
def test_the_garbage_collector_does_not_track_pending_records() -> None:
    """Repeated collections would visit all of them, which costs more than the rest of a record."""
    made = speedups().future_class("tests.Made")
    assert (made.__module__, made.__name__, made.__mro__[1]) == ("tests", "Made", speedups().RecordFuture)
    accumulators = Accumulators(speedups(), future_class=made)
    accumulators.know()
    future = accumulators.accumulator.send("t", b"v")
    assert type(future) is made
    assert not gc.is_tracked(future)


def test_callbacks_are_called_once_and_an_error_affects_no_other(made: Any) -> None:
    accumulators = Accumulators(made)
    called: list[object] = []
    errors: list[object] = []

    def fail(future: Any) -> None:
        raise ValueError("mine")

    accumulators.know()
    futures = [
        accumulators.accumulator.send("t", b"v", on_delivery=call) for call in (called.append, fail, called.append)
    ]
    (builder,) = accumulators.accumulator.take()
    builder.close()
    reports, _ = builder.resolve(0, 3, 0, -1, None)
    reports.run(lambda error, future: errors.append((str(error), future)))
    assert called == [futures[0], futures[2]]
    assert errors == [("mine", futures[1])]


@pytest.mark.parametrize("largest", [0, 100_000])  # the CRC of a large one is computed without the GIL
def test_bodies_and_batches_are_the_same(largest: int) -> None:
    seen = []
    for name in IMPLEMENTATIONS:
        accumulators = Accumulators(python if name == "python" else speedups(), batch_bytes=1 << 20)
        accumulators.know()
        for number in range(300):
            key = None if number % 3 else b"k" * (number % 70)
            headers = (("name", b"x" * number), ("none", None)) if number % 5 == 0 else ()
            value = None if number % 7 == 0 else bytes(number + largest * (number == 1))
            assert accumulators.accumulator.append("t", 0, NOW + number * 37 % 100, key, value, headers, 50, None)
        (builder,) = accumulators.accumulator.take()
        builder.close()
        body, rows = bytes(builder.body()), builder.rows()
        whole = builder.batch(0x10, 1 << 62, 1 << 14, 1 << 30)
        sent = bytes(whole)
        again = bytes(builder.batch(0, 7, 8, 9))
        assert bytes(whole) == sent, "what somebody sends stays as it is"
        builder.drop(300)
        assert bytes(whole) == sent, "and lives as long"
        assert sent[BATCH_OVERHEAD_BYTES:] == again[BATCH_OVERHEAD_BYTES:] == body
        seen.append((rows, sent, again, builder.base_timestamp, builder.max_timestamp))
        for encoded, fields in ((sent, (1 << 62, 1 << 14, 1 << 30, True)), (again, (7, 8, 9, False))):
            (batch,) = decode_batches(encoded)
            assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.is_transactional) == fields
            records = batch.records()
            assert [(record.timestamp_ms, record.key, record.value, record.headers) for record in records] == rows
    assert seen.count(seen[0]) == len(seen)


def test_eight_threads_at_once(made: Any) -> None:
    accumulators, count = Accumulators(made, batch_bytes=5_000, bytes_max=1 << 30), 3_000
    accumulators.know()

    called: list[list[tuple[int, object]]] = [[] for _ in range(8)]

    def send(name: int) -> None:
        def note(future: Any) -> None:
            called[name].append((future._builder.outcome(future._number)[2], future.exception()))

        kept: deque[Any] = deque(maxlen=5)  # the others are created again for their callbacks
        for number in range(count):
            kept.append(
                accumulators.accumulator.send("t", b"%d %d" % (name, number), b"%d" % name, None, None, number, note)
            )

    threads = [threading.Thread(target=send, args=(name,)) for name in range(8)]
    taken: list[Any] = []
    resolved = 0
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        taken += accumulators.accumulator.take()
        for builder in taken[-2:]:
            builder.close()
        resolved = _resolve(taken, resolved)
    taken += accumulators.accumulator.take()
    for builder in taken:
        builder.close()
    assert _resolve(taken, resolved) == len(taken)
    assert called == [[(number, None) for number in range(count)]] * 8
    seen: dict[bytes, list[int]] = {}
    for builder in taken:
        for value in values(builder):
            name, number = (value or b"").split()
            seen.setdefault(name, []).append(int(number))
    assert seen == {b"%d" % name: list(range(count)) for name in range(8)}
    assert accumulators.accumulator.used_bytes == sum(builder.buffered_bytes for builder in taken)


def _resolve(taken: list[Any], start: int) -> int:
    """Return the consecutive closed builders from `start` on."""
    while start < len(taken) and taken[start].is_closed:
        reports, _ = taken[start].resolve(0, len(taken[start]), 0, -1, None)
        reports.run(_fail)
        start += 1
    return start


def _fail(error: Exception, future: Any) -> None:
    raise AssertionError from error


def collect_soon(act: Callable[[], object], after: int) -> None:
    """Run a function in a finalizer after `after` more allocations that the collector counts; set its threshold."""

    class Acts:
        def __init__(self) -> None:
            self.me = self  # a reference cycle: only the collector frees it

        def __del__(self) -> None:
            act()

    gc.set_threshold(1 << 20)
    Acts()
    gc.set_threshold(gc.get_count()[0] + 1 + after)


def test_a_finalizer_that_sends_during_a_send(made: Any) -> None:
    """Every record keeps its own fields."""
    theirs = b"from a finalizer"
    time_ms = [0]
    accumulators = Accumulators(made, batch_bytes=300, time_ms=lambda: time_ms[-1])
    accumulators.know()

    def send() -> None:
        time_ms.append(NOW)
        accumulators.accumulator.send("t", theirs)
        accumulators.accumulator.send("t", theirs, theirs, partition=0)
        time_ms.pop()

    threshold = gc.get_threshold()
    try:
        for number in range(0, 1_000, 2):
            time_ms[0] = number
            collect_soon(send, number // 2 % 10)
            accumulators.accumulator.send("t", b"%d" % number, on_delivery=len)
            collect_soon(send, number // 2 % 10)
            accumulators.accumulator.send("t", b"%d" % (number + 1), b"k", None, 0, number + 1)
    finally:
        gc.set_threshold(*threshold)
    rows = [row for builder in accumulators.accumulator.take() for row in (builder.close(), *builder.rows())[1:]]
    assert all(row[0] == NOW and row[1] in (None, theirs) for row in rows if row[2] == theirs)
    own = [row for row in rows if row[2] != theirs]
    assert all(row[:2] == (int(row[2]), b"k" if row[0] % 2 else None) for row in own)
    for odd in (0, 1):
        assert [row[0] for row in own if row[0] % 2 == odd] == list(range(odd, 1_000, 2))


def check_memory_of_full_builders() -> None:
    def fill(accumulators: Accumulators) -> int:
        for _ in range(3_000):
            accumulators.accumulator.send("t", bytes(9_000))
        builders = accumulators.accumulator.take()
        held = tracemalloc.get_traced_memory()[0]
        for builder in builders:
            builder.close()
            builder.drop(len(builder))
        return held

    tracemalloc.start()
    accumulators, other = Accumulators(speedups(), batch_bytes=300_000, bytes_max=1 << 30), Accumulators(speedups())
    accumulators.know(count=1)
    for _ in range(3):
        assert fill(accumulators) > 27_000_000
        assert 5_000_000 < tracemalloc.get_traced_memory()[0] < 9_000_000
    del accumulators
    gc.collect()
    assert tracemalloc.get_traced_memory()[0] > 5_000_000
    del other
    gc.collect()
    assert tracemalloc.get_traced_memory()[0] < 1_000_000


@needs_c
def test_memory_of_full_builders_is_reused_until_the_last_accumulator_is_freed() -> None:
    run_in_new_process(check_memory_of_full_builders)


@needs_c
def test_nothing_leaks() -> None:
    def once() -> None:
        accumulators = Accumulators(speedups())
        error = ValueError("no")
        called: list[object] = []
        accumulators.accumulator.send("t", b"waits", b"k")
        accumulators.accumulator.append("t", None, NOW, b"k", b"0", (("h", b"x"),), 70, SimpleNamespace())
        waiting = accumulators.accumulator.take()
        accumulators.know(waiting=waiting)
        kept = [accumulators.accumulator.send("t", b"%d" % number, on_delivery=called.append) for number in range(50)]
        for headers in ([("text", "text"), ("bytes", b"v")], {"text": "text"}, [("bad", 5)], [("\udcff", b"")], 5):
            accumulators.accumulator.send("t", bytearray(b"v"), memoryview(b"k"), headers)
        raw = (("a", None), ("\udcff", b""), ("b\udcff", b"v"))
        accumulators.accumulator.append("t", None, NOW, b"k", b"0", raw, 120, None)
        accumulators.accumulator.append_many("t", ManyColumns([b"v"] * 3, None, [raw] * 3, NOW, None), 1, 3)
        for builder in accumulators.accumulator.take():
            builder.close()
            assert builder.add_waiter(0, kept[0], called.append, None)
            sent = builder.batch(0, 1, 0, 0)
            assert bytes(builder.batch(0, 1, 1, 0)) != bytes(sent)
            reports, _ = builder.resolve(0, len(builder), 0, -1, error)
            if reports is not None:
                reports.run(lambda *raised: called.append(raised))
            builder.rows()
            builder.drop(len(builder))

    _leaks(once)


def _leaks(once: Callable[[], None]) -> None:
    """The interpreter's caches fill up at some point; a leak grows in every round."""
    growths: list[int] = []
    gc.collect()
    for _ in range(6):
        before = sys.getallocatedblocks()
        for _ in range(300):
            once()
        gc.collect()
        growths.append(sys.getallocatedblocks() - before)
    assert min(growths) < 100, growths


# -- memory, and each topic's share of it


def test_a_topic_may_hold_sixteen_times_the_free_memory(made: Any) -> None:
    accumulators = Accumulators(made, bytes_max=1_700)
    accumulators.know()
    accumulators.know("other")
    while accumulators.accumulator.send("t", bytes(4)) != "referred":
        pass
    assert (accumulators.accumulator.held("t"), accumulators.accumulator.largest()) == (1_600, ("t", 1_600))
    assert accumulators.accumulator.append("t", None, NOW, None, b"", (), 40, None) is None
    assert accumulators.accumulator.append_many("t", ManyColumns([b""], None, None, NOW, None), 0, 1)[0] == 0
    assert accumulators.accumulator.append("other", None, NOW, None, b"", (), 100, None) is not None, (
        "its first needs only to fit"
    )
    accumulators.accumulator.release("other", 100)
    assert accumulators.accumulator.send("other", bytes(4)) != "referred"
    assert accumulators.accumulator.send("other", bytes(4)) != "referred"
    accumulators.accumulator.release("t", 1_600)
    assert (
        accumulators.accumulator.held("t"),
        accumulators.accumulator.held("other"),
        accumulators.accumulator.used_bytes,
    ) == (0, 80, 80)


def test_many_values_at_once_get_the_share_that_single_ones_get(made: Any) -> None:
    for size, held in ((64, 1_600), (164, 1_600), (264, 1_500)):
        accumulators = Accumulators(made, bytes_max=1_700, batch_bytes=10_000)
        accumulators.know()
        assert (
            accumulators.accumulator.append_many("t", ManyColumns([bytes(size)] * 100, None, None, NOW, None), 0, 100)[
                0
            ]
            < 100
        )
        assert accumulators.accumulator.held("t") == held


def test_while_memory_is_short_a_topic_gets_a_sixteenth_of_the_free_memory(made: Any) -> None:
    accumulators = Accumulators(made, bytes_max=1_700)
    accumulators.know()
    accumulators.know("other")
    accumulators.accumulator.send("other", bytes(4))
    accumulators.accumulator.is_short = True
    while accumulators.accumulator.send("t", bytes(4)) != "referred":
        pass
    assert accumulators.accumulator.held("t") == 80
    assert accumulators.accumulator.append_many("t", ManyColumns([b""], None, None, NOW, None), 0, 1)[0] == 0
    accumulators.accumulator.is_short = False
    assert accumulators.accumulator.send("t", bytes(4)) != "referred"


def test_later_senders_take_the_slow_path_while_senders_wait_for_the_topic(made: Any) -> None:
    accumulators = Accumulators(made)
    accumulators.know()
    accumulators.know("other")
    accumulators.accumulator.send("t", b"", partition=0)
    accumulators.accumulator.set_awaited("t", True)
    assert accumulators.accumulator.send("t", b"", partition=0) == "referred"
    assert accumulators.accumulator.send("t", b"", b"key") == "referred"
    assert accumulators.accumulator.send("other", b"") != "referred"
    assert accumulators.accumulator.append("t", 0, NOW, None, b"", (), 36, None) is not None, (
        "those that wait are served by this"
    )
    accumulators.accumulator.set_awaited("t", False)
    assert accumulators.accumulator.send("t", b"", partition=0) != "referred"
