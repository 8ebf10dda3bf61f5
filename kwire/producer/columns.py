"""Many records by the column: how a call's keys, values and the rest stand beside each other. In Python.

A column of keys or values is a list of bytes or None, or Arrow's buffers as they are: which of them are there (a bit
each, None where all are), where each ends, and their bytes. Nothing is copied before a record is written into its run.
`_bulk.c` reads the same columns.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from itertools import pairwise, repeat
from operator import le
from typing import Any, NamedTuple, cast

from kwire.wire.rows import Bytes, Headers

# validity | None, ends, data, whether ends have 64 bits (else 32), and the place of the first item in all of them.
BytesBuffers = tuple[Bytes | None, Bytes, Bytes, bool, int]
BytesCells = list[bytes | None] | BytesBuffers | None

# timestamp, key, value, headers, partition | None
ManyRow = tuple[int, bytes | None, bytes | None, Headers, int | None]

_PLAIN = frozenset((bytes, type(None)))


class ManyColumns(NamedTuple):
    """Records of one topic, all columns of one length.

    A column that is None has None everywhere; one that is a number has that. -1 for a partition: it is to be chosen.
    """

    values: BytesCells
    keys: BytesCells
    headers: list[Headers] | None
    timestamps: int | array[int]
    partitions: int | array[int] | None

    def rows(self, start: int, end: int) -> Iterator[ManyRow]:
        """Records start .. end - 1."""
        headers: Iterable[Headers] = repeat(()) if self.headers is None else self.headers[start:end]
        timestamps = repeat(self.timestamps) if isinstance(self.timestamps, int) else self.timestamps[start:end]
        partitions: Iterable[int | None] = repeat(self.partitions)  # type: ignore[arg-type]  # no array, then
        if isinstance(self.partitions, array):
            partitions = [None if index < 0 else index for index in self.partitions[start:end]]
        cells = _cells(self.keys, start, end), _cells(self.values, start, end)
        row: Any = zip(range(start, end), timestamps, *cells, headers, partitions, strict=False)
        for _, *fields in row:
            yield tuple(fields)

    def values_alone(self, start: int, end: int) -> list[bytes] | None:
        """The values of records start .. end - 1; None unless all are there, of one time, without keys and headers."""
        if self.keys is not None or self.headers is not None or not isinstance(self.timestamps, int):
            return None
        values = _cells(self.values, start, end)
        return cast("list[bytes]", values) if isinstance(values, list) and None not in values else None


def all_bytes(items: list[Any]) -> bool:
    """Whether nothing but bytes and None is in it."""
    return _PLAIN.issuperset(map(type, items))


def _cells(column: BytesCells, start: int, end: int) -> Iterable[bytes | None]:
    if column is None:
        return repeat(None)
    return column[start:end] if isinstance(column, list) else _buffered(column, start, end)


def _buffered(column: BytesBuffers, start: int, end: int) -> list[bytes | None]:
    validity, ends, data, is_wide, first = column
    bounds = memoryview(ends).cast("B").cast("q" if is_wide else "i")[first + start : first + end + 1].tolist()
    content = memoryview(data).cast("B")
    is_there: list[int] | None = None
    if validity is not None:
        bits = memoryview(validity).cast("B")
        is_there = [bits[at >> 3] >> (at & 7) & 1 for at in range(first + start, first + end)]
    if all(map(le, bounds, bounds[1:])) and bounds[0] >= 0 and bounds[-1] <= len(content):
        origin, end_of_all = bounds[0], bounds[-1]
    else:  # fine where that is nothing's bound
        origin, end_of_all = 0, len(content)
        for number, (begin, stop) in enumerate(pairwise(bounds)):
            if (is_there is None or is_there[number]) and not 0 <= begin <= stop <= len(content):
                raise ValueError(f"item {start + number} of the column ends outside of its bytes")
    copy = bytes(content[origin:end_of_all])
    cells: list[bytes | None] = [copy[begin - origin : stop - origin] for begin, stop in pairwise(bounds)]
    return cells if is_there is None else [cell if there else None for cell, there in zip(cells, is_there, strict=True)]
