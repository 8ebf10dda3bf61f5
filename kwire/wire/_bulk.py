"""Many records by the column: how a call's keys, values and the rest stand beside each other. In Python.

A column of keys or values is a list of bytes or None, or Arrow's buffers as they are: which of them are there (a bit
each, None where all are), where each ends, and their bytes. Nothing is copied before a record is written into its run.
`_bulk.c` reads the same columns.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any, NamedTuple

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


def all_bytes(items: list[Any]) -> bool:
    """Whether nothing but bytes and None is in it."""
    return _PLAIN.issuperset(map(type, items))


def _cells(column: BytesCells, start: int, end: int) -> Iterable[bytes | None]:
    if column is None:
        return repeat(None)
    if isinstance(column, list):
        return column[start:end]
    return _buffered(column, start, end)


def _buffered(column: BytesBuffers, start: int, end: int) -> Iterator[bytes | None]:
    validity, ends, data, is_wide, first = column
    bits = None if validity is None else memoryview(validity).cast("B")
    bounds, content = memoryview(ends).cast("B").cast("q" if is_wide else "i"), memoryview(data).cast("B")
    for at in range(first + start, first + end):
        if bits is not None and not bits[at >> 3] >> (at & 7) & 1:
            yield None
            continue
        if not 0 <= bounds[at] <= bounds[at + 1] <= len(content):
            raise ValueError(f"item {at - first} of the column ends outside of its bytes")
        yield bytes(content[bounds[at] : bounds[at + 1]])
