"""A log segment, batch by batch: where each batch is, whether it is intact, and whether it belongs there.

One batch is in memory at a time. A problem is a CorruptRecordsError whose offset is the position in the file. A batch
with a wrong checksum is skipped by its size. An impossible size ends the reading, since nothing says where the next
batch begins.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple

from kwire.errors import CorruptRecordsError
from kwire.records import BATCH_OVERHEAD_BYTES, NO_LEADER_EPOCH, Batch, decode_batches

# More than any broker accepts (message.max.bytes is rarely above 100 MB), and small enough for memory.
BATCH_BYTES_MAX = 256 * 1024 * 1024

_HEAD_BYTES = 17
_HEAD = struct.Struct(">qi4xB")
_OVERHEAD_BYTES = 12
# The least sizes, by magic: an empty message of v0 and v1, a v2 header.
_SIZES_MIN = (14, 22, BATCH_OVERHEAD_BYTES - _OVERHEAD_BYTES)
_V2_LAST_OFFSET_DELTA_AT = 23
_V2_MAX_TIMESTAMP_AT = 35
_V1_TIMESTAMP_AT = 18
_CHUNK_BYTES = 1 << 20


class PositionedBatch(NamedTuple):
    """A batch and its position in the file. `is_valid`: the checksum is right."""

    position: int
    batch: Batch
    is_valid: bool


class Unused(NamedTuple):
    """Zeros to the end of the file, from a broker with log.preallocate."""

    position: int
    size: int


def read_segment(file: BinaryIO) -> Iterator[PositionedBatch | Unused | CorruptRecordsError]:
    """Yield the batches and problems of a file, in order."""
    position = 0
    while head := file.read(_HEAD_BYTES):
        if not any(head):
            zeros = count_zeros(file)
            if zeros is not None:
                yield Unused(position, len(head) + zeros)
                return
        size = _size_of(head)
        if isinstance(size, str):
            left = len(head) + _count(file)
            yield CorruptRecordsError(
                f"{size}; {left} bytes from here to the end are skipped", offset=position, remedy=_REMEDY_CUT
            )
            return
        raw = head + file.read(size - len(head))
        if len(raw) < size:
            message = f"the file ends inside a batch, after {len(raw)} of its {size} bytes"
            yield CorruptRecordsError(message, offset=position, remedy=_REMEDY_CUT)
            return
        yield from _decoded(raw, position)
        position += size


_REMEDY_CUT = "a broker that was killed while writing truncates this on startup; else check the disk"


def _size_of(head: bytes) -> int | str:
    """Return the size of a batch, or why it has none."""
    if len(head) < _HEAD_BYTES:
        return f"{len(head)} bytes are too few for a batch"
    _, size, magic = _HEAD.unpack(head)
    if magic >= len(_SIZES_MIN):
        return f"there is no message format v{magic}"
    if not _SIZES_MIN[magic] <= size <= BATCH_BYTES_MAX:
        return f"{size} bytes is not a valid size of a batch of format v{magic}"
    return int(size) + _OVERHEAD_BYTES


def _decoded(raw: bytes, position: int) -> Iterator[PositionedBatch | CorruptRecordsError]:
    try:
        (batch,) = decode_batches(raw)
        yield PositionedBatch(position, batch, True)
        return
    except CorruptRecordsError as error:
        yield at_file_offset(error, position)
    try:
        (batch,) = decode_batches(raw, check_crc=False)
    except CorruptRecordsError:
        return
    yield PositionedBatch(position, batch, False)


def at_file_offset(error: CorruptRecordsError, position: int) -> CorruptRecordsError:
    """Return the error with its offset in the file instead of in the batch at `position`."""
    inside = error.where.get("offset")
    error.where["offset"] = position + (inside if isinstance(inside, int) else 0)
    return error


def _count(file: BinaryIO) -> int:
    return sum(len(chunk) for chunk in iter(lambda: file.read(_CHUNK_BYTES), b""))


def count_zeros(file: BinaryIO) -> int | None:
    """Return the number of zeros to the end of the file; None, at the old position, if there is anything else.

    Holes are not read: a preallocated file is one, of 10 MB or more.
    """
    begin = pos = file.tell()
    end = file.seek(0, os.SEEK_END)
    while (pos := _next_data(file, pos, end)) < end:
        file.seek(pos)
        chunk = file.read(_CHUNK_BYTES)
        if chunk.count(0) < len(chunk):
            file.seek(begin)
            return None
        pos += max(1, len(chunk))
    file.seek(end)
    return end - begin


def _next_data(file: BinaryIO, pos: int, end: int) -> int:
    """Return where the data at or behind a position begins, as far as the file system tells."""
    if pos >= end or not hasattr(os, "SEEK_DATA"):
        return pos
    try:
        number = file.fileno()
        before = os.lseek(number, 0, os.SEEK_CUR)
        try:
            return os.lseek(number, pos, os.SEEK_DATA)
        finally:
            os.lseek(number, before, os.SEEK_SET)  # where the file object believes to be
    except OSError as error:  # also io.UnsupportedOperation, of a file in memory
        return end if error.errno == errno.ENXIO else pos


class OrderCheck:
    """Checks that offsets ascend from the segment's base offset, and that leader epochs do not fall."""

    def __init__(self, base_offset: int) -> None:
        self._next = base_offset
        self._epoch = NO_LEADER_EPOCH

    def problems(self, located: PositionedBatch) -> Iterator[CorruptRecordsError]:
        """Yield what is wrong with the position of a batch."""
        batch = located.batch
        if batch.base_offset < self._next:
            what = (
                f"a batch of offsets {batch.base_offset} to {batch.last_offset} where {self._next} or more is expected"
            )
            yield CorruptRecordsError(f"offsets do not ascend: {what}", offset=located.position)
        self._next = max(self._next, batch.next_offset)
        if batch.partition_leader_epoch < self._epoch:
            epochs = f"{batch.partition_leader_epoch} after {self._epoch}"
            yield CorruptRecordsError(f"leader epochs fall: {epochs}", offset=located.position)
        self._epoch = max(self._epoch, batch.partition_leader_epoch)


