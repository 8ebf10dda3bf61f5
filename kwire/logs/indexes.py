"""The indexes of a log segment: their entries, and whether they fit the log.

    .index       (offset - base, position), 4 bytes each: the batch at the position has this as its last offset
    .timeindex   (timestamp, offset - base), 8 and 4: the largest timestamp up to the batch that ends at the offset
    .txnindex    version, producer id, first and last offset, last stable offset: an aborted transaction

The .index and .timeindex of the active segment are preallocated and end in zeros. Kafka trusts the .index on startup
and then reads from wrong positions. Delete an index that does not fit: the broker rebuilds it on startup.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple

from kwire.errors import CorruptRecordsError, DecodeError
from kwire.logs.segments import BatchPosition, count_zeros, read_positions
from kwire.protocol.messages.aborted_txn import AbortedTxn

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_VERSION = struct.Struct(">h")
_ABORTED_BYTES = 34
_CHUNK_ENTRIES = 4096
_REMEDY = "stop the broker and delete the index: it is rebuilt from the log"


class OffsetEntry(NamedTuple):
    """An entry at byte `at` of the index: the batch at `position` of the log ends with `offset`."""

    at: int
    offset: int
    position: int


class TimeEntry(NamedTuple):
    at: int
    timestamp_ms: int
    offset: int


def read_offset_index(file: BinaryIO, base_offset: int) -> Iterator[OffsetEntry | CorruptRecordsError]:
    """Yield the entries and problems. Preallocated zeros at the end are not entries."""
    last: OffsetEntry | None = None
    for at, fields in _entries(file, _OFFSET_ENTRY):
        if isinstance(fields, CorruptRecordsError):
            yield fields
            return
        delta, position = fields
        if not delta and not position and last is not None:
            return
        if not delta and not position and not at and _is_zero(file):
            return
        entry = OffsetEntry(at, base_offset + delta, position)
        if last is not None and (entry.offset <= last.offset or position <= last.position):
            what = f"offset {entry.offset} at {position} after offset {last.offset} at {last.position}"
            yield CorruptRecordsError(f"entries do not ascend: {what}", offset=at, remedy=_REMEDY)
        elif delta < 0 or position < 0:
            yield CorruptRecordsError(f"offset {entry.offset} at {position}", offset=at, remedy=_REMEDY)
        last = entry
        yield entry


def read_time_index(file: BinaryIO, base_offset: int) -> Iterator[TimeEntry | CorruptRecordsError]:
    """Yield the entries and problems. Preallocated zeros at the end are not entries."""
    last: TimeEntry | None = None
    for at, fields in _entries(file, _TIME_ENTRY):
        if isinstance(fields, CorruptRecordsError):
            yield fields
            return
        timestamp, delta = fields
        if not timestamp and not delta and (last is not None or _is_zero(file)):
            return
        entry = TimeEntry(at, timestamp, base_offset + delta)
        if last is not None and (timestamp <= last.timestamp_ms or entry.offset < last.offset):
            what = f"{timestamp} of offset {entry.offset} after {last.timestamp_ms} of offset {last.offset}"
            yield CorruptRecordsError(f"entries do not ascend: {what}", offset=at, remedy=_REMEDY)
        last = entry
        yield entry


def read_aborted(file: BinaryIO) -> Iterator[tuple[int, AbortedTxn] | DecodeError]:
    """Yield (position, transaction) and problems. Stops at an unknown version, since its size is unknown, too."""
    at = 0
    last_offset = -1
    while data := file.read(_ABORTED_BYTES):
        if len(data) < _ABORTED_BYTES:
            message = f"the file ends inside an entry: {len(data)} of {_ABORTED_BYTES} bytes"
            yield CorruptRecordsError(message, offset=at, remedy=_REMEDY)
            return
        (version,) = _VERSION.unpack_from(data)
        if version not in AbortedTxn.VERSIONS:
            yield DecodeError(f"unknown version {version} of an entry", offset=at)
            return
        entry = AbortedTxn.decode(data[_VERSION.size :], version)
        if entry.first_offset > entry.last_offset or entry.last_offset <= last_offset:
            what = f"{entry.first_offset} to {entry.last_offset} after {last_offset}"
            yield CorruptRecordsError(f"a transaction of offsets {what}", offset=at, remedy=_REMEDY)
        last_offset = entry.last_offset
        yield at, entry
        at += _ABORTED_BYTES


def _entries(
    file: BinaryIO, layout: struct.Struct
) -> Iterator[tuple[int, tuple[int, int]] | tuple[int, CorruptRecordsError]]:
    at = 0
    while chunk := file.read(layout.size * _CHUNK_ENTRIES):
        whole = len(chunk) - len(chunk) % layout.size
        for first, second in layout.iter_unpack(chunk[:whole]):
            yield at, (first, second)
            at += layout.size
        if whole < len(chunk):
            message = f"the file ends inside an entry: {len(chunk) - whole} of {layout.size} bytes"
            yield at, CorruptRecordsError(message, offset=at, remedy=_REMEDY)
            return


def _is_zero(file: BinaryIO) -> bool:
    """Return whether a file is all zeros: an index without entries."""
    begin = file.tell()
    file.seek(0)
    is_zero = count_zeros(file) is not None
    file.seek(begin)
    return is_zero


class OffsetCheck:
    """Checks whether entries of an .index, in order, point at batches of the log."""

    def __init__(self, log: BinaryIO) -> None:
        self._batches = _Batches(log)

    def problem(self, entry: OffsetEntry) -> CorruptRecordsError | None:
        batch = self._batches.find(lambda one: one.position >= entry.position)
        if batch is None:
            message = f"position {entry.position} of offset {entry.offset} is after the last batch of the log"
        elif batch.position != entry.position:
            message = f"no batch of the log begins at {entry.position}, where offset {entry.offset} should be"
        elif not batch.base_offset <= entry.offset:
            message = f"offset {entry.offset} should be at {entry.position}, where {batch.base_offset} begins"
        else:
            return None
        return CorruptRecordsError(message, offset=entry.at, remedy=_REMEDY)


class TimeCheck:
    """Checks whether entries of a .timeindex, in order, hold the largest timestamps of the log."""

    def __init__(self, log: BinaryIO) -> None:
        self._batches = _Batches(log)
        self._largest_ms = -1

    def problem(self, entry: TimeEntry) -> CorruptRecordsError | None:
        batch = self._batches.find(lambda one: one.last_offset >= entry.offset, self._see)
        if batch is None:
            message = f"offset {entry.offset} is after the last batch of the log"
        elif batch.max_timestamp_ms is None:
            return None  # messages of format 0 have no timestamp
        elif max(self._largest_ms, batch.max_timestamp_ms) != entry.timestamp_ms:
            largest = max(self._largest_ms, batch.max_timestamp_ms)
            message = f"{entry.timestamp_ms} is not the largest timestamp up to offset {entry.offset}: {largest} is"
        else:
            return None
        return CorruptRecordsError(message, offset=entry.at, remedy=_REMEDY)

    def _see(self, passed: BatchPosition) -> None:
        self._largest_ms = max(self._largest_ms, passed.max_timestamp_ms or -1)


class _Batches:
    """The batches of a log, read in step with the entries of an index."""

    def __init__(self, log: BinaryIO) -> None:
        self._places = read_positions(log)
        self._current = next(self._places, None)

    def find(
        self, fits: Callable[[BatchPosition], bool], see: Callable[[BatchPosition], None] | None = None
    ) -> BatchPosition | None:
        """Return the first batch that fits, from the last one on; `see` gets every batch that is skipped."""
        while self._current is not None and not fits(self._current):
            if see is not None:
                see(self._current)
            self._current = next(self._places, None)
        return self._current
