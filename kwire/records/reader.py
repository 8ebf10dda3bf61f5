"""The records of a batch as a consumer reads them: one by one, in lists, or as columns.

A `RecordReader` knows how far its batch was read. Several threads may use it at once; each record is returned once. The
C twins are reader.c, record_fields.c and columns.c.
"""

from __future__ import annotations

import operator
from abc import abstractmethod
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any, TypeVar

from kwire.errors import CorruptRecordsError
from kwire.records.decoder import decode_records
from kwire.records.rows import Row, shown_name
from kwire.wire.accel import made_anew, speedups
from kwire.wire.buffers import Bytes

T = TypeVar("T")


class RecordFields:
    """The fields of a consumed record. In C they are created from the batch when they are read."""

    __slots__ = ("headers", "key", "offset", "partition", "timestamp_ms", "timestamp_type", "topic", "value")

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def record_class(written: type[T]) -> type[T]:
    """Decorate a subclass of RecordFields without slots: with C, rebuild it as a C type (see docs/speed.md)."""
    return written if speedups is None else made_anew(speedups.record_class, written)


class RecordReader:
    """Iterates over the records of a batch, or cuts slices whose records or columns are created when they are read.

    `position` is the offset of the next record to return: the given `position` at the start, `next_offset` at the end.
    Records before the given position are skipped, since brokers send whole batches.
    """

    __slots__ = (
        "_kind", "_next_offset", "_rows", "_start", "_stopped_after", "_unread", "partition", "size_bytes",
        "timestamp_type", "topic",
    )  # fmt: skip

    def __init__(
        self, kind: type[Any], topic: str, partition: int, timestamp_type: int, position: int, next_offset: int,
        rows: list[Row], size_bytes: int,
    ) -> None:  # fmt: skip
        self._kind = kind
        self.topic = topic
        self.partition = partition
        self.timestamp_type = timestamp_type
        if rows and rows[0][0] < position:
            rows = [row for row in rows if row[0] >= position]
        self.size_bytes = size_bytes  # of all the records
        self._start, self._next_offset = position, next_offset
        self._rows = rows
        self._stopped_after: tuple[int | None] | None = None
        self._unread = iter(range(len(rows)))  # one step of it cannot be cut by another thread

    def __len__(self) -> int:
        """Return how many records are left."""
        return operator.length_hint(self._unread)

    def __iter__(self) -> RecordReader:
        return self

    def __next__(self) -> Any:
        row = self._rows[next(self._unread)]
        record = object.__new__(self._kind)  # in line: by way of `records` an iteration would take twice as long
        record.topic = self.topic
        record.partition = self.partition
        record.timestamp_type = self.timestamp_type
        record.offset, record.timestamp_ms, record.key, record.value, record.headers = row
        return record

    @property
    def position(self) -> int:
        return self._position(self._unread)

    @property
    def last_offset(self) -> int | None:
        """Return the offset of the record that was returned last, or None."""
        if self._stopped_after is not None:
            return self._stopped_after[0]
        read = len(self._rows) - operator.length_hint(self._unread)
        return self._rows[read - 1][0] if read else None

    def _position(self, unread: Iterator[int]) -> int:
        left = operator.length_hint(unread)
        if left == 0:
            return self._next_offset
        return self._start if left == len(self._rows) else self._rows[-left - 1][0] + 1

    def cut(self, count: int) -> RecordSlice:
        """Return the next records, at most `count`, as a slice; they count as read."""
        taken = list(islice(self._unread, max(0, count)))
        return RecordSlice(self, self._rows[taken[0] : taken[0] + len(taken)] if taken else [])

    def take(self, count: int) -> list[Any]:
        """Return the records of `cut(count)`."""
        return self.cut(count).records()

    def stop(self) -> int:
        """Stop reading; return the position where it ended."""
        self._stopped_after = (self.last_offset,)
        unread, self._unread = self._unread, iter(range(0))
        return self._position(unread)

    def detach(self) -> None:
        """Make the returned records independent of the batch; in Python they always are."""

    def records(self, rows: list[Row]) -> list[Any]:
        """Return records of the rows; setting each slot takes half the time of `__init__` with eight arguments."""
        kind, topic, partition, timestamp_type = self._kind, self.topic, self.partition, self.timestamp_type
        new: Any = kind.__new__
        records: list[Any] = list(map(new, repeat(kind, len(rows))))
        for record, row in zip(records, rows, strict=True):
            record.topic = topic
            record.partition = partition
            record.timestamp_type = timestamp_type
            record.offset, record.timestamp_ms, record.key, record.value, record.headers = row
        return records


class RecordSlice:
    """Consecutive records of a reader."""

    __slots__ = ("_rows", "cursor")

    def __init__(self, cursor: RecordReader, rows: list[Row]) -> None:
        self.cursor = cursor
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def records(self) -> list[Any]:
        return self.cursor.records(self._rows)

    def rows(self) -> list[Row]:
        """Return tuples (offset, timestamp, key, value, headers)."""
        return self._rows


def open_reader(
    kind: type[Any], topic: str, partition: int, timestamp_type: int, position: int, next_offset: int,
    data: Bytes, pos: int, count: int, base_offset: int, base_timestamp: int, last_delta: int, timestamp: int | None,
) -> RecordReader:  # fmt: skip
    """Return a reader of a v2 batch's records, which begin at `pos` of `data`; check all records now."""
    if speedups is not None:
        reader = speedups.open_reader(
            kind, topic, partition, timestamp_type, position, next_offset,
            data, pos, count, base_offset, base_timestamp, last_delta, timestamp,
        )  # fmt: skip
        if reader is not None:
            return reader
    rows = decode_records(data, pos, count, base_offset, base_timestamp, last_delta, timestamp)
    return RecordReader(kind, topic, partition, timestamp_type, position, next_offset, rows, len(data) - pos)


