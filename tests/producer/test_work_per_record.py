"""The cost of a record, sent or read, grows neither with partitions nor with records: work is counted.

In C the basic blocks that run, in Python the lines: the same numbers on every machine. KWIRE_GROWTH=10000000 goes up to
as many records, in minutes.
"""

from __future__ import annotations

import ctypes
import os
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from kwire.producer.accumulator import ManyColumns
from tests.producer.growth import Lines
from tests.producer.test_accumulator import NOW, Accumulators
from tests.producer.test_bulk import buffers
from tests.wire.speedups import CAN_COMPILE, Implementation, compiled, loaded, python

# Not optimized, since only counts matter.
FLAGS = ("-O0", "-fsanitize-coverage=trace-pc")
FEW, MANY = 10_000, int(os.environ.get("KWIRE_GROWTH", 100_000))
FEW_LINES, MANY_LINES = 1_000, 5_000  # of Python, where counting costs more than the counted work
GROWTH_MAX = 1.25  # a binary search takes log n steps, and keys fill many batches unevenly, so there are more batches
PER_BATCH = 10
VALUE = bytes(64)  # ten records fill a batch
PER_CALL = 10_000


@dataclass(frozen=True)
class Form:
    """An implementation, and the work that it has done."""

    made: Any  # RecordAccumulator, BatchBuilder, ...
    loops: Any  # open_reader, ...
    count: Callable[[Callable[[], object]], int]
    few: int
    many: int


@cache
def form(name: str) -> Form:
    if name == "python":
        return Form(python, python, lines_of, FEW_LINES, MANY_LINES)
    library = compiled(FLAGS, Path(__file__).with_name("blocks.c"))
    made = loaded(library)
    blocks_run = ctypes.CDLL(str(library)).blocks_run
    blocks_run.restype = ctypes.c_ulong

    def blocks_of(work: Callable[[], object]) -> int:
        before = blocks_run()
        work()
        return int(blocks_run() - before)

    return Form(made, Implementation(made), blocks_of, FEW, MANY)


def lines_of(work: Callable[[], object]) -> int:
    with Lines(tuple(str(module.__file__) for module in python.modules), without=()) as lines:
        work()
    return lines.count


