"""Exact sizes of records in an uncompressed v2 batch.

A record's size depends on its fields and on its position: its timestamp and offset deltas are varints.
`record_bytes_max` (rows.py) is an upper bound for any position.
"""

from __future__ import annotations

from kwire.records.rows import Headers
from kwire.wire.buffers import Bytes
from kwire.wire.varint import varint_size

_HAS_NO_HEADERS = 1
_NULL = 1
_REMEMBERED = 1 << 13  # values shorter than this are cached: their sizes recur


def lead_bytes(after: int, number: int) -> int:
    """Return the bytes of the fields before the key: attributes, timestamp delta, offset delta."""
    return 1 + varint_size(after) + varint_size(number)


def record_bytes(lead: int, key: Bytes | None, value: Bytes | None, headers: Headers = ()) -> int:
    """Return the bytes of a whole record that has `lead` bytes before its key."""
    size = lead + _sized(key) + _sized(value) + varint_size(len(headers))
    for name, content in headers:
        name_size = len(name.encode(errors="surrogateescape"))
        size += varint_size(name_size) + name_size + _sized(content)
    return varint_size(size) + size


class ValueRecords(dict[int, int]):
    """Map a value's length to the bytes of a record that has only this value; short lengths are cached."""

    def __init__(self, lead: int) -> None:
        self._around = lead + _NULL + _HAS_NO_HEADERS

    def __missing__(self, length: int) -> int:
        size = self._around + varint_size(length) + length
        size += varint_size(size)
        if length < _REMEMBERED:
            self[length] = size
        return size


# Indexed by `lead_bytes`. Built at import: an object created within `send` may start a garbage collection.
VALUE_RECORDS = tuple(map(ValueRecords, range(1 + 10 + 5 + 1)))


def _sized(content: Bytes | None) -> int:
    """Return the bytes of a field with its length prefix."""
    return _NULL if content is None else varint_size(len(content)) + len(content)