def open_batches(
    kind: type[Any], topic: str, partition: int, position: int, data: Bytes, pos: int, check_crc: bool, enough: int
) -> tuple[RecordReader, int] | None:
    """Return a reader of consecutive v2 batches from `pos` of `data` on, up to `enough` bytes, and their end.

    Return None if `decode_batches` must decode the first: an older format, compressed, control, or invalid. The Python
    version always returns None.
    """
    return None


class RecordIterator:
    """Iterates over the readers that `_next_cursor` returns; StopIteration there ends it.

    `_reading` is the current reader; if set to None, the next step calls `_next_cursor`.
    """

    _reading: Any = None

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        while True:
            reading = self._reading
            if reading is not None:
                for record in reading:
                    return record
                if self._reading is not reading:
                    continue
            self._reading = self._next_cursor()

    def _end(self) -> None:
        """End the iteration. In C, the last iterator to end frees the memory pooled for records."""

    @abstractmethod
    def _next_cursor(self) -> Any:
        """Return the next reader."""


# (validity or None, ends, bytes), a byte string column in Arrow's layout: a bit per row, and an int32 per row plus one.
# In C these may be read-only buffers instead of bytes.
BytesColumn = tuple[Bytes | None, Bytes, Bytes]
# Rows, topic, partition int32, offset int64, timestamp int64, timestamp type int32, key, value, and headers: validity
# and ends of the lists, names, contents.
Columns = tuple[
    int, BytesColumn, Bytes, Bytes, Bytes, Bytes, BytesColumn, BytesColumn,
    tuple[Bytes | None, Bytes, BytesColumn, BytesColumn] | None,
]  # fmt: skip
# The same with None for each column that is not wanted.
SomeColumns = tuple[
    int, BytesColumn | None, Bytes | None, Bytes | None, Bytes | None, Bytes | None, BytesColumn | None,
    BytesColumn | None, tuple[Bytes | None, Bytes, BytesColumn, BytesColumn] | None,
]  # fmt: skip
# In the order of Columns; the bits are those of _c/columns.c.
COLUMN_BITS = {
    "topic": 1, "partition": 2, "offset": 4, "timestamp": 8, "timestamp_type": 16, "key": 32, "value": 64,
}  # fmt: skip


def columns(pieces: Sequence[RecordSlice], has_headers: bool) -> Columns:
    """Return the records of all slices as columns, in order.

    A record without headers has a null list. Invalid UTF-8 in header names becomes U+FFFD.
    """
    if speedups is not None:
        found = speedups.columns(pieces, has_headers)
        if found is not None:
            return found
    rows: list[Row] = []
    topics: list[bytes] = []
    partitions, types = array("i"), array("i")
    for piece in pieces:
        cursor, count = piece.cursor, len(piece)
        rows += piece.rows()
        topics += [cursor.topic.encode()] * count
        partitions.extend([cursor.partition] * count)
        types.extend([cursor.timestamp_type] * count)
    try:
        offsets, timestamps = array("q", [row[0] for row in rows]), array("q", [row[1] for row in rows])
    except OverflowError:
        raise CorruptRecordsError("an offset or a time has more than 64 bits") from None
    keys, values = _bytes_column([row[2] for row in rows]), _bytes_column([row[3] for row in rows])
    headers = _headers_column(rows) if has_headers else None
    numbers = partitions.tobytes(), offsets.tobytes(), timestamps.tobytes(), types.tobytes()
    return (len(rows), _bytes_column(topics), *numbers, keys, values, headers)


def some_columns(pieces: Sequence[RecordSlice], names: Collection[str]) -> SomeColumns:
    """Return only these columns of the records, as `columns` does. The names are those of COLUMN_BITS, and headers.

    What is not wanted is neither decoded nor copied. In Python, it is decoded.
    """
    has_headers = "headers" in names
    if speedups is not None:
        wanted = sum(bit for name, bit in COLUMN_BITS.items() if name in names)
        found: SomeColumns | None = speedups.columns(pieces, has_headers, wanted)
        if found is not None:
            return found
    rows, *made, headers = columns(pieces, has_headers)
    return (rows, *(one if name in names else None for name, one in zip(COLUMN_BITS, made, strict=True)), headers)  # type: ignore[return-value]


def _bytes_column(items: Sequence[bytes | None]) -> BytesColumn:
    found = [b"" if item is None else item for item in items]
    validity = None if None not in items else _bits(item is not None for item in items)
    return validity, _ends(map(len, found)), b"".join(found)


def _headers_column(rows: Sequence[Row]) -> tuple[Bytes | None, Bytes, BytesColumn, BytesColumn]:
    headers = [header for row in rows for header in row[4]]
    names = [shown_name(name).encode() for name, _ in headers]
    validity = None if all(row[4] for row in rows) else _bits(bool(row[4]) for row in rows)
    return (
        validity,
        _ends(len(row[4]) for row in rows),
        _bytes_column(names),
        _bytes_column([value for _, value in headers]),
    )


def _ends(sizes: Iterable[int]) -> bytes:
    ends, at = array("i", [0]), 0
    for size in sizes:
        at += size
        ends.append(at)
    return ends.tobytes()


def _bits(flags: Iterable[bool]) -> bytes:
    """Return the flags as bits; the first flag is the lowest bit of the first byte."""
    text = "".join("1" if flag else "0" for flag in flags)
    return int(text[::-1] or "0", 2).to_bytes((len(text) + 7) // 8, "little")


if not TYPE_CHECKING and speedups is not None:
    RecordFields, RecordIterator, open_batches = speedups.RecordFields, speedups.RecordIterator, speedups.open_batches