class Sending:
    """Send a batch for each partition in turn; drain and resolve as the producer does."""

    def __init__(self, made: Any, partitions: int, drained_every: int, key_hash: str | None) -> None:
        batch_bytes = 61 + PER_BATCH * (36 + len(VALUE))
        self._doors = Accumulators(made, batch_bytes=batch_bytes, bytes_max=1 << 40, key_hash=key_hash)
        self._doors.know(count=partitions)
        self._partitions = partitions
        self._every = drained_every

    def one_by_one(self, records: int) -> None:
        send = self._doors.accumulator.send
        for start in range(0, records, PER_BATCH):
            partition = start // PER_BATCH % self._partitions
            for _ in range(PER_BATCH):
                send("t", VALUE, None, None, partition, None, id)
            self._drain(start + PER_BATCH)
        self._drain(self._every)

    def with_keys(self, records: int) -> None:
        send = self._doors.accumulator.send
        for number in range(records):
            send("t", VALUE, b"%05d" % (number // PER_BATCH))
            self._drain(number + 1)
        self._drain(self._every)

    def in_turns(self, records: int) -> None:
        """As there is no hash."""
        self.with_keys(records)

    def lists(self, records: int) -> None:
        self._many(records, [VALUE] * PER_CALL)

    def arrow(self, records: int) -> None:
        self._many(records, buffers([VALUE] * PER_CALL, is_wide=False, skipped=0))

    def _many(self, records: int, values: Any) -> None:
        where = array("i", [number // PER_BATCH % self._partitions for number in range(PER_CALL)])
        given = ManyColumns(values, None, None, NOW, where)
        for start in range(0, records, PER_CALL):
            end = min(PER_CALL, records - start)
            assert self._doors.accumulator.append_many("t", given, 0, end)[0] == end
            self._drain(start + end)
        self._drain(self._every)

    def _drain(self, sent: int) -> None:
        if sent % self._every:
            return
        for builder in self._doors.accumulator.take():
            builder.close()
            builder.batch(0, 1, 0, 0)
            reports, _ = builder.resolve(0, len(builder), 0, -1, None)
            if reports is not None:
                reports.run(id)
            self._doors.accumulator.release(builder.topic, builder.buffered_bytes)
            builder.drop(len(builder))


class Reading:
    """Return batches of the partitions in turn."""

    def __init__(self, loops: Any, partitions: int) -> None:
        self._loops = loops
        self._partitions = partitions
        self._kind = loops.record_class(type("Kind", (loops.RecordFields,), {"__slots__": ()}))
        self._data = python.encode_records([(NOW, None, VALUE, ())] * PER_BATCH, NOW)

    def _cursors(self, records: int) -> list[Any]:
        return [
            self._loops.open_reader(
                self._kind, "t", number % self._partitions, 0, 0, PER_BATCH, self._data, 0, PER_BATCH, 0, NOW,
                PER_BATCH, None,
            )
            for number in range(records // PER_BATCH)
        ]  # fmt: skip

    def one_by_one(self, records: int) -> None:
        for cursor in self._cursors(records):
            for record in cursor:
                record.value  # noqa: B018

    def polled(self, records: int) -> None:
        for cursor in self._cursors(records):
            cursor.take(PER_BATCH)

    def columns(self, records: int) -> None:
        """Read all records into one table."""
        found = self._loops.columns([cursor.cut(PER_BATCH) for cursor in self._cursors(records)], True)
        assert found[0] == records


FORMS = ["python", *(["c"] if CAN_COMPILE else [])]
WAYS_IN = [Sending.one_by_one, Sending.with_keys, Sending.in_turns, Sending.lists, Sending.arrow]
WAYS_OUT = [Reading.one_by_one, Reading.polled, Reading.columns]


def work_to_send(form: Form, way: Callable[[Sending, int], None], partitions: int, records: int, every: int) -> float:
    """For each record, after the first of every partition."""
    sending = Sending(form.made, partitions, every, None if way is Sending.in_turns else "murmur2")
    way(sending, PER_CALL)
    return form.count(partial(way, sending, records)) / records


def work_to_read(form: Form, way: Callable[[Reading, int], None], partitions: int, records: int) -> float:
    reading = Reading(form.loops, partitions)
    return form.count(partial(way, reading, records)) / records


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("way", WAYS_IN)
class TestSending:
    @pytest.mark.slow
    def test_partitions(self, name: str, way: Callable[[Sending, int], None]) -> None:
        few, many = (work_to_send(form(name), way, count, 10_000, PER_CALL) for count in (1, 1_000))
        assert many < few * GROWTH_MAX

    @pytest.mark.slow
    @pytest.mark.parametrize("is_drained", [True, False])
    def test_records(self, name: str, way: Callable[[Sending, int], None], is_drained: bool) -> None:
        """That came before, or that wait."""
        one = form(name)
        few, many = (
            work_to_send(one, way, 10, count, one.few if is_drained else count) for count in (one.few, one.many)
        )
        assert many < few * GROWTH_MAX


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("way", WAYS_OUT)
class TestReading:
    @pytest.mark.slow
    def test_partitions(self, name: str, way: Callable[[Reading, int], None]) -> None:
        few, many = (work_to_read(form(name), way, count, 10_000) for count in (1, 1_000))
        assert many < few * GROWTH_MAX

    @pytest.mark.slow
    def test_records(self, name: str, way: Callable[[Reading, int], None]) -> None:
        one = form(name)
        few, many = (work_to_read(one, way, 10, count) for count in (one.few, one.many))
        assert many < few * GROWTH_MAX


@pytest.mark.parametrize("name", FORMS)
def test_what_is_counted(name: str) -> None:
    """The work grows in proportion to the records."""
    one = form(name)
    small, large = (one.count(partial(one.loops.murmur2, bytes(size))) for size in (400, 4_000))
    assert 9 < large / small < 11