class BatchPosition(NamedTuple):
    """What an index can say of a batch."""

    position: int
    base_offset: int
    last_offset: int
    max_timestamp_ms: int | None


def read_positions(file: BinaryIO) -> Iterator[BatchPosition]:
    """Yield the positions of the batches of a log, from headers alone, up to the first impossible size."""
    position = last_offset = 0
    while True:
        file.seek(position)
        head = file.read(BATCH_OVERHEAD_BYTES)
        size = _size_of(head[:_HEAD_BYTES])
        if isinstance(size, str):
            return
        offset, _, magic = _HEAD.unpack_from(head)
        if magic == 2:
            delta = int.from_bytes(head[_V2_LAST_OFFSET_DELTA_AT : _V2_LAST_OFFSET_DELTA_AT + 4], "big")
            timestamp = int.from_bytes(head[_V2_MAX_TIMESTAMP_AT : _V2_MAX_TIMESTAMP_AT + 8], "big", signed=True)
            yield BatchPosition(position, offset, offset + delta, timestamp)
            last_offset = offset + delta
        else:
            # A compressed message of an old format has the offset of its last record only.
            at = int.from_bytes(head[_V1_TIMESTAMP_AT : _V1_TIMESTAMP_AT + 8], "big", signed=True) if magic else None
            yield BatchPosition(position, min(last_offset + 1, offset), offset, at)
            last_offset = offset
        position += size


def records_problem(located: PositionedBatch) -> CorruptRecordsError | None:
    """Return what is wrong with a batch's records; the header does not show it."""
    try:
        located.batch.rows()
    except CorruptRecordsError as error:
        return at_file_offset(error, located.position)
    return None


def check_order(found: Iterable[PositionedBatch | Unused | CorruptRecordsError], base_offset: int) -> Iterator[
    PositionedBatch | Unused | CorruptRecordsError
]:  # fmt: skip
    """Yield the same, each batch after the problems of its position."""
    sequence = OrderCheck(base_offset)
    for one in found:
        if isinstance(one, PositionedBatch):
            yield from sequence.problems(one)
        yield one
