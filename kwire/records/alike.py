"""Runs of records that are alike: no headers, and keys and values of one size.

Such records (measurements, rows of a table, messages of fixed size) have all fields at the same places, so that a
slice with a stride is the column of one byte of every record. The columns of all lengths must be constant, which
`bytes.lstrip` tells at the speed of memory; offset deltas must count up by one; then `struct` cuts out keys and values.
It takes less than half the time of reading record by record (tools/bench/run records), and costs little in vain.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import repeat

from kwire.records.rows import Row
from kwire.wire.varint import decode_varint

RUN_MIN = 16
# No longer, so that looking for a run does not read the whole batch each time.
RUN_MAX = 1024

# Base offset, base timestamp, the greatest offset delta allowed, and the timestamp of all records if they have one.
Origin = tuple[int, int, int, int | None]

# The first offset delta, as a zig-zag varint, of 1, 2 and 3 bytes; the first of 4.
DELTAS_FROM = (0, 0, 1 << 6, 1 << 13, 1 << 20)
_ONE_BYTE, _TWO_BYTES = DELTAS_FROM[2:4]
# The columns of those that have one byte, and two; of three, the lower ones come again and again.
_ONLY = bytes(2 * n for n in range(_ONE_BYTE))
_LOW = bytes(range(0x80, 0x100, 2)) * 128
_MIDDLE = b"".join(bytes((byte,)) * 64 for byte in range(0x80, 0x100))
_HIGH = b"".join(bytes((high,)) * 64 for high in range(1, 128))


def delta_columns(start: int, end: int) -> tuple[bytes, ...]:
    """The offset deltas start .. end - 1, all of them of as many bytes: the columns of these."""
    if end <= _ONE_BYTE:
        return (_ONLY[start:end],)
    if end <= _TWO_BYTES:
        here = slice(start - _ONE_BYTE, end - _ONE_BYTE)
        return _LOW[here], _HIGH[here]
    first, rounds = start // _TWO_BYTES, (end - 1) // _TWO_BYTES + 1 - start // _TWO_BYTES
    here = slice(start - first * _TWO_BYTES, end - first * _TWO_BYTES)
    high = b"".join(bytes((byte,)) * _TWO_BYTES for byte in range(first, first + rounds))
    return (_LOW * rounds)[here], (_MIDDLE * rounds)[here], high[here]


class _Pattern:
    """Where the fields of one record are in `data`; those like it have them `stride` bytes further each."""

    __slots__ = ("after", "data", "delta", "delta_at", "end", "key_at", "key_size", "key_start", "start", "stride",
                 "timestamp_at", "value_at", "value_size", "value_start")  # fmt: skip

    def __init__(self, data: bytes, start: int, end: int) -> None:
        self.data, self.start, self.end, self.stride = data, start, end, end - start
        attributes_at = decode_varint(data, start)[1]
        self.timestamp_at = attributes_at + 1
        self.after, self.delta_at = decode_varint(data, self.timestamp_at)
        self.delta, self.key_at = decode_varint(data, self.delta_at)
        self.key_size, self.key_start = decode_varint(data, self.key_at)
        self.value_at = self.key_start + max(self.key_size, 0)
        self.value_size, self.value_start = decode_varint(data, self.value_at)

    def column(self, at: int, count: int) -> bytes:
        """The byte that the record has at `at`, of the `count` records after it."""
        return self.data[at + self.stride : self.end + count * self.stride : self.stride]

    def count_alike(self, count: int) -> int:
        """How many of the next `count` records have the same lengths, and a timestamp of the same size.

        A timestamp delta of one byte may vary, a longer one may not, because the columns of its bytes tell no order.
        """
        if self.data[self.end - 1]:  # there are headers
            return 0
        places = [*range(self.start, self.timestamp_at - 1), *range(self.key_at, self.key_start)]
        places += [*range(self.value_at, self.value_start), self.end - 1]
        if self.delta_at - self.timestamp_at > 1:
            places += range(self.timestamp_at, self.delta_at)
        for at in places:
            column = self.column(at, count)
            count -= len(column.lstrip(self.data[at : at + 1]))
        if self.delta_at - self.timestamp_at == 1 and count and max(self.column(self.timestamp_at, count)) > 0x7F:
            return 0
        return count

    def count_up(self, count: int) -> int:
        """How many of `count` have an offset delta of the same size, if these count up by one from the record on."""
        following, width = self.delta + 1, self.key_at - self.delta_at
        if width >= len(DELTAS_FROM) - 1 or following < DELTAS_FROM[width]:
            return 0
        count = min(count, DELTAS_FROM[width + 1] - following)
        own = tuple(self.column(self.delta_at + place, count) for place in range(width))
        return count if own == delta_columns(following, following + count) else 0

    def rows(self, count: int, origin: Origin) -> list[Row]:
        base_offset, base_timestamp, _, timestamp = origin
        whens: Iterable[int] = repeat(base_timestamp + self.after if timestamp is None else timestamp)
        if timestamp is None and self.delta_at - self.timestamp_at == 1:
            whens = [base_timestamp + ((n >> 1) ^ -(n & 1)) for n in self.column(self.timestamp_at, count)]
        form = f"{self.key_start - self.start}x" + (f"{self.key_size}s" if self.key_size >= 0 else "")
        form += f"{self.value_start - self.value_at}x" + (f"{self.value_size}s" if self.value_size >= 0 else "") + "x"
        run = memoryview(self.data)[self.end : self.end + count * self.stride]
        cut = zip(*struct.iter_unpack(form, run), strict=True)
        keys = next(cut) if self.key_size >= 0 else repeat(None)
        values = next(cut) if self.value_size >= 0 else repeat(None)
        first = base_offset + self.delta + 1
        return list(zip(range(first, first + count), whens, keys, values, repeat(())))


def decode_run(data: bytes, start: int, end: int, left: int, origin: Origin) -> tuple[list[Row], int]:
    """The records after `end` that are like the one at `start:end`, at most `left`, and where they end.

    The record at `start` was found to be right. Fewer than RUN_MIN are none.
    """
    stride = end - start
    count = min(left, RUN_MAX, (len(data) - end) // stride)
    if count < RUN_MIN or data[end : end + RUN_MIN * stride : stride] != data[start : start + 1] * RUN_MIN:
        return [], end
    pattern = _Pattern(data, start, end)
    count = pattern.count_alike(min(count, origin[2] - pattern.delta))
    if count >= RUN_MIN:
        count = pattern.count_up(count)
    if count < RUN_MIN:
        return [], end
    return pattern.rows(count, origin), end + count * stride
