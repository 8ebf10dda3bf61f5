"""Records of a v2 batch to bytes, in Python.

By the column where that is possible, which is nearly always: what stands before each key and value is then looked up,
and put between them, for all records at once. Else one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import chain, pairwise, repeat
from operator import add, sub
from typing import Any

from kwire.errors import EncodeError
from kwire.records.alike import DELTAS_FROM, delta_columns
from kwire.records.rows import Headers, NewRecord
from kwire.wire.accel import speedups
from kwire.wire.buffers import Bytes
from kwire.wire.varint import SHORT_UVARINTS, encode_varint

# Zig-zag varints of 0 .. 8191, which take one or two bytes: lengths, offset deltas and most timestamp deltas.
_SHORT = 1 << 13
_VARINT = SHORT_UVARINTS[::2]
_NULL = encode_varint(-1)
_LENGTH = (*_VARINT, _NULL)  # also of -1, which is null's
_NO_ATTRIBUTES = b"\0"
_NO_HEADERS = b"\0"

_AROUND_BYTES_MAX = 24  # of a record whose lengths and offset delta have two bytes at most, without key and value
_STRETCH_MIN = 16  # records of one time; where fewer have that, one by one is faster

# Records start .. end - 1, their attributes and timestamp delta, and how many bytes their offset deltas have.
_Stretch = tuple[int, int, bytes, int]


def encode_records(
    records: Sequence[NewRecord], base_timestamp: int, offset_deltas: Sequence[int] | None = None
) -> bytes:
    """The records of a v2 batch, one after the other, at offset deltas 0, 1, 2, ... or those given."""
    if speedups is not None and offset_deltas is None:
        encoded: bytes | None = speedups.encode_records(records, base_timestamp)
        if encoded is not None:
            return encoded
    if offset_deltas is not None or len(records) < 2:
        return b"".join(_encode_each(records, base_timestamp, offset_deltas or range(len(records))))
    timestamps, keys, values, headers = zip(*records, strict=True)
    marks = [0]
    if any(headers) or timestamps[0] != base_timestamp:
        return b"".join(_encode_each(records, base_timestamp, range(len(records))))
    if timestamps.count(base_timestamp) < len(timestamps):
        marks += [at for at, (one, other) in enumerate(pairwise(timestamps), 1) if one != other]
    return bytes(encode_columns(keys, values, marks, [timestamps[at] for at in marks]))


def encode_columns(
    keys: Sequence[Any], values: Sequence[Any], marks: Sequence[int], mark_times: Sequence[int], room: int = 0
) -> bytearray:
    """Records without headers. Those from marks[i] on have the time mark_times[i]; the first's is the base.

    Before them is room for so many bytes: what is to stand there needs no second copy of all.
    """
    count = len(values)
    sizes = _sizes(values)
    is_keyless = keys.count(None) == count
    key_sizes = [] if is_keyless else _sizes(keys)
    largest = max(sizes, default=0) + max(key_sizes, default=0)
    if largest + _AROUND_BYTES_MAX > _SHORT or count > DELTAS_FROM[-1] or len(marks) * _STRETCH_MIN > count:
        timestamps = chain.from_iterable(map(repeat, mark_times, map(sub, [*marks[1:], count], marks)))
        rows = list(zip(timestamps, keys, values, repeat(())))
        return bytearray().join([bytes(room), *_encode_each(rows, mark_times[0], range(count))])
    stretches = list(_stretches(marks, mark_times, count))
    if is_keyless and sizes[0] >= 0 and sizes.count(sizes[0]) == count:
        return _encode_alike(values, sizes[0], stretches, room)
    return bytearray().join([bytes(room), *_encode_unlike(keys, key_sizes, values, sizes, stretches)])


def _sizes(column: Sequence[Any]) -> list[int]:
    """-1 for None."""
    return [-1 if cell is None else len(cell) for cell in column] if None in column else list(map(len, column))


def _stretches(marks: Sequence[int], mark_times: Sequence[int], count: int) -> Iterator[_Stretch]:
    for (start, end), timestamp in zip(pairwise([*marks, count]), mark_times, strict=True):
        lead = _NO_ATTRIBUTES + encode_varint(timestamp - mark_times[0])
        for width, limit in enumerate(DELTAS_FROM[2:], 1):
            if start < min(limit, end):
                yield start, min(limit, end), lead, width
                start = limit


def _encode_alike(values: Sequence[Bytes], size: int, stretches: list[_Stretch], room: int) -> bytearray:
    """Values of one size without keys, in a quarter of the time.

    Between two values stand the end of one record and the start of the next, which in a stretch differ in nothing but
    the offset delta: so what is joined is the same again and again, and then each byte of the deltas gets its column.
    """
    before: list[bytes] = []
    end_of_before = _NULL + _VARINT[size]
    for start, end, lead, width in stretches:
        record_size = len(lead) + width + len(end_of_before) + size + len(_NO_HEADERS)
        before += [_NO_HEADERS + _VARINT[record_size] + lead + bytes(width) + end_of_before] * (end - start)
    parts: list[Bytes] = [_NO_HEADERS] * (2 * len(values) + 1)
    parts[0:-1:2], parts[1::2] = before, values
    parts[0] = bytes(room) + before[0][len(_NO_HEADERS) :]  # no record ends before the first
    records = bytearray().join(parts)
    at = room - len(_NO_HEADERS)
    for start, end, _, width in stretches:
        stride = len(before[start]) + size
        first = at + len(before[start]) - len(end_of_before) - width
        at += (end - start) * stride
        for place, column in enumerate(delta_columns(start, end), first):
            records[place:at:stride] = column
    return records


def _encode_unlike(
    keys: Sequence[Bytes | None], key_sizes: list[int], values: Sequence[Bytes | None], sizes: list[int],
    stretches: list[_Stretch],
) -> list[Bytes]:  # fmt: skip
    """Values of any sizes, and keys where `key_sizes` has some, in half the time: a column for each field."""
    count = len(values)
    sized, starts = _tables()
    contents: Iterable[int] = map(sized.__getitem__, sizes)
    if key_sizes:
        contents = map(add, contents, map(sized.__getitem__, key_sizes))
    contents = list(contents)
    before: list[bytes] = []
    leads: list[bytes] = []
    for start, end, lead, width in stretches:
        around = len(lead) + width + (0 if key_sizes else len(_NULL)) + len(_NO_HEADERS)
        before += [starts[around + size] for size in contents[start:end]]
        leads += [lead] * (end - start)
    before[0] = before[0][len(_NO_HEADERS) :]  # no record ends before the first
    deltas = [*_VARINT[:count], *map(bytes, zip(*delta_columns(_SHORT, max(count, _SHORT + 1)), strict=True))][:count]
    columns: list[Iterable[Any]] = [before, leads, deltas]
    columns += [map(_LENGTH.__getitem__, key_sizes), _present(keys)] if key_sizes else [repeat(_NULL, count)]
    columns += [map(_LENGTH.__getitem__, sizes), _present(values)]
    parts: list[Bytes] = [b""] * (len(columns) * count)
    for place, column in enumerate(columns):
        parts[place :: len(columns)] = column
    parts.append(_NO_HEADERS)
    return parts


def _present(column: Sequence[Bytes | None]) -> Sequence[Bytes]:
    """With nothing in the place of None."""
    return [cell or b"" for cell in column] if None in column else column  # type: ignore[return-value]


@cache
def _tables() -> tuple[list[int], list[bytes]]:
    """For sizes of 0 .. 8191: that with the length before it, also for -1, which is null's; the end of a record, and
    the start of one so large."""
    sized = [n + len(_VARINT[n]) for n in range(_SHORT)]
    return [*sized, len(_NULL)], [_NO_HEADERS + size for size in _VARINT]


def _encode_each(records: Sequence[NewRecord], base_timestamp: int, offset_deltas: Sequence[int]) -> list[Bytes]:
    """Any records, one by one."""
    parts: list[Bytes] = []
    append = parts.append
    varint = _VARINT
    last: Headers = ()
    tail = _NO_HEADERS
    for delta, (timestamp, key, value, headers) in zip(offset_deltas, records, strict=True):
        after = timestamp - base_timestamp
        head = (varint[after] if 0 <= after < _SHORT else encode_varint(after)) + (
            varint[delta] if 0 <= delta < _SHORT else encode_varint(delta)
        )
        size = 0
        if key is None:
            head += _NULL
        else:
            size = len(key)
            head += varint[size] if size < _SHORT else encode_varint(size)
        if value is None:
            middle = _NULL
        else:
            n = len(value)
            size += n
            middle = varint[n] if n < _SHORT else encode_varint(n)
        if headers is not last:  # many in a row often have the very same
            last, tail = headers, encode_headers(headers) if headers else _NO_HEADERS
        size += 1 + len(head) + len(middle) + len(tail)
        append((varint[size] if size < _SHORT else encode_varint(size)) + _NO_ATTRIBUTES + head)
        if key:
            append(key)
        append(middle)
        if value:
            append(value)
        append(tail)
    return parts


def encode_headers(headers: Headers) -> bytes:
    """The count of the headers and the headers, as they end a record of a v2 batch."""
    parts: list[Bytes] = [encode_varint(len(headers))]
    for name, value in headers:
        parts.append(_header_name(name))
        if value is None:
            parts.append(_NULL)
        else:
            size = len(value)
            parts.append(_VARINT[size] if size < _SHORT else encode_varint(size))
            parts.append(value)
    return b"".join(parts)


@lru_cache(maxsize=256)  # a program has few names of headers and writes them often
def _header_name(name: str) -> bytes:
    try:
        encoded = name.encode(errors="surrogateescape")
    except (AttributeError, UnicodeEncodeError) as error:
        raise EncodeError(f"a header's name is text, not {name!r}") from error
    return encode_varint(len(encoded)) + encoded
