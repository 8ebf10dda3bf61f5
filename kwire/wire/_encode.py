"""Records of a v2 batch to bytes, in Python."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from kwire.errors import EncodeError
from kwire.wire.rows import Bytes, Headers, NewRecord
from kwire.wire.varint import SHORT_UVARINTS, encode_varint, varint_size

# Zig-zag varints of 0 .. 8191, which take one or two bytes: lengths, offset deltas and most timestamp deltas.
_ONE_BYTE, _SHORT = 1 << 6, 1 << 13
_VARINT = SHORT_UVARINTS[::2]
_NULL = encode_varint(-1)
_NO_ATTRIBUTES = b"\0"
_NO_HEADERS = b"\0"


def encode_records(
    records: Sequence[NewRecord], base_timestamp: int, offset_deltas: Sequence[int] | None = None
) -> bytes:
    """The records of a v2 batch, one after the other, at offset deltas 0, 1, 2, ... or those given."""
    if offset_deltas is None:
        if 1 < len(records) <= _SHORT and (encoded := _encode_alike(records, base_timestamp)) is not None:
            return encoded
        offset_deltas = range(len(records))
    parts: list[Bytes] = []
    append = parts.append
    varint = _VARINT
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
        tail = encode_headers(headers) if headers else _NO_HEADERS
        size += 1 + len(head) + len(middle) + len(tail)
        append((varint[size] if size < _SHORT else encode_varint(size)) + _NO_ATTRIBUTES + head)
        if key:
            append(key)
        append(middle)
        if value:
            append(value)
        append(tail)
    return b"".join(parts)


def _encode_alike(records: Sequence[NewRecord], base_timestamp: int) -> bytes | None:
    """The same for values of one size without keys and headers, in under half the time; None for other records.

    Between two values stand the end of one record and the start of the next, which in a run of equal timestamps differ
    in nothing but the offset delta.
    """
    if not _may_be_alike(records[0], records[-1]):
        return None
    timestamps, keys, values, headers = zip(*records, strict=True)
    count = len(values)
    if any(headers) or keys.count(None) != count or None in values:
        return None
    size = len(values[0])
    if list(map(len, values)).count(size) != count:
        return None
    starts: list[bytes] = []
    while (at := len(starts)) < count:
        timestamp = timestamps[at]
        # Offset deltas have one byte to 63, and two from 64 on.
        end, width = (min(_ONE_BYTE, count), 1) if at < _ONE_BYTE else (count, 2)
        run = next((i for i in range(at, end) if timestamps[i] != timestamp), end) - at
        after = encode_varint(timestamp - base_timestamp)
        record_size = 1 + len(after) + width + len(_NULL) + varint_size(size) + size + 1
        starts += [_NO_HEADERS + encode_varint(record_size) + _NO_ATTRIBUTES + after] * run
    starts[0] = starts[0][len(_NO_HEADERS) :]  # there is no record before the first
    parts: list[Bytes] = [_NO_HEADERS] * (3 * count + 1)
    parts[0:-1:3] = starts
    parts[1::3] = _keyless_middles(size)[:count]
    parts[2::3] = values
    return b"".join(parts)


def _may_be_alike(one: NewRecord, other: NewRecord) -> bool:
    """Spares the columns of most records that are not."""
    return (
        one[1] is other[1] is None
        and not one[3]
        and one[2] is not None
        and other[2] is not None
        and len(one[2]) == len(other[2])
    )


@lru_cache(maxsize=8)
def _keyless_middles(size: int) -> list[bytes]:
    """From the offset delta to the value's length, for every delta of one or two bytes."""
    end = _NULL + encode_varint(size)
    return [delta + end for delta in _VARINT]


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
